"""A steady load, and how long its records fail to arrive: in processes of their own."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized, SynchronizedArray

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as Assigned

from benchmarks.bench import QUIET

__all__ = ["EVERY_SECONDS", "PARTITIONS", "Seen", "produce", "watch"]

PARTITIONS = 2
EVERY_SECONDS = 0.05
_FRESH_SECONDS = 1.0


@dataclass(frozen=True)
class Seen:
    """What a consumer has seen, by connector; shared with its process.

    Attributes:
        gaps: the longest time without a new record in a partition, since it was set to 0.
        ended: when that gap was over, by the clock.
        since: when the partition that waits longest had its last record; 0: one had none yet.
        newest: the lowest of the highest numbers of its partitions; -1: one had none yet.
    """

    gaps: SynchronizedArray[float]
    ended: SynchronizedArray[float]
    since: SynchronizedArray[float]
    newest: SynchronizedArray[int]

    @classmethod
    def of(cls, count: int) -> Seen:
        """Nothing yet."""
        new = multiprocessing.get_context("spawn").Array
        return cls(new("d", count), new("d", count), new("d", count), new("q", [-1] * count))

    def forget(self) -> None:
        """A new event begins."""
        for index in range(len(self.gaps)):
            self.gaps[index] = 0.0

    def fresh(self) -> bool:
        """Whether all partitions get records now."""
        return min(self.since[:]) > time.monotonic() - _FRESH_SECONDS


def produce(
    bootstrap: str, topics: Sequence[str], written: Synchronized[int], stop: Synchronized[int]
) -> None:
    """A record to each partition every 50 ms: 0, 1, 2 ...; ``written`` is how many each has."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner, which then stops us
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **QUIET})
    number, began = 0, time.monotonic()
    while not stop.value:
        for topic in topics:
            for partition in range(PARTITIONS):
                producer.produce(topic, f"{number}".encode(), partition=partition)
        producer.poll(0)
        number += 1
        time.sleep(max(0.0, began + number * EVERY_SECONDS - time.monotonic()))
    producer.flush()
    written.value = number


def watch(sides: Sequence[tuple[str, Sequence[str], Seen]], stop: Synchronized[int]) -> None:
    """Fills what is seen of each side: bootstrap servers, topics; a thread for each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threads = [threading.Thread(target=_watch_side, args=(*side, stop)) for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _watch_side(bootstrap: str, topics: Sequence[str], seen: Seen, stop: Synchronized[int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "connect-workers",
                         "enable.auto.commit": False, **QUIET})  # fmt: skip
    places = {(topic, p): n for n, topic in enumerate(topics) for p in range(PARTITIONS)}
    consumer.assign([Assigned(topic, p, OFFSET_BEGINNING) for topic, p in places])
    last: dict[tuple[str, int], float] = {}
    highest = dict.fromkeys(places, -1)

    def note(index: int, gap: float) -> None:
        if gap > seen.gaps[index]:
            seen.gaps[index], seen.ended[index] = gap, time.time()

    while not stop.value:
        messages = consumer.consume(500, 0.02)
        now = time.monotonic()
        for message in messages:
            topic, partition, value = message.topic(), message.partition(), message.value()
            if message.error() or topic is None or partition is None or value is None:
                continue
            place, number = (topic, partition), int(value)
            # What is there twice is nothing new.
            if number > highest[place]:
                note(places[place], now - last.get(place, now))
                highest[place], last[place] = number, now
        for index, topic in enumerate(topics):
            own = [(topic, p) for p in range(PARTITIONS)]
            seen.newest[index] = min(highest[place] for place in own)
            if all(place in last for place in own):
                seen.since[index] = min(last[place] for place in own)
                # Nothing comes: the gap grows while it lasts.
                note(index, now - seen.since[index])
    consumer.close()
