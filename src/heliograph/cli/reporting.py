"""How a running mirror shows itself: a live table, plain lines, or JSON for machines."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.logging import RichHandler
from rich.markup import escape
from rich.table import Table

from heliograph.service.monitor import STANDING_BY, FlowStatus

_PLAIN_SECONDS = 5.0
_JSON_SECONDS = 2.0

Status = Callable[[], Sequence[FlowStatus]]


class Reporter(Protocol):
    """Shows the status until left; says single things in between."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def say(self, text: str) -> None:
        """One line about what happens now."""


def reporter(form: str, status: Status) -> Reporter:
    """The reporter for ``-o``: ``auto`` is a table on a terminal and plain lines elsewhere."""
    if form == "json":
        return _Lines(status, _JSON_SECONDS, _JsonStatus(), _json_event)
    if form == "table" or (form == "auto" and sys.stdout.isatty()):
        return _LiveTable(status)
    return _Lines(status, _PLAIN_SECONDS, _plain_status, _plain_event)


def amount(value: float) -> str:
    """A count for people: 950, 12.3k, 4.56M."""
    # Where three digits would round up to 1000, the next unit begins.
    for least, unit, name in ((999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= least:
            return f"{value / unit:.3g}{name}"
    return f"{value:.0f}"


def offsets(s: FlowStatus) -> str:
    """Whether records have the offsets that they have on the source."""
    if not s.translated:
        return "identical" if s.identical else "-"
    return f"{s.identical} identical, {s.translated} translated" if s.identical else "translated"


def _failing_jobs(s: FlowStatus) -> list[str]:
    """What each control job that failed says, and when it is tried again."""
    return [
        f"{j.description}: {j.last_error} (again at {_clock(j.next_run)})"
        for j in s.jobs if j.last_error
    ]  # fmt: skip


def _clock(when: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(when))


def table(statuses: Sequence[FlowStatus]) -> Table:
    """One row a flow; failing partitions below, each with its reason."""
    grid = Table(title="heliograph", title_justify="left", expand=False)
    for name in ("flow", "topics", "partitions", "records/s", "bytes/s", "lag (records)",
                 "lag (seconds)", "mirrored", "offsets", "state"):  # fmt: skip
        is_text = name in {"flow", "offsets", "state"}
        grid.add_column(name, justify="left" if is_text else "right")
    for s in statuses:
        state = f"[red]{len(s.failed)} failing" if s.failed else "[green]mirroring"
        if not s.failed and s.lag_records == 0:
            state = "[green]in step"
        if s.waiting and not s.failed and s.lag_records == 0:
            state = "[yellow]waiting for an open transaction on the source"
        if s.state == STANDING_BY:
            state = f"[yellow]{STANDING_BY}"
        grid.add_row(
            s.flow, str(s.topics), str(s.partitions), amount(s.records_per_second),
            amount(s.bytes_per_second), f"{s.lag_records:,}", f"{s.lag_seconds:.1f}",
            f"{s.records_total:,}", offsets(s), state,
        )  # fmt: skip
    for s in statuses:
        for partition, text in [*s.failed.items(), *s.waiting.items()][:5]:
            grid.caption = f"{grid.caption or ''}{s.flow} {partition}: {escape(text)}\n"
        for job in _failing_jobs(s):
            grid.caption = f"{grid.caption or ''}{escape(job)}\n"
    return grid


class _LiveTable:
    def __init__(self, status: Status) -> None:
        self._console = Console()
        self._status = status
        self._live = Live(
            get_renderable=self._render, console=self._console,
            refresh_per_second=2, transient=False,
        )  # fmt: skip
        self._handler = RichHandler(console=self._console, show_path=False, markup=False)

    def __enter__(self) -> Self:
        _attach(self._handler)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        logging.getLogger("heliograph").removeHandler(self._handler)

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def _render(self) -> Table | str:
        statuses = self._status()
        return table(statuses) if statuses else "connecting, and starting Spark ..."


class _Lines:
    """Prints a line a flow at an interval, and events as they come."""

    def __init__(
        self,
        status: Status,
        interval: float,
        line: Callable[[FlowStatus], str],
        event: Callable[[str, str], str],
    ) -> None:
        self._status = status
        self._interval = interval
        self._line = line
        self._event = event
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="reporting", daemon=True)
        self._handler = _EventHandler(lambda level, text: self._print(event(level, text)))

    def __enter__(self) -> Self:
        _attach(self._handler)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(1)
        for status in self._status():
            self._print(self._line(status))
        logging.getLogger("heliograph").removeHandler(self._handler)

    def say(self, text: str) -> None:
        self._print(self._event("info", text))

    def _loop(self) -> None:
        while not self._stopping.wait(self._interval):
            for status in self._status():
                self._print(self._line(status))

    @staticmethod
    def _print(text: str) -> None:
        print(text, flush=True)


class _EventHandler(logging.Handler):
    def __init__(self, tell: Callable[[str, str], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.levelname.lower(), record.getMessage())


def _attach(handler: logging.Handler) -> None:
    logger = logging.getLogger("heliograph")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    # py4j logs to the root logger when a JVM dies; what matters of it is said by the engine.
    logging.getLogger().addHandler(logging.NullHandler())
    logger.addHandler(handler)


def _plain_status(s: FlowStatus) -> str:
    standing_by = f"{STANDING_BY}, " if s.state == STANDING_BY else ""
    line = (
        f"{time.strftime('%H:%M:%S')} {s.flow}: {standing_by}{s.topics} topics,"
        f" {s.partitions} partitions, {amount(s.records_per_second)} records/s,"
        f" {amount(s.bytes_per_second)} bytes/s,"
        f" lag {s.lag_records:,} records, {s.lag_seconds:.1f} s, {s.records_total:,} mirrored,"
        f" offsets {offsets(s)}"
    )
    if s.quarantined:
        line += f", {s.quarantined:,} quarantined"
    if failing := sum(bool(j.last_error) for j in s.jobs):
        # Why was said when it began.
        line += f", {failing} control job{'s' if failing > 1 else ''} failing"
    for partition, text in s.waiting.items():
        line += f"\n{time.strftime('%H:%M:%S')} {s.flow} {partition}: {text}"
    for partition, error in s.failed.items():
        line += f"\n{time.strftime('%H:%M:%S')} {s.flow} {partition} cannot be mirrored: {error}"
    return line


def _plain_event(level: str, text: str) -> str:
    return f"{time.strftime('%H:%M:%S')} {'' if level == 'info' else level + ': '}{text}"


class _JsonStatus:
    """A status line; what jobs say of single subjects follows, when it has changed."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], dict[str, str]] = {}

    def __call__(self, s: FlowStatus) -> str:
        now = round(time.time(), 3)
        content = asdict(s)
        lines = [{"time": now, "event": "status", **content}]
        for job in content["jobs"]:
            details = job.pop("details")
            key = s.flow, job["description"]
            if details != self._said.get(key, {}):
                self._said[key] = details
                subjects = {"flow": s.flow, "job": job["description"], "details": details}
                lines.append({"time": now, "event": "details", **subjects})
        return "\n".join(map(json.dumps, lines))


def _json_event(level: str, text: str) -> str:
    return json.dumps({"time": round(time.time(), 3), "event": level, "message": text})
