"""Writes MM2's offset syncs beside the copy loop, which never waits for it. Runs in executors."""

from __future__ import annotations

import time

from heliograph.batch.records import Record, build
from heliograph.copy.links import Cluster
from heliograph.ledger.offset_syncs import OffsetSyncs
from heliograph.model import FlowContext, TopicPartition
from heliograph.wire.connection import Connection
from heliograph.wire.errors import WireError
from heliograph.wire.produce import Producer

#: Due syncs are gathered this long, so that a fast backlog does not write one per batch.
_SPACING_SECONDS = 0.1
#: Delayed syncs go out this often (MM2: at offset.flush.interval.ms, 60 s).
_DELAYED_SECONDS = 1.0


class OffsetSyncWriter:
    """One request in flight at most; the latest sync of each partition waits for the next one.

    As in MM2 a failed write is not an error of the mirror: the next sync says more.
    """

    def __init__(self, context: FlowContext, source: Cluster, target: Cluster) -> None:
        place = context.offset_syncs
        self._syncs = OffsetSyncs(context.offset_lag_max)
        self._enabled = place is not None
        self._cluster = source if place is not None and place.on_source else target
        self._partition = TopicPartition(place.topic if place else "", 0)
        self._node = -1
        self._producer: Producer | None = None
        self._next_due = 0.0
        self._next_delayed = 0.0

    @property
    def connection(self) -> Connection | None:
        """To be watched for reading by the loop's selector, while an answer is due.

        Not else: a broker that hangs up would wake the loop for ever.
        """
        waiting = self._producer is not None and self._producer.connection.in_flight
        return self._producer.connection if self._producer and waiting else None

    def acknowledged(self, partition: TopicPartition, first: int, last: int, target: int) -> None:
        """See OffsetSyncs.acknowledged."""
        if self._enabled:
            self._syncs.acknowledged(partition, first, last, target)

    def pump(self, now: float, *, flush: bool = False) -> None:
        """Read an answer if there is one; send what is due."""
        if not self._enabled:
            return
        try:
            if self._producer is not None and self._producer.connection.in_flight:
                self._producer.connection.flush()
                if self._producer.receive() is None:
                    return
            self._send(now, flush)
        except WireError:
            self.close()
            self._next_due = now + 1.0

    def _send(self, now: float, flush: bool) -> None:
        delayed = flush or now >= self._next_delayed
        if not flush and not (now >= self._next_due and (self._syncs.due or delayed)):
            return
        if delayed:
            self._next_delayed = now + _DELAYED_SECONDS
        syncs = self._syncs.take(delayed=delayed)
        if not syncs:
            return
        self._next_due = now + _SPACING_SECONDS
        if self._producer is None:
            self._open()
        stamp = int(time.time() * 1000)
        batch = build(Record(0, stamp, *sync.encode()) for sync in syncs)
        assert self._producer is not None  # noqa: S101 - opened above
        self._producer.send([(self._partition, batch)])

    def _open(self) -> None:
        metadata = self._cluster.client.metadata([self._partition.topic])
        self._node = metadata.leader(self._partition.topic, 0)
        ids = {t.name: t.topic_id for t in metadata.topics.values()}
        self._producer = Producer(self._cluster.take(self._node), ids)

    def finish(self) -> None:
        """Write what is left and give the connection back."""
        if self._producer is None and not self._enabled:
            return
        try:
            if self._producer is not None and self._producer.connection.in_flight:
                self._producer.connection.wait(2.0)
            self._send(time.monotonic(), flush=True)
            if self._producer is not None:
                if self._producer.connection.in_flight:
                    self._producer.connection.wait(2.0)
                self._cluster.give_back(self._node, self._producer.connection)
                self._producer = None
        except WireError:
            self.close()

    def close(self) -> None:
        """Drop the connection; its request has an unknown outcome."""
        if self._producer is not None:
            self._producer.connection.close()
            self._producer = None
