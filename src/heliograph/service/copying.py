"""The rounds of one flow: begun, ended in order, and planned anew as its topics change.

Runs in the driver. The supervisor's thread starts and ends rounds. Topics are refreshed in threads
of jobs, and in one of its own after the flow was taken over from another mirror.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from functools import partial

from heliograph.config import FlowConfig
from heliograph.control.scheduler import Scheduler
from heliograph.copy.lease_state import SETTLE_SECONDS
from heliograph.errors import HeliographError
from heliograph.service.flow import FlowRuntime
from heliograph.service.flow_session import FlowSession
from heliograph.service.once import Goals
from heliograph.service.parts import unless_standing_by
from heliograph.service.rounds import KILLED_SECONDS, FlowLeases, RoundKeeper
from heliograph.service.services import Services
from heliograph.wire.errors import WireError

__all__ = ["Copying"]

log = logging.getLogger(__name__)

#: How soon to look again for what was just created, if it was not there within moments.
_AGAIN_SECONDS = 0.5
_ENDED_EVERY_SECONDS, _CANCEL_EVERY_SECONDS = 0.02, 0.2


class Copying:
    """Keeps the rounds of one flow. ``stopped`` is set when the flow is to end for good."""

    def __init__(
        self, name: str, session: FlowSession, services: Services, stopped: threading.Event
    ) -> None:
        self._name = name
        self._session = session
        self._services = services
        self._stopped = stopped
        self._keeper: RoundKeeper | None = None
        self._goals: Goals | None = None
        #: From when on no lease that was handed out so far can be running.
        self._clear_from = 0.0

    # -- rounds -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin rounds of a flow that is open."""
        services, runtime, monitor = self._services, self._session.runtime, self._session.monitor
        assert runtime is not None and monitor is not None  # noqa: S101 - open
        monitor.suspend("")
        leases = FlowLeases(
            runtime, monitor, lambda: services.engine.leases_per_flow(services.flows()),
            report_to=services.report_to(), goals=self._goals, clear_from=self._clear_from,
        )  # fmt: skip
        self._keeper = RoundKeeper(
            leases, partial(services.engine.submit_round, self._name), runtime.config.lease_seconds,
            services.pulse,
        )  # fmt: skip
        if not self._stopped.is_set():
            self._keeper.start()

    def stop(self) -> None:
        """Hand out no more leases; never waits. `end` ends those in progress."""
        keeper = self._keeper
        if keeper is not None:
            keeper.stop()

    def end(self) -> None:
        """Have this flow's tasks end, in order if they can. Waits for them, but not for ever."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        keeper.stop()
        keeper.join(KILLED_SECONDS)
        self._services.reports.end_leases(self._name)
        # Those that wait for the next round, and those that do not answer. Again and again: Spark
        # learns of a round a moment after it was submitted.
        deadline = time.monotonic() + KILLED_SECONDS
        cancel_at = 0.0
        while self._is_held(keeper) and (now := time.monotonic()) < deadline:
            if now >= cancel_at:
                self._services.engine.cancel_rounds(self._name)
                cancel_at = now + _CANCEL_EVERY_SECONDS
            time.sleep(_ENDED_EVERY_SECONDS)
        left = KILLED_SECONDS if self._is_held(keeper) else 0.0
        self._clear_from = time.time() + left + SETTLE_SECONDS

    @property
    def clear_seconds(self) -> float:
        """After so many seconds no lease that was handed out can be running; while none is."""
        return max(self._clear_from - time.time(), 0.0)

    def _is_held(self, keeper: RoundKeeper) -> bool:
        """Whether a task may still copy. A round is over for Spark before its tasks are dead."""
        return bool(keeper.in_progress) or self._services.reports.are_held(self._name)

    def _replan(self, *, lost: bool) -> None:
        """Lease what is new; if partitions were ``lost``, end the leases that name them first."""
        if self._keeper is None:
            return
        if lost:
            self.end()
            self.start()
        else:
            self._keeper.changed()

    # -- topics -------------------------------------------------------------------------------

    def schedule(self, scheduler: Scheduler, refresh_seconds: float | None) -> None:
        """Look for new topics; without ``refresh_seconds`` only for what was just created."""
        runtime = self._session.runtime
        assert runtime is not None  # noqa: S101 - open
        scheduler.repeat(
            partial(unless_standing_by, runtime, self._look_again), _AGAIN_SECONDS,
            f"looking for what {self._name} has just created",
            flow=self._name, longest_pause_seconds=_AGAIN_SECONDS,
        )  # fmt: skip
        if refresh_seconds is not None:
            scheduler.repeat(
                self._refresh, refresh_seconds, f"refreshing the topics of {self._name}",
                flow=self._name,
            )  # fmt: skip

    def hold_topics(self, paused: Mapping[str, str]) -> None:
        """Lease what is not paused; leases that name what is paused are ended.

        ``paused`` has the reason of each topic.
        """
        runtime = self._session.runtime
        if runtime is None or runtime.paused_topics == paused:
            return
        lost = self._keeper is not None and any(p.topic in paused for p in runtime.leasable)
        if lost:
            self.end()
        # A topic is said to rest when no task copies it any more.
        runtime.paused_topics = paused
        if lost:
            self.start()
        else:
            self._replan(lost=False)

    def select_topics(self, config: FlowConfig) -> bool:
        """Other topics are to be mirrored; returns whether that could be found out.

        Partitions that stay are not disturbed, unless others go: leases name what must not be
        copied any more, so the round ends and the next one begins.
        """
        runtime = self._session.runtime
        if runtime is None or not self._session.opened:
            return True
        before = set(runtime.plan.partitions)
        try:
            runtime.select_topics(config)
        except (WireError, HeliographError) as error:
            log.warning("%s: looking for its topics: %s", self._name, error)
            return False
        self._replan(lost=bool(before - runtime.plan.partitions.keys()))
        return True

    def changed_hands(self) -> None:
        """The flow was taken over by another mirror, or by this one. In the thread of its claim."""
        runtime = self._session.runtime
        if runtime is None:
            return
        if runtime.stands_by:
            # Its leases would go on until their deadline, beside the other mirror's.
            self._services.engine.cancel_rounds(self._name)
        else:
            # While it stood by, no topics were created; the claim must not wait for that.
            threading.Thread(target=self._catch_up, daemon=True).start()

    def _catch_up(self) -> None:
        try:
            self._refresh()
        except WireError as error:
            log.warning("refreshing the topics of %s: %s", self._name, error)

    def _look_again(self) -> None:
        """Brokers show what was created, and elect its leaders, a moment later."""
        runtime = self._session.runtime
        if runtime is not None and runtime.unsettled:
            self._refresh()

    def _refresh(self) -> None:
        runtime, keeper = self._session.runtime, self._keeper
        if runtime is not None and runtime.refresh_topics() and keeper is not None:
            keeper.changed()

    # -- once ---------------------------------------------------------------------------------

    def aim(self, runtime: FlowRuntime) -> None:
        """Copy what the source had at the start, then end; raises StartError.

        Waits until leases may be handed out.
        """
        runtime.require(self._stopped)
        self._goals = Goals(runtime.goals, self._stopped)

    def await_goals(self) -> None:
        """Wait until the goals are reached, or cannot be; see `FlowSupervisor.await_goals`."""
        keeper, goals, runtime = self._keeper, self._goals, self._session.runtime
        if keeper is None or goals is None or runtime is None:
            return
        keeper.join()
        if self._stopped.is_set() or not goals.open:
            return
        runtime.require(self._stopped)  # one that was taken over is the better explanation
        goals.require(self._name)
