"""What is corrected where a target's log is not what the ledger says; against a log in memory."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from heliograph.copy.knowledge import Batch, agrees, end_before
from heliograph.copy.partition import PartitionCopy, Position
from heliograph.copy.target_log import Foreign, corrections, rebased
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.model import LeasedPartition, TopicPartition

#: (records, offsets that the source does not have behind them, offsets that others wrote before)
stretches = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12
)


def written(plan, *, identical):
    """Batches as they lie in the log, (source, target) of each record, and the ledger of it."""
    ledger, batches, records = PartitionLedger(), [], []
    sequence = source = target = 0
    ledger.add(Run(0, 0, 0))
    for count, gap, foreign in plan:
        target += foreign
        if foreign or (ledger.source_of(sequence), ledger.target_of(sequence)) != (source, target):
            ledger.correct(Run(sequence, source, target))
        batches.append(Batch(target, sequence, count))
        records += [(source + n, target + n) for n in range(count)]
        sequence, source, target = sequence + count, source + count, target + count
        if gap:
            fills = identical and target >= source
            source += gap
            target = max(target, source) if fills else target
            ledger.add(Run(sequence, source, target))
    return batches, records, ledger


def told(ledger, count):
    return [(ledger.source_of(n), ledger.target_of(n)) for n in range(count)]


@given(stretches, st.booleans())
def test_the_model_is_told_by_its_ledger(plan, identical):
    batches, records, ledger = written(plan, identical=identical)
    assert told(ledger, len(records)) == records
    last = batches[-1]
    assert agrees(ledger, len(records), last.offset + last.length)


@given(stretches, st.integers(0, 11), st.integers(-4, 4), st.booleans())
def test_batches_that_lie_elsewhere_are_corrected_and_nothing_else(plan, first, shift, identical):
    batches, records, ledger = written(plan, identical=identical)
    first = min(first, len(batches) - 1)
    if first == 0:
        shift = max(shift, 0)
    elif batches[first].offset + shift < batches[first - 1].offset + batches[first - 1].length:
        shift = 0
    moved = [b._replace(offset=b.offset + shift) for b in batches[first:]]
    if shift:
        for run in corrections(ledger, moved):
            ledger.correct(run)
    before = batches[first].sequence
    expected = records[:before] + [(a, b + shift) for a, b in records[before:]]
    assert told(ledger, len(records)) == expected
    if first == 0 or shift == 0:
        return
    assert end_before(ledger, len(records)) == expected[-1][1] + 1


@given(stretches, st.integers(0, 11), st.booleans())
def test_what_was_announced_behind_a_cut_goes_where_it_will_be_written(plan, kept, identical):
    """The tail is lost, foreign records with it: `stage` writes what was announced."""
    batches, records, ledger = written(plan, identical=identical)
    kept = min(kept, len(batches) - 1)
    cut = batches[kept]
    end = batches[kept - 1].offset + batches[kept - 1].length if kept else 0
    sequence, source = cut.sequence, ledger.source_of(cut.sequence)
    run = ledger.at_sequence(sequence)
    position = Position(sequence, source, ledger.target_of(sequence))
    if end < position.target:
        if run.sequence == sequence and identical:
            position.missing = position.target - end
        else:
            position.target = end
            ledger.correct(Run(sequence, source, end))
    for moved in rebased(ledger, position, identical=identical):
        ledger.correct(moved)
    leased = LeasedPartition(TopicPartition("t", 0), "A.t", identical=identical)
    p = PartitionCopy.of(leased, None)
    p.start(position, ledger.after(sequence))
    landed = []
    for batch in batches[kept:]:
        first = records[batch.sequence][0]
        announced, _ = p.stage([(first, batch.length)])
        for run in announced:
            assert ledger.add(run) == run
        assert not p.contradicts
        landed += [p.target_next - batch.length + n for n in range(batch.length)]
    assert [ledger.target_of(n) for n in range(sequence, len(records))] == landed
    assert [ledger.source_of(n) for n in range(len(records))] == [a for a, _ in records]


def test_a_gap_that_is_not_filled_yet_or_is_filled_agrees_and_in_between_does_not():
    ledger = PartitionLedger([Run(0, 0, 0), Run(10, 15, 15)])
    assert agrees(ledger, 10, 10)
    assert agrees(ledger, 10, 15)
    assert not agrees(ledger, 10, 12)
    assert not agrees(ledger, 10, 9)


def test_what_others_wrote_is_named():
    found = Foreign(5, 30, Counter({7: 12, -1: 3}), markers=1, doubled=2)
    assert str(found) == (
        "12 of producer id 7, 3 of a producer without an id, 1 transaction marker(s),"
        " 2 marker(s) of this mirror, written twice"
    )
    assert not found.harmless
    assert Foreign(5, 7, Counter(), markers=0, doubled=2).harmless
    assert not Foreign(5, 7, Counter(), markers=0, doubled=0).harmless
