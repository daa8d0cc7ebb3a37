"""What is lost if the source does not come back: records that it had and the target has not. Pure.

The source says it itself, if it answers. Else the last word of the mirror on it counts
(`heliograph.ledger.source_ends`), and what the source took after that is not known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from heliograph.failover.source_side import SourceSeen
from heliograph.ledger.handovers import CutAt
from heliograph.ledger.source_ends import LastSeen
from heliograph.model import TopicPartition
from heliograph.units import counted, moment

__all__ = ["PartitionRisk", "Risk", "risk_of"]


class PartitionRisk(NamedTuple):
    """A partition of the source, and what is at risk of it.

    Attributes:
        mirrored: the next offset to be mirrored; all before it is on the target.
        target_end: where the target's log ends; -1 if it was not begun.
        source_end: where the source ends, or ended when it was last asked; None: not known.
    """

    partition: TopicPartition
    mirrored: int
    target_end: int
    source_end: int | None

    @property
    def records(self) -> int | None:
        """Source offsets that are not on the target; None: not known."""
        return None if self.source_end is None else max(self.source_end - self.mirrored, 0)


@dataclass(frozen=True, slots=True)
class Risk:
    """All partitions.

    Attributes:
        exact: whether the source itself said where all of them end.
        as_of_ms: when the source was last asked with success, by this look if it is ``exact``; None
            if that is not known.
        seconds: for how long the oldest record at risk had waited then, or, of a source that
            answers, has waited at most; None: not known.
    """

    partitions: tuple[PartitionRisk, ...]
    exact: bool
    as_of_ms: int | None
    seconds: float | None

    @property
    def records(self) -> int:
        """Records at risk, as far as is known."""
        return sum(p.records or 0 for p in self.partitions)

    @property
    def unknown(self) -> int:
        """Partitions of which nothing is known."""
        return sum(p.records is None for p in self.partitions)

    @property
    def behind(self) -> list[PartitionRisk]:
        """Partitions that have records at risk, the most first."""
        return sorted((p for p in self.partitions if p.records), key=lambda p: -(p.records or 0))

    def __str__(self) -> str:
        topics = {p.partition.topic for p in self.behind}
        text = "no record" if not self.records else (
            f"{counted(self.records, 'record')} in {counted(len(topics), 'topic')}"
        )  # fmt: skip
        if self.exact:
            then = f" as of {moment(self.as_of_ms / 1000)}" if self.as_of_ms else ""
            return f"{text}{then}, exact"
        if self.as_of_ms is None:
            return "not known: no mirror has noted where the source ended"
        if self.records and self.seconds is not None:
            text += f" ({self.seconds:.1f} s)"
        if self.unknown:
            text += f", and {counted(self.unknown, 'partition')} of which it is not known"
        then = moment(self.as_of_ms / 1000)
        return f"{text} as of {then}; what the source took after that is not known"


def risk_of(
    positions: Mapping[TopicPartition, CutAt],
    seen: SourceSeen,
    last: LastSeen | None,
    now: float,
    begun: Collection[TopicPartition] = (),
) -> Risk:
    """What is at risk of partitions that were mirrored so far, and of those that were not begun.

    ``seen`` and ``last`` are about the same topics as ``positions``. ``begun`` are all partitions
    that were begun, also those that nothing is known of, because their leader on the target is
    silent. ``now`` is by `time.time`.
    """
    found = [
        PartitionRisk(p, at.source, at.target, _source_end(p, at, seen, last))
        for p, at in sorted(positions.items())
    ]
    known = {*positions, *begun}
    found += _never_begun(known, seen, last)
    found += [PartitionRisk(p, 0, -1, None) for p in sorted(known - positions.keys())]
    seconds = last.seconds if last is not None else None
    if not any(p.records for p in found):
        seconds = 0.0 if last is not None or seen.healthy else None
    elif seen.healthy and last is not None and seconds is not None:
        # At most: what waited then may have waited on.
        seconds += max(now - last.at_ms / 1000, 0.0)
    if seen.healthy and all(p.records is not None for p in found):
        return Risk(tuple(found), exact=True, as_of_ms=seen.asked_ms or None, seconds=seconds)
    return Risk(tuple(found), False, last.at_ms if last is not None else None, seconds)


def _source_end(
    p: TopicPartition, at: CutAt, seen: SourceSeen, last: LastSeen | None
) -> int | None:
    if p in seen.ends:
        return seen.ends[p]
    if last is None:
        return None
    if p in last.ends:
        return max(last.ends[p], at.source)
    # Who is not named was in step.
    return at.source if last.complete and p not in last.silent else None


def _never_begun(
    begun: Collection[TopicPartition], seen: SourceSeen, last: LastSeen | None
) -> Iterable[PartitionRisk]:
    """Partitions that had records when the source was asked, and none on the target."""
    for p, start in sorted(seen.starts.items()):
        if p in seen.ends:
            yield PartitionRisk(p, start, -1, seen.ends[p])
    if last is None or seen.healthy:
        return
    for p, end in sorted(last.ends.items()):
        if p not in begun and p not in seen.starts:
            yield PartitionRisk(p, last.begins.get(p, 0), -1, end)
