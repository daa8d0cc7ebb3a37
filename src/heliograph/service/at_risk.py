"""What a flow would lose, and how long a failover takes, in words. Pure."""

from __future__ import annotations

from heliograph.service.snapshot import FlowSnapshot
from heliograph.units import counted, duration, moment

__all__ = ["diverged_words", "recovery_words", "risk_words"]

#: What was measured longer ago is said to be old: measurements of most flows are 2 s apart.
_OLD_SECONDS = 10.0


def risk_words(flow: FlowSnapshot, now: float) -> str:
    """What would be lost if the source died at ``now``, as far as that is known."""
    risk, head = flow.at_risk, f"if {flow.source} died now: "
    if risk is None or risk.records is None:
        return head + "what would be lost is not known"
    said = counted(risk.records, "record")
    if risk.records:
        waited = "not known for how long" if risk.seconds is None else duration(risk.seconds)
        said += f" in {counted(risk.topics, 'topic')}, {waited}"
    if risk.unmeasured:
        said += f"; what {counted(risk.unmeasured, 'partition')} would lose is not known"
    if now - risk.measured_at >= _OLD_SECONDS:
        said += f"; {flow.source} last answered at {moment(risk.measured_at)}"
    return head + said


def diverged_words(flow: FlowSnapshot) -> str:
    """What only the source of a flow has that was failed over; empty if that is nothing."""
    if not flow.diverged_records:
        return ""
    return (
        f"failed over, and {flow.source} has {counted(flow.diverged_records, 'record')} that"
        f" {flow.target} has not: stop what writes to {flow.source}; 'heliograph failback' asks"
        " what is to become of them"
    )


def recovery_words(flow: FlowSnapshot) -> str:
    """How long the last failover took, rehearsed or not."""
    if flow.rto_seconds is None:
        return "recovery was never rehearsed"
    return f"recovery took {duration(flow.rto_seconds)} at {moment(flow.rto_measured_at)}"
