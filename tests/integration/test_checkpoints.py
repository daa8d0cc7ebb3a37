"""Checkpoints of real groups, on real brokers. Scenarios by their numbers (S59 to S79)."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import ShareConsumer
from confluent_kafka import TopicPartition as Assignment
from grouping import Groups
from kafka.protocol.admin import DeleteGroupsRequest
from kafka.protocol.consumer import JoinGroupRequest, OffsetDeleteRequest
from mirroring import wait_for
from sources import transactions

from heliograph.batch.records import Record, build, decode
from heliograph.mm2.formats import Checkpoint
from heliograph.model import TopicPartition
from heliograph.wire import admin, log
from heliograph.wire.errors import BrokerError
from heliograph.wire.groups import Answers


@pytest.fixture
def groups(mirroring, topic_name):
    """A topic of two partitions, 10 records in the first and none in the second, mirrored."""
    mirroring.create(topic_name, partitions=2)
    mirroring.write(topic_name, [b"%d" % n for n in range(10)])
    mirroring.copy(topic_name)
    made = Groups(mirroring, topic_name)
    yield made
    made.close()


@pytest.fixture
def parts(topic_name):
    return [TopicPartition(topic_name, n) for n in range(2)]


def test_s59_the_topic_of_a_checkpoint_has_its_name_on_the_target(groups, parts):
    groups.commit("g", {parts[0]: 4})
    assert groups.emit() == {"g": {f"A.{parts[0]}": (4, 4)}}


def test_s59_under_the_identity_policy_it_keeps_its_name(mirroring, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, [b"%d" % n for n in range(10)])
    groups = Groups(mirroring, topic_name, identity=True)
    groups.create(mirroring.target, topic_name)
    groups.copy(topic_name)
    groups.commit("g", {TopicPartition(topic_name, 0): 4})
    assert groups.emit() == {"g": {f"{topic_name}-0": (4, 4)}}
    groups.close()


def test_s60_no_checkpoint_without_an_offset(groups, parts):
    with groups.member("idle", parts[0].topic):
        assert groups.emit() == {}
        assert groups.said(groups.emitter) == {"idle": "has committed nothing on mirrored topics"}


def test_s61_s63_a_restarted_mirror_does_not_go_back(groups, parts):
    """Here MM2 wrote more than the exact translation says, before us."""
    group, topic = f"{groups.prefix}g", f"A.{parts[0].topic}"
    groups.write(Checkpoint(group, topic, 0, 4, 6, ""))
    groups.commit("g", {parts[0]: 4})
    assert groups.emit() == {"g": {f"{topic}-0": (4, 6)}}
    groups.commit("g", {parts[0]: 5})
    assert groups.emit() == {"g": {f"{topic}-0": (5, 6)}}
    groups.commit("g", {parts[0]: 9})
    assert groups.emit() == {"g": {f"{topic}-0": (9, 9)}}
    groups.emitter = groups.emitting()
    end = log.end_offset(groups.flow.target, TopicPartition(groups.checkpoints_topic, 0))
    assert groups.emit() == {"g": {f"{topic}-0": (9, 9)}}
    after = log.end_offset(groups.flow.target, TopicPartition(groups.checkpoints_topic, 0))
    assert after == end, "what is known is not written again"


def test_another_mirrors_checkpoints_are_seen_after_a_take_over(groups, parts):
    group, topic = f"{groups.prefix}g", f"A.{parts[0].topic}"
    groups.commit("g", {parts[0]: 4})
    groups.emit()
    groups.write(Checkpoint(group, topic, 0, 7, 7, ""))
    groups.commit("g", {parts[0]: 8})
    groups.emit()
    assert groups.emit() == {"g": {f"{topic}-0": (8, 8)}}


def test_s62_it_goes_back_with_the_group(groups, parts):
    groups.commit("g", {parts[0]: 8})
    assert groups.emit()["g"] == {f"A.{parts[0]}": (8, 8)}
    groups.commit("g", {parts[0]: 3})
    assert groups.emit()["g"] == {f"A.{parts[0]}": (3, 3)}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (b"\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x01" + bytes(18), "unknown version 1"),
        (b"what is this", b"a checkpoint?", "a string of"),
    ],
)
def test_s64_nothing_is_written_to_a_topic_that_cannot_be_read(groups, parts, key, value, said):
    partition = TopicPartition(groups.checkpoints_topic, 0)
    log.append(groups.flow.target, partition, build([Record(0, 0, key, value)]))
    groups.commit("g", {parts[0]: 4})
    for _ in range(2):
        with pytest.raises(ValueError, match=f"{groups.checkpoints_topic} on cluster B, offset 0"):
            groups.emitter.emit()
    with pytest.raises(ValueError, match=said):
        groups.emitter.emit()
    assert log.end_offset(groups.flow.target, partition) == 1


def test_s68_a_new_group_and_a_new_partition(groups, parts):
    groups.commit("old", {parts[0]: 2})
    groups.emit()
    groups.commit("old", {parts[1]: 0})
    groups.commit("new", {parts[0]: 5})
    assert groups.emit() == {
        "old": {f"A.{parts[0]}": (2, 2), f"A.{parts[1]}": (0, 0)},
        "new": {f"A.{parts[0]}": (5, 5)},
    }


def test_s69_offset_0_of_an_empty_partition(groups, parts):
    groups.commit("g", {parts[1]: 0})
    assert groups.emit() == {"g": {f"A.{parts[1]}": (0, 0)}}


def test_s70_nothing_mirrored_yet(mirroring, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, [b"%d" % n for n in range(10)])
    groups = Groups(mirroring, topic_name)
    groups.commit("g", {TopicPartition(topic_name, 0): 5})
    assert groups.emit() == {}
    assert groups.said(groups.emitter) == {
        "g": f"0 of 1 partition; {topic_name}-0: nothing of it is mirrored yet"
    }
    mirroring.copy(topic_name)
    assert groups.emit() == {"g": {f"A.{topic_name}-0": (5, 5)}}
    assert groups.said(groups.emitter) == {"g": "1 partition, up to date"}
    groups.close()


def test_s71_a_checkpoint_is_at_the_very_record(mirroring, topic_name):
    """Dense offsets, markers and aborted records in between: nothing is repeated or skipped."""
    mirroring.create(topic_name)
    dice = random.Random(71)
    plan = [([b"%d-%d" % (n, i) for i in range(dice.randint(1, 4))], n % 3) for n in range(20)]
    transactions(mirroring, topic_name, plan)
    mirroring.copy(topic_name)
    groups = Groups(mirroring, topic_name)
    part = TopicPartition(topic_name, 0)
    [end] = mirroring.offsets(mirroring.source, topic_name, admin.LATEST).values()
    groups.commit_many({f"at-{offset}": {part: offset} for offset in range(end)})
    found = groups.emit()
    visible = {r.offset: r.value for r in mirroring.seen(topic_name)}
    committed = [v for values, commit in plan if commit for v in values]
    here = [(r.offset, r.value) for r in mirroring.source_records(topic_name)
            if r.value in set(committed)]  # fmt: skip
    for offset in range(end):
        upstream, downstream = found[f"at-{offset}"][f"A.{part}"]
        assert upstream == offset
        wanted = next((value for at, value in here if at >= offset), None)
        assert visible.get(downstream) == wanted
    groups.close()


def test_s73_a_group_that_lags_gets_fresh_checkpoints(groups, parts):
    for offset in (1, 2, 9, 10):
        groups.commit("g", {parts[0]: offset})
        assert groups.emit() == {"g": {f"A.{parts[0]}": (offset, offset)}}


def test_s74_only_groups_that_the_filter_selects_with_offsets_on_mirrored_topics(
    groups, parts, topic_name
):
    other = f"other-{topic_name}"
    groups.flow.create(other)
    groups.commit("in", {parts[0]: 1, TopicPartition(other, 0): 0})
    groups.commit("in-elsewhere", {TopicPartition(other, 0): 0})
    groups.commit("out", {parts[0]: 1})
    groups.emitter = groups.emitting(groups.translating("in.*"))
    assert groups.emit() == {"in": {f"A.{parts[0]}": (1, 1)}}
    assert groups.said(groups.emitter) == {
        "in": "1 partition, up to date",
        "in-elsewhere": "has committed nothing on mirrored topics",
    }


def test_s78_a_group_ahead_of_the_mirror_waits_at_its_end(groups, parts):
    groups.flow.write(parts[0].topic, [b"more"] * 5)
    groups.commit("g", {parts[0]: 14})
    assert groups.emit() == {"g": {f"A.{parts[0]}": (14, 10)}}
    assert groups.said(groups.emitter) == {"g": "1 partition, 4 offsets ahead of the mirror"}
    groups.flow.copy(parts[0].topic)
    assert groups.emit() == {"g": {f"A.{parts[0]}": (14, 14)}}


def test_s78_a_group_behind_the_targets_start_goes_on_at_its_start(groups, parts):
    groups.flow.trim(groups.flow.target, TopicPartition(f"A.{parts[0].topic}", 0), 6)
    groups.commit("g", {parts[0]: 2})
    assert groups.emit() == {"g": {f"A.{parts[0]}": (2, 6)}}


def test_s78_a_target_topic_that_was_created_anew(groups, parts, caplog):
    """Its first copy began at offset 0, the second at 4, dense: the old checkpoint would skip."""
    topic = parts[0].topic
    groups.commit("g", {parts[0]: 6})
    assert groups.emit() == {"g": {f"A.{parts[0]}": (6, 6)}}
    groups.flow.trim(groups.flow.source, parts[0], 4)
    groups.flow.delete(groups.flow.target, f"A.{topic}")
    groups.create(groups.flow.target, f"A.{topic}", 2)
    assert groups.emit() == {"g": {f"A.{parts[0]}": (6, 6)}}
    assert "created anew" in groups.said(groups.emitter)["g"]
    groups.flow.copy(topic)
    groups.emitter = groups.emitting(groups.translating())
    assert groups.emit() == {"g": {f"A.{parts[0]}": (6, 2)}}
    assert f"A.{topic}-0 of B was created anew or has lost its end" in caplog.text


def test_s78_a_source_topic_that_was_created_anew(groups, parts):
    topic = parts[0].topic
    groups.commit("g", {parts[0]: 6})
    before = groups.emit()
    groups.flow.delete(groups.flow.source, topic)
    groups.create(groups.flow.source, topic, 2)
    groups.commit("g", {parts[0]: 0})
    assert groups.emit() == before
    assert "created anew" in groups.said(groups.emitter)["g"]


# -- groups that are gone -----------------------------------------------------------------------


def delete_group(groups, name):
    message = DeleteGroupsRequest(groups_names=[groups.prefix + name])
    for _ in range(2):
        [answer] = groups.flow.source.request(message).results
    assert answer.error_code == 69, "deleted before"


def test_a_deleted_groups_checkpoints_are_taken_away(groups, parts):
    groups.commit("stays", {parts[0]: 1})
    groups.commit("goes", {parts[0]: 1, parts[1]: 0})
    groups.emit()
    delete_group(groups, "goes")
    assert groups.emit() == {"stays": {f"A.{parts[0]}": (1, 1)}}
    groups.commit("goes", {parts[0]: 2})
    assert groups.emit() == {
        "stays": {f"A.{parts[0]}": (1, 1)},
        "goes": {f"A.{parts[0]}": (2, 2)},
    }


def test_a_removed_checkpoint_has_an_empty_value_that_mm2_can_skip(groups, parts):
    groups.commit("goes", {parts[0]: 1})
    groups.emit()
    delete_group(groups, "goes")
    groups.emit()
    part = TopicPartition(groups.checkpoints_topic, 0)
    chunks = log.read_to_end(groups.flow.target, part, 0)
    records = [record for chunk in chunks for record in decode(chunk)]
    assert [r.key for r in records] == [records[0].key] * 2
    assert records[1].value == b""


def test_checkpoints_of_a_deleted_group_go_also_after_a_restart(groups, parts):
    groups.commit("goes", {parts[0]: 1})
    groups.emit()
    delete_group(groups, "goes")
    groups.emitter = groups.emitting(groups.translating())
    assert groups.emit() == {}


def test_an_offset_that_was_deleted_or_has_expired(groups, parts):
    groups.commit("g", {parts[0]: 1, parts[1]: 0})
    groups.emit()
    kind = OffsetDeleteRequest.OffsetDeleteRequestTopic
    topics = [
        kind(
            name=parts[1].topic,
            partitions=[kind.OffsetDeleteRequestPartition(partition_index=1)],
        )
    ]
    message = OffsetDeleteRequest(group_id=groups.prefix + "g", topics=topics)
    assert groups.flow.source.request(message).error_code == 0
    assert groups.emit() == {"g": {f"A.{parts[0]}": (1, 1)}}


def test_checkpoints_of_a_deleted_topic(groups, parts):
    groups.commit("g", {parts[0]: 1})
    groups.emit()
    groups.flow.delete(groups.flow.source, parts[0].topic)
    wait_for(lambda: not groups.offsets("g", "A"))
    assert groups.emit() == {}


def test_what_is_only_filtered_out_is_left_alone(groups, parts):
    groups.commit("g", {parts[0]: 1})
    before = groups.emit()
    groups.topics = []
    assert groups.emit() == before, "its topic is not mirrored any more, but has its offset"
    groups.emitter = groups.emitting(groups.translating("nobody"))
    delete_group(groups, "g")
    assert groups.emit() == before, "the group is not selected any more"


def test_a_group_whose_coordinator_does_not_answer_keeps_its_checkpoints(
    groups, parts, monkeypatch
):
    groups.commit("g", {parts[0]: 1})
    before = groups.emit()
    delete_group(groups, "g")
    away = BrokerError(15, "the coordinator")
    with monkeypatch.context() as patched:
        patched.setattr(
            groups.translation._source,
            "committed_of",
            lambda wanted, **_: Answers({}, dict.fromkeys(wanted, away)),
        )
        assert groups.emit() == before
    assert groups.emit() == {}


def test_a_right_that_is_missing_is_not_a_missing_offset(groups, parts, monkeypatch):
    """Brokers leave topics out that we may not DESCRIBE; asked by name, they say so."""
    groups.commit("g", {parts[0]: 1})
    before = groups.emit()
    source = groups.translation._source
    ask = source.committed_of

    def without_the_topic(wanted, **options):
        answers = ask(wanted, **options)
        for group, named in wanted.items():
            for partition in list(answers.found[group]):
                if named is None:
                    del answers.found[group][partition]
                else:
                    denied = answers.found[group][partition]._replace(offset=-1, error=29)
                    answers.found[group][partition] = denied
        return answers

    monkeypatch.setattr(source, "committed_of", without_the_topic)
    assert groups.emit() == before


# -- kinds of groups ----------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_both_protocols(groups, parts, protocol):
    with groups.member("g", parts[0].topic, **{"group.protocol": protocol}) as consumer:
        wanted = [Assignment(parts[0].topic, parts[0].partition, 7, "where I was")]
        consumer.commit(offsets=wanted, asynchronous=False)
        assert groups.emit() == {"g": {f"A.{parts[0]}": (7, 7)}}
        [checkpoint] = groups.log().known.values()
        # confluent-kafka sends the end of its C string along.
        assert checkpoint.metadata.rstrip("\0") == "where I was"
        kind = groups.translation.latest(60).groups[groups.prefix + "g"].listed.kind
        assert kind == protocol


def test_share_groups_are_listed_with_the_reason(groups, parts):
    consumer = ShareConsumer({
        "bootstrap.servers": groups.flow.lab["A"].bootstrap, "group.id": groups.prefix + "share",
    })  # fmt: skip
    consumer.subscribe([parts[0].topic])

    def listed():
        consumer.poll(0.1)
        groups.emit()
        return groups.said(groups.emitter).get("share")

    assert wait_for(listed).startswith("share groups cannot be synced: they acknowledge record by")
    assert groups.checkpoints() == {}
    consumer.close()


def test_groups_of_connect_are_listed_with_the_reason(groups, parts):
    """A worker of Connect joins as this does."""
    kind = JoinGroupRequest.JoinGroupRequestProtocol
    message = JoinGroupRequest(
        group_id=groups.prefix + "workers", session_timeout_ms=120_000,
        rebalance_timeout_ms=120_000, member_id="", group_instance_id=None,
        protocol_type="connect", protocols=[kind(name="default", metadata=b"")],
    )  # fmt: skip
    node = groups.source._find([groups.prefix + "workers"], {}).popitem()[0]
    assert groups.source.client.connection(node).request(message, 30, version=3).error_code == 0
    groups.emit()
    assert groups.said(groups.emitter) == {
        "workers": "connect groups cannot be synced: they are not made of consumers"
    }


# -- the topic and the look that jobs share ------------------------------------------------------


def test_more_checkpoints_than_fit_a_batch(groups):
    many = [Checkpoint(f"group-{n}", "A.orders", n % 7, n, n, "") for n in range(20_000)]
    writer = groups.log()
    writer.append(many)
    assert set(groups.log().known.values()) == set(many) == set(writer.known.values())
    part = TopicPartition(groups.checkpoints_topic, 0)
    assert log.end_offset(groups.flow.target, part) == len(many)


def test_a_checkpoints_topic_that_was_created_anew_is_filled_again(groups, parts):
    groups.commit("g", {parts[0]: 4})
    groups.emit()
    groups.commit("g", {parts[0]: 5})
    before = groups.emit()
    groups.flow.delete(groups.flow.target, groups.checkpoints_topic)
    groups.create(groups.flow.target, groups.checkpoints_topic)
    assert groups.emit() == before


def test_jobs_share_a_look_that_is_young_enough(groups, parts):
    groups.commit("g", {parts[0]: 4})
    first = groups.translation.latest(60.0)
    assert groups.translation.latest(60.0) is first
    assert groups.translation.latest(0.0) is not first


def test_groups_are_looked_for_only_as_often_as_configured(groups, parts):
    """refresh.groups.enabled=false: only once. Their offsets are read every time."""
    groups.commit("old", {parts[0]: 4})
    translation = groups.translating()
    translation._refresh_seconds = None
    groups.emitter = groups.emitting(translation)
    groups.emit()
    groups.commit("new", {parts[0]: 4})
    groups.commit("old", {parts[0]: 5})
    assert groups.emit() == {"old": {f"A.{parts[0]}": (5, 5)}}
