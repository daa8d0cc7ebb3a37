"""Translation of what MM2 wrote: compared with where every record really is."""

from __future__ import annotations

from hypothesis import event, given, settings
from hypothesis import strategies as st
from mm2_model import Log, Mirrored, ask_model, mirrored, require_safe

from heliograph.batch.records import Record
from heliograph.ledger.runs import PartitionLedger
from heliograph.takeover.alignment import Pair, Steps, stretches
from heliograph.takeover.history import History, Limits, explore

#: A gap is longer than all repetitions together: none can make up for the other unnoticed.
LONG = 500
unlike = mirrored(gaps=st.sampled_from([0, 0, LONG]))
#: Where MM2 wrote in transactions, its markers make up for gaps all the time.
in_transactions = mirrored(gaps=st.integers(0, 3), repeats=st.just(0), resends=False)
tiny = st.builds(
    Limits, st.integers(2, 12), st.integers(2, 12), st.integers(0, 12), st.integers(0, 3)
)


def explored(model: Mirrored, tail: Steps | None, limits: Limits) -> History:
    here, there = model.source, model.target
    return ask_model(
        model, explore(there.start, there.end, here.start, model.last + 1, tail, limits)
    )


def tail_of(model: Mirrored, anchor: Pair) -> Steps | None:
    source = model.source.slice(model.source.start, model.source.end)
    target = model.target.slice(anchor.target, model.target.end)
    return stretches(source, target, anchor)


def ledger_of(history: History) -> PartitionLedger:
    ledger = PartitionLedger(history.runs())
    ledger.inherited = history.inheritance()
    return ledger


@settings(max_examples=150)
@given(unlike | in_transactions, tiny, st.data())
def test_nothing_is_skipped_however_little_is_read(model, limits, data):
    anchor = data.draw(st.sampled_from(model.syncs))
    history = explored(model, tail_of(model, anchor), limits)
    event("blurred" if history.blurs else "exact")
    require_safe(model, ledger_of(history), exact=False)


@settings(max_examples=150)
@given(mirrored(), st.data())
def test_what_is_read_whole_is_translated_exactly(model, data):
    anchor = data.draw(st.sampled_from(model.syncs))
    history = explored(model, tail_of(model, anchor), Limits())
    if not history.blurs:
        event("exact")
        require_safe(model, ledger_of(history), exact=True)


@settings(max_examples=150)
@given(unlike | in_transactions, tiny, st.data())
def test_nothing_is_skipped_where_logs_begin_later(model, limits, data):
    anchor = data.draw(st.sampled_from(model.syncs))
    model.source.start = data.draw(st.integers(0, model.last))
    model.target.start = data.draw(st.integers(0, anchor.target))
    history = explored(model, tail_of(model, anchor), limits)
    event("blurred" if history.blurs else "exact")
    require_safe(model, ledger_of(history), exact=False)


@settings(max_examples=150)
@given(unlike, tiny, st.data())
def test_nothing_is_skipped_where_compaction_took_records_from_the_source(model, limits, data):
    anchor = data.draw(st.sampled_from(model.syncs))
    gone = data.draw(st.sets(st.integers(0, model.last)))
    batches = [[r for r in batch if r.offset not in gone] for batch in model.source.batches]
    model.source.batches = [batch for batch in batches if batch]
    history = explored(model, tail_of(model, anchor), limits)
    event("blurred" if history.blurs else "exact")
    require_safe(model, ledger_of(history), exact=False)


def test_a_million_records_in_step_are_one_run():
    batches = [
        [Record(o, o, None, b"%d" % o) for o in range(start, start + 10)]
        for start in range(0, 20_000, 10)
    ]
    log = Log(batches, 0, 20_000)
    model = Mirrored(log, log, {o: o for o in range(20_000)}, 19_999, [])
    history = explored(model, tail_of(model, Pair(19_990, 19_990)), Limits())
    assert history.pairs == [Pair(0, 0)]
    assert not history.blurs
    assert [tuple(run) for run in history.runs()] == [(0, 0, 0), (20_000, 20_000, 20_000)]
