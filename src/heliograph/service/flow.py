"""One flow that is connected: its clients, claim, signature, topics and partitions. In the driver.

`heliograph.service.supervisor` decides when one is made and closed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace

from heliograph.claims.flow_claim import FlowClaim
from heliograph.claims.log import Process, Standing
from heliograph.claims.ownership import nobody
from heliograph.claims.registry import Registry, longest_lease
from heliograph.config import FlowConfig
from heliograph.control.contexts import flow_context
from heliograph.control.topics import internal as internal_topics
from heliograph.control.topics.refresh import TargetTopic, TopicPlan, TopicRefresh
from heliograph.errors import ConfigError, StartError
from heliograph.failover.open_handovers import OpenHandovers
from heliograph.ledger.codec import Signature
from heliograph.ledger.flow_ledger import FlowLedger
from heliograph.ledger.follower import LedgerFollower
from heliograph.ledger.holds import Holds
from heliograph.ledger.moves import forget_moves, moves_in
from heliograph.ledger.reverse import ReverseFlow, looping
from heliograph.mm2.connect_offsets import LatestRecords
from heliograph.model import (
    ClientSettings,
    FlowContext,
    Guard,
    LeasedPartition,
    Move,
    TopicPartition,
)
from heliograph.policy import ledger_topic, policy_from
from heliograph.service.snapshot import COPYING
from heliograph.takeover.takeover import BEING_LOOKED_AT, TakeOver, place_of
from heliograph.wire import admin
from heliograph.wire.cluster import REQUEST_TIMEOUT_SECONDS, ClusterClient
from heliograph.wire.errors import (
    AuthenticationFailed,
    BrokerError,
    ConnectionFailed,
    NotKafka,
    WireError,
    is_retriable,
)
from heliograph.wire.rights import denied, missing_right

log = logging.getLogger(__name__)

#: How long a cluster may take to answer when the mirror starts.
_START_PATIENCE_SECONDS = 10.0
#: A broker that hangs must not keep the claim from finding its successor.
_CLAIM_REQUEST_SECONDS = 5.0
#: A broker that hangs must not keep the lag from being measured for long.
QUICK_REQUEST_SECONDS = 5.0
#: A lease is planned so long before it begins, and then some.
_LEASE_LEAD_SECONDS = 5.0
#: Of this topic, too, it is asked whether its records could come back: there may be no other yet.
_ANY_TOPIC = "x"
#: The keys that connections are made with; the others are about what is read and written.
_CONNECTING = ("bootstrap.servers", "client.id", "security.", "ssl.", "sasl.")


#: Why nothing is copied at first, if a flow in the opposite direction runs.
_BECOMING_KNOWN = (
    "the flow in the opposite direction gets to know this one, so that it copies nothing back"
)

#: From remote topics, by source topic, to the reasons why some are left to others.
Admit = Callable[[Mapping[str, str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class PositionsStore:
    """Where MM2 would look for the positions of a flow: cluster, topic, and under which name."""

    cluster: ClientSettings
    topic: str
    connector: str

    @classmethod
    def of(cls, config: FlowConfig) -> PositionsStore:
        """Where an MM2 without a Connect cluster has them: on the target."""
        return cls(config.target_admin, config.mm2_offsets_topic, "MirrorSourceConnector")


@dataclass(frozen=True, slots=True)
class Observation:
    """A flow as commands see it: who mirrors it, and source topics that are not mirrored (whole).

    ``owner`` is the oldest claim that stands. Its process may have been killed.
    """

    owner: Standing | None
    unmirrored: Sequence[str]


class FlowRuntime:
    """A flow that was configured. `open_target` suffices for heartbeats, `open` for the rest.

    ``plan`` is replaced as a whole by each refresh, so readers in other threads see one or the
    other, never a mixture. ``changed_hands`` is called, in a thread of the claim, when this mirror
    takes the flow over or loses it. ``name`` tells flows of one pair of clusters apart: each has a
    claim of its own. Without one the flow is named after its clusters. ``admit`` says which source
    topics others have: they are left to them. ``positions`` is where they are stored for MM2.
    ``silent`` and ``rest`` are those of `FlowClaim`. ``ordered`` is called, in a thread of the
    claim, when ``orders`` have changed.
    """

    def __init__(
        self,
        config: FlowConfig,
        changed_hands: Callable[[], None] | None = None,
        *,
        name: str = "",
        admit: Admit | None = None,
        positions: PositionsStore | None = None,
        silent: Callable[[Process], bool] = nobody,
        rest: Sequence[str] = (),
        ordered: Callable[[], None] | None = None,
    ) -> None:
        self.config = config
        self.flow = config.flow
        self.name = name or str(config.flow)
        self._scope = name
        self.plan = TopicPlan()
        #: Where the source's partitions ended before anything was done, if `open` was asked.
        self.goals: Mapping[TopicPartition, int] = {}
        self.context: FlowContext | None = None
        self.claim: FlowClaim | None = None
        self._ledger: FlowLedger | None = None
        #: Of a flow that is observed only: who mirrors it.
        self._registry: Registry | None = None
        self._changed_hands = changed_hands
        self._silent = silent
        self._rest = rest
        self._ordered = ordered
        #: What operators hold through the ledger, read with the claims; None before `open`.
        self.orders: Holds | None = None
        #: Handovers that were begun and not ended; read with ``orders``.
        self.open_handovers: OpenHandovers | None = None
        self._clients: dict[tuple[object, ...], ClusterClient] = {}
        self._making = threading.Lock()
        self._target: ClusterClient | None = None
        self._source: ClusterClient | None = None
        self._refresh: TopicRefresh | None = None
        self._take_over: TakeOver | None = None
        self._refreshing = threading.Lock()
        self._topics_made = False
        self._told_undeletable = False
        self._admit = admit
        self.positions = positions or PositionsStore.of(config)
        #: Topics that are left to others, with the reason.
        self._refused: Mapping[str, str] = {}
        #: Source topics that an operator lets rest: "paused", by whom and why.
        self.paused_topics: Mapping[str, str] = {}
        #: Whether remote topics are this mirror's to create.
        self._creates = True
        #: What goes in the opposite direction; None before `open`.
        self.reverse: ReverseFlow | None = None
        #: What must not be brought back, of partitions where that could happen.
        self.guards: Mapping[TopicPartition, Guard] = {}
        #: No leases before: mirrors of the opposite direction get to know our signature by then.
        self._unknown_until = 0.0

    def client(
        self, settings: ClientSettings, request_timeout: float = REQUEST_TIMEOUT_SECONDS
    ) -> ClusterClient:
        """The flow's client that connects as these settings say, closed with the flow.

        All jobs of the flow share it: none waits for another one's answer.
        """
        used = (item for item in settings.properties.items() if item[0].startswith(_CONNECTING))
        key = (settings.alias, *sorted(used), request_timeout)
        with self._making:
            if key not in self._clients:
                self._clients[key] = ClusterClient(
                    settings, f"{self.name}|control", request_timeout=request_timeout
                )
            return self._clients[key]

    @property
    def scope(self) -> str:
        """Tells flows of one pair of clusters apart in their ledger; empty for most."""
        return self._scope

    @property
    def prepared(self) -> FlowContext:
        """The context of an enabled flow, after `prepare`."""
        assert self.context is not None  # noqa: S101 - only enabled flows are asked
        return self.context

    @property
    def ledger(self) -> FlowLedger:
        """What the ledger of the flow says; all but the claim share it."""
        if self._ledger is None:
            client = self.client(self.config.target_admin, QUICK_REQUEST_SECONDS)
            self._ledger = FlowLedger(client, ledger_topic(self.flow.source), self._scope)
        return self._ledger

    # -- whose flow it is ---------------------------------------------------------------------

    @property
    def holds(self) -> bool:
        """Whether leases of the flow may be handed out at this moment."""
        return self.claim is not None and self.claim.holds

    @property
    def stands_by(self) -> bool:
        """Whether another mirror has the flow: nothing but the claim is written then."""
        return self.claim is not None and self.claim.stands_by

    @property
    def clear_from(self) -> float:
        """Seconds since the epoch from when no lease of an earlier mirror can be running."""
        return self.claim.clear_from if self.claim is not None else 0.0

    def require(self, stopped: threading.Event) -> None:
        """Wait until leases may be handed out; raises StartError if another mirror has the flow."""
        if self.claim is not None:
            self.claim.require(stopped)
        if not self._topics_made and not stopped.is_set():
            self.refresh_topics()
            self._refuse_unusable()
            self._refuse_mm2()

    def _tell_changed(self) -> None:
        if self._changed_hands is not None:
            self._changed_hands()

    # -- starting -----------------------------------------------------------------------------

    def open_target(self) -> None:
        """Connect to the target and create what heartbeats need; raises StartError."""
        config = self.config
        try:
            if self._target is None:
                target = self.client(config.target_admin)
                _reach(target, config, "target")
                self._target = target
            internal_topics.ensure(config, None, self._target)
        except (WireError, ConfigError) as error:
            raise StartError("flow.start", f"flow {self.name}: {error}") from error

    def open(self, *, once: bool = False, copies: bool = True) -> None:
        """Connect, create internal topics, claim, sign, and plan; raises StartError.

        Only of an enabled flow whose target is open. With ``once`` there are ``goals``. A flow that
        does not copy here creates no remote topics, and takes nothing over from MM2.
        """
        config = self.config
        assert self._target is not None  # noqa: S101 - open
        target = self._target
        made = set(self._clients)
        try:
            source = self._source = self.client(config.source_admin)
            self._refuse_loop(source, target)
            refresh = TopicRefresh(config, source, target, self.ledger.memory)
            if once:
                # Before anything is created: a plan may lack what was created just now.
                self.goals = self._source_ends(refresh)
            internal_topics.ensure(config, source, target)
            registry = self._claim()
            self._sign(source, target, registry)
            self.reverse = ReverseFlow(self.client(config.source_client), target.cluster_id())
            # Before leases: operators may have decided where to go on.
            self.ledger.memory.refresh()
            self._refresh = refresh
            self._creates = copies
            if copies:
                self._take_over = TakeOver(
                    config,
                    self.prepared,
                    self.client(config.source_client),
                    self.client(config.target_client),
                    self.ledger.store,
                    LatestRecords(self.client(self.positions.cluster), self.positions.topic),
                    moves=self.moves,
                    clear_from=lambda: self.clear_from,
                )
            self.refresh_topics()
            self._let_signature_be_known()
            self._refuse_unusable()
            self._refuse_mm2()
        except BaseException as error:
            self._undo(made)
            if isinstance(error, (WireError, ConfigError)):
                raise StartError("flow.start", f"flow {self.name}: {error}") from error
            raise

    def read_claims(self) -> Standing | None:
        """Who has the flow, without taking part; raises StartError.

        The ledger on the target says it: the source is not asked, and may be away.
        """
        topic = ledger_topic(self.flow.source)
        target = self._target = self.client(self.config.target_admin)
        try:
            if self._registry is None:
                _reach(target, self.config, "target")
                if topic not in target.metadata([topic]).topics:
                    return None
                follower = self.ledger.store.follower
                self._registry = Registry(follower, self._scope)
                self.orders = Holds(follower, self._scope)
                self.open_handovers = OpenHandovers(follower, self._scope)
            self._registry.refresh()
        except WireError as error:
            raise StartError("flow.observe", f"flow {self.name}: {error}") from error
        return self._registry.claims.owner

    def observe(self) -> Observation:
        """Connect and plan without taking part: nothing is claimed, created or written.

        For commands that look at a flow, again and again; raises StartError. What is measured by
        this plan is what is on both clusters.
        """
        config = self.config
        try:
            source = self._source = self.client(config.source_admin)
            target = self._target = self.client(config.target_admin)
            if self.context is None:
                self._refuse_loop(source, target)
            self.read_claims()
            if self._registry is None:
                found = TopicRefresh(config, source, target).compare()
                return Observation(None, sorted(found.remote))
            if self.context is None:
                signature = self._registry.signature
                self.context = self._context(signature.producer_id if signature else -1)
            found = TopicRefresh(config, source, target).compare()
        except (WireError, ConfigError) as error:
            raise StartError("flow.observe", f"flow {self.name}: {error}") from error
        self.plan = TopicPlan(found.partitions, {}, found.source, found.target)
        with suppress(WireError, StartError):
            if self.reverse is None:
                cluster_id = target.cluster_id()
                self.reverse = ReverseFlow(self.client(config.source_client), cluster_id)
            self.look_back()
        short = {topic for topic, name in found.remote.items() if name in found.short}
        return Observation(self._registry.claims.owner, sorted({*found.missing, *short}))

    def _undo(self, made: Collection[object]) -> None:
        """Give up what a failed `open` has made: the claim, and the clients but for ``made``."""
        if self.claim is not None:
            self.claim.end()
        for key in self._clients.keys() - made:
            with suppress(OSError):
                self._clients.pop(key).close()
        self.claim = self.context = self._source = self._refresh = self._take_over = None
        self.reverse = None
        self.guards = {}
        self.orders = self.open_handovers = None
        self._ledger = None
        self._topics_made = False

    def select_topics(self, config: FlowConfig) -> None:
        """Go on with other topics, or another way to find them; raises WireError."""
        assert self._source is not None and self._target is not None  # noqa: S101 - open
        with self._refreshing:
            self.config = config
            self._refresh = TopicRefresh(config, self._source, self._target, self.ledger.memory)
            self._refresh_with(self._refresh)

    def _refuse_loop(self, source: ClusterClient, target: ClusterClient) -> None:
        ids = [_reach(source, self.config, "source"), _reach(target, self.config, "target")]
        if ids[0] == ids[1]:
            raise StartError(
                "flow.same-cluster",
                f"flow {self.name}: {self.flow.source} and {self.flow.target} are the same cluster"
                f" (cluster id {ids[0]}); it would copy its own copies for ever",
                f"check {self.flow.source}.bootstrap.servers and"
                f" {self.flow.target}.bootstrap.servers",
            )

    def _claim(self) -> Registry:
        """Announce this mirror and read who else there is; the signature comes with it."""
        client = ClusterClient(
            self.config.target_admin, f"{self.name}|claim-target",
            request_timeout=_CLAIM_REQUEST_SECONDS,
        )  # fmt: skip
        follower = LedgerFollower(client, ledger_topic(self.flow.source))
        registry = Registry(follower, self._scope)
        # Read as often as claims are, whatever else the flow does.
        self.orders = Holds(follower, self._scope, self._ordered)
        self.open_handovers = OpenHandovers(follower, self._scope)
        lease_seconds = float(self.config.lease_seconds)
        claim = FlowClaim(
            self.name, client, registry, lease_seconds, self._tell_changed, self._silent,
            self._rest,
        )  # fmt: skip
        try:
            claim.begin()
        except BaseException:
            client.close()
            raise
        self.claim = claim
        return registry

    def _sign(self, source: ClusterClient, target: ClusterClient, registry: Registry) -> None:
        topic = ledger_topic(self.flow.source)
        cluster_ids = (source.cluster_id(), target.cluster_id())
        signature = registry.signature
        if signature is None:
            candidate = Signature(admin.allocate_producer_id(target), *cluster_ids)
            signature = self.ledger.store.sign(candidate)
        if (signature.source_cluster, signature.target_cluster) != cluster_ids:
            raise StartError(
                "flow.other-cluster",
                f"flow {self.name}: {topic} on {self.flow.target} belongs to a mirror of cluster"
                f" {signature.source_cluster}, but {self.flow.source} is now {cluster_ids[0]}",
                f"give the new source another alias, or delete {topic} to begin anew",
            )
        self.context = self._context(signature.producer_id, self._marker_id(target))

    def _context(self, producer_id: int, marker_id: int = -1) -> FlowContext:
        return flow_context(self.config, self.name, producer_id, marker_id)

    def _marker_id(self, target: ClusterClient) -> int:
        """A producer id to fill gaps under, or -1 where that is not wanted or not allowed."""
        if self.config.offsets == "dense":
            return -1
        if admin.may_write_markers(target):
            return admin.allocate_producer_id(target)
        what = "gaps in offsets are not filled, and offsets are translated exactly instead"
        if self.config.offsets == "identical":
            self._tell_of_offsets(f"{what} (as with heliograph.offsets=dense)", "Alter", "cluster")
        else:
            # Nobody asked for the right, which is almost an admin's: it is not suggested.
            log.info("%s: %s: that would take Alter on the target cluster", self.name, what)
        return -1

    def _tell_of_offsets(self, what: str, operation: str, kind: str, name: str = "") -> None:
        """Say which right keeps offsets from being identical; a warning if they were to be."""
        level = logging.WARNING if self.config.offsets == "identical" else logging.INFO
        right = missing_right(self.config.target_admin, operation, kind, name)
        log.log(level, "%s: %s: %s", self.name, what, right)

    def leased(self, partition: TopicPartition, until: int | None = None) -> LeasedPartition:
        """A partition of the plan as a lease names it."""
        plan = self.plan
        name = plan.partitions[partition]
        topic = plan.targets.get(name, TargetTopic())
        may = self.prepared.marker_id >= 0
        wanted = self.config.offsets == "identical" or not topic.compacted
        withheld = ""
        if self._take_over is not None:
            withheld = self._take_over.withheld(place_of(plan, partition))
        return LeasedPartition(
            partition, name, until, may and wanted, topic.paddable, topic.max_bytes, withheld,
            shared=self.config.on_unknown_target == "append",
            guard=self.guards.get(partition),
        )  # fmt: skip

    def _forget_moves(self) -> None:
        moves, store = self.moves(), self.ledger.store
        done = [
            p for p, move in moves.items()
            if p in self.plan.partitions and move.id in store.at(place_of(self.plan, p)).moves
        ]  # fmt: skip
        if done:
            forget_moves(self.ledger.memory, done)

    def moves(self) -> Mapping[TopicPartition, Move]:
        """Where operators have decided to go on, by partition; executors carry each out once."""
        return moves_in(self.ledger.memory)

    # -- what there is to mirror --------------------------------------------------------------

    @property
    def leasable(self) -> AbstractSet[TopicPartition]:
        """The partitions of the plan that may be leased; the others have to wait."""
        waiting = self.waiting
        partitions = self.plan.partitions.keys()
        return partitions - waiting.keys() if waiting else partitions

    @property
    def unsettled(self) -> bool:
        """Whether there is more to mirror in a moment: `refresh_topics` should be called again."""
        undecided = self._take_over is not None and bool(self._take_over.undecided)
        return self.plan.awaited or undecided

    @property
    def waiting(self) -> Mapping[TopicPartition, str]:
        """Partitions that cannot be begun yet though nothing is wrong, with the reason."""
        undecided = self._take_over.undecided if self._take_over is not None else ()
        waiting = dict.fromkeys(undecided, BEING_LOOKED_AT)
        paused = {topic: f"its topic is {why}" for topic, why in self.paused_topics.items()}
        why = {**paused, **self._refused}
        if self._unknown_until > time.time():
            waiting |= dict.fromkeys(self.plan.partitions, _BECOMING_KNOWN)
        return waiting | {p: why[p.topic] for p in self.held}

    @property
    def held(self) -> AbstractSet[TopicPartition]:
        """Partitions of topics that an operator lets rest, or that another connector has."""
        topics = self.paused_topics.keys() | self._refused.keys()
        return {p for p in self.plan.partitions if p.topic in topics} if topics else frozenset()

    def not_leasable(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Of the wanted partitions those that cannot be leased, with the reason."""
        plan, leasable, waiting = self.plan, self.leasable, self.waiting
        here = plan.source.topics if plan.source is not None else {}
        found = {}
        for p in wanted:
            if p in leasable:
                continue
            if p in waiting:
                found[p] = waiting[p]
            elif p.topic not in here or p.partition not in here[p.topic].partitions:
                found[p] = f"{self.flow.source} does not show it any more"
            else:
                found[p] = self._why_not_there(p)
        return found

    def _why_not_there(self, partition: TopicPartition) -> str:
        assert self._refresh is not None  # noqa: S101 - prepared
        remote = self._refresh.remote_topic(partition.topic)
        problems = self.plan.problems
        told = [text for text in problems if remote in text] or problems
        where = TopicPartition(remote, partition.partition)
        return "; ".join([f"{where} is not there on {self.flow.target}", *told])

    def refresh_topics(self) -> bool:
        """Look for new topics and partitions; returns whether there are any to be leased."""
        if self._refresh is None:
            return False
        with self._refreshing:
            return self._refresh_with(self._refresh)

    def _refresh_with(self, refresh: TopicRefresh) -> bool:
        before, leasable = self.plan, set(self.leasable)
        create = self._creates and not self.stands_by
        plan = refresh.refresh(create=create)
        self._topics_made = self._topics_made or create
        if self._take_over is not None:
            # Before leases can name these partitions.
            told = self._take_over.running
            self._take_over.settle(plan, may_write=create)
            if before.source is not None and self._take_over.running != told:
                log.warning("%s", self._take_over.running or f"{self.name}: MM2 has stopped")
        if self._admit is not None:
            # Before leases can name these topics.
            refused = self._admit(plan.remote)
            for topic in sorted(refused.keys() - self._refused.keys()):
                log.warning("%s: %s", self.name, refused[topic])
            self._refused = refused
        for problem in plan.problems:
            if problem not in before.problems:
                log.warning("%s: %s", self.name, problem)
        new = plan.partitions.keys() - before.partitions.keys()
        gone = {p.topic for p in before.partitions} - {p.topic for p in plan.partitions}
        for topic in sorted(gone - (plan.source.topics.keys() if plan.source else set())):
            # What becomes of its remote topic is `DeletionWatch`'s matter.
            log.warning(
                "%s: source topic %s is not mirrored any more: %s does not show it to us",
                self.name, topic, self.flow.source,
            )  # fmt: skip
        self.plan = plan
        self.look_back()
        self._forget_moves()
        self._tell_undeletable()
        if new and before.source is not None and create:
            topics = sorted({p.topic for p in new})
            shown = ", ".join(topics[:5]) + (f" and {len(topics) - 5} more" if topics[5:] else "")
            log.info("%s: %d new partition(s) to mirror: %s", self.name, len(new), shown)
        return bool(self.leasable - leasable)

    @property
    def is_standby(self) -> bool:
        """Whether this is the direction that is not needed now: its source has no clients."""
        if self.orders is None:
            return self.config.standby
        resting = self.orders.parts_with([COPYING] if self.config.standby else []).get(COPYING)
        return resting is not None and resting.standby

    def look_back(self) -> None:
        """Find out what a flow in the opposite direction has brought; raises WireError.

        Before each round: whatever that flow signs was known before it was written then. Asks
        nothing unless records could come back by the names of topics.
        """
        plan, reverse, flow = self.plan, self.reverse, self.flow
        if reverse is None or plan.source is None or plan.target is None:
            return
        policy = policy_from(self.config)
        topics = looping(policy, {*plan.remote, _ANY_TOPIC}, flow.source, flow.target)
        if not topics:
            self.guards = {}
            return
        source = self.client(self.config.source_client)
        metadata = source.metadata()
        try:
            reverse.look(metadata)
        except BrokerError as error:
            if not denied(error.code):
                raise
            name = ledger_topic(flow.target)
            raise StartError(
                "flow.guard",
                f"flow {self.name}: {flow.source} has a ledger of records that came from"
                f" {flow.target}, and it cannot be read: they would be copied back",
                missing_right(self.config.source_client, "Read", "topic", name),
            ) from error
        wanted = {p: name for p, name in plan.partitions.items() if p.topic in topics}
        before, self.guards = self.guards, reverse.guards(wanted, metadata, plan.target)
        if self.guards and not before:
            log.info(
                "%s: a flow goes in the opposite direction: what it brings from %s stays on %s",
                self.name, flow.target, flow.source,
            )  # fmt: skip

    def _let_signature_be_known(self) -> None:
        """Write nothing before mirrors of the opposite direction know who we are.

        Leases of theirs that were handed out before have no guard against us. Once anything was
        written, that is long ago.
        """
        if not self.reverse or not self.reverse.topics or any(self.ledger.store.begun()):
            return
        source = self.client(self.config.source_client)
        longest = max(longest_lease(source, topic) for topic in self.reverse.topics)
        if longest:
            self._unknown_until = time.time() + longest + _LEASE_LEAD_SECONDS

    def _tell_undeletable(self) -> None:
        """Filler in front of a log that starts late must be deleted again: say if it cannot be."""
        undeletable = sorted(
            name for name, topic in self.plan.targets.items()
            if not topic.compacted and not topic.may_delete_records
        )  # fmt: skip
        if undeletable and not self._told_undeletable and self.prepared.marker_id >= 0:
            self._told_undeletable = True
            what = "offsets of logs that start far from 0 are not kept"
            self._tell_of_offsets(what, "Delete", "topic", undeletable[0])

    def look_at_configs(self) -> None:
        """Configs of target topics were changed: later leases must know."""
        with self._refreshing:
            if self._refresh is not None and self.plan.target is not None:
                targets = self._refresh.look_again(self.plan.target)
                self.plan = replace(self.plan, targets=targets)

    def _refuse_unusable(self) -> None:
        if self.plan.problems and not self.plan.partitions and not self.plan.awaited:
            raise StartError(
                "topics.create",
                f"flow {self.name}: no topic can be mirrored:\n  "
                + "\n  ".join(self.plan.problems),
            )

    def _refuse_mm2(self) -> None:
        if self._take_over is not None and self._take_over.running:
            raise StartError(
                "mm2.running",
                self._take_over.running,
                "stop MM2 with SIGTERM, so that it stores its positions, then run this again; or"
                " take these topics out of its configuration",
            )

    def _source_ends(self, refresh: TopicRefresh) -> Mapping[TopicPartition, int]:
        """Where each partition of the source ends now: the goal of ``run --once``."""
        client = self.client(self.config.source_client)
        read_committed = self.config.isolation_level == "read_committed"

        def ask() -> Mapping[TopicPartition, int]:
            wanted = set(refresh.wanted())
            metadata = client.metadata(sorted({p.topic for p in wanted}))
            ends = admin.list_offsets(
                client, metadata, wanted, admin.LATEST, read_committed=read_committed
            )
            silent = sorted(wanted - ends.keys())
            if silent:
                # Left out, they would count as copied.
                raise ConnectionFailed(f"no answer from the leader of {silent[0]}")
            return ends

        return client.retry(ask, _START_PATIENCE_SECONDS)

    def close(self) -> None:
        """Give the claim up and close every client, after the last lease."""
        if self.claim is not None:
            self.claim.end()
        for client in self._clients.values():
            with suppress(OSError):
                client.close()


def _reach(client: ClusterClient, config: FlowConfig, side: str) -> str:
    """The cluster's id, or a StartError that says why there is no talking to it."""
    alias = client.alias
    where = config.origin(f"{side}.admin.bootstrap.servers")
    servers = (config.source_admin if side == "source" else config.target_admin).bootstrap_servers
    try:
        return client.retry(client.cluster_id, _START_PATIENCE_SECONDS)
    except AuthenticationFailed as error:
        raise StartError(
            "cluster.authentication",
            f"cluster {alias} does not let us in: {error}",
            f"check {alias}.security.protocol, {alias}.sasl.* and {alias}.ssl.*",
        ) from error
    except NotKafka as error:
        raise StartError(
            "cluster.not-kafka",
            f"cluster {alias}: {error}",
            f"check {alias}.bootstrap.servers={servers} ({where}) and {alias}.security.protocol",
        ) from error
    except (ConnectionFailed, BrokerError) as error:
        if not is_retriable(error):
            raise
        raise StartError(
            "cluster.unreachable",
            str(error),
            f"check that the brokers are up and {alias}.bootstrap.servers={servers} ({where})",
        ) from error
