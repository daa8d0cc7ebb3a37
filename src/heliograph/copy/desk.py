"""What the two sides of a copy share: the lease, its partitions, and how one is disturbed.

Runs in executors. Whatever goes wrong with a partition ends here: it is taken off both sides and
waits to be resumed from the target's truth (`disturb`), or is given up for this lease (`fail`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from heliograph.copy.partition import Outgoing, PartitionCopy
from heliograph.errors import PartitionError
from heliograph.ledger.store import LedgerStore
from heliograph.model import FlowContext, Lease, TopicPartition

#: What a writer that was killed had sent by then is on the target after this time.
SETTLE_SECONDS = 0.5
_BACKOFF_FIRST_SECONDS, _BACKOFF_MOST_SECONDS = 0.05, 2.0


class Desk:
    """The partitions of one lease. ``buffered`` counts the bytes queued and in flight."""

    def __init__(self, lease: Lease, ledger: LedgerStore, *, again: bool = False) -> None:
        self.lease = lease
        self.ledger = ledger
        codec = lease.context.codec
        self.parts = {p.source: PartitionCopy.of(p, codec) for p in lease.partitions}
        settled = time.time() + SETTLE_SECONDS if again else 0.0
        for p in self.parts.values():
            p.markers_from = max(lease.markers_from, settled)
        self.by_target = {p.target: p for p in self.parts.values()}
        self.unsettled: set[TopicPartition] = set(self.parts)
        self.buffered = 0
        self.detach: list[Callable[[PartitionCopy], None]] = []

    @property
    def context(self) -> FlowContext:
        """The flow that the lease belongs to."""
        return self.lease.context

    def disturb(self, p: PartitionCopy, why: str, *, pause: bool = True) -> None:
        """Stop copying a partition until it is resumed, after a growing pause."""
        for detach in self.detach:
            detach(p)
        p.broken, p.active = why, False
        self.unsettled.add(p.source)
        if pause:
            wait = min(_BACKOFF_FIRST_SECONDS * 2 ** min(p.attempts, 10), _BACKOFF_MOST_SECONDS)
            p.retry_at = time.time() + wait
            p.attempts += 1

    def postpone(self, p: PartitionCopy, until: float, why: str) -> None:
        """Stop copying a partition and resume it at a given time."""
        self.disturb(p, why, pause=False)
        p.retry_at = until

    def fail(self, p: PartitionCopy, error: PartitionError) -> None:
        """Give a partition up for this lease; its neighbours go on."""
        self.disturb(p, "")
        p.failed = str(error)
        # What is in flight is still to be answered and counted; the rest must not take up room.
        waiting = sum(len(item.data) for item in p.queue if isinstance(item, Outgoing))
        p.queue.clear()
        p.queued_bytes -= waiting
        self.buffered -= waiting

    def forget_queue(self, p: PartitionCopy) -> None:
        """What was queued will be read again from where the target ends."""
        self.buffered -= p.queued_bytes
        p.queued_bytes = 0

    def topic_ids(self) -> tuple[dict[str, uuid.UUID], dict[str, uuid.UUID]]:
        """The ids of the topics on the source and on the target, as last located."""
        placed = [(p, p.place) for p in self.parts.values() if p.place is not None]
        return (
            {p.source.topic: place.source_id for p, place in placed},
            {p.target.topic: place.target_id for p, place in placed},
        )

    def due(self, now: float) -> list[PartitionCopy]:
        """Partitions to resume now: nothing of theirs is in flight any more."""
        waiting = (self.parts[source] for source in self.unsettled)
        return [p for p in waiting if not p.in_flight and p.retry_at <= now and not p.failed]

    def next_retry(self) -> float:
        """When `due` has something again, as far as that is known."""
        waiting = (self.parts[source] for source in self.unsettled)
        times = (p.retry_at for p in waiting if not p.failed and not p.in_flight)
        return min(times, default=float("inf"))
