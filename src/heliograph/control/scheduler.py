"""Periodic jobs with plain-English names. Runs in the driver, one thread per job.

A job never overlaps with itself, never delays another, and outlives its own failures.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

_STOP_SECONDS = 0.5
#: A tenth of the time for a job that cannot keep its interval: the data path has the rest.
_REST = 9


@dataclass(slots=True)
class Job:
    """A job and what became of it; times are seconds since the epoch, 0 for never."""

    description: str
    interval_seconds: float
    last_run: float = 0.0
    last_error: str = ""


class Scheduler:
    """Runs jobs until `stop`."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.jobs: list[Job] = []

    def repeat(
        self,
        call: Callable[[], object],
        interval_seconds: float,
        description: str,
        *,
        first_after_seconds: float = 0.0,
    ) -> None:
        """Call now and then every ``interval_seconds``, counted from start to start.

        A job that takes long is given rest: at least nine times as long as it took. One that the
        start of the mirror need not wait for may begin later.
        """
        job = Job(description, interval_seconds)
        self.jobs.append(job)
        thread = threading.Thread(
            target=self._loop,
            args=(call, job, first_after_seconds),
            name=description,
            daemon=True,
        )
        self._threads.append(thread)
        thread.start()

    def _loop(self, call: Callable[[], object], job: Job, first_after_seconds: float) -> None:
        if first_after_seconds:
            self._stopping.wait(first_after_seconds)
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                call()
                if job.last_error:
                    log.info("%s: works again", job.description)
                job.last_error = ""
            except Exception as error:  # noqa: BLE001 - a job must not die of its first bad day
                # Said once per reason: a cluster that is down for an hour is one line, not 3600.
                if str(error) != job.last_error and not self._stopping.is_set():
                    log.warning("%s: %s", job.description, error)
                job.last_error = str(error)
            job.last_run = time.time()
            took = time.monotonic() - started
            self._stopping.wait(max(job.interval_seconds - took, took * _REST))

    def stop(self) -> None:
        """Ask every job to end; those in the middle of a request are left to finish alone."""
        self._stopping.set()
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
