"""Target topics that are deleted, written to by others, throttled, or left in a transaction."""

from __future__ import annotations

import time
import uuid

import pytest
from consumers import same
from damage import Holding
from mirroring import wait_for
from sources import fill, numbered

from heliograph.control.topics.open_transactions import OpenTransactions
from heliograph.control.topics.refresh import TopicPlan
from heliograph.model import Flow, TopicPartition
from heliograph.wire import admin, configs, markers


@pytest.fixture
def identical(mirroring):
    return mirroring.leasing(identical=True, paddable=True)


def target(topic, partition=0):
    return TopicPartition(f"A.{topic}", partition)


def end_of(flow, topic, partition=0):
    return flow.offsets(flow.target, f"A.{topic}", admin.LATEST).get(target(topic, partition))


def create_target(flow, topic, partitions=1):
    name = f"A.{topic}"
    new = admin.NewTopic(name, partitions, 1, {"retention.ms": "-1"})

    def created():
        return not admin.create_topics(flow.target, [new], 30_000)

    wait_for(created)
    flow.await_topic(flow.target, name, partitions)


# -- F13 ------------------------------------------------------------------------------------------


def test_f13_a_target_topic_deleted_under_a_lease_is_mirrored_again(identical, topic_name):
    """The other partition of the topic has nothing to write; another topic is not disturbed."""
    flow, other = identical, f"{topic_name}-other"
    flow.create(topic_name, partitions=2)
    flow.create(other)
    fill(flow, TopicPartition(topic_name, 0), 5000)
    flow.write(topic_name, numbered(20))
    flow.write(topic_name, numbered(3), 1)
    with Holding(flow, topic_name, other) as held:
        wait_for(lambda: end_of(flow, topic_name) == 5020)
        old = flow.place(topic_name).target_id
        flow.delete(flow.target, f"A.{topic_name}")
        flow.write(topic_name, numbered(5, "meanwhile"))
        flow.write(other, numbered(7))
        wait_for(lambda: end_of(flow, other) == 7)
        [event] = wait_for(lambda: held.told("target.deleted"))
        assert f"A.{topic_name} is no longer on B (topic id {old}): it was deleted" in event.text
        create_target(flow, topic_name, 2)
        wait_for(lambda: end_of(flow, topic_name) == 5025)
        wait_for(lambda: end_of(flow, topic_name, 1) == 3)
        [event] = held.told("target.recreated")
        assert str(flow.place(topic_name).target_id) in event.text
        assert "are copied again" in event.text
        attempts = held.part(topic_name).resumes
        flow.write(topic_name, numbered(5, "afterwards"), 1)
        wait_for(lambda: end_of(flow, topic_name, 1) == 8)
        assert held.part(topic_name).resumes == attempts, "not disturbed any more"
    assert len(same(flow, topic_name)) == 25
    assert len(same(flow, topic_name, 1)) == 8


def test_f13_a_target_topic_recreated_between_leases_is_mirrored_again(identical, topic_name):
    """Also by a flow that began at the source's end: its history is what was mirrored before."""
    flow = identical.but(start_at_latest=True)
    flow.create(topic_name)
    flow.write(topic_name, numbered(10, "before"))
    flow.copy(topic_name)
    flow.write(topic_name, numbered(10, "after"))
    flow.copy(topic_name)
    assert flow.values(topic_name) == numbered(10, "after")
    flow.delete(flow.target, f"A.{topic_name}")
    create_target(flow, topic_name)
    flow.copy(topic_name)
    assert flow.values(topic_name) == numbered(10, "after")
    assert [r.offset for r in flow.seen(topic_name)] == list(range(10, 20))
    assert flow.ledger(topic_name).to_target(10) == 10


# -- foreign writes -------------------------------------------------------------------------------


def foreign_write(flow, topic, count, **config):
    producer = flow.producer("B", **config)
    for _ in range(count):
        producer.produce(f"A.{topic}", b"foreign", b"foreign", 0)
    assert producer.flush(30) == 0


def test_s44_foreign_writes_are_told_once_with_their_producer_id(identical, topic_name):
    flow = identical
    flow.create(topic_name)
    flow.write(topic_name, numbered(5, "a"))
    with Holding(flow, topic_name) as held:
        wait_for(lambda: end_of(flow, topic_name) == 5)
        foreign_write(flow, topic_name, 3, **{"enable.idempotence": True})
        flow.write(topic_name, numbered(5, "b"))
        wait_for(lambda: end_of(flow, topic_name) == 13)
        [event] = wait_for(lambda: held.told("target.foreign"))
        for n in range(5):
            foreign_write(flow, topic_name, 1)
            flow.write(topic_name, numbered(1, "c"))
            wait_for(lambda n=n: end_of(flow, topic_name) == 15 + 2 * n)
        # What is written and not acknowledged when the lease ends is told by the next one.
        wait_for(lambda: not held.part(topic_name).in_flight)
        assert held.told("target.foreign") == [event], "not again and again"
    states = admin.describe_producers(
        flow.target, flow.target.metadata([f"A.{topic_name}"]), [target(topic_name)]
    )
    known = {s.producer_id for s in states[target(topic_name)]} - {flow.context.producer_id}
    assert (event.first, event.until) == (5, 8)
    assert f"somebody else wrote to A.{topic_name}-0 on B: 3 offset(s) in [5, 8)" in event.text
    assert any(f"3 of producer id {producer}" in event.text for producer in known)
    [_, rest] = held.told("target.foreign")
    assert "5 offset(s) in [13, 22)" in rest.text, "the rest is told at the end"
    flow.assert_ledger_is_exact(topic_name)


def test_markers_of_ours_that_are_there_twice_are_not_called_foreign(identical, topic_name):
    flow = identical
    flow.create(topic_name)
    flow.write(topic_name, numbered(5, "a"))
    with Holding(flow, topic_name) as held:
        wait_for(lambda: end_of(flow, topic_name) == 5)
        leader = flow.target.metadata([f"A.{topic_name}"]).leader(f"A.{topic_name}", 0)
        connection = flow.target.connection(leader)
        markers.send(connection, flow.context.marker_id, [(target(topic_name), 2)])
        [marked] = markers.parse(connection, connection.wait(30))
        assert marked.error == 0
        flow.write(topic_name, numbered(5, "b"))
        wait_for(lambda: end_of(flow, topic_name) == 12)
        [event] = wait_for(lambda: held.told("target.doubled"))
        assert (event.first, event.until) == (5, 7)
        assert "2 transaction marker(s) in [5, 7) of A." in event.text
        assert not held.told("target.foreign")
    assert flow.values(topic_name) == numbered(5, "a") + numbered(5, "b")
    flow.assert_ledger_is_exact(topic_name)


def test_s44_foreign_records_at_the_end_are_told_at_the_next_lease(identical, topic_name):
    flow = identical
    flow.create(topic_name)
    flow.write(topic_name, numbered(5, "a"))
    flow.copy(topic_name)
    foreign_write(flow, topic_name, 4)
    with Holding(flow, topic_name) as held:
        [event] = wait_for(lambda: held.told("target.foreign"))
    assert (event.first, event.until) == (5, 9)
    with Holding(flow, topic_name) as held:
        wait_for(lambda: held.part(topic_name).active)
    assert held.told("target.foreign") == [], "known already"


# -- F26 ------------------------------------------------------------------------------------------


def quota(flow, client, client_id, key, rate):
    alias = "A" if client is flow.source else "B"
    change = f"--add-config={key}={rate}" if rate else f"--delete-config={key}"
    flow.lab.tool(
        "kafka.admin.ConfigCommand", "--bootstrap-server", flow.lab[alias].bootstrap, "--alter",
        "--entity-type", "clients", "--entity-name", client_id, change,
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(
    "side", ["producer_byte_rate", pytest.param("consumer_byte_rate", marks=pytest.mark.full)]
)
def test_f26_a_quota_is_honoured_and_shown(identical, topic_name, side):
    flow = identical
    flow.create(topic_name)
    on_target = side == "producer_byte_rate"
    role = "replication-producer" if on_target else "replication-consumer"
    client = flow.target if on_target else flow.source
    alias = "B" if on_target else "A"
    client_id = f"A->B|MirrorSourceConnector|{role}"
    flow.write(topic_name, [b"x" * 10_000] * 400, **{"batch.size": 100_000})
    # Over ten seconds, as brokers count: 4 MB is more than that, by a few seconds.
    quota(flow, client, client_id, side, 300_000)
    try:
        with Holding(flow, topic_name) as held:
            p = held.part(topic_name)
            wait_for(lambda: p.throttled_until)
            verb = "write" if on_target else "read"
            assert f"{alias} limits what we {verb} ({side}" in p.throttled_by
            assert p.throttled_until - time.time() < 60
            wait_for(lambda: end_of(flow, topic_name) == 400)
            assert p.resumes == 1, "nothing was given up because of it"
    finally:
        quota(flow, client, client_id, side, None)
    assert len(same(flow, topic_name)) == 400


# -- F16 ------------------------------------------------------------------------------------------


def test_f16_a_lowered_and_raised_message_size(identical, topic_name):
    flow = identical
    flow.create(topic_name)
    large = {"batch.size": 200_000, "linger.ms": 300}
    with Holding(flow, topic_name) as held:
        wait_for(lambda: held.part(topic_name).active)
        limit = {f"A.{topic_name}": {"max.message.bytes": "20000"}}
        assert configs.alter(flow.target, limit) == {}
        # The broker hears of it a moment after the controller has answered.
        key, name = "max.message.bytes", f"A.{topic_name}"
        wait_for(lambda: configs.describe(flow.target, [name]).value(name, key, "") == "20000")
        flow.write(topic_name, [b"x" * 5_000] * 40, **large)
        wait_for(lambda: end_of(flow, topic_name) == 40)
        # One that is too large alone: it fails by name, and goes through once the limit is raised.
        flow.write(topic_name, [b"y" * 50_000])
        failed = wait_for(lambda: held.part(topic_name).failing)
        assert failed.code == "target.refused", failed.why
        assert "source offset 40" in failed.why
        assert "raise max.message.bytes of the target topic" in failed.why
        limit = {f"A.{topic_name}": {"max.message.bytes": "1000000"}}
        assert configs.alter(flow.target, limit) == {}
        wait_for(lambda: end_of(flow, topic_name) == 41)
        batches = held.part(topic_name).batches
        flow.write(topic_name, [b"z" * 5_000] * 20, **large)
        wait_for(lambda: end_of(flow, topic_name) == 61)
        assert held.part(topic_name).batches <= batches + 4, "whole batches pass again"
    assert len(same(flow, topic_name)) == 61


# -- F37 ------------------------------------------------------------------------------------------


def test_f37_a_transaction_left_open_in_a_remote_topic_is_told(identical, topic_name):
    flow = identical
    flow.create(topic_name)
    flow.write(topic_name, numbered(5))
    flow.copy(topic_name)
    name = f"A.{topic_name}"
    producer = flow.producer("B", **{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"open", b"foreign", 0)
    assert producer.flush(30) == 0
    flow.write(topic_name, numbered(5, "hidden"))
    flow.copy(topic_name)
    events = []
    plan = TopicPlan({TopicPartition(topic_name, 0): name}, target=flow.target.metadata([name]))
    watch = OpenTransactions(Flow("A", "B"), flow.target, lambda: plan, events.extend, 0.0)
    watch.watch()
    watch.watch()
    [event] = events
    states = admin.describe_producers(flow.target, plan.target, [target(topic_name)])
    [open_one] = [s for s in states[target(topic_name)] if s.transaction_start >= 0]
    assert event.code == "target.open-transaction"
    assert (event.first, event.until) == (5, 11)
    assert f"producer id {open_one.producer_id} has had a transaction open in" in event.text
    assert "see nothing of [5, 11)" in event.text
    assert "--start-offset 5" in event.text
    assert list(watch.details()) == [f"{name}-0"]
    producer.abort_transaction(30)
    wait_for(lambda: watch.watch() or not watch.details())
    assert len(events) == 1
