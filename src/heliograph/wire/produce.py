"""Produce, by hand: batches go from the fetched frame to the kernel without being copied.

v13 (Kafka 4.1+) names topics by id, so that a write meant for a topic cannot land in one that was
created anew under its name; v8 is for older brokers. acks=all always.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from heliograph.model import TopicPartition
from heliograph.wire.border import reading
from heliograph.wire.compact import count, read_count, read_string, skip_tags, string, uvarint
from heliograph.wire.connection import Buffer, Connection

_INT = struct.Struct(">i")
_ANSWER = struct.Struct(">ihqqq")
#: What follows an answer by far the most often: no records, no message, no tagged fields.
_FLEXIBLE_REST, _PLAIN_REST = b"\x01\x00\x00", b"\x00\x00\x00\x00\xff\xff"
#: Of an answer, whatever it says: size, correlation id, number of topics, a topic, throttle time.
_ANSWER_BYTES = 20
_NO_RECORDS: Mapping[int, str] = {}

API_KEY = 0
_BY_NAME, _BY_ID = 8, 13
_ACKS_ALL = -1


class Produced(NamedTuple):
    """The broker's word on one batch; ``records`` says what is wrong with which of its records."""

    partition: TopicPartition
    error: int
    base_offset: int
    log_start: int
    message: str | None
    records: Mapping[int, str]


class Producer:
    """Encodes and decodes Produce for one connection.

    The caller keeps the broker's rules: exactly one batch per partition per request, at most five
    requests in flight.
    """

    def __init__(
        self, connection: Connection, topic_ids: Mapping[str, uuid.UUID], timeout_ms: int = 30_000
    ) -> None:
        self.connection = connection
        by_id = connection.supports(API_KEY, _BY_ID) and all(i.int for i in topic_ids.values())
        self._version = _BY_ID if by_id else connection.version(API_KEY, _BY_NAME)
        self._flexible = by_id
        self._topic_ids = topic_ids
        self._topic_names = {i.bytes: name for name, i in topic_ids.items()}
        self._names = {name: i.bytes if by_id else string(name) for name, i in topic_ids.items()}
        self._tags = b"\0" if by_id else b""
        self._usual = _FLEXIBLE_REST if by_id else _PLAIN_REST
        no_transaction = b"\0" if by_id else b"\xff\xff"
        self._head = no_transaction + struct.pack(">hi", _ACKS_ALL, timeout_ms)

    def knows(self, topic_ids: Mapping[str, uuid.UUID]) -> bool:
        """Whether it speaks of these topics, in these generations."""
        return topic_ids.items() <= self._topic_ids.items()

    def send(self, batches: Sequence[tuple[TopicPartition, Buffer]], *, flush: bool = True) -> int:
        """Send one request with one batch for each of some partitions.

        Returns how many bytes its answer has at least. For ``flush`` see `Connection.send`.
        """
        flexible = self._flexible
        by_topic: dict[str, list[tuple[int, Buffer]]] = {}
        for partition, batch in batches:
            by_topic.setdefault(partition.topic, []).append((partition.partition, batch))
        # What stands before the next batch: the end of the one before, and whatever is between.
        head = self._head + count(len(by_topic), flexible)
        parts: list[Buffer] = []
        for name, items in by_topic.items():
            head += self._names[name] + count(len(items), flexible)
            for index, batch in items:
                size = uvarint(len(batch) + 1) if flexible else _INT.pack(len(batch))
                parts.append(head + _INT.pack(index) + size)
                parts.append(batch)
                head = self._tags
            head += self._tags
        parts.append(head + self._tags)
        self.connection.send(API_KEY, self._version, flexible, parts, flush=flush)
        return _ANSWER_BYTES + len(batches) * (_ANSWER.size + len(self._usual))

    def receive(self) -> list[Produced] | None:
        """The next answer, None while it is not here."""
        frame = self.connection.receive()
        return None if frame is None else self.parse(frame)

    def call(
        self, batches: Sequence[tuple[TopicPartition, Buffer]], timeout: float
    ) -> list[Produced]:
        """Send and wait, for small writes."""
        self.send(batches)
        return self.parse(self.connection.wait(timeout))

    def parse(self, frame: memoryview) -> list[Produced]:
        """Decode an answer; a quota that was exceeded is noted at the connection.

        Raises DamagedAnswer, the connection being closed.
        """
        with reading(self.connection, "a produce answer"):
            return self._parse(frame)

    def _parse(self, frame: memoryview) -> list[Produced]:
        flexible = self._flexible
        usual = self._usual
        position = skip_tags(frame, 0) if flexible else 0
        found: list[Produced] = []
        topics, position = read_count(frame, position, flexible)
        for _ in range(topics):
            if flexible:
                name = self._topic_names[bytes(frame[position : position + 16])]
                position += 16
            else:
                text, position = read_string(frame, position, flexible)
                name = text or ""
            partitions, position = read_count(frame, position, flexible)
            for _ in range(partitions):
                index, error, base, _append_ms, start = _ANSWER.unpack_from(frame, position)
                key = TopicPartition(name, index)
                position += _ANSWER.size
                if frame[position : position + len(usual)] == usual:
                    found.append(Produced(key, error, base, start, None, _NO_RECORDS))
                    position += len(usual)
                    continue
                errors, position = read_count(frame, position, flexible)
                records: dict[int, str] = {}
                for _ in range(errors):
                    (record,) = struct.unpack_from(">i", frame, position)
                    text, position = read_string(frame, position + 4, flexible)
                    records[record] = text or ""
                    if flexible:
                        position = skip_tags(frame, position)
                message, position = read_string(frame, position, flexible)
                if flexible:
                    position = skip_tags(frame, position)
                found.append(Produced(key, error, base, start, message, records))
            if flexible:
                position = skip_tags(frame, position)
        self.connection.throttle(_INT.unpack_from(frame, position)[0])
        return found
