"""A compacted topic in memory, and stores of a ledger that live on it."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from itertools import groupby

from heliograph.batch.records import Record, build, decode
from heliograph.ledger.codec import Place
from heliograph.ledger.follower import LedgerFollower
from heliograph.ledger.keeper import LedgerKeeper
from heliograph.ledger.runs import PartitionLedger
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.topic_log import batch_of

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


class InMemory:
    """What `TopicLog` does, on a topic in memory."""

    def __init__(self, topic: CompactedTopic) -> None:
        self.topic = topic

    def find_end(self, position):
        self.topic.before_read()
        return True

    def read(self, position):
        return map(decode, self.topic.read(position))

    def append(self, pairs, producer_id=-1, sequence=-1):
        self.topic.append(batch_of(pairs, producer_id, sequence))

    def allocate_producer_id(self):
        return 7


def follower_of(topic: CompactedTopic) -> LedgerFollower:
    follower = LedgerFollower(None, "ledger")
    follower.log = InMemory(topic)
    return follower


class Store(LedgerStore):
    def __init__(self, topic: CompactedTopic, *, shared: bool = False) -> None:
        super().__init__(None, "ledger", shared=shared)
        self.follower.log = InMemory(topic)


class Keeper(LedgerKeeper):
    """A keeper with a store of its own: as a mirror's driver, shared."""

    def __init__(self, topic: CompactedTopic) -> None:
        self.store = Store(topic, shared=True)
        super().__init__(self.store)

    def refresh(self) -> None:
        self.store.refresh()

    def at(self, place: Place) -> PartitionLedger:
        return self.store.at(place)
