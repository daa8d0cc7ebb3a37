"""A drill on real brokers: it changes nothing, proves the right starts and finds the wrong ones."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from driving import opened
from grouping import Groups
from mirroring import Mirroring, wait_for

from heliograph.batch.records import decode_batches
from heliograph.cli.drill import drill_command
from heliograph.config import FlowConfig, load
from heliograph.control.groups.starts import GroupStarts
from heliograph.failover import drill as drilling
from heliograph.failover.drill_copies import drill_running
from heliograph.ledger.codec import Entry
from heliograph.ledger.columns import Run
from heliograph.ledger.store import LedgerStore
from heliograph.model import TopicPartition
from heliograph.policy import DRILL_GROUPS
from heliograph.service.events import EventBus, FlowEvent
from heliograph.service.jobs import jobs_of
from heliograph.service.monitor import FlowMonitor
from heliograph.service.snapshot import CHECKPOINTS, FlowState, Life
from heliograph.wire import admin, configs, log
from heliograph.wire.groups import Committed, GroupClient

HOSTILE = "<script>alert(1)</script> \x1b[31m"


@dataclass(slots=True)
class Day:
    """A flow with names of its own, so that the clusters can be everybody's."""

    flow: Mirroring
    groups: Groups
    config: FlowConfig
    path: Path
    ledger: TopicPartition
    topics: list[str]

    def drill(self, *options: str) -> tuple[int, Any]:
        """The command as its users type it."""
        done = CliRunner().invoke(drill_command, [str(self.path), "-o", "json", *options])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, json.loads(done.stdout)

    def state(self) -> dict[str, Any]:
        """What a drill must not change, of both clusters."""
        found: dict[str, Any] = {}
        for client in (self.flow.source, self.flow.target):
            groups = GroupClient(client)
            names = [g for g in groups.list_groups().groups
                     if g.startswith((self.groups.prefix, DRILL_GROUPS))]  # fmt: skip
            metadata = client.metadata()
            described = configs.describe(client, self.topics)
            assert not described.failed
            partitions = [TopicPartition(t, n) for t in self.topics
                          for n in metadata.topics[t].partitions]  # fmt: skip
            found[client.alias] = (
                groups.committed(sorted(names)).found, described.found, sorted(metadata.topics),
                admin.list_offsets(client, metadata, partitions, admin.LATEST),
                admin.list_offsets(client, metadata, partitions, admin.EARLIEST),
            )  # fmt: skip
        return found

    def ledger_records(self) -> list[tuple[bytes, bytes | None]]:
        chunks = log.read_to_end(self.flow.target, self.ledger, 0)
        return [(r.key, r.value) for c in chunks for some in decode_batches(c) for r in some]


@pytest.fixture
def day(lab, tmp_path):
    unique = uuid.uuid4().hex[:6]
    alias, topics = f"x{unique}", [f"orders-{unique}", f"payments-{unique}", f"bad-{unique}"]
    ledger = f"mm2-ledger.{alias}.internal"
    flow = Mirroring.of(lab).but(ledger_topic=ledger)
    compacted = {"cleanup.policy": "compact"}
    assert not admin.create_topics(flow.target, [admin.NewTopic(ledger, 1, 1, compacted)], 30_000)
    flow.await_topic(flow.target, ledger, 1)
    groups = Groups(flow, *topics, identity=True)
    for topic in topics:
        for client in (flow.source, flow.target):
            groups.create(client, topic, 2)
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"""clusters = {alias}, B
{alias}.bootstrap.servers = {lab["A"].bootstrap}
B.bootstrap.servers = {lab["B"].bootstrap}
{alias}->B.enabled = true
{alias}->B.topics = .*-{unique}
{alias}->B.groups = {groups.prefix}.*
replication.policy.class = IdentityReplicationPolicy
emit.heartbeats.enabled = false
replication.factor = 1
checkpoints.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
"""
    )
    config = next(f for f in load(path).flows if f.enabled)
    yield Day(flow, groups, config, path, TopicPartition(ledger, 0), topics)
    groups.close()
    flow.close()


def write(flow, topic, partition, first, count):
    """Numbered records, each in a transaction of its own: source offsets grow by two."""
    producer = flow.producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(60)
    for n in range(first, first + count):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % n, b"k", partition, headers={"n": b"%d" % n})
        producer.commit_transaction(60)


def test_a_drill_proves_every_start_and_changes_nothing(day, tmp_path, monkeypatch):
    flow, groups, [orders, payments, _] = day.flow, day.groups, day.topics
    here = [TopicPartition(orders, n) for n in range(2)]
    for partition in range(2):
        write(flow, orders, partition, 0, 6)
        flow.write(payments, [b"p%d" % n for n in range(20)], partition)
    for topic in (orders, payments):
        groups.copy(topic)
    # Four records that are not mirrored yet; one group is behind them, one between them.
    write(flow, orders, 0, 6, 4)
    groups.commit("reads", {here[0]: 4, here[1]: 6, TopicPartition(payments, 1): 7})
    groups.commit("at-the-end", {here[1]: 12, here[0]: 12})
    groups.commit("beyond", {here[0]: 16})
    groups.commit(HOSTILE, {here[0]: 2})
    groups.commit("elsewhere", {here[0]: 2}, "B")
    # Somebody else's, a killed drill's, and one of a drill of another mirror.
    with drill_running() as killed:
        pass
    left = f"{DRILL_GROUPS}{killed}.left"
    other = {TopicPartition(orders, 0): Committed(3)}
    named = f"{DRILL_GROUPS}{groups.prefix}of-somebody"
    wait_for(lambda: not groups.target.commit({left: other, named: other}).errors)
    wait_for(lambda: not groups.source.commit({named: other}).errors)
    before, ledger = day.state(), day.ledger_records()
    page = tmp_path / "drill.html"

    code, said = day.drill("--html", str(page))

    assert code == 0, said["findings"]
    after = day.state()
    assert before["B"][0].pop(left) == other
    assert after == before
    [(key, _)] = day.ledger_records()[len(ledger) :]
    assert day.ledger_records()[: len(ledger)] == ledger
    assert key.startswith(b"rehearsal//")
    assert said["notes"] == ["1 group that earlier drills left was deleted"]
    found = {g["group"].removeprefix(groups.prefix): g for g in said["groups"]}
    assert found.keys() == {"reads", "at-the-end", "beyond", HOSTILE}
    told = {
        (name, p["partition"]): (p["offset"], p["outcome"])
        for name, g in found.items() for p in g["proofs"]
    }  # fmt: skip
    assert told == {
        ("reads", f"{orders}-0"): (2, "same record"),
        ("reads", f"{orders}-1"): (3, "same record"),
        ("reads", f"{payments}-1"): (7, "same record"),
        ("at-the-end", f"{orders}-0"): (6, "not mirrored yet"),
        ("at-the-end", f"{orders}-1"): (6, "at both ends"),
        ("beyond", f"{orders}-0"): (6, "not mirrored yet"),
        (HOSTILE, f"{orders}-0"): (1, "same record"),
    }
    assert said["copied"] == said["starts"] == 7
    # Markers are offsets of the source, too.
    assert (said["rpo"]["records"], said["rpo"]["exact"]) == (8, True)
    assert said["records_read"] > 7
    assert said["rto_seconds"] == pytest.approx(sum(p["seconds"] for p in said["rto"]), abs=0.01)
    assert [p["part"] for p in said["rto"] if not p["measured"]] == [
        "giving up a source that does not answer", "letting the mirror end what it can",
        "stopping the mirrors",
    ]  # fmt: skip
    html = page.read_text()
    assert "<script" not in html and "\x1b" not in html
    assert "&lt;script&gt;" in html

    # Ctrl-C, and a target that goes away in the middle: the copies are deleted all the same.
    def interrupted(*_args, **_options):
        assert [g for g in day.state()["B"][0] if g.startswith(DRILL_GROUPS) and g != named]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(drilling, "read_at", interrupted)
        assert CliRunner().invoke(drill_command, [str(day.path)]).exit_code == 1
    assert day.state() == after

    code, history = day.drill("--history")
    assert code == 0
    [one] = history
    assert (one["kind"], one["ok"], one["groups"], one["rpo_records"]) == ("drill", True, 4, 8)
    assert one["rto_seconds"] == said["rto_seconds"]


def test_a_drill_finds_wrong_starts(day):
    flow, groups, [orders, payments, bad] = day.flow, day.groups, day.topics
    for topic in day.topics:
        flow.write(topic, [b"%d" % n for n in range(20)])
        groups.copy(topic)
    groups.commit("moved", {TopicPartition(bad, 0): 8})
    groups.commit("deleted", {TopicPartition(payments, 0): 5})
    groups.commit("ahead", {TopicPartition(orders, 0): 4})
    groups.commit("ahead", {TopicPartition(orders, 0): 9}, "B")
    groups.commit("fine", {TopicPartition(orders, 0): 4})
    # The ledger is off by one, records are deleted on the target, somebody commits there.
    store = LedgerStore(flow.target, day.ledger.topic)
    store.refresh()
    [place] = [p for p in store.begun() if p.topic == bad and p.partition == 0]
    [run] = store.at(place).runs
    store.write([Entry(place, [Run(run.sequence, run.source, run.target + 1)], shift=True)])
    flow.trim(flow.target, TopicPartition(payments, 0), 10)
    # A topic that the mirror has not begun.
    late = orders.replace("orders", "late")
    groups.create(flow.source, late, 2)
    flow.write(late, [b"0"])
    before = day.state()

    code, said = day.drill("--sample", "10")

    assert code == 1
    assert day.state() == before
    texts = {f["code"]: f["message"].replace(groups.prefix, "") for f in said["findings"]}
    assert texts == {
        "drill.wrong-start": f"group moved at {bad}-0: the record at 9 is not the source's record"
        " at 8: key (from byte 1), value (from byte 0), timestamp (1700000000008 ->"
        " 1700000000009)",
        "drill.skips": f"group deleted would skip 5 at {payments}-0: a gap of 5 offsets from its"
        " place on: deleted",
        "drill.not-mirrored": f"nothing of {late}-0 is on B yet",
        "drill.group-ahead": f"group ahead is ahead on B by 5 at {orders}-0: it would stay there"
        " and skip these",
    }
    assert said["verdict"].startswith("not ready: ")
    fine = next(g for g in said["groups"] if g["group"].endswith("fine"))
    assert [p["outcome"] for p in fine["proofs"]] == ["same record"]
    # Chosen ones only, for people; and the history has both.
    chosen = ["--groups", ".*fine", "--topics", orders]
    done = CliRunner().invoke(drill_command, [str(day.path), "--to", "B", *chosen])
    assert done.exit_code == 0, done.output
    assert "1 start looked at: 1 same record" in done.stdout
    code, history = day.drill("--history")
    assert [(h["ok"], h["groups"]) for h in history] == [(True, 1), (False, 4)]
    told = CliRunner().invoke(drill_command, [str(day.path), "--history"]).stdout
    assert [re.search(r" drill +(ok|not ok) ", line)[1] for line in told.splitlines()[1:]] == [
        "ok", "not ok",
    ]  # fmt: skip
    # Copies are nobody's groups: neither by the file's filter nor by an expression.
    copy = f"{DRILL_GROUPS}{groups.prefix}x"
    answer = {copy: {TopicPartition(orders, 0): Committed(3)}}
    wait_for(lambda: not groups.source.commit(answer).errors)
    starts = GroupStarts(day.config, flow.target, flow.source, groups=f".*{groups.prefix}.*")
    assert {g.removeprefix(groups.prefix) for g in starts.look()} == {
        "moved", "deleted", "ahead", "fine"
    }  # fmt: skip


def test_a_mirror_drills_on_its_schedule(day, tmp_path):
    flow, groups, [orders, *_] = day.flow, day.groups, day.topics
    flow.write(orders, [b"%d" % n for n in range(20)])
    groups.copy(orders)
    groups.commit("fine", {TopicPartition(orders, 0): 4})
    folder = tmp_path / "drills"
    folder.mkdir()
    with day.path.open("a") as file:
        file.write(
            f"heliograph.drill.interval.seconds = 3600\nheliograph.drill.report = {folder}\n"
        )
    runtime = opened(next(f for f in load(day.path).flows if f.enabled))
    try:
        bus = EventBus()
        monitor = FlowMonitor(runtime, bus)
        [job] = [j for j in jobs_of(CHECKPOINTS, runtime, monitor)
                 if j.description.startswith("rehearsing a failover")]  # fmt: skip
        for _ in range(2):
            job.run()
        assert job.details is not None
        [told] = job.details().values()
        shown = monitor.snapshot(Life(FlowState.RUNNING), {})
    finally:
        runtime.close()
    _, history = day.drill("--history")
    [event] = [p.event for p in bus.history() if isinstance(p.event, FlowEvent)]
    [drill] = history  # the second run has found that none was due
    assert (event.code, event.text, event.part) == ("flow.drill", drill["text"], CHECKPOINTS)
    assert told.endswith(drill["text"])
    assert drill["by"].endswith("on its schedule")
    assert (shown.rehearsal_ok, shown.rto_seconds) == (True, drill["rto_seconds"])
    [page] = folder.iterdir()
    assert "1 same record" in page.read_text()
