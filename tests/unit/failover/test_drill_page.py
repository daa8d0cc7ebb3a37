"""What the report of a drill says, as a page and as JSON."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import pytest

from heliograph.failover.drill_described import drill_json, drill_page, rehearsal_json
from heliograph.failover.drill_rules import (
    DrillReport,
    Finding,
    GroupDrill,
    Outcome,
    Proof,
    TimePart,
)
from heliograph.failover.risk import PartitionRisk, Risk
from heliograph.ledger.rehearsals import Rehearsal, RehearsalKind
from heliograph.model import TopicPartition

EVIL = "<script>alert(1)</script>\x1b[31m\u202e\"'>"
WHEN_MS = 1_790_000_000_000
WEEK_MS = 7 * 86_400_000
P, Q = TopicPartition("A.orders", 0), TopicPartition("A.orders", 1)


def report(**changes):
    known: dict[str, Any] = {
        "flow": "A->B", "source": "A", "target": "B", "id": "19f-ab-1-2-c", "by": "ops@host",
        "began_ms": WHEN_MS, "versions": {"Heliograph": "1.0", "Kafka of B": "4.1 or later"},
        "topics": 1, "partitions": 2, "source_answers": True,
        "risk": Risk((PartitionRisk(TopicPartition("orders", 0), 100, 100, 1304),), True, None,
                     None),
        "rpo_seconds": 0.4,
        "groups": [
            GroupDrill("billing", "Empty", "", {P: 90, Q: 70}, {}, 0, 0, [
                Proof("billing", P, 90, Outcome.SAME, "90 on the source, 90 on the target"),
            ]),
            GroupDrill(EVIL, "Stable", "is in use on B (Stable)", {}, {Q: "no offset of it"}, 0, 0),
        ],
        "starts": 2, "copied": 2, "records": 120,
        "measured": [TimePart("looking", 1.5), TimePart("reading", 0.5)],
        "assumed": [TimePart("stopping the mirrors", 7.0, "at most: two looks")],
        "findings": [], "notes": [], "took_seconds": 3.0, "earlier": [],
    } | changes  # fmt: skip
    return DrillReport(**known)


def history(count):
    made = []
    for n in range(count):
        ok = n % 5 != 2
        kind = RehearsalKind.FAILOVER if n == 7 else RehearsalKind.DRILL
        text = "ready: 12 groups would go on" if ok else f"not ready: {EVIL}"
        made.append(Rehearsal(
            WHEN_MS - (n + 1) * WEEK_MS, kind, 9.0 + n % 4 if ok or n % 2 else None, 10 * n,
            0.1 * n, ok, 12, EVIL if n == 1 else "schedule", text,
        ))  # fmt: skip
    return made


class Reader(HTMLParser):
    """Tags, and text outside of styles."""

    def __init__(self):
        super().__init__()
        self.tags, self.texts, self._style = [], [], False

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._style = tag == "style"

    def handle_endtag(self, tag):
        self._style = False

    def handle_data(self, data):
        if not self._style and data.strip():
            self.texts.append(data.strip())


def read(page):
    reader = Reader()
    reader.feed(page)
    return reader


def test_rto_is_what_was_measured_and_what_cannot_be_rehearsed():
    made = report()
    assert (made.measured_seconds, made.rto_seconds) == (2.0, 9.0)
    assert made.sentence == (
        "ready: 1 group can be moved within 9.0 s; 1 of 1 starts looked at are right"
    )
    kept = made.rehearsal
    assert (kept.kind, kept.ok, kept.rto_seconds) == (RehearsalKind.DRILL, True, 9.0)
    assert (kept.rpo_records, kept.rpo_seconds, kept.groups) == (1204, 0.4, 1)
    blind = report(risk=Risk((), False, None, None))
    assert blind.rehearsal.rpo_records is None, "nobody knows"


def test_a_finding_makes_it_not_ready():
    made = report(findings=[Finding("drill.skips", "g would skip 5"), Finding("x", "y")])
    assert made.sentence == "not ready: g would skip 5 (and 1 more)"
    assert (made.rehearsal.ok, made.rehearsal.text) == (False, made.sentence)


@pytest.mark.parametrize("earlier", [[], history(49)])
def test_the_page_needs_nothing_else_and_foreign_names_do_nothing(earlier):
    findings = [Finding("drill.wrong-start", f"group {EVIL} is wrong", "mend it")]
    page = drill_page(report(findings=findings, earlier=earlier, notes=[EVIL], by=EVIL))
    assert not set("\x1b\u202e") & set(page)
    found = read(page)
    tags = {tag for tag, _ in found.tags}
    assert not tags & {"script", "link", "img", "iframe", "object"}
    attributes = [name for _, told in found.tags for name in told]
    assert not {"src", "href", "style"} & set(attributes)
    assert not [name for name in attributes if name.startswith("on")]
    bars = [told for tag, told in found.tags if tag == "rect"]
    assert len(bars) == len(earlier) + 1
    assert all(float(b["y"]) >= 0 and float(b["height"]) > 0 for b in bars)
    text = " ".join(found.texts)
    for said in ("is wrong", "90 on the source, 90 on the target", "Not rehearsed",
                 "at most: two", "is in use on B (Stable)", "no offset of it", "1,204",
                 "Kafka of B 4.1"):  # fmt: skip
        assert said in text, said


def test_json_has_all():
    made = report(findings=[Finding("drill.skips", "g would skip 5", "mend it")],
                  earlier=history(3))  # fmt: skip
    said = json.loads(json.dumps(drill_json(made)))
    assert (said["ok"], said["rto_seconds"], said["rpo"]["records"]) == (False, 9.0, 1204)
    assert said["findings"] == [
        {"code": "drill.skips", "message": "g would skip 5", "hint": "mend it"}
    ]
    assert said["outcomes"]["same record"] == 1
    assert [g["starts"] for g in said["groups"]] == [{"A.orders-0": 90, "A.orders-1": 70}, {}]
    assert said["history"] == [rehearsal_json(r) for r in made.earlier]
    assert [p["measured"] for p in said["rto"]] == [True, True, False]
    assert said["not_rehearsed"]
