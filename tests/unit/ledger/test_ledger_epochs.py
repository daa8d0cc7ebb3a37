"""Which epoch a record is of, whoever wrote the marks, and however often."""

from __future__ import annotations

import pytest
from compacted_topic import HERE, CompactedTopic, Keeper, Store
from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.codec import Entry, Epoch, decode, encode_epoch
from heliograph.ledger.epochs import UNKNOWN_EPOCH, EpochMark, EpochTrail
from heliograph.ledger.runs import Run


def trail(*marks):
    made = EpochTrail()
    for mark in marks:
        made.enter(EpochMark(*mark))
    return made


def test_records_before_the_first_mark_are_of_no_known_epoch():
    made = trail((5, 2), (9, 4))
    assert [made.at(n) for n in (0, 4, 5, 8, 9, 99)] == [UNKNOWN_EPOCH, UNKNOWN_EPOCH, 2, 2, 4, 4]


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 19), st.integers(1, 20)), max_size=8),
)
def test_writers_that_repeat_one_another_change_nothing(growth, repeats):
    """Each begins somewhere, and says what it knows from there on, in any order."""
    epochs, epoch = [], 0
    for grown in growth:
        epoch += grown
        epochs.append(epoch)
    said = []
    for begin, end in [(0, len(epochs)), *repeats]:
        before = None
        for sequence in range(begin, min(end, len(epochs))):
            if epochs[sequence] != before:
                said.append(EpochMark(sequence, epochs[sequence]))
            before = epochs[sequence]
    for order in (said, said[::-1]):
        made = EpochTrail()
        for mark in order:
            made.enter(mark)
        assert [made.at(n) for n in range(len(epochs))] == epochs


def test_what_was_said_of_records_that_nobody_wrote_is_void():
    made = trail((0, 5), (80, 6), (90, 7), (80, 5, True))
    assert [made.at(n) for n in (79, 80, 95)] == [5, 5, 5]
    made.enter(EpochMark(80, 5, anew=True))
    made.enter(EpochMark(88, 9))
    made.enter(EpochMark(80, 5, anew=True))
    assert made.at(95) == 9, "repeated by somebody who was slow"


def test_where_an_epoch_was_left_behind():
    made = trail((0, 1), (100, 3), (120, 6))
    assert made.behind(6, 150) is None
    assert made.behind(4, 150) == (EpochMark(120, 6), 3)
    assert made.behind(2, 150) == (EpochMark(100, 3), 1)
    assert made.behind(0, 150) == (EpochMark(0, 1), UNKNOWN_EPOCH)
    assert made.behind(4, 110) is None


def test_several_epochs_may_begin_at_one_sequence():
    """Markers have epochs, but no sequences: nothing of epoch 2 was mirrored here."""
    made = trail((0, 1), (10, 2, False, 12), (10, 3, False, 15))
    assert made.behind(1, 10) == (EpochMark(10, 2, source=12), 1)
    assert made.behind(2, 10) == (EpochMark(10, 3, source=15), 2)
    made.enter(EpochMark(10, 2, True, 14, 9))
    assert made.marks[1:] == [EpochMark(10, 2, source=12), EpochMark(10, 2, True, 14, 9)]


def test_a_mark_of_an_earlier_version_is_read():
    key, _ = encode_epoch(Epoch(HERE, EpochMark(5, 2, anew=True)), "n")
    assert decode(key, b'{"anew": true}') == Epoch(HERE, EpochMark(5, 2, anew=True))


def test_a_mark_is_read_as_it_was_written():
    for mark in (
        EpochMark(5, 2), EpochMark(1 << 40, 0, anew=True), EpochMark(5, 2, True, 90, 7),
    ):  # fmt: skip
        key, value = encode_epoch(Epoch(HERE, mark), "n")
        assert decode(key, value) == Epoch(HERE, mark)


@pytest.mark.parametrize("stale", [False, True])
def test_the_keeper_forgets_old_epochs_and_no_reader_notices(stale):
    topic = CompactedTopic()
    store, keeper = Store(topic), Keeper(topic)
    store.write([Entry(HERE, [Run(0, 0, 0)])], [Epoch(HERE, EpochMark(0, 0))])
    if stale:
        void = [EpochMark(n, 500 + n) for n in range(300, 320)]
        store.write([], [Epoch(HERE, mark) for mark in [*void, EpochMark(250, 0, anew=True)]])
    for epoch in range(1, 60):
        store.write([], [Epoch(HERE, EpochMark(1000 + 10 * epoch, epoch))])
    before = [store.at(HERE).epochs.at(n) for n in range(1450, 1700)]
    keeper.tidy({HERE: 0})
    topic.compact(topic.end, tombstones=True)
    reader = Store(topic)
    reader.refresh()
    assert [reader.at(HERE).epochs.at(n) for n in range(1450, 1700)] == before
    assert len([r for r in topic.records if r.key.startswith(b"epoch/")]) == 16
    assert list(reader.at(HERE).runs) == [Run(0, 0, 0)]
