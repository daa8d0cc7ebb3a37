"""Rounds: every partition is leased, new ones at once, and a failed round is planned anew."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from heliograph.config import load
from heliograph.control.topics.refresh import TopicPlan
from heliograph.copy.lease_report import LeaseReport, PartitionPosition
from heliograph.copy.lease_state import SETTLE_SECONDS
from heliograph.model import (
    FlowContext,
    Lease,
    LeasedPartition,
    PartitionEvent,
    PartitionReport,
    PartitionState,
    Receipt,
    TopicPartition,
)
from heliograph.service import rounds as rounds_module
from heliograph.service.events import EventBus
from heliograph.service.figures import PartitionLag
from heliograph.service.flow import FlowRuntime
from heliograph.service.monitor import FlowMonitor
from heliograph.service.once import Goals
from heliograph.service.rounds import KILLED_SECONDS, FlowLeases, RoundKeeper
from heliograph.wire.metadata import Metadata, PartitionInfo, TopicInfo

T = TopicPartition


class Claim:
    """The flow is this mirror's, unless a test says otherwise."""

    holds = True
    stands_by = False
    clear_from = 0.0


@pytest.fixture
def flow(tmp_path: Path) -> FlowLeases:
    """A flow as it is after ``prepare``, with nobody at the other end."""
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters=A,B\nA.bootstrap.servers=127.0.0.1:1\nB.bootstrap.servers=127.0.0.1:2\n"
        "A->B.enabled=true\n"
    )
    [config] = [f for f in load(path).flows if f.enabled]
    runtime = FlowRuntime(config)
    runtime.claim = Claim()
    runtime.context = FlowContext(
        flow=config.flow, source=config.source_client, target=config.target_client,
        producer_id=7, ledger_topic="ledger", offset_syncs=None, offset_lag_max=100,
        read_committed=True, start_at_latest=False, fetch_max_bytes=1 << 20,
    )  # fmt: skip
    runtime.plan = TopicPlan({T("t", i): "A.t" for i in range(5)})
    return FlowLeases(runtime, FlowMonitor(runtime, EventBus()), lambda: 2)


def leased(leases: list[Lease]) -> list[TopicPartition]:
    return [p.source for lease in leases for p in lease.partitions]


def test_every_partition_is_in_exactly_one_lease(flow):
    leases = flow.plan(10.0, 20.0)
    assert len(leases) == 2
    assert sorted(leased(leases)) == [T("t", i) for i in range(5)]
    assert {(x.starts_at, x.deadline) for x in leases} == {(10.0, 20.0)}


def test_leases_after_a_pause_count_as_newer_than_those_before(flow):
    before = flow.plan(10.0, 20.0)
    resumed = FlowLeases(flow.runtime, flow.monitor, lambda: 2).plan(30.0, 40.0)
    assert min(x.serial for x in resumed) > max(x.serial for x in before)


def test_partitions_stay_where_they_were(flow):
    first = [set(leased([x])) for x in flow.plan(0, 1)]
    second = [set(leased([x])) for x in flow.plan(1, 2)]
    assert first == second


def test_a_partition_that_is_looked_at_gets_its_lease_as_soon_as_that_is_done(flow):
    flow.runtime._take_over = looking = SimpleNamespace(
        undecided=frozenset({T("t", 1), T("t", 3)}), withheld=lambda _: ""
    )
    flow.runtime.plan = planned(5)
    assert sorted(leased(flow.plan(0, 10))) == [T("t", i) for i in (0, 2, 4)]
    assert flow.added(1, 10) == []
    looking.undecided = frozenset({T("t", 3)})
    assert leased(flow.added(2, 10)) == [T("t", 1)]
    looking.undecided = frozenset()
    assert leased(flow.added(3, 10)) == [T("t", 3)]


def planned(count):
    """A plan of topics that are there."""
    topic = TopicInfo("t", uuid.uuid4(), False, {i: PartitionInfo(0, 0, 1) for i in range(count)})
    here, there = Metadata("a", 0, {}, {"t": topic}), Metadata("b", 0, {}, {"A.t": topic})
    return TopicPlan({T("t", i): "A.t" for i in range(count)}, {}, here, there)


def test_only_new_partitions_get_a_lease_in_between(flow):
    flow.plan(0, 10)
    assert flow.added(1, 10) == []
    flow.runtime.plan = TopicPlan({**flow.runtime.plan.partitions, T("new", 0): "A.new"})
    assert leased(flow.added(1, 10)) == [T("new", 0)]
    assert flow.added(2, 10) == []
    assert T("new", 0) in leased(flow.plan(10, 20))


def test_new_partitions_do_not_wait_for_the_end_of_their_own_round(flow):
    """Their gaps may be filled from when those of this round's other partitions may."""
    flow.plan(0, 10)
    [first, *_] = flow.plan(10, 20)
    assert first.markers_from == 10 + SETTLE_SECONDS
    flow.runtime.plan = TopicPlan({**flow.runtime.plan.partitions, T("new", 0): "A.new"})
    [added] = flow.added(12, 20)
    assert added.markers_from == first.markers_from


def test_a_flow_of_another_mirror_gets_no_lease_until_it_is_ours(flow):
    flow.runtime.claim.holds = False
    assert flow.plan(0, 10) == []
    assert flow.added(1, 10) == []
    assert flow.turned_away
    flow.runtime.claim.holds = True
    flow.runtime.claim.clear_from = 44.0
    leases = flow.added(2, 10)
    assert sorted(leased(leases)) == [T("t", i) for i in range(5)]
    assert len(leases) == 2, "dealt as in every round"
    assert {x.markers_from for x in leases} == {44.0}
    assert not flow.turned_away
    assert flow.added(3, 10) == []


def test_a_moment_of_doubt_leaves_running_leases_alone(flow):
    flow.plan(0, 10)
    flow.runtime.claim.holds = False
    flow.runtime.plan = TopicPlan({**flow.runtime.plan.partitions, T("new", 0): "A.new"})
    assert flow.added(1, 10) == []
    assert not flow.turned_away
    flow.runtime.claim.holds = True
    assert leased(flow.added(2, 10)) == [T("new", 0)]


def test_a_lease_says_who_failed_and_when_it_is_tried_again(flow):
    report = PartitionReport("A->B", T("t", 3), PartitionState.FAILED, 1.0, "no", "x", 9.0)
    flow.monitor.look()
    first = [x.serial for x in flow.plan(0, 10)]
    assert first == [first[0], first[0] + 1]
    flow.monitor.hear(LeaseReport("A->B", first[0], (report,)))
    leases = flow.plan(10, 20)
    assert [x.serial for x in leases] == [first[0] + 2, first[0] + 3]
    assert {p.source: p.failing for x in leases for p in x.partitions if p.failing} == {
        T("t", 3): report
    }
    assert flow.monitor.failing() == {T("t", 3): report}
    assert flow.monitor.events.counts == {"partition.failed": 1}


def test_what_a_receipt_repeats_is_not_told_twice(flow):
    p = T("t", 3)
    report = PartitionReport("A->B", p, PartitionState.FAILED, 1.0, "no", "x", 9.0)
    event = PartitionEvent("A->B", p, "source.data-loss", "gone", 3, 5, 1.0)
    flow.monitor.look()
    flow.plan(0, 10)
    told = LeaseReport("A->B", 1, (report,), (event,))
    flow.monitor.hear(told)
    repeated = Receipt("A->B", "t", 3, 0, 0, 0, 0, 0, 0, 0, "no", 1, told.encode())
    flow.monitor.receive([repeated])
    assert flow.monitor.events.counts == {"partition.failed": 1, "source.data-loss": 1}
    flow.monitor.receive([Receipt("A->B", "t", 3, 0, 0, 0, 0, 0, 0, 0, "", 2)])
    assert flow.monitor.failing() == {}
    assert flow.monitor.events.counts["partition.recovered"] == 1


def test_positions_behind_markers_are_believed_while_the_target_ends_there(flow):
    p = T("t", 3)
    lag = flow.monitor._lags[p] = PartitionLag(source_end=12, target_end=10, position=10)
    flow.monitor.hear(LeaseReport("A->B", 1, positions=(PartitionPosition(p, 12, 10),)))
    assert (lag.told_position, lag.told_target_end) == (12, 10)


class Rounds:
    """In the engine's place: each round is run by ``run``, in a thread of its own."""

    def __init__(self, run):
        self._run = run

    def __call__(self, leases, done):
        future = Future()
        future.add_done_callback(done)

        def hold():
            try:
                future.set_result(self._run(leases))
            except Exception as error:
                future.set_exception(error)

        threading.Thread(target=hold, daemon=True).start()


@contextmanager
def kept(flow, run_round, lease_seconds=60.0):
    """Rounds of the flow, until the block ends."""
    keeper = RoundKeeper(flow, Rounds(run_round), lease_seconds)
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.stop()
        assert keeper.join(90)


def until_deadline(leases: list[Lease]) -> list[Receipt]:
    time.sleep(max(0.0, leases[0].deadline - time.time()))
    return []


def test_rounds_begin_as_soon_as_the_flow_is_ours(flow):
    begun = threading.Event()
    flow.runtime.claim.holds = False

    def run_round(leases):
        begun.set()
        return until_deadline(leases)

    with kept(flow, run_round):
        assert not begun.wait(0.5)
        flow.runtime.claim.holds = True
        assert begun.wait(60)


def test_a_round_that_fails_is_planned_anew(flow):
    rounds: list[list[Lease]] = []
    enough = threading.Event()

    def run_round(leases):
        rounds.append(leases)
        if len(rounds) >= 3:
            enough.set()
        raise ConnectionRefusedError("the JVM is gone")

    with kept(flow, run_round):
        assert enough.wait(60)
    assert all(sorted(leased(x)) == [T("t", i) for i in range(5)] for x in rounds)


def test_a_round_that_failed_is_given_time_to_end_before_markers_are_written(flow):
    rounds: list[list[Lease]] = []
    failed_at: list[float] = []
    enough = threading.Event()

    def run_round(leases):
        rounds.append(leases)
        if len(rounds) == 2:
            enough.set()
            return until_deadline(leases)
        failed_at.append(time.time())
        raise ConnectionRefusedError("a task was killed")

    with kept(flow, run_round):
        assert enough.wait(60)
        first, second = rounds[0][0], rounds[1][0]
        assert second.markers_from >= failed_at[0] + KILLED_SECONDS > first.markers_from


def test_rounds_follow_one_another_and_never_overlap(flow, monkeypatch):
    monkeypatch.setattr(rounds_module, "_FIRST_ROUND_SECONDS", 2.0)
    rounds: list[Lease] = []
    enough = threading.Event()

    def gaps():
        return [after.starts_at - before.deadline for before, after in itertools.pairwise(rounds)]

    def run_round(leases):
        rounds.append(leases[0])
        # One that is late was planned by a busy machine.
        if len(rounds) >= 3 and 0.0 in gaps():
            enough.set()
        return until_deadline(leases)

    with kept(flow, run_round, 2.0):
        assert enough.wait(60)
    assert min(gaps()) == 0.0, "none begins before the other has ended"


def test_goals_end_the_rounds_when_they_are_reached(flow):
    p = T("t", 3)
    goals = Goals({p: 5}, threading.Event())
    flow.goals = goals
    seen: list[LeasedPartition] = []

    def run_round(leases):
        seen.extend(x for lease in leases for x in lease.partitions)
        at = 3 if len(seen) == 1 else 5
        return [Receipt("A->B", "t", 3, at, at, at, 0, 0, 0, 0, "")]

    with kept(flow, run_round) as keeper:
        assert keeper.join(60)
    assert [(x.source, x.until) for x in seen] == [(p, 5), (p, 5)]
    assert (goals.open, goals.missing) == (set(), {})


def test_goals_that_nothing_comes_closer_to_are_given_up_with_the_reason(flow):
    goals = Goals({T("t", 3): 5}, threading.Event())
    flow.goals = goals
    rounds = []

    def run_round(leases):
        rounds.append(leases)
        return [Receipt("A->B", "t", 3, 0, 0, 0, 0, 0, 0, 0, "no leader")]

    flow.runtime.refresh_topics = lambda: False
    with kept(flow, run_round) as keeper:
        assert keeper.join(60)
    assert len(rounds) == 3
    assert goals.missing == {T("t", 3): "no leader"}
