"""The mirror: all flows of a file, from start to clean stop. Runs in the driver."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from heliograph.config import MirrorMakerConfig
from heliograph.control.scheduler import Scheduler
from heliograph.copy.telling import Tidings
from heliograph.errors import HeliographError
from heliograph.model import Lease, TopicPartition
from heliograph.service.engine import Engine
from heliograph.service.flow import FlowRuntime
from heliograph.service.jobs import ControlJob, jobs_of
from heliograph.service.monitor import FlowMonitor, FlowStatus
from heliograph.service.reports import ReportServer
from heliograph.service.rounds import FlowLeases, RoundKeeper, distribute
from heliograph.wire.errors import WireError

log = logging.getLogger(__name__)

#: How often partitions are judged; reports are taken in at once.
_LOOK_SECONDS = 1.0
_LOOKED_AT_PER_SECOND = 2000
#: One round of ``--once`` may take this long before it is planned anew.
_ONCE_ROUND_SECONDS = 60.0
#: Rounds of ``--once`` in a row that may pass without any progress.
_ONCE_PATIENCE_ROUNDS = 3


class Mirror:
    """Runs the flows of one configuration."""

    def __init__(self, config: MirrorMakerConfig, master: str | None = None) -> None:
        self._flows = [FlowRuntime(f, self._changed_hands) for f in config.flows]
        self._enabled = [f for f in self._flows if f.config.enabled]
        self._engine = Engine(master, len(self._enabled))
        self._scheduler = Scheduler()
        self._monitors: list[FlowMonitor] = []
        self._keeper: RoundKeeper | None = None
        self._reports = ReportServer(self._hear)
        self._at_end: list[tuple[ControlJob, threading.Lock]] = []
        self._stopped = threading.Event()

    # -- start and stop -----------------------------------------------------------------------

    def start(self, *, once: bool = False) -> None:
        """Connect every flow and start Spark beside it; raises StartError."""
        if self._enabled:
            self._engine.begin()
        seconds = _ONCE_ROUND_SECONDS if once else self._lease_seconds()
        _all_at_once([partial(f.prepare, seconds) for f in self._flows])
        self._monitors = [FlowMonitor(f) for f in self._enabled]
        for runtime, monitor in zip(self._enabled, self._monitors, strict=True):
            self._scheduler.repeat(
                monitor.measure, monitor.interval, f"measuring the lag of {runtime.flow}",
                # Nobody is in step who was not measured lately.
                flow=str(runtime.flow), longest_pause_seconds=2 * monitor.interval,
            )  # fmt: skip
            self._scheduler.repeat(
                monitor.look, _look_seconds(runtime), f"watching the partitions of {runtime.flow}",
                flow=str(runtime.flow),
            )  # fmt: skip
        monitors = dict(zip(self._enabled, self._monitors, strict=True))
        for runtime in self._flows:
            for job in jobs_of(runtime, monitors.get(runtime)):
                running = self._scheduler.repeat(
                    partial(_unless_standing_by, runtime, job.run),
                    job.interval_seconds,
                    job.description,
                    flow=str(runtime.flow),
                    first_after_seconds=job.first_after_seconds,
                    details=job.details,
                )
                self._at_end.append((job, running))

    def _lease_seconds(self) -> float:
        return min((f.config.lease_seconds for f in self._enabled), default=0.0)

    def _changed_hands(self, runtime: FlowRuntime) -> None:
        """A flow was taken over by another mirror, or by this one. In the thread of its claim."""
        if runtime.stands_by:
            # Its leases would go on until their deadline, beside the other mirror's.
            self._engine.cancel_rounds()
        else:
            # While it stood by, no topics were created; the claim must not wait for that.
            threading.Thread(target=self._catch_up, args=(runtime,), daemon=True).start()

    def _catch_up(self, runtime: FlowRuntime) -> None:
        try:
            if runtime.refresh_topics() and self._keeper is not None:
                self._keeper.changed()
        except WireError as error:
            log.warning("refreshing the topics of %s: %s", runtime.flow, error)

    def stop(self) -> None:
        """Stop everything; may be called from a signal handler's thread, and twice."""
        self._stopped.set()
        if self._keeper is not None:
            self._keeper.stop()

    def close(self) -> None:
        """Release what `start` took. Batches in flight are counted by whoever resumes."""
        self.stop()
        self._scheduler.stop()
        self._reports.close()
        self._engine.stop()
        # At once, because each may wait a moment for a target that is away.
        _all_at_once([f.close for f in self._flows])

    def _hear(self, tidings: Tidings) -> None:
        """A task tells something. In the thread of the reports."""
        for runtime, monitor in zip(self._enabled, self._monitors, strict=True):
            if str(runtime.flow) == tidings.flow:
                monitor.hear(tidings)

    def status(self) -> list[FlowStatus]:
        """How the enabled flows are doing, and their control jobs."""
        statuses = [m.status() for m in self._monitors]
        return [replace(s, jobs=self._scheduler.jobs_of(s.flow)) for s in statuses]

    # -- running ------------------------------------------------------------------------------

    def run(self) -> None:
        """Mirror until `stop`."""
        if not self._enabled:
            self._stopped.wait()
            return
        most = self._engine.leases_per_flow
        report_to = self._reports.listen(*self._engine.driver_hosts)
        flows = [
            FlowLeases(r, m, most, report_to)
            for r, m in zip(self._enabled, self._monitors, strict=True)
        ]
        keeper = self._keeper = RoundKeeper(flows, self._engine.run_round, self._lease_seconds())
        for runtime in self._enabled:
            if runtime.config.refresh_topics_enabled:
                self._scheduler.repeat(
                    partial(_refresh, runtime, keeper),
                    runtime.config.refresh_topics_interval_seconds,
                    f"refreshing the topics of {runtime.flow}",
                    flow=str(runtime.flow),
                )
        if not self._stopped.is_set():
            keeper.run()

    def run_once(self) -> None:
        """Copy all that is on the sources now; raises HeliographError if some cannot be copied.

        That includes flows that another mirror has.
        """
        self._require_flows()
        goals = {str(f.flow): dict(f.source_ends()) for f in self._enabled}
        monitors = {str(f.flow): m for f, m in zip(self._enabled, self._monitors, strict=True)}
        most = self._engine.leases_per_flow
        idle_rounds = 0
        errors: dict[str, str] = {}
        while any(goals.values()) and not self._stopped.is_set():
            leases = [x for f in self._enabled for x in self._once_leases(f, goals, most)]
            try:
                receipts = self._engine.run_round(leases)
            except Exception:
                self._require_flows()  # a flow that was taken over is the better explanation
                raise
            distribute(receipts, monitors)
            self._require_flows()
            errors = {}
            for r in receipts:
                partition = TopicPartition(r.topic, r.partition)
                if r.source_position >= goals[r.flow].get(partition, 0):
                    goals[r.flow].pop(partition, None)
                elif r.error:
                    errors[f"{r.flow} {partition}"] = r.error
            moved = any(r.records for r in receipts)
            idle_rounds = 0 if moved else idle_rounds + 1
            if errors and idle_rounds >= _ONCE_PATIENCE_ROUNDS:
                break
        if any(goals.values()) and not self._stopped.is_set():
            lines = [f"{where}: {error}" for where, error in errors.items()]
            raise HeliographError(
                "once.incomplete", "not everything could be mirrored:\n  " + "\n  ".join(lines)
            )
        for monitor in self._monitors:
            monitor.measure()
        for job, running in self._at_end:
            try:
                with running:
                    job.at_end()
            except (WireError, ValueError) as error:
                text = f"{job.description}: {error}"
                raise HeliographError("once.incomplete", text) from error

    def _require_flows(self) -> None:
        for runtime in self._enabled:
            runtime.require(self._stopped)

    @staticmethod
    def _once_leases(
        runtime: FlowRuntime, goals: dict[str, dict[TopicPartition, int]], most: int
    ) -> Sequence[Lease]:
        left = goals[str(runtime.flow)]
        if not left:
            return []
        assert runtime.context is not None  # noqa: S101 - prepared
        now = time.time()
        count = min(runtime.config.tasks_max or most, len(left))
        ordered = sorted(left, key=lambda p: (-left[p], p))
        return [
            Lease(
                runtime.context,
                tuple(runtime.leased(p, left[p]) for p in ordered[i::count]),
                now,
                now + _ONCE_ROUND_SECONDS,
                runtime.clear_from,
            )
            for i in range(count)
        ]


def _all_at_once(calls: Sequence[Callable[[], None]]) -> None:
    """Run calls in threads and raise the first error.

    Daemon threads, unlike a pool's: one that waits for a dead cluster must not delay an exit.
    """
    errors: list[BaseException] = []

    def guarded(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _look_seconds(runtime: FlowRuntime) -> float:
    """Large flows are looked at less often, so that an idle mirror stays idle."""
    return max(_LOOK_SECONDS, len(runtime.plan.partitions) / _LOOKED_AT_PER_SECOND)


def _unless_standing_by(runtime: FlowRuntime, run: Callable[[], object]) -> None:
    if not runtime.stands_by:
        run()


def _refresh(runtime: FlowRuntime, keeper: RoundKeeper) -> None:
    if runtime.refresh_topics():
        keeper.changed()
