"""How a mirror shows itself: to people in lines and a table, to machines as JSON."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from heliograph.cli.reporting import reporter, table
from heliograph.model import PartitionEvent, PartitionState, TopicPartition
from heliograph.service.events import EngineEvent, EventBus, FlowEvent, JobEvent, StartStep
from heliograph.service.snapshot import (
    EngineSnapshot,
    EngineState,
    FlowSnapshot,
    FlowState,
    JobSnapshot,
    Life,
    MirrorSnapshot,
    PartitionSnapshot,
    TopicSnapshot,
)
from heliograph.units import amount

S = PartitionState
RUNNING = Life(FlowState.RUNNING)
TIME = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ "


def partition(n=3, state=S.FAILED, topic="orders", **changes):
    values: dict[str, Any] = {
        "reason": "[source.data-loss] gone",
        "code": "source.data-loss",
        "since": 1e9,
    }
    return PartitionSnapshot(topic, n, f"A.{topic}", state, **(values | changes))


def flow(*troubled, **changes):
    idle = [partition(n, S.IDLE, "quiet", reason="", code="") for n in range(12 - len(troubled))]
    states = {str(p.state): sum(x.state is p.state for x in troubled) for p in troubled}
    values: dict[str, Any] = {
        "flow": "A->B",
        "source": "A",
        "target": "B",
        "life": RUNNING,
        "measured_at": 1e9,
        "topics": tuple(TopicSnapshot(t, f"A.{t}", 4, 0, 0.0, 0) for t in ("orders", "x", "y")),
        "partitions": (*troubled, *idle),
        "records_per_second": 1_640_000.0,
        "bytes_per_second": 2.5e9,
        "lag_records": 1234,
        "lag_seconds": 1.25,
        "records_total": 5_000_000,
        "identical": 12,
        "states": states | {"idle": len(idle)},
    }
    return FlowSnapshot(**(values | changes))


def mirror(*flows, **changes):
    values: dict[str, Any] = {"at": 1e9 + 60, "flows": flows, "started_at": 1e9}
    return MirrorSnapshot(**(values | changes))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (0.4, "0"),
        (950, "950"),
        (9999, "9999"),
        (12_345, "12.3k"),
        (999_499, "999k"),
        (4_560_000, "4.56M"),
        (1_640_000, "1.64M"),
        (2.5e9, "2.5G"),
        (999_999, "1M"),
        (123_456_789, "123M"),
    ],
)
def test_amounts_for_people(value, text):
    assert amount(value) == text


class Shown:
    """Follows a reporter: shows one snapshot after the other, and what was printed of each."""

    def __init__(self, form, capsys, interval=3600.0):
        self.bus = EventBus()
        self._snapshot = mirror()
        self._taken = threading.Semaphore(0)
        self._capsys = capsys
        self.report = reporter(form, self._take, self.bus, interval)

    def _take(self):
        self._taken.release()
        return self._snapshot

    def __call__(self, *flows):
        """The lines that are printed of a snapshot until it was looked at for the second time."""
        self._snapshot = mirror(*flows)
        # Those that were taken before do not count.
        while self._taken.acquire(blocking=False):
            pass
        for _ in range(3):
            assert self._taken.acquire(timeout=60)
        return self._capsys.readouterr().out.splitlines()

    def __enter__(self):
        self.report.__enter__()
        return self

    def __exit__(self, *_):
        self.report.__exit__(None, None, None)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("heliograph.cli.reporting._LOOK_SECONDS", 0.02)


def told(form, capsys, *flows):
    with Shown(form, capsys) as shown:
        said = shown(*flows)
    capsys.readouterr()
    return said


def test_plain_lines_have_time_level_and_what_was_said(capsys):
    with Shown("plain", capsys) as shown:
        shown.report.say("starting ...")
        logging.getLogger("heliograph.service").warning("a broker is %s", "away")
        said = shown()
    assert re.fullmatch(TIME + r"INFO starting \.\.\.", said[0])
    assert re.fullmatch(TIME + "WARNING a broker is away", said[1])


def test_a_plain_status(capsys):
    said = told("plain", capsys, flow(partition(next_try=1e9 + 4)))
    assert re.fullmatch(
        TIME + r"WARNING A->B: 1 failed, 3 topics, 12 partitions, 1\.64M records/s,"
        r" 2\.5G bytes/s, lag 1,234 records, 1\.2 s, 5,000,000 mirrored, offsets identical",
        said[0],
    )
    assert said[1].endswith(
        " WARNING A->B orders-3 failed since 2001-09-09T01:46:40.000Z,"
        " tried again at 2001-09-09T01:46:44.000Z: [source.data-loss] gone"
    )
    assert len(said) == 2


def test_a_flow_is_reported_when_it_changes_and_at_intervals(capsys):
    with Shown("plain", capsys) as shown:
        assert len(shown(flow(lag_seconds=300.0))) == 1
        assert shown(flow(lag_seconds=300.0)) == []
        assert shown(flow(lag_seconds=99.0, lag_records=7, records_per_second=3.0)) == []
        assert len(shown(flow(lag_seconds=2.0))) == 1, "it has caught up"
        assert shown(flow(lag_seconds=99.0)) == [], "behind for a moment"
        assert len(shown(flow(partition()))) == 2
        assert shown(flow(partition())) == []
        assert len(shown(flow(partition(code="other")))) == 2
        assert len(shown(flow())) == 1
        assert len(shown(flow(life=Life(FlowState.PAUSED)))) == 1
        assert shown(flow(life=Life(FlowState.STOPPED))) == [], "it has a last word"
    with Shown("plain", capsys, interval=0.0) as shown:
        shown(flow())
        assert len(shown(flow())) >= 2


def test_topics_that_are_behind_are_named(capsys):
    topics = tuple(TopicSnapshot(f"t{n}", f"A.t{n}", 1, 9 - n, 30.0, 0) for n in range(5))
    said = told("plain", capsys, flow(topics=topics))
    assert said[1].endswith(" A->B behind: t0 9 (30 s), t1 8 (30 s), t2 7 (30 s) and 2 more")
    [status] = [json.loads(x) for x in told("json", capsys, flow(topics=topics))]
    assert status["lagging"][4] == {
        "topic": "t4", "target_topic": "A.t4", "partitions": 1, "lag_records": 5,
        "lag_seconds": 30.0, "troubled": 0,
    }  # fmt: skip


def test_lag_that_is_not_known_is_not_zero(capsys):
    """The first frame showed lag 0 with 11,000 records waiting; an outage showed 0.0 s."""
    unknown = {"lag_records": None, "lag_seconds": None, "records_total": None, "identical": 0}
    starting = flow(**unknown, records_per_second=None, bytes_per_second=None)
    assert (
        "A->B: starting, 3 topics, 12 partitions, - records/s, - bytes/s, lag - records, -, -"
        in (told("plain", capsys, starting)[0])
    )
    [status] = [json.loads(x) for x in told("json", capsys, starting)]
    assert status["lag_records"] is status["lag_seconds"] is None
    partly = flow(unmeasured=3, lag_seconds=None)
    assert "lag 1,234+ records, -," in told("plain", capsys, partly)[0]
    assert " - " in rendered(partly)
    assert "in step" not in rendered(flow(**unknown))


def test_a_json_status_is_small(capsys):
    lines = told("json", capsys, flow())
    [said] = [json.loads(x) for x in lines]
    assert {k: v for k, v in said.items() if k not in {"time", "event", "logger"}} == {
        "level": "info",
        "flow": "A->B", "source": "A", "target": "B", "topics": 3, "partitions": 12,
        "life": {"state": "running", "reason": "", "code": "", "since": None, "next_try": None},
        "parts": {}, "measured_at": "2001-09-09T01:46:40.000Z",
        "records_per_second": 1_640_000.0, "bytes_per_second": 2.5e9, "lag_records": 1234,
        "lag_seconds": 1.25, "unmeasured": 0, "records_total": 5_000_000, "copied_records": 0,
        "copied_bytes": 0, "identical": 12, "translated": 0, "quarantined": 0,
        "states": {"idle": 12}, "events": {}, "failing_jobs": 0, "troubled": [], "lagging": [],
        "failing": {}, "canary": None, "owns": None, "progressed_at": None, "pending": 0,
        "rounds": 0, "failed_rounds": 0, "ledger_runs": None, "ledger_end": None,
        "paused_topics": {}, "at_risk": None, "rto_seconds": None, "rto_measured_at": None,
        "rehearsal_ok": None, "diverged_records": None,
    }  # fmt: skip
    assert said["event"] == "status"
    assert len(lines[0]) < 1000
    many = flow(partitions=tuple(partition(n, S.IDLE) for n in range(10_000)))
    assert len(told("json", capsys, many)[0]) < 1000


def test_a_last_word_on_each_flow(capsys):
    copied = flow(copied_records=123_456, copied_bytes=5_000_000, lag_records=0, lag_seconds=0.0)
    with Shown("plain", capsys) as shown:
        shown(copied)
    [said] = capsys.readouterr().out.splitlines()
    assert said.endswith(
        " INFO A->B: stopped after 60 s; 123,456 records (5M bytes) were mirrored,"
        " lag 0 records, 0.0 s when last measured"
    )
    with Shown("json", capsys) as shown:
        shown(copied)
    [last] = [json.loads(x) for x in capsys.readouterr().out.splitlines()]
    assert last.pop("time")
    assert last == {
        "event": "stopped", "level": "info", "logger": "heliograph.cli.reporting",
        "flow": "A->B", "ran_seconds": 60.0, "copied_records": 123_456,
        "copied_bytes": 5_000_000, "lag_records": 0, "lag_seconds": 0.0, "states": {"idle": 12},
    }  # fmt: skip


def test_nothing_stale_follows_the_last_word(capsys):
    """``--once`` said "waiting" of a partition after it had said that all was copied."""
    waits = flow(partition(state=S.WAITING, reason="for its lease"))
    with Shown("plain", capsys) as shown:
        shown(waits)
        shown.report.say("all that was there at the start is copied")
    said = capsys.readouterr().out.splitlines()
    assert [re.sub(TIME, "", x)[:36] for x in said] == [
        "INFO all that was there at the start",
        "INFO A->B: stopped after 60 s; 0 rec",
    ]


def test_json_tells_what_jobs_say_when_it_has_changed(capsys):
    job = JobSnapshot("syncing group offsets of A->B", 2, details={"g": "in use"})
    with Shown("json", capsys) as shown:
        first = [json.loads(x) for x in shown(flow(jobs=(job,)))]
        assert [x["event"] for x in first] == ["status", "details"]
        assert first[1]["details"] == {"g": "in use"}
        assert first[1]["job"] == "syncing group offsets of A->B"
        assert shown(flow(jobs=(replace(job, last_run=5.0),))) == []
        changed = replace(job, details={"g": "synced"})
        [again] = [json.loads(x) for x in shown(flow(jobs=(changed,)))]
        assert again["details"] == {"g": "synced"}


def test_failing_jobs_are_said(capsys):
    job = JobSnapshot("syncing ACLs of A->B", 60, error="B is away", next_run=1e9)
    assert told("plain", capsys, flow(jobs=(job,)))[0].endswith(", 1 control job failing")
    [status] = [json.loads(x) for x in told("json", capsys, flow(jobs=(job,)))]
    assert status["failing"] == {"syncing ACLs of A->B": "B is away"}
    assert "syncing ACLs of A->B: B is away (again at " in rendered(flow(jobs=(job,)))


def test_what_partitions_wait_for_is_said(capsys):
    text = "7 record(s) wait for an open transaction on the source"
    held = flow(partition(state=S.WAITING, reason=text, code=""), lag_records=0, quarantined=2)
    said = told("plain", capsys, held)
    assert "INFO A->B: 1 waiting, " in said[0]
    assert said[0].endswith("offsets identical, 2 quarantined")
    assert re.search(rf"A->B orders-3 waiting since \S+Z: {re.escape(text)}$", said[1])
    assert "1 waiting" in rendered(held)
    assert text in rendered(held)


def test_flows_and_parts_that_do_not_run_say_so(capsys):
    idle = flow(lag_records=0, life=Life(FlowState.STANDING_BY))
    assert "A->B: standing by, 3 topics" in told("plain", capsys, idle)[-1]
    assert json.loads(told("json", capsys, idle)[-1])["life"]["state"] == "standing by"
    assert "standing by" in rendered(idle)
    assert "in step" not in rendered(idle)
    failed = Life(FlowState.FAILED, "cluster A does not answer", next_try=1e9)
    down = FlowSnapshot("A->B", "A", "B", failed)
    said = told("plain", capsys, down)
    assert said[0].endswith(" INFO A->B: failed"), "nothing is known of its topics"
    assert said[1].endswith(
        "A->B failed, tried again at 2001-09-09T01:46:40.000Z: cluster A does not answer"
    )
    whole = flow(life=failed, parts={"checkpoints": failed, "copying": failed})
    assert rendered(whole).count("cluster A does not answer") == 1
    part = flow(lag_records=0, parts={"checkpoints": failed, "copying": RUNNING})
    assert "checkpoints failed" in rendered(part)
    assert "checkpoints failed, tried again" in told("plain", capsys, part)[1]


def test_a_flow_that_only_emits_heartbeats_has_no_lag(capsys):
    beats = FlowSnapshot("B->A", "B", "A", RUNNING, {"heartbeats": RUNNING})
    with Shown("plain", capsys) as shown:
        [said] = shown(beats)
    assert said.endswith(" INFO B->A: heartbeats only")
    assert capsys.readouterr().out == "", "no last word"
    assert "starting" not in rendered(beats)


def test_offsets_are_told():
    assert "translated" not in rendered(flow())
    assert "10 identical, 2 translated" in rendered(flow(identical=10, translated=2))
    assert "identical" not in rendered(flow(identical=0, translated=12))


def test_auto_is_plain_where_nobody_watches(capsys):
    assert "lag 1,234 records" in told("auto", capsys, flow())[0]


def rendered(*flows, width=200, height=50, **changes):
    out = io.StringIO()
    console = Console(file=out, width=width, height=height)
    console.print(table(mirror(*flows, **changes), width, height))
    return out.getvalue()


def test_table_states():
    assert "mirroring" in rendered(flow())
    assert "in step" in rendered(flow(lag_records=0))
    assert "starting" in rendered(flow(states={"starting": 4, "idle": 1}, lag_records=0))
    assert "in step" in rendered(flow(states={}, partitions=(), lag_records=0))
    failing = rendered(flow(partition(reason="[target.refused] too large"), partition(1)))
    assert "2 failed" in failing
    assert "too large" in failing


def test_80_columns_show_flow_state_and_lag_whole():
    """They were cut off: the table was as wide as its ten columns."""
    name = "frankfurt-orders->singapore-2"
    bad = flow(
        partition(), partition(1, S.STALLED), flow=name,
        lag_records=123_456_789, lag_seconds=4521.0, records_per_second=1_540_000.0,
    )  # fmt: skip
    shown = rendered(bad, flow(flow="X->Y", lag_records=0), width=80, height=24)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    [head] = [line for line in lines if "records/s" in line]
    assert head.split() == ["flow", "state", "lag", "age", "records/s", "bytes/s"]
    rows = " ".join(" ".join(lines).split())
    assert "frankfurt-orders->si 1 failed, 1 stalled 123M 75.3 min 1.54M 2.5G ngapore-2" in rows
    assert "…" not in shown
    assert "X->Y in step" in rows
    assert "[source.data-loss] gone" in rows


def test_a_wider_terminal_shows_more():
    assert "partitions" not in rendered(flow(), width=80)
    assert "partitions" in rendered(flow(), width=100)
    assert "mirrored" not in rendered(flow(), width=100)
    assert "5,000,000" in rendered(flow(), width=130)


def test_more_flows_than_lines_show_the_worst():
    flows = [flow(flow=f"A->{n}", lag_records=n) for n in range(50)]
    flows[7] = flow(partition(), flow="A->7")
    shown = rendered(*flows, width=80, height=24)
    assert "A->7 " in shown
    assert "A->49" in shown
    assert "A->3 " not in shown
    assert "and 35 more flows" in shown


def test_the_engine_is_shown_while_it_is_not_ready():
    starting = EngineSnapshot(EngineState.STARTING, "for 12 s")
    assert "Spark: starting: for 12 s" in rendered(flow(), engine=starting)
    assert "Spark" not in rendered(flow(), engine=EngineSnapshot(EngineState.READY))


def test_a_flow_that_cannot_be_measured_is_not_in_step():
    waits = partition(state=S.WAITING, reason="not measured since then: cluster A", code="")
    shown = rendered(flow(waits, lag_records=0))
    assert "in step" not in shown
    assert "not measured since then" in shown


def test_the_worst_are_shown_and_the_rest_counted(capsys):
    many = flow(*(partition(n) for n in range(40)))
    said = told("plain", capsys, many)
    assert [f"orders-{n} failed" in line for n, line in enumerate(said[1:4])] == [True] * 3
    assert said[4].endswith("A->B 37 more in trouble; -o json lists them")
    assert "37 more in trouble" in rendered(many)


def test_json_lists_all_that_are_in_trouble(capsys):
    many = flow(*(partition(n, next_try=1e9 + 7.5) for n in range(40)), partitions=(), states={})
    many = replace(
        many, partitions=tuple(partition(n, next_try=1e9 + 7.5) for n in range(40)),
        states={"failed": 40, "idle": 5},
    )  # fmt: skip
    [said] = [json.loads(x) for x in told("json", capsys, many)]
    assert said["states"] == {"failed": 40, "idle": 5}
    assert said["troubled"][39] == {
        "topic": "orders", "partition": 39, "target_topic": "A.orders", "state": "failed",
        "reason": "[source.data-loss] gone", "code": "source.data-loss",
        "since": "2001-09-09T01:46:40.000Z", "next_try": "2001-09-09T01:46:47.500Z",
        "source_end": None, "position": None, "target_end": None, "lag_records": None,
        "lag_seconds": None, "shift": None, "progressed_at": None,
    }  # fmt: skip


def event(n=3, code="source.data-loss", text="removed [5, 9)", first=5, until=9, at=1e9):
    return PartitionEvent("A->B", TopicPartition("orders", n), code, text, first, until, at)


def events_said(form, capsys, *events):
    bus = EventBus()
    with reporter(form, mirror, bus):
        bus.publish(*events)
    return capsys.readouterr().out.splitlines()


def test_events_are_lines_at_once(capsys):
    [said] = events_said("plain", capsys, event())
    assert said == (
        "2001-09-09T01:46:40.000Z WARNING A->B orders-3 [source.data-loss]: removed [5, 9)"
    )


def test_many_events_at_once_are_one_line_for_people(capsys):
    said = events_said("plain", capsys, *(event(n) for n in range(100)))
    assert len(said) == 2
    assert said[1] == "  the same (source.data-loss): orders-1, orders-2 and 97 more"


def test_events_are_records_for_machines(capsys):
    said = [json.loads(x) for x in events_said("json", capsys, *(event(n) for n in range(100)))]
    assert len(said) == 100
    assert said[7] == {
        "time": "2001-09-09T01:46:40.000Z", "event": "partition", "sequence": 8,
        "level": "warning", "logger": "heliograph.service.events",
        "flow": "A->B", "topic": "orders", "partition": 7,
        "code": "source.data-loss", "text": "removed [5, 9)", "first": 5, "until": 9,
        "policy": "",
    }  # fmt: skip


def test_every_kind_of_event_has_a_line(capsys):
    events = [
        StartStep("cluster A", "start.awaiting", at=1e9),
        StartStep("cluster A", "start.done", 1.25, at=1e9),
        StartStep("Spark", "start.failed", 80, "no JVM", at=1e9),
        FlowEvent("A->B", "flow.paused", "by SIGHUP", "checkpoints", at=1e9),
        JobEvent("A->B", "syncing ACLs of A->B", "job.failed", "B is away", at=1e9),
        JobEvent("A->B", "syncing ACLs of A->B", "job.recovered", at=1e9),
        EngineEvent("engine.ready", "2 slots", at=1e9),
        FlowEvent("A->B", "flow.stopped", "for those who read JSON", level=logging.DEBUG, at=1e9),
    ]
    said = events_said("plain", capsys, *events)
    assert [re.sub(TIME, "", x) for x in said] == [
        "INFO waiting for cluster A ...",
        "INFO cluster A: ready after 1.2 s",
        "WARNING Spark: failed after 80 s: no JVM",
        "INFO A->B checkpoints [flow.paused]: by SIGHUP",
        "WARNING syncing ACLs of A->B [job.failed]: B is away",
        "INFO syncing ACLs of A->B [job.recovered]: works again",
        "INFO Spark [engine.ready]: 2 slots",
    ]
    said = [json.loads(x) for x in events_said("json", capsys, *events)]
    assert [x["event"] for x in said] == [
        "start", "start", "start", "flow", "job", "job", "engine", "flow"
    ]  # fmt: skip
    assert said[1]["took_seconds"] == 1.25
    assert [x["level"] for x in said][2:5] == ["warning", "info", "warning"]


def test_output_that_nobody_takes_does_not_hold_back_the_mirror(monkeypatch):
    blocked, free = threading.Event(), threading.Event()

    def never(*_args, **_options):
        blocked.set()
        assert free.wait(60)

    monkeypatch.setattr("heliograph.cli.reporting._print", never)
    bus = EventBus()
    report = reporter("plain", mirror, bus)
    report.__enter__()
    try:
        bus.publish(event())
        assert blocked.wait(60)
        began = time.monotonic()
        for n in range(5000):
            bus.publish(event(n, at=2e9))
        logging.getLogger("heliograph.x").warning("so does a log")
        assert time.monotonic() - began < 30
    finally:
        free.set()
        report.__exit__(None, None, None)


def test_table_shows_errors_with_brackets_as_they_are():
    # Rich would take [source.data-loss] or a range like [5, 9) for markup.
    failing = rendered(flow(partition(reason="[source.data-loss] removed [5, 9)")))
    assert "[source.data-loss] removed [5, 9)" in failing
