"""A real Prometheus scrapes a synthetic mirror: dashboards people have, our own, and our alerts."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from pyspark.java_gateway import launch_gateway
from synthetic import SyntheticMirror, synthetic_server
from tools import skip_without

from heliograph.rest.metrics.route import exposition
from heliograph.rest.settings import MetricsSettings

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
#: Long enough for a machine on which a lot else runs.
PATIENCE_SECONDS = 90.0

needs_promtool, needs_prometheus = (
    skip_without("" if shutil.which(tool) else f"needs {tool}: apt-get install prometheus (Debian)")
    for tool in ("promtool", "prometheus")
)

S = 'strimzi_io_kind=~"KafkaMirrorMaker2",strimzi_io_cluster="heliograph"'
POD = 'namespace="kafka",pod=~"heliograph-mirrormaker2-.+",container="heliograph-mirrormaker2"'
M = "kafka_connect_mirror_mirrorsourceconnector"
CHECKPOINTS = [
    f"kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms{end}"
    for end in ("", "_avg", "_min", "_max")
]
BY_GROUP = "sum by (source, target, topic, partition, group)"
SPANS = [
    f"{M}_{what}_ms{end}" for what in ("record_age", "replication_latency")
    for end in ("", "_avg", "_min", "_max")
]  # fmt: skip
LAG, LAG_OF_REPORTER = (
    "kafka_consumer_fetch_manager_records_lag",
    "kafka_consumer_consumer_fetch_manager_metrics_records_lag",
)
COMMIT = 'kafka_connect_connector_task_offset_commit_avg_time_ms{connector=~"\\".*SourceConnector\\"",task=~"[0-9]+"}'  # noqa: E501
COMMIT_OF_REPORTER = 'kafka_connect_connector_task_metrics_offset_commit_avg_time_ms{connector=~".*SourceConnector",task=~"[0-9]+"}'  # noqa: E501
#: What Strimzi's dashboards for MirrorMaker 2 ask: of both, of that for the JMX exporter, and of
#: that for its own metrics reporter.
STRIMZI = [
    f"sum({M}_record_rate{{{S}}})",
    f"sum({M}_byte_rate{{{S}}})",
    *(f"sum({name}{{{S}}}) by (partition, topic)" for name in SPANS),
    *(f"topk(20, sum({name}{{{S}}}) by (partition, topic))" for name in SPANS),
    *(f"{BY_GROUP} ({name}{{{S}}})" for name in CHECKPOINTS),
    *(f"topk(20, {BY_GROUP} ({name}{{{S}}}))" for name in CHECKPOINTS),
    f"sum(jvm_memory_used_bytes{{{S}}}) by (kubernetes_pod_name)",
    f"sum(jvm_threads_current{{{S}}}) by (kubernetes_pod_name)",
    f"sum(rate(jvm_gc_collection_seconds_sum{{{S}}}[5m])) by (kubernetes_pod_name)",
    f"sum(rate(process_cpu_seconds_total{{{POD}}}[5m])) by (pod)",
    f"sum(rate(process_cpu_seconds_total{{{S}}}[5m])) by (kubernetes_pod_name)",
    # The JMX exporter's names.
    f"sum(kafka_connect_worker_connector_count{{{S}}})",
    f"sum(kafka_connect_worker_task_count{{{S}}})",
    f"sum(kafka_connect_worker_rebalance_rebalancing{{{S}}})",
    f"sum(kafka_connect_coordinator_assigned_connectors{{{S}}}) by (kubernetes_pod_name)",
    f"sum(kafka_connect_coordinator_assigned_tasks{{{S}}}) by (kubernetes_pod_name)",
    'sum(kafka_connect_source_task_source_record_active_count{connector=~"\\".*SourceConnector\\""})',
    f"sum({COMMIT})/count({COMMIT})",
    'sum(kafka_producer_buffer_available_bytes{clientid=~"\\".*SourceConnector-[0-9]+\\""})',
    f'sum({LAG}{{{S},clientid=~".*replication-consumer\\""}}) by (topic, partition)',
    f'topk(20, sum({LAG}{{{S},clientid=~".*replication-consumer\\""}}) by (partition, topic))',
    f'sum({LAG}{{{S},clientid!~"consumer-mirrormaker2-.*"}}) by (topic, partition)',
    f'topk(20, sum({LAG}{{{S},clientid!~"consumer-mirrormaker2-.*"}}) by (topic, partition))',
    f"sum(rate(kafka_consumer_incoming_byte_total{{{S}}}[5m]))",
    f"sum(rate(kafka_producer_outgoing_byte_total{{{S}}}[5m]))",
    f"sum(rate(kafka_consumer_incoming_byte_total{{{S}}}[5m])) by (kubernetes_pod_name)",
    f"sum(rate(kafka_producer_outgoing_byte_total{{{S}}}[5m])) by (kubernetes_pod_name)",
    'kafka_connect_worker_connector_count{namespace="kafka", strimzi_io_kind="KafkaMirrorMaker2"}',
    # The metrics reporter's names.
    f"sum(kafka_connect_connect_worker_metrics_connector_count{{{S}}})",
    f"sum(kafka_connect_connect_worker_metrics_task_count{{{S}}})",
    f"sum(kafka_connect_connect_worker_rebalance_metrics_rebalancing{{{S}}})",
    f"sum(kafka_connect_connect_coordinator_metrics_assigned_connectors{{{S}}})"
    " by (kubernetes_pod_name)",
    f"sum(kafka_connect_connect_coordinator_metrics_assigned_tasks{{{S}}})"
    " by (kubernetes_pod_name)",
    "sum(kafka_connect_source_task_metrics_source_record_active_count"
    '{connector=~".*SourceConnector"})',
    f"sum({COMMIT_OF_REPORTER})/count({COMMIT_OF_REPORTER})",
    "sum(kafka_producer_producer_metrics_buffer_available_bytes) by (client_id)",
    f'sum({LAG_OF_REPORTER}{{{S},client_id=~".*replication-consumer"}}) by (topic, partition)',
    f'sum({LAG_OF_REPORTER}{{{S},clientid!~"consumer-mirrormaker2-.*"}}) by (topic, partition)',
    f'topk(20, sum({LAG_OF_REPORTER}{{{S},clientid!~"consumer-mirrormaker2-.*"}})'
    " by (topic, partition))",
    f"sum(rate(kafka_consumer_consumer_metrics_incoming_byte{{{S}}}[5m]))",
    f"sum(rate(kafka_producer_producer_metrics_outgoing_byte{{{S}}}[5m]))",
    f"sum(rate(kafka_consumer_consumer_metrics_incoming_byte{{{S}}}[5m])) by (kubernetes_pod_name)",
    f"sum(rate(kafka_producer_producer_metrics_outgoing_byte{{{S}}}[5m])) by (kubernetes_pod_name)",
    # What its alerts look at.
    'sum(kafka_connect_connector_status{status="failed"}) by (namespace, pod)',
    "sum(kafka_connect_worker_connector_failed_task_count) by (namespace, pod)",
]
#: What they ask in vain, and what their alerts look at beside; docs/metrics.md has the reasons.
IN_VAIN = [
    f"sum(rate(container_cpu_usage_seconds_total{{{POD}}}[5m])) by (pod)",
    "sum(kafka_connect_source_task_metrics_source_record_active_count"
    '{connector=~"\\".*SourceConnector\\""})',
    "sum(kafka_producer_producer_metrics_buffer_available_bytes"
    '{client_id="mirrormaker2-cluster-offsets"})',
    'container_last_seen{container=~".+-mirrormaker2",pod=~".+-mirrormaker2-.+"}',
    'strimzi_kafka_mm2_resource_info{ready!="True"}',
]


def promtool(*arguments, **more):
    return subprocess.run(
        ["promtool", *arguments], cwd=PROMETHEUS, capture_output=True, text=True, timeout=120,
        check=False, **more,
    )  # fmt: skip


@needs_promtool
@pytest.mark.parametrize(
    "what", [["check", "config", "prometheus.yml"], ["check", "rules", "heliograph-rules.yml"],
             ["test", "rules", "heliograph-rules-test.yml"]],
)  # fmt: skip
def test_promtool_agrees_with_the_files(what):
    done = promtool(*what)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_and_documented():
    rules = yaml.safe_load((PROMETHEUS / "heliograph-rules.yml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]
              if "alert" in rule}  # fmt: skip
    tests = yaml.safe_load((PROMETHEUS / "heliograph-rules-test.yml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"]
             if case["exp_alerts"]}  # fmt: skip
    assert fired == alerts
    page = (DEPLOY.parent / "docs" / "metrics.md").read_text()
    assert set(re.findall(r"^\| `(Heliograph\w+)`", page, re.MULTILINE)) == alerts


@needs_promtool
def test_promtool_finds_fault_only_with_names_that_others_chose():
    mirror = SyntheticMirror(partitions=300, history_seconds=10)
    for settings in (MetricsSettings(), MetricsSettings(partitions=True)):
        text = exposition(mirror.snapshot(), settings).decode()
        done = promtool("check", "metrics", input=text)
        said = (done.stdout + done.stderr).splitlines()
        assert all(re.fullmatch(r"kafka_\w+_ms(_\w+)? .*abbreviated units", x) for x in said), said


@contextmanager
def prometheus(folder, target):
    """One that scrapes every second, by our example; yields what asks it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(PROMETHEUS / "heliograph-rules.yml")]
    config["scrape_configs"][0] |= {"basic_auth": {"username": target[1], "password": target[2]}}
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [target[0]]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    process = subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--web.listen-address={address}",
         f"--storage.tsdb.path={folder}/data", "--log.level=warn"],
        stdout=subprocess.DEVNULL, stderr=(folder / "log").open("wb"),
    )  # fmt: skip
    try:
        yield lambda query: _ask(address, query)
    finally:
        process.terminate()
        process.wait(30)


def _ask(address, query):
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)["data"]["result"]


def _until(holds):
    """What it returns once that is true; errors on the way are those of a server that starts."""
    last, deadline = None, time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if found := holds():
                return found
        except OSError as error:
            last = error
        time.sleep(0.3)
    raise AssertionError(f"not within {PATIENCE_SECONDS} s: {last}")


@needs_prometheus
def test_dashboards_find_their_data_in_a_real_prometheus(tmp_path):
    # Spark's Java without Spark, for the figures of the JVM.
    gateway = launch_gateway()
    mirror = SyntheticMirror(partitions=300, history_seconds=10)
    mirror.jvm_pid = gateway.proc.pid
    try:
        with synthetic_server(mirror, logins=True, sample=False) as served:
            target = served.url.removeprefix("http://"), *served.users["viewer"]
            with prometheus(tmp_path, target) as ask:
                scraped = "count_over_time(heliograph_build_info[1m]) >= 3"
                _until(lambda: ask(scraped))
                assert [query for query in STRIMZI if not ask(query)] == []
                assert [query for query in IN_VAIN if ask(query)] == []
                assert [query for query in _own_queries() if not ask(query)] == []
                pending = _until(lambda: ask('ALERTS{alertname="HeliographStalled"}'))
                assert pending[0]["metric"]["flow"] == "us-east->eu-west"
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)


def _own_queries():
    dashboard = json.loads((DEPLOY / "grafana" / "heliograph.json").read_text())
    for panel in dashboard["panels"]:
        for one in panel["targets"]:
            yield one["expr"].replace("$flow", ".*").replace("$job", ".*")
