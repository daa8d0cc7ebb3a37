"""What the control jobs remember: the last write counts, whoever tidies or compacts the topic."""

from __future__ import annotations

import uuid

from compacted_topic import HERE, CompactedTopic, Keeper, Store, follower_of
from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.codec import Entry, key_of
from heliograph.ledger.memory import SyncedMemory, topic_subject
from heliograph.ledger.mirrored import MirroredTopic, mirrored_topics
from heliograph.ledger.runs import Run


class Memory(SyncedMemory):
    def __init__(self, topic):
        super().__init__(follower_of(topic))


def mirrored(topic):
    store = Store(topic)
    store.refresh()
    return mirrored_topics(store)


def fresh(topic):
    memory = Memory(topic)
    memory.refresh()
    return memory


def test_the_last_write_counts():
    topic = CompactedTopic()
    writer = Memory(topic)
    writer.remember("config", {"A.t/1": {"retention.ms": "1"}, "A.u/2": {"x": "y"}})
    writer.remember("config", {"A.t/1": {"retention.ms": "2"}})
    writer.remember("acl", {"A.t/1": {}})
    told = {"A.t/1": {"retention.ms": "2"}, "A.u/2": {"x": "y"}}
    assert writer.recall("config") == fresh(topic).recall("config") == told
    assert fresh(topic).recall("acl") == {"A.t/1": {}}
    assert fresh(topic).recall("other") == {}


def test_forgetting():
    topic = CompactedTopic()
    writer = Memory(topic)
    writer.remember("acl", {"a": {"b": "c"}, "d": {}})
    writer.remember("acl", {"a": None, "never known": None})
    assert writer.recall("acl") == fresh(topic).recall("acl") == {"d": {}}


def test_what_is_known_already_is_not_written_again():
    topic = CompactedTopic()
    Memory(topic).remember("acl", {"a": {"b": "c"}})
    end = topic.end
    reader = fresh(topic)
    reader.remember("acl", {"a": {"b": "c"}, "z": None})
    assert topic.end == end


def test_two_jobs_follow_each_other():
    topic = CompactedTopic()
    one, other = Memory(topic), Memory(topic)
    one.remember("config", {"a": {"b": "c"}})
    other.refresh()
    other.remember("config", {"a": None})
    one.refresh()
    assert one.recall("config") == {}


def test_subjects_may_contain_anything():
    topic = CompactedTopic()
    hostile = [
        "User:CN=a/b,O=ü", "a b%2F", "", "*", "\n",
        # As a place is spelled:
        f"t/0/{uuid.UUID(int=1)}/{uuid.UUID(int=2)}/0/x",
    ]  # fmt: skip
    Memory(topic).remember("acl", {subject: {"s": subject} for subject in hostile})
    assert fresh(topic).recall("acl") == {subject: {"s": subject} for subject in hostile}


def test_a_topic_is_remembered_by_its_id():
    assert topic_subject("A.t", uuid.UUID(int=1)) != topic_subject("A.t", uuid.UUID(int=2))


def test_the_keeper_leaves_it_alone():
    """Also when it removes all that there is of a target topic that is gone."""
    topic = CompactedTopic()
    subjects = [topic_subject("A.orders", HERE.target_id), "/".join(map(str, (*HERE, "0", "x")))]
    Memory(topic).remember("config", {s: {"a": "b"} for s in subjects})
    store = Store(topic)
    for n in range(200):
        store.write([Entry(HERE, [Run(100 * n, 101 * n, 100 * n)])])
    before = fresh(topic).recall("config")
    keeper = Keeper(topic)
    keeper.tidy({HERE: 0})
    assert fresh(topic).recall("config") == before
    keeper.tidy({}, gone=[HERE.target_id])
    topic.compact(topic.end, tombstones=True)
    assert fresh(topic).recall("config") == before
    assert keeper.places == set()


def test_the_other_readers_of_the_topic_ignore_it():
    topic = CompactedTopic()
    Memory(topic).remember("config", {"a": {"b": "c"}, "d": {}})
    Memory(topic).remember("config", {"d": None})
    Store(topic).write([Entry(HERE, [Run(0, 0, 0)])])
    store = Store(topic)
    store.refresh()
    assert list(store.at(HERE).runs) == [Run(0, 0, 0)]
    assert mirrored(topic) == {MirroredTopic("orders", HERE.source_id, HERE.target_id)}


def test_mirrored_topics_are_known_from_packed_records_too():
    topic = CompactedTopic()
    store = Store(topic)
    for n in range(200):
        store.write([Entry(HERE, [Run(100 * n, 101 * n, 100 * n)])])
    Keeper(topic).tidy({HERE: 0})
    topic.compact(topic.end, tombstones=True)
    assert all(b"packed/" in r.key for r in topic.records)
    assert mirrored(topic) == {MirroredTopic("orders", HERE.source_id, HERE.target_id)}


def test_a_key_of_a_place_is_never_one_of_the_memory():
    assert not key_of(HERE, "runs/0/0/x").startswith(b"synced/")


values = st.one_of(st.none(), st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2))
steps = st.lists(
    st.tuples(
        st.sampled_from(["remember", "compact", "restart"]),
        st.sampled_from(["config", "acl"]),
        st.dictionaries(st.sampled_from(["a", "b/c", "%"]), values, max_size=3),
    )
)


@given(steps)
def test_it_is_a_dictionary_that_survives_restarts_and_compaction(steps):
    topic, model = CompactedTopic(), {"config": {}, "acl": {}}
    memory = Memory(topic)
    for step, kind, facts in steps:
        if step == "compact":
            topic.compact(topic.end, tombstones=bool(facts))
        elif step == "restart":
            memory = fresh(topic)
        else:
            memory.remember(kind, facts)
            for subject, value in facts.items():
                model[kind].pop(subject, None)
                if value is not None:
                    model[kind][subject] = value
        assert {k: memory.recall(k) for k in model} == model
        assert {k: fresh(topic).recall(k) for k in model} == model
