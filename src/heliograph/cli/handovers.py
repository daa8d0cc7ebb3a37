"""What ``failover``, ``switchover``, ``failback`` and ``drill`` share: options, progress, words."""

from __future__ import annotations

import getpass
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from heliograph.cli.blocks import echo_block
from heliograph.config import FlowConfig, MirrorMakerConfig
from heliograph.errors import ConfigError
from heliograph.failover.steps import Phase, Tell, Told
from heliograph.shown import shown

__all__ = [
    "Rpo",
    "confirm",
    "echo_fact",
    "echo_list",
    "flow_from",
    "flow_to",
    "goes_on_if_interrupted",
    "progress",
    "reverse_of",
    "who",
]

_MOST_LINES = 12
_MARKS = {Phase.BEGUN: "...", Phase.NOTE: "...", Phase.DONE: "ok", Phase.FAILED: "!!"}
_COLORS = {Phase.DONE: "green", Phase.FAILED: "red"}


class Rpo(click.ParamType[tuple[int | None, float | None]]):
    """How much may be lost: ``1000`` records, ``30s`` or ``500ms``; both with a comma."""

    name = "records|seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, float | None]:
        """(records, seconds), None for what is not limited."""
        records, seconds = None, None
        for part in value.split(","):
            found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|)\s*", part)
            if found is None or (not found[2] and "." in found[1]):
                text = f"{shown(value)} is not like 1000 (records), 30s, 500ms or 2min"
                self.fail(text, param, ctx)
            elif not found[2]:
                records = int(found[1])
            else:
                seconds = float(found[1]) * {"ms": 0.001, "s": 1.0, "min": 60.0}[found[2]]
        return records, seconds


def flow_to(
    file: Path, target: str | None, flow: str | None
) -> tuple[FlowConfig, FlowConfig | None]:
    """The flow that is meant and the one of the other direction, if the file has it.

    Raises ConfigError if it is none or if there are several.
    """
    return _flow(file, target, flow, lambda f: f.flow.target, "to")


def flow_from(
    file: Path, source: str | None, flow: str | None
) -> tuple[FlowConfig, FlowConfig | None]:
    """The same by the flow's source: the cluster that clients left."""
    return _flow(file, source, flow, lambda f: f.flow.source, "from")


def _flow(
    file: Path, cluster: str | None, flow: str | None, end: Callable[[FlowConfig], str], word: str
) -> tuple[FlowConfig, FlowConfig | None]:
    if cluster is None and flow is None:
        raise click.UsageError("say which cluster: --to CLUSTER, or which flow: --flow 'A->B'")
    config = MirrorMakerConfig.from_file(file)
    enabled = [f for f in config.flows if f.enabled]
    names = ", ".join(str(f.flow) for f in enabled) or "none"
    wanted = flow.replace(" ", "") if flow is not None else None
    found = [
        f for f in enabled
        if (wanted is None or str(f.flow) == wanted) and (cluster is None or end(f) == cluster)
    ]  # fmt: skip
    if not found:
        named = f" {shown(wanted)}" if wanted is not None else ""
        where = f" {word} {shown(cluster)}" if cluster is not None else ""
        text = f"{file} enables no flow{named}{where}"
        raise ConfigError("config.unknown-flow", text, f"it enables {names}")
    if len(found) > 1 and word == "from":
        # Of a pair of clusters, the direction into the other one.
        raise ConfigError(
            "config.several-flows", f"{len(found)} flows come from {shown(cluster)}:"
            f" {', '.join(str(f.flow) for f in found)}", "name the one that was failed over with"
            " --flow",
        )  # fmt: skip
    if len(found) > 1:
        several = ", ".join(str(f.flow) for f in found)
        raise ConfigError(
            "config.several-flows", f"{len(found)} flows go to {shown(cluster)}: {several}",
            "name one with --flow",
        )  # fmt: skip
    return found[0], reverse_of(config, found[0])


def reverse_of(config: MirrorMakerConfig, flow: FlowConfig) -> FlowConfig | None:
    """The flow of the other direction, if it is in the file."""
    back = flow.flow.target, flow.flow.source
    return next((f for f in config.flows if (f.flow.source, f.flow.target) == back), None)


def who() -> str:
    """Whoever gives the command, for all who read the ledger."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless that was answered already; raises ConfigError if nobody can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("command.unconfirmed", f"{question}: nobody can be asked", "add --yes")
    click.confirm(question, abort=True, err=True)


@contextmanager
def goes_on_if_interrupted() -> Iterator[None]:
    """Around what changes things: Ctrl-C leaves it where it is, and says so."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted: it is not through; the same command goes on from here", err=True)
        raise


def progress(*, quiet: bool) -> Tell:
    """Shows each step on standard error as it goes."""

    def tell(told: Told) -> None:
        if quiet or (told.phase is Phase.DONE and not told.text):
            return
        mark = click.style(f"{_MARKS[told.phase]:>3}", fg=_COLORS.get(told.phase))
        click.echo(f"{told.seconds:6.1f} s {mark} {told.step:<9} {shown(told.text)}", err=True)

    return tell


def echo_fact(name: str, text: str) -> None:
    """One line of a plan or a report."""
    click.echo(f"  {name:<11} {shown(text)}")


def echo_list(title: str, lines: Iterable[tuple[str, str]]) -> None:
    """A list of things and what is to be said of each, if there is any; long ones are cut."""
    made = list(lines)
    if not made:
        return
    click.echo(f"\n{title}:")
    for head, fact in made[:_MOST_LINES]:
        echo_block(head, fact)
    if made[_MOST_LINES:]:
        click.echo(f"  ... and {len(made) - _MOST_LINES} more; -o json has all")
