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
from typing import Any, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.logging import RichHandler
from rich.markup import escape
from rich.table import Table

from heliograph.model import PartitionEvent
from heliograph.service.events import events_of
from heliograph.service.monitor import STANDING_BY, FlowStatus
from heliograph.service.states import clock

_PLAIN_SECONDS = 5.0
_JSON_SECONDS = 2.0
#: So many partitions in trouble are shown with their reasons.
_SHOWN = 3
_REPEAT_SECONDS = 60.0
_HEALTHY = {"idle", "copying", "starting"}
_BAD = {"stalled", "failed"}

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
    return _Lines(status, _PLAIN_SECONDS, _PlainStatus(), _plain_event)


def amount(value: float | None) -> str:
    """A count for people: 950, 12.3k, 4.56M; - if it is not known."""
    if value is None:
        return "-"
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


def roll_up(s: FlowStatus) -> str:
    """The flow in a word if all is well, else the bad states with how many are in each."""
    if not s.troubled:
        if s.partitions and (not s.states or "starting" in s.states):
            return "starting"
        return "mirroring" if s.lag_records else "in step"
    counts = {state: n for state, n in s.states.items() if state not in _HEALTHY}
    return ", ".join(f"{n} {state}" for state, n in counts.items())


def _troubles(s: FlowStatus) -> list[str]:
    """A line for each of the worst partitions: what, since when, when again, why."""
    lines = []
    for report in s.troubled[:_SHOWN]:
        again = f", tried again at {_clock(report.retry_at)}" if report.retry_at else ""
        lines.append(
            f"{s.flow} {report.partition} {report.state} since {_clock(report.since)}{again}:"
            f" {report.why}"
        )
    if len(s.troubled) > _SHOWN:
        lines.append(f"{s.flow}: {len(s.troubled) - _SHOWN} more in trouble; -o json lists them")
    return lines


def _failing_jobs(s: FlowStatus) -> list[str]:
    """What each control job that failed says, and when it is tried again."""
    return [
        f"{j.description}: {j.last_error} (again at {_clock(j.next_run)})"
        for j in s.jobs if j.last_error
    ]  # fmt: skip


def _clock(when: float) -> str:
    return clock(when, time.time())


def table(statuses: Sequence[FlowStatus]) -> Table:
    """One row a flow; failing partitions below, each with its reason."""
    grid = Table(title="heliograph", title_justify="left", caption_justify="left", expand=False)
    for name in ("flow", "topics", "partitions", "records/s", "bytes/s", "lag (records)",
                 "lag (seconds)", "mirrored", "offsets", "state"):  # fmt: skip
        is_text = name in {"flow", "offsets", "state"}
        grid.add_column(name, justify="left" if is_text else "right")
    for s in statuses:
        state = roll_up(s)
        colour = "red" if s.states.keys() & _BAD else "yellow" if s.troubled else "green"
        if s.state == STANDING_BY:
            state, colour = ", ".join([STANDING_BY, *([state] if s.troubled else [])]), "yellow"
        grid.add_row(
            s.flow, str(s.topics), str(s.partitions), amount(s.records_per_second),
            amount(s.bytes_per_second), f"{s.lag_records:,}", f"{s.lag_seconds:.1f}",
            f"{s.records_total:,}", offsets(s), f"[{colour}]{state}",
        )  # fmt: skip
    for s in statuses:
        for line in _troubles(s):
            grid.caption = f"{grid.caption or ''}{escape(line)}\n"
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
        event: Callable[[str, str, Sequence[PartitionEvent]], str],
    ) -> None:
        self._status = status
        self._interval = interval
        self._line = line
        self._event = event
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="reporting", daemon=True)
        self._handler = _EventHandler(lambda *told: self._print(event(*told)))

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
        self._print(self._event("info", text, ()))

    def _loop(self) -> None:
        while not self._stopping.wait(self._interval):
            for status in self._status():
                self._print(self._line(status))

    @staticmethod
    def _print(text: str) -> None:
        print(text, flush=True)


class _EventHandler(logging.Handler):
    def __init__(self, tell: Callable[[str, str, Sequence[PartitionEvent]], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.levelname.lower(), record.getMessage(), events_of(record))


def _attach(handler: logging.Handler) -> None:
    logger = logging.getLogger("heliograph")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    # py4j logs to the root logger when a JVM dies; what matters of it is said by the engine.
    logging.getLogger().addHandler(logging.NullHandler())
    logger.addHandler(handler)


class _PlainStatus:
    """A status line; partitions in trouble follow when that has changed, else once a minute."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[object, float]] = {}

    def __call__(self, s: FlowStatus) -> str:
        line = _plain_line(s)
        troubles = [(r.partition, r.state, r.code) for r in s.troubled]
        said, at = self._said.get(s.flow, ([], 0.0))
        now = time.monotonic()
        if troubles == said and now - at < _REPEAT_SECONDS:
            return line
        self._said[s.flow] = troubles, now
        return "\n".join([line, *(f"{time.strftime('%H:%M:%S')} {x}" for x in _troubles(s))])


def _plain_line(s: FlowStatus) -> str:
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
    if s.troubled:
        line += f", {roll_up(s)}"
    return line


def _plain_event(level: str, text: str, _events: Sequence[PartitionEvent]) -> str:
    return f"{time.strftime('%H:%M:%S')} {'' if level == 'info' else level + ': '}{text}"


class _JsonStatus:
    """A status line; what jobs say of single subjects follows, when it has changed."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], dict[str, str]] = {}

    def __call__(self, s: FlowStatus) -> str:
        now = round(time.time(), 3)
        content = asdict(s)
        content["troubled"] = [_by_topic(report) for report in content["troubled"]]
        lines = [{"time": now, "event": "status", **content}]
        for job in content["jobs"]:
            details = job.pop("details")
            key = s.flow, job["description"]
            if details != self._said.get(key, {}):
                self._said[key] = details
                subjects = {"flow": s.flow, "job": job["description"], "details": details}
                lines.append({"time": now, "event": "details", **subjects})
        return "\n".join(map(json.dumps, lines))


def _json_event(level: str, text: str, events: Sequence[PartitionEvent]) -> str:
    now = round(time.time(), 3)
    if not events:
        return json.dumps({"time": now, "event": level, "message": text})
    lines = ({"time": now, "event": "partition", **_by_topic(asdict(e))} for e in events)
    return "\n".join(map(json.dumps, lines))


def _by_topic(fields: dict[str, Any]) -> dict[str, Any]:
    """A partition as its topic and its number."""
    topic, partition = fields.pop("partition")
    return {"flow": fields.pop("flow"), "topic": topic, "partition": partition, **fields}
