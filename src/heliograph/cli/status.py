"""``heliograph status``: is the mirror healthy? One look, with an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from heliograph.cli.documents import echo_document
from heliograph.cli.flows import console_for_tables, output_option
from heliograph.cli.read_back import flow_of, time_of
from heliograph.cli.reporting import (
    BAD_STATES,
    colour,
    copies,
    details,
    flow_table,
    risks,
    roll_up,
    topics_that_rest,
)
from heliograph.cli.watched import Watched, mirror_argument
from heliograph.errors import StartError
from heliograph.service.at_risk import diverged_words, recovery_words, risk_words
from heliograph.service.snapshot import FlowSnapshot, FlowState, Life
from heliograph.shown import shown, shown_lines
from heliograph.units import counted, duration, latency

__all__ = ["canary_words", "problems_of", "status_command", "status_of", "status_table"]

_FINE = {FlowState.RUNNING, FlowState.STANDING_BY}
#: So many topics that are not mirrored are named to people.
_NAMED = 5


@click.command("status")
@mirror_argument
@output_option("table", "json", "yaml")
def status_command(find_mirror: Any, output: str) -> None:
    """Show once how every flow is doing; the exit code says whether all is well.

    FILE is the mm2.properties or worker file of the mirror, URL the address of its REST API;
    without either, http://127.0.0.1:8083. A file leads to the REST API of the mirror that has its
    flows. If there is none, both clusters are measured from here: nothing is written.

    Exit codes: 0 healthy, 1 something is wrong (a partition failed or stalled, a flow, a part of it
    or a topic does not run, Spark is not ready, a lag is not known, a control job fails, the canary
    is lost, a topic is not mirrored), 3 nothing could be reached, or no mirror runs.
    """
    with find_mirror() as watched:
        watched.settle()
        status = status_of(watched)
    if output == "table":
        console = console_for_tables()
        console.print(status_table(status, console.width))
    else:
        echo_document(status, output)
    if not status["running"]:
        sys.exit(StartError.exit_code)
    if not status["healthy"]:
        sys.exit(1)


def status_of(watched: Watched) -> dict[str, Any]:
    """Everything that ``-o json`` prints."""
    found = watched.get("/snapshot")
    flows = [_flow_status(watched, plain) for plain in found["flows"]]
    engine = found.get("engine")
    problems = [f"{flow['flow']}: {text}" for flow in flows for text in flow["problems"]]
    if engine is not None and engine["state"] != "ready":
        problems.append(": ".join(filter(None, ("Spark", engine["state"], engine["reason"]))))
    return {
        "mirror": {**watched.source(), "note": watched.note},
        "at": found["at"], "started_at": found.get("started_at"),
        "running": watched.rest is not None or any(flow.get("owner") for flow in flows),
        "healthy": not problems, "problems": problems, "engine": engine, "flows": flows,
    }  # fmt: skip


def _flow_status(watched: Watched, plain: dict[str, Any]) -> dict[str, Any]:
    flow = flow_of(plain)
    more: dict[str, Any] = {"troubled": [], "failing": []}
    if flow.states.keys() - {"idle", "copying", "starting"} or plain.get("failing_jobs"):
        asked = watched.get(f"/flows/{flow.flow}")
        more = {name: asked.get(name, []) for name in more}
    problems = problems_of(flow, more["failing"])
    if watched.rest is None and watched.kafka is not None:
        more |= watched.kafka.about(flow.flow)
        if unmirrored := more["unmirrored"]:
            problems.append(
                f"{counted(len(unmirrored), 'topic')} not mirrored: {_some(unmirrored)}"
            )
    return {**plain, "healthy": not problems, "problems": problems, **more}


def problems_of(flow: FlowSnapshot, failing: Sequence[dict[str, Any]]) -> list[str]:
    """What is wrong with a flow, a line each; nothing if it is healthy.

    A flow that another mirror has is healthy here: that one tells how it is.
    """
    found = [f"{words}: {life.reason}" if life.reason else words for words, life in _not_fine(flow)]
    found += _of_partitions(flow)
    found += topics_that_rest(flow)
    if copies(flow) and flow.life.state in _FINE:
        if not flow.measured_at:
            found.append("its lag was not measured yet")
        elif flow.unmeasured:
            found.append(f"the lag of {counted(flow.unmeasured, 'partition')} is not known")
    if flow.diverged_records:
        found.append(diverged_words(flow))
    found += [f"{job['description']}: {job['error']}" for job in failing]
    return found + _lost_canary(flow)


def _not_fine(flow: FlowSnapshot) -> list[tuple[str, Life]]:
    """The life of the flow if that is not as it should be, else those of its parts that are not."""
    lives = {"": flow.life} if flow.life.state not in _FINE else dict(flow.parts)
    return [
        (" ".join(filter(None, (name, life.state))), life)
        for name, life in lives.items()
        if life.state not in _FINE
    ]


def _of_partitions(flow: FlowSnapshot) -> list[str]:
    return [f"{counted(n, 'partition')} {state}" for state, n in flow.states.items()
            if state in BAD_STATES]  # fmt: skip


def _lost_canary(flow: FlowSnapshot) -> list[str]:
    canary = flow.canary
    if canary is None or not canary.overdue or flow.life.state is not FlowState.RUNNING:
        return []
    return [
        f"canary lost: a probe has been on its way for {duration(canary.latency_seconds or 0.0)}"
    ]


def canary_words(flow: FlowSnapshot) -> str:
    """How long the last probe took, and how far two clocks differ; empty before the first."""
    canary = flow.canary
    if canary is None or canary.latency_seconds is None:
        return ""
    said = "".join(_lost_canary(flow)) or f"canary {latency(canary.latency_seconds)}"
    if canary.skew_seconds is not None:
        skew = round(canary.skew_seconds, 3)
        said += f", clock skew {'-' if skew < 0 else ''}{latency(abs(skew))}"
    return said


def _said_above(flow: FlowSnapshot) -> list[str]:
    """The problems that are in the flow's row, or in the lines below it, already."""
    row = roll_up(flow).split(", ")
    lives = [
        f"{words}: {life.reason}" if life.reason else words
        for words, life in _not_fine(flow)
        if life.reason or words in row
    ]
    lives += [diverged_words(flow)]
    return lives + _of_partitions(flow) + topics_that_rest(flow) + _lost_canary(flow)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def status_table(status: dict[str, Any], width: int) -> RenderableType:
    """What people read: a row a flow, reasons below, the verdict last."""
    flows = [flow_of(plain) for plain in status["flows"]]
    rows = [(f, p["topics"], p["partitions"]) for f, p in zip(flows, status["flows"], strict=True)]
    mirror = status["mirror"]
    where = mirror["url"] or "measured from Kafka, not told by a mirror"
    lines = [f"note: {mirror['note']}"] if mirror["note"] else []
    for flow, plain in zip(flows, status["flows"], strict=True):
        lines += [f"{flow.flow} {text}" for text in details(flow)]
        if risks(flow):
            at_risk = risk_words(flow, time_of(status["at"]))
            lines.append(f"{flow.flow} {at_risk}; {recovery_words(flow)}")
        if copies(flow) and (said := canary_words(flow)):
            lines.append(f"{flow.flow} {said}")
        owner = plain.get("owner")
        if owner:
            text = f"mirrored by host {owner['host']}, pid {owner['pid']}, since {owner['since']}"
            lines.append(f"{flow.flow} {text}")
    told = {f"{flow.flow}: {text}" for flow in flows for text in _said_above(flow)}
    lines += [text for text in status["problems"] if text not in told]
    worst = [colour(flow) for flow in flows]
    verdict = Text("healthy", "green") if status["healthy"] else Text(
        f"not healthy: {counted(len(status['problems']), 'problem')}",
        "red" if "red" in worst else "yellow",
    )  # fmt: skip
    title = f"heliograph at {shown(where)}" if mirror["url"] else f"heliograph, {where}"
    return Group(
        flow_table(rows, width, title), *(Text(shown_lines(line)) for line in lines), verdict
    )
