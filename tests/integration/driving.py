"""A flow as the driver runs it, rounds and reports and all; leases are held by plain processes."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context

from mirroring import hold, wait_for

from heliograph.control.scheduler import Scheduler
from heliograph.copy.loop import CopyLoop
from heliograph.model import PartitionState
from heliograph.service.events import EventBus
from heliograph.service.flow import FlowRuntime
from heliograph.service.jobs import jobs_of
from heliograph.service.listening import Place
from heliograph.service.monitor import FlowMonitor
from heliograph.service.reports import ReportServer
from heliograph.service.rounds import FlowLeases, RoundKeeper
from heliograph.service.snapshot import COPYING, EngineSnapshot, EngineState, FlowState, Life


def _hold(lease):
    return CopyLoop(lease).run()


class PlainEngine:
    """In Spark's place (service.engine): each lease is held by a process, as with Spark."""

    place = Place(None)

    def __init__(self, _master, _events, _log=None):
        #: By owner, so that the rounds of one flow can be cancelled.
        self._holders = {}
        self._rounds = ThreadPoolExecutor(8)

    def leases_per_flow(self, _flows):
        return 1

    def check_secrets(self, clusters): ...

    def begin(self): ...

    def await_start(self): ...

    def cancel_rounds(self, owner):
        holders = self._holders.pop(owner, None)
        if holders is not None:
            end_processes(holders)

    def forget(self, owner): ...

    def still_for(self):
        return 0.0

    def snapshot(self):
        return EngineSnapshot(EngineState.READY)

    def submit_round(self, owner, leases, done):
        if owner not in self._holders:
            self._holders[owner] = ProcessPoolExecutor(4, get_context("spawn"))
        holders = self._holders[owner]
        self._rounds.submit(self.run_round, leases, holders).add_done_callback(done)

    def run_round(self, leases, holders):
        return [r for held in holders.map(_hold, leases) for r in held]

    def stop(self):
        for owner in list(self._holders):
            self.cancel_rounds(owner)
        self._rounds.shutdown(wait=False, cancel_futures=True)


class HeldHere(PlainEngine):
    """Leases of ``--once`` end by themselves, so that they can be held one after the other."""

    def begin(self):
        pass

    def run_round(self, leases, holders):
        return [receipt for lease in leases for receipt in hold(lease)]


def end_processes(holders):
    for process in list(holders._processes.values()):
        with suppress(OSError):
            process.kill()
    holders.shutdown(wait=False, cancel_futures=True)


def opened(config):
    """A flow that is connected, as its supervisor makes it."""
    runtime = FlowRuntime(config)
    runtime.open_target()
    if config.enabled:
        runtime.open()
    return runtime


def copying_jobs(runtime):
    """The control jobs of a flow's copying part."""
    return list(jobs_of(COPYING, runtime, FlowMonitor(runtime, EventBus())))


class Driving:
    """Mirrors until closed, in leases of a few seconds."""

    def __init__(self, config, *, lease_seconds=4.0, reports=True, topics=1):
        self.runtime = opened(config)
        wait_for(lambda: self.runtime.refresh_topics() or self.runtime.plan.topics >= topics)
        self.monitor = FlowMonitor(self.runtime, EventBus())
        self._server = ReportServer(self.monitor.hear)
        address = self._server.listen(Place(None)) if reports else None
        # Each lease has a process of its own, as with Spark: the next round waits beside this one.
        self._holders = ProcessPoolExecutor(4, get_context("spawn"))
        self._scheduler = Scheduler()
        self._scheduler.repeat(self.monitor.measure, 1.0, "measuring")
        self._scheduler.repeat(self.monitor.look, 0.2, "looking")
        leases = FlowLeases(self.runtime, self.monitor, lambda: 1, report_to=address)
        self._rounds = ThreadPoolExecutor(4)
        self._keeper = RoundKeeper(leases, self._submit, lease_seconds)
        self._keeper.start()
        self._settled = 0

    def _submit(self, leases, done):
        self._rounds.submit(self._run_round, leases).add_done_callback(done)

    def _run_round(self, leases):
        return [r for held in self._holders.map(_hold, leases) for r in held]

    def snapshot(self):
        return self.monitor.snapshot(Life(FlowState.RUNNING), {})

    @property
    def leases(self):
        """How many were handed out."""
        return len(self.monitor._states._granted)

    def reports(self):
        """The state of each topic; all have one partition."""
        return {p.topic: r for p, r in self.monitor._states.reports().items()}

    def state(self, topic):
        return self.reports()[topic].state

    def await_state(self, topic, *states):
        """Its report in one of these states. Nothing is reported before the first measurement."""
        return wait_for(lambda: (r := self.reports().get(topic)) and r.state in states and r)

    def settle(self, *topics):
        """Wait until topics are in step; what happened until then does not count."""
        for topic in topics:
            self.await_state(topic, PartitionState.IDLE)
        self._settled = len(self.monitor.events.latest)

    def events(self, topic):
        """What happened to a topic since it settled."""
        new = self.monitor.events.latest[self._settled :]
        return [e.code for e in new if e.partition.topic == topic]

    def close(self):
        self._keeper.stop()
        self._scheduler.stop()
        end_processes(self._holders)
        self._keeper.join(60)
        self._rounds.shutdown(wait=False, cancel_futures=True)
        self._server.close()
        self.runtime.close()
