"""Every metric that is served: name, type, labels and what it says. Pure.

docs/metrics.md lists the same (docs/generate.py). Names beginning with ``heliograph_`` follow
Prometheus' conventions. Names beginning with ``kafka_`` and ``jvm_`` are those that dashboards for
MirrorMaker 2 ask for. They have no type, as the JMX exporter writes them: some of them end in a way
that Prometheus keeps for other types.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TABLE", "Metric"]


class Metric(NamedTuple):
    """One metric. ``kind`` is a type of Prometheus; ``labels`` are in the order of the values."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


TABLE: list[Metric] = []


def _made(kind: str, name: str, labels: str, text: str) -> Metric:
    metric = Metric(name, kind, tuple(labels.split()), text)
    TABLE.append(metric)
    return metric


def _gauge(name: str, labels: str, text: str) -> Metric:
    return _made("gauge", f"heliograph_{name}", labels, text)


def _counter(name: str, labels: str, text: str) -> Metric:
    return _made("counter", f"heliograph_{name}_total", labels, text)


def _mm2(name: str, labels: str, text: str) -> Metric:
    kind = "counter" if name.endswith("_total") else "unknown"
    return _made(kind, f"kafka_{name}", labels, text)


# -- the mirror -----------------------------------------------------------------------------------

BUILD = _gauge("build_info", "version", "Version of Heliograph. Always 1.")
STARTED = _gauge("start_timestamp_seconds", "", "When the mirror was started.")
ENGINE_STATE = _gauge("engine_state", "state", "1 for the state that Spark is in, 0 for others.")
ENGINE_SLOTS = _gauge("engine_slots", "", "Tasks that Spark can run at once.")
CERTIFICATE = _gauge(
    "certificate_expiry_timestamp_seconds", "cluster store subject",
    "When a certificate ends that clients of a cluster use; cluster=\"rest\": the server's own.",
)  # fmt: skip

# -- a flow ---------------------------------------------------------------------------------------

FLOW_INFO = _gauge("flow_info", "flow source target", "The clusters of a flow. Always 1.")
FLOW_STATE = _gauge("flow_state", "flow state", "1 for the state that a flow is in, 0 for others.")
PART_STATE = _gauge("part_state", "flow part state", "The same of each part of a flow.")
OWNER = _gauge("flow_owner", "flow", "1 if this process has the flow, 0 if it stands by or tries.")
MEASURED = _gauge("measured_timestamp_seconds", "flow", "When both clusters were last asked.")
LAG_RECORDS = _gauge("lag_records", "flow", "Source offsets that are not on the target yet.")
LAG_SECONDS = _gauge(
    "lag_seconds", "flow", "How long the oldest record has waited that is not on the target yet."
)
UNMEASURED = _gauge("unmeasured_partitions", "flow", "Partitions whose lag is not known.")
RPO_RECORDS = _gauge(
    "rpo_records", "flow",
    "What would be lost if the source died now: source offsets that are not on the target.",
)  # fmt: skip
RPO_SECONDS = _gauge(
    "rpo_seconds", "flow", "The same in time: how long the oldest of them has waited."
)
RPO_TOPICS = _gauge("rpo_topics", "flow", "Topics that would lose some.")
RPO_MEASURED = _gauge(
    "rpo_measured_timestamp_seconds", "flow", "When the source last answered for it."
)
RTO_SECONDS = _gauge("rto_seconds", "flow", "How long the last failover, switchover or drill took.")
RTO_MEASURED = _gauge("rto_measured_timestamp_seconds", "flow", "When that was.")
REHEARSAL_OK = _gauge(
    "rehearsal_ok", "flow",
    "1 if the last failover, switchover or drill came to its end as it should, else 0.",
)  # fmt: skip
DIVERGED = _gauge(
    "diverged_records", "flow",
    "Of a flow that was failed over: source offsets that the target does not have. If they grow,"
    " somebody still writes to the old source.",
)  # fmt: skip
PROGRESS = _gauge(
    "last_progress_timestamp_seconds", "flow", "When a copy on the target was last seen to grow."
)
PARTITIONS = _gauge("partitions", "flow state", "Partitions in each state.")
TOPICS = _gauge("topics", "flow", "Topics that are mirrored.")
PAUSED_TOPICS = _gauge("paused_topics", "flow", "Topics of these that were paused.")
OFFSETS = _gauge(
    "offset_partitions", "flow offsets", "Partitions with the source's offsets, and with others."
)
MIRRORED = _gauge(
    "mirrored_records", "flow", "Records on the target by this mirror and those before it."
)
COPIED_RECORDS = _counter("copied_records", "flow", "Records that this process has written.")
COPIED_BYTES = _counter("copied_bytes", "flow", "Bytes that this process has written.")
BATCHES = _counter(
    "batches", "flow lane",
    "Batches by what had to be done with them; skipped ones hold no record to mirror.",
)  # fmt: skip
PENDING = _gauge("pending_records", "flow", "Records that were read and are not acknowledged.")
FREE_BYTES = _gauge("buffer_free_bytes", "flow", "Room that leases have for records on their way.")
RESUMES = _counter("resumes", "flow", "How often a partition had to be copied on anew.")
THROTTLED = _counter("throttled_seconds", "flow", "How long quotas made partitions wait, summed.")
ROUNDS = _counter("rounds", "flow outcome", "Rounds of leases that have ended.")
LOST = _counter(
    "lost_records", "flow",
    "Source offsets that were deleted before they could be mirrored, as told by events, whether the"
    " partition stands (heliograph.on.data.loss=fail) or goes on.",
)  # fmt: skip
QUARANTINED = _counter("quarantined_records", "flow", "Records that were set aside.")
SKIPPED = _counter(
    "skipped_records", "flow policy",
    "Source offsets that a flow went on past because a setting lets it: deleted before they were"
    " mirrored, lost by the source after that, or set aside.",
)  # fmt: skip
FOREIGN = _counter(
    "foreign_records", "flow", "Target offsets of stretches in which somebody else has written."
)
EVENTS = _counter("events", "flow code", "Events by code; docs/status.md lists the codes.")
EVENT_OFFSETS = _counter("event_offsets", "flow code", "Offsets that these events were about.")
LEDGER_RUNS = _gauge("ledger_runs", "flow", "What is kept of where records are on the target.")
LEDGER_END = _gauge("ledger_end_offset", "flow", "Where the ledger's log ends.")
GROUPS = _gauge("groups", "flow ready", "Consumer groups, by whether they could move over now.")
JOB_RUNS = _counter("job_runs", "flow job_name", "Runs of a control job.")
JOB_FAILURES = _counter("job_failures", "flow job_name", "Those that failed.")
JOB_SECONDS = _counter("job_seconds", "flow job_name", "How long they took in all.")
JOB_FAILING = _gauge("job_failing", "flow job_name", "1 if the last run failed.")
JOB_LAST_RUN = _gauge("job_last_run_timestamp_seconds", "flow job_name", "When the last run began.")
CANARY_LATENCY = _gauge(
    "canary_latency_seconds", "flow",
    "From visible on the source to visible on the target, by probes; or how long one has waited.",
)  # fmt: skip
CANARY_SKEW = _gauge(
    "canary_skew_seconds", "flow", "This machine's clock minus the one that stamps the probes."
)
CANARY_LOST = _counter("canary_lost", "flow", "Probes that did not arrive within 30 s.")
CANARY_OVERDUE = _gauge(
    "canary_overdue", "flow",
    "1 while a probe has been on its way for more than 30 s, or a cluster does not answer for as"
    " long; else 0.",
)  # fmt: skip
CANARY_SEEN = _gauge(
    "canary_seen_timestamp_seconds", "flow", "When the last probe was seen on the target."
)

# -- topics and partitions ------------------------------------------------------------------------

TOPIC_LAG_RECORDS = _gauge("topic_lag_records", "flow topic", "Lag of a source topic.")
TOPIC_LAG_SECONDS = _gauge("topic_lag_seconds", "flow topic", "The greatest of its partitions.")
TOPIC_PARTITIONS = _gauge("topic_partitions", "flow topic", "Partitions of a source topic.")
TOPIC_TROUBLED = _gauge(
    "topic_troubled_partitions", "flow topic", "Those that somebody should look at."
)
OTHER_TOPICS = _gauge("other_topics", "flow", 'Topics that topic="other" stands for.')
PARTITION_LAG_RECORDS = _gauge(
    "partition_lag_records", "flow topic partition", "Lag of a partition, if asked for."
)
PARTITION_LAG_SECONDS = _gauge(
    "partition_lag_seconds", "flow topic partition", "The same in seconds."
)
PARTITION_PROGRESS = _gauge(
    "partition_last_progress_timestamp_seconds", "flow topic partition",
    "When its copy was last seen to grow.",
)  # fmt: skip
PARTITION_STATE = _gauge(
    "partition_state", "flow topic partition state", "1 for the state that a partition is in."
)

# -- MirrorMaker 2 and Connect --------------------------------------------------------------------

_SOURCE, _PLACE = "connect_mirror_mirrorsourceconnector", "source target topic partition"
MM2_RECORD_COUNT = _mm2(f"{_SOURCE}_record_count", _PLACE, "Records written; topic is the remote.")
MM2_BYTE_COUNT = _mm2(f"{_SOURCE}_byte_count", _PLACE, "Bytes written.")
MM2_RECORD_RATE = _mm2(f"{_SOURCE}_record_rate", _PLACE, "Records a second, lately.")
MM2_BYTE_RATE = _mm2(f"{_SOURCE}_byte_rate", _PLACE, "Bytes a second, lately.")
_SPANS = (("", ""), ("_min", ", least"), ("_max", ", most"), ("_avg", ", average"))
MM2_AGE = [
    _mm2(f"{_SOURCE}_record_age_ms{end}", _PLACE, f"Age of records when they are read{what}.")
    for end, what in _SPANS
]
MM2_LATENCY = [
    _mm2(f"{_SOURCE}_replication_latency_ms{end}", _PLACE,
         f"Age of records when they are on the target{what}.")
    for end, what in _SPANS
]  # fmt: skip
_CHECKPOINTS = "connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms"
MM2_CHECKPOINT = [
    _mm2(f"{_CHECKPOINTS}{end}", f"{_PLACE} group",
         f"How long it takes to write checkpoints and to sync groups{what}.")
    for end, what in _SPANS
]  # fmt: skip


class Twin(NamedTuple):
    """One figure under two names: the JMX exporter's, with quotes in its labels, and Strimzi's."""

    jmx: Metric
    reporter: Metric


def _twin(jmx: str, reporter: str, labels: str, text: str, reporter_labels: str = "") -> Twin:
    return Twin(_mm2(jmx, labels, text), _mm2(reporter, reporter_labels or labels, text))


CONNECTORS = _twin(
    "connect_worker_connector_count", "connect_connect_worker_metrics_connector_count", "",
    "Parts of flows: copying, checkpoints, heartbeats.",
)  # fmt: skip
TASKS = _twin(
    "connect_worker_task_count", "connect_connect_worker_metrics_task_count", "",
    "The same: one task a part.",
)  # fmt: skip
ASSIGNED_CONNECTORS = _twin(
    "connect_coordinator_assigned_connectors",
    "connect_connect_coordinator_metrics_assigned_connectors", "", "Those of flows that are here.",
)  # fmt: skip
ASSIGNED_TASKS = _twin(
    "connect_coordinator_assigned_tasks", "connect_connect_coordinator_metrics_assigned_tasks", "",
    "The same.",
)  # fmt: skip
REBALANCING = _twin(
    "connect_worker_rebalance_rebalancing", "connect_connect_worker_rebalance_metrics_rebalancing",
    "", "Flows that wait for their owner.",
)  # fmt: skip
CONNECTOR_STATUS = _mm2(
    "connect_connector_status", "connector status", "1 for the status of a part, 0 for others."
)
FAILED_TASKS = _mm2("connect_worker_connector_failed_task_count", "connector", "1 if it failed.")
ACTIVE = _twin(
    "connect_source_task_source_record_active_count",
    "connect_source_task_metrics_source_record_active_count", "connector task",
    "Records that were read and are not acknowledged.",
)  # fmt: skip
COMMIT_TIME = _twin(
    "connect_connector_task_offset_commit_avg_time_ms",
    "connect_connector_task_metrics_offset_commit_avg_time_ms", "connector task",
    "From read to acknowledged by the target, on average.",
)  # fmt: skip
BUFFER = _twin(
    "producer_buffer_available_bytes", "producer_producer_metrics_buffer_available_bytes",
    "clientid", "Room that leases have for records on their way.", "client_id",
)  # fmt: skip
RECORDS_LAG = _twin(
    "consumer_fetch_manager_records_lag", "consumer_consumer_fetch_manager_metrics_records_lag",
    "clientid topic partition", "Lag of a source topic or partition.", "client_id topic partition",
)  # fmt: skip
INCOMING = _twin(
    "consumer_incoming_byte_total", "consumer_consumer_metrics_incoming_byte", "clientid",
    "Bytes of batches that came through, as they were written.", "client_id",
)  # fmt: skip
OUTGOING = _twin(
    "producer_outgoing_byte_total", "producer_producer_metrics_outgoing_byte", "clientid",
    "The same.", "client_id",
)  # fmt: skip

# -- processes ------------------------------------------------------------------------------------

JVM_MEMORY = _made("gauge", "jvm_memory_used_bytes", "area", "Memory that Spark's Java uses.")
JVM_THREADS = _made("gauge", "jvm_threads_current", "", "Its threads.")
JVM_GC = _made("summary", "jvm_gc_collection_seconds", "gc", "Its garbage collections.")
for _name, _kind, _labels, _text in (
    ("process_cpu_seconds_total", "counter", "", "CPU time of the driver's process."),
    ("process_max_fds", "gauge", "", "Files that it may open."),
    ("process_open_fds", "gauge", "", "Files that it has open."),
    ("process_resident_memory_bytes", "gauge", "", "Memory that it uses."),
    ("process_start_time_seconds", "gauge", "", "When it was started."),
    ("process_virtual_memory_bytes", "gauge", "", "Addresses that it has reserved."),
    ("python_info", "gauge", "implementation major minor patchlevel version", "Which Python."),
):
    _made(_kind, _name, _labels, _text)
