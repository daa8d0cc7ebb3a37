"""Java's MirrorClient, RemoteClusterUtils, formatters and the real MirrorCheckpointConnector on
targets that one ``heliograph run`` has filled.

Two flows from lab cluster A to B, under aliases of their own. ``east->west`` has our checkpoints.
``plain->HOSTILE`` has none and dense offsets: there MM2's connector translates by our offset syncs.
"""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from heliograph.batch.records import Record, build, decode
from heliograph.client import FlowOffsets, MirrorClient, MirrorClientError
from heliograph.config import load
from heliograph.config.properties import dump
from heliograph.jvm.artifacts import Artifact, classpath
from heliograph.jvm.java import find_java
from heliograph.lab.cluster import DEFAULT_KAFKA_VERSION, SHORT_LIVED
from heliograph.lab.process import JavaProcess
from heliograph.mm2.formats import Checkpoint, Heartbeat, OffsetSync, checkpoint_key
from heliograph.model import ClientSettings
from heliograph.model import TopicPartition as Partition
from heliograph.policy import policy_of
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient

PROBE = str(Path(__file__).with_name("MirrorClientProbe.java"))
MIRROR = "org.apache.kafka.connect.mirror"
#: As in Kafka's own test of URL-hostile aliases, blank, dot, slash, percent and backslash included.
HOSTILE = "B- ._~:/?#[]@!$&'()*+;=\"<>%{}|\\^`618"
GROUPS = ("shop-1", "shop-2", "shop.3", "late", "é")
STEPS, PER_STEP = 4, 10


def wait_for(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.1)
    return answer


def _new(alias, lab, cluster):
    return ClusterClient(ClientSettings(alias, lab[cluster].client_properties()), "test")


class Filled:
    """What the mirror was given, and clients to ask what became of it."""

    def __init__(self, lab, folder):
        self.lab, self.folder = lab, folder
        self.a, self.b = _new("A", lab, "A"), _new("B", lab, "B")
        stem = f"mc-{uuid.uuid4().hex[:6]}"
        self.plain, self.txn = f"{stem}-plain", f"{stem}-txn"
        self.committed = {}
        self.config = folder / "mm2.properties"
        self.config.write_text(dump(self._properties(stem)))
        flows = load(self.config).flows
        self.flows = {f.flow.source: f for f in flows if f.enabled}

    def _properties(self, stem):
        here, there = self.lab["A"].bootstrap, self.lab["B"].bootstrap
        return {
            "clusters": f"east, west, plain, {HOSTILE}",
            "east.bootstrap.servers": here, "plain.bootstrap.servers": here,
            "west.bootstrap.servers": there, f"{HOSTILE}.bootstrap.servers": there,
            "topics": f"{stem}.*", "replication.factor": "1",
            "groups": "shop.*, late, é",
            "offset-syncs.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "emit.heartbeats.enabled": "false",
            "refresh.topics.interval.seconds": "1",
            "emit.checkpoints.interval.seconds": "1",
            "east->west.enabled": "true", "east->west.emit.heartbeats.enabled": "true",
            "west->east.emit.heartbeats.enabled": "true",
            f"plain->{HOSTILE}.enabled": "true",
            f"plain->{HOSTILE}.emit.heartbeats.enabled": "true",
            f"plain->{HOSTILE}.heartbeats.replication.enabled": "false",
            f"plain->{HOSTILE}.emit.checkpoints.enabled": "false",
            f"plain->{HOSTILE}.offset-syncs.topic.location": "target",
            f"plain->{HOSTILE}.offset.lag.max": "0",
            f"plain->{HOSTILE}.heliograph.offsets": "dense",
        }  # fmt: skip

    def create(self):
        new = [admin.NewTopic(self.plain, 3, 1, {}), admin.NewTopic(self.txn, 1, 1, {}),
               admin.NewTopic("heartbeats", 1, 1, {"cleanup.policy": "compact"}),
               admin.NewTopic("south.heartbeats", 1, 1, {"cleanup.policy": "compact"})]  # fmt: skip
        assert not admin.create_topics(self.a, new, 30_000)

    def ends(self, client, topic):
        def call():
            metadata = client.metadata([topic])
            if topic not in metadata.topics:
                return {}
            wanted = [Partition(topic, i) for i in metadata.topics[topic].partitions]
            found = admin.list_offsets(client, metadata, wanted, admin.LATEST)
            return {p.partition: offset for p, offset in found.items()}

        return client.retry(call, 30)

    def mirrored(self, step):
        """Whether the target has all that was produced up to and including ``step``."""
        count = PER_STEP * (step + 1)
        return all(
            self.ends(self.b, topic) == ends
            for topic, ends in {
                f"east.{self.plain}": dict.fromkeys(range(3), count),
                f"plain.{self.plain}": dict.fromkeys(range(3), count),
                # Five aborted records, five committed ones, and a marker behind each.
                f"east.{self.txn}": {0: 12 * (step + 1)},
                f"plain.{self.txn}": {0: 5 * (step + 1)},
            }.items()
        )

    def produce(self, mirror):
        """In small steps, each mirrored before the next, so that there are many offset syncs."""
        plain = Producer({"bootstrap.servers": self.lab["A"].bootstrap})
        transactional = Producer(
            {"bootstrap.servers": self.lab["A"].bootstrap, "transactional.id": self.txn}
        )
        transactional.init_transactions(30)
        for step in range(STEPS):
            for n in range(PER_STEP):
                for p in range(3):
                    plain.produce(self.plain, f"{step}-{n}", "k", p)
            assert plain.flush(30) == 0
            for commit in (False, True):
                transactional.begin_transaction()
                for n in range(5):
                    transactional.produce(self.txn, f"{step}-{n}", "k", 0)
                transactional.flush(30)
                if commit:
                    transactional.commit_transaction(30)
                else:
                    transactional.abort_transaction(30)
            wait_for(lambda s=step: mirror.poll() is not None or self.mirrored(s), 240, "mirrored")
            assert mirror.poll() is None, (self.folder / "run.log").read_text()

    def commit(self):
        """Groups at the beginning, at the end and anywhere between; some have metadata."""
        dice = random.Random(5)
        ends = {(t, p): end for t in (self.plain, self.txn)
                for p, end in self.ends(self.a, t).items()}  # fmt: skip
        for group in GROUPS:
            places = [
                TopicPartition(t, p, end if group == "late" else dice.randint(1, end),
                               f"m-{p}" if group == "shop-1" else "")
                for (t, p), end in ends.items()
            ]  # fmt: skip
            consumer = Consumer({"bootstrap.servers": self.lab["A"].bootstrap, "group.id": group})
            wait_for(lambda c=consumer, o=places: _committed(c, o), 120, "a commit")
            consumer.close()
            self.committed[group] = {(o.topic, o.partition): o.offset for o in places}

    def truth(self, alias):
        """(group, remote topic, partition) -> the exact translation of what was committed."""
        with FlowOffsets(self.flows[alias]) as offsets:
            return {
                (group, f"{alias}.{topic}", partition):
                offsets.to_target(topic, partition, at).offset
                for group, places in self.committed.items()
                for (topic, partition), at in places.items()
            }  # fmt: skip

    def read(self, topic):
        """All records of an internal topic of B."""
        partition = Partition(topic, 0)
        return [r for chunk in log.read_to_end(self.b, partition, 0) for r in decode(chunk)]

    def write(self, alias, pairs):
        """A checkpoints topic of another source, with these records."""
        topic = f"{alias}.checkpoints.internal"
        configs = {"cleanup.policy": "compact"}
        assert not admin.create_topics(self.b, [admin.NewTopic(topic, 1, 1, configs)], 30_000)
        batch = build([Record(0, 0, key, value) for key, value in pairs])
        log.append(self.b, Partition(topic, 0), batch)
        return topic


def _committed(consumer, places):
    try:
        consumer.commit(offsets=places, asynchronous=False)
    except KafkaException:
        return False
    return True


def metadata_of(group, partition):
    """What `commit` gave; confluent-kafka's C code ends it with a NUL, which is kept like all."""
    return f"m-{partition}\0" if group == "shop-1" else "\0"


@pytest.fixture(scope="module")
def filled(lab, tmp_path_factory):
    made = Filled(lab, tmp_path_factory.mktemp("mirror-client"))
    made.create()
    with (made.folder / "run.log").open("wb") as output:
        mirror = subprocess.Popen(
            [sys.executable, "-m", "heliograph", "run", str(made.config), "-o", "plain"],
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            made.produce(mirror)
            made.commit()
            truth = made.truth("east")
            wait_for(lambda: checkpoints(made, "east") == truth, 120, "exact checkpoints")
            wait_for(lambda: heartbeats(made), 120, "heartbeats are mirrored onward")
        finally:
            mirror.send_signal(signal.SIGTERM)
            mirror.wait(120)
    yield made
    made.a.close()
    made.b.close()


def heartbeats(filled):
    """Whether those of the other way are mirrored, and the topic of those from further away."""
    if not all(filled.ends(filled.b, f"east.{x}heartbeats") for x in ("", "south.")):
        return False
    onward = {Heartbeat.decode(r.key, r.value)[:2] for r in filled.read("east.heartbeats")}
    return ("west", "east") in onward


def checkpoints(filled, alias):
    """What our MirrorClient says of all groups."""
    with MirrorClient(filled.lab["B"].client_properties()) as client:
        try:
            found = client.remote_consumer_offsets(re.compile(".*", re.DOTALL), alias)
        except MirrorClientError:
            return {}
    return {(g, p.topic, p.partition): o.offset
            for g, offsets in found.items() for p, o in offsets.items()}  # fmt: skip


def ask(lab, questions):
    """The answers of the real Java classes."""
    modules = subprocess.run(
        [find_java(), "--list-modules"], capture_output=True, text=True, check=True, timeout=300
    ).stdout
    if "jdk.compiler" not in modules:
        pytest.skip("a JRE cannot run a program from its source; a JDK is needed")
    return json.loads(lab.tool(PROBE, stdin=json.dumps(questions), timeout_s=600))


@pytest.fixture(scope="module")
def answers(lab, filled):
    """Java's, beside the questions."""
    key, value = Checkpoint("g", "dead.t", 0, 1, 1, "").encode()
    gone = checkpoint_key("g", "dead.t", 0)
    unique = uuid.uuid4().hex[:6]
    filled.write(f"empty{unique}", [(key, value), Checkpoint("h", "t", 0, 1, 2, "").encode(),
                                    (gone, b"")])  # fmt: skip
    filled.write(f"null{unique}", [(key, value), (gone, None)])
    asked = {
        "properties": lab["B"].client_properties(),
        "aliases": ["east", "west", "south", "plain", "nobody"],
        "groups": [["east", g] for g in (*GROUPS, "unknown", "shop-")]
        + [[f"empty{unique}", "h"], [f"null{unique}", "h"]],
        "patterns": [["east", "shop-."], ["east", "shop"], ["east", ".*"], ["east", "é|late"]],
    }
    return asked, ask(lab, {"client": asked})["client"], unique


def in_rows(offsets):
    return sorted([p.topic, p.partition, o.offset, o.metadata] for p, o in offsets.items())


def test_s11_java_and_we_see_the_same_clusters(answers, lab):
    asked, java, _ = answers
    with MirrorClient(lab["B"].client_properties()) as ours:
        assert java["hops"] == {a: ours.replication_hops(a) for a in asked["aliases"]}
        assert sorted(java["upstream"]) == sorted(ours.upstream_clusters())
    assert java["hops"]["east"] == 1
    assert java["hops"]["south"] == 2
    assert java["hops"]["nobody"] == -1
    assert {"east", "south"} <= set(java["upstream"])


def test_s12_java_and_we_see_the_same_topics(answers, filled, lab):
    asked, java, _ = answers
    with MirrorClient(lab["B"].client_properties()) as ours:
        assert sorted(java["heartbeats"]) == sorted(ours.heartbeat_topics())
        assert sorted(java["checkpoints"]) == sorted(ours.checkpoint_topics())
        assert sorted(java["remote"]) == sorted(ours.remote_topics())
        for alias in asked["aliases"]:
            assert sorted(java["remoteFrom"][alias]) == sorted(ours.remote_topics(alias))
    assert {"heartbeats", "east.heartbeats", "east.south.heartbeats"} <= set(java["heartbeats"])
    assert "east.checkpoints.internal" in java["checkpoints"]
    assert {f"east.{filled.plain}", f"east.{filled.txn}"} <= set(java["remoteFrom"]["east"])


def test_s75_java_translates_by_our_checkpoints_exactly_as_we_do(answers, filled, lab):
    asked, java, _ = answers
    with MirrorClient(lab["B"].client_properties()) as ours:
        for alias, group in asked["groups"]:
            if alias == "east":
                name = f"{alias}/{group}"
                expected = in_rows(ours.remote_consumer_offsets(group, alias))
                assert sorted(java["byId"][name]) == sorted(java["translated"][name]) == expected
        for alias, pattern in asked["patterns"]:
            found = ours.remote_consumer_offsets(re.compile(pattern), alias)
            expected = {group: in_rows(offsets) for group, offsets in found.items()}
            for kind in ("byPattern", "translatedByPattern"):
                java_s = java[kind][f"{alias}/{pattern}"]
                assert {g: sorted(rows) for g, rows in java_s.items()} == expected
    truth = filled.truth("east")
    theirs = {(group, topic, partition): offset
              for group, rows in java["byPattern"]["east/.*"].items()
              for topic, partition, offset, _ in rows}  # fmt: skip
    assert theirs == truth
    assert java["byId"]["east/unknown"] == []
    for _, partition, _, metadata in java["byId"]["east/shop-1"]:
        assert metadata == metadata_of("shop-1", partition)


def test_java_passes_over_an_empty_checkpoint_and_dies_of_a_tombstone(answers):
    # Why we write checkpoints that are gone with an empty value, never with none.
    _, java, unique = answers
    assert java["byId"][f"empty{unique}/h"] == [["t", 0, 2, ""]]
    assert java["byId"][f"null{unique}/h"] == "java.lang.NullPointerException"
    assert java["translated"][f"null{unique}/h"] == "java.lang.NullPointerException"


def formatted(filled, lab, topic, *options):
    """All records of a checkpoints topic as MM2's formatter shows them."""
    count = filled.ends(filled.b, topic)[0]
    return lab.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server",
        lab["B"].bootstrap, "--topic", topic, "--from-beginning", "--max-messages", str(count),
        "--formatter", f"{MIRROR}.formatters.CheckpointFormatter", *options, timeout_s=300,
    )  # fmt: skip


def test_mm2s_formatter_skips_a_checkpoint_that_is_gone_if_told_to(answers, filled, lab):
    topic = f"empty{answers[2]}.checkpoints.internal"
    shown = formatted(filled, lab, topic, "--skip-message-on-error")
    assert shown.count("Checkpoint{consumerGroupId=") == 2


def test_mm2s_formatter_reads_our_checkpoints(filled, lab):
    out = formatted(filled, lab, "east.checkpoints.internal")
    pattern = (
        r"Checkpoint\{consumerGroupId=(.+), topicPartition=(.+)-(\d+), upstreamOffset=(\d+),"
        r" downstreamOffset=(\d+), metadata=(.*)\}"
    )
    found = {}
    for line in out.splitlines():
        group, remote, partition, up, down, metadata = re.fullmatch(pattern, line).groups()
        found[group, remote, int(partition)] = (int(up), int(down), metadata)
    assert {where: down for where, (_, down, _) in found.items()} == filled.truth("east")
    for (group, remote, partition), (up, _, metadata) in found.items():
        assert up == filled.committed[group][remote.removeprefix("east."), partition]
        assert metadata == metadata_of(group, partition)


def test_s13_an_alias_of_hostile_characters_is_mirrored_to(filled):
    for topic in (filled.plain, filled.txn):
        assert sum(filled.ends(filled.b, f"plain.{topic}").values()) > 0
    beats = {Heartbeat.decode(r.key, r.value)[:2] for r in filled.read("heartbeats")}
    assert ("plain", HOSTILE) in beats
    assert filled.read("mm2-offset-syncs.plain.internal")
    with FlowOffsets(filled.flows["plain"]) as offsets:
        assert offsets.to_target(filled.txn, 0, 1).exact


def test_s92_heartbeats_are_emitted_by_the_pairs_that_shall(filled):
    pairs = {Heartbeat.decode(r.key, r.value)[:2] for r in filled.read("heartbeats")}
    assert ("east", "west") in pairs
    assert not pairs & {("plain", "west"), ("west", HOSTILE), (HOSTILE, "west"), ("east", HOSTILE)}
    onward = {Heartbeat.decode(r.key, r.value)[:2] for r in filled.read("east.heartbeats")}
    assert ("west", "east") in onward, "the other way's heartbeats, mirrored"


# -- the real MirrorCheckpointConnector on our offset syncs ---------------------------------------


@pytest.fixture
def mm2_checkpoints(filled, lab):
    """Connect with that connector only: it reads our offset syncs and nobody else writes any."""
    here, there = lab["A"].bootstrap, lab["B"].bootstrap
    converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
    worker = {
        "bootstrap.servers": there, "key.converter": converter, "value.converter": converter,
        "offset.storage.file.filename": str(filled.folder / "connect.offsets"),
        "listeners": "http://127.0.0.1:0", "plugin.discovery": "service_load",
    }  # fmt: skip
    connector = {
        "name": "checkpoints", "connector.class": f"{MIRROR}.MirrorCheckpointConnector",
        "source.cluster.alias": "plain", "target.cluster.alias": HOSTILE,
        "source.cluster.bootstrap.servers": here, "target.cluster.bootstrap.servers": there,
        "topics": f"{filled.plain}, {filled.txn}", "groups": "shop.*, late, é",
        "offset-syncs.topic.location": "target", "checkpoints.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1", "emit.checkpoints.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
    }  # fmt: skip
    for name, values in (("worker", worker), ("connector", connector)):
        text = dump(values).encode("ascii", "backslashreplace").decode().replace("\\xe9", "\\u00e9")
        (filled.folder / f"{name}.properties").write_text(text)
    process = JavaProcess(
        "connect", "org.apache.kafka.connect.cli.ConnectStandalone",
        [str(filled.folder / f"{name}.properties") for name in ("worker", "connector")],
        classpath=classpath(DEFAULT_KAFKA_VERSION, Artifact.CONNECT_MIRROR),
        folder=filled.folder, jvm_flags=["-Xmx256M", "-XX:+UseSerialGC", *SHORT_LIVED],
        log_level="INFO",
    )  # fmt: skip
    process.start()
    yield process
    process.stop(grace_s=0)


def test_mm2s_own_connector_translates_by_our_offset_syncs(filled, mm2_checkpoints):
    truth = filled.truth("plain")
    late = {where for where in truth if where[0] == "late"}

    def all_there():
        mm2_checkpoints.require_running()
        found = checkpoints(filled, "plain")
        return found if late < found.keys() else None

    found = wait_for(all_there, 120, "MM2's checkpoints of group late and of others")
    syncs = {}
    for record in filled.read("mm2-offset-syncs.plain.internal"):
        sync = OffsetSync.decode(record.key, record.value)
        syncs.setdefault((f"plain.{sync.topic}", sync.partition), []).append(sync)
    assert any(s.upstream != s.downstream for all_of in syncs.values() for s in all_of)
    for (group, topic, partition), offset in found.items():
        committed = filled.committed[group][topic.removeprefix("plain."), partition]
        by_rule = {
            s.downstream if s.upstream == committed else s.downstream + 1
            for s in syncs[topic, partition]
            if s.upstream <= committed
        }
        assert offset in by_rule
        assert offset <= truth[group, topic, partition], "never past a record that was not read"
        if group == "late":
            assert offset == truth[group, topic, partition], "at the end it is exact"


# -- names ----------------------------------------------------------------------------------------


def test_s05_s09_s10_policies_name_and_read_topics_as_java_s_do(lab):
    properties = [
        {"replication.policy.class": f"{MIRROR}.{name}", "source.cluster.alias": "A", **more}
        for name in ("DefaultReplicationPolicy", "IdentityReplicationPolicy")
        for more in (
            {}, {"replication.policy.separator": "_"}, {"replication.policy.separator": "__"},
            {"replication.policy.separator": "-",
             "replication.policy.internal.topic.separator.enabled": "false"},
            {"replication.policy.internal.topic.separator.enabled": "false"},
        )
    ]  # fmt: skip
    parts = ["a", "heartbeats", "mm2", "checkpoints", "internal", "__x", ""]
    topics = sorted({
        separator.join(names)
        for separator in (".", "_", "__", "-")
        for count in (1, 2, 3)
        for names in _product(parts, count)
    } - {""})  # fmt: skip
    java = ask(lab, {"policies": {"properties": properties, "topics": topics}})["policies"]
    for values, named in zip(properties, java, strict=True):
        policy = policy_of(values["replication.policy.class"], values)
        ours = {
            t: [
                policy.format_remote_topic("A", t), policy.topic_source(t),
                policy.upstream_topic(t), policy.original_topic(t), policy.is_heartbeats_topic(t),
                policy.is_checkpoints_topic(t), policy.is_mm2_internal_topic(t),
                policy.is_internal_topic(t),
            ]
            for t in topics
        }  # fmt: skip
        ours[""] = [policy.heartbeats_topic(), policy.offset_syncs_topic("B"),
                    policy.checkpoints_topic("A")]  # fmt: skip
        differ = {t: (ours[t], named[t]) for t in ours if ours[t] != named[t]}
        assert not differ, f"{len(differ)} names by {values}: {next(iter(differ.items()))}"


def _product(parts, count):
    if count == 0:
        return [()]
    return [(*rest, part) for rest in _product(parts, count - 1) for part in parts]
