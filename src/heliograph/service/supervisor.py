"""One flow with a life of its own: started, paused, changed and stopped alone. Runs in the driver.

A supervisor owns everything of its flow: clients, claim, plan, leases, rounds, monitor and jobs. It
has three parts, as MM2 has three connectors:

    copying       records, topics, configs, ACLs, offset syncs    MirrorSourceConnector
    checkpoints   checkpoints and group offset sync               MirrorCheckpointConnector
    heartbeats    heartbeats into the target                      MirrorHeartbeatConnector

Each runs, pauses and fails on its own. Commands (`start`, `pause`, `resume`, `restart`,
`reconfigure`, `stop`) may come from any thread at any moment. They only say what is wanted. A
thread of the supervisor compares that with what is, and changes it. So each command is idempotent,
returns at once, and the last one decides. What cannot be started is tried again, later and later.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from heliograph.config import FlowConfig
from heliograph.control.scheduler import Scheduler
from heliograph.copy.lease_report import LeaseReport
from heliograph.copy.lease_state import SETTLE_SECONDS
from heliograph.errors import HeliographError, StartError
from heliograph.model import DriverAddress
from heliograph.service.engine import Engine
from heliograph.service.events import EventBus, FlowEvent
from heliograph.service.flow import Admit, FlowRuntime, PositionsStore
from heliograph.service.jobs import ControlJob, jobs_of
from heliograph.service.monitor import FlowMonitor
from heliograph.service.once import Goals
from heliograph.service.reload import Effect, effects_of
from heliograph.service.reports import ReportServer
from heliograph.service.rounds import KILLED_SECONDS, FlowLeases, RoundKeeper
from heliograph.service.snapshot import (
    CHECKPOINTS,
    COPYING,
    HEARTBEATS,
    FlowSnapshot,
    FlowState,
    JobSnapshot,
    Life,
)
from heliograph.wire.errors import WireError

__all__ = ["PARTS", "FlowSupervisor", "Services"]

log = logging.getLogger(__name__)

PARTS = (COPYING, CHECKPOINTS, HEARTBEATS)

#: How often partitions are judged; reports are taken in at once.
_LOOK_SECONDS = 1.0
_LOOKED_AT_PER_SECOND = 2000
#: How soon to look again for what was just created, if it was not there within moments.
_AGAIN_SECONDS = 0.5
#: What cannot be started is tried again after so long; twice as long after each failure.
_RETRY_SECONDS, _MOST_RETRY_SECONDS = 2.0, 30.0
_ENDED_EVERY_SECONDS, _CANCEL_EVERY_SECONDS = 0.02, 0.2


@dataclass(frozen=True, slots=True)
class Services:
    """What all flows of a mirror share.

    Attributes:
        engine: runs rounds.
        reports: where tasks report to; ``report_to`` is its address, None if there is none.
        events: what happens.
        flows: how many flows copy: they share the cores.
    """

    engine: Engine
    reports: ReportServer
    report_to: Callable[[], DriverAddress | None]
    events: EventBus
    flows: Callable[[], int]


@dataclass(slots=True)
class _Part:
    """A part of a flow: what is wanted of it, and what it is."""

    wanted: bool = True
    running: bool = False
    life: Life = field(default_factory=lambda: Life(FlowState.STARTING, since=time.time()))
    scheduler: Scheduler | None = None
    #: Its jobs, each with a lock that is held during its runs.
    jobs: list[tuple[ControlJob, threading.Lock]] = field(default_factory=list)


class FlowSupervisor:
    """Runs one flow. See the module's description."""

    def __init__(
        self,
        config: FlowConfig,
        services: Services,
        *,
        name: str = "",
        once: bool = False,
        parts: Collection[str] = PARTS,
        admit: Admit | None = None,
        positions: PositionsStore | None = None,
    ) -> None:
        """Describe the flow.

        Args:
            config: what it does.
            services: what it shares with other flows.
            name: tells several flows of one pair of clusters apart.
            once: copy what is there, then end.
            parts: those that this supervisor may run; others run elsewhere, or not at all.
            admit: see `FlowRuntime`.
            positions: see `FlowRuntime`.
        """
        self.config = config
        self._offered = frozenset(parts)
        self._admit = admit
        self._positions = positions
        self.name = name or str(config.flow)
        self._scope = name
        self._services = services
        self._once = once
        self._parts = {part: _Part() for part in PARTS if self._is_on(part, config)}
        self._life = Life(FlowState.STARTING, since=time.time())
        #: What was known at the end.
        self._last: FlowSnapshot | None = None
        self._runtime: FlowRuntime | None = None
        #: Whether the source is connected and the flow claimed.
        self._opened = False
        self._monitor: FlowMonitor | None = None
        self._watching: Scheduler | None = None
        self._keeper: RoundKeeper | None = None
        self._goals: Goals | None = None
        #: From when on no lease that was handed out so far can be running.
        self._clear_from = 0.0
        self._wanted_config = config
        self._paused_topics: frozenset[str] = frozenset()
        self._stopping = self._reopen = False
        self._restart: set[str] = set()
        self._retry_at = 0.0
        self._retry_seconds = _RETRY_SECONDS
        self._error: HeliographError | None = None
        self._told = ""
        self._changed = threading.Condition()
        self._pending = True
        self._attempted = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._live, name=f"flow {self.name}", daemon=True)

    # -- commands -----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to live."""
        with self._changed:
            if not self._thread.is_alive() and not self._stopped.is_set():
                self._thread.start()

    def pause(self, *parts: str) -> None:
        """Let parts rest, all by default. The flow stays this mirror's; its lag is measured on."""
        self._want(parts, wanted=False)

    def resume(self, *parts: str) -> None:
        """Let parts go on, all by default."""
        self._want(parts, wanted=True)

    def pause_topics(self, *topics: str) -> None:
        """Let source topics rest, until `resume_topics` or the end of this process."""
        with self._changed:
            self._paused_topics |= set(topics)
            self._wake()

    def resume_topics(self, *topics: str) -> None:
        """Let source topics go on."""
        with self._changed:
            self._paused_topics -= set(topics)
            self._wake()

    def _want(self, parts: tuple[str, ...], *, wanted: bool) -> None:
        with self._changed:
            for part in parts or tuple(self._parts):
                if part in self._parts:
                    self._parts[part].wanted = wanted
            self._wake()

    def restart(self, *parts: str) -> None:
        """Stop and start parts; without parts the whole flow, with new connections."""
        with self._changed:
            if parts:
                self._restart.update(part for part in parts if part in self._parts)
            else:
                self._reopen = True
            self._wake()

    def reconfigure(self, config: FlowConfig) -> None:
        """Go on with another configuration of the same flow; only what it changes is disturbed."""
        with self._changed:
            self._wanted_config = config
            self._wake()

    def stop(self) -> None:
        """End in order: leases end, what was acknowledged is noted, the claim is given up."""
        with self._changed:
            self._stopping = True
            self._stopped.set()
            if self._keeper is not None:
                self._keeper.stop()
            self._wake()

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the end after `stop`; returns whether it has come."""
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _wake(self) -> None:
        self._pending = True
        self._retry_at = 0.0
        self._changed.notify_all()

    # -- what others ask ----------------------------------------------------------------------

    @property
    def copies(self) -> bool:
        """Whether the flow is to copy anything here."""
        return self.config.enabled and COPYING in self._offered

    @property
    def wanted(self) -> FlowConfig:
        """The configuration that the flow was last given; `config` is the one that it goes by."""
        return self._wanted_config

    @property
    def error(self) -> HeliographError | None:
        """Why the flow could not be started, until it was."""
        return self._error

    def await_attempt(self, seconds: float | None = None) -> bool:
        """Wait until the flow has started, or it is known why it could not; see `error`."""
        return self._attempted.wait(seconds)

    def hear(self, report: LeaseReport) -> None:
        """Take in what a task of this flow reports."""
        monitor = self._monitor
        if monitor is not None:
            monitor.hear(report)

    def snapshot(self) -> FlowSnapshot:
        """What is known of the flow now."""
        if self._last is not None:
            return self._last
        # A copy: the supervisor's thread may add and remove parts meanwhile.
        known = dict(self._parts)
        parts = {name: self._life_of(part) for name, part in known.items()}
        jobs = [
            JobSnapshot.of(status, name)
            for name, part in known.items()
            for scheduler in [part.scheduler] if scheduler is not None
            for status in scheduler.jobs_of(self.name)
        ]  # fmt: skip
        flow, monitor = self.config.flow, self._monitor
        if self._watching is not None:
            jobs += [JobSnapshot.of(status) for status in self._watching.jobs_of(self.name)]
        life = self._life_as_a_whole(parts)
        if monitor is not None:
            return monitor.snapshot(life, parts, jobs)
        return FlowSnapshot(
            self.name, flow.source, flow.target, life, parts, jobs=tuple(jobs),
            events=self._services.events.counts(self.name),
        )  # fmt: skip

    def _life_of(self, part: _Part) -> Life:
        runtime = self._runtime
        if part.running and runtime is not None and self._opened and runtime.stands_by:
            return replace(part.life, state=FlowState.STANDING_BY,
                           reason="another mirror has the flow")  # fmt: skip
        return part.life

    def _life_as_a_whole(self, parts: Mapping[str, Life]) -> Life:
        """That of the part which needs most attention; of copying, if they are alike."""
        if self._life.state is FlowState.STOPPED or not parts:
            return self._life
        order = [FlowState.FAILED, FlowState.STARTING, FlowState.STANDING_BY, FlowState.RUNNING,
                 FlowState.PAUSED, FlowState.STOPPED]  # fmt: skip
        return min(parts.values(), key=lambda life: order.index(life.state))

    # -- living -------------------------------------------------------------------------------

    def _live(self) -> None:
        while True:
            with self._changed:
                while not self._pending and not self._is_due():
                    pause = self._retry_at - time.time() if self._retry_at else None
                    self._changed.wait(pause)
                self._pending = False
                if self._stopping:
                    break
            try:
                self._settle()
            except Exception as error:
                if self._stopped.is_set():
                    continue
                log.exception("%s: the flow cannot be run as wanted", self.name)
                waiting = [p for p in self._parts.values() if p.wanted and not p.running]
                text = f"flow {self.name}: {type(error).__name__}: {error}"
                self._fail(HeliographError("flow.internal", text), waiting)
        last = self.snapshot()
        self._shut()
        self._note(self._parts.values(), FlowState.STOPPED)
        self._life = Life(FlowState.STOPPED, since=time.time())
        parts = {name: part.life for name, part in self._parts.items()}
        self._last = replace(last, life=self._life, parts=parts)
        self._services.engine.forget(self.name)
        self._attempted.set()
        self._say("stopped", "has stopped", level=logging.DEBUG)

    def _is_due(self) -> bool:
        return bool(self._retry_at) and time.time() >= self._retry_at

    def _settle(self) -> None:
        """Make what is what is wanted."""
        with self._changed:
            config = self._wanted_config
            reopen, self._reopen = self._reopen, False
            restart, self._restart = self._restart, set()
        if config is not self.config:
            effects = effects_of(self.config, config)
            reopen = reopen or Effect.REOPEN in effects
            restart |= {str(effect) for effect in effects if str(effect) in PARTS}
            if not reopen and Effect.TOPICS in effects:
                reopen = not self._select_topics(config)
            self._take(config)
            if effects & {Effect.TOPICS, Effect.JOBS} and not reopen:
                self._restart_jobs()
            if effects:
                self._say("reconfigured", "goes on with the changed configuration")
        if reopen:
            self._shut()
            self._say("restarted", "connects anew")
        for name in restart & self._parts.keys():
            self._stop_part(name)
        for name, part in self._parts.items():
            if part.running and not part.wanted:
                self._stop_part(name)
                self._note([part], FlowState.PAUSED)
                self._say("paused", f"{name} is paused", name)
                if name == COPYING and self._monitor is not None:
                    self._monitor.suspend("copying is paused")
        if any(part.wanted and not part.running for part in self._parts.values()):
            self._start_parts()
        for part in self._parts.values():
            if not part.wanted and not part.running and part.life.state is not FlowState.PAUSED:
                self._note([part], FlowState.PAUSED)
        self._hold_topics()

    def _hold_topics(self) -> None:
        """Lease what is not paused; leases that name what is paused are ended."""
        runtime = self._runtime
        if runtime is None or runtime.paused_topics == self._paused_topics:
            return
        before, runtime.paused_topics = set(runtime.leasable), self._paused_topics
        if self._keeper is not None:
            if before - runtime.leasable:
                self._end_leases()
                self._start_rounds(runtime)
            else:
                self._keeper.changed()

    def _is_on(self, part: str, config: FlowConfig) -> bool:
        """Whether the configuration asks for a part of the flow, and it may run here."""
        if part not in self._offered:
            return False
        if part == HEARTBEATS:
            return config.emit_heartbeats_enabled
        if part == CHECKPOINTS:
            groups = config.emit_checkpoints_enabled or config.sync_group_offsets_enabled
            return config.enabled and groups
        return config.enabled

    def _take(self, config: FlowConfig) -> None:
        """The configuration that parts which start from now on go by."""
        self.config = config
        if self._runtime is not None:
            self._runtime.config = config
        for name in PARTS:
            if self._is_on(name, config):
                self._parts.setdefault(name, _Part())
            elif name in self._parts:
                self._stop_part(name)
                del self._parts[name]

    def _start_parts(self) -> None:
        try:
            runtime = self._open_target()
            if HEARTBEATS in self._parts:
                self._start_part(HEARTBEATS)
            if self._parts.keys() & {COPYING, CHECKPOINTS}:
                self._open(runtime)
                for name in (COPYING, CHECKPOINTS):
                    if name in self._parts:
                        self._start_part(name)
        except (HeliographError, WireError) as error:
            if not isinstance(error, HeliographError):
                error = StartError("flow.start", f"flow {self.name}: {error}")
            waiting = [p for p in self._parts.values() if p.wanted and not p.running]
            self._fail(error, waiting)
            if not self._opened and not any(p.running for p in self._parts.values()):
                # Connections that were half made are not used again.
                self._forget_opened()
        else:
            if self._told:
                self._say("recovered", "has started")
            self._error, self._told = None, ""
            self._retry_at, self._retry_seconds = 0.0, _RETRY_SECONDS
        self._attempted.set()

    def _fail(self, error: HeliographError, parts: Iterable[_Part]) -> None:
        """Parts could not be started; they are tried again later.

        The first time is no news: whoever started the mirror waits for that, and asks `error`.
        """
        self._error = error
        if self._once:
            self._retry_at = 0.0
        else:
            self._retry_at = time.time() + self._retry_seconds
            self._retry_seconds = min(2 * self._retry_seconds, _MOST_RETRY_SECONDS)
        for part in parts:
            since = part.life.since if part.life.state is FlowState.FAILED else time.time()
            part.life = Life(FlowState.FAILED, str(error), error.code, since, self._retry_at)
        if self._attempted.is_set() and str(error) != self._told:
            self._told = str(error)
            text = f"cannot start: {error}\n  it is tried again, at most every"
            self._say("failed", f"{text} {_MOST_RETRY_SECONDS:.0f} s", level=logging.WARNING)

    def _open_target(self) -> FlowRuntime:
        if self._runtime is None:
            self._runtime = FlowRuntime(
                self.config, self._changed_hands, name=self._scope, admit=self._admit,
                positions=self._positions,
            )  # fmt: skip
            self._runtime.paused_topics = self._paused_topics
        with self._step(f"cluster {self.config.flow.target}"):
            self._runtime.open_target()
        return self._runtime

    def _open(self, runtime: FlowRuntime) -> None:
        """Connect and claim, if that is not done yet; then the flow is watched."""
        if self._opened:
            return
        with self._step(f"cluster {self.config.flow.source} and the topics of {self.name}"):
            runtime.open(once=self._once, copies=self.copies)
        if self.copies:
            engine, config = self._services.engine, self.config
            engine.await_start()
            engine.check_secrets([config.source_client, config.target_client])
        self._monitor = monitor = FlowMonitor(runtime, self._services.events)
        self._watching = watching = Scheduler(tell=self._services.events.job_ran)
        watching.repeat(
            monitor.measure, monitor.interval, f"measuring the lag of {self.name}",
            # Nobody is in step who was not measured lately.
            flow=self.name, longest_pause_seconds=2 * monitor.interval,
        )  # fmt: skip
        watching.repeat(
            monitor.look, _look_seconds(runtime), f"watching the partitions of {self.name}",
            flow=self.name,
        )  # fmt: skip
        self._opened = True

    def _start_part(self, name: str) -> None:
        part = self._parts[name]
        runtime = self._runtime
        if part.running or not part.wanted or runtime is None:
            return
        if name == COPYING and self._once:
            runtime.require(self._stopped)
            self._goals = Goals(runtime.goals, self._stopped)
        self._schedule(name, part, runtime)
        if name == COPYING:
            self._start_rounds(runtime)
        part.running = True
        self._note([part], FlowState.RUNNING)
        self._say("running", f"{name} has started", name, logging.DEBUG)

    def _schedule(self, name: str, part: _Part, runtime: FlowRuntime) -> None:
        part.scheduler, part.jobs = Scheduler(tell=self._services.events.job_ran), []
        for job in jobs_of(name, runtime, self._monitor):
            running = part.scheduler.repeat(
                partial(_unless_standing_by, runtime, job.run), job.interval_seconds,
                job.description, flow=self.name, first_after_seconds=job.first_after_seconds,
                details=job.details,
            )  # fmt: skip
            part.jobs.append((job, running))
        if name != (COPYING if self.copies else CHECKPOINTS):
            return
        part.scheduler.repeat(
            partial(_unless_standing_by, runtime, self._look_again), _AGAIN_SECONDS,
            f"looking for what {self.name} has just created",
            flow=self.name, longest_pause_seconds=_AGAIN_SECONDS,
        )  # fmt: skip
        if self.config.refresh_topics_enabled and not self._once:
            part.scheduler.repeat(
                self._refresh, self.config.refresh_topics_interval_seconds,
                f"refreshing the topics of {self.name}", flow=self.name,
            )  # fmt: skip

    def _restart_jobs(self) -> None:
        """The control jobs of copying begin anew; what is being copied is not disturbed."""
        part = self._parts.get(COPYING)
        if part is not None and part.running and self._runtime is not None:
            if part.scheduler is not None:
                part.scheduler.stop()
            self._schedule(COPYING, part, self._runtime)

    def _start_rounds(self, runtime: FlowRuntime) -> None:
        services, monitor = self._services, self._monitor
        assert monitor is not None  # noqa: S101 - open
        monitor.suspend("")
        leases = FlowLeases(
            runtime, monitor, lambda: services.engine.leases_per_flow(services.flows()),
            report_to=services.report_to(), goals=self._goals, clear_from=self._clear_from,
        )  # fmt: skip
        self._keeper = RoundKeeper(
            leases, partial(services.engine.submit_round, self.name), self.config.lease_seconds
        )
        if not self._stopping:
            self._keeper.start()

    def _stop_part(self, name: str) -> None:
        part = self._parts[name]
        if part.scheduler is not None:
            part.scheduler.stop()
            part.scheduler = None
        if name == COPYING:
            self._end_leases()
        if part.running:
            self._run_last(part)
        part.running = False

    def _run_last(self, part: _Part) -> None:
        """The last run of each job that has one when its part stops."""
        runtime = self._runtime
        for job, running in part.jobs:
            if runtime is None or not runtime.holds or not running.acquire(blocking=False):
                continue
            try:
                job.at_stop()
            except (WireError, HeliographError) as error:
                log.warning("%s: %s", job.description, error)
            finally:
                running.release()

    def _end_leases(self) -> None:
        """Have this flow's tasks end, in order if they can."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        keeper.stop()
        keeper.join(KILLED_SECONDS)
        self._services.reports.end_leases(self.name)
        # Those that wait for the next round, and those that do not answer. Again and again: Spark
        # learns of a round a moment after it was submitted.
        deadline = time.monotonic() + KILLED_SECONDS
        cancel_at = 0.0
        while keeper.in_progress and (now := time.monotonic()) < deadline:
            if now >= cancel_at:
                self._services.engine.cancel_rounds(self.name)
                cancel_at = now + _CANCEL_EVERY_SECONDS
            time.sleep(_ENDED_EVERY_SECONDS)
        left = KILLED_SECONDS if keeper.in_progress else 0.0
        self._clear_from = time.time() + left + SETTLE_SECONDS

    def _shut(self) -> None:
        """End all parts and give up the claim."""
        for name in self._parts:
            self._stop_part(name)
        self._forget_opened()

    def _forget_opened(self) -> None:
        if self._watching is not None:
            self._watching.stop()
        runtime, self._runtime = self._runtime, None
        # What was known last is shown until the flow is watched again.
        self._watching = None
        self._opened = False
        if runtime is not None:
            runtime.close()

    def _step(self, what: str) -> AbstractContextManager[None]:
        """The first start of a flow that copies says what it waits for."""
        if self._attempted.is_set() or not self.config.enabled:
            return nullcontext()
        return self._services.events.step(what, self.name)

    def _note(self, parts: Iterable[_Part], state: FlowState) -> None:
        now = time.time()
        for part in parts:
            if part.life.state is not state:
                part.life = Life(state, since=now)

    def _say(self, code: str, text: str, part: str = "", level: int = logging.INFO) -> None:
        self._services.events.publish(
            FlowEvent(self.name, f"flow.{code}", text, part, level, time.time())
        )

    # -- topics -------------------------------------------------------------------------------

    def _changed_hands(self) -> None:
        """The flow was taken over by another mirror, or by this one. In the thread of its claim."""
        runtime = self._runtime
        if runtime is None:
            return
        if runtime.stands_by:
            # Its leases would go on until their deadline, beside the other mirror's.
            self._services.engine.cancel_rounds(self.name)
        else:
            # While it stood by, no topics were created; the claim must not wait for that.
            threading.Thread(target=self._catch_up, daemon=True).start()

    def _refresh(self) -> None:
        runtime, keeper = self._runtime, self._keeper
        if runtime is not None and runtime.refresh_topics() and keeper is not None:
            keeper.changed()

    def _look_again(self) -> None:
        """Brokers show what was created, and elect its leaders, a moment later."""
        if self._runtime is not None and self._runtime.unsettled:
            self._refresh()

    def _catch_up(self) -> None:
        try:
            self._refresh()
        except WireError as error:
            log.warning("refreshing the topics of %s: %s", self.name, error)

    def _select_topics(self, config: FlowConfig) -> bool:
        """Other topics are to be mirrored; returns whether that could be found out.

        Partitions that stay are not disturbed, unless others go: leases name what must not be
        copied any more, so the round ends and the next one begins.
        """
        runtime = self._runtime
        if runtime is None or not self._opened:
            return True
        before = set(runtime.plan.partitions)
        try:
            runtime.select_topics(config)
        except (WireError, HeliographError) as error:
            log.warning("%s: looking for its topics: %s", self.name, error)
            return False
        if self._keeper is not None:
            if before - runtime.plan.partitions.keys():
                self._end_leases()
                self._start_rounds(runtime)
            else:
                self._keeper.changed()
        return True

    # -- once ---------------------------------------------------------------------------------

    def await_goals(self) -> None:
        """Wait until all that the source had at the start is copied; raises HeliographError.

        The error names each partition that was not copied so far, and why; it is also raised if
        another mirror has the flow, or the flow could not be started.
        """
        self._attempted.wait()
        if self._error is not None:
            raise self._error
        keeper, goals, runtime = self._keeper, self._goals, self._runtime
        if keeper is None or goals is None or runtime is None:
            return
        keeper.join()
        if self._stopped.is_set() or not goals.open:
            return
        runtime.require(self._stopped)  # one that was taken over is the better explanation
        lines = [
            f"{self.name} {p}: {goals.missing.get(p, 'it was not copied')}"
            for p in sorted(goals.open)
        ]
        text = "not everything could be mirrored:\n  " + "\n  ".join(lines)
        raise HeliographError("once.incomplete", text)

    def finish(self) -> None:
        """After the goals: the last run of each job that has one; raises HeliographError."""
        what = f"measuring the lag of {self.name}"
        try:
            if self._monitor is not None:
                self._monitor.measure()
                self._monitor.look()
            for part in self._parts.values():
                for job, running in part.jobs:
                    what = job.description
                    with running:
                        job.at_end()
        except (WireError, ValueError) as error:
            raise HeliographError("once.incomplete", f"{what}: {error}") from error


def _look_seconds(runtime: FlowRuntime) -> float:
    """Large flows are looked at less often, so that an idle mirror stays idle."""
    return max(_LOOK_SECONDS, len(runtime.plan.partitions) / _LOOKED_AT_PER_SECOND)


def _unless_standing_by(runtime: FlowRuntime, run: Callable[[], object]) -> None:
    if not runtime.stands_by:
        run()
