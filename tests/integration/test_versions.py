"""Clusters of different Kafka versions: 2.8 with ZooKeeper, the first KRaft, and today's."""

from __future__ import annotations

import uuid

import pytest
from access import allow, create_topic, flow_config, grant, settings_of, write_config
from consumers import same, visible
from grouping import Groups
from mirroring import Mirroring, wait_for
from pairs import Pair
from sources import numbered, transactions
from zookeeper_era import OldCluster

from heliograph.control.acls.sync import AclSync
from heliograph.copy.loop import CopyLoop
from heliograph.ledger.follower import LedgerFollower
from heliograph.ledger.memory import SyncedMemory
from heliograph.model import TopicPartition
from heliograph.wire import acls, admin
from heliograph.wire.cluster import ClusterClient

NEW, BEFORE_4, FIRST_KRAFT, ZOOKEEPER = "4.3.1", "3.9.1", "3.3.2", "2.8.2"


class TwoVersions:
    """A of one version and B of another, as far like a `Lab` as tests need it."""

    def __init__(self, clusters):
        self._clusters = clusters

    def __getitem__(self, alias):
        return self._clusters[alias]


PAIRS = [
    (FIRST_KRAFT, NEW),
    *(
        pytest.param((a, b), marks=pytest.mark.full)
        for a, b in [
            (NEW, FIRST_KRAFT),
            (BEFORE_4, NEW),
            (NEW, BEFORE_4),
            (ZOOKEEPER, NEW),
            (NEW, ZOOKEEPER),
        ]
    ),
]


@pytest.fixture(scope="module", params=PAIRS, ids="->".join)
def versions(request, module_lab_factory, tmp_path_factory):
    wanted = dict(zip("AB", request.param, strict=True))
    kraft = {alias: version for alias, version in wanted.items() if version != ZOOKEEPER}
    old = {
        alias: OldCluster(tmp_path_factory.mktemp(f"zookeeper-{alias}"), version)
        for alias, version in wanted.items()
        if version == ZOOKEEPER
    }
    lab = module_lab_factory(clusters=tuple(kraft), kafka_version=kraft)
    for cluster in old.values():
        cluster.start()
    yield TwoVersions({**{alias: lab[alias] for alias in kraft}, **old})
    for cluster in old.values():
        cluster.stop()


@pytest.fixture
def flow(versions):
    made = Mirroring.of(versions)
    yield made
    made.close()


@pytest.mark.parametrize("identical", [False, True])
def test_f38_records_and_transactions(flow, topic_name, identical):
    flow = flow.leasing(identical=identical, paddable=True)
    flow.create(topic_name)
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"]:
        flow.write(topic_name, numbered(50, codec), 0, **{"compression.type": codec})
    flow.write(topic_name, numbered(60, "tiny"), **{"batch.num.messages": 1, "linger.ms": 0})
    plan = [(numbered(1 + n % 4, f"t{n}"), n % 3 != 0) for n in range(20)]
    committed = transactions(flow, topic_name, plan)
    [receipt] = flow.copy(topic_name)
    assert receipt.records == 5 * 50 + 60 + len(committed)
    assert flow.values(topic_name)[310:] == committed
    if identical:
        same(flow, topic_name)
    # Another process goes on where this one ended.
    flow.write(topic_name, numbered(5, "later"))
    [receipt] = flow.copy(topic_name)
    assert receipt.records == 5


def test_f38_a_late_start_and_a_target_of_its_own_size(flow, topic_name):
    flow = flow.leasing(identical=True, paddable=True)
    flow.create(topic_name, target_configs={"max.message.bytes": "5000"})
    values = [b"%03d" % n + uuid.uuid4().bytes * 40 for n in range(60)]
    flow.write(topic_name, values, **{"linger.ms": 200})
    flow.trim(flow.source, TopicPartition(topic_name, 0), 20)
    flow.copy(topic_name)
    assert [r.value for r in flow.seen(topic_name)] == values[20:]
    assert [r.offset for r in flow.seen(topic_name)] == list(range(20, 60))


def test_f38_a_source_created_anew_is_told_apart(versions, flow, topic_name):
    if isinstance(versions["A"], OldCluster):
        # Seen with 2.8.2: created so soon after its deletion, a topic never gets a leader.
        pytest.skip("a controller with ZooKeeper may overlook a topic that is created anew at once")
    flow.create(topic_name)
    flow.write(topic_name, numbered(10))
    flow.copy(topic_name)
    flow.delete(flow.source, topic_name)
    new = admin.NewTopic(topic_name, 1, 1, {"retention.ms": "-1"})
    assert not admin.create_topics(flow.source, [new], 30_000)
    flow.await_topic(flow.source, topic_name, 1)
    flow.write(topic_name, numbered(20, "new"))
    [receipt] = CopyLoop(flow.lease([topic_name])).run()
    assert "source.recreated" in receipt.error
    assert flow.values(topic_name) == numbered(10)


def test_f38_groups_and_checkpoints(flow, topic_name):
    flow.create(topic_name)
    flow.write(topic_name, numbered(10))
    flow.copy(topic_name)
    groups = Groups(flow, topic_name)
    part, remote = TopicPartition(topic_name, 0), TopicPartition(f"A.{topic_name}", 0)
    groups.commit("g", {part: 4})
    assert groups.emit() == {"g": {str(remote): (4, 4)}}
    groups.syncing.sync()
    assert groups.committed("g")[remote].offset == 4
    assert groups.said(groups.syncing) == {"g": "synced 1 partition"}
    groups.close()


def test_f38_topics_and_their_configs(versions, topic_name, tmp_path):
    pair = Pair(versions, tmp_path, topics=topic_name)
    memory = pair.remember_in()
    pair.create(pair.source, topic_name, 3, {"retention.ms": "86400000"})
    pair.mirrored(topic_name)
    remote = f"A.{topic_name}"
    assert pair.count(pair.target, remote) == 3
    assert pair.overrides(pair.target, remote)["retention.ms"] == "86400000"
    pair.alter(pair.source, topic_name, retention_ms="3600000")
    pair.config_sync(memory).sync()
    wait_for(lambda: pair.overrides(pair.target, remote).get("retention.ms") == "3600000")
    pair.close()


@pytest.mark.full
@pytest.mark.parametrize("versions", [(BEFORE_4, NEW), (NEW, BEFORE_4)], ids="->".join)
def test_f38_acls(lab_factory, tmp_path, versions):
    a, b = versions
    lab = lab_factory(security="SASL_PLAINTEXT", authorizer=True, kafka_version={"A": a, "B": b})
    config = flow_config(write_config(lab, tmp_path, topics="orders"))
    source = ClusterClient(settings_of(lab, "A"), "test")
    target = ClusterClient(settings_of(lab, "B"), "test")
    create_topic(source, "orders")
    create_topic(target, "A.orders")
    create_topic(target, "memory", cleanup_policy="compact")
    grant(source, allow("bob", "READ", "topic", "orders"))
    AclSync(config, source, target, SyncedMemory(LedgerFollower(target, "memory"))).sync()
    wanted = allow("bob", "READ", "topic", "A.orders")
    wait_for(lambda: wanted in acls.describe(target, "TOPIC"))
    source.close()
    target.close()


@pytest.mark.full
@pytest.mark.parametrize("old_format", ["0.9.0", "0.10.2"], ids=["v0", "v1"])
def test_f19_old_record_formats_are_written_anew(
    module_lab_factory, tmp_path, topic_name, lab, old_format
):
    """A broker of the ZooKeeper era that stores records as 0.9 and 0.10 did."""
    old = OldCluster(tmp_path, ZOOKEEPER, **{"log.message.format.version": old_format})
    old.start()
    flow = Mirroring.of(TwoVersions({"A": old, "B": lab["B"]}))
    try:
        flow.create(topic_name)
        # Not lz4: what 0.9 wrote with it, the codec that we use cannot read.
        for codec in ["none", "gzip", "snappy"]:
            flow.write(topic_name, numbered(50, codec), 0, **{"compression.type": codec})
        stored = (tmp_path / "data" / f"{topic_name}-0" / f"{0:020}.log").read_bytes()
        assert stored[16] == (0 if old_format == "0.9.0" else 1), "the magic byte"
        flow.copy(topic_name)
        here, there = visible(flow, "A", topic_name), visible(flow, "B", f"A.{topic_name}")
        assert [r[:3] for r in there] == [r[:3] for r in here], "offset, key and value"
        assert len(there) == 150
        if old_format == "0.10.2":
            assert [r[4] for r in there] == [r[4] for r in here], "the time"
    finally:
        flow.close()
        old.stop()
