"""Failovers of a mirror's own flows: looked at, carried out, and told of. Runs in the driver.

For the REST API of ``run``. A failover is carried out in a thread, by the same code as that of
``heliograph failover``: the ledger has how far it came, and this process's own mirror is stopped
through the ledger like any other. If this process ends in the middle of it, whoever repeats it,
here or by command, goes on. One at a time of a flow runs here; the flow's lock in the ledger keeps
others away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from heliograph.config import FlowConfig
from heliograph.errors import HeliographError, WireError
from heliograph.failover.failover import Failover, FailoverPlan, FailoverReport, FailoverWish
from heliograph.failover.handover_log import HandoverLog, Noted
from heliograph.failover.refusals import HandoverRefused
from heliograph.failover.steps import Phase, Tell, Told
from heliograph.service.events import EventBus, HandoverEvent
from heliograph.service.shared_look import LookTakesLong, SharedLook
from heliograph.units import counted, duration

__all__ = ["FlowHandovers", "Progress", "Run", "Seen"]

log = logging.getLogger(__name__)

#: A plan asks both clusters for everything: who asks within this time sees the same.
_PLAN_FRESH_SECONDS, _PLAN_PATIENCE_SECONDS = 5.0, 25.0
_LOG_FRESH_SECONDS, _LOG_PATIENCE_SECONDS = 1.0, 5.0
#: Whoever begins a failover is told whether it was refused, if that is known by then.
_BEGIN_SECONDS = 45.0


class Progress(NamedTuple):
    """What was told of a step, and when: seconds since the epoch."""

    at: float
    told: Told


@dataclass(frozen=True, slots=True)
class Run:
    """A failover that this process carries out, or carried out last.

    Attributes:
        began: seconds since the epoch.
        progress: what it told so far.
        ended: 0 while it runs.
        report: what it did, if it came to its end.
        error: why it did not.
    """

    by: str
    began: float
    progress: tuple[Progress, ...] = ()
    ended: float = 0.0
    report: FailoverReport | None = None
    error: HeliographError | None = None

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return not self.ended

    @property
    def refused(self) -> bool:
        """Whether nothing was done."""
        return isinstance(self.error, HandoverRefused) and not self.progress


class Seen(NamedTuple):
    """What is known of a flow's handovers.

    ``unread``: why the ledger could not be read; ``noted`` is older then, or empty.
    """

    run: Run | None
    noted: Noted
    unread: str = ""


class Carrying(Protocol):
    """What is asked of a `Failover`."""

    def plan(self) -> FailoverPlan:
        """What it would do now."""

    def run(self) -> FailoverReport:
        """Do it."""


class Reading(Protocol):
    """What is asked of a `HandoverLog`."""

    def read(self) -> Noted:
        """All that is noted now."""

    def close(self) -> None:
        """It is not needed any more."""


Make = Callable[
    [FlowConfig, FailoverWish, Tell, FlowConfig | None], AbstractContextManager[Carrying]
]


def _failover(
    config: FlowConfig, wish: FailoverWish, tell: Tell, reverse: FlowConfig | None
) -> AbstractContextManager[Carrying]:
    return Failover(config, wish, tell, reverse=reverse)


class _Flow:
    """What is kept of one flow, as long as its configuration is the same."""

    def __init__(
        self, config: FlowConfig, look: Callable[[], FailoverPlan], reader: Reading
    ) -> None:
        self.config = config
        self.plan = SharedLook(look, _PLAN_FRESH_SECONDS, _PLAN_PATIENCE_SECONDS)
        self.reader = reader
        self.log = SharedLook(reader.read, _LOG_FRESH_SECONDS, _LOG_PATIENCE_SECONDS)
        self.noted = Noted()
        self.run: Run | None = None


def _runs(known: _Flow) -> bool:
    return known.run is not None and known.run.running


class FlowHandovers:
    """The failovers of a mirror's flows. Every method may be called from any thread.

    ``config`` is a flow's configuration as it is now; it raises KeyError for an unknown flow.
    """

    def __init__(
        self,
        config: Callable[[str], FlowConfig],
        events: EventBus,
        *,
        make: Make = _failover,
        read: Callable[[FlowConfig], Reading] = HandoverLog,
    ) -> None:
        self._config = config
        self._events = events
        self._make = make
        self._read = read
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._flows: dict[str, _Flow] = {}

    def close(self) -> None:
        """Close what was opened. A failover that runs goes on until the process ends."""
        with self._lock:
            flows, self._flows = self._flows, {}
        for known in flows.values():
            known.reader.close()

    # -- looking ------------------------------------------------------------------------------

    def plan(self, flow: str) -> FailoverPlan:
        """What a failover would do now, or would have done seconds ago.

        Raises KeyError, LookTakesLong, HeliographError, WireError.
        """
        return self._known(flow).plan.get()

    def seen(self, flow: str) -> Seen:
        """What was done, here or elsewhere, and is being done; raises KeyError."""
        known, unread = self._known(flow), ""
        try:
            known.noted = known.log.get()
        except LookTakesLong:
            unread = f"{self._config(flow).flow.target} does not answer"
        except (HeliographError, WireError) as error:
            unread = str(error.args[0]) if error.args else type(error).__name__
        with self._lock:
            return Seen(known.run, known.noted, unread)

    def _known(self, flow: str) -> _Flow:
        config = self._config(flow)
        with self._lock:
            known = self._flows.get(flow)
            # What runs keeps what it began with.
            if known is None or (known.config is not config and not _runs(known)):
                made = _Flow(config, lambda: self._look(flow), self._read(config))
                if known is not None:
                    made.run = known.run
                    known.reader.close()
                self._flows[flow] = known = made
            return known

    def _look(self, flow: str) -> FailoverPlan:
        with self._open(flow, FailoverWish(), lambda _: None) as failover:
            return failover.plan()

    def _open(self, flow: str, wish: FailoverWish, tell: Tell) -> AbstractContextManager[Carrying]:
        config = self._config(flow)
        return self._make(config, wish, tell, self._reverse(config))

    def _reverse(self, config: FlowConfig) -> FlowConfig | None:
        """The flow of the other direction, if the mirror has it."""
        try:
            return self._config(f"{config.flow.target}->{config.flow.source}")
        except KeyError:
            return None

    # -- doing it -----------------------------------------------------------------------------

    def begin(self, flow: str, wish: FailoverWish) -> Run | None:
        """Begin a failover, and return when it has begun to change things, or was refused.

        If looking takes very long it returns before that, without any progress. Returns None if one
        runs here already. Raises KeyError.
        """
        known = self._known(flow)
        with self._changed:
            if _runs(known):
                return None
            known.run = Run(wish.by, time.time())
        threading.Thread(
            target=self._carry_out, args=(flow, known, wish), name=f"failover {flow}", daemon=True
        ).start()
        with self._changed:
            self._changed.wait_for(lambda: self._decided(known), _BEGIN_SECONDS)
            return known.run

    @staticmethod
    def _decided(known: _Flow) -> bool:
        run = known.run
        return run is None or bool(run.progress) or not run.running

    def _carry_out(self, flow: str, known: _Flow, wish: FailoverWish) -> None:
        report: FailoverReport | None = None
        error: HeliographError | None = None

        def tell(told: Told) -> None:
            self._take(flow, known, told)

        try:
            with self._open(flow, wish, tell) as failover:
                report = failover.run()
        except HeliographError as raised:
            error = raised
        except WireError as raised:
            error = HeliographError(
                "failover.broken-off", f"it was broken off: {raised}",
                "repeat it: it goes on from where it is",
            )  # fmt: skip
        except Exception:
            log.exception("the failover of %s", flow)
            error = HeliographError(
                "failover.error", "an error inside Heliograph; its log says more"
            )
        known.plan.forget()
        known.log.forget()
        with self._changed:
            # Who is told of the end finds it here, and who finds it here was told.
            self._say_end(flow, wish, report, error)
            if known.run is not None:
                known.run = replace(known.run, ended=time.time(), report=report, error=error)
            self._changed.notify_all()

    def _take(self, flow: str, known: _Flow, told: Told) -> None:
        now = time.time()
        with self._changed:
            if known.run is not None:
                known.run = replace(known.run, progress=(*known.run.progress, Progress(now, told)))
            self._changed.notify_all()
        known.log.forget()
        level = logging.ERROR if told.phase is Phase.FAILED else logging.INFO
        self._events.publish(
            HandoverEvent(flow, told.step, str(told.phase), told.text, level=level, at=now)
        )

    def _say_end(
        self, flow: str, wish: FailoverWish, report: FailoverReport | None,
        error: HeliographError | None,
    ) -> None:  # fmt: skip
        if report is not None:
            phase, level = Phase.DONE, logging.INFO
            took = duration(report.rto_seconds)
            text = f"the failover that {wish.by} asked for is through after {took}"
            if report.left:
                left, level = counted(len(report.left), "group"), logging.WARNING
                text += f"; {left} not moved"
        else:
            phase, level = Phase.FAILED, logging.ERROR
            reason = error.args[0] if error is not None else ""
            text = f"the failover that {wish.by} asked for is not through: {reason}"
        self._events.publish(
            HandoverEvent(flow, "end", str(phase), text, level=level, at=time.time())
        )
