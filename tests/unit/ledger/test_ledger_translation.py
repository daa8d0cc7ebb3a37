"""Offsets translated both ways, at every offset, against a list with one row per record."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from compacted_topic import HERE, CompactedTopic, Keeper, Store
from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger import keeper as keeper_module
from heliograph.ledger.codec import Entry
from heliograph.ledger.packing import pack, unpack
from heliograph.ledger.runs import PartitionLedger, Run


class History(NamedTuple):
    """What was mirrored: records as (source offset, target offset), and the runs that say so."""

    rows: list[tuple[int, int]]
    runs: list[Run]
    first_sequence: int

    @property
    def end(self) -> int:
        """The sequence of the next record."""
        return self.first_sequence + len(self.rows)


@st.composite
def histories(draw):
    """Dense or identical offsets, gaps on the source, foreign records on the target."""
    identical = draw(st.booleans())
    foreign = st.integers(0, 4) if draw(st.booleans()) else st.just(0)
    first = draw(st.integers(0, 5))
    source = draw(st.integers(0, 20))
    target = source if identical else draw(st.integers(0, 20))
    rows, runs = [], []
    stretch = st.tuples(st.integers(0, 4), foreign, st.integers(1, 5))
    for gap, others, count in draw(st.lists(stretch, min_size=1, max_size=12)):
        source += gap
        target += others + (gap if identical else 0)
        before = rows[-1] if rows else None
        if before is None or (source, target) != (before[0] + 1, before[1] + 1):
            runs.append(Run(first + len(rows), source, target))
        rows += [(source + i, target + i) for i in range(count)]
        source, target = source + count, target + count
    return History(rows, runs, first)


def expected_target(rows, source):
    return next((t for s, t in rows if s >= source), rows[-1][1] + 1)


def expected_source(rows, target):
    return next((s for s, t in rows if t >= target), rows[-1][0] + 1)


def check(ledger, rows, end, sources, targets):
    for source in sources:
        assert ledger.to_target(source, end) == expected_target(rows, source), source
        beyond = max(source - rows[-1][0] - 1, 0)
        assert ledger.to_target(source) == expected_target(rows, source) + beyond, source
    for target in targets:
        assert ledger.to_source(target, end) == expected_source(rows, target), target
        beyond = max(target - rows[-1][1] - 1, 0)
        assert ledger.to_source(target) == expected_source(rows, target) + beyond, target


def everywhere(rows):
    """Every offset from before the first record to behind the last, on both sides."""
    return range(rows[0][0] - 3, rows[-1][0] + 5), range(rows[0][1] - 3, rows[-1][1] + 5)


@given(histories(), st.randoms(use_true_random=False))
def test_s45_every_offset_both_ways(history, random):
    shuffled = list(history.runs)
    random.shuffle(shuffled)
    for runs in (history.runs, shuffled, unpack(pack(history.runs))):
        check(PartitionLedger(runs), history.rows, history.end, *everywhere(history.rows))


@given(histories(), st.integers(1, 4), st.integers(1, 5), st.data())
def test_every_offset_after_re_packing_and_pruning(history, per_record, per_entry, data):
    rows = history.rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeper_module, "_RUNS_PER_RECORD", per_record)
        topic = CompactedTopic()
        writer, keeper = Store(topic), Keeper(topic)
        for i in range(0, len(history.runs), per_entry):
            writer.write([Entry(HERE, history.runs[i : i + per_entry])])
            if data.draw(st.booleans()):
                keeper.tidy({HERE: 0}, least=1)
        log_start = data.draw(st.integers(0, rows[-1][1] + 2))
        keeper.tidy({HERE: log_start}, least=1)
        topic.compact(topic.end, tombstones=data.draw(st.booleans()))
        reader = Store(topic)
        reader.refresh()
    sources, targets = everywhere(rows)
    kept = [row for row in rows if row[1] >= log_start]
    sources = [s for s in sources if s >= (kept[0][0] if kept else rows[-1][0] + 1)]
    targets = [t for t in targets if t >= log_start]
    check(reader.at(HERE), rows, history.end, sources, targets)


@given(histories(), st.data())
def test_pruning_keeps_every_answer_above_the_log_start(history, data):
    rows = history.rows
    log_start = data.draw(st.integers(-1, rows[-1][1] + 3))
    ledger = PartitionLedger(history.runs)
    ledger.prune(log_start)
    kept = [row for row in rows if row[1] >= log_start]
    sources, targets = everywhere(rows)
    first = kept[0][0] if kept else rows[-1][0] + 1
    check(ledger, rows, history.end,
          [s for s in sources if s >= first], [t for t in targets if t >= log_start])  # fmt: skip
    # What lies below goes to the log's start, or to before it.
    for source in (s for s in sources if s < first):
        assert ledger.to_target(source) <= max(log_start, expected_target(rows, source))
    for sequence, row in enumerate(rows, history.first_sequence):
        if row[1] >= log_start:
            assert (ledger.source_of(sequence), ledger.target_of(sequence)) == row
    assert ledger.source_of(history.end) == rows[-1][0] + 1
    assert ledger.position(rows[-1][1] + 1) == rows[-1][0] + 1
    assert ledger.prune(log_start) == 0


@given(histories(), st.data())
def test_what_is_announced_but_not_mirrored_is_not_there_yet(history, data):
    """Runs are announced before their records: nobody may be sent to where nothing is."""
    rows = history.rows
    mirrored = data.draw(st.integers(0, len(rows)))
    ledger = PartitionLedger(history.runs)
    end = history.first_sequence + mirrored
    there = ledger.target_of(end)
    for source in everywhere(rows)[0]:
        answer = ledger.to_target(source, end)
        expected = next((t for s, t in rows[:mirrored] if s >= source), there)
        assert answer == expected
    here = ledger.source_of(end)
    for target in everywhere(rows)[1]:
        expected = next((s for s, t in rows[:mirrored] if t >= target), here)
        assert ledger.to_source(target, end) == expected


@given(histories())
def test_there_and_back_again(history):
    ledger = PartitionLedger(history.runs)
    for source, target in history.rows:
        assert ledger.to_source(ledger.to_target(source)) == source
        assert ledger.to_target(ledger.to_source(target)) == target
    sources, targets = everywhere(history.rows)
    for side, translate in ((sources, ledger.to_target), (targets, ledger.to_source)):
        answers = [translate(offset, history.end) for offset in side]
        assert answers == sorted(answers)


def test_gap_edges_by_hand():
    # 10, 11, marker at 12, 13, holes at 14 and 15, 16; a foreign record at target 3.
    ledger = PartitionLedger([Run(0, 10, 0), Run(2, 13, 2), Run(3, 16, 4)])
    there = {source: ledger.to_target(source, end=4) for source in range(9, 19)}
    assert there == {9: 0, 10: 0, 11: 1, 12: 2, 13: 2, 14: 4, 15: 4, 16: 4, 17: 5, 18: 5}
    here = {target: ledger.to_source(target, end=4) for target in range(7)}
    assert here == {0: 10, 1: 11, 2: 13, 3: 16, 4: 16, 5: 17, 6: 17}


def test_foreign_records_at_the_end_are_nobodys_progress():
    ledger = PartitionLedger([Run(0, 0, 0)])
    assert ledger.to_source(7) == 7, "without knowing what is ours"
    assert ledger.to_source(7, end=5) == 5, "five are ours, the other two somebody else's"


def test_s45_an_empty_ledger_translates_nothing():
    with pytest.raises(KeyError):
        PartitionLedger().to_target(0)
    with pytest.raises(KeyError):
        PartitionLedger().to_source(0)


def test_prune_by_hand():
    runs = [Run(0, 0, 0), Run(5, 8, 5), Run(7, 12, 7)]
    for log_start, kept in ((0, 3), (4, 3), (5, 2), (6, 2), (7, 1), (100, 1)):
        ledger = PartitionLedger(runs)
        assert ledger.prunable(log_start) == 3 - kept
        assert ledger.prune(log_start) == 3 - kept
        assert list(ledger.runs) == runs[3 - kept :]
    assert PartitionLedger().prune(10) == 0


def test_targets_that_are_about_to_be_corrected_are_not_judged():
    runs = [Run(0, 0, 0), Run(5, 5, 12), Run(8, 20, 8), Run(9, 30, 9)]
    ledger = PartitionLedger(runs)
    assert ledger.prune(10) == 0
