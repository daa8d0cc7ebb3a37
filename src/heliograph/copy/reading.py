"""The source side of a copy: fetch sessions, and batches turned into signed ones. In executors.

One fetch is in flight per source broker; the next is sent as soon as an answer was taken in, while
fewer than ``fetch_max_bytes`` wait to be written.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from heliograph.batch.lanes import pieces
from heliograph.batch.pieces import CorruptBatch, NewEpoch, Piece, Refused
from heliograph.copy.desk import Desk
from heliograph.copy.links import Cluster
from heliograph.copy.partition import Gap, Outgoing, PartitionCopy, gaps
from heliograph.copy.quarantine import set_aside
from heliograph.copy.resume import Resumer
from heliograph.copy.silence import ASK_SECONDS, SILENT_SECONDS
from heliograph.copy.writing import TargetSide
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Entry, Epoch
from heliograph.ledger.epochs import EpochMark
from heliograph.ledger.runs import PartitionLedger, Run
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


@dataclass(slots=True)
class SourceLink:
    """A source broker: its fetch session over a connection of its own."""

    node: int
    session: FetchSession
    ask_again_at: float = 0.0

    @property
    def connection(self) -> Connection:
        """The session's connection."""
        return self.session.connection


class SourceSide:
    """Reads partitions and hands signed batches, and gaps between them, to the target side."""

    def __init__(
        self,
        desk: Desk,
        cluster: Cluster,
        resumer: Resumer,
        target: TargetSide,
    ) -> None:
        self._desk = desk
        self._cluster = cluster
        self._resumer = resumer
        self._target = target
        self.links: dict[int, SourceLink] = {}
        desk.detach.append(self._detach)

    def attach(self, p: PartitionCopy, ids: Mapping[str, uuid.UUID]) -> None:
        """Begin reading a partition at its position; ``ids`` are the source's topics as of now."""
        link = self.links.get(p.source_leader)
        if link is not None and (link.connection.closed or not link.session.knows(ids)):
            self.lose(link, "the source's topics changed")
            link = None
        if link is None:
            # What one answer brings on top of what is waiting is part of the budget, too.
            most = min(self._desk.context.fetch_max_bytes, self._desk.budget // _ANSWER_PART)
            session = FetchSession(
                self._cluster.take(p.source_leader),
                ids,
                read_committed=self._desk.context.read_committed,
                max_bytes=most,
                partition_max_bytes=max(most // 2, _PARTITION_MIN_BYTES),
            )
            self.links[p.source_leader] = SourceLink(p.source_leader, session)
        self.want_more(p)

    def _detach(self, p: PartitionCopy) -> None:
        link = self.links.get(p.source_leader)
        if link is not None:
            link.session.drop(p.source)

    def want_more(self, p: PartitionCopy) -> None:
        """Read on, unless enough is queued or all that the lease asks for was read."""
        session = self.links[p.source_leader].session
        if p.ending is not None:
            # What could be read before it is mirrored first.
            p.reading = False
            session.drop(p.source)
            if not p.queue and not p.in_flight:
                self._desk.fail(p, p.ending)
            return
        full = p.queued_bytes > self._desk.context.fetch_max_bytes or self._target.is_aside(p)
        finished = p.lease.until is not None and p.position >= p.lease.until
        p.reading = not (full or finished)
        if full or finished:
            session.drop(p.source)
        else:
            # A leader of another epoch may have another log: resume looks into that.
            session.want(p.source, p.position, p.source_epoch)

    def fetch(self) -> None:
        """Ask every broker that owes us nothing for more, while there is room for it."""
        left = self._desk.lease.deadline - time.time()
        if not self._target.has_room():
            return
        if self._desk.buffered > _BACKLOG_BYTES and left < _BACKLOG_DRAIN_SECONDS:
            return
        wait = max(0, min(_FETCH_WAIT_MS, int(left * 1000)))
        now = time.monotonic()
        for link in list(self.links.values()):
            if link.session.in_flight and now >= link.ask_again_at:
                self._ask_others(link, now)
            if not link.session.in_flight and link.session.partitions:
                if link.connection.throttled:
                    # The broker does not read: a request would only wait in its socket.
                    continue
                try:
                    link.ask_again_at = now + wait / 1000 + SILENT_SECONDS
                    link.session.send(wait)
                except WireError as error:
                    self.lose(link, str(error))

    def _ask_others(self, link: SourceLink, now: float) -> None:
        """A broker is silent: has the cluster given its partitions to others?"""
        link.ask_again_at = now + ASK_SECONDS
        if link.connection.throttled:
            return
        mine = [
            p.source for p in self._desk.parts.values() if p.source_leader == link.node and p.active
        ]
        if self._cluster.silent.lost(link.node, mine):
            self.lose(link, f"broker {link.node} of {self._desk.context.flow.source} is silent")

    def react(self, link: SourceLink) -> None:
        """Take in what a broker said, if it is whole."""
        try:
            link.connection.flush()
            answer = link.session.receive()
        except WireError as error:
            self.lose(link, str(error))
            return
        if seconds := link.connection.throttled:
            self._throttled(link, seconds)
        if answer:
            self._ingest(answer)

    def _throttled(self, link: SourceLink, seconds: float) -> None:
        """A quota of the source's is exceeded: it does not answer for so long."""
        why = (
            f"{self._desk.context.flow.source} limits what we read (consumer_byte_rate of this"
            f" client id or user): broker {link.node} makes us wait {seconds:.1f} s"
        )
        for p in self._desk.parts.values():
            if p.source_leader == link.node and p.active:
                p.throttled_until, p.throttled_by = time.time() + seconds, why

    def lose(self, link: SourceLink, why: str) -> None:
        """Drop a connection; its partitions are resumed, wherever their leaders are then."""
        link.connection.close()
        self.links.pop(link.node, None)
        for p in self._desk.parts.values():
            if p.source_leader == link.node and p.active:
                self._desk.disturb(p, why)

    def settle(self) -> None:
        """Write down how far the source was read behind its last record, at the end of a lease.

        What is there (markers, aborted data) may be deleted before the next record comes; nobody
        shall take that for a loss.
        """
        announced: dict[TopicPartition, list[Run]] = {}
        for p in self._desk.parts.values():
            if p.active and p.position > p.contiguous and not p.queue and not p.in_flight:
                announced[p.source], _ = p.stage([(p.position, 0)])
        if announced:
            self._announce(announced)

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
        staged: list[tuple[PartitionCopy, Outgoing | Gap]] = []
        announced: dict[TopicPartition, list[Run]] = {}
        epochs: list[Epoch] = []
        for fetched in answer:
            p = self._desk.parts[fetched.partition]
            if not p.active or fetched.offset != p.position:
                # Asked for before the partition was resumed elsewhere; the next fetch knows better.
                continue
            if fetched.error != NONE:
                self._refused(p, fetched.error)
                continue
            runs: list[Run] = []
            marks: list[EpochMark] = []
            try:
                # What was yielded before an error stays.
                staged.extend((p, item) for item in self._stage(p, fetched, runs, marks))
            except CorruptBatch as error:
                text = f"{p.source} on {self._desk.context.flow.source}: {error}"
                hint = "repair or delete the damaged records on the source; other partitions go on"
                p.ending = PartitionError("source.corrupt", text, hint)
            except PartitionError as error:
                p.ending = error
            except WireError as error:
                self._desk.disturb(p, f"setting refused records aside: {error}")
                continue
            if p.contradicts and not p.may_mark:
                # Whoever announced these records otherwise may still write them.
                self._desk.postpone(p, p.markers_from, "the lease before this one is ending")
                continue
            p.contradicts = False
            if runs or marks:
                announced[p.source] = runs
            if marks and p.place is not None:
                epochs += [Epoch(p.place, mark) for mark in marks]
            if p.ending is None:
                self.want_more(p)
        if announced:
            self._announce(announced, epochs)
        for p, item in staged:
            if p.active:
                self._target.enqueue(p, item)
        for fetched in answer:
            p = self._desk.parts[fetched.partition]
            if p.ending is not None and p.active:
                self.want_more(p)

    def _stage(
        self, p: PartitionCopy, fetched: Fetched, announced: list[Run], marks: list[EpochMark]
    ) -> Iterator[Outgoing | Gap]:
        """What is to be written, in order; what the ledger must hold before that is added."""
        rules = p.rules
        if self._target.distance(p) >= _FAR_SECONDS:
            rules = rules._replace(small_bytes=_FAR_SMALL_BYTES)
        signature = self._desk.context.producer_id
        for piece in pieces(fetched.records, p.position, fetched.aborted, rules, p.epoch):
            if isinstance(piece, Piece):
                sequence = p.sequence
                runs, missing = p.stage(piece.runs)
                if runs:
                    announced += runs
                    yield from gaps(missing)
                p.position = piece.next_offset
                yield Outgoing(
                    piece.signed(signature, sequence),
                    sequence,
                    piece.record_count,
                    piece.runs,
                    piece.next_offset,
                )
            elif isinstance(piece, int):
                p.position = piece
            elif isinstance(piece, NewEpoch):
                # An earlier one than was announced: of records that nobody wrote, and the source
                # has lost since.
                anew = piece.epoch < p.epoch
                p.contradicts, p.epoch = p.contradicts or anew, piece.epoch
                marks.append(EpochMark(p.sequence, piece.epoch, anew))
            else:
                self._set_aside(p, piece)
        if p.fills and p.position > p.contiguous:
            # Markers and aborted data at the end: nothing may follow for long, but whoever has read
            # the source to its end must find the same end on the target.
            runs, missing = p.stage([(p.position, 0)])
            announced += runs
            yield from gaps(missing)

    def _set_aside(self, p: PartitionCopy, refused: Refused) -> None:
        context, record = self._desk.context, refused.record
        if context.quarantine_topic is None:
            raise PartitionError(
                "target.refused",
                f"{p.target} on {context.flow.target} cannot take the record at source offset"
                f" {record.offset} of {p.source}: {refused.reason}",
                "raise max.message.bytes of the target topic, or set"
                " heliograph.on.refused=quarantine to set such records aside",
            )
        set_aside(context, self._target.client, p, [refused])

    def _announce(
        self, announced: dict[TopicPartition, list[Run]], epochs: Sequence[Epoch] = ()
    ) -> None:
        """Write new runs and epochs to the ledger before the batches that begin them."""
        ledger = self._desk.ledger
        entries = {
            source: Entry(place, runs)
            for source, runs in announced.items()
            if runs and (place := self._desk.parts[source].place) is not None
        }
        try:
            ledger.write(entries.values(), epochs)
            late = [
                correction
                for entry in entries.values()
                for correction in _further_on(ledger.at(entry.place), entry)
            ]
            if late:
                ledger.write(late)
        except WireError as error:
            for source in announced:
                self._desk.disturb(
                    self._desk.parts[source], f"the ledger cannot be written: {error}"
                )
            return
        for source, entry in entries.items():
            known = ledger.at(entry.place)
            if any(known.source_of(run.sequence) != run.source for run in entry.runs):
                p = self._desk.parts[source]
                self._desk.disturb(p, "another writer announced these records differently")

    def _refused(self, p: PartitionCopy, code: int) -> None:
        if code == OFFSET_OUT_OF_RANGE:
            try:
                if self._resumer.out_of_range(p):
                    self._pass_gap(p)
                else:
                    self._desk.disturb(p, f"{p.source} has no offset {p.position} on the source")
            except WireError as error:
                self._desk.disturb(p, str(error))
            except PartitionError as error:
                self._desk.fail(p, error)
        elif is_retriable(code):
            self._desk.disturb(p, f"reading {p.source}: {error_name(code)}")
        else:
            source = self._desk.context.flow.source
            text = f"{p.source} cannot be read from {source}: {error_name(code)}"
            hint = reason(self._desk.context.source, code, "Read", p.source.topic) or ""
            self._desk.fail(p, PartitionError("source.refused", text, hint))

    def _pass_gap(self, p: PartitionCopy) -> None:
        """Go on behind what retention took: the ledger is told at once, and the gap is filled."""
        runs, missing = p.stage([(p.position, 0)])
        self._announce({p.source: runs})
        if p.active:
            for gap in gaps(missing):
                self._target.enqueue(p, gap)
            self.want_more(p)


def _further_on(known: PartitionLedger, entry: Entry) -> list[Entry]:
    """Corrections for runs that were announced where we have just looked and found nothing."""
    for index, run in enumerate(entry.runs):
        if known.source_of(run.sequence) < run.source:
            # Everything behind it was counted differently, if at all.
            rest = [Entry(entry.place, [later]) for later in entry.runs[index + 1 :]]
            return [Entry(entry.place, [run], shift=True), *rest]
    return []
