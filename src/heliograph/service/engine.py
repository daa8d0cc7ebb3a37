"""Keeps a Spark session alive: starts it beside other work, and replaces it when needed. Driver.

A session is replaced if its JVM is gone, or if rounds of every flow that uses it keep failing. What
a session keeps on disk may have been deleted (cleaners of temporary folders do that), and Spark
never recovers from it. A single flow whose rounds fail never costs the others their session.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from heliograph.errors import StartError
from heliograph.model import ClientSettings, Lease, Receipt
from heliograph.service.events import EngineEvent, EventBus
from heliograph.service.listening import Place
from heliograph.service.pulse import IDLE_SECONDS, Beat
from heliograph.service.snapshot import EngineSnapshot, EngineState
from heliograph.service.vault import Vault, inline_secrets
from heliograph.spark import session
from heliograph.spark.rounds import run_round
from heliograph.spark.scratch import Scratch
from heliograph.spark.session import SparkLog, first_line, is_local
from heliograph.spark.verification import Task, run_checks
from heliograph.units import duration
from heliograph.verify.model import RangeResult, VerifyContext

log = logging.getLogger(__name__)

_ABANDON_SECONDS = 2.0
#: So many rounds in a row may fail before the session is replaced; twice as many the next time.
_FAILURES = 3
#: Rounds at once. Threads are made when they are needed: two to a flow, as a rule.
_MOST_ROUNDS = 1024
#: The tag of Spark jobs that compare.
_CHECKS = "verify"


class RoundFailed(Exception):
    """A round came to nothing; says why in one line."""


class Engine:
    """A Spark session that outlives its JVM. Thread-safe.

    Rounds belong to an *owner*, the name of a flow: they are cancelled and counted by owner.
    """

    def __init__(
        self,
        master: str | None,
        events: EventBus | None = None,
        log: SparkLog | None = None,
    ) -> None:
        self._master = master
        self._log = log if log is not None else SparkLog()
        self._events = events if events is not None else EventBus()
        self._since = time.time()
        #: Held while a session is replaced, which takes seconds.
        self._replacing = threading.Lock()
        #: Held for a moment, to begin and to count.
        self._lock = threading.Lock()
        self._spark: session.SparkEngine | None = None
        self._error: BaseException | None = None
        #: Rounds in a row that failed, by owner; owners whose last round did not fail are absent.
        self._failures: dict[str, int] = {}
        self._patience = _FAILURES
        #: Rounds in progress, by owner.
        self._running: Counter[str] = Counter()
        self._stopping = False
        self._begun = False
        self._folder = Scratch()
        self._vault = Vault()
        self._pool = ThreadPoolExecutor(_MOST_ROUNDS, thread_name_prefix="round")
        self._thread = threading.Thread(target=self._start, name="starting Spark", daemon=True)
        self._beat = Beat("Spark")
        self._ended = threading.Event()

    def begin(self) -> None:
        """Start Spark in the background: it takes seconds that topics can use. Idempotent."""
        with self._lock:
            if not self._begun and not self._stopping:
                self._begun = True
                self._thread.start()

    def _start(self) -> None:
        try:
            with self._events.step("Spark"):
                self._spark = session.start(self._master, self._folder.path, log=self._log)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            self._error = error
        self._since = time.time()
        if self._spark is not None:
            threading.Thread(target=self._feel_pulse, name="pulse of Spark", daemon=True).start()

    def _feel_pulse(self) -> None:
        """Ask the JVM something again and again: one that is stuck never answers."""
        while not self._ended.is_set():
            self._beat.touch()
            # One that is gone is replaced for the next round.
            with suppress(Exception):
                if self._spark is not None:
                    self._spark.bound_log()
                    self._spark.ping()
            self._ended.wait(IDLE_SECONDS)

    def still_for(self) -> float:
        """For how long the JVM has not answered, if that is too long; else 0."""
        starting = self._spark is None or self._stopping
        return 0.0 if starting else self._beat.still_for()

    @property
    def log_level(self) -> str:
        """Of Spark's log, as log4j names it."""
        return self._log.level

    def set_log_level(self, level: str) -> None:
        """Change it, also for sessions to come."""
        self._log = replace(self._log, level=level)
        # One that is gone is replaced for the next round, and begins with this level.
        with suppress(Exception):
            if self._spark is not None:
                self._spark.set_log_level(level)

    def snapshot(self) -> EngineSnapshot:
        """What Spark is doing."""
        spark, error = self._spark, self._error
        if self._stopping:
            return EngineSnapshot(EngineState.STOPPED, since=self._since)
        if error is not None:
            return EngineSnapshot(EngineState.FAILED, str(error), self._since)
        if spark is None or not spark.alive:
            return EngineSnapshot(EngineState.STARTING, since=self._since)
        return EngineSnapshot(
            EngineState.READY, since=self._since, slots=spark.parallelism, pid=spark.pid
        )

    def await_start(self) -> None:
        """Wait until Spark has started; raises StartError if it cannot."""
        self._ready()

    def leases_per_flow(self, flows: int) -> int:
        """How many leases each of so many flows may have; waits until Spark has started.

        On this machine, slots are only threads, but every lease is a process: many flows have one
        each, few flows have one per core. A Spark cluster's slots are shared by the flows and by
        two rounds of each: the tasks of the next one wait for its beginning.
        """
        parallelism = self._ready().parallelism
        if self._master is None:
            return max(1, min(parallelism, 4 * parallelism // max(flows, 1)))
        return max(1, parallelism // (2 * max(flows, 1)))

    @property
    def place(self) -> Place:
        """Where tasks reach this process; waits until Spark has started."""
        host, bind_to = self._ready().driver_hosts
        return Place(self._folder.path if is_local(self._master) else None, host, bind_to)

    def check_secrets(self, clusters: Sequence[ClientSettings]) -> None:
        """Raises StartError if secrets in the configuration could be read off Spark's network.

        Tasks do not carry them, but they carry what it takes to ask this process for them.
        """
        if is_local(self._master) or self._ready().encrypted:
            return
        hint = (
            "set spark.authenticate and spark.network.crypto.enabled for the whole cluster"
            " (docs/security.md)"
        )
        if any(map(inline_secrets, clusters)):
            raise StartError(
                "spark.plaintext",
                f"the configuration holds secrets, and what Spark says on its network at"
                f" {self._master} is neither authenticated nor encrypted",
                f"{hint}, or refer to the secrets: ${{file:...}}",
            )
        log.warning(
            "what Spark says on its network at %s is neither authenticated nor encrypted; %s",
            self._master, hint,
        )  # fmt: skip

    def _sealed(self, settings: ClientSettings) -> ClientSettings:
        return self._vault.seal(settings, self.place)

    def _ready(self) -> session.SparkEngine:
        self.begin()
        if self._begun:
            self._thread.join()
        if self._error is not None:
            raise self._error
        if self._spark is None:
            raise StartError("spark.stopped", "Spark was stopped before it was needed")
        return self._spark

    def _living(self) -> session.SparkEngine:
        """The session, or a new one if it is of no use any more."""
        spark = self._ready()
        with self._replacing:
            why = "" if spark.alive else "Spark's JVM is gone"
            if not why and self._all_fail():
                why = f"{max(self._failures.values())} rounds in a row failed in Spark"
            if why and not self._stopping and spark is self._spark:
                self._events.publish(
                    EngineEvent("engine.replaced", f"{why}; starting another", logging.WARNING,
                                time.time())
                )  # fmt: skip
                if spark.alive:
                    with self._lock:
                        self._failures.clear()
                        self._patience *= 2
                began = self._since = time.time()
                spark.stop()
                self._spark = session.start(self._master, self._folder.path, log=self._log)
                self._since = time.time()
                took = duration(self._since - began)
                self._events.publish(
                    EngineEvent("engine.ready", f"ready after {took}", logging.INFO, self._since)
                )
            return self._ready()

    def _all_fail(self) -> bool:
        """Whether rounds keep failing, and none of a flow that does not fail is in progress."""
        with self._lock:
            failing = any(count >= self._patience for count in self._failures.values())
            healthy = any(o not in self._failures for o, n in self._running.items() if n)
        return failing and not healthy

    def submit_round(
        self, owner: str, leases: Sequence[Lease], done: Callable[[Future[list[Receipt]]], None]
    ) -> None:
        """Run one round of a flow in the background; ``done`` is called with its outcome.

        It runs on a new session if the old one is of no use. It fails with RoundFailed.
        """
        self._pool.submit(self._run_round, owner, leases).add_done_callback(done)

    def _run_round(self, owner: str, leases: Sequence[Lease]) -> list[Receipt]:
        spark = self._living()
        with self._lock:
            self._running[owner] += 1
        try:
            receipts = run_round(spark.session, _tag(owner), [
                replace(lease, context=replace(
                    lease.context, source=self._sealed(lease.context.source),
                    target=self._sealed(lease.context.target),
                )) for lease in leases
            ])  # fmt: skip
        except Exception as error:
            reason = first_line(error)
            # Rounds that are cancelled, and those that die with the JVM, say nothing about Spark.
            if spark.alive and "cancelled" not in reason:
                with self._lock:
                    self._failures[owner] = self._failures.get(owner, 0) + 1
            raise RoundFailed(reason) from error
        finally:
            with self._lock:
                self._running[owner] -= 1
        with self._lock:
            self._failures.pop(owner, None)
            self._patience = _FAILURES
        return receipts

    def forget(self, owner: str) -> None:
        """A flow is gone: its failures say nothing about Spark any more."""
        with self._lock:
            self._failures.pop(owner, None)

    def run_checks(self, context: VerifyContext, tasks: Sequence[Task]) -> list[RangeResult]:
        """Compare ranges, as `run_round`."""
        spark = self._living()
        context = replace(
            context, source=self._sealed(context.source), target=self._sealed(context.target)
        )
        return run_checks(spark.session, _CHECKS, context, tasks)

    def cancel_checks(self) -> None:
        """End the comparisons in progress; they fail."""
        self._cancel(_CHECKS)

    def cancel_rounds(self, owner: str) -> None:
        """End a flow's rounds in progress; they fail. Rounds of other flows go on."""
        self._cancel(_tag(owner))

    def _cancel(self, tag: str) -> None:
        spark = self._spark
        if spark is not None:
            spark.cancel(tag)

    def stop(self) -> None:
        """End Spark, also in the middle of its start."""
        self._stopping = True
        self._ended.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._thread.is_alive():
            session.abandon_start()
            self._thread.join(_ABANDON_SECONDS)
        if self._spark is not None:
            self._spark.stop()
        self._vault.close()
        self._folder.remove()


def _tag(owner: str) -> str:
    """The tag of a flow's Spark jobs; tags must not hold commas."""
    return "round " + owner.replace(",", ";")
