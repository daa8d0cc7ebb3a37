"""A flow while it is connected: its clients, claim, plan and monitor. Runs in the driver.

The supervisor's thread opens and closes it, any number of times. Other threads read the attributes:
each is replaced as a whole, and None while there is none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from heliograph.control.scheduler import JobStatus, Scheduler
from heliograph.control.source_end_notes import SourceEndNotes
from heliograph.service.flow import FlowRuntime
from heliograph.service.monitor import FlowMonitor
from heliograph.service.services import Services

__all__ = ["FlowSession", "Step"]

#: How often partitions are judged; reports are taken in at once.
_LOOK_SECONDS = 1.0
_LOOKED_AT_PER_SECOND = 2000
_MEASURING, _WATCHING = "measuring the lag of", "watching the partitions of"
#: How soon after a measurement it is noted.
_NOTE_SECONDS = 1.0
#: Looking asks no cluster: it takes a moment, and on a machine that is overloaded some seconds.
_LATE_SECONDS = 120.0

#: Surrounds a step of the start that takes its time, and tells of it.
Step = Callable[[str], AbstractContextManager[None]]


class FlowSession:
    """Connects a flow, watches it, and closes it.

    Attributes:
        runtime: the flow, from `open_target` to `close`.
        monitor: what is known of it, from `open` on. What was known last is shown after `close`.
        opened: whether the source is connected and the flow claimed.
    """

    def __init__(self, name: str, services: Services, make: Callable[[], FlowRuntime]) -> None:
        """``make``: the flow as it is configured now."""
        self._name = name
        self._services = services
        self._make = make
        self.runtime: FlowRuntime | None = None
        self.monitor: FlowMonitor | None = None
        self.opened = False
        self._watching: Scheduler | None = None

    @property
    def stands_by(self) -> bool:
        """Whether another mirror has the flow."""
        runtime = self.runtime
        return self.opened and runtime is not None and runtime.stands_by

    def open_target(self, step: Step) -> FlowRuntime:
        """Connect to the target, which suffices for heartbeats; raises StartError."""
        if self.runtime is None:
            self.runtime = self._make()
        with step(f"cluster {self.runtime.flow.target}"):
            self.runtime.open_target()
        return self.runtime

    def open(self, runtime: FlowRuntime, step: Step, *, once: bool, copies: bool) -> None:
        """Connect and claim, if that is not done yet; then the flow is watched.

        ``runtime`` is what `open_target` returned. Raises HeliographError or WireError.
        """
        if self.opened:
            return
        with step(f"cluster {runtime.flow.source} and the topics of {self._name}"):
            runtime.open(once=once, copies=copies)
        if copies:
            engine, config = self._services.engine, runtime.config
            engine.await_start()
            engine.check_secrets([config.source_client, config.target_client])
        self.monitor = monitor = FlowMonitor(runtime, self._services.events)
        self._watching = watching = Scheduler(tell=self._services.events.job_ran)
        watching.repeat(
            monitor.measure, monitor.interval, f"{_MEASURING} {self._name}",
            # Nobody is in step who was not measured lately.
            flow=self._name, longest_pause_seconds=2 * monitor.interval,
        )  # fmt: skip
        # Large flows are looked at less often, so that an idle mirror stays idle.
        look_seconds = max(_LOOK_SECONDS, len(runtime.plan.partitions) / _LOOKED_AT_PER_SECOND)
        watching.repeat(monitor.look, look_seconds, f"{_WATCHING} {self._name}", flow=self._name)
        notes = SourceEndNotes(runtime.ledger.source_ends, monitor.seen)
        # Here, and not with copying: most is at risk while that rests.
        watching.repeat(
            partial(_if_owned, runtime, notes.note), _NOTE_SECONDS,
            f"noting what would be lost of {self._name}", flow=self._name,
        )  # fmt: skip
        self._services.pulse.watch(f"monitor of {self._name}", self._late, self)
        self.opened = True

    def _late(self) -> float:
        """For how long looking at the partitions has been due, if that is too long; else 0."""
        looking = [job for job in self.jobs() if job.description.startswith(_WATCHING)]
        late = max((time.time() - job.next_run for job in looking), default=0.0)
        return late if late > _LATE_SECONDS else 0.0

    @property
    def unmeasured(self) -> str:
        """Why the last measurement failed, or does not end; empty if it did not, or none began."""
        failed = [j.last_error for j in self.jobs() if j.description.startswith(_MEASURING)]
        if failed and failed[0]:
            return failed[0]
        return self.monitor.unanswered if self.monitor is not None else ""

    def jobs(self) -> list[JobStatus]:
        """How watching is doing."""
        watching = self._watching
        return watching.jobs_of(self._name) if watching is not None else []

    def close(self) -> None:
        """Give the claim up and close every client, after the last lease."""
        self._services.pulse.end(self)
        if self._watching is not None:
            self._watching.stop()
        runtime, self.runtime = self.runtime, None
        self._watching = None
        self.opened = False
        if runtime is not None:
            runtime.close()


def _if_owned(runtime: FlowRuntime, run: Callable[[], object]) -> None:
    """Run a job while leases may be handed out: what it writes is the owner's to say."""
    if runtime.holds:
        run()
