"""What the REST API answers for, without Kafka: connectors in memory, and the flows of a file."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from synthetic_failover import FailoverStage

from heliograph.config import MirrorMakerConfig
from heliograph.connect.api import Initial, State
from heliograph.connect.fold import Kind, StorageFold
from heliograph.connect.herder import ConnectHerder
from heliograph.connect.loggers import Loggers
from heliograph.connect.records import (
    StoredStatus,
    TopicUse,
    connector_entry,
    encode_key,
    offset_key,
    status_entry,
    target_entry,
    task_entries,
    task_status_entry,
    topic_entry,
)
from heliograph.connect.worker_config import WorkerConfig
from heliograph.failover.refusals import HandoverRefused
from heliograph.mm2.connect_json import encode_json
from heliograph.model import PartitionState
from heliograph.service.events import EventBus, FlowEvent
from heliograph.service.history import History
from heliograph.service.snapshot import (
    CHECKPOINTS,
    COPYING,
    HEARTBEATS,
    EngineSnapshot,
    EngineState,
    FlowSnapshot,
    FlowState,
    GroupDetails,
    GroupPartition,
    GroupSnapshot,
    JobSnapshot,
    Life,
    MirrorSnapshot,
    PartitionSnapshot,
    TopicSnapshot,
)

#: Nobody listens there: what would reach for a broker fails at once.
NOWHERE = "127.0.0.1:1"
WORKER = {
    "bootstrap.servers": NOWHERE,
    "group.id": "g",
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "statuses",
}
ARROW = "A->B.MirrorSourceConnector"
CONFIG = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": NOWHERE,
    "target.cluster.bootstrap.servers": NOWHERE,
    "topics": "orders",
}


class MemoryStorage:
    """As `heliograph.connect.storage.StorageTopics`; ``records`` is all that was written."""

    def __init__(self):
        self._lock = threading.Lock()
        self.clear()

    def clear(self):
        self._fold = StorageFold()
        self._fold.set_live()
        self.records = []

    @property
    def view(self):
        return self._fold.view

    def refresh(self): ...

    def take_requests(self):
        return self._fold.requests.take()

    def append_configs(self, entries):
        self._append(Kind.CONFIGS, [(encode_key(k), v) for k, v in entries])

    def append_statuses(self, entries):
        self._append(Kind.STATUSES, [(encode_key(k), v) for k, v in entries])

    def append_offsets(self, entries):
        self._append(Kind.OFFSETS, entries)

    def _append(self, kind, entries):
        with self._lock:
            for key, value in entries:
                encoded = None if value is None else encode_json(dict(value))
                self._fold.take(kind, len(self.records), key, encoded, len(self.records))
                self.records.append((kind, key, encoded))
            self._fold.publish(kind)


class StoredWorker:
    """``herder`` answers from ``storage``."""

    def __init__(self, **keys):
        self.config = WorkerConfig.from_mapping(WORKER | keys)
        self.storage = MemoryStorage()
        self.told = []
        #: Connectors whose flow is being handed over.
        self.handed_over = set()
        storage: Any = self.storage
        self.herder = ConnectHerder(
            self.config, storage, lambda: (200, "healthy", "ready"), Loggers(),
            self.told.append, self._refuse_to_resume,
        )  # fmt: skip

    def _refuse_to_resume(self, name):
        if name in self.handed_over:
            raise HandoverRefused("handover.open", f"{name} must not go on now", "end it")

    def seed(self):
        """Connectors of all kinds and states, nothing else."""
        self.storage.clear()
        write = self.storage.append_configs
        kinds = {"C": "Source", ARROW: "Source", "still": "Checkpoint", "beats": "Heartbeat"}
        for name, kind in kinds.items():
            config = CONFIG | {"connector.class": f"Mirror{kind}Connector", "name": name}
            write([connector_entry(name, config)])
            if name != "still":
                write(task_entries(name, [config | {"task.index": "0"}]))
        write([target_entry("still", Initial.STOPPED), target_entry(ARROW, Initial.STOPPED)])
        write(task_entries(ARROW, []))
        write([connector_entry("acme", {"connector.class": "com.acme.X", "name": "acme"})])
        said = self.storage.append_statuses
        running = StoredStatus(State.RUNNING, "w:8083", 1, "orders-0 failed: why", "4.3.1")
        said([status_entry("C", running), task_status_entry("C", 0, running)])
        said([status_entry("acme", StoredStatus(State.FAILED, "w:8083", 1, "not MM2's"))])
        said([topic_entry("C", "A.orders", TopicUse("A.orders", "C", 0, 1))])
        place = {"cluster": "A", "partition": 0, "topic": "orders"}
        self.storage.append_offsets(
            [(offset_key(name, place), {"offset": 3}) for name in ("C", ARROW)]
        )


class FileMirror:
    """As `heliograph.service.mirror.Mirror` with the flows of a file; commands do nothing.

    ``stage`` has what a failover finds.
    """

    def __init__(self, **keys):
        values = {
            "clusters": "A, B", "A.bootstrap.servers": NOWHERE, "B.bootstrap.servers": NOWHERE,
            "A->B.enabled": "true", "A->B.topics": "orders", **keys,
        }  # fmt: skip
        self._flows = {str(f.flow): f for f in MirrorMakerConfig.from_mapping(values).flows}
        self.events = EventBus()
        self.spark_level = "ERROR"
        self.events.publish(FlowEvent("A->B", "flow.running", "runs"))
        self.stage = FailoverStage()
        self.handovers = self.stage.handovers(self._flows.__getitem__, self.events)
        self.history = History(self.snapshot)
        self.history.sample(replace(self.snapshot(), at=time.time()))

    def set_spark_level(self, level):
        self.spark_level = level

    def supervisor(self, flow):
        def nothing(*_names, **_about): ...

        commands = ("pause", "resume", "restart", "pause_topics", "resume_topics")
        return SimpleNamespace(
            config=self._flows[flow], group=self._group, **dict.fromkeys(commands, nothing)
        )

    def _group(self, group):
        rows = {row.group: row for row in self.snapshot().flows[0].groups}
        return GroupDetails(
            "A->B", rows[group], (GroupPartition("orders", 0, "A.orders", 3, 4, 3),)
        )

    def snapshot(self):
        life = Life(FlowState.RUNNING, since=1.0)
        states = {PartitionState.IDLE: 0, PartitionState.FAILED: 3, PartitionState.STALLED: None}
        rows = [
            PartitionSnapshot(
                "orders", n, "A.orders", state, since=1.0, position=n, lag_records=lag
            )
            for n, (state, lag) in enumerate(states.items())
        ]
        flows = [
            FlowSnapshot(
                "A->B", "A", "B", life, dict.fromkeys((COPYING, CHECKPOINTS, HEARTBEATS), life),
                measured_at=5.0, topics=(TopicSnapshot("orders", "A.orders", 3, 3, 1.0, 2),),
                partitions=tuple(rows), states={"idle": 1, "failed": 1, "stalled": 1},
                jobs=(JobSnapshot("syncing configs", 60.0, error="no right"),),
                groups=(GroupSnapshot("billing", {"sync": "in use"}),),
            ),
            FlowSnapshot("B->A", "B", "A", Life(FlowState.FAILED, "no broker", "x"),
                         {HEARTBEATS: life}),
        ]  # fmt: skip
        engine = EngineSnapshot(EngineState.READY)
        return MirrorSnapshot(10.0, tuple(flows), engine, 1.0, self.events.sequence)
