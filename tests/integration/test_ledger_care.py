"""The ledger is re-packed and pruned on real brokers, with a real cleaner behind it."""

from __future__ import annotations

import time
import uuid

import pytest
from mirroring import wait_for
from sources import COMPACTED

from heliograph.control.ledger_care import LedgerCare
from heliograph.control.topics.refresh import TopicPlan
from heliograph.lab.proof import read_all
from heliograph.ledger.codec import Entry, Place, Signature
from heliograph.ledger.flow_ledger import FlowLedger
from heliograph.ledger.runs import Run
from heliograph.ledger.store import LedgerStore
from heliograph.model import TopicPartition
from heliograph.wire import admin


def commits(flow, topic, count):
    """Transactions of one record each, of now: the target remembers their producer for a day."""
    producer = flow.producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(60)
    for n in range(count):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % n, b"k", 0)
        producer.commit_transaction(60)
    wait_for(
        lambda: (
            flow.offsets(flow.source, topic, admin.LATEST, read_committed=True)
            == flow.offsets(flow.source, topic, admin.LATEST)
        )
    )


def care(flow, topic):
    ledger = FlowLedger(flow.target, flow.context.ledger_topic)
    plan = TopicPlan(
        partitions={TopicPartition(topic, 0): f"A.{topic}"},
        source=flow.source.metadata([topic]),
        target=flow.target.metadata([f"A.{topic}"]),
    )
    return LedgerCare(ledger, flow.target, flow.context.producer_id, lambda: plan)


def kinds(flow):
    records = read_all(flow.target, TopicPartition(flow.context.ledger_topic, 0))
    return [r.key.partition(b"/")[0].decode() for r in records if r.value is not None]


@pytest.mark.parametrize("identical", [False, True])
def test_runs_below_the_log_start_are_pruned_and_copying_goes_on(mirroring, topic_name, identical):
    flow = mirroring.leasing(identical=identical, paddable=True)
    flow.create(topic_name)
    commits(flow, topic_name, 140)
    flow.copy(topic_name)
    remote = TopicPartition(f"A.{topic_name}", 0)
    job = care(flow, topic_name)
    job.tend()
    before = list(flow.ledger(topic_name).runs)
    assert len(before) >= 140
    flow.trim(flow.target, remote, before[100].target + 1)
    job.tend()
    ledger = flow.ledger(topic_name)
    # One record to a run: offset before[100].target + 1 is the first of the next, or its marker.
    assert list(ledger.runs) in (before[100:], before[101:])
    assert "packed" in kinds(flow)
    job.tend()
    commits(flow, topic_name, 3)
    flow.copy(topic_name)
    expected = [b"%d" % n for n in (*range(101, 140), 0, 1, 2)]
    assert flow.values(topic_name) == expected
    # Everything that is still there is where the ledger says, both ways.
    here = {r.offset: r.value for r in read_all(flow.source, TopicPartition(topic_name, 0))}
    ledger = flow.ledger(topic_name)
    for record in flow.seen(topic_name):
        source = ledger.to_source(record.offset)
        assert here[source] == record.value
        assert ledger.to_target(source) == record.offset


def test_nothing_of_ours_left_and_nothing_begun(mirroring, topic_name):
    """All is deleted, a run is announced but not begun: resume needs it."""
    mirroring.create(topic_name)
    commits(mirroring, topic_name, 130)
    mirroring.copy(topic_name)
    store = LedgerStore(mirroring.target, mirroring.context.ledger_topic)
    store.write([Entry(mirroring.place(topic_name), [Run(130, 260, 130)])])
    mirroring.trim(mirroring.target, TopicPartition(f"A.{topic_name}", 0), -1)
    care(mirroring, topic_name).tend()
    assert list(mirroring.ledger(topic_name).runs) == [Run(130, 260, 130)]
    commits(mirroring, topic_name, 2)
    mirroring.copy(topic_name)
    assert mirroring.values(topic_name) == [b"0", b"1"]


def test_topics_that_are_gone(mirroring, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, [b"a"])
    mirroring.copy(topic_name)
    place = mirroring.place(topic_name)
    # Nobody has this id, and nobody ever had.
    elsewhere = place._replace(target_id=uuid.uuid4())
    store = LedgerStore(mirroring.target, mirroring.context.ledger_topic)
    store.write([Entry(elsewhere, [Run(0, 0, 0)])])
    # Not in the plan, but there: its place stays.
    other = f"{topic_name}-other"
    mirroring.create(other)
    store.write([Entry(mirroring.place(other), [Run(0, 0, 0)])])
    assert admin.unknown_topic_ids(
        mirroring.target, [place.target_id, elsewhere.target_id]
    ) == {elsewhere.target_id}  # fmt: skip
    job = care(mirroring, topic_name)
    for _ in range(2):
        assert "runs" in kinds(mirroring)
        job.tend()
    fresh = LedgerStore(mirroring.target, mirroring.context.ledger_topic)
    fresh.refresh()
    live = set(fresh.begun())
    assert {place, mirroring.place(other)} <= live
    records = list(read_all(mirroring.target, TopicPartition(mirroring.context.ledger_topic, 0)))
    dead = [r for r in records if str(elsewhere.target_id).encode() in r.key]
    assert [r.value is None for r in dead] == [False, True]


@pytest.mark.full
def test_what_the_cleaner_leaves(quick, topic_name):
    """On cluster A, whose cleaner is quick: hundreds of entries become one record."""
    client = quick.source
    admin.create_topics(client, [admin.NewTopic(topic_name, 1, 1, COMPACTED)], 30_000)
    quick.await_topic(client, topic_name, 1)
    part = TopicPartition(topic_name, 0)
    place = Place("orders", 0, uuid.uuid4(), uuid.uuid4())
    store, keeper = LedgerStore(client, topic_name), FlowLedger(client, topic_name).keeper
    store.sign(Signature(7, "a", "b"))
    runs = []
    for n in range(300):
        runs.append(Run(10 * n, 11 * n, 10 * n))
        store.write([Entry(place, runs[-1:])])
        if n % 100 == 50:
            keeper.tidy({place: 0})

    def cleaned():
        # A write after segment.ms rolls the segment, so that it can be cleaned.
        store.sign(Signature(7, "a", "b"))
        keeper.tidy({place: 0}, least=2)
        reader = LedgerStore(client, topic_name)
        reader.refresh()
        assert list(reader.at(place).runs) == runs
        time.sleep(0.2)
        left = [r.key.partition(b"/")[0] for r in read_all(client, part) if r.value is not None]
        return left.count(b"runs") == 0 and left.count(b"packed") == 1

    wait_for(cleaned)
    store.refresh()
    assert list(store.at(place).runs) == runs
    assert store.signature == Signature(7, "a", "b")
