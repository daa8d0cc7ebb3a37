"""Remote topics: created, grown, configured; and those that are never mirrored."""

from __future__ import annotations

import time

import pytest
from mirroring import hold, wait_for
from pairs import Pair

from heliograph.control.topics import internal as internal_topics
from heliograph.errors import StartError
from heliograph.model import Lease, TopicPartition
from heliograph.policy import ledger_topic
from heliograph.service.flow import FlowRuntime
from heliograph.wire import admin


def test_s26_a_remote_topic_has_the_partitions_and_configs_of_its_source(pair, topic_name):
    p = pair(topics=topic_name)
    configs = {
        "cleanup.policy": "compact",
        "max.message.bytes": "123456",
        # On MM2's default exclude list:
        "min.insync.replicas": "1",
        "message.timestamp.type": "LogAppendTime",
        "unclean.leader.election.enable": "true",
    }
    p.create(p.source, topic_name, 3, configs)
    plan = p.mirrored(topic_name)
    assert plan.problems == []
    assert plan.partitions == {TopicPartition(topic_name, i): f"A.{topic_name}" for i in range(3)}
    assert plan.topics == 1
    assert p.count(p.target, f"A.{topic_name}") == 3
    assert p.overrides(p.target, f"A.{topic_name}") == {
        "cleanup.policy": "compact",
        "max.message.bytes": "123456",
    }


def test_s32_custom_exclusion_of_configs_at_creation(pair, topic_name):
    p = pair(**{"topics": topic_name, "config.properties.exclude": r"max\..*"})
    p.create(p.source, topic_name, 1, {"max.message.bytes": "123456", "retention.ms": "777000"})
    p.mirrored(topic_name)
    assert p.overrides(p.target, f"A.{topic_name}") == {"retention.ms": "777000"}


def test_s29_f14_growth_of_the_source_reaches_the_target(pair, topic_name):
    p = pair(topics=topic_name)
    p.create(p.source, topic_name, 1)
    assert len(p.mirrored(topic_name).partitions) == 1
    assert admin.create_partitions(p.source, {topic_name: 4}, 30_000) == {}
    wait_for(lambda: p.count(p.source, topic_name) == 4)
    plan = wait_for(lambda: (found := p.refresh()) and len(found.partitions) == 4 and found)
    assert plan.problems == []
    assert p.count(p.target, f"A.{topic_name}") == 4


def test_s29_f14_new_partitions_are_mirrored_from_their_start(pair, mirroring, topic_name):
    p = pair(topics=topic_name)
    mirroring.create(topic_name)
    mirroring.write(topic_name, [b"old"])
    mirroring.copy(topic_name)
    assert admin.create_partitions(p.source, {topic_name: 2}, 30_000) == {}
    mirroring.await_topic(p.source, topic_name, 2)
    mirroring.write(topic_name, [b"new-0", b"new-1"], partition=1)
    wait_for(lambda: len(p.refresh().partitions) == 2)
    mirroring.await_topic(p.target, f"A.{topic_name}", 2)
    mirroring.copy(topic_name)
    assert mirroring.values(topic_name, 1) == [b"new-0", b"new-1"]
    assert mirroring.values(topic_name, 0) == [b"old"]


def test_a_target_with_fewer_partitions_is_grown(pair, topic_name):
    p = pair(topics=topic_name)
    p.create(p.source, topic_name, 5)
    p.create(p.target, f"A.{topic_name}", 2)
    wait_for(lambda: len(p.refresh().partitions) == 5)
    assert p.count(p.target, f"A.{topic_name}") == 5


def test_a_target_with_more_partitions_is_left_alone(pair, topic_name):
    p = pair(topics=topic_name)
    p.create(p.source, topic_name, 2)
    p.create(p.target, f"A.{topic_name}", 3)
    assert len(p.refresh().partitions) == 2
    assert p.count(p.target, f"A.{topic_name}") == 3


def test_refreshing_again_changes_nothing(pair, topic_name):
    p = pair(topics=topic_name)
    p.create(p.source, topic_name, 2, {"retention.ms": "1000000"})
    # The broker that is asked may hear of the new topic a moment after the controller made it.
    first = wait_for(lambda: (plan := p.refresh()) and len(plan.partitions) == 2 and plan)
    remote = f"A.{topic_name}"

    def led() -> object:
        found = p.target.metadata([remote]).topics.get(remote)
        return found if found and all(i.leader >= 0 for i in found.partitions.values()) else None

    before = wait_for(led)
    again = p.refresh()
    assert again.partitions == first.partitions
    assert p.target.metadata([f"A.{topic_name}"]).topics[f"A.{topic_name}"] == before


def test_s27_a_remote_topic_that_is_not_there_is_created_again(pair, topic_name):
    p = pair(topics=topic_name)
    p.create(p.source, topic_name)
    p.mirrored(topic_name)
    remote = f"A.{topic_name}"
    first = p.target.metadata([remote]).topics[remote].topic_id
    p.refresh()
    assert p.target.metadata([remote]).topics[remote].topic_id == first, "once there, never again"
    p.delete(p.target, remote)
    p.mirrored(topic_name)
    assert p.target.metadata([remote]).topics[remote].topic_id != first


def test_s28_a_target_topic_alone_is_nothing_to_mirror(pair, topic_name):
    p = pair(topics=topic_name)
    p.create(p.target, f"A.{topic_name}", 2)
    assert p.refresh().partitions == {}
    p.create(p.source, topic_name, 1)
    assert p.refresh().partitions == {TopicPartition(topic_name, 0): f"A.{topic_name}"}


def test_s41_a_new_topic_is_picked_up_while_running_and_mirrored(pair, mirroring, topic_name):
    """All of a running mirror but Spark."""
    first, second = f"{topic_name}-1", f"{topic_name}-2"
    p = pair(topics=f"{topic_name}.*")
    p.create(p.source, first)
    runtime = FlowRuntime(p.config)
    try:
        runtime.open_target()
        runtime.open()
        wait_for(lambda: runtime.refresh_topics() or runtime.plan.partitions)
        assert not runtime.refresh_topics()
        p.create(p.source, second)
        mirroring.write(second, [b"a", b"b"])
        new = TopicPartition(second, 0)
        wait_for(lambda: runtime.refresh_topics() and new in runtime.plan.partitions)
        mirroring.await_topic(p.target, f"A.{second}", 1)
        leased = runtime.leased(new, until=2)
        now = time.time()
        receipts = hold(Lease(runtime.prepared, (leased,), now, now + 60))
        assert [(r.error, r.source_position) for r in receipts] == [("", 2)]
    finally:
        runtime.close()
    assert mirroring.values(second) == [b"a", b"b"]


def test_s42_a_topic_with_only_some_partitions_written(mirroring, topic_name):
    mirroring.create(topic_name, partitions=4)
    mirroring.write(topic_name, [b"only"], partition=2)
    mirroring.copy(topic_name)
    assert [mirroring.values(topic_name, i) for i in range(4)] == [[], [], [b"only"], []]


def test_topics_that_are_never_mirrored(pair, topic_name):
    p = pair(topics=".*")
    others = [
        f"mm2-offset-syncs.{topic_name}.internal",
        f"mm2-configs.{topic_name}.internal",
        f"{topic_name}.checkpoints.internal",
        f"__{topic_name}",
        f"{topic_name}.replica",
        ledger_topic(topic_name),
        f"B.{topic_name}",
        f"A.{topic_name}",
    ]
    for name in (*others, topic_name):
        p.create(p.source, name)
    mirrored = {tp.topic for tp in p.mirrored(topic_name).partitions}
    assert not mirrored & set(others)


def test_heartbeats_are_mirrored_whatever_the_filter_says(pair, topic_name):
    p = pair(**{"topics": topic_name, "A->B.heartbeats.replication.enabled": "true"})
    for name in ("heartbeats", "C.heartbeats"):
        if not p.count(p.source, name):
            p.create(p.source, name, 1, {"cleanup.policy": "compact"})
    wanted = {
        TopicPartition("heartbeats", 0): "A.heartbeats",
        TopicPartition("C.heartbeats", 0): "A.C.heartbeats",
    }
    # A topic that was just created is not visible at once.
    wait_for(lambda: wanted.items() <= p.refresh().partitions.items())


def test_a_replication_factor_too_large_is_explained(pair, topic_name):
    p = pair(**{"topics": topic_name, "A->B.replication.factor": "3"})
    p.create(p.source, topic_name)
    plan = p.refresh()
    assert TopicPartition(topic_name, 0) not in plan.partitions
    [problem] = [text for text in plan.problems if topic_name in text]
    assert "replication.factor=3" in problem
    assert "mm2.properties:" in problem, "where it was set"
    assert "cluster B has 1 broker(s)" in problem


def test_one_bad_topic_does_not_keep_the_others(pair, topic_name):
    bad, good = "x" * 248, topic_name
    p = pair(topics=f"{bad},{good}")
    p.create(p.source, good)
    if not p.count(p.source, bad):
        p.create(p.source, bad)
    plan = p.mirrored(good)
    assert plan.partitions.keys() >= {TopicPartition(good, 0)}
    assert [text for text in plan.problems if bad in text], "A. makes its name too long"


def test_internal_topics_are_compacted_and_made_once(pair, topic_name):
    p = pair(topics=topic_name)
    for _ in range(2):
        internal_topics.ensure(p.config, p.source, p.target)
    for client, name in (
        (p.target, "heartbeats"),
        (p.target, ledger_topic("A")),
        (p.source, "mm2-offset-syncs.B.internal"),
    ):
        wait_for(lambda c=client, n=name: p.count(c, n) == 1)
        assert p.overrides(client, name)["cleanup.policy"] == "compact"


def test_s57_offset_syncs_on_the_target(pair, topic_name):
    p = pair(**{"topics": topic_name, "offset-syncs.topic.location": "target"})
    internal_topics.ensure(p.config, p.source, p.target)
    wait_for(lambda: p.count(p.target, "mm2-offset-syncs.A.internal") == 1)


@pytest.fixture(scope="module")
def fresh(module_lab_factory):
    """Clusters without a topic; in this order, each test finds none of those that it is about."""
    return module_lab_factory()


def test_internal_topics_that_do_not_fit_name_every_key(fresh, tmp_path):
    p = Pair(
        fresh, tmp_path,
        **{"A->B.heartbeats.topic.replication.factor": "3",
           "A->B.offset-syncs.topic.replication.factor": "2"},
    )  # fmt: skip
    with pytest.raises(StartError) as info:
        internal_topics.ensure(p.config, p.source, p.target)
    text = str(info.value)
    assert "heartbeats.topic.replication.factor=3" in text
    assert "offset-syncs.topic.replication.factor=2" in text
    assert "has 1 broker(s)" in text
    p.close()


def test_s57_no_offset_syncs_where_they_are_not_wanted(fresh, tmp_path):
    p = Pair(fresh, tmp_path, **{"A->B.emit.offset-syncs.enabled": "false"})
    internal_topics.ensure(p.config, p.source, p.target)
    for client in (p.source, p.target):
        assert not [t for t in client.metadata().topics if t.startswith("mm2-offset-syncs")]
    p.close()
