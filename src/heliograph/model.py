"""Pure values shared by every layer. No I/O, no imports from the rest of the package."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """A direction of mirroring: records go from cluster ``source`` to cluster ``target``."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


class TopicPartition(NamedTuple):
    """A partition of a topic, on the source unless a name says otherwise.

    A tuple, because it is the key of every dictionary on the way of every batch.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """Where tasks reach the driver; ``token`` tells them from anybody else.

    On one machine that is a socket at ``path``, in a folder that nobody else can look into. From
    elsewhere it is ``host`` and ``port``, with TLS and the ``certificate`` that is expected there.
    """

    token: str = field(repr=False)
    path: str = ""
    host: str = ""
    port: int = 0
    certificate: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Sealed:
    """Secrets that stay with the driver: whoever opens a connection asks it for them."""

    address: DriverAddress
    name: str


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How to reach one cluster, as Kafka client keys after MM2's precedence.

    ``properties`` keeps ``${provider:...}`` templates unresolved: they travel through Spark as they
    are and become secrets only in the process that opens a connection (config.providers.resolve).
    Secrets that were written into the file do not travel at all: they are ``sealed``.
    """

    alias: str
    properties: Mapping[str, str] = field(repr=False)
    providers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    sealed: Sealed | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Comma separated host:port list, possibly still a template."""
        return self.properties.get("bootstrap.servers", "")


@dataclass(frozen=True, slots=True)
class OffsetSyncsTopic:
    """Where a flow writes MM2's offset syncs: on its ``source`` or on its ``target``."""

    topic: str
    on_source: bool


#: What to do when a source is not what it was.
FAIL, CONTINUE, RESTART_TOPIC = "fail", "continue", "restart-topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowContext:
    """Everything an executor needs to know about a flow; travels with every lease.

    ``name`` is what the flow is called in reports, receipts and events. ``producer_id`` is the
    flow's signature: every batch that the flow writes carries it. Markers in gaps are written under
    ``marker_id``: one under the signature would make a broker that has forgotten the signature's
    sequence take it for a signature without records. ``codec`` is that of batches which are built
    anew (None: as on the source). The policies ``on_...`` are FAIL, CONTINUE or RESTART_TOPIC.
    Records that the target does not take go to ``quarantine_topic``; without one they stop their
    partition.
    """

    flow: Flow
    source: ClientSettings
    target: ClientSettings
    producer_id: int
    ledger_topic: str
    offset_syncs: OffsetSyncsTopic | None
    offset_lag_max: int
    read_committed: bool
    start_at_latest: bool
    fetch_max_bytes: int
    buffer_max_bytes: int = 0
    on_data_loss: str = FAIL
    on_truncation: str = FAIL
    on_recreation: str = FAIL
    marker_id: int = -1
    codec: int | None = None
    quarantine_topic: str | None = None
    name: str = ""

    @property
    def label(self) -> str:
        """What the flow is called: its name, or else its clusters."""
        return self.name or str(self.flow)


class Guard(NamedTuple):
    """What a partition must not bring back: records that came from where they would go.

    Attributes:
        producer_ids: the signatures of the flow in the opposite direction, on this flow's source.
        since: what they signed before this source offset came from a topic that the target does not
            have any more: it is mirrored.
        paired: whether that flow has mirrored from the target partition, by its ledger: whatever
            stands there is known, and others may write to it.
        target_id: of the target topic that all this is about. One that was created anew since lacks
            what the guard would leave out.
    """

    producer_ids: frozenset[int]
    since: int = 0
    paired: bool = False
    target_id: uuid.UUID = uuid.UUID(int=0)

    def is_about(self, target_id: uuid.UUID) -> bool:
        """Whether it still says what is right, for a target topic that is there now."""
        return not self.target_id.int or self.target_id == target_id


class Move(NamedTuple):
    """An operator's decision: copying goes on at ``source``, whatever was mirrored before.

    ``id`` tells it from every other: it is applied once.
    """

    source: int
    id: str


@dataclass(frozen=True, slots=True)
class LeasedPartition:
    """A source partition, the topic it goes to, and where to stop (None: at the deadline only).

    Attributes:
        identical: whether target offsets are to be the source's own, gaps filled.
        paddable: whether the target topic takes filler records and lets them be deleted again.
        max_bytes: the target topic's max.message.bytes.
        withheld: why it must not be begun, if it was never mirrored; its receipt says so then.
        shared: whether it may be begun although its target holds records that nobody knows of.
        failing: what was told of it last, if it failed: it is not tried sooner than was planned.
        move: where to go on instead, if that was not done yet.
        guard: what must not be brought back; None if no flow goes in the opposite direction.
        reached: where its target log ended when the lease was planned, in the target topic
            ``reached_in``: one that ends before has lost its tail.
    """

    source: TopicPartition
    target_topic: str
    until: int | None = None
    identical: bool = False
    paddable: bool = False
    max_bytes: int = 1 << 30
    withheld: str = ""
    shared: bool = False
    failing: PartitionReport | None = None
    move: Move | None = None
    guard: Guard | None = None
    reached: int = 0
    reached_in: uuid.UUID | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to copy some partitions of a flow from ``starts_at`` until ``deadline``.

    Both are seconds since the epoch. A lease is a plan, not a lock: two holders do no harm. Only
    markers in gaps cannot be taken back: none is written before ``markers_from``, when the holder
    before has certainly ended. ``serial`` grows from lease to lease: what the holder of an older
    one says of a partition counts less. Live reports go to ``report_to``, if there is one.
    """

    context: FlowContext
    partitions: tuple[LeasedPartition, ...]
    starts_at: float
    deadline: float
    markers_from: float = 0.0
    serial: int = 0
    report_to: DriverAddress | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one partition of a lease; ``error`` is empty if it could be copied.

    ``source_position`` is the next source offset to mirror, ``target_end`` the offset it gets:
    where the two agree, offsets are identical. ``quarantined`` counts records set aside.
    ``lease_report`` repeats what the holder of lease ``serial`` had to tell of it, in case its live
    reports were lost; nothing if it is fine (copy.lease_report). ``counts`` is what was done with
    it (copy.counts).
    """

    flow: str
    topic: str
    partition: int
    source_position: int
    target_end: int
    records: int
    bytes: int
    batches: int
    resumes: int
    quarantined: int
    error: str
    serial: int = 0
    lease_report: str = ""
    counts: str = ""


class PartitionState(StrEnum):
    """What a partition is doing, in the order of how much it should worry somebody."""

    IDLE = "idle"
    COPYING = "copying"
    STARTING = "starting"
    WAITING = "waiting"
    THROTTLED = "throttled"
    QUARANTINING = "quarantining"
    STALLED = "stalled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What the holder of a lease says of a partition whenever its state changes.

    ``code`` is that of the error, if there is one; ``retry_at`` when it is tried again. Times are
    seconds since the epoch, 0 for never.
    """

    flow: str
    partition: TopicPartition
    state: PartitionState
    since: float
    why: str = ""
    code: str = ""
    retry_at: float = 0.0


@dataclass(frozen=True, slots=True)
class PartitionEvent:
    """Something that an operator must hear of once, whatever the policy made of it.

    ``first`` and ``until`` are the source offsets [first, until) that it is about (-1: none), on
    the target if ``code`` begins with ``target.``. ``policy`` is the setting by which the flow goes
    on all the same, ``heliograph.on.data.loss=continue``; empty if no setting decides that, and
    while the partition stands.
    """

    flow: str
    partition: TopicPartition
    code: str
    text: str
    first: int = -1
    until: int = -1
    at: float = 0.0
    policy: str = ""
