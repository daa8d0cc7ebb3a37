"""``heliograph run``: MM2's driver, drop-in."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import FrameType

import click

from heliograph.cli.reporting import reporter
from heliograph.config import load
from heliograph.lab.java import find_java
from heliograph.service.mirror import Mirror


class _StopRequested(BaseException):
    """SIGTERM or Ctrl-C, raised where the main thread happens to be."""


def _on_signal(number: int, _frame: FrameType | None) -> None:
    # A second one means it: exactly once does not depend on a clean stop.
    signal.signal(number, lambda *_: os._exit(128 + number))
    raise _StopRequested


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--clusters", multiple=True, metavar="B ...",
              help="Only flows into these clusters: --clusters B C, as in MM2.")  # fmt: skip
@click.argument("more_clusters", nargs=-1, metavar="")
@click.option("--master", help="Spark master; this machine's cores by default.")
@click.option("--once", is_flag=True, help="Copy all that is there now, then exit with 0.")
@click.option("-o", "--output", type=click.Choice(["auto", "table", "plain", "json"]),
              default="auto", show_default=True, help="auto: a table on a terminal.")  # fmt: skip
def run_command(
    file: Path,
    clusters: tuple[str, ...],
    more_clusters: tuple[str, ...],
    master: str | None,
    once: bool,
    output: str,
) -> None:
    """Mirror the flows of FILE, an mm2.properties as MirrorMaker 2 reads it.

    Runs until SIGTERM or Ctrl-C. Whatever is killed, and however often, no record is lost and none
    is copied twice. Exit codes are MM2's: 2 for a wrong configuration, 3 if a flow cannot start.

    Each flow has one mirror at a time: a second one stands by until the first is gone.
    """
    if more_clusters and not clusters:
        raise click.UsageError(f"Got unexpected extra arguments ({' '.join(more_clusters)})")
    config = load(file, clusters=(*clusters, *more_clusters))
    if any(f.enabled for f in config.flows):
        find_java()
    mirror = Mirror(config, master)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _on_signal)
    try:
        with reporter(output, mirror.status) as report:
            for warning in config.warnings:
                report.say(f"warning: {warning}")
            flows = [str(f.flow) for f in config.flows if f.enabled]
            report.say(f"mirroring {', '.join(flows) or 'nothing, only heartbeats'}; starting ...")
            started = time.monotonic()
            mirror.start(once=once)
            if once:
                mirror.run_once()
                took = time.monotonic() - started
                report.say(f"all that was there at the start is copied, in {took:.1f} s")
            else:
                mirror.run()
    except _StopRequested:
        click.echo("stopping ...", err=True)
    finally:
        mirror.close()
