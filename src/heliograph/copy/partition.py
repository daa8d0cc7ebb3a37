"""One partition while it is being copied: positions, what is queued, what is in flight.

Runs in executors. Invariants:
- ``sequence`` and ``target`` belong to the next record to be queued, ``position`` to the next to be
  fetched; ``ack_target`` is the offset that the next acknowledged batch must have;
- queue and in_flight together hold consecutive sequences, oldest in flight first;
- while ``one_in_flight``, that is the most: a broker that remembers no sequence would take the
  second batch where it refused the first; ``holed`` is one that it refused;
- ``source_epoch`` is the leader epoch of the source as located, ``epoch`` that of the records read
  last; ``truncated_at`` is where the source ends if that is before what was mirrored;
- before ``settled_at``, requests that were given up may still be executed;
- ``stale`` is a sequence that the broker remembers and copying cannot go on from, with the one that
  it should go on from; ``stale_at`` is when that was first answered;
- ``ending`` is why the partition fails as soon as what was read before is acknowledged;
- ``failed`` is why the last attempt ended, None during the next one; ``failing`` stands from the
  first failure, ``disturbed_at`` from the first disturbance, until an attempt is ``proven`` good;
- while ``announcing``, what was read last waits for the ledger; ``shifting`` are acknowledgements
  that wait for it, because the batches are not where it says;
- ``overrun`` when the source refused the position: resume looks where its log begins and ends;
- ``too_large`` is why the partition fails, unless its topic takes smaller batches than we thought;
- ``reading`` while the next fetch asks for more, and nothing but a new position changes that;
- ``queued_bytes`` wait for, or at, the broker ``held_by``;
- ``known`` is what this lease found and was acknowledged of the place ``known_in``, ``era`` how its
  batches are numbered;
- while ``tail_unread``, nobody has read what stands in the target's log behind what is known,
  because there was nothing to write; ``must_read_tail`` when there is;
- ``looking`` when nothing is read before that was done;
- ``guarded`` while the gap before the next record holds records that came from the target;
- ``reached`` is where the log of the target topic ``reached_in`` ended, as far as is known; the
  fields ``foreign_...`` are what was found in it that is not ours, and what was told of that;
- where gaps are filled, every batch holds consecutive source offsets, and a Gap stands before each
  that does not follow the one before.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from heliograph.batch.pieces import LANES, REWRITTEN, Rules
from heliograph.copy.counts import Counts, Span
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Place
from heliograph.ledger.known import FIRST_ERA, Era, Known
from heliograph.ledger.runs import Run
from heliograph.model import LeasedPartition, PartitionReport, Receipt, TopicPartition
from heliograph.wire.produce import Produced


@dataclass(slots=True)
class Outgoing:
    """A signed batch on its way; ``runs`` are the source offsets of its records.

    ``newest_ms`` is the greatest timestamp among them, -1 if there is none; ``lane`` the way that
    they took.
    """

    data: memoryview
    sequence: int
    count: int
    runs: list[tuple[int, int]]
    next_source: int
    newest_ms: int = -1
    lane: int = REWRITTEN

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


def unpin(items: Iterable[Outgoing | Gap]) -> None:
    """Copy what has to wait: a batch is a piece of an answer, and keeps all of it in memory."""
    for item in items:
        if isinstance(item, Outgoing):
            item.data = memoryview(bytes(item.data))


@dataclass(slots=True)
class Position:
    """Where copying goes on: the truth that `resume` found on the target.

    ``missing`` markers are still to be written before the record with ``target``. ``remembered``
    says whether the broker knows the signature's last sequence: one that does not takes any.
    ``epoch`` is the source's, of what comes next, as far as that was read before (-1: it was not).
    ``era`` is how sequences are written on the wire.
    """

    sequence: int
    source: int
    target: int
    missing: int = 0
    remembered: bool = False
    epoch: int = -1
    era: Era = FIRST_ERA


PREDECESSOR_ENDING = "the lease before this one is ending"
REMEMBERS_ANOTHER = "the broker remembers another sequence than its log shows; looking again"
#: For so long a broker that answers must remember the same wrong sequence.
STALE_SECONDS = 0.5


class MustWait(Exception):
    """A partition cannot be started yet.

    Attributes:
        until: when to look again; None: after a pause that grows with every attempt.
        progress: whether the attempt has brought it further, so that attempts count anew.
    """

    def __init__(self, why: str, until: float | None = None, *, progress: bool = False) -> None:
        super().__init__(why)
        self.until = until
        self.progress = progress


class Started(NamedTuple):
    """A partition can be copied.

    Attributes:
        announced_ahead: see `PartitionCopy.start`.
        known: what is known of its target log.
        tail_unread: see `PartitionCopy`.
        source_start: where the source's log begins, if that is behind the position.
    """

    position: Position
    announced_ahead: Sequence[Run] = ()
    known: Known | None = None
    tail_unread: bool = False
    source_start: int | None = None


#: What became of an attempt to resume a partition.
Outcome = Started | MustWait | PartitionError


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
    target_epoch: int = -1
    era: Era = FIRST_ERA
    known: Known | None = None
    known_in: Place | None = None
    tail_unread: bool = False
    must_read_tail: bool = False
    looking: bool = False
    guarded: bool = False
    active: bool = False
    reading: bool = False
    announcing: bool = False
    overrun: bool = False
    too_large: PartitionError | None = None
    position: int = 0
    contiguous: int = 0
    sequence: int = 0
    target_next: int = 0
    ack_target: int = 0
    acked_source: int = -1
    queue: deque[Outgoing | Gap] = field(default_factory=deque)
    in_flight: deque[Outgoing | Gap] = field(default_factory=deque)
    shifting: deque[tuple[Outgoing | Gap, Produced]] = field(default_factory=deque)
    queued_bytes: int = 0
    held_by: int = -1
    announced_ahead: deque[Run] = field(default_factory=deque)
    contradicts: bool = False
    epoch: int = -1
    truncated_at: int | None = None
    one_in_flight: bool = True
    holed: Outgoing | None = None
    rules: Rules = field(default_factory=Rules)
    markers_from: float = 0.0
    settled_at: float = 0.0
    stale: tuple[object, int] | None = None
    stale_at: float = 0.0
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
    lanes: list[int] = field(default_factory=lambda: [0] * len(LANES))
    throttled_ms: int = 0
    age: Span = field(default_factory=Span)
    latency: Span = field(default_factory=Span)

    @property
    def may_mark(self) -> bool:
        """Whether the writer before had certainly ended when this one looked at the target.

        Not whether it has by now: what it wrote in between would be written a second time.
        """
        return self.looked_at >= self.markers_from

    def require_predecessor_ended(self, *, settled: bool = False) -> None:
        """Raise MustWait unless `may_mark`: nobody else can write what is about to be written.

        With ``settled``, requests of our own that were given up must also have been executed, or
        lost, when this writer looked at the target.
        """
        since = max(self.markers_from, self.settled_at) if settled else self.markers_from
        if self.looked_at < since:
            raise MustWait(PREDECESSOR_ENDING, since)

    def require_seen_twice(self, producer: tuple[int, int] | None, sequence: int) -> None:
        """Raise MustWait unless the broker gave the same answers ``STALE_SECONDS`` ago.

        A broker takes the first batch of a new era without comparing anything. So no request of an
        earlier era may be on its way any more. One may be if the broker was stopped, whatever our
        clock says; and one that is executed between our two questions looks as if the broker
        remembered something wrong. Both are over when a broker that answers has not changed its
        answers for a while.
        """
        seen = (producer, sequence)
        if self.stale != seen:
            self.stale, self.stale_at = seen, time.time()
            # Most likely the writer before us wrote between our two questions: ask again soon.
            raise MustWait(REMEMBERS_ANOTHER)
        if self.looked_at < self.stale_at + STALE_SECONDS:
            raise MustWait(REMEMBERS_ANOTHER, self.stale_at + STALE_SECONDS)

    @classmethod
    def of(cls, lease: LeasedPartition, codec: int | None) -> PartitionCopy:
        """A partition that has not been resumed yet."""
        source = lease.source
        rules = Rules(max_bytes=lease.max_bytes, one_run=lease.identical, codec=codec)
        if lease.guard is not None:
            rules = rules._replace(guard=lease.guard.producer_ids, guard_since=lease.guard.since)
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

    def start(self, position: Position, announced_ahead: Iterable[Run] = ()) -> None:
        """Begin, or begin again, at what the target holds.

        ``announced_ahead`` are the runs that somebody announced for what is still to be written.
        """
        self.announced_ahead, self.contradicts = deque(announced_ahead), False
        self.queue.clear()
        self.in_flight.clear()
        self.queued_bytes = 0
        self.sequence, self.epoch, self.era = position.sequence, position.epoch, position.era
        self.position = self.contiguous = self.acked_source = position.source
        self.target_next = position.target
        self.ack_target = position.target - position.missing
        self.queue.extend(gaps(position.missing))
        self.one_in_flight = not position.remembered
        self.holed = None
        self.shifting.clear()
        self.announcing = self.overrun = False
        self.broken, self.ending, self.too_large = "", None, None
        self.tail_unread, self.active = False, True
        self.looking = self.guarded = False
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
                # What the target has already is not made up for: those logs differ.
                fill = self.lease.identical and not self.guarded
                at = placed(source, self.contiguous, self.target_next, identical=fill)
                missing, self.target_next = at - self.target_next, at
                if count or not self._is_announced_behind(source):
                    announced.append(Run(self.sequence, source, self.target_next))
            if self.announced_ahead:
                announced += self._contradictions(source, count)
            self.contiguous, self.guarded = source + count, False
            self.sequence += count
            self.target_next += count
        return announced, missing

    def pass_guarded(self, position: int) -> None:
        """What was read up to before ``position`` came from the target.

        So that log has grown without us. If offsets were identical up to here, they may be behind
        the gap, too: whoever writes next looks where the log ends.
        """
        self.position, self.guarded = position, True
        if self.lease.identical and self.contiguous == self.target_next:
            self.tail_unread = True

    def _is_announced_behind(self, source: int) -> bool:
        """Whether somebody who read further has announced the next record, at ``source`` or behind.

        That nothing is before ``source`` is no news then.
        """
        told = self.announced_ahead[0] if self.announced_ahead else None
        return told is not None and told.sequence == self.sequence and told.source >= source

    def _contradictions(self, source: int, count: int) -> list[Run]:
        """Runs that were announced ahead for the next ``count`` records and turn out to be wrong.

        Somebody announced records that were gone (compaction) before anybody wrote them.
        """
        found: list[Run] = []
        while self.announced_ahead and self.announced_ahead[0].sequence < self.sequence + count:
            told = self.announced_ahead.popleft()
            beyond = told.sequence - self.sequence
            if beyond >= 0 and told.source != source + beyond:
                if beyond:
                    found.append(Run(told.sequence, source + beyond, self.target_next + beyond))
                # The correction takes what is behind it along.
                self.announced_ahead.clear()
                self.contradicts = True
        return found

    def acknowledged(self, outgoing: Outgoing, base_offset: int) -> None:
        """A batch is on the target at ``base_offset``."""
        self.ack_target = self.reached = base_offset + outgoing.count
        self.acked_source = outgoing.next_source
        self.known = Known(
            outgoing.sequence + outgoing.count, outgoing.last_source + 1, self.ack_target,
            self.ack_target, self.target_epoch,
        )  # fmt: skip
        self.records += outgoing.count
        self.bytes += len(outgoing.data)
        self.batches += 1
        self.lanes[outgoing.lane] += 1
        if outgoing.newest_ms >= 0:
            self.latency.add(int(time.time() * 1000) - outgoing.newest_ms)
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
            counts=self.counts.encode(),
        )

    @property
    def counts(self) -> Counts:
        """What was done with it in this lease so far."""
        return Counts._make((
            self.records, self.bytes, *self.lanes, max(self.resumes - 1, 0), self.throttled_ms,
            self.age.values, self.latency.values,
        ))  # fmt: skip

    @property
    def touched(self) -> bool:
        """Whether `counts` has anything to say."""
        return bool(
            self.batches or self.resumes > 1 or self.throttled_ms or self.queue or any(self.lanes)
        )

    @property
    def pending(self) -> int:
        """Records that were read and are not acknowledged."""
        waiting = (*self.queue, *self.in_flight)
        return sum(item.count for item in waiting if isinstance(item, Outgoing))

    @property
    def fills(self) -> bool:
        """See `fills_gaps`."""
        fill = self.lease.identical and not self.guarded
        return fills_gaps(self.contiguous, self.target_next, identical=fill)

    @property
    def settled(self) -> bool:
        """Whether it is copied, and all that was read of it is acknowledged."""
        return self.active and not (
            self.queue or self.in_flight or self.announcing or self.shifting
        )

    @property
    def paired(self) -> bool:
        """Whether the flow in the opposite direction mirrors from the target partition."""
        return self.lease.guard is not None and self.lease.guard.paired

    @property
    def _mirrored_to(self) -> int:
        """The next source offset that is not on the target; markers and holes need no copy."""
        return self.position if self.settled else self.acked_source

    @property
    def done(self) -> bool:
        """Whether all that the lease asks for was acknowledged."""
        until = self.lease.until
        return until is not None and self.settled and self.position >= until


#: A longer gap is not filled: it would take minutes.
MOST_MARKERS = 1_000_000
#: One request writes so many markers into a partition at most: the broker appends each alone.
_MARKERS_AT_ONCE = 500


def fills_gaps(source: int, target: int, *, identical: bool) -> bool:
    """Whether the next gap is filled, where records so far end at these two offsets.

    Never where the target is behind the source already: whoever began densely goes on so. Where
    it is ahead (a foreign write), the next gaps make up for it.
    """
    return identical and target >= source


def placed(record: int, source: int, target: int, *, identical: bool) -> int:
    """The target offset of the record at a source offset, behind a gap.

    Records before it end at ``source`` and ``target``. One marker is written for each target offset
    that is left out:

        source    ... r r . . . r      the record is at 8, the gap begins at 5
        identical ... r r m m m r      target 5: it goes to 8, behind 3 markers
        dense     ... r r r            target 5: it goes to 5
    """
    fills = fills_gaps(source, target, identical=identical)
    return max(target, record) if fills and record - target <= MOST_MARKERS else target


def gaps(missing: int) -> list[Gap]:
    """Cut ``missing`` markers into requests."""
    whole, rest = divmod(missing, _MARKERS_AT_ONCE)
    return [Gap(_MARKERS_AT_ONCE)] * whole + ([Gap(rest)] if rest else [])
