"""What a partition's target held before Heliograph mirrored to it: records that MM2 wrote. Pure.

Runs tell where those records came from. Where that is not known for every record, a `Blur` says
between which two records, and answers are safe ones: nothing is skipped, whichever way one goes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

__all__ = ["NOTHING_INHERITED", "Blur", "Inheritance"]


@dataclass(frozen=True, slots=True)
class Blur:
    """Between two records that are known on both sides, it is not known which record is where.

    ``first_source`` is at ``first_target`` and ``last_source`` at ``last_target``. All that follows
    the first on the source follows it on the target. The last may have been mirrored before the
    first, when MM2 began again further back.
    """

    first_source: int
    first_target: int
    last_source: int
    last_target: int


@dataclass(frozen=True, slots=True)
class Inheritance:
    """The target's log before ``end`` was written by others; ``blurs`` are ordered by target."""

    end: int = 0
    blurs: tuple[Blur, ...] = ()

    def to_target(self, source: int) -> int | None:
        """The safe answer for a source offset whose place is not known, else None."""
        # Of several, the last: all that follows a blur's first record follows it on both sides.
        for blur in reversed(self.blurs):
            if blur.first_source < source < blur.last_source:
                return blur.first_target + 1
        return None

    def to_source(self, target: int) -> int | None:
        """The safe answer for a target offset whose origin is not known, else None."""
        index = bisect_right(self.blurs, target, key=lambda blur: blur.last_target)
        if index < len(self.blurs) and self.blurs[index].first_target < target:
            return self.blurs[index].first_source + 1
        return None


NOTHING_INHERITED = Inheritance()
