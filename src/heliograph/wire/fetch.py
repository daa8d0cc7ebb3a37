"""Fetch, by hand: the answer's record batches are views into the received frame, never copied.

v13 names topics by id, so that a re-created topic cannot be mistaken for the old one; v11 is for
brokers before 3.1. Sessions (KIP-227) make idle partitions cost nothing: a request carries only the
partitions whose offset changed.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from heliograph.model import TopicPartition
from heliograph.wire.border import reading
from heliograph.wire.compact import count, read_count, read_string, read_uvarint, skip_tags, string
from heliograph.wire.connection import Buffer, Connection
from heliograph.wire.errors import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    check,
)

API_KEY = 1
_BY_NAME, _BY_ID = 11, 13
_FINAL_EPOCH = -1
_SESSION_LOST = frozenset(
    {FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR}
)


#: What comes of counts and sizes that lead out of the answer, and of topics not asked for.


@dataclass(slots=True)
class Fetched:
    """What one fetch said about one partition; ``records`` may end with a partial batch.

    ``offset`` is what was asked for. Whoever moved the partition since must not use the answer: its
    records would look as if everything in between did not exist.
    """

    partition: TopicPartition
    offset: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    aborted: list[tuple[int, int]]
    records: memoryview


class FetchSession:
    """The fetch conversation with one broker over one connection; at most one request in flight.

    Invariant: ``_known`` is what the broker's session holds and what the request in flight asks
    for; ``_changed`` and ``_dropped`` are what the next request must tell it.
    """

    def __init__(
        self,
        connection: Connection,
        topic_ids: Mapping[str, uuid.UUID],
        *,
        read_committed: bool,
        max_bytes: int,
        partition_max_bytes: int,
        single: bool = False,
    ) -> None:
        self.connection = connection
        by_id = connection.supports(API_KEY, _BY_ID) and all(i.int for i in topic_ids.values())
        self._version = _BY_ID if by_id else connection.version(API_KEY, _BY_NAME)
        self._flexible = by_id
        self._topic_ids = topic_ids
        self._topic_names = {i.bytes: name for name, i in topic_ids.items()}
        self._read_committed = read_committed
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._session_id = 0
        # Of a single request the broker need not keep anything.
        self._epoch = _FINAL_EPOCH if single else 0
        self._known: dict[TopicPartition, int] = {}
        self._changed: dict[TopicPartition, int] = {}
        self._dropped: set[TopicPartition] = set()
        self._leader_epochs: dict[TopicPartition, int] = {}
        self.in_flight = False

    def knows(self, topic_ids: Mapping[str, uuid.UUID]) -> bool:
        """Whether it speaks of these topics, in these generations."""
        return topic_ids.items() <= self._topic_ids.items()

    def want(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Fetch this partition from ``offset`` on in the next requests.

        A leader of another epoch answers with an error (-1: any will do).
        """
        self._changed[partition] = offset
        self._leader_epochs[partition] = leader_epoch
        self._dropped.discard(partition)

    def drop(self, partition: TopicPartition) -> None:
        """Leave this partition out of the next requests."""
        self._changed.pop(partition, None)
        if partition in self._known:
            self._dropped.add(partition)

    @property
    def partitions(self) -> int:
        """How many partitions the next request asks for."""
        return len((self._known.keys() | self._changed.keys()) - self._dropped)

    def send(self, max_wait_ms: int, min_bytes: int = 1) -> None:
        """Send the next request of the session."""
        for partition in self._dropped:
            self._known.pop(partition, None)
        self._known.update(self._changed)
        full = self._epoch == 0
        named = self._known if full else self._changed
        forgotten = set() if full else self._dropped
        head = struct.pack(
            ">iiiibii", -1, max_wait_ms, min_bytes, self._max_bytes, int(self._read_committed),
            self._session_id, self._epoch,
        )  # fmt: skip
        parts: list[Buffer] = [head, self._topics(named), self._forgotten(forgotten)]
        parts.append(b"\x01\x00" if self._flexible else string(""))  # rack, tagged fields
        self._changed, self._dropped = {}, set()
        self.connection.send(API_KEY, self._version, self._flexible, parts)
        self.in_flight = True

    def receive(self) -> list[Fetched] | None:
        """The answer to the request in flight, None while it is not here.

        A lost session answers with nothing; the next `send` starts a new one with everything.
        """
        frame = self.connection.receive()
        return None if frame is None else self._answer(frame)

    def wait(self, timeout: float) -> list[Fetched]:
        """As `receive`, waiting for it."""
        return self._answer(self.connection.wait(timeout))

    def _answer(self, frame: memoryview) -> list[Fetched]:
        self.in_flight = False
        with reading(self.connection, "a fetch answer"):
            return self._take(frame)

    def _take(self, frame: memoryview) -> list[Fetched]:
        start = skip_tags(frame, 0) if self._flexible else 0
        throttle_ms, error, session_id = struct.unpack_from(">ihi", frame, start)
        self.connection.throttle(throttle_ms)
        if error in _SESSION_LOST:
            self._session_id = self._epoch = 0
            return []
        check(error, f"fetch from {self.connection.address}")
        # Session id 0: the broker granted none (its cache is full), so every request is a full one.
        self._session_id = session_id
        self._epoch = 0 if session_id == 0 else max(1, (self._epoch + 1) & 0x7FFFFFFF)
        return self._parse(frame, start + 10)

    def close_session(self) -> None:
        """Tell the broker to free the session; the answer is to be waited for by the caller."""
        if self._session_id and not self.in_flight and not self.connection.closed:
            self._epoch, self._known, self._changed = _FINAL_EPOCH, {}, {}
            self.send(0)
            self.connection.wait(5.0)
            self.in_flight = False

    # -- encoding -----------------------------------------------------------------------------

    def _topic(self, name: str) -> bytes:
        return self._topic_ids[name].bytes if self._flexible else string(name)

    def _topics(self, offsets: Mapping[TopicPartition, int]) -> bytes:
        flexible = self._flexible
        tags = b"\0" if flexible else b""
        by_topic: dict[str, list[TopicPartition]] = {}
        for partition in offsets:
            by_topic.setdefault(partition.topic, []).append(partition)
        out = bytearray(count(len(by_topic), flexible))
        for name, partitions in by_topic.items():
            out += self._topic(name) + count(len(partitions), flexible)
            for p in partitions:
                # last fetched epoch -1 (v12+): we have asked before; log start -1
                epoch = struct.pack(">i", -1) if flexible else b""
                leader_epoch = self._leader_epochs[p]
                out += struct.pack(">iiq", p.partition, leader_epoch, offsets[p]) + epoch
                out += struct.pack(">qi", -1, self._partition_max_bytes) + tags
            out += tags
        return bytes(out)

    def _forgotten(self, partitions: set[TopicPartition]) -> bytes:
        flexible = self._flexible
        by_topic: dict[str, list[int]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(partition.partition)
        out = bytearray(count(len(by_topic), flexible))
        for name, indexes in by_topic.items():
            out += self._topic(name) + count(len(indexes), flexible)
            out += struct.pack(f">{len(indexes)}i", *indexes) + (b"\0" if flexible else b"")
        return bytes(out)

    # -- decoding -----------------------------------------------------------------------------

    def _parse(self, frame: memoryview, position: int) -> list[Fetched]:
        flexible = self._flexible
        found: list[Fetched] = []
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
                fetched, position = self._parse_partition(name, frame, position)
                found.append(fetched)
            if flexible:
                position = skip_tags(frame, position)
        return found

    def _parse_partition(self, topic: str, frame: memoryview, position: int) -> tuple[Fetched, int]:
        flexible = self._flexible
        index, error, high, stable, start = struct.unpack_from(">ihqqq", frame, position)
        transactions, position = read_count(frame, position + 30, flexible)
        aborted = []
        for _ in range(transactions):
            aborted.append(struct.unpack_from(">qq", frame, position))
            position += 16
            if flexible:
                position = skip_tags(frame, position)
        position += 4  # preferred read replica: we read from leaders
        if flexible:
            size, position = read_uvarint(frame, position)
            size -= 1
        else:
            (size,) = struct.unpack_from(">i", frame, position)
            position += 4
        size = max(size, 0)
        records = frame[position : position + size]
        position += size
        if flexible:
            position = skip_tags(frame, position)
        key = TopicPartition(topic, index)
        offset = self._known.get(key, -1)
        return Fetched(key, offset, error, high, stable, start, aborted, records), position
