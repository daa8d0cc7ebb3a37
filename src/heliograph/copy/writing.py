"""The target side of a copy: compare-and-append, five requests deep. In executors.

One batch per partition in a request, at most five requests in flight per broker: the broker
recognises a repeated batch among a producer's last five.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from heliograph.copy.desk import Desk
from heliograph.copy.links import Cluster
from heliograph.copy.partition import Outgoing, PartitionCopy
from heliograph.copy.syncs import OffsetSyncWriter
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Entry
from heliograph.ledger.runs import Run
from heliograph.model import TopicPartition
from heliograph.wire.connection import Connection
from heliograph.wire.errors import (
    CORRUPT_MESSAGE,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    WireError,
    error_name,
    is_retriable,
)
from heliograph.wire.produce import Produced, Producer

_MAX_IN_FLIGHT = 5
#: One produce request: large enough to fill a link, far below socket.request.max.bytes (100 MB).
_REQUEST_BYTES = 8 << 20


@dataclass(slots=True)
class TargetLink:
    """A target broker: requests in flight and partitions with something to send."""

    node: int
    producer: Producer
    in_flight: int = 0
    ready: dict[TopicPartition, PartitionCopy] = field(default_factory=dict)

    @property
    def connection(self) -> Connection:
        """The producer's connection."""
        return self.producer.connection


class TargetSide:
    """Writes what is enqueued, checks every acknowledgement, and calls ``drained`` after each."""

    def __init__(
        self,
        desk: Desk,
        cluster: Cluster,
        syncs: OffsetSyncWriter,
        drained: Callable[[PartitionCopy], None],
    ) -> None:
        self._desk = desk
        self._cluster = cluster
        self._syncs = syncs
        self._drained = drained
        self.links: dict[int, TargetLink] = {}
        desk.detach.append(self._detach)

    def attach(self, p: PartitionCopy, ids: Mapping[str, uuid.UUID]) -> None:
        """Have a connection to the partition's leader; ``ids`` are the target's topics now."""
        link = self.links.get(p.target_leader)
        if link is not None and (link.connection.closed or not link.producer.knows(ids)):
            self.lose(link, "the target's topics changed")
            link = None
        if link is None:
            producer = Producer(self._cluster.take(p.target_leader), ids)
            self.links[p.target_leader] = TargetLink(p.target_leader, producer)

    def _detach(self, p: PartitionCopy) -> None:
        link = self.links.get(p.target_leader)
        if link is not None:
            link.ready.pop(p.target, None)

    def enqueue(self, p: PartitionCopy, outgoing: Outgoing) -> None:
        """Queue a signed batch for its partition."""
        p.queue.append(outgoing)
        p.queued_bytes += len(outgoing.data)
        self._desk.buffered += len(outgoing.data)
        self.links[p.target_leader].ready[p.target] = p

    def pump(self) -> None:
        """Send what the brokers may have in flight; nothing after the deadline.

        A process that was stopped and continued must not write as if no time had passed: where the
        broker has dropped the signature's state, only the deadline keeps a zombie quiet.
        """
        if time.time() >= self._desk.lease.deadline:
            return
        for link in list(self.links.values()):
            try:
                while link.ready and link.in_flight < _MAX_IN_FLIGHT:
                    self._send(link)
            except WireError as error:
                self.lose(link, str(error))

    def react(self, link: TargetLink) -> None:
        """Write on, and take in every answer that is here."""
        try:
            link.connection.flush()
            while link.in_flight and (answers := link.producer.receive()) is not None:
                link.in_flight -= 1
                for answer in answers:
                    self._acknowledge(self._desk.by_target[answer.partition], answer)
        except WireError as error:
            self.lose(link, str(error))

    @property
    def owed(self) -> bool:
        """Whether answers are outstanding."""
        return any(link.in_flight for link in self.links.values())

    def lose(self, link: TargetLink, why: str) -> None:
        """Drop a connection. What was in flight has an unknown outcome: resume finds it out."""
        link.connection.close()
        self.links.pop(link.node, None)
        for p in self._desk.parts.values():
            if p.target_leader == link.node and (p.active or p.in_flight):
                p.in_flight.clear()
                self._desk.disturb(p, why)

    def release(self) -> None:
        """Give the connections back."""
        for link in self.links.values():
            self._cluster.give_back(link.node, link.connection)

    # -- one request, one answer --------------------------------------------------------------

    def _send(self, link: TargetLink) -> None:
        batches: list[tuple[TopicPartition, memoryview]] = []
        size = 0
        for p in list(link.ready.values()):
            outgoing = p.queue.popleft()
            p.in_flight.append(outgoing)
            batches.append((p.target, outgoing.data))
            size += len(outgoing.data)
            # To the back of the line, so that a full request is not always the same partitions'.
            del link.ready[p.target]
            if p.queue:
                link.ready[p.target] = p
            if size >= _REQUEST_BYTES:
                break
        link.in_flight += 1
        link.producer.send(batches)

    def _acknowledge(self, p: PartitionCopy, answer: Produced) -> None:
        if not p.in_flight:
            return
        outgoing = p.in_flight.popleft()
        size = len(outgoing.data)
        p.queued_bytes -= size
        self._desk.buffered -= size
        if not p.active:
            return
        if answer.error != NONE:
            self._refused(p, outgoing, answer)
            return
        if answer.base_offset != p.ack_target and not self._shifted(p, outgoing, answer):
            return
        p.acknowledged(outgoing, answer.base_offset)
        self._syncs.acknowledged(
            p.source, outgoing.first_source, outgoing.last_source, p.ack_target - 1
        )
        if p.queued_bytes <= self._desk.context.fetch_max_bytes // 2:
            self._drained(p)

    def _shifted(self, p: PartitionCopy, outgoing: Outgoing, answer: Produced) -> bool:
        """The batch is not where the ledger said: somebody else wrote, or the log lost its tail."""
        shift = answer.base_offset - p.ack_target
        if shift < 0 or p.place is None:
            self._desk.disturb(p, f"{p.target} is shorter than the ledger says by {-shift}")
            return False
        p.target_next += shift
        runs = [Run(outgoing.sequence, outgoing.first_source, answer.base_offset)]
        # Runs that were announced meanwhile move along with it.
        runs += [
            run._replace(target=run.target + shift)
            for run in self._desk.ledger.at(p.place).runs
            if run.sequence > outgoing.sequence
        ]
        try:
            self._desk.ledger.write([Entry(p.place, runs, shift=True)])
        except WireError as error:
            self._desk.disturb(p, f"the ledger cannot be written: {error}")
            return False
        return True

    def _refused(self, p: PartitionCopy, outgoing: Outgoing, answer: Produced) -> None:
        name = error_name(answer.error)
        if answer.error == OUT_OF_ORDER_SEQUENCE_NUMBER:
            # The usual end of a race, and no reason to wait; but a second one in a row is.
            self._desk.disturb(p, f"another writer was first: {name}", pause=p.attempts > 0)
            p.attempts += 1
        elif answer.error == CORRUPT_MESSAGE:
            # The records of large batches are not read here: look closer when reading them again,
            # so that damage on the source is told from damage on the way.
            p.suspicious = True
            self._desk.disturb(p, f"{p.target} refused a batch: {name}")
        elif is_retriable(answer.error):
            self._desk.disturb(p, f"writing {p.target}: {name}")
        else:
            detail = f": {answer.message}" if answer.message else ""
            text = (
                f"{p.target} on {self._desk.context.flow.target} refuses source offsets"
                f" {outgoing.first_source} to {outgoing.last_source} of {p.source}: {name}{detail}"
            )
            hint = "compare the topic's configs on both sides (max.message.bytes, cleanup.policy)"
            self._desk.fail(p, PartitionError("target.refused", text, hint))
