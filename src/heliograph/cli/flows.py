"""Choosing flows of a configuration on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Generic, TypeVar

import click
from rich.console import Console

from heliograph.cli.errors import show_error
from heliograph.config import FlowConfig, MirrorMakerConfig
from heliograph.errors import ConfigError, HeliographError, StartError
from heliograph.wire.errors import AuthenticationFailed, BrokerError, WireError

__all__ = [
    "Answers",
    "Command",
    "ask_flows",
    "asking_clusters",
    "cluster_error",
    "clusters_argument",
    "console_for_tables",
    "file_argument",
    "flow_of",
    "flow_option",
    "flows_of",
    "output_option",
]

T = TypeVar("T")
Command = Callable[..., Any]
#: No cell of ours is so wide that a row would need a second line.
_PIPED_WIDTH = 10_000

file_argument = click.argument("file", type=click.Path(path_type=Path))
flow_option = click.option("--flow", help="Only this flow, e.g. 'A->B'; all enabled ones without.")


def output_option(*forms: str, text: str | None = None) -> Callable[[Command], Command]:
    """The option ``-o``: one of these forms, the first by default."""
    return click.option(
        "-o", "--output", type=click.Choice(forms), default=forms[0], show_default=True, help=text
    )


def clusters_argument(command: Callable[..., None]) -> Callable[..., None]:
    """The option ``--clusters B C``, as MM2's driver takes it; ``clusters`` has all of them."""

    @click.option("--clusters", multiple=True, metavar="B ...",
                  help="Only flows into these clusters: --clusters B C, as in MM2.")  # fmt: skip
    @click.argument("more_clusters", nargs=-1, metavar="")
    @wraps(command)
    def with_clusters(
        clusters: tuple[str, ...], more_clusters: tuple[str, ...], **others: object
    ) -> None:
        if more_clusters and not clusters:
            raise click.UsageError(f"Got unexpected extra arguments ({' '.join(more_clusters)})")
        command(clusters=(*clusters, *more_clusters), **others)

    return with_clusters


def flows_of(file: Path, flow: str | None) -> Sequence[FlowConfig]:
    """The enabled flows of a file, or the one that is named; raises ConfigError if none is."""
    enabled = [f for f in MirrorMakerConfig.from_file(file).flows if f.enabled]
    names = ", ".join(str(f.flow) for f in enabled)
    if not enabled:
        raise ConfigError("config.no-flow", f"{file} enables no flow", "write A->B.enabled = true")
    if flow is None:
        return enabled
    found = [f for f in enabled if str(f.flow) == flow.replace(" ", "")]
    if not found:
        raise ConfigError("config.unknown-flow", f"{file} has no flow {flow}", f"it has {names}")
    return found


def flow_of(file: Path, flow: str | None) -> FlowConfig:
    """The one enabled flow of a file, or the one that is named; raises ConfigError."""
    flows = flows_of(file, flow)
    if len(flows) > 1:
        choice = " or ".join(f"--flow '{f.flow}'" for f in flows)
        raise ConfigError("config.which-flow", f"{file} has {len(flows)} flows", f"say {choice}")
    return flows[0]


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What was found out about flows; one that could not be asked does not spoil the others."""

    found: Sequence[tuple[FlowConfig, T]]
    errors: Sequence[tuple[FlowConfig, HeliographError]]

    def as_json(self, describe: Callable[[FlowConfig, T], dict[str, object]]) -> str:
        """All flows; those that could not be asked with the error instead."""
        flows = [describe(config, answer) for config, answer in self.found]
        flows += [
            {"flow": str(config.flow), "error": {"code": error.code, "message": error.args[0]}}
            for config, error in self.errors
        ]
        return json.dumps(flows, indent=2)

    def raise_errors(self) -> None:
        """To be called when the rest was shown: the last error is raised, others are printed."""
        for _, error in self.errors[:-1]:
            show_error(error)
        for _, error in self.errors[-1:]:
            raise error


def ask_flows(file: Path, flow: str | None, ask: Callable[[FlowConfig], T]) -> Answers[T]:
    """Calls ``ask`` for each chosen flow; errors of clusters become errors of their flow."""
    found, errors = [], []
    for config in flows_of(file, flow):
        try:
            with asking_clusters():
                found.append((config, ask(config)))
        except HeliographError as error:
            about = f"flow {config.flow}: "
            error.args = (about + str(error.args[0]).removeprefix(about),)
            errors.append((config, error))
    return Answers(found, errors)


def console_for_tables() -> Console:
    """Standard output for tables: of a terminal's width, or one row a line for programs."""
    return Console() if sys.stdout.isatty() else Console(width=_PIPED_WIDTH)


@contextmanager
def asking_clusters() -> Iterator[None]:
    """Turns what goes wrong on the wire into an error for people."""
    try:
        yield
    except WireError as error:
        raise cluster_error(error) from error


def cluster_error(error: WireError) -> StartError:
    """What a cluster's answer, or its silence, means for whoever needs it."""
    if isinstance(error, AuthenticationFailed):
        hint = "check security.protocol, sasl.* and ssl.* of that cluster"
        return StartError("cluster.authentication", str(error), hint)
    refused = isinstance(error, BrokerError)
    return StartError("cluster.refused" if refused else "cluster.unreachable", str(error))
