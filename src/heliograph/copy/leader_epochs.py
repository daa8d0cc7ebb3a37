"""Where the source's log and what was mirrored of it part, found by leader epochs. Pure.

As a follower finds out what to truncate (KIP-101, KIP-279). A leader is asked where an epoch of
ours ends in its log. If that is before our records of the epoch end, it does not have the rest of
them; if it does not know the epoch at all, it has none of them, and is asked for the one before.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from heliograph.ledger.epochs import UNKNOWN_EPOCH, UNKNOWN_OFFSET, EpochMark
from heliograph.ledger.runs import PartitionLedger
from heliograph.wire.epochs import EpochEnd

__all__ = ["Divergence", "divergence"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """From ``offset`` on the source has other records than those that were read before.

    Attributes:
        epoch: of the record before; UNKNOWN_EPOCH if that cannot be told.
        lost: how many of the records that it does not have any more are on the target.
        until: the source offset behind the last of those.
        target: where those are on the target.
        target_until: behind the last one.
    """

    offset: int
    epoch: int
    lost: int
    until: int
    target: int
    target_until: int

    @classmethod
    def at(cls, ledger: PartitionLedger, sequence: int, offset: int, epoch: int) -> Divergence:
        """The logs part at ``offset``, and ``sequence`` is that of the next record to mirror."""
        # What was lost before, and was told of then, is not lost again.
        gone = ledger.lasting(offset, sequence)
        if not gone:
            end = ledger.target_of(sequence)
            return cls(offset, epoch, 0, offset, end, end)
        first, last = gone[0][0], gone[-1][-1]
        return cls(
            offset, epoch, sum(map(len, gone)), ledger.source_of(last) + 1,
            ledger.target_of(first), ledger.target_of(last) + 1,
        )  # fmt: skip


def divergence(
    ledger: PartitionLedger, sequence: int, leader_epoch: int
) -> Generator[int, EpochEnd, Divergence | str | None]:
    """Yields epochs to ask the source's leader for, and is sent the answers.

    ``sequence`` is that of the next record, ``leader_epoch`` the leader's own. Returns None if the
    logs do not part, or if nothing is known that could tell; a text if the leader is behind.
    """
    position, last = ledger.source_of(sequence), ledger.last_before(sequence)
    if last is None or ledger.source_of(last) + 1 != position:
        # More was read than the last record: what is behind it is of the next one's epoch.
        last = sequence
    until, announced = position, _last_announced(ledger)
    if announced > sequence and ledger.epochs.at(announced) <= leader_epoch:
        # What was announced and not written must be there, too: it is counted on.
        last, until = announced, ledger.source_of(announced)
    epoch = ledger.epochs.at(last)
    if epoch in {UNKNOWN_EPOCH, leader_epoch} or leader_epoch == UNKNOWN_EPOCH:
        return None
    if leader_epoch < epoch:
        return (
            f"its leader is of epoch {leader_epoch}, but records of epoch {epoch} were mirrored:"
            " the broker is behind, or the cluster was set back to an older state"
        )
    offset, void = until, False
    while True:
        answer = yield epoch
        if answer.epoch < 0 or answer.offset < 0:
            return None
        offset = min(offset, answer.offset)
        behind = ledger.epochs.behind(answer.epoch, last)
        if answer.epoch == epoch or behind is None:
            break
        mark, epoch = behind
        offset = min(offset, _beginning(ledger, mark))
        void = void or mark.sequence > sequence
        if epoch in {UNKNOWN_EPOCH, answer.epoch}:
            break
    if offset >= until and not void:
        return None
    return Divergence.at(ledger, sequence, min(offset, position), epoch)


def _last_announced(ledger: PartitionLedger) -> int:
    """The last sequence that a run or a mark begins at; nobody may have written that record."""
    marks = ledger.epochs.marks
    return max(ledger.runs[-1].sequence, marks[-1].sequence if marks else 0)


def _beginning(ledger: PartitionLedger, mark: EpochMark) -> int:
    """From which source offset on what was read is of the mark's epoch, or of a later one."""
    record = ledger.source_of(mark.sequence)
    if mark.source != UNKNOWN_OFFSET:
        return min(record, mark.source)
    if mark.sequence > ledger.runs[0].sequence:
        # Between two records the epoch began somewhere: nothing of that can be kept.
        return min(record, ledger.source_of(mark.sequence - 1) + 1)
    return record
