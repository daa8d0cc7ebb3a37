"""The lab itself: nothing leaks, and a cluster outlives the loss of a broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from heliograph.errors import LabError
from heliograph.lab import Lab
from heliograph.lab.cluster import Cluster

CLI = [sys.executable, "-m", "heliograph", "lab"]


def run(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *args], capture_output=True, input=stdin, text=True, timeout=300, check=False
    )


def wait_for(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_up_status_down(tmp_path: Path) -> None:
    """And what `lab up` suggests: a topic, records, and a broker that is stopped."""
    folder = str(tmp_path / "lab")
    up = run("up", "--detach", "--clusters", "east", "--folder", folder)
    assert up.returncode == 0, up.stderr
    assert "127.0.0.1:" in up.stdout
    for step in ("topics", "produce", "broker", "status"):
        assert f"  heliograph lab {step} --folder {folder}" in up.stdout
    status = run("status", "--folder", folder, "-o", "json")
    assert status.returncode == 0
    [cluster] = json.loads(status.stdout)["clusters"]
    [broker] = cluster["brokers"]
    assert broker["alive"]
    assert "east.bootstrap.servers" in Path(folder, "mm2.properties").read_text()

    second = run("up", "--clusters", "east", "--folder", folder)
    assert second.returncode == 1
    assert "[lab.in-use]" in second.stderr

    at = ("--folder", folder)
    created = run("topics", *at, "east", "--create", "--topic", "orders")
    assert created.stdout.strip() == "Created topic orders.", created.stderr
    assert run("produce", *at, "east", "--topic", "orders", stdin="a\nb\n").returncode == 0
    options = ("--topic", "orders", "--group", "me", "--from-beginning", "--max-messages", "2")
    assert run("consume", *at, "east", *options).stdout.split() == ["a", "b"]

    stopped = run("broker", *at, "stop", "east")
    assert stopped.stdout == "east, broker 1: stopped\n", stopped.stderr
    assert run("status", *at).returncode == 1
    assert run("broker", *at, "start", "east", "1").returncode == 0
    assert run("status", *at).returncode == 0
    nobody = run("broker", *at, "stop", "east", "2")
    assert (nobody.returncode, "[lab.no-broker]" in nobody.stderr) == (1, True)
    assert "[lab.no-cluster]" in run("topics", *at, "C", "--list").stderr

    down = run("down", "--folder", folder, "--delete")
    assert down.returncode == 0, down.stderr
    assert not psutil.pid_exists(broker["pid"])
    assert not Path(folder).exists()


def test_clusters_of_a_kind_are_formatted_alike_and_not_the_same(tmp_path):
    """The first by Kafka's tool, the next by copying what it wrote."""

    def formatted(name, brokers):
        cluster = Cluster(name, tmp_path / name, brokers)
        tools = cluster.begin_format()
        cluster.finish_format(tools)
        folders = [broker.data_folder for broker in cluster.brokers]
        files = [{p.name: p.read_bytes() for p in folder.iterdir()} for folder in folders]
        return tools, [dict(_lines(f.pop("meta.properties"))) for f in files], files

    formatted("a", 1)
    tools, [first, second], files = formatted("b", 2)
    assert tools == []
    _, [other], [checkpoint] = formatted("c", 1)
    assert files == [checkpoint, checkpoint]
    assert [m["node.id"] for m in (first, second, other)] == ["1", "2", "1"]
    assert first["cluster.id"] == second["cluster.id"] != other["cluster.id"]
    assert len({m["directory.id"] for m in (first, second, other)}) == 3
    assert first["cluster.id"] == (tmp_path / "b" / "cluster.id").read_text()


def _lines(content):
    return [line.split("=", 1) for line in content.decode().splitlines() if "=" in line]


def test_errors_name_the_next_step(tmp_path: Path) -> None:
    alias = run("up", "--clusters", "a b", "--folder", str(tmp_path))
    assert (alias.returncode, "[lab.bad-alias]" in alias.stderr) == (1, True)
    version = run("up", "--kafka-version", "newest", "--folder", str(tmp_path))
    assert (version.returncode, "[lab.bad-version]" in version.stderr) == (1, True)
    nothing = run("status", "--folder", str(tmp_path / "none"))
    assert (nothing.returncode, "[lab.none]" in nothing.stderr) == (1, True)


def test_no_java(tmp_path: Path) -> None:
    done = subprocess.run(
        [*CLI, "up", "--folder", str(tmp_path)],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "[java.missing]" in done.stderr) == (3, True)


@pytest.mark.full
def test_killed_supervisor_leaves_no_broker(tmp_path: Path) -> None:
    supervisor = subprocess.Popen(
        [*CLI, "up", "--clusters", "A", "--folder", str(tmp_path)], stdout=subprocess.DEVNULL
    )
    try:
        state = tmp_path / "lab.json"
        wait_for(lambda: state.exists() and '"running"' in state.read_text())
        pid = json.loads(state.read_text())["clusters"][0]["nodes"][0]["pid"]
        assert psutil.pid_exists(pid)
    finally:
        supervisor.send_signal(signal.SIGKILL)
        supervisor.wait()
    wait_for(lambda: not psutil.pid_exists(pid))
    assert run("status", "--folder", str(tmp_path)).returncode == 1
    assert run("down", "--folder", str(tmp_path)).stdout.strip() == "nothing ran"


def test_a_broker_without_others_keeps_its_session_unless_it_was_killed(lab: Lab) -> None:
    """A machine that stands still for seconds must not fence it: tests would find no broker."""
    broker = lab["A"].broker(1)
    assert "broker.session.timeout.ms=600000" in psutil.Process(broker.pid).cmdline()


def test_a_broker_that_dies_while_another_is_waited_for_is_named_at_once(tmp_path, monkeypatch):
    cluster = Cluster("A", tmp_path, 2)
    alive, dead = cluster.brokers
    dead.log_path.parent.mkdir(exist_ok=True)
    dead.log_path.write_text("why it ended")
    monkeypatch.setattr(type(alive), "running", property(lambda broker: broker is alive))
    monkeypatch.setattr(type(alive), "live_brokers", lambda broker: 1)
    with pytest.raises(LabError, match=r"node-2 ended with None.*\n.*why it ended"):
        cluster.wait_ready(0.0)


@pytest.mark.full
def test_three_brokers_survive_the_loss_of_one(
    lab_factory: Callable[..., Lab], topic_name: str
) -> None:
    # A controller waits 9 s by default before it gives up on a broker.
    quick = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}
    lab = lab_factory(clusters=["A"], brokers=3, heap="256m", settings={"*": quick})
    cluster = lab["A"]
    server = ("--bootstrap-server", cluster.bootstrap)
    spec = ("--partitions", "3", "--replication-factor", "3", "--config", "min.insync.replicas=2")
    lab.tool("TopicCommand", *server, "--create", "--topic", topic_name, *spec)
    cluster.broker(2).kill()
    assert not cluster.broker(2).running
    load = ("--num-records", "1000", "--record-size", "100", "--throughput", "-1")
    said = lab.tool("ProducerPerformance", "--topic", topic_name, *load, *server)
    assert said.startswith("1000 records sent"), said
    cluster.broker(2).start()
    cluster.wait_ready()
    ends = lab.tool("GetOffsetShell", *server, "--topic", topic_name)
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends.split()) == 1000
