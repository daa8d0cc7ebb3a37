"""Sets where a flow goes on, while nobody copies it. Runs in the driver and in commands.

The decision is in the flow's ledger then (`heliograph.ledger.moves`). The next holder of a lease
carries it out: in a partition that was mirrored before, and in one that never was, whose target may
hold records that are known (`heliograph.copy.beginning`). So a flow in the opposite direction can
begin behind what came from there, instead of reading all of it to skip it.
"""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.config import FlowConfig
from heliograph.control.topics import internal as internal_topics
from heliograph.errors import HeliographError
from heliograph.ledger.flow_ledger import FlowLedger
from heliograph.ledger.moves import decide_moves
from heliograph.model import TopicPartition
from heliograph.policy import ledger_topic
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

__all__ = ["NoSuchOffset", "set_positions"]


class NoSuchOffset(HeliographError):
    """Copying cannot go on there: the source has no such partition or offset."""

    exit_code = 1


def set_positions(
    flow: FlowConfig,
    source: ClusterClient,
    target: ClusterClient,
    positions: Mapping[TopicPartition, int | None],
) -> Mapping[TopicPartition, int]:
    """Write down the next source offset to copy of some partitions; returns what was written.

    None means where the flow would begin. Creates the flow's internal topics if need be. The caller
    has made sure that nobody copies the flow, and that no lease of it is left. May be repeated: of
    several decisions the last counts.

    Raises:
        NoSuchOffset: the source does not have it; nothing is written.
        WireError: a cluster does not answer.
    """
    moves = _within(flow, source, positions)
    if moves:
        internal_topics.ensure(flow, source, target)
        ledger = FlowLedger(target, ledger_topic(flow.flow.source))
        ledger.memory.refresh()
        decide_moves(ledger.memory, moves)
    return moves


def _within(
    flow: FlowConfig, source: ClusterClient, positions: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, int]:
    """The positions as offsets of the source."""
    metadata = source.metadata(sorted({p.topic for p in positions}))
    starts = admin.list_offsets(source, metadata, positions, admin.EARLIEST)
    ends = admin.list_offsets(source, metadata, positions, admin.LATEST)
    found: dict[TopicPartition, int] = {}
    for p, wanted in positions.items():
        if p not in starts or p not in ends:
            if wanted is None:
                continue  # It is gone, and so is what there was to forget.
            raise NoSuchOffset(
                "moves.no-partition", f"cluster {flow.flow.source} has no partition {p}"
            )
        first = ends[p] if flow.auto_offset_reset == "latest" else starts[p]
        position = first if wanted is None else wanted
        if not starts[p] <= position <= ends[p]:
            raise NoSuchOffset(
                "moves.no-offset",
                f"{p} of cluster {flow.flow.source} holds offsets {starts[p]} to {ends[p] - 1}:"
                f" copying cannot go on behind offset {position - 1}",
            )
        found[p] = position
    return found
