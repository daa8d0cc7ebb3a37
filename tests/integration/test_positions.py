"""Positions for MM2, on real brokers; and what becomes of them when we read them ourselves."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from mm2_stand_in import SYNCS, StandIn
from sources import numbered, transactions

from heliograph.batch.records import Record, build
from heliograph.control.positions import FlowView, OffsetsTopic, PositionWriter
from heliograph.copy import links
from heliograph.lab.proof import read_all
from heliograph.ledger.store import LedgerStore
from heliograph.mm2.connect_offsets import (
    LatestRecords,
    append_by_key,
    encode_position,
    position_key,
)
from heliograph.model import OffsetSyncsTopic, TopicPartition
from heliograph.wire import admin, log

CONNECTOR = "MirrorSourceConnector"


@pytest.fixture
def mm2(mirroring, pair, topic_name):
    """As MM2 left it, or as it will find it; it writes offset syncs where we do."""
    mirroring.create(topic_name, 2)
    made = StandIn(mirroring, lambda **keys: pair(**keys).config, topic_name)
    made.mirroring = mirroring.but(offset_syncs=OffsetSyncsTopic(SYNCS, on_source=False))
    return made


def writer(mm2, topic=None):
    """The job of a process that has just started."""
    flow = mm2.mirroring
    ledger = LedgerStore(flow.target, flow.context.ledger_topic, shared=True)

    def reached(p):
        remote = f"A.{p.topic}"
        ends = flow.offsets(flow.target, remote, admin.LATEST)
        return flow.place(*p).target_id, ends[TopicPartition(remote, p.partition)]

    view = FlowView(mm2.plan, mm2.plan().partitions.keys, ledger, reached, dict, lambda: True)
    name = topic or mm2.offsets
    return PositionWriter(OffsetsTopic(flow.target, name, 1, CONNECTOR, "A"), view, 30_000)


def stored(mm2, topic=None):
    """The positions in the topic, by partition number, as Connect looks them up."""
    records = LatestRecords(mm2.mirroring.target, topic or mm2.offsets)
    assert records.refresh()
    found = {}
    for index in (0, 1):
        record = records.all.get(position_key(CONNECTOR, "A", TopicPartition(mm2.topic, index)))
        if record is not None:
            found[index] = record[0]
    return found


def without_ledger(mm2):
    """MM2 was here, and somebody has deleted the ledger topic; the next process signs anew."""
    flow = mm2.mirroring
    # A position that only MM2 can have written. Without one the ledger counts as lost (F45).
    other = TopicPartition("other", 0)
    append_by_key(flow.target, mm2.offsets, [encode_position(CONNECTOR, "A", other, 5)])
    links.close()
    name = f"ledger-{uuid.uuid4().hex[:8]}"
    new = admin.NewTopic(name, 1, 1, {"cleanup.policy": "compact"})
    assert not admin.create_topics(flow.target, [new], 30_000)
    flow.await_topic(flow.target, name, 1)
    context = replace(
        flow.context, ledger_topic=name, producer_id=admin.allocate_producer_id(flow.target)
    )
    mm2.mirroring = replace(flow, context=context)


def test_they_are_where_kafkas_own_producers_put_their_keys(mm2):
    name = f"mm2-offsets.{mm2.topic}.internal"
    mm2.write(30)
    mm2.mirroring.copy(mm2.topic)
    job = writer(mm2, name)
    job.write()
    assert stored(mm2, name) == {0: b'{"offset":29}'}
    mm2.write(20, "more", 1)
    mm2.write(5, "more")
    mm2.mirroring.copy(mm2.topic)
    job.write()
    assert stored(mm2, name) == {0: b'{"offset":34}', 1: b'{"offset":19}'}
    assert job.details() == {}

    target = mm2.mirroring.target
    found = target.metadata([name]).topics[name]
    assert len(found.partitions) == 25
    ours = {
        (record.key, index)
        for index in found.partitions
        for record in read_all(target, TopicPartition(name, index))
    }
    assert {key for key, _ in ours} == {
        b'["MirrorSourceConnector",{"cluster":"A","partition":%d,"topic":"%s"}]'
        % (index, mm2.topic.encode())
        for index in (0, 1)
    }
    theirs = set()
    producer = Producer(
        {"bootstrap.servers": mm2.mirroring.lab["B"].bootstrap, "partitioner": "murmur2"}
    )
    for key, _ in ours:
        producer.produce(
            name, b'{"offset":1}', key,
            on_delivery=lambda _, message: theirs.add((message.key(), message.partition())),
        )  # fmt: skip
    assert producer.flush(60) == 0
    assert ours == theirs


@pytest.mark.parametrize("identical", [True, False], ids=["identical", "dense"])
@pytest.mark.parametrize("noted", ["all", "some"])
def test_after_mm2_a_deleted_ledger_is_made_up_for_by_positions(mm2, identical, noted):
    """Nothing is skipped, and nothing is repeated: what they say is compared with the logs."""
    mm2.mirroring = mm2.mirroring.leasing(identical=identical, paddable=identical)
    flow = mm2.mirroring
    for n in range(4):
        transactions(flow, mm2.topic, [(numbered(25, f"t{n}"), n != 2)])
    mm2.write(300)
    flow.copy(mm2.topic)
    job = writer(mm2)
    job.write()
    assert stored(mm2) == {0: b'{"offset":403}'}
    mm2.write(40, "since then")
    transactions(flow, mm2.topic, [(numbered(10, "committed"), True)])
    flow.copy(mm2.topic)
    if noted == "all":
        job.write()
        assert stored(mm2) == {0: b'{"offset":453}'}
    without_ledger(mm2)
    mm2.write(20, "later")
    assert mm2.take_over() == ["", ""]
    mm2.require_goes_on(454)
    committed = [v for v in (r.value for r in flow.source_records(mm2.topic))
                 if not v.startswith(b"t2")]  # fmt: skip
    assert flow.values(mm2.topic) == committed
    writer(mm2).write()
    assert stored(mm2) == {0: b'{"offset":474}'}


def test_after_mm2_a_deleted_ledger_and_records_of_others_are_told(mm2):
    mm2.write(300)
    mm2.mirroring.copy(mm2.topic)
    writer(mm2).write()
    log.append(mm2.mirroring.target, TopicPartition(f"A.{mm2.topic}", 0),
               build([Record(0, 1, b"by", b"hand")]))  # fmt: skip
    without_ledger(mm2)
    mm2.write(20, "later")
    withheld, other = mm2.take_over()
    assert "cannot be proven" in withheld
    assert other == ""
    # Nothing is begun, so the position stays.
    writer(mm2).write()
    assert stored(mm2) == {0: b'{"offset":299}'}


def test_mm2_goes_on_at_our_position_and_we_behind_mm2(mm2):
    flow = mm2.mirroring
    mm2.write(300)
    flow.copy(mm2.topic)
    writer(mm2).write()
    mm2.write(200, "for MM2")
    # MM2 seeks behind what it finds, stores its position, and is killed a little later.
    mm2.sync(mm2.copy(mm2.records()[300:450]))
    mm2.store(449)
    mm2.copy(mm2.records()[450:480])
    assert flow.values(mm2.topic) == [r.value for r in mm2.records()[:480]]
    without_ledger(mm2)
    assert mm2.take_over() == ["", ""]
    mm2.require_goes_on(480)
    mm2.require_translated()
