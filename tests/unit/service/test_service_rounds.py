"""Rounds: every partition is leased, new ones at once, and a failed round is planned anew."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import pytest

from heliograph.config import load
from heliograph.control.topics import TopicPlan
from heliograph.copy.desk import SETTLE_SECONDS
from heliograph.copy.telling import Stand, Tidings
from heliograph.model import (
    FlowContext,
    Lease,
    PartitionEvent,
    PartitionReport,
    PartitionState,
    Receipt,
    TopicPartition,
)
from heliograph.service.flow import FlowRuntime
from heliograph.service.monitor import FlowMonitor, PartitionLag
from heliograph.service.rounds import FlowLeases, RoundKeeper

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
        config.flow, config.source_client, config.target_client, 7, "ledger", None, 100,
        True, False, False, 1 << 20,
    )  # fmt: skip
    runtime.plan = TopicPlan({T("t", i): "A.t" for i in range(5)})
    return FlowLeases(runtime, FlowMonitor(runtime), 2)


def leased(leases: list[Lease]) -> list[TopicPartition]:
    return [p.source for lease in leases for p in lease.partitions]


def test_every_partition_is_in_exactly_one_lease(flow):
    leases = flow.plan(10.0, 20.0)
    assert len(leases) == 2
    assert sorted(leased(leases)) == [T("t", i) for i in range(5)]
    assert {(x.starts_at, x.deadline) for x in leases} == {(10.0, 20.0)}


def test_partitions_stay_where_they_were(flow):
    first = [set(leased([x])) for x in flow.plan(0, 1)]
    second = [set(leased([x])) for x in flow.plan(1, 2)]
    assert first == second


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
    first = flow.plan(0, 10)
    assert [x.serial for x in first] == [1, 2]
    flow.monitor.hear(Tidings("A->B", 1, (report,)))
    leases = flow.plan(10, 20)
    assert [x.serial for x in leases] == [3, 4]
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
    told = Tidings("A->B", 1, (report,), (event,))
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
    flow.monitor.hear(Tidings("A->B", 1, positions=(Stand(p, 12, 10),)))
    assert (lag.told_position, lag.told_target_end) == (12, 10)


def test_rounds_begin_as_soon_as_the_flow_is_ours(flow):
    begun = threading.Event()
    flow.runtime.claim.holds = False

    def run_round(leases: list[Lease]) -> list[Receipt]:
        begun.set()
        time.sleep(max(0.0, leases[0].deadline - time.time()))
        return []

    keeper = RoundKeeper([flow], run_round, 60)
    thread = threading.Thread(target=keeper.run)
    thread.start()
    assert not begun.wait(0.5)
    flow.runtime.claim.holds = True
    assert begun.wait(3)
    keeper.stop()
    thread.join(30)


def test_a_round_that_fails_is_planned_anew(flow):
    rounds: list[list[Lease]] = []
    enough = threading.Event()

    def run_round(leases: list[Lease]) -> list[Receipt]:
        rounds.append(leases)
        if len(rounds) >= 3:
            enough.set()
        raise ConnectionRefusedError("the JVM is gone")

    keeper = RoundKeeper([flow], run_round, 60)
    thread = threading.Thread(target=keeper.run)
    thread.start()
    assert enough.wait(30)
    keeper.stop()
    thread.join(30)
    assert all(sorted(leased(x)) == [T("t", i) for i in range(5)] for x in rounds)


def test_rounds_follow_one_another_without_a_gap(flow):
    rounds: list[Lease] = []
    enough = threading.Event()

    def run_round(leases: list[Lease]) -> list[Receipt]:
        rounds.append(leases[0])
        if len(rounds) >= 3:
            enough.set()
        time.sleep(max(0.0, leases[0].deadline - time.time()))
        return []

    keeper = RoundKeeper([flow], run_round, 2)
    thread = threading.Thread(target=keeper.run)
    thread.start()
    assert enough.wait(60)
    keeper.stop()
    thread.join(30)
    for before, after in itertools.pairwise(rounds):
        assert after.starts_at <= before.deadline
