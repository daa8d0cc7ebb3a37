"""No loss, no repeat that is not told, exact translation: explored, and each rule proven needed.

The rules are in `copy.knowledge`, `copy.resume` and `copy.recount`; the model is in
``protocol_model``. `make test` explores a few thousand states, `make chaos` about 75,000.
"""

from __future__ import annotations

import pytest
from protocol_model import GENERATION, RECORDS, Model, ModelLog, explore, replay

from heliograph.copy import beginning, resume
from heliograph.copy.knowledge import Conclusion, Standing, Tail
from heliograph.copy.partition import PartitionCopy
from heliograph.copy.recount import Recount
from heliograph.ledger.runs import Run
from heliograph.model import LeasedPartition

#: Two records are acknowledged; nothing of it is written down.
TWO = ("begin", "send", "deliver", "send", "deliver")
#: The same, written down by a lease that has ended.
NOTED = (*TWO, "end")
#: More is on its way, behind what is written down.
BUSY = (*TWO, "note", "send", "send")
#: All is mirrored, by leases that have ended.
ALL = (*TWO, *("send", "deliver") * 3, "end")
STARTS = {"nothing": (), "two": TWO, "noted": NOTED, "busy": BUSY, "all": ALL}


@pytest.mark.parametrize("identical", [False, True], ids=["dense", "identical"])
@pytest.mark.parametrize("start", STARTS)
def test_every_order_of_events_keeps_the_promises(start, identical):
    found = explore(4, 3, identical=identical, most=400, start=STARTS[start])
    assert not found.broken
    assert found.states >= 50


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("identical", [False, True], ids=["dense", "identical"])
@pytest.mark.parametrize("start", STARTS)
def test_every_order_of_events_keeps_the_promises_in_depth(start, identical, record_property):
    found = explore(6, 3, identical=identical, most=15_000, start=STARTS[start])
    print(f"{found.states} states explored")
    assert not found.broken


# -- each rule is needed --------------------------------------------------------------------------


def breaks(*faults, start=NOTED, depth=5):
    """What the model finds when these faults happen, behind those of the start."""
    most = len(faults) + len([action for action in start if action in Model.FAULTS])
    return explore(depth, most, most=4000, start=start, allowed=frozenset(faults)).broken


def test_without_what_is_known_an_emptied_log_loses_records(monkeypatch):
    """Defect 1: the log's end was taken for the number of our records."""

    def by_the_end(self):
        if self.says.producer is None:
            return Conclusion(self.ledger.sequence_below(self.says.end), remembered=False)
        return None

    assert not breaks("expire", "foreign", "empty")
    monkeypatch.setattr(Standing, "at_once", by_the_end)
    [(actions, found)] = breaks("expire", "foreign", "empty")
    assert any(text.startswith("lost") for text in found), (actions, found)


def test_without_the_leaders_end_a_tail_is_written_twice(monkeypatch):
    """Defect 3: what replicas lack was invisible."""
    look = ModelLog.look

    def by_the_high_watermark(self, partitions, metadata):
        return {t: s._replace(end=s.visible) for t, s in look(self, partitions, metadata).items()}

    start = (*NOTED, "begin", "send", "stall", "append", "kill")
    assert not breaks("expire", start=start)
    monkeypatch.setattr(ModelLog, "look", by_the_high_watermark)
    [(actions, found)] = breaks("expire", start=start)
    assert any(text.startswith("repeated") for text in found), (actions, found)


def test_without_distrust_a_late_request_sets_copying_back(monkeypatch):
    """Defect 4: the sequence that a late request leaves behind was gone on from."""
    start = (*TWO, "send", "deliver", "send", "kill", "begin", "send", "deliver", "end")
    assert not breaks("expire", "late", start=start)

    def trusting(self):
        return self._conclude(self._remembered) if self._remembered is not None else None

    monkeypatch.setattr(Standing, "at_once", trusting)
    [(actions, found)] = breaks("expire", "late", start=start)
    assert any(text.startswith("repeated") for text in found), (actions, found)


def test_without_a_proof_a_cut_ledger_repeats_records(monkeypatch):
    """Defect 5: the ledger was believed to reach as far as the data."""
    assert not breaks("cut", "cut", start=ALL)
    monkeypatch.setattr(Recount, "prove", lambda *_: True)
    monkeypatch.setattr(resume, "credible", lambda ledger: ledger.known)
    [(actions, found)] = breaks("cut", "cut", start=ALL)
    assert any(text.startswith("repeated") for text in found), (actions, found)


def test_without_the_question_whose_records_these_are_all_is_copied_again(monkeypatch):
    """Defect 6: a ledger that was deleted was begun anew."""
    assert not breaks("delete", start=ALL)
    monkeypatch.setattr(
        LeasedPartition, "shared", property(lambda self: True, lambda self, value: None)
    )
    [(_, found)] = breaks("delete", start=ALL)
    assert len([text for text in found if "not told" in text]) == len(RECORDS)


def test_without_a_last_moment_a_stopped_process_writes_on(monkeypatch):
    """Defect 8: what a stopped process had not sent left it when it was continued."""
    assert not breaks("stop", "continue", start=BUSY)
    monkeypatch.setattr(Model, "SENDS_LATE", True)
    [(_, found)] = breaks("stop", "continue", start=BUSY)
    assert any("after its lease" in text for text in found)


def test_without_a_second_look_a_request_that_overtakes_the_first_is_written_twice(monkeypatch):
    """A broker that was stopped executes what lay in its sockets while the next writer looks."""
    start = (*TWO, "send", "send", "kill")
    assert not breaks("overtake", "late", "kill", start=start, depth=7)
    monkeypatch.setattr(PartitionCopy, "require_seen_twice", lambda *_: None)
    [(actions, found)] = breaks("overtake", "late", start=start)
    assert any(text.startswith("repeated") for text in found), (actions, found)


def test_without_a_look_at_sequences_a_hole_is_passed(monkeypatch):
    """Defect 12: a batch was taken behind one that was refused, and a kill hid it."""
    start = (*TWO, "send", "deliver", "send", "send")
    assert not breaks("expire", "refuse", "kill", start=start)
    take = Tail._take_ours

    def blind(self, header):
        self.unseen = 1
        take(self, header)

    monkeypatch.setattr(Tail, "_take_ours", blind)
    monkeypatch.setattr(Standing, "at_once", lambda self: None)
    [(actions, found)] = breaks("expire", "refuse", "kill", start=start)
    assert any(text.startswith("lost") for text in found), (actions, found)


def test_without_eras_a_topic_created_again_skips_records(monkeypatch):
    """Defect 12: replicas that disagreed about the old topic's sequences skipped the new one's."""
    start = (*ALL, "recreate")
    assert not breaks("expire", "kill", start=start, depth=6)
    begin = beginning.Beginning.begin

    def by_the_state(self, fresh, source, target, says):
        """As it was: sequences go on where the broker remembers the old ones, else from 0."""
        [told] = says.values()
        first = 0 if told.producer is None else told.producer[1] + 1
        monkeypatch.setattr(beginning, "NewEra", None)
        monkeypatch.setattr(beginning, "Run", lambda _, *rest: Run(first, *rest))
        monkeypatch.setattr(type(self._ledger), "other_sources", lambda *_: [])
        quiet = {t: s._replace(producer=None) for t, s in says.items()}
        return begin(self, fresh, source, target, quiet)

    monkeypatch.setattr(beginning.Beginning, "begin", by_the_state)
    monkeypatch.setattr(
        LeasedPartition, "shared", property(lambda self: True, lambda self, value: None)
    )
    assert breaks("expire", "kill", start=start, depth=6)


# -- the table of DESIGN.md -----------------------------------------------------------------------

EMPTIED = {"whole": (), "emptied": ("empty",), "cut": ("truncate",), "foreign": ("foreign",)}
LEDGER = {"whole": (), "cut": ("cut",), "gone": ("delete",)}
STATE = {"remembered": (), "forgotten": ("expire",), "stale": ("expire", "late")}


@pytest.mark.parametrize("identical", [False, True], ids=["dense", "identical"])
@pytest.mark.parametrize("log", EMPTIED)
@pytest.mark.parametrize("ledger", LEDGER)
@pytest.mark.parametrize("state", STATE)
def test_each_cell_of_the_table(state, ledger, log, identical):
    """What the broker remembers, what the ledger holds, what the log holds: all combinations."""
    # A request of a killed writer is on its way; another writer has gone on since.
    noted = (*TWO, "send", "kill", "begin", "send", "deliver", "send", "deliver", "end")
    if identical:
        noted = (*TWO, "send", "deliver", "send", "kill", "begin", "send", "deliver", "end")
    open_ = (*noted, "begin", "send", "deliver", "kill")
    for before in (noted, open_):
        model = replay(
            (*before, *STATE[state], *LEDGER[ledger], *EMPTIED[log]), identical=identical
        )
        assert not model.violations()


def test_contents_tell_generations_apart():
    assert max(RECORDS) < GENERATION
