"""What the monitor counts: lag of a partition, sums of a topic, rates. Driver. Pure values."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from heliograph.ledger.runs import Run
from heliograph.model import PartitionReport
from heliograph.service.snapshot import PartitionSnapshot, TopicSnapshot
from heliograph.units import growth

#: Enough samples for a minute of growth at the usual interval; older lag is shown as "at least".
_SAMPLES = 60
#: Rates are averages over this long.
_RATE_SECONDS = 5.0


@dataclass(slots=True)
class PartitionLag:
    """What was measured of one partition.

    ``ends`` are ends of the source, each with when it was first seen. ``oldest`` is a source offset
    at or before ``position`` and the time that its record bears, ``asked_at`` when that was asked
    for. ``progressed_at`` is when its target was first seen to have grown to where it is. ``made``
    is what was last shown, and of which report; it is dropped when anything changes.
    """

    source_end: int = 0
    target_end: int = 0
    position: int = 0
    ends: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    told_position: int = -1
    told_target_end: int = -1
    shift: int | None = None
    target_id: uuid.UUID | None = None
    begun_at: int | None = None
    oldest: tuple[int, float] | None = None
    asked_at: float = 0.0
    progressed_at: float = 0.0
    made: tuple[PartitionReport, PartitionSnapshot] | None = None

    @property
    def source_rate(self) -> float:
        """Records per second that the source grew by lately."""
        return growth(self.ends[0], self.ends[-1]) if self.ends else 0.0

    @property
    def records(self) -> int:
        """Source offsets that are not on the target yet."""
        return max(self.source_end - self.position, 0)

    @property
    def older_than_watch(self) -> bool:
        """Whether the next record was on the source already when the oldest end was seen."""
        return self.records > 0 and bool(self.ends) and self.ends[0][1] > self.position

    @property
    def age_unknown(self) -> bool:
        """Whether the time that the next record bears is needed, and not known."""
        known = -1 if self.oldest is None else self.oldest[0]
        return self.older_than_watch and known != self.position

    def seconds(self, now: float) -> float | None:
        """How long the next record to be mirrored has been waiting; None if that is not known."""
        if self.records == 0:
            return 0.0
        if self.older_than_watch:
            if self.oldest is None or self.oldest[0] > self.position:
                return None
            return max(now - self.oldest[1], 0.0)
        seen = next((when for when, end in self.ends if end > self.position), now)
        return max(now - seen, 0.0)  # somebody may have set the clock back


@dataclass(slots=True)
class TopicSums:
    """Sums of one topic; ``in_step`` counts partitions that were not added one by one."""

    target: str
    in_step: int = 0
    added: int = 0
    records: int = 0
    seconds: float = 0.0
    unmeasured: int = 0
    ageless: int = 0
    troubled: int = 0

    def add(self, p: PartitionSnapshot) -> None:
        """Count a partition."""
        self.added += 1
        if p.lag_records is None:
            self.unmeasured += 1
        else:
            self.records += p.lag_records
        if p.lag_seconds is None:
            self.ageless += 1
        elif p.lag_seconds > self.seconds:
            self.seconds = p.lag_seconds
        self.troubled += p.troubled

    def snapshot(self, topic: str) -> TopicSnapshot:
        """The sums as they are shown."""
        partitions = self.in_step + self.added
        # That some partitions are in step does not say how old the records of others are.
        seconds = None if self.ageless and not self.seconds else self.seconds
        records = None if self.unmeasured == partitions else self.records
        return TopicSnapshot(topic, self.target, partitions, records, seconds, self.troubled)


class Rate:
    """How fast a total grows."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=64)

    def sample(self, now: float, total: int) -> None:
        """The total is so much now."""
        self._samples.append((now, total))

    @property
    def per_second(self) -> float | None:
        """Over the last seconds; None before there are two samples."""
        samples = list(self._samples)
        if len(samples) < 2:
            return None
        last = samples[-1]
        first = next((s for s in samples[:-1] if last[0] - s[0] <= _RATE_SECONDS), samples[-2])
        return growth(first, last)


def why_translated(runs: Sequence[Run], target_topic: str) -> str:
    """What made the offsets of the last run differ from the source's, by the run before it."""
    run = runs[-1]
    if len(runs) < 2:
        return "the source topic was created anew"
    before = runs[-2]
    count = run.sequence - before.sequence
    skipped = run.source - before.source - count
    others = run.target - before.target - count
    if skipped < 0:
        return (
            f"copying went back by {-skipped:,} offset(s) of the source there: it had lost records,"
            " or an operator decided so"
        )
    if skipped > others:
        return f"{skipped - others:,} source offset(s) before that could not be mirrored"
    return f"{others - skipped:,} record(s) in {target_topic} are not from this mirror"
