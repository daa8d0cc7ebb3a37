"""What a failover refuses, and in which words; what it does without a mirror. No Spark."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from grouping import Groups
from mirroring import Mirroring, wait_for

from heliograph.batch.records import Record, build
from heliograph.claims.process_identity import this_process
from heliograph.cli import cli
from heliograph.config import FlowConfig, load
from heliograph.config.key import compile_pattern
from heliograph.control.groups.starts import GroupStarts
from heliograph.failover.failback import Failback
from heliograph.failover.failback_plan import FailbackWish
from heliograph.failover.failover import (
    PARTS,
    STEPS,
    Failover,
    FailoverReport,
    FailoverWish,
)
from heliograph.failover.lock import claim_of, one_at_a_time
from heliograph.failover.own_tail import own_ends
from heliograph.failover.refusals import HandoverFailed, HandoverRefused
from heliograph.failover.steps import Told
from heliograph.failover.target_side import TargetSide
from heliograph.ledger.handovers import Handover, Kind
from heliograph.ledger.holds import Subject
from heliograph.ledger.moves import decide_moves, forget_moves
from heliograph.ledger.source_ends import LastSeen
from heliograph.model import TopicPartition
from heliograph.wire import admin, configs, log

LEDGER, CHECKPOINTS = "mm2-ledger.A.internal", "A.checkpoints.internal"
ORDERS, CLICKS = "orders", "clicks"
P0 = TopicPartition(ORDERS, 0)


@dataclass(slots=True)
class Day:
    """A flow A->B of two topics, what was mirrored of it, and its groups."""

    flow: Mirroring
    groups: Groups
    path: Path
    config: FlowConfig
    told: list[Told] = field(default_factory=list)

    @contextmanager
    def failing_over(self, reverse: FlowConfig | None = None, **wish: Any) -> Iterator[Failover]:
        wish.setdefault("drain_seconds", 0.0)
        with Failover(
            self.config, FailoverWish(by="me", **wish), self.told.append, reverse=reverse
        ) as made:
            yield made

    def refused(self, **wish: Any) -> HandoverRefused:
        with self.failing_over(**wish) as failover, pytest.raises(HandoverRefused) as caught:
            failover.run()
        return caught.value

    def run(self, **wish: Any) -> FailoverReport:
        with self.failing_over(**wish) as failover:
            return failover.run()

    @contextmanager
    def side(self) -> Iterator[TargetSide]:
        with TargetSide(self.config) as side:
            side.open()
            yield side


def configured(path: Path, flow: str) -> FlowConfig:
    return next(f for f in load(path).flows if str(f.flow) == flow)


@pytest.fixture(scope="module")
def day(module_lab_factory, tmp_path_factory):
    lab = module_lab_factory()
    flow = Mirroring.of(lab).but(ledger_topic=LEDGER)
    path = tmp_path_factory.mktemp("failover") / "mm2.properties"
    path.write_text(
        f"""clusters = A, B
A.bootstrap.servers = {lab["A"].bootstrap}
B.bootstrap.servers = {lab["B"].bootstrap}
A->B.enabled = true
B->A.enabled = true
"""
    )
    config = configured(path, "A->B")
    with (
        Failover(config, FailoverWish(), lambda _: None) as early,
        pytest.raises(HandoverRefused, match="never mirrored by Heliograph"),
    ):
        early.run()
    compacted = {"cleanup.policy": "compact"}
    internal = [admin.NewTopic(name, 1, 1, compacted) for name in (LEDGER, CHECKPOINTS)]
    assert not admin.create_topics(flow.target, internal, 30_000)
    for new in internal:
        flow.await_topic(flow.target, new.name, 1)
    for topic in (ORDERS, CLICKS):
        flow.create(topic, 2)
        for partition in range(2):
            flow.write(topic, [b"%d" % n for n in range(20)], partition)
    groups = Groups(flow, ORDERS, CLICKS)
    groups.checkpoints_topic = CHECKPOINTS
    groups.emitter = groups.emitting()
    flow.copy(ORDERS, CLICKS)
    for name, offset in (("billing", 7), ("active", 3), ("late", 20)):
        groups.commit(name, {TopicPartition(ORDERS, n): offset for n in range(2)})
    groups.emit()
    made = Day(flow, groups, path, config)
    # Five records that nobody mirrors.
    flow.write(ORDERS, [b"%d" % n for n in range(20, 25)])
    yield made
    groups.close()
    flow.close()


def test_b01_a_healthy_source_is_not_failed_over_and_switchover_is_named(day):
    refusal = day.refused()
    assert refusal.code == "failover.source-healthy"
    assert "A answers, and all 4 partitions of it have a leader" in str(refusal)
    assert "heliograph switchover" in refusal.hint and "--force" in refusal.hint
    assert refusal.exit_code == 1


def test_both_directions_that_are_enabled_are_refused_unless_one_stands_by(day, tmp_path):
    reverse = configured(day.path, "B->A")
    with day.failing_over(reverse=reverse) as failover:
        codes = [r.code for r in failover.plan().refusals]
        # Nobody is refused in turns.
        with pytest.raises(HandoverRefused) as caught:
            failover.run()
    assert codes == ["failover.source-healthy", "failover.both-directions"]
    for code in codes:
        assert f"[{code}]" in str(caught.value)
    path = tmp_path / "standby.properties"
    path.write_text(day.path.read_text() + "B->A.heliograph.standby = true\n")
    with day.failing_over(reverse=configured(path, "B->A")) as failover:
        assert [r.code for r in failover.plan().refusals] == ["failover.source-healthy"]


def test_a_flow_that_stands_by_has_its_clients_at_the_target(day, tmp_path):
    path = tmp_path / "standby.properties"
    path.write_text(day.path.read_text() + "A->B.heliograph.standby = true\n")
    with Failover(configured(path, "A->B"), FailoverWish(force=True), day.told.append) as failover:
        [refusal] = failover.plan().refusals
    assert refusal.code == "failover.stands-by"
    assert "clients are at B already" in str(refusal) and "--to A" in refusal.hint


def test_b03_a_target_that_takes_no_writes_is_refused(day):
    remote = "A.orders"
    key = "min.insync.replicas"
    assert configs.alter(day.flow.target, {remote: {key: "2"}}) == {}

    def seen():
        with day.failing_over(force=True) as failover:
            return [r for r in failover.plan().refusals if r.code == "failover.target-unfit"]

    [refusal] = wait_for(seen)
    assert "A.orders-0 has 1 replicas in sync, min.insync.replicas is 2 (and 1 more)" in str(
        refusal
    )
    assert configs.alter(day.flow.target, {remote: {key: "1"}}) == {}
    wait_for(lambda: not seen())


def test_b05_more_than_may_be_lost_is_refused_with_the_numbers_of_each_partition(day):
    refusal = day.refused(force=True, max_records=3)
    assert refusal.code == "failover.rpo"
    assert "more than 3 records: 5 records in 1 topic as of " in str(refusal)
    assert ", exact. orders-0 5 records" in str(refusal)
    with day.failing_over(force=True, max_records=5) as failover:
        assert not failover.plan().refusals


def test_b04_a_topic_that_cannot_be_mirrored_is_named_and_left_behind_by_nobody_unnoticed(day):
    why = "a record of 2,000,000 bytes is larger than B takes"
    with day.side() as side:
        side.source_ends.note(LastSeen(1, {P0: 25}, True, 5, 1.5, failed={P0: why}))

    def codes(**wish):
        with day.failing_over(**wish) as failover:
            plan = failover.plan()
        return {r.code: str(r) for r in plan.refusals}, plan.faulted

    refusals, faulted = codes()
    assert refusals.keys() == {"failover.source-healthy", "failover.faulted"}
    assert faulted == {P0: why}
    assert (
        f"could not be mirrored when the mirror last looked: orders. orders-0: {why}"
        in (refusals["failover.faulted"])
    )
    # All, or those that are chosen.
    assert codes(force=True) == ({}, {P0: why})
    refusals, faulted = codes(topics=compile_pattern(CLICKS))
    assert (refusals.keys(), faulted) == ({"failover.source-healthy"}, {})
    refusals, faulted = codes(topics=compile_pattern(ORDERS))
    assert (refusals.keys(), faulted) == ({"failover.source-healthy"}, {P0: why})
    plain = CliRunner().invoke(cli, ["failover", str(day.path), "--to", "B", "--dry-run"])
    assert "Partitions that could not be mirrored:" in plain.output and why in plain.output
    with day.side() as side:
        side.source_ends.note(LastSeen(2, {P0: 25}, True, 5, 1.5))


def test_b25_what_differs_at_the_target_is_in_the_plan(day):
    changed = {"A.clicks": {"retention.ms": "3600000", "cleanup.policy": "compact"}}
    assert configs.alter(day.flow.target, changed) == {}
    made = day.flow.source.metadata([CLICKS]).topics[CLICKS]
    assert len(made.partitions) == 2
    wanted = {
        "cleanup.policy is delete on A and compact on B: clicks",
        "retention.ms is -1 on A and 3600000 on B: clicks",
    }

    def notes():
        with day.failing_over() as failover:
            return set(failover.plan().notes)

    wait_for(lambda: notes() == wanted)
    plain = CliRunner().invoke(cli, ["failover", str(day.path), "--to", "B", "--dry-run"])
    assert "retention.ms is -1 on A and 3600000 on B: clicks" in plain.output
    restored = {"A.clicks": {"retention.ms": "-1", "cleanup.policy": "delete"}}
    assert configs.alter(day.flow.target, restored) == {}
    wait_for(lambda: not notes())


def test_what_was_never_begun_is_at_risk_and_topics_that_stay_are_not(day):
    fresh = TopicPartition("fresh", 0)
    source = day.flow.source
    assert not admin.create_topics(source, [admin.NewTopic(fresh.topic, 1, 1, {})], 30_000)
    day.flow.await_topic(source, fresh.topic, 1)
    day.flow.write(fresh.topic, [b"%d" % n for n in range(10)])
    day.flow.trim(source, fresh, 4)

    def at_risk(**wish):
        with day.failing_over(**wish) as failover:
            risk = failover.plan().risk
        assert risk.exact
        return {str(p.partition): p.records for p in risk.behind}

    try:
        wait_for(lambda: at_risk() == {"fresh-0": 6, "orders-0": 5})
        assert at_risk(topics=compile_pattern(ORDERS)) == {"orders-0": 5}
        assert day.refused(force=True, max_records=10).code == "failover.rpo"
    finally:
        made = source.metadata([fresh.topic]).topics[fresh.topic].topic_id
        assert not admin.delete_topics(source, {made: fresh.topic}, 30_000)
        wait_for(lambda: fresh.topic not in source.metadata().topics)


def test_what_comes_from_the_target_itself_is_not_at_risk(day):
    """As after a switchover: the flow goes on behind what the other direction has brought."""
    p = TopicPartition(ORDERS, 0)
    with day.side() as side:
        decide_moves(side.memory, {p: 24})
    try:
        with day.failing_over() as failover:
            risk = failover.plan().risk
        assert risk.exact
        assert {r.partition: r.records for r in risk.behind} == {p: 1}
    finally:
        with day.side() as side:
            forget_moves(side.memory, [p])


def test_topics_that_are_not_mirrored_are_refused(day):
    refusal = day.refused(topics=compile_pattern("oders"))
    assert refusal.code == "failover.no-topics" and "it mirrors clicks, orders" in refusal.hint


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--to", "C"], 2, "enables no flow to C"),
        (["--flow", "C->B"], 2, "enables no flow C->B"),
        ([], 255, "--to CLUSTER"),
        (["--to", "B", "--max-rpo", "soon"], 255, "is not like 1000 (records), 30s"),
    ],
)
def test_what_is_not_configured_or_not_understood_is_named(day, arguments, code, text):
    done = subprocess.run(
        [sys.executable, "-m", "heliograph", "failover", str(day.path), *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert text in re.sub(r"\s+", " ", done.stderr)


def test_b11_of_two_operators_one_hands_over(day):
    with one_at_a_time(day.config):
        refusal = day.refused(force=True)
    assert refusal.code == "handover.running"
    assert f"host {this_process().host}, pid {os.getpid()}" in str(refusal)


def test_another_handover_that_was_not_ended_goes_first(day):
    with day.side() as side:
        begun = side.handovers.note(Handover("1", Kind.SWITCHOVER, "bob@ops", 0))
    refusal = day.refused(force=True)
    assert refusal.code == "handover.open" and "a switchover of flow A->B, begun by bob@ops" in str(
        refusal
    )
    assert "the same 'heliograph switchover' goes on" in refusal.hint and "--abort" in refusal.hint
    with day.side() as side:
        side.handovers.end(begun, aborted=True)


def test_a_failback_without_a_failover_is_refused(day):
    reverse = configured(day.path, "B->A")
    with (
        Failback(day.config, reverse, FailbackWish(), lambda _: None) as failback,
        pytest.raises(HandoverRefused, match="was not failed over to B"),
    ):
        failback.run()


def test_what_is_resumed_before_the_cut_stops_it_and_what_is_lost_is_asked_for_after_it(day):
    subject, nobody = Subject.topic(CLICKS), compile_pattern("nobody")

    shown = []

    def after(step, act):
        """A failover during which something is done when a step is through."""

        def tell(told):
            if (told.step, told.phase) == (step, "done"):
                act()

        wish = FailoverWish(compile_pattern(CLICKS), nobody, force=True, drain_seconds=0.0)
        with Failover(day.config, wish, tell) as failover:
            return failover.run(lambda plan: shown.append((plan, time.time() * 1000)))

    def resume():
        with day.side() as side:
            assert side.holds.lift([subject]) == [subject]

    with pytest.raises(HandoverFailed, match="somebody has resumed topic clicks") as caught:
        after("stop", resume)
    assert caught.value.code == "failover.resumed" and "repeat this command" in caught.value.hint
    with day.side() as side:
        last = side.handovers.last
        assert last is not None and last.open and last.steps == ("announce", "drain")
        assert CLICKS not in side.handovers.cuts
    # The same command stops mirrors again. What the source takes meanwhile is in the report.
    report = after("cut", lambda: day.flow.write(CLICKS, [b"late", b"later"], 1))
    assert not report.repeated and report.handover.id == last.id
    # Its time counts from before the first look of the first command.
    assert shown[0][0].before is None and shown[1][0].before is not None
    assert report.handover.began_ms < shown[0][1]
    assert report.rto_seconds > (shown[1][1] - shown[0][1]) / 1000
    risk = report.risk
    assert risk.exact and {str(p.partition): p.records for p in risk.behind} == {"clicks-1": 2}
    cut_ms = report.handover.began_ms
    assert risk.as_of_ms is not None and risk.as_of_ms > cut_ms
    with day.side() as side:
        noted = side.handovers.last
        assert noted is not None
        assert (noted.facts["records"], noted.facts["as_of"]) == (2, risk.as_of_ms)
        assert side.rehearsals.newest is not None and side.rehearsals.newest.rpo_records == 2
        assert side.holds.lift([subject]) == [subject]


def test_topics_are_promoted_one_by_one(day):
    nobody = compile_pattern("nobody")
    first = day.run(force=True, topics=compile_pattern(CLICKS), groups=nobody)
    again = day.run(force=True, topics=compile_pattern(CLICKS), groups=nobody)
    assert (first.repeated, again.repeated) == (False, True)
    assert {p.topic for p in first.positions} == {CLICKS}
    second = day.run(force=True, topics=compile_pattern(ORDERS), groups=nobody)
    assert not second.repeated
    with day.side() as side:
        wanted = {Subject.topic(CLICKS), Subject.topic(ORDERS)}
        assert side.holds.held.keys() == wanted
        cuts = side.handovers.cuts
        assert cuts[CLICKS].handover == first.handover.id
        assert cuts[ORDERS].handover == second.handover.id
        # Both are failed back together.
        reverse = configured(day.path, "B->A")
        with Failback(day.config, reverse, FailbackWish(), lambda _: None) as failback:
            plan = failback.plan()
        assert {p.source.topic for p in plan.parted} == {CLICKS, ORDERS}
        # If only they had the same names on B.
        assert [r.code for r in plan.refusals] == ["failback.renamed"]
        assert "A.clicks is a copy of clicks" in str(plan.refusals[0])
        parted = cuts[CLICKS].partitions[0]
    # Clients of B go on; then the rest of A is lost, and what B has of its own stays its own.
    p = TopicPartition(CLICKS, 0)
    own = build([Record(0, 1, None, b"B's own %d" % n) for n in range(3)])
    log.append(day.flow.target, TopicPartition("A.clicks", 0), own)
    day.flow.write(CLICKS, [b"%d" % n for n in range(20, 25)])
    whole = day.run(force=True, groups=nobody)
    assert not whole.repeated
    assert whole.positions[p][:2] == parted[:2]
    # A group that had read on A what was not mirrored has read nothing of B's own.
    day.groups.commit("further", {p: 23})
    starts = GroupStarts(day.config, day.flow.target, day.flow.source, groups=".*further").look()
    [found] = [
        s for group in starts.values() for at, s in group.starts.items() if at.partition == 0
    ]
    assert (found.offset, found.skips) == (parted.target, 0)
    with day.side() as side:
        side.holds.lift({*wanted, *(Subject.part(part) for part in PARTS)})


def test_a_failover_that_was_begun_goes_on_with_the_same_topics_only(day):
    begun = Handover("2", Kind.FAILOVER, "bob@ops", 0, facts={"pattern": None})
    with day.side() as side:
        begun = side.handovers.note(begun)
    refusal = day.refused(force=True, topics=compile_pattern(CLICKS))
    assert refusal.code == "handover.open"
    assert "the same 'heliograph failover without --topics' goes on with it" in refusal.hint
    with day.side() as side:
        side.handovers.end(begun, aborted=True)


def test_of_a_forgotten_flow_what_stands_before_the_records_of_others_is_its_own(day):
    p, client = TopicPartition("A.tail", 0), day.flow.target
    assert not admin.create_topics(client, [admin.NewTopic(p.topic, 1, 1, {})], 30_000)
    day.flow.await_topic(client, p.topic, 1)
    producer = Producer(
        {"bootstrap.servers": day.flow.lab["B"].bootstrap, "enable.idempotence": True}
    )
    for n in range(5):
        producer.produce(p.topic, b"%d" % n)
    assert producer.flush(60) == 0
    [state] = admin.describe_producers(client, client.metadata([p.topic]), [p])[p]
    log.append(client, p, build([Record(0, 1, None, b"others")]))
    producer.produce(p.topic, b"late")
    assert producer.flush(60) == 0
    assert own_ends(client, {p: 2}, state.producer_id) == {p: 5}
    assert own_ends(client, {p: 5}, state.producer_id) == {p: 5}


def test_b08_a_mirror_that_does_not_rest_stops_the_failover(day):
    """A claim of a process that lives and answers no hold: this one's."""
    claim = claim_of(day.config, "", 30.0)
    claim.begin()
    try:
        with (
            day.failing_over(force=True, patience_seconds=3.0) as failover,
            pytest.raises(HandoverFailed) as caught,
        ):
            failover.run()
        assert caught.value.code == "handover.mirror-lives"
        assert f"pid {os.getpid()}" in str(caught.value)
        assert "goes on from here" in caught.value.hint
        # Until it is through, nobody lets the flow go on by mistake.
        resume = ["resume", str(day.path), "--flow", "A->B", "--yes"]
        for more in ([], ["--dry-run"]):
            refused = CliRunner().invoke(cli, [*resume, *more]).exception
            assert isinstance(refused, HandoverRefused) and refused.code == "handover.open"
            assert "a failover of flow A->B, begun by me" in str(refused)
        with day.side() as side:
            assert Subject.part("copying") in side.holds.held
    finally:
        claim.end()


def test_the_bad_day_without_a_mirror(day):
    """The source is gone, and so is the mirror: what is known is in the ledger on the target."""
    with day.side() as side:
        # As a mirror notes it while it runs.
        beat = TopicPartition("heartbeats", 0)
        side.source_ends.note(LastSeen(1_700_000_000_000, {P0: 25, beat: 900}, True, 5, 1.5))
        wait_for(lambda: side.handovers.last is not None)
    # Consumers of B were further there than on A.
    remote = TopicPartition("A.orders", 0)
    day.groups.commit("billing", {remote: 9}, "B")
    day.flow.lab["A"].stop(grace_s=0)
    with day.groups.member("active", "A.orders", "B"):
        report = day.run(force=False)
    # It went on with the failover that could not stop a mirror.
    assert report.source.answers is False
    assert (report.risk.records, report.risk.seconds, report.risk.exact) == (5, 1.5, False)
    assert report.positions[P0][:2] == (20, 20)
    assert [s.step for s in day.told if s.phase == "done"][-4:] == [
        "stop",
        "cut",
        "groups",
        "unfence",
    ]
    moved = {g.removeprefix(day.groups.prefix): m for g, m in report.moved.items()}
    assert not moved["billing"].reason
    # What is ahead is kept, and named.
    assert day.groups.offsets("billing") == {"A.orders-0": 9, "A.orders-1": 7}
    assert moved["billing"].kept == {remote: (9, 7)}
    assert day.groups.offsets("late") == {"A.orders-0": 20, "A.orders-1": 20}
    assert "is in use on B" in moved["active"].reason
    assert list(report.left) == [day.groups.prefix + "active"]

    # B12: the group is not in use any more; the same command does what is missing, and no more.
    day.groups.commit("billing", {remote: 15}, "B")
    again = day.run()
    assert again.repeated and not again.left
    assert day.groups.offsets("active") == {"A.orders-0": 3, "A.orders-1": 3}
    assert day.groups.offsets("billing")["A.orders-0"] == 15

    # What the command prints, for people and for programs.
    plain = CliRunner().invoke(cli, ["failover", str(day.path), "--to", "B", "--yes", "--force"])
    assert plain.exit_code == 0, plain.output
    assert "5 records in 1 topic (1.5 s) as of 2023-11-14T22:13:20.000Z" in plain.output
    assert "orders-0" in plain.output and "the last mirrored one is at 19 on A" in plain.output
    assert "A.orders-0 at 9, 2 ahead" in plain.output
    assert "A->B rests until 'heliograph failback' or 'heliograph resume'" in plain.output
    told = CliRunner().invoke(
        cli, ["failover", str(day.path), "--to", "B", "--yes", "--force", "-o", "json"]
    )
    document = json.loads(told.stdout)
    assert document["rpo"]["records"] == 5 and document["rpo"]["exact"] is False
    assert document["handover"]["steps"] == list(STEPS)
    with day.side() as side:
        rehearsal = side.rehearsals.newest
        assert rehearsal is not None
        assert rehearsal.kind == "failover" and rehearsal.rpo_records == 5
        assert {s.name for s in side.holds.held} == {"copying", "checkpoints", "heartbeats"}
        assert "'heliograph failback' brings it back" in str(next(iter(side.holds.held.values())))

    # Whoever looks now, with a cluster away and no mirror to ask, reads what the ledger says.
    looked = CliRunner().invoke(cli, ["status", str(day.path), "-o", "json"])
    assert looked.exit_code in {1, 3}, looked.output
    [flow] = [f for f in json.loads(looked.stdout)["flows"] if f["flow"] == "A->B"]
    assert flow["life"]["state"] == "paused" and "failed over to B" in flow["life"]["reason"]
    assert flow["at_risk"]["records"] == 5
    assert flow["rto_seconds"] is None or flow["rto_seconds"] > 0
