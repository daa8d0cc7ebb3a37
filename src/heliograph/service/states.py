"""What every partition of a flow is doing, and the watchdog. Pure: no clock, no I/O. Driver.

Two witnesses are heard. Tasks tell of trouble, live and in receipts; the monitor measures both
clusters itself. A task can be wrong, hung or gone, so the measurement decides: a partition that is
behind and does not move is stalled, whatever the tasks say, and one that cannot be measured is not
in step. Of what tasks say, the newest lease counts.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from heliograph.copy.telling import Tidings
from heliograph.model import PartitionEvent, PartitionReport, PartitionState, TopicPartition

__all__ = [
    "FAILED",
    "RECOVERED",
    "STALLED",
    "FlowStates",
    "Measured",
    "clock",
    "counts",
    "duration",
    "troubled",
]

#: Codes of the events that are made here.
FAILED, STALLED, RECOVERED = "partition.failed", "partition.stalled", "partition.recovered"

#: Transactions that end sooner than this are not worth a word.
_TRANSACTION_SECONDS = 5.0
#: A measurement that is later than this is worth a word.
_BLIND_SECONDS = 10.0
#: The holder of a lease that ended is given so long to be followed by the next.
_SUCCESSION_SECONDS = 5.0
#: Leases whose end is remembered: some rounds of some hundred tasks.
_LEASES = 4096
_BAD = (PartitionState.STALLED, PartitionState.FAILED)
_WORST_FIRST = list(reversed(PartitionState))


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
        self._unmeasured = ""
        self._measured_at = 0.0
        self._lock = threading.Lock()

    # -- what is heard ------------------------------------------------------------------------

    def watch(self, partitions: Collection[TopicPartition], now: float) -> None:
        """These are the flow's partitions."""
        with self._lock:
            for p in self._watched.keys() - partitions:
                del self._watched[p]
            for p in set(partitions) - self._watched.keys():
                fresh = PartitionReport(self._flow, p, PartitionState.STARTING, now)
                self._watched[p] = _Watched(fresh, now, now)

    def granted(self, serial: int, partitions: Collection[TopicPartition], deadline: float) -> None:
        """A lease was handed out."""
        with self._lock:
            self._granted[serial] = _Granted(partitions, deadline)
            while len(self._granted) > _LEASES:
                del self._granted[next(iter(self._granted))]

    def told(self, tidings: Tidings) -> None:
        """The holder of a lease says something."""
        with self._lock:
            lease = self._granted.get(tidings.serial)
            for report in tidings.reports:
                self._tell(report.partition, report, tidings.serial)
            if lease is not None:
                self._hold(lease, tidings)

    def _tell(self, p: TopicPartition, report: PartitionReport | None, serial: int) -> None:
        watched = self._watched.get(p)
        if watched is None or serial < watched.serial:
            return
        if report is not None and report.state is PartitionState.STARTING:
            return
        watched.serial = serial
        watched.told = report

    def _hold(self, lease: _Granted, tidings: Tidings) -> None:
        """The holder lives, and those of whom it says nothing are fine."""
        for p in lease.partitions:
            watched = self._watched.get(p)
            if watched is not None:
                watched.held_until = max(watched.held_until, lease.deadline)
                if tidings.all_told and watched.serial < tidings.serial:
                    self._tell(p, None, tidings.serial)

    def fine(self, p: TopicPartition, serial: int) -> None:
        """The receipt of a lease has nothing to say of a partition."""
        with self._lock:
            self._tell(p, None, serial)

    def forget_tasks(self) -> None:
        """Another mirror has the flow: what our tasks said is over."""
        with self._lock:
            for watched in self._watched.values():
                watched.told = None

    def measured(self, found: Mapping[TopicPartition, Measured], now: float) -> None:
        """Both clusters were asked; partitions that are left out did not answer."""
        with self._lock:
            self._unmeasured = ""
            self._measured_at = now
            for p, m in found.items():
                watched = self._watched.get(p)
                if watched is not None:
                    _take(watched, m, now)

    def unmeasured(self, why: str) -> None:
        """The clusters could not be asked."""
        with self._lock:
            self._unmeasured = why

    # -- what is said -------------------------------------------------------------------------

    def look(self, now: float) -> list[PartitionEvent]:
        """Judge every partition; returns what an operator must hear of."""
        with self._lock:
            events: list[PartitionEvent] = []
            for p, watched in self._watched.items():
                before = watched.shown
                if before.state is PartitionState.IDLE and self._is_idle(watched, now):
                    # The usual case, for thousands of partitions.
                    continue
                shown = self._judge(p, watched, now)
                if shown.state is before.state and shown.code == before.code:
                    shown = replace(shown, since=min(before.since, shown.since))
                watched.shown = shown
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

    def _is_idle(self, w: _Watched, now: float) -> bool:
        return (
            w.told is None
            and not w.behind
            and not w.held_back_since
            and now - w.measured_at < self._blind_after
        )

    def _judge(self, p: TopicPartition, w: _Watched, now: float) -> PartitionReport:
        def state(which: PartitionState, since: float, why: str = "") -> PartitionReport:
            return PartitionReport(self._flow, p, which, since, why)

        blind = now - w.measured_at
        if w.told is not None and self._has_failed(w.told, now):
            return w.told
        if w.behind and now - w.still_since >= self._stalled_after:
            return state(PartitionState.STALLED, w.still_since, self._why_stalled(w, now))
        if blind >= self._stalled_after:
            return state(PartitionState.STALLED, w.measured_at, self._why_blind(w))
        if blind >= self._blind_after:
            return state(PartitionState.WAITING, w.measured_at, self._why_blind(w))
        if w.told is not None and w.told.state is not PartitionState.COPYING:
            return w.told
        # By a later measurement, not by the clock: the two ends are asked for one after the other,
        # so that any partition that grows looks held back for once.
        if w.held_back_since and w.measured_at - w.held_back_since >= _TRANSACTION_SECONDS:
            held_back = w.measured.held_back if w.measured else 0
            why = f"{held_back:,} record(s) wait for an open transaction on {self._source}"
            return state(PartitionState.WAITING, w.held_back_since, why)
        if w.measured is None or (w.behind and not w.begun):
            return state(PartitionState.STARTING, w.shown.since)
        return state(PartitionState.COPYING if w.behind else PartitionState.IDLE, now)

    def _has_failed(self, told: PartitionReport, now: float) -> bool:
        """Whether a partition failed, and is tried again as was said."""
        overdue = bool(told.retry_at) and now >= told.retry_at + self._stalled_after
        return told.state is PartitionState.FAILED and not overdue

    def _why_stalled(self, w: _Watched, now: float) -> str:
        assert w.measured is not None  # noqa: S101 - it is behind
        text = (
            f"nothing is copied, although {w.behind:,} record(s) can be read on {self._source},"
            f" from source offset {w.measured.position} on"
        )
        if w.told is not None and w.told.state is not PartitionState.COPYING:
            return f"{text}; its task says: {w.told.state}, {w.told.why}"
        if now > w.held_until + _SUCCESSION_SECONDS:
            since = f"since {clock(w.held_until, now)}" if w.held_until else "yet"
            return (
                f"{text}; no task was heard of {since}: check that Spark is alive and has free"
                " slots, restart the mirror if this lasts"
            )
        return f"{text}; its task does not say why: check that its brokers answer"

    def _why_blind(self, w: _Watched) -> str:
        alone = w.measured_at < self._measured_at
        lost = "its leaders do not answer" if alone else "the brokers take too long to answer"
        reason = self._unmeasured or lost
        return f"not measured since then: {reason}"

    def _transition(self, w: _Watched, now: float) -> Iterable[PartitionEvent]:
        shown, trouble = w.shown, w.trouble
        p = shown.partition
        if shown.state in _BAD:
            if trouble is None or (trouble.state, trouble.code) != (shown.state, shown.code):
                w.trouble = shown if trouble is None else replace(shown, since=trouble.since)
                code = FAILED if shown.state is PartitionState.FAILED else STALLED
                again = f", tried again at {clock(shown.retry_at, now)}" if shown.retry_at else ""
                text = f"{shown.state} since {clock(shown.since, now)}{again}: {shown.why}"
                yield PartitionEvent(self._flow, p, code, text, at=now)
        elif trouble is not None and shown.state is not PartitionState.WAITING:
            w.trouble = None
            what = f"it had {'failed' if trouble.state is PartitionState.FAILED else 'stalled'}"
            reason = f" with {trouble.code}" if trouble.code else ""
            text = f"is mirrored again, after {duration(now - trouble.since)}; {what}{reason}"
            yield PartitionEvent(self._flow, p, RECOVERED, text, at=now)


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


def counts(reports: Iterable[PartitionReport]) -> dict[str, int]:
    """How many partitions are in each state, the worst first."""
    found = Counter(r.state for r in reports)
    return {state.value: found[state] for state in _WORST_FIRST if found[state]}


def troubled(reports: Iterable[PartitionReport]) -> list[PartitionReport]:
    """Partitions that are not just copied, idle or about to begin; the worst and oldest first."""
    order = {state: n for n, state in enumerate(_WORST_FIRST)}
    healthy = (PartitionState.IDLE, PartitionState.COPYING, PartitionState.STARTING)
    found = [r for r in reports if r.state not in healthy]
    return sorted(found, key=lambda r: (order[r.state], r.since, r.partition))


def duration(seconds: float) -> str:
    """For people: 0.4 s, 34 s, 5 min, 3.2 h."""
    for least, unit, name in ((5400, 3600, "h"), (90, 60, "min")):
        if seconds >= least:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def clock(when: float, now: float) -> str:
    """A time of day for people; with the day, if it is not today."""
    then, today = time.localtime(when), time.localtime(now)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", then)
