"""How far MM2 came: never a guess, and always right."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mm2_model import Log, Mirrored, mirrored

from heliograph.batch.records import Record
from heliograph.takeover.alignment import Pair, Unproven, last_mirrored, located, stretches


def find(model: Mirrored, anchor: Pair | None, margin: int = 3) -> int:
    """As the take-over reads: from a little before the anchor on, then from further back."""
    begin = 0 if anchor is None else anchor.target
    target = model.target.slice(begin, model.target.end)
    low = 0 if anchor is None else min(anchor.source, (model.stored or 0) + 1) - margin
    if low > 0:
        try:
            source = model.source.slice(low, model.source.end)
            return last_mirrored(source, target, anchor, model.stored, whole=False)
        except Unproven:
            pass
    source = model.source.slice(0, model.source.end)
    return last_mirrored(source, target, anchor, model.stored, whole=True)


@given(mirrored(), st.data())
def test_the_last_record_is_found_from_any_sync(model, data):
    anchor = data.draw(st.sampled_from(model.syncs))
    assert find(model, anchor) == model.last


@given(mirrored())
def test_the_last_record_is_found_without_a_sync(model):
    assert find(model, None) == model.last


def often_proven(outcomes: Counter[str], share: float) -> None:
    """A search that never proves anything would never be wrong, either."""
    assert outcomes["proven"] >= share * outcomes.total(), outcomes


@pytest.mark.hypothesis
def test_records_that_are_alike_never_lead_to_a_wrong_answer():
    outcomes: Counter[str] = Counter()

    @settings(max_examples=300)
    @given(mirrored(values=2), st.data())
    def check(model, data):
        # A session's first sync comes with its first acknowledgement.
        anchor = data.draw(st.sampled_from([None, *model.syncs]))
        try:
            found = find(model, anchor, margin=1000)
        except Unproven:
            outcomes["not proven"] += 1
            return
        outcomes["proven"] += 1
        assert found == model.last

    check()
    often_proven(outcomes, 0.2)


@pytest.mark.hypothesis
def test_records_that_are_gone_from_the_source_do_no_harm():
    outcomes: Counter[str] = Counter()

    @given(mirrored(), st.data())
    def check(model, data):
        anchor = data.draw(st.sampled_from(model.syncs))
        gone = data.draw(st.sets(st.integers(0, model.last)))
        model.source.batches = [
            [r for r in batch if r.offset not in gone] for batch in model.source.batches
        ]
        outcomes[_harmless(model, anchor)] += 1

    check()
    often_proven(outcomes, 0.5)


@pytest.mark.hypothesis
def test_a_source_that_begins_later_does_no_harm():
    outcomes: Counter[str] = Counter()

    @given(mirrored(), st.data())
    def check(model, data):
        anchor = data.draw(st.sampled_from(model.syncs))
        model.source.start = data.draw(st.integers(0, model.source.end))
        assume(model.source.records())
        outcomes[_harmless(model, anchor)] += 1

    check()
    often_proven(outcomes, 0.5)


def _harmless(model: Mirrored, anchor: Pair) -> str:
    """Whether it is proven; if so, nothing is left out and nothing is mirrored again."""
    try:
        found = find(model, anchor)
    except Unproven:
        return "not proven"
    low, high = sorted((found, model.last))
    assert not [r for r in model.source.records() if low < r.offset <= high]
    return "proven"


@given(mirrored(), st.data())
def test_a_record_of_somebody_else_is_noticed(model, data):
    anchor = data.draw(st.sampled_from(model.syncs))
    offset = model.target.end
    model.target.batches.append([Record(offset, 1, b"not", b"ours")])
    model.target.end += 1
    room = model.source.end - 1 - max(r.offset for r in model.source.records())
    assume(room == 0)
    with pytest.raises(Unproven, match="not the source's next one"):
        # The source has nothing left that it could be.
        model.source.end = model.last + 1
        find(model, anchor)


def case(source: Log, target: Log, stored: int | None, anchor: Pair | None) -> int:
    here = source.slice(0, source.end)
    return last_mirrored(here, target.slice(0, target.end), anchor, stored, whole=True)


def test_a_clean_stop_needs_no_reading():
    log = Log.of(b"abc")
    assert case(Log.of(b"abcdef"), log, 2, Pair(2, 2)) == 2


def test_equal_records_in_one_batch_are_not_taken_for_repetitions():
    assert case(Log.of(b"axxxxxx"), Log.of(b"a", b"xxx"), 0, Pair(0, 0)) == 3


def test_equal_batches_may_be_one_that_was_sent_again():
    with pytest.raises(Unproven, match="up to offset 2, or up to 4"):
        case(Log.of(b"axxxxxx"), Log.of(b"a", b"xx", b"xx"), 0, Pair(0, 0))


def test_a_restart_into_equal_records_is_a_doubt():
    # x at 1 is behind the stored position, and might have been copied again.
    with pytest.raises(Unproven, match="alike"):
        case(Log.of(b"axxxxxx"), Log.of(b"a", b"x", b"xx"), 0, Pair(0, 0))
    # Not if MM2 has stored a later position.
    assert case(Log.of(b"axxbxxx"), Log.of(b"a", b"xx", b"bxx"), 2, Pair(0, 0)) == 5


def test_a_sync_of_other_records_is_refused():
    with pytest.raises(Unproven, match="different records"):
        case(Log.of(b"abcd"), Log.of(b"ab"), 1, Pair(2, 1))


def test_a_stored_position_beyond_the_target_is_refused():
    with pytest.raises(Unproven, match=r"up to source offset 3.*that of source offset 1"):
        case(Log.of(b"abcd"), Log.of(b"ab"), 3, Pair(1, 1))


def test_a_target_far_behind_the_stored_position_is_refused():
    with pytest.raises(Unproven, match="none of its last records"):
        case(Log.of(b"abcd"), Log.of(b"zz"), 3, None)


def test_stretches_of_a_source_with_a_gap_and_a_restart():
    source = Log.of(b"abcdefgh")
    source.batches[0] = [r for r in source.batches[0] if r.offset != 3]
    target = Log.of(b"abce", b"bcefgh")
    here, there = source.slice(0, 8), target.slice(0, 10)
    found = stretches(here, there, Pair(0, 0), Pair(7, 9))
    assert found is not None
    assert found.pairs == [Pair(0, 0), Pair(4, 3), Pair(1, 4), Pair(4, 6)]
    assert (found.holes, found.last) == ([], Pair(7, 9))
    assert stretches(here, there, Pair(0, 0), Pair(6, 9)) is None


def test_records_are_told_apart_by_what_follows():
    source, target = Log.of(b"xxxxy"), Log.of(b"xxyz")
    assert located(source.slice(0), target.slice(0)) == Pair(2, 0)
    assert located(source.slice(0), target.slice(0), 2) == Pair(2, 0)
    assert located(source.slice(0), target.slice(0), 1) is None
    assert located(source.slice(0, 4), Log.of(b"xx").slice(0)) is None
