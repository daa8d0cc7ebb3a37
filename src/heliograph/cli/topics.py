"""``heliograph topics``: what becomes of remote topics."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from heliograph.cli.blocks import echo_block, echo_row
from heliograph.cli.flows import ask_flows, file_argument, flow_option, output_option
from heliograph.config import FlowConfig
from heliograph.control.topics.config_rules import ConfigChange
from heliograph.control.topics.preview import TopicPreview, preview
from heliograph.shown import shown_lines
from heliograph.wire.admin import NewTopic
from heliograph.wire.cluster import ClusterClient

__all__ = ["topics_group"]


@click.group("topics")
def topics_group() -> None:
    """Shows what the mirror does about remote topics."""


@topics_group.command()
@file_argument
@flow_option
@output_option("table", "json")
def plan(file: Path, flow: str | None, output: str) -> None:
    """Show what 'heliograph run FILE' would change about topics now. Changes nothing.

    Topics to create, grow or delete on the target, and every property that would change, with its
    old and new value and the reason; the flow's internal topics, if they are missing. The target is
    asked what it would refuse: with such problems the exit code is 1. In a pipe, each change is one
    line with tabs: flow, change, topic, what, why.
    """
    seen = ask_flows(file, flow, _preview)
    if output == "json":
        click.echo(seen.as_json(_as_json))
    else:
        for config, answer in seen.found:
            _show(config, answer)
    seen.raise_errors()
    if any(answer.problems for _, answer in seen.found):
        sys.exit(1)


def _preview(config: FlowConfig) -> TopicPreview:
    with (
        ClusterClient(config.source_admin, f"{config.flow}|plan-source-admin") as source,
        ClusterClient(config.target_admin, f"{config.flow}|plan-target-admin") as target,
    ):
        return preview(config, source, target)


def _show(config: FlowConfig, seen: TopicPreview) -> None:
    flow = str(config.flow)
    if seen.nothing:
        click.echo(f"{flow}: nothing to do")
    elif sys.stdout.isatty():
        click.secho(f"{flow}: on cluster {config.flow.target}", bold=True)
        for change, topic, what, why in _rows(seen):
            echo_block(f"{change} {topic}", what, why)
    else:
        for row in _rows(seen):
            echo_row(flow, *row)
    for fate in seen.kept.values():
        click.echo(f"{click.style('note', fg='yellow')} {shown_lines(fate.text)}")
    for text in seen.problems:
        click.echo(f"{click.style('problem', fg='red')} {shown_lines(text)}")


def _rows(seen: TopicPreview) -> Iterator[tuple[str, str, str, str]]:
    for alias, topic in seen.internal:
        yield "create", topic.name, _new_topic(topic), f"internal topic of the flow, on {alias}"
    for topic in seen.create:
        yield "create", topic.name, _new_topic(topic), "source topic is not mirrored yet"
    for name, (have, want) in seen.grow.items():
        yield "grow", name, f"{have} -> {want} partitions", "source topic has more"
    for c in seen.changes:
        yield "config", c.topic, f"{c.name}: {_value(c.old)} -> {_new(c)}", c.reason
    for name, fate in seen.delete.items():
        yield "delete", name, fate.size, fate.reason


def _new_topic(topic: NewTopic) -> str:
    factor = "default" if topic.replication_factor < 0 else str(topic.replication_factor)
    partitions = f"{topic.partitions} partition{'' if topic.partitions == 1 else 's'}"
    configs = (f"{name}={value}" for name, value in sorted(topic.configs.items()))
    return ", ".join((partitions, f"replication factor {factor}", *configs))


def _topic_json(topic: NewTopic) -> dict[str, object]:
    return {
        "topic": topic.name,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "configs": dict(topic.configs),
    }


def _new(change: ConfigChange) -> str:
    return "the target's default" if change.new is None else _value(change.new)


def _value(value: str | None) -> str:
    return "(none)" if value is None else value or '""'


def _as_json(config: FlowConfig, seen: TopicPreview) -> dict[str, object]:
    return {
        "flow": str(config.flow),
        "internal": [{"cluster": alias, **_topic_json(t)} for alias, t in seen.internal],
        "create": [_topic_json(t) for t in seen.create],
        "grow": [
            {"topic": name, "partitions": have, "new_partitions": want}
            for name, (have, want) in seen.grow.items()
        ],
        "configs": [
            {"topic": c.topic, "property": c.name, "old": c.old, "new": c.new, "reason": c.reason}
            for c in seen.changes
        ],
        "delete": [{"topic": n, "reason": fate.text} for n, fate in seen.delete.items()],
        "keep": [{"topic": n, "reason": fate.text} for n, fate in seen.kept.items()],
        "problems": list(seen.problems),
    }
