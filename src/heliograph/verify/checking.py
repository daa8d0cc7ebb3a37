"""What an executor does with a range: reads both sides, compares, explains. Knows no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from heliograph.batch.header import is_guarded
from heliograph.verify.claims import check_claims
from heliograph.verify.compaction import Holes, Newest, place_of, unexplained
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
        lost: list[RangeResult] = []
        gone: list[Gone] = []
        try:
            while True:
                try:
                    found = self._claims(part) if part.deleted else self._compare(part)
                    break
                except _Shorter as shorter:
                    if shorter.deleted is not None:
                        lost.append(self.check(shorter.deleted))
                    elif shorter.gone.end > shorter.gone.begin:
                        gone.append(shorter.gone)
                    part = shorter.part
        except WireError as error:
            return RangeResult(part.number, error=str(error))
        except Unreadable as error:
            return RangeResult(part.number, error=f"{part.source}: {error}")
        found.gone += gone
        return _joined([found, *lost], self._context.most)

    def _claims(self, part: Range) -> RangeResult:
        """A range that the target has deleted."""
        holes = {Side.SOURCE: Holes(part.begin)}
        batches = (
            batch for batch in self._read(part, Side.SOURCE, part.begin, part.end, holes)
            if part.guard is None or not is_guarded(batch.header, part.guard)
        )  # fmt: skip
        return check_claims(part, batches, self._context.most, holes[Side.SOURCE])

    def _compare(self, part: Range) -> RangeResult:
        found = first = self._once(part, 0)
        holes: dict[Side, Holes] = {}
        holed: frozenset[Side] = frozenset()
        if found.counts.keys() - {Kind.CHANGED}:
            # What is not in its place may be beyond the range, or compacted.
            found = self._once(part, MARGIN, holes)
            holed = frozenset(side for side, there in holes.items() if there) - part.compacted
        if holed:
            part = replace(part, compacted=part.compacted | holed)
            found = first = self._once(part, 0)
        lacking = found.counts[Kind.MISSING]
        compacted = self._explain(part, found, {side: holes[side] for side in holed})
        return RangeResult(
            number=part.number,
            records=first.records + found.counts[Kind.MISSING] - lacking,
            bytes=first.bytes,
            digests=first.digests,
            decoded=first.decoded,
            counts=found.counts,
            differences=found.differences,
            behind=found.behind,
            compacted=compacted,
            quarantined=found.quarantined,
            untimed=first.untimed,
            others=first.others,
            returned=first.returned,
            own=first.own,
            holed=holed if compacted else frozenset(),
        )

    def _once(self, part: Range, margin: int, holes: dict[Side, Holes] | None = None) -> Findings:
        """Both sides, read and compared; notes ``holes`` where somebody wants to know them."""
        terms = Terms(
            source=part.source,
            target=part.target,
            begin=part.begin,
            end=part.end,
            target_begin=part.target_begin,
            target_end=part.target_end,
            producer_id=self._context.producer_id,
            goal=part.goal,
            quarantined=part.quarantined,
            compacted=part.compacted,
            others=self._context.others,
            most=self._context.most,
            guard=part.guard,
        )
        begin, target_begin = (
            max(part.begin - margin, part.low),
            max(part.target_begin - margin, part.target_low),
        )
        if holes is not None:
            holes |= {Side.SOURCE: Holes(begin), Side.TARGET: Holes(target_begin)}
        here = self._read(part, Side.SOURCE, begin, min(part.end + margin, part.high), holes)
        there = self._read(
            part, Side.TARGET, target_begin, min(part.target_end + margin, part.target_high), holes
        )
        return Comparison(here, there, Expected(part.stretches), terms, margin=margin).run()

    def _read(
        self,
        part: Range,
        side: Side,
        begin: int,
        end: int,
        holes: Mapping[Side, Holes] | None = None,
    ) -> Iterator[Batch]:
        on_source = side is Side.SOURCE
        client = self._source if on_source else self._target
        partition = part.source if on_source else part.target
        topic_id = part.source_id if on_source else part.target_id
        committed = on_source and self._context.read_committed
        see = None if holes is None else holes[side].see
        try:
            yield from read_batches(
                client, partition, topic_id, begin, end, read_committed=committed, see=see
            )
        except LogStartMoved as moved:
            raise _Shorter.after(part, side, moved.start) from moved

    # -- compaction ---------------------------------------------------------------------------

    def _explain(self, part: Range, found: Findings, holes: Mapping[Side, Holes]) -> int:
        """Count what compaction does not explain; returns how much it does.

        Where ``holes`` of a side are given, it explains nothing elsewhere on that side.
        """
        absent = found.absent
        if not absent:
            return 0
        if len(absent) > _MOST_ABSENT:
            raise Unreadable(f"more than {_MOST_ABSENT:,} records are on one side only")
        cleaned = [a for a in absent if _is_in_hole(a, holes)]
        newest = Newest.of(cleaned)
        if cleaned:
            begin = min(place_of(a)[1] for a in cleaned)
            newest.look(Side.TARGET, self._read(part, Side.TARGET, begin, _LOG_END), begin)
        if still := [a for a in cleaned if not a.tombstone and not newest.on_target(a)]:
            begin = min(place_of(a)[0] for a in still)
            newest.look(Side.SOURCE, self._read(part, Side.SOURCE, begin, _LOG_END), begin)
        left = unexplained(cleaned, newest, part.goal)
        for one in left:
            one.difference.note += "; no later record of its key explains it"
        left += [a for a in absent if not _is_in_hole(a, holes)]
        for one in left:
            found.counts[one.difference.kind] += 1
        found.differences += [one.difference for one in left]
        found.differences.sort(key=lambda d: d.order)
        del found.differences[self._context.most :]
        return len(absent) - len(left)


def _is_in_hole(absent: Absent, holes: Mapping[Side, Holes]) -> bool:
    at, there = place_of(absent)
    known = holes.get(absent.lacking)
    return known is None or (at if absent.lacking is Side.SOURCE else there) in known


def _joined(results: Sequence[RangeResult], most: int) -> RangeResult:
    """What was found in the pieces of a range that was shortened on the way."""
    whole = results[0]
    for other in results[1:]:
        if other.error:
            return other
        whole.count(other)
        whole.differences = sorted([*other.differences, *whole.differences],
                                   key=lambda d: d.order)[:most]  # fmt: skip
        whole.gone += other.gone
        whole.problem = whole.problem or other.problem
    return whole


class _Shorter(Exception):
    """Retention has taken the beginning of a range: compare the rest.

    ``deleted`` is what was taken on the target: the source may still have it.
    """

    def __init__(self, part: Range, gone: Gone, deleted: Range | None) -> None:
        super().__init__(str(gone))
        self.part = part
        self.gone = gone
        self.deleted = deleted

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
        deleted = None
        if not on_source and begin > part.begin:
            deleted = replace(part, end=begin, deleted=True)
        return cls(shorter, Gone(side, part.begin, begin), deleted)
