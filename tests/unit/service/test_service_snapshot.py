"""Snapshots: immutable, plain for JSON, and cheap for ten thousand partitions."""

from __future__ import annotations

import json
import logging
import time
import uuid
from contextlib import suppress
from dataclasses import FrozenInstanceError, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.control.canary import CanaryReading
from heliograph.control.scheduler import JobStatus
from heliograph.control.source_end_notes import SourceEndNotes
from heliograph.control.topics.refresh import TopicPlan
from heliograph.copy.counts import Counts
from heliograph.copy.lease_report import LeaseReport, PartitionPosition
from heliograph.ledger.columns import Run
from heliograph.ledger.handovers import CutAt
from heliograph.ledger.known import Known
from heliograph.ledger.runs import PartitionLedger
from heliograph.ledger.source_ends import LastSeen
from heliograph.model import (
    Flow,
    Guard,
    Move,
    PartitionReport,
    PartitionState,
    Receipt,
    TopicPartition,
)
from heliograph.policy import DefaultReplicationPolicy
from heliograph.service import monitor as module
from heliograph.service.events import EventBus
from heliograph.service.figures import why_translated
from heliograph.service.monitor import FlowMonitor
from heliograph.service.snapshot import (
    FlowSnapshot,
    FlowState,
    JobSnapshot,
    Life,
    MirrorSnapshot,
    PartitionSnapshot,
    RiskSnapshot,
    summary,
    to_json,
)
from heliograph.wire import admin
from heliograph.wire.errors import ConnectionFailed, WireError
from heliograph.wire.metadata import Metadata, PartitionInfo, TopicInfo

T = TopicPartition
S = PartitionState
RUNNING = Life(FlowState.RUNNING)


class Clusters:
    """Two clusters: ends and starts by cluster and partition, and a ledger without a topic."""

    follower = SimpleNamespace(reached=SimpleNamespace(position=7))

    def __init__(self):
        self.ends = {"A": {}, "B": {}}
        #: Last stable offsets, where they are not the ends.
        self.stable = {}
        self.starts = {}
        self.ledgers = {}
        self.away = set()
        self.now = 1000.0
        self.timestamps = {}
        self.asked = []

    def starts_of(self, client, _metadata, partitions, at):
        assert (client.alias, at) == ("A", admin.EARLIEST)
        return {p: self.starts.get(p, 0) for p in partitions}

    def timestamps_at(self, _client, _metadata, positions):
        self.asked.append(dict(positions))
        return {p: self.timestamps[p, o] for p, o in positions.items() if (p, o) in self.timestamps}

    def refresh(self):
        if "B" in self.away:
            raise ConnectionFailed("B is down")

    @property
    def size(self):
        return sum(len(ledger.runs) for ledger in self.ledgers.values())

    def at(self, place):
        return self.ledgers.setdefault(T(place.topic, place.partition), PartitionLedger())


class Ends:
    """Takes the place of an EndsQuery."""

    def __init__(self, clusters, client, *, read_committed=False):
        self._clusters, self._alias = clusters, client.alias
        self._stable = clusters.stable if read_committed else {}
        self.found, self.changed, self.silent = {}, set(), {}

    def ask(self, _metadata, partitions, _leave_out=()):
        away = self._alias in self._clusters.away
        self.silent = {0: ConnectionFailed(f"{self._alias} is down")} if away else {}
        known = self._clusters.ends[self._alias] | self._stable
        old = self.found
        self.found = {} if away else {p: known.get(p, 0) for p in partitions}
        self.changed = {p for p, _ in old.items() ^ self.found.items()}


class Cuts(dict):
    """Where a failover has cut partitions of the source; takes the place of RestingCuts."""

    @property
    def failed_over(self):
        return bool(self)

    def failed_over_at(self, place):
        return self.get(T(place.topic, place.partition))


class World:
    """A flow A->B with its monitor, and a clock of our own."""

    def __init__(self, monkeypatch, topics=1, partitions=2, others=(), committed=False):
        self.clusters = Clusters()
        self.bus = EventBus()
        names = [*(f"t{n:03}" for n in range(topics)), *others]

        def metadata(prefix):
            infos = {i: PartitionInfo(0, 0, 1) for i in range(partitions)}
            made = {prefix + n: TopicInfo(prefix + n, uuid.uuid4(), False, infos) for n in names}
            return Metadata("id", 0, {0: ("h", 1)}, made)

        self.parts = [T(n, i) for n in names for i in range(partitions)]
        plan = TopicPlan({p: f"A.{p.topic}" for p in self.parts}, {}, metadata(""), metadata("A."))
        self.rehearsals = SimpleNamespace(measured=None, newest=None)
        self.cuts = Cuts()
        runtime: Any = SimpleNamespace(
            flow=Flow("A", "B"), name="A->B", plan=plan, stands_by=False, holds=True,
            waiting={}, held=frozenset(), paused_topics={}, guards={}, moves=dict,
            is_standby=False,
            config=SimpleNamespace(
                isolation_level="read_committed" if committed else "read_uncommitted",
                source_client="A", target_admin="B",
                stalled_after_seconds=60.0,
            ),
            prepared=SimpleNamespace(ledger_topic="l", read_committed=False, quarantine_topic=None),
            client=lambda alias, _role: SimpleNamespace(alias=alias, request_timeout=0),
            leased=lambda _p: SimpleNamespace(identical=True),
            context=None,
            ledger=SimpleNamespace(
                store=self.clusters, rehearsals=self.rehearsals, cuts=self.cuts
            ),
        )  # fmt: skip
        monkeypatch.setattr(module, "policy_from", lambda _: DefaultReplicationPolicy())
        monkeypatch.setattr(module, "EndsQuery", partial(Ends, self.clusters))
        monkeypatch.setattr(module, "timestamps_at", self.clusters.timestamps_at)
        monkeypatch.setattr(admin, "list_offsets", self.clusters.starts_of)
        monkeypatch.setattr(time, "time", lambda: self.clusters.now)
        self.runtime = runtime
        self.monitor = FlowMonitor(runtime, self.bus)

    def write(self, p, end):
        self.clusters.ends["A"][p] = end

    def mirror(self, p, end, shift=0):
        ledger = self.clusters.ledgers.setdefault(p, PartitionLedger())
        if not ledger.runs:
            ledger.add(Run(0, 0, shift))
        self.clusters.ends["B"][T(f"A.{p.topic}", p.partition)] = end + shift

    def measure(self, seconds=2.0):
        self.clusters.now += seconds
        with suppress(WireError):
            self.monitor.measure()
        self.monitor.look()
        return self.snapshot()

    def snapshot(self):
        return self.monitor.snapshot(RUNNING, {"copying": RUNNING})


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def test_heartbeats_are_not_at_risk_and_what_was_not_begun_is(monkeypatch):
    world = World(monkeypatch, partitions=1, others=["heartbeats"])
    topic, beats = T("t000", 0), T("heartbeats", 0)
    world.clusters.starts[topic] = 4
    world.write(topic, 10)
    world.write(beats, 900)
    at_risk = world.measure().at_risk
    assert (at_risk.records, at_risk.topics, at_risk.unmeasured) == (6, 1, 0)
    noted = world.monitor.seen()
    assert (noted.ends, noted.begins, noted.records) == ({topic: 10}, {topic: 4}, 6)


def test_nobody_waits_for_the_heartbeats_of_a_flow_that_rests(monkeypatch):
    world = World(monkeypatch, partitions=1, others=["heartbeats"])
    topic, beats = T("t000", 0), T("heartbeats", 0)
    world.mirror(topic, 7)
    world.write(topic, 10)
    world.mirror(beats, 0)
    world.write(beats, 900)
    assert world.measure().lag_records == 903
    world.monitor.suspend("in standby")
    assert world.snapshot().lag_records == 3
    world.monitor.suspend("")
    assert world.snapshot().lag_records == 903


def test_what_rested_on_purpose_has_not_waited_for_a_task(world):
    world.monitor.suspend("in standby")
    world.write(world.parts[0], 10)
    world.measure(100.0)
    world.monitor.suspend("")
    world.measure(10.0)
    assert "flow.waiting" not in world.monitor.events.counts
    world.measure(55.0)
    assert world.monitor.events.counts["flow.waiting"] == 1


def test_what_cannot_be_mirrored_is_noted_for_a_failover(world):
    p, q = world.parts
    world.write(p, 10)
    world.mirror(q, 0)
    world.measure()
    failed = PartitionReport("A->B", p, S.FAILED, 1.0, "a record is too large", "target.refused")
    world.monitor.hear(LeaseReport("A->B", 1, reports=(failed,)))
    world.measure()
    assert world.monitor.seen().failed == {p: "a record is too large"}
    world.monitor.hear(LeaseReport("A->B", 1, reports=(replace(failed, state=S.COPYING),)))
    world.mirror(p, 10)
    world.measure()
    assert not world.monitor.seen().failed


def test_what_is_in_an_open_transaction_is_at_risk_and_no_lag(monkeypatch):
    world = World(monkeypatch, committed=True)
    p = world.parts[0]
    world.clusters.stable[p] = 4
    world.write(p, 10)
    world.mirror(p, 4)
    found = world.measure()
    assert found.lag_records == 0
    assert (found.at_risk.records, found.at_risk.topics) == (6, 1)
    assert world.monitor.seen().ends == {p: 10}


def test_the_direction_that_is_not_needed_puts_nothing_at_risk(world):
    world.write(world.parts[0], 10)
    assert world.measure().at_risk.records == 10
    world.runtime.is_standby = True
    assert world.measure().at_risk is None


def test_b24_an_old_source_that_takes_writes_is_told_of_once(world):
    p, q = world.parts

    def told():
        return [e.event for e in world.bus.history() if e.event.code == "flow.diverged"]

    for each in world.parts:
        world.write(each, 100)
        world.mirror(each, 100)
    assert world.measure().diverged_records is None
    world.cuts |= {p: CutAt(100, 100), q: CutAt(100, 100)}
    world.clusters.away.add("A")
    # Clients write to B.
    world.mirror(p, 150)
    assert world.measure().diverged_records is None, "A has not answered since"
    world.clusters.away.clear()
    found = world.measure(60.0)
    assert (found.diverged_records, found.lag_records, told()) == (0, 0, [])
    world.write(p, 107)
    found = world.measure()
    # What B has of its own hides nothing.
    assert (found.diverged_records, found.lag_records) == (7, 7)
    world.write(p, 109)
    world.write(q, 101)
    assert world.measure().diverged_records == 10
    [event] = told()
    assert "A takes writes although it was failed over, 7 records more" in event.text
    assert "B has not 7 records of it (t000 7). Stop what writes to A" in event.text
    assert event.level == logging.WARNING
    for _ in range(40):
        world.measure()
    assert "3 records more: B has not 10 records of it" in told()[1].text
    assert len(told()) == 2, "once for each change"
    # It is brought back: nothing is only there any more.
    world.cuts.clear()
    assert world.measure().diverged_records is None


def test_what_an_old_source_has_that_comes_back_is_told(world):
    p, _ = world.parts
    world.write(p, 30)
    world.mirror(p, 20)
    world.cuts[p] = CutAt(20, 20)
    assert world.measure().diverged_records == 10
    [event] = [e.event for e in world.bus.history()]
    assert event.text.startswith("A answers again: B has not 10 records of it (t000 10).")


def test_before_the_first_measurement_nothing_is_known(world):
    first = world.snapshot()
    assert (first.lag_records, first.lag_seconds, first.records_total) == (None, None, None)
    assert (first.records_per_second, first.bytes_per_second) == (None, None)
    assert first.unmeasured == 2
    assert first.states == {"starting": 2}
    assert {p.lag_records for p in first.partitions} == {None}


def test_a_backlog_is_lag_from_the_first_measurement_on(world):
    p, q = world.parts
    world.write(p, 11_000)
    first = world.measure()
    assert first.lag_records == 11_000
    assert first.lag_seconds is None, "not 0, and not since the mirror started"
    assert first.partitions[0].position == 0
    assert first.partitions[1].lag_seconds == 0.0
    assert first.topics[0].lag_records == 11_000
    assert first.partitions[0].shift is None
    world.mirror(p, 6_000)
    later = world.measure()
    assert (later.lag_records, later.records_total) == (5_000, 6_000)
    assert later.records_per_second == 3_000
    assert (later.identical, later.translated) == (1, 0)
    world.mirror(q, 0)
    assert world.measure(30.0).identical == 2


def test_where_others_write_to_the_target_what_was_acknowledged_counts(world):
    """A flow goes in the opposite direction: B grows by records of its own, A by their copies."""
    p, _ = world.parts
    world.runtime.guards = {p: Guard(frozenset({7}), paired=True)}
    world.write(p, 120)
    world.mirror(p, 100)
    world.clusters.ledgers[p].known = Known(100, 100, 100, 100, 0)
    assert world.measure().lag_records == 20
    # 50 of B's own hide nothing, whatever is mirrored.
    world.mirror(p, 150)
    assert world.measure().lag_records == 20
    # What came back from B is passed: tasks say so at once, the ledger when the lease ends.
    world.monitor.hear(LeaseReport("A->B", 1, positions=(PartitionPosition(p, 120, 100),)))
    assert world.measure().lag_records == 0
    world.write(p, 170)
    assert world.measure().lag_records == 50
    world.clusters.ledgers[p].add(Run(100, 170, 150))
    assert world.measure(60.0).lag_records == 0


def test_of_a_partition_that_is_to_begin_elsewhere_the_rest_is_lag(world):
    p, _ = world.parts
    world.write(p, 120)
    world.runtime.moves = lambda: {p: Move(100, "cut")}
    assert world.measure().lag_records == 20


def test_a_copy_that_begins_at_the_end_is_not_behind(world):
    """auto.offset.reset=latest: the ledger knows before anything is written."""
    p = world.parts[0]
    world.write(p, 11_000)
    assert world.measure().lag_records == 11_000
    world.clusters.ledgers[p].add(Run(0, 11_000, 0))
    assert world.measure().lag_records == 0


def test_after_a_start_lag_in_seconds_is_the_age_of_the_next_record(world):
    """It counted from the mirror's start: 4.7 s where 26 s were true."""
    p = world.parts[0]
    world.write(p, 1000)
    clusters = world.clusters
    clusters.timestamps = {(p, 0): clusters.now - 24.0, (p, 400): clusters.now - 4.0}
    found = world.measure()
    assert found.lag_seconds == 26.0
    assert found.partitions[0].lag_seconds == 26.0
    world.mirror(p, 400)
    assert world.measure().lag_seconds == 8.0
    world.measure()
    assert len(clusters.asked) == 2, "not again for the same record"
    world.mirror(p, 1000)
    assert world.measure().lag_seconds == 0.0
    world.write(p, 1010)
    world.measure()
    assert world.measure().lag_seconds == 2.0
    assert len(clusters.asked) == 2, "what was watched need not be asked for"


def test_only_some_timestamps_are_asked_for_at_a_time(monkeypatch):
    world = World(monkeypatch, topics=10, partitions=10)
    clusters = world.clusters
    for n, p in enumerate(world.parts):
        world.write(p, 10)
        clusters.timestamps[p, 0] = clusters.now - n
    for _ in range(4):
        found = world.measure()
    assert [len(asked) for asked in clusters.asked] == [32, 32, 32, 4]
    assert found.lag_seconds == 99 + 8
    assert sum(p.lag_seconds is None for p in found.partitions) == 0


def test_lag_in_seconds_counts_from_when_records_appeared(world):
    p = world.parts[0]
    world.mirror(p, 10)
    world.write(p, 10)
    assert world.measure().lag_seconds == 0.0
    world.write(p, 20)
    world.measure()
    assert world.measure(5.0).lag_seconds == 5.0
    world.clusters.now += 3
    assert world.snapshot().lag_seconds == 8.0, "it grows without a measurement"


@pytest.mark.parametrize("away", ["A", "B"])
def test_in_an_outage_lag_grows_or_is_unknown(world, away):
    """It stayed at 0.0 s."""
    p, q = world.parts
    for one in (p, q):
        world.mirror(one, 10)
        world.write(one, 10)
    world.measure()
    world.write(p, 15)
    assert world.measure().lag_records == 5
    world.clusters.away = {away}
    for _ in range(10):
        found = world.measure(5.0)
    behind, other = found.partitions
    assert (behind.lag_records, behind.lag_seconds) == (5, 50.0)
    assert (other.lag_records, other.lag_seconds) == (None, None), "nobody knows"
    assert found.unmeasured == 1
    if away == "B":
        world.write(q, 99)
        found = world.measure(5.0)
        assert found.partitions[1].lag_records == 89, "the source can be asked"
    world.clusters.away = set()
    assert world.measure().unmeasured == 0


def test_the_last_figures_of_a_flow_that_is_not_watched_any_more_grow_old(world):
    p = world.parts[0]
    for one in world.parts:
        world.mirror(one, 10)
        world.write(one, 10)
    world.write(p, 15)
    world.measure()
    world.clusters.now += 2
    last = world.snapshot()
    assert (last.lag_records, last.unmeasured) == (5, 0), "the last word after a stop"
    world.clusters.now += 60
    old = world.snapshot()
    assert (old.lag_records, old.unmeasured) == (5, 1)
    assert old.partitions[1].lag_records is None


def test_rates_are_of_bytes_that_were_written(world):
    """An average over all topics made 21 MB/s of 90: heartbeats are small and many."""
    world.measure()
    for n in range(1, 6):
        world.monitor.hear(LeaseReport("A->B", 1, counts=Counts(n * 9, n * 90_000_000)))
        found = world.measure(1.0)
    assert found.bytes_per_second == 90_000_000
    assert (found.copied_records, found.copied_bytes) == (45, 450_000_000)
    receipt = Receipt("A->B", "t000", 0, 0, 0, 50, 500_000_000, 5, 0, 0, "", 1)
    world.monitor.receive([receipt])
    world.monitor.hear(LeaseReport("A->B", 1, counts=Counts(45, 450_000_000)))
    assert world.snapshot().copied_bytes == 500_000_000, "receipts decide"
    world.monitor.hear(LeaseReport("A->B", 2, counts=Counts(1, 7)))
    assert world.snapshot().copied_bytes == 500_000_007


def test_without_live_reports_rates_come_from_receipts(world):
    for n in range(1, 4):
        world.clusters.now += 30
        world.monitor.receive([Receipt("A->B", "t000", 0, 0, 0, 5, 3_000_000, 5, 0, 0, "", n)])
        world.measure()
    assert world.snapshot().bytes_per_second == pytest.approx(100_000, rel=0.1)


def test_new_partitions_with_a_history_are_no_progress(world):
    p, q = world.parts
    world.mirror(p, 0)
    world.measure()
    world.mirror(q, 1_000_000)
    world.runtime.plan.target.topics["A.t000"].partitions[7] = PartitionInfo(0, 0, 1)
    world.measure()
    late = T("t000", 7)
    world.clusters.ends["B"][T("A.t000", 7)] = 5_000_000
    world.mirror(late, 5_000_000)
    partitions = {**world.runtime.plan.partitions, late: "A.t000"}
    world.runtime.plan = TopicPlan(
        partitions, {}, world.runtime.plan.source, world.runtime.plan.target
    )
    world.runtime.plan.source.topics["t000"].partitions[7] = PartitionInfo(0, 0, 1)
    for _ in range(4):
        found = world.measure()
    assert found.records_per_second == 0


def test_a_mirror_that_stands_by_judges_no_partition(world):
    p = world.parts[0]
    world.mirror(p, 10)
    world.write(p, 10)
    world.measure()
    world.runtime.stands_by = True
    world.write(p, 20)
    for _ in range(60):
        found = world.measure()
    assert found.partitions[0].state is S.WAITING
    assert found.partitions[0].reason == "10 record(s) wait: another mirror has the flow"
    assert found.events == {}


def test_a_flow_that_is_paused_says_so_and_goes_on(world):
    p = world.parts[0]
    world.mirror(p, 10)
    world.write(p, 20)
    world.monitor.suspend("the flow is paused")
    for _ in range(60):
        found = world.measure()
    assert found.partitions[0].reason == "10 record(s) wait: the flow is paused"
    world.monitor.suspend("")
    world.mirror(p, 20)
    assert world.measure().partitions[0].state is S.IDLE


def test_spark_that_does_not_start_is_one_event_and_not_one_a_partition(world):
    for p in world.parts:
        world.write(p, 10)
    for _ in range(60):
        found = world.measure()
    assert found.states == {"starting": 2}
    assert found.events == {"flow.waiting": 1}
    [event] = [x.event for x in world.bus.history()]
    assert event.text == (
        "20 record(s) wait, and no task has started for 60 s: Spark is still starting, or has no"
        " free slots"
    )


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([Run(0, 0, 0), Run(10, 10, 13)], "3 record(s) in A.t are not from this mirror"),
        # Our own ``continue`` after the source lost records: nobody else wrote anything.
        ([Run(0, 0, 0), Run(10, 25, 10)], "15 source offset(s) before that could not be mirrored"),
        (
            [Run(0, 0, 0), Run(10, 4, 10)],
            "copying went back by 6 offset(s) of the source there: it had lost records, or an"
            " operator decided so",
        ),
        ([Run(0, 5, 0)], "the source topic was created anew"),
    ],
)
def test_why_offsets_differ(runs, why):
    assert why_translated(runs, "A.t") == why


def test_our_own_continue_is_not_blamed_on_somebody_else(world, caplog):
    p = world.parts[0]
    world.mirror(p, 10)
    world.write(p, 10)
    world.measure()
    world.clusters.ledgers[p].cut(Run(10, 4, 10))
    world.write(p, 6)
    world.measure()
    [said] = [r.getMessage() for r in caplog.records if "no longer the source's" in r.getMessage()]
    assert "because copying went back by 6 offset(s) of the source there" in said
    assert "somebody else" not in said


def test_values_are_immutable_and_plain_for_json(world):
    world.write(world.parts[0], 5)
    job = JobSnapshot.of(JobStatus("emitting checkpoints", 2.0, 5.0, details={"g": "ok"}))
    flow = world.measure()
    with pytest.raises(FrozenInstanceError):
        flow.flow = "x"
    with pytest.raises(TypeError):
        flow.states["idle"] = 3
    mirror = MirrorSnapshot(1e9, (flow,), started_at=1e9)
    assert mirror.flow("A->B") is flow
    assert mirror.flow("A->C") is None
    plain = json.loads(json.dumps(to_json(mirror)))
    assert plain["at"] == "2001-09-09T01:46:40.000Z"
    assert plain["engine"] is None
    assert plain["flows"][0]["partitions"][0]["lag_records"] == 5
    assert plain["flows"][0]["life"]["since"] is None
    assert to_json(job)["last_run"] == "1970-01-01T00:00:05.000Z"
    assert summary(flow)["partitions"] == 2
    assert len(json.dumps(summary(flow))) < 1000


def test_what_would_be_lost_is_what_the_source_had_when_it_last_answered(monkeypatch):
    world = World(monkeypatch, topics=2, partitions=2)
    p, q, r, _ = world.parts
    assert world.snapshot().at_risk is None
    assert world.monitor.seen() is None
    for one in world.parts:
        world.mirror(one, 10)
        world.write(one, 10)
    in_step = world.measure()
    assert in_step.at_risk == RiskSnapshot(0, 0, 0.0, 0, 1002.0)
    first = world.monitor.seen()
    assert first == LastSeen(1_002_000, {}, True, 0, 0.0)
    assert world.monitor.seen() is first
    world.measure()
    assert world.monitor.seen() == replace(first, at_ms=1_004_000), "it answered again"
    world.write(p, 15)
    world.write(q, 17)
    world.write(r, 11)
    world.measure()
    behind = world.measure()
    assert behind.at_risk == RiskSnapshot(13, 2, 2.0, 0, 1008.0)
    topics = {"t000": 12, "t001": 1}
    seen = LastSeen(1_008_000, {p: 15, q: 17, r: 11}, True, 13, 2.0, topics)
    assert world.monitor.seen() == seen
    world.measure()
    seen = replace(seen, at_ms=1_010_000, seconds=4.0)
    assert world.monitor.seen() == seen, "what waits has waited longer"
    world.clusters.away = {"A"}
    for _ in range(10):
        dead = world.measure(5.0)
    assert dead.at_risk == RiskSnapshot(13, 2, 54.0, 1, 1010.0), "nobody knows of the fourth"
    last = world.monitor.seen()
    assert (last.at_ms, last.ends, last.records) == (1_010_000, seen.ends, 13)
    assert not last.silent, "all answered when the source did so for the last time"
    # The mirror goes on with what it has read.
    world.mirror(p, 15)
    assert world.measure().at_risk == RiskSnapshot(8, 2, 56.0, 2, 1010.0)
    assert world.monitor.seen().ends == {q: 17, r: 11}
    world.clusters.away = set()
    assert world.measure().at_risk.unmeasured == 0


@pytest.mark.parametrize("rests", ["paused", "another mirror has the flow"])
def test_a_probe_that_nobody_follows_any_more_is_not_overdue(world, rests):
    world.monitor.take_canary(CanaryReading(0.25, seen_at=900.0).waits(1000.0, None))
    waiting = world.measure(40.0).canary
    assert (waiting.overdue, waiting.latency_seconds) == (True, 40.0)
    if rests == "paused":
        world.monitor.suspend(rests)
    else:
        world.runtime.stands_by = True
    resting = world.measure(40.0).canary
    assert (resting.overdue, resting.latency_seconds) == (False, 0.25)


def test_a_canary_that_is_lost_is_told_once_and_so_is_its_return(world):
    def told(reading):
        for _ in range(2):
            world.monitor.take_canary(reading)
            world.monitor.look()
        return {c: n for c, n in world.monitor.events.counts.items() if "canary" in c}

    waiting = CanaryReading(0.25, seen_at=900.0).waits(time.time() - 29.0, None)
    assert told(waiting) == {}
    lost = replace(waiting, waiting_since=time.time() - 31.0)
    assert told(lost) == {"flow.canary-lost": 1}
    assert told(lost.arrived(time.time())) == {"flow.canary-lost": 1, "flow.canary-back": 1}
    # Of a flow that rests none is followed, and none is late.
    told(lost)
    world.monitor.suspend("paused")
    assert told(lost) == {"flow.canary-lost": 2, "flow.canary-back": 2}


def test_the_last_recovery_is_shown(world):
    world.rehearsals.measured = SimpleNamespace(rto_seconds=7.25, at_ms=5_000)
    world.rehearsals.newest = SimpleNamespace(ok=False)
    flow = world.measure()
    assert flow.rehearsal_ok is False
    assert (flow.rto_seconds, flow.rto_measured_at) == (7.25, 5.0)
    assert summary(flow)["rto_measured_at"] == "1970-01-01T00:00:05.000Z"


class Ledger:
    """Takes the place of a SourceEnds; ``noted`` is what was appended."""

    def __init__(self):
        self.noted = []

    def note(self, seen):
        self.noted.append(seen)


def test_what_changes_is_noted_at_once_and_the_rest_every_ten_seconds():
    """An idle mirror stays idle, and a dead source is noted by nobody."""
    ledger: Any = Ledger()
    seen: list[LastSeen | None] = [None]
    notes = SourceEndNotes(ledger, lambda: seen[0])

    def at(seconds, ends=None, **values):
        seen[0] = LastSeen(int(seconds * 1000), ends or {}, True, 0, seconds, **values)
        for _ in range(3):
            notes.note()
        return [said.at_ms / 1000 for said in ledger.noted]

    notes.note()
    assert ledger.noted == []
    assert at(100) == [100]
    assert at(102) == at(109.9) == [100], "how long records have waited is no news"
    assert at(110) == [100, 110]
    p = T("t", 0)
    assert at(111.0, {p: 7}) == [100, 110], "two seconds apart, roughly"
    assert at(112.0, {p: 8}) == [100, 110, 112]
    assert at(114.0, {p: 8}, unmeasured=1) == [100, 110, 112, 114]
    assert at(50.0, {p: 8}) == [100, 110, 112, 114, 50], "the clock was set back"


def test_the_worst_and_oldest_partitions_come_first():
    def partition(n, state, since=0.0):
        return PartitionSnapshot("t", n, "A.t", state, since=since)

    made = (
        partition(0, S.IDLE), partition(1, S.WAITING), partition(2, S.FAILED, 5.0),
        partition(3, S.STALLED), partition(4, S.FAILED, 2.0), partition(6, S.COPYING),
    )  # fmt: skip
    states = {"failed": 2, "stalled": 1, "waiting": 1, "copying": 1, "idle": 1}
    flow = FlowSnapshot("A->B", "A", "B", RUNNING, partitions=made, states=states)
    assert [p.partition for p in flow.troubled] == [4, 2, 3, 1]


def test_only_what_changed_is_taken_in(world, monkeypatch):
    p, q = world.parts
    for one in (p, q):
        world.mirror(one, 5)
        world.write(one, 5)
    world.measure()
    taken = []
    real = world.monitor._take
    monkeypatch.setattr(
        world.monitor, "_take", lambda plan, t, s: taken.append(set(t)) or real(plan, t, s)
    )
    for _ in range(5):
        found = world.measure()
    assert taken == []
    assert found.states == {"idle": 2}
    assert found.measured_at == world.clusters.now
    # The same plan, read anew.
    plan = world.runtime.plan
    world.runtime.plan = TopicPlan(dict(plan.partitions), {}, plan.source, plan.target)
    world.measure()
    assert taken == []
    world.measure(30.0)
    assert taken == [{p, q}], "the ledger may have corrected something"
    world.monitor.hear(LeaseReport("A->B", 1, positions=(PartitionPosition(p, 9, 5),)))
    world.measure()
    assert taken[1:] == [{p}], "a position behind markers"
    world.write(q, 6)
    assert world.measure().lag_records == 1
    world.mirror(q, 6)
    assert world.measure().lag_records == 0
    assert taken[2:] == [{q}, {q}]
    world.clusters.away = {"B"}
    world.measure()
    world.clusters.away = set()
    world.measure()
    assert taken[4:] == [{p, q}, {p, q}], "an outage, and its end"


def test_ten_thousand_partitions_cost_only_what_changed(monkeypatch):
    """Counted, not timed: how many partitions are made anew for a snapshot."""
    world = World(monkeypatch, topics=100, partitions=100)
    for p in world.parts:
        world.mirror(p, 5)
        world.write(p, 5)
    world.measure()
    made = []

    def counted(*args, **options):
        made.append(args)
        return PartitionSnapshot(*args, **options)

    monkeypatch.setattr(module, "PartitionSnapshot", counted)
    first = world.snapshot()
    assert len(first.partitions) == 10_000
    made.clear()
    assert world.snapshot().partitions is first.partitions, "nothing happened in between"
    world.measure(60.0)
    assert made == [], "measured, and nothing has changed"
    world.write(world.parts[7], 9)
    found = world.measure(60.0)
    assert len(made) == 1
    assert found.lag_records == 4
    assert found.topics[0].topic == "t000"
    report = PartitionReport("A->B", world.parts[8], S.THROTTLED, 1.0, "a quota")
    made.clear()
    world.monitor.hear(LeaseReport("A->B", 1, (report,)))
    assert world.snapshot().states == {"throttled": 1, "copying": 1, "idle": 9998}
    assert len(made) == 2, "the one that changed, and the one whose lag grows"
