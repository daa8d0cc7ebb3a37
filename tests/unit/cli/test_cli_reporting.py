"""How a mirror shows itself."""

from __future__ import annotations

import io
import json
import logging
import re

import pytest
from rich.console import Console

from heliograph.cli.reporting import amount, reporter, table
from heliograph.control.scheduler import JobStatus
from heliograph.model import PartitionEvent, PartitionReport, PartitionState, TopicPartition
from heliograph.service.events import EventLog
from heliograph.service.monitor import FlowStatus


def trouble(topic="orders", partition=3, state=PartitionState.FAILED, **changes):
    values = {"since": 1e9, "why": "[source.data-loss] gone", "code": "source.data-loss"}
    return PartitionReport("A->B", TopicPartition(topic, partition), state, **(values | changes))


def troubled(*reports, **changes):
    states = {str(r.state): sum(x.state is r.state for x in reports) for r in reports}
    return status(troubled=list(reports), states=states | {"idle": 5}, **changes)


def status(**changes):
    values = {
        "flow": "A->B",
        "topics": 3,
        "partitions": 12,
        "records_per_second": 1_640_000.0,
        "bytes_per_second": 2.5e9,
        "lag_records": 1234,
        "lag_seconds": 1.25,
        "records_total": 5_000_000,
        "identical": 12,
        "translated": 0,
        "quarantined": 0,
        "states": {"copying": 2, "idle": 10},
        "troubled": [],
        "events": {},
    }
    return FlowStatus(**(values | changes))


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


def lines(form, capsys, statuses, events=()):
    with reporter(form, lambda: statuses) as report:
        for event in events:
            report.say(event)
        logging.getLogger("heliograph.service").warning("a broker is %s", "away")
    return capsys.readouterr().out.splitlines()


def test_plain_lines(capsys):
    bad = troubled(trouble(retry_at=1e9 + 4))
    said = lines("plain", capsys, [bad], ["starting ..."])
    clock = r"\d\d:\d\d:\d\d "
    assert re.fullmatch(clock + r"starting \.\.\.", said[0])
    assert re.fullmatch(clock + "warning: a broker is away", said[1])
    assert re.fullmatch(
        clock + r"A->B: 3 topics, 12 partitions, 1\.64M records/s, 2\.5G bytes/s,"
        r" lag 1,234 records, 1\.2 s, 5,000,000 mirrored, offsets identical, 1 failed",
        said[2],
    )
    hour = r"2001-09-0\d \d\d:\d\d:"
    assert re.fullmatch(
        clock + rf"A->B orders-3 failed since {hour}40, tried again at {hour}44:"
        r" \[source.data-loss\] gone",
        said[3],
    )
    assert len(said) == 4


def test_json_lines(capsys):
    said = [json.loads(x) for x in lines("json", capsys, [status()], ["starting ..."])]
    assert [x["event"] for x in said] == ["info", "warning", "status"]
    assert said[0]["message"] == "starting ..."
    assert said[1]["message"] == "a broker is away"
    assert {k: v for k, v in said[2].items() if k not in {"time", "event"}} == {
        "flow": "A->B", "topics": 3, "partitions": 12, "records_per_second": 1_640_000.0,
        "bytes_per_second": 2.5e9, "lag_records": 1234, "lag_seconds": 1.25,
        "records_total": 5_000_000, "identical": 12, "translated": 0, "quarantined": 0,
        "states": {"copying": 2, "idle": 10}, "troubled": [], "events": {},
        "state": "mirroring", "jobs": [],
    }  # fmt: skip
    assert all(x["time"] > 1.6e9 for x in said)


def test_json_tells_what_jobs_say_when_it_has_changed(capsys):
    job = JobStatus("syncing group offsets of A->B", 2, last_run=5.0, details={"g": "in use"})
    busy = status(jobs=[job])
    said = [json.loads(x) for x in lines("json", capsys, [busy, busy], [])]
    assert [x["event"] for x in said] == ["warning", "status", "details", "status"]
    assert said[1]["jobs"][0]["last_run"] == 5.0
    assert "details" not in said[1]["jobs"][0]
    assert said[2]["details"] == {"g": "in use"}
    assert said[2]["job"] == "syncing group offsets of A->B"


def test_failing_jobs_are_said(capsys):
    job = JobStatus("syncing ACLs of A->B", 60, last_error="B is away", next_run=1e9)
    assert ", 1 control job failing" in lines("plain", capsys, [status(jobs=[job])], [])[-1]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table([status(jobs=[job])]))
    assert "syncing ACLs of A->B: B is away (again at " in console.export_text()


def test_what_partitions_wait_for_is_said(capsys):
    text = "7 record(s) wait for an open transaction on the source"
    waits = trouble(state=PartitionState.WAITING, why=text, code="")
    held = troubled(waits, lag_records=0, quarantined=2)
    said = lines("plain", capsys, [held])
    assert said[-2].endswith("offsets identical, 2 quarantined, 1 waiting")
    assert re.search(rf"A->B orders-3 waiting since [-\d: ]+: {re.escape(text)}$", said[-1])
    assert "1 waiting" in rendered(held)
    assert text in rendered(held)


def test_who_stands_by_says_so(capsys):
    idle = status(lag_records=0, state="standing by")
    assert "A->B: standing by, 3 topics" in lines("plain", capsys, [idle])[-1]
    assert json.loads(lines("json", capsys, [idle])[-1])["state"] == "standing by"
    assert "standing by" in rendered(idle)
    assert "in step" not in rendered(idle)


def test_offsets_are_told():
    assert "translated" not in rendered(status())
    assert "10 identical, 2 translated" in rendered(status(identical=10, translated=2))
    assert "identical" not in rendered(status(identical=0, translated=12))


def test_auto_is_plain_where_nobody_watches(capsys):
    said = lines("auto", capsys, [status()])
    assert "lag 1,234 records" in said[-1]


def rendered(*statuses):
    out = io.StringIO()
    Console(file=out, width=200).print(table(statuses))
    return out.getvalue()


def test_table_states():
    assert "mirroring" in rendered(status())
    assert "in step" in rendered(status(lag_records=0))
    assert "starting" in rendered(status(states={"starting": 4, "idle": 1}, lag_records=0))
    assert "starting" in rendered(status(states={}, lag_records=0))
    assert "in step" in rendered(status(states={}, partitions=0, lag_records=0))
    failing = rendered(troubled(trouble(why="[target.refused] too large"), trouble(partition=1)))
    assert "2 failed" in failing
    assert "too large" in failing


def test_a_flow_that_cannot_be_measured_is_not_in_step():
    waits = trouble(
        state=PartitionState.WAITING, why="not measured since 03:04:05: cluster A", code=""
    )
    shown = rendered(troubled(waits, lag_records=0))
    assert "in step" not in shown
    assert "not measured since 03:04:05" in shown


def test_the_worst_are_shown_and_the_rest_counted(capsys):
    many = troubled(*(trouble(partition=n) for n in range(40)))
    said = lines("plain", capsys, [many])
    assert [f"orders-{n} failed" in line for n, line in enumerate(said[-4:-1])] == [True] * 3
    assert said[-1].endswith("A->B: 37 more in trouble; -o json lists them")
    assert "37 more in trouble" in rendered(many)


def test_plain_lines_do_not_repeat_what_is_known(capsys):
    bad = troubled(trouble())
    said = lines("plain", capsys, [bad, bad])
    assert sum("orders-3 failed since" in line for line in said) == 1
    assert sum(line.endswith(", 1 failed") for line in said) == 2
    again = lines("plain", capsys, [bad, troubled(trouble(code="other"))])
    assert sum("orders-3 failed since" in line for line in again) == 2


def test_json_lists_all_that_are_in_trouble(capsys):
    many = troubled(*(trouble(partition=n, retry_at=7.5) for n in range(40)))
    [said] = [json.loads(x) for x in lines("json", capsys, [many]) if '"status"' in x]
    assert said["states"] == {"failed": 40, "idle": 5}
    assert said["troubled"][39] == {
        "flow": "A->B", "topic": "orders", "partition": 39, "state": "failed", "since": 1e9,
        "why": "[source.data-loss] gone", "code": "source.data-loss", "retry_at": 7.5,
    }  # fmt: skip


def event(partition=3, code="source.data-loss", text="removed [5, 9)", first=5, until=9, at=1.5):
    return PartitionEvent("A->B", TopicPartition("orders", partition), code, text, first, until, at)


def events_said(form, capsys, *events):
    with reporter(form, list):
        EventLog("A->B").add(events)
    return capsys.readouterr().out.splitlines()


def test_events_are_lines_at_once(capsys):
    [said] = events_said("plain", capsys, event())
    assert said.endswith(" warning: A->B orders-3 [source.data-loss]: removed [5, 9)")


def test_many_events_at_once_are_one_line_for_people(capsys):
    said = events_said("plain", capsys, *(event(n) for n in range(100)))
    assert len(said) == 2
    assert said[1] == "  the same (source.data-loss): orders-1, orders-2 and 97 more"


def test_events_are_records_for_machines(capsys):
    said = [json.loads(x) for x in events_said("json", capsys, *(event(n) for n in range(100)))]
    assert len(said) == 100
    assert said[7].pop("time") > 1.6e9
    assert said[7] == {
        "event": "partition", "flow": "A->B", "topic": "orders", "partition": 7,
        "code": "source.data-loss", "text": "removed [5, 9)", "first": 5, "until": 9, "at": 1.5,
    }  # fmt: skip


def test_an_event_that_is_told_twice_is_said_and_counted_once(capsys):
    log = EventLog("A->B")
    with reporter("plain", list):
        log.add([event(), event(at=2.5)])
        log.add([event()])
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert log.counts == {"source.data-loss": 2}
    assert log.latest == [event(), event(at=2.5)]


def test_table_shows_errors_with_brackets_as_they_are():
    # Rich would take [source.data-loss] or a range like [5, 9) for markup.
    failing = rendered(troubled(trouble(why="[source.data-loss] removed [5, 9)")))
    assert "[source.data-loss] removed [5, 9)" in failing
