"""The ledger's home: a compacted topic of one partition on the target cluster.

Read whole once per process, then followed from where reading stopped. Used by the driver (lag,
translation) and by executors (resume, new runs); each has its own store.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from heliograph.batch.records import Record, build
from heliograph.batch.records import decode as decode_records
from heliograph.ledger.codec import (
    Entry,
    Place,
    Signature,
    decode,
    encode_entry,
    encode_signature,
)
from heliograph.ledger.runs import PartitionLedger
from heliograph.model import TopicPartition
from heliograph.wire import log
from heliograph.wire.cluster import ClusterClient

#: One ledger batch stays well below the default max.message.bytes of 1 MiB.
_ENTRIES_PER_BATCH = 2000


class LedgerStore:
    """Follows the ledger topic and appends to it."""

    def __init__(self, client: ClusterClient, topic: str) -> None:
        self._client = client
        self._partition = TopicPartition(topic, 0)
        self._next_offset = 0
        self._places: dict[Place, PartitionLedger] = {}
        self._signature: Signature | None = None

    @property
    def signature(self) -> Signature | None:
        """The flow's signature: the first one in the topic counts, for everybody."""
        return self._signature

    def at(self, place: Place) -> PartitionLedger:
        """The ledger of a place, empty if nothing was ever mirrored there."""
        return self._places.setdefault(place, PartitionLedger())

    def other_sources(self, place: Place) -> list[Place]:
        """Earlier generations of the source topic that were mirrored into this target topic."""
        return [
            p for p, ledger in self._places.items()
            if ledger.runs and p.source_id != place.source_id
            and p._replace(source_id=place.source_id) == place
        ]  # fmt: skip

    def refresh(self) -> None:
        """Read on to the topic's end as it is now."""
        for chunk in log.read_to_end(self._client, self._partition, self._next_offset):
            for record in decode_records(chunk):
                if record.offset < self._next_offset:
                    continue
                self._next_offset = record.offset + 1
                if record.key is not None and record.value is not None:
                    self._apply(decode(record.key, record.value))

    def _apply(self, fact: Signature | Entry | None) -> None:
        if isinstance(fact, Signature):
            self._signature = self._signature or fact
        elif isinstance(fact, Entry):
            ledger = self.at(fact.place)
            for run in fact.runs:
                if fact.shift:
                    ledger.correct(run)
                else:
                    ledger.add(run)

    def write(self, entries: Iterable[Entry]) -> None:
        """Append runs durably, then read back what counts (another writer may have been first)."""
        pairs = [encode_entry(e) for e in entries]
        for i in range(0, len(pairs), _ENTRIES_PER_BATCH):
            self._append(pairs[i : i + _ENTRIES_PER_BATCH])
        self.refresh()

    def sign(self, candidate: Signature) -> Signature:
        """Propose a signature; returns the one that counts."""
        self._append([encode_signature(candidate)])
        self.refresh()
        if self._signature is None:
            raise RuntimeError(f"{self._partition} does not return what was written to it")
        return self._signature

    def _append(self, pairs: list[tuple[bytes, bytes]]) -> None:
        now = int(time.time() * 1000)
        records = (Record(0, now, key, value) for key, value in pairs)
        log.append(self._client, self._partition, build(records))
