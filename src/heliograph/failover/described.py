"""Plans and reports of handovers as JSON: for ``-o json`` and for the REST API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.control.groups.start_rules import GroupStart, Moved
from heliograph.failover.divergence import Parted
from heliograph.failover.failback_plan import FailbackPlan, FailbackReport
from heliograph.failover.failover import FailoverPlan, FailoverReport
from heliograph.failover.risk import Risk
from heliograph.failover.source_side import SourceSeen
from heliograph.ledger.handovers import Handover
from heliograph.model import TopicPartition
from heliograph.units import moment

__all__ = [
    "failback_plan_json",
    "failback_report_json",
    "groups_json",
    "handover_json",
    "moved_json",
    "plan_json",
    "report_json",
    "risk_json",
    "source_json",
]


def plan_json(plan: FailoverPlan) -> dict[str, Any]:
    """What a failover would do."""
    return {
        "flow": plan.flow,
        "source": source_json(plan.source),
        "topics": plan.mirrored.topics,
        "partitions": len(plan.mirrored.places),
        "at_risk": risk_json(plan.risk),
        "groups": groups_json(plan.groups),
        "faulted": _faulted_json(plan.faulted),
        "notes": list(plan.notes),
        "before": handover_json(plan.before) if plan.before is not None else None,
        "refusals": [
            {"code": r.code, "message": str(r.args[0]), "hint": r.hint} for r in plan.refusals
        ],
    }  # fmt: skip


def report_json(report: FailoverReport) -> dict[str, Any]:
    """What a failover did."""
    return {
        "flow": report.flow,
        "handover": handover_json(report.handover),
        "repeated": report.repeated,
        "source": source_json(report.source),
        "rto_seconds": round(report.rto_seconds, 3),
        "rpo": risk_json(report.risk),
        "partitions": [
            {"source": str(p), "target": str(report.targets[p]), "mirrored_before": at.source,
             "target_end": at.target, "exact": at.exact}
            for p, at in sorted(report.positions.items())
        ],
        "groups": moved_json(report.moved, report.starts),
        "faulted": _faulted_json(report.faulted),
        "notes": list(report.notes),
        "steps": {name: round(seconds, 3) for name, seconds in report.took.items()},
    }  # fmt: skip


def _faulted_json(faulted: Mapping[TopicPartition, str]) -> dict[str, str]:
    return {str(p): why for p, why in sorted(faulted.items())}


def failback_plan_json(plan: FailbackPlan) -> dict[str, Any]:
    """What a failback would do; ``choice`` may be filled in by hand, and the plan carried out."""
    topics = sorted({p.source.topic for p in plan.parted} | plan.choices.keys())
    return {
        "flow": plan.flow,
        "failover": handover_json(plan.failover),
        "before": handover_json(plan.before) if plan.before is not None else None,
        **plan.totals._asdict(),
        "topics": [
            {
                "topic": topic,
                "only_source": sum(p.here.records for p in plan.of(topic)),
                "only_target": sum(p.there.records for p in plan.of(topic)),
                "choice": choice.value if (choice := plan.choices.get(topic)) else None,
                "partitions": [_parted_json(p) for p in plan.of(topic)],
            }
            for topic in topics
        ],
        "refusals": [
            {"code": r.code, "message": str(r.args[0]), "hint": r.hint} for r in plan.refusals
        ],
    }  # fmt: skip


def _parted_json(p: Parted) -> dict[str, Any]:
    return {
        "partition": p.source.partition,
        "mirrored": p.begun,
        "source_parts_at": p.here.begin,
        "source_start": p.here.start,
        "source_end": p.here.end,
        "only_source": p.here.records,
        "source_deleted": p.here.deleted,
        "target_parts_at": p.there.begin,
        "target_start": p.there.start,
        "target_end": p.there.end,
        "only_target": p.there.records,
        "target_deleted": p.there.deleted,
        "lost": p.lost,
        "must_rebuild": p.must_rebuild,
    }


def failback_report_json(report: FailbackReport) -> dict[str, Any]:
    """What a failback did."""
    return {
        "plan": failback_plan_json(report.plan),
        "handover": handover_json(report.handover),
        "repeated": report.repeated,
        "kept": report.kept,
        "exported": report.exported,
        "exported_to": report.exported_to or None,
        "rebuilt": list(report.rebuilt),
        "behind": {str(p): records for p, records in sorted(report.behind.items())},
        "steps": {name: round(seconds, 3) for name, seconds in report.took.items()},
    }  # fmt: skip


def source_json(source: SourceSeen) -> dict[str, Any]:
    """What a source answered."""
    return {
        "answers": source.answers, "healthy": source.healthy, "why_not": source.why_not,
        "silent_partitions": len(source.silent),
    }  # fmt: skip


def risk_json(risk: Risk) -> dict[str, Any]:
    """What would be lost, or was."""
    known = risk.exact or risk.as_of_ms is not None
    return {
        "records": risk.records if known else None,
        "exact": risk.exact,
        "seconds": risk.seconds,
        "as_of": moment(risk.as_of_ms / 1000) if risk.as_of_ms is not None else None,
        "unknown_partitions": risk.unknown,
        "partitions": [
            {"partition": str(p.partition), "mirrored_before": p.mirrored,
             "source_end": p.source_end, "records": p.records}
            for p in risk.behind
        ],
        "text": str(risk),
    }  # fmt: skip


def handover_json(handover: Handover) -> dict[str, Any]:
    """A handover as the ledger has it."""
    return {
        "id": handover.id, "kind": handover.kind.value, "by": handover.by,
        "began": moment(handover.began_ms / 1000),
        "ended": moment(handover.ended_ms / 1000) if handover.ended_ms else None,
        "aborted": handover.aborted, "steps": list(handover.steps),
        "topics": None if handover.topics is None else list(handover.topics),
    }  # fmt: skip


def groups_json(groups: Mapping[str, GroupStart]) -> list[dict[str, Any]]:
    """Where groups would start."""
    return [
        {
            "group": name, "state": start.state, "reason": start.reason,
            "partitions": len(start.starts),
            "skips": sum(s.skips for s in start.starts.values()),
            "repeats": sum(s.repeats for s in start.starts.values()),
            "unset": {str(p): why for p, why in sorted(start.unset.items())},
        }
        for name, start in sorted(groups.items())
    ]  # fmt: skip


def moved_json(
    moved: Mapping[str, Moved], starts: Mapping[str, GroupStart]
) -> list[dict[str, Any]]:
    """What became of groups."""
    return [
        {
            "group": name, "moved": not m.reason, "reason": m.reason, "written": m.written,
            "already": m.already, "kept_ahead": m.kept_ahead,
            "kept": {
                str(p): {"committed": at.committed, "translated": at.offset}
                for p, at in sorted(m.kept.items())
            },
            "offsets": {
                str(p): s.offset for p, s in sorted(starts[name].starts.items())
            } if name in starts else {},
            "unset": {
                str(p): why for p, why in sorted(starts[name].unset.items())
            } if name in starts else {},
        }
        for name, m in sorted(moved.items())
    ]  # fmt: skip
