"""What a verification comes to: per partition, per topic, and as a whole. Pure values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from heliograph.model import TopicPartition
from heliograph.verify.model import Counted, Difference, Gone, Kind, RangeResult, Side

__all__ = [
    "DIFFERENT",
    "IDENTICAL",
    "UNPROVEN",
    "UNVERIFIED",
    "PartitionReport",
    "Report",
    "Totals",
    "result_of",
]

#: Exit codes. Unproven: what the target has deleted, and the source has, nobody can compare.
IDENTICAL, DIFFERENT, UNVERIFIED, UNPROVEN = 0, 1, 2, 3


@dataclass(slots=True)
class Totals(Counted):
    """Sums over ranges.

    Attributes:
        pending: source offsets that are not mirrored yet.
        never: source offsets that were never to be mirrored.
    """

    ranges: int = 0
    pending: int = 0
    never: int = 0

    @property
    def differences(self) -> int:
        """Records that differ."""
        return self.counts.total()

    def add(self, other: Totals) -> None:
        """Sum up."""
        self.count(other)
        self.ranges += other.ranges
        self.pending += other.pending
        self.never += other.never


@dataclass(slots=True)
class PartitionReport:
    """One partition that the flow mirrors.

    Attributes:
        begin: source offsets [``begin``, ``end``) are what both sides have, as far as was asked.
        planned: how many ranges there are to compare; ``totals.ranges`` were.
        gone: what one side does not have any more, and therefore nobody can compare.
        holed: sides that were compacted once, by the holes in their logs.
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
    holed: frozenset[Side] = frozenset()
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, result: RangeResult) -> None:
        """Take in what was found in a range."""
        for trouble in (result.error, result.problem):
            if trouble and trouble not in self.problems:
                self.problems.append(trouble)
        if result.error:
            return
        self.totals.ranges += 1
        self.totals.count(result)
        self.gone = _merged([*self.gone, *result.gone])
        self.holed |= result.holed


@dataclass(slots=True)
class Report:
    """A whole verification of a flow.

    Attributes:
        begin: only source offsets from here on were asked for; ``end``: to before there.
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
    begin: int | None = None
    end: int | None = None
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
        """0 only if nothing that was asked for differs, and nothing of it is left open."""
        totals = self.totals
        if totals.differences:
            return DIFFERENT
        if self.unverified or (totals.pending and not totals.records and not totals.deleted):
            return UNVERIFIED
        return UNPROVEN if totals.deleted else IDENTICAL

    @property
    def identical(self) -> bool:
        """Whether records were compared, all that had to be, and none differs."""
        return self.exit_code == IDENTICAL and self.totals.records > 0

    @property
    def not_compared(self) -> list[str]:
        """What was left out for a reason that is no trouble: each, how much of it, and why."""
        totals = self.totals
        gone = sum(
            g.end - g.begin for p in self.partitions for g in p.gone if g.side is Side.SOURCE
        )
        found = [
            (totals.deleted, "record", "that the source has and the target has deleted"),
            (totals.pending, "source offset", "that are not mirrored yet"),
            (gone, "source offset", "that the source has deleted"),
            (totals.never, "source offset",
             "that were never to be mirrored (auto.offset.reset=latest)"),
            (totals.quarantined, "record", "that were quarantined, not mirrored"),
            (totals.compacted, "record",
             "that only one side has, which compaction explains"),
            (totals.returned, "record", "that came from the target, and do not go back"),
            (totals.own, "record",
             "that began on the target: the flow in the opposite direction mirrors them"),
            *((count, "record", f"on the target that flow {name} has mirrored")
              for name, count in sorted(totals.others.items())),
        ]  # fmt: skip
        return [_some(count, what, which) for count, what, which in found if count]

    @property
    def verdict(self) -> str:
        """The answer in one line: what was compared, what was not, and why."""
        totals, left_out = self.totals, self.not_compared
        if not totals.records and self.exit_code in {IDENTICAL, UNVERIFIED} and not self.unverified:
            word = "NOTHING COMPARED" if totals.pending else "NOTHING TO COMPARE"
            why = f"there are {', '.join(left_out)}" if left_out else "the source has no records"
            return f"{word}{self._choice}: {why}"
        how = "byte for byte"
        if totals.untimed:
            how += (
                f" but for {totals.untimed:,} timestamps, which the target has replaced"
                " (message.timestamp.type=LogAppendTime)"
            )
        facts = [f"no difference in {self._compared}, {how}"] if totals.records else []
        if totals.differences:
            word = "DIFFERENT"
            kinds = ", ".join(
                _count(totals, kind) for kind, n in sorted(totals.counts.items()) if n
            )
            facts = [f"{kinds}, of {self._compared} compared"]
        elif troubles := self.unverified:
            word = "NOT VERIFIED"
            more = f" (and {len(troubles) - 1:,} more)" if troubles[1:] else ""
            facts.append(f"not all could be compared: {troubles[0]}{more}")
        elif totals.deleted:
            word = "NOT PROVEN"
        else:
            whole = self.complete and not self._choice and not totals.never
            word = "IDENTICAL AND COMPLETE" if whole else "IDENTICAL"
            facts = [f"{self._compared}, {how}"]
        if left_out:
            facts.append(f"not compared: {', '.join(left_out)}")
        return f"{word}: {'; '.join(facts)}"

    @property
    def _compared(self) -> str:
        return f"{_some(self.totals.records, 'record')}{self._choice}"

    @property
    def _choice(self) -> str:
        """What of the flow's records was asked for, if not all."""
        chosen = ""
        if self.begin is not None or self.end is not None:
            begin, end = ("" if n is None else n for n in (self.begin, self.end))
            chosen = f" of source offsets {begin}:{end}"
        return chosen if self.sample is None else f"{chosen} in a sample of {self.sample:g} %"


def result_of(partitions: Sequence[PartitionReport]) -> tuple[int, str]:
    """The answer for some partitions, as an exit code and in a word or two."""
    totals = _sum(p.totals for p in partitions)
    if totals.differences:
        return DIFFERENT, "different"
    if any(p.problems or p.totals.ranges < p.planned for p in partitions):
        return UNVERIFIED, "not verified"
    if totals.deleted:
        return UNPROVEN, "not proven"
    if totals.records:
        return IDENTICAL, "identical"
    return (UNVERIFIED, "not mirrored yet") if totals.pending else (IDENTICAL, "nothing to compare")


def _count(totals: Totals, kind: Kind) -> str:
    text = f"{totals.counts[kind]:,} {kind}"
    behind = totals.behind if kind is Kind.MISSING else 0
    return f"{text} ({behind:,} of them not mirrored yet)" if behind else text


def _some(count: int, what: str, which: str = "") -> str:
    """So many of something; of one, "that are" and "that were" become singular."""
    if count == 1:
        which = which.replace("that are ", "that is ").replace("that were ", "that was ")
    return f"{count:,} {what}{'' if count == 1 else 's'} {which}".rstrip()


def _merged(gone: Iterable[Gone]) -> list[Gone]:
    """Neighbours of one side made one."""
    found: list[Gone] = []
    for one in sorted(gone):
        if found and found[-1].side is one.side and found[-1].end >= one.begin:
            found[-1] = found[-1]._replace(end=max(found[-1].end, one.end))
        else:
            found.append(one)
    return found


def _sum(parts: Iterable[Totals]) -> Totals:
    total = Totals()
    for part in parts:
        total.add(part)
    return total
