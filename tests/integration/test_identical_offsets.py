"""Target offsets that are the source's own: gaps filled with markers, late starts padded."""

from __future__ import annotations

import multiprocessing

import pytest
from consumers import same, visible
from mirroring import hold
from sources import compacted_source, fill, numbered, transactions

from heliograph.lab.proof import read_all
from heliograph.model import TopicPartition
from heliograph.wire import admin


@pytest.fixture
def identical(mirroring):
    return mirroring.leasing(identical=True, paddable=True)


def end_of(mirroring, client, topic):
    return mirroring.offsets(client, topic, admin.LATEST)[TopicPartition(topic, 0)]


def ends_agree(mirroring, topic):
    here = end_of(mirroring, mirroring.source, topic)
    assert end_of(mirroring, mirroring.target, f"A.{topic}") == here


def test_f18_transactions_leave_no_trace_but_their_offsets(identical, topic_name):
    identical.create(topic_name)
    plan = [(numbered(3 + n % 4, f"txn{n}"), n % 3 != 2) for n in range(30)]
    committed = transactions(identical, topic_name, plan)
    identical.copy(topic_name)
    assert [value for _, _, value, *_ in same(identical, topic_name)] == committed
    ends_agree(identical, topic_name)
    # Going on, in a lease that knows nothing of the first.
    transactions(identical, topic_name, [(numbered(5, "more"), False), (numbered(5, "yes"), True)])
    identical.copy(topic_name)
    assert len(same(identical, topic_name)) == len(committed) + 5
    ends_agree(identical, topic_name)


def test_f17_a_compacted_source_keeps_its_offsets(quick, topic_name):
    quick = quick.leasing(identical=True, paddable=False)
    compacted_source(quick, topic_name, [range(10), range(3, 8), [0, 9, 5]])
    quick.copy(topic_name)
    here = list(read_all(quick.source, TopicPartition(topic_name, 0)))
    there = list(read_all(quick.target, TopicPartition(f"A.{topic_name}", 0)))
    assert [(r.offset, r.key, r.value, r.timestamp) for r in there] == [
        (r.offset, r.key, r.value, r.timestamp) for r in here
    ]
    assert len(here) < here[-1].offset + 1, "there are holes"


@pytest.mark.parametrize("start", [7, 1_234_567])
def test_a_log_that_starts_late(identical, topic_name, start):
    identical.create(topic_name)
    partition = TopicPartition(topic_name, 0)
    fill(identical, partition, start)
    identical.write(topic_name, numbered(20))
    identical.copy(topic_name)
    assert [offset for offset, *_ in same(identical, topic_name)] == list(range(start, start + 20))
    starts = identical.offsets(identical.target, f"A.{topic_name}", admin.EARLIEST)
    assert starts == {TopicPartition(f"A.{topic_name}", 0): start}


def test_an_empty_log_that_starts_late_and_is_written_again(identical, topic_name):
    identical.create(topic_name)
    fill(identical, TopicPartition(topic_name, 0), 5000)
    identical.copy(topic_name)
    ends_agree(identical, topic_name)
    identical.write(topic_name, numbered(3))
    identical.copy(topic_name)
    assert [offset for offset, *_ in same(identical, topic_name)] == [5000, 5001, 5002]


def test_a_late_start_where_records_cannot_be_deleted_is_filled_with_markers(mirroring, topic_name):
    only = mirroring.leasing(identical=True, paddable=False)
    only.create(topic_name, target_configs={"cleanup.policy": "compact"})
    fill(only, TopicPartition(topic_name, 0), 1700)
    only.write(topic_name, numbered(3))
    only.copy(topic_name)
    assert [offset for offset, *_ in same(only, topic_name)] == [1700, 1701, 1702]


def test_s44_a_foreign_record_is_told_and_the_next_gap_makes_up_for_it(identical, topic_name):
    identical.create(topic_name)
    transactions(identical, topic_name, [(numbered(4), True)])
    identical.copy(topic_name)
    foreign = identical.producer("B")
    for _ in range(2):
        foreign.produce(f"A.{topic_name}", b"foreign", b"foreign", 0)
    assert foreign.flush(60) == 0
    transactions(identical, topic_name, [(numbered(4, "moved"), True)])
    [receipt] = identical.copy(topic_name)
    # The marker at the end of the transaction made up for one of the two.
    assert receipt.target_end - receipt.source_position == 1
    identical.assert_ledger_is_exact(topic_name)
    transactions(identical, topic_name, [([b"a", b"b"], False), (numbered(4, "again"), True)])
    [receipt] = identical.copy(topic_name)
    assert receipt.target_end == receipt.source_position
    there = {r.value: r.offset for r in identical.seen(topic_name)}
    here = {value: offset for offset, _, value, *_ in visible(identical, "A", topic_name)}
    assert all(there[v] == here[v] for v in numbered(4, "again"))
    assert set(there) == set(here) | {b"foreign"}


def test_from_identical_to_dense_in_the_middle_of_a_gap(identical, topic_name):
    identical.create(topic_name)
    committed = transactions(identical, topic_name, [(numbered(4), True)])
    identical.copy(topic_name)
    committed += transactions(identical, topic_name, [([b"x"] * 30, False), (numbered(4), True)])
    dense = identical.leasing()
    dense.copy(topic_name)
    assert dense.values(topic_name) == committed
    committed += transactions(identical, topic_name, [([b"y"], False), (numbered(2), True)])
    identical.copy(topic_name)
    assert dense.values(topic_name) == committed, "behind already: goes on densely"


@pytest.mark.full
def test_two_writers_that_pad_at_once(identical, topic_name):
    identical.create(topic_name, partitions=2)
    for index in range(2):
        fill(identical, TopicPartition(topic_name, index), 300_000)
        identical.write(topic_name, numbered(500), index)
    lease = identical.lease([topic_name])
    with multiprocessing.get_context("fork").Pool(3) as pool:
        pool.map(hold, [lease] * 3)
    for index in range(2):
        assert [o for o, *_ in same(identical, topic_name, index)] == list(range(300_000, 300_500))
