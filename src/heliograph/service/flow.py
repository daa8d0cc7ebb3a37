"""One flow while the mirror runs: its clients, topics, signature and partitions. In the driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from heliograph.config import FlowConfig
from heliograph.control import internal_topics
from heliograph.control.take_over import TakeOver, place_of
from heliograph.control.topics import TargetTopic, TopicPlan, TopicRefresh
from heliograph.errors import ConfigError, StartError
from heliograph.ledger.codec import Signature
from heliograph.ledger.memory import SyncedMemory
from heliograph.ledger.registry import Registry
from heliograph.ledger.store import LedgerStore
from heliograph.model import (
    ClientSettings,
    FlowContext,
    LeasedPartition,
    OffsetSyncsTopic,
    TopicPartition,
)
from heliograph.policy import ledger_topic, quarantine_topic
from heliograph.service.claim import FlowClaim
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import (
    AuthenticationFailed,
    BrokerError,
    ConnectionFailed,
    NotKafka,
    WireError,
    is_retriable,
)
from heliograph.wire.rights import missing_right

log = logging.getLogger(__name__)

_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

#: How long a cluster may take to answer when the mirror starts.
_START_PATIENCE_SECONDS = 10.0
#: A broker that hangs must not keep the claim from finding its successor.
_CLAIM_REQUEST_SECONDS = 5.0


class FlowRuntime:
    """A flow that was configured; `prepare` makes it ready to be leased out.

    ``plan`` is replaced as a whole by each refresh, so readers in other threads see one or the
    other, never a mixture. ``changed_hands`` is called, in a thread of the claim, when this mirror
    takes the flow over or loses it.
    """

    def __init__(
        self, config: FlowConfig, changed_hands: Callable[[FlowRuntime], None] | None = None
    ) -> None:
        self.config = config
        self.flow = config.flow
        self.plan = TopicPlan()
        self.context: FlowContext | None = None
        self.claim: FlowClaim | None = None
        self._changed_hands = changed_hands
        self._clients: list[ClusterClient] = []
        self._refresh: TopicRefresh | None = None
        self._take_over: TakeOver | None = None
        self._refreshing = threading.Lock()
        self._topics_made = False
        self._told_undeletable = False

    def client(self, settings: ClientSettings, role: str) -> ClusterClient:
        """A client of the flow's own for one job, closed with the flow."""
        client = ClusterClient(settings, f"{self.flow}|{role}")
        self._clients.append(client)
        return client

    @property
    def prepared(self) -> FlowContext:
        """The context of an enabled flow, after `prepare`."""
        assert self.context is not None  # noqa: S101 - only enabled flows are asked
        return self.context

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
            self._changed_hands(self)

    # -- starting -----------------------------------------------------------------------------

    def prepare(self, lease_seconds: float) -> None:
        """Connect, create internal topics, claim, sign, and plan; raises StartError.

        ``lease_seconds`` is how long leases will last at most.
        """
        config = self.config
        target = self.client(config.target_admin, "replication-target-admin")
        source: ClusterClient | None = None
        try:
            if config.enabled:
                source = self.client(config.source_admin, "replication-source-admin")
                self._refuse_loop(source, target)
            else:
                _reach(target, config, "target")
            internal_topics.ensure(config, source, target)
            if source is not None:
                registry = self._claim(lease_seconds)
                self._sign(source, target, registry)
                memory = SyncedMemory(target, self.prepared.ledger_topic)
                self._refresh = TopicRefresh(config, source, target, memory)
                self._take_over = TakeOver(
                    config,
                    self.client(config.source_client, "take-over-source"),
                    self.client(config.target_client, "take-over-target"),
                    self.prepared.ledger_topic,
                )
                self.refresh_topics()
                self._refuse_unusable()
                self._refuse_mm2()
        except (WireError, ConfigError) as error:
            raise StartError("flow.start", f"flow {self.flow}: {error}") from error

    def _refuse_loop(self, source: ClusterClient, target: ClusterClient) -> None:
        ids = [_reach(source, self.config, "source"), _reach(target, self.config, "target")]
        if ids[0] == ids[1]:
            raise StartError(
                "flow.same-cluster",
                f"flow {self.flow}: {self.flow.source} and {self.flow.target} are the same cluster"
                f" (cluster id {ids[0]}); it would copy its own copies for ever",
                f"check {self.flow.source}.bootstrap.servers and"
                f" {self.flow.target}.bootstrap.servers",
            )

    def _claim(self, lease_seconds: float) -> Registry:
        """Announce this mirror and read who else there is; the signature comes with it."""
        client = ClusterClient(
            self.config.target_admin, f"{self.flow}|claim-target",
            request_timeout=_CLAIM_REQUEST_SECONDS,
        )  # fmt: skip
        registry = Registry(client, ledger_topic(self.flow.source))
        claim = FlowClaim(self.flow, client, registry, lease_seconds, self._tell_changed)
        try:
            claim.begin()
        except BaseException:
            client.close()
            raise
        self.claim = claim
        return registry

    def _sign(self, source: ClusterClient, target: ClusterClient, registry: Registry) -> None:
        config = self.config
        topic = ledger_topic(self.flow.source)
        cluster_ids = (source.cluster_id(), target.cluster_id())
        signature = registry.signature
        if signature is None:
            ledger = LedgerStore(target, topic)
            signature = ledger.sign(Signature(admin.allocate_producer_id(target), *cluster_ids))
        if (signature.source_cluster, signature.target_cluster) != cluster_ids:
            raise StartError(
                "flow.other-cluster",
                f"flow {self.flow}: {topic} on {self.flow.target} belongs to a mirror of cluster"
                f" {signature.source_cluster}, but {self.flow.source} is now {cluster_ids[0]}",
                f"give the new source another alias, or delete {topic} to begin anew",
            )
        syncs = None
        if config.emit_offset_syncs_enabled:
            on_source = config.offset_syncs_topic_location == "source"
            syncs = OffsetSyncsTopic(internal_topics.offset_syncs_topic(config), on_source)
        self.context = FlowContext(
            flow=self.flow,
            source=config.source_client,
            target=config.target_client,
            producer_id=signature.producer_id,
            ledger_topic=topic,
            offset_syncs=syncs,
            offset_lag_max=config.offset_lag_max,
            read_committed=config.isolation_level == "read_committed",
            start_at_latest=config.auto_offset_reset == "latest",
            on_data_loss=config.on_data_loss,
            on_truncation=config.on_truncation,
            on_recreation=config.on_recreation,
            fetch_max_bytes=config.fetch_max_bytes,
            buffer_max_bytes=config.buffer_max_bytes,
            marker_id=self._marker_id(target),
            codec=_CODECS.get(config.compression_type),
            quarantine_topic=(
                quarantine_topic(self.flow.source) if config.on_refused == "quarantine" else None
            ),
        )

    def _marker_id(self, target: ClusterClient) -> int:
        """A producer id to fill gaps under, or -1 where that is not wanted or not allowed."""
        if self.config.offsets == "dense":
            return -1
        if admin.may_write_markers(target):
            return admin.allocate_producer_id(target)
        self._tell_of_offsets("gaps in offsets are not filled", "Alter", "cluster")
        return -1

    def _tell_of_offsets(self, what: str, operation: str, kind: str, name: str = "") -> None:
        """Say which right keeps offsets from being identical; a warning if they were to be."""
        level = logging.WARNING if self.config.offsets == "identical" else logging.INFO
        right = missing_right(self.config.target_admin, operation, kind, name)
        log.log(level, "%s: %s: %s", self.flow, what, right)

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
            partition, name, until, may and wanted, topic.paddable, topic.max_bytes, withheld
        )

    def refresh_topics(self) -> bool:
        """Look for new topics and partitions; returns whether there are any."""
        if self._refresh is None:
            return False
        with self._refreshing:
            return self._refresh_with(self._refresh)

    def _refresh_with(self, refresh: TopicRefresh) -> bool:
        before = self.plan
        create = not self.stands_by
        plan = refresh.refresh(create=create)
        self._topics_made = self._topics_made or create
        if self._take_over is not None:
            # Before leases can name these partitions.
            told = self._take_over.running
            self._take_over.settle(plan, may_write=create)
            if before.source is not None and self._take_over.running != told:
                log.warning("%s", self._take_over.running or f"{self.flow}: MM2 has stopped")
        for problem in plan.problems:
            if problem not in before.problems:
                log.warning("%s: %s", self.flow, problem)
        new = plan.partitions.keys() - before.partitions.keys()
        gone = {p.topic for p in before.partitions} - {p.topic for p in plan.partitions}
        for topic in sorted(gone - (plan.source.topics.keys() if plan.source else set())):
            # What becomes of its remote topic is `DeletionWatch`'s matter.
            log.warning(
                "%s: source topic %s is not mirrored any more: %s does not show it to us",
                self.flow, topic, self.flow.source,
            )  # fmt: skip
        self.plan = plan
        self._tell_undeletable()
        if new and before.source is not None and create:
            topics = sorted({p.topic for p in new})
            shown = ", ".join(topics[:5]) + (f" and {len(topics) - 5} more" if topics[5:] else "")
            log.info("%s: %d new partition(s) to mirror: %s", self.flow, len(new), shown)
        return bool(new)

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
                f"flow {self.flow}: no topic can be mirrored:\n  "
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

    def source_ends(self) -> Mapping[TopicPartition, int]:
        """Where each partition ends now: the goal of ``run --once``."""
        client = self.client(self.config.source_client, "once-source")
        read_committed = self.prepared.read_committed
        wanted = self.plan.partitions.keys()

        def ask() -> Mapping[TopicPartition, int]:
            metadata = client.metadata(sorted({p.topic for p in wanted}))
            ends = admin.list_offsets(
                client, metadata, wanted, admin.LATEST, read_committed=read_committed
            )
            silent = sorted(wanted - ends.keys())
            if silent:
                # Left out, they would count as copied.
                raise ConnectionFailed(f"no answer from the leader of {silent[0]}")
            return ends

        try:
            return client.retry(ask, _START_PATIENCE_SECONDS)
        except WireError as error:
            raise StartError("flow.start", f"flow {self.flow}: {error}") from error

    def close(self) -> None:
        """Give the claim up and close every client, after the last lease."""
        if self.claim is not None:
            self.claim.end()
        for client in self._clients:
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
