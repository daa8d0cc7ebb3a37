"""Keeps a Spark session alive: starts it beside other work, and again if it is of no use. Driver.

Of no use is one whose JVM is gone, and one where round after round fails: what a session keeps on
disk may have been deleted under it (cleaners of temporary folders do), and it never recovers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from heliograph.model import Lease, Receipt
from heliograph.spark import session
from heliograph.spark.rounds import run_round
from heliograph.spark.verification import Task, run_checks
from heliograph.verify.model import RangeResult, VerifyContext

log = logging.getLogger(__name__)

_ABANDON_SECONDS = 2.0
#: So many rounds in a row may fail before the session is replaced; twice as many the next time.
_FAILURES = 3
#: What py4j says in its first line tells nothing, and is never the same.
_PY4J = "An error occurred while calling"


class RoundFailed(Exception):
    """A round came to nothing; says why in one line."""


class Engine:
    """A Spark session that outlives its JVM. Thread-safe."""

    def __init__(self, master: str | None, flows: int) -> None:
        self._master = master
        self._flows = flows
        self._lock = threading.Lock()
        self._spark: session.SparkEngine | None = None
        self._error: BaseException | None = None
        self._failures, self._patience = 0, _FAILURES
        self._stopping = False
        self._thread = threading.Thread(target=self._start, name="starting Spark", daemon=True)

    def begin(self) -> None:
        """Start Spark in the background: it takes seconds that topics can use."""
        self._thread.start()

    def _start(self) -> None:
        try:
            self._spark = session.start(self._master, self._flows)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            self._error = error

    @property
    def leases_per_flow(self) -> int:
        """How many leases a flow may have by default; waits until Spark has started.

        Here, slots are only threads and there are enough. A Spark cluster's are shared by the flows
        and by two rounds: the tasks of the next one wait for its beginning.
        """
        parallelism = self._ready().parallelism
        if self._master is None:
            return parallelism
        return max(1, parallelism // (2 * max(self._flows, 1)))

    @property
    def driver_hosts(self) -> tuple[str, str]:
        """Where tasks reach this process, and where it listens; waits until Spark has started."""
        return self._ready().driver_hosts

    def _ready(self) -> session.SparkEngine:
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._spark is not None  # noqa: S101 - one of the two is set
        return self._spark

    def _living(self) -> session.SparkEngine:
        """The session, or a new one if it is of no use any more."""
        spark = self._ready()
        with self._lock:
            why = "Spark's JVM is gone"
            if spark.alive:
                failing = self._failures >= self._patience
                why = f"{self._failures} rounds in a row failed in Spark" if failing else ""
            if why and not self._stopping and spark is self._spark:
                log.warning("%s; starting another", why)
                if spark.alive:
                    self._failures, self._patience = 0, 2 * self._patience
                spark.stop()
                self._spark = session.start(self._master, self._flows)
            return self._ready()

    def run_round(self, leases: Sequence[Lease]) -> list[Receipt]:
        """Run one round, on a new session if the old one is of no use; raises RoundFailed."""
        spark = self._living()
        try:
            receipts = run_round(spark.session, leases)
        except Exception as error:
            reason = _reason(error)
            # Rounds that are cancelled, and those that die with the JVM, say nothing about Spark.
            if spark.alive and "cancelled" not in reason:
                self._failures += 1
            raise RoundFailed(reason) from error
        self._failures, self._patience = 0, _FAILURES
        return receipts

    def run_checks(self, context: VerifyContext, tasks: Sequence[Task]) -> list[RangeResult]:
        """Compare ranges, as `run_round`."""
        return run_checks(self._living().session, context, tasks)

    def cancel_rounds(self) -> None:
        """End the rounds in progress; they fail and are planned anew by whoever wants them."""
        spark = self._spark
        if spark is not None:
            spark.cancel()

    def stop(self) -> None:
        """End Spark, also in the middle of its start."""
        self._stopping = True
        if self._thread.is_alive():
            session.abandon_start()
            self._thread.join(_ABANDON_SECONDS)
        if self._spark is not None:
            self._spark.stop()


def _reason(error: BaseException) -> str:
    """What an error says, in one line; of Java's, what Java said."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    told = [line for line in lines if not line.startswith(_PY4J)]
    return told[0] if told else type(error).__name__
