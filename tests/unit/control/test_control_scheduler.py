"""Jobs of the driver: none overlaps with itself, none hurts another."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from heliograph.control.scheduler import JobStatus, Scheduler
from heliograph.control.workers import Workers


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler()
    yield made
    made.stop()


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_slow_job_does_not_overlap_with_itself(scheduler):
    running, seen, overlapped = [], [], []
    lock = threading.Lock()

    def slow() -> None:
        with lock:
            running.append(1)
            overlapped.append(len(running) > 1)
        time.sleep(0.02)
        with lock:
            running.pop()
        seen.append(1)

    scheduler.repeat(slow, 0.001, "being slow")
    wait_for(lambda: len(seen) >= 5)
    assert not any(overlapped)


def test_a_job_may_begin_later_and_a_stop_does_not_wait_for_it(scheduler):
    seen = []
    scheduler.repeat(lambda: seen.append("late"), 60.0, "waiting", first_after_seconds=60.0)
    scheduler.repeat(lambda: seen.append("soon"), 60.0, "soon", first_after_seconds=0.001)
    wait_for(lambda: "soon" in seen)
    began = time.monotonic()
    scheduler.stop()
    assert time.monotonic() - began < 50.0
    assert seen == ["soon"]


def test_a_job_knows_its_shortest_and_its_longest_run():
    status = JobStatus("being measured", 1.0)
    for took, error in ((3.0, ""), (1.0, "no"), (2.0, "")):
        status.last_error = error
        status.ended(took)
    assert (status.took_seconds, status.took_total_seconds) == (2.0, 6.0)
    assert (status.took_least_seconds, status.took_most_seconds) == (1.0, 3.0)
    assert (status.runs, status.failures) == (3, 1)


class Said(logging.Handler):
    """What one logger was told, whatever other tests have attached above it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def said() -> Iterator[list[str]]:
    logger = logging.getLogger("heliograph.control.scheduler")
    handler, level = Said(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler.lines
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_a_failing_job_goes_on_and_hurts_nobody(scheduler, said):
    attempts, others = [], []

    def fail() -> None:
        attempts.append(1)
        if len(attempts) < 4:
            raise OSError("the cluster is away")

    scheduler.repeat(fail, 0.005, "asking the cluster")
    scheduler.repeat(lambda: others.append(1), 0.005, "something else")
    wait_for(lambda: len(attempts) >= 6 and len(others) >= 6)
    asked = scheduler.jobs_of("")[0]
    assert asked.last_error == ""
    assert (asked.failures, asked.runs >= 5, asked.took_total_seconds > 0) == (3, True, True)
    assert said == ["asking the cluster: the cluster is away", "asking the cluster: works again"]


def test_a_job_in_trouble_says_so(scheduler):
    def fail() -> None:
        raise ValueError("no")

    scheduler.repeat(fail, 60, "failing", flow="A->B", details=lambda: {"g1": "is in use"})
    scheduler.repeat(lambda: None, 60, "working", flow="B->A")
    wait_for(lambda: scheduler.jobs_of("A->B")[0].last_error != "")
    [job] = scheduler.jobs_of("A->B")
    assert (job.description, job.last_error) == ("failing", "no")
    assert job.details == {"g1": "is in use"}
    wait_for(lambda: scheduler.jobs_of("A->B")[0].next_run > job.last_run + 20)


def test_a_blocked_job_delays_neither_the_others_nor_stop():
    scheduler = Scheduler()
    release, others = threading.Event(), []
    scheduler.repeat(release.wait, 60, "hanging")
    scheduler.repeat(lambda: others.append(1), 0.005, "working")
    wait_for(lambda: len(others) >= 3)
    started = time.monotonic()
    scheduler.stop()
    assert time.monotonic() - started < 50
    count = len(others)
    release.set()
    assert len(others) <= count + 1


class AtOnce(Workers):
    """Makes the first call at once; writes down after how long the next one was due."""

    def __init__(self):
        super().__init__()
        self.pauses = []

    def after(self, seconds, call, owner):
        self.pauses.append(seconds)
        if len(self.pauses) == 1:
            call()


def pause_after(monkeypatch, work, error=None, **options):
    """How long a job with an interval of 10 s pauses that takes ``work`` seconds."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def job() -> None:
        clock[0] += work
        if error is not None:
            raise error

    workers = AtOnce()
    Scheduler(workers).repeat(job, 10.0, "working", **options)
    begun, pause = workers.pauses
    assert begun == 0.0
    return pause


@pytest.mark.parametrize(("work", "pause"), [(0.5, 9.5), (1.0, 9.0), (3.0, 27.0)])
def test_intervals_count_from_start_to_start_and_long_jobs_rest(monkeypatch, work, pause):
    assert pause_after(monkeypatch, work) == pause


@pytest.mark.parametrize(("work", "pause"), [(0.5, 9.5), (3.0, 7.0), (30.0, 30.0)])
def test_a_job_that_failed_has_mostly_waited_and_rests_less(monkeypatch, work, pause):
    assert pause_after(monkeypatch, work, OSError("no answer within 30 s")) == pause


@pytest.mark.parametrize(("work", "pause"), [(0.5, 9.5), (3.0, 20.0), (30.0, 20.0)])
def test_a_job_may_have_a_longest_pause(monkeypatch, work, pause):
    assert pause_after(monkeypatch, work, longest_pause_seconds=20.0) == pause


# -- the threads ------------------------------------------------------------------------------


def test_many_quiet_jobs_share_few_threads():
    workers, counts = Workers(), [0] * 100
    schedulers = [Scheduler(workers) for _ in range(20)]

    def count(n):
        counts[n] += 1

    for n in range(100):
        schedulers[n % 20].repeat(partial(count, n), 0.05, f"job {n}")
    wait_for(lambda: min(counts) >= 5)
    for scheduler in schedulers:
        scheduler.stop()
    wait_for(lambda: workers.threads <= 2)


def test_jobs_that_hang_delay_nobody_however_many_they_are():
    workers, release = Workers(), threading.Event()
    scheduler, seen = Scheduler(workers), []
    for n in range(30):
        scheduler.repeat(release.wait, 60, f"hanging {n}")
    scheduler.repeat(lambda: seen.append(1), 0.005, "working")
    wait_for(lambda: len(seen) >= 3)
    assert not release.is_set()
    release.set()
    scheduler.stop()
    wait_for(lambda: workers.threads <= 2)


def test_a_stopped_scheduler_leaves_the_others_alone():
    workers = Workers()
    one, other = Scheduler(workers), Scheduler(workers)
    seen = {"one": 0, "other": 0}

    def count(name):
        seen[name] += 1

    one.repeat(lambda: count("one"), 0.005, "one")
    other.repeat(lambda: count("other"), 0.005, "other")
    wait_for(lambda: min(seen.values()) >= 3)
    one.stop()
    stopped = seen["one"]
    before = seen["other"]
    wait_for(lambda: seen["other"] >= before + 5)
    # A run that had begun may have ended since.
    assert seen["one"] <= stopped + 1
    other.stop()


def test_an_earlier_call_is_not_missed_by_threads_that_wait_for_a_later_one():
    workers = Workers()
    seen: list[Any] = []
    workers.after(0.0, lambda: time.sleep(0.02), None)
    workers.after(600.0, lambda: seen.append("late"), None)
    time.sleep(0.1)
    for n in range(20):
        workers.after(0.001 * n, partial(seen.append, n), None)
    wait_for(lambda: len(seen) == 20)
    assert sorted(seen) == list(range(20))


def test_a_running_job_gives_its_thread_its_name(scheduler):
    names = []
    scheduler.repeat(lambda: names.append(threading.current_thread().name), 60, "counting sheep")
    wait_for(lambda: names)
    assert names == ["counting sheep"]
