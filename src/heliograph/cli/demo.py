"""``heliograph demo``: a mirror survives a kill -9 in mid-copy, and a comparison proves it."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

import click

from heliograph.demo.story import DEFAULT_RECORDS, LEAST_RECORDS, show_demo

__all__ = ["demo_command"]


@click.command("demo")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="For the clusters' data and all logs, new or empty; a temporary one by default.",
)
@click.option(
    "--records",
    type=click.IntRange(min=LEAST_RECORDS),
    default=DEFAULT_RECORDS,
    show_default=True,
    help="Size of the backlog that the mirror starts with.",
)
@click.option("--keep", is_flag=True, help="Do not delete the folder at the end.")
def demo_command(folder: Path | None, records: int, keep: bool) -> None:
    """Watch a mirror survive a kill -9 in mid-copy, with proof.

    Starts two real Kafka clusters on this machine, mirrors a topic from one to the other while a
    producer writes to it, kills the mirror, starts it again, and compares both topics record by
    record. Exits with 0 if they are identical and with 1 if not.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    show_demo(folder, records, keep=keep)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
