"""A mirror as a service, with real Spark: probes, watchdog and log tell one story."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import psutil
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Offset
from mirroring import wait_for
from prometheus_client.parser import text_string_to_metric_families

from heliograph.config.properties import dump
from heliograph.rest.metrics import table
from heliograph.wire import admin

#: As `heliograph`, but a loop hangs after 5 seconds, not after 120.
IMPATIENT = """
import heliograph.service.pulse as pulse
pulse._BOUND_SECONDS, pulse.IDLE_SECONDS = 5.0, 0.5
from heliograph.cli import main
main()
"""


class Service:
    """``heliograph run`` under a stand-in of systemd: this test."""

    def __init__(self, folder, **keys):
        self.log = folder / "heliograph.log"
        notify = folder / "notify"
        self._systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._systemd.bind(str(notify))
        file = folder / "mm2.properties"
        file.write_text(dump(keys))
        self.process = subprocess.Popen(
            [sys.executable, "-c", IMPATIENT, "run", str(file), "--listen", "127.0.0.1:0",
             "--log-file", str(self.log), "--log-format", "json", "--spark-log-level", "info"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "NOTIFY_SOCKET": str(notify), "WATCHDOG_USEC": "2000000"},
        )  # fmt: skip

    def told(self):
        """What systemd has heard since it was last asked."""
        lines: list[str] = []
        while select.select([self._systemd], [], [], 0)[0]:
            lines += self._systemd.recv(4096).decode().split("\n")
        return lines

    @property
    def records(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    @property
    def port(self):
        [found] = [
            m for r in self.records if (m := re.match(r"REST on .*:(\d+)$", r.get("text", "")))
        ]
        return int(found[1])

    def ask_text(self, path, method="GET", body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Content-Type": "application/json"} if body else {}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text.decode()

    def ask(self, path, method="GET", body=None):
        status, text = self.ask_text(path, method, body)
        return status, json.loads(text)

    def names(self, expected):
        """Whether all have a line, of whichever flow: cheap enough to be asked in a loop."""
        text = self.ask_text("/metrics")[1]
        return all(f"\n{name}" in text for name in expected) and self.metrics() >= expected

    def metrics(self):
        """The names of metrics that have a series; of flows only A->B counts."""
        status, text = self.ask_text("/metrics")
        assert status == 200
        return {
            sample.name.removesuffix("_sum") if family.type == "summary" else sample.name
            for family in text_string_to_metric_families(text) for sample in family.samples
            if sample.labels.get("flow", "A->B") == "A->B"
        }  # fmt: skip

    @property
    def jvm(self):
        children = psutil.Process(self.process.pid).children(recursive=True)
        return next(child for child in children if child.name() == "java")

    def close(self):
        self._systemd.close()
        self.process.kill()
        self.process.communicate()


#: Metrics that this mirror has no series of, and why.
NOT_HERE = {
    table.CERTIFICATE: "neither cluster nor REST API uses TLS",
    table.RTO_SECONDS: "it was never failed over, nor was that rehearsed",
    table.RTO_MEASURED: "the same",
    table.REHEARSAL_OK: "the same",
    table.DIVERGED: "the same",
    table.EVENT_OFFSETS: "no event has told of offsets: nothing was lost, and nobody else wrote",
}


@pytest.fixture
def service(lab, mirroring, topic_name, tmp_path):
    mirroring.create(topic_name)
    factors = {f"{t}.topic.replication.factor": "1"
               for t in ("offset-syncs", "checkpoints", "heartbeats")}  # fmt: skip
    made = Service(
        tmp_path, clusters="A, B", **factors, **{
            "A.bootstrap.servers": lab["A"].bootstrap, "B.bootstrap.servers": lab["B"].bootstrap,
            "A->B.enabled": "true", "A->B.topics": topic_name, "replication.factor": "1",
            "heliograph.rest.changes": "true", "heliograph.metrics.partitions": "true",
        },
    )  # fmt: skip
    yield made
    made.close()


def commit(mirroring, topic, offset):
    """A group that has read so far; it stays without members."""
    address = {"bootstrap.servers": mirroring.lab["A"].bootstrap, "group.id": f"reads-{topic}"}
    consumer = Consumer({**address, "enable.auto.commit": False})
    consumer.commit(offsets=[Offset(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_a_mirror_as_a_service(service, mirroring, topic_name):
    told: list[str] = []

    def hears(line):
        told.extend(service.told())
        assert service.process.poll() is None, service.process.communicate()
        return line in told

    wait_for(lambda: hears("READY=1"), 300)
    assert told[-1] == "STATUS=mirroring A->B" or "WATCHDOG=1" in told
    live = []

    def copied():
        ends = mirroring.offsets(mirroring.target, f"A.{topic_name}", admin.LATEST)
        return sum(ends.values())

    def mirrored(count):
        live.append(service.ask("/health/live")[0])
        return copied() == count

    for n in range(1, 6):
        mirroring.write(topic_name, [b"%d" % n for n in range(2000)])
        mirrored(0)
        commit(mirroring, topic_name, 1000 * n)
    wait_for(lambda: mirrored(10_000))
    assert set(live) == {200}, "it was busy, not stuck"
    wait_for(lambda: service.ask("/health/ready")[0] == 200)
    # The names are those of a real mirror: its jobs, probes and measurements have to run once.
    absent = {metric.name for metric in NOT_HERE}
    expected = {metric.name for metric in table.TABLE} - absent
    with suppress(AssertionError):
        wait_for(lambda: service.names(expected))
    served = service.metrics()
    assert sorted(expected - served) == []
    assert sorted(served & absent) == []
    assert service.ask("/health/live") == (200, {"status": "live", "stuck": []})
    told.clear()
    wait_for(lambda: hears("WATCHDOG=1"))

    # Spark's log is beside ours, and its level can be changed.
    spark = service.log.with_name("heliograph.log.spark")
    assert " INFO " in spark.read_text()
    level = {"level": "ERROR"}
    assert service.ask("/admin/loggers/org.apache.spark", "PUT", level) == (
        200, ["org.apache.spark"],
    )  # fmt: skip
    size = spark.stat().st_size
    mirroring.write(topic_name, [b"more"])
    wait_for(lambda: copied() == 10_001)
    assert " INFO " not in spark.read_bytes()[size:].decode()

    # Its JVM hangs: neither gone nor failing, it just does not answer any more.
    jvm = service.jvm
    jvm.send_signal(signal.SIGSTOP)
    try:
        wait_for(lambda: service.ask("/health/live")[0] == 503)
        stuck = service.ask("/health/live")[1]["stuck"]
        assert "Spark" in [s["part"] for s in stuck]
        wait_for(lambda: hears("") or any(x.startswith("STATUS=stuck: Spark") for x in told))
        told.clear()
        told.extend(service.told())
        assert "WATCHDOG=1" not in told
        wait_for(lambda: any("hears no sign of life" in r.get("text", "") for r in service.records))
    finally:
        jvm.send_signal(signal.SIGCONT)
    wait_for(lambda: service.ask("/health/live")[0] == 200)
    told.clear()
    wait_for(lambda: hears("WATCHDOG=1"))

    service.process.terminate()
    assert (service.process.communicate(timeout=120)[0], service.process.returncode) == ("", 0)
    assert "STOPPING=1" in service.told()
    assert [r["flow"] for r in service.records if r["event"] == "stopped"] == ["A->B", "B->A"]
    shared = {"time", "event", "level", "logger"}
    assert all(shared <= set(r) for r in service.records)
    assert spark.exists(), "it stays"
