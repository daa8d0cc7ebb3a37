"""Records that brokers take and codecs stumble over, and answers that are damaged on their way."""

from __future__ import annotations

import os
import struct
import uuid

import pytest
from consumers import same
from sources import numbered
from verifying import Verifying

from heliograph.batch.records import Record, build
from heliograph.copy.loop import CopyLoop
from heliograph.lab.proof import read_all
from heliograph.model import TopicPartition
from heliograph.wire import admin, log
from heliograph.wire.fetch import FetchSession

TIME, FAR = 1_700_000_000_000, 1 << 62


def append(mirroring, topic, *batches, codec=0):
    """Each a batch of (timestamp, value, headers)."""
    for rows in batches:
        made = [Record(0, time, b"k", value, headers) for time, value, headers in rows]
        log.append(mirroring.source, TopicPartition(topic, 0), build(made, codec=codec))


@pytest.fixture
def verify(mirroring, tmp_path, monkeypatch):
    return Verifying(mirroring, tmp_path, monkeypatch)


def assert_exact(mirroring, verify, topic):
    proof = mirroring.proof(topic)
    assert proof.identical, proof
    report = verify(topic, complete=True)
    assert (report.exit_code, report.totals.counts) == (0, {}), report.differences


@pytest.mark.parametrize("codec", [0, 4])
def test_records_without_a_timestamp_stay_without_one(mirroring, verify, topic_name, codec):
    """Clients that write -1 exist; the first record of a batch decides how it is stored."""
    wide = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
    mirroring.create(topic_name, configs=wide, target_configs=wide | {"max.message.bytes": "9000"})
    small = [-1, TIME, -1, TIME + 5, TIME - 5, 0, FAR, -1]
    append(mirroring, topic_name, *([(time, b"small", ())] for time in small), codec=codec)
    # These are passed through, or split for the target's limit.
    large = [-1, TIME, FAR, -1, -1, TIME]
    rows = [(time, os.urandom(4000), ()) for time in large]
    append(mirroring, topic_name, rows[:2], rows, rows[1:3], codec=codec)
    mirroring.copy(topic_name)
    wanted = [*small, *large[:2], *large, *large[1:3]]
    assert [r.timestamp for r in mirroring.seen(topic_name)] == wanted
    if codec == 0:
        same(mirroring, topic_name)
    assert_exact(mirroring, verify, topic_name)


def name(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


ODD = [(name(b"\xff\xfe"), b"1"), ("plain", None), (name(b"a\xed\xa0\x80"), b"2")]


@pytest.mark.parametrize("codec", [0, 3])
def test_header_names_are_bytes(mirroring, verify, topic_name, codec):
    topic = f"mm2-quarantine.{uuid.uuid4().hex[:8]}.internal"
    assert admin.create_topics(mirroring.target, [admin.NewTopic(topic, 1, 1, {})], 30_000) == {}
    mirroring.await_topic(mirroring.target, topic, 1)
    flow = mirroring.but(quarantine_topic=topic)
    flow.create(topic_name, target_configs={"max.message.bytes": "9000"})
    values = [os.urandom(3200) for _ in range(4)]
    one = [(TIME, b"small", ODD)]
    split = [(TIME, value, ODD) for value in values]
    append(flow, topic_name, one, [(TIME, b"small", ())], one, split[:2], split, one, codec=codec)
    flow.copy(topic_name)
    there = flow.seen(topic_name)
    assert len(there) == 10
    assert [list(r.headers) for r in there] == [ODD, [], *[ODD] * 8]
    assert_exact(flow, verify, topic_name)
    # One that does not fit is set aside, under its names.
    append(flow, topic_name, [(TIME, os.urandom(16_000), ODD)], one, codec=codec)
    flow.copy(topic_name)
    [aside] = read_all(flow.target, TopicPartition(topic, 0))
    assert list(aside.headers[-3:]) == ODD
    assert len(flow.seen(topic_name)) == 11


@pytest.mark.parametrize("length", [-12, 0, 30, 1 << 30])
def test_f36_a_damaged_length_fails_one_partition_and_names_the_offset(
    mirroring, topic_name, monkeypatch, length
):
    mirroring.create(topic_name, 2)
    for partition in range(2):
        tiny = {"batch.num.messages": 1, "linger.ms": 0}
        mirroring.write(topic_name, numbered(50), partition, **tiny)
    parse = FetchSession._parse_partition
    damaged = []

    def damage(self, topic, frame, position):
        fetched, following = parse(self, topic, frame, position)
        if fetched.partition == TopicPartition(topic_name, 0) and fetched.records:
            struct.pack_into(">i", fetched.records, 8, length)
            damaged.append(fetched.offset)
        return fetched, following

    monkeypatch.setattr(FetchSession, "_parse_partition", damage)
    failed, sound = CopyLoop(mirroring.lease([topic_name])).run()
    assert damaged
    assert "source.corrupt" in failed.error
    assert f"source offset 0 says that it has {length} bytes" in failed.error
    assert (sound.error, sound.records) == ("", 50)
    # On the way only: the next try reads it again.
    monkeypatch.undo()
    mirroring.copy(topic_name)
    proof = mirroring.proof(topic_name)
    assert (proof.identical, proof.compared) == (True, 100), proof
