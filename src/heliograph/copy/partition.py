"""One partition while it is being copied: positions, what is queued, what is in flight.

Runs in executors. Invariants:
- ``sequence`` and ``target`` belong to the next record to be queued, ``position`` to the next to be
  fetched; ``ack_target`` is the offset that the next acknowledged batch must have;
- queue and in_flight together hold consecutive sequences, oldest in flight first;
- while ``alone``, one request is in flight at most: a broker that remembers no sequence would take
  the second batch where it refused the first; ``holed`` is one that it refused;
- ``source_epoch`` is the leader epoch of the source as located, ``epoch`` that of the records read
  last; ``truncated_at`` is where the source ends if that is before what was mirrored;
- ``ending`` is why the partition fails as soon as what was read before is acknowledged;
- ``failed`` is why the last attempt ended, None during the next one; ``failing`` stands from the
  first failure, ``disturbed_at`` from the first disturbance, until an attempt is ``proven`` good;
- ``reading`` while the next fetch asks for more, and nothing but a new position changes that;
- ``queued_bytes`` wait for, or at, the broker ``held_by``;
- ``reached`` is where the log of the target topic ``reached_in`` ended, as far as is known; the
  fields ``foreign_...`` are what was found in it that is not ours, and what was told of that;
- where gaps are filled, every batch holds consecutive source offsets, and a Gap stands before each
  that does not follow the one before.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from heliograph.batch.pieces import Rules
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Place
from heliograph.ledger.runs import Run
from heliograph.model import LeasedPartition, PartitionReport, Receipt, TopicPartition


@dataclass(slots=True)
class Outgoing:
    """A signed batch on its way; ``runs`` are the source offsets of its records."""

    data: memoryview
    sequence: int
    count: int
    runs: list[tuple[int, int]]
    next_source: int

    @property
    def first_source(self) -> int:
        """Source offset of the first record."""
        return self.runs[0][0]

    @property
    def last_source(self) -> int:
        """Source offset of the last record."""
        start, count = self.runs[-1]
        return start + count - 1

    def offsets(self) -> list[int]:
        """The source offset of every record."""
        return [offset for start, count in self.runs for offset in range(start, start + count)]


class Gap(NamedTuple):
    """Offsets that the source does not have: so many markers go where they would be."""

    markers: int


@dataclass(slots=True)
class Position:
    """Where copying goes on: the truth that `resume` found on the target.

    ``missing`` markers are still to be written before the record with ``target``. ``remembered``
    says whether the broker knows the signature's last sequence: one that does not takes any.
    ``epoch`` is the source's, of what comes next, as far as that was read before (-1: it was not).
    """

    sequence: int
    source: int
    target: int
    missing: int = 0
    remembered: bool = False
    epoch: int = -1


@dataclass(slots=True)
class PartitionCopy:
    """The state of one partition within a lease."""

    lease: LeasedPartition
    source: TopicPartition
    target: TopicPartition
    place: Place | None = None
    source_leader: int = -1
    source_epoch: int = -1
    target_leader: int = -1
    active: bool = False
    reading: bool = False
    position: int = 0
    contiguous: int = 0
    sequence: int = 0
    target_next: int = 0
    ack_target: int = 0
    acked_source: int = -1
    queue: deque[Outgoing | Gap] = field(default_factory=deque)
    in_flight: deque[Outgoing | Gap] = field(default_factory=deque)
    queued_bytes: int = 0
    held_by: int = -1
    foretold: deque[Run] = field(default_factory=deque)
    contradicts: bool = False
    epoch: int = -1
    truncated_at: int | None = None
    alone: bool = True
    holed: Outgoing | None = None
    rules: Rules = field(default_factory=Rules)
    markers_from: float = 0.0
    looked_at: float = 0.0
    quarantined: int = 0
    broken: str = ""
    failed: PartitionError | None = None
    failing: PartitionReport | None = None
    disturbed_at: float = 0.0
    disturbance: str = ""
    throttled_until: float = 0.0
    throttled_by: str = ""
    reached: int = 0
    reached_in: uuid.UUID | None = None
    foreign_first: int = 0
    foreign_last: int = 0
    foreign_count: int = 0
    foreign_told: float = 0.0
    ending: PartitionError | None = None
    retry_at: float = 0.0
    attempts: int = 0
    resumes: int = 0
    records: int = 0
    bytes: int = 0
    batches: int = 0

    @property
    def may_mark(self) -> bool:
        """Whether the writer before had certainly ended when this one looked at the target.

        Not whether it has by now: what it wrote in between would be written a second time.
        """
        return self.looked_at >= self.markers_from

    @classmethod
    def of(cls, lease: LeasedPartition, codec: int | None) -> PartitionCopy:
        """A partition that has not been resumed yet."""
        source = lease.source
        rules = Rules(max_bytes=lease.max_bytes, one_run=lease.identical, codec=codec)
        target = TopicPartition(lease.target_topic, source.partition)
        return cls(
            lease,
            source,
            target,
            rules=rules,
            failing=lease.failing,
            reached=lease.reached,
            reached_in=lease.reached_in,
        )

    def start(self, position: Position, foretold: Iterable[Run] = ()) -> None:
        """Begin, or begin again, at what the target holds.

        ``foretold`` are the runs that somebody announced for what is still to be written.
        """
        self.foretold, self.contradicts = deque(foretold), False
        self.queue.clear()
        self.in_flight.clear()
        self.queued_bytes = 0
        self.sequence, self.epoch = position.sequence, position.epoch
        self.position = self.contiguous = self.acked_source = position.source
        self.target_next = position.target
        self.ack_target = position.target - position.missing
        self.queue.extend(gaps(position.missing))
        self.alone = not position.remembered
        self.holed = None
        self.broken, self.ending = "", None
        self.active = True
        self.resumes += 1

    def stage(self, runs: list[tuple[int, int]]) -> tuple[list[Run], int]:
        """Account for runs of source offsets; one without records tells how far there is nothing.

        Returns the runs that the ledger must hold before they are sent, and how many markers go
        before them.
        """
        announced: list[Run] = []
        missing = 0
        for source, count in runs:
            if source != self.contiguous:
                if self.fills and source - self.target_next <= MOST_MARKERS:
                    missing = max(source - self.target_next, 0)
                    self.target_next += missing
                if count or not self._is_foretold_behind(source):
                    announced.append(Run(self.sequence, source, self.target_next))
            if self.foretold:
                announced += self._contradictions(source, count)
            self.contiguous = source + count
            self.sequence += count
            self.target_next += count
        return announced, missing

    def _is_foretold_behind(self, source: int) -> bool:
        """Whether somebody who read further has announced the next record, at ``source`` or behind.

        That nothing is before ``source`` is no news then.
        """
        told = self.foretold[0] if self.foretold else None
        return told is not None and told.sequence == self.sequence and told.source >= source

    def _contradictions(self, source: int, count: int) -> list[Run]:
        """Runs that were foretold for the next ``count`` records and turn out to be wrong.

        Somebody announced records that were gone (compaction) before anybody wrote them.
        """
        found: list[Run] = []
        while self.foretold and self.foretold[0].sequence < self.sequence + count:
            told = self.foretold.popleft()
            beyond = told.sequence - self.sequence
            if beyond >= 0 and told.source != source + beyond:
                if beyond:
                    found.append(Run(told.sequence, source + beyond, self.target_next + beyond))
                # The correction takes what is behind it along.
                self.foretold.clear()
                self.contradicts = True
        return found

    def acknowledged(self, outgoing: Outgoing, base_offset: int) -> None:
        """A batch is on the target at ``base_offset``."""
        self.ack_target = self.reached = base_offset + outgoing.count
        self.acked_source = outgoing.next_source
        self.records += outgoing.count
        self.bytes += len(outgoing.data)
        self.batches += 1
        self.attempts = 0
        if self.failing is not None or self.disturbed_at:
            self.proven()

    def proven(self) -> None:
        """Copying works, whatever was before."""
        self.failing, self.disturbed_at = None, 0.0

    @property
    def undisturbed(self) -> bool:
        """Whether there is nothing to say of it but that it is copied."""
        return (
            self.active
            and self.failing is None
            and not self.disturbed_at
            and not self.throttled_until
            and not self.quarantined
        )

    def receipt(self, flow: str) -> Receipt:
        """What became of the partition."""
        return Receipt(
            flow=flow,
            topic=self.source.topic,
            partition=self.source.partition,
            source_position=self._mirrored_to,
            target_end=self.ack_target,
            records=self.records,
            bytes=self.bytes,
            batches=self.batches,
            resumes=max(self.resumes - 1, 0),
            quarantined=self.quarantined,
            error=self.failing.why if self.failing else self.broken or str(self.ending or ""),
        )

    @property
    def fills(self) -> bool:
        """Whether gaps are filled.

        Never where the target is behind the source already: whoever began densely goes on so. Where
        it is ahead (a foreign write), the next gaps make up for it.
        """
        return self.lease.identical and self.target_next >= self.contiguous

    @property
    def _mirrored_to(self) -> int:
        """The next source offset that is not on the target; markers and holes need no copy."""
        settled = self.active and not self.queue and not self.in_flight
        return self.position if settled else self.acked_source

    @property
    def done(self) -> bool:
        """Whether all that the lease asks for was acknowledged."""
        until = self.lease.until
        return (
            until is not None
            and self.active
            and self.position >= until
            and not self.queue
            and not self.in_flight
        )


#: A longer gap is not filled: it would take minutes.
MOST_MARKERS = 1_000_000
#: One request writes so many markers into a partition at most: the broker appends each alone.
_MARKERS_AT_ONCE = 500


def gaps(missing: int) -> list[Gap]:
    """Cut ``missing`` markers into requests."""
    whole, rest = divmod(missing, _MARKERS_AT_ONCE)
    return [Gap(_MARKERS_AT_ONCE)] * whole + ([Gap(rest)] if rest else [])
