"""MirrorClient and ``heliograph client`` on a real cluster with the topics of two mirrors."""

from __future__ import annotations

import json
import re
import time
import uuid
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from heliograph.batch.records import Record, build
from heliograph.cli.client import client_group
from heliograph.client import (
    MirrorClient,
    MirrorClientError,
    OffsetAndMetadata,
    TopicPartition,
    checkpoint_topics,
    heartbeat_topics,
    replication_hops,
    translate_offsets,
    upstream_clusters,
)
from heliograph.mm2.formats import Checkpoint, checkpoint_key
from heliograph.model import ClientSettings
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient


class Standby:
    """A cluster with checkpoints of source ``alias``, which no other test has."""

    def __init__(self, lab):
        self.properties = lab["B"].client_properties()
        self.lab = lab
        self.client = ClusterClient(ClientSettings("B", self.properties), "test")
        self.alias = f"s{uuid.uuid4().hex[:8]}"
        self.checkpoints = f"{self.alias}.checkpoints.internal"
        compacted = {"cleanup.policy": "compact"}
        self.create(self.checkpoints, f"{self.alias}.far.heartbeats", **compacted)
        self.create(f"{self.alias}.t")

    def create(self, *topics, **configs):
        new = [admin.NewTopic(t, 1, 1, configs) for t in topics]
        assert not admin.create_topics(self.client, new, 30_000)
        for topic in topics:
            log.end_offset(self.client, TopicPartition(topic, 0))  # waits until it is served

    def write(self, *pairs, codec=0):
        now = int(time.time() * 1000)
        batch = build([Record(0, now, k, v) for k, v in pairs], codec=codec)
        log.append(self.client, TopicPartition(self.checkpoints, 0), batch)

    def checkpoint(self, group, partition, offset, metadata=""):
        return Checkpoint(group, f"{self.alias}.t", partition, 9, offset, metadata).encode()

    def at(self, partition):
        return TopicPartition(f"{self.alias}.t", partition)


@pytest.fixture
def standby(lab):
    made = Standby(lab)
    yield made
    made.client.close()


@pytest.fixture
def client(standby):
    with MirrorClient(standby.properties) as made:
        yield made


def test_s75_the_latest_checkpoint_of_each_partition_by_id(standby, client):
    standby.write(standby.checkpoint("g", 0, 1), standby.checkpoint("g", 1, 3, "meta"), codec=3)
    standby.write(standby.checkpoint("g", 0, 2, "é"), standby.checkpoint("other", 0, 4), codec=4)
    assert client.remote_consumer_offsets("g", standby.alias) == {
        standby.at(0): OffsetAndMetadata(2, "é"),
        standby.at(1): OffsetAndMetadata(3, "meta"),
    }
    assert client.remote_consumer_offsets("unknown", standby.alias, 5) == {}
    assert client.remote_consumer_offsets("", standby.alias) == {}


def test_s75_by_regex_it_must_match_whole_ids(standby, client):
    for group in ("shop-1", "shop-2", "my-shop-3", "a.b"):
        standby.write(standby.checkpoint(group, 0, 5))
    found = client.remote_consumer_offsets(re.compile("shop-."), standby.alias)
    assert found.keys() == {"shop-1", "shop-2"}
    assert found["shop-2"] == {standby.at(0): OffsetAndMetadata(5, "")}
    assert client.remote_consumer_offsets(re.compile("shop"), standby.alias) == {}
    assert client.remote_consumer_offsets("a.b", standby.alias)
    assert client.remote_consumer_offsets("a+b", standby.alias) == {}


@pytest.mark.parametrize("gone", [b"", None])
def test_checkpoints_that_are_gone_are_not_answered(standby, client, gone):
    standby.write(standby.checkpoint("g", 0, 1), standby.checkpoint("g", 1, 1))
    standby.write((checkpoint_key("g", *standby.at(0)), gone))
    assert client.remote_consumer_offsets("g", standby.alias).keys() == {standby.at(1)}


def test_records_that_are_no_checkpoints_are_passed_over(standby, client):
    key, value = standby.checkpoint("g", 0, 1)
    standby.write((b"?", b"?"), (key, b"\x00\x09" + value[2:]), (key, value))
    standby.write((standby.checkpoint("g", 1, 1)[0], b"\x00\x00"))
    assert client.remote_consumer_offsets("g", standby.alias).keys() == {standby.at(0)}


def test_an_empty_checkpoints_topic(standby, client):
    assert client.remote_consumer_offsets("g", standby.alias) == {}
    assert client.remote_consumer_offsets(re.compile(".*"), standby.alias) == {}


def test_a_source_without_checkpoints_says_which_there_are(standby, client):
    with pytest.raises(MirrorClientError) as caught:
        client.remote_consumer_offsets("g", "nobody")
    assert caught.value.code == "client.no-checkpoints"
    assert "has no topic nobody.checkpoints.internal" in str(caught.value)
    assert standby.checkpoints in str(caught.value)


def test_half_an_answer_is_none(standby, client, monkeypatch):
    standby.write(standby.checkpoint("g", 0, 1))
    clock = iter([0.0, 31.0])
    with monkeypatch.context() as patch:
        late = SimpleNamespace(monotonic=lambda: next(clock, 31.0))
        patch.setattr("heliograph.client.mirror.time", late)
        with pytest.raises(MirrorClientError, match=r"only 0 records of .* be read in 30 s"):
            client.remote_consumer_offsets("g", standby.alias, 30)
    assert client.remote_consumer_offsets("g", standby.alias)


def test_topics_and_clusters(standby, client):
    alias = standby.alias
    assert client.replication_hops(alias) == 1
    assert client.replication_hops("far") in (1, 2)
    assert client.replication_hops(f"{alias}x") == -1
    assert {alias, "far"} <= client.upstream_clusters()
    assert f"{alias}.far.heartbeats" in client.heartbeat_topics()
    assert standby.checkpoints in client.checkpoint_topics()
    assert client.remote_topics(alias) == {f"{alias}.t", f"{alias}.far.heartbeats"}
    assert client.remote_topics(alias) < client.remote_topics()
    assert not any(t.startswith("__") for t in client.remote_topics())


def test_the_functions_of_remote_cluster_utils(standby):
    properties = standby.properties
    standby.write(standby.checkpoint("g", 0, 7))
    assert replication_hops(properties, standby.alias) == 1
    assert standby.alias in upstream_clusters(properties)
    assert f"{standby.alias}.far.heartbeats" in heartbeat_topics(properties)
    assert standby.checkpoints in checkpoint_topics(properties)
    expected = {standby.at(0): OffsetAndMetadata(7, "")}
    assert translate_offsets(properties, standby.alias, "g", 10) == expected
    assert translate_offsets(properties, standby.alias, re.compile("g")) == {"g": expected}


def test_a_cluster_that_does_not_answer():
    with (
        MirrorClient({"bootstrap.servers": "127.0.0.1:1"}) as client,
        pytest.raises(MirrorClientError, match=r"no broker of cluster 127\.0\.0\.1:1 answers"),
    ):
        client.remote_consumer_offsets("g", "A", 1)


# -- the command ------------------------------------------------------------------------------


def asking(standby, *arguments):
    bootstrap = ("--bootstrap-server", standby.properties["bootstrap.servers"])
    return CliRunner().invoke(client_group, [*arguments, *bootstrap], env={"COLUMNS": "200"})


def test_hops_and_upstream_on_the_command_line(standby):
    done = asking(standby, "hops", standby.alias)
    assert (done.exit_code, done.output) == (0, f"{standby.alias}: 1 hop\n")
    done = asking(standby, "hops", "nobody", "-o", "json")
    assert (done.exit_code, json.loads(done.output)) == (1, {"cluster": "nobody", "hops": -1})
    assert json.loads(asking(standby, "upstream", "-o", "json").output)[standby.alias] == 1
    assert re.search(rf"{standby.alias} +│ +1", asking(standby, "upstream").output)


def test_topics_on_the_command_line(standby):
    found = json.loads(asking(standby, "topics", "-o", "json").output)
    assert found.keys() == {"heartbeats", "checkpoints", "remote"}
    assert standby.checkpoints in found["checkpoints"]
    found = json.loads(asking(standby, "topics", "--source", standby.alias, "-o", "json").output)
    assert found == {"remote": [f"{standby.alias}.far.heartbeats", f"{standby.alias}.t"]}
    assert standby.checkpoints in asking(standby, "topics", "checkpoints").output
    assert asking(standby, "topics", "--source", "nobody").output == "there are none\n"


def test_offsets_on_the_command_line(standby):
    standby.write(standby.checkpoint("g", 0, 12, "meta"), standby.checkpoint("h", 1, 4))
    source = ("--source", standby.alias)
    found = json.loads(asking(standby, "offsets", "g", *source, "-o", "json").output)
    row = {"topic": f"{standby.alias}.t", "partition": 0, "offset": 12, "metadata": "meta"}
    assert found == {"source": standby.alias, "groups": {"g": [row]}}
    assert re.search(r"│ g +│ .*\.t +│ +0 +│ +12 +│ meta",
                     asking(standby, "offsets", "g", *source).output)  # fmt: skip
    one = asking(standby, "offsets", "g", *source, "-o", "csv").output
    assert one == f"{standby.alias}.t,0,12\n"
    both = asking(standby, "offsets", "--regex", ".", *source, "-o", "csv").output
    assert both == f"g,{standby.alias}.t,0,12\nh,{standby.alias}.t,1,4\n"


def test_nobody_s_text_moves_the_cursor(standby):
    standby.write(standby.checkpoint("g\x1b[2J", 0, 1, "[red]\x07x\0"))
    shown = asking(standby, "offsets", "--regex", "(?s).*", "--source", standby.alias).output
    assert "g\\x1b[2J" in shown
    assert "[red]\\x07x " in shown
    assert "\x1b" not in shown


def test_offsets_that_there_are_not(standby):
    done = asking(standby, "offsets", "nobody", "--source", standby.alias)
    assert done.exit_code == 1
    assert done.output == f"no checkpoints of group nobody of cluster {standby.alias}\n"
    done = asking(standby, "offsets", "g", "--regex", "g")
    assert "Give either a GROUP or --regex" in done.output
    done = asking(standby, "offsets", "--regex", "[", "--source", standby.alias)
    assert "does not compile" in done.output


def test_the_only_source_need_not_be_named(standby, tmp_path):
    separated = tmp_path / "client.properties"
    # A separator that no other test has names checkpoints topics of its own.
    separator = f"-{standby.alias}-"
    topic = f"only{separator}checkpoints{separator}internal"
    standby.create(topic)
    batch = build([Record(0, 0, *standby.checkpoint("g", 0, 3))])
    log.append(standby.client, TopicPartition(topic, 0), batch)
    separated.write_text(f"replication.policy.separator = {separator}\n")
    done = asking(standby, "offsets", "g", "--command-config", str(separated), "-o", "json")
    assert json.loads(done.output)["source"] == "only"
    standby.create(f"{standby.alias}-too.checkpoints.internal")
    done = asking(standby, "offsets", "g")
    assert isinstance(done.exception, MirrorClientError)
    assert done.exception.hint == "say which with --source"


def test_kafka_s_own_tool_takes_the_csv(standby, tmp_path):
    topic = f"{standby.alias}.t"
    standby.write(standby.checkpoint("moved", 0, 0), standby.checkpoint("moved2", 0, 0))
    source = ("--source", standby.alias, "-o", "csv")
    for groups, arguments in {
        ("moved",): ("offsets", "moved", *source),
        ("moved", "moved2"): ("offsets", "--regex", "moved.?", *source),
    }.items():
        file = tmp_path / "offsets.csv"
        file.write_text(asking(standby, *arguments).output)
        said = standby.lab.tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server",
            standby.properties["bootstrap.servers"], "--reset-offsets", "--execute",
            "--from-file", str(file), "--timeout", "60000",
            *(x for g in groups for x in ("--group", g)),
        )  # fmt: skip
        for group in groups:
            assert re.search(rf"{group} +{re.escape(topic)} +0 +0", said), said
