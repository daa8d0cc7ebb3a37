"""Plans and reports of switchovers as JSON: for ``-o json`` and for the REST API."""

from __future__ import annotations

from typing import Any

from heliograph.failover.described import groups_json, handover_json, moved_json
from heliograph.failover.switchover import SwitchoverReport
from heliograph.failover.switchover_check import SwitchoverPlan

__all__ = ["switchover_plan_json", "switchover_report_json"]


def switchover_plan_json(plan: SwitchoverPlan) -> dict[str, Any]:
    """What a switchover would do."""
    fence = plan.fence
    return {
        "flow": plan.flow,
        "reverse": plan.reverse,
        "topics": plan.shared.topics,
        "partitions": len(plan.shared.targets),
        "mirrors": dict(plan.mirrors),
        "lag": {
            "records": sum(plan.lags.values()),
            "partitions": {str(p): lag for p, lag in sorted(plan.lags.items())},
        },
        "groups": groups_json(plan.groups),
        "groups_in_use": dict(plan.in_use),
        "fence": None if fence is None else {
            "topics": sorted(fence.missing), "denied_already": sorted(fence.others),
        },
        "before": handover_json(plan.before) if plan.before is not None else None,
        "refusals": [
            {"code": r.code, "message": str(r.args[0]), "hint": r.hint} for r in plan.refusals
        ],
    }  # fmt: skip


def switchover_report_json(report: SwitchoverReport) -> dict[str, Any]:
    """What a switchover did."""
    return {
        "flow": report.flow,
        "reverse": report.reverse,
        "handover": handover_json(report.handover),
        "repeated": report.repeated,
        "pause_seconds": round(report.pause_seconds, 3),
        "rto_seconds": round(report.rto_seconds, 3),
        "partitions": [
            {"source": str(p), "target": str(report.targets[p]), "source_end": at.source,
             "target_end": at.target}
            for p, at in sorted(report.positions.items())
        ],
        "groups": moved_json(report.moved, report.starts),
        "groups_in_use_on_source": dict(report.left_behind),
        "source_fenced": report.fenced,
        "steps": {name: round(seconds, 3) for name, seconds in report.took.items()},
    }  # fmt: skip
