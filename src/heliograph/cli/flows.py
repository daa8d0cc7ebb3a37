"""Choosing flows of a configuration on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from heliograph.config import FlowConfig, load
from heliograph.errors import ConfigError, HeliographError
from heliograph.wire.errors import AuthenticationFailed, BrokerError, WireError

__all__ = ["asking_clusters", "file_argument", "flow_option", "flows_of"]

file_argument = click.argument("file", type=click.Path(path_type=Path))
flow_option = click.option("--flow", help="Only this flow, e.g. 'A->B'; all enabled ones without.")


def flows_of(file: Path, flow: str | None) -> Sequence[FlowConfig]:
    """The enabled flows of a file, or the one that is named; raises ConfigError if none is."""
    enabled = [f for f in load(file).flows if f.enabled]
    names = ", ".join(str(f.flow) for f in enabled)
    if not enabled:
        raise ConfigError("config.no-flow", f"{file} enables no flow", "write A->B.enabled = true")
    if flow is None:
        return enabled
    found = [f for f in enabled if str(f.flow) == flow.replace(" ", "")]
    if not found:
        raise ConfigError("config.unknown-flow", f"{file} has no flow {flow}", f"it has {names}")
    return found


@contextmanager
def asking_clusters() -> Iterator[None]:
    """Turns what goes wrong on the wire into an error for people."""
    try:
        yield
    except AuthenticationFailed as error:
        hint = "check security.protocol, sasl.* and ssl.* of that cluster"
        raise HeliographError("cluster.authentication", str(error), hint) from error
    except BrokerError as error:
        raise HeliographError("cluster.refused", str(error)) from error
    except WireError as error:
        raise HeliographError("cluster.unreachable", str(error)) from error
