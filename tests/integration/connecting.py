"""Workers of a Connect cluster in the test's process; leases are held by plain processes."""

from __future__ import annotations

import json
import uuid

from driving import PlainEngine
from mirroring import wait_for

from heliograph.connect.api import Initial
from heliograph.connect.worker import ConnectWorker
from heliograph.connect.worker_config import WorkerConfig
from heliograph.service import mirror as service


class Cluster:
    """A Connect cluster on B of a lab, with topics and a group of its own."""

    def __init__(self, lab, monkeypatch):
        monkeypatch.setattr(service, "Engine", PlainEngine)
        self.lab = lab
        self.name = f"connect-{uuid.uuid4().hex[:8]}"
        self.workers = []

    def config(self, **keys):
        values = {
            "bootstrap.servers": self.lab["B"].bootstrap,
            "group.id": self.name,
            "listeners": "http://127.0.0.1:0",
            **{f"{kind}.storage.topic": f"{self.name}-{kind}"
               for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": "1"
               for kind in ("config", "offset", "status")},
        }  # fmt: skip
        return WorkerConfig.from_mapping(values | keys)

    def start(self, **keys):
        """One more worker, as a member of the group."""
        worker = ConnectWorker(self.config(**keys))
        self.workers.append(worker)
        worker.start(f"127.0.0.1:{8083 + len(self.workers)}")
        wait_for(lambda: worker.herder.health()[0] == 200)
        return worker

    def stop(self, worker):
        self.workers.remove(worker)
        worker.close()

    def source(self, topics, **keys):
        """The config of a source connector from A to B."""
        return self.connector("MirrorSource", topics=topics, **keys)

    def connector(self, kind, **keys):
        return {
            "connector.class": f"org.apache.kafka.connect.mirror.{kind}Connector",
            "source.cluster.alias": "A",
            "target.cluster.alias": "B",
            "source.cluster.bootstrap.servers": self.lab["A"].bootstrap,
            "target.cluster.bootstrap.servers": self.lab["B"].bootstrap,
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "heartbeats.replication.enabled": "false",
            **{key.replace("_", "."): value for key, value in keys.items()},
        }

    def close(self):
        for worker in self.workers:
            worker.close()


def running(worker, name, state="RUNNING"):
    """Wait until a connector is in a state; returns its status."""
    herder = worker.herder

    def looked():
        found = herder._status(name)
        return found is not None and found.state == state and found

    return wait_for(looked)


def paused(worker, name):
    worker.herder.set_target(name, Initial.PAUSED)
    return running(worker, name, "PAUSED")


def plain(value):
    return json.loads(json.dumps(value, default=dict))
