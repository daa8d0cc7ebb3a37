"""Periodic jobs with plain-English names. Runs in the driver, one thread per job.

A job never overlaps with itself, never delays another, and outlives its own failures.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

log = logging.getLogger(__name__)

_STOP_SECONDS = 0.5
#: A tenth of the time for a job that cannot keep its interval: the data path has the rest.
_REST = 9


#: What a job has to say beside success or failure: a reason or result for each subject.
Details = Callable[[], Mapping[str, str]]


@dataclass(slots=True)
class JobStatus:
    """A job and what became of it; times are seconds since the epoch, 0 for never.

    Attributes:
        last_run: when the last run began; ``took_seconds`` is how long it lasted.
        last_error: why the last run failed; empty if it did not.
        details: what the last run said of single subjects, e.g. why a group is not synced.
    """

    description: str
    interval_seconds: float
    last_run: float = 0.0
    next_run: float = 0.0
    took_seconds: float = 0.0
    last_error: str = ""
    details: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Job:
    flow: str
    call: Callable[[], object]
    details: Details | None
    status: JobStatus
    longest_pause: float
    running: threading.Lock = field(default_factory=threading.Lock)


class Scheduler:
    """Runs jobs until `stop`."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
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
        than ``longest_pause_seconds``. One that the start of the mirror need not wait for may begin
        later. Returns a lock that is held during its runs.
        """
        status = JobStatus(description, interval_seconds)
        job = _Job(flow, call, details, status, longest_pause_seconds)
        self._jobs.append(job)
        thread = threading.Thread(
            target=self._loop, args=(job, first_after_seconds), name=description, daemon=True
        )
        self._threads.append(thread)
        thread.start()
        return job.running

    def jobs_of(self, flow: str) -> list[JobStatus]:
        """How the jobs of a flow are doing, as of now."""
        return [
            replace(j.status, details=dict(j.details()) if j.details else {})
            for j in self._jobs if j.flow == flow
        ]  # fmt: skip

    def _loop(self, job: _Job, first_after_seconds: float) -> None:
        status = job.status
        status.next_run = time.time() + first_after_seconds
        if first_after_seconds:
            self._stopping.wait(first_after_seconds)
        while not self._stopping.is_set():
            status.last_run = time.time()
            started = time.monotonic()
            try:
                with job.running:
                    job.call()
                if status.last_error:
                    log.info("%s: works again", status.description)
                status.last_error = ""
            except Exception as error:  # noqa: BLE001 - a job must not die of its first bad day
                text = str(error) or type(error).__name__
                # Said once per reason: a cluster that is down for an hour is one line, not 3600.
                if text != status.last_error and not self._stopping.is_set():
                    log.warning("%s: %s", status.description, text)
                status.last_error = text
            took = status.took_seconds = time.monotonic() - started
            # A run that failed has mostly waited: no reason to look away for long.
            rest = took * (1 if status.last_error else _REST)
            pause = max(status.interval_seconds - took, min(rest, job.longest_pause))
            status.next_run = time.time() + pause
            self._stopping.wait(pause)

    def stop(self) -> None:
        """Ask every job to end; those in the middle of a request are left to finish alone."""
        self._stopping.set()
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
