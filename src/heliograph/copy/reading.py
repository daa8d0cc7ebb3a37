"""The source side of a copy: fetch sessions, and batches turned into signed ones. In executors.

One fetch is in flight per source broker; the next is sent as soon as an answer was taken in, while
fewer than ``fetch_max_bytes`` wait to be written.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from heliograph.batch.lanes import CorruptBatch, Piece, pieces
from heliograph.copy.desk import Desk
from heliograph.copy.links import Cluster
from heliograph.copy.partition import Outgoing, PartitionCopy
from heliograph.copy.resume import Resumer
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Entry
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

#: As the Java consumer's fetch.max.wait.ms: how long an idle broker holds a fetch.
_FETCH_WAIT_MS = 500
#: With more than this queued, a lease that is about to end writes it instead of fetching more.
_BACKLOG_BYTES = 1 << 20
_BACKLOG_DRAIN_SECONDS = 0.15
#: A partition's share of one answer; a larger batch is still returned whole (KIP-74).
_PARTITION_MIN_BYTES = 1 << 20


@dataclass(slots=True)
class SourceLink:
    """A source broker: its fetch session over a connection of its own."""

    node: int
    session: FetchSession

    @property
    def connection(self) -> Connection:
        """The session's connection."""
        return self.session.connection


class SourceSide:
    """Reads partitions and hands signed batches to ``enqueue``."""

    def __init__(
        self,
        desk: Desk,
        cluster: Cluster,
        resumer: Resumer,
        enqueue: Callable[[PartitionCopy, Outgoing], None],
    ) -> None:
        self._desk = desk
        self._cluster = cluster
        self._resumer = resumer
        self._enqueue = enqueue
        self.links: dict[int, SourceLink] = {}
        desk.detach.append(self._detach)

    def attach(self, p: PartitionCopy, ids: Mapping[str, uuid.UUID]) -> None:
        """Begin reading a partition at its position; ``ids`` are the source's topics as of now."""
        link = self.links.get(p.source_leader)
        if link is not None and (link.connection.closed or not link.session.knows(ids)):
            self.lose(link, "the source's topics changed")
            link = None
        if link is None:
            most = self._desk.context.fetch_max_bytes
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
        full = p.queued_bytes > self._desk.context.fetch_max_bytes
        finished = p.lease.until is not None and p.position >= p.lease.until
        if full or finished:
            session.drop(p.source)
        else:
            session.want(p.source, p.position)

    def fetch(self) -> None:
        """Ask every broker that owes us nothing for more, while there is room for it."""
        left = self._desk.lease.deadline - time.time()
        if self._desk.buffered >= self._desk.context.fetch_max_bytes:
            return
        if self._desk.buffered > _BACKLOG_BYTES and left < _BACKLOG_DRAIN_SECONDS:
            return
        wait = max(0, min(_FETCH_WAIT_MS, int(left * 1000)))
        for link in list(self.links.values()):
            if not link.session.in_flight and link.session.partitions:
                try:
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
        if answer:
            self._ingest(answer)

    def lose(self, link: SourceLink, why: str) -> None:
        """Drop a connection; its partitions are resumed, wherever their leaders are then."""
        link.connection.close()
        self.links.pop(link.node, None)
        for p in self._desk.parts.values():
            if p.source_leader == link.node and p.active:
                self._desk.disturb(p, why)

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

    def _ingest(self, answer: Iterable[Fetched]) -> None:
        staged: list[tuple[PartitionCopy, Outgoing]] = []
        announced: dict[TopicPartition, list[Run]] = {}
        for fetched in answer:
            p = self._desk.parts[fetched.partition]
            if not p.active or fetched.offset != p.position:
                # Asked for before the partition was resumed elsewhere; the next fetch knows better.
                continue
            if fetched.error != NONE:
                self._refused(p, fetched.error)
                continue
            try:
                for piece in pieces(
                    fetched.records, p.position, fetched.aborted, suspicious=p.suspicious
                ):
                    if isinstance(piece, int):
                        p.position = piece
                        continue
                    sequence = p.sequence
                    runs = p.stage(piece.runs)
                    if runs:
                        announced.setdefault(p.source, []).extend(runs)
                    staged.append((p, self._outgoing(p, piece, sequence)))
            except CorruptBatch as error:
                text = f"{p.source} on {self._desk.context.flow.source}: {error}"
                hint = "repair or delete the damaged records on the source; other partitions go on"
                self._desk.fail(p, PartitionError("source.corrupt", text, hint))
                continue
            self.want_more(p)
        if announced:
            self._announce(announced)
        for p, outgoing in staged:
            if p.active:
                self._enqueue(p, outgoing)

    def _outgoing(self, p: PartitionCopy, piece: Piece, sequence: int) -> Outgoing:
        data = piece.signed(self._desk.context.producer_id, sequence)
        start, count = piece.runs[-1]
        p.position = piece.next_offset
        return Outgoing(
            data=data,
            sequence=sequence,
            count=piece.record_count,
            first_source=piece.runs[0][0],
            last_source=start + count - 1,
            next_source=piece.next_offset,
        )

    def _announce(self, announced: dict[TopicPartition, list[Run]]) -> None:
        """Write new runs to the ledger before the batches that begin them."""
        ledger = self._desk.ledger
        entries = {
            source: Entry(place, runs)
            for source, runs in announced.items()
            if (place := self._desk.parts[source].place) is not None
        }
        try:
            ledger.write(entries.values())
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
                self._resumer.out_of_range(p)
            except WireError as error:
                self._desk.disturb(p, str(error))
            except PartitionError as error:
                self._desk.fail(p, error)
            else:
                self.want_more(p)
        elif is_retriable(code):
            self._desk.disturb(p, f"reading {p.source}: {error_name(code)}")
        else:
            source = self._desk.context.flow.source
            text = f"{p.source} cannot be read from {source}: {error_name(code)}"
            hint = "grant READ on the topic to the principal of the source consumer"
            self._desk.fail(p, PartitionError("source.refused", text, hint))


def _further_on(known: PartitionLedger, entry: Entry) -> list[Entry]:
    """Corrections for runs that were announced where we have just looked and found nothing."""
    for index, run in enumerate(entry.runs):
        if known.source_of(run.sequence) < run.source:
            # Everything behind it was counted differently, if at all.
            rest = [Entry(entry.place, [later]) for later in entry.runs[index + 1 :]]
            return [Entry(entry.place, [run], shift=True), *rest]
    return []
