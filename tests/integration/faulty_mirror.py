"""A mirror that makes one mistake: both logs and the ledger as they would be after it."""

from __future__ import annotations

from heliograph.batch.header import header_at, stamp
from heliograph.batch.records import Record, build
from heliograph.ledger.codec import Entry, Place
from heliograph.ledger.runs import Run
from heliograph.ledger.store import LedgerStore
from heliograph.model import TopicPartition
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.produce import Producer


class FaultyMirror:
    """Writes source and target of one partition itself, with the flow's signature and ledger."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        signature: int,
        ledger_topic: str,
        partition: TopicPartition,
        alias: str = "A",
    ) -> None:
        topic, index = partition
        remote = f"{alias}.{topic}"
        self._signature = signature
        self._ledger = LedgerStore(target, ledger_topic)
        ids = [
            client.metadata([name]).topics[name].topic_id
            for client, name in ((source, topic), (target, remote))
        ]
        self._place = Place(topic, index, *ids)
        self._sides = [
            _Appender(source, partition),
            _Appender(target, TopicPartition(remote, index)),
        ]
        self._sequence = 0
        self._at = 0
        self._target = 0
        self._runs = [Run(0, 0, 0)]

    def write(self, records: list[Record], fault: str = "", index: int = 0, codec: int = 0) -> None:
        """One batch on both sides; with a fault in its ``index``-th record on the target."""
        whole = build(records, codec=codec)
        self._sides[0].send(whole)
        if not fault:
            self._append(memoryview(bytearray(whole)), len(records))
        else:
            getattr(self, f"_{fault}")(records, index, codec)
        self._at += len(records)

    def finish(self) -> None:
        for side in self._sides:
            side.wait()
        self._ledger.write([Entry(self._place, self._runs)])

    def _append(self, batch: memoryview, count: int, *, foreign: bool = False) -> None:
        if not foreign:
            stamp(header_at(batch, 0), batch, self._signature, self._sequence)
            self._sequence += count
        self._target += count
        self._sides[1].send(batch)

    def _flipped(self, records, index, codec):
        value = bytearray(records[index].value)
        value[-1] ^= 1
        changed = [*records]
        changed[index] = changed[index]._replace(value=bytes(value))
        self._append(build(changed, codec=codec), len(changed))

    def _swapped(self, records, index, codec):
        changed = [*records]
        changed[index], changed[index + 1] = changed[index + 1], changed[index]
        self._append(build(changed, codec=codec), len(changed))

    def _missing(self, records, index, codec):
        self._append(build(records[:index], codec=codec), index)
        self._runs.append(Run(self._sequence, self._at + index + 1, self._target))
        self._append(build(records[index + 1 :], codec=codec), len(records) - index - 1)

    def _doubled(self, records, index, codec):
        """Somebody else appends a copy, and the mirror notices."""
        self._append(build(records[: index + 1], codec=codec), index + 1)
        self._append(build([records[index]], codec=codec), 1, foreign=True)
        self._runs.append(Run(self._sequence, self._at + index + 1, self._target))
        self._append(build(records[index + 1 :], codec=codec), len(records) - index - 1)


class _Appender:
    """Appends batches, a few requests in flight."""

    def __init__(self, client, partition) -> None:
        self._client, self._partition = client, partition
        metadata = client.metadata([partition.topic])
        self._connection = client.open(metadata.leader(*partition))
        ids = {partition.topic: metadata.topics[partition.topic].topic_id}
        self._producer = Producer(self._connection, ids)
        self._in_flight = 0

    def send(self, batch) -> None:
        while self._in_flight >= 4:
            self._take()
        self._producer.send([(self._partition, batch)])
        self._in_flight += 1

    def _take(self) -> None:
        [answer] = self._producer.parse(self._connection.wait(60.0))
        assert answer.error == 0, answer
        self._in_flight -= 1

    def wait(self) -> None:
        while self._in_flight:
            self._take()
        self._connection.close()


def numbered(first: int, count: int, size: int = 60) -> list[Record]:
    now = 1_700_000_000_000
    return [
        Record(0, now + n, b"key-%d" % n, (b"value-%d-" % n).ljust(size, b"x"))
        for n in range(first, first + count)
    ]
