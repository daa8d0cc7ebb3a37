"""The connectors that this worker runs: each is a part of a flow under a supervisor. In the driver.

`settle` compares what is stored and assigned with what runs, and changes what runs. It never waits
for a connector: one that ends is looked at again later. What becomes of connectors is written to
the status topic, their tasks to the config topic, as Connect's own workers do. So every worker can
answer for every connector, and a real worker finds all that it needs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.connect.api import Initial, State
from heliograph.connect.connectors import KAFKA_VERSION, ConnectorPlan, plan_connector
from heliograph.connect.fold import ConnectorsView, StoredConnector, StoredStatuses
from heliograph.connect.group import Assignment
from heliograph.connect.records import (
    Entry,
    RestartRequest,
    StoredStatus,
    TopicUse,
    status_entry,
    supersedes,
    task_entries,
    task_status_entry,
    topic_entry,
)
from heliograph.connect.states import connector_state, task_traces
from heliograph.connect.storage import StorageTopics
from heliograph.connect.worker_config import WorkerConfig
from heliograph.errors import HeliographError
from heliograph.failover.refusals import HandoverRefused
from heliograph.service.flow import PositionsStore
from heliograph.service.mirror import Mirror
from heliograph.service.snapshot import CHECKPOINTS, COPYING, FlowSnapshot, FlowState
from heliograph.service.supervisor import FlowSupervisor

__all__ = ["Fleet"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Connector:
    """A connector that is assigned to this worker."""

    name: str
    config: Mapping[str, str] = field(default_factory=dict)
    plan: ConnectorPlan | None = None
    #: Why there is no plan.
    error: str = ""
    supervisor: FlowSupervisor | None = None
    #: Its last supervisor, which is ending.
    ending: FlowSupervisor | None = None
    #: What its supervisor was last told to do; and whether somebody asks for the same again.
    told: Initial | None = None
    again: bool = False


class Fleet:
    """Runs connectors. `settle`, `restart` and `close` are called by one thread."""

    def __init__(
        self, worker: WorkerConfig, worker_id: str, mirror: Mirror, storage: StorageTopics
    ) -> None:
        self._worker = worker
        self._worker_id = worker_id
        self._mirror = mirror
        self._storage = storage
        self._mine: dict[str, _Connector] = {}
        self._generation = -1

    # -- what runs ----------------------------------------------------------------------------

    def settle(self, view: ConnectorsView, assignment: Assignment) -> None:
        """Make what runs what is stored and assigned, and write down what became of it."""
        self._generation = assignment.generation
        wanted = assignment.connectors & view.connectors.keys()
        for name in wanted - self._mine.keys():
            self._mine[name] = _Connector(name)
        for name in list(self._mine):
            connector = self._mine[name]
            if name in wanted:
                self._run(connector, view.connectors[name])
            else:
                self._retire(connector)
                if self._has_ended(connector):
                    del self._mine[name]
                    self._told_gone(name, view)
        self._tell(view, wanted)

    def _run(self, connector: _Connector, stored: StoredConnector) -> None:
        if connector.config != stored.config:
            self._configure(connector, stored)
        plan = connector.plan
        if plan is None or stored.target is Initial.STOPPED:
            self._retire(connector)
        elif connector.supervisor is None and self._has_ended(connector):
            connector.supervisor = self._mirror.launch(
                connector.name, plan.flow, [plan.part], admit=self._admit(connector),
                positions=PositionsStore(self._worker.client, plan.offsets_topic, connector.name),
                # Before it has begun: a paused connector has the tasks that it had before.
                paused=stored.target is Initial.PAUSED,
            )  # fmt: skip
        supervisor = connector.supervisor
        # Said once: a command makes what failed be tried at once.
        if supervisor is not None and (connector.told is not stored.target or connector.again):
            fresh = connector.told is None and not connector.again
            connector.told, connector.again = stored.target, False
            if stored.target is Initial.PAUSED:
                supervisor.pause()
            elif not fresh:
                # It runs from its launch on. What is held through its ledger is lifted by those who
                # resume it, not by a worker that starts.
                try:
                    supervisor.resume()
                except HandoverRefused as refused:
                    log.warning("%s: %s", connector.name, refused)
        self._has_ended(connector)

    def _configure(self, connector: _Connector, stored: StoredConnector) -> None:
        before, connector.config = connector.plan, stored.config
        try:
            connector.plan = plan_connector(stored.name, stored.config, self._worker)
            connector.error = ""
        except HeliographError as error:
            connector.plan, connector.error = None, str(error)
            return
        plan, running = connector.plan, connector.supervisor
        if running is None or before is None:
            return
        if plan.part == before.part and plan.flow.flow == before.flow.flow:
            running.reconfigure(plan.flow)
        else:
            self._retire(connector)

    def _retire(self, connector: _Connector) -> None:
        if connector.supervisor is not None:
            self._mirror.retire(connector.name)
            connector.ending, connector.supervisor = connector.supervisor, None
            connector.told = None

    @staticmethod
    def _has_ended(connector: _Connector) -> bool:
        """Whether what ran before has ended; two of one name would end each other's tasks."""
        if connector.ending is not None and connector.ending.join(0):
            connector.ending = None
        return connector.ending is None

    @property
    def unsettled(self) -> bool:
        """Whether something is ending: `settle` should be called again in a moment."""
        return any(c.ending is not None for c in self._mine.values())

    def supervisor(self, name: str) -> FlowSupervisor | None:
        """That of a connector which runs here."""
        connector = self._mine.get(name)
        return connector.supervisor if connector is not None else None

    def tell_again(self, name: str) -> None:
        """Somebody asks for the state that a connector is to be in already: he may be right."""
        connector = self._mine.get(name)
        if connector is not None:
            connector.again = True

    def refuse_to_resume(self, name: str) -> None:
        """Raise HandoverRefused if the flow of a connector that runs here is being handed over."""
        supervisor = self.supervisor(name)
        if supervisor is not None:
            supervisor.refuse_to_resume()

    def restart(self, request: RestartRequest) -> None:
        """Somebody has asked for a restart; not ours: another worker does it.

        A connector without its tasks has nothing to restart here, unless it failed.
        """
        connector = self._mine.get(request.name)
        if connector is None:
            return
        connector.config = {}  # a config that could not be used may be usable now
        supervisor = connector.supervisor
        if supervisor is None:
            return
        failed = supervisor.snapshot().life.state is FlowState.FAILED
        if failed:
            supervisor.restart()
        elif request.include_tasks and not request.only_failed:
            supervisor.restart(*supervisor.snapshot().parts)

    def close(self) -> None:
        """The worker ends, and its connectors have: say that nobody has them."""
        entries: list[Entry] = []
        for name, statuses in self._storage.view.statuses.items():
            for task, known in self._own(name, statuses):
                gone = StoredStatus(State.UNASSIGNED, self._worker_id, self._generation,
                                    version=known.version)  # fmt: skip
                entries.append(_entry(name, task, gone))
        self._storage.append_statuses(entries)
        self._mine.clear()

    def _own(
        self, name: str, statuses: StoredStatuses
    ) -> Iterator[tuple[int | None, StoredStatus]]:
        """What this worker has said last of a connector that it runs."""
        if name not in self._mine:
            return
        found = [(None, statuses.connector), *statuses.tasks.items()]
        for task, known in found:
            stopped = known is not None and known.state is State.STOPPED
            if known is not None and known.worker_id == self._worker_id and not stopped:
                yield task, known

    # -- what is said of it -------------------------------------------------------------------

    def _tell(self, view: ConnectorsView, wanted: Collection[str]) -> None:
        entries: list[Entry] = []
        for name in sorted(wanted):
            connector, stored = self._mine[name], view.connectors[name]
            snapshot = connector.supervisor.snapshot() if connector.supervisor else None
            tasks = self._tasks(connector, stored, snapshot)
            if tasks is not None and (not stored.consistent or tuple(tasks) != stored.tasks):
                self._storage.append_configs(task_entries(name, tasks))
            shown = tasks if tasks is not None else stored.tasks
            said = view.statuses.get(name, StoredStatuses())
            entries += self._statuses(connector, stored, snapshot, len(shown), said)
        self._storage.append_statuses(entries)

    def _tasks(
        self, connector: _Connector, stored: StoredConnector, snapshot: FlowSnapshot | None
    ) -> list[dict[str, str]] | None:
        """The configs of a connector's tasks; None if they cannot be known now."""
        if stored.target is Initial.STOPPED:
            return []
        plan = connector.plan
        # Heartbeats are measured by nobody.
        measured = snapshot is not None and snapshot.measured_at
        if plan is None or (plan.part in {COPYING, CHECKPOINTS} and not measured):
            return None
        names: Sequence[str] = ()
        if plan.part == COPYING and snapshot is not None:
            names = [p.name for p in snapshot.partitions]
        elif plan.part == CHECKPOINTS and snapshot is not None:
            names = [group.group for group in snapshot.groups]
        return plan.task_configs(names)

    def _statuses(
        self,
        connector: _Connector,
        stored: StoredConnector,
        snapshot: FlowSnapshot | None,
        tasks: int,
        said: StoredStatuses,
    ) -> Iterator[Entry]:
        """What differs from what was said of a connector and its tasks."""
        state, trace = _state(connector, stored, snapshot)
        name = connector.name
        now = StoredStatus(state, self._worker_id, self._generation, trace, KAFKA_VERSION)
        if not _same(now, said.connector) and supersedes(now, said.connector):
            yield status_entry(name, now)
        of_task = State.PAUSED if state is State.STOPPED else state
        traces: Mapping[int, str] = {}
        if snapshot is not None and connector.plan is not None:
            traces = task_traces(snapshot, connector.plan.part, tasks)
        for task in range(tasks):
            why = traces.get(task, trace if state is State.FAILED else "")
            own = StoredStatus(of_task, self._worker_id, self._generation, why, KAFKA_VERSION)
            known = said.tasks.get(task)
            if not _same(own, known) and supersedes(own, known):
                yield task_status_entry(name, task, own)
        for task in said.tasks:
            if task >= tasks:
                yield task_status_entry(name, task, None)

    def _told_gone(self, name: str, view: ConnectorsView) -> None:
        """A connector is another worker's now, or it was deleted."""
        if name in view.connectors:
            return
        said = view.statuses.get(name, StoredStatuses())
        entries = [task_status_entry(name, task, None) for task in said.tasks]
        entries.append(status_entry(name, None))
        entries += [topic_entry(name, topic, None) for topic in view.topics(name)]
        self._storage.append_statuses(entries)

    # -- topics -------------------------------------------------------------------------------

    def _admit(self, connector: _Connector) -> Callable[[Mapping[str, str]], Mapping[str, str]]:
        """Which topics other connectors had first: those are theirs.

        Connect's own record of the topics that a connector has used decides: the oldest counts. It
        is written before anything is copied, and read back, so all workers decide alike.
        """

        def admit(remote: Mapping[str, str]) -> Mapping[str, str]:
            plan = connector.plan
            if plan is None or plan.part != COPYING:
                return {}
            view = self._storage.view
            used = view.topics(connector.name)
            now = int(time.time() * 1000)
            new = [
                topic_entry(connector.name, topic, TopicUse(topic, connector.name, 0, now))
                for topic in remote.values() if topic not in used
            ]  # fmt: skip
            if new:
                self._storage.append_statuses(new)
                self._storage.refresh()
                view = self._storage.view
            return self._refused(connector, plan, remote, view)

        return admit

    def _refused(
        self,
        connector: _Connector,
        plan: ConnectorPlan,
        remote: Mapping[str, str],
        view: ConnectorsView,
    ) -> dict[str, str]:
        rivals = [
            # Also one that is stopped: its offsets may be about to be changed.
            name for name, stored in view.connectors.items()
            if name != connector.name and plan.meets(stored.config)
        ]  # fmt: skip
        mine, refused = view.topics(connector.name), {}
        for topic, name in remote.items():
            own = mine.get(name)
            for rival in rivals:
                use = view.topics(rival).get(name)
                if use is None or own is None:
                    continue
                if (use.since_ms, rival) < (own.since_ms, connector.name):
                    refused[topic] = (
                        f"topic {topic} is mirrored by connector {rival}, which had it first; take"
                        " it out of the topics of one of the two"
                    )
                    break
        return refused


def _state(
    connector: _Connector, stored: StoredConnector, snapshot: FlowSnapshot | None
) -> tuple[State, str]:
    """The state of a connector, and why it fails or what of it fails."""
    if connector.plan is None:
        return State.FAILED, connector.error
    if stored.target is Initial.STOPPED:
        return (State.STOPPED if connector.ending is None else State.UNASSIGNED), ""
    if snapshot is None:
        return State.UNASSIGNED, ""
    return connector_state(snapshot, connector.plan.part)


def _same(now: StoredStatus, said: StoredStatus | None) -> bool:
    """Whether it need not be said again; a new generation alone is no news."""
    return said is not None and (now.state, now.trace, now.worker_id, now.version) == (
        said.state, said.trace, said.worker_id, said.version,
    )  # fmt: skip


def _entry(name: str, task: int | None, status: StoredStatus) -> Entry:
    return status_entry(name, status) if task is None else task_status_entry(name, task, status)
