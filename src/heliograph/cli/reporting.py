"""How a running mirror shows itself: a live table, plain lines, or JSON for machines.

All three read `MirrorSnapshot`s and follow the mirror's event bus, in a thread of their own: output
that nobody takes (a pipe that is full) holds back this thread and never the mirror. The formats are
described in docs/status.md.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol, Self

import click
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from heliograph.cli.flows import Command, output_option
from heliograph.cli.log_file import LogFile
from heliograph.cli.logs import LogSettings
from heliograph.config.secrets import redact_text
from heliograph.model import PartitionEvent, PartitionState
from heliograph.service.at_risk import diverged_words
from heliograph.service.events import (
    EngineEvent,
    Event,
    EventBus,
    FlowEvent,
    HandoverEvent,
    JobEvent,
    Notice,
    Published,
    StartStep,
    level_of,
    lines_of,
)
from heliograph.service.notices import Notices, take_logs
from heliograph.service.snapshot import (
    CHECKPOINTS,
    COPYING,
    FlowSnapshot,
    FlowState,
    MirrorSnapshot,
    PartitionSnapshot,
    summary,
    to_json,
)
from heliograph.shown import shown, shown_lines
from heliograph.units import amount, duration, latency, moment

__all__ = [
    "BAD_STATES",
    "Reporter",
    "age",
    "colour",
    "copies",
    "details",
    "flow_table",
    "reporter",
    "risks",
    "roll_up",
    "status_options",
    "table",
    "topics_that_rest",
    "worst_first",
]

#: How often a flow that did not change is reported.
_STATUS_SECONDS = 60.0
#: How soon a change is reported.
_LOOK_SECONDS = 1.0
#: A flow under load is never in step for long: after a start it has caught up when it is so close.
_CAUGHT_UP_SECONDS = 10.0
#: What was not printed by then, after the end, is not printed.
_END_SECONDS = 2.0
#: So many partitions in trouble, lagging topics and failing jobs of a flow are shown to people.
_SHOWN = 3
_HEALTHY = {"idle", "copying", "starting"}
#: States of a partition that somebody must look at.
BAD_STATES = {"stalled", "failed"}
#: Lines of the table that are no flow: title, head, rules, and some details.
_OTHER_LINES = 9
#: Widths of a terminal from which there is room for more columns.
_WIDE, _WIDER = 100, 130

#: The name of an event's kind in JSON.
_KINDS = {
    PartitionEvent: "partition",
    FlowEvent: "flow",
    JobEvent: "job",
    EngineEvent: "engine",
    StartStep: "start",
    HandoverEvent: "handover",
    Notice: "notice",
}

#: Whose levels decide which events and which status lines are logged.
_EVENTS = logging.getLogger("heliograph.service.events")
_STATUS = logging.getLogger(__name__)

TakeSnapshot = Callable[[], MirrorSnapshot]
#: Takes a line.
Write = Callable[[str], None]


def status_options(command: Command) -> Command:
    """The options of commands that mirror until they are stopped: what `reporter` takes."""
    how_often = click.option(
        "--status-interval", type=click.FloatRange(min=0.1), default=_STATUS_SECONDS,
        show_default=True, metavar="SECONDS",
        help="How often plain lines and JSON report what did not change.",
    )  # fmt: skip
    forms = ("auto", "table", "plain", "json")
    return output_option(*forms, text="auto: a table on a terminal.")(how_often(command))


class Reporter(Protocol):
    """Shows the mirror until left, and then says a last word on each flow."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None: ...
    def say(self, text: str, level: int = logging.INFO) -> None:
        """One line about what happens now."""


def reporter(
    form: str,
    snapshot: TakeSnapshot,
    events: EventBus,
    interval: float = _STATUS_SECONDS,
    log: LogSettings | None = None,
) -> Reporter:
    """The reporter for ``-o`` and the options of the log; raises OSError if its file cannot be.

    ``auto`` is a table on a terminal; elsewhere the log, unless that has a file. ``none`` shows
    nothing. A flow that does not change is reported every ``interval`` seconds; the table shows it
    always.
    """
    log = log if log is not None else LogSettings()
    outputs: list[_Output] = []
    if form == "json":
        outputs.append(_JsonLines(interval, whole=True))
    elif form == "table" or (form == "auto" and sys.stdout.isatty()):
        outputs.append(_LiveTable(snapshot))
    elif form == "plain":
        outputs.append(_PlainLines(interval))
    elif form == "auto" and log.file is None:
        outputs.append(_lines(log, interval))
    file = None
    if log.file is not None:
        told = partial(_lost, log.form)
        file = _lines(log, interval, LogFile(log.file, log.most_bytes, log.keep, told).write)
    return _Reporter(snapshot, events, outputs, file, log.level)


def _lines(log: LogSettings, interval: float, write: Write | None = None) -> _Output:
    return _JsonLines(interval, write) if log.form == "json" else _PlainLines(interval, write)


def _lost(form: str, lines: int) -> str:
    """The line that stands for so many others in a log file."""
    at, text = time.time(), f"{lines} lines could not be written"
    if form == "json":
        return _json_line(at, "notice", logging.WARNING, {"logger": _STATUS.name, "text": text})
    return _line(at, logging.WARNING, text)


class _Output(Protocol):
    """One of the three forms; used by one thread at a time."""

    def begin(self) -> None:
        """Before anything is said."""

    def end(self) -> None:
        """Before the last words."""

    def events(self, published: Sequence[Published]) -> None:
        """These have happened, one after the other."""

    def status(self, mirror: MirrorSnapshot) -> None:
        """This is how it is; called about once a second."""

    def last(self, mirror: MirrorSnapshot) -> None:
        """The mirror has stopped."""


class _Reporter:
    """Any number of outputs, and the log file, which alone is told how it ended."""

    def __init__(
        self, snapshot: TakeSnapshot, events: EventBus, outputs: Sequence[_Output],
        file: _Output | None, level: int,
    ) -> None:  # fmt: skip
        self._events = events
        self._level = level
        self._shown = [_Showing(snapshot, events, output) for output in outputs]
        self._file = _Showing(snapshot, events, file) if file is not None else None
        self._logs = ExitStack()

    def __enter__(self) -> Self:
        self._notices = notices = self._logs.enter_context(take_logs(self._events, self._level))
        # py4j logs to the root logger when a JVM dies; what matters of it is said by the engine.
        logging.getLogger().addHandler(logging.NullHandler())
        for showing in self._all():
            showing.start(notices)
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        self._notices.tick(end=True)
        for showing in self._shown:
            showing.end()
        if self._file is not None:
            # Elsewhere it is shown where it is caught.
            failed = error if isinstance(error, Exception) else None
            self._file.end(str(failed) if failed is not None else "")
        self._logs.close()

    def _all(self) -> list[_Showing]:
        return [*self._shown, *([self._file] if self._file is not None else [])]

    def say(self, text: str, level: int = logging.INFO) -> None:
        if _STATUS.isEnabledFor(level):
            self._events.publish(Notice(level, text, at=time.time(), logger=__name__))


class _Showing:
    """One output and its thread: one that nobody takes holds back neither mirror nor others."""

    def __init__(self, snapshot: TakeSnapshot, events: EventBus, output: _Output) -> None:
        self._snapshot = snapshot
        self._output = output
        self._following = events.subscribe(after=0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="reporting", daemon=True)
        self._notices: Notices | None = None

    def start(self, notices: Notices) -> None:
        """Show what happens from the beginning on."""
        self._notices = notices
        self._output.begin()
        self._thread.start()

    def end(self, error: str = "") -> None:
        """Show what was not shown yet, why it ended, and the last words."""
        self._following.close()
        self._ended.set()
        self._thread.join(_END_SECONDS)
        self._output.end()
        if self._thread.is_alive():
            return
        if error:
            self._output.events([Published(0, Notice(logging.ERROR, error, at=time.time()))])
        self._output.last(self._snapshot())

    def _loop(self) -> None:
        look_at = time.monotonic() + _LOOK_SECONDS
        while not self._ended.is_set():
            if published := self._following.get(max(look_at - time.monotonic(), 0.0)):
                self._output.events(published)
            if time.monotonic() >= look_at and not self._ended.is_set():
                if self._notices is not None:
                    self._notices.tick()
                self._output.status(self._snapshot())
                look_at = time.monotonic() + _LOOK_SECONDS
        self._output.events(self._following.get(0))


class _Changes:
    """Which flows are to be reported now: those that changed, and each after an interval.

    What flows do all the time is no change: that one is behind for a moment, and how far.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._said: dict[str, tuple[object, float]] = {}
        self._caught_up: set[str] = set()

    def due(self, mirror: MirrorSnapshot) -> Iterator[FlowSnapshot]:
        """The flows to report; they count as reported then."""
        for flow in mirror.flows:
            if flow.life.state is FlowState.STOPPED:
                continue  # it has a last word
            lag = flow.lag_seconds
            if flow.measured_at and not flow.unmeasured and (
                flow.lag_records == 0 or (lag is not None and lag < _CAUGHT_UP_SECONDS)
            ):  # fmt: skip
                self._caught_up.add(flow.flow)
            key = (
                flow.life, tuple(flow.parts.items()), len(flow.partitions),
                tuple((p.name, p.state, p.code) for p in flow.troubled),
                tuple(job.description for job in flow.failing_jobs),
                bool(flow.measured_at), flow.flow in self._caught_up, bool(flow.quarantined),
            )  # fmt: skip
            said, at = self._said.get(flow.flow, (None, 0.0))
            now = time.monotonic()
            if key != said or now - at >= self._interval:
                self._said[flow.flow] = key, now
                yield flow


def _print(text: str) -> None:
    print(text, flush=True)


def _safely(write: Write | None) -> Write:
    """Writes lines in which no password is left, should one have got into a message."""

    def write_redacted(line: str) -> None:
        (write or _print)(redact_text(line))

    return write_redacted


def _is_logged(event: Event) -> bool:
    """Whether an event is to be in the log; of notices their loggers have decided that."""
    return isinstance(event, Notice) or _EVENTS.isEnabledFor(level_of(event))


def _status_level(flow: FlowSnapshot) -> int:
    return logging.WARNING if flow.states.keys() & BAD_STATES else logging.INFO


# -- for people -------------------------------------------------------------------------------


def _line(when: float, level: int, text: str) -> str:
    return f"{moment(when)} {logging.getLevelName(level)} {shown_lines(text)}"


def _event_lines(published: Sequence[Published]) -> list[str]:
    told = lines_of([p.event for p in published if _is_logged(p.event)])
    return [_line(at, level, text) for at, level, text in told]


class _PlainLines:
    def __init__(self, interval: float, write: Write | None = None) -> None:
        self._changes = _Changes(interval)
        self._write = _safely(write)

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def events(self, published: Sequence[Published]) -> None:
        for line in _event_lines(published):
            self._write(line)

    def status(self, mirror: MirrorSnapshot) -> None:
        for flow in self._changes.due(mirror):
            level = _status_level(flow)
            if _STATUS.isEnabledFor(level):
                for line in _status_lines(flow):
                    self._write(_line(mirror.at, level, line))

    def last(self, mirror: MirrorSnapshot) -> None:
        for flow in filter(copies, mirror.flows):
            self._write(_line(mirror.at, logging.INFO, _last_word(mirror, flow)))


def lag_of(flow: FlowSnapshot) -> str:
    """Records that wait; ``+`` if it is not known of some partitions, ``-`` if of all."""
    if flow.lag_records is None:
        return "-"
    return f"{flow.lag_records:,}{'+' if flow.unmeasured else ''}"


def age(seconds: float | None) -> str:
    """How long something has been waiting; - if that is not known."""
    return "-" if seconds is None else duration(seconds)


def offsets(flow: FlowSnapshot) -> str:
    """Whether records have the offsets that they have on the source."""
    if not flow.translated:
        return "identical" if flow.identical else "-"
    both = f"{flow.identical} identical, {flow.translated} translated"
    return both if flow.identical else "translated"


def copies(flow: FlowSnapshot) -> bool:
    """Whether records are to be mirrored; MM2 emits heartbeats into every target."""
    return not flow.parts or COPYING in flow.parts


def risks(flow: FlowSnapshot) -> bool:
    """Whether clients may lose something with its source: not if it is the direction that rests."""
    rests = flow.life.state is FlowState.STANDING_BY and flow.at_risk is None
    return copies(flow) and not rests


def roll_up(flow: FlowSnapshot) -> str:
    """The flow in a word if all is well, else the bad states with how many are in each."""
    bad = [f"{n} {state}" for state, n in flow.states.items() if state not in _HEALTHY]
    if flow.life.state in {FlowState.PAUSED, FlowState.STANDING_BY}:
        # All of it waits, because the flow rests.
        bad = [text for text in bad if not text.endswith(f" {PartitionState.WAITING}")]
    if flow.life.state is not FlowState.RUNNING:
        return ", ".join([flow.life.state, *bad])
    bad += [f"{part} {life.state}" for part, life in flow.parts.items()
            if life.state is not FlowState.RUNNING]  # fmt: skip
    if bad:
        return ", ".join(bad)
    if not copies(flow):
        return "checkpoints only" if CHECKPOINTS in flow.parts else "heartbeats only"
    if flow.lag_records is None or "starting" in flow.states:
        return "starting"
    return "mirroring" if flow.lag_records else "in step"


def _status_lines(flow: FlowSnapshot) -> list[str]:
    """The flow in one line; what is wrong below it."""
    wrong = [f"{flow.flow} {detail}" for detail in details(flow)]
    if not copies(flow) or not (flow.partitions or flow.measured_at):
        return [f"{flow.flow}: {roll_up(flow)}", *wrong]
    line = (
        f"{flow.flow}: {roll_up(flow)}, {len(flow.topics)} topics,"
        f" {len(flow.partitions)} partitions,"
        f" {amount(flow.records_per_second)} records/s, {amount(flow.bytes_per_second)} bytes/s,"
        f" lag {lag_of(flow)} records, {age(flow.lag_seconds)},"
        f" {'-' if flow.records_total is None else f'{flow.records_total:,}'} mirrored,"
        f" offsets {offsets(flow)}"
    )
    if flow.canary is not None and flow.canary.latency_seconds is not None:
        line += f", latency {latency(flow.canary.latency_seconds)}"
    if flow.quarantined:
        line += f", {flow.quarantined:,} quarantined"
    if failing := len(flow.failing_jobs):
        # Why was said when it began.
        line += f", {failing} control job{'s' if failing > 1 else ''} failing"
    return [line, *wrong]


def details(flow: FlowSnapshot) -> list[str]:
    """Why the flow is not running, the worst partitions, and the topics furthest behind.

    A partition that waits for what is said of its flow or topic is not named again.
    """
    lines = [diverged_words(flow)] if flow.diverged_records else []
    seen = set()
    for name, life in (("", flow.life), *flow.parts.items()):
        if life.reason and (life.state, life.reason) not in seen:
            seen.add((life.state, life.reason))
            again = f", tried again at {moment(life.next_try)}" if life.next_try else ""
            lines.append(f"{f'{name} ' if name else ''}{life.state}{again}: {life.reason}")
    resting = topics_that_rest(flow)
    lines += resting[:_SHOWN]
    if len(resting) > _SHOWN:
        lines.append(f"{len(resting) - _SHOWN} more topics are paused; -o json lists them")
    troubled = [p for p in flow.troubled if not _waits_for(p, flow)]
    for p in troubled[:_SHOWN]:
        again = f", tried again at {moment(p.next_try)}" if p.next_try else ""
        lines.append(f"{p.name} {p.state} since {moment(p.since)}{again}: {p.reason}")
    if len(troubled) > _SHOWN:
        lines.append(f"{len(troubled) - _SHOWN} more in trouble; -o json lists them")
    behind = [t for t in flow.topics if t.lag_records]
    if behind and len(flow.topics) > 1:
        worst = [f"{t.topic} {t.lag_records:,} ({age(t.lag_seconds)})" for t in behind[:_SHOWN]]
        more = f" and {len(behind) - _SHOWN} more" if len(behind) > _SHOWN else ""
        lines.append(f"behind: {', '.join(worst)}{more}")
    return lines


def topics_that_rest(flow: FlowSnapshot) -> list[str]:
    """Each topic that was paused, with the reason."""
    return [f"topic {topic} {why}" for topic, why in sorted(flow.paused_topics.items())]


def _waits_for(p: PartitionSnapshot, flow: FlowSnapshot) -> bool:
    """Whether a partition waits because its flow or its topic does."""
    if p.state is not PartitionState.WAITING:
        return False
    reasons = {life.reason for life in (flow.life, *flow.parts.values())}
    reasons |= {flow.paused_topics.get(p.topic, "")}
    return any(reason and p.reason.endswith(reason) for reason in reasons)


def _failing_jobs(flow: FlowSnapshot) -> list[str]:
    return [
        f"{job.description}: {job.error} (again at {moment(job.next_run)})"
        for job in flow.failing_jobs[:_SHOWN]
    ]


def _last_word(mirror: MirrorSnapshot, flow: FlowSnapshot) -> str:
    ran = duration(max(mirror.at - mirror.started_at, 0.0))
    return (
        f"{flow.flow}: stopped after {ran}; {flow.copied_records:,} records"
        f" ({amount(flow.copied_bytes)} bytes) were mirrored, lag {lag_of(flow)} records,"
        f" {age(flow.lag_seconds)} when last measured"
    )


# -- on a terminal ----------------------------------------------------------------------------


def table(mirror: MirrorSnapshot, width: int = 80, height: int = 24) -> RenderableType:
    """One row a flow, the worst first if not all fit; what is wrong below.

    80 columns have room for what matters, a wider terminal for more.
    """
    flows, room = list(mirror.flows), max(height - _OTHER_LINES, 1)
    if len(flows) > room:
        flows.sort(key=worst_first)
    counted = [(f, len(f.topics), len(f.partitions)) for f in flows[:room]]
    lines = [f"and {len(flows) - room} more flows"] if len(flows) > room else []
    for f in flows:
        lines += [f"{f.flow} {detail}" for detail in details(f)] + _failing_jobs(f)
    if mirror.engine is not None and mirror.engine.state != "ready":
        reason = f": {mirror.engine.reason}" if mirror.engine.reason else ""
        lines.insert(0, f"Spark: {mirror.engine.state}{reason}")
    return Group(flow_table(counted, width), *(Text(shown_lines(line)) for line in lines))


def flow_table(
    flows: Sequence[tuple[FlowSnapshot, int, int]], width: int, title: str = "heliograph"
) -> Table:
    """One row a flow, each with how many topics and partitions it has."""
    grid = Table(box=box.SIMPLE_HEAD, title=Text(title), title_justify="left",
                 padding=(0, 1, 0, 0))  # fmt: skip
    grid.add_column("flow", overflow="fold", max_width=28)
    grid.add_column("state", overflow="fold")
    numbers = ["lag", "age", "records/s", "bytes/s"]
    numbers += ["topics", "partitions"] if width >= _WIDE else []
    for name in [*numbers, *(["mirrored"] if width >= _WIDER else [])]:
        grid.add_column(name, justify="right", no_wrap=True)
    if width >= _WIDER:
        grid.add_column("offsets")
    for f, topics, partitions in flows:
        lag = lag_of(f)
        if width < _WIDE and f.lag_records is not None:
            lag = f"{amount(f.lag_records)}{'+' if f.unmeasured else ''}"
        cells = [
            lag, age(f.lag_seconds), amount(f.records_per_second), amount(f.bytes_per_second),
            str(topics), str(partitions),
            "-" if f.records_total is None else f"{f.records_total:,}", offsets(f),
        ]  # fmt: skip
        room = cells[: len(grid.columns) - 2]
        grid.add_row(Text(shown(f.flow)), Text(roll_up(f), colour(f)), *map(Text, room))
    return grid


_COLOURS = ["red", "yellow", "green"]


def worst_first(flow: FlowSnapshot) -> tuple[int, int]:
    """Sorts flows: those in trouble first, then those that are furthest behind."""
    return _COLOURS.index(colour(flow)), -(flow.lag_records or 0)


def colour(flow: FlowSnapshot) -> str:
    """Red if something has failed or stalled, green if all is well."""
    if flow.life.state is FlowState.FAILED or flow.states.keys() & BAD_STATES:
        return "red"
    lives = [flow.life, *flow.parts.values()]
    healthy = all(life.state is FlowState.RUNNING for life in lives)
    healthy = healthy and not flow.states.keys() - _HEALTHY
    return "green" if healthy else "yellow"


class _LiveTable:
    def __init__(self, snapshot: TakeSnapshot) -> None:
        self._console = Console()
        self._snapshot = snapshot
        self._live = Live(
            get_renderable=self._render, console=self._console,
            refresh_per_second=2, transient=False,
        )  # fmt: skip

    def begin(self) -> None:
        self._live.start()

    def end(self) -> None:
        self._live.stop()

    def events(self, published: Sequence[Published]) -> None:
        for line in _event_lines(published):
            self._console.print(Text(redact_text(line)))

    def status(self, mirror: MirrorSnapshot) -> None: ...

    def last(self, mirror: MirrorSnapshot) -> None:
        for flow in filter(copies, mirror.flows):
            self._console.print(Text(_line(mirror.at, logging.INFO, _last_word(mirror, flow))))

    def _render(self) -> RenderableType:
        return table(self._snapshot(), self._console.width, self._console.height)


# -- for machines -----------------------------------------------------------------------------


class _JsonLines:
    """``whole``: every event, whatever its level, so that no number is missing."""

    def __init__(self, interval: float, write: Write | None = None, *, whole: bool = False) -> None:
        self._changes = _Changes(interval)
        self._details: dict[tuple[str, str], dict[str, str]] = {}
        self._write = _safely(write)
        self._whole = whole

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def events(self, published: Sequence[Published]) -> None:
        for sequence, event in published:
            if self._whole or _is_logged(event):
                kind, at = _KINDS[type(event)], event.at or time.time()
                fields = {"logger": _EVENTS.name, "sequence": sequence} | _plain(event)
                self._write(_json_line(at, kind, level_of(event), fields))

    def status(self, mirror: MirrorSnapshot) -> None:
        for flow in self._changes.due(mirror):
            if self._whole or _STATUS.isEnabledFor(_status_level(flow)):
                self._status(mirror.at, flow)
        if self._whole or _STATUS.isEnabledFor(logging.INFO):
            for flow in mirror.flows:
                self._say_details(mirror.at, flow)

    def _status(self, at: float, flow: FlowSnapshot) -> None:
        self._print(
            at, "status", _status_level(flow), _STATUS, **summary(flow),
            troubled=[to_json(p) for p in flow.troubled],
            lagging=[to_json(t) for t in flow.topics if t.lag_records],
            failing={job.description: job.error for job in flow.failing_jobs},
        )  # fmt: skip

    def _say_details(self, at: float, flow: FlowSnapshot) -> None:
        """What jobs say of single subjects, e.g. groups, if it is not what they said before."""
        for job in flow.jobs:
            details, key = dict(job.details), (flow.flow, job.description)
            if details != self._details.get(key, {}):
                self._details[key] = details
                self._print(at, "details", logging.INFO, _STATUS, flow=flow.flow,
                            job=job.description, details=details)  # fmt: skip

    def last(self, mirror: MirrorSnapshot) -> None:
        for flow in mirror.flows:
            self._print(
                mirror.at, "stopped", logging.INFO, _STATUS, flow=flow.flow,
                ran_seconds=round(max(mirror.at - mirror.started_at, 0.0), 3),
                copied_records=flow.copied_records, copied_bytes=flow.copied_bytes,
                lag_records=flow.lag_records, lag_seconds=to_json(flow.lag_seconds),
                states=dict(flow.states),
            )  # fmt: skip

    def _print(
        self, at: float, event: str, level: int, logger: logging.Logger, **fields: Any
    ) -> None:
        self._write(_json_line(at, event, level, {"logger": logger.name} | fields))


def _json_line(at: float, event: str, level: int, fields: Mapping[str, Any]) -> str:
    head = {"time": moment(at), "event": event, "level": logging.getLevelName(level).lower()}
    return json.dumps(head | dict(fields), separators=(",", ":"), default=str)


def _plain(event: Event) -> dict[str, Any]:
    """The fields of an event; a partition as its topic and its number."""
    plain: dict[str, Any] = to_json(event)
    plain.pop("at")
    if isinstance(event, PartitionEvent):
        plain["topic"], plain["partition"] = event.partition
    if isinstance(event, Notice):
        for name in ("logger", "error"):
            if not plain[name]:
                del plain[name]
    plain.pop("level", None)
    return plain
