"""The state machine and the watchdog, with a clock of our own."""

from __future__ import annotations

import pytest

from heliograph.copy.lease_report import LeaseReport
from heliograph.model import PartitionReport, PartitionState, TopicPartition
from heliograph.service.states import FlowStates, Measured
from heliograph.units import duration, moment

S = PartitionState
P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)
AFTER = 60.0


class Flow:
    """A flow that is measured every two seconds, while its clusters answer."""

    def __init__(self, *partitions):
        self.now = 1000.0
        self.partitions = partitions or (P,)
        self.states = FlowStates("A->B", "A", AFTER, 2.0)
        self.states.watch(self.partitions, self.now)
        self.serial = 0
        self.log = []

    def lease(self, seconds=30.0, *, all_told=True):
        self.serial += 1
        self.states.granted(self.serial, set(self.partitions), self.now + seconds, self.now)
        if all_told:
            self.states.told(LeaseReport("A->B", self.serial, all_told=True))
        return self.serial

    def tell(self, state, why="", code="", serial=None, p=P, **times):
        report = PartitionReport("A->B", p, state, times.pop("since", self.now), why, code, **times)
        self.states.told(LeaseReport("A->B", self.serial if serial is None else serial, (report,)))

    def measure(self, position, readable, held_back=0, p=P):
        absent = frozenset(self.partitions) - {p}
        self.states.measured({p: Measured(position, readable, held_back)}, self.now, absent)

    def look(self, p=P):
        new = self.states.look(self.now)
        self.log += [(e.partition.partition, e.code) for e in new]
        self.texts = [e.text for e in new]
        return self.states.reports()[p]

    def pass_by(self, seconds, position=None, readable=None, step=2.0):
        """Time passes; without a position nothing is measured."""
        for _ in range(int(seconds / step)):
            self.now += step
            if position is not None:
                self.measure(position, readable)
            self.look()
        return self.look()

    @property
    def codes(self):
        return [code for _, code in self.log]


@pytest.fixture
def flow():
    return Flow()


def test_a_new_partition_starts(flow):
    assert flow.look().state is S.STARTING
    flow.measure(0, 100)
    assert flow.look().state is S.STARTING, "nothing has moved yet"
    flow.pass_by(2, 50, 100)
    assert flow.look().state is S.COPYING
    flow.pass_by(2, 100, 100)
    assert flow.look().state is S.IDLE
    assert flow.codes == []


def test_since_is_when_the_state_began(flow):
    flow.measure(5, 5)
    flow.look()
    began = flow.now
    assert flow.pass_by(20, 5, 5).since == began


def test_behind_and_not_moving_is_stalled(flow):
    flow.lease(300)
    flow.pass_by(2, 100, 100)
    flow.now += 2
    flow.measure(100, 150)
    behind = flow.now
    assert flow.look().state is S.COPYING
    assert flow.pass_by(AFTER - 2, 100, 150).state is S.COPYING
    report = flow.pass_by(2, 100, 150)
    assert report.state is S.STALLED
    assert report.since == behind
    assert "50 record(s) can be read on A, from source offset 100 on" in report.why
    assert flow.codes == ["partition.stalled"]
    flow.pass_by(600, 100, 190)
    assert flow.codes == ["partition.stalled"], "told once"


def test_what_moves_slowly_is_not_stalled(flow):
    for position in range(100, 110):
        assert flow.pass_by(AFTER - 4, position, 1000).state is not S.STALLED
    assert flow.codes == []


def test_new_records_after_a_quiet_day_are_not_stalled_at_once(flow):
    flow.lease(90_000)
    for _ in range(3):
        flow.now += 20_000
        flow.measure(7, 7)
    flow.now += 2
    flow.measure(7, 9)
    assert flow.look().state is S.COPYING


def test_the_end_of_a_stall_is_told_with_its_length(flow):
    flow.lease(3000)
    flow.pass_by(2, 0, 0)
    flow.pass_by(120, 0, 10)
    flow.pass_by(2, 4, 10)
    assert flow.codes == ["partition.stalled", "partition.recovered"]
    flow.now += 0.5
    assert flow.look().state is S.COPYING


def test_how_long_it_lasted(flow):
    flow.pass_by(2, 0, 0)
    flow.pass_by(120, 0, 10)
    flow.now += 2
    flow.measure(10, 10)
    flow.look()
    [text] = flow.texts
    assert text == "is mirrored again, after 2 min; it had stalled"


def test_an_open_transaction_is_waited_for_and_no_stall(flow):
    flow.now += 2
    flow.measure(10, 10, 5)
    assert flow.look().state is S.IDLE
    for _ in range(100):
        flow.now += 2
        flow.measure(10, 10, 7)
        report = flow.look()
    assert report.state is S.WAITING
    assert report.why == "7 record(s) wait for an open transaction on A"
    assert flow.codes == []
    flow.now += 2
    flow.measure(10, 17)
    assert flow.look().state is S.COPYING


def test_what_is_looked_at_before_it_is_begun_waits_and_has_not_failed(flow):
    flow.states.not_begun({P: "it is being found out"})
    assert flow.look().state is S.WAITING
    flow.pass_by(4, 0, 10)
    report = flow.look()
    assert (report.state, report.why, report.code) == (S.WAITING, "it is being found out", "")
    report = flow.pass_by(120, 0, 10)
    assert report.state is S.STALLED
    assert report.why.endswith("; it is being found out")
    flow.states.not_begun({})
    flow.pass_by(2, 10, 10)
    assert flow.look().state is S.IDLE


def test_one_measurement_is_no_proof_of_an_open_transaction(flow):
    for end in range(10, 100, 10):
        flow.now += 2
        flow.measure(end, end, 5)
        flow.now += 7
        assert flow.look().state is S.IDLE, "the log grew between two questions, and grows on"


@pytest.mark.parametrize("state", [S.WAITING, S.THROTTLED, S.QUARANTINING, S.COPYING])
def test_stalled_whatever_the_tasks_say(flow, state):
    flow.lease(3000)
    flow.pass_by(2, 10, 10)
    flow.tell(state, "so I say")
    if state is not S.COPYING:
        assert flow.look().state is state
        assert flow.look().why == "so I say"
    report = flow.pass_by(AFTER + 2, 10, 20)
    assert report.state is S.STALLED
    if state is not S.COPYING:
        assert f"its task says: {state}, so I say" in report.why


def test_a_stall_without_any_task_says_so(flow):
    flow.lease(30)
    flow.pass_by(2, 10, 10)
    ended = flow.now + 28
    report = flow.pass_by(120, 10, 20)
    assert report.state is S.STALLED
    assert "no task was heard of since " in report.why
    assert "Spark" in report.why
    # A lease that was handed out but never held does not count.
    flow.lease(300, all_told=False)
    assert "no task was heard of since" in flow.pass_by(2, 10, 20).why
    flow.lease(300)
    assert "its task does not say why" in flow.pass_by(2, 10, 20).why
    assert ended < flow.now


def test_what_is_not_measured_is_not_in_step(flow):
    flow.lease(3000)
    flow.pass_by(2, 10, 10)
    last = flow.now
    assert flow.pass_by(8).state is S.IDLE
    flow.states.unmeasured("cluster A does not answer; check that its brokers are up: refused")
    report = flow.pass_by(4)
    assert report.state is S.WAITING
    assert report.since == last
    assert report.why.startswith("not measured since ")
    assert report.why.endswith(
        ": cluster A does not answer; check that its brokers are up: refused"
    )
    assert flow.codes == []
    assert flow.pass_by(AFTER).state is S.STALLED
    assert flow.codes == ["partition.stalled"]
    flow.pass_by(2, 10, 10)
    assert flow.codes == ["partition.stalled", "partition.recovered"]
    assert flow.look().state is S.IDLE


def test_one_leader_that_does_not_answer():
    flow = Flow(P, Q)
    for _ in range(50):
        flow.now += 2
        flow.measure(5, 5, p=Q)
        flow.look()
    assert flow.look(Q).state is S.IDLE
    assert flow.look(P).state is S.STALLED
    assert "its leaders do not answer" in flow.look(P).why
    assert flow.log == [(0, "partition.stalled")]


def test_a_large_flow_is_not_judged_faster_than_it_is_measured():
    states = FlowStates("A->B", "A", 5.0, 50.0)
    states.watch([P], 0.0)
    states.granted(1, {P}, 1000.0, 1.0)
    states.measured({P: Measured(0, 10)}, 1.0)
    states.look(100.0)
    assert states.reports()[P].state is not S.STALLED
    states.look(151.0)
    assert states.reports()[P].state is S.STALLED


def test_a_failure_is_told_and_so_is_its_end(flow):
    flow.lease()
    flow.pass_by(2, 10, 20)
    flow.tell(S.FAILED, "[target.refused] no", "target.refused", retry_at=flow.now + 1)
    report = flow.look()
    assert (report.state, report.code) == (S.FAILED, "target.refused")
    [text] = flow.texts
    assert text.startswith("failed since ")
    assert ", tried again at " in text
    assert text.endswith(": [target.refused] no")
    assert set(flow.states.failing()) == {P}
    flow.now += 34
    flow.measure(10, 20)
    flow.tell(S.COPYING)
    flow.look()
    assert flow.texts == ["is mirrored again, after 34 s; it had failed with target.refused"]
    assert flow.codes == ["partition.failed", "partition.recovered"]
    assert flow.states.failing() == {}


def test_a_failure_outlives_leases(flow):
    flow.lease()
    began = flow.now
    flow.pass_by(2, 10, 20)
    flow.tell(S.FAILED, "no", "x", since=began, retry_at=flow.now + 5)
    for _ in range(10):
        flow.lease()
        flow.tell(S.FAILED, "no", "x", since=began, retry_at=flow.now + 30)
        assert flow.pass_by(30, 10, 20).since == began
    assert flow.codes == ["partition.failed"]


def test_another_reason_is_another_event(flow):
    flow.lease()
    flow.pass_by(2, 10, 20)
    flow.tell(S.FAILED, "no", "x", retry_at=flow.now + 30)
    flow.look()
    flow.tell(S.FAILED, "no", "y", retry_at=flow.now + 30)
    flow.look()
    assert flow.codes == ["partition.failed", "partition.failed"]


def test_a_failure_that_nobody_tries_again_is_a_stall(flow):
    flow.lease()
    flow.pass_by(2, 10, 20)
    flow.tell(S.FAILED, "no", "x", retry_at=flow.now + 30)
    assert flow.pass_by(30 + AFTER - 2, 10, 20).state is S.FAILED
    report = flow.pass_by(4, 10, 20)
    assert report.state is S.STALLED
    assert "its task says: failed, no" in report.why
    assert flow.codes == ["partition.failed", "partition.stalled"]


def test_an_older_lease_does_not_overrule_a_newer(flow):
    old = flow.lease()
    flow.tell(S.FAILED, "no", "x", serial=old, retry_at=flow.now + 5)
    new = flow.lease(all_told=False)
    flow.tell(S.COPYING, serial=new)
    flow.tell(S.FAILED, "no", "x", serial=old)
    assert flow.look().state is not S.FAILED
    flow.states.fine(P, new)
    flow.tell(S.WAITING, "no leader", serial=new)
    flow.states.fine(P, old)
    assert flow.look().state is S.WAITING


def test_a_new_holder_that_has_nothing_to_say_ends_what_the_old_one_said(flow):
    flow.lease()
    flow.tell(S.WAITING, "no leader")
    assert flow.look().state is S.WAITING
    flow.lease(all_told=False)
    assert flow.look().state is S.WAITING, "not before it has spoken"
    flow.states.told(LeaseReport("A->B", flow.serial, all_told=True))
    assert flow.look().state is S.STARTING


def test_all_is_told_does_not_overrule_what_the_same_holder_said(flow):
    flow.lease(all_told=False)
    flow.tell(S.FAILED, "no", "x", retry_at=flow.now + 5)
    flow.states.told(LeaseReport("A->B", flow.serial, all_told=True))
    assert flow.look().state is S.FAILED


def test_another_mirrors_flow_is_not_judged_by_what_our_tasks_said(flow):
    flow.lease()
    flow.pass_by(2, 10, 10)
    flow.tell(S.FAILED, "no", "x", retry_at=flow.now + 30)
    flow.look()
    flow.states.suspend("another mirror has the flow", flow.now)
    assert flow.look().state is S.IDLE


def test_partitions_that_are_gone_are_forgotten():
    flow = Flow(P, Q)
    flow.states.watch([Q], flow.now)
    flow.tell(S.FAILED, "no", "x", p=P)
    flow.states.look(flow.now)
    assert set(flow.states.reports()) == {Q}


def test_a_mirror_that_stands_by_reports_no_stall(flow):
    """It said "stalled" and "restart the mirror" of partitions that were another mirror's."""
    flow.lease(30)
    flow.pass_by(2, 10, 10)
    flow.states.suspend("another mirror has the flow", flow.now)
    assert flow.pass_by(4, 10, 20).state is S.COPYING, "the other one may be at it"
    report = flow.pass_by(10 * AFTER, 10, 20)
    assert report.state is S.WAITING
    assert report.why == "10 record(s) wait: another mirror has the flow"
    assert flow.codes == []
    flow.states.suspend("", flow.now)
    flow.lease(3000)
    assert flow.pass_by(AFTER - 4, 10, 20).state is S.COPYING, "its time counts from here"
    assert flow.pass_by(6, 10, 20).state is S.STALLED
    assert flow.codes == ["partition.stalled"]


def test_what_was_stalled_has_not_recovered_because_another_mirror_has_it(flow):
    flow.lease(3000)
    flow.pass_by(2, 10, 10)
    flow.pass_by(AFTER + 4, 10, 20)
    assert flow.codes == ["partition.stalled"]
    flow.states.suspend("paused", flow.now)
    flow.pass_by(AFTER, 10, 20)
    assert flow.codes == ["partition.stalled"]


def test_nothing_is_stalled_while_spark_starts(flow):
    """Dozens of lines blamed Spark, which was merely starting."""
    report = flow.pass_by(10 * AFTER, 0, 20)
    assert (report.state, report.why) == (S.STARTING, "no task has started yet")
    assert flow.codes == []
    assert not flow.states.leased
    flow.lease(3000)
    assert flow.states.leased
    assert flow.pass_by(AFTER - 2, 0, 20).state is S.STARTING, "its time counts from the lease"
    assert flow.pass_by(4, 0, 20).state is S.STALLED


def test_a_cluster_that_is_away_before_the_first_lease_is_reported(flow):
    flow.measure(0, 20)
    assert flow.pass_by(AFTER + 4).state is S.STALLED
    assert "not measured since then" in flow.look().why


def test_answers_that_stay_the_same_are_measurements():
    flow = Flow(P, Q)
    for p in (P, Q):
        flow.measure(5, 5, p=p)
    flow.states.measured({P: Measured(5, 5), Q: Measured(5, 7)}, flow.now)
    flow.lease(3000)
    flow.look()
    before = flow.states.version
    for _ in range(20):
        flow.now += 2
        flow.states.measured({}, flow.now)
        flow.look()
    assert flow.look(P).state is S.IDLE
    assert flow.look(Q).state is S.COPYING
    assert flow.states.blind == frozenset()
    assert flow.states.version == before
    for _ in range(20):
        flow.now += 2
        flow.states.measured({}, flow.now)
        flow.look()
    assert flow.look(Q).state is S.STALLED, "it does not move"
    flow.pass_by(20)
    assert flow.states.blind == {P, Q}


def test_a_partition_that_did_not_answer_is_not_covered_by_answers_of_others():
    flow = Flow(P, Q)
    flow.states.measured({P: Measured(5, 5), Q: Measured(5, 5)}, flow.now)
    flow.look()
    last = flow.now
    for _ in range(10):
        flow.now += 2
        flow.states.measured({}, flow.now, {P})
        flow.look()
    assert flow.look(P).state is S.WAITING
    assert flow.look(P).since == last
    assert flow.look(Q).state is S.IDLE
    assert flow.states.blind == {P}
    flow.states.measured({P: Measured(5, 5)}, flow.now)
    assert flow.look(P).state is S.IDLE
    assert flow.states.blind == frozenset()


def test_idle_partitions_are_not_judged_again_until_something_is_heard(monkeypatch):
    flow = Flow(P, Q)
    flow.states.measured({P: Measured(5, 5), Q: Measured(5, 5)}, flow.now)
    flow.look()
    flow.look()
    judged = []
    real = flow.states._is_idle
    monkeypatch.setattr(flow.states, "_is_idle", lambda p, *a: judged.append(p) or real(p, *a))
    flow.now += 2
    flow.states.measured({}, flow.now)
    flow.look()
    assert judged == []
    flow.states.measured({Q: Measured(6, 6)}, flow.now)
    flow.look()
    assert judged == [Q]
    flow.tell(S.WAITING, "no leader", p=P)
    assert flow.look(P).state is S.WAITING


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.42, "0.4 s"),
        (34, "34 s"),
        (89, "89 s"),
        (300, "5 min"),
        (5400, "1.5 h"),
        (90_000, "25 h"),
    ],
)
def test_durations_for_people(seconds, text):
    assert duration(seconds) == text


def test_times_are_iso_8601_in_utc():
    assert moment(0.25) == "1970-01-01T00:00:00.250Z"
    assert moment(1_800_000_000) == "2027-01-15T08:00:00.000Z"


@pytest.mark.parametrize("readable", [10, 20])
def test_a_cluster_that_lets_us_wait_is_named_and_not_spark(flow, readable):
    flow.lease(30)
    flow.pass_by(2, 5, readable)
    flow.pass_by(2, 10, readable)
    flow.states.asks("B", flow.now)
    assert flow.states.unanswered(flow.now + 9) == ""
    report = flow.pass_by(AFTER + 2)
    assert report.state is S.STALLED
    assert "cluster B does not answer" in report.why
    assert "Spark" not in report.why
    assert "cluster B does not answer" in flow.states.unanswered(flow.now)
    flow.states.asks("", 0.0)
    assert flow.states.unanswered(flow.now) == ""


def test_what_was_held_is_not_stalled_the_moment_it_goes_on(flow):
    flow.lease(30)
    flow.pass_by(2, 5, 10)
    flow.pass_by(2, 10, 10)
    flow.states.not_begun({P: "its topic is paused"}, {P})
    assert flow.pass_by(10 * AFTER, 10, 20).state is S.WAITING
    flow.states.not_begun({})
    flow.lease(3000)
    assert flow.pass_by(AFTER - 4, 10, 20).state is S.COPYING
    assert flow.pass_by(6, 10, 20).state is S.STALLED
