"""Translated offsets on the target: for real groups, and never for one that is in use there."""

from __future__ import annotations

import random
import uuid
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Assignment
from confluent_kafka.admin import AdminClient
from grouping import Groups, create
from mirroring import Mirroring, wait_for

from heliograph.control.groups.offset_sync import GroupOffsetSync
from heliograph.model import TopicPartition
from heliograph.wire.groups import Committed, GroupClient


@pytest.fixture
def groups(mirroring, topic_name):
    """A topic of two partitions with 10 records each, mirrored."""
    mirroring.create(topic_name, partitions=2)
    for partition in range(2):
        mirroring.write(topic_name, [b"%d" % n for n in range(10)], partition)
    mirroring.copy(topic_name)
    made = Groups(mirroring, topic_name)
    yield made
    made.close()


@pytest.fixture
def parts(topic_name):
    return [TopicPartition(topic_name, n) for n in range(2)]


@pytest.fixture
def remote(topic_name):
    return [TopicPartition(f"A.{topic_name}", n) for n in range(2)]


def sync(groups):
    groups.syncing.sync()
    return groups.said(groups.syncing)


def test_s68_a_group_that_is_not_there_gets_its_offsets(groups, parts, remote):
    groups.commit("g", {parts[0]: 4, parts[1]: 7})
    assert sync(groups) == {"g": "synced 2 partitions"}
    assert groups.committed("g") == {
        remote[0]: Committed(4, groups.committed("g", "A")[parts[0]].metadata),
        remote[1]: Committed(7, groups.committed("g", "A")[parts[1]].metadata),
    }
    assert sync(groups) == {"g": "2 partitions in step"}


def test_s68_a_new_partition_of_a_known_group(groups, parts, remote):
    groups.commit("g", {parts[0]: 4})
    sync(groups)
    groups.commit("g", {parts[1]: 2})
    assert sync(groups) == {"g": "synced 1 partition, 1 partition in step"}
    assert groups.offsets("g") == {str(remote[0]): 4, str(remote[1]): 2}


def test_f39_the_epoch_of_the_source_is_not_carried_over(groups, parts, remote):
    groups.commit("g", {parts[0]: 4})
    sync(groups)
    admin = AdminClient({"bootstrap.servers": groups.flow.lab["B"].bootstrap})
    asked = [ConsumerGroupTopicPartitions(groups.prefix + "g")]
    [found] = (
        admin.list_consumer_group_offsets(asked)[groups.prefix + "g"].result(60).topic_partitions
    )
    assert (found.topic, found.offset, found.leader_epoch) == (remote[0].topic, 4, None)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_s65_a_group_in_use_on_the_target_is_not_touched(groups, parts, remote, protocol):
    """KAFKA-19794: MM2 may rewind it."""
    groups.commit("g", {parts[0]: 4})
    with groups.member("g", remote[0].topic, "B", **{"group.protocol": protocol}) as consumer:
        consumer.commit(
            offsets=[Assignment(remote[0].topic, remote[0].partition, 2)], asynchronous=False
        )
        assert sync(groups) == {"g": "is in use on B (Stable)"}
        assert groups.offsets("g") == {str(remote[0]): 2}
    wait_for(lambda: sync(groups) and groups.offsets("g") == {str(remote[0]): 4})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_s65_a_group_that_is_joined_between_the_look_and_the_write(groups, parts, remote, protocol):
    groups.commit("g", {parts[0]: 4})

    class Joined(GroupClient):
        """Somebody joins when the group was seen to be free, just before it is written to."""

        def commit(self, offsets):
            assert offsets[groups.prefix + "g"], "it was to be written"
            options = {"group.protocol": protocol}
            stack.enter_context(groups.member("g", remote[0].topic, "B", **options))
            return super().commit(offsets)

    target = Joined(groups.client(groups.flow.context.target))
    syncing = GroupOffsetSync(groups.flow.context.flow, groups.translation, target, 0.0)
    with ExitStack() as stack:
        syncing.sync()
        assert groups.said(syncing) == {"g": "became active on B meanwhile: left alone"}
        assert groups.offsets("g") == {}


def test_s66_a_group_that_is_ahead_is_not_rewound(groups, parts, remote):
    groups.commit("g", {parts[0]: 4, parts[1]: 4})
    groups.commit("g", {remote[0]: 9, remote[1]: 2}, "B")
    said = sync(groups)
    assert said == {"g": f"synced 1 partition, ahead of A by 5 on {remote[0]}: kept"}
    assert groups.offsets("g") == {str(remote[0]): 9, str(remote[1]): 4}
    groups.commit("g", {parts[0]: 1, parts[1]: 1})
    assert sync(groups) == {"g": f"ahead of A by 8 on {remote[0]} (and 1 more): kept"}
    assert groups.offsets("g") == {str(remote[0]): 9, str(remote[1]): 4}


def test_s67_a_negative_offset_is_overwritten(groups, parts, remote):
    """Sarama's reset commits -1."""
    groups.commit("g", {parts[0]: 4})
    name = groups.prefix + "g"
    answers = groups.target.commit({name: {remote[0]: Committed(-1)}})
    assert not answers.errors
    assert set(answers.found[name].values()) == {0}
    assert sync(groups) == {"g": "synced 1 partition"}
    assert groups.offsets("g") == {str(remote[0]): 4}


def test_s69_offset_0_of_an_empty_partition_is_synced(mirroring, topic_name):
    mirroring.create(topic_name)
    groups = Groups(mirroring, topic_name)
    groups.commit("g", {TopicPartition(topic_name, 0): 0})
    assert sync(groups) == {"g": "synced 1 partition"}
    assert groups.offsets("g") == {f"A.{topic_name}-0": 0}
    groups.close()


def test_what_is_not_mirrored_yet_is_not_skipped(groups, parts, remote):
    groups.flow.write(parts[0].topic, [b"more"] * 5)
    groups.commit("g", {parts[0]: 15})
    sync(groups)
    assert groups.offsets("g") == {str(remote[0]): 10}
    groups.flow.copy(parts[0].topic)
    sync(groups)
    assert groups.offsets("g") == {str(remote[0]): 15}


def test_the_same_group_on_both_sides_under_the_identity_policy(mirroring, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, [b"%d" % n for n in range(10)])
    groups = Groups(mirroring, topic_name, identity=True)
    groups.create(mirroring.target, topic_name)
    groups.copy(topic_name)
    part = TopicPartition(topic_name, 0)
    groups.commit("g", {part: 6})
    groups.commit("g", {part: 2}, "B")
    assert sync(groups) == {"g": "synced 1 partition"}
    assert groups.offsets("g") == {str(part): 6}
    groups.close()


def test_an_offset_in_an_open_transaction_on_the_target_is_left_alone(groups, parts, remote):
    groups.commit("g", {parts[0]: 4})
    groups.commit("g", {remote[0]: 2}, "B")
    producer = groups.flow.producer("B", **{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(60)
    producer.begin_transaction()
    with groups.consumer("g", "B") as consumer:
        offsets = [Assignment(remote[0].topic, remote[0].partition, 8)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
    assert "UNSTABLE_OFFSET_COMMIT (88)" in sync(groups)["g"]
    producer.commit_transaction(60)
    kept = f"ahead of A by 4 on {remote[0]}: kept"
    wait_for(lambda: sync(groups) == {"g": kept})
    assert groups.offsets("g") == {str(remote[0]): 8}


def test_one_group_that_cannot_be_asked_does_not_stop_the_others(groups, parts, remote):
    """A group of another kind with the same name on the target."""
    with groups.member("taken", remote[0].topic, "B"):
        groups.commit("taken", {parts[0]: 4})
        groups.commit("free", {parts[0]: 4})
        assert sync(groups) == {"taken": "is in use on B (Stable)", "free": "synced 1 partition"}


def test_s72_fail_over_and_back(groups, parts, remote, topic_name):
    """Reads on A, goes on on B at the very record, there also reads B's own topic, and comes back.

    B's own topic is mirrored to A by a flow in the other direction.
    """
    lab = groups.flow.lab
    back = Mirroring.of({"A": lab["B"], "B": lab["A"]})
    own = f"own-{topic_name}"
    back.create(own)
    back.write(own, [b"own %d" % n for n in range(10)])
    back.copy(own)
    reverse = Groups(back, own)
    reverse.prefix = groups.prefix
    reverse.translation = reverse.translating()
    reverse.syncing = GroupOffsetSync(back.context.flow, reverse.translation, reverse.target, 0.0)

    first = groups.read("g", parts[0].topic, 12)
    sync(groups)
    rest = groups.read("g", remote[0].topic, 8, "B")
    assert sorted(first + rest) == sorted([b"%d" % n for n in range(10)] * 2)
    groups.read("g", own, 6, "B")
    assert reverse.offsets("g", "B") != {}
    reverse.syncing.sync()
    assert groups.offsets("g", "A")[f"A.{own}-0"] == 6
    assert groups.read("g", f"A.{own}", 4, "A") == [b"own %d" % n for n in range(6, 10)]
    reverse.close()
    back.close()


def test_s76_s77_many_groups_fail_over_at_the_exact_offset(module_lab_factory):
    """120 partitions, 20 groups, two coordinators, other counts of offsets partitions."""
    lab = module_lab_factory(
        brokers={"A": 1, "B": 2},
        settings={
            "A": {"offsets.topic.num.partitions": "7"},
            # A broker that is fenced, because the machine stood still, coordinates no group.
            "B": {"offsets.topic.num.partitions": "3", "broker.session.timeout.ms": "600000"},
        },
    )
    flow = Mirroring.of(lab)
    topics = [f"t{n}" for n in range(20)]
    create(flow, flow.source, topics, 6)
    create(flow, flow.target, [f"A.{topic}" for topic in topics], 6)
    producer = flow.producer()
    for topic in topics:
        for partition in range(6):
            for n in range(20):
                producer.produce(topic, b"%d" % n, partition=partition)
    assert producer.flush(60) == 0
    flow.copy(*topics)
    groups = Groups(flow, *topics)
    dice = random.Random(76)
    everything = [TopicPartition(t, n) for t in topics for n in range(6)]
    wanted = {f"group-{n}": {p: dice.randint(0, 20) for p in everything} for n in range(20)}
    for part in (0, 1):
        # In two halves: what is there already is corrected, what is new is added.
        half = {g: dict(list(o.items())[: 60 + 60 * part]) for g, o in wanted.items()}
        groups.commit_many(half)
        groups.syncing.finish()
        groups.emit()
    assert sync(groups) == dict.fromkeys(wanted, "120 partitions in step")
    emitted = groups.checkpoints()
    for group, offsets in wanted.items():
        there = {f"A.{p}": offset for p, offset in offsets.items()}
        assert groups.offsets(group) == there
        assert {p: down for p, (_, down) in emitted[group].items()} == there
    names = [groups.prefix + name for name in wanted]
    assert len(groups.target._find(names, {})) == 2, "the groups have different coordinators"
    reads_on(groups, wanted["group-7"])
    groups.close()
    flow.close()


def reads_on(groups, wanted):
    """A consumer of the group reads exactly what is behind its offsets, on B."""
    left = {f"A.{p}": [b"%d" % n for n in range(offset, 20)] for p, offset in wanted.items()}
    consumer = Consumer({
        "bootstrap.servers": groups.flow.lab["B"].bootstrap, "group.id": groups.prefix + "group-7",
        "enable.auto.commit": False, "auto.offset.reset": "error",
    })  # fmt: skip
    consumer.subscribe([f"A.{topic}" for topic in groups.topics])
    read = {p: [] for p in left}

    def all_read():
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None, message.error()
            read[f"{message.topic()}-{message.partition()}"].append(message.value())
        return sum(map(len, read.values())) >= sum(map(len, left.values()))

    wait_for(all_read)
    assert read == left
    consumer.close()
