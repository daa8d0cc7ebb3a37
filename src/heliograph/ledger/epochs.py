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

__all__ = ["UNKNOWN_EPOCH", "UNKNOWN_OFFSET", "EpochMark", "EpochTrail"]

UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1


class EpochMark(NamedTuple):
    """The record with this sequence, and those behind it, are of this epoch or of a later one.

    Attributes:
        sequence: of the first record.
        epoch: of the leader that wrote it.
        anew: whatever was said before of this and later sequences is void, as far as it is about
            ``source`` or what is behind. It was said of records that nobody wrote, or that the
            source has lost.
        source: from this source offset on, what was read is of the epoch. That may be before the
            record: markers and aborted records have epochs, but no sequences. UNKNOWN_OFFSET in
            marks of earlier versions.
        leader: of a mark that begins anew, the epoch of the leader that was read or asked. It tells
            a mark that is repeated from one that says the same of a later state of the source.
    """

    sequence: int
    epoch: int
    anew: bool = False
    source: int = UNKNOWN_OFFSET
    leader: int = UNKNOWN_EPOCH


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
        marks = self._marks
        begin = bisect_left(marks, mark.sequence, key=_sequence)
        end = bisect_right(marks, mark.sequence, key=_sequence)
        # Several epochs may begin at one sequence: where nothing but markers was read of them.
        here = marks[begin:end]
        if mark.anew:
            told = mark.leader != UNKNOWN_EPOCH
            if mark not in here if told else self.at(mark.sequence) != mark.epoch:
                marks[begin:] = [*(m for m in here if _stays(m, mark)), mark]
        elif self.at(mark.sequence) < mark.epoch:
            # Those behind that say less were said by a writer that counted differently.
            behind = (m for m in marks[end:] if m.anew or m.epoch > mark.epoch)
            marks[begin:] = [*here, mark, *behind]

    def at(self, sequence: int) -> int:
        """The epoch of a record; UNKNOWN_EPOCH before the first mark."""
        index = bisect_right(self._marks, sequence, key=_sequence)
        return self._marks[index - 1].epoch if index else UNKNOWN_EPOCH

    def behind(self, epoch: int, last: int) -> tuple[EpochMark, int] | None:
        """Where the records up to sequence ``last`` leave ``epoch`` behind, if they do.

        The first mark of a later epoch, and the epoch of what was read before it.
        """
        end = index = bisect_right(self._marks, last, key=_sequence)
        while index and self._marks[index - 1].epoch > epoch:
            index -= 1
        if index == end:
            return None
        before = self._marks[index - 1].epoch if index else UNKNOWN_EPOCH
        return self._marks[index], before


def _stays(known: EpochMark, anew: EpochMark) -> bool:
    """Whether a mark is about what was read before the offset from which all begins anew."""
    return UNKNOWN_OFFSET < known.source < anew.source and known.epoch <= anew.epoch


def _sequence(mark: EpochMark) -> int:
    return mark.sequence
