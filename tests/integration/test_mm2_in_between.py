"""Heliograph mirrors, then MM2 for a while, then Heliograph again with the ledger that it had."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import pytest
from mm2_stand_in import StandIn
from sources import numbered, transactions
from verifying import Verifying

from heliograph.batch.records import Record, build
from heliograph.copy.loop import CopyLoop
from heliograph.ledger.codec import Acknowledged
from heliograph.ledger.store import LedgerStore
from heliograph.mm2.connect_offsets import append_by_key, encode_position
from heliograph.model import Move, TopicPartition
from heliograph.takeover.takeover import TakeOver
from heliograph.verify.model import Kind
from heliograph.wire import admin, log


class Both(StandIn):
    """MM2 and Heliograph by turns, with positions under the very keys of Connect."""

    def store(self, offset, partition=0, *, ours=False):
        where = TopicPartition(self.topic, partition)
        position = encode_position("MirrorSourceConnector", "A", where, offset)
        append_by_key(self.mirroring.target, self.offsets, [position], marked=ours)

    def mirror(self, stored=None):
        """Heliograph copies all there is, and stores its position."""
        self.mirroring.copy(self.topic)
        last = self.mirroring.ledger(self.topic).known.source - 1
        self.store(last if stored is None else stored, ours=True)

    def end(self):
        remote = TopicPartition(f"A.{self.topic}", 0)
        return self.mirroring.offsets(self.mirroring.target, remote.topic, admin.LATEST)[remote]

    def require_found(self):
        """Every record that is on the target is found there, and nothing behind it is skipped."""
        flow = self.mirroring
        ledger, there = flow.ledger(self.topic), flow.seen(self.topic)
        values = {r.offset: r.value for r in there}
        copied = set(values.values())
        here = [r for r in flow.source_records(self.topic) if r.value in copied]
        places = [ledger.to_target(r.offset) for r in here]
        assert [values.get(place) for place in places] == [r.value for r in here]
        assert places == sorted(places)
        back = {r.value: r.offset for r in here}
        # The copy that counts leads back to its record; all that is read before it was read there.
        assert [ledger.to_source(place) for place in places] == [r.offset for r in here]
        reached = -1
        for r in there:
            answer = ledger.to_source(r.offset)
            assert not [o for o in back.values() if reached < o < answer], r
            reached = max(reached, back.get(r.value, -1))


@pytest.fixture
def both(mirroring, pair, topic_name):
    mirroring.create(topic_name)
    return Both(mirroring, lambda **keys: pair(**keys).config, topic_name)


def by_hand(both):
    remote = TopicPartition(f"A.{both.topic}", 0)
    log.append(both.mirroring.target, remote, build([Record(0, 1, b"by", b"hand")]))


# -- what MM2 mirrored in between is there once ---------------------------------------------------


def test_stopped_in_order_and_both_again(both, caplog):
    caplog.set_level(logging.INFO)
    both.write(300)
    both.mirror()
    both.write(100, "more")
    both.copy(both.records()[300:350])
    both.store(349)
    assert both.take_over() == [""]
    assert "taking over 1 partition(s) of 1 topic(s) from MM2; nothing is copied" in caplog.text
    both.require_goes_on(350)
    both.require_translated()
    # A second start finds nothing new, even before it has stored a position of its own.
    caplog.clear()
    assert both.take_over() == [""]
    assert "taking over" not in caplog.text
    both.write(30, "third")
    both.mirror()
    both.write(30, "fourth")
    both.copy(both.records()[430:445])
    both.store(444)
    assert both.take_over() == [""]
    both.require_goes_on(445)
    both.require_translated()
    assert both.mirroring.proof(both.topic).identical


def test_both_were_killed_behind_their_positions(both):
    """MM2 repeats what Heliograph had not stored, and then what it had not stored itself."""
    both.write(300)
    both.mirror(stored=250)
    both.write(200, "more")
    records = both.records()
    both.copy(records[251:380])
    both.store(340)
    both.copy(records[341:390])
    left = both.mirroring.values(both.topic)
    assert both.take_over() == [""]
    both.require_goes_on(390)
    both.require_found()
    assert both.mirroring.values(both.topic) == left + [r.value for r in records[390:]]


@pytest.mark.parametrize("identical", [True, False], ids=["identical", "dense"])
@pytest.mark.parametrize("noted", ["all", "some"])
def test_gaps_on_both_sides_of_the_switch(both, identical, noted):
    """Heliograph leaves aborted records out, MM2 mirrors them."""
    flow = both.mirroring = both.mirroring.leasing(identical=identical, paddable=identical)
    transactions(flow, both.topic, [(numbered(25, "a"), True), (numbered(25, "b"), False)])
    both.write(100)
    flow.copy(both.topic)
    known = flow.ledger(both.topic).known
    transactions(flow, both.topic, [(numbered(10, "c"), False), (numbered(10, "d"), True)])
    transactions(flow, both.topic, [(numbered(10, "e"), False)])
    flow.copy(both.topic)
    ours = flow.ledger(both.topic).known.source
    if noted == "some":
        # Killed: what was acknowledged last is only in the log.
        LedgerStore(flow.target, flow.context.ledger_topic).note(
            [Acknowledged(flow.place(both.topic), known)]
        )
    both.store(ours - 1, ours=True)
    transactions(flow, both.topic, [(numbered(20, "f"), False), (numbered(20, "g"), True)])
    both.write(50, "more")
    records = [r for r in both.records() if r.offset >= ours]
    both.copy(records[:80])
    both.store(records[70].offset)
    assert both.take_over() == [""]
    both.require_goes_on(records[79].offset + 1)
    both.require_found()
    both.require_translated()


def test_mm2_had_begun_before_heliograph_had_copied_anything(both):
    both.mirroring.copy(both.topic)
    both.write(100)
    both.copy(both.records()[:60])
    both.store(59)
    assert both.take_over() == [""]
    both.require_goes_on(60)
    both.require_translated()


def test_heliograph_had_taken_over_before_and_mm2_was_started_again(both):
    both.write(300)
    both.sync(both.copy(both.records()))
    both.store(299)
    assert both.take_over() == [""]
    both.mirroring.copy(both.topic)
    both.write(50, "more")
    both.copy(both.records()[300:340])
    both.store(330)
    assert both.take_over() == [""]
    both.require_goes_on(340)
    both.require_translated()


def test_a_take_over_that_was_not_noted_is_done_again(both, monkeypatch):
    both.write(300)
    both.mirror()
    both.write(100, "more")
    both.copy(both.records()[300:350])
    both.store(349)
    with monkeypatch.context() as patch:
        patch.setattr(LedgerStore, "note", lambda *_: None)
        assert both.take_over() == [""]
    # MM2 was started once more, after the process was killed.
    both.copy(both.records()[350:360])
    both.store(359)
    assert both.take_over() == [""]
    both.require_goes_on(360)
    both.require_translated()


def test_verify_compares_what_mm2_mirrored_and_names_what_it_repeated(both, tmp_path, monkeypatch):
    both.write(300)
    both.mirror(stored=289)
    both.write(100, "more")
    both.copy(both.records()[290:350])
    both.store(349)
    assert both.take_over() == [""]
    both.require_goes_on(350)
    report = Verifying(both.mirroring, tmp_path, monkeypatch)(both.topic)
    assert report.totals.counts == {Kind.EXTRA: 10}
    assert report.totals.records == 400


# -- what cannot be proven ------------------------------------------------------------------------


def test_what_cannot_be_proven_is_withheld_and_said(both, caplog):
    both.mirroring = both.mirroring.but(name="orders-mirror")
    both.write(300)
    both.mirror()
    both.write(100, "more")
    both.copy(both.records()[300:350])
    both.store(349)
    by_hand(both)
    [withheld] = both.take_over()
    topic = both.topic
    assert (
        f"[mm2.take-over] MM2 has mirrored {topic}-0 on after Heliograph: Heliograph had copied up"
        f" to source offset 299, to offset 299 of A.{topic}-0 on B; MM2 has stored that it mirrored"
        " up to 349, and where it stopped cannot be proven: the record at target offset 350 is not"
        " the source's next one"
    ) in withheld
    assert "start MM2 again, let it mirror for a minute and stop it with SIGTERM" in withheld
    assert f"orders-mirror: {withheld}" in caplog.text
    lease = both.mirroring.leasing(withheld=withheld).lease([topic])
    [receipt] = CopyLoop(lease).run()
    assert receipt.error == f"[mm2.withheld] {withheld}"
    assert both.end() == 351
    # The hint works.
    both.copy(both.records()[350:380])
    both.sync((379, both.end() - 1))
    both.store(379)
    assert both.take_over() == [""]
    both.require_goes_on(380)


# -- what is not MM2's ----------------------------------------------------------------------------


def test_foreign_records_behind_a_position_of_ours_are_foreign_records(both):
    both.write(300)
    both.mirror()
    by_hand(both)
    both.write(10, "more")
    # MM2 has been at work in this flow, on another topic.
    other = encode_position("MirrorSourceConnector", "A", TopicPartition("other", 0), 7)
    append_by_key(both.mirroring.target, both.offsets, [other])
    assert both.take_over() == [""]
    both.mirroring.copy(both.topic)
    assert both.mirroring.values(both.topic)[300:] == [b"hand", *numbered(10, "more")]


@pytest.mark.parametrize("stored", [250, 299])
def test_foreign_records_behind_a_position_that_mm2_only_repeated(both, stored):
    """It stored what it had begun with; whoever wrote since is not MM2."""
    both.write(300)
    both.mirror()
    both.store(stored)
    by_hand(both)
    both.write(10, "more")
    assert both.take_over() == [""]
    both.mirroring.copy(both.topic)
    assert both.mirroring.values(both.topic)[300:] == [b"hand", *numbered(10, "more")]


def test_a_position_further_on_without_records_is_not_mm2s_work(both):
    """An operator has set it, in Connect: the target has nothing that was not ours."""
    both.write(300)
    both.mirror()
    both.write(20, "more")
    both.store(310)
    assert both.take_over() == [""]
    both.require_goes_on(300)


def test_an_operators_decision_comes_first(both):
    both.write(300)
    both.mirror()
    both.write(20, "more")
    by_hand(both)
    both.store(310)
    flow = both.mirroring
    ledger = LedgerStore(flow.target, flow.context.ledger_topic)
    decided = {TopicPartition(both.topic, 0): Move(311, "0f")}
    job = TakeOver(both.config, flow.context, flow.source, flow.target, ledger,
                   moves=lambda: decided)  # fmt: skip
    job.settle(both.plan(), may_write=True)
    assert job.withheld(flow.place(both.topic)) == ""
    lease = flow.lease([both.topic])
    [partition] = lease.partitions
    moved = replace(partition, move=decided[partition.source])
    [receipt] = CopyLoop(replace(lease, partitions=(moved,))).run()
    assert receipt.error == ""
    assert flow.values(both.topic)[300:] == [b"hand", *numbered(20, "more")[11:]]


# -- when it is decided ---------------------------------------------------------------------------


def test_it_is_decided_when_no_earlier_mirror_can_write_any_more(both):
    both.write(300)
    both.mirror()
    both.write(20, "more")
    both.copy(both.records()[300:310])
    both.store(309)
    flow, plan = both.mirroring, both.plan()
    ledger = LedgerStore(flow.target, flow.context.ledger_topic)
    clear = time.time() + 1000
    job = TakeOver(both.config, flow.context, flow.source, flow.target, ledger,
                   clear_from=lambda: clear)  # fmt: skip
    job.settle(plan, may_write=True)
    assert job.undecided == plan.partitions.keys()
    # Nor while another mirror has the flow.
    clear = 0.0
    job.settle(plan, may_write=False)
    assert job.undecided == plan.partitions.keys()
    assert flow.ledger(both.topic).known.source == 300
    job.settle(plan, may_write=True)
    assert job.undecided == frozenset()
    both.require_goes_on(310)
