"""Records that the target does not take: split, named, or set aside."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from mirroring import wait_for
from sources import numbered

from heliograph.copy.loop import CopyLoop
from heliograph.lab.proof import read_all
from heliograph.model import TopicPartition
from heliograph.wire import admin, configs

HOUR_MS = 3_600_000


@pytest.fixture
def lenient(mirroring):
    """A flow that sets records aside, in a topic of its own."""
    topic = f"mm2-quarantine.{uuid.uuid4().hex[:8]}.internal"
    new = admin.NewTopic(topic, 1, 1, {"max.message.bytes": "100000000", "retention.ms": "-1"})
    assert admin.create_topics(mirroring.target, [new], 30_000) == {}
    mirroring.await_topic(mirroring.target, topic, 1)
    return mirroring.but(quarantine_topic=topic)


def fails(mirroring, topic):
    [receipt] = CopyLoop(mirroring.lease([topic])).run()
    return receipt.error


def quarantined(mirroring):
    rows = read_all(mirroring.target, TopicPartition(mirroring.context.quarantine_topic, 0))
    return [(r.key, r.value, dict(r.headers)) for r in rows]


@pytest.mark.parametrize("identical", [False, True])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_f16_batches_above_the_targets_limit_are_split(mirroring, topic_name, codec, identical):
    mirroring.create(topic_name, target_configs={"max.message.bytes": "5000"})
    values = [b"%03d" % n + uuid.uuid4().bytes * 40 for n in range(60)]
    mirroring.write(topic_name, values, **{"linger.ms": 200, "compression.type": codec})
    flow = mirroring.leasing(identical=identical, paddable=True)
    flow.copy(topic_name)
    assert flow.values(topic_name) == values
    assert [r.offset for r in flow.seen(topic_name)] == list(range(60))


def large_between_small(mirroring, topic):
    mirroring.create(
        topic,
        configs={"max.message.bytes": "2000000"},
        target_configs={"max.message.bytes": "5000"},
    )
    values = [*numbered(3), uuid.uuid4().bytes * 2000, *numbered(3, "after")]
    mirroring.write(topic, values, **{"linger.ms": 100})
    return values


def test_f16_a_record_that_cannot_fit_stops_its_partition_and_is_named(mirroring, topic_name):
    values = large_between_small(mirroring, topic_name)
    mirroring.create(f"{topic_name}-neighbour")
    mirroring.write(f"{topic_name}-neighbour", numbered(5))
    lease = mirroring.lease([topic_name, f"{topic_name}-neighbour"])
    stopped, neighbour = CopyLoop(lease).run()
    assert "target.refused" in stopped.error
    assert f"source offset 3 of {topic_name}-0" in stopped.error
    assert "max.message.bytes=5000" in stopped.error
    assert (neighbour.error, neighbour.records) == ("", 5)
    assert mirroring.values(topic_name) == values[:3], "what comes before it is mirrored"
    # Nothing is skipped: with a larger limit it goes on as if nothing had been.
    alter(mirroring, f"A.{topic_name}", "max.message.bytes", "2000000")
    mirroring.copy(topic_name)
    assert mirroring.values(topic_name) == values


def alter(mirroring, topic, key, value):
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": mirroring.lab["B"].bootstrap})
    for future in client.incremental_alter_configs([resource]).values():
        future.result(30)
    # The broker hears of it a moment after the controller has answered.
    wait_for(lambda: configs.describe(mirroring.target, [topic]).value(topic, key, "") == value)


@pytest.mark.parametrize("identical", [False, True])
def test_f16_a_record_that_cannot_fit_is_set_aside(lenient, topic_name, identical):
    values = large_between_small(lenient, topic_name)
    flow = lenient.leasing(identical=identical, paddable=True)
    [receipt] = flow.copy(topic_name)
    assert flow.values(topic_name) == values[:3] + values[4:]
    [(key, value, headers)] = quarantined(flow)
    assert (key, value) == (b"k3", values[3])
    assert headers["heliograph.source.cluster"] == b"A"
    assert headers["heliograph.source.topic"] == topic_name.encode()
    assert headers["heliograph.source.partition"] == b"0"
    assert headers["heliograph.source.offset"] == b"3"
    assert b"max.message.bytes=5000" in headers["heliograph.reason"]
    assert receipt.quarantined == 1
    if identical:
        assert [r.offset for r in flow.seen(topic_name)] == [0, 1, 2, 4, 5, 6]


def write_at(mirroring, topic, stamps, keys=None):
    producer = mirroring.producer(**{"linger.ms": 200})
    for n, stamp in enumerate(stamps):
        key = keys[n] if keys else b"k%d" % n
        producer.produce(topic, b"v%d" % n, key, 0, timestamp=stamp)
    assert producer.flush(30) == 0


def test_f22_timestamps_out_of_range_are_named(mirroring, topic_name):
    mirroring.create(
        topic_name,
        configs={"message.timestamp.after.max.ms": str(100 * HOUR_MS)},
        target_configs={"message.timestamp.after.max.ms": str(HOUR_MS)},
    )
    now = int(time.time() * 1000)
    write_at(mirroring, topic_name, [now, now + 5 * HOUR_MS, now])
    error = fails(mirroring, topic_name)
    assert "source offset 1 (" in error
    assert "INVALID_TIMESTAMP" in error.upper().replace(" ", "_") or "InvalidTimestamp" in error
    assert "heliograph.on.refused=quarantine" in error


def test_f22_timestamps_out_of_range_are_set_aside(lenient, topic_name):
    lenient.create(
        topic_name,
        configs={"message.timestamp.after.max.ms": str(100 * HOUR_MS)},
        target_configs={"message.timestamp.after.max.ms": str(HOUR_MS)},
    )
    now = int(time.time() * 1000)
    write_at(lenient, topic_name, [now, now + 5 * HOUR_MS, now, now + 6 * HOUR_MS])
    [receipt] = lenient.copy(topic_name)
    assert lenient.values(topic_name) == [b"v0", b"v2"]
    assert [value for _, value, _ in quarantined(lenient)] == [b"v1", b"v3"]
    assert receipt.quarantined == 2


def test_f23_records_without_a_key_for_a_compacted_target_are_set_aside(lenient, topic_name):
    lenient.create(topic_name, target_configs={"cleanup.policy": "compact"})
    now = int(time.time() * 1000)
    write_at(lenient, topic_name, [now] * 4, [b"a", None, None, b"b"])
    lenient.copy(topic_name)
    assert lenient.values(topic_name) == [b"v0", b"v3"]
    assert [(key, value) for key, value, _ in quarantined(lenient)] == [
        (None, b"v1"),
        (None, b"v2"),
    ]


def test_f23_records_without_a_key_stop_a_strict_flow(mirroring, topic_name):
    mirroring.create(topic_name, target_configs={"cleanup.policy": "compact"})
    now = int(time.time() * 1000)
    write_at(mirroring, topic_name, [now] * 3, [b"a", None, b"b"])
    error = fails(mirroring, topic_name)
    assert "source offset 1 (" in error
    assert "key" in error
