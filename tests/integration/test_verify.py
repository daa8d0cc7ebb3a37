"""`heliograph verify` on real logs: what flows mirrored, and what was done to it."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient
from mirroring import hold, wait_for
from sources import COMPACTED, compacted_source, numbered, transactions
from verifying import Verifying, append_foreign

from faulty_mirror import FaultyMirror
from faulty_mirror import numbered as records
from heliograph.lab.proof import read_all
from heliograph.model import CONTINUE, TopicPartition
from heliograph.service.verify_plan import VerifyError
from heliograph.verify.model import Gone, Kind, Side
from heliograph.wire import admin


@pytest.fixture
def verify(mirroring, tmp_path, monkeypatch):
    return Verifying(mirroring, tmp_path, monkeypatch)


@pytest.fixture
def verify_quick(quick, tmp_path, monkeypatch):
    return Verifying(quick, tmp_path, monkeypatch)


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
    assert report.verdict == "IDENTICAL: 15,000 records, byte for byte"


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
    complete = verify(topic_name, complete=True)
    assert complete.exit_code == 1
    assert complete.totals.counts == {Kind.MISSING: 50}
    assert complete.differences[0].source_offset == 300


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
        reports = [verify(topic_name) for _ in range(10)]
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    assert [r.exit_code for r in reports] == [0] * 10, [r.differences for r in reports]
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


def test_retention_on_either_side_is_said_and_is_no_difference(mirroring, verify, topic_name):
    mirroring.create(topic_name, 2)
    for partition in (0, 1):
        mirroring.write(topic_name, numbered(500), partition)
    mirroring.copy(topic_name)
    mirroring.trim(mirroring.source, TopicPartition(topic_name, 0), 200)
    mirroring.trim(mirroring.target, TopicPartition(f"A.{topic_name}", 1), 150)
    report = verify(topic_name)
    assert_identical(report, 300 + 350)
    assert [p.gone for p in report.partitions] == [
        [Gone(Side.SOURCE, 0, 200)],
        [Gone(Side.TARGET, 0, 150)],
    ]


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


def test_a_source_that_was_compacted_after_mirroring(quick, verify_quick, topic_name):
    quick.create(topic_name, configs={"cleanup.policy": "compact"},
                 target_configs={"cleanup.policy": "delete"})  # fmt: skip
    producer = quick.producer()
    for n in range(300):
        producer.produce(topic_name, b"%d" % n, b"key-%d" % (n % 40), 0)
    producer.produce(topic_name, None, b"key-7", 0)
    assert producer.flush(30) == 0
    quick.leasing(identical=False).copy(topic_name)
    part = TopicPartition(topic_name, 0)
    alter = AdminClient({"bootstrap.servers": quick.lab["A"].bootstrap})
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in COMPACTED.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic_name, incremental_configs=entries)
    for done in alter.incremental_alter_configs([resource]).values():
        done.result(30)

    def cleaned():
        # A write after segment.ms, by its timestamp, rolls the segment, so that it can be cleaned.
        producer.produce(topic_name, b"roll", b"roll", 0)
        assert producer.flush(30) == 0
        return len([r for r in read_all(quick.source, part) if r.key.startswith(b"key-")]) <= 41

    wait_for(cleaned)
    report = verify_quick(topic_name)
    assert report.exit_code == 0, report.differences
    assert report.totals.compacted > 200


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
    monkeypatch.setattr("heliograph.service.verify_plan.quarantine_topic", lambda _: quarantine)
    mirroring = mirroring.but(quarantine_topic=quarantine)
    mirroring.create(topic_name, target_configs={"max.message.bytes": "20000"})
    values = numbered(20)
    values[7] = b"x" * 50_000
    mirroring.write(topic_name, values, **{"linger.ms": 0, "batch.size": 1})
    mirroring.leasing(max_bytes=20_000).copy(topic_name)
    report = Verifying(mirroring, tmp_path, monkeypatch)(topic_name)
    assert_identical(report, 20)
    assert report.totals.quarantined == 1


def test_a_target_that_puts_its_own_time_on_records(mirroring, verify, topic_name):
    mirroring.create(topic_name, target_configs={"message.timestamp.type": "LogAppendTime"})
    mirroring.write(topic_name, numbered(500), **{"linger.ms": 0, "batch.size": 1})
    mirroring.write(topic_name, numbered(5000))
    mirroring.copy(topic_name)
    report = verify(topic_name)
    assert_identical(report, 5500)
    assert report.totals.untimed == 5500


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


def test_only_the_range_that_was_asked_for(mirroring, verify, topic_name):
    mirroring.create(topic_name)
    faulty = faulty_mirror(mirroring, topic_name)
    for n in range(10):
        faulty.write(records(n * 1000, 1000), "flipped" if n == 3 else "", 500)
    faulty.finish()
    assert_identical(verify(topic_name, begin=4000), 6000)
    assert_identical(verify(topic_name, end=3500), 3500)
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
