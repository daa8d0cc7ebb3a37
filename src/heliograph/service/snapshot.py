"""What is known of a mirror at one moment, as immutable values. Made in the driver, read anywhere.

`MirrorSnapshot` holds everything; nothing else is read by the table, the JSON lines, the REST
interface or programs that embed a mirror. Supervisors make it from their `FlowMonitor`s:

    FlowMonitor.snapshot(life, parts, jobs) -> FlowSnapshot      a flow that was connected
    FlowSnapshot(flow, source, target, life, parts)              one that was not

Times are seconds since the epoch, 0 for "never" or "not known". A figure that is not known is None,
never 0. `to_json` turns any of these values into plain dicts, with times as ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from heliograph.control.scheduler import JobStatus
from heliograph.copy.counts import Counts, SpanValues
from heliograph.model import PartitionState, TopicPartition
from heliograph.units import moment

__all__ = [
    "CHECKPOINTS",
    "COPYING",
    "HEARTBEATS",
    "CanarySnapshot",
    "CertificateSnapshot",
    "EngineSnapshot",
    "EngineState",
    "FlowSnapshot",
    "FlowState",
    "GroupDetails",
    "GroupPartition",
    "GroupSnapshot",
    "JobSnapshot",
    "Life",
    "MirrorSnapshot",
    "PartitionCopies",
    "PartitionSnapshot",
    "RiskSnapshot",
    "TopicSnapshot",
    "summary",
    "to_json",
]

#: The parts of a flow, named after what MM2's three connectors do.
COPYING, CHECKPOINTS, HEARTBEATS = "copying", "checkpoints", "heartbeats"

#: States of a partition that need nobody's attention.
_HEALTHY = (PartitionState.IDLE, PartitionState.COPYING, PartitionState.STARTING)
_WORST_FIRST = {state: n for n, state in enumerate(reversed(PartitionState))}
#: Fields that hold a time.
_TIMES = frozenset(
    {"at", "since", "next_try", "last_run", "next_run", "measured_at", "started_at", "seen_at",
     "progressed_at", "expires_at", "rto_measured_at"}
)  # fmt: skip


class FlowState(StrEnum):
    """Where a flow, or a part of one, is in its life. Its supervisor decides."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STANDING_BY = "standing by"
    FAILED = "failed"
    STOPPED = "stopped"


class EngineState(StrEnum):
    """What Spark is doing."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Life:
    """The state of a flow or of a part of it.

    Attributes:
        reason: why, for people; for a flow that starts, what it waits for. Empty if all is well.
        code: that of the error, if there is one.
        since: when the state began.
        next_try: when what failed is tried again.
    """

    state: FlowState
    reason: str = ""
    code: str = ""
    since: float = 0.0
    next_try: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """Spark. ``slots`` is how many tasks can run at once, 0 before that is known.

    ``pid`` is the process of its driver's Java; None if somebody else started that.
    """

    state: EngineState
    reason: str = ""
    since: float = 0.0
    slots: int = 0
    pid: int | None = None


class PartitionSnapshot(NamedTuple):
    """One partition of a flow. A tuple, because there are thousands.

    Attributes:
        topic: on the source; the partition number is the same on both sides.
        target_topic: where it is mirrored to.
        state: see docs/status.md; ``reason``, ``code``, ``since`` and ``next_try`` belong to it.
        source_end: where the readable part of the source's log ends. This and the next three are
            None before the first measurement.
        position: the next source offset to mirror.
        target_end: where the target's log ends.
        lag_records: source offsets that are not on the target yet.
        lag_seconds: how long the next record to be mirrored has been waiting; 0 if there is none,
            None if that is not known.
        shift: target offset minus source offset of the newest records: 0 where offsets are
            identical, None if nothing was mirrored yet.
        progressed_at: when its target was first seen to have grown to where it is; 0 if that was
            before the mirror watched.
    """

    topic: str
    partition: int
    target_topic: str
    state: PartitionState
    reason: str = ""
    code: str = ""
    since: float = 0.0
    next_try: float = 0.0
    source_end: int | None = None
    position: int | None = None
    target_end: int | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    shift: int | None = None
    progressed_at: float = 0.0

    @property
    def name(self) -> str:
        """The partition as people write it: orders-3."""
        return f"{self.topic}-{self.partition}"

    @property
    def troubled(self) -> bool:
        """Whether somebody should know: it is not just copied, idle or about to begin."""
        return self.state not in _HEALTHY


class PartitionCopies(NamedTuple):
    """What tasks of this process did with one partition since it started.

    ``age`` and ``latency`` are of the last lease that wrote anything: how old the newest record of
    each batch was when it was read, and when the target had acknowledged it.
    """

    counts: Counts
    records_per_second: float
    bytes_per_second: float
    age: SpanValues
    latency: SpanValues


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """One topic of a flow: the sums over its partitions.

    ``lag_records`` is the sum of what is known, None if nothing is. ``lag_seconds`` is the greatest
    that is known; None if all that are known are 0 and some are not known. ``troubled`` counts
    partitions.
    """

    topic: str
    target_topic: str
    partitions: int
    lag_records: int | None
    lag_seconds: float | None
    troubled: int


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A control job and what became of its last run.

    Attributes:
        part: the part of the flow that it belongs to.
        error: why the last run failed; empty if it did not.
        details: what the last run said of single subjects, e.g. why a group is not synced.
        runs: how often it ran since its part was started; ``failures`` how often it failed;
            ``took_total_seconds`` how long all of it took, ``took_least_seconds`` and
            ``took_most_seconds`` the shortest and the longest run.
    """

    description: str
    interval_seconds: float
    part: str = COPYING
    last_run: float = 0.0
    next_run: float = 0.0
    took_seconds: float = 0.0
    error: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    runs: int = 0
    failures: int = 0
    took_total_seconds: float = 0.0
    took_least_seconds: float = 0.0
    took_most_seconds: float = 0.0

    @classmethod
    def of(cls, status: JobStatus, part: str = COPYING) -> JobSnapshot:
        """A scheduled job as it is now."""
        return cls(
            status.description, status.interval_seconds, part, status.last_run, status.next_run,
            status.took_seconds, status.last_error, MappingProxyType(dict(status.details)),
            status.runs, status.failures, status.took_total_seconds, status.took_least_seconds,
            status.took_most_seconds,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A consumer group of the source, as the jobs last saw it.

    Attributes:
        said: what each job last said of it, by the job's description.
        ready: whether its consumers could go on at the target now without skipping a record; None
            if that is not known.
        why: why not; or what to know before they move.
        partitions: how many it has committed offsets of, among those that are mirrored.
        lag: records on the source that it has not read; None if that is not known.
    """

    group: str
    said: Mapping[str, str] = field(default_factory=dict)
    ready: bool | None = None
    why: str = ""
    partitions: int = 0
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """One partition of a consumer group on both sides. What is not known is None.

    Attributes:
        topic: on the source; the partition number is the same on both sides.
        translated: where on the target ``source_committed`` is.
        source_end, target_end: where the logs ended when they were last measured.
    """

    topic: str
    partition: int
    target_topic: str
    source_committed: int
    source_end: int | None = None
    translated: int | None = None
    target_committed: int | None = None
    target_end: int | None = None


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """A consumer group with all its partitions, by name."""

    flow: str
    group: GroupSnapshot
    partitions: tuple[GroupPartition, ...]


@dataclass(frozen=True, slots=True)
class CanarySnapshot:
    """How long a record takes through the flow, by probes (`heliograph.control.canary`).

    Attributes:
        latency_seconds: of the last probe, or how long one has been waiting if that is more; None
            before the first.
        skew_seconds: the driver's clock minus the clock that stamps heartbeats on the source.
        lost: probes that did not arrive in time.
        seen_at: when the last one was seen on the target.
        overdue: whether the one that is awaited now counts as lost.
    """

    latency_seconds: float | None
    skew_seconds: float | None
    lost: int
    seen_at: float
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class RiskSnapshot:
    """What a flow would lose if its source died now: its RPO.

    Attributes:
        records: source offsets that are not on the target yet, of all partitions whose lag is
            known; None if that is known of none. Markers of transactions and aborted records have
            offsets, too.
        topics: how many source topics they are in.
        seconds: how long the oldest of them has waited; None if that is not known.
        unmeasured: partitions of which nothing is known; they are not in these figures.
        measured_at: when the source last answered. What was written to it later is not known.
    """

    records: int | None
    topics: int
    seconds: float | None
    unmeasured: int
    measured_at: float


@dataclass(frozen=True, slots=True)
class FlowSnapshot:
    """One flow.

    Before the first measurement, and while the flow is not connected, all figures are None and
    there are no partitions.

    Attributes:
        flow: its id, unique within the mirror; the name that events carry.
        life: of the flow as a whole; ``parts`` of its three parts, by COPYING, CHECKPOINTS and
            HEARTBEATS. A part that is switched off in the configuration is absent.
        topics: every topic, the one with the greatest lag first.
        partitions: every partition of the plan, by name.
        states: how many partitions are in each state, the worst first.
        unmeasured: partitions whose lag is not known; ``lag_records`` does not count them.
        lag_seconds: the greatest that is known; None if all that are known are 0 and some are not.
        records_per_second: what the targets grew by lately.
        bytes_per_second: what tasks of this mirror wrote lately; None if they have not reported.
        records_total: records mirrored, by this mirror and those before it.
        copied_records, copied_bytes: by tasks of this process since it started.
        identical, translated: partitions with the source's own offsets, and the others.
        events: how many events there were of each code; ``told_offsets`` how many offsets these
            were about, where they name any; ``skipped`` how many of these the flow went on past, by
            the setting that let it: ``heliograph.on.data.loss=continue``.
        owns: whether this mirror has the flow; None if it is not connected.
        progressed_at: when a target was last seen to grow.
        counts: what tasks of this process did since it started; ``copies`` of each partition that
            they copied.
        pending: records that were read and are not acknowledged; ``free_bytes`` the room that
            leases have left for such records, None if none has reported.
        rounds, failed_rounds: how many have ended.
        ledger_runs: what is kept of where records are; ``ledger_end`` is where the ledger's log
            ends.
        canary: None before the first probe, and where there are no heartbeats to probe with.
        paused_topics: source topics that an operator lets rest: "paused", by whom and why.
        at_risk: what would be lost if the source died now; None before the first measurement.
        rto_seconds: how long the last failover, switchover or drill took that came to its end, and
            ``rto_measured_at`` when it was; None if there was none.
        rehearsal_ok: whether the last one came to its end as it should; None if there was none.
        diverged_records: of a flow that was failed over, what its source has and the target has
            not; None if it was not, or the source has not answered since.
    """

    flow: str
    source: str
    target: str
    life: Life
    parts: Mapping[str, Life] = field(default_factory=dict)
    measured_at: float = 0.0
    topics: tuple[TopicSnapshot, ...] = ()
    partitions: tuple[PartitionSnapshot, ...] = ()
    states: Mapping[str, int] = field(default_factory=dict)
    unmeasured: int = 0
    lag_records: int | None = None
    lag_seconds: float | None = None
    records_per_second: float | None = None
    bytes_per_second: float | None = None
    records_total: int | None = None
    copied_records: int = 0
    copied_bytes: int = 0
    identical: int = 0
    translated: int = 0
    quarantined: int = 0
    events: Mapping[str, int] = field(default_factory=dict)
    told_offsets: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    owns: bool | None = None
    progressed_at: float = 0.0
    counts: Counts = field(default_factory=Counts)
    copies: Mapping[TopicPartition, PartitionCopies] = field(default_factory=dict)
    pending: int = 0
    free_bytes: int | None = None
    rounds: int = 0
    failed_rounds: int = 0
    ledger_runs: int | None = None
    ledger_end: int | None = None
    jobs: tuple[JobSnapshot, ...] = ()
    groups: Sequence[GroupSnapshot] = ()
    canary: CanarySnapshot | None = None
    paused_topics: Mapping[str, str] = field(default_factory=dict)
    at_risk: RiskSnapshot | None = None
    rto_seconds: float | None = None
    rto_measured_at: float = 0.0
    rehearsal_ok: bool | None = None
    diverged_records: int | None = None

    @property
    def troubled(self) -> list[PartitionSnapshot]:
        """The partitions that somebody should know about, the worst and oldest first."""
        if not any(state not in _HEALTHY for state in self.states):
            return []
        found = [p for p in self.partitions if p.troubled]
        return sorted(found, key=lambda p: (_WORST_FIRST[p.state], p.since, p.topic, p.partition))

    @property
    def failing_jobs(self) -> list[JobSnapshot]:
        """The control jobs whose last run failed."""
        return [job for job in self.jobs if job.error]


@dataclass(frozen=True, slots=True)
class CertificateSnapshot:
    """A certificate that a connection depends on.

    Attributes:
        owner: the alias of the cluster whose clients use it; ``rest`` for the REST API.
        store: ``keystore`` or ``truststore``.
        subject: whose it is.
        expires_at: the end of its validity.
    """

    owner: str
    store: str
    subject: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class MirrorSnapshot:
    """The whole mirror.

    Attributes:
        at: when the snapshot was taken; ``started_at`` is when the mirror was.
        engine: None if no flow needs Spark.
        sequence: that of the last event on the bus when it was taken: whoever reads the events
            behind it misses none.
        certificates: those that clients of the clusters use, as far as they could be read.
    """

    at: float
    flows: tuple[FlowSnapshot, ...]
    engine: EngineSnapshot | None = None
    started_at: float = 0.0
    sequence: int = 0
    certificates: tuple[CertificateSnapshot, ...] = ()

    def flow(self, flow: str) -> FlowSnapshot | None:
        """The flow with that id, if there is one."""
        return next((f for f in self.flows if f.flow == flow), None)


def to_json(value: object) -> Any:
    """Plain dicts, lists, strings and numbers, for `json.dumps`; times as ISO 8601, or null.

    Other numbers have at most three decimals.
    """
    if isinstance(value, float):
        return round(value, 3)
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (PartitionSnapshot, Counts)):
        return [to_json(v) for v in value]
    plain: dict[str, Any] = {}
    kind: Any = type(value)
    for name in _names(kind):
        item = getattr(value, name)
        if name in _TIMES:
            item = moment(item) if item else None
        elif not (item is None or isinstance(item, (str, int))):
            item = to_json(item)
        plain[name] = item
    return plain


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    if kind is PartitionSnapshot or kind is Counts:
        named: tuple[str, ...] = cast(Any, kind)._fields
        return named
    return tuple(f.name for f in fields(cast(Any, kind)))


def summary(flow: FlowSnapshot) -> dict[str, Any]:
    """A flow in a few hundred bytes, as `to_json`: without what grows with it.

    Counts stand for topics, partitions and jobs; partitions in trouble, failing jobs and lagging
    topics are in the full snapshot.
    """
    left_out = {
        "topics", "partitions", "jobs", "groups", "counts", "copies", "told_offsets", "skipped",
        "free_bytes",
    }  # fmt: skip
    plain = {
        name: to_json(getattr(flow, name)) for name in _names(FlowSnapshot) if name not in left_out
    }
    for name in ("measured_at", "progressed_at", "rto_measured_at"):
        at: float = getattr(flow, name)
        plain[name] = moment(at) if at else None
    plain["topics"], plain["partitions"] = len(flow.topics), len(flow.partitions)
    plain["failing_jobs"] = len(flow.failing_jobs)
    return plain
