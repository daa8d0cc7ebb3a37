"""Periodic jobs with plain-English names. Runs in the driver, in threads that all jobs share.

A job never overlaps with itself, never delays another, and outlives its own failures.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from heliograph.control.workers import WORKERS, Workers

log = logging.getLogger(__name__)

_STOP_SECONDS = 0.5
#: Of one job: a status that is shown every few seconds must not grow with the cluster.
MOST_DETAILS = 1000
#: A tenth of the time for a job that cannot keep its interval: the data path has the rest.
_REST = 9
#: As partitions that failed: when the cause is gone, it is over within this time.
AGAIN_SECONDS = 30.0


#: What a job has to say beside success or failure: a reason or result for each subject.
Details = Callable[[], Mapping[str, str]]
#: Takes the flow, the job and why it fails, when that is news; empty: it works again.
Tell = Callable[[str, str, str], None]


def _log(_flow: str, job: str, error: str) -> None:
    if error:
        log.warning("%s: %s", job, error)
    else:
        log.info("%s: works again", job)


@dataclass(slots=True)
class JobStatus:
    """A job and what became of it; times are seconds since the epoch, 0 for never.

    Attributes:
        last_run: when the last run began; ``took_seconds`` is how long it lasted.
        last_error: why the last run failed; empty if it did not.
        details: what the last run said of single subjects, e.g. why a group is not synced.
        runs: how many have ended; ``failures`` how many of them failed; ``took_total_seconds``
            how long they lasted in all, ``took_least_seconds`` and ``took_most_seconds`` the
            shortest and the longest; 0 before the first.
    """

    description: str
    interval_seconds: float
    last_run: float = 0.0
    next_run: float = 0.0
    took_seconds: float = 0.0
    last_error: str = ""
    details: dict[str, str] = field(default_factory=dict)
    runs: int = 0
    failures: int = 0
    took_total_seconds: float = 0.0
    took_least_seconds: float = 0.0
    took_most_seconds: float = 0.0

    def ended(self, took_seconds: float) -> None:
        """A run has ended, with ``last_error`` if it failed."""
        self.took_seconds = took_seconds
        self.took_total_seconds += took_seconds
        least = self.took_least_seconds if self.runs else took_seconds
        self.took_least_seconds = min(least, took_seconds)
        self.took_most_seconds = max(self.took_most_seconds, took_seconds)
        self.runs += 1
        self.failures += bool(self.last_error)


@dataclass(slots=True)
class _Job:
    flow: str
    call: Callable[[], object]
    details: Details | None
    status: JobStatus
    longest_pause: float
    running: threading.Lock = field(default_factory=threading.Lock)


class Scheduler:
    """Runs jobs until `stop`. Any number of them share the threads of ``workers``.

    ``tell`` is called when a job fails for another reason than before, and when it works again; by
    default that is logged.
    """

    def __init__(self, workers: Workers = WORKERS, tell: Tell = _log) -> None:
        self._workers = workers
        self._tell = tell
        self._stopping = threading.Event()
        self._jobs: list[_Job] = []

    def repeat(
        self,
        call: Callable[[], object],
        interval_seconds: float,
        description: str,
        *,
        flow: str = "",
        first_after_seconds: float = 0.0,
        details: Details | None = None,
        longest_pause_seconds: float = float("inf"),
    ) -> threading.Lock:
        """Call now and then every ``interval_seconds``, counted from start to start.

        A job that takes long is given rest: at least nine times as long as it took, but no more
        than ``longest_pause_seconds``. One that failed is tried again after AGAIN_SECONDS at most,
        unless it takes longer itself. One that the start of the mirror need not wait for may begin
        later. Returns a lock that is held during its runs.
        """
        status = JobStatus(description, interval_seconds)
        job = _Job(flow, call, details, status, longest_pause_seconds)
        self._jobs.append(job)
        self._run_after(first_after_seconds, job)
        return job.running

    def jobs_of(self, flow: str) -> list[JobStatus]:
        """How the jobs of a flow are doing, as of now."""
        return [
            replace(j.status, details=dict(islice(details.items(), MOST_DETAILS)))
            for j in self._jobs if j.flow == flow
            for details in [j.details() if j.details else {}]
        ]  # fmt: skip

    def _run_after(self, seconds: float, job: _Job) -> None:
        job.status.next_run = time.time() + seconds
        self._workers.after(seconds, partial(self._run, job), self)

    def _run(self, job: _Job) -> None:
        """One run, and when the next one is due. In a thread of the workers."""
        status, thread = job.status, threading.current_thread()
        thread.name = status.description
        status.last_run = time.time()
        started = time.monotonic()
        try:
            with job.running:
                if self._stopping.is_set():
                    return
                job.call()
            if status.last_error:
                self._tell(job.flow, status.description, "")
            status.last_error = ""
        except Exception as error:  # noqa: BLE001 - a job must not die of its first bad day
            text = str(error) or type(error).__name__
            # Said once per reason: a cluster that is down for an hour is one line, not 3600.
            if text != status.last_error and not self._stopping.is_set():
                self._tell(job.flow, status.description, text)
            status.last_error = text
        finally:
            thread.name = "idle worker"
        took = time.monotonic() - started
        status.ended(took)
        # A run that failed has mostly waited: no reason to look away for long. What is over is said
        # to be over when the job works again, so that must not take hours.
        failed = bool(status.last_error)
        rest = took * (1 if failed else _REST)
        interval = (
            min(status.interval_seconds, AGAIN_SECONDS) if failed else status.interval_seconds
        )
        pause = max(interval - took, min(rest, job.longest_pause))
        if not self._stopping.is_set():
            self._run_after(pause, job)

    def stop(self) -> None:
        """Ask every job to end; those in the middle of a request are left to finish alone."""
        self._stopping.set()
        self._workers.cancel(self)
        deadline = time.monotonic() + _STOP_SECONDS
        for job in self._jobs:
            if job.running.acquire(timeout=max(0.0, deadline - time.monotonic())):
                job.running.release()
