"""``heliograph config``: what a file means, and which keys there are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from heliograph.cli.blocks import echo_block, echo_row
from heliograph.cli.flows import clusters_argument, file_argument, output_option
from heliograph.config import (
    KEYS,
    FlowConfig,
    Key,
    MirrorMakerConfig,
    flow_values,
    other_values,
)
from heliograph.errors import ConfigError
from heliograph.shown import shown_lines

__all__ = ["config_group"]


@click.group("config")
def config_group() -> None:
    """Shows what a configuration means, and which keys there are."""


@config_group.command()
@file_argument
@clusters_argument
@click.option("--all", "show_all", is_flag=True, help="Also values that are defaults.")
@output_option("table", "json")
def show(file: Path, clusters: tuple[str, ...], show_all: bool, output: str) -> None:
    """Show the flows of FILE, and where each value comes from. Secrets are hidden.

    First what counts for each flow, then what holds for the whole file, then what has no effect,
    and why: every line of FILE is in one of them. In a pipe, each value is one line with tabs:
    flow, key, value, origin, and why it has no effect.

    Exits with 2 and prints every error if FILE is not valid.
    """
    try:
        config = MirrorMakerConfig.from_file(file, clusters=clusters)
    except ConfigError as error:
        if output != "json":
            raise
        click.echo(json.dumps({"errors": _errors(error)}, indent=2))
        sys.exit(error.exit_code)
    if output == "json":
        click.echo(json.dumps(_as_json(config, show_all=show_all), indent=2))
        return
    sections = [(f"{f.flow}", _state(f), flow_values(f, defaults=show_all)) for f in config.flows]
    others = other_values(config)
    sections.append(("file", "the whole file", [v for v in others if not v.no_effect]))
    sections.append(("file", "without effect", [v for v in others if v.no_effect]))
    for name, title, values in sections:
        if not sys.stdout.isatty():
            for v in values:
                echo_row(name, v.key, v.value, v.origin, v.no_effect)
        elif values:
            click.echo(click.style(title if name == "file" else f"{name}: {title}", bold=True))
            for v in values:
                echo_block(f"{v.key} = {v.value}", v.origin, v.no_effect)
            click.echo()
    for warning in config.warnings:
        click.echo(f"{click.style('warning:', fg='yellow')} {shown_lines(str(warning))}", err=True)


@config_group.command()
@output_option("table", "json")
def keys(output: str) -> None:
    """List every key that Heliograph knows.

    In a pipe, each key is one line with tabs: name, scope, status, type, default, meaning.
    """
    if output == "json":
        click.echo(json.dumps([_key_json(key) for key in KEYS], indent=2))
        return
    for key in KEYS:
        if not sys.stdout.isatty():
            echo_row(key.name, key.scope, key.status, key.type, key.default or "", key.doc)
            continue
        default = f", default {key.default}" if key.default else ""
        mm2 = f" (MM2: {key.mm2_default})" if key.mm2_default else ""
        facts = f"{key.scope}, {key.status}, {key.type}{default}{mm2}"
        echo_block(key.name, facts, key.doc)


def _state(flow: FlowConfig) -> str:
    return "mirrors" if flow.enabled else "heartbeats only"


def _as_json(config: MirrorMakerConfig, *, show_all: bool) -> dict[str, object]:
    others = other_values(config)
    return {
        "file": config.name,
        "clusters": list(config.clusters),
        "flows": [
            {
                "source": flow.flow.source,
                "target": flow.flow.target,
                "enabled": flow.enabled,
                "values": {
                    v.key: {"value": v.value, "from": v.origin}
                    for v in flow_values(flow, defaults=show_all)
                },
            }
            for flow in config.flows
        ],
        "whole_file": {
            v.key: {"value": v.value, "from": v.origin} for v in others if not v.no_effect
        },
        "without_effect": {
            v.key: {"value": v.value, "from": v.origin, "why": v.no_effect}
            for v in others
            if v.no_effect
        },
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
