"""Takes partitions over from MM2: where it stopped, Heliograph goes on. Runs in the driver.

Before a partition that was never mirrored is begun, MM2's stored positions and offset syncs are
looked at. If MM2 filled it, how far it came is proven by comparing the two logs (`inquiry`), and
the ledger gets runs for all that MM2 wrote: resume, sequences and translation then work as if
Heliograph had written it. What cannot be proven is not begun: neither a record that was skipped nor
a topic that was copied twice could be taken back.

The same where Heliograph has mirrored, and MM2 has mirrored on since: the last record of its
position is not ours then, and records of others stand behind ours. The runs of what MM2 wrote
follow our own, and our next record follows them.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.config import FlowConfig
from heliograph.control.topics.internal import offset_syncs_topic
from heliograph.control.topics.refresh import TopicPlan
from heliograph.copy.knowledge import Tail
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Entry, Inherited, Place
from heliograph.ledger.store import LedgerStore
from heliograph.mm2.connect_offsets import LatestRecords, StoredPosition, decode_position
from heliograph.model import Flow, FlowContext, Move, TopicPartition
from heliograph.takeover.alignment import OtherRecords, Unproven
from heliograph.takeover.answers import Refused, answer_all
from heliograph.takeover.continued import Ours, behind, ends_of_ours, write_behind
from heliograph.takeover.history import History
from heliograph.takeover.inquiry import Evidence, inquire
from heliograph.takeover.mm2_worker import MM2Worker
from heliograph.takeover.offset_sync_log import SyncLog, Syncs
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError
from heliograph.wire.metadata import Metadata
from heliograph.wire.rights import denied, missing_right

__all__ = ["BEING_LOOKED_AT", "TakeOver", "place_of"]

log = logging.getLogger(__name__)

#: Why a partition waits that is neither settled nor refused.
BEING_LOOKED_AT = "it is being found out whether MM2 has mirrored this partition, and how far"
#: What could not be proven is tried again after this time.
_AGAIN_SECONDS = 30.0
_PROGRESS_SECONDS = 5.0
#: The leaders of new partitions are elected within moments: worth waiting for, so that one lease
#: can have them all.
_ELECTED_SECONDS, _ELECTED_PAUSE_SECONDS = 1.0, 0.05
_HINT = (
    "start MM2 again, let it mirror for a minute and stop it with SIGTERM, so that it writes down"
    " where it is; or delete the target topic to mirror it anew"
)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A partition whose target holds records that MM2 may have written.

    ``ours`` is where Heliograph's own records end, where it has mirrored before MM2 did, and what
    stands behind them; None if the partition was never mirrored.
    """

    source: TopicPartition
    target: TopicPartition
    place: Place
    evidence: Evidence
    ours: tuple[Ours, Tail] | None = None

    @property
    def certain(self) -> bool:
        """Whether MM2 has certainly written to it, by its own account."""
        ours, stored = self.evidence.ours, self.evidence.stored
        return ours is None or (stored is not None and stored.offset > ours.source)


@dataclass(slots=True)
class _Refusals:
    """Why places cannot be begun, when that was found out, and whether it was said."""

    reasons: dict[Place, str] = field(default_factory=dict)
    again_at: dict[Place, float] = field(default_factory=dict)

    def add(self, place: Place, reason: str) -> bool:
        """Returns whether it is new."""
        new = self.reasons.get(place) != reason
        self.reasons[place] = reason
        self.again_at[place] = time.monotonic() + _AGAIN_SECONDS
        return new

    def drop(self, places: Iterable[Place]) -> None:
        for place in places:
            self.reasons.pop(place, None)
            self.again_at.pop(place, None)


class TakeOver:
    """What MM2 left of one flow. One thread at a time, but for `withheld`."""

    def __init__(
        self,
        config: FlowConfig,
        context: FlowContext,
        source: ClusterClient,
        target: ClusterClient,
        ledger: LedgerStore,
        positions: LatestRecords | None = None,
        *,
        moves: Callable[[], Mapping[TopicPartition, Move]] = dict,
        clear_from: Callable[[], float] = float,
    ) -> None:
        """Make one.

        Args:
            config: of the flow.
            context: the flow's name and signature.
            source: of the flow.
            target: of the flow.
            ledger: of the flow.
            positions: MM2's offsets topic, where it is not on the target.
            moves: where operators have decided that copying goes on.
            clear_from: seconds since the epoch from when no lease of an earlier mirror can be
                running.
        """
        self._flow: Flow = config.flow
        self._name, self._producer_id = context.label, context.producer_id
        self._moves, self._clear_from = moves, clear_from
        self._source = source
        self._target = target
        self._positions = positions or LatestRecords(target, config.mm2_offsets_topic)
        on_source = config.offset_syncs_topic_location == "source"
        syncs = offset_syncs_topic(config)
        self._syncs = SyncLog(source if on_source else target, syncs)
        self._ledger = ledger
        self._worker = MM2Worker(config, self._name, target)
        self._settled: set[Place] = set()
        self._refusals = _Refusals()
        self._looked = False
        #: Partitions of the last plan that could not be asked about yet.
        self.undecided: frozenset[TopicPartition] = frozenset()
        #: Why MM2 must be stopped, as of the last look; empty if it is not at work on the flow.
        self.running = ""

    def withheld(self, place: Place) -> str:
        """Why a partition must not be begun; empty if it may."""
        return "" if place in self._settled else self._refusals.reasons.get(place, BEING_LOOKED_AT)

    def settle(self, plan: TopicPlan, *, may_write: bool) -> None:
        """Find out about every partition of the plan that is not known yet.

        Without ``may_write`` nothing is taken over: another mirror has the flow. Raises WireError
        if a cluster fails; what is not settled then stays withheld. What could not be asked about
        is ``undecided``, such as a partition that was just created and has no leader yet.
        """
        if plan.source is None or plan.target is None:
            return
        now = time.monotonic()
        open_ = {
            p: place for p in plan.partitions if (place := place_of(plan, p)) not in self._settled
        }
        known, self.undecided = self.undecided, self._undecided(open_)
        due = {p: at for p, at in open_.items() if self._refusals.again_at.get(at, 0.0) <= now}
        if due:
            self._settle(plan, due, known, may_write=may_write)
            self.undecided = self._undecided(open_)

    def _undecided(self, places: Mapping[TopicPartition, Place]) -> frozenset[TopicPartition]:
        settled, refused = self._settled, self._refusals.reasons
        return frozenset(p for p, at in places.items() if at not in settled and at not in refused)

    def _settle(
        self,
        plan: TopicPlan,
        unknown: Mapping[TopicPartition, Place],
        waited_for: Collection[TopicPartition],
        *,
        may_write: bool,
    ) -> None:
        assert plan.source is not None  # noqa: S101 - made
        assert plan.target is not None  # noqa: S101 - made
        unseen = ""
        try:
            if not self._positions.refresh() or self._only_ours():
                # MM2 was never here, or has not gone on where Heliograph stopped.
                self._settled.update(unknown.values())
                return
        except BrokerError as error:
            if not denied(error.code):
                raise
            settings, topic = self._target.settings, self._positions.topic
            unseen = missing_right(settings, "Read", "topic", topic)
        self._ledger.refresh()
        # Of an earlier generation of the source, too: that is `Resumer`'s matter, not MM2's.
        begun = {_any_source(place) for place in self._ledger.begun()}
        mirrored = {p: place for p, place in unknown.items() if _any_source(place) in begun}
        theirs = {} if unseen else self._theirs(mirrored)
        self._done(place for p, place in mirrored.items() if p not in theirs)
        targets = {
            p: TopicPartition(plan.partitions[p], p.partition)
            for p, place in unknown.items()
            if place not in self._settled and p not in theirs
        }
        new = [t for p, t in targets.items() if p not in waited_for]
        ends = self._ends(plan.target, targets.values(), new)
        # Those that were never written to, new or created anew, are settled.
        self._done(unknown[p] for p, t in targets.items() if ends.get(t) == 0)
        filled = {p: t for p, t in targets.items() if ends.get(t, 0) > 0}
        if unseen:
            for p, t in filled.items():
                text = f"{t} on {self._flow.target} is not empty: has MM2 filled it?"
                self._refuse(unknown[p], text, unseen)
            return
        ours = self._ours(plan, {p: unknown[p] for p in theirs})
        filled |= {p: TopicPartition(plan.partitions[p], p.partition) for p in ours}
        positions = self._stored() | theirs
        candidates = self._candidates(plan, filled, unknown, positions, ours)
        if may_write:
            self._look_for_mm2(plan, candidates)
            self._take_over(plan.target, candidates)

    def _look_for_mm2(self, plan: TopicPlan, candidates: Sequence[_Candidate]) -> None:
        """The first time for all that the flow mirrors, then for what is to be taken over."""
        first, self._looked = not self._looked, True
        wanted = list(plan.partitions) if first else [c.source for c in candidates]
        self.running = self._worker.at_work(wanted) if wanted else ""

    # -- what there is to go by ---------------------------------------------------------------

    def _ends(
        self,
        metadata: Metadata,
        targets: Iterable[TopicPartition],
        new: Iterable[TopicPartition],
    ) -> dict[TopicPartition, int]:
        """Where targets end; of the ``new`` ones, leaders that are not elected are waited for."""
        ends = admin.list_offsets(self._target, metadata, targets, admin.LATEST)
        silent = set(new) - ends.keys()
        deadline = time.monotonic() + _ELECTED_SECONDS
        while silent and time.monotonic() < deadline:
            time.sleep(_ELECTED_PAUSE_SECONDS)
            now = self._target.metadata(sorted({t.topic for t in silent}))
            # Of another topic by that name, the next plan will tell.
            same = {n for n, x in now.topics.items() if x.topic_id == metadata.topics[n].topic_id}
            silent = {t for t in silent if t.topic in same}
            ends |= admin.list_offsets(self._target, now, silent, admin.LATEST)
            silent -= ends.keys()
        return ends

    def _theirs(
        self, places: Mapping[TopicPartition, Place]
    ) -> dict[TopicPartition, StoredPosition]:
        """The positions that Heliograph did not write, of partitions that it has mirrored.

        Not where an operator's decision is to be carried out: that writes a position, too.
        """
        moves, found = self._moves(), dict[TopicPartition, StoredPosition]()
        for key, p, position in self._decoded():
            if key in self._positions.ours or p not in places:
                continue
            ledger, move = self._ledger.at(places[p]), moves.get(p)
            decided = move is not None and move.id not in ledger.moves
            # Under the names of several connectors: the one that came furthest.
            further = p not in found or found[p].offset < position.offset
            if ledger.runs and not ledger.headless and further and not decided:
                found[p] = position
        return found

    def _ours(
        self, plan: TopicPlan, places: Mapping[TopicPartition, Place]
    ) -> dict[TopicPartition, tuple[Ours, Tail]]:
        """Of partitions that we have mirrored those with records of others behind ours.

        Those without are settled. While an earlier mirror may still write, nothing is said of the
        others: they stay undecided.
        """
        if not places:
            return {}
        assert plan.target is not None  # noqa: S101 - made
        targets = {p: TopicPartition(plan.partitions[p], p.partition) for p in places}
        clear = time.time() >= self._clear_from()
        ends = admin.list_offsets(self._target, plan.target, targets.values(), admin.LATEST)
        starts = admin.list_offsets(self._target, plan.target, targets.values(), admin.EARLIEST)
        # Every record below an end has its run.
        self._ledger.refresh()
        answered = {p: t for p, t in targets.items() if t in ends and t in starts}
        ledgers = {t: self._ledger.at(places[p]) for p, t in answered.items()}
        bounds = {t: (starts[t], ends[t]) for t in ledgers}
        found = ends_of_ours(self._target, self._producer_id, ledgers, bounds)
        self._done(places[p] for p, t in answered.items() if t not in found)
        return {p: found[t] for p, t in answered.items() if t in found and clear}

    def _candidates(
        self,
        plan: TopicPlan,
        filled: Mapping[TopicPartition, TopicPartition],
        places: Mapping[TopicPartition, Place],
        positions: Mapping[TopicPartition, StoredPosition],
        ours: Mapping[TopicPartition, tuple[Ours, Tail]],
    ) -> list[_Candidate]:
        """Partitions that MM2 may have filled; the others are settled."""
        if not filled:
            return []
        assert plan.source is not None and plan.target is not None  # noqa: S101 - made
        target, wanted = plan.target, filled.values()
        ends = admin.list_offsets(self._target, target, wanted, admin.LATEST)
        # Behind the ends: whatever was written meanwhile does not look like an open transaction.
        stable = admin.list_offsets(self._target, target, wanted, admin.LATEST, read_committed=True)
        starts = admin.list_offsets(self._target, target, wanted, admin.EARLIEST)
        source_starts = admin.list_offsets(self._source, plan.source, filled, admin.EARLIEST)
        syncs = self._synced()
        found = []
        for p, t in filled.items():
            if p not in positions and p not in syncs:
                self._done([places[p]])
                continue
            if not (t in stable and t in ends and t in starts and p in source_starts):
                continue
            mine = ours.get(p)
            evidence = Evidence(
                source_starts[p], starts[t], ends[t],
                syncs[p].newest if p in syncs else None, positions.get(p),
                tuple(syncs[p].peaks) if p in syncs and mine is None else (),
                mine[0].last if mine is not None else None,
            )  # fmt: skip
            candidate = _Candidate(p, t, places[p], evidence, mine)
            if stable[t] < ends[t]:
                self._refuse_unproven(
                    candidate, "a transaction is open on it",
                    "it ends by itself after MM2's transaction.timeout.ms, a minute as a rule",
                )  # fmt: skip
            else:
                found.append(candidate)
        return found

    def _stored(self) -> dict[TopicPartition, StoredPosition]:
        """The positions in topics of this flow's source."""
        return {partition: position for _, partition, position in self._decoded()}

    def _only_ours(self) -> bool:
        """Whether Heliograph has written all positions there are, for an MM2 that may go on.

        If the ledger then knows nothing of a target, the ledger is lost: not a matter of MM2's.
        """
        keys = [key for key, _, _ in self._decoded()]
        return bool(keys) and self._positions.ours.issuperset(keys)

    def _decoded(self) -> Iterator[tuple[bytes, TopicPartition, StoredPosition]]:
        for key, (value, atomic) in self._positions.all.items():
            decoded = decode_position(key, value, atomic=atomic)
            if decoded is not None and decoded[0] == self._flow.source:
                yield key, decoded[1], decoded[2]

    def _synced(self) -> Mapping[TopicPartition, Syncs]:
        try:
            self._syncs.refresh()
        except BrokerError as error:
            log.warning("%s: MM2's offset syncs cannot be read: %s", self._name, error)
        return self._syncs.by_partition()

    # -- taking over --------------------------------------------------------------------------

    def _take_over(self, metadata: Metadata, candidates: Sequence[_Candidate]) -> None:
        if self.running:
            for c in candidates:
                self._refusals.add(c.place, str(PartitionError("mm2.running", self.running)))
        if self.running or not candidates:
            return
        log.info(
            "%s: MM2 has mirrored %d partition(s) before; looking where it stopped",
            self._name, len(candidates),
        )  # fmt: skip
        histories = self._inquire(candidates)
        # Whoever writes to it now, it is not what was looked at.
        targets = [c.target for c in candidates]
        ends = admin.list_offsets(self._target, metadata, targets, admin.LATEST)
        estates, continued = {}, {}
        for c in candidates:
            history = histories.get(c.place)
            if history is None:
                continue
            if ends.get(c.target) != history.end:
                self._refuse_unproven(c, "somebody else is writing to it",
                             "stop whoever does; is MM2 still running?")  # fmt: skip
            elif c.ours is not None:
                ledger = self._ledger.at(c.place)
                continued[c.place] = (behind(c.place, ledger, *c.ours, history), history.end)
            else:
                inherited = Inherited(c.place, history.inheritance())
                estates[c.place] = (inherited, Entry(c.place, history.runs()))
        self._ledger.inherit(estates.values())
        write_behind(self._ledger, continued)
        taken = [*estates, *continued]
        self._done(taken)
        if taken:
            topics = len({place.topic for place in taken})
            log.info(
                "%s: taking over %d partition(s) of %d topic(s) from MM2; nothing is copied again",
                self._name, len(taken), topics,
            )  # fmt: skip

    def _inquire(self, candidates: Sequence[_Candidate]) -> dict[Place, History]:
        by_source = {c.source: c for c in candidates}
        histories: dict[Place, History] = {}
        began = told = time.monotonic()
        done = 0

        def ended(partition: TopicPartition, outcome: History | Exception) -> None:
            nonlocal told, done
            done += 1
            c = by_source[partition]
            if isinstance(outcome, History):
                histories[c.place] = outcome
            elif isinstance(outcome, OtherRecords) and c.evidence.stored is None:
                # A sync of an earlier topic; by its own account, MM2 has mirrored nothing here.
                self._done([c.place])
            elif isinstance(outcome, Refused):
                self._refuse_unproven(c, str(outcome), outcome.right or _HINT)
            elif isinstance(outcome, Unproven):
                self._refuse_unproven(c, str(outcome), _HINT)
            else:
                raise outcome
            if time.monotonic() - told > _PROGRESS_SECONDS:
                told = time.monotonic()
                log.info("%s: looked at %d of %d partitions that MM2 mirrored, in %.0f s",
                         self._name, done, len(candidates), told - began)  # fmt: skip

        inquiries = {c.source: (c.target, inquire(c.evidence)) for c in candidates}
        answer_all(self._source, self._target, inquiries, ended)
        return histories

    def _refuse_unproven(self, c: _Candidate, why: str, hint: str) -> None:
        ours, stored = c.evidence.ours, c.evidence.stored
        if not c.certain:
            # Whoever wrote there need not be MM2. `Resumer` reports what is not ours.
            self._done([c.place])
            return
        what = f"{c.target} on {self._flow.target} was filled by MM2, and"
        if ours is not None and stored is not None:
            what = (
                f"MM2 has mirrored {c.source} on after Heliograph: Heliograph had copied up to"
                f" source offset {ours.source}, to offset {ours.target} of {c.target} on"
                f" {self._flow.target}; MM2 has stored that it mirrored up to {stored.offset}, and"
            )
        self._refuse(c.place, f"{what} where it stopped cannot be proven: {why}", hint)

    def _refuse(self, place: Place, text: str, hint: str) -> None:
        error = PartitionError("mm2.take-over", text, hint)
        if self._refusals.add(place, str(error)):
            log.warning("%s: %s", self._name, error)

    def _done(self, places: Iterable[Place]) -> None:
        places = list(places)
        self._settled.update(places)
        self._refusals.drop(places)


def place_of(plan: TopicPlan, partition: TopicPartition) -> Place:
    """The place of a partition of a plan that was made."""
    assert plan.source is not None  # noqa: S101 - made
    assert plan.target is not None  # noqa: S101 - made
    here, there = plan.source.topics, plan.target.topics
    topic, index = partition
    return Place(topic, index, here[topic].topic_id, there[plan.partitions[partition]].topic_id)


def _any_source(place: Place) -> tuple[str, int, uuid.UUID]:
    return place.topic, place.partition, place.target_id
