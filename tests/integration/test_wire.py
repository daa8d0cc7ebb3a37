"""The data path on real brokers: wire, resume, compare-and-append. No Spark."""

from __future__ import annotations

import multiprocessing
import time
import uuid
from concurrent.futures import ProcessPoolExecutor

import pytest
from damage import Holding
from mirroring import hold, wait_for
from sources import compacted_source, numbered, transactions

from heliograph.batch.records import Record, build
from heliograph.copy.loop import CopyLoop
from heliograph.lab.proof import read_all
from heliograph.ledger.codec import Entry
from heliograph.ledger.runs import Run
from heliograph.ledger.store import LedgerStore
from heliograph.mm2.formats import OffsetSync
from heliograph.model import TopicPartition
from heliograph.wire import admin, log
from heliograph.wire.errors import BrokerError
from heliograph.wire.fetch import FetchSession
from heliograph.wire.metadata import Metadata
from heliograph.wire.produce import Producer

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


# -- requests ---------------------------------------------------------------------------------


@pytest.mark.parametrize("by_id", [False, True], ids=["names", "ids"])
def test_fetch_session(mirroring, topic_name, by_id):
    mirroring.create(topic_name, partitions=3)
    mirroring.write(topic_name, numbered(1), partition=0)
    mirroring.ends(topic_name)  # every leader knows by now that it leads
    client = mirroring.source
    topic_id = client.metadata([topic_name]).topics[topic_name].topic_id
    connection = client.open(client.metadata([topic_name]).leader(topic_name, 0))
    session = FetchSession(
        connection,
        {topic_name: topic_id if by_id else uuid.UUID(int=0)},
        read_committed=True,
        max_bytes=1 << 20,
        partition_max_bytes=1 << 20,
    )
    parts = [TopicPartition(topic_name, i) for i in range(3)]

    def fetch():
        session.send(0, 0)
        return {f.partition: f for f in session.wait(30)}

    for p in parts:
        session.want(p, 0)
    first = fetch()
    assert set(first) == set(parts)
    assert [first[p].high_watermark for p in parts] == [1, 0, 0]
    session.want(parts[0], 1)
    assert fetch().keys() <= {parts[0]}, "idle partitions are not repeated"
    assert fetch() == {}
    mirroring.write(topic_name, numbered(2), partition=1)
    mirroring.write(topic_name, numbered(3), partition=2)
    session.drop(parts[2])
    grown = wait_for(fetch)
    assert grown.keys() == {parts[1]}, "a dropped partition is not fetched"
    assert grown[parts[1]].high_watermark == 2
    session.want(parts[1], 2)
    session.want(parts[2], 1)
    again = fetch()
    assert again[parts[2]].high_watermark == 3
    assert len(again[parts[2]].records) > 0
    session.close_session()
    connection.close()


@pytest.mark.parametrize("version", [8, 13])
def test_produce_versions(mirroring, topic_name, version):
    mirroring.create(topic_name, partitions=2)
    client = mirroring.source
    topic_id = client.metadata([topic_name]).topics[topic_name].topic_id
    connection = client.open(client.metadata([topic_name]).leader(topic_name, 0))
    producer = Producer(connection, {topic_name: topic_id if version == 13 else uuid.UUID(int=0)})
    assert producer._version == version
    parts = [TopicPartition(topic_name, i) for i in range(2)]

    def batch(text, sequence):
        return build([Record(0, 1000, b"k", text)], producer_id=987654, sequence=sequence)

    # A broker may hear of the topic's id a moment after the controller has answered.
    def first():
        answers = producer.call([(p, batch(b"first", 0)) for p in parts], 30)
        return answers if not any(a.error for a in answers) else None

    answers = wait_for(first)
    assert sorted((a.partition, a.error, a.base_offset) for a in answers) == [
        (parts[0], 0, 0),
        (parts[1], 0, 0),
    ]
    [repeated] = producer.call([(parts[0], batch(b"first", 0))], 30)
    assert (repeated.error, repeated.base_offset) == (0, 0), "recognised, not appended"
    [wrong] = producer.call([(parts[0], batch(b"later", 7))], 30)
    assert wrong.error == 45
    broken = batch(b"broken", 1)
    broken[-1] ^= 1
    [corrupt] = producer.call([(parts[0], broken)], 30)
    assert corrupt.error in {2, 87}
    assert corrupt.base_offset == -1
    assert [r.value for r in read_all(client, parts[0])] == [b"first"]
    connection.close()


# -- fidelity ---------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_f20_every_codec(mirroring, topic_name, codec):
    mirroring.create(topic_name, partitions=2)
    for index in range(2):
        mirroring.write(
            topic_name, numbered(300, f"p{index}" * 20), index, **{"compression.type": codec}
        )
    receipts = mirroring.copy(topic_name)
    assert sum(r.records for r in receipts) == 600
    proof = mirroring.proof(topic_name)
    assert (proof.identical, proof.compared, proof.moved) == (True, 600, 0), proof


def test_every_part_of_a_record(mirroring, topic_name):
    mirroring.create(topic_name, partitions=2)
    wanted = [
        (None, None, []),
        (b"", b"", []),
        (b"key", None, []),
        (None, b"value", [("h", None)]),
        (b"key", b"", [("a", b"1"), ("b", b"2"), ("a", b"3"), ("", b"")]),
        (b"\x00\xff", b"\x00\x00\x00\x00\x07not avro", [("bytes", b"\xff\xfe")]),
    ]
    producer = mirroring.producer()
    for n, (key, value, headers) in enumerate(wanted):
        producer.produce(topic_name, value, key, 1, timestamp=1000 + n, headers=headers)
    assert producer.flush(30) == 0
    mirroring.copy(topic_name)
    assert mirroring.seen(topic_name, 0) == [], "same partition number"
    seen = mirroring.seen(topic_name, 1)
    assert [(r.key, r.value, list(r.headers)) for r in seen] == wanted
    assert [r.timestamp for r in seen] == [1000 + n for n in range(len(wanted))]


def test_f21_log_append_time_is_what_a_consumer_saw(mirroring, topic_name):
    mirroring.create(topic_name, configs={"message.timestamp.type": "LogAppendTime"},
                     target_configs={})  # fmt: skip
    mirroring.write(topic_name, numbered(5))
    mirroring.copy(topic_name)
    here = list(read_all(mirroring.source, TopicPartition(topic_name, 0)))
    assert [r.timestamp for r in mirroring.seen(topic_name)] == [r.timestamp for r in here]
    assert here[0].timestamp > 1_700_000_100_000


def test_only_some_partitions_have_records(mirroring, topic_name):
    mirroring.create(topic_name, partitions=4)
    mirroring.write(topic_name, numbered(7), partition=2)
    receipts = mirroring.copy(topic_name)
    assert [r.records for r in receipts] == [0, 0, 7, 0]
    mirroring.write(topic_name, numbered(3), partition=0)
    assert [r.records for r in mirroring.copy(topic_name)] == [3, 0, 0, 0]
    assert mirroring.proof(topic_name).identical


def test_offset_syncs_are_true(mirroring, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(500))
    mirroring.copy(topic_name)
    place = mirroring.context.offset_syncs
    rows = read_all(mirroring.target, TopicPartition(place.topic, 0))
    syncs = [OffsetSync.decode(r.key, r.value) for r in rows]
    assert syncs[-1] == OffsetSync(topic_name, 0, 499, 499)
    assert all(s.upstream == s.downstream for s in syncs)


# -- where the source has gaps ----------------------------------------------------------------


def test_f18_only_committed_records_arrive(mirroring, topic_name):
    mirroring.create(topic_name)
    plan = [(numbered(3 + n % 4, f"txn{n}"), n % 3 != 2) for n in range(12)]
    committed = transactions(mirroring, topic_name, plan)
    mirroring.copy(topic_name)
    assert mirroring.values(topic_name) == committed
    # Again, with another reader: nothing is repeated, and what is new goes on behind.
    more = transactions(mirroring, topic_name, [([b"x"], False), ([b"y"], True)])
    mirroring.copy(topic_name)
    assert mirroring.values(topic_name) == committed + more


def test_f18_a_source_that_begins_with_an_aborted_transaction(mirroring, topic_name):
    mirroring.create(topic_name)
    committed = transactions(
        mirroring, topic_name, [(numbered(4, "lost"), False), (numbered(4, "kept"), True)]
    )
    mirroring.copy(topic_name)
    assert mirroring.values(topic_name) == committed


def test_uncommitted_reading_copies_aborted_records_too(mirroring, topic_name):
    mirroring.create(topic_name)
    transactions(mirroring, topic_name, [([b"a"], True), ([b"b"], False)])
    mirroring.but(read_committed=False).copy(topic_name)
    assert mirroring.values(topic_name) == [b"a", b"b"]


def test_f18_an_open_transaction_holds_the_end_back(mirroring, topic_name):
    mirroring.create(topic_name)
    producer = mirroring.producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"open", b"k", 0)
    producer.flush(30)
    mirroring.write(topic_name, [b"behind"])
    mirroring.copy(topic_name)
    assert mirroring.values(topic_name) == []
    producer.commit_transaction(30)
    wait_for(lambda: mirroring.ends(topic_name)[TopicPartition(topic_name, 0)] == 3)
    mirroring.copy(topic_name)
    assert mirroring.values(topic_name) == [b"open", b"behind"]


def test_a_source_that_begins_late(mirroring, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(10))
    mirroring.trim(mirroring.source, TopicPartition(topic_name, 0), 6)
    mirroring.copy(topic_name)
    assert mirroring.values(topic_name) == numbered(10)[6:]
    mirroring.assert_ledger_is_exact(topic_name)


def test_a_source_trimmed_to_its_end_and_written_again(mirroring, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(10))
    mirroring.trim(mirroring.source, TopicPartition(topic_name, 0), -1)
    mirroring.copy(topic_name)
    assert mirroring.values(topic_name) == []
    mirroring.write(topic_name, numbered(3, "new"))
    mirroring.copy(topic_name)
    assert mirroring.values(topic_name) == numbered(3, "new")
    mirroring.assert_ledger_is_exact(topic_name)


def test_f17_a_compacted_source(quick, topic_name):
    # The first two rounds lose their first record, middle ones and their last.
    compacted_source(quick, topic_name, [range(10), range(3, 8), [0, 9, 5]])
    here = list(read_all(quick.source, TopicPartition(topic_name, 0)))
    offsets = [r.offset for r in here]
    assert offsets[0] > 0
    assert offsets != list(range(offsets[0], offsets[0] + len(offsets)))
    quick.copy(topic_name)
    assert quick.proof(topic_name).identical
    quick.assert_ledger_is_exact(topic_name)
    quick.write(topic_name, numbered(4))
    quick.copy(topic_name)
    assert quick.values(topic_name)[-4:] == numbered(4)


def test_a_record_that_vanished_after_it_was_announced(quick, topic_name):
    """The ledger names the next record, its writer died, and the cleaner took the record."""
    quick.create(topic_name)
    committed = transactions(quick, topic_name, [([b"a", b"b"], True)])
    quick.copy(topic_name)
    # offset 2 is the marker: nobody will ever find a record there.
    LedgerStore(quick.target, quick.context.ledger_topic).write(
        [Entry(quick.place(topic_name), [Run(2, 2, 2)])]
    )
    committed += transactions(quick, topic_name, [([b"c"], True), ([b"d"], True)])
    quick.copy(topic_name)
    assert quick.values(topic_name) == committed


# -- resume -----------------------------------------------------------------------------------


def test_copying_again_copies_nothing(mirroring, topic_name):
    mirroring.create(topic_name, partitions=2)
    mirroring.write(topic_name, numbered(100), partition=1)
    assert sum(r.records for r in mirroring.copy(topic_name)) == 100
    again = mirroring.copy(topic_name)
    assert sum(r.records for r in again) == 0
    assert mirroring.proof(topic_name).identical


def test_start_at_latest_takes_only_what_comes(mirroring, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(5, "old"))
    latest = mirroring.but(start_at_latest=True)
    latest.copy(topic_name)
    mirroring.write(topic_name, numbered(5, "new"))
    latest.copy(topic_name)
    assert mirroring.values(topic_name) == numbered(5, "new")


def test_a_target_created_anew_is_filled_from_the_start(mirroring, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(50))
    mirroring.copy(topic_name)
    mirroring.delete(mirroring.target, f"A.{topic_name}")
    new = admin.NewTopic(f"A.{topic_name}", 1, 1, {"retention.ms": "-1"})
    failed = admin.create_topics(mirroring.target, [new], 30_000)
    assert not failed
    mirroring.await_topic(mirroring.target, f"A.{topic_name}", 1)
    mirroring.write(topic_name, numbered(5))
    mirroring.copy(topic_name)
    proof = mirroring.proof(topic_name)
    assert (proof.identical, proof.compared, proof.moved) == (True, 55, 0)


def test_a_source_created_anew_is_not_mixed_into_the_old_copy(mirroring, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(5, "old"))
    mirroring.copy(topic_name)
    mirroring.delete(mirroring.source, topic_name)
    new = admin.NewTopic(topic_name, 1, 1, {"retention.ms": "-1"})
    assert not admin.create_topics(mirroring.source, [new], 30_000)
    mirroring.await_topic(mirroring.source, topic_name, 1)
    mirroring.write(topic_name, numbered(5, "new"))
    [receipt] = CopyLoop(mirroring.lease([topic_name])).run()
    assert receipt.error.startswith("[source.recreated]")
    assert "heliograph.on.recreation=restart-topic" in receipt.error
    assert mirroring.values(topic_name) == numbered(5, "old")
    mirroring.but(on_recreation="continue").copy(topic_name)
    assert mirroring.values(topic_name) == numbered(5, "old") + numbered(5, "new")


def test_a_topic_deleted_in_mid_lease_leaves_the_others_alone(mirroring, topic_name):
    gone, kept = f"{topic_name}-gone", f"{topic_name}-kept"
    for topic in (gone, kept):
        mirroring.create(topic)
        mirroring.write(topic, numbered(3))
    with Holding(mirroring, gone, kept, seconds=600) as held:
        wait_for(lambda: len(mirroring.values(gone)) == 3)
        mirroring.delete(mirroring.source, gone)
        mirroring.write(kept, numbered(3, "later"))
        wait_for(lambda: mirroring.values(kept) == numbered(3) + numbered(3, "later"))
        wait_for(lambda: gone in held.part(gone).broken)
        wait_for(lambda: held.part(kept).settled)
    errors = {r.topic: r.error for r in held.receipts}
    assert errors[kept] == ""
    assert gone in errors[gone]
    assert mirroring.values(gone) == numbered(3), "its copy is kept"


def test_f07_two_processes_copy_the_same_partitions(mirroring, topic_name):
    mirroring.create(topic_name, partitions=3)
    for index in range(3):
        mirroring.write(
            topic_name, numbered(8000, f"p{index}"), index, **{"batch.num.messages": 50}
        )
    lease = mirroring.but(fetch_max_bytes=64 << 10).lease([topic_name], 600)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        both = list(pool.map(hold, [lease, lease]))
    for receipts in both:
        assert [r.source_position for r in receipts] == [8000] * 3
    proof = mirroring.proof(topic_name)
    assert (proof.identical, proof.compared, proof.moved) == (True, 24_000, 0), proof
    assert sum(r.records for receipts in both for r in receipts) >= 24_000


def forget_producers(quick, topic):
    """Wait until the target's broker knows no producer of the remote topic any more."""
    part = TopicPartition(f"A.{topic}", 0)

    def forgotten():
        metadata = quick.target.metadata([part.topic])
        return admin.describe_producers(quick.target, metadata, [part]).get(part) == []

    wait_for(forgotten)


def test_f25_resume_without_producer_state(quick, topic_name):
    quick.create(topic_name)
    committed = transactions(quick, topic_name, [(numbered(20), True), ([b"x"], False)])
    quick.copy(topic_name)
    forget_producers(quick, topic_name)
    committed += transactions(quick, topic_name, [(numbered(20, "w"), True)])
    assert sum(r.records for r in quick.copy(topic_name)) == 20
    assert quick.values(topic_name) == committed


def test_f25_resume_without_producer_state_behind_foreign_records(quick, topic_name):
    quick.create(topic_name)
    quick.write(topic_name, numbered(20))
    quick.copy(topic_name)
    foreign(quick, topic_name, 3)
    forget_producers(quick, topic_name)
    quick.write(topic_name, numbered(5, "w"))
    assert sum(r.records for r in quick.copy(topic_name)) == 5
    own = [r.value for r in quick.seen(topic_name) if r.key != b"foreign"]
    assert own == numbered(20) + numbered(5, "w")
    quick.assert_ledger_is_exact(topic_name)


@pytest.mark.parametrize("left", [0, 1])
def test_f25_resume_without_producer_state_and_without_the_old_records(quick, topic_name, left):
    quick.create(topic_name)
    quick.write(topic_name, numbered(20))
    quick.copy(topic_name)
    quick.trim(quick.target, TopicPartition(f"A.{topic_name}", 0), 20 - left)
    forget_producers(quick, topic_name)
    quick.write(topic_name, numbered(5, "w"))
    assert sum(r.records for r in quick.copy(topic_name)) == 5
    assert quick.values(topic_name) == [*numbered(20)[20 - left :], *numbered(5, "w")]


# -- foreign writers --------------------------------------------------------------------------


def foreign(mirroring, topic, count):
    producer = mirroring.producer("B")
    for _ in range(count):
        producer.produce(f"A.{topic}", b"not ours", b"foreign", 0, timestamp=1_700_000_000_000)
    assert producer.flush(30) == 0


def test_a_foreign_write_moves_what_follows_and_the_ledger_knows(mirroring, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(10))
    mirroring.copy(topic_name)
    foreign(mirroring, topic_name, 2)
    mirroring.write(topic_name, numbered(10, "w"))
    mirroring.copy(topic_name)
    mirroring.assert_ledger_is_exact(topic_name)
    assert mirroring.seen(topic_name)[-1].offset == 21


def test_a_foreign_write_moves_every_run_that_follows(mirroring, topic_name):
    mirroring.create(topic_name)
    first = transactions(mirroring, topic_name, [([b"a"], True), ([b"b"], True)])
    mirroring.copy(topic_name)
    foreign(mirroring, topic_name, 2)
    # Several runs at once: all were announced before the shift was seen.
    more = transactions(mirroring, topic_name, [(numbered(3, f"t{n}"), True) for n in range(5)])
    mirroring.copy(topic_name)
    own = [r.value for r in mirroring.seen(topic_name) if r.key != b"foreign"]
    assert own == first + more
    mirroring.assert_ledger_is_exact(topic_name)


# -- what cannot go on ------------------------------------------------------------------------


def test_retention_that_overran_the_mirror(mirroring, topic_name):
    mirroring.create(topic_name, partitions=2)
    for index in range(2):
        mirroring.write(topic_name, numbered(10), index)
    mirroring.copy(topic_name)
    for index in range(2):
        mirroring.write(topic_name, numbered(10, "late"), index)
    mirroring.trim(mirroring.source, TopicPartition(topic_name, 0), 15)
    lost, fine = CopyLoop(mirroring.lease([topic_name])).run()
    assert lost.error.startswith("[source.data-loss]")
    assert "[10, 15)" in lost.error
    assert "5 offset(s)" in lost.error
    assert "heliograph.on.data.loss=continue" in lost.error
    assert lost.source_position == 10
    assert (fine.error, fine.records) == ("", 10)
    assert mirroring.values(topic_name, 0) == numbered(10)
    going_on = mirroring.but(on_data_loss="continue")
    going_on.copy(topic_name)
    assert mirroring.values(topic_name, 0) == numbered(10) + numbered(10, "late")[5:]
    mirroring.write(topic_name, numbered(2, "more"))
    going_on.copy(topic_name)
    assert mirroring.values(topic_name, 0)[-2:] == numbered(2, "more")


def test_a_batch_that_the_target_refuses_is_not_called_mirrored(mirroring, topic_name):
    mirroring.create(topic_name, target_configs={"max.message.bytes": "1000"})
    mirroring.write(topic_name, [b"x" * 5000])
    [receipt] = CopyLoop(mirroring.lease([topic_name])).run()
    assert receipt.error.startswith("[target.refused]")
    assert "source offset 0 of" in receipt.error
    assert "max.message.bytes=1000" in receipt.error
    assert receipt.source_position == 0
    assert mirroring.values(topic_name) == []


def test_a_failing_partition_does_not_hold_up_its_neighbour(mirroring, topic_name):
    mirroring.create(topic_name, partitions=2, target_configs={"max.message.bytes": "2000"})
    each = {"batch.num.messages": 1}
    mirroring.write(topic_name, [b"x" * 20_000] * 100, 0, **each)
    mirroring.write(topic_name, numbered(50), 1, **each)
    started = time.monotonic()
    lease = mirroring.but(fetch_max_bytes=256 << 10).lease([topic_name], 600)
    refused, fine = CopyLoop(lease).run()
    assert "[target.refused]" in refused.error
    assert (fine.error, fine.source_position) == ("", 50)
    assert mirroring.values(topic_name, 1) == numbered(50)
    assert time.monotonic() - started < 500, "it waited for its deadline"


def test_a_source_that_ends_before_what_was_announced_is_read_from_there(mirroring, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(5))
    mirroring.copy(topic_name)
    # Somebody read on, found no record, and the source has lost that. Nothing that was mirrored.
    ledger = LedgerStore(mirroring.target, mirroring.context.ledger_topic)
    ledger.write([Entry(mirroring.place(topic_name), [Run(5, 9, 5)])])
    with Holding(mirroring, topic_name, seconds=600) as held:
        p = held.part(topic_name)
        wait_for(lambda: p.settled and p.position == 5)
    [receipt] = held.receipts
    assert (receipt.error, receipt.source_position) == ("", 5)
    mirroring.write(topic_name, numbered(3, "more"))
    mirroring.copy(topic_name)
    assert mirroring.values(topic_name) == numbered(5) + numbered(3, "more")


# -- the small topics -------------------------------------------------------------------------


def test_append_and_read_of_small_topics(mirroring, topic_name):
    mirroring.create(topic_name)
    part = TopicPartition(topic_name, 0)
    ends = [
        log.append(mirroring.source, part, build([Record(0, 1, b"k", b"%d" % n)] * 2))
        for n in range(3)
    ]
    assert ends == [0, 2, 4]
    assert log.end_offset(mirroring.source, part) == 6
    assert [r.offset for r in read_all(mirroring.source, part)] == list(range(6))
    assert list(log.read_to_end(mirroring.source, part, 6)) == []


def test_one_signature_counts_for_everybody(mirroring):
    from heliograph.ledger.codec import Signature

    topic = mirroring.context.ledger_topic
    one, two = (LedgerStore(mirroring.target, topic) for _ in range(2))
    first = one.sign(Signature(11, "source", "target"))
    assert two.sign(Signature(22, "source", "target")) == first
    fresh = LedgerStore(mirroring.target, topic)
    fresh.refresh()
    assert fresh.signature == Signature(11, "source", "target")


def test_f45_a_leader_that_was_deposed_does_not_serve_an_old_log(
    mirroring, topic_name, monkeypatch
):
    """Metadata names an election that the broker has not heard of; its log may be an old one."""
    mirroring.create(topic_name)
    part = TopicPartition(topic_name, 0)
    log.append(mirroring.source, part, build([Record(0, 1, b"k", b"v")]))
    assert log.read_once(mirroring.source, part, 0).records
    epoch = Metadata.leader_epoch
    monkeypatch.setattr(Metadata, "leader_epoch", lambda *args: epoch(*args) + 1)
    with pytest.raises(BrokerError, match="UNKNOWN_LEADER_EPOCH"):
        log.read_once(mirroring.source, part, 0, patience=0.0)
