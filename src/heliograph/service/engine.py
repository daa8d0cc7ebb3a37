"""Keeps a Spark session alive: starts it beside other work, and again if its JVM dies. Driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from heliograph.model import Lease, Receipt
from heliograph.spark import session
from heliograph.spark.rounds import run_round

log = logging.getLogger(__name__)

_ABANDON_SECONDS = 2.0


class Engine:
    """A Spark session that outlives its JVM. Thread-safe."""

    def __init__(self, master: str | None, flows: int) -> None:
        self._master = master
        self._flows = flows
        self._lock = threading.Lock()
        self._spark: session.SparkEngine | None = None
        self._error: BaseException | None = None
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
        and by the two rounds that overlap.
        """
        parallelism = self._ready().parallelism
        if self._master is None:
            return parallelism
        return max(1, parallelism // (2 * max(self._flows, 1)))

    def _ready(self) -> session.SparkEngine:
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._spark is not None  # noqa: S101 - one of the two is set
        return self._spark

    def run_round(self, leases: Sequence[Lease]) -> list[Receipt]:
        """Run one round, on a new session if the old one's JVM is gone."""
        spark = self._ready()
        with self._lock:
            if not spark.alive and not self._stopping and spark is self._spark:
                log.warning("Spark's JVM is gone; starting another")
                spark.stop()
                self._spark = session.start(self._master, self._flows)
            spark = self._ready()
        return run_round(spark.session, leases)

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
