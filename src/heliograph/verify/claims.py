"""What the target has deleted, held against what the source still has. Pure; in executors.

Such records cannot be compared any more, by anybody. That the ledger has a place for each says that
they were to be mirrored, not that they were: they are counted, and are not proven. One that the
ledger has no place for was never mirrored. Places for more records than the source has there say
that somebody has counted wrongly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from heliograph.verify.compaction import Holes
from heliograph.verify.expected import Expected
from heliograph.verify.model import Difference, Gone, Kind, Range, RangeResult, Side
from heliograph.verify.previews import preview
from heliograph.verify.streams import Batch, decoded

__all__ = ["check_claims"]

_MAGIC = 2


def check_claims(
    part: Range, batches: Iterable[Batch], most: int, holes: Holes | None = None
) -> RangeResult:
    """Count the source's records of a range that the target has deleted; raises Unreadable.

    ``holes`` knows those of the source's log once its batches are read: what a cleaner removed
    there was mirrored before.
    """
    expected = Expected(part.stretches)
    placed = 0
    counts: Counter[Kind] = Counter()
    result = RangeResult(part.number, counts=counts)
    for batch in batches:
        header = batch.header
        begin, end = max(header.base_offset, part.begin), min(header.last_offset + 1, part.end)
        if header.magic == _MAGIC and header.dense:
            place = expected.follow(begin)
            if end <= part.pruned_below or (place is not None and place[1] >= end - begin):
                result.deleted += max(end - begin, 0)
                placed += max(end - max(begin, part.pruned_below), 0)
                continue
        placing = (
            zip(offsets, contents, expected.targets(offsets), strict=True)
            for offsets, contents in decoded(batch)
        )
        for offset, content, at in chain.from_iterable(placing):
            if not part.begin <= offset < part.end:
                continue
            if at is not None or offset < part.pruned_below:
                result.deleted += 1
                placed += offset >= part.pruned_below
            elif offset in part.quarantined:
                result.quarantined += 1
            else:
                result.records += 1
                counts[Kind.MISSING] += 1
                if len(result.differences) < most:
                    result.differences.append(Difference(
                        Kind.MISSING, part.source.topic, part.target.topic, part.source.partition,
                        source_offset=offset, source_record=preview(content),
                        note="the ledger has no place for it; the target has deleted what was"
                        " around it",
                    ))  # fmt: skip
    claimed = expected.claimed(max(part.begin, part.pruned_below), part.end)
    if claimed > placed and not holes and not part.inferred:
        result.problem = (
            f"the ledger has places for {claimed:,} records of source offsets [{part.begin},"
            f" {part.end}), where the source has {placed:,}, and the target has deleted them:"
            " positions there are wrong"
        )
    if result.deleted:
        result.gone.append(Gone(Side.TARGET, part.begin, part.end))
    return result
