"""What every partition of a flow is doing, and the watchdog. Pure: no clock, no I/O. Driver.

There are two sources. Tasks report trouble, live and in receipts; the monitor measures both
clusters itself. A task can be wrong, hung or gone, so the measurement decides: a partition that is
behind and does not move is stalled, whatever the tasks say, and one that cannot be measured is not
in step. Of what tasks say, the newest lease counts.

Nothing is stalled before the flow's first lease was handed out, nor while the flow is suspended:
what is missing then is not the partition's fault, and its supervisor reports it once.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from heliograph.copy.lease_report import LeaseReport
from heliograph.model import PartitionEvent, PartitionReport, PartitionState, TopicPartition
from heliograph.service.events import RECOVERED
from heliograph.units import duration, moment

__all__ = [
    "FAILED",
    "STALLED",
    "FlowStates",
    "Measured",
]

#: Codes of the events that are made here.
FAILED, STALLED = "partition.failed", "partition.stalled"

#: Transactions that end sooner than this are not worth a word.
_TRANSACTION_SECONDS = 5.0
#: A measurement that is later than this is worth a word.
_BLIND_SECONDS = 10.0
#: A cluster that takes longer to say where its logs end does not answer.
_SLOW_SECONDS = 3.0
#: The holder of a lease that ended is given so long to be followed by the next.
_SUCCESSION_SECONDS = 5.0
#: Leases whose end is remembered: some rounds of some hundred tasks.
_LEASES = 4096
_BAD = (PartitionState.STALLED, PartitionState.FAILED)
#: Why nothing is copied before the first lease.
_NO_LEASE = "no task has started yet"


@dataclass(frozen=True, slots=True)
class Measured:
    """A partition on both clusters: the next source offset to mirror, the end of what can be read.

    ``held_back`` records behind that end wait for the end of a transaction.
    """

    position: int
    readable: int
    held_back: int = 0


@dataclass(slots=True)
class _Watched:
    """What is known of one partition. ``trouble`` is the bad state that was told of, until it ends.

    ``still_since`` is when it last moved, or fell behind; ``begun`` is whether it ever moved.
    """

    shown: PartitionReport
    measured_at: float
    still_since: float
    told: PartitionReport | None = None
    serial: int = -1
    held_until: float = 0.0
    measured: Measured | None = None
    held_back_since: float = 0.0
    begun: bool = False
    trouble: PartitionReport | None = None

    @property
    def behind(self) -> int:
        """Records that could be mirrored."""
        return max(self.measured.readable - self.measured.position, 0) if self.measured else 0


@dataclass(frozen=True, slots=True)
class _Granted:
    partitions: Collection[TopicPartition]
    deadline: float


class FlowStates:
    """The partitions of one flow. Thread-safe; times are seconds since the epoch."""

    def __init__(self, flow: str, source: str, stalled_after: float, interval: float) -> None:
        """``interval`` is how often the flow is measured; what is slower cannot be judged."""
        self._flow = flow
        self._source = source
        self._stalled_after = max(stalled_after, 3 * interval)
        self._blind_after = max(_BLIND_SECONDS, 3 * interval)
        self._watched: dict[TopicPartition, _Watched] = {}
        self._granted: dict[int, _Granted] = {}
        self._not_begun: Mapping[TopicPartition, str] = {}
        self._held: AbstractSet[TopicPartition] = frozenset()
        self._unmeasured = ""
        #: The cluster that is being asked, and since when.
        self._asked: tuple[str, float] = ("", 0.0)
        #: When the clusters were last asked, and which partitions did not answer then.
        self._measured_at = 0.0
        self._absent: AbstractSet[TopicPartition] = frozenset()
        #: When the first lease was handed out; 0 before that.
        self._first_lease_at = 0.0
        self._suspended = ""
        self._blind: frozenset[TopicPartition] = frozenset()
        #: Partitions to look at: all others are idle, and nothing was heard of them since.
        self._active: set[TopicPartition] = set()
        #: Grows whenever the report of any partition changes.
        self.version = 0
        self._lock = threading.Lock()

    @property
    def leased(self) -> bool:
        """Whether a lease was ever handed out."""
        return bool(self._first_lease_at)

    @property
    def blind(self) -> frozenset[TopicPartition]:
        """Partitions that were not measured for so long that their lag is not known."""
        return self._blind

    # -- what is heard ------------------------------------------------------------------------

    def watch(self, partitions: Collection[TopicPartition], now: float) -> None:
        """These are the flow's partitions."""
        with self._lock:
            if partitions == self._watched.keys():
                return
            for p in self._watched.keys() - partitions:
                del self._watched[p]
                self._active.discard(p)
            for p in set(partitions) - self._watched.keys():
                self._active.add(p)
                fresh = PartitionReport(self._flow, p, PartitionState.STARTING, now)
                self._watched[p] = _Watched(fresh, now, now)

    def not_begun(
        self, why: Mapping[TopicPartition, str], held: AbstractSet[TopicPartition] = frozenset()
    ) -> None:
        """These have no lease; all others may have one.

        The reason ends by itself, but for those that are ``held``: an operator or another connector
        keeps them, and they are not stalled, however long it takes.
        """
        with self._lock:
            self._active |= (why.keys() | self._not_begun.keys()) & self._watched.keys()
            self._not_begun, self._held = why, held & why.keys()

    def suspend(self, why: str, now: float) -> None:
        """Nothing of the flow is copied by this mirror, because of ``why``; empty: it is again.

        What tasks said of it is over, and none of its partitions is stalled until it goes on.
        """
        with self._lock:
            if why == self._suspended:
                return
            self._suspended = why
            self._active |= self._watched.keys()
            for watched in self._watched.values():
                watched.told = None
                if not why:
                    watched.still_since = now

    def granted(
        self, serial: int, partitions: Collection[TopicPartition], deadline: float, now: float
    ) -> None:
        """A lease was handed out."""
        with self._lock:
            self._first_lease_at = self._first_lease_at or now
            self._granted[serial] = _Granted(partitions, deadline)
            while len(self._granted) > _LEASES:
                del self._granted[next(iter(self._granted))]

    def told(self, lease_report: LeaseReport) -> None:
        """The holder of a lease says something."""
        with self._lock:
            lease = self._granted.get(lease_report.serial)
            for report in lease_report.reports:
                self._tell(report.partition, report, lease_report.serial)
            if lease is not None:
                self._hold(lease, lease_report)

    def _tell(self, p: TopicPartition, report: PartitionReport | None, serial: int) -> None:
        watched = self._watched.get(p)
        if watched is None or serial < watched.serial:
            return
        if report is not None and report.state is PartitionState.STARTING:
            return
        watched.serial = serial
        if report is not None or watched.told is not None:
            watched.told = report
            self._active.add(p)

    def _hold(self, lease: _Granted, lease_report: LeaseReport) -> None:
        """The holder lives, and those of whom it says nothing are fine."""
        for p in lease.partitions:
            watched = self._watched.get(p)
            if watched is not None:
                watched.held_until = max(watched.held_until, lease.deadline)
                if lease_report.all_told and watched.serial < lease_report.serial:
                    self._tell(p, None, lease_report.serial)

    def fine(self, p: TopicPartition, serial: int) -> None:
        """The receipt of a lease has nothing to say of a partition."""
        with self._lock:
            self._tell(p, None, serial)

    def measured(
        self,
        found: Mapping[TopicPartition, Measured],
        now: float,
        absent: AbstractSet[TopicPartition] = frozenset(),
    ) -> None:
        """Both clusters were asked, and this is what has changed; ``absent`` did not answer."""
        with self._lock:
            self._unmeasured = ""
            for p in absent - self._absent:
                watched = self._watched.get(p)
                if watched is not None and watched.measured is not None:
                    watched.measured_at = self._measured_at
            self._active |= (absent | found.keys()) & self._watched.keys()
            self._measured_at, self._absent = now, absent
            for p, m in found.items():
                watched = self._watched.get(p)
                if watched is not None:
                    _take(watched, m, now)

    def asks(self, alias: str, now: float) -> None:
        """A cluster is being asked; empty: none is."""
        with self._lock:
            self._asked = (alias, now)

    def unanswered(self, now: float) -> str:
        """Which cluster has let us wait for so long that lags are not known; empty if none."""
        alias, since = self._asked
        return _silent(alias) if alias and now - since >= self._blind_after else ""

    def unmeasured(self, why: str) -> None:
        """The clusters could not be asked."""
        with self._lock:
            self._unmeasured = why

    # -- what is said -------------------------------------------------------------------------

    def look(self, now: float) -> list[PartitionEvent]:
        """Judge every partition; returns what an operator must hear of."""
        with self._lock:
            if now - self._measured_at >= self._blind_after:
                self._active |= self._watched.keys()
            self._blind = frozenset(
                p for p in self._active
                if now - self._measured(p, self._watched[p]) >= self._blind_after
            )  # fmt: skip
            events: list[PartitionEvent] = []
            for p in sorted(self._active):
                watched = self._watched[p]
                before = watched.shown
                idle = before.state is PartitionState.IDLE and p not in self._not_begun
                if idle and self._is_idle(p, watched, now):
                    self._active.discard(p)
                    continue
                shown = self._judge(p, watched, now)
                if shown.state is before.state and shown.code == before.code:
                    shown = replace(shown, since=min(before.since, shown.since))
                if shown != before:
                    watched.shown = shown
                    self.version += 1
                events += self._transition(watched, now)
            return events

    def reports(self) -> dict[TopicPartition, PartitionReport]:
        """Every partition, as last looked at."""
        with self._lock:
            return {p: watched.shown for p, watched in self._watched.items()}

    def failing(self) -> dict[TopicPartition, PartitionReport]:
        """Partitions that tasks have failed to copy, as last told."""
        with self._lock:
            return {
                p: watched.told
                for p, watched in self._watched.items()
                if watched.told is not None and watched.told.state is PartitionState.FAILED
            }

    def _measured(self, p: TopicPartition, w: _Watched) -> float:
        """When a partition was measured, or found to be as measured."""
        answered = w.measured is not None and p not in self._absent
        return self._measured_at if answered else w.measured_at

    def _is_idle(self, p: TopicPartition, w: _Watched, now: float) -> bool:
        return (
            w.told is None
            and not w.behind
            and not w.held_back_since
            and now - self._measured(p, w) < self._blind_after
        )

    def _judge(self, p: TopicPartition, w: _Watched, now: float) -> PartitionReport:
        def state(which: PartitionState, since: float, why: str = "") -> PartitionReport:
            return PartitionReport(self._flow, p, which, since, why)

        measured_at = self._measured(p, w)
        blind = now - measured_at
        still_since = max(w.still_since, self._first_lease_at)
        still = now - still_since
        if self._suspended:
            if blind >= self._blind_after:
                return state(PartitionState.WAITING, measured_at, self._why_blind(p))
            if w.behind and still >= self._blind_after:
                why = f"{w.behind:,} record(s) wait: {self._suspended}"
                return state(PartitionState.WAITING, still_since, why)
            return self._moving(p, w, now)
        if w.told is not None and self._has_failed(w.told, now):
            return w.told
        awaits_lease = not w.begun and not self._first_lease_at and p not in self._not_begun
        if w.behind and awaits_lease and blind < self._blind_after:
            return state(PartitionState.STARTING, w.shown.since, _NO_LEASE)
        if p in self._held:
            # When it may go on, it has all the time that any other has.
            w.still_since = now
            return state(PartitionState.WAITING, w.shown.since, self._not_begun[p])
        if w.behind and not awaits_lease and still >= self._stalled_after:
            return state(PartitionState.STALLED, still_since, self._why_stalled(p, w, now))
        if blind >= self._stalled_after:
            return state(PartitionState.STALLED, measured_at, self._why_blind(p))
        if blind >= self._blind_after:
            return state(PartitionState.WAITING, measured_at, self._why_blind(p))
        if p in self._not_begun:
            return state(PartitionState.WAITING, w.shown.since, self._not_begun[p])
        if w.told is not None and w.told.state is not PartitionState.COPYING:
            return w.told
        # By a later measurement, not by the clock: the two ends are asked for one after the other,
        # so that any partition that grows looks held back for once.
        if w.held_back_since and measured_at - w.held_back_since >= _TRANSACTION_SECONDS:
            held_back = w.measured.held_back if w.measured else 0
            why = f"{held_back:,} record(s) wait for an open transaction on {self._source}"
            return state(PartitionState.WAITING, w.held_back_since, why)
        return self._moving(p, w, now)

    def _moving(self, p: TopicPartition, w: _Watched, now: float) -> PartitionReport:
        if w.measured is None or (w.behind and not w.begun):
            return PartitionReport(self._flow, p, PartitionState.STARTING, w.shown.since)
        which = PartitionState.COPYING if w.behind else PartitionState.IDLE
        return PartitionReport(self._flow, p, which, now)

    def _has_failed(self, told: PartitionReport, now: float) -> bool:
        """Whether a partition failed, and is tried again as was said."""
        overdue = bool(told.retry_at) and now >= told.retry_at + self._stalled_after
        return told.state is PartitionState.FAILED and not overdue

    def _why_stalled(self, p: TopicPartition, w: _Watched, now: float) -> str:
        assert w.measured is not None  # noqa: S101 - it is behind
        text = (
            f"nothing is copied, although {w.behind:,} record(s) can be read on {self._source},"
            f" from source offset {w.measured.position} on"
        )
        if p in self._not_begun:
            return f"{text}; {self._not_begun[p]}"
        if w.told is not None and w.told.state is not PartitionState.COPYING:
            return f"{text}; its task says: {w.told.state}, {w.told.why}"
        # Tasks wait for a cluster that is away, and are not heard of either: Spark is not to blame.
        alias, asked_at = self._asked
        slow = _silent(alias) if alias and now - asked_at >= _SLOW_SECONDS else ""
        if self._unmeasured or slow:
            return f"{text}; {self._unmeasured or slow}"
        if now > w.held_until + _SUCCESSION_SECONDS:
            since = f"since {moment(w.held_until)}" if w.held_until else "yet"
            return (
                f"{text}; no task was heard of {since}: check that Spark is alive and has free"
                " slots, restart the mirror if this lasts"
            )
        return f"{text}; its task does not say why: check that its brokers answer"

    def _why_blind(self, p: TopicPartition) -> str:
        alias, _ = self._asked
        lost = "its leaders do not answer" if p in self._absent else "measuring takes too long"
        reason = self._unmeasured or (_silent(alias) if alias else lost)
        return f"not measured since then: {reason}"

    def _transition(self, w: _Watched, now: float) -> Iterable[PartitionEvent]:
        shown, trouble = w.shown, w.trouble
        p = shown.partition
        if shown.state in _BAD:
            if trouble is None or (trouble.state, trouble.code) != (shown.state, shown.code):
                w.trouble = shown if trouble is None else replace(shown, since=trouble.since)
                code = FAILED if shown.state is PartitionState.FAILED else STALLED
                again = f", tried again at {moment(shown.retry_at)}" if shown.retry_at else ""
                text = f"{shown.state} since {moment(shown.since)}{again}: {shown.why}"
                yield PartitionEvent(self._flow, p, code, text, at=now)
        elif trouble is not None and shown.state is not PartitionState.WAITING:
            w.trouble = None
            what = f"it had {'failed' if trouble.state is PartitionState.FAILED else 'stalled'}"
            reason = f" with {trouble.code}" if trouble.code else ""
            text = f"is mirrored again, after {duration(now - trouble.since)}; {what}{reason}"
            yield PartitionEvent(self._flow, p, RECOVERED, text, at=now)


def _silent(alias: str) -> str:
    return f"cluster {alias} does not answer; check that its brokers are up"


def _take(w: _Watched, m: Measured, now: float) -> None:
    before = w.measured
    moved = before is not None and m.position != before.position
    if moved or not w.behind:
        w.still_since = now
    w.begun = w.begun or moved or m.readable <= m.position
    if not m.held_back:
        w.held_back_since = 0.0
    elif before is None or not w.held_back_since or m.readable != before.readable:
        w.held_back_since = now
    w.measured, w.measured_at = m, now
