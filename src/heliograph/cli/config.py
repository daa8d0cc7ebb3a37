"""``heliograph config``: what a file means, and which keys there are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from heliograph.config import KEYS, Effective, FlowConfig, Key, MirrorMakerConfig, load, redact
from heliograph.errors import ConfigError

__all__ = ["config_group"]

_output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)


@click.group("config")
def config_group() -> None:
    """Shows what a configuration means, and which keys there are."""


@config_group.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--clusters", multiple=True, help="Only flows into this cluster; may be repeated.")
@click.option("--all", "show_all", is_flag=True, help="Also values that are defaults.")
@_output
def show(file: Path, clusters: tuple[str, ...], show_all: bool, output: str) -> None:
    """Prints the flows of FILE and where each value comes from. Secrets are hidden.

    Exits with 2 and prints every error if FILE is not valid.
    """
    try:
        config = load(file, clusters=clusters)
    except ConfigError as error:
        if output == "json":
            click.echo(json.dumps({"errors": _errors(error)}, indent=2))
        else:
            click.echo(str(error), err=True)
        sys.exit(error.exit_code)
    if output == "json":
        click.echo(json.dumps(_as_json(config, show_all=show_all), indent=2))
        return
    console = Console()
    for flow in config.flows:
        console.print(_flow_table(flow, show_all=show_all))
    for warning in config.warnings:
        console.print(f"[yellow]warning[/] {escape(str(warning))}", soft_wrap=True)


@config_group.command()
@_output
def keys(output: str) -> None:
    """Lists every key that Heliograph knows."""
    if output == "json":
        click.echo(json.dumps([_key_json(key) for key in KEYS], indent=2))
        return
    table = Table("key", "scope", "status", "type", "default", "meaning")
    for key in KEYS:
        row = (key.name, key.scope, key.status, key.type, key.default or "", key.doc)
        table.add_row(*(escape(str(cell)) for cell in row))
    Console().print(table)


def _rows(flow: FlowConfig, *, show_all: bool) -> list[tuple[str, str, str]]:
    """(key, value as it may be shown, origin) of the flow's own keys and of its clients."""
    groups: list[tuple[str, dict[str, Effective]]] = [("", dict(flow.effective))]
    groups += [(f"{name}.", dict(values)) for name, values in flow.client_effective.items()]
    return [
        (prefix + name, redact(name, value.value or ""), value.origin)
        for prefix, values in groups
        for name, value in sorted(values.items())
        if show_all or value.entry is not None
    ]


def _state(flow: FlowConfig) -> str:
    return "mirrors" if flow.enabled else "heartbeats only"


def _flow_table(flow: FlowConfig, *, show_all: bool) -> Table:
    title = escape(f"{flow.flow} ({_state(flow)})")
    table = Table(title=title, title_justify="left")
    for name in ("key", "value", "from"):
        table.add_column(name, overflow="fold")
    for row in _rows(flow, show_all=show_all):
        table.add_row(*(escape(cell) for cell in row))
    return table


def _as_json(config: MirrorMakerConfig, *, show_all: bool) -> dict[str, object]:
    return {
        "file": str(config.path),
        "clusters": list(config.clusters),
        "flows": [
            {
                "source": flow.flow.source,
                "target": flow.flow.target,
                "enabled": flow.enabled,
                "values": {
                    name: {"value": value, "from": origin}
                    for name, value, origin in _rows(flow, show_all=show_all)
                },
            }
            for flow in config.flows
        ],
        "warnings": [str(warning) for warning in config.warnings],
    }


def _errors(error: ConfigError) -> list[dict[str, str]]:
    problems = getattr(error, "problems", None)
    if problems is None:
        return [{"code": error.code, "message": str(error.args[0]), "hint": error.hint}]
    names = ("code", "where", "key", "message", "hint")
    return [{name: getattr(problem, name) for name in names} for problem in problems]


def _key_json(key: Key) -> dict[str, object]:
    return {
        "name": key.name,
        "scope": key.scope,
        "status": key.status,
        "type": key.type,
        "default": key.default,
        "mm2_default": key.mm2_default,
        "expected": key.expected(),
        "importance": key.importance,
        "doc": key.doc,
    }
