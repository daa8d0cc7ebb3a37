"""The bookkeeping of one partition within a lease."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.copy.partition import Outgoing, PartitionCopy, Position
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.model import LeasedPartition, TopicPartition


def partition(until=None, position=Position(0, 0, 0)):  # noqa: B008 - never changed
    made = PartitionCopy.of(LeasedPartition(TopicPartition("t", 3), "A.t", until))
    made.start(position)
    return made


def outgoing(next_source):
    return Outgoing(memoryview(b"xx"), 0, 1, 0, 0, next_source)


def test_the_target_has_the_same_partition_number():
    assert partition().target == TopicPartition("A.t", 3)


def test_a_run_is_announced_where_the_source_jumps():
    p = partition(position=Position(10, 100, 50))
    assert p.stage([(100, 5)]) == []
    assert p.stage([(105, 2), (110, 3)]) == [Run(17, 110, 57)]
    assert p.stage([(120, 1)]) == [Run(20, 120, 60)]
    assert (p.sequence, p.target_next, p.contiguous) == (21, 61, 121)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), max_size=20), st.integers(0, 9))
def test_what_is_announced_finds_every_record(stretches, first):
    p = partition(position=Position(0, first, 7))
    ledger = PartitionLedger([Run(0, first, 7)])
    offset, rows = first, []
    for gap, count in stretches:
        offset += gap
        # The first run may begin later than was announced: nobody knew of the hole then.
        for run in p.stage([(offset, count)]):
            ledger.correct(run)
        rows += range(offset, offset + count)
        offset += count
    assert [ledger.source_of(n) for n in range(len(rows))] == rows
    assert [ledger.target_of(n) for n in range(len(rows))] == list(range(7, 7 + len(rows)))


def test_done_only_when_everything_is_acknowledged():
    p = partition(until=10)
    assert not p.done
    p.position = 10
    assert p.done
    p.in_flight.append(outgoing(10))
    assert not p.done
    p.in_flight.clear()
    p.queue.append(outgoing(10))
    assert not p.done


def test_without_an_end_a_partition_is_never_done():
    p = partition()
    p.position = 1 << 40
    assert not p.done


def test_mirrored_to_counts_holes_only_when_nothing_is_under_way():
    p = partition()
    p.position, p.acked_source = 20, 12
    p.queue.append(outgoing(20))
    assert p.receipt("A->B").source_position == 12
    p.queue.clear()
    assert p.receipt("A->B").source_position == 20


def test_starting_again_forgets_what_was_queued():
    p = partition()
    p.queue.append(outgoing(5))
    p.in_flight.append(outgoing(4))
    p.queued_bytes, p.broken = 4, "lost its broker"
    p.start(Position(4, 40, 8))
    assert (p.sequence, p.position, p.contiguous, p.target_next, p.ack_target) == (4, 40, 40, 8, 8)
    assert not p.queue
    assert not p.in_flight
    assert (p.queued_bytes, p.broken, p.active, p.resumes) == (0, "", True, 2)
