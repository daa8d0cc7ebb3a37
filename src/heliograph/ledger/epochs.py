"""Which leader epoch of the source each mirrored record is of. Pure values.

Two records of a partition with the same offset and the same leader epoch are the same record. So if
the source's record at the offset of the last mirrored one has another epoch, the source has lost
what was mirrored (copy.leader_epochs). Marks name records by sequence, which only ever grows, and
not by source offset: after an unclean election one offset has had records of several epochs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["UNKNOWN_EPOCH", "EpochMark", "EpochTrail"]

UNKNOWN_EPOCH = -1


class EpochMark(NamedTuple):
    """The record with this sequence, and those behind it, are of this epoch or of a later one.

    ``anew``: whatever was said before of this and later sequences is void. It was said of records
    that nobody wrote, or that the source has lost.
    """

    sequence: int
    epoch: int
    anew: bool = False


class EpochTrail:
    """The marks of one partition, entered in the order in which they were written.

    A mark is written before the records that it is about. Writers that say the same thing twice, or
    at the same time, do no harm: what is known already changes nothing.
    """

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: list[EpochMark] = []

    def copy(self) -> EpochTrail:
        """Equal marks that change on their own."""
        made = EpochTrail()
        made._marks = list(self._marks)
        return made

    @property
    def marks(self) -> Sequence[EpochMark]:
        """What counts, by sequence; epochs grow but for marks that begin ``anew``."""
        return self._marks

    def enter(self, mark: EpochMark) -> None:
        """Take in a mark."""
        marks, known = self._marks, self.at(mark.sequence)
        if known == mark.epoch or (known > mark.epoch and not mark.anew):
            return
        begin = bisect_left(marks, mark.sequence, key=_sequence)
        if mark.anew:
            marks[begin:] = [mark]
            return
        end = bisect_right(marks, mark.sequence, key=_sequence)
        # Those behind that say less were said by a writer that counted differently.
        anew = [m for m in marks[begin:end] if m.anew]
        marks[begin:] = [*anew, mark, *(m for m in marks[end:] if m.anew or m.epoch > mark.epoch)]

    def at(self, sequence: int) -> int:
        """The epoch of a record; UNKNOWN_EPOCH before the first mark."""
        index = bisect_right(self._marks, sequence, key=_sequence)
        return self._marks[index - 1].epoch if index else UNKNOWN_EPOCH

    def behind(self, epoch: int, last: int) -> tuple[int, int] | None:
        """Where the records up to sequence ``last`` leave ``epoch`` behind, if they do.

        The first sequence of a later epoch, and the epoch of the record before it.
        """
        end = index = bisect_right(self._marks, last, key=_sequence)
        while index and self._marks[index - 1].epoch > epoch:
            index -= 1
        if index == end:
            return None
        before = self._marks[index - 1].epoch if index else UNKNOWN_EPOCH
        return self._marks[index].sequence, before


def _sequence(mark: EpochMark) -> int:
    return mark.sequence
