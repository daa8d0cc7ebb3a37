"""Reading and appending to small internal topics: one partition, whole batches, waiting calls."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.connection import Buffer
from heliograph.wire.errors import (
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    check,
)
from heliograph.wire.fetch import Fetched, FetchSession
from heliograph.wire.metadata import Metadata
from heliograph.wire.produce import Producer
from heliograph.wire.rights import missing_right, reason

#: How long a call goes on trying through leader changes and reconnects.
_PATIENCE_SECONDS = 30.0
_CHUNK_BYTES = 8 << 20


def _located(client: ClusterClient, partition: TopicPartition) -> tuple[Metadata, int]:
    metadata = client.metadata([partition.topic])
    leader = metadata.leader(partition.topic, partition.partition)
    if partition.topic in metadata.denied:
        what = f"looking for {partition} of cluster {client.alias}"
        right = missing_right(client.settings, "Describe", "topic", partition.topic)
        raise BrokerError(TOPIC_AUTHORIZATION_FAILED, what, right)
    if leader < 0:
        what = f"{partition} on cluster {client.alias} has no leader"
        raise BrokerError(UNKNOWN_TOPIC_OR_PARTITION, what)
    return metadata, leader


def read_once(
    client: ClusterClient,
    partition: TopicPartition,
    offset: int,
    patience: float = _PATIENCE_SECONDS,
    max_bytes: int = _CHUNK_BYTES,
) -> Fetched:
    """One fetch at ``offset``, read_uncommitted. Follows the leader; raises on a broker error.

    The first batch comes whole, even if it is larger than ``max_bytes``.
    """

    def call() -> Fetched:
        metadata, leader = _located(client, partition)
        session = FetchSession(
            client.connection(leader), {partition.topic: metadata.topics[partition.topic].topic_id},
            read_committed=False, max_bytes=max_bytes, partition_max_bytes=max_bytes, single=True,
        )  # fmt: skip
        session.want(partition, offset)
        session.send(0, 0)
        frame = session.wait(client.request_timeout)
        error, what = frame[0].error, f"reading {partition} of cluster {client.alias} at {offset}"
        check(error, what, reason(client.settings, error, "Read", partition.topic))
        return frame[0]

    return client.retry(call, patience)


def end_offset(
    client: ClusterClient, partition: TopicPartition, patience: float = _PATIENCE_SECONDS
) -> int:
    """The high watermark."""

    def call() -> int:
        metadata, _ = _located(client, partition)
        found = admin.list_offsets(client, metadata, [partition], admin.LATEST)
        if partition not in found:
            raise BrokerError(UNKNOWN_TOPIC_OR_PARTITION, f"end of {partition}")
        return found[partition]

    return client.retry(call, patience)


def read_to_end(
    client: ClusterClient,
    partition: TopicPartition,
    start: int,
    patience: float = _PATIENCE_SECONDS,
) -> Iterator[memoryview]:
    """Chunks of whole and partial batches from ``start`` to the end as it is now.

    ``patience`` is how long each request is tried again.
    """
    end = end_offset(client, partition, patience)
    position = start
    while position < end:
        fetched = read_once(client, partition, position, patience)
        following = _next_offset(fetched.records, position)
        if following == position:
            return
        yield fetched.records
        position = following


def append(client: ClusterClient, partition: TopicPartition, batch: Buffer) -> int:
    """Append one batch, acks=all; returns its base offset. At least once."""

    def call() -> int:
        metadata, leader = _located(client, partition)
        ids = {partition.topic: metadata.topics[partition.topic].topic_id}
        producer = Producer(client.connection(leader), ids)
        answer = producer.call([(partition, batch)], client.request_timeout)[0]
        why = reason(client.settings, answer.error, "Write", partition.topic, answer.message)
        check(answer.error, f"writing {partition} of cluster {client.alias}", why)
        return answer.base_offset

    return client.retry(call, _PATIENCE_SECONDS)


def _next_offset(records: memoryview, position: int) -> int:
    """Offset after the last whole batch; needs only the fields that every format shares."""
    at = 0
    while at + 61 <= len(records):
        base, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            break
        (delta,) = struct.unpack_from(">i", records, at + 23)
        position = base + delta + 1
        at += 12 + length
    return position
