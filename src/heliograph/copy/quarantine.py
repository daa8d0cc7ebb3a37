"""Where records go that the target does not take: a topic of its own, with their origin in headers.

Runs in executors. Written before the mirror goes on without them, so none is lost; a process that
is killed in that very moment may write one twice, recognisable by its origin.
"""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.batch.pieces import Refused
from heliograph.batch.records import Record, build
from heliograph.copy.partition import PartitionCopy
from heliograph.model import FlowContext, TopicPartition
from heliograph.wire import log
from heliograph.wire.cluster import ClusterClient


def set_aside(
    context: FlowContext, target: ClusterClient, p: PartitionCopy, refused: Sequence[Refused]
) -> None:
    """Write refused records to the quarantine topic. Waits; raises a WireError if that fails."""
    assert context.quarantine_topic is not None  # noqa: S101 - without one, partitions fail
    for record, reason, _ in refused:
        origin = {
            "heliograph.source.cluster": context.flow.source,
            "heliograph.source.topic": p.source.topic,
            "heliograph.source.partition": str(p.source.partition),
            "heliograph.source.offset": str(record.offset),
            "heliograph.source.timestamp": str(record.timestamp),
            "heliograph.target.topic": p.target.topic,
            "heliograph.reason": reason,
        }
        headers = [(key, value.encode()) for key, value in origin.items()]
        # The topic must take it, whatever the reason was that the other did not.
        kept = Record(0, -1, record.key, record.value, [*headers, *record.headers])
        log.append(target, TopicPartition(context.quarantine_topic, 0), build([kept]))
