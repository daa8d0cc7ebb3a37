"""The mirror: a set of flows, each under a supervisor of its own. Runs in the driver."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from heliograph.claims.log import Process
from heliograph.claims.ownership import nobody
from heliograph.config import FlowConfig, MirrorMakerConfig
from heliograph.config.providers import resolve
from heliograph.control.workers import WORKERS
from heliograph.copy.lease_report import LeaseReport
from heliograph.errors import ConfigError, HeliographError, StartError
from heliograph.model import DriverAddress
from heliograph.service.certificates import CertificateWatch
from heliograph.service.engine import Engine
from heliograph.service.events import EventBus
from heliograph.service.flow import Admit, PositionsStore
from heliograph.service.history import History
from heliograph.service.pulse import Pulse
from heliograph.service.reports import ReportServer
from heliograph.service.services import Services
from heliograph.service.snapshot import EngineState, FlowState, MirrorSnapshot
from heliograph.service.supervisor import FlowSupervisor
from heliograph.spark.session import SparkLog

__all__ = ["Mirror", "Unready"]

log = logging.getLogger(__name__)

#: How long a stop waits for flows to end in order; leases have the first three of these seconds.
_STOP_SECONDS = 8.0


#: Control jobs are begun when they are due, however long others take.
_LATE_SECONDS = 120.0
_UNREADY = {FlowState.STARTING, FlowState.FAILED, FlowState.STOPPED}


class Unready(NamedTuple):
    """A flow, or Spark, that does not do its work: its state, and a code and reason if known."""

    what: str
    state: str
    code: str = ""
    reason: str = ""


class Mirror:
    """Runs the flows of one configuration. Every method may be called from any thread.

    ``events`` is what happens, ``history`` how lag and rates were; it is kept from its `start` on,
    for whoever can show it. ``pulse`` is whether all that should move does. Flows do not know each
    other: what becomes of one is no concern of the others.
    """

    def __init__(
        self,
        config: MirrorMakerConfig | None,
        master: str | None = None,
        *,
        once: bool = False,
        silent: Callable[[Process], bool] = nobody,
        spark_log: SparkLog | None = None,
    ) -> None:
        """Make a mirror of the flows of ``config``; without one it has those of `launch`.

        ``silent``, called in threads of claims, is that of `heliograph.claims.ownership`.
        """
        self.events = EventBus()
        self.history = History(self.snapshot)
        self.pulse = Pulse()
        self._engine = Engine(master, self.events, spark_log)
        self._reports = ReportServer(self._hear)
        self._once = once
        self._address: DriverAddress | None = None
        self._listening = False
        self._lock = threading.Lock()
        #: Where the REST API is reached, for the claims of flows that start from now on.
        self.rest: Sequence[str] = ()
        self._services = Services(
            self._engine, self._reports, self._report_to, self.events, self._count, silent,
            lambda: self.rest,
            self.pulse,
        )  # fmt: skip
        self._supervisors: dict[str, FlowSupervisor] = {}
        self._certificates = CertificateWatch(self._tls_settings)
        self._started_at = time.time()
        self._stopped = threading.Event()
        self.pulse.watch("Spark", self._engine.still_for)
        self.pulse.watch("control jobs", _late_jobs)
        for flow in config.flows if config is not None else ():
            self._add(flow)

    def _add(self, config: FlowConfig) -> FlowSupervisor:
        made = FlowSupervisor(config, self._services, once=self._once)
        self._supervisors[made.name] = made
        return made

    def _count(self) -> int:
        return sum(s.copies for s in self._all())

    def _all(self) -> Sequence[FlowSupervisor]:
        return list(self._supervisors.values())

    # -- start and stop -----------------------------------------------------------------------

    def start(self) -> None:
        """Start Spark and every flow, at once; returns when each has started or cannot now.

        A flow that cannot be started is tried again while the others run. Raises StartError if
        Spark cannot be started, or none of the flows that copy could; of a file without any, if
        none of those that emit heartbeats could.
        """
        flows = self._all()
        copying = [s for s in flows if s.copies]
        if copying:
            self._engine.begin()
        for supervisor in flows:
            supervisor.start()
        needed = copying or flows
        for supervisor in needed:
            supervisor.await_attempt()
        errors = [s.error for s in needed if s.error is not None]
        if errors and len(errors) == len(needed) and not self._stopped.is_set():
            # Spark may still be starting: nobody waits for it to hear of this.
            raise _as_start_error(errors)
        if copying:
            self._engine.await_start()

    def stop(self) -> None:
        """Begin to stop; may be called from a signal handler's thread, and twice."""
        self._stopped.set()

    def close(self) -> None:
        """End everything that `start` began, in order."""
        self.stop()
        self.history.close()
        deadline = time.monotonic() + _STOP_SECONDS
        flows = self._all()
        for supervisor in flows:
            supervisor.stop()
        for supervisor in flows:
            supervisor.join(max(0.0, deadline - time.monotonic()))
        self._reports.close()
        self._engine.stop()

    def run(self) -> None:
        """Mirror until `stop`."""
        self._stopped.wait()

    def run_once(self) -> None:
        """Copy all that was on the sources when `start` began; raises HeliographError.

        The error names each partition that was not copied so far, and why; it is also raised for
        flows that another mirror has, or that could not be started. The others are copied all the
        same.
        """
        errors: list[HeliographError] = []
        for supervisor in self._all():
            if supervisor.copies:
                try:
                    supervisor.await_goals()
                except HeliographError as error:
                    errors.append(error)
        if self._stopped.is_set():
            return
        if errors:
            raise _as_one(errors)
        for supervisor in self._all():
            supervisor.finish()

    # -- live changes -------------------------------------------------------------------------

    def reconfigure(self, config: MirrorMakerConfig) -> list[str]:
        """Take over another configuration; returns what changes, a line for each flow.

        Flows that are not in it any more are stopped, new ones are started, changed ones go on with
        their new configuration. Nothing else is disturbed.
        """
        wanted = {str(flow.flow): flow for flow in config.flows}
        with self._lock:
            told: list[str] = []
            for name, supervisor in list(self._supervisors.items()):
                flow = wanted.pop(name, None)
                if flow is None:
                    del self._supervisors[name]
                    supervisor.stop()
                    told.append(f"{name}: no longer configured; it is stopped")
                elif changed := supervisor.wanted.changes(flow):
                    supervisor.reconfigure(flow)
                    told.append(f"{name}: changed {', '.join(changed)}")
            for name, flow in wanted.items():
                if flow.enabled:
                    self._engine.begin()
                self._add(flow).start()
                told.append(f"{name}: new; it is started")
            return told

    def prepare(self) -> None:
        """Start Spark before there are flows: none has to wait for it then; raises StartError."""
        self._engine.begin()
        self._engine.await_start()

    def launch(
        self,
        name: str,
        config: FlowConfig,
        parts: Collection[str],
        *,
        admit: Admit | None = None,
        positions: PositionsStore | None = None,
        paused: bool = False,
    ) -> FlowSupervisor:
        """Start one more flow, or parts of one, under a name that no other has.

        One that is ``paused`` asks no cluster before it is resumed.
        """
        with self._lock:
            made = FlowSupervisor(
                config, self._services, name=name, parts=parts, admit=admit, positions=positions
            )
            self._supervisors[name] = made
        if made.copies:
            self._engine.begin()
        if paused:
            made.pause()
        made.start()
        return made

    def retire(self, name: str) -> FlowSupervisor | None:
        """Stop a flow and forget it; returns its supervisor, to be joined."""
        with self._lock:
            supervisor = self._supervisors.pop(name, None)
        if supervisor is not None:
            supervisor.stop()
        return supervisor

    def supervisor(self, flow: str) -> FlowSupervisor:
        """The supervisor of a flow, to pause, resume or restart it; raises KeyError."""
        return self._supervisors[flow]

    # -- what is known ------------------------------------------------------------------------

    def snapshot(self) -> MirrorSnapshot:
        """Everything that is known of the mirror now."""
        flows = self._all()
        return MirrorSnapshot(
            time.time(), tuple(s.snapshot() for s in flows),
            self._engine.snapshot() if any(s.copies for s in flows) else None,
            self._started_at, self.events.sequence, self._certificates.known(),
        )  # fmt: skip

    def _tls_settings(self) -> Iterator[tuple[str, dict[str, str]]]:
        """The ``ssl.*`` keys of every client, secrets resolved. In the thread of the watch."""
        clients = {
            (client.alias, id(client)): client
            for supervisor in self._all()
            for client in (supervisor.config.source_client, supervisor.config.target_client)
        }
        for (alias, _), client in clients.items():
            written = {k: v for k, v in client.properties.items() if k.startswith("ssl.")}
            try:
                yield alias, {k: resolve(v, client.providers) for k, v in written.items()}
            except ConfigError as error:
                log.debug("the certificates of %s: %s", alias, error)

    @property
    def spark_level(self) -> str:
        """The level of Spark's log, as log4j names it."""
        return self._engine.log_level

    def set_spark_level(self, level: str) -> None:
        """Change it. Waits for the JVM."""
        self._engine.set_log_level(level)

    def unready(self) -> list[Unready]:
        """What keeps the mirror from doing all its work now; counts no partitions.

        A flow that is paused or stands by is ready. One whose clusters did not answer when they
        were last asked is not.
        """
        flows = self._all()
        found: list[Unready] = []
        if any(s.copies for s in flows):
            engine = self._engine.snapshot()
            if engine.state is not EngineState.READY:
                found.append(Unready("Spark", str(engine.state), "", engine.reason))
        for s in flows:
            life = s.life
            if life.state in _UNREADY:
                found.append(Unready(s.name, str(life.state), life.code, life.reason))
            elif s.unmeasured:
                found.append(Unready(s.name, "unreachable", "flow.unmeasured", s.unmeasured))
        return found

    def _hear(self, report: LeaseReport) -> None:
        """A task reports something. In the thread of the reports."""
        supervisor = self._supervisors.get(report.flow)
        if supervisor is not None:
            supervisor.hear(report)

    def _report_to(self) -> DriverAddress | None:
        """Where tasks report to; None if that is not possible: receipts must do then."""
        with self._lock:
            if not self._listening:
                self._listening = True
                place = self._engine.place
                try:
                    self._address = self._reports.listen(place)
                    self.pulse.watch("reports of tasks", self._reports.beat.still_for)
                except OSError as error:
                    log.warning(
                        "no live reports: cannot listen on %s: %s; states and events are told at"
                        " the end of each round instead",
                        place.folder or place.bind_to or place.host, error,
                    )  # fmt: skip
            return self._address


def _late_jobs() -> float:
    late = WORKERS.late_seconds
    return late if late > _LATE_SECONDS else 0.0


def _as_start_error(errors: Sequence[HeliographError]) -> HeliographError:
    """The one error, or all of them in one."""
    if len(errors) == 1 or len({str(error) for error in errors}) == 1:
        return errors[0]
    return StartError("flow.start", "no flow could be started:\n" + _listed(errors))


def _as_one(errors: Sequence[HeliographError]) -> HeliographError:
    """The one error, or all of them in one with the exit code of the worst."""
    if len(errors) == 1:
        return errors[0]
    made = HeliographError("once.incomplete", _listed(errors).strip())
    made.exit_code = max(error.exit_code for error in errors)
    return made


def _listed(errors: Sequence[HeliographError]) -> str:
    return "\n".join(f"  {error}" for error in errors)
