"""Flow A->B of a configuration, driven by its control classes instead of a mirror."""

from __future__ import annotations

import uuid
from pathlib import Path

from mirroring import settings, wait_for

from heliograph.config import load
from heliograph.control.topics.config_sync import ConfigSync
from heliograph.control.topics.refresh import TopicRefresh
from heliograph.ledger.follower import LedgerFollower
from heliograph.ledger.memory import SyncedMemory
from heliograph.wire import admin, configs
from heliograph.wire.cluster import ClusterClient


class Pair:
    """The flow of a file, with clients of both clusters and a memory of its own."""

    def __init__(self, lab, folder: Path, **keys: str) -> None:
        text = [
            "clusters = A, B",
            f"A.bootstrap.servers = {lab['A'].bootstrap}",
            f"B.bootstrap.servers = {lab['B'].bootstrap}",
            "A->B.enabled = true",
            "B->A.emit.heartbeats.enabled = false",
            "replication.factor = 1",
            "offset-syncs.topic.replication.factor = 1",
            "heartbeats.topic.replication.factor = 1",
            "checkpoints.topic.replication.factor = 1",
            "heartbeats.replication.enabled = false",
            *(f"{key} = {value}" for key, value in keys.items()),
        ]
        self.path = folder / "mm2.properties"
        self.path.write_text("\n".join(text))
        self.config = next(f for f in load(self.path).flows if str(f.flow) == "A->B")
        self.source = ClusterClient(settings(lab, "A"), "test")
        self.target = ClusterClient(settings(lab, "B"), "test")
        self.topics = TopicRefresh(self.config, self.source, self.target)
        self.refresh = self.topics.refresh

    def close(self):
        self.source.close()
        self.target.close()

    # -- topics -------------------------------------------------------------------------------

    def create(self, client, name, partitions=1, configs=None):
        new = admin.NewTopic(name, partitions, 1, configs or {})
        assert admin.create_topics(client, [new], 30_000) == {}
        wait_for(lambda: self.count(client, name) == partitions)

    def delete(self, client, name):
        topic_id = client.metadata([name]).topics[name].topic_id
        assert admin.delete_topics(client, {topic_id: name}, 30_000) == {}
        wait_for(lambda: not self.count(client, name))

    @staticmethod
    def count(client, name):
        found = client.metadata([name]).topics.get(name)
        return len(found.partitions) if found else 0

    def mirrored(self, *topics):
        """The plan, once it has all of the topics."""
        return wait_for(lambda: (p := self.refresh()) and p.remote.keys() >= {*topics} and p)

    # -- configs ------------------------------------------------------------------------------

    def entries(self, client, name):
        return wait_for(lambda: configs.describe(client, [name]).found.get(name))

    def overrides(self, client, name):
        return {e.name: e.value for e in self.entries(client, name).values() if e.own}

    def alter(self, client, name, **values):
        """``retention_ms="1"`` sets retention.ms; None gives it back to the default."""
        wanted = {key.replace("_", "."): value for key, value in values.items()}
        assert configs.alter(client, {name: wanted}) == {}

        def seen():
            own = self.overrides(client, name)
            return all(own.get(key) == value for key, value in wanted.items())

        wait_for(seen)

    def remember_in(self, topic=None):
        """Topics of the flow are created with a memory from now on; returns its topic."""
        if topic is None:
            topic = f"memory-{uuid.uuid4().hex[:8]}"
            self.create(self.target, topic, 1, {"cleanup.policy": "compact"})
        self.topics = TopicRefresh(
            self.config, self.source, self.target, SyncedMemory(LedgerFollower(self.target, topic))
        )
        self.refresh = self.topics.refresh
        return topic

    def config_sync(self, memory_topic):
        """As a newly started process makes it."""
        memory = SyncedMemory(LedgerFollower(self.target, memory_topic))
        plan = self.refresh()
        return ConfigSync(self.config, self.source, self.target, memory, lambda: plan)
