"""Evidence of MM2's, and what it proves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from mm2_model import Log, Mirrored, ask_model, mirrored, require_safe

from heliograph.batch.records import Record
from heliograph.ledger.inheritance import Inheritance
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


# -- behind records of ours ---------------------------------------------------------------------


def behind_ours(model: Mirrored, count: int, foreign: int = 0) -> tuple[Mirrored, Pair]:
    """The same after Heliograph had mirrored so many records: MM2 began at the source's start.

    Somebody else has written ``foreign`` records between the two.
    """
    ours, before = model.source.records()[:count], count + foreign
    batches = [[r._replace(offset=n)] for n, r in enumerate(ours)]
    batches += [[Record(n, 1000, None, b"foreign")] for n in range(count, before)]
    batches += [[r._replace(offset=r.offset + before) for r in b] for b in model.target.batches]
    target = replace(model.target, batches=batches, end=model.target.end + before)
    origins = {n: r.offset for n, r in enumerate(ours)}
    origins |= {t + before: s for t, s in model.origins.items()}
    syncs = [Pair(s.source, s.target + before) for s in model.syncs]
    made = Mirrored(model.source, target, origins, model.stored, syncs)
    return made, Pair(ours[-1].offset, count - 1)


def ledger_behind(model: Mirrored, ours: Pair, history: History) -> PartitionLedger:
    """As `takeover.continued` writes it, with a run that was announced and never begun."""
    ledger = PartitionLedger()
    after = None
    for n in range(ours.target + 1):
        if model.origins[n] != after:
            ledger.add(Run(n, model.origins[n], n))
        after = model.origins[n] + 1
    runs = history.runs_behind(ours.target + 1)
    ledger.add(Run(ours.target + 1, ours.source + 100, ours.target + 1))
    ledger.move(runs[0], "mm2")
    for run in runs:
        ledger.add(run)
    ledger.inherited = Inheritance(0, history.inheritance().blurs)
    return ledger


@settings(max_examples=200)
@given(mirrored(), st.data())
def test_what_mm2_mirrored_behind_ours_is_found(model, data):
    count = data.draw(st.integers(1, len(model.source.records())))
    model, ours = behind_ours(model, count)
    stored = None if model.stored is None else StoredPosition(model.stored, False)
    sync = data.draw(st.sampled_from([None, *model.syncs]))
    evidence = Evidence(0, 0, model.target.end, sync, stored, (), ours)
    history = ask_model(model, inquire(evidence))
    assert history.following == model.last + 1
    ledger = ledger_behind(model, ours, history)
    require_safe(model, ledger, exact=False)
    if not history.blurs:
        copies = {s: model.origins.get(ledger.to_target(s)) for s in model.origins.values()}
        assert copies == {s: s for s in copies}
    event("blurred" if history.blurs else "exact")


@settings(max_examples=200)
@given(mirrored(), st.data())
def test_what_others_wrote_behind_ours_never_leads_to_a_wrong_answer(model, data):
    """MM2's records are then found from their end, with as few looks as can be."""
    count = data.draw(st.integers(1, len(model.source.records())))
    model, ours = behind_ours(model, count, data.draw(st.integers(1, 3)))
    stored = None if model.stored is None else StoredPosition(model.stored, False)
    sync = data.draw(st.sampled_from(model.syncs))
    evidence = Evidence(0, 0, model.target.end, sync, stored, (), ours)
    limits = Limits(*(data.draw(st.integers(0, most)) for most in (6, 4, 20, 2)))
    try:
        history = ask_model(model, inquire(evidence, limits))
    except Unproven:
        event("not proven")
        return
    assert history.following == model.last + 1
    require_safe(model, ledger_behind(model, ours, history), exact=False)
    event("blurred" if history.blurs else "exact")


def test_mm2_goes_on_seamlessly_behind_ours():
    log = Log.of(b"abc", b"def")
    evidence = Evidence(0, 0, 6, None, StoredPosition(5, False), (), Pair(2, 2))
    history = ask_model(Mirrored(log, log, {}, 5, []), inquire(evidence))
    assert history.runs_behind(7) == [Run(7, 3, 3), Run(10, 6, 6)]
    assert not history.blurs


def test_records_that_mm2_mirrored_before_our_last_one_are_not_taken_for_later_ones():
    """Both have mirrored at the same time: c and d are before b."""
    model = Mirrored(Log.of(b"abcdef"), Log.of(b"a", b"cd", b"b", b"ef"), {}, 5, [])
    evidence = Evidence(0, 0, 6, None, StoredPosition(5, False), (), Pair(1, 3))
    with pytest.raises(Unproven, match="source offset 2 was not found behind Heliograph's last"):
        ask_model(model, inquire(evidence))


def test_a_ledger_that_is_about_other_records_is_said():
    model = Mirrored(Log.of(b"abcdef"), Log.of(b"xyz"), {}, 4, [])
    evidence = Evidence(0, 0, 3, None, StoredPosition(4, False), (), Pair(1, 1))
    with pytest.raises(OtherRecords, match="by the ledger, source offset 1 is at target offset 1"):
        ask_model(model, inquire(evidence))
