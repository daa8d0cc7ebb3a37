"""What Connect's REST API asks of whoever answers it, and the values that it shows. Pure.

`heliograph.rest` turns requests into calls of a `Herder`. `heliograph.connect.herder` answers for
the connectors of a worker file, `heliograph.connect.mirror_herder` for the flows of an
``mm2.properties``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

__all__ = [
    "ConnectError",
    "ConnectorInfo",
    "ConnectorStatus",
    "Herder",
    "Initial",
    "PartitionOffset",
    "State",
    "TaskInfo",
    "TaskStatus",
]


class ConnectError(Exception):
    """An answer other than success: an HTTP status, and the message that clients show or parse."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class State(StrEnum):
    """What Connect's clients know; they break on any other word. Tasks are never STOPPED."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"


class Initial(StrEnum):
    """The target states of a connector; also ``initial_state`` of a new one."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class ConnectorInfo:
    """A connector: its config as it was given, templates unresolved; the numbers of its tasks."""

    name: str
    config: Mapping[str, str]
    tasks: tuple[int, ...] = ()
    type: str = "source"


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task and its config."""

    connector: str
    task: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """``trace`` says why it failed, or what of it fails; empty if nothing does."""

    task: int
    state: State
    worker_id: str
    trace: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """A connector and its tasks, by number."""

    name: str
    state: State
    worker_id: str
    tasks: tuple[TaskStatus, ...] = ()
    trace: str = ""
    version: str = ""
    type: str = "source"


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """A source partition and the offset that was copied last; None resets it."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None = field(default=None)


class Herder(Protocol):
    """Answers for connectors. Thread-safe. Every method may raise `ConnectError`.

    Methods that change something return when the change is written to Kafka, not when it has its
    effect. ``changeable`` is False where only the reading methods work.
    """

    changeable: bool

    def server_info(self) -> Mapping[str, str]:
        """``version`` (a Kafka version), ``commit``, ``kafka_cluster_id``."""

    def health(self) -> tuple[int, str, str]:
        """HTTP status (200, 500, 503), ``status`` (healthy, starting, unhealthy) and a message."""

    def connectors(self) -> Sequence[str]:
        """The names of all connectors."""

    def info(self, name: str) -> ConnectorInfo:
        """404 `Connector C not found`."""

    def status(self, name: str) -> ConnectorStatus:
        """404 `No status found for connector C`."""

    def create(
        self, name: str, config: Mapping[str, str], initial: Initial | None
    ) -> ConnectorInfo:
        """A new connector; 400 for an invalid config, then 409 if there is one of that name."""

    def put_config(self, name: str, config: Mapping[str, str]) -> tuple[bool, ConnectorInfo]:
        """Create it or replace its config; returns whether it is new."""

    def patch_config(self, name: str, patch: Mapping[str, str | None]) -> ConnectorInfo:
        """Merge into its config; None removes a key."""

    def delete(self, name: str) -> None:
        """404 `Connector C not found`."""

    def set_target(self, name: str, target: Initial) -> None:
        """Pause, resume or stop; 404 `Unknown connector C`."""

    def restart(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> ConnectorStatus | None:
        """The status with what is restarted as RESTARTING if one of the flags is set, else None."""

    def tasks(self, name: str) -> Sequence[TaskInfo]:
        """By number."""

    def task_status(self, name: str, task: int) -> TaskStatus:
        """404 `No status found for task C-N`."""

    def restart_task(self, name: str, task: int) -> None:
        """404 `Unknown connector: C` / `Unknown task: C-N`."""

    def topics(self, name: str) -> Sequence[str]:
        """Topics that the connector has written to; empty for an unknown connector."""

    def reset_topics(self, name: str) -> None:
        """Forget them; 403 if that is disabled."""

    def offsets(self, name: str) -> Sequence[PartitionOffset]:
        """What was copied last of each partition."""

    def alter_offsets(self, name: str, offsets: Sequence[PartitionOffset]) -> str:
        """Only of a STOPPED connector; returns the message of success."""

    def reset_offsets(self, name: str) -> str:
        """Only of a STOPPED connector; returns the message of success."""

    def plugins(self, *, connectors_only: bool) -> Sequence[Mapping[str, str]]:
        """``class``, ``type``, ``version`` of each."""

    def plugin_config(self, plugin: str, version: str | None) -> Sequence[Mapping[str, Any]]:
        """The definitions of its keys; 404 `Unknown plugin P.`."""

    def validate(self, plugin: str, config: Mapping[str, str | None]) -> Mapping[str, Any]:
        """Connect's ConfigInfos; 400 if the config names another class."""

    def loggers(self) -> Mapping[str, Mapping[str, Any]]:
        """``{name: {level, last_modified}}``; the root's name is ``root``."""

    def logger(self, name: str) -> Mapping[str, Any]:
        """404 `Logger L not found.`."""

    def set_level(
        self, name: str, level: str, *, cluster: bool, seconds: float | None = None
    ) -> Sequence[str]:
        """The names of the loggers that it changes here; with ``cluster`` every worker does it.

        ``seconds``: for so long; only without ``cluster``.
        """
