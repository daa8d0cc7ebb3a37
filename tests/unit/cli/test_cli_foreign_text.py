"""Other people's text does nothing to a terminal or a log, wherever it is printed.

`PLACES` is the list of those places: whoever prints foreign text somewhere else adds it.
"""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from heliograph.cli.acls import _lines as acl_lines
from heliograph.cli.client import _print as print_client
from heliograph.cli.drill import _show_history as show_drills
from heliograph.cli.drill import _show_report as show_drill
from heliograph.cli.errors import show_error
from heliograph.cli.groups import _cells
from heliograph.cli.offsets_view import Shown, echo_csv, show_moved
from heliograph.cli.offsets_view import show as show_starts
from heliograph.cli.reporting import reporter, table
from heliograph.control.acls.rules import AclPlan, Change
from heliograph.control.groups.preview import GroupRow
from heliograph.control.groups.starts import GroupStart, Log, Moved, Start, Translated
from heliograph.errors import HeliographError
from heliograph.failover.drill_rules import (
    DrillReport,
    Finding,
    GroupDrill,
    Outcome,
    Proof,
    TimePart,
)
from heliograph.failover.risk import Risk
from heliograph.model import ClientSettings, Flow, PartitionState, TopicPartition
from heliograph.service.events import EventBus
from heliograph.service.snapshot import (
    FlowSnapshot,
    FlowState,
    Life,
    MirrorSnapshot,
    PartitionSnapshot,
)
from heliograph.shown import shown, shown_lines
from heliograph.verify.previews import changed_fields, preview
from heliograph.wire.acls import Acl
from heliograph.wire.connection import Connection
from heliograph.wire.errors import BrokerError, DamagedAnswer
from heliograph.wire.metadata import parse_metadata
from heliograph.wire.rights import missing_right
from heliograph.wire.security import Security

#: A window title, the bell, a forged line, a C1 sequence, a turned direction, a carriage return.
EVIL = "x\x1b]0;owned\x07\nFORGED \x9b2J\u202e\r\x00"
SETTINGS = ClientSettings("A", {"bootstrap.servers": "b:1"})


def _reported(capsys, form):
    with reporter(form, lambda: MirrorSnapshot(0.0, ()), EventBus()):
        logging.getLogger("heliograph.x").warning("group %s is gone", shown(EVIL))
    return capsys.readouterr().out


def by_reporter(capsys):
    return _reported(capsys, "plain")


def by_machine_reporter(capsys):
    return _reported(capsys, "json")


def by_screen(capsys):
    return _reported(capsys, "table").replace("\x1b[?25h", "").replace("\x1b[?25l", "")


def in_acl_plan():
    change = Change(Acl("TOPIC", EVIL, "LITERAL", EVIL, EVIL, "READ", "ALLOW"), f"of {shown(EVIL)}")
    plan = AclPlan([change], [change], [change], ())

    class Config:
        flow = type("F", (), {"source": "A", "target": "B", "__str__": lambda _: "A->B"})()
        sync_topic_acls_enabled = True

    out = io.StringIO()
    console = Console(file=out, width=500)
    config: Any = Config
    for line in acl_lines(config, plan):
        console.print(line)
    return out.getvalue()


def in_group_table():
    row = GroupRow(EVIL, EVIL, EVIL, EVIL, 1, 1, 0, None, EVIL)
    return "|".join(shown(cell) for cell in _cells(row))


def in_offsets(capsys):
    p = TopicPartition("t", 0)
    found = {EVIL: GroupStart(EVIL, EVIL, EVIL, {p: Start(p, 1, Log(0, 2), note=EVIL)}, {p: EVIL})}
    moved = {EVIL: Moved(EVIL, reason=EVIL)}
    seen = Shown(Flow("A", "B"), Translated(), found, [EVIL], rewind=False)
    for verbose in (False, True):
        show_starts(dataclasses.replace(seen, notes=()), verbose=verbose)
    for form in ("json", "yaml", "csv"):
        show_moved(seen, moved, form)
    echo_csv(seen)
    return capsys.readouterr().out


def in_error(capsys):
    show_error(HeliographError("code", f"group {shown(EVIL)}"))
    return capsys.readouterr().err


def of_client(capsys):
    print_client(("group", "metadata"), [(EVIL, EVIL)])
    return capsys.readouterr().out


def in_status():
    p = PartitionSnapshot("t", 0, "A.t", PartitionState.FAILED, f"why {shown(EVIL)}")
    flow = FlowSnapshot(
        "A->B", "A", "B", Life(FlowState.RUNNING), partitions=(p,), states={"failed": 1}
    )
    out = io.StringIO()
    Console(file=out, width=500).print(table(MirrorSnapshot(0.0, (flow,))))
    return out.getvalue()


def topic_of_a_rogue_broker():
    topic = type("T", (), {"error_code": 0, "name": EVIL, "partitions": []})()
    with pytest.raises(DamagedAnswer) as raised:
        parse_metadata(type("R", (), {"topics": [topic]})())
    return str(raised.value)


CONTENT = (1, EVIL.encode(), EVIL.encode(), ((EVIL, b"h"),))


def in_drill(capsys):
    p = TopicPartition("A.orders", 0)
    proof = Proof(EVIL, p, 3, Outcome.WRONG, f"header {shown(EVIL)}")
    group = GroupDrill(EVIL, "Empty", "", {p: 3}, {}, 0, 0, [proof])
    report = DrillReport(
        "A->B", "A", "B", "1", EVIL, 0, {}, 1, 1, True, Risk((), True, None, None), None, [group],
        1, 1, 1, [TimePart("looking", 1.0)], [], [Finding("drill.x", EVIL, EVIL)], [EVIL], 1.0,
    )  # fmt: skip
    show_drill(report)
    show_drills("A->B", [report.rehearsal], "table")
    return capsys.readouterr().out


PLACES: dict[str, Any] = {
    "what a broker says of an error": lambda: str(BrokerError(1, "writing", EVIL)),
    "the host of a broker": lambda: Connection(EVIL, 1, Security("PLAINTEXT"), "c").address,
    "an ACL": lambda: str(Acl("TOPIC", EVIL, "LITERAL", EVIL, EVIL, "READ", "ALLOW")),
    "acls plan": in_acl_plan,
    "a right that is missing": lambda: missing_right(SETTINGS, "Read", "group", EVIL),
    "groups": in_group_table,
    "offsets": in_offsets,
    "drill": in_drill,
    "client commands": of_client,
    "a record in verify": lambda: preview(CONTENT),
    "a header's name in verify": lambda: changed_fields(CONTENT, (*CONTENT[:3], ((EVIL, b"g"),))),
    "two headers' names in verify": lambda: changed_fields(
        CONTENT, (*CONTENT[:3], (("y" + EVIL, b"h"),))
    ),
    "a partition's state in run": in_status,
    "run -o plain": by_reporter,
    "run -o json": by_machine_reporter,
    "run's table": by_screen,
    "an error of a command": in_error,
    "the name of a topic": topic_of_a_rogue_broker,
}


@pytest.mark.parametrize("place", PLACES)
def test_foreign_text_is_harmless(place, request):
    made = PLACES[place]
    takes = made.__code__.co_varnames[: made.__code__.co_argcount]
    text = made(*(request.getfixturevalue(name) for name in takes))
    assert "FORGED" in text or place == "a record in verify", text
    assert "\nFORGED" not in text
    bad = [c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs"} and c != "\n"]
    assert not bad, ascii(text)


@given(st.text(st.characters(), max_size=50))
def test_shown_is_printable_and_printable_text_stays(text):
    assert shown(text).isprintable()
    assert shown_lines(text).replace("\n", "").isprintable()
    if text.isprintable():
        assert shown(text) == shown_lines(text) == text


def test_bytes_that_are_not_utf8_and_long_texts():
    assert shown(b"a\xff".decode("utf-8", "surrogateescape")) == "a\\xff"
    assert shown("x" * 5000) == "x" * 1000 + "... (5000 characters)"
    assert json.dumps(EVIL).isprintable()
