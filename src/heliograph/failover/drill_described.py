"""Drills and their history as JSON and as a page for the auditor. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from heliograph.failover.described import risk_json
from heliograph.failover.drill_rules import (
    NOT_REHEARSED,
    REHEARSED,
    RIGHT,
    DrillReport,
    Outcome,
    Proof,
)
from heliograph.ledger.rehearsals import Rehearsal
from heliograph.pages import page
from heliograph.units import duration, moment

__all__ = ["drill_json", "drill_page", "rehearsal_json"]

#: A page stays small enough to be opened and printed; JSON has all.
_MOST_ROWS = 2000
#: Of the chart, in its own units.
_WIDE, _HIGH, _ROOM = 720, 150, 18


def drill_json(report: DrillReport) -> dict[str, Any]:
    """All of a drill."""
    return {
        "flow": report.flow, "id": report.id, "by": report.by,
        "began": moment(report.began_ms / 1000), "took_seconds": round(report.took_seconds, 3),
        "ok": report.ok, "verdict": report.sentence,
        "rto_seconds": round(report.rto_seconds, 3),
        "rto": [
            {"part": p.name, "seconds": round(p.seconds, 3), "measured": p in report.measured,
             "source": p.source or "measured"}
            for p in (*report.measured, *report.assumed)
        ],
        "rpo": {**risk_json(report.risk), "records": report.rpo_records,
                "seconds": report.rpo_seconds},
        "findings": [
            {"code": f.code, "message": f.text, "hint": f.hint} for f in report.findings
        ],
        "notes": list(report.notes),
        "topics": report.topics, "partitions": report.partitions,
        "starts": report.starts, "copied": report.copied, "records_read": report.records,
        "outcomes": {str(outcome): report.outcomes[outcome] for outcome in Outcome},
        "groups": [
            {
                "group": g.group, "state": g.state, "reason": g.reason,
                "skips": g.skips, "repeats": g.repeats,
                "starts": {str(p): offset for p, offset in g.starts.items()},
                "unset": {str(p): why for p, why in sorted(g.unset.items())},
                "proofs": [
                    {"partition": str(p.partition), "offset": p.offset,
                     "outcome": str(p.outcome), "text": p.text}
                    for p in g.proofs
                ],
            }
            for g in report.groups
        ],
        "rehearsed": list(REHEARSED), "not_rehearsed": list(NOT_REHEARSED),
        "versions": dict(report.versions),
        "history": [rehearsal_json(r) for r in report.earlier],
    }  # fmt: skip


def rehearsal_json(rehearsal: Rehearsal) -> dict[str, Any]:
    """One of the history."""
    return {
        "at": moment(rehearsal.at_ms / 1000), "kind": str(rehearsal.kind), "ok": rehearsal.ok,
        "rto_seconds": rehearsal.rto_seconds, "rpo_records": rehearsal.rpo_records,
        "rpo_seconds": rehearsal.rpo_seconds, "groups": rehearsal.groups, "by": rehearsal.by,
        "text": rehearsal.text,
    }  # fmt: skip


# -- the page -------------------------------------------------------------------------------------


class _Bar(NamedTuple):
    """One rehearsal in the chart."""

    x: float
    y: float
    wide: float
    high: float
    good: bool
    title: str


def drill_page(report: DrillReport) -> str:
    """One page for the auditor. Whatever others named is escaped."""
    history = [report.rehearsal, *report.earlier]
    rows = [(g, row) for g in report.groups for row in _rows(g.starts.items(), g.proofs)]
    return page(
        "drill.html", r=report, figures=_figures(report), history=history, bars=_bars(history),
        chart=(_WIDE, _HIGH, _ROOM), longest=_longest(history),
        rows=list(islice(rows, _MOST_ROWS)), more_rows=max(len(rows) - _MOST_ROWS, 0),
        unset=[(g.group, p, why) for g in report.groups for p, why in sorted(g.unset.items())],
        parts=[(p, p in report.measured) for p in (*report.measured, *report.assumed)],
        rehearsed=REHEARSED, not_rehearsed=NOT_REHEARSED, good=RIGHT, wrong=Outcome.WRONG,
        duration=duration, when=lambda ms: moment(ms / 1000),
    )  # fmt: skip


def _rows(starts: Any, proofs: Sequence[Proof]) -> list[tuple[Any, int, Proof | None]]:
    """Each start of a group with what was proven there; what was looked at first."""
    known = {p.partition: p for p in proofs}
    rows = [(partition, offset, known.get(partition)) for partition, offset in starts]
    return sorted(rows, key=lambda row: (row[2] is None, row[0]))


def _figures(report: DrillReport) -> dict[str, str]:
    records, seconds = report.rpo_records, report.rpo_seconds
    return {
        "RTO": duration(report.rto_seconds),
        "measured of it": duration(report.measured_seconds),
        "RPO, records": "not known" if records is None else f"{records:,}",
        "RPO, time": "not known" if seconds is None else duration(seconds),
        "groups that can be moved": f"{sum(not g.reason for g in report.groups):,}"
        f" of {len(report.groups):,}",
        "starts that are right": f"{report.right:,} of {len(report.proofs):,} looked at",
        "starts committed for copies": f"{report.copied:,} of {report.starts:,}",
        "records read": f"{report.records:,}",
        "topics, partitions": f"{report.topics:,}, {report.partitions:,}",
    }


def _longest(history: Sequence[Rehearsal]) -> float:
    return max((r.rto_seconds for r in history if r.rto_seconds is not None), default=0.0)


def _bars(history: Sequence[Rehearsal]) -> list[_Bar]:
    """RTO by rehearsal, the oldest first; one that came to no end is a full bar."""
    longest = _longest(history) or 1.0
    step = _WIDE / max(len(history), 12)
    bars = []
    for i, r in enumerate(reversed(history)):
        share = 1.0 if r.rto_seconds is None else r.rto_seconds / longest
        high = max(share * (_HIGH - _ROOM), 1.0)
        rto = "no end" if r.rto_seconds is None else duration(r.rto_seconds)
        title = f"{moment(r.at_ms / 1000)} {r.kind}: {rto}, {'ok' if r.ok else 'not ok'}"
        bars.append(_Bar(round(i * step, 1), round(_HIGH - high, 1), round(step * 0.7, 1),
                         round(high, 1), r.ok, title))  # fmt: skip
    return bars
