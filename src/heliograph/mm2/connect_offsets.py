"""MM2's own bookkeeping, as Kafka Connect keeps it on the target.

Positions: key ``["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t"}]``, value
``{"offset":N}``, where N is the last source offset that was mirrored; no value: none any more.
Connect compares keys byte by byte: no blanks, members in this order, text as plain UTF-8.
Tasks: key ``task-<connector>-<n>``, value ``{"properties":{...}}`` with the partitions that the
task mirrors; ``commit-<connector>`` says how many tasks count.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from heliograph.batch.header import batches
from heliograph.batch.pieces import AbortedTransactions
from heliograph.batch.records import Record, build, decode
from heliograph.ledger.topic_log import Pair, batches_of
from heliograph.mm2.partitioner import partition_of
from heliograph.model import TopicPartition
from heliograph.wire.admin import by_leader
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import (
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    ConnectionFailed,
    check,
)
from heliograph.wire.fetch import Fetched
from heliograph.wire.metadata import Metadata
from heliograph.wire.produce import Producer
from heliograph.wire.ranges import read_ranges
from heliograph.wire.rights import reason

__all__ = [
    "LatestRecords",
    "StoredPosition",
    "append_by_key",
    "assigned_partitions",
    "decode_position",
    "encode_position",
    "position_key",
]

_TASK, _COMMIT = b"task-", b"commit-"
#: The header of positions that Heliograph writes in MM2's place.
_OURS = ("heliograph", b"")
_CHUNK_BYTES = 1 << 20
#: How long an append goes on trying through leader changes and reconnects.
_PATIENCE_SECONDS = 30.0
#: Every client can read it.
_LZ4 = 3


class StoredPosition(NamedTuple):
    """How far MM2 says that it came.

    Attributes:
        offset: the last source offset that was mirrored.
        atomic: written in one transaction with the records, so it is never behind.
    """

    offset: int
    atomic: bool


class LatestRecords:
    """Follows a compacted topic: the last committed record of each key, as bytes."""

    def __init__(self, client: ClusterClient, topic: str) -> None:
        self._client = client
        self.topic = topic
        self._next: dict[TopicPartition, int] = {}
        self._topic_id: uuid.UUID | None = None
        #: Key -> (value, whether it was written in a transaction).
        self.all: dict[bytes, tuple[bytes, bool]] = {}
        #: Those of the keys whose last record Heliograph wrote.
        self.ours: set[bytes] = set()

    def refresh(self) -> bool:
        """Read on to the end as it is now; returns whether there is such a topic.

        Raises BrokerError if we may not read it, or not know whether it is there.
        """
        metadata = self._client.metadata([self.topic])
        if self.topic in metadata.denied:
            what = f"looking for {self.topic} on cluster {self._client.alias}"
            raise BrokerError(TOPIC_AUTHORIZATION_FAILED, what)
        found = metadata.topics.get(self.topic)
        if found is None:
            return False
        if found.topic_id != self._topic_id:
            # The first look, or the topic was created anew.
            self._topic_id = found.topic_id
            self._next.clear()
            self.all.clear()
            self.ours.clear()
        for index in found.partitions:
            self._next.setdefault(TopicPartition(self.topic, index), 0)
        refused = read_ranges(
            self._client, self._next, self._take,
            read_committed=True, partition_bytes=_CHUNK_BYTES,
        )  # fmt: skip
        for error in refused.values():
            raise error
        return True

    def _take(self, fetched: Fetched) -> int:
        transactions = AbortedTransactions(fetched.aborted)
        following = fetched.offset
        for header, batch in batches(fetched.records):
            in_transaction = header.transactional
            aborted = (in_transaction or header.control) and transactions.skips(
                header.last_offset, header.producer_id, control=header.control
            )
            if not aborted:
                for record in decode(batch):
                    if record.offset >= fetched.offset and record.key is not None:
                        self._keep(record.key, record.value, in_transaction)
                        if record.value is not None and _OURS in record.headers:
                            self.ours.add(record.key)
            following = header.last_offset + 1
        self._next[fetched.partition] = following
        return following

    def _keep(self, key: bytes, value: bytes | None, in_transaction: bool) -> None:
        self.ours.discard(key)
        if value is None:
            self.all.pop(key, None)
        else:
            self.all[key] = (value, in_transaction)


def append_by_key(
    client: ClusterClient, topic: str, pairs: Sequence[Pair], *, marked: bool = False
) -> None:
    """Append records, each to its key's partition; durable when it returns.

    One batch for each partition, in one request to each leader. At least once, and in the order of
    ``pairs`` for each key. ``marked`` records have a header that tells them from MM2's; Connect
    does not read it. Raises WireError.
    """
    headers = [_OURS] if marked else []

    def call() -> None:
        metadata = client.metadata([topic])
        count = len(metadata.topics[topic].partitions) if topic in metadata.topics else 0
        if not count:
            what = f"looking for {topic} on cluster {client.alias}"
            raise BrokerError(UNKNOWN_TOPIC_OR_PARTITION, what)
        parts: dict[TopicPartition, list[Pair]] = {}
        for pair in pairs:
            where = TopicPartition(topic, partition_of(pair[0], count))
            parts.setdefault(where, []).append(pair)
        waiting = {where: list(batches_of(part)) for where, part in parts.items()}
        while waiting:
            now = {where: left.pop(0) for where, left in waiting.items()}
            _append_each(client, metadata, now, headers)
            waiting = {where: left for where, left in waiting.items() if left}

    client.retry(call, _PATIENCE_SECONDS)


def _append_each(
    client: ClusterClient,
    metadata: Metadata,
    parts: Mapping[TopicPartition, Sequence[Pair]],
    headers: Sequence[tuple[str, bytes]],
) -> None:
    """One batch for each of some partitions of one topic."""
    now = int(time.time() * 1000)
    leaders = by_leader(metadata, parts)
    led = sum(len(indexes) for topics in leaders.values() for indexes in topics.values())
    if led < len(parts):
        raise ConnectionFailed(f"some partitions of {client.alias} have no leader")
    for leader, topics in leaders.items():
        ids = {topic: metadata.topics[topic].topic_id for topic in topics}
        mine = [TopicPartition(topic, i) for topic, indexes in topics.items() for i in indexes]
        built = [
            (where, build((Record(0, now, *pair, headers) for pair in parts[where]), codec=_LZ4))
            for where in mine
        ]
        with client.lent(leader) as connection:
            answers = Producer(connection, ids).call(built, client.request_timeout)
        for where, error, _, _, message, _ in answers:
            why = reason(client.settings, error, "Write", where.topic, message)
            check(error, f"writing {where} of cluster {client.alias}", why)


def position_key(connector: str, cluster: str, partition: TopicPartition) -> bytes:
    """The key of a position of MirrorSourceConnector, by the connector's name; byte-exact."""
    # In the order of Java's HashMap of these three.
    where = {"cluster": cluster, "partition": partition.partition, "topic": partition.topic}
    return _compact([connector, where])


def encode_position(
    connector: str, cluster: str, partition: TopicPartition, offset: int | None
) -> Pair:
    """(key, value) of a position; ``offset`` is the last one mirrored, None resets it."""
    value = None if offset is None else _compact({"offset": offset})
    return position_key(connector, cluster, partition), value


def decode_position(
    key: bytes, value: bytes, *, atomic: bool = False
) -> tuple[str, TopicPartition, StoredPosition] | None:
    """(source alias, partition, position) of a record of MM2's offsets topic; None for others.

    Other connectors keep theirs in the same topic, under keys of another shape.
    """
    match _parsed(key), _parsed(value):
        case (
            [str(), {"cluster": str(cluster), "topic": str(topic), "partition": int(partition)}],
            {"offset": int(offset)},
        ) if offset >= 0:
            position = StoredPosition(offset, atomic)
            return cluster, TopicPartition(topic, partition), position
    return None


def assigned_partitions(records: Iterable[tuple[bytes, bytes]]) -> set[TopicPartition]:
    """The source partitions that MM2's tasks have, by the last records of its configs topic."""
    latest = dict(records)
    counts = {
        key.removeprefix(_COMMIT): parsed["tasks"]
        for key, value in latest.items()
        if key.startswith(_COMMIT) and isinstance(parsed := _parsed(value), dict)
        and isinstance(parsed.get("tasks"), int)
    }  # fmt: skip
    found: set[TopicPartition] = set()
    for key, value in latest.items():
        connector, _, number = key.removeprefix(_TASK).rpartition(b"-")
        if not key.startswith(_TASK) or not number.isdigit():
            continue
        if int(number) < counts.get(connector, 0):
            match _parsed(value):
                case {"properties": {"task.assigned.partitions": str(listed)}}:
                    found |= set(map(_partition, filter(None, listed.split(","))))
    return found


def _partition(text: str) -> TopicPartition:
    topic, _, index = text.strip().rpartition("-")
    return TopicPartition(topic, int(index))


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
