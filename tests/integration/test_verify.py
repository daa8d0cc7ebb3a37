"""`heliograph verify` on real logs: what flows mirrored, and what was done to it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from faulty_mirror import FaultyMirror
from faulty_mirror import numbered as records
from mirroring import hold, wait_for
from sources import COMPACTED, compacted_source, numbered, transactions
from verifying import Verifying, append_foreign

from heliograph.batch.records import build
from heliograph.lab.proof import read_all
from heliograph.ledger.codec import Signature
from heliograph.ledger.store import LedgerStore
from heliograph.model import CONTINUE, TopicPartition
from heliograph.verify.model import Gone, Kind, Side
from heliograph.verify.plan import VerifyError
from heliograph.wire import admin, log
from heliograph.wire.configs import describe


@pytest.fixture
def verify(mirroring, tmp_path, monkeypatch):
    return Verifying(mirroring, tmp_path, monkeypatch)


@pytest.fixture
def verify_quick(quick, tmp_path, monkeypatch):
    return Verifying(quick, tmp_path, monkeypatch)


def alter(quick, alias, topic, configs):
    client = AdminClient({"bootstrap.servers": quick.lab[alias].bootstrap})
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for done in client.incremental_alter_configs([resource]).values():
        done.result(30)
    side = quick.source if alias == "A" else quick.target

    def heard():
        # A moment after the controller has answered.
        found = describe(side, [topic])
        return all(found.value(topic, key, "") == value for key, value in configs.items())

    wait_for(heard)


def faulty_mirror(mirroring, topic, partition=0):
    context = mirroring.context
    return FaultyMirror(
        mirroring.source, mirroring.target, context.producer_id, context.ledger_topic,
        TopicPartition(topic, partition),
    )  # fmt: skip


def assert_identical(report, records):
    assert report.unverified == []
    assert report.totals.counts == {}, report.differences
    assert report.exit_code == 0
    assert report.totals.records == records


def test_identical_partitions_are_compared_by_digest(mirroring, verify, topic_name):
    mirroring.create(topic_name, 3)
    for partition in range(3):
        mirroring.write(topic_name, numbered(5000), partition, **{"compression.type": "lz4"})
    mirroring.leasing(identical=True).copy(topic_name)
    report = verify(topic_name, complete=True)
    assert_identical(report, 15_000)
    totals = report.totals
    assert totals.digests > totals.decoded
    assert [p.end for p in report.partitions] == [5000] * 3
    assert report.verdict == "IDENTICAL AND COMPLETE: 15,000 records, byte for byte"


def test_merged_batches_are_compared_record_by_record(mirroring, verify, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(2000), **{"linger.ms": 0, "batch.size": 1})
    mirroring.copy(topic_name)
    report = verify(topic_name)
    assert_identical(report, 2000)
    assert report.totals.digests == 0


@pytest.mark.parametrize("identical", [True, False])
def test_transactions_leave_gaps_but_no_difference(mirroring, verify, topic_name, identical):
    mirroring.create(topic_name)
    plan = [(numbered(50, f"tx{n}"), n % 3 != 1) for n in range(9)]
    committed = transactions(mirroring, topic_name, plan)
    mirroring.leasing(identical=identical).copy(topic_name)
    assert_identical(verify(topic_name, complete=True), len(committed))


def test_aborted_records_on_the_target_are_too_many(mirroring, verify, topic_name):
    mirroring.create(topic_name)
    plan = [(numbered(50, "good"), True), (numbered(3, "bad"), False), (numbered(5, "fine"), True)]
    transactions(mirroring, topic_name, plan)
    careless = mirroring.but(read_committed=False).leasing(identical=True)
    careless.copy(topic_name)
    report = verify(topic_name)
    assert report.exit_code == 1
    assert report.totals.counts == {Kind.EXTRA: 3}
    assert [d.target_offset for d in report.differences] == [51, 52, 53]
    assert all("written by this flow" in d.note for d in report.differences)


def test_dense_offsets_behind_a_late_start(mirroring, verify, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(500))
    mirroring.trim(mirroring.source, TopicPartition(topic_name, 0), 100)
    mirroring.leasing(identical=False).copy(topic_name)
    assert_identical(verify(topic_name), 400)


def test_padded_logs(mirroring, verify, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(500))
    mirroring.trim(mirroring.source, TopicPartition(topic_name, 0), 100)
    mirroring.leasing(identical=True, paddable=True).copy(topic_name)
    assert_identical(verify(topic_name), 400)


def test_what_is_not_mirrored_yet_is_counted_and_is_no_difference(mirroring, verify, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(300))
    mirroring.copy(topic_name)
    mirroring.write(topic_name, numbered(50))
    report = verify(topic_name)
    assert_identical(report, 300)
    assert report.totals.pending == 50
    assert report.verdict == (
        "IDENTICAL: 300 records, byte for byte; not compared:"
        " 50 source offsets that are not mirrored yet"
    )
    complete = verify(topic_name, complete=True)
    assert complete.exit_code == 1
    assert complete.totals.counts == {Kind.MISSING: 50}
    assert complete.differences[0].source_offset == 300


def test_nothing_mirrored_is_not_called_identical(mirroring, verify, topic_name):
    mirroring.create(topic_name)
    empty = verify(topic_name)
    assert (empty.exit_code, empty.identical) == (0, False)
    assert empty.verdict == "NOTHING TO COMPARE: the source has no records"
    mirroring.write(topic_name, numbered(300))
    report = verify(topic_name)
    assert (report.exit_code, report.identical) == (2, False)
    assert report.verdict == (
        "NOTHING COMPARED: there are 300 source offsets that are not mirrored yet"
    )
    complete = verify(topic_name, complete=True)
    assert complete.exit_code == 1
    assert complete.verdict == (
        "DIFFERENT: 300 missing (300 of them not mirrored yet), of 300 records compared"
    )


@pytest.mark.full
def test_verify_while_mirroring_runs(mirroring, verify, topic_name):
    mirroring.create(topic_name, 2)
    stopped = threading.Event()

    def produce():
        producer = mirroring.producer()
        n = 0
        while not stopped.is_set():
            for _ in range(50):
                producer.produce(topic_name, b"v%d" % n, b"k", n % 2)
                n += 1
            producer.flush(10)

    def mirror():
        while not stopped.is_set():
            hold(mirroring.leasing(identical=True).lease([topic_name]))

    threads = [threading.Thread(target=produce), threading.Thread(target=mirror)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: sum(mirroring.offsets(mirroring.target, f"A.{topic_name}", -1).values()))
        reports = [verify(topic_name) for _ in range(9)]
        grown = reports[0].totals.records
        # The last one sees more, however slowly it is mirrored.
        wait_for(lambda: reports.append(verify(topic_name)) or reports[-1].totals.records > grown)
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    assert {r.exit_code for r in reports} == {0}, [r.differences for r in reports]
    seen = [r.totals.records for r in reports]
    assert seen == sorted(seen)
    assert seen[-1] > seen[0] > 0


def test_foreign_records_are_named_by_their_producer(mirroring, verify, topic_name):
    mirroring.create(topic_name)
    target = TopicPartition(f"A.{topic_name}", 0)
    mirroring.write(topic_name, numbered(100))
    mirroring.copy(topic_name)
    pid = append_foreign(mirroring.target, target, b"one", b"two")
    mirroring.write(topic_name, numbered(100))
    mirroring.copy(topic_name)
    last = append_foreign(mirroring.target, target, b"three")
    report = verify(topic_name)
    assert report.exit_code == 1
    assert report.totals.counts == {Kind.EXTRA: 3}
    assert report.totals.records == 200
    found = [(d.target_offset, d.producer_id) for d in report.differences]
    assert found == [(100, pid), (101, pid), (202, last)]
    assert 'value "one"' in report.differences[0].target_record


@pytest.mark.parametrize("fault", ["flipped", "missing", "doubled", "swapped"])
def test_one_record_of_many_is_found_and_named(mirroring, verify, topic_name, fault):
    mirroring.create(topic_name)
    faulty = faulty_mirror(mirroring, topic_name)
    for n in range(50):
        faulty.write(records(n * 1000, 1000), fault if n == 30 else "", 456)
    faulty.finish()
    report = verify(topic_name, complete=True)
    assert report.exit_code == 1
    assert report.totals.records == 50_000
    assert report.totals.decoded < 5
    at = 30_456
    facts = [(d.kind, d.source_offset, d.target_offset) for d in report.differences]
    assert (
        facts
        == {
            "flipped": [(Kind.CHANGED, at, at)],
            "missing": [(Kind.MISSING, at, None)],
            "doubled": [(Kind.EXTRA, None, at + 1)],
            "swapped": [(Kind.MOVED, at, at + 1), (Kind.MOVED, at + 1, at)],
        }[fault]
    )
    if fault == "doubled":
        assert f"doubled: equal to source offset {at};" in report.differences[0].note
    if fault == "flipped":
        assert report.differences[0].field == "value (from byte 59)"


def test_retention_on_the_source_is_said_and_is_no_difference(mirroring, verify, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(500))
    mirroring.copy(topic_name)
    mirroring.trim(mirroring.source, TopicPartition(topic_name, 0), 200)
    report = verify(topic_name)
    assert_identical(report, 300)
    assert report.partitions[0].gone == [Gone(Side.SOURCE, 0, 200)]
    assert report.verdict.endswith("not compared: 200 source offsets that the source has deleted")
    mirroring.trim(mirroring.target, TopicPartition(f"A.{topic_name}", 0), 200)
    assert verify(topic_name).verdict == "IDENTICAL: 300 records, byte for byte"


def test_what_the_target_has_deleted_and_the_source_has_is_not_proven(
    mirroring, verify, topic_name
):
    mirroring.create(topic_name, 2)
    for partition in (0, 1):
        mirroring.write(topic_name, numbered(500), partition)
    mirroring.copy(topic_name)
    mirroring.trim(mirroring.target, TopicPartition(f"A.{topic_name}", 1), 150)
    report = verify(topic_name)
    assert report.exit_code == 3
    assert not report.identical
    assert (report.totals.records, report.totals.deleted) == (850, 150)
    assert [p.gone for p in report.partitions] == [[], [Gone(Side.TARGET, 0, 150)]]
    assert report.verdict == (
        "NOT PROVEN: no difference in 850 records, byte for byte; not compared: 150 records that"
        " the source has and the target has deleted"
    )
    assert_identical(verify(topic_name, begin=150), 700)
    assert verify(topic_name, begin=149).totals.deleted == 1


def test_markers_that_the_target_has_deleted_are_no_records(mirroring, verify, topic_name):
    mirroring.create(topic_name)
    plan = [(numbered(3, "aborted"), False), (numbered(20), True), (numbered(5), True)]
    transactions(mirroring, topic_name, plan)
    mirroring.leasing(identical=True).copy(topic_name)
    target = TopicPartition(f"A.{topic_name}", 0)
    mirroring.trim(mirroring.target, target, 4)
    assert_identical(verify(topic_name, complete=True), 25)
    mirroring.trim(mirroring.target, target, 26)
    report = verify(topic_name, complete=True)
    assert report.unverified == []
    assert (report.exit_code, report.totals.records, report.totals.deleted) == (3, 4, 21)


@pytest.mark.parametrize("remembered", [False, True])
def test_records_that_a_mirror_skipped_while_the_target_was_empty(
    quick, verify_quick, topic_name, remembered
):
    """The broker forgot the flow, and its log's end was taken for the number of our records."""
    quick.create(topic_name)
    target = TopicPartition(f"A.{topic_name}", 0)
    quick.write(topic_name, numbered(100))
    quick.copy(topic_name)
    append_foreign(quick.target, target, *[b"foreign"] * 10)
    quick.trim(quick.target, target, -1)
    quick.write(topic_name, numbered(50))
    signature = quick.context.producer_id
    metadata = quick.target.metadata([target.topic])
    wait_for(lambda: all(
        state.producer_id != signature
        for state in admin.describe_producers(quick.target, metadata, [target])[target]
    ))  # fmt: skip
    before = verify_quick(topic_name)
    assert (before.exit_code, before.unverified, before.totals.records) == (3, [], 0)
    # A broker forgets a producer by the time of its records.
    age = -3_600_000 if remembered else 3_600_000
    now = int(time.time() * 1000)
    skipped = [r._replace(timestamp=now - age) for r in quick.source_records(topic_name)[110:]]
    log.append(quick.target, target, build(skipped, producer_id=signature, sequence=110))
    report = verify_quick(topic_name)
    # It is known that 100 were mirrored: what stands behind the hole is nobody's copy.
    assert report.exit_code == 1
    assert report.totals.counts == {Kind.EXTRA: 40}
    assert report.verdict.startswith("DIFFERENT: 40 extra")


def test_the_ledger_gives_away_what_was_lost_before_the_target_deleted_it(
    mirroring, verify, topic_name
):
    mirroring.create(topic_name)
    faulty = faulty_mirror(mirroring, topic_name)
    for n in range(3):
        faulty.write(records(n * 1000, 1000), "missing" if n == 1 else "", 456)
    faulty.finish()
    mirroring.trim(mirroring.target, TopicPartition(f"A.{topic_name}", 0), 2500)
    report = verify(topic_name)
    assert report.exit_code == 1
    assert report.totals.counts == {Kind.MISSING: 1}
    assert report.totals.deleted == 2500
    [lost] = report.differences
    assert lost.source_offset == 1456
    assert lost.note == "the ledger has no place for it; the target has deleted what was around it"


def test_a_ledger_without_the_runs_of_what_the_target_has_deleted(
    mirroring, verify, topic_name, monkeypatch
):
    """Pruned to a run that begins where the target's log begins: nothing below is missing."""
    mirroring.create(topic_name)
    plan = [(numbered(10, f"tx{n}"), True) for n in range(6)]
    transactions(mirroring, topic_name, plan)
    mirroring.leasing(identical=True).copy(topic_name)
    mirroring.trim(mirroring.target, TopicPartition(f"A.{topic_name}", 0), 33)

    class Pruned(LedgerStore):
        def at(self, place):
            ledger = super().at(place)
            ledger.prune(33)
            return ledger

    monkeypatch.setattr("heliograph.verify.plan.LedgerStore", Pruned)
    report = verify(topic_name)
    assert report.totals.counts == {}, report.differences
    assert (report.exit_code, report.totals.records, report.totals.deleted) == (3, 30, 30)


def test_a_log_start_that_moves_after_the_plan(mirroring, verify, topic_name, monkeypatch):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(500))
    mirroring.copy(topic_name)
    from heliograph.verify import checking

    trimmed = []
    real = checking.check

    def late(context, ranges):
        if not trimmed:
            trimmed.append(True)
            mirroring.trim(mirroring.source, TopicPartition(topic_name, 0), 120)
        return real(context, ranges)

    monkeypatch.setattr("verifying.check", late)
    report = verify(topic_name)
    assert_identical(report, 380)
    assert report.partitions[0].gone == [Gone(Side.SOURCE, 0, 120)]


def test_a_target_that_deletes_after_the_plan(mirroring, verify, topic_name, monkeypatch):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(500))
    mirroring.copy(topic_name)
    from heliograph.verify import checking

    real = checking.check

    def late(context, ranges):
        mirroring.trim(mirroring.target, TopicPartition(f"A.{topic_name}", 0), 120)
        return real(context, ranges)

    monkeypatch.setattr("verifying.check", late)
    report = verify(topic_name)
    assert (report.exit_code, report.totals.records, report.totals.deleted) == (3, 380, 120)
    assert report.partitions[0].gone == [Gone(Side.TARGET, 0, 120)]


def test_a_source_that_was_compacted_after_mirroring(quick, verify_quick, topic_name):
    quick.create(topic_name, configs={"cleanup.policy": "compact"},
                 target_configs={"cleanup.policy": "delete"})  # fmt: skip
    producer = quick.producer()
    for n in range(300):
        producer.produce(topic_name, b"%d" % n, b"key-%d" % (n % 40), 0)
    producer.produce(topic_name, None, b"key-7", 0)
    assert producer.flush(30) == 0
    quick.leasing(identical=False).copy(topic_name)
    alter(quick, "A", topic_name, COMPACTED)
    part = TopicPartition(topic_name, 0)

    def cleaned():
        # A write after segment.ms, by its timestamp, rolls the segment, so that it can be cleaned.
        producer.produce(topic_name, b"roll", b"roll", 0)
        assert producer.flush(30) == 0
        return len([r for r in read_all(quick.source, part) if r.key.startswith(b"key-")]) <= 41

    wait_for(cleaned)
    report = verify_quick(topic_name)
    assert report.exit_code == 0, report.differences
    assert report.totals.compacted > 200


@pytest.mark.parametrize("side", list(Side))
def test_a_topic_that_was_compacted_for_a_while(quick, verify_quick, topic_name, side):
    """Its policy is delete again: only the holes in the log tell that a cleaner was there."""
    quick.create(topic_name)
    name = topic_name if side is Side.SOURCE else f"A.{topic_name}"
    client = quick.source if side is Side.SOURCE else quick.target
    producer = quick.producer()
    for n in range(300):
        producer.produce(topic_name, b"%d" % n, b"key-%d" % (n % 40), 0)
    assert producer.flush(30) == 0
    quick.leasing(identical=True).copy(topic_name)
    alter(quick, "A" if side is Side.SOURCE else "B", name, COMPACTED)

    def cleaned():
        producer.produce(topic_name, b"roll", b"roll", 0)
        assert producer.flush(30) == 0
        quick.leasing(identical=True).copy(topic_name)
        left = read_all(client, TopicPartition(name, 0))
        return len([r for r in left if r.key.startswith(b"key-")]) == 40

    wait_for(cleaned)
    alter(quick, "A" if side is Side.SOURCE else "B", name, {"cleanup.policy": "delete"})
    report = verify_quick(topic_name, complete=True)
    assert report.exit_code == 0, report.differences
    assert report.totals.compacted >= 260
    assert report.partitions[0].holed == {side}
    assert "compaction" in report.verdict
    assert "byte for byte" in report.verdict


def test_a_record_of_a_compacted_topic_that_nothing_explains(mirroring, verify, topic_name):
    mirroring.create(topic_name, configs={"cleanup.policy": "compact"})
    faulty = faulty_mirror(mirroring, topic_name)
    faulty.write(records(0, 100), "missing", 33)
    faulty.finish()
    report = verify(topic_name)
    assert report.totals.counts == {Kind.MISSING: 1}
    assert report.differences[0].source_offset == 33


def test_a_compacted_source_with_holes(quick, verify_quick, topic_name):
    compacted_source(quick, topic_name, [range(200), range(50, 150), range(100, 120)])
    quick.leasing(identical=False).copy(topic_name)
    report = verify_quick(topic_name)
    assert report.exit_code == 0, report.differences


def test_quarantined_records_are_counted(mirroring, tmp_path, monkeypatch, topic_name):
    quarantine = f"quarantine-{topic_name}"[:200]
    failed = admin.create_topics(mirroring.target, [admin.NewTopic(quarantine, 1, 1, {})], 30_000)
    assert not failed
    mirroring.await_topic(mirroring.target, quarantine, 1)
    monkeypatch.setattr("heliograph.verify.plan.quarantine_topic", lambda _: quarantine)
    mirroring = mirroring.but(quarantine_topic=quarantine)
    mirroring.create(topic_name, target_configs={"max.message.bytes": "20000"})
    values = numbered(20)
    values[7] = b"x" * 50_000
    mirroring.write(topic_name, values, **{"linger.ms": 0, "batch.size": 1})
    mirroring.leasing(max_bytes=20_000).copy(topic_name)
    report = Verifying(mirroring, tmp_path, monkeypatch)(topic_name)
    assert_identical(report, 19)
    assert report.totals.quarantined == 1
    assert report.verdict.endswith("not compared: 1 record that was quarantined, not mirrored")


def test_a_target_that_puts_its_own_time_on_records(mirroring, verify, topic_name):
    mirroring.create(topic_name, target_configs={"message.timestamp.type": "LogAppendTime"})
    mirroring.write(topic_name, numbered(500), **{"linger.ms": 0, "batch.size": 1})
    mirroring.write(topic_name, numbered(5000))
    mirroring.copy(topic_name)
    report = verify(topic_name)
    assert_identical(report, 5500)
    assert report.totals.untimed == 5500
    assert report.verdict == (
        "IDENTICAL: 5,500 records, byte for byte but for 5,500 timestamps, which the target has"
        " replaced (message.timestamp.type=LogAppendTime)"
    )


def test_a_source_with_log_append_time(mirroring, verify, topic_name):
    mirroring.create(topic_name, configs={"message.timestamp.type": "LogAppendTime"},
                     target_configs={})  # fmt: skip
    mirroring.write(topic_name, numbered(500))
    mirroring.copy(topic_name)
    assert_identical(verify(topic_name), 500)


def test_what_cannot_be_compared_is_named(mirroring, verify, topic_name):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(10))
    mirroring.copy(topic_name)
    assert not admin.create_topics(
        mirroring.source, [admin.NewTopic(f"{topic_name}-new", 2, 1, {})], 30_000
    )
    mirroring.await_topic(mirroring.source, f"{topic_name}-new", 2)
    report = verify(topic_name, f"{topic_name}-new")
    assert report.exit_code == 2
    text = f"B has no topic A.{topic_name}-new: nothing of it is mirrored"
    assert report.unverified == [f"{topic_name}-new-{n}: {text}" for n in (0, 1)]


def test_records_of_another_flow_are_not_too_many(mirroring, verify, topic_name):
    """Two flows into one topic: each is verified for itself."""
    other = f"{topic_name}-other"
    mirroring.create(topic_name)
    mirroring.create(other)
    alias = f"C{topic_name[-8:]}"
    ledger = f"mm2-ledger.{alias}.internal"
    compacted = {"cleanup.policy": "compact"}
    assert not admin.create_topics(
        mirroring.target, [admin.NewTopic(ledger, 1, 1, compacted)], 30_000
    )
    mirroring.await_topic(mirroring.target, ledger, 1)
    signature = admin.allocate_producer_id(mirroring.target)
    LedgerStore(mirroring.target, ledger).sign(Signature(signature, "elsewhere", "here"))
    spoke = mirroring.but(producer_id=signature, ledger_topic=ledger)
    target = TopicPartition(f"A.{topic_name}", 0)

    def both():
        mirroring.write(topic_name, numbered(100))
        mirroring.copy(topic_name)
        mirroring.write(other, numbered(80, "other"))
        lease = spoke.lease([other])
        [leased] = lease.partitions
        leased = replace(leased, target_topic=target.topic, shared=True)
        hold(replace(lease, partitions=(leased,)))

    both()
    both()
    report = verify(topic_name, complete=True)
    assert_identical(report, 200)
    assert report.totals.others == {f"{alias}->B": 160}
    assert report.verdict.endswith(
        f"not compared: 160 records on the target that flow {alias}->B has mirrored"
    )
    append_foreign(mirroring.target, target, b"foreign")
    assert verify(topic_name).totals.counts == {Kind.EXTRA: 1}


def test_only_the_range_that_was_asked_for(mirroring, verify, topic_name):
    mirroring.create(topic_name)
    faulty = faulty_mirror(mirroring, topic_name)
    for n in range(10):
        faulty.write(records(n * 1000, 1000), "flipped" if n == 3 else "", 500)
    faulty.finish()
    assert_identical(verify(topic_name, begin=4000), 6000)
    assert_identical(verify(topic_name, end=3500), 3500)
    assert verify(topic_name, begin=4000, end=5000).verdict == (
        "IDENTICAL: 1,000 records of source offsets 4000:5000, byte for byte"
    )
    hit = verify(topic_name, begin=3500, end=3501)
    assert (hit.totals.records, hit.totals.counts) == (1, {Kind.CHANGED: 1})


def test_a_sample_is_the_same_for_the_same_seed(mirroring, verify, topic_name):
    mirroring.create(topic_name)
    faulty = faulty_mirror(mirroring, topic_name)
    for n in range(20):
        faulty.write(records(n * 1000, 1000))
    faulty.finish()
    sampled = [verify(topic_name, sample=20.0, seed=seed) for seed in (1, 1, 2)]
    assert [r.totals.records for r in sampled] == [4000] * 3
    assert [r.offered for r in sampled] == [20] * 3
    chosen = [verify(topic_name, sample=10.0, seed=seed).partitions[0].totals.bytes
              for seed in (1, 1)]  # fmt: skip
    assert chosen[0] == chosen[1]
    assert sampled[0].verdict == "IDENTICAL: 4,000 records in a sample of 20 %, byte for byte"


def test_a_bad_choice_says_what_to_do(verify, mirroring, topic_name):
    mirroring.create(topic_name)
    mirroring.create(f"{topic_name}-b")
    with pytest.raises(VerifyError, match="mirrors no topic that matches nothing_like_that"):
        verify("nothing_like_that")
    with pytest.raises(VerifyError, match="--range is about one topic, and 2 are chosen"):
        verify(topic_name, f"{topic_name}-b", begin=5)


def test_a_topic_that_was_created_again_is_not_compared_with_its_predecessor(
    mirroring, verify, topic_name
):
    mirroring = mirroring.but(on_recreation=CONTINUE)
    mirroring.create(topic_name)
    mirroring.write(topic_name, [b"old"] * 10)
    mirroring.leasing(identical=False).copy(topic_name)
    mirroring.delete(mirroring.source, topic_name)
    admin.create_topics(mirroring.source, [admin.NewTopic(topic_name, 1, 1, {})], 30_000)
    mirroring.await_topic(mirroring.source, topic_name, 1)
    nothing = verify(topic_name)
    assert nothing.exit_code == 2
    assert "was deleted and created again" in nothing.unverified[0]
    mirroring.write(topic_name, [b"new"] * 5)
    mirroring.leasing(identical=False).copy(topic_name)
    report = verify(topic_name)
    assert_identical(report, 5)
    assert "are of an earlier topic" in report.partitions[0].notes[0]


def test_counts_add_up(mirroring, verify, topic_name):
    mirroring.create(topic_name, 2)
    faulty = faulty_mirror(mirroring, topic_name, 1)
    for n in range(10):
        faulty.write(records(n * 100, 100), "missing" if n % 2 else "", 50)
    faulty.finish()
    report = verify(topic_name, most=2)
    assert report.totals.counts == Counter({Kind.MISSING: 5})
    assert [d.source_offset for d in report.differences] == [150, 350]
    assert report.verdict == "DIFFERENT: 5 missing, of 1,000 records compared"
