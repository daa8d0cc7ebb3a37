"""What the ``heliograph_*`` metrics say, from a snapshot. Pure; runs in the REST server."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from heliograph import __version__
from heliograph.batch.pieces import LANES
from heliograph.model import PartitionState
from heliograph.rest.metrics import table as t
from heliograph.rest.metrics.series import Series
from heliograph.rest.metrics.topics import bounded
from heliograph.service.snapshot import (
    EngineState,
    FlowSnapshot,
    FlowState,
    JobSnapshot,
    MirrorSnapshot,
    PartitionSnapshot,
)

__all__ = ["add_flow", "add_mirror", "add_partitions", "add_topics"]

_READY = {True: "yes", False: "no", None: "unknown"}
#: Settings by which a flow goes on past offsets that events name.
_GOES_ON = ("heliograph.on.data.loss=continue", "heliograph.on.truncation=continue")
_SETS_ASIDE = "heliograph.on.refused=quarantine"
_STATES = [state.value for state in FlowState]


def add_mirror(series: Series, found: MirrorSnapshot) -> None:
    """What concerns all flows."""
    series.add(t.BUILD, 1, __version__)
    series.add(t.STARTED, found.started_at or None)
    if found.engine is not None:
        series.choice(t.ENGINE_STATE, found.engine.state, [s.value for s in EngineState])
        series.add(t.ENGINE_SLOTS, found.engine.slots)
    ends: dict[tuple[str, str, str], float] = {}
    for c in found.certificates:
        key = c.owner, c.store, c.subject
        ends[key] = min(c.expires_at, ends.get(key, c.expires_at))
    for key, expires_at in ends.items():
        series.add(t.CERTIFICATE, expires_at, *key)


def add_flow(series: Series, flow: FlowSnapshot) -> None:
    """One flow, without its topics."""
    name = flow.flow
    series.add(t.FLOW_INFO, 1, name, flow.source, flow.target)
    series.choice(t.FLOW_STATE, flow.life.state, _STATES, name)
    for part, life in flow.parts.items():
        series.choice(t.PART_STATE, life.state, _STATES, name, part)
    series.add(t.OWNER, bool(flow.owns), name)
    series.add(t.MEASURED, flow.measured_at or None, name)
    series.add(t.LAG_RECORDS, flow.lag_records, name)
    series.add(t.LAG_SECONDS, flow.lag_seconds, name)
    series.add(t.UNMEASURED, flow.unmeasured, name)
    if (risk := flow.at_risk) is not None:
        series.add(t.RPO_RECORDS, risk.records, name)
        series.add(t.RPO_SECONDS, risk.seconds, name)
        series.add(t.RPO_TOPICS, None if risk.records is None else risk.topics, name)
        series.add(t.RPO_MEASURED, risk.measured_at, name)
    series.add(t.RTO_SECONDS, flow.rto_seconds, name)
    series.add(t.RTO_MEASURED, flow.rto_measured_at or None, name)
    series.add(t.REHEARSAL_OK, flow.rehearsal_ok, name)
    series.add(t.DIVERGED, flow.diverged_records, name)
    series.add(t.PROGRESS, flow.progressed_at or None, name)
    for state in PartitionState:
        series.add(t.PARTITIONS, flow.states.get(state.value, 0), name, state.value)
    series.add(t.TOPICS, len(flow.topics), name)
    series.add(t.PAUSED_TOPICS, len(flow.paused_topics), name)
    series.add(t.OFFSETS, flow.identical, name, "identical")
    series.add(t.OFFSETS, flow.translated, name, "translated")
    series.add(t.MIRRORED, flow.records_total, name)
    series.add(t.LEDGER_RUNS, flow.ledger_runs, name)
    series.add(t.LEDGER_END, flow.ledger_end, name)
    _add_counts(series, flow)
    ready = [group.ready for group in flow.groups]
    for value, word in _READY.items():
        series.add(t.GROUPS, sum(r is value for r in ready), name, word)
    for job in flow.jobs:
        _add_job(series, flow, job)
    if (canary := flow.canary) is not None:
        series.add(t.CANARY_LATENCY, canary.latency_seconds, name)
        series.add(t.CANARY_SKEW, canary.skew_seconds, name)
        series.add(t.CANARY_LOST, canary.lost, name)
        series.add(t.CANARY_OVERDUE, canary.overdue, name)
        series.add(t.CANARY_SEEN, canary.seen_at or None, name)


def _add_counts(series: Series, flow: FlowSnapshot) -> None:
    """What was done since the process started: 0 from the start, so that no growth is missed."""
    name, counts = flow.flow, flow.counts
    series.add(t.COPIED_RECORDS, flow.copied_records, name)
    series.add(t.COPIED_BYTES, flow.copied_bytes, name)
    for lane in LANES:
        series.add(t.BATCHES, getattr(counts, lane), name, lane)
    series.add(t.PENDING, flow.pending, name)
    series.add(t.FREE_BYTES, flow.free_bytes, name)
    series.add(t.RESUMES, counts.resumes, name)
    series.add(t.THROTTLED, counts.throttled_ms / 1000, name)
    series.add(t.ROUNDS, flow.rounds - flow.failed_rounds, name, "done")
    series.add(t.ROUNDS, flow.failed_rounds, name, "failed")
    series.add(t.LOST, flow.told_offsets.get("source.data-loss", 0), name)
    series.add(t.QUARANTINED, flow.quarantined, name)
    for policy in _GOES_ON:
        series.add(t.SKIPPED, flow.skipped.get(policy, 0), name, policy)
    series.add(t.SKIPPED, flow.quarantined, name, _SETS_ASIDE)
    series.add(t.FOREIGN, flow.told_offsets.get("target.foreign", 0), name)
    for code, number in flow.events.items():
        series.add(t.EVENTS, number, name, code)
    for code, number in flow.told_offsets.items():
        series.add(t.EVENT_OFFSETS, number, name, code)


def _add_job(series: Series, flow: FlowSnapshot, job: JobSnapshot) -> None:
    what = job.description
    for name in (flow.flow, f"{flow.source}->{flow.target}"):
        for word in ("of", "for"):
            what = what.replace(f" {word} {name}", "")
    labels = flow.flow, what
    series.add(t.JOB_RUNS, job.runs, *labels)
    series.add(t.JOB_FAILURES, job.failures, *labels)
    series.add(t.JOB_SECONDS, job.took_total_seconds, *labels)
    series.add(t.JOB_FAILING, bool(job.error), *labels)
    series.add(t.JOB_LAST_RUN, job.last_run or None, *labels)


def add_topics(series: Series, flow: FlowSnapshot, shown: AbstractSet[str]) -> None:
    """The topics that are shown, and one for the others."""
    topics, others = bounded(flow, shown)
    series.add(t.OTHER_TOPICS, others, flow.flow)
    for topic in topics:
        labels = flow.flow, topic.topic
        series.add(t.TOPIC_LAG_RECORDS, topic.lag_records, *labels)
        series.add(t.TOPIC_LAG_SECONDS, topic.lag_seconds, *labels)
        series.add(t.TOPIC_PARTITIONS, topic.partitions, *labels)
        series.add(t.TOPIC_TROUBLED, topic.troubled, *labels)


def add_partitions(series: Series, flow: FlowSnapshot, shown: AbstractSet[str]) -> None:
    """Every partition of the topics that are shown."""
    for p in flow.partitions:
        if p.topic in shown:
            _add_partition(series, flow.flow, p)


def _add_partition(series: Series, flow: str, p: PartitionSnapshot) -> None:
    labels = flow, p.topic, str(p.partition)
    series.add(t.PARTITION_LAG_RECORDS, p.lag_records, *labels)
    series.add(t.PARTITION_LAG_SECONDS, p.lag_seconds, *labels)
    series.add(t.PARTITION_PROGRESS, p.progressed_at or None, *labels)
    series.add(t.PARTITION_STATE, 1, *labels, p.state.value)
