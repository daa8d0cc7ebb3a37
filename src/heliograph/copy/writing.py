"""The target side of a copy: compare-and-append, five requests deep. In executors.

One batch per partition in a request, at most five requests in flight per broker: the broker
recognises a repeated batch among a producer's last five. Requests over one connection are executed
in order, so markers for a gap travel right behind the batch before it, and the next right behind
them.

A broker that is slow must not stop the others: when as much waits as may, its partitions are set
aside, i.e. not read any further, and what they hold no longer counts. `LeaseState.budget` is the
limit.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from heliograph.copy.background import Background
from heliograph.copy.known_positions import KnownPositions
from heliograph.copy.lease_state import SETTLE_SECONDS, LeaseState
from heliograph.copy.links import Cluster
from heliograph.copy.partition import Gap, Outgoing, PartitionCopy
from heliograph.copy.syncs import OffsetSyncWriter
from heliograph.copy.target_divergence import TargetDivergence
from heliograph.copy.unresponsive_brokers import ASK_SECONDS, SILENT_SECONDS
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Entry
from heliograph.ledger.runs import Run
from heliograph.model import FlowContext, TopicPartition
from heliograph.shown import shown
from heliograph.wire import markers
from heliograph.wire.connection import Connection
from heliograph.wire.errors import (
    CORRUPT_MESSAGE,
    INVALID_PRODUCER_EPOCH,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    DamagedAnswer,
    WireError,
    error_name,
    is_retriable,
)
from heliograph.wire.produce import Produced, Producer
from heliograph.wire.rights import denied, missing_right

_MAX_IN_FLIGHT = 5
#: Brokers work on one request of a connection at a time. One that is near has enough to do with so
#: few more: until then its answers are gathered, and the next requests leave together.
_REFILL_AT, _NEAR_SECONDS = 2, 0.002
#: Of an answer about markers, whatever it says.
_MARKED_BYTES = 8
#: One produce request: large enough to fill a link, far below socket.request.max.bytes (100 MB).
_REQUEST_BYTES = 8 << 20
#: A broker's word for: not the next sequence, or of an era that is over.
_ANOTHER_FIRST = frozenset({OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH})
#: A broker is slow when an answer takes this long, or many times as long as the quickest one.
_SLOW_SECONDS, _SLOW_TIMES = 0.25, 4


class _Sent(NamedTuple):
    """A request in flight: what it was, when it left, and how long its answer is at least."""

    markers: bool
    at: float
    answer_bytes: int


@dataclass(slots=True)
class TargetLink:
    """A target broker: requests in flight and partitions with something to send.

    ``shortest_answer`` is the quickest answer so far, in seconds: how far away the broker is.
    ``busy`` while a broker that is near has enough to do.
    """

    node: int
    producer: Producer
    sent: deque[_Sent] = field(default_factory=deque)
    shortest_answer: float = float("inf")
    ready: dict[TopicPartition, PartitionCopy] = field(default_factory=dict)
    aside: bool = False
    busy: bool = False
    asking: bool = False
    ask_again_at: float = 0.0

    @property
    def connection(self) -> Connection:
        """The producer's connection."""
        return self.producer.connection

    def may_send(self) -> bool:
        """Whether there is something to send, and it is time to; notes whether it is ``busy``."""
        in_flight = len(self.sent)
        if in_flight >= _MAX_IN_FLIGHT:
            self.busy = self.shortest_answer < _NEAR_SECONDS
        elif in_flight <= _REFILL_AT:
            self.busy = False
        return bool(self.ready) and in_flight < _MAX_IN_FLIGHT and not self.busy

    def gather(self) -> None:
        """Be woken when it has answered enough for `may_send`."""
        answers = len(self.sent) - _REFILL_AT if self.busy else 0
        enough = sum(sent.answer_bytes for sent in islice(self.sent, max(answers, 0)))
        self.connection.wake_for(max(enough, 1))

    def waited(self, now: float) -> float:
        """How many seconds the oldest request waits for its answer, those of a quota left out."""
        if not self.sent or self.connection.throttled:
            return 0.0
        return now - self.sent[0].at

    def is_slow(self, now: float) -> bool:
        """Whether it is no use to wait for its answer before others are served."""
        if self.connection.throttled:
            return True
        usual = self.shortest_answer if self.shortest_answer < float("inf") else 0.0
        return self.waited(now) > max(_SLOW_SECONDS, _SLOW_TIMES * usual)


class TargetSide:
    """Writes what is enqueued, checks every acknowledgement, and calls ``drained`` after each."""

    def __init__(
        self,
        lease_state: LeaseState,
        cluster: Cluster,
        syncs: OffsetSyncWriter,
        notes: KnownPositions,
        divergence: TargetDivergence,
        background: Background,
        drained: Callable[[PartitionCopy], None],
    ) -> None:
        self._state = lease_state
        self.cluster = cluster
        self._background = background
        self._syncs = syncs
        self._notes = notes
        self._divergence = divergence
        self._drained = drained
        self.links: dict[int, TargetLink] = {}
        lease_state.detach.append(self._detach)

    def know(self, ids: Mapping[str, uuid.UUID]) -> None:
        """``ids`` are the target's topics now: drop connections that speak of others."""
        for link in list(self.links.values()):
            if link.connection.closed or not link.producer.knows(ids):
                self.lose(link, "the target's topics changed")

    def attach(self, p: PartitionCopy, ids: Mapping[str, uuid.UUID]) -> bool:
        """Write a partition to its leader; returns False if there is no connection to it."""
        link = self.links.get(p.target_leader)
        if link is None:
            connection = self.cluster.take(p.target_leader)
            if connection is None:
                return False
            connection.send_by = self._state.lease.deadline
            link = TargetLink(p.target_leader, Producer(connection, ids))
            self.links[p.target_leader] = link
        p.held_by = p.target_leader
        if p.queue:
            link.ready[p.target] = p
        return True

    def _detach(self, p: PartitionCopy) -> None:
        link = self.links.get(p.target_leader)
        if link is not None:
            link.ready.pop(p.target, None)

    def enqueue(self, p: PartitionCopy, item: Outgoing | Gap) -> None:
        """Queue a signed batch, or markers, for its partition. What it holds is counted already."""
        p.queue.append(item)
        if not (p.one_in_flight and p.in_flight):
            self.links[p.target_leader].ready[p.target] = p

    def distance(self, p: PartitionCopy) -> float:
        """Seconds that the partition's leader takes to answer at best; 0 before it ever did."""
        shortest = self.links[p.target_leader].shortest_answer
        return shortest if shortest < float("inf") else 0.0

    # -- slow brokers -------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether more may be read, slow brokers set aside if need be."""
        lease_state = self._state
        if lease_state.buffered >= lease_state.budget:
            return False
        most = lease_state.context.fetch_max_bytes
        # What waits for the ledger waits for itself alone.
        held = lease_state.buffered - lease_state.unannounced
        if held < most:
            return True
        if len(self.links) < 2:
            return False
        now = time.monotonic()
        for link in self.links.values():
            if not link.aside and link.is_slow(now):
                self._set_aside(link)
        return held - self._aside_bytes() < most

    def is_aside(self, p: PartitionCopy) -> bool:
        """Whether the partition must not be read, because its leader is slow."""
        link = self.links.get(p.held_by)
        return link is not None and link.aside

    def _aside_bytes(self) -> int:
        return sum(self._state.held[link.node] for link in self.links.values() if link.aside)

    def _set_aside(self, link: TargetLink) -> None:
        link.aside = True
        for p in self._state.parts.values():
            if p.held_by == link.node and p.active:
                self._drained(p)
                for item in (*p.in_flight, *p.queue):
                    if isinstance(item, Outgoing):
                        # A batch is a piece of an answer, and would keep all of it in memory.
                        item.data = memoryview(bytes(item.data))

    def _take_back(self, link: TargetLink) -> None:
        """Read its partitions again, as soon as little enough is waiting."""
        fair = self._state.context.fetch_max_bytes // (2 * len(self.links))
        if self._state.held[link.node] <= fair:
            link.aside = False
            for p in self._state.parts.values():
                if p.held_by == link.node and p.active:
                    self._drained(p)

    def _ask_others(self, link: TargetLink, now: float) -> None:
        """A broker is silent: has the cluster given its partitions to others?"""
        if link.asking or now < link.ask_again_at:
            return
        link.asking, link.ask_again_at = True, now + ASK_SECONDS
        mine = [p.target for p in self._state.parts.values() if p.held_by == link.node and p.active]
        silent, node = self.cluster.silent, link.node
        silent.add(node)

        def answered(lost: bool) -> None:
            link.asking = False
            if lost and self.links.get(node) is link:
                self.lose(link, f"broker {node} of {self._state.context.flow.target} is silent")

        self._background.run(
            self.cluster.spare_lane,
            lambda: silent.lost(node, mine),
            answered,
            lambda _: answered(False),
        )

    # -- sending ------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send what the brokers may have in flight; nothing after the deadline.

        A process that was stopped and continued must not write as if no time had passed: where the
        broker has dropped the signature's state, only the deadline keeps a zombie quiet.
        """
        if time.time() >= self._state.lease.deadline:
            return
        now = time.monotonic()
        for link in list(self.links.values()):
            if link.sent and link.waited(now) > SILENT_SECONDS:
                self._ask_others(link, now)
            if link.connection.throttled:
                # The broker does not read: what is sent now only waits in its socket.
                continue
            try:
                while link.may_send():
                    self._send(link)
                link.connection.flush()
            except WireError as error:
                self.lose(link, str(error))

    def fall_silent(self) -> None:
        """Send nothing any more, not even the rest of a request that has left in part.

        A broker forgets a request that does not come whole. What has left wholly is in the
        kernel's hands and arrives, whether this process is stopped or not.
        """
        for link in list(self.links.values()):
            if link.connection.wants_write:
                self.lose(link, "the lease ended before all was sent")

    def gather(self) -> None:
        """Be woken when there is something to do for a broker, not for each of its answers."""
        for link in self.links.values():
            link.gather()

    def _part(self, link: TargetLink, partition: TopicPartition) -> PartitionCopy:
        found = self._state.by_target.get(partition)
        if found is None:
            link.connection.close()
            raise DamagedAnswer(
                f"{link.connection.address} answers for {partition}, which it was not asked about"
            )
        return found

    def react(self, link: TargetLink) -> None:
        """Write on, and take in every answer that is here."""
        try:
            link.connection.flush()
            # Also when nothing is due: a broker that has hung up is noticed only by reading.
            while (frame := link.connection.receive()) is not None:
                sent = link.sent.popleft()
                link.shortest_answer = min(link.shortest_answer, time.monotonic() - sent.at)
                if sent.markers:
                    for marked in markers.parse(link.connection, frame):
                        self._marked(self._part(link, marked.partition), marked.error)
                else:
                    for answer in link.producer.parse(frame):
                        self._acknowledge(self._part(link, answer.partition), answer)
                    if seconds := link.connection.throttled:
                        self._throttled(link, seconds)
            if link.aside:
                self._take_back(link)
        except WireError as error:
            self.lose(link, str(error))

    def _throttled(self, link: TargetLink, seconds: float) -> None:
        """A quota of the target's is exceeded: it does not read on for so long."""
        why = (
            f"{self._state.context.flow.target} limits what we write (producer_byte_rate of this"
            f" client id or user): broker {link.node} makes us wait {seconds:.1f} s"
        )
        for p in self._state.parts.values():
            if p.held_by == link.node and p.active:
                p.throttled_until, p.throttled_by = time.time() + seconds, why

    @property
    def owed(self) -> bool:
        """Whether answers are outstanding."""
        return any(link.sent for link in self.links.values())

    def lose(self, link: TargetLink, why: str) -> None:
        """Drop a connection. What was in flight has an unknown outcome: resume finds it out."""
        link.connection.close()
        self.links.pop(link.node, None)
        for p in self._state.parts.values():
            if p.target_leader == link.node and (p.active or p.in_flight):
                if p.in_flight:
                    p.settled_at = time.time() + SETTLE_SECONDS
                if any(isinstance(item, Gap) for item in p.in_flight):
                    # Markers on their way cannot be recognised: wait until they are there or lost.
                    p.markers_from = p.settled_at
                # Nothing of it will be sent: it must not take up room until it is read again.
                p.in_flight.clear()
                p.queue.clear()
                self._state.disturb(p, why)
                self._state.forget_queue(p)

    def report_pushed(self) -> None:
        """Add events for foreign records that have none yet, in the background."""
        for p in self._state.parts.values():
            if p.foreign_count:
                self._report_pushed(p)

    def release(self) -> None:
        """Give the connections back."""
        for link in self.links.values():
            self.cluster.give_back(link.node, link.connection)

    # -- one request, one answer --------------------------------------------------------------

    def _send(self, link: TargetLink) -> None:
        """One request with batches, one with markers, as far as there is something for each."""
        batches: list[tuple[TopicPartition, memoryview]] = []
        counts: list[tuple[TopicPartition, int]] = []
        size = 0
        for p in list(link.ready.values()):
            item = p.queue[0]
            if isinstance(item, Gap):
                if not self._state.predecessor_ended(p):
                    continue
                counts.append((p.target, item.markers))
            else:
                batches.append((p.target, item.data))
                size += len(item.data)
            p.in_flight.append(p.queue.popleft())
            # To the back of the line, so that a full request is not always the same partitions'.
            del link.ready[p.target]
            if p.queue and not p.one_in_flight:
                link.ready[p.target] = p
            if size >= _REQUEST_BYTES:
                break
        now = time.monotonic()
        if batches:
            answer_bytes = link.producer.send(batches, flush=False)
            link.sent.append(_Sent(markers=False, at=now, answer_bytes=answer_bytes))
        if counts:
            link.sent.append(_Sent(markers=True, at=now, answer_bytes=_MARKED_BYTES))
            markers.send(link.connection, self._state.context.marker_id, counts)

    def _go_on(self, p: PartitionCopy) -> None:
        """The broker knows the signature now: more may be in flight."""
        if p.one_in_flight:
            p.one_in_flight = False
            if p.queue:
                self.links[p.target_leader].ready[p.target] = p

    def _skipped(self, p: PartitionCopy, outgoing: Outgoing) -> None:
        """A batch was taken behind one that was refused: the signature was forgotten between."""
        assert p.holed is not None  # noqa: S101 - the caller looked
        first, until = p.holed.first_source, outgoing.first_source
        # The next resume finds the hole in the log, adds an event and copies again from there.
        self._state.disturb(
            p,
            f"{p.target} on {self._state.context.flow.target} took source offsets {until} to"
            f" {outgoing.last_source} of {p.source}, but not [{first}, {until}) before them, after"
            " it had forgotten our sequence",
        )

    def _marked(self, p: PartitionCopy, error: int) -> None:
        """Markers were written, or not."""
        if not p.in_flight:
            return
        item = p.in_flight.popleft()
        if not p.active:
            return
        if not isinstance(item, Gap):
            self._state.disturb(p, f"{p.target}: answers out of order")
        elif p.shifting:
            p.shifting.append((item, Produced(p.target, error, -1, -1, None, {})))
        else:
            self._take_marked(p, item, error)

    def _take_marked(self, p: PartitionCopy, item: Gap, error: int) -> None:
        if error == NONE:
            p.ack_target = p.reached = p.ack_target + item.markers
            if p.known is not None:
                p.known = p.known._replace(target=p.ack_target)
                self._notes.acknowledged(p, 0)
            # Still alone, if it was: a marker is not written under the signature.
            if p.one_in_flight and p.queue:
                self.links[p.target_leader].ready[p.target] = p
        elif is_retriable(error):
            self._state.disturb(p, f"filling a gap in {p.target}: {error_name(error)}")
        else:
            context = self._state.context
            text = f"gaps in {p.target} on {context.flow.target} cannot be filled"
            right = missing_right(context.target, "Alter", "cluster")
            self._state.fail(
                p,
                PartitionError(
                    "target.markers",
                    f"{text}: {error_name(error)}",
                    "set heliograph.offsets=dense: offsets are translated exactly then; or"
                    f" {right}",
                ),
            )

    def _acknowledge(self, p: PartitionCopy, answer: Produced) -> None:
        if not p.in_flight:
            return
        outgoing = p.in_flight.popleft()
        if not isinstance(outgoing, Outgoing):
            self._state.disturb(p, f"{p.target}: answers out of order")
            return
        self._state.free(p, len(outgoing.data))
        if not p.active:
            if p.holed is not None and answer.error == NONE:
                self._skipped(p, outgoing)
            return
        if p.shifting:
            p.shifting.append((outgoing, answer))
        else:
            self._take_answer(p, outgoing, answer)

    def _take_answer(self, p: PartitionCopy, outgoing: Outgoing, answer: Produced) -> None:
        if answer.error != NONE:
            p.holed = None if answer.error in _ANOTHER_FIRST else outgoing
            self._refused(p, outgoing, answer)
            return
        if answer.base_offset != p.ack_target:
            self._shifted(p, outgoing, answer)
            return
        p.acknowledged(outgoing, answer.base_offset)
        self._notes.acknowledged(p, len(outgoing.data))
        self._go_on(p)
        self._syncs.acknowledged(
            p.source, outgoing.first_source, outgoing.last_source, p.ack_target - 1
        )
        if not p.reading and p.queued_bytes <= self._state.context.fetch_max_bytes // 2:
            self._drained(p)

    def _shifted(self, p: PartitionCopy, outgoing: Outgoing, answer: Produced) -> None:
        """The batch is not where the ledger said: somebody else wrote, or the log lost its tail."""
        shift, place = answer.base_offset - p.ack_target, p.place
        if shift < 0 or place is None:
            self._state.disturb(p, f"{p.target} is shorter than the ledger says by {-shift}")
            return
        if self._divergence.pushed(p, p.ack_target, answer.base_offset):
            self._report_pushed(p)
        self._state.shift(p, shift)
        # It and the answers behind it are taken in when the ledger has it.
        p.shifting.appendleft((outgoing, answer))
        ledger, attempt = self._state.ledger, p.resumes
        staged, contiguous = p.sequence, p.contiguous

        def write() -> None:
            runs = [Run(outgoing.sequence, outgoing.first_source, answer.base_offset)]
            # What is queued behind it moves along. What somebody else announced
            # ahead of us is announced anew when it is read: the gap before it may be smaller then.
            runs += [
                run._replace(target=run.target + shift)
                for run in ledger.at(place).after(outgoing.sequence)
                if run.sequence < staged or run[:2] == (staged, contiguous)
            ]
            ledger.write([Entry(place, runs, shift=True)])

        def written(_: None) -> None:
            if p.active and p.resumes == attempt:
                p.ack_target += shift
                self._take_answers(p)

        def failed(error: WireError) -> None:
            if p.active and p.resumes == attempt:
                self._state.disturb(p, f"the ledger cannot be written: {error}")

        self._background.run(self.cluster.lane, write, written, failed)

    def _take_answers(self, p: PartitionCopy) -> None:
        """Take in the answers that have waited for the ledger, up to the next shift among them."""
        waiting = list(p.shifting)
        p.shifting.clear()
        while waiting and p.active and not p.shifting:
            item, answer = waiting.pop(0)
            if isinstance(item, Gap):
                self._take_marked(p, item, answer.error)
            else:
                self._take_answer(p, item, answer)
        if p.active:
            p.shifting.extend(waiting)

    def _report_pushed(self, p: PartitionCopy) -> None:
        first, until, count = p.foreign_first, p.foreign_last, p.foreign_count
        p.foreign_count, p.foreign_told = 0, time.time()
        self._background.run(
            self.cluster.lane,
            lambda: self._divergence.report_pushed(p, first, until, count),
            lambda _: None,
            lambda _: None,
        )

    def _refused(self, p: PartitionCopy, outgoing: Outgoing, answer: Produced) -> None:
        name = error_name(answer.error)
        if answer.error in _ANOTHER_FIRST:
            # The usual end of a race, and no reason to wait; but a second one in a row is.
            self._state.disturb(p, f"another writer was first: {name}", pause=p.attempts > 0)
            p.attempts += 1
        elif answer.error == CORRUPT_MESSAGE:
            # The records of large batches are not read here: look closer when reading them again,
            # so that damage on the source is told from damage on the way.
            p.rules = p.rules._replace(suspicious=True)
            self._state.disturb(p, f"{p.target} refused a batch: {name}")
        elif is_retriable(answer.error):
            self._state.disturb(p, hindrance(p, self._state.context, answer.error))
        else:
            self._refuse(p, outgoing, answer)

    def _refuse(self, p: PartitionCopy, outgoing: Outgoing, answer: Produced) -> None:
        """The target does not want these records, whatever is done: find out which, then policy."""
        name = error_name(answer.error)
        if answer.error == MESSAGE_TOO_LARGE and not answer.records:
            # Read it again, and split it, if the topic takes less than we thought.
            p.too_large = refusal(p, self._state.context, outgoing, answer)
            self._state.disturb(p, f"{p.target} refused a batch: {name}", pause=False)
            return
        if answer.records and self._state.context.quarantine_topic is not None:
            offsets = outgoing.offsets()
            refused = {offsets[i]: f"{name}: {why}" for i, why in answer.records.items()}
            p.rules = p.rules._replace(refused={**p.rules.refused, **refused})
            self._state.disturb(p, f"{p.target} refused {len(refused)} records", pause=False)
            return
        self._state.fail(p, refusal(p, self._state.context, outgoing, answer))


def hindrance(p: PartitionCopy, context: FlowContext, error: int) -> str:
    """Why a partition cannot be written at the moment, and what to do if that does not pass."""
    name, where = error_name(error), f"{p.target} on {context.flow.target}"
    if error in {NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND}:
        return (
            f"{where} has fewer replicas in sync than its min.insync.replicas: {name}; copying goes"
            f" on when its brokers are back, or min.insync.replicas of the topic is lowered"
        )
    if error == KAFKA_STORAGE_ERROR:
        return (
            f"broker {p.target_leader} cannot write {where} to its disk (is it full?): {name};"
            " copying goes on when there is room, or another broker leads the partition"
        )
    return f"writing {where}: {name}"


def refusal(
    p: PartitionCopy, context: FlowContext, outgoing: Outgoing, answer: Produced
) -> PartitionError:
    """What to tell about records that the target does not take."""
    if denied(answer.error):
        return PartitionError(
            "target.refused",
            f"{p.target} cannot be written on {context.flow.target}: {error_name(answer.error)}",
            missing_right(context.target, "Write", "topic", p.target.topic),
        )
    offsets = outgoing.offsets()
    named = [f"source offset {offsets[i]} ({why})" for i, why in list(answer.records.items())[:3]]
    more = f" and {len(answer.records) - 3} more" if len(answer.records) > 3 else ""
    which = ", ".join(named) + more
    if not named:
        which = f"source offsets {outgoing.first_source} to {outgoing.last_source}"
        which += f" ({shown(answer.message)})" if answer.message else ""
    return PartitionError(
        "target.refused",
        f"{p.target} on {context.flow.target} refuses records of {p.source}:"
        f" {error_name(answer.error)}: {which}",
        "compare the topic's configs on both sides (max.message.bytes, cleanup.policy,"
        " message.timestamp.*), or set heliograph.on.refused=quarantine to set such records aside",
    )
