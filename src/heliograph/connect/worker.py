"""A worker of a Connect cluster: storage topics, group, connectors, REST herder. In the driver."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from heliograph.claims.log import Process
from heliograph.connect.api import ConnectError
from heliograph.connect.fleet import Fleet
from heliograph.connect.group import WorkerGroup
from heliograph.connect.herder import ConnectHerder
from heliograph.connect.loggers import Loggers
from heliograph.connect.records import LoggerLevel
from heliograph.connect.storage import StorageTopics
from heliograph.connect.worker_config import WorkerConfig
from heliograph.errors import StartError
from heliograph.service.mirror import Mirror
from heliograph.spark.session import SparkLog
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError

__all__ = ["ConnectWorker"]

log = logging.getLogger(__name__)

#: How often states of connectors are written down, if nothing has changed them before.
_LOOK_SECONDS = 1.0
_ENDING_SECONDS = 0.1
_START_PATIENCE_SECONDS = 10.0
#: States are written to a cluster that may be away, again and again, for no longer than this.
_SETTLE_SECONDS = 1800.0


class ConnectWorker:
    """Runs its share of the connectors from `start` to `close`.

    Attributes:
        herder: answers for all connectors of the cluster.
        mirror: the flows of those that run here.
        loggers: of this process.
    """

    def __init__(
        self, config: WorkerConfig, master: str | None = None, spark_log: SparkLog | None = None
    ) -> None:
        self._config = config
        self.mirror = Mirror(None, master, silent=self._is_silent, spark_log=spark_log)
        self._client = ClusterClient(config.client, f"connect-{config.group_id}|storage")
        self._storage = StorageTopics(self._client, config.storage, self._wake)
        self.loggers = Loggers(self.mirror)
        self.herder = ConnectHerder(
            config,
            self._storage,
            self._health,
            self.loggers,
            self._tell_again,
            self._refuse_to_resume,
        )
        self._fleet: Fleet | None = None
        self._group: WorkerGroup | None = None
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._problem = ""
        self._settled = False
        self._thread = threading.Thread(target=self._live, name="connectors", daemon=True)

    def start(self, worker_id: str) -> None:
        """Read what is stored, and join the group under that id; raises StartError."""
        try:
            self.herder.cluster_id = self._client.retry(
                self._client.cluster_id, _START_PATIENCE_SECONDS
            )
        except WireError as error:
            raise StartError(
                "connect.unreachable", f"the worker's cluster does not answer: {error}",
                "check bootstrap.servers and the security settings of the worker file",
            ) from error  # fmt: skip
        self._storage.ensure()
        self._storage.start()
        # First: connectors that other workers hand over would stand still until Spark is there.
        self.mirror.prepare()
        self._fleet = Fleet(self._config, worker_id, self.mirror, self._storage)
        group = self._config.group_id
        self._group = WorkerGroup(
            ClusterClient(self._config.client, f"connect-{group}|group"), group, worker_id,
            self._all_connectors, self._wake,
        )  # fmt: skip
        self._group.start()
        self._thread.start()

    def leave(self) -> None:
        """Leave the group; before the REST server is closed, which others take for our death."""
        if self._group is not None:
            self._group.close()

    def close(self) -> None:
        """Leave the group, end all connectors in order, and say so."""
        self._stopping.set()
        self._woken.set()
        self.leave()
        if self._thread.is_alive():
            self._thread.join(_START_PATIENCE_SECONDS)
        self.mirror.close()
        try:
            if self._settled and self._fleet is not None:
                self._fleet.close()
        except WireError as error:
            log.warning("the last states of connectors could not be written: %s", error)
        self._storage.close()
        self._client.close()

    def _wake(self) -> None:
        self._woken.set()

    def _tell_again(self, name: str) -> None:
        if self._fleet is not None:
            self._fleet.tell_again(name)
        self._wake()

    def _refuse_to_resume(self, name: str) -> None:
        if self._fleet is not None:
            self._fleet.refuse_to_resume(name)

    def _is_silent(self, process: Process) -> bool:
        return self._group is not None and self._group.silent(process)

    def _all_connectors(self) -> list[str]:
        self._storage.refresh()
        return list(self._storage.view.connectors)

    # -- in the worker's thread ---------------------------------------------------------------

    def _live(self) -> None:
        fleet, group = self._fleet, self._group
        beat = self.mirror.pulse.beat("connectors")
        assert fleet is not None and group is not None  # noqa: S101 - started
        pause = 0.0
        while not self._stopping.is_set():
            self._woken.wait(pause)
            self._woken.clear()
            if self._stopping.is_set():
                self.mirror.pulse.end(beat)
                return
            beat.touch(_SETTLE_SECONDS)
            try:
                self._settle(fleet, group)
                self._problem = ""
            except WireError as error:
                if str(error) != self._problem:
                    log.warning("the states of connectors cannot be written: %s", error)
                self._problem = str(error)
            except Exception as error:
                log.exception("connectors cannot be run as they should")
                self._problem = f"{type(error).__name__}: {error}"
            pause = _ENDING_SECONDS if fleet.unsettled else _LOOK_SECONDS

    def _settle(self, fleet: Fleet, group: WorkerGroup) -> None:
        for request in self._storage.take_requests():
            if isinstance(request, LoggerLevel):
                with suppress(ConnectError):
                    self.loggers.set_level(request.logger, request.level)
            else:
                fleet.restart(request)
        view = self._storage.view
        group.connectors_changed(view.connectors.keys())
        fleet.settle(view, group.assignment)
        self._settled = True

    def _health(self) -> tuple[int, str, str]:
        if self._problem:
            return 500, "unhealthy", f"Worker has a problem: {self._problem}"
        group = self._group
        if group is None or not self._settled or group.assignment.generation < 0:
            problem = group.problem if group is not None else ""
            return 503, "starting", problem or "Worker is still starting up."
        return 200, "healthy", "Worker has completed startup and is ready to handle requests."
