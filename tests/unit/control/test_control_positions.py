"""Positions for MM2: never ahead of what the target has, and only what changed is written."""

from __future__ import annotations

import json
import uuid
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from heliograph.control import positions
from heliograph.control.positions import (
    Bounds,
    FlowView,
    OffsetsTopic,
    PositionWriter,
    bounds_of,
    correction,
)
from heliograph.control.topics.refresh import TopicPlan
from heliograph.ledger.codec import Place
from heliograph.ledger.inheritance import Inheritance
from heliograph.ledger.known import Known
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.mm2.connect_offsets import decode_position, encode_position, position_key
from heliograph.mm2.partitioner import murmur2, partition_of
from heliograph.model import ClientSettings, Move, TopicPartition
from heliograph.wire import admin
from heliograph.wire.errors import BrokerError, ConnectionFailed
from heliograph.wire.metadata import Metadata, TopicInfo

# -- Connect's bytes ------------------------------------------------------------------------------


def test_keys_are_those_of_connect_to_the_byte():
    assert encode_position("MirrorSourceConnector", "A", TopicPartition("t", 0), 41) == (
        b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t"}]',
        b'{"offset":41}',
    )
    assert encode_position("nach Köln", "Köln", TopicPartition("t-1.x", 11), None) == (
        '["nach Köln",{"cluster":"Köln","partition":11,"topic":"t-1.x"}]'.encode(),
        None,
    )


@given(st.text(), st.text(), st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True),
       st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))  # fmt: skip
def test_what_is_written_can_be_read(connector, cluster, topic, index, offset):
    where = TopicPartition(topic, index)
    key, value = encode_position(connector, cluster, where, offset)
    assert value is not None
    found = decode_position(key, value)
    assert found is not None
    assert (found[0], found[1], found[2].offset) == (cluster, where, offset)
    assert json.loads(key)[0] == connector


@given(st.binary(max_size=200))
def test_keys_are_hashed_as_by_kafkas_producers(key):
    assert murmur2(key) == kafka_python_murmur2(key)


@pytest.mark.parametrize(
    ("key", "signed"),
    # From Kafka's own test of its hash.
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536),
     (b"a-little-bit-longer-string", -1486304829),
     (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971), (b"abc", 479470107)],
)  # fmt: skip
def test_known_hashes(key, signed):
    assert murmur2(key) == signed % (1 << 32)
    assert partition_of(key, 25) == (signed & 0x7FFFFFFF) % 25


# -- what is safe ---------------------------------------------------------------------------------


def ledger_of(*runs, known=None):
    made = PartitionLedger(Run(*run) for run in runs)
    made.known = None if known is None else Known(*known)
    return made


def known(sequence, source, target):
    return (sequence, source, target, target, 1)


def test_what_was_acknowledged_counts_not_what_the_log_ends_with():
    """Foreign records at the end, or what a killed writer left, are nobody's progress."""
    ledger = ledger_of((0, 0, 0), known=known(100, 100, 100))
    assert bounds_of(ledger, 130) == Bounds(100, 130, True)


def test_a_target_that_has_lost_its_end_takes_the_position_back():
    ledger = ledger_of((0, 0, 0), known=known(100, 100, 100))
    assert bounds_of(ledger, 70) == Bounds(70, 70, True)
    # Also behind a gap that was closed.
    ledger = ledger_of((0, 0, 0), (50, 80, 50), known=known(100, 130, 100))
    assert bounds_of(ledger, 60) == Bounds(90, 90, True)
    assert bounds_of(ledger, 40) == Bounds(40, 40, True)


def test_gaps_at_the_end_are_not_passed():
    """MM2 reads them again, which costs nothing; the last record is what was copied last."""
    # Markers up to 110 are on the target, and the run behind them is announced.
    ledger = ledger_of((0, 0, 0), (100, 110, 110), known=(100, 100, 100, 110, 1))
    assert bounds_of(ledger, 110) == Bounds(100, 110, True)
    # Dense: the run begins where the log ends.
    ledger = ledger_of((0, 0, 0), (100, 110, 100), known=known(100, 100, 100))
    assert bounds_of(ledger, 100) == Bounds(100, 110, True)


def test_a_source_that_lost_records_takes_the_position_back():
    ledger = ledger_of((0, 0, 0), known=known(100, 100, 100))
    ledger.cut(Run(100, 80, 100))
    assert bounds_of(ledger, 100) == Bounds(80, 80, True)
    # Foreign records behind it do not hide that.
    assert bounds_of(ledger, 115) == Bounds(80, 95, True)


def test_an_operator_who_goes_back_takes_the_position_back():
    ledger = ledger_of((0, 0, 0), known=known(100, 100, 100))
    ledger.move(Run(100, 0, 100), "x")
    assert bounds_of(ledger, 100) == Bounds(0, 0, True)


def test_where_nothing_was_copied_nothing_is_known():
    assert bounds_of(ledger_of(), 0) is None
    assert bounds_of(ledger_of((0, 7, 0), known=known(0, 7, 0)), 0) == Bounds(7, 7, False)
    # Filler up to the source's log start.
    assert bounds_of(ledger_of((50, 50, 50)), 20) == Bounds(50, 50, False)


def test_what_mm2_stored_stands_until_something_was_copied():
    ledger = ledger_of((0, 0, 0))
    ledger.inherited = Inheritance(300)
    assert bounds_of(ledger, 300) is None
    ledger.known = Known(310, 310, 310, 310, 1)
    assert bounds_of(ledger, 310) == Bounds(310, 310, True)


@st.composite
def histories(draw):
    """(ledger, target log, source records): runs of records, gaps and foreign records.

    The target log has the source offset of each record, or None for what is not one of ours.
    """
    identical = draw(st.booleans())
    ledger, log, source = PartitionLedger(), [], []
    offset = draw(st.integers(0, 5))
    acknowledged = None
    for _ in range(draw(st.integers(1, 6))):
        gap, foreign = draw(st.integers(0, 4)), draw(st.sampled_from([0, 0, 0, 3]))
        offset += gap
        log += [None] * foreign
        if identical and offset > len(log):
            log += [None] * (offset - len(log))
        ledger.add(Run(len(source), offset, len(log)))
        for _ in range(draw(st.integers(1, 5))):
            source.append(offset)
            log.append(offset)
            offset += 1
            if draw(st.booleans()):
                acknowledged = Known(len(source), offset, len(log), len(log), 1)
    log += [None] * draw(st.integers(0, 4))
    ledger.known = acknowledged
    return ledger, log, source


@given(histories(), st.data())
def test_every_record_before_the_position_is_in_the_log_wherever_it_was_cut(history, data):
    ledger, log, source = history
    end = data.draw(st.integers(0, len(log)))
    bounds = bounds_of(ledger, end)
    assert bounds is not None
    kept = set(log[:end])
    assert bounds.least <= bounds.most
    if bounds.copied:
        assert [o for o in source if o < bounds.least and o not in kept] == []
    if end == len(log) and ledger.known is not None:
        assert bounds.least == source[ledger.known.sequence - 1] + 1, "and not further back"


@given(st.integers(0, 50), st.integers(0, 50), st.booleans(), st.none() | st.integers(0, 60))
def test_what_is_stored_is_never_ahead_of_the_log(least, more, copied, stored):
    bounds = Bounds(least, least + more, copied)
    change = correction(bounds, stored)
    now = stored if change is None else change[0]
    assert now is None or now < bounds.most
    if stored is None and not copied:
        assert change is None
    if copied and least:
        assert now is not None
        assert now >= least - 1
    # It is settled then.
    assert correction(bounds, now) is None


def test_who_has_mirrored_further_is_not_taken_back():
    """MM2 was here in between, or an operator skips records."""
    assert correction(Bounds(100, 150, True), 149) is None
    assert correction(Bounds(100, 150, True), 149, before=Bounds(90, 150, True)) is None
    # But what we stored ourselves is: the target's log lost its end, and others wrote to it.
    assert correction(Bounds(100, 150, True), 149, before=Bounds(150, 150, True)) == (99,)
    assert correction(Bounds(0, 150, True), 149, before=Bounds(150, 150, True)) == (None,)


# -- the job --------------------------------------------------------------------------------------

HERE, THERE, ANEW = (uuid.UUID(int=n) for n in (1, 2, 3))
NAME = "mm2-offsets.A.internal"


class Topic:
    """The offsets topic, in the place of `LatestRecords` and `append_by_key`."""

    def __init__(self, monkeypatch):
        self.exists, self.error, self.all = True, None, {}
        self.read = self.written = 0
        self.created = []
        monkeypatch.setattr(positions, "LatestRecords", lambda _client, _topic: self)
        monkeypatch.setattr(positions, "append_by_key", self.append)
        monkeypatch.setattr(admin, "create_topics", self.create)

    def refresh(self):
        self.read += 1
        if self.error is not None:
            raise self.error
        return self.exists

    def create(self, _client, topics, _timeout_ms):
        self.created += topics
        self.exists = True
        return {}

    def append(self, _client, topic, pairs, *, marked):
        assert (topic, self.exists, marked) == (NAME, True, True)
        self.written += len(pairs)
        for key, value in pairs:
            self.all.pop(key, None)
            if value is not None:
                self.all[key] = (value, False)

    def store(self, index, offset, connector="MirrorSourceConnector"):
        key, value = encode_position(connector, "A", TopicPartition("t", index), offset)
        self.all[key] = (value, False)

    def stored(self, connector="MirrorSourceConnector"):
        """By partition number."""
        found = {}
        for index in range(10):
            record = self.all.get(position_key(connector, "A", TopicPartition("t", index)))
            if record is not None:
                found[index] = json.loads(record[0])["offset"]
        return found


class Flow:
    """A flow of some partitions of topic t, as its monitor and its ledger see it."""

    def __init__(self, topic, partitions=1, connector="MirrorSourceConnector"):
        self.partitions = [TopicPartition("t", n) for n in range(partitions)]
        self.target_id = THERE
        self.ledgers, self.ends, self.measured = {}, {}, {}
        self.refreshed = 0
        self.held, self.error = True, None
        self.left_to_others, self.moves = set(), {}
        client = type("Client", (), {"alias": "B", "settings": ClientSettings("B", {})})()
        where = OffsetsTopic(client, NAME, 2, connector, "A")
        view = FlowView(
            self.plan,
            lambda: set(self.partitions) - self.left_to_others,
            self,  # type: ignore[arg-type]
            lambda p: self.measured.get(p, (None, 0)),
            lambda: self.moves,
            lambda: self.held,
        )
        self.topic, self.writer = topic, PositionWriter(where, view, 1000)

    def plan(self):
        here = Metadata("a", 0, {}, {"t": TopicInfo("t", HERE, False, {})})
        there = Metadata("b", 0, {}, {"A.t": TopicInfo("A.t", self.target_id, False, {})})
        return TopicPlan(dict.fromkeys(self.partitions, "A.t"), {}, here, there)

    # In the ledger's place.

    def refresh(self):
        self.refreshed += 1
        if self.error is not None:
            raise self.error

    def at(self, place):
        return self.ledgers.get(place, PartitionLedger())

    # What happens.

    def copied(self, index, count, end=None):
        """So many records of a partition are on the target, and all of it was noted."""
        p = self.partitions[index]
        place = Place("t", index, HERE, self.target_id)
        self.ledgers[place] = ledger_of((0, 0, 0), known=known(count, count, count))
        self.measured[p] = (self.target_id, count if end is None else end)

    def run(self, **options):
        """One run; returns how many records it wrote, and how often anybody was asked."""
        written, asked = self.topic.written, self.topic.read + self.refreshed
        self.writer.write(**options)
        return self.topic.written - written, self.topic.read + self.refreshed - asked


@pytest.fixture
def topic(monkeypatch):
    return Topic(monkeypatch)


def test_only_what_changed_is_written_and_an_idle_flow_asks_nobody(topic):
    flow = Flow(topic, 3)
    flow.copied(0, 10)
    flow.copied(1, 20)
    flow.copied(2, 0)
    assert flow.run()[0] == 2
    assert topic.stored() == {0: 9, 1: 19}
    flow.copied(1, 25)
    assert flow.run()[0] == 1
    assert topic.stored() == {0: 9, 1: 24}
    # Once more, because executors note what was acknowledged a moment later.
    assert flow.run() == (0, 1)
    assert flow.run() == (0, 0)
    assert flow.run() == (0, 0)
    assert flow.run(fresh=True) == (0, 2)


def test_what_was_noted_after_all_has_come_to_rest_is_written(topic):
    flow = Flow(topic)
    flow.copied(0, 10, end=30)
    flow.run()
    assert topic.stored() == {0: 9}
    flow.copied(0, 30, end=30)
    assert flow.run()[0] == 1
    assert topic.stored() == {0: 29}
    assert flow.run() == (0, 0)


def test_the_next_process_writes_nothing_again(topic):
    flow = Flow(topic)
    flow.copied(0, 10)
    flow.run()
    again = Flow(topic)
    again.copied(0, 10)
    assert again.run() == (0, 2)


def test_positions_of_other_connectors_are_neither_read_nor_touched(topic):
    topic.store(0, 500, "another")
    flow = Flow(topic, connector="mine")
    flow.copied(0, 10)
    flow.run()
    assert topic.stored("another") == {0: 500}
    assert topic.stored("mine") == {0: 9}


def test_a_partition_that_was_not_measured_or_is_of_another_topic_is_left_alone(topic):
    topic.store(0, 99)
    flow = Flow(topic)
    flow.copied(0, 10)
    del flow.measured[flow.partitions[0]]
    assert flow.run()[0] == 0
    flow.copied(0, 10)
    flow.measured[flow.partitions[0]] = (ANEW, 10)
    assert flow.run()[0] == 0
    assert topic.stored() == {0: 99}


def test_a_target_that_is_mirrored_anew_loses_its_old_position(topic):
    flow = Flow(topic)
    flow.copied(0, 100)
    flow.run()
    # Deleted and created anew: its first record is on its way.
    flow.target_id = ANEW
    flow.ledgers[Place("t", 0, HERE, ANEW)] = ledger_of((0, 0, 0), known=known(0, 0, 0))
    flow.measured[flow.partitions[0]] = (ANEW, 0)
    flow.run()
    assert topic.stored() == {}
    flow.copied(0, 5)
    flow.run()
    assert topic.stored() == {0: 4}


def test_the_same_when_the_process_that_stored_it_was_killed(topic):
    topic.store(0, 99)
    flow = Flow(topic)
    flow.copied(0, 3)
    flow.run()
    assert topic.stored() == {0: 2}


def test_mm2_was_here_in_between(topic):
    topic.store(0, 149)
    flow = Flow(topic)
    flow.copied(0, 100, end=150)
    flow.run()
    assert topic.stored() == {0: 149}
    # We copied it again, behind its records.
    flow.copied(0, 160, end=210)
    flow.run()
    assert topic.stored() == {0: 159}


def test_what_another_connector_copies_is_not_ours(topic):
    flow = Flow(topic, 2)
    flow.copied(0, 10)
    flow.copied(1, 10)
    flow.left_to_others = {flow.partitions[1]}
    flow.run()
    assert topic.stored() == {0: 9}


def test_a_decision_of_an_operator_stands_until_it_is_carried_out(topic):
    flow = Flow(topic)
    flow.copied(0, 100)
    flow.run()
    flow.moves = {flow.partitions[0]: Move(40, "x")}
    topic.store(0, 39)
    flow.copied(0, 110)
    flow.run()
    assert topic.stored() == {0: 39}
    ledger = flow.ledgers[Place("t", 0, HERE, THERE)]
    ledger.move(Run(110, 40, 110), "x")
    flow.run(fresh=True)
    assert topic.stored() == {0: 39}
    ledger.known = Known(115, 45, 115, 115, 1)
    flow.measured[flow.partitions[0]] = (THERE, 115)
    flow.run()
    assert topic.stored() == {0: 44}


def test_the_topic_is_created_as_connect_does_when_there_is_something_to_write(topic):
    topic.exists = False
    flow = Flow(topic)
    flow.copied(0, 0)
    flow.run()
    assert topic.created == []
    flow.copied(0, 1)
    flow.run()
    assert topic.created == [admin.NewTopic(NAME, 25, 2, {"cleanup.policy": "compact"})]
    assert topic.stored() == {0: 0}


@pytest.mark.parametrize("missing", ["Read", "Create", "Write"])
def test_a_missing_right_is_named_and_hurts_nobody(topic, monkeypatch, caplog, missing):
    denied = BrokerError(29, "it")
    topic.exists = missing != "Create"
    if missing == "Read":
        topic.error = denied
    elif missing == "Create":
        monkeypatch.setattr(admin, "create_topics", lambda *_: {NAME: denied})
    else:
        monkeypatch.setattr(positions, "append_by_key", Mock(side_effect=denied))
    flow = Flow(topic)
    flow.copied(0, 10)
    flow.run()
    [text] = flow.writer.details().values()
    assert f"may not {missing} topic {NAME}" in text
    assert caplog.text.count("positions for MM2 are not written") == 1
    # It is not asked for every time.
    flow.copied(0, 20)
    assert flow.run() == (0, 0)
    topic.error = None
    monkeypatch.setattr(admin, "create_topics", topic.create)
    monkeypatch.setattr(positions, "append_by_key", topic.append)
    flow.run(fresh=True)
    assert flow.writer.details() == {}
    assert topic.stored() == {0: 19}


def test_a_cluster_that_does_not_answer_is_asked_again(topic):
    flow = Flow(topic)
    flow.copied(0, 10)
    for broken in (flow, topic):
        broken.error = ConnectionFailed("down")
        with pytest.raises(ConnectionFailed):
            flow.run()
        broken.error = None
    assert flow.run()[0] == 1


def test_a_mirror_that_has_lost_the_flow_writes_nothing(topic):
    flow = Flow(topic)
    flow.copied(0, 10)
    flow.held = False
    assert flow.run()[0] == 0
    flow.held = True
    assert flow.run()[0] == 1
