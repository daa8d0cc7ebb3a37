"""Partitions that MM2 has filled: Heliograph goes on where it stopped, or says why it does not."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from access import MECHANISM, allow, flow_config, grant, settings_of, write_config
from confluent_kafka import Consumer, Producer
from driving import PlainEngine
from mirroring import Mirroring, wait_for
from mm2_stand_in import SYNCS, StandIn
from sources import numbered, transactions

from heliograph.batch.records import Record, build
from heliograph.config import load
from heliograph.copy.loop import CopyLoop
from heliograph.ledger.store import LedgerStore
from heliograph.model import PartitionEvent, TopicPartition
from heliograph.service import mirror as service
from heliograph.takeover import mm2_worker
from heliograph.takeover import takeover as take_over
from heliograph.takeover.takeover import TakeOver, place_of
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.connection import Connection


@pytest.fixture
def config_of(pair):
    """A flow A->B of the shared lab, from keys."""
    return lambda **keys: pair(**keys).config


@pytest.fixture
def mm2(mirroring, config_of, topic_name):
    mirroring.create(topic_name)
    return StandIn(mirroring, config_of, topic_name)


def target_end(mm2):
    return mm2.mirroring.offsets(mm2.mirroring.target, f"A.{mm2.topic}", admin.LATEST)[
        TopicPartition(f"A.{mm2.topic}", 0)
    ]


# -- how MM2 may have ended ---------------------------------------------------------------------


def test_stopped_in_order(mm2, caplog):
    caplog.set_level(logging.INFO)
    mm2.write(300)
    mm2.sync(mm2.copy(mm2.records()))
    mm2.store(299)
    mm2.write(50, "later")
    assert mm2.take_over() == [""]
    said = "A->B: taking over 1 partition(s) of 1 topic(s) from MM2; nothing is copied again"
    assert said in caplog.text
    mm2.require_goes_on(300)
    mm2.require_translated()
    # A second start finds it begun.
    assert mm2.take_over() == [""]
    mm2.write(7, "last")
    mm2.require_goes_on(350)


def test_killed_behind_its_stored_position_and_its_sync(mm2):
    mm2.write(1000)
    records = mm2.records()
    mm2.copy(records[:400])
    mm2.store(399)
    mm2.sync(mm2.copy(records[400:600]))
    mm2.copy(records[600:777])
    assert mm2.take_over() == [""]
    mm2.require_goes_on(777)
    mm2.require_translated()


def test_restarted_and_a_batch_sent_twice_behind_the_sync(mm2):
    mm2.write(1000)
    records = mm2.records()
    mm2.store(399)
    mm2.sync(mm2.copy(records[:500]))
    mm2.copy(records[400:700])  # again from its stored position
    mm2.copy(records[700:750])
    mm2.copy(records[700:750])  # as producers do without idempotence
    assert mm2.take_over() == [""]
    mm2.require_goes_on(750)
    mm2.require_translated()


def test_a_long_log_with_gaps_and_a_restart_from_the_beginning(mm2):
    """What the real MM2 left when it was killed before it had stored a position."""
    for n in range(6):
        transactions(mm2.mirroring, mm2.topic, [(numbered(25, f"t{n}"), n % 3 != 2)])
    mm2.write(5000)
    records = mm2.records()
    mm2.copy(records[:4900])
    mm2.sync(mm2.copy(records[:4950]))
    mm2.write(50, "later")
    assert mm2.take_over() == [""]
    mm2.require_goes_on(records[4949].offset + 1)
    mm2.require_translated()


def test_restarted_and_killed_again_before_it_had_caught_up(mm2):
    mm2.write(9000)
    records = mm2.records()
    mm2.sync(mm2.copy(records[:8000]))
    mm2.copy(records[8000:8050])
    mm2.sync(mm2.copy(records[:3000]))
    mm2.copy(records[3000:3040])
    assert mm2.take_over() == [""]
    mm2.require_goes_on(8050)
    ledger = mm2.mirroring.ledger(mm2.topic)
    assert [ledger.to_target(n) for n in (0, 2999, 8049, 8050)] == [0, 2999, 8049, 11_090]
    assert [ledger.to_source(n) for n in (0, 8049, 9000, 11_090)] == [0, 8049, 8050, 8050]


def test_without_offset_syncs(mm2):
    mm2.write(6000)
    records = mm2.records()
    mm2.copy(records[:5500])
    mm2.store(3000)
    assert mm2.take_over() == [""]
    mm2.require_goes_on(5500)
    mm2.require_translated()


def test_mm2_read_committed(mm2):
    committed = []
    for n in range(8):
        committed += transactions(mm2.mirroring, mm2.topic, [(numbered(25, f"t{n}"), n % 2 == 0)])
    records = [r for r in mm2.records() if r.value in committed]
    mm2.sync(mm2.copy(records[:60]))
    mm2.copy(records[60:80])
    mm2.store(records[40].offset)
    assert mm2.take_over() == [""]
    mm2.mirroring.copy(mm2.topic)
    assert mm2.mirroring.values(mm2.topic) == committed


def in_transactions(mm2, producer, records, stored, *, commit=True):
    """As MM2 with exactly.once.source.support: records and position in one transaction."""
    producer.begin_transaction()
    for r in records:
        producer.produce(f"A.{mm2.topic}", r.value, r.key, 0, timestamp=r.timestamp)
    key = ["MirrorSourceConnector", {"cluster": "A", "partition": 0, "topic": mm2.topic}]
    value = json.dumps({"offset": stored})
    producer.produce(mm2.offsets, value, json.dumps(key), 0)
    producer.flush(30)
    producer.commit_transaction(30) if commit else producer.abort_transaction(30)


def test_mm2_wrote_in_transactions_and_the_last_was_aborted(mm2):
    flow = mm2.mirroring
    mm2.write(1000)
    records = mm2.records()
    bootstrap = flow.lab["B"].bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": mm2.topic})
    producer.init_transactions(30)
    for at in range(0, 700, 50):
        in_transactions(mm2, producer, records[at : at + 50], at + 49)
    in_transactions(mm2, producer, records[700:750], 749, commit=False)
    wait_for(lambda: target_end(mm2) == 700 + 14 + 50 + 1)
    assert wait_for(lambda: mm2.take_over() == [""])
    left = flow.seen(mm2.topic)
    flow.copy(mm2.topic)
    assert [r.value for r in flow.seen(mm2.topic)[len(left) :]] == numbered(1000)[700:]
    ledger = flow.ledger(mm2.topic)
    # Each transaction of 50 has a marker behind it.
    assert [ledger.to_target(n) for n in (0, 49, 50, 699)] == [0, 49, 51, 699 + 13]
    assert ledger.to_target(700) == 765


# -- what may have happened to the logs ---------------------------------------------------------


def test_the_source_has_deleted_what_was_mirrored(mm2):
    mm2.write(300)
    mm2.sync(mm2.copy(mm2.records()))
    mm2.store(299)
    mm2.write(10, "later")
    mm2.mirroring.trim(mm2.mirroring.source, TopicPartition(mm2.topic, 0), 300)
    assert mm2.take_over() == [""]
    mm2.require_goes_on(300)


def test_the_source_has_deleted_more_than_was_mirrored(mm2):
    flow = mm2.mirroring
    mm2.write(300)
    mm2.sync(mm2.copy(mm2.records()[:200]))
    mm2.store(199)
    flow.trim(flow.source, TopicPartition(mm2.topic, 0), 250)
    assert mm2.take_over() == [""]
    [receipt] = CopyLoop(flow.lease([mm2.topic])).run()
    assert "deleted 50 offset(s)" in receipt.error
    bold = flow.but(on_data_loss="continue")
    bold.copy(mm2.topic)
    assert flow.values(mm2.topic) == [*numbered(300)[:200], *numbered(300)[250:]]


def test_the_target_has_deleted_everything(mm2):
    flow = mm2.mirroring
    mm2.write(300)
    mm2.sync(mm2.copy(mm2.records()[:200]))
    mm2.store(199)
    flow.trim(flow.target, TopicPartition(f"A.{mm2.topic}", 0), -1)
    assert mm2.take_over() == [""]
    flow.leasing(identical=True, paddable=True).copy(mm2.topic)
    assert [(r.offset, r.value) for r in flow.seen(mm2.topic)] == list(
        enumerate(numbered(300)[200:], 200)
    )


def test_identical_offsets_stay_identical_and_nothing_is_taken_for_filler(mm2):
    flow = mm2.mirroring.leasing(identical=True, paddable=True)
    mm2.write(300)
    mm2.sync(mm2.copy(mm2.records()))
    mm2.store(299)
    for client, topic in ((flow.source, mm2.topic), (flow.target, f"A.{mm2.topic}")):
        flow.trim(client, TopicPartition(topic, 0), 100)
    assert mm2.take_over() == [""]
    transactions(flow, mm2.topic, [(numbered(5, "a"), True), (numbered(5, "b"), False)])
    mm2.write(20, "later")
    flow.copy(mm2.topic)
    here = {r.offset: r.value for r in flow.source_records(mm2.topic)}
    there = {r.offset: r.value for r in flow.seen(mm2.topic)}
    assert sorted(there)[0] == 100, "MM2's records are there"
    aborted = {o: v for o, v in here.items() if v.startswith(b"b-")}
    assert there == {o: v for o, v in here.items() if o not in aborted}


def test_the_target_has_timestamps_of_its_own(mirroring, config_of, topic_name):
    append_time = {"message.timestamp.type": "LogAppendTime"}
    mirroring.create(topic_name, target_configs=append_time)
    mm2 = StandIn(mirroring, config_of, topic_name)
    mm2.write(500)
    records = mm2.records()
    mm2.sync(mm2.copy(records[:300]))
    mm2.copy(records[300:350])
    mm2.store(100)
    assert mm2.take_over() == [""]
    mirroring.copy(topic_name)
    assert mirroring.values(topic_name) == numbered(500)


def test_mm2_started_again_by_mistake_costs_no_record(mm2):
    mm2.write(300)
    mm2.sync(mm2.copy(mm2.records()))
    mm2.store(299)
    assert mm2.take_over() == [""]
    mm2.mirroring.copy(mm2.topic)
    mm2.write(20, "later")
    # Before anything of ours is on the target.
    mm2.copy(mm2.records()[300:310])
    mm2.mirroring.copy(mm2.topic)
    later = numbered(20, "later")
    assert mm2.mirroring.values(mm2.topic)[300:] == later[:10] + later


# -- what is not MM2's --------------------------------------------------------------------------


def test_without_an_mm2_nothing_is_looked_at(mirroring, config_of, topic_name):
    mirroring.create(topic_name)
    mm2 = StandIn(
        mirroring, config_of, topic_name, **{"offset.storage.topic": "mm2-was-never-here"}
    )
    mm2.write(10)
    mm2.copy(mm2.records())
    assert mm2.take_over() == [""]
    # Nobody knows whose records these are: only if told to.
    mirroring.leasing(shared=True).copy(topic_name)
    assert mirroring.values(topic_name) == numbered(10) * 2


def test_a_topic_that_mm2_did_not_fill_begins_as_ever(mm2):
    mm2.write(10)
    log.append(mm2.mirroring.target, TopicPartition(f"A.{mm2.topic}", 0),
               build([Record(0, 1, b"by", b"hand")]))  # fmt: skip
    assert mm2.take_over() == [""]
    mm2.mirroring.leasing(shared=True).copy(mm2.topic)
    assert mm2.mirroring.values(mm2.topic) == [b"hand", *numbered(10)]


def test_a_target_that_was_created_anew_begins_as_ever(mm2):
    mm2.write(10)
    mm2.sync((9, 9))
    mm2.store(9)
    assert mm2.take_over() == [""]
    mm2.mirroring.copy(mm2.topic)
    assert mm2.mirroring.values(mm2.topic) == numbered(10)


def test_while_another_mirror_has_the_flow_nothing_is_written(mm2):
    mm2.write(300)
    mm2.sync(mm2.copy(mm2.records()))
    mm2.store(299)
    [withheld] = mm2.take_over(may_write=False)
    assert "being found out" in withheld
    assert not mm2.mirroring.ledger(mm2.topic).runs
    mm2.job.settle(mm2.plan(), may_write=True)
    mm2.require_goes_on(300)


# -- what cannot be proven ----------------------------------------------------------------------


def receipt_of(mm2, withheld):
    flow = mm2.mirroring
    lease = flow.leasing(withheld=withheld).lease([mm2.topic])
    [receipt] = CopyLoop(lease).run()
    return receipt


@pytest.mark.parametrize("stored", [299, 250])
def test_a_record_of_somebody_else_at_the_end(mm2, caplog, stored):
    mm2.write(300)
    mm2.sync(mm2.copy(mm2.records()))
    mm2.store(stored)
    log.append(mm2.mirroring.target, TopicPartition(f"A.{mm2.topic}", 0),
               build([Record(0, 1, b"by", b"hand")]))  # fmt: skip
    [withheld] = mm2.take_over()
    assert "was filled by MM2, and where it stopped cannot be proven" in withheld
    assert "the record at target offset 300 is not the source's next one" in withheld
    assert "start MM2 again, let it mirror for a minute and stop it with SIGTERM" in withheld
    assert withheld in caplog.text
    receipt = receipt_of(mm2, withheld)
    assert receipt.error == f"[mm2.withheld] {withheld}"
    assert target_end(mm2) == 301
    # The hint works: the next sync stands behind it.
    mm2.write(40, "more")
    mm2.sync(mm2.copy(mm2.records()[stored + 1 :]))
    mm2.store(339)
    assert mm2.take_over() == [""]
    mm2.write(5, "later")
    mm2.require_goes_on(340)


def test_a_source_that_was_created_anew(mm2):
    flow = mm2.mirroring
    mm2.write(300)
    mm2.sync(mm2.copy(mm2.records()))
    mm2.store(299)
    flow.delete(flow.source, mm2.topic)
    new = admin.NewTopic(mm2.topic, 1, 1, {"retention.ms": "-1"})
    wait_for(lambda: not admin.create_topics(flow.source, [new], 30_000))
    flow.await_topic(flow.source, mm2.topic, 1)
    mm2.write(400, "new")
    [withheld] = mm2.take_over()
    assert "source offset 299 is at target offset 299, but these are different records" in withheld


def test_a_transaction_that_is_still_open(mm2):
    mm2.write(100)
    mm2.sync(mm2.copy(mm2.records()[:50]))
    mm2.store(49)
    producer = Producer(
        {"bootstrap.servers": mm2.mirroring.lab["B"].bootstrap, "transactional.id": mm2.topic}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(f"A.{mm2.topic}", b"?", b"?", 0)
    producer.flush(30)
    [withheld] = mm2.take_over()
    assert "a transaction is open on it" in withheld
    producer.abort_transaction(30)
    wait_for(lambda: mm2.take_over() == [""])
    mm2.require_goes_on(50)


# -- a running MM2 ------------------------------------------------------------------------------


@pytest.fixture
def worker(mm2, monkeypatch) -> Iterator[None]:
    """Somebody is a member of MM2's group."""
    monkeypatch.setattr(mm2_worker, "_SESSION_SECONDS", 0.5)
    member = Consumer({
        "bootstrap.servers": mm2.mirroring.lab["B"].bootstrap, "group.id": mm2.config.mm2_group,
        # However long this process or the broker is kept waiting, it stays a member.
        "session.timeout.ms": 300_000, "max.poll.interval.ms": 600_000,
    })  # fmt: skip
    member.subscribe([f"A.{mm2.topic}"])
    deadline = time.monotonic() + 120
    while not member.assignment():
        assert time.monotonic() < deadline
        member.poll(0.1)
    yield
    member.close()


def test_a_running_mm2_is_noticed(mm2, worker):
    mm2.write(300)
    mm2.sync(mm2.copy(mm2.records()))
    mm2.store(299)
    mm2.assign(f"{mm2.topic}-0")
    [withheld] = mm2.take_over()
    group = mm2.config.mm2_group
    expected = f"MM2 still mirrors A->B: its group {group} on B has members (it is Stable)"
    assert mm2.job.running.startswith(expected)
    assert mm2.job.running.endswith(f"its tasks have {mm2.topic}-0")
    assert expected in withheld


def test_an_mm2_that_mirrors_other_topics_may_go_on(mm2, worker):
    mm2.write(300)
    mm2.sync(mm2.copy(mm2.records()))
    mm2.store(299)
    mm2.assign("another-0")
    assert mm2.take_over() == [""]
    assert mm2.job.running == ""
    mm2.write(5, "later")
    mm2.require_goes_on(300)


# -- missing rights -----------------------------------------------------------------------------


def test_without_the_rights_nothing_is_guessed_and_the_rights_are_named(
    guarded_lab, tmp_path, topic_name, caplog
):
    flow = Mirroring.of(guarded_lab)
    flow.create(topic_name)
    mm2 = StandIn(
        flow, lambda **keys: flow_config(write_config(guarded_lab, tmp_path, **keys)), topic_name
    )
    login = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": MECHANISM,
        "sasl.username": "alice", "sasl.password": "alice-secret",
    }  # fmt: skip
    mm2.write(50, **login)
    mm2.sync(mm2.copy(mm2.records()[:30]))
    mm2.store(29)
    remote, ledger = f"A.{topic_name}", flow.context.ledger_topic
    grant(flow.target, *(allow("bob", right, "topic", remote) for right in ("DESCRIBE", "WRITE")))
    grant(flow.target, *(allow("bob", "ALL", "topic", name) for name in (ledger, SYNCS)))
    bob = ClusterClient(settings_of(guarded_lab, "B", "bob"), "bob")

    [withheld] = mm2.take_over(target=bob)
    assert f"{remote}-0 on B is not empty: has MM2 filled it?" in withheld
    assert f"User:bob may not Read topic {mm2.offsets} on cluster B" in withheld
    grant(flow.target, *(allow("bob", "READ", "topic", n) for n in (mm2.offsets, mm2.configs)))

    [withheld] = mm2.take_over(target=bob)
    assert f"User:bob may not Read topic {remote} on cluster B" in withheld
    seen = f"User:bob may not Describe group {mm2.config.mm2_group} on cluster B"
    assert f"cannot see whether MM2 is still running: {seen}" in caplog.text
    grant(flow.target, allow("bob", "READ", "topic", remote))

    assert mm2.take_over(target=bob) == [""]
    mm2.require_goes_on(30)
    bob.close()
    flow.close()


# -- many ---------------------------------------------------------------------------------------


def test_many_partitions_take_few_requests(mirroring, config_of, topic_name, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    count = 60
    mirroring.create(topic_name, count)
    mm2 = StandIn(mirroring, config_of, topic_name)
    producer = mirroring.producer()
    for n in range(count * 40):
        producer.produce(topic_name, b"v-%d" % n, b"k", n % count, timestamp=1_700_000_000_000 + n)
    assert producer.flush(60) == 0
    for index in range(count):
        records = mm2.records(index)
        mm2.sync(mm2.copy(records[:30], partition=index), index)
        mm2.copy(records[30:35], partition=index)
        mm2.store(20, index)
    asked = []
    queue = Connection._queue
    monkeypatch.setattr(
        Connection, "_queue", lambda self, api, *rest: asked.append(api) or queue(self, api, *rest)
    )
    assert mm2.take_over() == [""] * count
    monkeypatch.undo()
    assert f"taking over {count} partition(s) of 1 topic(s)" in caplog.text
    # 60 partitions one by one, a dozen reads each, would be 720.
    assert len(asked) < 200, Counter(asked)
    mirroring.copy(topic_name)
    proof = mirroring.proof(topic_name)
    assert proof.identical, proof


# -- while the mirror runs ------------------------------------------------------------------------


def test_new_topics_are_begun_at_once_where_mm2_has_been(
    mirroring, config_of, topic_name, tmp_path, monkeypatch
):
    """Their leaders are elected a moment after they were created."""
    mirroring.create(topic_name)
    keys = {"topics": f"{topic_name}.*", "refresh.topics.interval.seconds": "1"}
    StandIn(mirroring, config_of, topic_name, **keys).store(0)
    config = load(tmp_path / "mm2.properties")
    leased = []

    class Noted(PlainEngine):
        def run_round(self, leases, holders):
            leased.extend(p for lease in leases for p in lease.partitions)
            return super().run_round(leases, holders)

    monkeypatch.setattr(service, "Engine", Noted)
    mirror = service.Mirror(config)

    def states():
        [flow] = [f for f in mirror.snapshot().flows if f.flow == "A->B"]
        return flow.states

    try:
        mirror.start()
        wait_for(lambda: states().get("idle") == 1)
        names = [f"{topic_name}-{n}" for n in range(4)]
        new = [admin.NewTopic(name, 3, 1, {}) for name in names]
        assert admin.create_topics(mirroring.source, new, 30_000) == {}
        for name in names:
            mirroring.await_topic(mirroring.source, name, 3)
            for partition in range(3):
                mirroring.write(name, [b"v"], partition)
        wanted = [TopicPartition(f"A.{name}", p) for name in names for p in range(3)]
        seen = set()

        def whole():
            seen.update(states())
            there = mirroring.target.metadata([f"A.{name}" for name in names])
            ends = admin.list_offsets(mirroring.target, there, wanted, admin.LATEST)
            return ends == dict.fromkeys(wanted, 1)

        wait_for(whole)
        assert {p.withheld for p in leased} == {""}
        assert "failed" not in seen
        assert not [e for e in mirror.events.history() if isinstance(e.event, PartitionEvent)]
    finally:
        mirror.close()


def test_a_partition_without_a_leader_waits_and_is_begun_when_it_has_one(
    mm2, mirroring, monkeypatch
):
    """As a plan sees it whose broker has not heard of the leader yet."""
    mm2.store(5)
    plan = mm2.plan()
    leaderless = replace(plan.target, topics={
        name: replace(topic, partitions={
            n: replace(p, leader=-1) for n, p in topic.partitions.items()
        }) for name, topic in plan.target.topics.items()
    })  # fmt: skip
    early = replace(plan, target=leaderless)
    [partition] = plan.partitions
    ledger = LedgerStore(mirroring.target, mirroring.context.ledger_topic)
    job = TakeOver(mm2.config, mirroring.context, mirroring.source, mirroring.target, ledger)
    # Within moments, by itself.
    job.settle(early, may_write=True)
    assert (job.undecided, job.withheld(place_of(plan, partition))) == (frozenset(), "")
    # Later.
    job = TakeOver(mm2.config, mirroring.context, mirroring.source, mirroring.target, ledger)
    monkeypatch.setattr(take_over, "_ELECTED_SECONDS", 0.0)
    job.settle(early, may_write=True)
    assert job.undecided == {partition}
    assert job.withheld(place_of(plan, partition)) == take_over.BEING_LOOKED_AT
    job.settle(plan, may_write=True)
    assert (job.undecided, job.withheld(place_of(plan, partition))) == (frozenset(), "")
