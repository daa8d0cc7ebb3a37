"""Where groups start when the source is dead: the library, `heliograph offsets`, Kafka's own tool.

One flow whose offsets differ on both sides, groups in every state, and then the source is killed.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assignment
from grouping import Groups
from mirroring import Mirroring, wait_for

from heliograph.batch.records import Record, build
from heliograph.cli import cli, offsets
from heliograph.config import FlowConfig, load
from heliograph.control.groups.starts import (
    AtTime,
    Earliest,
    FromFile,
    GroupStarts,
    Latest,
    SinceLastHeartbeat,
)
from heliograph.errors import HeliographError
from heliograph.mm2.formats import Heartbeat
from heliograph.model import Flow, TopicPartition
from heliograph.wire import admin, log
from heliograph.wire.groups import Committed

#: As `Mirroring.write` dates the first record of a call.
FIRST_MS = 1_700_000_000_000
HOSTILE = '=cmd(),"x" \x1b[31m'


@dataclass(slots=True)
class BadDay:
    """What was left behind, and what groups looked like while the source was there (``live``)."""

    flow: Mirroring
    groups: Groups
    config: FlowConfig
    path: Path
    topic: str
    live: dict[str, Any]

    def name(self, group: str) -> str:
        return self.groups.prefix + group

    def p(self, partition: int = 0, topic: str = "") -> TopicPartition:
        return TopicPartition(f"A.{topic or self.topic}", partition)

    def starts(self, **options: Any) -> GroupStarts:
        options.setdefault("groups", f"{self.groups.prefix}.*")
        return GroupStarts(self.config, self.flow.target, **options)

    def look(self, *strategy: Any, **options: Any) -> dict[str, Any]:
        found = self.starts(**options).look(*strategy)
        return {g.removeprefix(self.groups.prefix): start for g, start in found.items()}

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        return {p: c.offset for p, c in self.groups.committed(group).items()}

    def next_read(self, group: str) -> dict[TopicPartition, int]:
        """The number of the first record that a consumer of the group reads on B."""
        consumer = Consumer({
            "bootstrap.servers": self.flow.lab["B"].bootstrap, "group.id": self.name(group),
            "enable.auto.commit": False, "auto.offset.reset": "error", "enable.partition.eof": True,
        })  # fmt: skip
        wanted = [Assignment(*self.p(n)) for n in range(2)]
        consumer.assign([a for a in consumer.committed(wanted, 60) if a.offset >= 0])
        found: dict[TopicPartition, int] = {}

        def all_told() -> bool:
            message = consumer.poll(0.2)
            if message is not None:
                p = TopicPartition(message.topic(), message.partition())
                if message.error():
                    assert message.error().name() == "_PARTITION_EOF"
                    found.setdefault(p, -1)
                else:
                    found.setdefault(p, int(message.value()))
            return len(found) == len(consumer.assignment()) > 0

        wait_for(all_told)
        consumer.close()
        return found


def write(flow: Mirroring, topic: str, first: int, count: int) -> None:
    """Numbered records, one transaction for two of them: source offsets grow by three."""
    producer = flow.producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(60)
    for n in range(first, first + count, 2):
        producer.begin_transaction()
        for number in (n, n + 1):
            for partition in range(2):
                producer.produce(topic, b"%d" % number, partition=partition,
                                 timestamp=FIRST_MS + 1000 * number)  # fmt: skip
        producer.commit_transaction(60)


def at(number: int) -> int:
    """The source offset of a record."""
    return number + number // 2


@pytest.fixture(scope="module")
def day(module_lab_factory, tmp_path_factory):
    lab = module_lab_factory()
    ledger, checkpoints = "mm2-ledger.A.internal", "A.checkpoints.internal"
    flow = Mirroring.of(lab).but(ledger_topic=ledger)
    compacted = {"cleanup.policy": "compact"}
    internal = [admin.NewTopic(name, 1, 1, compacted) for name in (ledger, checkpoints)]
    internal.append(admin.NewTopic("A.heartbeats", 1, 1, {}))
    assert not admin.create_topics(flow.target, internal, 30_000)
    for new in internal:
        flow.await_topic(flow.target, new.name, 1)
    path = tmp_path_factory.mktemp("starts") / "mm2.properties"
    path.write_text(
        f"""clusters = A, B
A.bootstrap.servers = {lab["A"].bootstrap}
B.bootstrap.servers = {lab["B"].bootstrap}
A->B.enabled = true
B->A.emit.heartbeats.enabled = false
"""
    )
    config = next(f for f in load(path).flows if str(f.flow) == "A->B")
    topic, trimmed, emptied = "orders", "trimmed", "emptied"
    for name in (topic, trimmed, emptied):
        flow.create(name, 2)
    groups = Groups(flow, topic, trimmed, emptied)
    groups.checkpoints_topic = checkpoints
    groups.emitter = groups.emitting()
    made = BadDay(flow, groups, config, path, topic, {})
    here = [TopicPartition(topic, n) for n in range(2)]
    # Twelve records are mirrored, then groups come and their checkpoints, then eight more.
    write(flow, topic, 0, 12)
    write(flow, trimmed, 0, 12)
    write(flow, emptied, 0, 4)
    flow.trim(flow.source, TopicPartition(emptied, 0), -1)
    flow.trim(flow.source, TopicPartition(emptied, 1), -1)
    flow.copy(topic, trimmed)
    write(flow, topic, 12, 8)
    groups.commit("exact", {here[0]: at(7), here[1]: at(3)})
    groups.commit("grew", {here[0]: at(15), here[1]: at(12)})
    groups.commit("partial", {here[0]: at(2)})
    groups.commit("ahead", {here[0]: at(5), here[1]: at(5)})
    groups.commit("ahead", {made.p(0): 18, made.p(1): 5}, "B")
    groups.commit("active", {here[0]: at(4)})
    groups.commit("gap", {TopicPartition(trimmed, 0): at(2)})
    groups.commit("literal", {TopicPartition(emptied, 0): 6})
    answer = groups.target.commit({made.name("literal"): {made.p(0, emptied): Committed(6)}})
    assert set(answer.found[made.name("literal")].values()) == {0}
    groups.commit(HOSTILE, {here[0]: at(9)})
    groups.emit()
    flow.copy(topic)
    # Four records that nobody mirrors, and a group that has read two of them.
    groups.commit("unmirrored", {here[0]: at(22)})
    write(flow, topic, 20, 4)
    groups.emit()
    groups.commit("native", {made.p(0): 3}, "B")
    flow.trim(flow.target, made.p(0, trimmed), 5)
    beats = [Record(n, FIRST_MS + 9_500 + n, *Heartbeat("B", "A", 0).encode()) for n in range(2)]
    log.append(flow.target, TopicPartition("A.heartbeats", 0), build(beats))
    with ExitStack() as stack:
        stack.enter_context(groups.member("active", f"A.{topic}", "B"))
        made.live = made.look(source=flow.source)
        lab["A"].stop(grace_s=0)
        yield made
    groups.close()
    flow.close()


def test_the_exact_places_are_those_of_the_live_source(day):
    """Of a dead source, by checkpoints: the same, and how old they are."""
    dead = day.look()
    assert {g: s.starts.keys() for g, s in day.live.items()} == {
        g: s.starts.keys() for g, s in dead.items() if g != "native"
    }
    for group, start in day.live.items():
        for p, live in start.starts.items():
            there = dead[group].starts[p]
            assert (there.offset, there.exact, there.note) == (live.offset, live.exact, live.note)
            if group == "literal":
                # Of what was never mirrored there is no checkpoint.
                assert (live.upstream, there.upstream, there.as_of_ms) == (6, None, None)
            else:
                assert there.upstream == live.upstream
                assert there.as_of_ms <= live.as_of_ms
    assert {p: (s.offset, s.upstream) for p, s in dead["exact"].starts.items()} == {
        day.p(0): (7, at(7)), day.p(1): (3, at(3)),
    }  # fmt: skip
    # Its checkpoints were cut to the end of that time; more was mirrored since.
    assert {p: s.offset for p, s in dead["grew"].starts.items()} == {day.p(0): 15, day.p(1): 12}
    for group in ("exact", "grew"):
        assert not dead[group].skips
        assert not dead[group].repeats
        assert {s.note for s in dead[group].starts.values()} == {""}


def test_what_an_exact_place_does_not_say(day):
    found = day.look()
    [unmirrored] = found["unmirrored"].starts.values()
    assert (unmirrored.offset, unmirrored.skips, unmirrored.repeats) == (20, 0, 0)
    assert unmirrored.exact > 20
    assert unmirrored.note == f"ahead of the mirror by {at(22) - at(20)} offsets"
    [gap] = found["gap"].starts.values()
    assert (gap.offset, gap.exact, gap.skips) == (5, 2, 3)
    assert gap.note == "a gap of 3 offsets from its place on: deleted"
    assert found["partial"].unset == {day.p(1): "no offset of it on A: starts by auto.offset.reset"}
    [literal] = found["literal"].starts.values()
    assert (literal.offset, literal.committed, literal.ahead, literal.skips) == (0, 6, 0, 0)
    assert found["active"].reason == "is in use on B (Stable)"
    assert found["active"].starts[day.p(0)].offset == 4
    assert found["native"].reason == "no checkpoint says where it is on A"
    assert (found["native"].starts, found["ahead"].starts[day.p(0)].ahead) == ({}, 13)


def test_other_strategies_and_what_they_skip(day):
    def told(group, *strategy, **options):
        found = day.look(*strategy, **options)[group]
        return {p.partition: (s.offset, s.skips, s.repeats) for p, s in found.starts.items()}

    assert told("exact", Earliest()) == {0: (0, 0, 7), 1: (0, 0, 3)}
    assert told("exact", Latest()) == {0: (20, 13, 0), 1: (20, 17, 0)}
    # A partition without an offset counts as not read; it is set all the same.
    assert told("partial", Latest()) == {0: (20, 18, 0), 1: (20, 20, 0)}
    assert told("exact", AtTime(FIRST_MS + 4_500)) == {0: (5, 0, 2), 1: (5, 2, 0)}
    assert told("exact", AtTime(FIRST_MS + 60_000)) == {0: (20, 13, 0), 1: (20, 17, 0)}
    assert told("exact", SinceLastHeartbeat(2.0)) == {0: (8, 1, 0), 1: (8, 5, 0)}
    told_by = {day.name("exact"): {day.p(0): 99, day.p(1): 2, TopicPartition("none", 0): 1}}
    found = day.look(FromFile(told_by))
    assert found.keys() == {"exact"}
    assert {p: s.offset for p, s in found["exact"].starts.items()} == {day.p(0): 20, day.p(1): 2}
    assert found["exact"].starts[day.p(0)].note == "99 is 79 offsets behind the end"
    assert found["exact"].unset == {TopicPartition("none", 0): "B has no topic none"}


def test_groups_that_nobody_knows(day):
    """They start only where they are told to."""
    options = {"groups": None, "named": [day.name("unknown")]}
    for topics in (None, [day.topic]):
        [unknown] = day.look(topics=topics, **options).values()
        assert (unknown.state, unknown.starts) == ("absent", {})
        assert unknown.reason == "no checkpoint says where it is on A"
    [unknown] = day.look(Earliest(), topics=[day.topic], **options).values()
    assert {p: s.offset for p, s in unknown.starts.items()} == {day.p(0): 0, day.p(1): 0}
    # Without a word a reader of remote topics that is at home on B is left where it is.
    all_groups = day.starts(groups=None).look(Earliest())
    assert not all_groups[day.name("native")].starts
    assert all_groups[day.name("exact")].starts
    assert day.look(Earliest(), topics=["other"]).keys() == set()


def test_a_flow_that_was_never_mirrored(day):
    other = replace(day.config, flow=Flow("C", "B"))
    with pytest.raises(HeliographError, match=r"groups\.not-mirrored"):
        GroupStarts(other, day.flow.target).look()


def test_writing_moves_groups_to_the_next_record_and_is_idempotent(day):
    starts = day.starts()
    found = starts.look()
    moved = {g.removeprefix(day.groups.prefix): m for g, m in starts.write(found).items()}
    done = {g: (m.written, m.already, m.kept_ahead) for g, m in moved.items() if not m.reason}
    assert done == {
        "exact": (2, 0, 0), "grew": (2, 0, 0), "partial": (1, 0, 0), "ahead": (0, 1, 1),
        "gap": (1, 0, 0), "literal": (1, 0, 0), "unmirrored": (1, 0, 0), HOSTILE: (1, 0, 0),
    }  # fmt: skip
    assert {g: m.reason for g, m in moved.items() if m.reason} == {
        "active": "is in use on B (Stable)", "native": "no checkpoint says where it is on A",
    }  # fmt: skip
    assert day.next_read("exact") == {day.p(0): 7, day.p(1): 3}
    assert day.next_read("grew") == {day.p(0): 15, day.p(1): 12}
    assert day.next_read("partial") == {day.p(0): 2}
    assert day.next_read(HOSTILE) == {day.p(0): 9}
    assert day.next_read("unmirrored") == {day.p(0): -1}
    assert day.offsets("literal") == {day.p(0, "emptied"): 0}
    assert day.offsets("active") == {}
    assert day.offsets("ahead") == {day.p(0): 18, day.p(1): 5}
    # librdkafka ends it with a NUL.
    metadata = {p: c.metadata.rstrip("\0") for p, c in day.groups.committed("exact").items()}
    assert metadata == {day.p(0): f"exact@{at(7)}", day.p(1): f"exact@{at(3)}"}
    again = starts.write(found)
    assert sum(m.written for m in again.values()) == 0
    assert again[day.name("grew")].already == 2
    back = starts.write({day.name("ahead"): found[day.name("ahead")]}, rewind=True)
    assert (back[day.name("ahead")].written, back[day.name("ahead")].kept_ahead) == (1, 0)
    assert day.next_read("ahead") == {day.p(0): 5, day.p(1): 5}


# -- heliograph offsets -----------------------------------------------------------------------


def command(day, *options):
    every = ("--flow", "A->B", "--groups", f"{day.groups.prefix}.*")
    return CliRunner().invoke(cli, ["offsets", str(day.path), *every, *options])


def test_a_preview_says_what_each_group_would_skip(day):
    done = command(day, "--to-latest", "-o", "json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["strategy"] == "Latest"
    assert not told["executed"]
    assert any(note.startswith("A does not answer (") for note in told["notes"])
    assert any(re.search(r"those of checkpoints, the newest is [\d.]+ \w+ old", note)
               for note in told["notes"])  # fmt: skip
    groups = {g["group"].removeprefix(day.groups.prefix): g for g in told["groups"]}
    assert (groups["exact"]["skips"], groups["exact"]["repeats"]) == (30, 0)
    assert groups["partial"]["unset"] == []
    [shown] = [g for g in groups["active"]["starts"] if g["partition"] == 0]
    assert (shown["offset"], shown["exact"], shown["log_end"]) == (20, 4, 20)
    table = command(day).stdout
    [row] = [line for line in table.splitlines() if day.name("gap") in line]
    assert "a gap of 3 offsets from its place on: deleted" in row
    assert "\x1b" not in table
    verbose = command(day, "-v").stdout
    assert "starts by auto.offset.reset" in verbose
    spreadsheet = command(day, "-o", "csv").stdout
    assert "\x1b" not in spreadsheet
    assert day.offsets("active") == {}


def test_executing_asks_first(day, monkeypatch):
    done = command(day, "--execute")
    assert str(done.exception) == (
        "[command.unconfirmed] --execute: nobody can be asked\n  -> add --yes"
    )
    before = day.offsets("exact")
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True), exit=sys.exit)
    monkeypatch.setattr(offsets, "sys", terminal)
    every = ["offsets", str(day.path), "--flow", "A->B", "--group", day.name("exact")]
    for answer, there in (("n", before), ("y", {day.p(0): 20, day.p(1): 20})):
        done = CliRunner().invoke(cli, [*every, "--to-latest", "--execute"], input=f"{answer}\n")
        assert "commit 2 offsets of 1 group on B?" in done.stderr
        assert day.offsets("exact") == there


def test_kafkas_tool_takes_our_export_and_we_take_kafkas(day, tmp_path):
    groups = [day.name(g) for g in ("exact", HOSTILE)]
    chosen = [x for g in groups for x in ("--group", g)]
    options = ["offsets", str(day.path), "--flow", "A->B", *chosen]
    done = CliRunner().invoke(cli, [*options, "--rewind", "--export"])
    assert done.exit_code == 0, done.output
    ours = tmp_path / "ours.csv"
    ours.write_text(done.stdout)
    assert len(done.stdout.splitlines()) == 3
    assert day.starts().write(day.starts().look(Earliest()), rewind=True)
    tool = (
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server",
        day.flow.lab["B"].bootstrap, "--timeout", "60000",
    )  # fmt: skip
    day.flow.lab.tool(*tool, "--reset-offsets", "--from-file", str(ours), "--execute", *chosen)
    assert day.offsets("exact") == {day.p(0): 7, day.p(1): 3}
    assert day.offsets(HOSTILE)[day.p(0)] == 9
    # As they are now, in Kafka's words, and back.
    theirs = tmp_path / "theirs.csv"
    theirs.write_text(day.flow.lab.tool(
        *tool, "--reset-offsets", "--to-current", "--all-topics", "--export", *chosen
    ))  # fmt: skip
    assert day.starts().write(day.starts().look(Earliest()), rewind=True)
    done = CliRunner().invoke(cli, [*options, "--from-file", str(theirs), "--execute", "--yes"])
    assert done.exit_code == 0, done.output
    assert day.offsets("exact") == {day.p(0): 7, day.p(1): 3}
    assert day.offsets(HOSTILE)[day.p(0)] == 9
    alone = tmp_path / "alone.csv"
    alone.write_text(f"A.{day.topic},0,11\n")
    one = ["offsets", str(day.path), "--flow", "A->B", "--group", day.name("partial")]
    done = CliRunner().invoke(cli, [*one, "--from-file", str(alone), "--execute", "--yes"])
    assert done.exit_code == 0, done.output
    assert day.offsets("partial")[day.p(0)] == 11


def test_a_group_that_is_not_moved_is_exit_code_1(day):
    done = command(day, "--execute", "--yes", "--rewind", "-o", "json")
    assert done.exit_code == 1, done.output
    groups = json.loads(done.stdout)["groups"]
    told = {g["group"].removeprefix(day.groups.prefix): g["result"]["reason"] for g in groups}
    assert told["active"] == "is in use on B (Stable)"
    assert {g for g, reason in told.items() if reason} == {"active", "native"}
    assert day.offsets("active") == {}
