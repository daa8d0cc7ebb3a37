"""Keeps the partitions of one flow leased: round after round, without a pause. Runs in the driver.

A round's tasks are started a little before the round begins, and wait. At its beginning they resume
and copy. New partitions get a round of their own for what is left of the current one. A round that
fails is planned anew: nothing depends on it. Flows know nothing of each other's rounds.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace

from heliograph.control.assignment import assign
from heliograph.copy.lease_state import SETTLE_SECONDS
from heliograph.model import DriverAddress, Lease, Receipt, TopicPartition
from heliograph.service.flow import FlowRuntime
from heliograph.service.monitor import FlowMonitor
from heliograph.service.once import Goals
from heliograph.service.pulse import IDLE_SECONDS, Pulse

__all__ = ["Done", "FlowLeases", "RoundKeeper", "SubmitRound"]

log = logging.getLogger(__name__)

#: Tasks are submitted this long before their round begins. Starting them takes about 0.15 s, and
#: more than a second where brokers and mirror have all cores busy.
_LEAD_SECONDS = 2.0
#: The first round is short: it was dealt without knowing rates. What happens in it is told live.
_FIRST_ROUND_SECONDS = 15.0
#: Spreads load; no secret.
_DICE = random.Random()  # noqa: S311
#: After a round that failed, or that ended before its time; twice as long after each in a row.
_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.5, 10.0
#: How often a flow that is another mirror's is looked at again.
_TURNED_AWAY_SECONDS = 0.2
#: The tasks of a round that failed are killed, which takes Spark some seconds.
KILLED_SECONDS = 5.0
#: A backlog weighs as much as the rate that would clear it in this time.
_BACKLOG_HORIZON_SECONDS = 10.0
#: Numbers the leases of this process. A flow that was paused has new rounds, and its monitor, which
#: stays, would take numbers that begin anew for those of older leases.
_SERIALS = itertools.count(1)

Done = Callable[[Future[list[Receipt]]], None]
#: Runs a round in the background and calls back with its outcome.
SubmitRound = Callable[[Sequence[Lease], Done], None]


class FlowLeases:
    """Deals the partitions of one flow; remembers who had what.

    Attributes:
        turned_away: no leases could be handed out, because the flow is not this mirror's now.
    """

    def __init__(
        self,
        runtime: FlowRuntime,
        monitor: FlowMonitor,
        most: Callable[[], int],
        *,
        report_to: DriverAddress | None = None,
        goals: Goals | None = None,
        clear_from: float = 0.0,
    ) -> None:
        """Make the dealer of a flow.

        Args:
            runtime: the flow.
            monitor: knows what its partitions weigh.
            most: how many leases it may have at this moment, unless ``tasks.max`` says so.
            report_to: where holders of leases tell what happens, at once.
            goals: for ``run --once``: only these partitions, and only so far.
            clear_from: from when on no lease of the flow that was handed out before can be running.
        """
        self.runtime = runtime
        self.monitor = monitor
        self.goals = goals
        self._most = most
        self._report_to = report_to
        self._groups: list[list[TopicPartition]] = []
        self._leased: set[TopicPartition] = set()
        #: From when holders of this round's leases may write markers, and those of the next one's.
        self._markers_from = self._next_markers_from = clear_from
        self.turned_away = False

    @property
    def _wanted(self) -> set[TopicPartition]:
        leasable = self.runtime.leasable
        return set(leasable) if self.goals is None else self.goals.open & leasable

    def plan(self, starts_at: float, deadline: float) -> list[Lease]:
        """Leases for everything that may be begun; none while another mirror has the flow."""
        self.turned_away = not self.runtime.holds
        if self.turned_away:
            self._leased = set()
            return []
        # A flow in the opposite direction may have begun.
        self.runtime.look_back()
        partitions = self._wanted
        weights = {p: self._weight(p) for p in partitions}
        most = self.runtime.config.tasks_max or self._most()
        self._groups = assign(weights, most, self._groups)
        self._leased = partitions
        self._markers_from = self._next_markers_from
        leases = [self._lease(group, starts_at, deadline) for group in self._groups]
        self.held_until(deadline + SETTLE_SECONDS)
        return [lease for lease in leases if lease.partitions]

    def held_until(self, moment: float) -> None:
        """Whoever holds leases now may write markers until then; the next round waits for it."""
        self._next_markers_from = moment

    def added(self, starts_at: float, deadline: float) -> list[Lease]:
        """A lease for the partitions that appeared since `plan`; for all if that had to wait."""
        if self.turned_away:
            return self.plan(starts_at, deadline)
        if not self.runtime.holds:
            return []
        new = sorted(self._wanted - self._leased)
        if new:
            self.runtime.look_back()
        self._leased.update(new)
        lease = self._lease(new, starts_at, deadline) if new else None
        return [lease] if lease is not None and lease.partitions else []

    def _weight(self, partition: TopicPartition) -> float:
        lag, rate = self.monitor.load_of(partition)
        return 1.0 + rate + lag / _BACKLOG_HORIZON_SECONDS

    def _lease(self, group: Sequence[TopicPartition], starts_at: float, deadline: float) -> Lease:
        names = self.runtime.plan.partitions
        failing, moves = self.monitor.failing(), self.runtime.moves()
        reached = {p: self.monitor.reached(p) for p in group}
        until = self.goals.until if self.goals is not None else None
        leased = tuple(
            replace(
                self.runtime.leased(p, until(p) if until is not None else None),
                failing=failing.get(p), move=moves.get(p),
                reached_in=reached[p][0], reached=reached[p][1],
            )
            for p in group if p in names
        )  # fmt: skip
        markers_from = max(self._markers_from, self.runtime.clear_from)
        lease = Lease(
            self.runtime.prepared, leased, starts_at, deadline, markers_from,
            next(_SERIALS), self._report_to,
        )  # fmt: skip
        self.monitor.granted(lease)
        return lease


class RoundKeeper:
    """Runs the rounds of one flow in a thread of its own, from `start` to `stop`.

    With goals it ends by itself when they are reached, or when nothing moves any more.
    """

    def __init__(
        self,
        leases: FlowLeases,
        submit: SubmitRound,
        lease_seconds: float,
        pulse: Pulse | None = None,
    ) -> None:
        self._leases = leases
        self._pulse = pulse if pulse is not None else Pulse()
        self._lease_seconds = lease_seconds
        self._flow = leases.runtime.name
        self._submit_round = submit
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._failed = False
        self._last_failure = ""
        self._pause = _PAUSE_SECONDS
        self._in_progress = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self._run, name=f"rounds of {self._flow}", daemon=True
        )

    def start(self) -> None:
        """Begin to hand out leases."""
        self._thread.start()

    def changed(self) -> None:
        """There are partitions without a lease."""
        self._wake.set()

    def stop(self) -> None:
        """Hand out no more leases; those in progress go on until somebody ends them."""
        self._stopping.set()
        self._wake.set()

    def join(self, seconds: float | None = None) -> bool:
        """Wait until no more leases are handed out; returns whether that is so."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def in_progress(self) -> int:
        """Rounds whose tasks have not all ended."""
        return self._in_progress

    def _run(self) -> None:
        self._beat = self._pulse.beat(f"rounds of {self._flow}")
        try:
            self._go_round()
        finally:
            self._pulse.end(self._beat)

    def _go_round(self) -> None:
        # Flows begin together. Were their rounds to end together, all tasks would start at once.
        begins, length = time.time(), _FIRST_ROUND_SECONDS * _DICE.uniform(0.6, 1.0)
        while not self._stopping.is_set():
            self._beat.touch()
            goals = self._leases.goals
            if goals is not None and not goals.may_go_on(self._leases.runtime):
                return
            ends = begins + length
            try:
                self._submit(self._leases.plan(begins, ends))
                ends = self._await_end(ends)
            except Exception as error:  # noqa: BLE001 - this thread must outlive a bad moment
                self._note_failure(error)
                ends = self._await_end(ends)
            begins = max(ends, time.time())
            length = self._lease_seconds

    def _await_end(self, ends: float) -> float:
        """Wait until the next round is to be planned, and lease what appears meanwhile.

        Returns when the current round ends: before its time if it failed, or if all its tasks are
        through with what they had to do.
        """
        while not self._stopping.is_set() and time.time() < ends - _LEAD_SECONDS:
            self._beat.touch()
            rest = min(IDLE_SECONDS, max(0.0, ends - _LEAD_SECONDS - time.time()))
            if self._leases.turned_away:
                rest = min(rest, _TURNED_AWAY_SECONDS)
            elif self._leases.goals is not None and not self._in_progress:
                rest = min(rest, _PAUSE_SECONDS)
            self._wake.wait(rest)
            self._wake.clear()
            if self._stopping.is_set():
                break
            if self._failed:
                self._failed = False
                self._rest()
                ended = time.time()
                self._leases.held_until(ended + KILLED_SECONDS)
                return ended
            if time.time() < ends:
                self._submit(self._leases.added(time.time(), ends))
            if not self._in_progress and self._leases.goals is not None:
                return time.time()
        return ends

    def _rest(self) -> None:
        """Pause after a failure: a flow whose rounds keep failing must not keep Spark busy."""
        deadline = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _MOST_PAUSE_SECONDS)
        while not self._stopping.is_set() and time.monotonic() < deadline:
            self._wake.wait(max(0.0, deadline - time.monotonic()))
            self._wake.clear()

    def _submit(self, leases: list[Lease]) -> None:
        if leases and not self._stopping.is_set():
            with self._lock:
                self._in_progress += 1
            try:
                self._submit_round(leases, self._finished)
            except RuntimeError:
                # Spark is being stopped with the mirror.
                with self._lock:
                    self._in_progress -= 1

    def _finished(self, future: Future[list[Receipt]]) -> None:
        with self._lock:
            self._in_progress -= 1
        try:
            receipts = future.result()
        except CancelledError:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the round is planned anew
            self._leases.monitor.round_ended(failed=True)
            self._note_failure(error)
        else:
            self._last_failure = ""
            self._pause = _PAUSE_SECONDS
            if self._leases.goals is not None:
                self._leases.goals.receive(receipts)
            self._leases.monitor.receive(receipts)
            self._leases.monitor.round_ended(failed=False)
        self._wake.set()

    def _note_failure(self, error: Exception) -> None:
        if self._stopping.is_set():
            return
        reason = (str(error) or type(error).__name__).splitlines()[0]
        # Rounds of a flow that was taken over by another mirror are cancelled.
        if reason != self._last_failure and self._leases.runtime.holds:
            log.warning("%s: a round failed and is planned anew: %s", self._flow, reason)
        self._last_failure = reason
        self._failed = True
