"""Writes down what was acknowledged, beside the copy loop. Runs in executors.

Often enough that what a kill leaves open is small: whoever goes on has to read that much of a log.
And at the end of every lease, so that the next one need not read anything.
"""

from __future__ import annotations

import time

from heliograph.batch.records import Record, build
from heliograph.copy.background import Background
from heliograph.copy.links import Cluster
from heliograph.copy.partition import PartitionCopy
from heliograph.copy.side_writes import SideWriter
from heliograph.ledger.codec import Acknowledged, encode_known
from heliograph.model import FlowContext, TopicPartition
from heliograph.wire.connection import Connection
from heliograph.wire.errors import WireError

#: What was acknowledged is written down after so many seconds or bytes of a lease.
_SECONDS, _BYTES = 2.0, 64 << 20
#: Positions in one request: well below the default max.message.bytes.
_AT_ONCE = 2000


class KnownPositions:
    """What the ledger does not know yet of the partitions of one lease."""

    def __init__(self, context: FlowContext, target: Cluster, background: Background) -> None:
        self._writer = SideWriter(target, TopicPartition(context.ledger_topic, 0), background)
        self._waiting: dict[TopicPartition, PartitionCopy] = {}
        self._sent: dict[TopicPartition, PartitionCopy] = {}
        self._bytes = 0
        self._next_due = time.monotonic() + _SECONDS

    @property
    def connection(self) -> Connection | None:
        """See `SideWriter.connection`."""
        return self._writer.connection

    def acknowledged(self, p: PartitionCopy, size: int) -> None:
        """More of a partition is on the target than was written down."""
        self._waiting[p.source] = p
        self._bytes += size

    def pump(self, now: float) -> None:
        """Take in the answer to the request before, if it is here; then send what is due."""
        try:
            # Also when nothing is due: an answer that nobody reads would wake the loop for ever.
            free = self._writer.is_free()
            due = self._waiting and (now >= self._next_due or self._bytes >= _BYTES)
            if free and due:
                self._send(now)
        except WireError:
            self._waiting = self._sent | self._waiting
            self._next_due, self._bytes = now + _SECONDS, 0

    def _send(self, now: float) -> None:
        self._next_due, self._bytes = now + _SECONDS, 0
        self._sent = dict(list(self._waiting.items())[:_AT_ONCE])
        for name in self._sent:
            del self._waiting[name]
        stamp = int(time.time() * 1000)
        noted = [
            Acknowledged(p.known_in, p.known)
            for p in self._sent.values()
            if p.known is not None and p.known_in is not None
        ]
        if noted:
            self._writer.send(build(Record(0, stamp, *encode_known(n)) for n in noted))

    def finish(self, until: float) -> None:
        """Write all of it, at the end of a lease, and give the connection back.

        If that fails, or takes longer than until a monotonic time, the next lease finds out by
        itself, at the cost of reading.
        """
        try:
            while self._waiting or self._writer.busy:
                self._writer.wait(until)
                self._send(time.monotonic())
        except WireError:
            return
        self._writer.give_back()
