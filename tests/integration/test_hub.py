"""Two flows into one topic, as with identity names: a group skips nothing of either."""

from __future__ import annotations

import random
import time
import uuid

import pytest
from mirroring import Mirroring, wait_for
from sources import numbered

from heliograph.config import load
from heliograph.control.groups.checkpoints import CheckpointEmitter
from heliograph.control.groups.offset_sync import GroupOffsetSync
from heliograph.control.groups.shared_partitions import FlowMeeting
from heliograph.control.groups.translated import GroupTranslation
from heliograph.control.topics.refresh import TopicPlan
from heliograph.copy.loop import CopyLoop
from heliograph.lab.proof import read_all
from heliograph.ledger.codec import Signature
from heliograph.ledger.store import LedgerStore
from heliograph.mm2.checkpoints import CheckpointLog
from heliograph.model import Flow, Lease, LeasedPartition, TopicPartition
from heliograph.policy import DefaultGroupFilter, ledger_topic, policy_from
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.groups import Committed, GroupClient

GROUP = "app"


def create(client, *names, **configs):
    new = [admin.NewTopic(name, 1, 1, {k.replace("_", "."): v for k, v in configs.items()})
           for name in names]  # fmt: skip
    assert admin.create_topics(client, new, 30_000) == {}
    for name in names:
        wait_for(lambda name=name: client.metadata([name]).leader(name, 0) >= 0)


class Spoke:
    """A flow from a topic of A, under an alias of its own, to the hub's topic on B."""

    def __init__(self, lab, folder, hub, group):
        self.alias = f"S{uuid.uuid4().hex[:8]}"
        self.hub, self.group = hub, group
        self.here = TopicPartition(f"{hub}-{self.alias}", 0)
        flow, ledger = Flow(self.alias, "B"), ledger_topic(self.alias)
        self.flow = Mirroring.of(lab, flow=flow, ledger_topic=ledger)
        path = folder / f"{self.alias}.properties"
        path.write_text(
            f"clusters = {self.alias}, B\n{self.alias}->B.enabled = true\n"
            f"{self.alias}.bootstrap.servers = {lab['A'].bootstrap}\n"
            f"B.bootstrap.servers = {lab['B'].bootstrap}\n"
            "replication.policy.class ="
            " org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
        )
        config = next(f for f in load(path).flows if f.flow == flow)
        policy = policy_from(config)
        self.checkpoints = policy.checkpoints_topic(self.alias)
        create(self.flow.source, self.here.topic, retention_ms="-1")
        create(self.flow.target, ledger, self.checkpoints, cleanup_policy="compact")
        signature = Signature(self.flow.context.producer_id, "a", "b")
        LedgerStore(self.flow.target, ledger).sign(signature)
        self._clients = [ClusterClient(self.flow.context.target, "test-hub") for _ in range(3)]
        one, two, three = self._clients
        self.groups = GroupClient(self.flow.source)
        translation = GroupTranslation(
            self.groups, one, LedgerStore(one, ledger), self.plan,
            DefaultGroupFilter([group], []), 0.0,
        )  # fmt: skip
        self.emitter = CheckpointEmitter(
            flow, translation, CheckpointLog(two, self.checkpoints), self.plan, policy,
            young_seconds=0.0, prune_seconds=0.0,
        )  # fmt: skip
        self.sync = GroupOffsetSync(
            flow,
            translation,
            GroupClient(three),
            0.0,
            FlowMeeting(config, three, LedgerStore(three, ledger)),
        )
        self.written = 0

    def plan(self):
        here = self.flow.source.metadata([self.here.topic])
        there = self.flow.target.metadata([self.hub.topic])
        return TopicPlan({self.here: self.hub.topic}, {}, here, there)

    def write(self, count):
        values = numbered(self.written + count, self.alias)[self.written :]
        self.flow.write(self.here.topic, values)
        self.written += count

    def copy(self):
        now = time.time()
        leased = LeasedPartition(self.here, self.hub.topic, self.written)
        [receipt] = CopyLoop(Lease(self.flow.context, (leased,), now, now + 60)).run()
        assert not receipt.error
        assert receipt.source_position == self.written

    def commit(self, offset):
        def done():
            answers = self.groups.commit({self.group: {self.here: Committed(offset)}})
            return not answers.errors and not any(answers.found[self.group].values())

        wait_for(done)

    def said(self):
        return self.sync.details()[self.group]

    def close(self):
        self.flow.close()
        for client in self._clients:
            client.close()


class Hub:
    """Two spokes, and the group on B."""

    def __init__(self, lab, folder, topic):
        self.at = TopicPartition(topic, 0)
        self.group = f"{GROUP}-{uuid.uuid4().hex[:8]}"
        self.spokes = self.x, self.y = [Spoke(lab, folder, self.at, self.group) for _ in range(2)]
        create(self.x.flow.target, topic, retention_ms="-1")
        self._groups = GroupClient(self.x.flow.target)
        for groups in (self._groups, self.x.groups):
            # A cluster makes itself ready for groups only when it is asked for one.
            wait_for(lambda groups=groups: not groups.states([self.group]).errors)

    def synced(self):
        """A cycle of every job; then the group's offset on the hub."""
        for spoke in self.spokes:
            spoke.emitter.emit()
        for spoke in self.spokes:
            spoke.sync.sync()
        return self.offset()

    def offset(self):
        answers = self._groups.committed([self.group])
        assert not answers.errors
        found = answers.found[self.group].get(self.at)
        return found.offset if found else None

    def values(self):
        return [r.value.decode() for r in read_all(self.x.flow.target, self.at)]

    def close(self):
        for spoke in self.spokes:
            spoke.close()


@pytest.fixture
def hub(lab, tmp_path, topic_name):
    made = Hub(lab, tmp_path, topic_name)
    yield made
    made.close()


def test_the_group_goes_on_with_the_first_record_that_it_has_not_read(hub):
    x, y = hub.spokes
    for spoke in hub.spokes:
        spoke.write(520)
        spoke.copy()
        spoke.commit(300)
    assert hub.synced() == 300
    held = f"{hub.at} is held at 300: {x.alias}->B goes on there with what it has not read"
    assert y.said().endswith(held)
    assert x.said() in {"synced 1 partition", "1 partition in step"}
    # All of X is read: what follows of Y decides.
    x.commit(520)
    assert hub.synced() == 820
    y.commit(520)
    assert hub.synced() == 1040
    assert [s.said() for s in hub.spokes] == ["synced 1 partition", "1 partition in step"]


def test_of_a_flow_without_a_checkpoint_nothing_is_skipped(hub):
    x, y = hub.spokes
    for spoke in hub.spokes:
        spoke.write(10)
        spoke.copy()
    x.commit(4)
    assert hub.synced() == 4
    x.commit(10)
    assert hub.synced() == 10
    held = f"{y.alias}->B writes to it too, and {y.checkpoints} says nothing of this group"
    x.write(10)
    x.copy()
    x.commit(20)
    assert hub.synced() == 10
    assert x.said().endswith(f"{hub.at} is held at 10: {held}")


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_order_records_and_commits_come_in(hub, seed):
    rng = random.Random(seed)
    position = dict.fromkeys((s.alias for s in hub.spokes), 0)
    for spoke in hub.spokes:
        spoke.write(3)
        spoke.copy()
    for _ in range(8):
        spoke = rng.choice(hub.spokes)
        if rng.random() < 0.6:
            spoke.write(rng.randint(1, 9))
            if rng.random() < 0.8:
                spoke.copy()
        for one in hub.spokes:
            if rng.random() < 0.7:
                position[one.alias] = rng.randint(position[one.alias], one.written)
                one.commit(position[one.alias])
        before = hub.offset()
        now = hub.synced()
        there = [value.rsplit("-", 1) for value in hub.values()]
        unread = [n for n, (who, number) in enumerate(there) if int(number) >= position[who]]
        wanted = unread[0] if unread else len(there)
        assert now == max(wanted, before or 0) or (now is None and not any(position.values()))
