"""What /metrics says of a snapshot, as prometheus_client reads it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from serving import ScriptedHerder, serving

from heliograph.config import MirrorMakerConfig
from heliograph.config.worker_keys import RestSettings as RestKeys
from heliograph.copy.counts import Counts, SpanValues
from heliograph.model import PartitionState, TopicPartition
from heliograph.rest.metrics.route import exposition
from heliograph.rest.metrics.series import Series
from heliograph.rest.metrics.table import EVENTS, LAG_RECORDS, TABLE
from heliograph.rest.own_routes import Mirrored
from heliograph.rest.settings import MetricsSettings, RestSettings
from heliograph.service.events import EventBus
from heliograph.service.history import History
from heliograph.service.snapshot import (
    CHECKPOINTS,
    COPYING,
    CanarySnapshot,
    CertificateSnapshot,
    EngineSnapshot,
    EngineState,
    FlowSnapshot,
    FlowState,
    GroupSnapshot,
    JobSnapshot,
    Life,
    MirrorSnapshot,
    PartitionCopies,
    PartitionSnapshot,
    RiskSnapshot,
    TopicSnapshot,
)

HOSTILE = 'a"b\\c\n<img src=x>'
M = "kafka_connect_mirror_mirrorsourceconnector_"
RUNNING = Life(FlowState.RUNNING, since=1.0)


def flow(topics=(), **values):
    rows = tuple(
        PartitionSnapshot(t.topic, n, t.target_topic, PartitionState.IDLE, lag_records=n,
                          lag_seconds=0.5, progressed_at=9.0)
        for t in topics for n in range(t.partitions)
    )  # fmt: skip
    made = FlowSnapshot(
        "A->B", "A", "B", RUNNING, {COPYING: RUNNING, CHECKPOINTS: RUNNING}, measured_at=5.0,
        topics=tuple(topics), partitions=rows, lag_records=sum(t.lag_records or 0 for t in topics),
        states={"idle": len(rows)}, owns=True,
    )  # fmt: skip
    return replace(made, **values)


def topic(name, lag=0, partitions=2):
    return TopicSnapshot(name, f"A.{name}", partitions, lag, lag / 10, int(lag > 50))


def asked(*flows, **settings):
    """Samples by name and labels."""
    found = MirrorSnapshot(10.0, flows, EngineSnapshot(EngineState.READY, slots=8), 1.0)
    return parsed(exposition(found, MetricsSettings(**settings)))


def parsed(text):
    samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in samples, "Prometheus takes no second value"
            samples[key] = sample.value
    return samples


def value(samples, name, **labels):
    return samples[name, frozenset(labels.items())]


def named(samples, name):
    return {labels: found for (known, labels), found in samples.items() if known == name}


def test_a_flow_in_numbers():
    counts = Counts(70, 800, 1, 2, 3, 4, 5, 6500)
    found = asked(flow(
        [topic("orders", 60)], lag_seconds=6.0, quarantined=2, counts=counts, copied_records=70,
        copied_bytes=800, pending=11, free_bytes=1 << 20, rounds=9, failed_rounds=2,
        told_offsets={"source.data-loss": 12, "target.foreign": 3, "source.truncated": 1},
        skipped={"heliograph.on.data.loss=continue": 7},
        events={"source.data-loss": 1}, ledger_runs=40, ledger_end=900, progressed_at=8.5,
        canary=CanarySnapshot(0.25, -0.5, 3, 9.5, overdue=True),
        at_risk=RiskSnapshot(60, 1, 6.0, 2, 4.5), rto_seconds=7.25, rto_measured_at=3.0,
        rehearsal_ok=False, diverged_records=12,
        groups=(GroupSnapshot("g", {}, True), GroupSnapshot("h", {}, False)),
        jobs=(JobSnapshot("syncing ACLs of A->B", 60.0, error="no", last_run=7.0, runs=4,
                          failures=3, took_total_seconds=1.5),),
    ))  # fmt: skip
    f = {"flow": "A->B"}
    for name, expected in {
        "lag_records": 60, "lag_seconds": 6, "last_progress_timestamp_seconds": 8.5,
        "quarantined_records_total": 2, "lost_records_total": 12, "foreign_records_total": 3,
        "copied_records_total": 70, "copied_bytes_total": 800, "pending_records": 11,
        "buffer_free_bytes": 1 << 20, "resumes_total": 5, "throttled_seconds_total": 6.5,
        "ledger_runs": 40, "ledger_end_offset": 900, "flow_owner": 1, "topics": 1,
        "canary_latency_seconds": 0.25, "canary_skew_seconds": -0.5, "canary_lost_total": 3,
        "canary_overdue": 1,
        "canary_seen_timestamp_seconds": 9.5, "measured_timestamp_seconds": 5,
        "rpo_records": 60, "rpo_seconds": 6, "rpo_topics": 1, "rpo_measured_timestamp_seconds": 4.5,
        "rto_seconds": 7.25, "rto_measured_timestamp_seconds": 3, "rehearsal_ok": 0,
        "diverged_records": 12,
    }.items():  # fmt: skip
        assert value(found, f"heliograph_{name}", **f) == expected, name
    lanes = {"passed": 1, "merged": 2, "rewritten": 3, "skipped": 4}
    for lane, expected in lanes.items():
        assert value(found, "heliograph_batches_total", **f, lane=lane) == expected
    assert value(found, "heliograph_rounds_total", **f, outcome="done") == 7
    assert value(found, "heliograph_rounds_total", **f, outcome="failed") == 2
    assert value(found, "heliograph_event_offsets_total", **f, code="source.truncated") == 1
    assert value(found, "heliograph_groups", **f, ready="yes") == 1
    skipped = named(found, "heliograph_skipped_records_total")
    assert {dict(labels)["policy"]: number for labels, number in skipped.items()} == {
        "heliograph.on.data.loss=continue": 7, "heliograph.on.truncation=continue": 0,
        "heliograph.on.refused=quarantine": 2,
    }  # fmt: skip
    job = {**f, "job_name": "syncing ACLs"}
    assert value(found, "heliograph_job_failures_total", **job) == 3
    assert value(found, "heliograph_job_failing", **job) == 1
    assert value(found, "heliograph_engine_slots") == 8


def test_a_state_is_one_series_for_each_state():
    found = asked(flow(life=Life(FlowState.FAILED), states={"failed": 2, "idle": 5}))
    states = named(found, "heliograph_flow_state")
    assert len(states) == len(FlowState)
    assert sum(states.values()) == 1
    assert value(found, "heliograph_flow_state", flow="A->B", state="failed") == 1
    partitions = named(found, "heliograph_partitions")
    assert len(partitions) == len(PartitionState), "also those that no partition is in"
    assert value(found, "heliograph_partitions", flow="A->B", state="failed") == 2


_OF_A_BAD_DAY = ("heliograph_rpo", "heliograph_rto", "heliograph_rehearsal", "heliograph_diverged")


def test_what_is_not_known_has_no_series():
    found = asked(FlowSnapshot("A->B", "A", "B", Life(FlowState.STARTING), lag_records=None))
    assert not [name for name, _ in found if name.startswith(_OF_A_BAD_DAY)]
    blind = asked(flow(at_risk=RiskSnapshot(None, 0, None, 2, 4.5)))
    assert {name for name, _ in blind if name.startswith("heliograph_rpo")} == {
        "heliograph_rpo_measured_timestamp_seconds"
    }
    for name in ("lag_records", "lag_seconds", "last_progress_timestamp_seconds", "ledger_runs",
                 "canary_latency_seconds", "measured_timestamp_seconds"):  # fmt: skip
        assert not named(found, f"heliograph_{name}"), name
    assert value(found, "heliograph_lost_records_total", flow="A->B") == 0
    assert value(found, "heliograph_flow_owner", flow="A->B") == 0


def test_topics_are_bounded_and_the_rest_is_one():
    topics = [topic(f"t{n:03}", n) for n in range(100)] + [topic("other", 1000)]
    there = flow(topics)
    back = replace(flow([topic("r", 500)]), flow="B->A", source="B", target="A")
    found = asked(there, back, topics=10)
    lags = named(found, "heliograph_topic_lag_records")
    assert len(lags) == 11
    assert value(found, "heliograph_topic_lag_records", flow="B->A", topic="r") == 500
    shown = {dict(labels)["topic"] for labels in lags}
    assert shown == {"r", "other", *(f"t{n:03}" for n in range(91, 100))}
    other = {"flow": "A->B", "topic": "other"}
    assert value(found, "heliograph_topic_lag_records", **other) == sum(range(91)) + 1000
    assert value(found, "heliograph_topic_lag_seconds", **other) == 100.0
    assert value(found, "heliograph_topic_partitions", **other) == 2 * 92
    assert value(found, "heliograph_other_topics", flow="A->B") == 92
    assert value(found, "heliograph_other_topics", flow="B->A") == 0
    assert not named(found, "heliograph_partition_lag_records"), "only if asked for"
    of_topics = [name for name, labels in found if "topic" in dict(labels)]
    assert max(map(of_topics.count, of_topics)) == 11
    assert len(named(asked(there, topics=0), "heliograph_topic_lag_records")) == 1


def test_partitions_if_asked_for():
    topics = [topic("big", 9, 3), topic("small", 1, 3)]
    copies = {TopicPartition(t.topic, n): _copies(10 * n) for t in topics for n in range(3)}
    found = asked(flow(topics, copies=copies), partitions=True, topics=1)
    assert len(named(found, "heliograph_partition_lag_records")) == 3
    place = {"flow": "A->B", "topic": "big", "partition": "2"}
    assert value(found, "heliograph_partition_lag_records", **place) == 2
    assert value(found, "heliograph_partition_state", **place, state="idle") == 1
    assert value(found, "heliograph_partition_last_progress_timestamp_seconds", **place) == 9
    rates = named(found, f"{M}record_rate")
    assert {(dict(k)["topic"], dict(k)["partition"]) for k in rates} == {
        ("A.big", "0"), ("A.big", "1"), ("A.big", "2"), ("other", ""),
    }  # fmt: skip
    lags = named(found, "kafka_consumer_consumer_fetch_manager_metrics_records_lag")
    assert sorted(lags.values()) == [0, 1, 1, 2]


def _copies(records, last=5):
    age = SpanValues(last, 1, 9, 20, 4)
    return PartitionCopies(Counts(records, 8 * records), 1.5, 12.0, age, age._replace(last=50))


def test_mm2_names_and_labels():
    copies = {TopicPartition("orders", 0): _copies(3, 7), TopicPartition("orders", 1): _copies(4)}
    counts = Counts(age=SpanValues(1, 1, 1, 40, 4), latency=SpanValues(1, 1, 1, 100, 4))
    jobs = (
        JobSnapshot("emitting checkpoints for A->B", 2.0, CHECKPOINTS, took_seconds=0.2, runs=4,
                    took_total_seconds=2.0, took_least_seconds=0.125, took_most_seconds=1.25),
        JobSnapshot("syncing group offsets of A->B", 2.0, CHECKPOINTS, took_seconds=0.0625, runs=2,
                    took_total_seconds=0.125, took_least_seconds=0.0625, took_most_seconds=0.0625),
    )  # fmt: skip
    groups = tuple(GroupSnapshot(f"g{n}", {}, lag=n) for n in range(5))
    found = asked(flow(
        [topic("orders", 60)], copies=copies, counts=counts, pending=4, free_bytes=77,
        copied_bytes=800, jobs=jobs, groups=groups,
    ), topics=3)  # fmt: skip
    place = {"source": "A", "target": "B", "topic": "A.orders", "partition": ""}
    for name, expected in {
        "record_count": 7, "byte_count": 56, "record_rate": 3.0, "byte_rate": 24.0,
        "record_age_ms": 7, "record_age_ms_min": 1, "record_age_ms_max": 9,
        "record_age_ms_avg": 5, "replication_latency_ms": 50, "replication_latency_ms_avg": 5,
    }.items():  # fmt: skip
        assert value(found, M + name, **place) == expected, name
    latency = "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms"
    assert {dict(labels)["group"] for labels in named(found, latency)} == {
        "g4", "g3", "g2", "other",
    }  # fmt: skip
    assert set(named(found, latency).values()) == {200}
    assert set(named(found, f"{latency}_avg").values()) == {500}
    assert set(named(found, f"{latency}_min").values()) == {125}
    assert set(named(found, f"{latency}_max").values()) == {1250}
    connector = "A->B.MirrorSourceConnector"
    task = {"connector": f'"{connector}"', "task": "0"}
    assert value(found, "kafka_connect_source_task_source_record_active_count", **task) == 4
    assert value(found, "kafka_connect_connector_task_offset_commit_avg_time_ms", **task) == 15
    status = named(found, "kafka_connect_connector_status")
    assert status[frozenset({("connector", connector), ("status", "running")})] == 1
    assert status[frozenset({("connector", connector), ("status", "failed")})] == 0
    assert value(found, "kafka_connect_worker_connector_count") == 2
    quoted = {"clientid": '"A->B|MirrorSourceConnector-0|replication-consumer"'}
    lag = {**quoted, "topic": "orders", "partition": ""}
    assert value(found, "kafka_consumer_fetch_manager_records_lag", **lag) == 60
    assert value(found, "kafka_consumer_incoming_byte_total", **quoted) == 800
    failed = flow(parts={COPYING: Life(FlowState.FAILED)})
    tasks = "kafka_connect_worker_connector_failed_task_count"
    assert set(named(asked(failed), tasks).values()) == {1}


def test_two_connectors_between_the_same_clusters_are_one_place():
    one = flow([topic("orders")], copies={TopicPartition("orders", 0): _copies(3)})
    found = asked(one, replace(one, flow="second"))
    place = {"source": "A", "target": "B", "topic": "A.orders", "partition": ""}
    assert value(found, f"{M}record_count", **place) == 6


def test_certificates_and_names_with_any_character():
    certificates = tuple(
        CertificateSnapshot("A", "keystore", HOSTILE, at) for at in (2e9, 1.9e9)
    )  # fmt: skip
    group = GroupSnapshot(HOSTILE, {})
    jobs = (JobSnapshot("emitting checkpoints", 2.0, CHECKPOINTS, runs=1),)
    found = parsed(exposition(
        MirrorSnapshot(1.0, (flow(groups=(group,), jobs=jobs),), certificates=certificates),
        MetricsSettings(),
    ))  # fmt: skip
    ends = named(found, "heliograph_certificate_expiry_timestamp_seconds")
    assert ends == {
        frozenset({("cluster", "A"), ("store", "keystore"), ("subject", HOSTILE)}): 1.9e9
    }
    latency = "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms"
    assert [dict(labels)["group"] for labels in named(found, latency)] == [HOSTILE]


def test_the_text_is_what_prometheus_client_writes():
    series = Series()
    for number in (0, 7, 2.5, 1e22, -0.001, True):
        series.add(LAG_RECORDS, number, f"{HOSTILE}{number}")
    series.add(EVENTS, 3, "A->B", "source.data-loss")
    assert parsed(series.text()) == parsed(generate_latest(series))
    heads = [line for line in series.text().decode().splitlines() if line.startswith("#")]
    assert heads == [x for x in generate_latest(series).decode().splitlines() if x[0] == "#"]
    series.add(LAG_RECORDS, 1, "\udcff")
    assert b'flow="?"' in series.text(), "not even names that are no Unicode stop it"
    assert not any(math.isnan(found) for found in parsed(series.text()).values())


def test_every_metric_is_in_the_table_and_in_the_docs():
    names = [metric.name for metric in TABLE]
    assert len(names) == len(set(names))
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    listed = re.findall(r"^\| `((?:heliograph|kafka|process|python|jvm)_\w+)` \|", page, re.M)
    assert sorted(listed) == sorted(names), "run docs/generate.py"
    known = set(names) | {"jvm_gc_collection_seconds_sum", "jvm_gc_collection_seconds_count"}
    assert {name for name, _ in asked(flow([topic("t")]))} <= known
    for metric in TABLE:
        assert metric.help.endswith(".")
        if metric.name.startswith("heliograph_"):
            assert metric.name.endswith("_total") == (metric.kind == "counter")


def test_the_keys_of_a_file():
    values = {"heliograph.metrics.topics": "7", "heliograph.metrics.partitions": "true"}
    made = RestSettings.of(RestKeys.of(values, {}), listeners=["http://127.0.0.1:0"])
    assert made.metrics == MetricsSettings(7, True)
    default = RestSettings.of(RestKeys.of({}, {}), listeners=["http://127.0.0.1:0"])
    assert default.metrics == MetricsSettings(200, False)
    flows = {"clusters": "A, B", "A.bootstrap.servers": "a:1", "B.bootstrap.servers": "b:1",
             "A->B.enabled": "true"}  # fmt: skip
    assert not MirrorMakerConfig.from_mapping({**flows, **values}).warnings


@pytest.mark.parametrize("accept", [None, "text/plain", "application/openmetrics-text,*/*;q=0.1"])
def test_it_is_served_as_text(accept):
    found = MirrorSnapshot(10.0, (flow([topic("orders", 60)]),))
    mirrored = Mirrored(lambda: found, EventBus(), lambda _: None, History(lambda: found))
    with serving(ScriptedHerder(), mirrored=mirrored) as ask:
        answer = ask("GET", "/metrics", headers={"Accept": accept} if accept else {})
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b'heliograph_topic_lag_records{flow="A->B",topic="orders"} 60\n' in answer.body
