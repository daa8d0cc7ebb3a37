"""What MM2's and Connect's metrics say, from a snapshot. Pure; runs in the REST server.

A part of a flow is a connector with one task. Where MM2 has a series for each partition, there is
one for each topic, with an empty ``partition``, unless partitions are asked for.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from heliograph.copy.counts import SpanValues
from heliograph.rest.metrics import table as t
from heliograph.rest.metrics.series import Series
from heliograph.rest.metrics.table import Metric
from heliograph.rest.metrics.topics import OTHER, bounded
from heliograph.service.snapshot import (
    CHECKPOINTS,
    COPYING,
    HEARTBEATS,
    FlowSnapshot,
    FlowState,
    JobSnapshot,
    MirrorSnapshot,
    PartitionCopies,
)

__all__ = ["add_mm2_connectors", "add_mm2_copies", "add_mm2_groups"]

_CONNECTORS = {
    COPYING: "MirrorSourceConnector",
    CHECKPOINTS: "MirrorCheckpointConnector",
    HEARTBEATS: "MirrorHeartbeatConnector",
}
_STATUSES = {
    FlowState.STARTING: "unassigned",
    FlowState.RUNNING: "running",
    FlowState.PAUSED: "paused",
    FlowState.STANDING_BY: "unassigned",
    FlowState.FAILED: "failed",
    FlowState.STOPPED: "stopped",
}


def add_mm2_connectors(series: Series, found: MirrorSnapshot) -> None:
    """The parts of flows, as Connect counts connectors and tasks."""
    running = sum(len(f.parts) for f in found.flows)
    here = sum(len(f.parts) for f in found.flows if f.owns)
    for connectors, value in (
        (t.CONNECTORS, running), (t.TASKS, running),
        (t.ASSIGNED_CONNECTORS, here), (t.ASSIGNED_TASKS, here),
        (t.REBALANCING, sum(f.life.state is FlowState.STANDING_BY for f in found.flows)),
    ):  # fmt: skip
        series.twin(connectors, value)
    choices = list(dict.fromkeys(_STATUSES.values()))
    for flow in found.flows:
        for part, life in flow.parts.items():
            connector = f"{flow.flow}.{_CONNECTORS[part]}"
            series.choice(t.CONNECTOR_STATUS, _STATUSES[life.state], choices, connector)
            series.add(t.FAILED_TASKS, life.state is FlowState.FAILED, connector)
        if COPYING in flow.parts:
            _add_source_task(series, flow)


def _add_source_task(series: Series, flow: FlowSnapshot) -> None:
    connector, counts = f"{flow.flow}.{_CONNECTORS[COPYING]}", flow.counts
    series.twin(t.ACTIVE, flow.pending, connector, "0")
    if counts.latency.seen:
        took = max(counts.latency.mean - counts.age.mean, 0.0)
        series.twin(t.COMMIT_TIME, took, connector, "0")
    series.twin(t.BUFFER, flow.free_bytes, f"connector-producer-{connector}-0")
    series.twin(t.INCOMING, flow.copied_bytes, _consumer(flow))
    series.twin(t.OUTGOING, flow.copied_bytes, f"connector-producer-{connector}-0")


def _consumer(flow: FlowSnapshot) -> str:
    return f"{flow.flow}|{_CONNECTORS[COPYING]}-0|replication-consumer"


@dataclass(slots=True)
class _Span:
    """`SpanValues` of several partitions. ``last`` is the greatest of theirs."""

    last: int = 0
    least: int = 0
    greatest: int = 0
    total: int = 0
    seen: int = 0

    def add(self, values: SpanValues) -> None:
        last, least, greatest, total, seen = values
        if not seen:
            return
        self.least = min(self.least, least) if self.seen else least
        self.last = max(self.last, last)
        self.greatest = max(self.greatest, greatest)
        self.total += total
        self.seen += seen

    def write(self, series: Series, metrics: list[Metric], *labels: str) -> None:
        if self.seen:
            figures = (self.last, self.least, self.greatest, self.total / self.seen)
            for metric, value in zip(metrics, figures, strict=True):
                series.add(metric, value, *labels)


@dataclass(slots=True)
class _Sum:
    """`PartitionCopies` of several partitions."""

    records: int = 0
    bytes: int = 0
    records_per_second: float = 0.0
    bytes_per_second: float = 0.0
    age: _Span = field(default_factory=_Span)
    latency: _Span = field(default_factory=_Span)

    def add(self, copies: PartitionCopies) -> None:
        self.records += copies.counts.records
        self.bytes += copies.counts.bytes
        self.records_per_second += copies.records_per_second
        self.bytes_per_second += copies.bytes_per_second
        self.age.add(copies.age)
        self.latency.add(copies.latency)

    def write(self, series: Series, source: str, target: str, topic: str, partition: str) -> None:
        labels = source, target, topic, partition
        # Topics come and go among the others: their sum would fall, as if it began anew.
        if topic != OTHER:
            series.add(t.MM2_RECORD_COUNT, self.records, *labels)
            series.add(t.MM2_BYTE_COUNT, self.bytes, *labels)
        series.add(t.MM2_RECORD_RATE, self.records_per_second, *labels)
        series.add(t.MM2_BYTE_RATE, self.bytes_per_second, *labels)
        self.age.write(series, t.MM2_AGE, *labels)
        self.latency.write(series, t.MM2_LATENCY, *labels)


def add_mm2_copies(
    series: Series, flow: FlowSnapshot, shown: AbstractSet[str], *, partitions: bool
) -> None:
    """What was copied, and how far behind the copies are."""
    remote = {topic.topic: topic.target_topic for topic in flow.topics if topic.topic in shown}
    sums: dict[tuple[str, str], _Sum] = {}
    for (topic, number), copies in flow.copies.items():
        name = remote.get(topic, OTHER)
        key = name, str(number) if partitions and name != OTHER else ""
        if (known := sums.get(key)) is None:
            known = sums[key] = _Sum()
        known.add(copies)
    for (name, partition), known in sums.items():
        known.write(series, flow.source, flow.target, name, partition)
    consumer = _consumer(flow)
    for row in bounded(flow, shown)[0]:
        if not partitions or row.topic == OTHER:
            series.twin(t.RECORDS_LAG, row.lag_records, consumer, row.topic, "")
    if partitions:
        for p in flow.partitions:
            if p.topic in shown:
                series.twin(t.RECORDS_LAG, p.lag_records, consumer, p.topic, str(p.partition))


def add_mm2_groups(series: Series, flow: FlowSnapshot, most: int) -> None:
    """How long checkpoints take, for each group; those that lag most if there are too many."""
    jobs = [job for job in flow.jobs if job.part == CHECKPOINTS and job.runs]
    if not jobs:
        return
    # The slowest of the jobs counts, for each figure.
    figures = [1000 * max(found) for found in zip(*map(_took, jobs), strict=True)]
    groups = sorted(flow.groups, key=lambda g: (-(g.lag or 0), g.group))
    names = [group.group for group in groups[:most] if group.group != OTHER]
    if len(names) < len(groups):
        names.append(OTHER)
    for name in names:
        labels = flow.source, flow.target, "", "", name
        for metric, value in zip(t.MM2_CHECKPOINT, figures, strict=True):
            series.add(metric, value, *labels)


def _took(job: JobSnapshot) -> tuple[float, ...]:
    """How long its last run took, the shortest, the longest, and all on average, in seconds."""
    return (
        job.took_seconds, job.took_least_seconds, job.took_most_seconds,
        job.took_total_seconds / job.runs,
    )  # fmt: skip
