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
from heliograph.service.monitor import FlowStatus


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
        "waiting": {},
        "failed": {},
    }
    return FlowStatus(**(values | changes))


@pytest.mark.parametrize(
    ("value", "text"),
    [
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
    bad = status(failed={"orders-3": "[source.data-loss] gone"})
    said = lines("plain", capsys, [bad], ["starting ..."])
    clock = r"\d\d:\d\d:\d\d "
    assert re.fullmatch(clock + r"starting \.\.\.", said[0])
    assert re.fullmatch(clock + "warning: a broker is away", said[1])
    assert re.fullmatch(
        clock + r"A->B: 3 topics, 12 partitions, 1\.64M records/s, 2\.5G bytes/s,"
        r" lag 1,234 records, 1\.2 s, 5,000,000 mirrored, offsets identical",
        said[2],
    )
    assert said[3].endswith("A->B orders-3 cannot be mirrored: [source.data-loss] gone")
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
        "waiting": {}, "failed": {}, "state": "mirroring", "jobs": [],
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
    held = status(lag_records=0, waiting={"orders-3": text}, quarantined=2)
    said = lines("plain", capsys, [held])
    assert said[-2].endswith("offsets identical, 2 quarantined")
    assert said[-1].endswith(f"A->B orders-3: {text}")
    assert "waiting for an open transaction on the source" in rendered(held)


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
    failing = rendered(status(failed={"t-0": "[target.refused] too large"}))
    assert "1 failing" in failing
    assert "too large" in failing


def test_table_shows_errors_with_brackets_as_they_are():
    # Rich would take [source.data-loss] or a range like [5, 9) for markup.
    failing = rendered(status(failed={"t-0": "[source.data-loss] removed [5, 9)"}))
    assert "[source.data-loss] removed [5, 9)" in failing
