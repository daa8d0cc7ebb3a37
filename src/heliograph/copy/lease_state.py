"""What the two sides of a copy share: the lease, its partitions, and the states that they pass.

Runs in executors, in the thread of the copy loop. A partition is resumed (`begin`), copied
(`start`), and whatever goes wrong with it ends here: it is taken off both sides and waits to be
resumed from the target's truth (`disturb`, `postpone`), or fails and is tried again later (`fail`).
Nobody else changes that.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from heliograph.copy.budget import budget
from heliograph.copy.clocks import set_back
from heliograph.copy.partition import (
    PREDECESSOR_ENDING,
    MustWait,
    Outgoing,
    PartitionCopy,
    Started,
)
from heliograph.errors import PartitionError
from heliograph.ledger.store import LedgerStore
from heliograph.model import (
    FlowContext,
    Lease,
    PartitionEvent,
    PartitionReport,
    PartitionState,
    TopicPartition,
)

#: What a writer that was killed had sent by then is on the target after this time.
SETTLE_SECONDS = 0.5
_BACKOFF_FIRST_SECONDS, _BACKOFF_MOST_SECONDS = 0.05, 2.0
#: What has failed is tried again after as long as it has been failing, within these bounds.
_FAILED_LEAST_SECONDS, _FAILED_MOST_SECONDS = 1.0, 30.0


class LeaseState:
    """The partitions of one lease. ``buffered`` counts the bytes queued and in flight.

    ``events`` are those of `add_event`, in order; ``failures`` counts how often one failed.
    """

    def __init__(self, lease: Lease, ledger: LedgerStore, *, again: bool = False) -> None:
        self.lease = lease
        self.ledger = ledger
        codec = lease.context.codec
        self.parts = {p.source: PartitionCopy.of(p, codec) for p in lease.partitions}
        settled = time.time() + SETTLE_SECONDS if again else 0.0
        for p in self.parts.values():
            p.markers_from = max(lease.markers_from, settled)
            if p.failing is not None:
                # When the holder before would have tried it, should its clock be right.
                p.retry_at = min(p.failing.retry_at, lease.starts_at + _FAILED_MOST_SECONDS)
        self.by_target = {p.target: p for p in self.parts.values()}
        self.unsettled: set[TopicPartition] = set(self.parts)
        self.buffered = 0
        #: Those of them that wait for the ledger or the quarantine.
        self.unannounced = 0
        #: The same as ``buffered``, by target broker.
        self.held: Counter[int] = Counter()
        self.budget = budget(lease.context)
        self.detach: list[Callable[[PartitionCopy], None]] = []
        #: Called when all that was staged of a partition moves by so many target offsets.
        self.moved: list[Callable[[PartitionCopy, int], None]] = []
        self.events: list[PartitionEvent] = []
        self.failures = 0

    @property
    def context(self) -> FlowContext:
        """The flow that the lease belongs to."""
        return self.lease.context

    def begin(self, p: PartitionCopy) -> None:
        """An attempt to resume a partition begins."""
        self.forget_queue(p)
        p.failed = None

    def start(self, p: PartitionCopy, found: Started) -> None:
        """A partition was resumed: copy it from where that found."""
        p.start(found.position, found.announced_ahead)
        p.tail_unread = found.tail_unread
        if found.known is not None:
            p.known, p.known_in = found.known, p.place
        self.unsettled.discard(p.source)

    def wait(self, p: PartitionCopy, outcome: MustWait) -> None:
        """A partition could not be resumed yet."""
        if outcome.progress:
            p.attempts = 0
        if outcome.until is not None and outcome.until > time.time():
            self.postpone(p, outcome.until, str(outcome))
        else:
            self.disturb(p, str(outcome))

    def predecessor_ended(self, p: PartitionCopy) -> bool:
        """`PartitionCopy.may_mark`; if not, the partition is resumed when it can be true."""
        if not p.may_mark:
            self.postpone(p, p.markers_from, PREDECESSOR_ENDING)
        return p.may_mark

    def shift(self, p: PartitionCopy, offsets: int) -> None:
        """What was staged of a partition and is not acknowledged moves by so many target offsets.

        The ledger's runs do not move with it: that is the caller's to write.
        """
        p.target_next += offsets
        for moved in self.moved:
            moved(p, offsets)

    def disturb(self, p: PartitionCopy, why: str, *, pause: bool = True) -> None:
        """Stop copying a partition until it is resumed, after a growing pause."""
        for detach in self.detach:
            detach(p)
        p.broken, p.active = why, False
        p.announcing = False
        p.shifting.clear()
        p.disturbed_at = p.disturbed_at or time.time()
        p.disturbance = why or p.disturbance
        self.unsettled.add(p.source)
        if pause and p.failed is None:
            wait = min(_BACKOFF_FIRST_SECONDS * 2 ** min(p.attempts, 10), _BACKOFF_MOST_SECONDS)
            p.retry_at = time.time() + wait
            p.attempts += 1

    def postpone(self, p: PartitionCopy, until: float, why: str) -> None:
        """Stop copying a partition and resume it at a given time."""
        self.disturb(p, why, pause=False)
        p.retry_at = until

    def fail(self, p: PartitionCopy, error: PartitionError) -> None:
        """A partition cannot be copied as things are. Its neighbours go on.

        It is tried again after a while; not in a lease that ends at an offset, whose receipt has
        the error.
        """
        self.disturb(p, "", pause=False)
        now = time.time()
        since = p.failing.since if p.failing is not None else now
        wait = min(max(now - since, _FAILED_LEAST_SECONDS), _FAILED_MOST_SECONDS)
        again = now + wait if p.lease.until is None else 0.0
        flow, text = self.context.label, str(error)
        self.failures += 1
        p.failed = error
        p.failing = PartitionReport(
            flow, p.source, PartitionState.FAILED, since, text, error.code, again
        )
        p.retry_at = again or float("inf")
        # What is in flight is still to be answered and counted; the rest must not take up room.
        waiting = sum(len(item.data) for item in p.queue if isinstance(item, Outgoing))
        p.queue.clear()
        self.free(p, waiting)

    def add_event(
        self,
        p: PartitionCopy,
        code: str,
        text: str,
        first: int = -1,
        until: int = -1,
        policy: str = "",
    ) -> None:
        """Keep an event for the driver and its operators: live, and again in the receipt."""
        flow = self.context.label
        self.events.append(
            PartitionEvent(flow, p.source, code, text, first, until, time.time(), policy)
        )

    def forget_queue(self, p: PartitionCopy) -> None:
        """What was queued will be read again from where the target ends."""
        self.free(p, p.queued_bytes)

    def hold(self, p: PartitionCopy, size: int) -> None:
        """So many bytes more wait to be written and acknowledged."""
        p.queued_bytes += size
        self.buffered += size
        self.held[p.held_by] += size

    def free(self, p: PartitionCopy, size: int) -> None:
        """So many bytes less."""
        self.hold(p, -size)

    def leave_behind(self, located: Iterable[PartitionCopy]) -> None:
        """Resume the others of a topic that turned out to be a new one under its old name.

        Somebody who has nothing to write would otherwise go on speaking of the old one.
        """
        new = {p.source.topic: p.place for p in located if p.place is not None}
        for p in self.parts.values():
            place = new.get(p.source.topic)
            if place is None or p.place is None:
                continue
            if (p.place.source_id, p.place.target_id) != (place.source_id, place.target_id):
                p.place = None
                self.disturb(p, f"{p.source.topic} or its copy was created anew", pause=False)

    def topic_ids(self) -> tuple[dict[str, uuid.UUID], dict[str, uuid.UUID]]:
        """The ids of the topics on the source and on the target, as last located."""
        placed = [(p, p.place) for p in self.parts.values() if p.place is not None]
        return (
            {p.source.topic: place.source_id for p, place in placed},
            {p.target.topic: place.target_id for p, place in placed},
        )

    def read_from(self, node: int) -> Iterator[PartitionCopy]:
        """The partitions that are being copied from a broker of the source."""
        return (p for p in self.parts.values() if p.source_leader == node and p.active)

    def written_to(self, node: int) -> Iterator[PartitionCopy]:
        """The partitions that are being copied to a broker of the target."""
        return (p for p in self.parts.values() if p.held_by == node and p.active)

    def due(self, now: float) -> list[PartitionCopy]:
        """Partitions to resume now: nothing of theirs is in flight any more."""
        waiting = (self.parts[source] for source in self.unsettled)
        return [
            p
            for p in waiting
            if not p.in_flight and (p.retry_at <= now or set_back(self.lease, now, p.retry_at))
        ]

    def next_retry(self) -> float:
        """When `due` has something again, as far as that is known."""
        waiting = (self.parts[source] for source in self.unsettled)
        times = (p.retry_at for p in waiting if not p.in_flight)
        return min(times, default=float("inf"))
