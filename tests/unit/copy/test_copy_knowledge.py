"""Any log, read from any known position: the next sequence is that of the next record of ours."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from heliograph.batch.header import SEQUENCE_MODULUS, BatchHeader
from heliograph.copy.knowledge import LeaderSays, Standing, credible, known_at
from heliograph.copy.partition import MOST_MARKERS, fills_gaps, placed
from heliograph.ledger.known import Era, Known
from heliograph.ledger.runs import PartitionLedger, Run

OURS, MARKER, THEIRS = 7, 8, 9
EPOCH = 3


@dataclass
class Log:
    """Batches (kind, base offset, count, sequence) of a target partition, and its ledger."""

    ledger: PartitionLedger
    batches: list[tuple[int, int, int, int]]
    sequence: int
    end: int

    def headers(self, compacted=frozenset()):
        for index, (kind, base, count, sequence) in enumerate(self.batches):
            if index in compacted:
                continue
            wire = self.ledger.eras.current.wire(sequence) if kind == OURS else -1
            yield BatchHeader(
                base_offset=base, length=0, leader_epoch=EPOCH, magic=2, crc=0,
                attributes=0x20 if kind == MARKER else 0, last_offset_delta=count - 1,
                base_timestamp=0, max_timestamp=0, producer_id=kind,
                producer_epoch=self.ledger.eras.current.epoch, base_sequence=wire,
                record_count=count,
            )  # fmt: skip

    def says(self, *, remembers: bool) -> LeaderSays:
        ours = [b for b in self.batches if b[0] == OURS]
        producer = None
        if remembers and ours:
            era = self.ledger.eras.current
            producer = era.epoch, era.wire(self.sequence - 1)
        return LeaderSays(EPOCH, producer, self.end, self.end)

    def known_after(self, index: int) -> Known:
        """What is known when so many batches were there."""
        done = self.batches[:index]
        mine = [b for b in done if b[0] == OURS]
        sequence = mine[-1][3] + mine[-1][2] if mine else self.ledger.runs[0].sequence
        end = done[-1][1] + done[-1][2] if done else self.ledger.runs[0].target
        return known_at(self.ledger, sequence, end, EPOCH)


kinds = st.sampled_from([OURS, OURS, OURS, MARKER, THEIRS])
histories = st.lists(st.tuples(kinds, st.integers(1, 5), st.integers(0, 2)), max_size=14)
#: Counts near the numbers where sequences on the wire begin again at 0, once and several times.
firsts = st.one_of(
    st.just(0),
    st.integers(0, 20),
    st.integers(1, 3).flatmap(
        lambda n: st.integers(n * SEQUENCE_MODULUS - 9, n * SEQUENCE_MODULUS + 9)
    ),
)


def written(history, first: int, epoch: int = 0) -> Log:
    """A flow that begins at ``first`` with gaps in its source, and others that write as well."""
    ledger = PartitionLedger([Run(first, first, first)])
    if epoch:
        ledger.eras.enter(Era(epoch, first))
    batches, sequence, source, target = [], first, first, first
    for kind, count, gap in history:
        count = 1 if kind == MARKER else count  # noqa: PLW2901 - one marker a batch
        if kind == OURS:
            source += gap
            if (ledger.source_of(sequence), ledger.target_of(sequence)) != (source, target):
                ledger.correct(Run(sequence, source, target))
            batches.append((OURS, target, count, sequence))
            sequence, source = sequence + count, source + count
        else:
            batches.append((kind, target, count, -1))
        target += count
    return Log(ledger, batches, sequence, target)


@given(histories, firsts, st.integers(0, 14), st.booleans(), st.integers(0, 2))
def test_the_next_sequence_is_found_from_every_known_position(
    history, first, index, remembers, epoch
):
    log = written(history, first, epoch)
    log.ledger.known = log.known_after(min(index, len(log.batches)))
    standing = Standing(
        log.ledger, log.says(remembers=remembers), credible(log.ledger), log.end, continuous=False
    )
    found = standing.at_once()
    if found is None:
        tail = standing.tail(OURS, MARKER)
        for header in log.headers():
            tail.take(header)
        assert tail.whole or not log.batches
        found = standing.after(tail)
        event("the log was read")
    assert found.sequence == log.sequence
    assert not found.new_era
    assert not found.repeats


@given(histories, firsts, st.integers(0, 14))
def test_nothing_is_known_and_the_whole_log_tells(history, first, start):
    log = written(history, first)
    standing = Standing(log.ledger, log.says(remembers=False), None, log.end, continuous=False)
    tail = standing.tail(OURS, MARKER)
    for header in log.headers():
        tail.take(header)
    assert standing.after(tail).sequence == log.sequence


@given(histories, firsts, st.sets(st.integers(0, 13)))
def test_compaction_in_the_middle_of_our_records_is_no_hole(history, first, compacted):
    """As many offsets are missing as records: they were there."""
    log = written([(OURS, count, gap) for _, count, gap in history], first)
    assume(log.batches)
    compacted -= {len(log.batches) - 1}
    standing = Standing(log.ledger, log.says(remembers=False), None, log.end, continuous=False)
    tail = standing.tail(OURS, MARKER)
    for header in log.headers(compacted):
        tail.take(header)
    found = standing.after(tail)
    assert (found.sequence, found.repeats) == (log.sequence, 0)


@given(histories, firsts, st.integers(0, 13))
def test_a_batch_that_the_log_lacks_is_copied_again_and_all_behind_it(history, first, lacking):
    """A broker that had forgotten us took what follows a refused batch: offsets leave no gap."""
    log = written([(OURS, count, gap) for _, count, gap in history], first)
    assume(lacking < len(log.batches) - 1)
    _, _, count, sequence = log.batches.pop(lacking)
    log.batches = [
        (kind, base - count if base > first and s > sequence else base, n, s)
        for kind, base, n, s in log.batches
    ]
    log.end -= count
    standing = Standing(log.ledger, log.says(remembers=True), None, log.end, continuous=False)
    tail = standing.tail(OURS, MARKER)
    for header in log.headers():
        tail.take(header)
    found = standing.after(tail)
    assert (found.sequence, found.new_era) == (sequence, True)
    assert found.repeats == log.sequence - sequence - count


@given(firsts, st.integers(0, 40), st.integers(-10, 10))
def test_what_a_broker_remembers_is_the_count_that_is_nearest(first, written_, off):
    ledger = PartitionLedger([Run(first, first, first)])
    last = first + written_
    wire = ledger.eras.current.wire(last)
    end = max(first, last + 1 + off)
    assert ledger.remembered(0, wire, end) == last + 1
    assert ledger.remembered(1, wire, end) is None
    assert ledger.remembered(0, -1, end) is None


offsets = st.integers(0, 3 * MOST_MARKERS)


@given(offsets, offsets, st.integers(0, 2 * MOST_MARKERS), st.booleans())
def test_a_gap_is_filled_only_to_make_offsets_alike(source, target, gap, identical):
    record = source + gap
    at = placed(record, source, target, identical=identical)
    assert at >= target, "nothing is written twice"
    if not fills_gaps(source, target, identical=identical):
        assert at == target
    elif at > target:
        assert at == record
        assert at - target <= MOST_MARKERS


@pytest.mark.parametrize(
    ("record", "source", "target", "expected"),
    [
        (8, 5, 5, 8), (8, 5, 6, 8), (8, 5, 9, 9), (8, 5, 4, 4),
        (5 + MOST_MARKERS, 5, 5, 5 + MOST_MARKERS), (6 + MOST_MARKERS, 5, 5, 5),
    ],
)  # fmt: skip
def test_where_the_record_behind_a_gap_goes(record, source, target, expected):
    assert placed(record, source, target, identical=True) == expected
    assert placed(record, source, target, identical=False) == target
