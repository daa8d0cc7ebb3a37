"""Our own routes, under ``/heliograph/v1``: what is known of the mirror, and its events.

Everything comes from the one snapshot and the one bus of events. Runs in the REST server.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from heliograph.config import FlowConfig
from heliograph.connect.api import ConnectError
from heliograph.failover.refusals import HandoverRefused
from heliograph.model import PartitionEvent, PartitionState
from heliograph.rest import schemas
from heliograph.rest.flow_stream import FlowStream
from heliograph.rest.handover_routes import Handovers
from heliograph.rest.latest import Latest
from heliograph.rest.paging import (
    MOST,
    PAGE,
    fitting,
    integer_of,
    known_first,
    limit_of,
    listed,
    page_of,
)
from heliograph.rest.routing import Answer, Call, Route
from heliograph.rest.settings import Role
from heliograph.rest.streams import EventStreams, Streams
from heliograph.rest.topic_rows import WORST, TopicRow, topic_rows
from heliograph.service.events import EventBus, Published, level_of, line_of
from heliograph.service.history import History
from heliograph.service.snapshot import (
    CHECKPOINTS,
    COPYING,
    HEARTBEATS,
    FlowSnapshot,
    GroupDetails,
    MirrorSnapshot,
    PartitionSnapshot,
    summary,
    to_json,
)
from heliograph.shown import shown
from heliograph.units import moment

__all__ = ["V1", "Commands", "Mirrored", "event_json", "own_get", "own_routes"]

V1 = "/heliograph/v1"
_PARTS = (COPYING, CHECKPOINTS, HEARTBEATS)
#: Of a flow's partitions in trouble and failing jobs, so many are shown with the flow itself.
_FIRST = 20
#: Characters of a reason: it stands in a line of each view.
_WHY = 300


class Commands(Protocol):
    """What can be asked of a flow; `heliograph.service.supervisor.FlowSupervisor` has it."""

    @property
    def config(self) -> FlowConfig:
        """The configuration that the flow goes by."""

    def group(self, group: str) -> GroupDetails:
        """A consumer group on both sides. Asks the target; raises KeyError if none is known."""

    def pause(self, *parts: str, why: str = "") -> None:
        """Let parts rest, all by default; ``why`` is for people."""

    def resume(self, *parts: str) -> None:
        """Let parts go on."""

    def restart(self, *parts: str) -> None:
        """Stop and start parts."""

    def pause_topics(self, *topics: str, why: str = "") -> None:
        """Let source topics rest; ``why`` is for people."""

    def resume_topics(self, *topics: str) -> None:
        """Let source topics go on."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The mirror behind these routes. ``supervisor`` raises KeyError for an unknown flow.

    ``handovers``: None where flows cannot be failed over.
    """

    snapshot: Callable[[], MirrorSnapshot]
    events: EventBus
    supervisor: Callable[[str], Commands]
    history: History
    handovers: Handovers | None = None


def own_routes(
    mirrored: Mirrored, latest: Latest, events: EventStreams, flows: FlowStream
) -> list[Route]:
    """What is known of flows and what happens to them; the streams serve those who follow."""
    made = _OwnRoutes(mirrored, latest, events, flows)
    return [*made.figures(), *made.events(), *made.commands()]


class _OwnRoutes:
    def __init__(
        self, mirrored: Mirrored, latest: Latest, streams: EventStreams, flows: FlowStream
    ) -> None:
        self._mirrored = mirrored
        self._latest = latest
        self._streams = streams
        self._flow_stream = flows

    # -- figures ------------------------------------------------------------------------------

    def figures(self) -> list[Route]:
        page = {
            "sort": "what to sort by; - before it: the other way round",
            "offset": "how many to leave out",
            "limit": f"how many to return: {PAGE}, at most {MOST}",
        }
        flow = {"flow": "of this flow only"}
        topic = {"topic": "of this topic only; * stands for anything"}
        group = {"group": "whose name has this text in it; or with * for anything, the whole name"}
        states = {"state": f"only in these states, comma separated: {', '.join(PartitionState)}"}
        made = self._latest.page
        return [
            own_get("/snapshot", made(self._snapshot), "The mirror and its flows, in brief"),
            own_get("/flows", made(self._flows), "All flows"),
            _following("/flows/stream", self._flow_stream,
                       "All flows, as server-sent events: whenever something has changed"),
            own_get("/flows/{flow}", made(self._flow), "A flow, and what is in trouble"),
            own_get("/flows/{flow}/partitions", made(self._partitions), "Its partitions",
                    {**states, **topic, **page}),
            own_get("/topics", made(self._topics), "Topics of all flows",
                    {**flow, **topic, **page}),
            own_get("/groups", made(self._groups), "Consumer groups of all flows",
                    {**flow, **group, **page}, answers=schemas.GROUPS),
            own_get("/jobs", made(self._jobs), "Control jobs of all flows", {**flow, **page}),
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
        if (fits := fitting(call, "topic")) is not None:
            rows = [p for p in rows if fits(p.topic)]
        counts = Counter(p.state for p in rows)
        if states := _states(call):
            rows = [p for p in rows if p.state in states]
        keys: dict[str, Callable[[PartitionSnapshot], Any]] = {
            "name": lambda p: (p.topic, p.partition),
            "lag": lambda p: known_first(p.lag_records),
            "seconds": lambda p: known_first(p.lag_seconds),
            "state": lambda p: WORST[p.state],
            "since": lambda p: p.since,
        }
        page = page_of(call, rows, keys)
        measured = moment(flow.measured_at) if flow.measured_at else None
        head = {"flow": flow.flow, "measured_at": measured, "states": counts}
        return Answer({**head, **page("partitions", to_json)})

    def _topics(self, call: Call) -> Answer:
        rows = [row for flow in self._chosen(call) for row in topic_rows(flow)]
        if (fits := fitting(call, "topic")) is not None:
            rows = [row for row in rows if fits(row.topic.topic)]
        keys: dict[str, Callable[[TopicRow], Any]] = {
            "name": lambda row: (row.topic.topic, row.flow),
            "state": lambda row: row.worry,
            "lag": lambda row: known_first(row.topic.lag_records),
            "seconds": lambda row: known_first(row.topic.lag_seconds),
            "troubled": lambda row: row.topic.troubled,
        }
        return Answer(page_of(call, rows, keys)("topics", TopicRow.to_json))

    def _groups(self, call: Call) -> Answer:
        rows = [(flow.flow, group) for flow in self._chosen(call) for group in flow.groups]
        if (fits := fitting(call, "group", anywhere=True)) is not None:
            rows = [row for row in rows if fits(row[1].group)]
        page = page_of(call, rows, {
            "name": lambda row: (row[1].group, row[0]),
            # Those that need attention first, then what is not known.
            "ready": lambda row: (row[1].ready is not False, row[1].ready is True, row[1].group),
            "lag": lambda row: known_first(row[1].lag),
        })  # fmt: skip
        return Answer(page("groups", _with_flow))

    def _jobs(self, call: Call) -> Answer:
        rows = [(flow.flow, job) for flow in self._chosen(call) for job in flow.jobs]
        page = page_of(call, rows, {
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
            own_get("/events", self._events, "What happened, oldest first",
                    {"after": "only events behind this number", "limit": f"at most {MOST}"}),
            _following("/events/stream", self._streams, "What happens, as server-sent events",
                          {"after": "begin behind this number; the header Last-Event-ID counts"
                                 " more"}),
        ]  # fmt: skip

    def _events(self, call: Call) -> Answer:
        after, limit = integer_of(call, "after", 0), limit_of(call)
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
                              {"topic": "source topics, comma separated: only these"})
                        | ({"why": f"the reason, shown by all who look: at most {_WHY} characters"}
                           if word == "pause" else {}),
                  ok={202: "It will"})
            for word in ("pause", "resume", "restart")
        ]  # fmt: skip

    def _commanding(self, word: str) -> Callable[[Call], Answer]:
        def command(call: Call) -> Answer:
            flow = self._found(call)
            parts = listed(call, "part")
            for part in parts:
                if part not in _PARTS:
                    raise ConnectError(
                        400, f"There is no part {part!r}; parts are {', '.join(_PARTS)}"
                    )
                if part not in flow.parts:
                    raise ConnectError(400, f"Flow {flow.flow} has no {part}: it is switched off")
            topics = listed(call, "topic") if word != "restart" else []
            if topics and parts:
                raise ConnectError(400, "Name parts or topics, not both")
            for topic in topics:
                if all(known.topic != topic for known in flow.topics):
                    raise ConnectError(400, f"Flow {flow.flow} mirrors no topic {topic!r}")
            try:
                supervisor = self._mirrored.supervisor(flow.flow)
            except KeyError:
                raise ConnectError(404, f"Flow {flow.flow} not found") from None
            about = {"why": _why(call)} if word == "pause" else {}
            try:
                if topics:
                    getattr(supervisor, f"{word}_topics")(*topics, **about)
                else:
                    getattr(supervisor, word)(*parts, **about)
            except HandoverRefused as refused:
                raise ConnectError(409, str(refused)) from None
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


def own_get(
    path: str, handler: Callable[[Call], Answer], summary_: str,
    query: Mapping[str, str] | None = None, answers: Mapping[str, Any] | None = None,
) -> Route:  # fmt: skip
    """A route of ours that reads: for viewers."""
    return Route(
        method="GET", path=V1 + path, role=Role.VIEWER, handler=handler, summary=summary_,
        query=query or {}, answers=answers or {}, tag="heliograph",
    )  # fmt: skip


def _following(
    path: str, streams: Streams, summary_: str, query: Mapping[str, str] | None = None
) -> Route:
    return Route(
        method="GET", path=V1 + path, role=Role.VIEWER, stream=streams.respond, summary=summary_,
        query=query or {}, consumes=False, produces="text/event-stream", tag="heliograph",
    )  # fmt: skip


def _with_flow(row: tuple[str, Any]) -> dict[str, Any]:
    return {"flow": row[0], **to_json(row[1])}


def _why(call: Call) -> str:
    """Who pauses, and why; empty if nothing is known of that."""
    given = call.text("why") or ""
    if len(given) > _WHY:
        raise ConnectError(400, f"why: it has more than {_WHY} characters")
    name = call.caller.name
    if not name and not given:
        return ""
    who = f"paused by {shown(name)}, through REST" if name else "paused through REST"
    return f"{who}: {shown(given)}" if given else who


def _states(call: Call) -> frozenset[PartitionState]:
    names = listed(call, "state")
    try:
        return frozenset(PartitionState(name) for name in names)
    except ValueError as error:
        known = ", ".join(PartitionState)
        raise ConnectError(400, f"state: {error}; states are {known}") from None
