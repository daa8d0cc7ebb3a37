"""One partition while it is being copied: positions, what is queued, what is in flight.

Runs in executors. Invariants:
- ``sequence`` and ``target`` belong to the next record to be queued, ``position`` to the next to be
  fetched; ``ack_target`` is the offset that the next acknowledged batch must have;
- queue and in_flight together hold consecutive sequences, oldest in flight first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from heliograph.ledger.codec import Place
from heliograph.ledger.runs import Run
from heliograph.model import LeasedPartition, Receipt, TopicPartition


@dataclass(slots=True)
class Outgoing:
    """A signed batch on its way; ``last_source`` is the source offset of its last record."""

    data: memoryview
    sequence: int
    count: int
    first_source: int
    last_source: int
    next_source: int


@dataclass(slots=True)
class Position:
    """Where copying goes on: the truth that `resume` found on the target."""

    sequence: int
    source: int
    target: int


@dataclass(slots=True)
class PartitionCopy:
    """The state of one partition within a lease."""

    lease: LeasedPartition
    source: TopicPartition
    target: TopicPartition
    place: Place | None = None
    source_leader: int = -1
    target_leader: int = -1
    active: bool = False
    position: int = 0
    contiguous: int = 0
    sequence: int = 0
    target_next: int = 0
    ack_target: int = 0
    acked_source: int = -1
    queue: deque[Outgoing] = field(default_factory=deque)
    in_flight: deque[Outgoing] = field(default_factory=deque)
    queued_bytes: int = 0
    suspicious: bool = False
    broken: str = ""
    failed: str = ""
    retry_at: float = 0.0
    attempts: int = 0
    resumes: int = 0
    records: int = 0
    bytes: int = 0
    batches: int = 0

    @classmethod
    def of(cls, lease: LeasedPartition) -> PartitionCopy:
        """A partition that has not been resumed yet."""
        source = lease.source
        return cls(lease, source, TopicPartition(lease.target_topic, source.partition))

    def start(self, position: Position) -> None:
        """Begin, or begin again, at what the target holds."""
        self.queue.clear()
        self.in_flight.clear()
        self.queued_bytes = 0
        self.sequence = position.sequence
        self.position = self.contiguous = self.acked_source = position.source
        self.target_next = self.ack_target = position.target
        self.broken = ""
        self.active = True
        self.resumes += 1

    def stage(self, sequence_runs: list[tuple[int, int]]) -> list[Run]:
        """Account for a piece's runs; returns those that the ledger must hold before it is sent."""
        announced = []
        for source, count in sequence_runs:
            if source != self.contiguous:
                announced.append(Run(self.sequence, source, self.target_next))
            self.contiguous = source + count
            self.sequence += count
            self.target_next += count
        return announced

    def acknowledged(self, outgoing: Outgoing, base_offset: int) -> None:
        """A batch is on the target at ``base_offset``."""
        self.ack_target = base_offset + outgoing.count
        self.acked_source = outgoing.next_source
        self.records += outgoing.count
        self.bytes += len(outgoing.data)
        self.batches += 1
        self.attempts = 0

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
            error=self.failed or self.broken,
        )

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
