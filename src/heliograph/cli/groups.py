"""``heliograph groups``: the consumer groups of a flow, on both sides."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from heliograph.cli.flows import (
    ask_flows,
    console_for_tables,
    file_argument,
    flow_option,
    output_option,
)
from heliograph.config import FlowConfig
from heliograph.control.groups.preview import GroupPreview, GroupRow, preview
from heliograph.shown import shown, shown_lines
from heliograph.wire.cluster import ClusterClient

__all__ = ["groups_command"]


@click.command()
@file_argument
@flow_option
@output_option("table", "json")
def groups_command(file: Path, flow: str | None, output: str) -> None:
    """Show the consumer groups of the source and where they stand on the target. Changes nothing.

    For each group: how many of the partitions with a committed offset have a place on the target,
    how many offsets it has read that are not mirrored yet, how old its newest checkpoint is (one is
    written when something has changed), and why its offsets are not synced, if they are not.
    """
    seen = ask_flows(file, flow, _preview)
    if output == "json":
        click.echo(seen.as_json(_as_json))
    else:
        console = console_for_tables()
        for config, answer in seen.found:
            _show(console, config, answer)
    seen.raise_errors()


def _preview(config: FlowConfig) -> GroupPreview:
    with (
        ClusterClient(config.source_admin, f"{config.flow}|groups-source-admin") as source,
        ClusterClient(config.target_admin, f"{config.flow}|groups-target-admin") as target,
    ):
        return preview(config, source, target)


def _show(console: Console, config: FlowConfig, seen: GroupPreview) -> None:
    flow = config.flow
    if seen.rows:
        table = Table(title=escape(f"{flow}: groups of {flow.source}"), title_justify="left")
        for name in ("group", "type", f"on {flow.source}", f"on {flow.target}"):
            table.add_column(name, overflow="fold")
        for name in ("translated", "behind", "checkpoint"):
            table.add_column(name, justify="right")
        table.add_column("note", overflow="fold")
        for row in seen.rows:
            table.add_row(*(escape(shown(cell)) for cell in _cells(row)))
        console.print(table)
    else:
        console.print(f"{flow}: no groups on {flow.source}", markup=False, highlight=False)
    for text in seen.notes:
        console.print(
            f"[yellow]note[/] {escape(shown_lines(text))}", highlight=False, soft_wrap=True
        )


def _cells(row: GroupRow) -> tuple[str, ...]:
    translated = f"{row.translated} of {row.partitions}" if row.partitions else "-"
    return (
        row.group,
        row.kind or "-",
        row.state or "-",
        row.target_state or "-",
        translated,
        f"{row.behind:,}" if row.partitions else "-",
        _age(row.checkpoint_ms),
        row.note,
    )


def _age(written_ms: int | None) -> str:
    if written_ms is None:
        return "-"
    seconds = max(time.time() - written_ms / 1000, 0.0)
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _as_json(config: FlowConfig, seen: GroupPreview) -> dict[str, object]:
    return {
        "flow": str(config.flow),
        "groups": [_row_json(row) for row in seen.rows],
        "notes": list(seen.notes),
    }


def _row_json(row: GroupRow) -> dict[str, object]:
    values = asdict(row)
    written = values.pop("checkpoint_ms")
    moment = datetime.fromtimestamp(written / 1000, UTC).isoformat() if written else None
    values["last_checkpoint"] = moment
    values["type"] = values.pop("kind")
    return values
