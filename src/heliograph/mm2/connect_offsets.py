"""MM2's own bookkeeping, as Kafka Connect keeps it on the target.

Positions: key ``["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t"}]``, value
``{"offset":N}``, where N is the last source offset that was mirrored; no value: none any more.
Tasks: key ``task-<connector>-<n>``, value ``{"properties":{...}}`` with the partitions that the
task mirrors; ``commit-<connector>`` says how many tasks count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from heliograph.batch.header import batches
from heliograph.batch.pieces import AbortedTransactions
from heliograph.batch.records import decode
from heliograph.model import TopicPartition
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import TOPIC_AUTHORIZATION_FAILED, BrokerError
from heliograph.wire.fetch import Fetched
from heliograph.wire.ranges import read_ranges

__all__ = ["LatestRecords", "StoredPosition", "assigned_partitions", "decode_position"]

_TASK, _COMMIT = b"task-", b"commit-"
_CHUNK_BYTES = 1 << 20


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
        #: Key -> (value, whether it was written in a transaction).
        self.all: dict[bytes, tuple[bytes, bool]] = {}

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
            following = header.last_offset + 1
        self._next[fetched.partition] = following
        return following

    def _keep(self, key: bytes, value: bytes | None, in_transaction: bool) -> None:
        if value is None:
            self.all.pop(key, None)
        else:
            self.all[key] = (value, in_transaction)


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


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
