"""Writes MM2's offset syncs beside the copy loop, which never waits for it. Runs in executors."""

from __future__ import annotations

import time
from contextlib import suppress

from heliograph.batch.records import Record, build
from heliograph.copy.background import Background
from heliograph.copy.links import Cluster
from heliograph.copy.side_writes import SideWriter
from heliograph.mm2.offset_syncs import OffsetSyncs
from heliograph.model import FlowContext, TopicPartition
from heliograph.wire.connection import Connection
from heliograph.wire.errors import WireError

#: Due syncs are gathered this long, so that a fast backlog does not write one per batch.
_SPACING_SECONDS = 0.1
#: Delayed syncs go out this often (MM2: at offset.flush.interval.ms, 60 s).
_DELAYED_SECONDS = 1.0


class OffsetSyncWriter:
    """The latest sync of each partition waits until the request before is answered.

    As in MM2 a failed write is not an error of the mirror: the next sync says more.
    """

    def __init__(
        self, context: FlowContext, source: Cluster, target: Cluster, background: Background
    ) -> None:
        place = context.offset_syncs
        self._syncs = OffsetSyncs(context.offset_lag_max)
        self._enabled = place is not None
        cluster = source if place is not None and place.on_source else target
        self._writer = SideWriter(
            cluster, TopicPartition(place.topic if place else "", 0), background
        )
        self._next_due = 0.0
        self._next_delayed = 0.0

    @property
    def connection(self) -> Connection | None:
        """See `SideWriter.connection`."""
        return self._writer.connection

    def acknowledged(self, partition: TopicPartition, first: int, last: int, target: int) -> None:
        """See OffsetSyncs.acknowledged."""
        if self._enabled:
            self._syncs.acknowledged(partition, first, last, target)

    def pump(self, now: float) -> None:
        """Read an answer if there is one; send what is due."""
        if not self._enabled:
            return
        try:
            if self._writer.is_free():
                self._send(now)
        except WireError:
            self._next_due = now + 1.0

    def _send(self, now: float, *, flush: bool = False) -> None:
        delayed = flush or now >= self._next_delayed
        if not flush and not (now >= self._next_due and (self._syncs.due or delayed)):
            return
        if delayed:
            self._next_delayed = now + _DELAYED_SECONDS
        syncs = self._syncs.take(delayed=delayed)
        if not syncs:
            return
        self._next_due = now + _SPACING_SECONDS
        stamp = int(time.time() * 1000)
        self._writer.send(build(Record(0, stamp, *sync.encode()) for sync in syncs))

    def finish(self, until: float) -> None:
        """Write what is left until a monotonic time, and give the connection back."""
        if not self._enabled:
            return
        with suppress(WireError):
            self._writer.wait(until)
            self._send(time.monotonic(), flush=True)
            self._writer.wait(until)
        self._writer.give_back()
