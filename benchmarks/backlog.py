"""What there is to copy, and how much of it the ends of a mirror's partitions stand for."""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position

from benchmarks.bench import PARTITIONS, QUIET, MeasureError
from heliograph.model import TopicPartition

__all__ = ["Backlog"]

_PATIENCE_SECONDS = 60.0
_MESSAGES = 10_000  # handed out at once


@dataclass(frozen=True, slots=True)
class Backlog:
    """The offsets of the visible records of a topic, ascending, by partition."""

    offsets: tuple[Sequence[int], ...]

    @classmethod
    def whole(cls, ends: Mapping[TopicPartition, int]) -> Backlog:
        """Of a topic where every offset up to its end is a visible record."""
        return cls(tuple(range(ends[partition]) for partition in sorted(ends)))

    @classmethod
    def read(cls, bootstrap: str, topic: str) -> Backlog:
        """Of any topic, by reading it as a read_committed consumer that is none of the mirrors'.

        Raises:
            MeasureError: the end was not reached in time.
            KafkaException: the cluster does not answer.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.queue.backoff.ms": 10,  # it otherwise rests for a second after 64 MB
                **QUIET,
            }
        )
        offsets = [array("q") for _ in range(PARTITIONS)]
        unfinished = set(range(PARTITIONS))
        deadline = time.monotonic() + _PATIENCE_SECONDS
        try:
            consumer.assign([Position(topic, i, OFFSET_BEGINNING) for i in unfinished])
            while unfinished:
                if time.monotonic() > deadline:
                    raise MeasureError(f"{topic} could not be read in {_PATIENCE_SECONDS:.0f} s")
                for message in consumer.consume(_MESSAGES, 0.1):
                    error = message.error()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    partition, offset = message.partition(), message.offset()
                    assert partition is not None
                    assert offset is not None
                    if error is None:
                        offsets[partition].append(offset)
                    else:
                        unfinished.discard(partition)
        finally:
            consumer.close()
        return cls(tuple(offsets))

    @property
    def records(self) -> int:
        """How many there are to copy."""
        return sum(map(len, self.offsets))

    def copied(self, ends: Mapping[TopicPartition, int], *, identical: bool) -> int:
        """How many records a mirror has on the target when its partitions end at ``ends``.

        Args:
            ends: of the partitions on the target; absent ones hold nothing.
            identical: whether the mirror gives records the offsets that they have on the source;
                otherwise it numbers them without gaps.
        """
        if not identical:
            return sum(ends.values())
        return sum(bisect_left(self.offsets[p.partition], end) for p, end in ends.items())
