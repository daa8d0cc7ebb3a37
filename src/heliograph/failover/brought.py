"""What the flow of the opposite direction has brought to partitions of a flow's source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heliograph.failover.target_side import Mirrored, TargetSide
from heliograph.ledger.runs import PartitionLedger
from heliograph.model import TopicPartition

__all__ = ["Copies", "brought"]


@dataclass(frozen=True, slots=True)
class Copies:
    """The records in a log that a flow has written there.

    Attributes:
        ledger: where they are.
        sequence: of the next one.
    """

    ledger: PartitionLedger
    sequence: int

    def before(self, offset: int) -> int:
        """How many of them stand before an offset, counted from a begin that is always the same."""
        return min(self.ledger.sequence_below(offset), self.sequence)


def brought(
    back: TargetSide, pairs: Mapping[TopicPartition, TopicPartition]
) -> dict[TopicPartition, Copies]:
    """What ``back`` has brought, by partition of the flow's source; raises WireError.

    ``pairs`` has that partition by the one of the flow's target that it comes from.
    """
    found = back.mirrored()
    known = {p: place for p, place in found.places.items() if p in pairs}
    of = Mirrored(known, {p: found.targets[p] for p in known}, found.metadata, frozenset())
    return {
        pairs[p]: Copies(back.store.at(known[p]), sequence)
        for p, (sequence, _, _) in back.counts(of).items()
    }
