"""Flows have lives of their own: started, paused, changed and stopped alone.

All of the driver but Spark: leases are held by plain processes.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assignment
from driving import PlainEngine
from grouping import await_groups
from mirroring import settings, wait_for

from heliograph.cli import cli
from heliograph.cli.serving import serve_flows
from heliograph.config import MirrorMakerConfig
from heliograph.config.properties import dump
from heliograph.connect.loggers import Loggers
from heliograph.errors import StartError
from heliograph.failover.failover import STEPS, Failover, FailoverWish
from heliograph.failover.target_side import TargetSide
from heliograph.lab.proof import read_all
from heliograph.ledger.handovers import Handover, Kind
from heliograph.model import TopicPartition
from heliograph.service import mirror as service
from heliograph.service.snapshot import CHECKPOINTS, COPYING, HEARTBEATS, FlowState
from heliograph.service.supervisor import FlowSupervisor
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.groups import GroupClient

FIRST, SECOND, AWAY = "A1->B", "A2->B", "A3->B"
EXAMPLE = Path(__file__).parents[2] / "docs/examples/embedding.py"


class Flows:
    """Flows from A, under several aliases, to B; each with topics of its own."""

    def __init__(self, lab, mirroring, stem):
        self._lab, self._mirroring, self._stem = lab, mirroring, stem
        self.mirror: service.Mirror | None = None
        self._aliases: set[str] = set()

    def config(self, *aliases: str, **keys: str) -> MirrorMakerConfig:
        self._aliases.update(aliases)
        values = {
            "clusters": f"B, {', '.join(aliases)}",
            "B.bootstrap.servers": self._lab["B"].bootstrap,
            "heartbeats.replication.enabled": "false",
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "refresh.topics.interval.seconds": "1",
            "heliograph.lease.seconds": "5",
        }
        for alias in aliases:
            values[f"{alias}.bootstrap.servers"] = self._lab["A"].bootstrap
            values[f"{alias}->B.enabled"] = "true"
            values[f"{alias}->B.topics"] = f"{self._stem}-{alias}.*"
        return MirrorMakerConfig.from_mapping(values | keys)

    def start(self, *aliases: str, **keys: str) -> service.Mirror:
        self.mirror = service.Mirror(self.config(*aliases, **keys))
        self.mirror.start()
        return self.mirror

    def create(self, alias: str, more: str = "") -> str:
        name = f"{self._stem}-{alias}{more}"
        self._mirroring.create(name)
        return name

    def write(self, topic: str, *values: bytes) -> None:
        self._mirroring.write(topic, values)

    def mirrored(self, alias: str, topic: str) -> list[bytes | None]:
        remote = f"{alias}.{topic}"
        if remote not in self._mirroring.target.metadata([remote]).topics:
            return []
        return [r.value for r in read(self._mirroring.target, remote)]

    def await_values(self, alias: str, topic: str, *values: bytes) -> None:
        wait_for(lambda: self.mirrored(alias, topic) == list(values))

    def file(self, folder: Path, *aliases: str) -> str:
        """The configuration as a file, for commands."""
        entries = self.config(*aliases).entries
        path = folder / "mm2.properties"
        path.write_text(dump({key: entry.value for key, entry in entries.items()}))
        return str(path)

    def reason_of(self, flow: str, topic: str) -> str:
        """Why the only partition of a topic waits."""
        [reason] = [
            p.reason for p in self.mirror.snapshot().flow(flow).partitions if p.topic == topic
        ]
        return reason

    def life(self, flow: str, part: str | None = None):
        found = self.mirror.snapshot().flow(flow)
        return found.life if part is None else found.parts[part]

    def state(self, flow: str, part: str | None = None) -> FlowState:
        return self.life(flow, part).state

    def commit(self, group: str, topic: str, offset: int, cluster: str = "A") -> None:
        """As a consumer does that assigns partitions to itself."""
        bootstrap = self._lab[cluster].bootstrap
        with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": group})) as consumer:
            consumer.commit(offsets=[Assignment(topic, 0, offset)], asynchronous=False)


def read(client, topic):
    return read_all(client, TopicPartition(topic, 0))


@pytest.fixture
def flows(lab, mirroring, topic_name, monkeypatch):
    monkeypatch.setattr(service, "Engine", PlainEngine)
    made = Flows(lab, mirroring, topic_name)
    yield made
    if made.mirror is not None:
        made.mirror.close()
    with ClusterClient(settings(lab, "B"), "t") as target:
        # Other tests see all ledgers of the target cluster.
        for alias in made._aliases:
            mirroring.delete(target, f"mm2-ledger.{alias}.internal")


def _await_counted(mirror, flow, partition, records):
    """What /metrics is made of: counted by tasks, as the partition and as the flow."""

    def counted():
        found = mirror.snapshot().flow(flow)
        copies = found.copies.get(partition)
        return copies is not None and found if found.counts.records >= records else None

    found = wait_for(counted)
    assert found.copies[partition].counts.records == records
    assert found.copies[partition].latency.greatest > 0
    assert found.owns
    wait_for(lambda: mirror.snapshot().flow(flow).progressed_at)
    wait_for(lambda: mirror.snapshot().flow(flow).ledger_end)


def test_a_flow_is_paused_resumed_and_restarted_and_the_other_does_not_notice(flows):
    one, two = flows.create("A1"), flows.create("A2")
    mirror = flows.start("A1", "A2")
    flows.write(one, b"1")
    flows.write(two, b"1")
    flows.await_values("A1", one, b"1")
    flows.await_values("A2", two, b"1")
    supervisor = mirror.supervisor(FIRST)
    supervisor.pause(COPYING, why="paused by x: B is moved")
    supervisor.pause(COPYING, why="paused again")
    wait_for(lambda: flows.state(FIRST, COPYING) is FlowState.PAUSED)
    # The first reason stays.
    assert mirror.snapshot().flow(FIRST).parts[COPYING].reason == "paused by x: B is moved"
    assert flows.state(FIRST, HEARTBEATS) is FlowState.RUNNING
    assert flows.state(FIRST, CHECKPOINTS) is FlowState.RUNNING
    flows.write(one, b"2")
    flows.write(two, b"2")
    flows.await_values("A2", two, b"1", b"2")
    assert flows.mirrored("A1", one) == [b"1"]
    _await_counted(mirror, SECOND, TopicPartition(two, 0), records=2)
    # What is paused is measured on.
    wait_for(lambda: mirror.snapshot().flow(FIRST).lag_records == 1)
    supervisor.resume(COPYING)
    flows.await_values("A1", one, b"1", b"2")
    supervisor.restart()
    supervisor.restart(COPYING)
    flows.write(one, b"3")
    flows.await_values("A1", one, b"1", b"2", b"3")
    assert flows.state(SECOND) is FlowState.RUNNING
    changes = [p.event.code for p in mirror.events.history() if p.event.flow == SECOND]
    assert not {"flow.paused", "flow.restarted", "flow.failed"} & set(changes)


def test_a_topic_is_paused_and_the_others_of_its_flow_go_on(flows):
    one, other = flows.create("A1"), flows.create("A1", "-other")
    mirror = flows.start("A1")
    flows.write(one, b"1")
    flows.write(other, b"1")
    flows.await_values("A1", one, b"1")
    flows.await_values("A1", other, b"1")
    supervisor = mirror.supervisor(FIRST)

    supervisor.pause_topics(one, why="paused by x")
    wait_for(lambda: flows.reason_of(FIRST, one) == "its topic is paused by x")
    assert mirror.snapshot().flow(FIRST).paused_topics == {one: "paused by x"}
    flows.write(one, b"2")
    flows.write(other, b"2")
    flows.await_values("A1", other, b"1", b"2")
    assert flows.mirrored("A1", one) == [b"1"]
    supervisor.resume_topics(one)
    flows.await_values("A1", one, b"1", b"2")


def test_a_cluster_that_is_down_holds_back_its_own_flow_only(flows):
    one = flows.create("A1")
    keys = {"A3.bootstrap.servers": "127.0.0.1:1"}
    mirror = flows.start("A1", "A3", **keys)
    flows.write(one, b"1")
    flows.await_values("A1", one, b"1")
    life = flows.life(AWAY, COPYING)
    assert (life.state, life.code) == (FlowState.FAILED, "cluster.unreachable")
    assert life.next_try > life.since
    # Its target is there, so that heartbeats say that the mirror is alive.
    assert flows.state(AWAY, HEARTBEATS) is FlowState.RUNNING
    three = flows.create("A3")
    flows.write(three, b"1")
    mirror.reconfigure(flows.config("A1", "A3"))
    flows.await_values("A3", three, b"1")
    wait_for(lambda: flows.state(AWAY) is FlowState.RUNNING)


def test_a_file_of_which_nothing_can_start_is_an_error(flows):
    keys = {"A3.bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(StartError, match=r"cluster\.unreachable"):
        flows.start("A3", **keys)


def test_a_changed_configuration_is_taken_over(flows):
    one, more, two = flows.create("A1"), flows.create("A1", "-more"), flows.create("A2")
    only = {"A1->B.topics": one}
    mirror = flows.start("A1", **only)
    for topic in (one, more, two):
        flows.write(topic, b"1")
    flows.await_values("A1", one, b"1")
    assert mirror.reconfigure(flows.config("A1", **only)) == []
    # A topic more, which disturbs nobody, and another flow.
    assert sorted(mirror.reconfigure(flows.config("A1", "A2"))) == [
        "A1->A2: new; it is started", "A1->B: changed topics", "A2->A1: new; it is started",
        "A2->B: new; it is started", "B->A2: new; it is started",
    ]  # fmt: skip
    flows.await_values("A1", more, b"1")
    flows.await_values("A2", two, b"1")
    # A topic less: what is written to it stays where it is.
    other = {"A1->B.topics": more}

    def taken_over():
        """How often the flow has gone on with another configuration, its old leases ended."""
        events = [p.event for p in mirror.events.history()]
        return sum(e.code == "flow.reconfigured" and e.flow == FIRST for e in events)

    wait_for(lambda: taken_over() == 1)
    mirror.reconfigure(flows.config("A1", "A2", **other))
    wait_for(lambda: taken_over() == 2)
    wait_for(lambda: [t.topic for t in mirror.snapshot().flow(FIRST).topics] == [more])
    flows.write(one, b"2")
    flows.write(more, b"2")
    flows.await_values("A1", more, b"1", b"2")
    assert flows.mirrored("A1", one) == [b"1"]
    # Everything back; the flow that is gone has ended.
    mirror.reconfigure(flows.config("A1"))
    flows.await_values("A1", one, b"1", b"2")
    assert mirror.snapshot().flow(SECOND) is None


@pytest.mark.full
def test_several_flows_share_a_pair_of_clusters_with_topics_of_their_own(flows):
    one, two = flows.create("A1", "-one"), flows.create("A1", "-two")
    mirror = flows.start("A1", **{"A1->B.topics": one})
    config = flows.config("A1", **{"A1->B.topics": two})
    [flow] = [f for f in config.flows if str(f.flow) == FIRST]
    team = FlowSupervisor(flow, mirror._services, name="team, two")
    mirror._supervisors[team.name] = team
    team.start()
    for topic in (one, two):
        flows.write(topic, b"1")
    flows.await_values("A1", one, b"1")
    flows.await_values("A1", two, b"1")
    wait_for(lambda: flows.state("team, two", COPYING) is FlowState.RUNNING)
    assert flows.state(FIRST) is FlowState.RUNNING
    team.pause()
    wait_for(lambda: flows.state("team, two") is FlowState.PAUSED)
    flows.write(one, b"2")
    flows.await_values("A1", one, b"1", b"2")


@pytest.mark.full
def test_the_example_of_an_embedded_mirror(lab, mirroring, topic_name, tmp_path):
    """With Spark, as people run it."""
    mirroring.create(topic_name)
    mirroring.write(topic_name, [b"1", b"2", b"3"])
    path = tmp_path / "mm2.properties"
    values = {
        "clusters": "E, B",
        "E.bootstrap.servers": lab["A"].bootstrap,
        "B.bootstrap.servers": lab["B"].bootstrap,
        "E->B.enabled": "true",
        "E->B.topics": topic_name,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
    }
    path.write_text("\n".join(f"{key} = {value}" for key, value in values.items()))
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("records behind: 0\nin step\n")
    assert [r.value for r in read(mirroring.target, f"E.{topic_name}")] == [b"1", b"2", b"3"]


def command(*args: str, code: int = 0) -> dict:
    done = CliRunner().invoke(cli, [*args, "-o", "json"])
    assert done.exit_code == code, (done.output, done.exception)
    return json.loads(done.stdout)


def events_of(file: str, *options: str) -> list[dict]:
    done = CliRunner().invoke(cli, ["events", file, "--level", "debug", *options, "-o", "json"])
    assert done.exit_code == 0, (done.output, done.exception)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_is_paused_through_kafka_rests_for_every_mirror_until_it_is_resumed(flows, tmp_path):
    one, other = flows.create("A1"), flows.create("A1", "-other")
    flows.start("A1")
    flows.write(one, b"1")
    flows.await_values("A1", one, b"1")
    file = flows.file(tmp_path, "A1")
    pause = ("pause", file, "--flow", FIRST, "--part", COPYING, "--why", "B is moved", "--yes")
    assert command(*pause, "--dry-run")["dry_run"]
    assert command(*pause)["through"] == "kafka"
    wait_for(lambda: flows.state(FIRST, COPYING) is FlowState.PAUSED)
    reason = flows.life(FIRST, COPYING).reason
    assert reason.startswith("paused by ")
    assert reason.endswith(", through Kafka: B is moved")
    assert flows.state(FIRST, HEARTBEATS) is FlowState.RUNNING
    assert "already" in command(*pause)["said"]
    # A mirror that comes later stays out, too; it measures, and so does a command.
    flows.mirror.close()
    flows.write(one, b"2")
    status = command("status", file, code=3)
    assert status["mirror"]["from"] == "kafka"
    assert not status["running"]
    [flow] = status["flows"]
    assert flow["owner"] is None
    assert flow["lag_records"] == 1
    top = command("top", file)
    assert top["mirror"]["from"] == "kafka"
    assert [(row["flow"], row["lag_records"]) for row in top["flows"]] == [(FIRST, 1)]
    rows = command("top", file, "--flow", FIRST, "--topic", one)["partitions"]
    assert [(row["lag_records"], row["state"]) for row in rows] == [(1, "waiting")]
    told = events_of(file)
    assert [e["code"] for e in told] == [
        "flow.starting",
        "flow.running",
        "flow.paused",
        "flow.stopped",
    ]
    assert f"process {os.getpid()} on " in told[1]["line"]
    assert told[2]["part"] == COPYING and told[2]["line"].endswith("through Kafka: B is moved")
    assert [e["at"] for e in told] == sorted(e["at"] for e in told)
    flows.start("A1")
    wait_for(lambda: flows.mirror.snapshot().flow(FIRST).lag_records == 1)
    assert flows.life(FIRST, COPYING).reason == reason
    assert flows.mirrored("A1", one) == [b"1"]
    status = command("status", file, code=1)
    [flow] = status["flows"]
    assert flow["owner"]["pid"] == os.getpid()
    assert flow["parts"][COPYING]["reason"] == reason
    # Once it is resumed, every record is there once.
    resume = ("resume", file, "--flow", FIRST, "--yes")
    assert command(*resume)["said"] == "all mirrors of the flow go on"
    flows.await_values("A1", one, b"1", b"2")
    wait_for(lambda: flows.state(FIRST, COPYING) is FlowState.RUNNING)
    # A topic rests alone; the mirror's own resume lifts what was held through Kafka.
    assert command("pause", file, "--flow", FIRST, "--topic", one, "--yes")["topics"] == [one]
    wait_for(lambda: flows.reason_of(FIRST, one).startswith("its topic is paused by "))
    flows.write(one, b"3")
    flows.write(other, b"1")
    flows.await_values("A1", other, b"1")
    assert flows.mirrored("A1", one) == [b"1", b"2"]
    flows.mirror.supervisor(FIRST).resume_topics(one)
    flows.await_values("A1", one, b"1", b"2", b"3")
    assert command("resume", file, "--flow", FIRST, "--topic", one, "--yes")["said"] == (
        "nothing of it was paused through Kafka"
    )
    assert flows.mirrored("A1", other) == [b"1"]
    codes = [e["code"] for e in events_of(file, "--after", "3", "--level", "info")]
    assert codes == [
        "flow.stopped", "flow.running", "flow.resumed", "flow.topic-paused", "flow.topic-resumed"
    ]  # fmt: skip


def test_a_file_leads_to_the_rest_api_of_the_mirror_and_all_obey_what_is_held(flows, tmp_path):
    one = flows.create("A1")
    config = flows.config("A1", **{"heliograph.rest.changes": "true"})
    file = flows.file(tmp_path, "A1")
    flows.mirror = first = service.Mirror(config)
    server = serve_flows(config, "127.0.0.1:0", first, Loggers(first))
    server.start()
    second = service.Mirror(flows.config("A1"))
    try:
        first.rest = server.reached_at()
        first.start()
        flows.write(one, b"1")
        flows.await_values("A1", one, b"1")
        wait_for(lambda: CliRunner().invoke(cli, ["status", file]).exit_code == 0)
        status = command("status", file)
        assert status["mirror"] == {"from": "mirror", "url": first.rest[0], "note": ""}
        about = (file, "--flow", FIRST, "--part", COPYING, "--yes")
        assert command("pause", *about)["through"] == "rest"
        wait_for(lambda: flows.state(FIRST, COPYING) is FlowState.PAUSED)
        told = CliRunner().invoke(cli, ["events", file, "-o", "json"]).stdout.splitlines()
        assert "flow.paused" in {json.loads(line)["code"] for line in told}
        assert command("resume", *about)["through"] == "rest"
        wait_for(lambda: flows.state(FIRST, COPYING) is FlowState.RUNNING)
        second.start()
        wait_for(lambda: second.snapshot().flow(FIRST).life.state is FlowState.STANDING_BY)
        # Once the API is gone, Kafka is asked, and all mirrors obey what is written there.
        server.close()
        assert command("pause", *about, "--why", "B is moved")["through"] == "kafka"
        for mirror in (first, second):
            wait_for(lambda: "B is moved" in mirror.snapshot().flow(FIRST).parts[COPYING].reason)  # noqa: B023
        first.close()
        flows.mirror = second
        flows.write(one, b"2")
        wait_for(lambda: second.snapshot().flow(FIRST).lag_records == 1)
        wait_for(lambda: flows.state(FIRST, CHECKPOINTS) is FlowState.RUNNING)
        assert flows.state(FIRST, COPYING) is FlowState.PAUSED
        assert flows.mirrored("A1", one) == [b"1"]
        assert command("resume", *about)["through"] == "kafka"
        flows.await_values("A1", one, b"1", b"2")
    finally:
        server.close()
        first.close()
        second.close()


def test_a_failover_over_rest_stops_the_mirror_that_carries_it_out_and_moves_groups(
    flows, mirroring, topic_name
):
    topic = flows.create("A1")
    remote = f"A1.{topic}"
    flows.write(topic, b"1", b"2", b"3")
    for client in (mirroring.source, mirroring.target):
        await_groups(GroupClient(client), topic_name)
    flows.commit(topic_name, topic, 2)
    keys = {"groups": topic_name, "heliograph.rest.changes": "true"}
    mirror = flows.start("A1", **keys)
    flows.await_values("A1", topic, b"1", b"2", b"3")
    wait_for(lambda: [g.group for g in mirror.snapshot().flow(FIRST).groups] == [topic_name])
    server = serve_flows(flows.config("A1", **keys), "127.0.0.1:0", mirror, Loggers(mirror))
    server.start()
    port = server.addresses[0].port

    def ask(method, what, **body):
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
            connection.request(
                method, f"/heliograph/v1/flows/{quote(FIRST)}/{what}",
                json.dumps(body) if body else None,
                {"Content-Type": "application/json"} if body else {},
            )  # fmt: skip
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def done():
        _, found = ask("GET", "handover")
        return found["run"]["ended"] and found

    try:
        assert ask("GET", "handover")[1]["handover"] is None
        status, plan = ask("GET", "failover")
        assert (status, plan["topics"], plan["at_risk"]["records"]) == (200, [topic], 0), plan
        assert [r["code"] for r in plan["refusals"]] == ["failover.source-healthy"]
        assert [(g["group"], g["reason"]) for g in plan["groups"]] == [(topic_name, "")]
        status, refused = ask("POST", "failover", confirm=FIRST)
        assert (status, "nothing has to be lost" in refused["message"]) == (409, True), refused
        assert flows.state(FIRST, COPYING) is FlowState.RUNNING
        status, begun = ask("POST", "failover", confirm=FIRST, force=True)
        assert status == 202, begun
        wait_for(done)
        run, noted = done()["run"], done()["handover"]
        assert run["error"] is None, run
        assert noted["steps"] == list(STEPS)
        assert noted["ended"] is not None
        # Its own mirror said that it rests, and does.
        said = {p["step"]: p["text"] for p in run["progress"] if p["phase"] == "done"}
        assert str(os.getpid()) in said["stop"], said
        wait_for(lambda: "failed over to B" in flows.life(FIRST, COPYING).reason)
        assert flows.state(FIRST) is FlowState.PAUSED
        [group] = run["report"]["groups"]
        assert (group["moved"], group["offsets"]) == (True, {f"{remote}-0": 2})
        flows.write(topic, b"4")
        wait_for(lambda: mirror.snapshot().flow(FIRST).lag_records == 1)
        assert flows.mirrored("A1", topic) == [b"1", b"2", b"3"]
        assert [r["kind"] for r in done()["rehearsals"]] == ["failover"]
        # Its source takes writes on: that is told.
        wait_for(lambda: mirror.snapshot().flow(FIRST).diverged_records == 1)
        assert mirror.snapshot().flow(FIRST).events["flow.diverged"] == 1
        # While somebody hands it over it is not resumed; when that is through it may be.
        [config] = [f for f in flows.config("A1", **keys).flows if str(f.flow) == FIRST]
        with TargetSide(config) as side:
            side.open()
            begun = side.handovers.note(Handover("1", Kind.FAILBACK, "bob", 1))
            _, refused = wait_for(lambda: (a := ask("POST", "resume"))[0] == 409 and a)
            assert "a failback of flow A1->B, begun by bob" in refused["message"]
            side.handovers.end(begun)
        wait_for(lambda: ask("POST", "resume")[0] == 202)
        flows.await_values("A1", topic, b"1", b"2", b"3", b"4")
    finally:
        server.close()


def test_b09_a_second_mirror_elsewhere_rests_too_and_takes_nothing_over(flows):
    topic = flows.create("A1")
    first = flows.start("A1")
    second = service.Mirror(flows.config("A1"))
    try:
        flows.write(topic, b"1")
        flows.await_values("A1", topic, b"1")
        second.start()
        wait_for(lambda: second.snapshot().flow(FIRST).life.state is FlowState.STANDING_BY)
        [config] = [f for f in flows.config("A1").flows if str(f.flow) == FIRST]
        wish = FailoverWish(force=True, drain_seconds=0.0, by="me")
        with Failover(config, wish, lambda _: None) as failover:
            assert failover.run().handover.steps == STEPS
        wait_for(lambda: "failed over" in second.snapshot().flow(FIRST).parts[COPYING].reason)
        # Whoever could take the flow over knows that it rests.
        first.close()
        flows.mirror = second
        flows.write(topic, b"2")
        wait_for(lambda: second.snapshot().flow(FIRST).owns)
        wait_for(lambda: second.snapshot().flow(FIRST).diverged_records == 1)
        assert flows.state(FIRST, COPYING) is FlowState.PAUSED
        assert flows.mirrored("A1", topic) == [b"1"]
    finally:
        second.close()


@pytest.mark.full
def test_a_restart_through_kafka_is_carried_out_once(flows, tmp_path):
    one = flows.create("A1")
    mirror = flows.start("A1")
    flows.write(one, b"1")
    flows.await_values("A1", one, b"1")
    restart = ("restart", flows.file(tmp_path, "A1"), "--flow", FIRST, "--yes")
    for times in (1, 2):
        wait_for(lambda: flows.state(FIRST) is FlowState.RUNNING)
        assert command(*restart)["through"] == "kafka"
        wait_for(lambda: mirror.snapshot().flow(FIRST).events.get("flow.restarted") == times)  # noqa: B023
        wait_for(lambda: flows.state(FIRST) is FlowState.RUNNING)
    flows.write(one, b"2")
    flows.await_values("A1", one, b"1", b"2")
    assert mirror.snapshot().flow(FIRST).events["flow.restarted"] == 2
    # What is wrong is refused before anything is written.
    unknown = CliRunner().invoke(
        cli, ["pause", restart[1], "--flow", FIRST, "--topic", "no", "--yes"]
    )
    assert getattr(unknown.exception, "code", "") == "topic.unknown"
    refused = CliRunner().invoke(cli, [*restart[:4]]).exception
    assert getattr(refused, "code", "") == "command.unconfirmed"


@contextmanager
def served(config, mirror):
    """As ``run --listen`` serves it: asks for JSON below /heliograph/v1."""
    server = serve_flows(config, "127.0.0.1:0", mirror, Loggers(mirror))
    server.start()
    address = ("127.0.0.1", server.addresses[0].port)

    def get(path):
        with closing(http.client.HTTPConnection(*address, timeout=60)) as connection:
            connection.request("GET", f"/heliograph/v1{path}")
            answer = connection.getresponse()
            if answer.headers["Content-Type"].startswith("text/event-stream"):
                lines = (answer.fp.readline().decode().strip() for _ in range(1000))
                next(x for x in lines if x == "event: flows")
                return json.loads(next(lines).removeprefix("data: "))
            assert answer.status == 200, answer.read()
            return json.loads(answer.read())

    try:
        yield get
    finally:
        server.close()


def test_over_rest_groups_say_whether_they_could_move_and_where_they_are_on_both_sides(
    flows, mirroring, topic_name
):
    topic = flows.create("A1")
    remote = f"A1.{topic}"
    failed = admin.create_topics(mirroring.target, [admin.NewTopic(remote, 1, 1, {})], 30_000)
    assert not failed
    mirroring.await_topic(mirroring.target, remote, 1)
    # So that offsets are not the source's.
    producer = mirroring.producer("B")
    for _ in range(3):
        producer.produce(remote, b"somebody else's", partition=0)
    producer.flush()
    flows.write(topic, *(b"%d" % n for n in range(10)))
    for client in (mirroring.source, mirroring.target):
        await_groups(GroupClient(client), topic_name)
    hostile, ahead, past = (f"{topic_name}{x}" for x in ("<img src=x>&? ", "-ahead", "-past"))
    flows.commit(hostile, topic, 4)
    flows.commit(ahead, topic, 4)
    flows.commit(ahead, remote, 9, "B")
    flows.commit(past, topic, 10)
    keys = {
        "groups": f"{topic_name}.*", "sync.group.offsets.enabled": "true",
        "heliograph.on.unknown.target": "append",
    }  # fmt: skip
    mirror = flows.start("A1", **keys)

    def rows():
        found = get(f"/groups?flow={quote(FIRST)}&group={quote(topic_name)}")
        return {row["group"]: (row["ready"], row["why"], row["partitions"], row["lag"])
                for row in found["groups"]}  # fmt: skip

    with served(flows.config("A1", **keys), mirror) as get:
        why = (
            f"{remote}-0 is committed 2 ahead on B: going on there skips what it has not read on A1"
        )
        wanted = {
            hostile: (True, "", 1, 6), ahead: (False, why, 1, 6), past: (True, "", 1, 0),
        }  # fmt: skip
        wait_for(lambda: rows() == wanted)
        asked = f"/group?flow={quote(FIRST)}&group="
        one = get(asked + quote(hostile))
        assert (one["flow"], one["group"], one["ready"]) == (FIRST, hostile, True)
        assert one["said"][f"emitting checkpoints for {FIRST}"] == "1 partition, up to date"
        both = {"topic": topic, "partition": 0, "target_topic": remote, "source_committed": 4,
                "source_end": 10, "translated": 7, "target_committed": 7,
                "target_end": 13}  # fmt: skip
        assert one["partitions"] == [both]
        assert get(asked + quote(ahead))["partitions"] == [both | {"target_committed": 9}]
        # What else the dashboard asks, of a mirror that runs.
        assert get("/me") | {"version": ""} == {
            "name": "", "role": "admin", "changes": False, "version": "", "logins": [],
        }  # fmt: skip
        streamed = {flow["flow"]: flow for flow in get("/flows/stream")}
        assert (streamed[FIRST]["lag_records"], streamed[FIRST]["partitions"]) == (0, 1)
        # The first points may be from before the first measurement.
        history = f"/history?flow={quote(FIRST)}"
        wait_for(lambda: any(p[1] is not None for p in get(history)["flows"][FIRST]["points"]))
        values = {k["key"]: k for k in get(f"/config?flow={quote(FIRST)}")["flows"][0]["keys"]}
        assert values["topics"]["value"] == f"{topic_name}-A1.*"
        assert not values["topics"]["is_default"]
        # Nobody looks at them now, and they go on.
        mirror.supervisor(FIRST).pause(CHECKPOINTS)
        wait_for(lambda: rows()[past][:2] == (None, "checkpoints are paused"))
