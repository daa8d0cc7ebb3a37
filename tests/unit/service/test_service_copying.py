"""The end of a flow's rounds: what is said to rest copies nothing any more."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.copy.lease_report import LeaseReport, _Line
from heliograph.service import copying
from heliograph.service.copying import Copying
from heliograph.service.listening import Place
from heliograph.service.reports import ReportServer


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.005)


class Rounds:
    """A keeper of rounds, and the Spark that runs them: a round ends for it when cancelled."""

    def __init__(self) -> None:
        self.in_progress = 1
        self.cancelled = threading.Event()

    def stop(self):
        pass

    def join(self, seconds):
        pass

    def cancel_rounds(self, flow):
        assert flow == "A->B"
        self.in_progress = 0
        self.cancelled.set()


@pytest.fixture
def server():
    made = ReportServer(print)
    yield made
    made.close()


def test_a_task_that_is_being_killed_is_waited_for(server, monkeypatch):
    """Spark says that a round is cancelled before the task is dead, which may copy meanwhile."""
    monkeypatch.setattr(copying, "KILLED_SECONDS", 60.0)
    monkeypatch.setattr(ReportServer.end_leases, "__defaults__", (0.05,))
    task = _Line(server.listen(Place(None)))
    task.say(LeaseReport("A->B", 1))
    wait_for(lambda: (task.flush(), server.are_held("A->B"))[1])
    rounds = Rounds()
    services: Any = SimpleNamespace(reports=server, engine=rounds)
    ended = Copying("A->B", None, services, threading.Event())
    ended._keeper = rounds
    ending = threading.Thread(target=ended.end, daemon=True)
    ending.start()
    assert rounds.cancelled.wait(60)
    ending.join(0.3)
    assert ending.is_alive(), "the task has not hung up"
    task.close()
    ending.join(60)
    assert not ending.is_alive()
    assert ended._clear_from < time.time() + 60, "nothing is left"
