"""The source side of a copy: fetch sessions, and batches turned into signed ones. In executors.

One fetch is in flight per source broker; the next is sent as soon as an answer was taken in, while
fewer than ``fetch_max_bytes`` wait to be written.

Most batches are enqueued as they were read. Those that begin a run or a leader epoch, or follow
refused records, wait for what `Announcer` writes before them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from heliograph.batch.lanes import pieces
from heliograph.batch.pieces import (
    SKIPPED,
    CorruptBatch,
    Guarded,
    NewEpoch,
    Piece,
    Refused,
)
from heliograph.copy.announcing import Announcer, Work
from heliograph.copy.background import Background
from heliograph.copy.broker_link import BrokerLink, ask_others, throttle
from heliograph.copy.lease_state import LeaseState
from heliograph.copy.links import Cluster
from heliograph.copy.partition import Gap, Outgoing, PartitionCopy, gaps
from heliograph.copy.unresponsive_brokers import SILENT_SECONDS
from heliograph.copy.writing import TargetSide
from heliograph.errors import PartitionError
from heliograph.ledger.epochs import UNKNOWN_EPOCH, EpochMark
from heliograph.model import TopicPartition
from heliograph.wire.connection import Connection
from heliograph.wire.errors import (
    NONE,
    OFFSET_OUT_OF_RANGE,
    WireError,
    error_name,
    is_retriable,
)
from heliograph.wire.fetch import Fetched, FetchSession
from heliograph.wire.rights import reason

#: As the Java consumer's fetch.max.wait.ms: how long an idle broker holds a fetch.
_FETCH_WAIT_MS = 500
#: With more than this queued, a lease that is about to end writes it instead of fetching more.
_BACKLOG_BYTES = 1 << 20
_BACKLOG_DRAIN_SECONDS = 0.15
#: One answer is this part of what a lease may hold at most.
_ANSWER_PART = 4
#: A partition's share of one answer; a larger batch is still returned whole (KIP-74).
_PARTITION_MIN_BYTES = 1 << 20
#: A target this far away answers so late that five batches in flight must be large ones: there,
#: batches of up to this size are merged, although passing them through costs less.
_FAR_SECONDS, _FAR_SMALL_BYTES = 0.01, 64 << 10
#: Nobody's records keep the neighbours waiting for longer.
_SLICE_SECONDS = 0.5


@dataclass(slots=True)
class SourceLink(BrokerLink):
    """A source broker: its fetch session over a connection of its own."""

    session: FetchSession

    @property
    def connection(self) -> Connection:
        """The session's connection."""
        return self.session.connection


class SourceSide:
    """Reads partitions and hands signed batches, and gaps between them, to the target side."""

    def __init__(
        self,
        lease_state: LeaseState,
        cluster: Cluster,
        target: TargetSide,
        background: Background,
    ) -> None:
        self._state = lease_state
        self._cluster = cluster
        self._target = target
        self._background = background
        self.links: dict[int, SourceLink] = {}
        #: Answers that were taken in only in part.
        self._works: dict[TopicPartition, Work] = {}
        self._announcer = Announcer(lease_state, target.cluster, background, self._enqueue)
        self._limit = (
            f"{lease_state.context.flow.source} limits what we read (consumer_byte_rate of this"
            " client id or user)"
        )
        lease_state.detach.append(self._detach)

    def know(self, ids: Mapping[str, uuid.UUID]) -> None:
        """``ids`` are the source's topics now: drop connections that speak of others."""
        for link in list(self.links.values()):
            if link.connection.closed or not link.session.knows(ids):
                self.lose(link, "the source's topics changed")

    def attach(
        self, p: PartitionCopy, ids: Mapping[str, uuid.UUID], source_start: int | None = None
    ) -> bool:
        """Begin reading a partition at its position, or at ``source_start``, which is behind it.

        Returns False if there is no connection to its leader.
        """
        link = self.links.get(p.source_leader)
        if link is None:
            connection = self._cluster.take(p.source_leader)
            if connection is None:
                return False
            # What one answer brings on top of what is waiting is part of the budget, too.
            most = min(self._state.context.fetch_max_bytes, self._state.budget // _ANSWER_PART)
            session = FetchSession(
                connection,
                ids,
                read_committed=self._state.context.read_committed,
                max_bytes=most,
                partition_max_bytes=max(most // 2, _PARTITION_MIN_BYTES),
            )
            self.links[p.source_leader] = SourceLink(p.source_leader, session)
        if source_start is not None:
            self._pass_gap(p, source_start)
        self.want_more(p)
        return True

    def _detach(self, p: PartitionCopy) -> None:
        self._works.pop(p.source, None)
        link = self.links.get(p.source_leader)
        if link is not None:
            link.session.drop(p.source)

    def want_more(self, p: PartitionCopy) -> None:
        """Read on, unless enough is queued or all that the lease asks for was read."""
        session = self.links[p.source_leader].session
        if p.looking:
            p.reading = False
            session.drop(p.source)
            if p.settled:
                self._look_first(p)
            return
        if p.ending is not None:
            # What could be read before it is mirrored first.
            p.reading = False
            session.drop(p.source)
            if p.settled:
                self._state.fail(p, p.ending)
            return
        full = p.queued_bytes > self._state.context.fetch_max_bytes or self._target.room.is_aside(p)
        full = full or p.announcing or p.source in self._works
        finished = p.lease.until is not None and p.position >= p.lease.until
        p.reading = not (full or finished)
        if full or finished:
            session.drop(p.source)
        else:
            # A leader of another epoch may have another log: resume looks into that.
            session.want(p.source, p.position, p.source_epoch)

    def fetch(self) -> None:
        """Ask every broker that owes us nothing for more, while there is room for it."""
        left = self._state.lease.deadline - time.time()
        if not self._target.room.has_room():
            return
        if self._state.buffered > _BACKLOG_BYTES and left < _BACKLOG_DRAIN_SECONDS:
            return
        wait = max(0, min(_FETCH_WAIT_MS, int(left * 1000)))
        now = time.monotonic()
        for link in list(self.links.values()):
            if (
                link.session.in_flight
                and now >= link.ask_again_at
                and not link.connection.throttled
            ):
                led = [p.source for p in self._state.read_from(link.node)]
                ask_others(link, self.links, led, self._cluster, self._background, self.lose)
            if not link.session.in_flight and link.session.partitions:
                if link.connection.throttled:
                    # The broker does not read: a request would only wait in its socket.
                    continue
                try:
                    link.ask_again_at = now + wait / 1000 + SILENT_SECONDS
                    link.session.send(wait)
                except WireError as error:
                    self.lose(link, str(error))

    def react(self, link: SourceLink) -> None:
        """Take in what a broker said, if it is whole."""
        try:
            link.connection.flush()
            answer = link.session.receive()
        except WireError as error:
            self.lose(link, str(error))
            return
        if seconds := link.connection.throttled:
            throttle(link.node, self._state.read_from(link.node), seconds, self._limit)
        if answer:
            self._ingest(answer)

    def lose(self, link: SourceLink, why: str) -> None:
        """Drop a connection; its partitions are resumed, wherever their leaders are then."""
        link.connection.close()
        self.links.pop(link.node, None)
        for p in self._state.read_from(link.node):
            self._state.disturb(p, why)

    def settle(self) -> None:
        """Write down how far the source was read behind its last record, at the end of a lease.

        What is there (markers, aborted data) may be deleted before the next record comes; nobody
        shall take that for a loss.
        """
        for p in self._state.parts.values():
            if p.settled and p.position > p.contiguous:
                runs, _ = p.stage([(p.position, 0)])
                self._announcer.add(Work(p, runs=runs))
        self._announcer.announce()

    def release(self) -> None:
        """Close the sessions and give the connections back."""
        for link in self.links.values():
            try:
                if link.session.in_flight:
                    link.connection.close()
                link.session.close_session()
            except WireError:
                link.connection.close()
            self._cluster.give_back(link.node, link.connection)

    # -- taking in ----------------------------------------------------------------------------

    def _ingest(self, answer: Sequence[Fetched]) -> None:
        works: list[Work] = []
        for fetched in answer:
            p = self._state.parts.get(fetched.partition)
            if p is None or not p.active or fetched.offset != p.position:
                # Never asked for, which is damage; or asked for before the partition was resumed
                # elsewhere: the next fetch knows better.
                continue
            if fetched.error != NONE:
                self._refused(p, fetched.error)
            elif p.tail_unread and fetched.records and p.lease.guard is None:
                self._look_first(p)
            else:
                works.append(Work(p, fetched))
        self._advance(works)

    def _look_first(self, p: PartitionCopy) -> None:
        """There is something to write: resume, and read what stands in the target's log."""
        p.must_read_tail = True
        self._state.disturb(p, f"looking at {p.target} before it is written", pause=False)

    @property
    def has_work(self) -> bool:
        """Whether there are answers that were taken in only in part, and room for the rest."""
        return any(self._has_room(source) for source in self._works)

    def go_on(self) -> None:
        """Take in more of the answers that took too long the last time."""
        self._announcer.tick()
        if self._works:
            self._advance([w for source, w in self._works.items() if self._has_room(source)])

    def _has_room(self, source: TopicPartition) -> bool:
        p = self._state.parts[source]
        enough = self._state.context.fetch_max_bytes
        if p.announcing:
            return False
        return (
            p.queued_bytes <= enough
            and self._target.room.has_room()
            and not self._target.room.is_aside(p)
        )

    def _advance(self, works: Sequence[Work]) -> None:
        for work in works:
            p = work.p
            try:
                # What was yielded before an error stays.
                self._stage_some(work)
            except CorruptBatch as error:
                text = f"{p.source} on {self._state.context.flow.source}: {error}"
                hint = "repair or delete the damaged records on the source; other partitions go on"
                p.ending = PartitionError("source.corrupt", text, hint)
            except PartitionError as error:
                p.ending = error
            if p.ending is not None:
                self._works.pop(p.source, None)
            # Whoever announced these records otherwise may still write them.
            if p.contradicts and not self._state.predecessor_ended(p):
                continue
            p.contradicts = False
            work.size = sum(len(item.data) for item in work.staged if isinstance(item, Outgoing))
            self._state.hold(p, work.size)
            if work.must_be_noted:
                self._announcer.add(work)
            else:
                self._enqueue(work)
        self._announcer.announce()

    def _enqueue(self, work: Work) -> None:
        """Hand what was staged to the target side, and read on."""
        p, staged = work.p, work.staged
        work.staged, work.size = [], 0
        for item in staged:
            self._target.enqueue(p, item)
        self.want_more(p)

    def _stage_some(self, work: Work) -> None:
        """Take in an answer, or as much of it as its neighbours have the patience for.

        A few bytes may expand to gigabytes of records that have to be built anew.
        """
        p = work.p
        if work.items is None:
            work.items = self._stage(work)
        until = time.monotonic() + _SLICE_SECONDS
        for item in work.items:
            work.staged.append(item)
            if time.monotonic() >= until:
                self._works[p.source] = work
                return
        self._works.pop(p.source, None)

    def _stage(self, work: Work) -> Iterator[Outgoing | Gap]:
        """What is to be written, in order; what the ledger must hold before that is noted."""
        p, fetched, rules = work.p, work.fetched, work.p.rules
        assert fetched is not None  # noqa: S101 - only settling has none
        if self._target.distance(p) >= _FAR_SECONDS:
            rules = rules._replace(small_bytes=_FAR_SMALL_BYTES)
        signature, read_ms = self._state.context.producer_id, int(time.time() * 1000)
        for piece in pieces(fetched.records, p.position, fetched.aborted, rules, p.epoch):
            if p.tail_unread and isinstance(piece, Piece | Refused):
                self._stop_before(work, _first_offset(piece))
                return
            if isinstance(piece, Piece):
                sequence = p.sequence
                runs, missing = p.stage(piece.runs)
                if runs:
                    work.runs += runs
                    yield from gaps(missing)
                p.position = piece.next_offset
                newest_ms = piece.header.max_timestamp
                if newest_ms >= 0:
                    p.age.add(read_ms - newest_ms)
                yield Outgoing(
                    piece.signed(signature, p.era.wire(sequence), p.era.epoch),
                    sequence,
                    piece.record_count,
                    piece.runs,
                    piece.next_offset,
                    newest_ms,
                    piece.lane,
                )
            elif isinstance(piece, int):
                p.position = piece
                p.lanes[SKIPPED] += 1
            elif isinstance(piece, Guarded):
                p.pass_guarded(piece.next_offset)
                p.lanes[SKIPPED] += 1
            elif isinstance(piece, NewEpoch):
                # An earlier one than was announced: of records that nobody wrote, and the source
                # has lost since.
                anew = piece.epoch < p.epoch
                p.contradicts, p.epoch = p.contradicts or anew, piece.epoch
                leader = p.source_epoch if anew else UNKNOWN_EPOCH
                mark = EpochMark(p.sequence, piece.epoch, anew, p.position, leader)
                work.marks.append(mark)
            else:
                self._refuse(p, piece)
                work.refused.append(piece)
        if p.fills and p.position > p.contiguous:
            if p.tail_unread:
                self._stop_before(work, p.position)
                return
            # Markers and aborted data at the end: nothing may follow for long, but whoever has read
            # the source to its end must find the same end on the target.
            runs, missing = p.stage([(p.position, 0)])
            work.runs += runs
            yield from gaps(missing)

    def _stop_before(self, work: Work, source: int) -> None:
        """Read no further than ``source``: the target's log is looked at before what is there.

        What is skipped before it is announced, so that it need not be read again.
        """
        p = work.p
        work.marks = [mark for mark in work.marks if mark.sequence < p.sequence]
        if p.guarded and source > p.contiguous:
            runs, _ = p.stage([(source, 0)])
            work.runs += runs
        p.position, p.looking = source, True

    def _refuse(self, p: PartitionCopy, refused: Refused) -> None:
        """Raise PartitionError if there is no quarantine for a record that the target refuses."""
        context, record = self._state.context, refused.record
        first = "raise max.message.bytes of the target topic, or " if refused.curable else ""
        if context.quarantine_topic is None:
            raise PartitionError(
                "target.refused",
                f"{p.target} on {context.flow.target} cannot take the record at source offset"
                f" {record.offset} of {p.source}: {refused.reason}",
                f"{first}set heliograph.on.refused=quarantine to set such records aside",
            )

    def _refused(self, p: PartitionCopy, code: int) -> None:
        if code == OFFSET_OUT_OF_RANGE:
            # Retention, truncation, or a new leader: resume finds out.
            p.overrun = True
            self._state.disturb(
                p, f"{p.source} has no offset {p.position} on the source", pause=p.attempts > 0
            )
        elif is_retriable(code):
            self._state.disturb(p, f"reading {p.source}: {error_name(code)}")
        else:
            source = self._state.context.flow.source
            text = f"{p.source} cannot be read from {source}: {error_name(code)}"
            hint = reason(self._state.context.source, code, "Read", p.source.topic) or ""
            self._state.fail(p, PartitionError("source.refused", text, hint))

    def _pass_gap(self, p: PartitionCopy, start: int) -> None:
        """Go on behind what the source has deleted: announced at once, and the gap is filled."""
        p.position = start
        runs, missing = p.stage([(start, 0)])
        work = Work(p, staged=[*gaps(missing)], runs=runs)
        if work.must_be_noted:
            self._announcer.add(work)
            self._announcer.announce()
        else:
            self._enqueue(work)


def _first_offset(piece: Piece | Refused) -> int:
    return piece.runs[0][0] if isinstance(piece, Piece) else piece.record.offset
