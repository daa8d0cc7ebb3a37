"""Kafka's own tools and another family's client on what one `heliograph run --once` wrote."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from heliograph.lab.proof import read_all
from heliograph.model import ClientSettings
from heliograph.model import TopicPartition as Partition
from heliograph.wire.cluster import ClusterClient

TIMESTAMP = 1_700_000_000_000
FORMATTERS = "org.apache.kafka.connect.mirror.formatters"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.fixture(scope="module")
def mirrored(lab, tmp_path_factory):
    """Topic name after a mirror of it: 3 plain records, an aborted and a committed transaction."""
    topic = f"compat-{uuid.uuid4().hex[:8]}"
    source = lab["A"].bootstrap
    # Its records are from 2023.
    lab.tool("TopicCommand", "--bootstrap-server", source, "--create", "--topic", topic,
             "--config", "retention.ms=-1")  # fmt: skip
    heartbeats = ("--topic", "heartbeats", "--config", "cleanup.policy=compact")
    lab.tool("TopicCommand", "--bootstrap-server", source, "--create", "--if-not-exists",
             *heartbeats)  # fmt: skip
    plain = Producer({"bootstrap.servers": source, "compression.type": "lz4"})
    for n in range(3):
        plain.produce(topic, b"value-%d" % n, b"key-%d" % n, 0, timestamp=TIMESTAMP + n,
                      headers=[("n", b"%d" % n), ("n", b"again")])  # fmt: skip
    assert plain.flush(30) == 0
    # What a mirror of C->A says on A; A->B takes it on.
    key, value = b"\x00\x01C\x00\x01A", b"\x00\x00" + TIMESTAMP.to_bytes(8, "big")
    plain.produce("heartbeats", value, key, 0, timestamp=TIMESTAMP)
    assert plain.flush(30) == 0
    transactional = Producer({"bootstrap.servers": source, "transactional.id": topic})
    transactional.init_transactions(30)
    for commit in (False, True):
        transactional.begin_transaction()
        transactional.produce(topic, b"committed" if commit else b"aborted", b"txn", 0,
                              timestamp=TIMESTAMP + 9)  # fmt: skip
        transactional.flush(30)
        transactional.commit_transaction(30) if commit else transactional.abort_transaction(30)
    path = tmp_path_factory.mktemp("compat") / "mm2.properties"
    path.write_text(
        f"""clusters = A, B
A.bootstrap.servers = {lab["A"].bootstrap}
B.bootstrap.servers = {lab["B"].bootstrap}
A->B.enabled = true
A->B.topics = {topic}
B->A.emit.heartbeats.enabled = false
replication.factor = 1
offset-syncs.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "heliograph", "run", str(path), "--once", "-o", "plain"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return topic


def consume(lab, alias, topic, *args):
    """ConsoleConsumer from the start until it has read all there is."""
    settings = ClientSettings(alias, lab[alias].client_properties())
    with ClusterClient(settings, "test") as client:
        count = sum(1 for _ in read_all(client, Partition(topic, 0)))
    # Not until it gives up after some seconds without a record: it may need more for the first.
    out = lab.tool(
        CONSUMER, "--bootstrap-server", lab[alias].bootstrap, "--topic", topic,
        "--from-beginning", "--max-messages", str(count), *args, timeout_s=300,
    )  # fmt: skip
    return out.splitlines()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_the_console_consumer_reads_the_mirror(lab, mirrored, isolation):
    shown = ("key", "timestamp", "offset", "partition", "headers")
    switches = [x for name in shown for x in ("--formatter-property", f"print.{name}=true")]
    lines = consume(lab, "B", f"A.{mirrored}", "--isolation-level", isolation, *switches)
    assert lines == [
        *(
            f"CreateTime:{TIMESTAMP + n}\tPartition:0\tOffset:{n}\tn:{n},n:again"
            f"\tkey-{n}\tvalue-{n}"
            for n in range(3)
        ),
        f"CreateTime:{TIMESTAMP + 9}\tPartition:0\tOffset:5\tNO_HEADERS\ttxn\tcommitted",
    ]


def test_mm2s_formatter_reads_our_offset_syncs(lab, mirrored):
    lines = consume(
        lab, "A", "mm2-offset-syncs.B.internal", "--formatter", f"{FORMATTERS}.OffsetSyncFormatter"
    )
    ours = [line for line in lines if mirrored in line]
    pattern = (
        r"OffsetSync\{topicPartition="
        + re.escape(f"{mirrored}-0")
        + r", upstreamOffset=(\d+), downstreamOffset=(\d+)\}"
    )
    syncs = []
    for line in ours:
        found = re.fullmatch(pattern, line)
        assert found, line
        syncs.append((int(found[1]), int(found[2])))
    # Offsets 0 to 2, an aborted record and its marker, then the committed one at 5.
    assert syncs[-1] == (5, 5)
    assert set(syncs) <= {(2, 2), (5, 5)}


def test_mm2s_formatter_reads_our_heartbeats(lab, mirrored):
    lines = consume(lab, "B", "heartbeats", "--formatter", f"{FORMATTERS}.HeartbeatFormatter")
    # Other tests of the session have other aliases.
    pattern = r"Heartbeat\{sourceClusterAlias=(.+), targetClusterAlias=(.+), timestamp=\d{13}\}"
    found = [re.fullmatch(pattern, line) for line in lines]
    assert all(found), lines
    assert ("A", "B") in {match.groups() for match in found}


def test_heartbeats_are_mirrored_onward(lab, mirrored):
    lines = consume(lab, "B", "A.heartbeats", "--formatter", f"{FORMATTERS}.HeartbeatFormatter")
    expected = f"Heartbeat{{sourceClusterAlias=C, targetClusterAlias=A, timestamp={TIMESTAMP}}}"
    assert expected in lines


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_librdkafka_reads_the_mirror(lab, mirrored, isolation):
    consumer = Consumer(
        {
            "bootstrap.servers": lab["B"].bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(f"A.{mirrored}", 0, 0)])
    seen = []
    while True:
        message = consumer.poll(120)
        assert message is not None, "nothing came"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF"
            break
        seen.append(
            (message.offset(), message.key(), message.value(), message.timestamp(),
             message.headers())
        )  # fmt: skip
    consumer.close()
    create_time = 1
    assert seen == [
        *(
            (n, b"key-%d" % n, b"value-%d" % n, (create_time, TIMESTAMP + n),
             [("n", b"%d" % n), ("n", b"again")])
            for n in range(3)
        ),
        (5, b"txn", b"committed", (create_time, TIMESTAMP + 9), None),
    ]  # fmt: skip


def test_the_remote_topic_shows_itself_to_admin_tools(lab, mirrored):
    said = lab.tool(
        "GetOffsetShell", "--bootstrap-server", lab["B"].bootstrap, "--topic", f"A.{mirrored}"
    )
    assert said.strip() == f"A.{mirrored}:0:7", "the same end as on the source"
