"""Where the source's log and what was mirrored of it part, found by leader epochs. Pure.

As a follower finds out what to truncate (KIP-101, KIP-279). A leader is asked where an epoch of
ours ends in its log. If that is before our records of the epoch end, it does not have the rest of
them; if it does not know the epoch at all, it has none of them, and is asked for the one before.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from heliograph.ledger.epochs import UNKNOWN_EPOCH
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
        first = max(ledger.sequence_of(offset), ledger.runs[0].sequence)
        if first >= sequence:
            end = ledger.target_of(sequence)
            return cls(offset, epoch, 0, offset, end, end)
        last = sequence - 1
        return cls(
            offset, epoch, sequence - first, ledger.source_of(last) + 1,
            ledger.target_of(first), ledger.target_of(last) + 1,
        )  # fmt: skip


def divergence(
    ledger: PartitionLedger, sequence: int, leader_epoch: int
) -> Generator[int, EpochEnd, Divergence | str | None]:
    """Yields epochs to ask the source's leader for, and is sent the answers.

    ``sequence`` is that of the next record, ``leader_epoch`` the leader's own. Returns None if the
    logs do not part, or if nothing is known that could tell; a text if the leader is behind.
    """
    position, last = ledger.source_of(sequence), sequence - 1
    if sequence <= ledger.runs[0].sequence or ledger.source_of(last) + 1 != position:
        # More was read than the last record: what is behind it is of the next one's epoch.
        last = sequence
    epoch = ledger.epochs.at(last)
    if epoch in {UNKNOWN_EPOCH, leader_epoch} or leader_epoch == UNKNOWN_EPOCH:
        return None
    if leader_epoch < epoch:
        return (
            f"its leader is of epoch {leader_epoch}, but records of epoch {epoch} were mirrored:"
            " the broker is behind, or the cluster was set back to an older state"
        )
    offset = position
    while True:
        answer = yield epoch
        if answer.epoch < 0 or answer.offset < 0:
            return None
        offset = min(offset, answer.offset)
        behind = ledger.epochs.behind(answer.epoch, last)
        if answer.epoch == epoch or behind is None:
            break
        first, epoch = behind
        offset = min(offset, ledger.source_of(first))
        if first > ledger.runs[0].sequence:
            # What was read between two records is not known well enough to be kept.
            offset = min(offset, ledger.source_of(first - 1) + 1)
        if epoch in {UNKNOWN_EPOCH, answer.epoch}:
            break
    return Divergence.at(ledger, sequence, offset, epoch) if offset < position else None
