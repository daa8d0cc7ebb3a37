"""The copy loop: one thread, non-blocking sockets, batches from source brokers to target brokers.

Runs in executors, once per lease. Reads with one fetch in flight per source broker, writes with up
to five produce requests in flight per target broker and one batch per partition in each. Every
disturbance of a partition ends in the same place: forget what is queued, `resume`, go on.
"""

from __future__ import annotations

import select
import time
import uuid
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from heliograph.batch.lanes import CorruptBatch, Piece, pieces
from heliograph.copy import links
from heliograph.copy.partition import Outgoing, PartitionCopy
from heliograph.copy.resume import Resumer
from heliograph.copy.syncs import OffsetSyncWriter
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Entry
from heliograph.ledger.runs import Run
from heliograph.model import Lease, Receipt, TopicPartition
from heliograph.wire.connection import Connection
from heliograph.wire.errors import (
    NONE,
    OFFSET_OUT_OF_RANGE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    WireError,
    error_name,
    is_retriable,
)
from heliograph.wire.fetch import Fetched, FetchSession
from heliograph.wire.produce import Produced, Producer

#: The broker recognises a repeated batch among the last five of a producer (broker-rules.md).
_MAX_IN_FLIGHT = 5
#: One produce request: large enough to fill a link, far below socket.request.max.bytes (100 MB).
_REQUEST_BYTES = 8 << 20
#: As the Java consumer's fetch.max.wait.ms: how long an idle broker holds a fetch.
_FETCH_WAIT_MS = 500
#: With more than this queued, a lease that is about to end writes it instead of fetching more.
_BACKLOG_BYTES = 1 << 20
_BACKLOG_DRAIN_SECONDS = 0.15
#: After the deadline, answers to what was sent are still counted.
_LAST_ANSWERS_SECONDS = 2.0
_BACKOFF_FIRST_SECONDS, _BACKOFF_MOST_SECONDS = 0.05, 2.0


@dataclass(slots=True)
class _SourceLink:
    """A source broker: its fetch session over a connection of its own."""

    node: int
    session: FetchSession

    @property
    def connection(self) -> Connection:
        return self.session.connection


@dataclass(slots=True)
class _TargetLink:
    """A target broker: requests in flight and partitions with something to send."""

    node: int
    producer: Producer
    requests: deque[list[PartitionCopy]] = field(default_factory=deque)
    ready: dict[TopicPartition, PartitionCopy] = field(default_factory=dict)

    @property
    def connection(self) -> Connection:
        return self.producer.connection


class CopyLoop:
    """Copies the partitions of one lease until its deadline, or until all are done."""

    def __init__(self, lease: Lease) -> None:
        context = lease.context
        self._lease = lease
        self._context = context
        self._source = links.source(context)
        self._target = links.target(context)
        self._ledger = links.ledger(context)
        self._resumer = Resumer(context, self._source, self._target, self._ledger)
        self._syncs = OffsetSyncWriter(context, self._source, self._target)
        self._parts = {leased.source: PartitionCopy.of(leased) for leased in lease.partitions}
        self._by_target = {p.target: p for p in self._parts.values()}
        self._sources: dict[int, _SourceLink] = {}
        self._targets: dict[int, _TargetLink] = {}
        self._unsettled: set[TopicPartition] = set(self._parts)
        self._buffered = 0

    def run(self) -> list[Receipt]:
        """Hold the lease; never raises for what happens to partitions."""
        self._warm_up()
        time.sleep(max(0.0, self._lease.starts_at - time.time()))
        try:
            while self._unfinished():
                self._revive()
                self._fetch()
                self._wait()
                self._pump()
            self._await_answers()
        finally:
            self._release()
        return [self._receipt(p) for p in self._parts.values()]

    # -- life of the lease --------------------------------------------------------------------

    def _warm_up(self) -> None:
        """Connect and read the ledger before the lease starts, so that taking over is quick."""
        try:
            self._resumer.locate(list(self._parts.values()))
            self._ledger.refresh()
        except WireError:
            return  # resume will meet the same error and keep it

    def _unfinished(self) -> bool:
        if time.time() >= self._lease.deadline:
            return False
        return not self._bounded or any(not (p.done or p.failed) for p in self._parts.values())

    @property
    def _bounded(self) -> bool:
        return all(p.until is not None for p in self._lease.partitions)

    def _await_answers(self) -> None:
        deadline = time.time() + _LAST_ANSWERS_SECONDS
        while any(link.requests for link in self._targets.values()) and time.time() < deadline:
            self._wait(fetching=False)
        self._syncs.finish()

    def _release(self) -> None:
        for source in self._sources.values():
            try:
                if source.session.in_flight:
                    source.connection.close()
                source.session.close_session()
            except WireError:
                source.connection.close()
            self._source.give_back(source.node, source.connection)
        for target in self._targets.values():
            self._target.give_back(target.node, target.connection)

    def _receipt(self, p: PartitionCopy) -> Receipt:
        return Receipt(
            str(self._context.flow), p.source.topic, p.source.partition, p.mirrored_to,
            p.ack_target, p.records, p.bytes, p.batches, max(p.resumes - 1, 0),
            p.failed or p.broken,
        )  # fmt: skip

    # -- resume -------------------------------------------------------------------------------

    def _revive(self) -> None:
        """Resume partitions that are new or were disturbed, once nothing of theirs is in flight."""
        if not self._unsettled:
            return
        now = time.time()
        due = [
            p for p in map(self._parts.__getitem__, self._unsettled)
            if not p.in_flight and p.retry_at <= now and not p.failed
        ]  # fmt: skip
        if not due:
            return
        for p in due:
            self._buffered -= p.queued_bytes
            p.queued_bytes = 0
        try:
            self._resumer.resume(due)
            for p in due:
                if not p.broken and not p.failed:
                    self._attach(p)
        except WireError as error:
            for p in due:
                self._disturb(p, str(error))
        for p in due:
            if p.broken:
                self._disturb(p, p.broken)
            else:
                self._unsettled.discard(p.source)

    def _attach(self, p: PartitionCopy) -> None:
        self._source_link(p)
        self._target_link(p)
        self._want_more(p)

    def _source_link(self, p: PartitionCopy) -> _SourceLink:
        link = self._sources.get(p.source_leader)
        ids = self._ids("source")
        if link is not None and (link.connection.closed or not link.session.knows(ids)):
            self._lose_source(link, "topics changed")
            link = None
        if link is None:
            session = FetchSession(
                self._source.take(p.source_leader), ids,
                read_committed=self._context.read_committed,
                max_bytes=self._context.fetch_max_bytes,
                partition_max_bytes=max(self._context.fetch_max_bytes // 2, 1 << 20),
            )  # fmt: skip
            link = self._sources[p.source_leader] = _SourceLink(p.source_leader, session)
        return link

    def _target_link(self, p: PartitionCopy) -> _TargetLink:
        link = self._targets.get(p.target_leader)
        ids = self._ids("target")
        if link is not None and (link.connection.closed or not link.producer.knows(ids)):
            self._lose_target(link, "topics changed")
            link = None
        if link is None:
            producer = Producer(self._target.take(p.target_leader), ids)
            link = self._targets[p.target_leader] = _TargetLink(p.target_leader, producer)
        return link

    def _ids(self, side: str) -> dict[str, uuid.UUID]:
        if side == "source":
            return {p.source.topic: p.place.source_id for p in self._parts.values() if p.place}
        return {p.target.topic: p.place.target_id for p in self._parts.values() if p.place}

    def _disturb(self, p: PartitionCopy, why: str, *, pause: bool = True) -> None:
        """Stop copying a partition until `_revive` takes it up again."""
        link = self._sources.get(p.source_leader)
        if link is not None:
            link.session.drop(p.source)
        target = self._targets.get(p.target_leader)
        if target is not None:
            target.ready.pop(p.target, None)
        p.broken, p.active = why, False
        self._unsettled.add(p.source)
        if pause:
            wait = min(_BACKOFF_FIRST_SECONDS * 2 ** min(p.attempts, 10), _BACKOFF_MOST_SECONDS)
            p.retry_at = time.time() + wait
            p.attempts += 1

    def _fail(self, p: PartitionCopy, error: PartitionError) -> None:
        self._disturb(p, "")
        p.failed = str(error)

    def _lose_source(self, link: _SourceLink, why: str) -> None:
        link.connection.close()
        self._sources.pop(link.node, None)
        for p in self._parts.values():
            if p.source_leader == link.node and p.active:
                self._disturb(p, why)

    def _lose_target(self, link: _TargetLink, why: str) -> None:
        link.connection.close()
        self._targets.pop(link.node, None)
        for p in self._parts.values():
            if p.target_leader == link.node and (p.active or p.in_flight):
                p.in_flight.clear()
                self._disturb(p, why)

    # -- reading ------------------------------------------------------------------------------

    def _fetch(self) -> None:
        left = self._lease.deadline - time.time()
        if self._buffered >= self._context.fetch_max_bytes:
            return
        if self._buffered > _BACKLOG_BYTES and left < _BACKLOG_DRAIN_SECONDS:
            return
        wait = max(0, min(_FETCH_WAIT_MS, int(left * 1000)))
        for link in list(self._sources.values()):
            if not link.session.in_flight and link.session.partitions:
                try:
                    link.session.send(wait)
                except WireError as error:
                    self._lose_source(link, str(error))

    def _ingest(self, answer: Iterable[Fetched]) -> None:
        staged: list[tuple[PartitionCopy, Outgoing]] = []
        announced: dict[TopicPartition, list[Run]] = {}
        for fetched in answer:
            p = self._parts[fetched.partition]
            if not p.active:
                continue
            if fetched.error != NONE:
                self._fetch_error(p, fetched.error)
                continue
            p.high_watermark = fetched.high_watermark
            try:
                for piece in pieces(fetched.records, p.position, fetched.aborted):
                    if isinstance(piece, int):
                        p.position = piece
                        continue
                    sequence = p.sequence
                    runs = p.stage(piece.runs)
                    if runs:
                        announced.setdefault(p.source, []).extend(runs)
                    staged.append((p, self._outgoing(p, piece, sequence)))
            except CorruptBatch as error:
                text = f"{p.source} on {self._context.flow.source}: {error}"
                hint = "repair or delete the damaged records on the source; other partitions go on"
                self._fail(p, PartitionError("source.corrupt", text, hint))
                continue
            self._want_more(p)
        if announced:
            self._announce(announced)
        for p, outgoing in staged:
            if p.active:
                p.queue.append(outgoing)
                p.queued_bytes += len(outgoing.data)
                self._buffered += len(outgoing.data)
                self._targets[p.target_leader].ready[p.target] = p

    def _outgoing(self, p: PartitionCopy, piece: Piece, sequence: int) -> Outgoing:
        data = piece.signed(self._context.producer_id, sequence)
        first = piece.runs[0][0]
        last_run = piece.runs[-1]
        p.position = piece.next_offset
        last = last_run[0] + last_run[1] - 1
        return Outgoing(data, sequence, piece.count, first, last, piece.next_offset)

    def _want_more(self, p: PartitionCopy) -> None:
        session = self._sources[p.source_leader].session
        full = p.queued_bytes > self._context.fetch_max_bytes
        finished = p.lease.until is not None and p.position >= p.lease.until
        if full or finished:
            session.drop(p.source)
        else:
            session.want(p.source, p.position)

    def _announce(self, announced: dict[TopicPartition, list[Run]]) -> None:
        """Write new runs to the ledger before the batches that begin them."""
        entries = []
        for source, runs in announced.items():
            place = self._parts[source].place
            if place is not None:
                entries.append(Entry(place, runs))
        try:
            self._ledger.write(entries)
        except WireError as error:
            for source in announced:
                self._disturb(self._parts[source], f"the ledger cannot be written: {error}")
            return
        for entry in entries:
            ledger = self._ledger.at(entry.place)
            if any(ledger.source_of(run.sequence) != run.source for run in entry.runs):
                p = self._parts[TopicPartition(entry.place.topic, entry.place.partition)]
                self._disturb(p, "another writer announced these records differently")

    def _fetch_error(self, p: PartitionCopy, code: int) -> None:
        if code == OFFSET_OUT_OF_RANGE:
            try:
                self._resumer.out_of_range(p)
            except WireError as error:
                self._disturb(p, str(error))
                return
            if p.failed:
                self._disturb(p, "")
            else:
                self._want_more(p)
        elif is_retriable(code):
            self._disturb(p, f"reading {p.source}: {error_name(code)}")
        else:
            text = f"{p.source} cannot be read from {self._context.flow.source}: {error_name(code)}"
            hint = "grant READ on the topic to the principal of the source consumer"
            self._fail(p, PartitionError("source.refused", text, hint))

    # -- writing ------------------------------------------------------------------------------

    def _pump(self) -> None:
        for link in list(self._targets.values()):
            try:
                while link.ready and len(link.requests) < _MAX_IN_FLIGHT:
                    self._send(link)
            except WireError as error:
                self._lose_target(link, str(error))
        self._syncs.pump(time.monotonic())

    def _send(self, link: _TargetLink) -> None:
        batches: list[tuple[TopicPartition, memoryview]] = []
        carried: list[PartitionCopy] = []
        size = 0
        for p in list(link.ready.values()):
            outgoing = p.queue.popleft()
            p.in_flight.append(outgoing)
            batches.append((p.target, outgoing.data))
            carried.append(p)
            size += len(outgoing.data)
            # To the back of the line, so that a full request is not always the same partitions'.
            del link.ready[p.target]
            if p.queue:
                link.ready[p.target] = p
            if size >= _REQUEST_BYTES:
                break
        link.requests.append(carried)
        link.producer.send(batches)

    def _acknowledge(self, link: _TargetLink, answers: list[Produced]) -> None:
        link.requests.popleft()
        for answer in answers:
            p = self._by_target[answer.partition]
            if not p.in_flight:
                continue
            outgoing = p.in_flight.popleft()
            size = len(outgoing.data)
            p.queued_bytes -= size
            self._buffered -= size
            if not p.active:
                continue
            if answer.error != NONE:
                self._produce_error(p, outgoing, answer)
                continue
            if answer.base_offset != p.ack_target and not self._shifted(p, outgoing, answer):
                continue
            p.ack_target = answer.base_offset + outgoing.count
            p.acked_source = outgoing.next_source
            p.records += outgoing.count
            p.bytes += size
            p.batches += 1
            p.attempts = 0
            self._syncs.acknowledged(
                p.source, outgoing.first_source, outgoing.last_source, p.ack_target - 1
            )
            if p.queued_bytes <= self._context.fetch_max_bytes // 2:
                self._want_more(p)

    def _shifted(self, p: PartitionCopy, outgoing: Outgoing, answer: Produced) -> bool:
        """The batch is not where the ledger said: somebody else wrote, or the log lost its tail."""
        shift = answer.base_offset - p.ack_target
        if shift < 0 or p.place is None:
            self._disturb(p, f"{p.target} is shorter than the ledger says by {-shift}")
            return False
        p.target_next += shift
        run = Run(outgoing.sequence, outgoing.first_source, answer.base_offset)
        try:
            self._ledger.write([Entry(p.place, [run], shift=True)])
        except WireError as error:
            self._disturb(p, f"the ledger cannot be written: {error}")
            return False
        return True

    def _produce_error(self, p: PartitionCopy, outgoing: Outgoing, answer: Produced) -> None:
        name = error_name(answer.error)
        if answer.error == OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._disturb(p, f"another writer was first: {name}", pause=p.attempts > 0)
            p.attempts += 1
        elif is_retriable(answer.error):
            self._disturb(p, f"writing {p.target}: {name}")
        else:
            detail = f": {answer.message}" if answer.message else ""
            text = (
                f"{p.target} on {self._context.flow.target} refuses source offsets"
                f" {outgoing.first_source} to {outgoing.last_source} of {p.source}: {name}{detail}"
            )
            hint = "compare the topic's configs on both sides (max.message.bytes, cleanup.policy)"
            self._fail(p, PartitionError("target.refused", text, hint))

    # -- waiting ------------------------------------------------------------------------------

    def _wait(self, *, fetching: bool = True) -> None:
        """Sleep until a broker says something, then take it in."""
        poll = select.poll()
        watched: dict[int, _SourceLink | _TargetLink | None] = {}
        ready: list[_SourceLink | _TargetLink | None] = []
        candidates: list[tuple[Connection, _SourceLink | _TargetLink | None]] = []
        candidates += [(t.connection, t) for t in self._targets.values()]
        candidates += [(s.connection, s) for s in self._sources.values() if fetching]
        if self._syncs.connection is not None:
            candidates.append((self._syncs.connection, None))
        for connection, link in candidates:
            if connection.closed:
                continue
            if connection.has_buffered_input:
                ready.append(link)
            events = select.POLLIN | (select.POLLOUT if connection.wants_write else 0)
            poll.register(connection, events)
            watched[connection.fileno()] = link
        timeout_ms = 0.0 if ready else self._timeout_ms()
        for descriptor, _ in poll.poll(timeout_ms):
            ready.append(watched[descriptor])
        for link in dict.fromkeys(map(id, ready)):
            self._react(next(x for x in ready if id(x) == link))

    def _timeout_ms(self) -> float:
        now = time.time()
        times = [self._parts[s].retry_at for s in self._unsettled if not self._parts[s].failed]
        until = min([self._lease.deadline, now + 0.1, *times])
        return max(0.0, (until - now) * 1000)

    def _react(self, link: _SourceLink | _TargetLink | None) -> None:
        if isinstance(link, _SourceLink):
            try:
                link.connection.flush()
                answer = link.session.receive()
            except WireError as error:
                self._lose_source(link, str(error))
                return
            if answer is not None:
                self._ingest(answer)
        elif isinstance(link, _TargetLink):
            try:
                link.connection.flush()
                while link.requests and (acks := link.producer.receive()) is not None:
                    self._acknowledge(link, acks)
            except WireError as error:
                self._lose_target(link, str(error))
