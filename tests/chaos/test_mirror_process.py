"""A mirror's tree while its processes come and go: one that has just ended is not an error."""

import random
import signal
import subprocess
import sys
from typing import Any

import psutil
import pytest
from mirror_process import MirrorProcess

from heliograph.lab import state

SLEEP = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
WORKER = [*SLEEP, "heliograph.spark.daemon"]


@pytest.fixture
def started():
    """Starts processes; all are gone at the end."""
    made = []

    def start(command):
        made.append(subprocess.Popen(command))
        return psutil.Process(made[-1].pid)

    yield start
    for process in made:
        process.kill()
        process.wait()


@pytest.fixture
def mirror(started, monkeypatch):
    """A mirror with a live worker, listed between two that end while they are looked at."""
    driver, jvm, worker = started(SLEEP), started(SLEEP), started(WORKER)
    monkeypatch.setattr(jvm, "name", lambda: "java")
    gone = [started(WORKER), started(WORKER)]
    for process in gone:
        process.kill()
        process.wait()
    children = [gone[0], jvm, worker, gone[1]]
    monkeypatch.setattr(psutil.Process, "children", lambda self, recursive: list(children))
    made: Any = MirrorProcess.__new__(MirrorProcess)
    made.pid = driver.pid
    made.worker = worker
    return made


def test_the_tree_leaves_out_what_has_ended(mirror):
    driver, jvm, workers = mirror.tree()
    assert driver.pid == mirror.pid
    assert jvm.name() == "java"
    assert workers == [mirror.worker]


def test_a_worker_that_ends_holds_no_lease(mirror, monkeypatch):
    everything = mirror.tree()
    mirror.worker.kill()
    mirror.worker.wait()
    monkeypatch.setattr(mirror, "tree", lambda: everything)
    assert mirror.lease_holders() == []
    mirror.signal_all(signal.SIGCONT)


def test_a_victim_is_one_that_still_lives(mirror):
    mirror.kill("worker", random.Random(1))
    assert mirror.worker.wait(60) is not None


def test_a_mirror_that_has_ended_has_no_tree(mirror):
    driver, _, _ = mirror.tree()
    driver.kill()
    driver.wait()
    assert mirror.tree() == (None, None, [])
    assert mirror.lease_holders() == []


def test_a_lab_whose_supervisor_ends_by_itself_is_stopped(tmp_path, started, monkeypatch):
    supervisor = started(SLEEP)
    node = state.NodeState(1, "127.0.0.1:1", supervisor.pid)
    cluster = state.ClusterState("A", "127.0.0.1:1", "4.3.1", str(tmp_path), (node,))
    lab = state.LabState(tmp_path, "running", supervisor.pid, supervisor.create_time(), (cluster,))
    supervisor.kill()
    supervisor.wait()
    # As they were seen a moment ago.
    monkeypatch.setattr(state.LabState, "supervisor_alive", True)
    monkeypatch.setattr(state.NodeState, "alive", lambda self, folder: True)
    assert state.stop(lab) == 1
