"""WriteTxnMarkers, by hand: control batches that no consumer sees, one offset each.

Written under a producer id that has no transaction open, a marker changes nothing but the log's
end. The request is not idempotent: whoever sends it again first looks where the log ends. Needs
ALTER on the cluster (Kafka 3.8+; CLUSTER_ACTION before).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from heliograph.model import TopicPartition
from heliograph.wire.border import reading
from heliograph.wire.compact import read_count, read_string, skip_tags, uvarint
from heliograph.wire.connection import Connection

API_KEY = 27
#: Flexible, and without the transaction version that v2 adds.
_VERSION = 1
_PRODUCER = struct.Struct(">qh?")
_COORDINATOR_EPOCH = 0


class Marked(NamedTuple):
    """The broker's word on the markers of one partition."""

    partition: TopicPartition
    error: int


def send(
    connection: Connection, producer_id: int, counts: Sequence[tuple[TopicPartition, int]]
) -> None:
    """Ask for ``count`` markers in each of some partitions."""
    total = 0
    body = bytearray()
    for partition, count in counts:
        topic = partition.topic.encode()
        marker = _PRODUCER.pack(producer_id, 0, False)
        marker += b"\x02" + uvarint(len(topic) + 1) + topic
        marker += b"\x02" + struct.pack(">i", partition.partition) + b"\0"
        marker += struct.pack(">i", _COORDINATOR_EPOCH) + b"\0"
        body += marker * count
        total += count
    parts = [uvarint(total + 1), bytes(body), b"\0"]
    connection.send(API_KEY, _VERSION, flexible=True, parts=parts)


def parse(connection: Connection, frame: memoryview) -> list[Marked]:
    """An answer: one entry per marker or per partition, as brokers like; errors come last.

    Raises DamagedAnswer, the connection being closed.
    """
    with reading(connection, "an answer to markers"):
        return _parse(frame)


def _parse(frame: memoryview) -> list[Marked]:
    position = skip_tags(frame, 0)
    found: dict[TopicPartition, int] = {}
    markers, position = read_count(frame, position, flexible=True)
    for _ in range(markers):
        topics, position = read_count(frame, position + 8, flexible=True)
        for _ in range(topics):
            name, position = read_string(frame, position, flexible=True)
            partitions, position = read_count(frame, position, flexible=True)
            for _ in range(partitions):
                index, error = struct.unpack_from(">ih", frame, position)
                position = skip_tags(frame, position + 6)
                key = TopicPartition(name or "", index)
                found[key] = found.get(key) or error
            position = skip_tags(frame, position)
        position = skip_tags(frame, position)
    return [Marked(*item) for item in found.items()]
