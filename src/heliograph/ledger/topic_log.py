"""The ledger's topic as a log of keys and values. Any process.

A compacted topic of one partition on the target cluster.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from heliograph.batch.records import Record, build, decode
from heliograph.model import TopicPartition
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient

__all__ = ["Pair", "TopicLog", "batch_of", "batches_of"]

#: A key and a value; None removes the key's record when the topic is compacted.
Pair = tuple[bytes, bytes | None]

#: One ledger batch stays well below the default max.message.bytes of 1 MiB, even uncompressed.
_BATCH_BYTES = 512 << 10
#: What a record has besides key and value, at most.
_RECORD_OVERHEAD_BYTES = 24
#: Keys of one batch are much alike: zstd makes a sixth of them.
_ZSTD = 4


class TopicLog:
    """Reads and appends. One thread at a time may read; any may append."""

    def __init__(self, client: ClusterClient, topic: str) -> None:
        self._client = client
        self._partition = TopicPartition(topic, 0)
        self._seen: log.Extent | None = None

    def __str__(self) -> str:
        return str(self._partition)

    def find_end(self, position: int) -> bool:
        """Ask where the topic ends now.

        Returns False if it has lost some of what was read before ``position``: it was created
        anew, or a leader was elected that lacked records.
        """
        seen, now = self._seen, log.extent(self._client, self._partition)
        holds = seen is None or log.holds(
            self._client, self._partition, seen._replace(end=position), now
        )
        self._seen = now
        return holds

    def read(self, position: int) -> Iterator[Iterable[Record]]:
        """The records up to the end that `find_end` found, in pieces.

        A piece may begin with records before ``position``: fetches return whole batches.
        """
        end = self._seen.end if self._seen is not None else None
        for chunk in log.read_to_end(self._client, self._partition, position, end=end):
            yield decode(chunk)

    def append(self, pairs: Iterable[Pair], producer_id: int = -1, sequence: int = -1) -> None:
        """Append one batch durably; without a producer id perhaps more than once."""
        log.append(self._client, self._partition, batch_of(pairs, producer_id, sequence))

    def allocate_producer_id(self) -> int:
        """A producer id that nobody has used."""
        return admin.allocate_producer_id(self._client)


def batch_of(pairs: Iterable[Pair], producer_id: int = -1, sequence: int = -1) -> memoryview:
    """A record batch with the time of now."""
    now = int(time.time() * 1000)
    records = (Record(0, now, key, value) for key, value in pairs)
    return build(records, codec=_ZSTD, producer_id=producer_id, sequence=sequence)


def batches_of(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """As many records to a batch as fit."""
    batch: list[Pair] = []
    size = 0
    for key, value in pairs:
        weight = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
        if batch and size + weight > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((key, value))
        size += weight
    if batch:
        yield batch
