"""A source that lost mirrored records: offsets translated both ways, against one row per record."""

from __future__ import annotations

from compacted_topic import HERE, CompactedTopic, Keeper, Store
from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.codec import Cut, Entry, decode, encode_cut
from heliograph.ledger.runs import PartitionLedger, Run


@st.composite
def histories(draw):
    """Rows (source offset, target offset) of what counts at the end, and what the ledger was told.

    Told are runs, and cuts (``True``), in the order of writing; some are announced and never begun.
    """
    source = target = draw(st.integers(0, 5))
    identical = draw(st.booleans())
    rows, told, sequence = [], [], 0
    for _ in range(draw(st.integers(1, 4))):
        for gap, count in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)),
                                        min_size=1, max_size=4)):  # fmt: skip
            if gap or not told:
                source += gap
                target += min(gap, max(source - target, 0)) if identical else 0
                told.append((Run(sequence, source, target), False))
            rows += [(source + i, target + i) for i in range(count)]
            source, target, sequence = source + count, target + count, sequence + count
        if draw(st.booleans()):
            # How far the source was read behind its last record, or what was never written.
            told.append((Run(sequence, source + 2, target), False))
            told.append((Run(sequence + 1, source + 9, target + 1), False))
        back = draw(st.integers(rows[0][0], source - 1))
        rows = [row for row in rows if row[0] < back]
        told.append((Run(sequence, back, target), True))
        source = back
        rows += [(source, target)]
        source, target, sequence = source + 1, target + 1, sequence + 1
    return rows, told, sequence


def enter(ledger, run, cut):
    if cut:
        ledger.cut(run)
    else:
        ledger.add(run)


def check(ledger, rows, end):
    """Every offset on both sides, from before the first record to behind the last."""
    alive = {target for _, target in rows}
    mirrored = {ledger.target_of(sequence) for sequence in range(end)}
    for target in range(rows[0][1] - 2, max(mirrored) + 1):
        assert ledger.is_lost(target) == (target in mirrored - alive)
    for source in range(rows[0][0] - 2, rows[-1][0] + 5):
        wanted = next((t for s, t in rows if s >= source), rows[-1][1] + 1)
        assert ledger.to_target(source, end) == wanted, source
    for target in range(rows[0][1] - 2, rows[-1][1] + 5):
        wanted = next((s for s, t in rows if t >= target), rows[-1][0] + 1)
        assert ledger.to_source(target, end) == wanted, target
    for source in range(rows[0][0], rows[-1][0] + 1):
        found = ledger.sequence_of(source)
        wanted = next(row for row in rows if row[0] >= source)
        assert (ledger.source_of(found), ledger.target_of(found)) == wanted


@given(histories())
def test_f11_every_offset_both_ways_after_the_source_lost_records(history):
    rows, told, end = history
    ledger = PartitionLedger()
    for run, cut in told:
        enter(ledger, run, cut)
    check(ledger, rows, end)


@given(histories(), st.data())
def test_f11_whoever_repeats_a_cut_changes_nothing(history, data):
    rows, told, end = history
    ledger = PartitionLedger()
    cuts = []
    for run, cut in told:
        enter(ledger, run, cut)
        if cut:
            cuts.append(run)
        for late in cuts:
            if data.draw(st.booleans()):
                ledger.cut(late)
    check(ledger, rows, end)


@given(histories(), st.data())
def test_f11_every_offset_after_re_packing(history, data):
    rows, told, end = history
    topic = CompactedTopic()
    writer, keeper = Store(topic), Keeper(topic)
    for run, cut in told:
        if cut:
            writer.cut(Cut(HERE, run), None)
        else:
            writer.write([Entry(HERE, [run])])
        if data.draw(st.booleans()):
            keeper.tidy({HERE: 0}, least=1)
            if data.draw(st.booleans()):
                topic.compact(data.draw(st.integers(0, topic.end)), tombstones=False)
    reader = Store(topic)
    reader.refresh()
    check(reader.at(HERE), rows, end)
    check(writer.at(HERE), rows, end)


def test_a_cut_is_read_as_it_was_written():
    for cut in (Cut(HERE, Run(5, 9, 7)), Cut(HERE, Run(5, 9, 7), leader=3),
                Cut(HERE, Run(5, 9, 7), move="a-b")):  # fmt: skip
        assert decode(*encode_cut(cut, "0f3a")) == cut


def test_f11_a_later_leader_may_lack_what_was_read_since_the_cut():
    """Markers were read from 8 to 20 since then: no record, so that both cuts are at sequence 5."""
    ledger = PartitionLedger([Run(0, 0, 0)])
    ledger.cut(Run(5, 8, 10), leader=2)
    ledger.correct(Run(5, 20, 10))
    ledger.cut(Run(5, 8, 10), leader=2)
    assert ledger.source_of(5) == 20, "repeated by somebody who was slow"
    ledger.cut(Run(5, 12, 10), leader=3)
    assert ledger.source_of(5) == 12
