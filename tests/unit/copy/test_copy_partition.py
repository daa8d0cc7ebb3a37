"""The bookkeeping of one partition within a lease."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.copy.partition import MOST_MARKERS, Outgoing, PartitionCopy, Position
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.model import Guard, LeasedPartition, TopicPartition


def partition(until=None, position=Position(0, 0, 0), identical=False):  # noqa: B008 - never changed
    leased = LeasedPartition(TopicPartition("t", 3), "A.t", until, identical=identical)
    made = PartitionCopy.of(leased, None)
    made.start(position)
    return made


def outgoing(next_source):
    return Outgoing(memoryview(b"xx"), 0, 1, [(0, 1)], next_source)


def test_the_target_has_the_same_partition_number():
    assert partition().target == TopicPartition("A.t", 3)


def test_a_run_is_announced_where_the_source_jumps():
    p = partition(position=Position(10, 100, 50))
    assert p.stage([(100, 5)]) == ([], 0)
    assert p.stage([(105, 2), (110, 3)]) == ([Run(17, 110, 57)], 0)
    assert p.stage([(120, 1)]) == ([Run(20, 120, 60)], 0)
    assert (p.sequence, p.target_next, p.contiguous) == (21, 61, 121)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), max_size=20), st.integers(0, 9))
def test_what_is_announced_finds_every_record(stretches, first):
    p = partition(position=Position(0, first, 7))
    ledger = PartitionLedger([Run(0, first, 7)])
    offset, rows = first, []
    for gap, count in stretches:
        offset += gap
        # The first run may begin later than was announced: nobody knew of the hole then.
        for run in p.stage([(offset, count)])[0]:
            ledger.correct(run)
        rows += range(offset, offset + count)
        offset += count
    assert [ledger.source_of(n) for n in range(len(rows))] == rows
    assert [ledger.target_of(n) for n in range(len(rows))] == list(range(7, 7 + len(rows)))


def test_gaps_are_filled_where_offsets_are_identical():
    p = partition(position=Position(0, 5, 5), identical=True)
    assert p.stage([(5, 2)]) == ([], 0)
    assert p.stage([(10, 1)]) == ([Run(2, 10, 10)], 3)
    assert p.stage([(12, 0)]) == ([Run(3, 12, 12)], 1)
    assert (p.sequence, p.target_next, p.contiguous) == (3, 12, 12)


def test_what_is_behind_already_is_never_filled():
    p = partition(position=Position(0, 5, 0), identical=True)
    assert p.stage([(8, 1)]) == ([Run(0, 8, 0)], 0)


def test_a_target_that_is_ahead_is_made_up_for_by_gaps():
    p = partition(position=Position(0, 5, 7), identical=True)
    assert p.stage([(6, 1)]) == ([Run(0, 6, 7)], 0)
    assert p.stage([(10, 1)]) == ([Run(1, 10, 10)], 2)


def test_a_gap_that_would_take_minutes_is_left_open():
    p = partition(identical=True)
    assert p.stage([(MOST_MARKERS + 1, 1)]) == ([Run(0, MOST_MARKERS + 1, 0)], 0)


def test_markers_still_missing_go_first():
    p = partition(position=Position(7, 40, 40, missing=1234), identical=True)
    assert sum(gap.markers for gap in p.queue) == 1234
    assert (p.ack_target, p.target_next) == (40 - 1234, 40)


def test_what_was_foretold_wrongly_is_contradicted():
    """Records 2 and 3 of the source were compacted away before anybody wrote them."""
    ledger = PartitionLedger([Run(0, 0, 0), Run(4, 8, 4), Run(6, 20, 6)])
    p = partition()
    p.start(Position(0, 0, 0), ledger.after(0))
    runs, _ = p.stage([(0, 2), (8, 2), (20, 3)])
    assert runs == [Run(2, 8, 2), Run(4, 20, 4)], "at 4 there is 20, and not 8"
    runs, _ = p.stage([(23, 3)])
    assert runs == []
    p = partition()
    p.start(Position(0, 0, 0), ledger.after(0))
    runs, _ = p.stage([(0, 2), (8, 4)])
    assert runs == [Run(2, 8, 2), Run(4, 10, 4)]
    assert p.contradicts
    for run in runs:
        ledger.correct(run)
    assert [ledger.source_of(n) for n in range(6)] == [0, 1, 8, 9, 10, 11]


def test_what_was_foretold_rightly_is_not():
    ledger = PartitionLedger([Run(0, 0, 0), Run(4, 8, 4)])
    p = partition()
    p.start(Position(0, 0, 0), ledger.after(0))
    assert p.stage([(0, 4), (8, 3)]) == ([Run(4, 8, 4)], 0)
    assert not p.contradicts


def test_where_an_answer_ends_in_a_gap_is_no_news_to_whoever_read_further():
    """The writer before had announced the next record; our answer ends a little before it."""
    ledger = PartitionLedger([Run(0, 0, 0), Run(4, 20, 20)])
    p = partition(identical=True)
    p.start(Position(0, 0, 0), ledger.after(0))
    assert p.stage([(0, 4)]) == ([], 0)
    assert p.stage([(12, 0)]) == ([], 8), "filled so far, but nothing to announce"
    assert p.stage([(20, 3)]) == ([Run(4, 20, 20)], 8)
    assert not p.contradicts


def test_where_an_answer_ends_behind_what_was_foretold_is_announced():
    ledger = PartitionLedger([Run(0, 0, 0), Run(4, 8, 8)])
    p = partition(identical=True)
    p.start(Position(0, 0, 0), ledger.after(0))
    assert p.stage([(0, 4)]) == ([], 0)
    assert p.stage([(12, 0)]) == ([Run(4, 12, 12)], 8), "at 8 there is nothing any more"


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


def test_markers_depend_on_when_the_target_was_looked_at():
    """Not on the time it is now: the writer before may have written some in between."""
    p = PartitionCopy.of(LeasedPartition(TopicPartition("t", 0), "A.t", identical=True), None)
    p.markers_from = 100.0
    p.looked_at = 99.9
    assert not p.may_mark
    p.looked_at = 100.0
    assert p.may_mark


# -- what came from the target --------------------------------------------------------------------


def test_a_gap_with_what_came_from_the_target_is_not_filled():
    p = partition(position=Position(0, 5, 5), identical=True)
    p.pass_guarded(9)
    # Offsets were identical: they may be again, if the target's log has grown by as much.
    assert (p.position, p.fills, p.tail_unread) == (9, False, True)
    # Markers behind it belong to the same gap.
    assert p.stage([(10, 2)]) == ([Run(0, 10, 5)], 0)
    assert not p.guarded
    assert p.stage([(14, 1)]) == ([Run(2, 14, 7)], 0)


def test_the_gaps_behind_are_filled_if_the_target_has_grown_by_as_much():
    p = partition(position=Position(3, 10, 10), identical=True)
    assert p.stage([(12, 1)]) == ([Run(3, 12, 12)], 2)
    # Nothing to find out where offsets are translated anyway.
    q = partition(position=Position(3, 10, 7), identical=True)
    q.pass_guarded(12)
    assert not q.tail_unread
    r = partition(position=Position(3, 10, 10), identical=False)
    r.pass_guarded(12)
    assert not r.tail_unread


def test_a_guard_is_among_the_rules():
    leased = LeasedPartition(TopicPartition("t", 0), "t", guard=Guard(frozenset({7}), 5, True))
    p = PartitionCopy.of(leased, None)
    assert (p.rules.guard, p.rules.guard_since, p.paired) == (frozenset({7}), 5, True)
