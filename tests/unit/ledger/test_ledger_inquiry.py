"""Evidence of MM2's, and what it proves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from mm2_model import Log, Mirrored, ask_model, mirrored, require_safe

from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.mm2.connect_offsets import StoredPosition
from heliograph.takeover.alignment import Ambiguous, OtherRecords, Pair, Unproven
from heliograph.takeover.history import History, Limits
from heliograph.takeover.inquiry import Evidence, inquire
from heliograph.takeover.offset_sync_log import Syncs


def inquired(
    model: Mirrored, sync: Pair | None, peaks: Sequence[Pair] = (), *, atomic: bool = False
) -> History:
    stored = None if model.stored is None else StoredPosition(model.stored, atomic)
    start, target = model.source.start, model.target
    evidence = Evidence(start, target.start, target.end, sync, stored, tuple(peaks))
    return ask_model(model, inquire(evidence))


def ledger_of(history: History) -> PartitionLedger:
    ledger = PartitionLedger(history.runs())
    ledger.inherited = history.inheritance()
    return ledger


@settings(max_examples=200)
@given(mirrored(), st.data())
def test_the_next_record_is_found_and_all_before_it_is_translated(model, data):
    sync = data.draw(st.sampled_from([None, *model.syncs] if model.stored else model.syncs))
    history = inquired(model, sync)
    assert history.following == model.last + 1
    require_safe(model, ledger_of(history), exact=not history.blurs)
    event("blurred" if history.blurs else "exact")


@settings(max_examples=200)
@given(mirrored(behind=True), st.data())
def test_a_session_that_did_not_catch_up_is_seen_through(model, data):
    """By older syncs, as long as MM2 wrote them; else by timestamps."""
    kept = data.draw(st.lists(st.sampled_from(model.syncs), min_size=1, unique=True))
    syncs: Syncs | None = None
    for sync in sorted(kept, key=lambda s: s.target):
        if syncs is None:
            syncs = Syncs(sync)
        else:
            syncs.add(sync)
    assert syncs is not None
    try:
        history = inquired(model, syncs.newest, syncs.peaks)
    except Unproven:
        event("not proven")
        return
    event("proven")
    assert history.following == model.last + 1
    require_safe(model, ledger_of(history), exact=not history.blurs)


@given(mirrored(), st.data())
def test_logs_that_begin_later_never_lead_to_a_wrong_answer(model, data):
    sync = data.draw(st.sampled_from([None, *model.syncs] if model.stored else model.syncs))
    model.source.start = data.draw(st.integers(0, model.last))
    model.target.start = data.draw(st.integers(0, model.target.end - 1))
    try:
        history = inquired(model, sync)
    except Unproven:
        event("not proven")
        return
    low, high = sorted((history.following, model.last + 1))
    assert not [r for r in model.source.records() if low <= r.offset < high]
    if any(t >= model.target.start for t in model.origins):
        require_safe(model, ledger_of(history), exact=False)


def test_the_first_run_begins_with_the_log_so_that_it_is_never_taken_for_filler():
    log = Log.of(b"abcdef")
    log.start = 3
    model = Mirrored(log, log, {n: n for n in range(6)}, 5, [Pair(5, 5)])
    history = inquired(model, Pair(5, 5))
    assert history.runs() == [Run(3, 3, 3), Run(6, 6, 6)]


def emptied(stored: int | None, sync: Pair | None, *, atomic: bool = False) -> History:
    log = Log.of(b"abcdef")
    target = Log.of(b"abcdef")
    target.start = 6
    return inquired(Mirrored(log, target, {0: 0}, stored, []), sync, atomic=atomic)


def test_a_target_whose_records_were_all_deleted_is_taken_over_if_mm2s_words_agree():
    assert emptied(5, Pair(5, 5)).runs() == [Run(6, 6, 6)]
    assert emptied(5, Pair(3, 3)).following == 6
    assert emptied(None, Pair(5, 5)).following == 6
    assert emptied(4, None, atomic=True).following == 5


@pytest.mark.parametrize(("stored", "sync"), [(4, Pair(3, 3)), (5, None), (None, Pair(4, 4))])
def test_a_target_whose_records_were_all_deleted_is_not_guessed_at(stored, sync):
    with pytest.raises(Unproven, match="all its records were deleted"):
        emptied(stored, sync)


def test_a_sync_of_a_topic_that_was_created_anew_is_about_other_records():
    source, target = Log.of(b"abcdef"), Log.of(b"xyz")
    for sync in (Pair(2, 2), Pair(4, 4)):
        with pytest.raises(OtherRecords):
            inquired(Mirrored(source, target, {}, None, []), sync)
    with pytest.raises(Unproven):
        inquired(Mirrored(source, target, {}, 3, []), Pair(2, 2))


def test_a_stale_sync_is_no_obstacle_where_the_stored_position_is_right():
    model = Mirrored(Log.of(b"abcdef"), Log.of(b"abcd"), {}, 3, [])
    assert inquired(model, Pair(5, 2)).following == 4
    assert inquired(model, Pair(9, 9)).following == 4


def test_a_position_from_the_transaction_itself_settles_what_records_leave_open():
    model = Mirrored(Log.of(b"axxxxx"), Log.of(b"a", b"x", b"x"), {}, 1, [])
    with pytest.raises(Ambiguous):
        inquired(model, Pair(0, 0))
    assert inquired(model, Pair(0, 0), atomic=True).following == 2
    # As does one that is as high as can be.
    model.stored = 2
    assert inquired(model, Pair(0, 0)).following == 3


def test_little_is_read_of_a_long_log_that_was_stopped_in_order():
    log = Log.of(*(bytes([n % 251, n // 251 % 251, 7]) for n in range(30_000)))
    model = Mirrored(log, log, {n: n for n in range(log.end)}, log.end - 1, [])
    evidence = Evidence(
        0, 0, log.end, Pair(log.end - 1, log.end - 1), StoredPosition(log.end - 1, False)
    )
    requests = []
    history = ask_model(model, inquire(evidence), requests)
    assert history.runs() == [Run(0, 0, 0), Run(log.end, log.end, log.end)]
    assert len(requests) <= 2 + 2 * (1 + 2 ** Limits().depth)
