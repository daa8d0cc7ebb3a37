"""Our own routes, under ``/heliograph/v1``: what is known of the mirror, and its events.

Everything comes from the one snapshot and the one bus of events. Lists are cut into pages here, in
the server: a snapshot of 10,000 partitions is quickly made, but its JSON is not. Runs in the REST
server.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from re import compile as compiled
from typing import Any, Protocol, TypeVar

from heliograph.connect.api import ConnectError
from heliograph.model import PartitionEvent, PartitionState
from heliograph.rest.errors import as_json
from heliograph.rest.routing import Answer, Call, Handler, Route
from heliograph.rest.settings import Role
from heliograph.rest.streams import EventStreams
from heliograph.service.events import EventBus, Published, level_of, line_of
from heliograph.service.snapshot import (
    CHECKPOINTS,
    COPYING,
    HEARTBEATS,
    FlowSnapshot,
    MirrorSnapshot,
    PartitionSnapshot,
    TopicSnapshot,
    summary,
    to_json,
)
from heliograph.units import moment

__all__ = ["Commands", "Mirrored", "event_json", "own_routes"]

V1 = "/heliograph/v1"
_PARTS = (COPYING, CHECKPOINTS, HEARTBEATS)
_PAGE, _MOST = 100, 1000
#: Of a flow's partitions in trouble and failing jobs, so many are shown with the flow itself.
_FIRST = 20
#: Callers that come within this time see the same snapshot.
_FRESH_SECONDS = 0.5
#: And those who ask the same, the same bytes: of so many pages.
_MOST_PAGES = 64
_WORST = {state: number for number, state in enumerate(PartitionState)}
#: Nobody needs more wildcards; each costs time.
_MOST_WILDCARDS = 8

Item = TypeVar("Item")


class Commands(Protocol):
    """What can be asked of a flow; `heliograph.service.supervisor.FlowSupervisor` has it."""

    def pause(self, *parts: str) -> None:
        """Let parts rest, all by default."""

    def resume(self, *parts: str) -> None:
        """Let parts go on."""

    def restart(self, *parts: str) -> None:
        """Stop and start parts."""

    def pause_topics(self, *topics: str) -> None:
        """Let source topics rest."""

    def resume_topics(self, *topics: str) -> None:
        """Let source topics go on."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The mirror behind these routes. ``supervisor`` raises KeyError for an unknown flow."""

    snapshot: Callable[[], MirrorSnapshot]
    events: EventBus
    supervisor: Callable[[str], Commands]


def own_routes(mirrored: Mirrored, streams: EventStreams) -> list[Route]:
    """Every route of ours; ``streams`` serves those who follow the events."""
    made = _OwnRoutes(mirrored, streams)
    return [*made.figures(), *made.events(), *made.commands()]


class _Latest:
    """The snapshot, made anew when it is asked for and the last one is older than a moment."""

    def __init__(self, make: Callable[[], MirrorSnapshot]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._known: tuple[float, MirrorSnapshot] | None = None
        self._pages: dict[object, bytes] = {}

    def get(self) -> MirrorSnapshot:
        # Those who wait get what the first of them made.
        with self._lock:
            if self._known is None or time.monotonic() - self._known[0] > _FRESH_SECONDS:
                self._known = (time.monotonic(), self._make())
                self._pages = {}
            return self._known[1]

    def page(self, handler: Handler) -> Handler:
        """The same handler; who asks the same of the same snapshot gets the same bytes."""

        def answer(call: Call) -> Answer:
            self.get()
            pages = self._pages
            query = tuple((name, *values) for name, values in call.query.items())
            key = (handler, tuple(call.path.values()), query)
            if key not in pages:
                made = as_json(handler(call).value)
                if len(pages) >= _MOST_PAGES:
                    pages.clear()
                pages[key] = made
                return Answer(made)
            return Answer(pages.get(key) or as_json(handler(call).value))

        return answer

    def forget(self) -> None:
        with self._lock:
            self._known = None


class _OwnRoutes:
    def __init__(self, mirrored: Mirrored, streams: EventStreams) -> None:
        self._mirrored = mirrored
        self._latest = _Latest(mirrored.snapshot)
        self._streams = streams

    # -- figures ------------------------------------------------------------------------------

    def figures(self) -> list[Route]:
        page = {
            "sort": "what to sort by; - before it: the other way round",
            "offset": "how many to leave out",
            "limit": f"how many to return: {_PAGE}, at most {_MOST}",
        }
        flow = {"flow": "of this flow only"}
        topic = {"topic": "of this topic only; * stands for anything"}
        states = {"state": f"only in these states, comma separated: {', '.join(PartitionState)}"}
        made = self._latest.page
        return [
            _get("/snapshot", made(self._snapshot), "The mirror and its flows, in brief"),
            _get("/flows", made(self._flows), "All flows"),
            _get("/flows/{flow}", made(self._flow), "A flow, and what is in trouble"),
            _get("/flows/{flow}/partitions", made(self._partitions), "Its partitions",
                 {**states, **topic, **page}),
            _get("/topics", made(self._topics), "Topics of all flows", {**flow, **topic, **page}),
            _get("/groups", made(self._groups), "Consumer groups of all flows", {**flow, **page}),
            _get("/jobs", made(self._jobs), "Control jobs of all flows", {**flow, **page}),
        ]  # fmt: skip

    def _snapshot(self, _: Call) -> Answer:
        found = self._latest.get()
        plain = to_json(found.engine) if found.engine is not None else None
        head = to_json(MirrorSnapshot(found.at, (), None, found.started_at, found.sequence))
        return Answer({**head, "engine": plain, "flows": [summary(f) for f in found.flows]})

    def _flows(self, _: Call) -> Answer:
        return Answer([summary(flow) for flow in self._latest.get().flows])

    def _flow(self, call: Call) -> Answer:
        flow = self._found(call)
        return Answer({
            **summary(flow),
            "troubled": to_json(flow.troubled[:_FIRST]),
            "failing": to_json(flow.failing_jobs[:_FIRST]),
        })  # fmt: skip

    def _partitions(self, call: Call) -> Answer:
        flow = self._found(call)
        rows: Sequence[PartitionSnapshot] = flow.partitions
        if states := _states(call):
            rows = [p for p in rows if p.state in states]
        if (fits := _fitting(call)) is not None:
            rows = [p for p in rows if fits(p.topic)]
        keys: dict[str, Callable[[PartitionSnapshot], Any]] = {
            "name": lambda p: (p.topic, p.partition),
            "lag": lambda p: _known_first(p.lag_records),
            "seconds": lambda p: _known_first(p.lag_seconds),
            "state": lambda p: _WORST[p.state],
            "since": lambda p: p.since,
        }
        page = _page(call, rows, keys)
        measured = moment(flow.measured_at) if flow.measured_at else None
        head = {"flow": flow.flow, "measured_at": measured}
        return Answer({**head, **page("partitions", to_json)})

    def _topics(self, call: Call) -> Answer:
        rows = [(flow.flow, topic) for flow in self._chosen(call) for topic in flow.topics]
        if (fits := _fitting(call)) is not None:
            rows = [row for row in rows if fits(row[1].topic)]
        keys: dict[str, Callable[[tuple[str, TopicSnapshot]], Any]] = {
            "name": lambda row: (row[1].topic, row[0]),
            "lag": lambda row: _known_first(row[1].lag_records),
            "seconds": lambda row: _known_first(row[1].lag_seconds),
            "troubled": lambda row: row[1].troubled,
        }
        return Answer(_page(call, rows, keys)("topics", _with_flow))

    def _groups(self, call: Call) -> Answer:
        rows = [(flow.flow, group) for flow in self._chosen(call) for group in flow.groups]
        page = _page(call, rows, {"name": lambda row: (row[1].group, row[0])})
        return Answer(page("groups", _with_flow))

    def _jobs(self, call: Call) -> Answer:
        rows = [(flow.flow, job) for flow in self._chosen(call) for job in flow.jobs]
        page = _page(call, rows, {
            "name": lambda row: (row[1].description, row[0]),
            "error": lambda row: row[1].error,
            "last_run": lambda row: row[1].last_run,
        })  # fmt: skip
        return Answer(page("jobs", _with_flow))

    def _chosen(self, call: Call) -> Iterable[FlowSnapshot]:
        name = call.text("flow")
        return self._latest.get().flows if name is None else [self._named(name)]

    def _found(self, call: Call) -> FlowSnapshot:
        return self._named(call.path["flow"])

    def _named(self, name: str) -> FlowSnapshot:
        flow = self._latest.get().flow(name)
        if flow is None:
            raise ConnectError(404, f"Flow {name} not found")
        return flow

    # -- events -------------------------------------------------------------------------------

    def events(self) -> list[Route]:
        return [
            _get("/events", self._events, "What happened, oldest first",
                 {"after": "only events behind this number", "limit": f"at most {_MOST}"}),
            Route(method="GET", path=f"{V1}/events/stream", role=Role.VIEWER, tag="heliograph",
                  summary="What happens, as server-sent events", consumes=False,
                  stream=self._streams.respond, produces="text/event-stream",
                  query={"after": "begin behind this number; the header Last-Event-ID counts"
                                  " more"}),
        ]  # fmt: skip

    def _events(self, call: Call) -> Answer:
        after, limit = _integer(call, "after", 0), _limit(call)
        bus = self._mirrored.events
        last = bus.sequence
        # A number from a mirror that ran before: its events are gone, ours are all new.
        after = 0 if after > last else after
        kept = bus.history(after)
        found = kept[:limit]
        first = kept[0].sequence if kept else last + 1
        return Answer({
            "events": [event_json(published) for published in found],
            "next": found[-1].sequence if found else after,
            "last": max(last, found[-1].sequence if found else 0),
            "missed": max(0, first - after - 1),
        })  # fmt: skip

    # -- commands -----------------------------------------------------------------------------

    def commands(self) -> list[Route]:
        return [
            Route(method="POST", path=f"{V1}/flows/{{flow}}/{word}", role=Role.OPERATOR,
                  changes=True, handler=self._commanding(word), tag="heliograph",
                  summary=f"{word.capitalize()} a flow, or parts of it"
                          + ("" if word == "restart" else ", or source topics"),
                  query={"part": f"{', '.join(_PARTS)}; comma separated, all by default"}
                        | ({} if word == "restart" else
                           {"topic": "source topics, comma separated: only these"}),
                  ok={202: "It will"})
            for word in ("pause", "resume", "restart")
        ]  # fmt: skip

    def _commanding(self, word: str) -> Callable[[Call], Answer]:
        def command(call: Call) -> Answer:
            flow = self._found(call)
            parts = _listed(call, "part")
            for part in parts:
                if part not in _PARTS:
                    raise ConnectError(
                        400, f"There is no part {part!r}; parts are {', '.join(_PARTS)}"
                    )
                if part not in flow.parts:
                    raise ConnectError(400, f"Flow {flow.flow} has no {part}: it is switched off")
            topics = _listed(call, "topic") if word != "restart" else []
            if topics and parts:
                raise ConnectError(400, "Name parts or topics, not both")
            for topic in topics:
                if all(known.topic != topic for known in flow.topics):
                    raise ConnectError(400, f"Flow {flow.flow} mirrors no topic {topic!r}")
            try:
                supervisor = self._mirrored.supervisor(flow.flow)
            except KeyError:
                raise ConnectError(404, f"Flow {flow.flow} not found") from None
            if topics:
                getattr(supervisor, f"{word}_topics")(*topics)
            else:
                getattr(supervisor, word)(*parts)
            self._latest.forget()
            what = {"topics": topics} if topics else {"parts": parts or list(flow.parts)}
            return Answer({"flow": flow.flow, **what}, 202)

        return command


def event_json(published: Published) -> dict[str, Any]:
    """An event as the page and the stream show it."""
    event = published.event
    plain: dict[str, Any] = {
        "sequence": published.sequence,
        "kind": type(event).__name__.removesuffix("Event").lower(),
        **to_json(event),
        "level": logging.getLevelName(level_of(event)).lower(),
        "line": line_of(event),
    }
    if isinstance(event, PartitionEvent):
        plain["topic"], plain["partition"] = event.partition
    return plain


def _get(
    path: str, handler: Callable[[Call], Answer], summary_: str, query: dict[str, str] | None = None
) -> Route:
    return Route(
        method="GET", path=V1 + path, role=Role.VIEWER, handler=handler, summary=summary_,
        query=query or {}, tag="heliograph",
    )  # fmt: skip


def _with_flow(row: tuple[str, Any]) -> dict[str, Any]:
    return {"flow": row[0], **to_json(row[1])}


def _page(
    call: Call, rows: Sequence[Item], keys: dict[str, Callable[[Item], Any]]
) -> Callable[[str, Callable[[Item], Any]], dict[str, Any]]:
    """Sorted, and cut; returns what makes the answer of it. Only what is returned is converted."""
    wanted = call.text("sort") or ""
    backwards, name = wanted.startswith("-"), wanted.removeprefix("-")
    if name and name not in keys:
        raise ConnectError(400, f"sort: {wanted!r} is none of {', '.join(keys)}")
    offset, limit = _integer(call, "offset", 0), _limit(call)
    if name:
        rows = sorted(rows, key=keys[name], reverse=backwards)
    found = rows[offset : offset + limit]
    head = {"total": len(rows), "offset": offset, "limit": limit}
    return lambda title, plain: {**head, title: [plain(row) for row in found]}


def _known_first(figure: float | None) -> float:
    """Unknown counts as less than nothing, so that it comes last with the greatest first."""
    return -1.0 if figure is None else figure


def _limit(call: Call) -> int:
    return min(_MOST, _integer(call, "limit", _PAGE))


def _integer(call: Call, name: str, default: int) -> int:
    text = call.text(name)
    if text is None or not text:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise ConnectError(400, f"{name}: {text!r} is no number")
    return int(text)


def _listed(call: Call, name: str) -> list[str]:
    texts = ",".join(call.query.get(name, ())).split(",")
    return list(dict.fromkeys(text.strip() for text in texts if text.strip()))


def _states(call: Call) -> frozenset[PartitionState]:
    names = _listed(call, "state")
    try:
        return frozenset(PartitionState(name) for name in names)
    except ValueError as error:
        known = ", ".join(PartitionState)
        raise ConnectError(400, f"state: {error}; states are {known}") from None


def _fitting(call: Call) -> Callable[[str], bool] | None:
    text = call.text("topic")
    if text is None:
        return None
    if "*" not in text:
        return lambda topic: topic == text
    if text.count("*") > _MOST_WILDCARDS:
        raise ConnectError(400, f"topic: at most {_MOST_WILDCARDS} wildcards")
    # Names of topics have neither ? nor [.
    pattern = compiled(translate(text.replace("[", "[[]").replace("?", "[?]")))
    return lambda topic: pattern.match(topic) is not None
