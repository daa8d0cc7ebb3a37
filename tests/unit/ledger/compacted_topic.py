"""A compacted topic in memory, and stores of a ledger that live on it."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from itertools import groupby

from heliograph.batch.records import Record, build, decode
from heliograph.ledger.codec import Place
from heliograph.ledger.keeper import LedgerKeeper
from heliograph.ledger.store import LedgerStore

HERE = Place("orders", 0, uuid.UUID(int=1), uuid.UUID(int=2))


class CompactedTopic:
    """One partition. What stands in ``before_append`` or ``before_read`` happens first."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.end = 0
        self.bytes = 0
        self.batches: list[list[Record]] = []
        self.before_append: Callable[[list[Record]], None] = lambda _: None
        self.before_read: Callable[[], None] = lambda: None

    def append(self, batch: bytes | memoryview) -> None:
        records = list(decode(batch))
        self.before_append(records)
        records = [r._replace(offset=self.end + i) for i, r in enumerate(records)]
        self.end += len(records)
        self.records += records
        self.batches.append(records)
        self.bytes += len(batch)

    def read(self, start: int, end: int | None = None) -> Iterator[memoryview]:
        """Batches of consecutive records, as a broker's are after compaction."""
        end = self.end if end is None else end
        wanted = enumerate(r for r in self.records if start <= r.offset < end)
        for _, group in groupby(wanted, key=lambda pair: pair[1].offset - pair[0]):
            records = [record for _, record in group]
            batch = bytearray(build(records))
            struct.pack_into(">q", batch, 0, records[0].offset)
            yield memoryview(batch)

    def compact(self, until: int, *, tombstones: bool = False) -> None:
        """What the cleaner does to the records before ``until``; it may drop tombstones too."""
        last = {r.key: r.offset for r in self.records if r.offset < until}
        self.records = [
            r
            for r in self.records
            if r.offset >= until
            or (r.offset == last[r.key] and not (tombstones and r.value is None))
        ]


class _OnTopic:
    def __init__(self, topic: CompactedTopic) -> None:
        super().__init__(None, "ledger")
        self.topic = topic

    def _read(self):
        return self.topic.read(self._next_offset)

    def _send(self, batch):
        self.topic.append(batch)

    def refresh(self):
        self.topic.before_read()
        super().refresh()

    def _allocate(self):
        return 7


class Store(_OnTopic, LedgerStore):
    pass


class Keeper(_OnTopic, LedgerKeeper):
    pass
