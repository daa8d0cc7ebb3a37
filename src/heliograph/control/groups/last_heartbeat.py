"""The last sign of life of a source that its target has. Runs in commands and in the driver.

Best are heartbeats that were mirrored: somebody wrote them on the source (another flow's mirror),
and they came over. Heartbeats that the mirror of this flow writes on the target say only that this
mirror ran: it goes on when the source is dead.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from heliograph.batch.records import Record, decode
from heliograph.config import FlowConfig
from heliograph.errors import HeliographError
from heliograph.mm2.formats import Heartbeat
from heliograph.model import TopicPartition
from heliograph.policy import policy_from
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient

__all__ = ["last_heartbeat"]

#: One a second from each mirror: minutes of them; then more, until all is read.
_FIRST_LOOK_RECORDS = 1_000
_FURTHER = 10


def last_heartbeat(config: FlowConfig, target: ClusterClient) -> tuple[int, str]:
    """The timestamp of the last heartbeat, and what it proves.

    Raises:
        WireError: the target does not answer.
        HeliographError: it has no heartbeat of the source.
    """
    flow, policy = config.flow, policy_from(config)
    own = policy.heartbeats_topic()
    mirrored = policy.format_remote_topic(flow.source, own)
    metadata = target.metadata([mirrored, own])
    if mirrored in metadata.topics:
        for record in _latest_first(target, mirrored):
            return record.timestamp, f"in {mirrored}: {flow.source} had it"
    if own in metadata.topics:
        for record in _latest_first(target, own):
            if _is_of(record, flow.source, flow.target):
                says = f"in {own}: the mirror ran, which does not prove that {flow.source} did"
                return record.timestamp, says
    raise HeliographError(
        "offsets.no-heartbeat",
        f"{flow.target} has no heartbeat of {flow.source}, neither in {mirrored} nor in {own}",
        "choose another start, such as --to-datetime",
    )


def _is_of(record: Record, source: str, target: str) -> bool:
    try:
        beat = Heartbeat.decode(record.key or b"", record.value or b"")
    except (ValueError, struct.error):
        return False
    return (beat.source, beat.target) == (source, target)


def _latest_first(client: ClusterClient, topic: str) -> Iterator[Record]:
    """The records of partition 0, from the end on back."""
    partition = TopicPartition(topic, 0)
    metadata, _ = log.located(client, partition)
    start = admin.list_offsets(client, metadata, [partition], admin.EARLIEST).get(partition, 0)
    end = log.end_offset(client, partition)
    count = _FIRST_LOOK_RECORDS
    while end > start:
        first = max(end - count, start)
        chunks = log.read_to_end(client, partition, first, end=end)
        records = [r for chunk in chunks for r in decode(chunk) if first <= r.offset < end]
        yield from reversed(records)
        end, count = first, count * _FURTHER
