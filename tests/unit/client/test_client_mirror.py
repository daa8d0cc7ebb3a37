"""What MirrorClient makes of the names of topics, and which properties and arguments it takes."""

import re
import subprocess
import sys

import pytest

from heliograph.client import MirrorClient
from heliograph.client.config import MirrorClientConfig
from heliograph.config import ConfigErrors
from heliograph.errors import ConfigError
from heliograph.policy import DefaultReplicationPolicy, IdentityReplicationPolicy

CLUSTER = {"bootstrap.servers": "b:9092"}


class Knowing(MirrorClient):
    """A client of a cluster that has these topics."""

    def __init__(self, *topics, **properties):
        super().__init__({**CLUSTER, **{k.replace("_", "."): v for k, v in properties.items()}})
        self.topics = topics

    def _topics(self):
        return list(self.topics)


HEARTBEATS = ("topic1", "topic2", "heartbeats", "source1.heartbeats", "source1.source2.heartbeats")
IDENTITY = {"replication_policy_class": "IdentityReplicationPolicy",
            "source_cluster_alias": "source"}  # fmt: skip


@pytest.mark.parametrize(
    ("alias", "hops"), [("source1", 1), ("source2", 2), ("source3", 1), ("source4", -1)]
)
def test_s11_hops_are_counted_by_heartbeats(alias, hops):
    client = Knowing(*HEARTBEATS, "source3.heartbeats")
    assert client.replication_hops(alias) == hops


def test_s11_the_shortest_way_counts():
    client = Knowing("a.b.c.heartbeats", "b.c.heartbeats", "c.x.heartbeats", "c.topic")
    assert client.replication_hops("c") == 1
    assert client.replication_hops("b") == 1
    assert client.replication_hops("a") == 1
    assert client.replication_hops("x") == 2
    assert client.replication_hops("topic") == -1


@pytest.mark.parametrize("properties", [{}, IDENTITY])
def test_s11_upstream_clusters_are_all_that_heartbeats_came_through(properties):
    client = Knowing(*HEARTBEATS, "source3.source4.source5.heartbeats", "source9.t", **properties)
    assert client.upstream_clusters() == {f"source{n}" for n in range(1, 6)}


def test_s12_checkpoints_and_heartbeats_topics():
    checkpoints = {"s1.checkpoints.internal", "s2.s1.checkpoints.internal"}
    others = {"checkpoints.internal", "checkpoints-internal", "s1checkpointsinternal",
              "s1.checkpoints.internal2", "source1-heartbeats", "xheartbeats"}  # fmt: skip
    client = Knowing(*checkpoints, *others, "heartbeats", "s1.heartbeats")
    assert client.checkpoint_topics() == checkpoints
    assert client.heartbeat_topics() == {"heartbeats", "s1.heartbeats"}


def test_remote_topics_of_all_or_one_source():
    topics = ("t", "a.t", "a.b.t", "b.t", "a.heartbeats", "a.checkpoints.internal", "__x.y",
              "mm2-ledger.a.internal")  # fmt: skip
    client = Knowing(*topics)
    assert client.remote_topics() == {"a.t", "a.b.t", "b.t", "a.heartbeats"}
    assert client.remote_topics("a") == {"a.t", "a.b.t", "a.heartbeats"}
    assert client.remote_topics("c") == set()


def test_s06_with_the_identity_policy_every_topic_is_remote():
    client = Knowing("t1", "t2", "heartbeats", "backup.heartbeats", "__x", **IDENTITY)
    assert client.remote_topics() == {"t1", "t2", "backup.heartbeats"}
    assert client.remote_topics("source") == {"t1", "t2"}
    assert client.replication_hops("source") == -1
    assert Knowing("t1", replication_policy_class="IdentityReplicationPolicy").remote_topics() == (
        set()
    ), "without source.cluster.alias nobody knows"


def test_s09_a_separator_of_ones_own():
    client = Knowing("t", "a.t", "a__t", "a__b__t", "a__heartbeats", "a.heartbeats",
                     "a__checkpoints__internal", replication_policy_separator="__")  # fmt: skip
    assert client.remote_topics() == {"a__t", "a__b__t", "a__heartbeats"}
    assert client.heartbeat_topics() == {"a__heartbeats"}
    assert client.checkpoint_topics() == {"a__checkpoints__internal"}
    assert client.replication_hops("a") == 1


def test_s10_internal_topics_may_keep_their_dots():
    client = Knowing(
        "a_checkpoints_internal", "a.checkpoints.internal",
        **{"replication_policy_separator": "_",
           "replication.policy.internal.topic.separator.enabled": "false"},
    )  # fmt: skip
    assert client.checkpoint_topics() == {"a.checkpoints.internal"}


def test_s07_a_policy_without_upstream_topics_ends_the_walk(monkeypatch):
    monkeypatch.setattr(DefaultReplicationPolicy, "upstream_topic", lambda self, topic: None)
    monkeypatch.setattr(DefaultReplicationPolicy, "is_heartbeats_topic", lambda self, topic: True)
    client = Knowing("a.b.heartbeats")
    assert client.upstream_clusters() == {"a"}
    assert client.replication_hops("b") == -1


@pytest.mark.parametrize(
    ("properties", "policy"),
    [
        ({}, DefaultReplicationPolicy()),
        ({"replication.policy.separator": "-"}, DefaultReplicationPolicy("-")),
        ({"replication.policy.internal.topic.separator.enabled": "false"},
         DefaultReplicationPolicy()),
        ({"replication.policy.class":
          "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
          "source.cluster.alias": "A"}, IdentityReplicationPolicy(source_alias="A")),
    ],
)  # fmt: skip
def test_the_policy_is_the_mirror_s(properties, policy):
    assert MirrorClient({**CLUSTER, **properties}).replication_policy == policy


def test_keys_of_one_kind_of_client_win():
    properties = {**CLUSTER, "security.protocol": "ssl", "admin.bootstrap.servers": "x:1",
                  "consumer.security.protocol": "PLAINTEXT", "admin.client.id": "me",
                  "producer.security.protocol": "SSL", "acks": "all"}  # fmt: skip
    config = MirrorClientConfig.of(properties)
    assert config.admin.properties == {"bootstrap.servers": "x:1", "security.protocol": "SSL"}
    assert config.consumer.properties == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "PLAINTEXT",
    }


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"bootstrap.servers": ""}, "bootstrap.servers: not set"),
        ({"bootstrap.servers": "b"}, "expected host:port"),
        ({"security.protocol": "TLS"}, "expected one of PLAINTEXT"),
        ({"consumer.security.protocol": "TLS"}, "consumer.security.protocol: value 'TLS'"),
        ({"security.protocol": "SASL_SSL"}, "add a line such as: sasl.mechanism="),
        ({"secrity.protocol": "SSL"}, "did you mean security.protocol?"),
        ({"admin.secrity.protocol": "SSL"}, "did you mean admin.security.protocol?"),
        ({"replication.policy.seperator": "_"}, "did you mean replication.policy.separator?"),
        ({"replication.policy.separator": ""}, "at least one character"),
        ({"replication.policy.class": "com.acme.P"}, "heliograph.replication_policies"),
        ({"ssl.key.password": "${file:/x:y}"}, "'file' is not declared"),
    ],
)
def test_wrong_properties_are_named(properties, says):
    with pytest.raises(ConfigErrors) as caught:
        MirrorClient({**CLUSTER, **properties}, origin="client.properties")
    assert says in str(caught.value)
    assert "client.properties: " in str(caught.value)


def test_a_secret_is_not_repeated():
    with pytest.raises(ConfigError) as caught:
        MirrorClient({**CLUSTER, "security.protocol": "hunter2", "sasl.jaas.config": "hunter3;"})
    assert "hunter3" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((None, "A", 1), TypeError),
        ((b"group", "A", 1), TypeError),
        ((re.compile(".*"), None, 1), TypeError),
        (("g", "A", None), TypeError),
        (("g", "A", True), TypeError),
        (("g", "", 1), ValueError),
        (("g", "A", 0), ValueError),
        (("g", "A", -1), ValueError),
    ],
)
def test_s75_illegal_arguments_are_rejected(arguments, error):
    with pytest.raises(error):
        MirrorClient(CLUSTER).remote_consumer_offsets(*arguments)


def test_illegal_aliases_are_rejected():
    with pytest.raises(TypeError):
        MirrorClient(CLUSTER).replication_hops(None)
    with pytest.raises(ValueError, match="upstream_alias"):
        MirrorClient(CLUSTER).replication_hops("")


def test_importing_the_client_imports_no_spark():
    code = "import heliograph.client, sys; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
