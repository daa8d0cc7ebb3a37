"""The target side of a copy: what is enqueued is sent, answers are taken in. In executors.

One batch per partition in a request. Requests over one connection are executed in order, so markers
for a gap travel right behind the batch before it, and the next right behind them. `TargetLink`
decides when a request leaves, `Acknowledgements` what an answer means, `Backpressure` how much more
may be read.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping

from heliograph.copy.acknowledgements import Acknowledgements
from heliograph.copy.background import Background
from heliograph.copy.backpressure import Backpressure
from heliograph.copy.broker_link import ask_others, throttle
from heliograph.copy.known_positions import KnownPositions
from heliograph.copy.lease_state import SETTLE_SECONDS, LeaseState
from heliograph.copy.links import Cluster
from heliograph.copy.partition import Gap, Outgoing, PartitionCopy
from heliograph.copy.syncs import OffsetSyncWriter
from heliograph.copy.target_divergence import TargetDivergence
from heliograph.copy.target_link import Sent, TargetLink
from heliograph.copy.unresponsive_brokers import SILENT_SECONDS
from heliograph.model import TopicPartition
from heliograph.wire import markers
from heliograph.wire.errors import DamagedAnswer, WireError
from heliograph.wire.produce import Producer

#: Of an answer about markers, whatever it says.
_MARKED_BYTES = 8
#: One produce request: large enough to fill a link, far below socket.request.max.bytes (100 MB).
_REQUEST_BYTES = 8 << 20


class TargetSide:
    """Writes what is enqueued to the target's brokers; calls ``drained`` to have more read.

    Attributes:
        links: the brokers, by node.
        acknowledgements: take in their answers.
        room: how much more may be read.
    """

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
        self.links: dict[int, TargetLink] = {}
        self.acknowledgements = Acknowledgements(
            lease_state, cluster, self.links, syncs, notes, divergence, background, drained
        )
        self.room = Backpressure(lease_state, self.links, drained)
        self._limit = (
            f"{lease_state.context.flow.target} limits what we write (producer_byte_rate of this"
            " client id or user)"
        )
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
            if link.waited(now) > SILENT_SECONDS and now >= link.ask_again_at:
                led = [p.target for p in self._state.written_to(link.node)]
                ask_others(link, self.links, led, self.cluster, self._background, self.lose)
            if link.connection.throttled:
                # The broker does not read: what is sent now only waits in its socket.
                continue
            try:
                while link.may_send():
                    self._send(link)
                link.connection.flush()
            except WireError as error:
                self.lose(link, str(error))

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
            link.sent.append(Sent(markers=False, at=now, answer_bytes=answer_bytes))
        if counts:
            link.sent.append(Sent(markers=True, at=now, answer_bytes=_MARKED_BYTES))
            markers.send(link.connection, self._state.context.marker_id, counts)

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
        acknowledgements = self.acknowledgements
        try:
            link.connection.flush()
            # Also when nothing is due: a broker that has hung up is noticed only by reading.
            while (frame := link.connection.receive()) is not None:
                sent = link.sent.popleft()
                link.shortest_answer = min(link.shortest_answer, time.monotonic() - sent.at)
                if sent.markers:
                    for marked in markers.parse(link.connection, frame):
                        acknowledgements.marked(self._part(link, marked.partition), marked.error)
                else:
                    for answer in link.producer.parse(frame):
                        acknowledgements.produced(self._part(link, answer.partition), answer)
                    if seconds := link.connection.throttled:
                        led = self._state.written_to(link.node)
                        throttle(link.node, led, seconds, self._limit)
            if link.aside:
                self.room.take_back(link)
        except WireError as error:
            self.lose(link, str(error))

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

    def release(self) -> None:
        """Give the connections back."""
        for link in self.links.values():
            self.cluster.give_back(link.node, link.connection)
