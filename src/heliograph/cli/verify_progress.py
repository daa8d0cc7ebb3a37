"""How far a verification is: a bar on a terminal, plain lines elsewhere. On standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from heliograph.model import Flow
from heliograph.verify.plan import Plan

__all__ = ["Watch", "watching"]

_PLAIN_SECONDS = 5.0


@contextmanager
def watching(flow: Flow) -> Iterator[Watch]:
    """Shows what happens until left."""
    watch: Watch = _Bar(flow) if sys.stderr.isatty() else Watch(flow)
    try:
        watch.begin()
        yield watch
    finally:
        watch.end()


class Watch:
    """Plain lines, one every few seconds."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._began = self._next = 0.0

    def begin(self) -> None:
        """Nothing is known yet."""
        self._say("starting Spark, looking at both clusters and the ledger ...")

    def planned(self, plan: Plan) -> None:
        """What there is to compare is known."""
        self._began = time.monotonic()
        self._next = self._began + _PLAIN_SECONDS
        self._say(summary(plan))

    def progress(self, done: int, total: int, done_bytes: int, total_bytes: int) -> None:
        """So many ranges and bytes are done."""
        now = time.monotonic()
        if now < self._next and done < total:
            return
        self._next = now + _PLAIN_SECONDS
        rate = done_bytes / max(now - self._began, 1e-3)
        left = (total_bytes - done_bytes) / rate if rate else 0.0
        to_go = f", {left:.0f} s to go" if done < total else ""
        percent = 100 * done_bytes / total_bytes if total_bytes else 100 * done / max(total, 1)
        self._say(f"{done:,} of {total:,} ranges, {percent:.0f} %, {rate / 1e6:.0f} MB/s{to_go}")

    def end(self) -> None:
        """No more is to come."""

    def _say(self, text: str) -> None:
        click.echo(f"{time.strftime('%H:%M:%S')} {self._flow}: {text}", err=True)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if not speed else f"{speed / 1e6:.0f} MB/s", style="progress.data.speed")


class _Bar(Watch):
    def __init__(self, flow: Flow) -> None:
        super().__init__(flow)
        self._bar = Progress(
            TextColumn("[bold]{task.description}"), BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.fields[ranges]}"),
            _Rate(), TimeRemainingColumn(), console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task(f"{flow}: looking", total=None, ranges="")

    def begin(self) -> None:
        self._bar.start()

    def planned(self, plan: Plan) -> None:
        self._bar.console.print(f"{self._flow}: {summary(plan)}", highlight=False)
        total = sum(r.bytes for r in plan.ranges)
        self._bar.reset(self._task, total=max(total, 1), description=str(self._flow),
                        ranges=f"0/{len(plan.ranges):,} ranges")  # fmt: skip

    def progress(self, done: int, total: int, done_bytes: int, total_bytes: int) -> None:
        at = done_bytes if total_bytes else done / total
        self._bar.update(self._task, completed=at, ranges=f"{done:,}/{total:,} ranges")

    def end(self) -> None:
        self._bar.stop()


def summary(plan: Plan) -> str:
    """What is going to be compared, in a sentence."""
    partitions = {r.source for r in plan.ranges}
    topics = {p.topic for p in partitions}
    size = sum(r.bytes for r in plan.ranges)
    part = "" if len(plan.ranges) == plan.offered else f" of {plan.offered:,}"
    return (
        f"comparing {_some(len(plan.ranges), 'range')}{part}, about {size / 1e6:,.0f} MB, in"
        f" {_some(len(partitions), 'partition')} of {_some(len(topics), 'topic')}"
    )


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
