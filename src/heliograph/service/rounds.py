"""Keeps partitions leased: round after round, without a pause. Runs in the driver.

A round's tasks are started a little before the round begins and wait; at its beginning they resume
and copy, while the round before comes to its end. New partitions get a round of their own for what
is left of the current one. A round that fails is planned anew at once: nothing depends on it.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from heliograph.control.assignment import assign
from heliograph.copy.desk import SETTLE_SECONDS
from heliograph.model import Lease, Receipt, ReportAddress, TopicPartition
from heliograph.service.flow import FlowRuntime
from heliograph.service.monitor import FlowMonitor

log = logging.getLogger(__name__)

#: Tasks are submitted this long before their round begins: starting them takes about 0.15 s.
_LEAD_SECONDS = 1.0
#: The first round is short: it was dealt without knowing rates. What happens in it is told live.
_FIRST_ROUND_SECONDS = 15.0
_FAILED_PAUSE_SECONDS = 0.5
#: How often flows that are another mirror's are looked at again.
_TURNED_AWAY_SECONDS = 0.2
#: The tasks of a round that failed are killed, which takes Spark some seconds.
_KILLED_SECONDS = 5.0
#: A backlog weighs as much as the rate that would clear it in this time.
_BACKLOG_HORIZON_SECONDS = 10.0

RunRound = Callable[[Sequence[Lease]], list[Receipt]]


class FlowLeases:
    """Deals the partitions of one flow; remembers who had what.

    Holders of leases tell what happens at ``report_to``, at once.
    """

    def __init__(
        self,
        runtime: FlowRuntime,
        monitor: FlowMonitor,
        most: int,
        report_to: ReportAddress | None = None,
    ) -> None:
        self.runtime = runtime
        self.monitor = monitor
        self._most = runtime.config.tasks_max or most
        self._report_to = report_to
        self._serials = itertools.count(1)
        self._groups: list[list[TopicPartition]] = []
        self._leased: set[TopicPartition] = set()
        #: From when holders of this round's leases may write markers, and those of the next one's.
        self._markers_from = self._next_markers_from = 0.0
        #: No leases could be handed out, because the flow is not this mirror's at the moment.
        self.turned_away = False

    def plan(self, starts_at: float, deadline: float) -> list[Lease]:
        """Leases for everything that the flow mirrors; none while another mirror has it."""
        self.turned_away = not self.runtime.holds
        if self.turned_away:
            self._leased = set()
            return []
        partitions = self.runtime.plan.partitions
        weights = {p: self._weight(p) for p in partitions}
        self._groups = assign(weights, self._most, self._groups)
        self._leased = set(partitions)
        self._markers_from = self._next_markers_from
        leases = [self._lease(group, starts_at, deadline) for group in self._groups]
        self.held_until(deadline + SETTLE_SECONDS)
        return leases

    def held_until(self, moment: float) -> None:
        """Whoever holds leases now may write markers until then; the next round waits for it."""
        self._next_markers_from = moment

    def added(self, starts_at: float, deadline: float) -> list[Lease]:
        """A lease for the partitions that appeared since `plan`; for all if that had to wait."""
        if self.turned_away:
            return self.plan(starts_at, deadline)
        if not self.runtime.holds:
            return []
        new = sorted(self.runtime.plan.partitions.keys() - self._leased)
        self._leased.update(new)
        return [self._lease(new, starts_at, deadline)] if new else []

    def _weight(self, partition: TopicPartition) -> float:
        lag, rate = self.monitor.load_of(partition)
        return 1.0 + rate + lag / _BACKLOG_HORIZON_SECONDS

    def _lease(self, group: Sequence[TopicPartition], starts_at: float, deadline: float) -> Lease:
        names = self.runtime.plan.partitions
        failing = self.monitor.failing()
        reached = {p: self.monitor.reached(p) for p in group}
        leased = tuple(
            replace(
                self.runtime.leased(p), failing=failing.get(p),
                reached_in=reached[p][0], reached=reached[p][1],
            )
            for p in group if p in names
        )  # fmt: skip
        assert self.runtime.context is not None  # noqa: S101 - prepared
        markers_from = max(self._markers_from, self.runtime.clear_from)
        lease = Lease(
            self.runtime.context, leased, starts_at, deadline, markers_from,
            next(self._serials), self._report_to,
        )  # fmt: skip
        self.monitor.granted(lease)
        return lease


class RoundKeeper:
    """Runs rounds until stopped."""

    def __init__(
        self,
        flows: Sequence[FlowLeases],
        run_round: RunRound,
        lease_seconds: float,
    ) -> None:
        self._flows = flows
        self._run_round = run_round
        self._lease_seconds = lease_seconds
        self._wake = threading.Event()
        self._stopping = False
        self._failed = False
        self._last_failure = ""
        self._monitors = {str(f.runtime.flow): f.monitor for f in flows}
        # A round, the next one, and the extra rounds of partitions that appear meanwhile.
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="round")

    def changed(self) -> None:
        """There are partitions without a lease."""
        self._wake.set()

    def stop(self) -> None:
        """End `run`; the round in progress is left to its fate."""
        self._stopping = True
        self._wake.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def run(self) -> None:
        """Plan and submit rounds until `stop`."""
        begins = time.time()
        length = _FIRST_ROUND_SECONDS
        while not self._stopping:
            ends = begins + length
            self._submit([x for f in self._flows for x in f.plan(begins, ends)])
            while not self._stopping and time.time() < ends - _LEAD_SECONDS:
                rest = max(0.0, ends - _LEAD_SECONDS - time.time())
                if any(f.turned_away for f in self._flows):
                    rest = min(rest, _TURNED_AWAY_SECONDS)
                self._wake.wait(rest)
                self._wake.clear()
                now = time.time()
                if self._failed:
                    self._failed = False
                    time.sleep(_FAILED_PAUSE_SECONDS)
                    ends = time.time()
                    for flow in self._flows:
                        flow.held_until(ends + _KILLED_SECONDS)
                    break
                if now < ends:
                    self._submit([x for f in self._flows for x in f.added(now, ends)])
            begins, length = max(ends, time.time()), self._lease_seconds

    def _submit(self, leases: list[Lease]) -> None:
        leases = [lease for lease in leases if lease.partitions]
        if leases and not self._stopping:
            self._pool.submit(self._run_round, leases).add_done_callback(self._finished)

    def _finished(self, future: Future[list[Receipt]]) -> None:
        if future.cancelled() or self._stopping:
            return
        error = future.exception()
        if error is not None:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            # Rounds of flows that were taken over by another mirror are cancelled.
            if reason != self._last_failure and any(f.runtime.holds for f in self._flows):
                log.warning("a round failed and is planned anew: %s", reason)
            self._last_failure = reason
            self._failed = True
            self._wake.set()
            return
        self._last_failure = ""
        distribute(future.result(), self._monitors)


def distribute(receipts: Sequence[Receipt], monitors: dict[str, FlowMonitor]) -> None:
    """Give each flow's receipts to its monitor."""
    for flow, monitor in monitors.items():
        monitor.receive([r for r in receipts if r.flow == flow])
