"""Runs against the plainest model there is: a list with one entry per record."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.known import unwrap
from heliograph.ledger.runs import PartitionLedger, Run


@st.composite
def mirrored(draw):
    """Records of a partition as (source offset, target offset), with gaps on both sides."""
    source = draw(st.integers(0, 1000))
    target = draw(st.integers(0, 1000))
    rows = []
    for gap_source, gap_target, count in draw(
        st.lists(
            st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 6)),
            min_size=1,
            max_size=12,
        )
    ):
        source, target = source + gap_source, target + gap_target
        rows += [(source + i, target + i) for i in range(count)]
        source, target = source + count, target + count
    return rows


def runs_of(rows):
    runs = []
    for sequence, (source, target) in enumerate(rows):
        last = runs[-1] if runs else None
        if last is None or (source - last.source, target - last.target) != (
            sequence - last.sequence,
            sequence - last.sequence,
        ):
            runs.append(Run(sequence, source, target))
    return runs


@given(mirrored(), st.randoms(use_true_random=False))
def test_every_record_is_found(rows, random):
    runs = runs_of(rows)
    random.shuffle(runs)
    ledger = PartitionLedger(runs)
    assert [r.sequence for r in ledger.runs] == sorted(r.sequence for r in runs)
    for sequence, (source, target) in enumerate(rows):
        assert ledger.source_of(sequence) == source
        assert ledger.target_of(sequence) == target
        # With the log ending right before a record, that record is next.
        following = ledger.position(target)
        before = rows[sequence - 1][0] + 1 if sequence else source
        assert before <= following <= source
        if target == (rows[sequence - 1][1] + 1 if sequence else target):
            assert following == source
    last_source, last_target = rows[-1]
    assert ledger.source_of(len(rows)) == last_source + 1
    assert ledger.target_of(len(rows)) == last_target + 1
    assert ledger.position(last_target + 1) == last_source + 1


@given(mirrored())
def test_positions_never_go_back_as_the_target_grows(rows):
    ledger = PartitionLedger(runs_of(rows))
    ends = range(rows[0][1], rows[-1][1] + 2)
    positions = [ledger.position(end) for end in ends]
    assert positions == sorted(positions)


def test_a_target_shorter_than_its_first_run_starts_there():
    assert PartitionLedger([Run(0, 50, 10)]).position(3) == 50


def test_an_announced_run_that_has_not_begun_is_next():
    ledger = PartitionLedger([Run(0, 0, 0), Run(10, 25, 10)])
    assert ledger.position(10) == 25
    assert ledger.position(9) == 9
    assert ledger.source_of(10) == 25


def test_the_first_writer_wins():
    ledger = PartitionLedger([Run(0, 100, 0)])
    assert ledger.add(Run(0, 120, 0)) == Run(0, 100, 0)
    assert ledger.source_of(0) == 100
    assert list(ledger.runs) == [Run(0, 100, 0)]


def test_a_later_entry_corrects_the_target():
    ledger = PartitionLedger([Run(0, 0, 0), Run(5, 8, 5)])
    assert ledger.add(Run(5, 8, 7)) == Run(5, 8, 7)
    assert [ledger.target_of(n) for n in (4, 5, 6)] == [4, 7, 8]
    assert ledger.source_of(6) == 9


def test_a_stale_writer_does_not_undo_a_shift():
    ledger = PartitionLedger([Run(0, 0, 0), Run(5, 8, 5)])
    ledger.correct(Run(5, 8, 7))
    assert ledger.add(Run(5, 8, 5)) == Run(5, 8, 7)
    assert list(ledger.runs) == [Run(0, 0, 0), Run(5, 8, 7)]


def test_a_gap_that_is_not_filled_after_all():
    ledger = PartitionLedger([Run(0, 0, 0), Run(5, 8, 8), Run(7, 12, 12)])
    for run in (Run(5, 8, 5), Run(7, 12, 7)):
        ledger.correct(run)
    assert list(ledger.runs) == [Run(0, 0, 0), Run(5, 8, 5), Run(7, 12, 7)]


def test_a_correction_may_split_a_run():
    ledger = PartitionLedger([Run(0, 0, 0)])
    ledger.add(Run(6, 6, 8))
    assert [ledger.target_of(n) for n in (5, 6)] == [5, 8]
    assert [ledger.source_of(n) for n in (5, 6)] == [5, 6]


def test_a_run_may_turn_out_to_begin_further_on():
    ledger = PartitionLedger([Run(0, 0, 0), Run(5, 8, 5), Run(7, 12, 7)])
    # The records at 8 and 9 are gone: what was counted behind them is counted anew.
    ledger.correct(Run(5, 10, 5))
    assert list(ledger.runs) == [Run(0, 0, 0), Run(5, 10, 5)]
    ledger.correct(Run(5, 9, 5))
    assert ledger.source_of(5) == 10, "never back"


def test_corrections_of_targets_keep_what_follows():
    ledger = PartitionLedger([Run(0, 0, 0), Run(5, 8, 5), Run(7, 12, 7)])
    for run in (Run(3, 3, 4), Run(5, 8, 6), Run(7, 12, 8)):
        ledger.correct(run)
    assert list(ledger.runs) == [Run(0, 0, 0), Run(3, 3, 4), Run(5, 8, 6), Run(7, 12, 8)]


def test_runs_are_a_sequence():
    given_runs = [Run(n, 2 * n, 3 * n) for n in range(10)]
    ledger = PartitionLedger(given_runs)
    runs = ledger.runs
    assert len(runs) == 10
    assert list(runs) == given_runs
    assert (runs[0], runs[-1], runs[3]) == (given_runs[0], given_runs[-1], given_runs[3])
    assert runs[2:5] == given_runs[2:5]
    assert runs[::-3] == given_runs[::-3]
    assert given_runs[4] in runs
    with pytest.raises(IndexError):
        runs[10]
    ledger.add(Run(20, 40, 60))
    assert len(runs) == 11, "a view"
    assert not PartitionLedger().runs


@given(mirrored(), st.integers(-2, 60))
def test_what_begins_before_and_after_a_sequence(rows, sequence):
    runs = runs_of(rows)
    ledger = PartitionLedger(runs)
    assert ledger.count_before(sequence) == sum(r.sequence < sequence for r in runs)
    assert ledger.after(sequence) == [r for r in runs if r.sequence > sequence]


@given(mirrored(), st.integers(0, 40), st.integers(1, 40), st.booleans())
def test_replacing_a_stretch(rows, start, length, rest):
    runs = runs_of(rows)
    ledger = PartitionLedger(runs)
    until = None if rest else start + length
    new = [Run(start, 1, 1)]
    ledger.replace(start, until, new)
    before = [r for r in runs if r.sequence < start]
    behind = [r for r in runs if until is not None and r.sequence >= until]
    assert list(ledger.runs) == before + new + behind


def test_the_run_at_a_target_offset():
    ledger = PartitionLedger([Run(0, 50, 10), Run(5, 80, 15), Run(9, 90, 30)])
    found = {target: ledger.at_target(target).sequence for target in (0, 10, 14, 15, 29, 30, 99)}
    assert found == {0: 0, 10: 0, 14: 0, 15: 5, 29: 5, 30: 9, 99: 9}
    with pytest.raises(KeyError):
        PartitionLedger().at_target(0)


def test_a_million_runs_fit_into_little_memory():
    ledger = PartitionLedger()
    tracemalloc.start()
    for n in range(100_000):
        ledger.add(Run(n, 2 * n, n))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 100_000 * 30, "24 bytes a run, and what the arrays keep in reserve"


def test_nothing_is_known_before_the_first_sequence():
    ledger = PartitionLedger([Run(3, 0, 0)])
    assert ledger.at_sequence(2) is None
    with pytest.raises(KeyError):
        ledger.source_of(2)
    with pytest.raises(KeyError):
        ledger.target_of(2)


MODULUS = 1 << 31


@given(count=st.integers(0, 1 << 50), off=st.integers(-(MODULUS // 2) + 1, MODULUS // 2 - 1))
def test_unwrap_finds_the_count_by_a_rough_estimate(count, off):
    estimate = max(count + off, 0)
    assert unwrap(count % MODULUS, estimate, MODULUS) == count


@given(wrapped=st.integers(0, MODULUS - 1), estimate=st.integers(0, 1 << 45))
def test_unwrap_is_congruent_and_never_negative(wrapped, estimate):
    count = unwrap(wrapped, estimate, MODULUS)
    assert count >= 0
    assert count % MODULUS == wrapped
    assert abs(count - estimate) <= MODULUS // 2 or count < MODULUS
