"""Whether the driver moves: loops that come round, and loops that do not."""

from __future__ import annotations

import threading
import time

import pytest

from heliograph.control.workers import Workers
from heliograph.copy.lease_report import LeaseReport, _Line
from heliograph.service import pulse as pulse_module
from heliograph.service.listening import Listener, Place
from heliograph.service.mirror import Mirror
from heliograph.service.pulse import Pulse
from heliograph.service.reports import ReportServer


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def clock(monkeypatch):
    """Time as the test says."""
    now = [1000.0]
    monkeypatch.setattr("heliograph.service.pulse.time.monotonic", lambda: now[0])
    return now


def test_a_loop_is_stuck_when_it_did_not_come_round_within_its_bound(clock):
    pulse = Pulse()
    quick, slow = pulse.beat("quick"), pulse.beat("slow")
    slow.touch(1800.0)
    clock[0] += 119
    assert pulse.stuck() == []
    clock[0] += 2
    assert pulse.stuck() == [("quick", 121.0)]
    quick.touch()
    assert pulse.stuck() == []
    clock[0] += 1700
    assert [s.part for s in pulse.stuck()] == ["slow", "quick"]


def test_a_loop_that_has_ended_is_not_stuck(clock):
    pulse = Pulse()
    beat = pulse.beat("a")
    clock[0] += 1000
    pulse.end(beat)
    pulse.end(beat)
    assert pulse.stuck() == []


def test_a_part_that_is_watched_under_a_name_is_watched_once():
    pulse = Pulse()
    pulse.watch("Spark", lambda: 5.0)
    pulse.watch("Spark", lambda: 7.0)
    assert pulse.stuck() == [("Spark", 7.0)]


def test_a_listener_with_nothing_to_do_comes_round(monkeypatch):
    monkeypatch.setattr("heliograph.service.listening.IDLE_SECONDS", 0.01)
    listener = Listener("idle")
    touched = threading.Semaphore(0)
    monkeypatch.setattr(listener.beat, "touch", touched.release)
    listener.listen(Place(None))
    try:
        for _ in range(3):
            assert touched.acquire(timeout=60)
    finally:
        listener.close()


def test_a_loop_that_is_stopped_for_real_is_stuck_until_it_goes_on(monkeypatch):
    """The thread that hears tasks hangs in what it does with a line: no double, no clock."""
    monkeypatch.setattr(pulse_module, "_BOUND_SECONDS", 0.2)
    monkeypatch.setattr("heliograph.service.listening.IDLE_SECONDS", 0.02)
    hangs, free = threading.Event(), threading.Event()

    def hear(_report):
        hangs.set()
        assert free.wait(60)

    pulse, reports = Pulse(), ReportServer(hear)
    teller = _Line(reports.listen(Place(None)))
    pulse.watch("reports of tasks", reports.beat.still_for)
    try:
        wait_for(lambda: not pulse.stuck())
        teller.say(LeaseReport("A->B", 1, all_told=True))
        wait_for(lambda: teller.flush() or hangs.is_set())
        wait_for(lambda: [s.part for s in pulse.stuck()] == ["reports of tasks"])
        free.set()
        wait_for(lambda: not pulse.stuck())
    finally:
        free.set()
        teller.close()
        reports.close()


def test_calls_that_are_due_and_not_begun_are_late():
    workers = Workers()
    assert workers.late_seconds == 0.0
    with workers._changed:
        workers._due.append((time.monotonic() - 500, 0, None, lambda: None))
    assert workers.late_seconds >= 500


def test_a_mirror_without_flows_moves_and_is_ready():
    mirror = Mirror(None)
    assert (mirror.pulse.stuck(), mirror.unready()) == ([], [])
    mirror.close()
