"""Connect mode without HTTP: connectors stored in Kafka, run by workers that share them."""

from __future__ import annotations

import pytest
from connecting import Cluster, paused, running
from mirroring import Mirroring, wait_for
from sources import numbered

from heliograph.connect.api import ConnectError, Initial, PartitionOffset
from heliograph.lab.proof import read_all
from heliograph.model import TopicPartition
from heliograph.wire import admin


@pytest.fixture
def cluster(lab, monkeypatch):
    made = Cluster(lab, monkeypatch)
    yield made
    made.close()


@pytest.fixture
def source(lab):
    """Topics and records on A."""
    made = Mirroring.of(lab)
    yield made
    made.close()


def _values(source, remote):
    return [r.value for r in read_all(source.target, TopicPartition(remote, 0))]


def _make(source, topic, values):
    new = admin.NewTopic(topic, 1, 1, {"retention.ms": "-1"})
    assert not admin.create_topics(source.source, [new], 30_000)
    source.await_topic(source.source, topic, 1)
    source.write(topic, values)


def test_a_connector_lives_and_its_offsets_are_changed(cluster, source, topic_name):
    values = numbered(100)
    _make(source, topic_name, values)
    worker = cluster.start()
    herder = worker.herder
    info = herder.create("mirror", cluster.source(topic_name, tasks_max="2"), None)
    assert info.config["name"] == "mirror" and info.tasks == ()
    remote = f"A.{topic_name}"
    running(worker, "mirror")
    wait_for(lambda: remote in source.target.metadata([remote]).topics)
    wait_for(lambda: _values(source, remote) == values)
    assert herder.topics("mirror") == [remote]
    [task] = wait_for(lambda: herder.tasks("mirror"))
    assert task.config["task.assigned.partitions"] == f"{topic_name}-0"
    place = {"cluster": "A", "partition": 0, "topic": topic_name}
    wait_for(lambda: herder.offsets("mirror") == [PartitionOffset(place, {"offset": 99})])

    with pytest.raises(ConnectError, match="must be in the STOPPED state"):
        herder.reset_offsets("mirror")
    paused(worker, "mirror")
    source.write(topic_name, [b"later"])
    herder.set_target("mirror", Initial.STOPPED)
    running(worker, "mirror", "STOPPED")
    assert herder.tasks("mirror") == [] and herder.status("mirror").tasks == ()
    herder.alter_offsets("mirror", [PartitionOffset(place, {"offset": 89})])
    herder.set_target("mirror", Initial.RUNNING)
    wait_for(lambda: _values(source, remote) == [*values, *values[90:], b"later"])
    wait_for(lambda: herder.offsets("mirror") == [PartitionOffset(place, {"offset": 100})])

    herder.set_target("mirror", Initial.STOPPED)
    running(worker, "mirror", "STOPPED")
    herder.reset_offsets("mirror")
    assert herder.offsets("mirror") == []
    herder.set_target("mirror", Initial.RUNNING)
    whole = [*values, b"later"]
    wait_for(lambda: _values(source, remote)[-101:] == whole)
    assert len(_values(source, remote)) == 111 + 101

    herder.delete("mirror")
    assert herder.connectors() == []
    wait_for(lambda: herder._status("mirror") is None)
    with pytest.raises(ConnectError, match="Connector mirror not found"):
        herder.info("mirror")


def test_three_parts_are_three_connectors(cluster, source, topic_name):
    _make(source, topic_name, numbered(10))
    worker = cluster.start()
    herder = worker.herder
    herder.create("checkpoints", cluster.connector("MirrorCheckpoint", topics=topic_name), None)
    herder.create("beats", cluster.connector("MirrorHeartbeat"), None)
    running(worker, "checkpoints")
    assert len(running(worker, "beats").tasks) in {0, 1}
    wait_for(lambda: len(herder.status("beats").tasks) == 1)
    # Nobody copies: the checkpoint connector has created no remote topic.
    assert f"A.{topic_name}" not in source.target.metadata([f"A.{topic_name}"]).topics
    paused(worker, "beats")
    assert running(worker, "checkpoints").state == "RUNNING"


def test_of_two_connectors_with_one_topic_the_first_has_it(cluster, source, topic_name):
    both, own = f"{topic_name}-both", f"{topic_name}-own"
    _make(source, both, numbered(10))
    _make(source, own, numbered(10))
    worker = cluster.start()
    herder = worker.herder
    herder.create("first", cluster.source(both), None)
    wait_for(lambda: herder.topics("first") == [f"A.{both}"])
    herder.create("second", cluster.source(f"{both},{own}"), None)
    running(worker, "second")

    def told():
        flow = worker.mirror.snapshot().flow("second")
        return [p for p in flow.partitions if p.topic == both and "connector first" in p.reason]

    wait_for(told)
    wait_for(lambda: _values(source, f"A.{own}") == numbered(10))
    wait_for(lambda: _values(source, f"A.{both}") == numbered(10))
    assert running(worker, "second").state == "RUNNING"


def test_workers_share_connectors_and_one_that_leaves_is_replaced(cluster, source, topic_name):
    topics = [f"{topic_name}-{n}" for n in range(4)]
    for topic in topics:
        _make(source, topic, numbered(5))
    first = cluster.start()
    for n, topic in enumerate(topics):
        first.herder.create(f"c{n}", cluster.source(topic), None)
    for n in range(4):
        running(first, f"c{n}")
    second = cluster.start()

    def owners(worker):
        return sorted(s.worker_id for n in range(4) if (s := worker.herder._status(f"c{n}")))

    wait_for(lambda: owners(second) == ["127.0.0.1:8084"] * 2 + ["127.0.0.1:8085"] * 2)
    # Any worker answers for all, and changes any.
    assert sorted(second.herder.connectors()) == ["c0", "c1", "c2", "c3"]
    for n in range(4):
        paused(second, f"c{n}")
        second.herder.set_target(f"c{n}", Initial.RUNNING)
    cluster.stop(first)
    for n in range(4):
        wait_for(lambda n=n: running(second, f"c{n}").worker_id == "127.0.0.1:8085")
    for topic in topics:
        source.write(topic, [b"more"])
    for topic in topics:
        wait_for(lambda topic=topic: _values(source, f"A.{topic}") == [*numbered(5), b"more"])
