"""What the demo mirrors: a backlog of orders, and a producer that goes on writing them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from heliograph.batch.records import Record, build
from heliograph.model import TopicPartition
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError, check
from heliograph.wire.produce import Producer

__all__ = [
    "LIVE_PER_SECOND",
    "PARTITIONS",
    "TOPIC",
    "LiveProducer",
    "create_topic",
    "write_backlog",
]

TOPIC = "orders"
PARTITIONS = tuple(TopicPartition(TOPIC, index) for index in range(4))
#: Visible on the counters, and next to nothing for the machine.
LIVE_PER_SECOND = 4000
_LIVE_SECONDS = 0.1
#: About 70 kB a batch: what busy producers send.
_BATCH_RECORDS = 500
_CUSTOMERS = 25_000
_ITEMS = (b"lamp", b"lease_state", b"chair", b"mug", b"shelf", b"clock", b"rug")
_HEADERS = (("event", b"order-placed"), ("shop", b"demo"))
_CREATE_MS = 30_000


def create_topic(client: ClusterClient) -> None:
    """Create the topic and wait until every partition has a leader."""
    topic = admin.NewTopic(TOPIC, len(PARTITIONS), 1, {})
    for error in admin.create_topics(client, [topic], _CREATE_MS).values():
        raise error
    for partition in PARTITIONS:
        log.end_offset(client, partition)


def write_backlog(client: ClusterClient, records: int, tell: Callable[[int], None]) -> None:
    """Write orders 0 to ``records``, spread over the partitions; ``tell`` hears how many are in.

    The lab's clusters have one broker: it leads every partition, and gets one batch for each of
    them in a request.
    """
    metadata = client.metadata([TOPIC])
    ids = {TOPIC: metadata.topics[TOPIC].topic_id}
    producer = Producer(client.connection(metadata.leader(TOPIC, 0)), ids)
    written = 0
    while written < records:
        batches = []
        for partition in PARTITIONS:
            count = min(_BATCH_RECORDS, records - written)
            if count:
                batches.append((partition, _batch(written, count, partition.partition)))
            written += count
        for answer in producer.call(batches, client.request_timeout):
            check(answer.error, f"writing {answer.partition}", answer.message)
        tell(written)


class LiveProducer:
    """Appends orders at a steady rate in a thread of its own, until stopped."""

    def __init__(self, client: ClusterClient, first: int) -> None:
        self._client = client
        self._next = first
        self._first = first
        self._error: WireError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="demo-producer", daemon=True)

    @property
    def written(self) -> int:
        """Orders that the cluster has confirmed."""
        return self._next - self._first

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def halt(self) -> None:
        """Tell it to end, and do not wait."""
        self._stopping.set()

    def stop(self) -> None:
        """End after the batch under way; raises what broke the producer, if something did."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _loop(self) -> None:
        count = round(LIVE_PER_SECOND * _LIVE_SECONDS)
        turn = 0
        due = time.monotonic()
        try:
            while not self._stopping.is_set():
                partition = PARTITIONS[turn % len(PARTITIONS)]
                log.append(self._client, partition, _batch(self._next, count, partition.partition))
                self._next += count
                turn += 1
                due = max(due + _LIVE_SECONDS, time.monotonic() - 1.0)
                self._stopping.wait(due - time.monotonic())
        except WireError as error:
            self._error = error


def _batch(first: int, count: int, partition: int) -> memoryview:
    return build(_orders(first, count, partition))


def _orders(first: int, count: int, partition: int) -> Iterator[Record]:
    """Each order once, so that a record that came twice cannot pass for another."""
    now = int(time.time() * 1000)
    for number in range(first, first + count):
        # All orders of a customer are in one partition, as any keyed producer would have it.
        customer = number * 7919 % _CUSTOMERS * len(PARTITIONS) + partition
        value = b'{"order":%d,"customer":%d,"item":"%b","quantity":%d,"cents":%d,"placed":%d}' % (
            number, customer, _ITEMS[number % len(_ITEMS)], number % 5 + 1,
            number * 37 % 50_000 + 99, now,
        )  # fmt: skip
        yield Record(0, now, b"customer-%d" % customer, value, _HEADERS)
