"""Answers Connect's REST API for the flows of an ``mm2.properties``. In the driver.

Each flow has the connectors that MM2 would run for it, named ``A->B.MirrorSourceConnector`` and so
on. Their configs come from the file, so nothing can be created, changed or deleted here. If the
file allows changes, connectors can be paused, resumed and restarted, until the mirror ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from heliograph import __version__
from heliograph.config import FlowConfig
from heliograph.config.secrets import redact
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
from heliograph.connect.connectors import KAFKA_VERSION, ConnectorClass, deal_out, plugins
from heliograph.connect.definitions import definitions
from heliograph.connect.loggers import Loggers
from heliograph.connect.states import connector_state, task_traces
from heliograph.failover.refusals import HandoverRefused
from heliograph.service.mirror import Mirror
from heliograph.service.snapshot import CHECKPOINTS, COPYING, FlowSnapshot, FlowState
from heliograph.service.supervisor import FlowSupervisor

__all__ = ["MirrorHerder"]

_KINDS = {kind.part: kind for kind in ConnectorClass}
#: Short enough that who pauses a connector does not wait to see it.
_FRESH_SECONDS = 0.1
_FROM_FILE = "The connectors of this mirror come from its file: change that instead"


class MirrorHerder:
    """The flows of a running mirror, as connectors. Thread-safe."""

    def __init__(
        self,
        mirror: Mirror,
        worker_id: Callable[[], str],
        *,
        changeable: bool = False,
        loggers: Loggers | None = None,
    ) -> None:
        self.changeable = changeable
        self._mirror = mirror
        self._worker_id = worker_id
        self._loggers = loggers if loggers is not None else Loggers(mirror)
        self._lock = threading.Lock()
        self._known: tuple[float, Sequence[FlowSnapshot]] = (float("-inf"), ())

    # -- which there are ----------------------------------------------------------------------

    def _all(self) -> Iterator[tuple[str, ConnectorClass, FlowSnapshot]]:
        for flow in self._flows():
            for part in flow.parts:
                kind = _KINDS[part]
                yield f"{flow.flow}.{kind.simple_name}", kind, flow

    def _flows(self) -> Sequence[FlowSnapshot]:
        """As they were a moment ago: a list of all connectors asks many times for each."""
        with self._lock:
            if time.monotonic() - self._known[0] > _FRESH_SECONDS:
                self._known = (time.monotonic(), self._mirror.snapshot().flows)
            return self._known[1]

    def _find(self, name: str, missing: str) -> tuple[ConnectorClass, FlowSnapshot]:
        for known, kind, flow in self._all():
            if known == name:
                return kind, flow
        raise ConnectError(404, missing)

    def _supervisor(self, name: str, missing: str) -> tuple[str, FlowSupervisor]:
        """The part that a connector is, and its flow's supervisor."""
        kind, flow = self._find(name, missing)
        try:
            return kind.part, self._mirror.supervisor(flow.flow)
        except KeyError:
            raise ConnectError(404, missing) from None

    # -- reading ------------------------------------------------------------------------------

    def server_info(self) -> Mapping[str, str]:
        """Of Kafka's version, since clients unlock features by it."""
        return {
            "version": KAFKA_VERSION,
            "commit": f"heliograph-{__version__}",
            "kafka_cluster_id": "",
        }

    def health(self) -> tuple[int, str, str]:
        """Healthy when every flow has started, or is known to have failed."""
        flows = self._flows()
        failed = [f.flow for f in flows if f.life.state is FlowState.FAILED]
        if flows and len(failed) == len(flows):
            return 500, "unhealthy", f"No flow runs: {', '.join(failed)}"
        if any(f.life.state is FlowState.STARTING for f in flows):
            return 503, "starting", "Worker is still starting up."
        return 200, "healthy", "Worker has completed startup and is ready to handle requests."

    def connectors(self) -> Sequence[str]:
        """One for each part of each flow."""
        return [name for name, _, _ in self._all()]

    def info(self, name: str) -> ConnectorInfo:
        """Its config is what the file says of the flow, without secrets."""
        kind, flow = self._find(name, f"Connector {name} not found")
        return ConnectorInfo(name, self._config(name, kind, flow), tuple(range(self._count(name))))

    def _config(self, name: str, kind: ConnectorClass, flow: FlowSnapshot) -> dict[str, str]:
        config = self._mirror.supervisor(flow.flow).config
        return {
            "name": name,
            "connector.class": kind.class_name,
            "source.cluster.alias": flow.source,
            "target.cluster.alias": flow.target,
            **_written(config),
        }

    def status(self, name: str) -> ConnectorStatus:
        """From the snapshot of the flow."""
        kind, flow = self._find(name, f"No status found for connector {name}")
        state, trace = connector_state(flow, kind.part)
        me = self._worker_id()
        count = self._count(name)
        traces = task_traces(flow, kind.part, count)
        tasks = tuple(
            TaskStatus(n, state, me, traces.get(n, trace if state is State.FAILED else ""),
                       KAFKA_VERSION)
            for n in range(count)
        )  # fmt: skip
        return ConnectorStatus(name, state, me, tasks, trace, KAFKA_VERSION)

    def _work(self, name: str) -> tuple[ConnectorClass, FlowSnapshot, FlowConfig, list[str]]:
        kind, flow = self._find(name, f"Connector {name} not found")
        work: list[str] = []
        if kind.part == COPYING:
            work = [p.name for p in flow.partitions]
        elif kind.part == CHECKPOINTS:
            work = [group.group for group in flow.groups]
        return kind, flow, self._mirror.supervisor(flow.flow).config, work

    def _count(self, name: str) -> int:
        kind, _, config, work = self._work(name)
        return 1 if kind is ConnectorClass.HEARTBEAT else min(config.tasks_max or 1, len(work))

    def tasks(self, name: str) -> Sequence[TaskInfo]:
        """What MM2 would have dealt out."""
        kind, flow, config, work = self._work(name)
        whole = self._config(name, kind, flow)
        dealt = deal_out(kind, whole, work, config.tasks_max or 1)
        return [TaskInfo(name, n, task) for n, task in enumerate(dealt)]

    def task_status(self, name: str, task: int) -> TaskStatus:
        """One of `status`."""
        missing = f"No status found for task {name}-{task}"
        self._find(name, missing)
        for status in self.status(name).tasks:
            if status.task == task:
                return status
        raise ConnectError(404, missing)

    def topics(self, name: str) -> Sequence[str]:
        """The remote topics of a source connector; nothing of the others."""
        for known, kind, flow in self._all():
            if known == name and kind is ConnectorClass.SOURCE:
                return sorted({t.target_topic for t in flow.topics})
        return []

    def offsets(self, name: str) -> Sequence[PartitionOffset]:
        """What was copied last of each partition."""
        kind, flow = self._find(name, f"Connector {name} not found")
        if kind is not ConnectorClass.SOURCE:
            return []
        return [
            PartitionOffset(
                {"cluster": flow.source, "partition": p.partition, "topic": p.topic},
                {"offset": p.position - 1},
            )
            for p in flow.partitions if p.position
        ]  # fmt: skip

    # -- changing -----------------------------------------------------------------------------

    def set_target(self, name: str, target: Initial) -> None:
        """Pause or resume a part of a flow."""
        part, supervisor = self._supervisor(name, f"Unknown connector {name}")
        if target is Initial.STOPPED:
            raise ConnectError(405, f"{_FROM_FILE}, or pause it")
        if target is Initial.PAUSED:
            supervisor.pause(part)
        else:
            try:
                supervisor.resume(part)
            except HandoverRefused as refused:
                raise ConnectError(409, str(refused)) from None

    def restart(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> ConnectorStatus | None:
        """Restart a part of a flow; without its tasks only if it failed."""
        part, supervisor = self._supervisor(name, f"Unknown connector: {name}")
        before = self.status(name)
        failed = before.state is State.FAILED
        if failed or (include_tasks and not only_failed):
            supervisor.restart(part)
        return before if include_tasks or only_failed else None

    def restart_task(self, name: str, task: int) -> None:
        """Restart the part: its tasks are one here."""
        part, supervisor = self._supervisor(name, f"Unknown connector: {name}")
        if not 0 <= task < self._count(name):
            raise ConnectError(404, f"Unknown task: {name}-{task}")
        supervisor.restart(part)

    def create(
        self, name: str, config: Mapping[str, str], initial: Initial | None
    ) -> ConnectorInfo:
        """Not here."""
        _refuse(name, config, initial)

    def put_config(self, name: str, config: Mapping[str, str]) -> tuple[bool, ConnectorInfo]:
        """Not here."""
        _refuse(name, config)

    def patch_config(self, name: str, patch: Mapping[str, str | None]) -> ConnectorInfo:
        """Not here."""
        _refuse(name, patch)

    def delete(self, name: str) -> None:
        """Not here."""
        _refuse(name)

    def reset_topics(self, name: str) -> None:
        """Not here."""
        _refuse(name)

    def alter_offsets(self, name: str, offsets: Sequence[PartitionOffset]) -> str:
        """Not here."""
        _refuse(name, offsets)

    def reset_offsets(self, name: str) -> str:
        """Not here."""
        _refuse(name)

    # -- plugins and loggers ------------------------------------------------------------------

    def plugins(self, *, connectors_only: bool) -> Sequence[Mapping[str, str]]:
        """MM2's three connectors."""
        del connectors_only
        return plugins()

    def plugin_config(self, plugin: str, version: str | None) -> Sequence[Mapping[str, Any]]:
        """The definitions of its keys."""
        return definitions(plugin, version)

    def validate(self, plugin: str, config: Mapping[str, str | None]) -> Mapping[str, Any]:
        """Not here: what a connector may do is a worker's matter."""
        _refuse(plugin, config)

    def loggers(self) -> Mapping[str, Mapping[str, Any]]:
        """All that are known."""
        return self._loggers.all()

    def logger(self, name: str) -> Mapping[str, Any]:
        """One of them."""
        return self._loggers.one(name)

    def set_level(
        self, name: str, level: str, *, cluster: bool, seconds: float | None = None
    ) -> Sequence[str]:
        """Change a level; there is one worker."""
        changed = self._loggers.set_level(name, level, seconds=seconds)
        return [] if cluster else changed


def _refuse(*_: object) -> NoReturn:
    raise ConnectError(405, _FROM_FILE)


def _written(config: FlowConfig) -> dict[str, str]:
    """What the file says of a flow and its clients, secrets hidden."""
    found = {
        name: redact(name, effective.value or "")
        for name, effective in config.effective.items() if effective.entry is not None
    }  # fmt: skip
    for client, values in config.client_effective.items():
        for name, effective in values.items():
            if effective.entry is not None:
                found[f"{client}.{name}"] = redact(name, effective.value or "")
    return found
