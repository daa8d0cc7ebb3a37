"""Where many partitions end, asked again and again. Runs in the driver, one thread an instance.

ListOffsets by hand: requests are encoded once, and an answer that is byte for byte the one before
is not decoded, so that thousands of partitions at rest cost next to nothing. v2 is the last version
without leader epochs, which nobody needs here; every broker from 0.11 to 4.x takes it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping

from heliograph.batch.header import batches
from heliograph.model import TopicPartition
from heliograph.wire.admin import LATEST, by_leader
from heliograph.wire.border import reading
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.compact import read_string, string
from heliograph.wire.errors import NONE, WireError
from heliograph.wire.fetch import FetchSession
from heliograph.wire.metadata import Metadata

__all__ = ["EndsQuery", "timestamps_at"]

_API_KEY, _VERSION = 2, 2
_THROTTLE, _COUNT = struct.Struct(">i"), struct.Struct(">i")
_ASKED = struct.Struct(">iq")
_ANSWERED = struct.Struct(">ihqq")
#: A partition's share of an answer: a batch of a producer with default settings.
_PARTITION_BYTES = 64 << 10
_ANSWER_BYTES = 2 << 20


class EndsQuery:
    """Ends of partitions of one cluster: high watermarks, or last stable offsets.

    ``found`` are the ends of the partitions whose leaders answered. ``changed`` are the partitions
    whose end is another than the last time, or was or is not known. ``silent`` are the brokers that
    did not answer, with the error.
    """

    def __init__(self, client: ClusterClient, *, read_committed: bool = False) -> None:
        self._client = client
        self._head = struct.pack(">ib", -1, int(read_committed))
        self._asked: tuple[Metadata, Collection[TopicPartition]] | None = None
        self._requests: dict[int, bytes] = {}
        #: The last answer of each broker, and what was in it.
        self._answers: dict[int, tuple[bytes, dict[TopicPartition, int]]] = {}
        self.found: dict[TopicPartition, int] = {}
        self.changed: set[TopicPartition] = set()
        self.silent: dict[int, WireError] = {}

    def ask(
        self,
        metadata: Metadata,
        partitions: Collection[TopicPartition],
        leave_out: Collection[int] = (),
    ) -> None:
        """Ask every leader.

        Brokers in ``leave_out`` are not asked. Call with the same objects as the last time if
        neither has changed: that is recognised by identity.
        """
        asked = self._asked
        if asked is None or asked[0] is not metadata or asked[1] is not partitions:
            self._asked = metadata, partitions
            self._requests = {
                node: self._encode(topics)
                for node, topics in by_leader(metadata, partitions).items()
            }
            self._answers = {}
        before = self._answers
        self._answers, self.silent = {}, {}
        for node, request in self._requests.items():
            if node in leave_out:
                continue
            try:
                self._answers[node] = self._ask(node, request, before.get(node))
            except WireError as error:
                self.silent[node] = error
        if self._answers == before and before:
            self.changed = set()
            return
        old, self.found = self.found, {}
        for _, ends in self._answers.values():
            self.found |= ends
        self.changed = {p for p, _ in self.found.items() ^ old.items()}

    def _encode(self, topics: Mapping[str, list[int]]) -> bytes:
        out = bytearray(self._head + _COUNT.pack(len(topics)))
        for name, indexes in topics.items():
            out += string(name) + _COUNT.pack(len(indexes))
            for index in indexes:
                out += _ASKED.pack(index, LATEST)
        return bytes(out)

    def _ask(
        self, node: int, request: bytes, before: tuple[bytes, dict[TopicPartition, int]] | None
    ) -> tuple[bytes, dict[TopicPartition, int]]:
        """The answer without how long the broker throttles us, and what is in it."""
        with self._client.lent(node) as connection:
            connection.send(_API_KEY, _VERSION, False, [request])
            answer = connection.wait(self._client.request_timeout)
            with reading(connection, "an answer to ListOffsets"):
                connection.throttle(_THROTTLE.unpack_from(answer)[0])
                told = bytes(answer[_THROTTLE.size :])
                return before if before and before[0] == told else (told, _decode(memoryview(told)))


def _decode(answer: memoryview) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    (topics,), position = _COUNT.unpack_from(answer), _COUNT.size
    for _ in range(topics):
        name, position = read_string(answer, position, False)
        (partitions,) = _COUNT.unpack_from(answer, position)
        position += _COUNT.size
        for _ in range(partitions):
            index, error, _timestamp, offset = _ANSWERED.unpack_from(answer, position)
            position += _ANSWERED.size
            if error == NONE:
                found[TopicPartition(name or "", index)] = offset
    return found


def timestamps_at(
    client: ClusterClient, metadata: Metadata, positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, float]:
    """When the records at some offsets were written, in seconds since the epoch, by their batches.

    One request a broker, for at most some megabytes. Partitions that do not fit, that have no
    record there or whose broker does not answer are absent; of each broker's, the first fits.
    """
    found: dict[TopicPartition, float] = {}
    for node, topics in by_leader(metadata, positions).items():
        ids = {name: metadata.topics[name].topic_id for name in topics}
        try:
            with client.lent(node) as connection:
                session = FetchSession(
                    connection, ids, read_committed=False, max_bytes=_ANSWER_BYTES,
                    partition_max_bytes=_PARTITION_BYTES, single=True,
                )  # fmt: skip
                for name, indexes in topics.items():
                    for index in indexes:
                        p = TopicPartition(name, index)
                        session.want(p, positions[p])
                session.send(0, 0)
                answer = session.wait(client.request_timeout)
        except WireError:
            continue
        for fetched in answer:
            written = _written(fetched.records, fetched.offset) if not fetched.error else None
            if written is not None:
                found[fetched.partition] = written
    return found


def _written(records: memoryview, offset: int) -> float | None:
    """The time that the first record at or behind ``offset`` bears, as exactly as its batch."""
    for header, _ in batches(records):
        if header.magic >= 2 and header.last_offset >= offset and not header.control:
            stamp = header.max_timestamp if header.log_append_time else header.base_timestamp
            return stamp / 1000 if stamp >= 0 else None
    return None
