"""Answers for the connectors of a Connect cluster (`heliograph.connect.api.Herder`). In the driver.

What is asked is answered from the storage topics, so every worker answers for every connector. What
is to change is written to them; whoever runs the connector reads it there. No worker asks another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heliograph import __version__
from heliograph.connect.api import (
    ConnectError,
    ConnectorInfo,
    ConnectorStatus,
    Initial,
    PartitionOffset,
    State,
    TaskInfo,
    TaskStatus,
)
from heliograph.connect.connectors import KAFKA_VERSION, connector_class, plugins
from heliograph.connect.definitions import definitions, invalid, validate
from heliograph.connect.fold import ConnectorsView, StoredConnector, StoredStatuses
from heliograph.connect.loggers import Loggers
from heliograph.connect.offset_changes import OffsetChanges
from heliograph.connect.records import (
    StoredStatus,
    connector_entry,
    logger_entry,
    restart_entry,
    target_entry,
    task_entries,
    topic_entry,
)
from heliograph.connect.storage import StorageTopics
from heliograph.connect.worker_config import WorkerConfig
from heliograph.failover.refusals import HandoverRefused
from heliograph.wire.errors import WireError

__all__ = ["ConnectHerder"]


class ConnectHerder:
    """The connectors of one ``group.id``. Thread-safe."""

    changeable = True

    def __init__(
        self,
        worker: WorkerConfig,
        storage: StorageTopics,
        health: Callable[[], tuple[int, str, str]],
        loggers: Loggers,
        tell_again: Callable[[str], None],
        refuse_to_resume: Callable[[str], None],
    ) -> None:
        """Make the herder of a worker.

        Args:
            worker: its configuration.
            storage: what is stored.
            health: how the worker is.
            loggers: of this process.
            tell_again: called for a connector that is told to do what it is to do already: it may
                have been paused by other means.
            refuse_to_resume: called before a connector is told to go on; raises HandoverRefused if
                its flow is being handed over.
        """
        self._worker = worker
        self._storage = storage
        self._health = health
        self._loggers = loggers
        self._tell_again = tell_again
        self._refuse_to_resume = refuse_to_resume
        self._offsets = OffsetChanges(worker, storage)
        self.cluster_id = ""
        #: Of two changes by callers of this worker, the second sees the first.
        self._changing = threading.Lock()

    # -- the worker ---------------------------------------------------------------------------

    def server_info(self) -> Mapping[str, str]:
        """A Kafka version, since clients unlock features by it; ``commit`` is ours."""
        return {
            "version": KAFKA_VERSION,
            "commit": f"heliograph-{__version__}",
            "kafka_cluster_id": self.cluster_id,
        }

    def health(self) -> tuple[int, str, str]:
        """How the worker is."""
        return self._health()

    # -- reading ------------------------------------------------------------------------------

    @property
    def _view(self) -> ConnectorsView:
        return self._storage.view

    def connectors(self) -> Sequence[str]:
        """The names of all connectors."""
        return list(self._view.connectors)

    def info(self, name: str) -> ConnectorInfo:
        """A connector as it is stored."""
        return _info(self._stored(name, f"Connector {name} not found"))

    def status(self, name: str) -> ConnectorStatus:
        """What whoever runs it has said last."""
        found = self._status(name)
        if found is None:
            raise ConnectError(404, f"No status found for connector {name}")
        return found

    def _status(self, name: str) -> ConnectorStatus | None:
        view = self._view
        stored = view.connectors.get(name)
        said = view.statuses.get(name, StoredStatuses())
        if said.connector is None or stored is None:
            return None
        tasks = tuple(
            _task_status(task, status)
            for task, status in said.tasks.items() if task < len(stored.tasks)
        )  # fmt: skip
        own = said.connector
        return ConnectorStatus(
            name, own.state, own.worker_id, tasks, own.trace, own.version, _type(stored)
        )

    def tasks(self, name: str) -> Sequence[TaskInfo]:
        """The tasks that a connector was given last."""
        stored = self._stored(name, f"Connector {name} not found")
        return [TaskInfo(name, n, config) for n, config in enumerate(stored.tasks)]

    def task_status(self, name: str, task: int) -> TaskStatus:
        """One task of `status`."""
        found = self._status(name)
        for status in found.tasks if found is not None else ():
            if status.task == task:
                return status
        raise ConnectError(404, f"No status found for task {name}-{task}")

    def topics(self, name: str) -> Sequence[str]:
        """The topics that it has written to."""
        if not self._worker.topic_tracking_enable:
            raise ConnectError(403, "Topic tracking is disabled.")
        return sorted(self._view.topics(name))

    def offsets(self, name: str) -> Sequence[PartitionOffset]:
        """What the offsets topic has: behind what is mirrored by seconds, exact when stopped."""
        self._stored(name, f"Connector {name} not found")
        self._refresh()
        return self._view.offsets(name)

    def _stored(self, name: str, missing: str) -> StoredConnector:
        found = self._view.connectors.get(name)
        if found is None:
            # It may have been created by another worker a moment ago.
            self._refresh()
            found = self._view.connectors.get(name)
        if found is None:
            raise ConnectError(404, missing)
        return found

    def _refresh(self) -> None:
        try:
            self._storage.refresh()
        except WireError as error:
            raise ConnectError(500, str(error)) from error

    # -- changing -----------------------------------------------------------------------------

    def create(
        self, name: str, config: Mapping[str, str], initial: Initial | None
    ) -> ConnectorInfo:
        """A new connector."""
        with self._changing:
            config = self._checked(name, config)
            self._refresh()
            if name in self._view.connectors:
                raise ConnectError(409, f"Connector {name} already exists")
            return self._store(name, config, initial)

    def put_config(self, name: str, config: Mapping[str, str]) -> tuple[bool, ConnectorInfo]:
        """Create it or replace its config."""
        with self._changing:
            config = self._checked(name, config)
            self._refresh()
            new = name not in self._view.connectors
            return new, self._store(name, config, None)

    def patch_config(self, name: str, patch: Mapping[str, str | None]) -> ConnectorInfo:
        """Merge into its config."""
        with self._changing:
            stored = self._stored(name, f"Connector {name} not found")
            merged = {**stored.config, **patch}
            config = {key: value for key, value in merged.items() if value is not None}
            return self._store(name, self._checked(name, config), None)

    def _checked(self, name: str, config: Mapping[str, str]) -> Mapping[str, str]:
        """The config with its name; 400 if it is invalid."""
        whole = {**config, "name": config.get("name", name)}
        problem = invalid(name, whole, self._worker)
        if problem:
            raise ConnectError(400, problem)
        return whole

    def _store(
        self, name: str, config: Mapping[str, str], initial: Initial | None
    ) -> ConnectorInfo:
        before = self._view.connectors.get(name)
        entries = [connector_entry(name, config)]
        if initial is not None:
            entries.insert(0, target_entry(name, initial))
        self._write(entries)
        # As Connect: with the tasks that it had, whatever it has by now.
        had = before.tasks if before is not None else ()
        return _info(StoredConnector(name, config, tasks=had))

    def _write(self, entries: Sequence[Any]) -> None:
        try:
            self._storage.append_configs(entries)
        except WireError as error:
            raise ConnectError(500, str(error)) from error
        self._refresh()

    def delete(self, name: str) -> None:
        """Remove a connector; whoever runs it stops it."""
        with self._changing:
            self._stored(name, f"Connector {name} not found")
            self._write([connector_entry(name, None), target_entry(name, None)])

    def set_target(self, name: str, target: Initial) -> None:
        """Pause, resume or stop it."""
        with self._changing:
            stored = self._stored(name, f"Unknown connector {name}")
            if target is Initial.RUNNING:
                try:
                    self._refuse_to_resume(name)
                except HandoverRefused as refused:
                    raise ConnectError(409, str(refused)) from None
            entries = [target_entry(name, target)]
            if target is Initial.STOPPED:
                # As Connect: a stopped connector has no tasks.
                entries = [*task_entries(name, ()), *entries]
            if stored.target is not target:
                self._write(entries)
            else:
                self._tell_again(name)

    def restart(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> ConnectorStatus | None:
        """Ask whoever runs it to restart it."""
        self._stored(name, f"Unknown connector: {name}")
        flagged = include_tasks or only_failed
        found = self._status(name)
        if flagged and found is None:
            raise ConnectError(404, f"Status for connector {name} not found")
        self._write([restart_entry(name, include_tasks=include_tasks, only_failed=only_failed)])
        if not flagged or found is None:
            return None
        return _restarting(found, include_tasks=include_tasks, only_failed=only_failed)

    def restart_task(self, name: str, task: int) -> None:
        """Ask whoever runs it to restart its tasks: they are one here."""
        stored = self._stored(name, f"Unknown connector: {name}")
        if not 0 <= task < len(stored.tasks):
            raise ConnectError(404, f"Unknown task: {name}-{task}")
        self._write([restart_entry(name, include_tasks=True, only_failed=False)])

    def reset_topics(self, name: str) -> None:
        """Forget which topics it has written to."""
        if not self._worker.topic_tracking_enable:
            raise ConnectError(403, "Topic tracking is disabled.")
        if not self._worker.topic_tracking_allow_reset:
            raise ConnectError(403, "Topic tracking reset is disabled.")
        entries = [topic_entry(name, topic, None) for topic in self._view.topics(name)]
        try:
            self._storage.append_statuses(entries)
        except WireError as error:
            raise ConnectError(500, str(error)) from error
        self._refresh()

    def alter_offsets(self, name: str, offsets: Sequence[PartitionOffset]) -> str:
        """Where copying goes on (`heliograph.connect.offset_changes`)."""
        with self._changing:
            self._offsets.alter(self._stopped(name), offsets)
        return "The offsets for this connector have been altered successfully"

    def reset_offsets(self, name: str) -> str:
        """Copy again from the start."""
        with self._changing:
            self._offsets.reset(self._stopped(name))
        return "The offsets for this connector have been reset successfully"

    def _stopped(self, name: str) -> StoredConnector:
        stored = self._stored(name, f"Connector {name} not found")
        self._refresh()
        stored = self._view.connectors.get(name, stored)
        if stored.target is not Initial.STOPPED or stored.tasks:
            raise ConnectError(
                400,
                "Connectors must be in the STOPPED state before their offsets can be modified."
                " This can be done for the specified connector by issuing a 'PUT' request to the"
                f" '/connectors/{name}/stop' endpoint",
            )
        return stored

    # -- plugins ------------------------------------------------------------------------------

    def plugins(self, *, connectors_only: bool) -> Sequence[Mapping[str, str]]:
        """MM2's three connectors; there is nothing else, whatever is asked for."""
        del connectors_only
        return plugins()

    def plugin_config(self, plugin: str, version: str | None) -> Sequence[Mapping[str, Any]]:
        """The definitions of its keys."""
        return definitions(plugin, version)

    def validate(self, plugin: str, config: Mapping[str, str | None]) -> Mapping[str, Any]:
        """What is wrong with a config, key by key."""
        return validate(plugin, config, self._worker)

    # -- loggers ------------------------------------------------------------------------------

    def loggers(self) -> Mapping[str, Mapping[str, Any]]:
        """All that are known."""
        return self._loggers.all()

    def logger(self, name: str) -> Mapping[str, Any]:
        """One of them."""
        return self._loggers.one(name)

    def set_level(
        self, name: str, level: str, *, cluster: bool, seconds: float | None = None
    ) -> Sequence[str]:
        """Change a level here, or by every worker."""
        self._loggers.check(level)
        if cluster:
            self._write([logger_entry(name, level)])
            return []
        return self._loggers.set_level(name, level, seconds=seconds)


def _info(stored: StoredConnector) -> ConnectorInfo:
    return ConnectorInfo(stored.name, stored.config, tuple(range(len(stored.tasks))), _type(stored))


def _type(stored: StoredConnector) -> str:
    """All of MM2's are sources; of others nobody knows."""
    known = connector_class(stored.config.get("connector.class", ""))
    return "source" if known is not None else "unknown"


def _task_status(task: int, said: StoredStatus) -> TaskStatus:
    return TaskStatus(task, said.state, said.worker_id, said.trace, said.version)


def _restarting(
    found: ConnectorStatus, *, include_tasks: bool, only_failed: bool
) -> ConnectorStatus:
    """The status as it is while what was asked for is restarted."""

    def concerned(state: State) -> bool:
        return not only_failed or state is State.FAILED

    tasks = tuple(
        TaskStatus(t.task, State.RESTARTING, t.worker_id, "", t.version)
        if include_tasks and concerned(t.state) else t
        for t in found.tasks
    )  # fmt: skip
    state = State.RESTARTING if concerned(found.state) else found.state
    trace = "" if state is State.RESTARTING else found.trace
    return ConnectorStatus(
        found.name, state, found.worker_id, tasks, trace, found.version, found.type
    )
