"""Reads a partition, the next answer on its way while one is looked at. Runs in executors."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

from heliograph.batch.header import BatchHeader, batches
from heliograph.batch.pieces import AbortedTransactions
from heliograph.model import TopicPartition
from heliograph.verify.streams import Batch
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import (
    NONE,
    OFFSET_OUT_OF_RANGE,
    BrokerError,
    ConnectionFailed,
    WireError,
    is_retriable,
)
from heliograph.wire.fetch import Fetched, FetchSession
from heliograph.wire.rights import reason

__all__ = ["LogStartMoved", "read_batches"]

_ANSWER_BYTES = 4 << 20
_WAIT_MS = 100
#: Answers without a record, in a row, after which there are no more: compaction removed the rest.
_EMPTY_ANSWERS = 3
#: How long reading goes on through leader changes and reconnects.
_PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.2


class LogStartMoved(Exception):
    """Retention was there before us: the log begins at ``start`` now."""

    def __init__(self, start: int) -> None:
        super().__init__(f"the log begins at {start} now")
        self.start = start


def read_batches(
    client: ClusterClient,
    partition: TopicPartition,
    topic_id: uuid.UUID,
    begin: int,
    end: int,
    *,
    read_committed: bool,
    see: Callable[[BatchHeader], None] | None = None,
) -> Iterator[Batch]:
    """The batches that hold data of offsets [``begin``, ``end``), as far as the log has any.

    Markers are left out, and with ``read_committed`` aborted data too. The first and the last batch
    may hold more than was asked for. ``see`` is told of every batch, those that are left out
    and the first one behind ``end`` as well.

    Raises:
        LogStartMoved: the log begins behind ``begin``.
        WireError: the cluster does not answer, or does not let us read.
    """
    reader = _Reader(client, partition, topic_id, read_committed)
    for fetched in reader.answers(begin, end):
        transactions = AbortedTransactions(fetched.aborted)
        for header, data in batches(fetched.records):
            if see is not None:
                see(header)
            if header.base_offset >= end:
                return
            if header.magic == 2:
                if (header.transactional or header.control) and transactions.skips(
                    header.last_offset, header.producer_id, control=header.control
                ):
                    continue
                if header.last_offset < begin or header.record_count == 0:
                    continue
            yield Batch(header, data)


class _Reader:
    def __init__(
        self,
        client: ClusterClient,
        partition: TopicPartition,
        topic_id: uuid.UUID,
        read_committed: bool,
    ) -> None:
        self._client = client
        self._partition = partition
        self._topic_id = topic_id
        self._read_committed = read_committed

    def answers(self, begin: int, end: int) -> Iterator[Fetched]:
        """Fetch answers from ``begin`` on; asks for the next one before it hands one out."""
        position, empty = begin, 0
        session: FetchSession | None = None
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        try:
            while position < end:
                try:
                    if session is None:
                        session = self._ask(position)
                    fetched = self._answer(session)
                    following = position if fetched is None else _behind(fetched, position)
                except WireError as error:
                    self._drop(session)
                    session = None
                    if not is_retriable(error) or time.monotonic() > give_up_at:
                        raise
                    time.sleep(_PAUSE_SECONDS)
                    continue
                give_up_at = time.monotonic() + _PATIENCE_SECONDS
                if fetched is not None and fetched.error == OFFSET_OUT_OF_RANGE:
                    self._require_start(position)
                    return
                empty = empty + 1 if following == position else 0
                if empty >= _EMPTY_ANSWERS or self._is_over(fetched, following):
                    end = following
                position = following
                if position < end:
                    session.want(self._partition, position)
                    session.send(_WAIT_MS)
                if fetched is not None and fetched.records:
                    yield fetched
        finally:
            self._drop(session)

    def _is_over(self, fetched: Fetched | None, position: int) -> bool:
        if fetched is None:
            return False
        end = fetched.last_stable_offset if self._read_committed else fetched.high_watermark
        return 0 <= end <= position

    def _ask(self, position: int) -> FetchSession:
        topic, index = self._partition
        metadata = self._client.metadata([topic])
        leader = metadata.leader(topic, index)
        if leader < 0:
            raise ConnectionFailed(f"{self._partition} on {self._client.alias} has no leader")
        session = FetchSession(
            self._client.connection(leader), {topic: self._topic_id},
            read_committed=self._read_committed, max_bytes=_ANSWER_BYTES,
            partition_max_bytes=_ANSWER_BYTES,
        )  # fmt: skip
        session.want(self._partition, position)
        session.send(_WAIT_MS)
        return session

    def _answer(self, session: FetchSession) -> Fetched | None:
        """What the broker says; None if it has nothing to say."""
        answer = session.wait(self._client.request_timeout)
        if not answer:
            return None
        [fetched] = answer
        if fetched.error not in {NONE, OFFSET_OUT_OF_RANGE}:
            what = f"reading {self._partition} of cluster {self._client.alias}"
            why = reason(self._client.settings, fetched.error, "Read", self._partition.topic)
            raise BrokerError(fetched.error, what, why)
        return fetched

    def _require_start(self, position: int) -> None:
        """Find out why an offset is out of range; returns if it lies behind the log's end."""
        metadata = self._client.metadata([self._partition.topic])
        found = admin.list_offsets(self._client, metadata, [self._partition], admin.EARLIEST)
        start = found.get(self._partition)
        if start is None:
            raise ConnectionFailed(f"the leader of {self._partition} did not answer")
        if position < start:
            raise LogStartMoved(start)

    def _drop(self, session: FetchSession | None) -> None:
        """End the conversation; an answer that is still on its way goes with its connection."""
        if session is None:
            return
        try:
            if session.in_flight:
                session.connection.close()
            session.close_session()
        except WireError:
            session.connection.close()


def _behind(fetched: Fetched, position: int) -> int:
    """The offset behind the last whole batch."""
    last = None
    for header, batch in batches(fetched.records):
        last = (header, batch)
    if last is None:
        return position
    header, _ = last
    # Of an older message only its own offset is known, which is that of its last record.
    following = header.last_offset + 1 if header.magic == 2 else header.base_offset + 1
    return max(position, following)
