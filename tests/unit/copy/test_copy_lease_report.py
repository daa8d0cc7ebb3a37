"""What the holder of a lease tells of its partitions, and what it keeps to itself."""

from __future__ import annotations

import time

import pytest

from heliograph.copy.lease_report import LeaseReport, LeaseReporter
from heliograph.copy.lease_state import LeaseState
from heliograph.copy.partition import Outgoing, Position
from heliograph.errors import PartitionError
from heliograph.model import (
    ClientSettings,
    Flow,
    FlowContext,
    Lease,
    LeasedPartition,
    PartitionReport,
    PartitionState,
    TopicPartition,
)

S = PartitionState
P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
NO = PartitionError("target.refused", "no", "say please")


class Held:
    """A lease on two partitions, with a clock of our own and an ear on the line."""

    def __init__(self, monkeypatch, until=None, failing=None):
        self.now = 1000.0
        monkeypatch.setattr(time, "time", lambda: self.now)
        settings = ClientSettings("A", {})
        context = FlowContext(
            flow=Flow("A", "B"), source=settings, target=settings, producer_id=7,
            ledger_topic="ledger", offset_syncs=None, offset_lag_max=100, read_committed=True,
            start_at_latest=False, fetch_max_bytes=1 << 20, quarantine_topic="aside",
        )  # fmt: skip
        leased = tuple(LeasedPartition(p, "A.t", until, failing=failing) for p in (P, Q))
        self.lease_state = LeaseState(
            Lease(context, leased, self.now, self.now + 30, serial=4), None
        )
        self.p, self.q = (self.lease_state.parts[x] for x in (P, Q))
        self.teller = LeaseReporter(self.lease_state)
        self.heard = []
        self.teller._line.say = self.heard.append

    def start(self, *parts):
        for p in parts or (self.p, self.q):
            p.failed, p.looked_at = None, self.now
            p.start(Position(0, 0, 0))
            self.lease_state.unsettled.discard(p.source)

    def ack(self, p):
        p.acknowledged(Outgoing(memoryview(b"xx"), 0, 1, [(0, 1)], 1), 0)

    def told(self, seconds=0.0):
        """What is said within some seconds."""
        before = len(self.heard)
        for _ in range(max(1, int(seconds / 0.5))):
            self.teller.pump()
            self.now += 0.5
        self.teller.pump()
        return self.heard[before:]

    def states(self, seconds=0.0):
        return [(r.partition, r.state) for t in self.told(seconds) for r in t.reports]


@pytest.fixture
def held(monkeypatch):
    return Held(monkeypatch)


def test_all_is_told_once_every_partition_has_begun(held):
    assert held.told(3) == []
    held.start(held.p)
    assert held.told(3) == []
    held.start(held.q)
    assert held.told(3) == [LeaseReport("A->B", 4, all_told=True)]


def test_one_that_cannot_begin_is_not_called_fine_meanwhile(held):
    held.start(held.p)
    held.lease_state.disturb(held.q, "no leader")
    assert held.told(1.5) == []
    [lease_report] = held.told(2)
    assert [(r.partition, r.state) for r in lease_report.reports] == [(Q, S.WAITING)]
    assert lease_report.all_told


def test_partitions_that_are_fine_are_not_talked_about(held):
    held.start()
    held.told()
    assert held.told(600) == []


def test_a_failure_is_told_at_once(held):
    held.start()
    held.told()
    held.now += 0.01
    held.lease_state.fail(held.p, NO)
    held.teller.pump()
    [report] = held.heard[-1].reports
    assert report == PartitionReport(
        "A->B", P, S.FAILED, held.now, str(NO), "target.refused", held.now + 1
    )


def test_a_failure_is_tried_again_later_and_later(held):
    waits, began = [], held.now
    for _ in range(10):
        held.start()
        held.lease_state.fail(held.p, NO)
        assert held.p not in held.lease_state.due(held.p.retry_at - 0.01)
        assert held.p in held.lease_state.due(held.p.retry_at)
        assert held.p.failing.since == began
        waits.append(held.p.retry_at - held.now)
        held.now = held.p.retry_at
    assert waits == [1, 1, 2, 4, 8, 16, 30, 30, 30, 30]


def test_a_connection_that_is_lost_does_not_bring_a_failure_forward(held):
    held.start()
    held.lease_state.fail(held.p, NO)
    at = held.p.retry_at
    held.lease_state.disturb(held.p, "connection lost")
    assert held.p.retry_at == at


def test_a_failure_in_a_lease_that_ends_at_an_offset_is_final(monkeypatch):
    held = Held(monkeypatch, until=10)
    held.start()
    held.lease_state.fail(held.p, NO)
    assert held.lease_state.due(held.now + 1e9) == []
    assert held.p.receipt("A->B").error == str(NO)


def test_a_new_attempt_is_no_recovery_before_it_has_proven_itself(held):
    held.start()
    held.told()
    held.lease_state.fail(held.p, NO)
    assert held.states() == [(P, S.FAILED)]
    held.start(held.p)
    held.p.queue.append(Outgoing(memoryview(b"xx"), 0, 1, [(0, 1)], 1))
    assert held.states(20) == [], "as long as nothing is acknowledged"
    held.ack(held.p)
    assert held.states(1) == [(P, S.COPYING)]


def test_nothing_to_write_for_a_while_is_a_recovery_too(held):
    held.start()
    held.told()
    held.lease_state.fail(held.p, NO)
    held.told()
    held.start(held.p)
    assert held.states(1.0) == []
    assert held.states(3.0) == [(P, S.COPYING)]


def test_the_next_holder_goes_on_where_the_last_one_was(monkeypatch):
    known = PartitionReport("A->B", P, S.FAILED, 900.0, "[x] no", "x", 1012.0)
    held = Held(monkeypatch, failing=known)
    assert held.lease_state.due(1011.0) == []
    assert held.p in held.lease_state.due(1012.0)
    assert (P, S.FAILED) in held.states()
    held.start()
    held.lease_state.fail(held.p, NO)
    assert held.p.failing.since == 900.0
    assert held.p.retry_at - held.now == 30


def test_a_wrong_clock_does_not_keep_a_partition_from_being_tried(monkeypatch):
    known = PartitionReport("A->B", P, S.FAILED, 900.0, "[x] no", "x", 99_000.0)
    assert Held(monkeypatch, failing=known).lease_state.due(1031.0)


def test_what_is_resumed_soon_is_not_talked_about(held):
    held.start()
    held.told()
    held.lease_state.disturb(held.p, "leader moved")
    held.now += 0.5
    held.start(held.p)
    held.ack(held.p)
    assert held.states(10) == []


def test_what_is_disturbed_again_and_again_waits(held):
    held.start()
    held.told()
    for _ in range(20):
        held.lease_state.disturb(held.p, "writing A.t-0: NOT_ENOUGH_REPLICAS")
        held.told(0.5)
        held.start(held.p)
    [report] = [r for t in held.heard for r in t.reports]
    assert (report.state, report.since) == (S.WAITING, 1000.5)
    assert report.why == "writing A.t-0: NOT_ENOUGH_REPLICAS"
    held.ack(held.p)
    assert held.states(1) == [(P, S.COPYING)]


def test_other_words_for_the_same_trouble_are_told_rarely(held):
    held.start()
    held.told()
    held.lease_state.disturb(held.p, "broker 1 is away")
    for n in range(40):
        held.lease_state.disturb(held.p, f"broker {n} is away")
        held.told(0.5)
    assert 2 <= len([r for t in held.heard for r in t.reports]) <= 4


def test_throttled_for_as_long_as_the_broker_goes_on_with_it(held):
    held.start()
    held.told()
    for _ in range(10):
        held.p.throttled_until, held.p.throttled_by = held.now + 0.3, "a quota"
        held.told(1)
    [report] = [r for t in held.heard for r in t.reports]
    assert (report.state, report.why) == (S.THROTTLED, "a quota")
    assert held.states(6) == [(P, S.COPYING)]


def test_quarantining_for_a_while(held):
    held.start()
    held.told()
    held.p.quarantined = 1
    assert held.states(1) == [(P, S.QUARANTINING)]
    assert held.states(8) == []
    held.p.quarantined = 2
    assert held.states(8) == []
    assert held.states(8) == [(P, S.COPYING)]


def test_events_are_told_at_once_and_again_in_the_receipt(held):
    held.start()
    held.told()
    held.lease_state.add_event(held.p, "source.data-loss", "gone", 5, 9, "key=continue")
    held.teller.pump()
    [event] = held.heard[-1].events
    assert event.policy == "key=continue"
    assert (event.code, event.first, event.until) == ("source.data-loss", 5, 9)
    assert held.told(20) == []
    mine, other = held.teller.receipts()
    assert LeaseReport.decode(mine.lease_report).events == (event,)
    assert (mine.serial, other.serial, other.lease_report) == (4, 4, "")


def test_a_receipt_repeats_the_state(held):
    held.start()
    held.lease_state.fail(held.p, NO)
    mine, _ = held.teller.receipts()
    [report] = LeaseReport.decode(mine.lease_report).reports
    assert report == held.p.failing
    assert mine.error == str(NO)


def test_where_it_stands_behind_markers_is_told_once_it_is_settled(held):
    held.start()
    held.told()
    held.p.position, held.p.contiguous = 12, 10
    held.p.in_flight.append(Outgoing(memoryview(b"xx"), 0, 1, [(0, 1)], 1))
    assert held.told(2) == []
    held.p.in_flight.clear()
    [lease_report] = held.told(5)
    assert [(s.partition, s.position, s.target_end) for s in lease_report.positions] == [(P, 12, 0)]


def test_a_receipt_says_why_a_partition_was_never_begun(held):
    held.start(held.q)
    for p in (held.p, held.q):
        held.lease_state.disturb(p, "the task began too late")
    mine, other = held.teller.receipts()
    [report] = LeaseReport.decode(mine.lease_report).reports
    assert (report.state, report.why) == (S.WAITING, "the task began too late")
    assert other.lease_report == "", "it will be resumed in a moment"


def test_what_was_written_is_reported_now_and_then_and_at_the_end(monkeypatch):
    held = Held(monkeypatch)
    held.start()
    held.told(1.0)
    held.heard.clear()
    held.ack(held.p)
    held.told(3.0)
    assert [r.counts[:2] for r in held.heard if r.counts] == [(1, 2)]
    held.told(5.0)
    assert [r.counts[:2] for r in held.heard if r.counts] == [(1, 2)], "no news"
    held.ack(held.q)
    held.told(3.0)
    held.ack(held.q)
    held.teller.receipts()
    assert [r.counts[:2] for r in held.heard if r.counts] == [(1, 2), (2, 4), (3, 6)]
    assert LeaseReport.decode(held.heard[-1].encode()) == held.heard[-1]
