"""Scenarios S1 to S13 of topic selection and naming; S11's hop counts belong to the client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config import load
from heliograph.config.properties import dump
from heliograph.policy import (
    DefaultReplicationPolicy,
    DefaultTopicFilter,
    IdentityReplicationPolicy,
    TopicSelection,
    is_cycle,
    ledger_source,
    ledger_topic,
    policy_from,
    should_replicate,
)

DEFAULT = DefaultReplicationPolicy()
IDENTITY = IdentityReplicationPolicy(source_alias="source")
ALL = DefaultTopicFilter([".*"], [])
NONE = DefaultTopicFilter([], [])
_name = st.text("abc._-", min_size=1, max_size=12)


def replicates(topic, policy=DEFAULT, topic_filter=ALL, heartbeats=True):
    return should_replicate(
        topic,
        policy=policy,
        topic_filter=topic_filter,
        source_alias="source",
        target_alias="target",
        heartbeats_replication_enabled=heartbeats,
    )


@pytest.mark.parametrize("topic", ["heartbeats", "us-west.heartbeats", "a.b.heartbeats"])
def test_s01_heartbeats_are_replicated_whatever_the_filter_says(topic):
    assert replicates(topic, topic_filter=NONE)


def test_s02_not_when_disabled():
    assert not replicates("heartbeats", topic_filter=NONE, heartbeats=False)
    assert not replicates("us-west.heartbeats", topic_filter=NONE, heartbeats=False)


def test_s03_unless_the_filter_allows_them():
    assert replicates("heartbeats", topic_filter=ALL, heartbeats=False)
    assert replicates("us-west.heartbeats", topic_filter=ALL, heartbeats=False)


def test_s04_the_separator_decides_what_a_remote_heartbeat_is():
    policy = DefaultReplicationPolicy("_")
    assert not replicates("us-west.heartbeats", policy, NONE)
    assert replicates("us-west_heartbeats", policy, NONE)


@pytest.mark.parametrize(
    ("topic", "cycle"),
    [
        ("t", False), ("other.t", False), ("a.b.t", False), ("target.t", True), ("source.t", True),
        ("other.target.t", True), ("target.other.t", True), ("a.b.source.t", True),
        ("target", False), ("target.", False), ("targets.t", False),
    ],
)  # fmt: skip
def test_s05_no_cycles_with_the_default_policy(topic, cycle):
    assert is_cycle(DEFAULT, topic, "source", "target") is cycle
    assert replicates(topic) is not cycle


@pytest.mark.parametrize("topic", ["t", "source.t", "target.t", "a.target.t", "x.y.z"])
def test_s06_identity_mirrors_every_name_as_is(topic):
    assert IDENTITY.format_remote_topic("source", topic) == topic
    assert IDENTITY.topic_source(topic) == "source"
    assert IDENTITY.upstream_topic(topic) == IDENTITY.original_topic(topic) == topic
    assert replicates(topic, IDENTITY)


def test_s06_identity_names_and_guards_heartbeats_as_the_default_does():
    assert IDENTITY.format_remote_topic("source", "heartbeats") == "source.heartbeats"
    assert IDENTITY.original_topic("a.b.heartbeats") == "heartbeats"
    assert IDENTITY.topic_source("heartbeats") is None
    assert replicates("heartbeats", IDENTITY, NONE)
    assert replicates("other.heartbeats", IDENTITY, NONE)
    assert not replicates("target.heartbeats", IDENTITY)
    assert not replicates("source.heartbeats", IDENTITY)
    assert not replicates("other.target.heartbeats", IDENTITY)


def test_s07_a_policy_without_upstream_topics_does_not_crash():
    class NoUpstream(DefaultReplicationPolicy):
        def upstream_topic(self, topic):
            return None

    assert not is_cycle(NoUpstream(), ".b", "source", "target")
    assert is_cycle(NoUpstream(), "target.b", "source", "target")


@pytest.mark.parametrize(
    ("include", "exclude", "accepted"),
    [
        (["a", "b"], [], {"a", "b"}),
        ([".*"], [], {"a", "b", "ab", "x.replica", "mm2-offset-syncs.b.internal", "__x"}),
        ([], [], set()),
        ([".*"], [r"mm2.*\.internal", r".*\.replica", "__.*"], {"a", "b", "ab"}),
        (["a", "b"], ["a"], {"b"}),
        (["a.?"], ["ab"], {"a"}),
    ],
)
def test_s08_lists_select_whole_names_and_exclude_wins(include, exclude, accepted):
    names = {"a", "b", "ab", "x.replica", "mm2-offset-syncs.b.internal", "__x"}
    topic_filter = DefaultTopicFilter(include, exclude)
    assert {name for name in names if topic_filter.should_replicate_topic(name)} == accepted


def test_s09_a_separator_of_two_characters():
    policy = DefaultReplicationPolicy("__")
    assert policy.format_remote_topic("A", "t") == "A__t"
    assert policy.topic_source("A__B__t") == "A"
    assert policy.upstream_topic("A__B__t") == "B__t"
    assert policy.original_topic("A__B__t") == "t"
    assert policy.topic_source("a.b") is None
    assert is_cycle(policy, "x__target__t", "source", "target")
    assert not is_cycle(policy, "x.target.t", "source", "target")


@pytest.mark.parametrize(
    ("policy", "syncs", "checkpoints"),
    [
        (DefaultReplicationPolicy(), "mm2-offset-syncs.B.internal", "A.checkpoints.internal"),
        (DefaultReplicationPolicy("_"), "mm2-offset-syncs_B_internal", "A_checkpoints_internal"),
        (DefaultReplicationPolicy("_", internal_separator_enabled=False),
         "mm2-offset-syncs.B.internal", "A.checkpoints.internal"),
        (IdentityReplicationPolicy("_"), "mm2-offset-syncs_B_internal", "A_checkpoints_internal"),
    ],
)  # fmt: skip
def test_s10_the_internal_separator_names_internal_topics_only(policy, syncs, checkpoints):
    assert policy.offset_syncs_topic("B") == syncs
    assert policy.checkpoints_topic("A") == checkpoints
    assert policy.heartbeats_topic() == "heartbeats"
    assert policy.is_internal_topic(syncs)
    assert policy.is_internal_topic(checkpoints)
    assert policy.is_internal_topic(ledger_topic("A"))
    assert ledger_source(ledger_topic("a.b")) == "a.b"
    assert [ledger_source(t) for t in ("A.orders", "mm2-ledger..internal", "mm2-ledger.A")] == (
        [None] * 3
    )


def test_s11_each_hop_is_one_upstream_topic():
    assert DEFAULT.topic_source("source1.source2.t") == "source1"
    assert DEFAULT.upstream_topic("source1.source2.t") == "source2.t"
    assert DEFAULT.topic_source("t") is DEFAULT.upstream_topic("t") is None


def test_s12_checkpoints_topics():
    assert DEFAULT.is_checkpoints_topic("A.checkpoints.internal")
    assert not DEFAULT.is_checkpoints_topic("checkpoints.internal")
    assert not DEFAULT.is_checkpoints_topic("A.checkpoints-internal")
    assert not DEFAULT.is_checkpoints_topic("checkpoints-A.internal")


def test_s13_an_alias_of_any_characters():
    alias = "B-_~:?#[]@!$&'()*+=\"<>{}|^`"
    remote = DEFAULT.format_remote_topic(alias, "t")
    assert (DEFAULT.topic_source(remote), DEFAULT.upstream_topic(remote)) == (alias, "t")
    assert is_cycle(DEFAULT, remote, "A", alias)


@pytest.mark.parametrize(
    ("topic", "internal"),
    [
        ("__consumer_offsets", True), (".hidden", True), ("mm2-configs.A.internal", True),
        ("mm2-ledger.A.internal", True), ("A.checkpoints.internal", True),
        ("orders.internal", False), ("orders-internal", False), ("mm2", False), ("_x", False),
    ],
)  # fmt: skip
def test_internal_topics(topic, internal):
    assert DEFAULT.is_internal_topic(topic) is internal
    assert replicates(topic) is not internal


@pytest.mark.parametrize(
    ("topic", "source"),
    [("a.", None), ("a..", None), (".", None), (".x", ""), ("a..b", "a"), ("a.b.", "a")],
)
def test_names_are_split_as_java_splits(topic, source):
    assert DEFAULT.topic_source(topic) == source


@given(st.sampled_from([".", "_", "__", "-"]), st.text("abc", min_size=1), _name)
def test_upstream_undoes_remote(separator, alias, topic):
    policy = DefaultReplicationPolicy(separator)
    remote = policy.format_remote_topic(alias, topic)
    if topic.replace(separator, ""):
        expected = policy.topic_source(remote)
        assert expected is not None
        assert policy.upstream_topic(remote) == remote[len(expected) + len(separator) :]
        if separator not in alias + topic[:1] and not (separator == "__" and topic[0] == "_"):
            assert (expected, policy.upstream_topic(remote)) == (alias, topic)
    assert isinstance(policy.original_topic(topic), str)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, DefaultReplicationPolicy()),
        ({"replication.policy.class": "IdentityReplicationPolicy"},
         IdentityReplicationPolicy(source_alias="A")),
        ({"A->B.replication.policy.class":
          "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"},
         IdentityReplicationPolicy(source_alias="A")),
        ({"replication.policy.separator": "_"}, DefaultReplicationPolicy("_")),
        ({"replication.policy.separator": "_",
          "replication.policy.internal.topic.separator.enabled": "false"},
         DefaultReplicationPolicy("_", internal_separator_enabled=False)),
        ({"replication.policy.internal.topic.separator.enabled": "false"},
         DefaultReplicationPolicy()),
    ],
)  # fmt: skip
def test_policy_and_selection_from_a_file(tmp_path, values, expected):
    base = {"clusters": "A,B", "A.bootstrap.servers": "a:1", "B.bootstrap.servers": "b:1",
            "A->B.enabled": "true", "topics": "orders.*"}  # fmt: skip
    path = tmp_path / "mm2.properties"
    path.write_text(dump({**base, **values}))
    flow = load(path).flows[0]
    assert policy_from(flow) == expected
    selection = TopicSelection(flow)
    assert selection.includes("orders1")
    assert selection.includes("heartbeats")
    assert not selection.includes("payments")
