"""Where records are on the target, by the ledger. Pure; runs in executors and in the driver."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

from heliograph.ledger.runs import PartitionLedger
from heliograph.verify.model import Stretch

__all__ = ["Expected", "stretches_of"]


def stretches_of(ledger: PartitionLedger, end: int, target_low: int) -> list[Stretch]:
    """The ledger's runs up to ``end``, the sequence behind the last mirrored record.

    What lies below ``target_low`` on the target is left out: others wrote it.
    """
    found = []
    following = [*(b.sequence for _, b in pairwise(ledger.runs)), end]
    for run, behind in zip(ledger.runs, following, strict=False):
        skipped = max(target_low - run.target, 0)
        count = min(behind, end) - run.sequence - skipped
        if count > 0:
            found.append(Stretch(run.source + skipped, run.target + skipped, count))
    return found


class Expected:
    """Stretches to be searched; both their source and their target offsets grow."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self.stretches = stretches
        self._sources = [s.source for s in stretches]
        self._targets = [s.target for s in stretches]

    def between(self, begin: int, end: int) -> tuple[Stretch, ...]:
        """Those that hold source offsets from ``begin`` to before ``end``."""
        first = max(bisect_right(self._sources, begin) - 1, 0)
        return tuple(self.stretches[first : bisect_left(self._sources, end)])

    def follow(self, source: int) -> tuple[int, int] | None:
        """The target offset of a record, and how many follow it on both sides, itself included."""
        index = bisect_right(self._sources, source) - 1
        if index < 0:
            return None
        stretch = self.stretches[index]
        beyond = source - stretch.source
        left = stretch.length - beyond
        return (stretch.target + beyond, left) if left > 0 else None

    def targets(self, sources: Sequence[int]) -> list[int | None]:
        """The target offset of each record, None where the ledger has no place for it.

        ``sources`` grow.
        """
        found: list[int | None] = []
        index = 0
        while index < len(sources):
            first = sources[index]
            place = self.follow(first)
            if place is None:
                found.append(None)
                index += 1
                continue
            target, count = place
            behind = bisect_left(sources, first + count, index)
            found += [target - first + source for source in sources[index:behind]]
            index = behind
        return found

    def claimed(self, begin: int, end: int) -> int:
        """How many source offsets from ``begin`` to before ``end`` have a place."""
        found = 0
        for index, stretch in enumerate(self.stretches):
            # Where the source lost records and went on anew, the later stretch counts.
            behind = [stretch.source + stretch.length, end, *self._sources[index + 1 : index + 2]]
            found += max(min(behind) - max(stretch.source, begin), 0)
        return found

    def source(self, target: int) -> int | None:
        """Of which source record the ledger says that it is at ``target``."""
        index = bisect_right(self._targets, target) - 1
        if index < 0:
            return None
        stretch = self.stretches[index]
        beyond = target - stretch.target
        return stretch.source + beyond if beyond < stretch.length else None

    def target_from(self, source: int) -> int | None:
        """The target offset of the first record from a source offset on; None if none is."""
        return self._from(self._sources, self._targets, source)

    def source_from(self, target: int) -> int | None:
        """The source offset of the first record from a target offset on; None if none is."""
        return self._from(self._targets, self._sources, target)

    def _from(self, near: Sequence[int], far: Sequence[int], offset: int) -> int | None:
        index = bisect_right(near, offset) - 1
        if index >= 0 and offset - near[index] < self.stretches[index].length:
            return far[index] + offset - near[index]
        return far[index + 1] if index + 1 < len(far) else None
