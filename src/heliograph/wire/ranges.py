"""Reading pieces of many partitions at once, each until its reader has had enough.

One request asks a broker for all partitions that it leads, so a thousand of them are a few dozen
requests. Runs in the driver and in executors, in one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafka.protocol.consumer import ListOffsetsRequest

from heliograph.model import TopicPartition
from heliograph.wire.admin import by_leader
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import (
    NONE,
    OFFSET_OUT_OF_RANGE,
    BrokerError,
    ConnectionFailed,
    is_retriable,
)
from heliograph.wire.fetch import Fetched, FetchSession

__all__ = ["PARTITION_BYTES", "Take", "offsets_at", "read_ranges"]

#: Takes an answer and says where to read on; None: that was enough.
Take = Callable[[Fetched], int | None]

#: How long reading goes on through leader changes and reconnects.
_PATIENCE_SECONDS = 30.0
_ANSWER_BYTES = 16 << 20
#: A partition's share of an answer: a few batches of a producer with default settings.
PARTITION_BYTES = 64 << 10
#: A batch that is larger than its share comes cut off: then again with so much more.
_LARGER = 32
#: Answers without a record, in a row, after which there are no more: what lies between a position
#: and the log's end may have been removed by compaction.
_EMPTY_ANSWERS = 2


def read_ranges(
    client: ClusterClient,
    starts: Mapping[TopicPartition, int],
    take: Take,
    *,
    read_committed: bool = False,
    partition_bytes: int = PARTITION_BYTES,
    patience: float = _PATIENCE_SECONDS,
) -> dict[TopicPartition, BrokerError]:
    """Read partitions from their ``starts`` on, until `take` returns None or the log ends.

    With ``read_committed`` the log ends at its last stable offset; aborted batches are still in the
    answers, named by ``Fetched.aborted``. An offset out of range ends a partition, and `take` is
    not told. Returns the partitions that brokers refused to read; raises WireError if a cluster
    does not answer for as long as ``patience``.
    """
    pending = dict(starts)
    refused: dict[TopicPartition, BrokerError] = {}
    size = partition_bytes
    while pending:
        cut: dict[TopicPartition, int] = {}
        reading = _Reading(client, pending, take, cut, refused, read_committed, size)
        client.retry(reading.run, patience)
        pending, size = cut, size * _LARGER
    return refused


class _Reading:
    """One pass over what is ``pending``; what came cut off is moved to ``cut``."""

    def __init__(
        self,
        client: ClusterClient,
        pending: dict[TopicPartition, int],
        take: Take,
        cut: dict[TopicPartition, int],
        refused: dict[TopicPartition, BrokerError],
        read_committed: bool,
        partition_bytes: int,
    ) -> None:
        self._client = client
        self._pending = pending
        self._take = take
        self._cut = cut
        self._refused = refused
        self._read_committed = read_committed
        self._partition_bytes = partition_bytes

    def run(self) -> None:
        """Read all; whoever calls again after an error goes on where reading stopped."""
        while self._pending:
            metadata = self._client.metadata(sorted({p.topic for p in self._pending}))
            groups = by_leader(metadata, self._pending)
            led = sum(len(indexes) for topics in groups.values() for indexes in topics.values())
            if led < len(self._pending):
                raise ConnectionFailed(f"some partitions of {self._client.alias} have no leader")
            for node, topics in groups.items():
                ids = {name: metadata.topics[name].topic_id for name in topics}
                mine = {TopicPartition(n, i) for n, indexes in topics.items() for i in indexes}
                with self._client.lent(node) as connection:
                    session = FetchSession(
                        connection, ids,
                        read_committed=self._read_committed, max_bytes=_ANSWER_BYTES,
                        partition_max_bytes=self._partition_bytes,
                    )  # fmt: skip
                    self._converse(session, mine)

    def _converse(self, session: FetchSession, mine: set[TopicPartition]) -> None:
        for partition in mine:
            session.want(partition, self._pending[partition])
        empty = 0
        while mine and empty < _EMPTY_ANSWERS:
            session.send(0, 0)
            answer = session.wait(self._client.request_timeout)
            empty = 0 if any(f.records or f.error for f in answer) else empty + 1
            for fetched in answer:
                following = self._answered(fetched)
                if following is None:
                    mine.discard(fetched.partition)
                    self._pending.pop(fetched.partition, None)
                    session.drop(fetched.partition)
                else:
                    self._pending[fetched.partition] = following
                    session.want(fetched.partition, following)
        for partition in mine:
            del self._pending[partition]
        session.close_session()

    def _answered(self, fetched: Fetched) -> int | None:
        """Where to read on, None if the partition is done."""
        partition = fetched.partition
        if fetched.error != NONE:
            if fetched.error == OFFSET_OUT_OF_RANGE:
                return None
            what = f"reading {partition} of cluster {self._client.alias}"
            error = BrokerError(fetched.error, what)
            if is_retriable(error):
                raise error
            self._refused[partition] = error
            return None
        end = fetched.last_stable_offset if self._read_committed else fetched.high_watermark
        if fetched.offset >= end:
            return None
        if not fetched.records:
            return fetched.offset
        following = self._take(fetched)
        if following == fetched.offset:
            self._cut[partition] = following
            return None
        return None if following is None or following >= end else following


def offsets_at(
    client: ClusterClient, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The first offset at or behind a timestamp; partitions where there is none are absent."""

    def call() -> dict[TopicPartition, int]:
        metadata = client.metadata(sorted({p.topic for p in times}))
        found: dict[TopicPartition, int] = {}
        for node, topics in by_leader(metadata, times).items():
            answer = client.request(_list_offsets(topics, times), node)
            for topic in answer.topics:
                for p in topic.partitions:
                    if p.error_code == NONE and p.offset >= 0:
                        found[TopicPartition(topic.name, p.partition_index)] = p.offset
        return found

    return client.retry(call, _PATIENCE_SECONDS)


def _list_offsets(
    topics: Mapping[str, Sequence[int]], times: Mapping[TopicPartition, int]
) -> ListOffsetsRequest:
    kind = ListOffsetsRequest.ListOffsetsTopic
    asked = [
        kind(
            name=name,
            partitions=[
                kind.ListOffsetsPartition(
                    partition_index=index,
                    current_leader_epoch=-1,
                    timestamp=times[TopicPartition(name, index)],
                )
                for index in indexes
            ],
        )
        for name, indexes in topics.items()
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=asked)
