"""What an executor does with a range: reads both sides, compares, explains. Knows no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from heliograph.verify.compaction import Newest, unexplained
from heliograph.verify.comparison import Absent, Comparison, Findings, Terms
from heliograph.verify.expected import Expected
from heliograph.verify.model import Gone, Kind, Range, RangeResult, Side, VerifyContext
from heliograph.verify.reading import LogStartMoved, read_batches
from heliograph.verify.streams import Batch, Unreadable
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError

__all__ = ["MARGIN", "Checker", "check"]

#: How far beyond a range a record that is not in its place is looked for.
MARGIN = 1000
#: Keys that are remembered while compaction is looked into.
_MOST_ABSENT = 2_000_000
_LOG_END = 1 << 62


def check(context: VerifyContext, ranges: Sequence[Range]) -> list[RangeResult]:
    """Compare ranges, one after the other. What goes wrong with one is in its result."""
    with (
        ClusterClient(context.source, f"{context.flow}|verify-source") as source,
        ClusterClient(context.target, f"{context.flow}|verify-target") as target,
    ):
        checker = Checker(context, source, target)
        return [checker.check(part) for part in ranges]


class Checker:
    """Compares ranges of a flow over two clients."""

    def __init__(
        self, context: VerifyContext, source: ClusterClient, target: ClusterClient
    ) -> None:
        self._context = context
        self._source = source
        self._target = target

    def check(self, part: Range) -> RangeResult:
        """Compare one range."""
        gone: list[Gone] = []
        try:
            while True:
                try:
                    return self._compare(part, gone)
                except _Shorter as shorter:
                    if shorter.gone.end > shorter.gone.begin:
                        gone.append(shorter.gone)
                    part = shorter.part
        except WireError as error:
            return RangeResult(part.number, error=str(error))
        except Unreadable as error:
            return RangeResult(part.number, error=f"{part.source}: {error}")

    def _compare(self, part: Range, gone: list[Gone]) -> RangeResult:
        found = self._once(part, 0)
        first = found
        if found.counts.keys() - {Kind.CHANGED}:
            # What is not in its place may be beyond the range.
            found = self._once(part, MARGIN)
        compacted = self._explain(part, found)
        return RangeResult(
            number=part.number,
            records=first.records,
            bytes=first.bytes,
            digests=first.digests,
            decoded=first.decoded,
            counts=found.counts,
            differences=found.differences,
            compacted=compacted,
            quarantined=found.quarantined,
            untimed=first.untimed,
            gone=gone,
        )

    def _once(self, part: Range, margin: int) -> Findings:
        terms = Terms(
            source=part.source,
            target=part.target,
            begin=part.begin,
            end=part.end,
            target_begin=part.target_begin,
            target_end=part.target_end,
            producer_id=self._context.producer_id,
            quarantined=part.quarantined,
            compacted=part.compacted,
            most=self._context.most,
        )
        here = self._read(
            part, Side.SOURCE, max(part.begin - margin, part.low), min(part.end + margin, part.high)
        )
        there = self._read(
            part, Side.TARGET, max(part.target_begin - margin, part.target_low),
            min(part.target_end + margin, part.target_high),
        )  # fmt: skip
        return Comparison(here, there, Expected(part.stretches), terms, margin=margin).run()

    def _read(self, part: Range, side: Side, begin: int, end: int) -> Iterator[Batch]:
        on_source = side is Side.SOURCE
        client = self._source if on_source else self._target
        partition = part.source if on_source else part.target
        topic_id = part.source_id if on_source else part.target_id
        committed = on_source and self._context.read_committed
        try:
            yield from read_batches(
                client, partition, topic_id, begin, end, read_committed=committed
            )
        except LogStartMoved as moved:
            raise _Shorter.after(part, side, moved.start) from moved

    # -- compaction ---------------------------------------------------------------------------

    def _explain(self, part: Range, found: Findings) -> int:
        """Count what compaction does not explain; returns how much it does."""
        absent = found.absent
        if not absent:
            return 0
        if len(absent) > _MOST_ABSENT:
            raise Unreadable(f"more than {_MOST_ABSENT:,} records are on one side only")
        newest = Newest.of(absent)
        begin = min(a.difference.source_offset or 0 for a in absent)
        target_begin = min(_target_offset(a) for a in absent)
        newest.look(Side.SOURCE, self._read(part, Side.SOURCE, begin, _LOG_END), begin)
        newest.look(
            Side.TARGET, self._read(part, Side.TARGET, target_begin, _LOG_END), target_begin
        )
        left = unexplained(absent, newest, part.goal)
        for one in left:
            found.counts[one.difference.kind] += 1
            if len(found.differences) < self._context.most:
                one.difference.note += "; no later record of its key explains it"
                found.differences.append(one.difference)
        found.differences.sort(key=lambda d: d.order)
        return len(absent) - len(left)


def _target_offset(absent: Absent) -> int:
    difference = absent.difference
    offset = difference.target_offset
    return (difference.expected or 0) if offset is None else offset


class _Shorter(Exception):
    """Retention has taken the beginning of a range: compare the rest."""

    def __init__(self, part: Range, gone: Gone) -> None:
        super().__init__(str(gone))
        self.part = part
        self.gone = gone

    @classmethod
    def after(cls, part: Range, side: Side, start: int) -> _Shorter:
        """The range without what lies below ``start`` of a side."""
        expected = Expected(part.stretches)
        on_source = side is Side.SOURCE
        source = start if on_source else expected.source_from(start)
        target = expected.target_from(start) if on_source else start
        begin = min(max(part.begin, part.end if source is None else source), part.end)
        target_begin = min(
            max(part.target_begin, part.target_end if target is None else target), part.target_end
        )
        shorter = replace(
            part, begin=begin, target_begin=target_begin,
            low=max(part.low, begin), target_low=max(part.target_low, target_begin),
        )  # fmt: skip
        return cls(shorter, Gone(side, part.begin, begin))
