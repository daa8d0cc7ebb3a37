"""Reading and appending to small internal topics: one partition, whole batches, waiting calls."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from heliograph.batch.framing import MAGIC_AT, batch_end
from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.connection import Buffer
from heliograph.wire.epochs import epoch_ends
from heliograph.wire.errors import (
    NONE,
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
_MAGIC = 2
_OFFSET, _DELTA = struct.Struct(">q"), struct.Struct(">i")


class Extent(NamedTuple):
    """Where a partition ended, and in which life of its log: topic id and leader epoch."""

    topic_id: uuid.UUID
    epoch: int
    end: int


def located(client: ClusterClient, partition: TopicPartition) -> tuple[Metadata, int]:
    """The metadata of a topic and the leader of its partition; raises WireError."""
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
    *,
    read_committed: bool = False,
) -> Fetched:
    """One fetch at ``offset``. Follows the leader; raises on a broker error.

    With ``read_committed`` it ends before open transactions, and names those that were aborted.
    The first batch comes whole, even if it is larger than ``max_bytes``.
    """

    def call() -> Fetched:
        metadata, leader = located(client, partition)
        ids = {partition.topic: metadata.topics[partition.topic].topic_id}
        with client.lent(leader) as connection:
            session = FetchSession(
                connection, ids, read_committed=read_committed, max_bytes=max_bytes,
                partition_max_bytes=max_bytes, single=True,
            )  # fmt: skip
            # A leader that was deposed and does not know it yet must not answer with an old log.
            session.want(partition, offset, metadata.leader_epoch(*partition))
            session.send(0, 0)
            frame = session.wait(client.request_timeout)
        error, what = frame[0].error, f"reading {partition} of cluster {client.alias} at {offset}"
        check(error, what, reason(client.settings, error, "Read", partition.topic))
        return frame[0]

    return client.retry(call, patience)


def extent(
    client: ClusterClient, partition: TopicPartition, patience: float = _PATIENCE_SECONDS
) -> Extent:
    """Where the partition ends now, by its high watermark, and in which life of its log."""

    def call() -> Extent:
        metadata, _ = located(client, partition)
        found = admin.list_offsets(client, metadata, [partition], admin.LATEST, fenced=True)
        if partition not in found:
            raise BrokerError(UNKNOWN_TOPIC_OR_PARTITION, f"end of {partition}")
        topic_id = metadata.topics[partition.topic].topic_id
        return Extent(topic_id, metadata.leader_epoch(*partition), found[partition])

    return client.retry(call, patience)


def end_offset(
    client: ClusterClient, partition: TopicPartition, patience: float = _PATIENCE_SECONDS
) -> int:
    """The high watermark."""
    return extent(client, partition, patience).end


def holds(client: ClusterClient, partition: TopicPartition, before: Extent, now: Extent) -> bool:
    """Whether a log still has what it had when it ended at ``before``.

    Not if the topic was created anew, or if a leader was elected that lacked some of it.
    """
    if before.topic_id != now.topic_id or now.end < before.end:
        return False
    if before.epoch in {-1, now.epoch}:
        return True
    asked = {partition: before.epoch}
    found = epoch_ends(client, client.metadata([partition.topic]), asked).get(partition)
    return found is None or found.error != NONE or not 0 <= found.offset < before.end


def read_to_end(
    client: ClusterClient,
    partition: TopicPartition,
    start: int,
    patience: float = _PATIENCE_SECONDS,
    end: int | None = None,
) -> Iterator[memoryview]:
    """Chunks of whole and partial batches from ``start`` to ``end``, or to the end as it is now.

    ``patience`` is how long each request is tried again.
    """
    if end is None:
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
        metadata, leader = located(client, partition)
        ids = {partition.topic: metadata.topics[partition.topic].topic_id}
        with client.lent(leader) as connection:
            producer = Producer(connection, ids)
            answer = producer.call([(partition, batch)], client.request_timeout)[0]
        why = reason(client.settings, answer.error, "Write", partition.topic, answer.message)
        check(answer.error, f"writing {partition} of cluster {client.alias}", why)
        return answer.base_offset

    return client.retry(call, _PATIENCE_SECONDS)


def _next_offset(records: memoryview, position: int) -> int:
    """Offset after the last whole batch."""
    at = 0
    while (following := batch_end(records, at)) is not None:
        (last,) = _OFFSET.unpack_from(records, at)
        if records[at + MAGIC_AT] >= _MAGIC:
            last += _DELTA.unpack_from(records, at + 23)[0]
        # An older message has the offset of its last record.
        position, at = last + 1, following
    return position
