"""``run --once``: the goal is what the sources had at the start, and it is reached or named.

All of the command but Spark: leases are held in this process.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from driving import HeldHere
from kafka.protocol.admin import DeleteTopicsRequest
from mirroring import settings, wait_for
from sources import numbered

from heliograph.config import load
from heliograph.copy import links
from heliograph.errors import HeliographError
from heliograph.lab.proof import read_all
from heliograph.model import TopicPartition
from heliograph.service import mirror as service
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient


@pytest.fixture
def once(lab, tmp_path, monkeypatch):
    """Runs flows A->B and C->B once, or others; all sources are A under an alias."""
    monkeypatch.setattr(service, "Engine", HeldHere)

    def run(*aliases: str, **keys: str) -> None:
        sources = aliases or ("A", "C")
        text = [
            f"clusters = B, {', '.join(sources)}",
            f"B.bootstrap.servers = {lab['B'].bootstrap}",
            *(f"{alias}.bootstrap.servers = {lab['A'].bootstrap}" for alias in sources),
            *(f"{alias}->B.enabled = true" for alias in sources),
            "emit.heartbeats.enabled = false",
            "heartbeats.replication.enabled = false",
            "replication.factor = 1",
            "offset-syncs.topic.replication.factor = 1",
            "checkpoints.topic.replication.factor = 1",
            *(f"{key} = {value}" for key, value in keys.items()),
        ]
        path = tmp_path / "mm2.properties"
        path.write_text("\n".join(text))
        mirror = service.Mirror(load(path), once=True)
        try:
            mirror.start()
            mirror.run_once()
        finally:
            mirror.close()
            # Executors end with the command, and with them all that they remember.
            links.close()

    return run


@pytest.fixture
def clients(lab):
    with ClusterClient(settings(lab, "A"), "t") as a, ClusterClient(settings(lab, "B"), "t") as b:
        yield a, b


def delete(client, name):
    state = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=None)
    request = DeleteTopicsRequest(topics=[state], topic_names=[name], timeout_ms=30_000)
    client.to_controller(request)
    wait_for(lambda: name not in client.metadata([name]).topics)


def create(client, name, partitions=1):
    new = admin.NewTopic(name, partitions, 1, {"retention.ms": "-1"})
    assert admin.create_topics(client, [new], 30_000) == {}

    def led():
        found = client.metadata([name]).topics.get(name)
        return found and all(p.leader >= 0 for p in found.partitions.values())

    wait_for(led)


def write(lab, topic, count, partitions):
    producer = Producer({"bootstrap.servers": lab["A"].bootstrap})
    for partition in range(partitions):
        for value in numbered(count, f"p{partition}"):
            producer.produce(topic, value, None, partition)
    assert producer.flush(60) == 0


def test_two_flows_into_a_target_without_their_topics(once, lab, clients, topic_name):
    topics, partitions = [f"{topic_name}-{n}" for n in range(5)], 4
    a, b = clients
    for topic in topics:
        create(a, topic, partitions)
        write(lab, topic, 10, partitions)
    once(topics=f"{topic_name}.*")
    for topic in topics:
        for remote in (f"A.{topic}", f"C.{topic}"):
            for p in range(partitions):
                found = [r.value for r in read_all(b, TopicPartition(remote, p))]
                assert found == numbered(10, f"p{p}"), f"{remote}-{p}"


def test_what_cannot_be_mirrored_is_named(once, lab, clients, topic_name):
    a, b = clients
    # Of such a name there is no room for a prefix.
    long = f"{topic_name}-".ljust(249, "x")
    for topic in (topic_name, long):
        create(a, topic)
        write(lab, topic, 10, 1)
    with pytest.raises(HeliographError) as caught:
        once(topics=f"{topic_name}.*")
    assert caught.value.code == "once.incomplete"
    assert caught.value.exit_code != 0
    for flow in ("A->B", "C->B"):
        remote = f"{flow[0]}.{long}"
        assert f"{flow} {long}-0: {remote}-0 is not there on B; creating topic" in str(caught.value)
    assert f"{topic_name}-0:" not in str(caught.value)
    # The others are copied.
    found = [r.value for r in read_all(b, TopicPartition(f"A.{topic_name}", 0))]
    assert found == numbered(10, "p0")


def test_f45_a_ledger_that_was_deleted_is_no_reason_to_begin_again(once, lab, clients, topic_name):
    a, b = clients
    create(a, topic_name, 2)
    write(lab, topic_name, 10, 2)
    once("forgetful", topics=topic_name)
    delete(b, "mm2-ledger.forgetful.internal")
    with pytest.raises(HeliographError) as caught:
        once("forgetful", topics=topic_name)
    assert caught.value.exit_code != 0
    told = str(caught.value)
    for p in range(2):
        assert f"forgetful->B {topic_name}-{p}: [target.unknown] " in told
    assert f"delete forgetful.{topic_name} to mirror it again from its start" in told
    assert "set heliograph.on.unknown.target=append" in told

    def copies(partition):
        remote = TopicPartition(f"forgetful.{topic_name}", partition)
        return [r.value for r in read_all(b, remote)]

    assert [copies(p) for p in range(2)] == [numbered(10, f"p{p}") for p in range(2)]
    once("forgetful", topics=topic_name, **{"heliograph.on.unknown.target": "append"})
    assert [copies(p) for p in range(2)] == [2 * numbered(10, f"p{p}") for p in range(2)]
