"""A flow as the driver runs it, rounds and reports and all; leases are held by plain processes."""

from __future__ import annotations

import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context

from mirroring import wait_for

from heliograph.control.scheduler import Scheduler
from heliograph.copy.loop import CopyLoop
from heliograph.model import PartitionState
from heliograph.service.flow import FlowRuntime
from heliograph.service.monitor import FlowMonitor
from heliograph.service.reports import ReportServer
from heliograph.service.rounds import FlowLeases, RoundKeeper


def _hold(lease):
    return CopyLoop(lease).run()


class Driving:
    """Mirrors until closed, in leases of a few seconds."""

    def __init__(self, config, *, lease_seconds=4.0, reports=True, topics=1):
        self.runtime = FlowRuntime(config)
        self.runtime.prepare(lease_seconds)
        wait_for(lambda: self.runtime.refresh_topics() or self.runtime.plan.topics >= topics)
        self.monitor = FlowMonitor(self.runtime)
        self._server = ReportServer(self.monitor.hear)
        address = self._server.listen("127.0.0.1") if reports else None
        # Each lease has a process of its own, as with Spark: the next round waits beside this one.
        self._holders = ProcessPoolExecutor(4, get_context("spawn"))
        self._scheduler = Scheduler()
        self._scheduler.repeat(self.monitor.measure, 1.0, "measuring")
        self._scheduler.repeat(self.monitor.look, 0.2, "looking")
        leases = FlowLeases(self.runtime, self.monitor, 1, address)
        self._keeper = RoundKeeper([leases], self._run_round, lease_seconds)
        self._thread = threading.Thread(target=self._keeper.run, daemon=True)
        self._thread.start()
        self._settled = 0

    def _run_round(self, leases):
        return [r for held in self._holders.map(_hold, leases) for r in held]

    @property
    def leases(self):
        """How many were handed out."""
        return len(self.monitor._states._granted)

    def reports(self):
        """The state of each topic; all have one partition."""
        return {p.topic: r for p, r in self.monitor._states.reports().items()}

    def state(self, topic):
        return self.reports()[topic].state

    def await_state(self, topic, *states, seconds=30.0):
        return wait_for(lambda: (r := self.reports()[topic]) and r.state in states and r, seconds)

    def settle(self, *topics):
        """Wait until topics are in step; what happened until then does not count."""
        for topic in topics:
            self.await_state(topic, PartitionState.IDLE, seconds=120.0)
        self._settled = len(self.monitor.events.latest)

    def events(self, topic):
        """What happened to a topic since it settled."""
        new = self.monitor.events.latest[self._settled :]
        return [e.code for e in new if e.partition.topic == topic]

    def close(self):
        self._keeper.stop()
        self._scheduler.stop()
        for process in list(self._holders._processes.values()):
            with suppress(OSError):
                process.kill()
        self._holders.shutdown(wait=False, cancel_futures=True)
        self._thread.join(10)
        self._server.close()
        self.runtime.close()
