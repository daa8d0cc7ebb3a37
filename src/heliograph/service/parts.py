"""The three parts of a flow, as MM2 has three connectors. Runs in the driver.

    copying       records, topics, configs, ACLs, offset syncs    MirrorSourceConnector
    checkpoints   checkpoints and group offset sync               MirrorCheckpointConnector
    heartbeats    heartbeats into the target                      MirrorHeartbeatConnector

A part has jobs and a life. Its supervisor decides when it runs, in one thread; others read its life
and the state of its jobs at any moment.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from heliograph.config import FlowConfig
from heliograph.control.scheduler import Scheduler
from heliograph.errors import HeliographError
from heliograph.service.flow import FlowRuntime
from heliograph.service.jobs import ControlJob
from heliograph.service.once import incomplete
from heliograph.service.snapshot import CHECKPOINTS, COPYING, HEARTBEATS, FlowState, Life
from heliograph.wire.errors import WireError

__all__ = [
    "PARTS",
    "Part",
    "configured_parts",
    "life_of_flow",
    "standby_parts",
    "unless_standing_by",
]

log = logging.getLogger(__name__)

PARTS = (COPYING, CHECKPOINTS, HEARTBEATS)
#: Which state of a part is shown as that of its flow.
_MOST_ATTENTION_FIRST = (
    FlowState.FAILED, FlowState.STARTING, FlowState.STANDING_BY, FlowState.RUNNING,
    FlowState.PAUSED, FlowState.STOPPED,
)  # fmt: skip


def configured_parts(config: FlowConfig) -> set[str]:
    """The parts that a configuration asks for."""
    groups = config.emit_checkpoints_enabled or config.sync_group_offsets_enabled
    asked = {
        COPYING: config.enabled,
        CHECKPOINTS: config.enabled and groups,
        HEARTBEATS: config.emit_heartbeats_enabled,
    }
    return {part for part in PARTS if asked[part]}


def standby_parts(config: FlowConfig) -> tuple[str, ...]:
    """The parts that rest until the flow is started, if it is configured to stand by."""
    return (COPYING, CHECKPOINTS) if config.standby else ()


def life_of_flow(parts: Iterable[Life]) -> Life:
    """That of the part which needs most attention; of the first, if they are alike."""
    return min(parts, key=lambda life: _MOST_ATTENTION_FIRST.index(life.state))


def unless_standing_by(runtime: FlowRuntime, run: Callable[[], object]) -> None:
    """Run a job, unless another mirror has the flow."""
    if not runtime.stands_by:
        run()


@dataclass(slots=True)
class Part:
    """A part of a flow: what is wanted of it, and what it is.

    It rests if it is not ``wanted`` here, or ``held`` for all mirrors of the flow, with the reason.
    ``why`` is the reason why it is not wanted, if one was given.
    With ``standby`` it is held because its direction is not needed now.
    """

    wanted: bool = True
    why: str = ""
    held: str = ""
    standby: bool = False
    running: bool = False
    life: Life = field(default_factory=lambda: Life(FlowState.STARTING, since=time.time()))
    scheduler: Scheduler | None = None
    #: Its jobs, each with a lock that is held during its runs.
    jobs: list[tuple[ControlJob, threading.Lock]] = field(default_factory=list)

    @property
    def rests(self) -> bool:
        """Whether it is not to run."""
        return not self.wanted or bool(self.held)

    @property
    def reason(self) -> str:
        """Why it rests, for people; empty if nobody has said."""
        return self.held or self.why

    def want(self, *, wanted: bool, why: str = "") -> None:
        """Let it run here or not. What rests already keeps its reason."""
        if wanted or self.wanted:
            self.wanted, self.why = wanted, why

    def schedule(
        self, jobs: Iterable[ControlJob], runtime: FlowRuntime, scheduler: Scheduler
    ) -> None:
        """Run jobs by a scheduler of this part, in place of those that it had."""
        self.stop_jobs()
        self.scheduler, self.jobs = scheduler, []
        for job in jobs:
            running = scheduler.repeat(
                partial(unless_standing_by, runtime, job.run), job.interval_seconds,
                job.description, flow=runtime.name, first_after_seconds=job.first_after_seconds,
                details=job.details, longest_pause_seconds=job.longest_pause_seconds,
            )  # fmt: skip
            self.jobs.append((job, running))

    def stop_jobs(self) -> None:
        """Begin no more runs."""
        if self.scheduler is not None:
            self.scheduler.stop()
            self.scheduler = None

    def run_last(self, runtime: FlowRuntime) -> None:
        """The last run of each job that has one when its part stops; not beside another run."""
        for job, running in self.jobs:
            if not runtime.holds or not running.acquire(blocking=False):
                continue
            try:
                job.at_stop()
            except (WireError, HeliographError) as error:
                log.warning("%s: %s", job.description, error)
            finally:
                running.release()

    def finish(self) -> None:
        """The last run of each job after ``run --once``; raises HeliographError."""
        for job, running in self.jobs:
            with running, incomplete(job.description):
                job.at_end()

    def enter(self, state: FlowState, reason: str = "") -> None:
        """Its life goes on in this state, since now if it was in another."""
        if (self.life.state, self.life.reason) != (state, reason):
            since = self.life.since if self.life.state is state else time.time()
            self.life = Life(state, reason, since=since)

    def fail(self, error: HeliographError, retry_at: float) -> None:
        """It could not be started; that is tried again."""
        since = self.life.since if self.life.state is FlowState.FAILED else time.time()
        self.life = Life(FlowState.FAILED, str(error), error.code, since, retry_at)
