"""How far behind is each partition, and what is it doing? Runs in the driver.

Lag is measured on the two clusters, not told by the tasks; states come from both (service.states).
Lag in records: the source's end minus the next source offset to mirror, which is the target's end
seen through the ledger. Lag in seconds: how long ago the source's end first passed that offset, or,
of records that were there before, how old the next one is by its timestamp. All that is known is
read as a `FlowSnapshot`.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType

from heliograph.control.canary import LOST_SECONDS, CanaryReading
from heliograph.control.topics.refresh import TopicPlan
from heliograph.copy.lease_report import LeaseReport, PartitionPosition
from heliograph.ledger.codec import Place
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.ledger.source_ends import LastSeen
from heliograph.model import Lease, PartitionReport, PartitionState, Receipt, TopicPartition
from heliograph.policy import policy_from
from heliograph.service.copied import Copied
from heliograph.service.divergence import DivergenceWatch
from heliograph.service.events import EventBus, FlowEvents
from heliograph.service.figures import PartitionLag, Rate, TopicSums, why_translated
from heliograph.service.flow import QUICK_REQUEST_SECONDS, FlowRuntime
from heliograph.service.groups import GroupWatch
from heliograph.service.snapshot import (
    CHECKPOINTS,
    CanarySnapshot,
    FlowSnapshot,
    FlowState,
    JobSnapshot,
    Life,
    PartitionSnapshot,
    RiskSnapshot,
    TopicSnapshot,
)
from heliograph.service.states import FlowStates, Measured
from heliograph.units import duration
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.ends import EndsQuery, timestamps_at
from heliograph.wire.errors import ConnectionFailed, WireError
from heliograph.wire.metadata import Metadata

log = logging.getLogger(__name__)

#: Why nothing is copied while another mirror has the flow.
_STANDS_BY = "another mirror has the flow"
#: Lag in seconds grows with the clock: a snapshot of a flow that is behind lasts this long, or as
#: long as it takes to count so many partitions.
_SNAPSHOT_SECONDS, _COUNTED_PER_SECOND = 1.0, 5000
_MEASURE_SECONDS = 2.0
#: Entries of the ledger may change what is known of partitions that stay as they are.
_WHOLE_SECONDS = 30.0
#: So many partitions at a time are asked for the timestamp of their next record.
_TIMESTAMPS = 32
#: What was not measured for so many intervals is not known.
_STALE = 10
_MEASURED_PER_SECOND = 200


class FlowMonitor:
    """Watches one flow. `measure` and `look` are called by one job each, the rest by anybody.

    ``events`` is the flow's place on the mirror's ``bus``, ``groups`` what jobs see of groups.
    """

    def __init__(self, runtime: FlowRuntime, bus: EventBus) -> None:
        self._runtime = runtime
        config = runtime.config
        self._policy = policy_from(config)
        self._source = runtime.client(config.source_client, QUICK_REQUEST_SECONDS)
        self._target = runtime.client(config.target_admin, QUICK_REQUEST_SECONDS)
        self._ledger = runtime.ledger.store
        self._rehearsals = runtime.ledger.rehearsals
        self._plan = TopicPlan()
        self._targets: dict[TopicPartition, TopicPartition] = {}
        self._target_partitions: list[TopicPartition] = []
        self._target_ends = EndsQuery(self._target)
        committed = config.isolation_level == "read_committed"
        self._source_ends = EndsQuery(self._source, read_committed=committed)
        self._highest = EndsQuery(self._source) if committed else None
        self._sources: dict[TopicPartition, TopicPartition] = {}
        #: Partitions that did not answer when they were last asked.
        self._absent: AbstractSet[TopicPartition] = frozenset()
        #: Partitions of which tasks have told positions since the last measurement.
        self._news: set[TopicPartition] = set()
        self._lags: dict[TopicPartition, PartitionLag] = {}
        self._written = Rate()
        self._sent = Rate()
        self._grown = self._quarantined = 0
        self._copied = Copied()
        self._rounds = self._failed_rounds = 0
        self._progressed_at = 0.0
        self._ledger_runs: int | None = None
        self._canary = CanaryReading()
        self._canary_lost = False
        self._measured_at = self._whole_at = 0.0
        #: When the source was asked that last answered, and for which partitions it did.
        self._source_at = 0.0
        self._source_knew: Mapping[TopicPartition, int] = {}
        self._seen: tuple[int, LastSeen] | None = None
        self._measuring = threading.Lock()
        #: Held while what was measured is taken in, and while it is counted.
        self._counting = threading.Lock()
        self._suspended = ""
        self._began = time.time()
        self._told_waiting = False
        self._sorted: tuple[object, Sequence[tuple[TopicPartition, str]]] | None = None
        self._measurements = 0
        self._base: FlowSnapshot | None = None
        self._base_of, self._base_at = (0, 0, False, False), 0.0
        self.events = FlowEvents(bus, runtime.name)
        self._divergence = DivergenceWatch(
            runtime.flow,
            lambda text: self.events.publish("flow.diverged", text, level=logging.WARNING),
        )
        self.groups = GroupWatch(runtime.flow)
        self._states = FlowStates(
            runtime.name, runtime.flow.source, config.stalled_after_seconds, self.interval
        )

    @property
    def interval(self) -> float:
        """Seconds between two measurements: large flows are asked less often, to stay idle."""
        return max(_MEASURE_SECONDS, len(self._runtime.plan.partitions) / _MEASURED_PER_SECOND)

    # -- measuring ----------------------------------------------------------------------------

    def measure(self) -> None:
        """Ask both clusters where every partition ends; raises WireError if one did not answer."""
        self._watch(time.time())
        with self._measuring:
            try:
                silent = self._measure()
            finally:
                self._states.asks("", 0.0)
        if silent:
            self._states.unmeasured(silent[0])
        # What is shown of lag and of states belongs together.
        self.look()
        if silent:
            raise WireError(silent[0])

    @property
    def unanswered(self) -> str:
        """Which cluster has been asked for long and has not answered; empty if none."""
        return self._states.unanswered(time.time())

    def _measure(self) -> list[str]:
        """Returns which brokers did not answer, and what to do about it."""
        plan, changed = self._planned()
        if plan.source is None or plan.target is None:
            return []
        # Target first: what arrives on the source in between counts as lag, never as negative lag.
        source, target = self._runtime.flow.source, self._runtime.flow.target
        self._states.asks(target, time.time())
        self._target_ends.ask(plan.target, self._target_partitions)
        self._states.asks(source, asked_at := time.time())
        self._source_ends.ask(plan.source, plan.partitions)
        silent = [_silence(self._target, e) for e in self._target_ends.silent.values()]
        silent += [_silence(self._source, e) for e in self._source_ends.silent.values()]
        touched = self._source_ends.changed | {self._sources[t] for t in self._target_ends.changed
                                               if t in self._sources}  # fmt: skip
        if self._highest is not None:
            # What lies behind an open transaction may not be read yet.
            self._highest.ask(plan.source, plan.partitions, self._source_ends.silent)
            silent += [_silence(self._source, e) for e in self._highest.silent.values()]
            touched |= self._highest.changed
        news, self._news = self._news, set()
        touched |= news & self._targets.keys()
        # Where a copy begins is in the ledger before anything is on the target.
        touched |= {p for p, lag in self._lags.items() if lag.shift is None and lag.records}
        now = time.time()
        whole = changed or silent or self._absent or now - self._whole_at >= _WHOLE_SECONDS
        found: Mapping[TopicPartition, Measured] = {}
        # The ledger is there.
        self._states.asks(target, time.time())
        if whole or touched:
            found = self._take(plan, plan.partitions.keys() if whole else touched, silent)
        self._states.measured(found, now, self._absent)
        self._look_at_divergence(plan)
        if self._source_ends.found or not self._targets:
            self._source_at, self._source_knew = asked_at, self._source_ends.found
        if len(self._absent) < len(self._targets) or not self._targets:
            self._measured_at = now
        if whole:
            self._whole_at = now
            self._ledger_runs = self._ledger.size
            self._copied.forget(plan.partitions)
        self._states.asks(source, time.time())
        self._ask_timestamps(plan.source)
        self._written.sample(now, self._grown)
        if self._copied.live:
            self._sent.sample(now, self._copied.counts.bytes)
        return silent

    def _planned(self) -> tuple[TopicPlan, bool]:
        """What to measure, and whether that has changed; the same objects if it has not."""
        old, new = self._plan, self._runtime.plan
        if new is not old:
            known = old.partitions, old.source, old.target
            if known != (new.partitions, new.source, new.target):
                self._plan = new
                self._targets = {
                    p: TopicPartition(name, p.partition) for p, name in new.partitions.items()
                }
                self._target_partitions = list(self._targets.values())
                self._sources = {t: p for p, t in self._targets.items()}
                return new, True
        return self._plan, False

    def _take(
        self, plan: TopicPlan, touched: AbstractSet[TopicPartition], silent: list[str]
    ) -> Mapping[TopicPartition, Measured]:
        """Take in what was measured of some partitions.

        All others are as they were, and those that did not answer did not answer before.
        """
        source_ends, target_ends = self._source_ends.found, self._target_ends.found
        highest = source_ends if self._highest is None else self._highest.found
        try:
            self._ledger.refresh()
        except WireError as error:
            # What the source said counts all the same: its records wait, and the lag grows.
            silent.append(_silence(self._target, error))
            target_ends, touched = {}, plan.partitions.keys()
        both = [p for p in touched if p in source_ends and self._targets[p] in target_ends]
        fresh = [p for p in both if not self._runs_of(plan, p)]
        starts = self._starts(plan, fresh, silent)
        # An operator may have decided where to begin.
        moves = self._runtime.moves() if fresh else {}
        starts = {p: moves[p].source if p in moves else start for p, start in starts.items()}
        with self._counting:
            return self._take_all(plan, touched, (source_ends, target_ends, highest), starts)

    def _take_all(
        self,
        plan: TopicPlan,
        touched: AbstractSet[TopicPartition],
        ends: tuple[Mapping[TopicPartition, int], ...],
        starts: Mapping[TopicPartition, int],
    ) -> Mapping[TopicPartition, Measured]:
        source_ends, target_ends, highest = ends
        now = time.time()
        found: dict[TopicPartition, Measured] = {}
        for p in touched:
            end = target_ends.get(self._targets[p])
            if end is None:
                continue
            if p not in source_ends:
                # Of what its source had, more may have arrived.
                if (known := self._lags.get(p)) is not None:
                    self._take_target(_place(plan, p), known, end, known.position)
                continue
            if p not in starts and not self._runs_of(plan, p):
                continue
            lag = self._lags.setdefault(p, PartitionLag())
            self._take_target(_place(plan, p), lag, end, starts.get(p, 0))
            held_back = max(highest.get(p, 0) - source_ends[p], 0)
            found[p] = Measured(lag.position, source_ends[p], held_back)
        for p in touched:
            if (known := self._lags.get(p)) is not None:
                end = source_ends.get(p, known.source_end)
                if end != known.source_end or not known.ends:
                    known.ends.append((now, end))
                    known.source_end, known.made = end, None
        for p in self._lags.keys() - self._targets.keys():
            del self._lags[p]
        self._absent = (self._absent - touched) | (touched - found.keys())
        self._measurements += 1
        return found

    def _starts(
        self, plan: TopicPlan, fresh: Sequence[TopicPartition], silent: list[str]
    ) -> Mapping[TopicPartition, int]:
        """Where partitions begin of which nothing was mirrored yet."""
        if not fresh or plan.source is None:
            return {}
        try:
            return admin.list_offsets(self._source, plan.source, fresh, admin.EARLIEST)
        except WireError as error:
            silent.append(_silence(self._source, error))
            return {}

    def _look_at_divergence(self, plan: TopicPlan) -> None:
        """Of a flow that was failed over: what the source has behind the cuts."""
        cuts, ends = self._runtime.ledger.cuts, self._source_ends.found
        if not cuts.failed_over:
            self._divergence.over()
        elif ends:
            highest = ends if self._highest is None else self._highest.found
            at = ((p, cuts.failed_over_at(_place(plan, p))) for p in ends if p in plan.partitions)
            self._divergence.measured({
                p: max(highest.get(p, ends[p]) - cut.source, 0) for p, cut in at if cut is not None
            })  # fmt: skip

    def _ask_timestamps(self, source: Metadata) -> None:
        """Find out how old the next record is where that was not watched: after a start.

        Of a bounded number of partitions at a time, those first that were not answered longest.
        """
        wanted = [p for p, lag in self._lags.items() if lag.age_unknown]
        if not wanted:
            return
        wanted.sort(key=lambda p: self._lags[p].asked_at)
        positions = {p: self._lags[p].position for p in wanted[:_TIMESTAMPS]}
        for p, written in timestamps_at(self._source, source, positions).items():
            self._lags[p].oldest = positions[p], written
            self._lags[p].asked_at = time.time()
        self._measurements += 1

    def _runs_of(self, plan: TopicPlan, p: TopicPartition) -> Sequence[Run]:
        return self._ledger.at(_place(plan, p)).runs

    def _take_target(self, place: Place, lag: PartitionLag, end: int, start: int) -> None:
        """The target ends at ``end``; the source began at ``start`` if nothing was mirrored yet."""
        if lag.target_id == place.target_id and end > lag.target_end:
            self._grown += end - lag.target_end
            lag.progressed_at = self._progressed_at = time.time()
        before = lag.target_end, lag.position, lag.shift
        lag.target_end, lag.target_id = end, place.target_id
        ledger = self._ledger.at(place)
        if ledger.runs:
            self._compare(TopicPartition(place.topic, place.partition), lag, ledger.runs)
            lag.position = self._position(place, ledger, end)
            if lag.begun_at is None:
                lag.begun_at = max(ledger.runs[0].target, ledger.inherited.end)
        else:
            lag.position = start
        told_now = lag.told_target_end == end
        if told_now or (self._is_guarded(place) and lag.told_target_end <= end):
            lag.position = max(lag.position, lag.told_position)
        if before != (lag.target_end, lag.position, lag.shift):
            lag.made = None

    def _is_guarded(self, place: Place) -> bool:
        """Whether others may write to the target, whose records are not to be brought there."""
        return TopicPartition(place.topic, place.partition) in self._runtime.guards

    def _position(self, place: Place, ledger: PartitionLedger, end: int) -> int:
        """The next source offset to mirror.

        Where a flow goes in the opposite direction the target also grows by records of its own:
        what counts is what was acknowledged, which is noted every two seconds. Where a failover has
        cut the logs, the target goes its own way.
        """
        if (cut := self._runtime.ledger.cuts.failed_over_at(place)) is not None:
            return cut.source
        known = ledger.known
        if not self._is_guarded(place) or known is None or known.target > end:
            return ledger.position(end)
        return ledger.source_of(max(known.sequence, ledger.runs[0].sequence))

    def _compare(self, p: TopicPartition, lag: PartitionLag, runs: Sequence[Run]) -> None:
        """Say so when offsets stop being the source's."""
        run = runs[-1]
        shift = run.target - run.source
        if lag.shift == 0 and shift and self._runtime.leased(p).identical:
            log.warning(
                "%s: offsets of %s are no longer the source's: from source offset %d on they are"
                " %+d on the target, because %s; positions are translated exactly from here on",
                self._runtime.flow, p, run.source, shift,
                why_translated(runs, self._runtime.plan.partitions[p]),
            )  # fmt: skip
        lag.shift = shift

    # -- what tasks say -----------------------------------------------------------------------

    def granted(self, lease: Lease) -> None:
        """A lease of this flow is handed out."""
        partitions = {p.source for p in lease.partitions}
        self._states.granted(lease.serial, partitions, lease.deadline, time.time())

    def hear(self, lease_report: LeaseReport) -> None:
        """Take note of a live report."""
        self.events.add(lease_report.events)
        for stand in lease_report.positions:
            self._stand(stand)
        self._copied.heard(lease_report, time.time())
        self._states.told(lease_report)
        if lease_report.reports:
            self.look()

    def receive(self, receipts: Sequence[Receipt]) -> None:
        """Take note of what a round said: states, sizes, positions behind markers and holes."""
        self._copied.received(receipts, time.time())
        if not self._copied.live:
            self._sent.sample(time.time(), self._copied.counts.bytes)
        for receipt in receipts:
            p = TopicPartition(receipt.topic, receipt.partition)
            self._quarantined += receipt.quarantined
            if receipt.quarantined:
                log.warning(
                    "%s: %d record(s) of %s were set aside in %s: the target does not take them",
                    receipt.flow, receipt.quarantined, p,
                    self._runtime.context and self._runtime.context.quarantine_topic,
                )  # fmt: skip
            self._stand(PartitionPosition(p, receipt.source_position, receipt.target_end))
            if receipt.lease_report:
                lease_report = LeaseReport.decode(receipt.lease_report)
                self.events.add(lease_report.events)
                self._states.told(lease_report)
            else:
                self._states.fine(p, receipt.serial)
        self.look()

    def round_ended(self, *, failed: bool) -> None:
        """A round of this flow is over, with receipts or without."""
        self._rounds += 1
        self._failed_rounds += failed

    def _stand(self, stand: PartitionPosition) -> None:
        lag = self._lags.get(stand.partition)
        told = (stand.position, stand.target_end)
        if lag is not None and told != (lag.told_position, lag.told_target_end):
            lag.told_position, lag.told_target_end = told
            self._news.add(stand.partition)

    def take_canary(self, reading: CanaryReading) -> None:
        """What the probes have shown."""
        self._canary = reading

    def _tell_canary(self, now: float) -> None:
        """Say once that a probe is lost, and that none is any more."""
        seen = self._canary_snapshot(now)
        lost = seen is not None and seen.overdue
        if lost is self._canary_lost:
            return
        self._canary_lost = lost
        if lost:
            text = f"a probe has been on its way for more than {LOST_SECONDS:.0f} s"
            self.events.publish("flow.canary-lost", text, level=logging.WARNING)
        else:
            # What is not followed any more, e.g. of a flow that is paused, is not late.
            self.events.publish("flow.canary-back", "no probe is overdue any more")

    # -- what is said -------------------------------------------------------------------------

    def suspend(self, why: str) -> None:
        """The flow is not copied by this mirror for now, because of ``why``; empty: it is again.

        E.g. while it is paused. None of its partitions is reported as stalled meanwhile. A flow
        that another mirror has need not be suspended: that is found out here.
        """
        self._suspended = why
        self.look()

    def look(self) -> None:
        """Judge what every partition is doing; what an operator must hear of is published."""
        now = time.time()
        suspended = self._suspended or (_STANDS_BY if self._rests else "")
        self._states.suspend(suspended, now)
        self._watch(now)
        self._states.not_begun(self._runtime.waiting, self._runtime.held)
        self.events.add(self._states.look(now))
        self._tell_waiting(now, suspended)
        self._tell_canary(now)

    @property
    def _rests(self) -> bool:
        """Whether this mirror copies nothing of the flow, on purpose."""
        return bool(self._suspended) or self._runtime.stands_by

    def _watch(self, now: float) -> None:
        self._states.watch(self._runtime.plan.partitions.keys(), now)

    def _tell_waiting(self, now: float, suspended: str) -> None:
        """Say once that nothing is copied yet, instead of once for each partition."""
        after = self._runtime.config.stalled_after_seconds
        if suspended:
            # What was held back on purpose begins to wait when it may go on.
            self._began = now
        if self._told_waiting or now - self._began < after:
            return
        self._told_waiting = True
        behind = sum(lag.records for lag in self._lags.values())
        if behind and not self._states.leased:
            text = (
                f"{behind:,} record(s) wait, and no task has started for {duration(after)}:"
                " Spark is still starting, or has no free slots"
            )
            self.events.publish("flow.waiting", text, level=logging.WARNING)

    def failing(self) -> Mapping[TopicPartition, PartitionReport]:
        """The partitions that cannot be copied as things are, with the reason."""
        return self._states.failing()

    def reached(self, partition: TopicPartition) -> tuple[uuid.UUID | None, int]:
        """The target topic, and where its partition ended when it was measured last."""
        lag = self._lags.get(partition)
        return (lag.target_id, lag.target_end) if lag is not None else (None, 0)

    @property
    def targets(self) -> Mapping[TopicPartition, str]:
        """The topics that source partitions are mirrored to."""
        return self._runtime.plan.partitions

    def ends_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        """Where a source partition ended, and its copy, when both were last measured."""
        lag = self._lags.get(partition)
        return (lag.source_end, lag.target_end) if lag is not None else None

    def load_of(self, partition: TopicPartition) -> tuple[int, float]:
        """(records behind, records per second written at the source), for weighing leases."""
        lag = self._lags.get(partition)
        return (lag.records, lag.source_rate) if lag is not None else (0, 0.0)

    def seen(self) -> LastSeen | None:
        """What the source had and the target had not, when the source last answered.

        None before that. The same object until the next measurement.
        """
        at_ms = int(self._source_at * 1000)
        if not at_ms:
            return None
        with self._counting:
            number, seen = self._seen if self._seen is not None else (-1, None)
            # What waits has waited longer with every measurement.
            aged = seen is not None and seen.at_ms != at_ms and bool(seen.ends)
            if seen is None or number != self._measurements or aged:
                seen = self._beyond(at_ms)
            elif seen.at_ms != at_ms:
                seen = replace(seen, at_ms=at_ms)
            self._seen = self._measurements, seen
        return seen

    def _beyond(self, at_ms: int) -> LastSeen:
        highest = self._highest.found if self._highest is not None else {}
        ends, begins, ages = {}, {}, []
        topics: Counter[str] = Counter()
        for p, lag in self._lags.items():
            # What is in open transactions, or behind them, is on the source's disks, too.
            end = max(lag.source_end, highest.get(p, 0))
            if end <= lag.position or self._policy.is_heartbeats_topic(p.topic):
                continue
            ends[p] = end
            topics[p.topic] += end - lag.position
            ages.append(lag.seconds(at_ms / 1000))
            if lag.begun_at is None:
                begins[p] = lag.position
        seconds = max((age for age in ages if age is not None), default=None if ages else 0.0)
        silent: AbstractSet[TopicPartition] = frozenset()
        # A source that is gone as a whole was in step when it last answered, if it was then.
        if len(self._source_knew) < len(self._targets):
            silent = self._targets.keys() - self._source_knew.keys()
        return LastSeen(
            at_ms, ends, True, topics.total(), seconds, topics, len(self._absent), begins, silent,
            {p: report.why for p, report in self._states.failing().items()},
        )  # fmt: skip

    def snapshot(
        self, life: Life, parts: Mapping[str, Life], jobs: Sequence[JobSnapshot] = ()
    ) -> FlowSnapshot:
        """All that is known of the flow; ``life``, ``parts`` and ``jobs`` are its supervisor's.

        Cheap: partitions that did not change since the last one are not looked at again.
        """
        now = time.time()
        # Whoever is not watched any more is not known to be in step.
        stale = now - self._measured_at > _STALE * self.interval
        key, base = (self._measurements, self._states.version, stale, self._rests), self._base
        lasts = max(_SNAPSHOT_SECONDS, len(self._lags) / _COUNTED_PER_SECOND)
        old = now - self._base_at >= lasts
        if base is None or self._base_of != key or (base.lag_records and old):
            with self._counting:
                base = self._figures(now, stale)
            self._base, self._base_of, self._base_at = base, key, now
        counts = self._copied.counts
        recovered, newest = self._rehearsals.measured, self._rehearsals.newest
        return replace(
            base,
            life=life,
            parts=MappingProxyType(dict(parts)),
            measured_at=self._measured_at,
            records_per_second=self._written.per_second,
            bytes_per_second=self._sent.per_second,
            copied_records=counts.records,
            copied_bytes=counts.bytes,
            quarantined=self._quarantined,
            events=MappingProxyType(dict(self.events.counts)),
            told_offsets=MappingProxyType(dict(self.events.told_offsets)),
            skipped=MappingProxyType(dict(self.events.skipped)),
            owns=self._runtime.holds,
            progressed_at=self._progressed_at,
            counts=counts,
            copies=self._copied.partitions(now),
            pending=self._copied.pending,
            free_bytes=self._copied.free_bytes,
            rounds=self._rounds,
            failed_rounds=self._failed_rounds,
            ledger_runs=self._ledger_runs,
            ledger_end=self._ledger.follower.reached.position,
            jobs=tuple(jobs),
            groups=self.groups.rows(parts.get(CHECKPOINTS), self.ends_of, self._measurements),
            canary=self._canary_snapshot(now),
            paused_topics=MappingProxyType(dict(self._runtime.paused_topics)),
            at_risk=None if self._runtime.is_standby else self._at_risk(base),
            rto_seconds=recovered.rto_seconds if recovered is not None else None,
            rto_measured_at=recovered.at_ms / 1000 if recovered is not None else 0.0,
            rehearsal_ok=newest.ok if newest is not None else None,
            diverged_records=self._divergence.records,
        )

    def _at_risk(self, base: FlowSnapshot) -> RiskSnapshot | None:
        known = base.at_risk
        if known is None or not self._source_at:
            return None
        return replace(known, measured_at=self._source_at)

    def _canary_snapshot(self, now: float) -> CanarySnapshot | None:
        reading = self._canary
        if self._rests:
            # Nobody follows the probe any more: it is not late.
            reading = replace(reading, waiting_since=0.0)
        latency = reading.latency(now)
        if latency is None:
            return None
        return CanarySnapshot(
            latency, reading.skew_seconds, reading.lost, reading.seen_at, reading.overdue(now)
        )

    def _figures(self, now: float, stale: bool) -> FlowSnapshot:
        """What was measured, and the sums; ``stale`` if that is long ago."""
        flow = self._runtime.flow
        reports, blind, lags = self._states.reports(), self._states.blind, self._lags
        made: list[PartitionSnapshot] = []
        topics: dict[str, TopicSums] = {}
        states: Counter[PartitionState] = Counter()
        hidden = stale or bool(blind)
        total = identical = translated = 0
        for p, name in self._by_name():
            lag, report = lags.get(p), reports.get(p)
            if (topic := topics.get(p.topic)) is None:
                topic = topics[p.topic] = TopicSums(name)
            if lag is not None and lag.made is not None and lag.made[0] is report and not hidden:
                # The usual case: in step, and nothing has changed.
                partition = lag.made[1]
                topic.in_step += 1
            else:
                partition = self._partition(p, name, report, lag, stale or p in blind, now)
                topic.add(partition)
            made.append(partition)
            states[partition.state] += 1
            if lag is not None:
                if lag.begun_at is not None:
                    total += max(lag.target_end - lag.begun_at, 0)
                if lag.shift == 0:
                    identical += 1
                elif lag.shift:
                    translated += 1
        sums = [topic.snapshot(name) for name, topic in topics.items()]
        sums.sort(key=lambda t: (-(t.lag_records or 0), t.topic))
        # Nobody waits for the heartbeats of a flow that rests.
        awaited = [
            t for t in sums if not (self._rests and self._policy.is_heartbeats_topic(t.topic))
        ]
        records = [t.lag_records for t in awaited if t.lag_records is not None]
        greatest = max((t.lag_seconds or 0.0 for t in awaited), default=0.0)
        unknown = any(t.lag_seconds is None for t in awaited)
        unmeasured = sum(topic.unmeasured for topic in topics.values())
        # Of a flow without partitions it is known that nothing waits.
        behind = sum(records) if records or not awaited else None
        seconds = None if unknown and not greatest else greatest
        return FlowSnapshot(
            self._runtime.name, flow.source, flow.target, Life(FlowState.STARTING),
            topics=tuple(sums),
            partitions=tuple(made),
            states=MappingProxyType({
                s.value: states[s] for s in reversed(PartitionState) if states[s]
            }),
            unmeasured=unmeasured,
            lag_records=behind,
            lag_seconds=seconds,
            records_total=total if lags or not made else None,
            identical=identical,
            translated=translated,
            at_risk=self._risk_of(topics, sums),
        )  # fmt: skip

    def _risk_of(
        self, counted: Mapping[str, TopicSums], sums: Sequence[TopicSnapshot]
    ) -> RiskSnapshot:
        """Nobody loses heartbeats; all else that waits is at risk."""
        found = [t for t in sums if not self._policy.is_heartbeats_topic(t.topic)]
        behind = self._held_back()
        behind.update({t.topic: t.lag_records for t in found if t.lag_records is not None})
        greatest = max((t.lag_seconds or 0.0 for t in found), default=0.0)
        unknown = any(t.lag_seconds is None for t in found)
        return RiskSnapshot(
            behind.total() if behind or not found else None,
            sum(map(bool, behind.values())),
            None if unknown and not greatest else greatest,
            sum(counted[t.topic].unmeasured for t in found),
            0.0,
        )

    def _held_back(self) -> Counter[str]:
        """Records that may not be read yet, by topic: open transactions, and what is behind."""
        found: Counter[str] = Counter()
        if self._highest is not None:
            highest = self._highest.found
            for p, lag in self._lags.items():
                if highest.get(p, 0) > lag.source_end:
                    found[p.topic] += highest[p] - lag.source_end
        return found

    def _by_name(self) -> Sequence[tuple[TopicPartition, str]]:
        """The partitions of the plan and their target topics, sorted."""
        partitions = self._runtime.plan.partitions
        if self._sorted is None or self._sorted[0] is not partitions:
            self._sorted = partitions, sorted(partitions.items())
        return self._sorted[1]

    def _partition(
        self,
        p: TopicPartition,
        name: str,
        report: PartitionReport | None,
        lag: PartitionLag | None,
        blind: bool,
        now: float,
    ) -> PartitionSnapshot:
        if report is None:
            report = PartitionReport("", p, PartitionState.STARTING, now)
        if lag is None:
            return PartitionSnapshot(
                p.topic, p.partition, name, report.state, report.why, report.code, report.since,
                report.retry_at,
            )  # fmt: skip
        behind = lag.records
        # Of a partition that was in step when it could last be measured, nothing is known.
        known = not blind or behind
        made = PartitionSnapshot(
            p.topic, p.partition, name, report.state, report.why, report.code, report.since,
            report.retry_at, lag.source_end, lag.position, lag.target_end,
            behind if known else None, lag.seconds(now) if known else None, lag.shift,
            lag.progressed_at,
        )  # fmt: skip
        lag.made = None if behind or blind or made.troubled else (report, made)
        return made


def _place(plan: TopicPlan, p: TopicPartition) -> Place:
    assert plan.source is not None  # noqa: S101 - it was measured by this plan
    assert plan.target is not None  # noqa: S101 - as above
    remote = plan.target.topics[plan.partitions[p]]
    return Place(p.topic, p.partition, plan.source.topics[p.topic].topic_id, remote.topic_id)


def _silence(client: ClusterClient, error: WireError) -> str:
    """Why a cluster could not be asked, and what to do about it."""
    if isinstance(error, ConnectionFailed):
        return f"cluster {client.alias} does not answer; check that its brokers are up: {error}"
    return f"cluster {client.alias}: {error}"
