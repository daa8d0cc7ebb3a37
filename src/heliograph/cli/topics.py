"""``heliograph topics``: what becomes of remote topics."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from heliograph.cli.flows import asking_clusters, file_argument, flow_option, flows_of
from heliograph.config import FlowConfig
from heliograph.control.topic_configs import ConfigChange
from heliograph.control.topic_preview import TopicPreview, preview
from heliograph.wire.cluster import ClusterClient

__all__ = ["topics_group"]


@click.group("topics")
def topics_group() -> None:
    """Shows what the mirror does about remote topics."""


@topics_group.command()
@file_argument
@flow_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table",
              show_default=True)  # fmt: skip
def plan(file: Path, flow: str | None, output: str) -> None:
    """Show what 'heliograph run FILE' would change about topics now. Changes nothing.

    Topics to create, grow or delete on the target, and every property that would change, with its
    old and new value and the reason. The target is asked what it would refuse.
    """
    with asking_clusters():
        found = [(config, _preview(config)) for config in flows_of(file, flow)]
    if output == "json":
        click.echo(json.dumps([_as_json(config, seen) for config, seen in found], indent=2))
        return
    # Piped output is for programs and logs: no wrapping at an assumed 80 columns.
    console = Console(soft_wrap=True) if sys.stdout.isatty() else Console(width=240)
    for config, seen in found:
        _show(console, config, seen)


def _preview(config: FlowConfig) -> TopicPreview:
    with (
        ClusterClient(config.source_admin, f"{config.flow}|plan-source-admin") as source,
        ClusterClient(config.target_admin, f"{config.flow}|plan-target-admin") as target,
    ):
        return preview(config, source, target)


def _show(console: Console, config: FlowConfig, seen: TopicPreview) -> None:
    flow = str(config.flow)
    if seen.nothing:
        console.print(f"{flow}: nothing to do", markup=False, highlight=False)
    else:
        table = Table(title=escape(f"{flow}: on cluster {config.flow.target}"),
                      title_justify="left")  # fmt: skip
        for name in ("change", "topic", "what", "why"):
            table.add_column(name, overflow="fold")
        for row in _rows(seen):
            table.add_row(*map(escape, row))
        console.print(table)
    for fate in seen.kept.values():
        console.print(f"[yellow]note[/] {escape(fate.text)}", highlight=False)
    for text in seen.problems:
        console.print(f"[red]problem[/] {escape(text)}", highlight=False)


def _rows(seen: TopicPreview) -> Iterator[tuple[str, str, str, str]]:
    for topic in seen.create:
        factor = "default" if topic.replication_factor < 0 else str(topic.replication_factor)
        configs = "".join(f"\n{name}={value}" for name, value in sorted(topic.configs.items()))
        what = f"{topic.partitions} partition(s), replication factor {factor}{configs}"
        yield "create", topic.name, what, "source topic is not mirrored yet"
    for name, (have, want) in seen.grow.items():
        yield "grow", name, f"{have} -> {want} partitions", "source topic has more"
    for c in seen.changes:
        yield "config", c.topic, f"{c.name}: {_value(c.old)} -> {_new(c)}", c.reason
    for name, fate in seen.delete.items():
        yield "delete", name, fate.size, fate.reason


def _new(change: ConfigChange) -> str:
    return "the target's default" if change.new is None else _value(change.new)


def _value(value: str | None) -> str:
    return "(none)" if value is None else value or '""'


def _as_json(config: FlowConfig, seen: TopicPreview) -> dict[str, object]:
    return {
        "flow": str(config.flow),
        "create": [
            {
                "topic": t.name,
                "partitions": t.partitions,
                "replication_factor": t.replication_factor,
                "configs": dict(t.configs),
            }
            for t in seen.create
        ],
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
