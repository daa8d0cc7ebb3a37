"""Flows have lives of their own: started, paused, changed and stopped alone.

All of the driver but Spark: leases are held by plain processes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from driving import PlainEngine
from mirroring import settings, wait_for

from heliograph.config import MirrorMakerConfig
from heliograph.errors import StartError
from heliograph.lab.proof import read_all
from heliograph.model import TopicPartition
from heliograph.service import mirror as service
from heliograph.service.snapshot import CHECKPOINTS, COPYING, HEARTBEATS, FlowState
from heliograph.service.supervisor import FlowSupervisor
from heliograph.wire.cluster import ClusterClient

FIRST, SECOND, AWAY = "A1->B", "A2->B", "A3->B"
EXAMPLE = Path(__file__).parents[2] / "docs/examples/embedding.py"


class Flows:
    """Flows from A, under several aliases, to B; each with topics of its own."""

    def __init__(self, lab, mirroring, stem):
        self._lab, self._mirroring, self._stem = lab, mirroring, stem
        self.mirror: service.Mirror | None = None
        self._aliases: set[str] = set()

    def config(self, *aliases: str, **keys: str) -> MirrorMakerConfig:
        self._aliases.update(aliases)
        values = {
            "clusters": f"B, {', '.join(aliases)}",
            "B.bootstrap.servers": self._lab["B"].bootstrap,
            "heartbeats.replication.enabled": "false",
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "refresh.topics.interval.seconds": "1",
            "heliograph.lease.seconds": "5",
        }
        for alias in aliases:
            values[f"{alias}.bootstrap.servers"] = self._lab["A"].bootstrap
            values[f"{alias}->B.enabled"] = "true"
            values[f"{alias}->B.topics"] = f"{self._stem}-{alias}.*"
        return MirrorMakerConfig.from_mapping(values | keys)

    def start(self, *aliases: str, **keys: str) -> service.Mirror:
        self.mirror = service.Mirror(self.config(*aliases, **keys))
        self.mirror.start()
        return self.mirror

    def create(self, alias: str, more: str = "") -> str:
        name = f"{self._stem}-{alias}{more}"
        self._mirroring.create(name)
        return name

    def write(self, topic: str, *values: bytes) -> None:
        self._mirroring.write(topic, values)

    def mirrored(self, alias: str, topic: str) -> list[bytes | None]:
        remote = f"{alias}.{topic}"
        if remote not in self._mirroring.target.metadata([remote]).topics:
            return []
        return [r.value for r in read(self._mirroring.target, remote)]

    def await_values(self, alias: str, topic: str, *values: bytes) -> None:
        wait_for(lambda: self.mirrored(alias, topic) == list(values))

    def life(self, flow: str, part: str | None = None):
        found = self.mirror.snapshot().flow(flow)
        return found.life if part is None else found.parts[part]

    def state(self, flow: str, part: str | None = None) -> FlowState:
        return self.life(flow, part).state


def read(client, topic):
    return read_all(client, TopicPartition(topic, 0))


@pytest.fixture
def flows(lab, mirroring, topic_name, monkeypatch):
    monkeypatch.setattr(service, "Engine", PlainEngine)
    made = Flows(lab, mirroring, topic_name)
    yield made
    if made.mirror is not None:
        made.mirror.close()
    with ClusterClient(settings(lab, "B"), "t") as target:
        # Other tests see all ledgers of the target cluster.
        for alias in made._aliases:
            mirroring.delete(target, f"mm2-ledger.{alias}.internal")


def _await_counted(mirror, flow, partition, records):
    """What /metrics is made of: counted by tasks, as the partition and as the flow."""

    def counted():
        found = mirror.snapshot().flow(flow)
        copies = found.copies.get(partition)
        return copies is not None and found if found.counts.records >= records else None

    found = wait_for(counted)
    assert found.copies[partition].counts.records == records
    assert found.copies[partition].latency.greatest > 0
    assert found.owns
    wait_for(lambda: mirror.snapshot().flow(flow).progressed_at)
    wait_for(lambda: mirror.snapshot().flow(flow).ledger_end)


def test_a_flow_is_paused_resumed_and_restarted_and_the_other_does_not_notice(flows):
    one, two = flows.create("A1"), flows.create("A2")
    mirror = flows.start("A1", "A2")
    flows.write(one, b"1")
    flows.write(two, b"1")
    flows.await_values("A1", one, b"1")
    flows.await_values("A2", two, b"1")
    supervisor = mirror.supervisor(FIRST)
    supervisor.pause(COPYING)
    supervisor.pause(COPYING)
    wait_for(lambda: flows.state(FIRST, COPYING) is FlowState.PAUSED)
    assert flows.state(FIRST, HEARTBEATS) is FlowState.RUNNING
    assert flows.state(FIRST, CHECKPOINTS) is FlowState.RUNNING
    flows.write(one, b"2")
    flows.write(two, b"2")
    flows.await_values("A2", two, b"1", b"2")
    assert flows.mirrored("A1", one) == [b"1"]
    _await_counted(mirror, SECOND, TopicPartition(two, 0), records=2)
    # What is paused is measured on.
    wait_for(lambda: mirror.snapshot().flow(FIRST).lag_records == 1)
    supervisor.resume(COPYING)
    flows.await_values("A1", one, b"1", b"2")
    supervisor.restart()
    supervisor.restart(COPYING)
    flows.write(one, b"3")
    flows.await_values("A1", one, b"1", b"2", b"3")
    assert flows.state(SECOND) is FlowState.RUNNING
    changes = [p.event.code for p in mirror.events.history() if p.event.flow == SECOND]
    assert not {"flow.paused", "flow.restarted", "flow.failed"} & set(changes)


def test_a_topic_is_paused_and_the_others_of_its_flow_go_on(flows):
    one, other = flows.create("A1"), flows.create("A1", "-other")
    mirror = flows.start("A1")
    flows.write(one, b"1")
    flows.write(other, b"1")
    flows.await_values("A1", one, b"1")
    flows.await_values("A1", other, b"1")
    supervisor = mirror.supervisor(FIRST)

    def reasons():
        return {p.topic: p.reason for p in mirror.snapshot().flow(FIRST).partitions}

    supervisor.pause_topics(one)
    wait_for(lambda: reasons()[one] == "its topic is paused")
    flows.write(one, b"2")
    flows.write(other, b"2")
    flows.await_values("A1", other, b"1", b"2")
    assert flows.mirrored("A1", one) == [b"1"]
    supervisor.resume_topics(one)
    flows.await_values("A1", one, b"1", b"2")


def test_a_cluster_that_is_down_holds_back_its_own_flow_only(flows):
    one = flows.create("A1")
    keys = {"A3.bootstrap.servers": "127.0.0.1:1"}
    mirror = flows.start("A1", "A3", **keys)
    flows.write(one, b"1")
    flows.await_values("A1", one, b"1")
    life = flows.life(AWAY, COPYING)
    assert (life.state, life.code) == (FlowState.FAILED, "cluster.unreachable")
    assert life.next_try > life.since
    # Its target is there, so that heartbeats say that the mirror is alive.
    assert flows.state(AWAY, HEARTBEATS) is FlowState.RUNNING
    three = flows.create("A3")
    flows.write(three, b"1")
    mirror.reconfigure(flows.config("A1", "A3"))
    flows.await_values("A3", three, b"1")
    wait_for(lambda: flows.state(AWAY) is FlowState.RUNNING)


def test_a_file_of_which_nothing_can_start_is_an_error(flows):
    keys = {"A3.bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(StartError, match=r"cluster\.unreachable"):
        flows.start("A3", **keys)


def test_a_changed_configuration_is_taken_over(flows):
    one, more, two = flows.create("A1"), flows.create("A1", "-more"), flows.create("A2")
    only = {"A1->B.topics": one}
    mirror = flows.start("A1", **only)
    for topic in (one, more, two):
        flows.write(topic, b"1")
    flows.await_values("A1", one, b"1")
    assert mirror.reconfigure(flows.config("A1", **only)) == []
    # A topic more, which disturbs nobody, and another flow.
    assert sorted(mirror.reconfigure(flows.config("A1", "A2"))) == [
        "A1->A2: new; it is started", "A1->B: changed topics", "A2->A1: new; it is started",
        "A2->B: new; it is started", "B->A2: new; it is started",
    ]  # fmt: skip
    flows.await_values("A1", more, b"1")
    flows.await_values("A2", two, b"1")
    # A topic less: what is written to it stays where it is.
    other = {"A1->B.topics": more}

    def taken_over():
        """How often the flow has gone on with another configuration, its old leases ended."""
        events = [p.event for p in mirror.events.history()]
        return sum(e.code == "flow.reconfigured" and e.flow == FIRST for e in events)

    wait_for(lambda: taken_over() == 1)
    mirror.reconfigure(flows.config("A1", "A2", **other))
    wait_for(lambda: taken_over() == 2)
    wait_for(lambda: [t.topic for t in mirror.snapshot().flow(FIRST).topics] == [more])
    flows.write(one, b"2")
    flows.write(more, b"2")
    flows.await_values("A1", more, b"1", b"2")
    assert flows.mirrored("A1", one) == [b"1"]
    # Everything back; the flow that is gone has ended.
    mirror.reconfigure(flows.config("A1"))
    flows.await_values("A1", one, b"1", b"2")
    assert mirror.snapshot().flow(SECOND) is None


def test_several_flows_share_a_pair_of_clusters_with_topics_of_their_own(flows):
    one, two = flows.create("A1", "-one"), flows.create("A1", "-two")
    mirror = flows.start("A1", **{"A1->B.topics": one})
    config = flows.config("A1", **{"A1->B.topics": two})
    [flow] = [f for f in config.flows if str(f.flow) == FIRST]
    team = FlowSupervisor(flow, mirror._services, name="team, two")
    mirror._supervisors[team.name] = team
    team.start()
    for topic in (one, two):
        flows.write(topic, b"1")
    flows.await_values("A1", one, b"1")
    flows.await_values("A1", two, b"1")
    wait_for(lambda: flows.state("team, two", COPYING) is FlowState.RUNNING)
    assert flows.state(FIRST) is FlowState.RUNNING
    team.pause()
    wait_for(lambda: flows.state("team, two") is FlowState.PAUSED)
    flows.write(one, b"2")
    flows.await_values("A1", one, b"1", b"2")


def test_the_example_of_an_embedded_mirror(lab, mirroring, topic_name, tmp_path):
    """With Spark, as people run it."""
    mirroring.create(topic_name)
    mirroring.write(topic_name, [b"1", b"2", b"3"])
    path = tmp_path / "mm2.properties"
    values = {
        "clusters": "E, B",
        "E.bootstrap.servers": lab["A"].bootstrap,
        "B.bootstrap.servers": lab["B"].bootstrap,
        "E->B.enabled": "true",
        "E->B.topics": topic_name,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
    }
    path.write_text("\n".join(f"{key} = {value}" for key, value in values.items()))
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("records behind: 0\nin step\n")
    assert [r.value for r in read(mirroring.target, f"E.{topic_name}")] == [b"1", b"2", b"3"]
