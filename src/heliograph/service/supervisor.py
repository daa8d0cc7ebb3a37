"""One flow with a life of its own: started, paused, changed and stopped alone. Runs in the driver.

A supervisor decides what of its flow runs: the connections and the claim (`FlowSession`), the
rounds (`Copying`) and the three parts (`Part`), each of which runs, pauses and fails on its own.
What operators hold for all mirrors of the flow, through its ledger (`heliograph.ledger.holds`),
rests here, too.

Commands (`start`, `pause`, `resume`, `restart`, `reconfigure`, `stop`) may come from any thread at
any moment. They only say what is wanted. A thread of the supervisor compares that with what is, and
changes it. So each command is idempotent, returns at once, and the last one decides. What cannot be
started is tried again, later and later.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from heliograph.claims.process_identity import tag_of, this_process
from heliograph.config import FlowConfig
from heliograph.control.scheduler import Scheduler
from heliograph.copy.lease_report import LeaseReport
from heliograph.errors import HeliographError, StartError
from heliograph.failover.refusals import HandoverRefused
from heliograph.ledger.holds import Restart, Resting, Subject
from heliograph.service.copying import Copying
from heliograph.service.events import FlowEvent
from heliograph.service.flow import QUICK_REQUEST_SECONDS, Admit, FlowRuntime, PositionsStore
from heliograph.service.flow_session import FlowSession
from heliograph.service.jobs import jobs_of
from heliograph.service.once import incomplete
from heliograph.service.parts import PARTS, Part, configured_parts, life_of_flow, standby_parts
from heliograph.service.pulse import IDLE_SECONDS
from heliograph.service.reload import Effect, effects_of
from heliograph.service.services import Services
from heliograph.service.snapshot import (
    CHECKPOINTS,
    COPYING,
    HEARTBEATS,
    FlowSnapshot,
    FlowState,
    GroupDetails,
    JobSnapshot,
    Life,
)
from heliograph.shown import shown
from heliograph.wire.errors import WireError

__all__ = ["FlowSupervisor"]

log = logging.getLogger(__name__)

#: What cannot be started is tried again after so long; twice as long after each failure.
_RETRY_SECONDS, _MOST_RETRY_SECONDS = 2.0, 10.0
#: Connecting, creating topics and looking into what MM2 left may take this long, and not longer.
_SETTLE_SECONDS = 1800.0


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
        self._parts = {part: Part() for part in PARTS if part in self._wanted_parts(config)}
        self._life = Life(FlowState.STARTING, since=time.time())
        #: What was known at the end.
        self._last: FlowSnapshot | None = None
        self._stopped = threading.Event()
        self._session = FlowSession(self.name, services, self._make_runtime)
        self._copying = Copying(self.name, self._session, services, self._stopped)
        self._wanted_config = config
        #: Topics that are not wanted here, with the reason.
        self._paused_topics: dict[str, str] = {}
        #: Topics that were told to rest, with the reason.
        self._told_topics: Mapping[str, str] = {}
        #: What is to be lifted of what is held through the ledger.
        self._lift: set[Subject] = set()
        #: Restarts that were carried out or came before this connection, by scope; and of which.
        self._restarted: dict[str, str] = {}
        self._restarted_in: FlowRuntime | None = None
        #: What was last answered to holds, and through which connection.
        self._answered: tuple[FlowRuntime, Resting] | None = None
        self._reopen = False
        self._restart: set[str] = set()
        self._retry_at = 0.0
        self._retry_seconds = _RETRY_SECONDS
        self._error: HeliographError | None = None
        self._told = ""
        self._changed = threading.Condition()
        self._pending = True
        self._attempted = threading.Event()
        self._thread = threading.Thread(target=self._live, name=f"flow {self.name}", daemon=True)

    # -- commands -----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to live."""
        with self._changed:
            if not self._thread.is_alive() and not self._stopped.is_set():
                self._thread.start()

    def pause(self, *parts: str, why: str = "") -> None:
        """Let parts rest, all by default. The flow stays this mirror's; its lag is measured on.

        ``why`` is shown to all who look: "paused by ...".
        """
        self._want(parts, wanted=False, why=why)

    def resume(self, *parts: str) -> None:
        """Let parts go on, all by default; what is held of them through the ledger is lifted.

        Raises HandoverRefused if the flow is being handed over.
        """
        subjects = {Subject.part(part) for part in parts or tuple(self._parts)}
        self.refuse_to_resume(subjects)
        with self._changed:
            self._lift |= subjects
        self._want(parts, wanted=True)

    def pause_topics(self, *topics: str, why: str = "") -> None:
        """Let source topics rest, until `resume_topics` or the end of this process."""
        with self._changed:
            self._paused_topics = dict.fromkeys(topics, why or "paused") | self._paused_topics
            self._wake()

    def resume_topics(self, *topics: str) -> None:
        """Let source topics go on; what is held of them through the ledger is lifted.

        Raises HandoverRefused if they are being handed over.
        """
        self.refuse_to_resume([Subject.topic(topic) for topic in topics])
        with self._changed:
            paused = self._paused_topics.items()
            self._paused_topics = {topic: why for topic, why in paused if topic not in topics}
            self._lift |= {Subject.topic(topic) for topic in topics}
            self._wake()

    def refuse_to_resume(self, subjects: Collection[Subject] = ()) -> None:
        """Raise HandoverRefused if somebody hands over what is to go on; all parts by default.

        As of the last reading of the ledger: it is looked at again before anything is lifted.
        """
        runtime = self._session.runtime
        if runtime is not None and runtime.open_handovers is not None:
            subjects = subjects or [Subject.part(part) for part in tuple(self._parts)]
            runtime.open_handovers.refuse_to_resume(self.config.flow, subjects)

    def _want(self, parts: tuple[str, ...], *, wanted: bool, why: str = "") -> None:
        with self._changed:
            for part in parts or tuple(self._parts):
                if part in self._parts:
                    self._parts[part].want(wanted=wanted, why=why)
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
            self._stopped.set()
            self._copying.stop()
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

    def _ordered(self) -> None:
        """What is held has changed. In a thread of the claim, which must not wait."""
        with self._changed:
            self._pending = True
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

    @property
    def life(self) -> Life:
        """The state of the flow, without counting its partitions."""
        parts = [self._life_of(part) for part in list(self._parts.values())]
        stopped = self._life.state is FlowState.STOPPED
        return self._life if stopped or not parts else life_of_flow(parts)

    @property
    def unmeasured(self) -> str:
        """Why its clusters could not be asked when that was last tried; empty if they could."""
        return self._session.unmeasured

    def hear(self, report: LeaseReport) -> None:
        """Take in what a task of this flow reports."""
        monitor = self._session.monitor
        if monitor is not None:
            monitor.hear(report)

    def snapshot(self) -> FlowSnapshot:
        """What is known of the flow now."""
        if self._last is not None:
            return self._last
        # A copy: the supervisor's thread may add and remove parts meanwhile.
        known = dict(self._parts)
        parts = {name: self._life_of(part) for name, part in known.items()}
        stopped = self._life.state is FlowState.STOPPED
        life = self._life if stopped or not parts else life_of_flow(parts.values())
        jobs = [
            JobSnapshot.of(status, name)
            for name, part in known.items()
            for scheduler in [part.scheduler] if scheduler is not None
            for status in scheduler.jobs_of(self.name)
        ]  # fmt: skip
        jobs += [JobSnapshot.of(status) for status in self._session.jobs()]
        flow, monitor = self.config.flow, self._session.monitor
        if monitor is not None:
            return monitor.snapshot(life, parts, jobs)
        return FlowSnapshot(
            self.name, flow.source, flow.target, life, parts, jobs=tuple(jobs),
            events=self._services.events.counts(self.name),
        )  # fmt: skip

    def group(self, group: str) -> GroupDetails:
        """A consumer group on both sides. Asks the target; raises KeyError if none is known."""
        found = next((row for row in self.snapshot().groups if row.group == group), None)
        runtime, monitor = self._session.runtime, self._session.monitor
        if found is None or monitor is None:
            raise KeyError(group)
        target = None
        if runtime is not None:
            target = runtime.client(self.config.target_admin, QUICK_REQUEST_SECONDS)
        partitions = monitor.groups.partitions(group, monitor.targets, monitor.ends_of, target)
        return GroupDetails(self.name, found, partitions)

    def _life_of(self, part: Part) -> Life:
        if part.running and self._session.stands_by:
            return replace(part.life, state=FlowState.STANDING_BY,
                           reason="another mirror has the flow")  # fmt: skip
        return part.life

    # -- living -------------------------------------------------------------------------------

    def _live(self) -> None:
        pulse = self._services.pulse
        beat = pulse.beat(f"flow {self.name}")
        while True:
            with self._changed:
                while not self._pending and not self._is_due():
                    beat.touch()
                    pause = self._retry_at - time.time() if self._retry_at else IDLE_SECONDS
                    self._changed.wait(min(pause, IDLE_SECONDS))
                self._pending = False
                if self._stopped.is_set():
                    break
            beat.touch(_SETTLE_SECONDS)
            try:
                self._settle()
            except Exception as error:
                if self._stopped.is_set():
                    continue
                log.exception("%s: the flow cannot be run as wanted", self.name)
                text = f"flow {self.name}: {type(error).__name__}: {error}"
                self._fail(HeliographError("flow.internal", text))
        pulse.end(beat)
        last = self.snapshot()
        self._shut()
        for part in self._parts.values():
            part.enter(FlowState.STOPPED)
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
        self._lift_holds()
        self._take_holds()
        for order in self._new_restarts():
            restart |= set(order.parts)
            reopen = reopen or not order.parts
        if config is not self.config:
            effects = effects_of(self.config, config)
            reopen = reopen or Effect.REOPEN in effects
            restart |= {str(effect) for effect in effects if str(effect) in PARTS}
            if not reopen and Effect.TOPICS in effects:
                reopen = not self._copying.select_topics(config)
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
            if part.running and part.rests:
                self._stop_part(name)
                self._rest(name, part)
                self._say("paused", f"{name} is {part.reason or 'paused'}", name)
        if any(not part.held or not self._session.opened for part in self._waiting()):
            self._start_parts()
        for name, part in self._parts.items():
            # Of a flow that could not be connected it is not known what is held.
            if part.rests and not part.running and (not part.wanted or self._session.opened):
                self._rest(name, part)
        resting = self._resting_topics()
        self._copying.hold_topics(resting)
        if self._session.opened:
            self._tell_topics(resting)
            self._answer_holds()

    def _tell_topics(self, resting: Mapping[str, str]) -> None:
        told, self._told_topics = self._told_topics, resting
        for topic in sorted(resting.keys() - told.keys()):
            self._say("topic-paused", f"topic {topic} is {resting[topic]}", COPYING)
        for topic in sorted(told.keys() - resting.keys()):
            self._say("topic-resumed", f"topic {topic} goes on", COPYING)

    def _rest(self, name: str, part: Part) -> None:
        standby = part.standby and part.wanted
        part.enter(FlowState.STANDING_BY if standby else FlowState.PAUSED, part.reason)
        if name == COPYING and self._session.monitor is not None:
            self._session.monitor.suspend(part.reason or "copying is paused")

    # -- what is held through the ledger --------------------------------------------------------

    def _take_holds(self) -> None:
        """Take over what is held now; while there is no connection, what was held then."""
        runtime = self._session.runtime
        if runtime is None or runtime.orders is None:
            return
        held = runtime.orders.parts_with(standby_parts(self.config))
        for name, part in self._parts.items():
            part.held = str(held[name]) if name in held else ""
            part.standby = name in held and held[name].standby

    def _answer_holds(self) -> None:
        """Say in the ledger which holds are obeyed, now that nothing of them is copied any more.

        And that the flow copies since it was started, if it was.
        """
        runtime = self._session.runtime
        if runtime is None or runtime.orders is None:
            return
        held = runtime.orders.parts
        obeyed = {
            n: held[n].since_ms for n, p in self._parts.items() if n in held and not p.running
        }
        topics = runtime.orders.topics
        rests = {t: topics[t].since_ms for t in topics if t in runtime.paused_topics}
        copying = self._parts.get(COPYING)
        copies = copying is not None and copying.running and not runtime.stands_by
        started_ms = runtime.orders.started_ms if copies else 0
        resting = Resting(obeyed, rests, started_ms=started_ms)
        before, nothing = self._answered, Resting({}, {})
        if before == (runtime, resting) or (before is None and resting == nothing):
            return
        # Leases of a mirror that was here before may run on, too.
        clear_seconds = max(self._copying.clear_seconds, runtime.clear_from - time.time())
        try:
            runtime.orders.answer(
                tag_of(this_process()), resting._replace(clear_seconds=max(clear_seconds, 0.0))
            )
        except WireError as error:
            self._retry_at = time.time() + _RETRY_SECONDS
            log.warning("%s: it cannot be told yet what rests: %s", self.name, error)
            return
        self._answered = runtime, resting

    def _lift_holds(self) -> None:
        with self._changed:
            lift = set(self._lift)
        runtime = self._session.runtime
        if not lift or runtime is None or runtime.orders is None:
            return
        try:
            runtime.orders.refresh()
            self.refuse_to_resume(lift)
            started = self.config.standby and not runtime.orders.started
            if started:
                runtime.orders.start(str(this_process().host))
            if runtime.orders.lift(lift) or started:
                runtime.orders.refresh()
        except WireError as error:
            self._retry_at = time.time() + _RETRY_SECONDS
            log.warning("%s: what is held cannot be lifted yet: %s", self.name, error)
            return
        except HandoverRefused as refused:
            # It was resumed while it could not be known yet that it is being handed over.
            self._say("not-resumed", str(refused.args[0]), level=logging.WARNING)
        with self._changed:
            self._lift -= lift

    def _new_restarts(self) -> list[Restart]:
        """Restarts that were ordered since the flow was connected, each once."""
        runtime = self._session.runtime
        if runtime is None or runtime.orders is None:
            return []
        orders = runtime.orders.restarts
        new = [o for scope, o in orders.items() if self._restarted.get(scope) != o.nonce]
        self._restarted = {scope: o.nonce for scope, o in orders.items()}
        first, self._restarted_in = runtime is not self._restarted_in, runtime
        # What was ordered before a connection was made is done with it.
        if first or self._session.stands_by:
            return []
        for order in new:
            self._say("restarting", f"is restarted by {shown(order.by)}, through Kafka")
        return new

    def _resting_topics(self) -> dict[str, str]:
        runtime = self._session.runtime
        held = runtime.orders.topics if runtime is not None and runtime.orders is not None else {}
        return self._paused_topics | {topic: str(hold) for topic, hold in held.items()}

    def _waiting(self) -> list[Part]:
        """Parts that are to run and do not."""
        return [part for part in self._parts.values() if part.wanted and not part.running]

    def _wanted_parts(self, config: FlowConfig) -> set[str]:
        """The parts that the configuration asks for and that may run here."""
        return configured_parts(config) & self._offered

    def _take(self, config: FlowConfig) -> None:
        """The configuration that parts which start from now on go by."""
        self.config = config
        if self._session.runtime is not None:
            self._session.runtime.config = config
        wanted = self._wanted_parts(config)
        for name in PARTS:
            if name in wanted:
                self._parts.setdefault(name, Part())
            elif name in self._parts:
                self._stop_part(name)
                del self._parts[name]

    def _start_parts(self) -> None:
        try:
            runtime = self._session.open_target(self._step)
            self._start_part(HEARTBEATS, runtime)
            if self._parts.keys() & {COPYING, CHECKPOINTS}:
                self._session.open(runtime, self._step, once=self._once, copies=self.copies)
                self._take_holds()
                self._new_restarts()
                self._refuse_held_once()
                runtime.paused_topics = self._resting_topics()
                self._start_part(COPYING, runtime)
                self._start_part(CHECKPOINTS, runtime)
        except (HeliographError, WireError) as error:
            if not isinstance(error, HeliographError):
                error = StartError("flow.start", f"flow {self.name}: {error}")
            self._fail(error)
            if not self._session.opened and not any(p.running for p in self._parts.values()):
                # Connections that were half made are not used again.
                self._session.close()
        else:
            if self._told:
                self._say("recovered", "has started")
            self._error, self._told = None, ""
            self._retry_at, self._retry_seconds = 0.0, _RETRY_SECONDS
        self._attempted.set()

    def _refuse_held_once(self) -> None:
        copying = self._parts.get(COPYING)
        if self._once and copying is not None and copying.held:
            raise StartError(
                "flow.held", f"flow {self.name}: copying is {copying.held}",
                f"heliograph resume FILE --flow '{self.config.flow}' lets it go on",
            )  # fmt: skip

    def _fail(self, error: HeliographError) -> None:
        """Parts could not be started; they are tried again later.

        The first time is no news: whoever started the mirror waits for that, and asks `error`.
        """
        self._error = error
        if self._once:
            self._retry_at = 0.0
        else:
            self._retry_at = time.time() + self._retry_seconds
            self._retry_seconds = min(2 * self._retry_seconds, _MOST_RETRY_SECONDS)
        for part in self._waiting():
            part.fail(error, self._retry_at)
        if self._attempted.is_set() and str(error) != self._told:
            self._told = str(error)
            text = f"cannot start: {error}\n  it is tried again, at most every"
            self._say("failed", f"{text} {_MOST_RETRY_SECONDS:.0f} s", level=logging.WARNING)

    def _make_runtime(self) -> FlowRuntime:
        runtime = FlowRuntime(
            self.config, self._copying.changed_hands, name=self._scope, admit=self._admit,
            positions=self._positions, silent=self._services.silent,
            rest=self._services.rest(), ordered=self._ordered,
        )  # fmt: skip
        runtime.paused_topics = self._resting_topics()
        return runtime

    def _start_part(self, name: str, runtime: FlowRuntime) -> None:
        part = self._parts.get(name)
        if part is None or part.running or part.rests:
            return
        if name == COPYING and self._once:
            self._copying.aim(runtime)
        if name == COPYING:
            # While it rested, operators may have decided where to go on: leases have to know.
            runtime.ledger.memory.refresh()
        self._schedule(name, part, runtime)
        if name == COPYING:
            self._copying.start()
        part.running = True
        rested = part.life.state is FlowState.PAUSED
        part.enter(FlowState.RUNNING)
        if rested:
            self._say("resumed", f"{name} goes on", name)
        else:
            self._say("running", f"{name} has started", name, logging.DEBUG)

    def _schedule(self, name: str, part: Part, runtime: FlowRuntime) -> None:
        scheduler = Scheduler(tell=self._services.events.job_ran)
        part.schedule(jobs_of(name, runtime, self._session.monitor), runtime, scheduler)
        if name == (COPYING if self.copies else CHECKPOINTS):
            refreshes = self.config.refresh_topics_enabled and not self._once
            seconds = self.config.refresh_topics_interval_seconds if refreshes else None
            self._copying.schedule(scheduler, seconds)

    def _restart_jobs(self) -> None:
        """The control jobs of copying begin anew; what is being copied is not disturbed."""
        part, runtime = self._parts.get(COPYING), self._session.runtime
        if part is not None and part.running and runtime is not None:
            self._schedule(COPYING, part, runtime)

    def _stop_part(self, name: str) -> None:
        part, runtime = self._parts[name], self._session.runtime
        part.stop_jobs()
        if name == COPYING:
            self._copying.end()
        if part.running and runtime is not None:
            part.run_last(runtime)
        part.running = False

    def _shut(self) -> None:
        """End all parts and give up the claim."""
        for name in self._parts:
            self._stop_part(name)
        self._session.close()

    def _step(self, what: str) -> AbstractContextManager[None]:
        """The first start of a flow that copies says what it waits for."""
        if self._attempted.is_set() or not self.config.enabled:
            return nullcontext()
        return self._services.events.step(what, self.name)

    def _say(self, code: str, text: str, part: str = "", level: int = logging.INFO) -> None:
        self._services.events.publish(
            FlowEvent(self.name, f"flow.{code}", text, part, level, time.time())
        )

    # -- once ---------------------------------------------------------------------------------

    def await_goals(self) -> None:
        """Wait until all that the source had at the start is copied; raises HeliographError.

        The error names each partition that was not copied so far, and why; it is also raised if
        another mirror has the flow, or the flow could not be started.
        """
        self._attempted.wait()
        if self._error is not None:
            raise self._error
        self._copying.await_goals()

    def finish(self) -> None:
        """After the goals: the last run of each job that has one; raises HeliographError."""
        monitor = self._session.monitor
        if monitor is not None:
            with incomplete(f"measuring the lag of {self.name}"):
                monitor.measure()
                monitor.look()
        for part in self._parts.values():
            part.finish()
