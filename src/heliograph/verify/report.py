"""What a verification comes to: per partition, per topic, and as a whole. Pure values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from heliograph.model import TopicPartition
from heliograph.verify.model import Difference, Gone, Kind, RangeResult

__all__ = ["DIFFERENT", "IDENTICAL", "UNVERIFIED", "PartitionReport", "Report", "Totals"]

#: Exit codes.
IDENTICAL, DIFFERENT, UNVERIFIED = 0, 1, 2


@dataclass(slots=True)
class Totals:
    """Sums over ranges; see `RangeResult`. ``pending`` are source offsets not mirrored yet."""

    ranges: int = 0
    records: int = 0
    bytes: int = 0
    digests: int = 0
    decoded: int = 0
    counts: Counter[Kind] = field(default_factory=Counter)
    compacted: int = 0
    quarantined: int = 0
    untimed: int = 0
    pending: int = 0

    @property
    def differences(self) -> int:
        """Records that differ."""
        return self.counts.total()

    def add(self, other: Totals) -> None:
        """Sum up."""
        for name in ("ranges", "records", "bytes", "digests", "decoded", "compacted",
                     "quarantined", "untimed", "pending"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.counts.update(other.counts)


@dataclass(slots=True)
class PartitionReport:
    """One partition that the flow mirrors.

    Attributes:
        begin: source offsets [``begin``, ``end``) are what both sides have, as far as was asked.
        planned: how many ranges there are to compare; ``totals.ranges`` were.
        gone: what one side does not have any more, and therefore nobody can compare.
        problems: why something was not compared that should be.
        notes: what else is worth knowing.
    """

    source: TopicPartition
    target: TopicPartition
    begin: int = 0
    end: int = 0
    planned: int = 0
    totals: Totals = field(default_factory=Totals)
    gone: list[Gone] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, result: RangeResult) -> None:
        """Take in what was found in a range."""
        if result.error:
            if result.error not in self.problems:
                self.problems.append(result.error)
            return
        self.totals.add(Totals(
            ranges=1, records=result.records, bytes=result.bytes, digests=result.digests,
            decoded=result.decoded, counts=Counter(result.counts), compacted=result.compacted,
            quarantined=result.quarantined, untimed=result.untimed,
        ))  # fmt: skip
        self.gone += result.gone


@dataclass(slots=True)
class Report:
    """A whole verification of a flow.

    Attributes:
        sample: percent of the ranges that were compared; ``seed`` chose them.
        offered: ranges that there were to choose from.
        most: how many differences are described at most.
        interrupted: somebody ended it before all was compared.
    """

    flow: str
    began: str
    partitions: list[PartitionReport]
    most: int
    seconds: float = 0.0
    complete: bool = False
    sample: float | None = None
    seed: int | None = None
    offered: int = 0
    interrupted: bool = False
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    @property
    def totals(self) -> Totals:
        """Of all partitions."""
        return _sum(p.totals for p in self.partitions)

    @property
    def planned(self) -> int:
        """Ranges to compare."""
        return sum(p.planned for p in self.partitions)

    @property
    def topics(self) -> Iterator[tuple[str, str, list[PartitionReport]]]:
        """Source topic, remote topic and partitions, by name."""
        names = sorted({(p.source.topic, p.target.topic) for p in self.partitions})
        for topic, remote in names:
            yield (
                topic,
                remote,
                sorted(
                    (p for p in self.partitions if p.source.topic == topic), key=lambda p: p.source
                ),
            )

    @property
    def unverified(self) -> list[str]:
        """Everything that was not compared and should be, each with its reason."""
        found = list(self.problems)
        for p in self.partitions:
            found += [f"{p.source}: {text}" for text in p.problems]
        left = self.planned - self.totals.ranges
        if self.interrupted and left:
            found.append(f"interrupted: {left:,} of {self.planned:,} ranges were not compared")
        return found

    @property
    def exit_code(self) -> int:
        """0 only if everything that was asked for was compared and is identical."""
        if self.totals.differences:
            return DIFFERENT
        return UNVERIFIED if self.unverified else IDENTICAL

    @property
    def verdict(self) -> str:
        """The answer in one line."""
        totals = self.totals
        if totals.differences:
            kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(totals.counts.items()) if n)
            return f"DIFFERENT: {kinds}, of {totals.records:,} records compared"
        if self.unverified:
            found = f"no difference in {totals.records:,} records"
            return f"NOT VERIFIED: {found}, but not all was compared"
        sampled = "" if self.sample is None else f" in a sample of {self.sample:g} %"
        return f"IDENTICAL: {totals.records:,} records{sampled}, byte for byte"


def _sum(parts: Iterable[Totals]) -> Totals:
    total = Totals()
    for part in parts:
        total.add(part)
    return total
