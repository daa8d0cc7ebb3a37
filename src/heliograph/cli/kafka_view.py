"""The flows of a file as Kafka shows them, under the routes of the REST API. Used by commands.

Nothing is run, claimed or written (`heliograph.service.survey`). The answers are those of the REST
API's own handlers, so commands read the same whichever way they look.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from heliograph.claims.log import Claim
from heliograph.config import FlowConfig
from heliograph.connect.api import ConnectError
from heliograph.errors import HeliographError, StartError
from heliograph.model import PartitionEvent, PartitionState, TopicPartition
from heliograph.rest.credentials import Caller
from heliograph.rest.flow_stream import FlowStream
from heliograph.rest.latest import Latest
from heliograph.rest.own_routes import Commands, Mirrored, event_json, own_routes
from heliograph.rest.routing import Call, Route
from heliograph.rest.settings import Role
from heliograph.rest.streams import EventStreams
from heliograph.service.events import RECOVERED, Event, EventBus, FlowEvent
from heliograph.service.history import History
from heliograph.service.snapshot import FlowSnapshot, MirrorSnapshot
from heliograph.service.survey import FlowSurvey
from heliograph.units import moment

__all__ = ["KafkaView"]

#: So many flows are asked at once.
_AT_ONCE = 8
#: Between two measurements that tell what moves from what does not.
_BETWEEN_SECONDS = 1.0
_BAD = {PartitionState.STALLED, PartitionState.FAILED}
_NOBODY = Caller("", Role.VIEWER)


class KafkaView:
    """What can be known of flows without asking a mirror. One thread measures, any may ask."""

    def __init__(self, configs: Sequence[FlowConfig]) -> None:
        self.surveys = {str(config.flow): FlowSurvey(config) for config in configs}
        self._errors: dict[str, HeliographError] = {}
        self._measured_at = 0.0
        self._bus = EventBus(logged=False)
        #: Partitions in trouble and flows that cannot be asked, as they were told last.
        self._told: dict[tuple[str, str, str], Event] = {}
        mirrored = Mirrored(self._snapshot, self._bus, _no_supervisor, History(self._snapshot))
        self._latest = Latest(self._snapshot)
        events, flows = EventStreams(self._bus, event_json, 0), FlowStream(self._latest.get, 0)
        self._routes = own_routes(mirrored, self._latest, events, flows)

    def find_owners(self) -> None:
        """Find out who has each flow, from the targets; raises StartError if none answers."""
        self._each(FlowSurvey.find_owner)

    def look(self) -> None:
        """Find out also which topics there are; raises StartError if no cluster tells anything."""
        self._each(FlowSurvey.look)

    def measure(self) -> None:
        """Measure all flows once; raises as `look`."""
        self._each(FlowSurvey.measure)
        self._measured_at = time.time()

    def settle(self) -> None:
        """Measure often enough to tell what moves; raises as `look`."""
        self.measure()
        time.sleep(_BETWEEN_SECONDS)
        self.measure()

    def tell(self) -> None:
        """Publish what has happened since the last time: what the ledgers say, and what is seen.

        After `measure`. What is in no ledger is told when it is seen first.
        """
        found: list[Event] = []
        for name, survey in self.surveys.items():
            if name not in self._errors:
                try:
                    found += survey.history()
                except HeliographError as error:
                    self._errors[name] = error
        found += self._seen()
        self._bus.publish(*sorted(found, key=lambda event: event.at))

    def _seen(self) -> list[Event]:
        now = time.time()
        seen: dict[tuple[str, str, str], Event] = {}
        for name, error in self._errors.items():
            text = str(error).removeprefix(f"flow {name}: ")
            seen[name, "", text] = FlowEvent(name, "flow.failed", text, "", logging.WARNING, now)
        for flow in self._snapshot().flows:
            for p in flow.partitions if flow.flow not in self._errors else ():
                if p.state in _BAD:
                    place = TopicPartition(p.topic, p.partition)
                    code = f"partition.{p.state.value}"
                    event = PartitionEvent(flow.flow, place, code, p.reason, at=now)
                    seen[flow.flow, p.name, code] = event
        new = [event for key, event in seen.items() if key not in self._told]
        for key, before in self._told.items():
            if key not in seen:
                new.append(_over(before, now))
        self._told = seen
        return new

    def _each(self, ask: Callable[[FlowSurvey], object]) -> None:
        errors: dict[str, HeliographError] = {}

        def one(name: str) -> None:
            try:
                ask(self.surveys[name])
            except HeliographError as error:
                errors[name] = error

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(one, self.surveys))
        self._errors = errors
        self._latest.forget()
        # A target that answers tells of its flow, whatever has become of the source.
        told = any(survey.orders is not None for survey in self.surveys.values())
        if errors and len(errors) == len(self.surveys) and not told:
            raise next(iter(errors.values()))

    def owners(self) -> dict[str, Claim | None]:
        """The mirror that has each flow."""
        return {name: survey.owner for name, survey in self.surveys.items()}

    def get(self, path: str, **query: object) -> Any:
        """What the route would answer, before it becomes JSON; raises HeliographError."""
        for route in self._routes:
            values = _fitting(route, path)
            if values is not None and route.handler is not None:
                asked = {n: [str(v)] for n, v in query.items() if v is not None and v != ""}
                call = Call(values, asked, {}, b"", "", _NOBODY)
                return _plain(route, call)
        raise StartError("rest.other", f"Kafka does not tell: {path}", "ask a mirror's REST API")

    def about(self, flow: str) -> dict[str, Any]:
        """What only Kafka tells of a flow."""
        survey = self.surveys[flow]
        owner = survey.owner
        return {
            "owner": None if owner is None else {
                "host": owner.process.host, "pid": owner.process.pid,
                "since": moment(owner.since_ms / 1000), "rest": list(owner.rest),
            },
            "unmirrored": list(survey.unmirrored),
        }  # fmt: skip

    def close(self) -> None:
        """Close all connections."""
        for survey in self.surveys.values():
            survey.close()

    def _snapshot(self) -> MirrorSnapshot:
        flows = tuple(self._flow(name, survey) for name, survey in self.surveys.items())
        return MirrorSnapshot(self._measured_at or time.time(), flows)

    def _flow(self, name: str, survey: FlowSurvey) -> FlowSnapshot:
        if (error := self._errors.get(name)) is None:
            return survey.snapshot()
        return survey.away(error)


def _over(event: Event, now: float) -> Event:
    """What is told when something that was seen is seen no longer."""
    if isinstance(event, PartitionEvent):
        return PartitionEvent(event.flow, event.partition, RECOVERED, "it goes on", at=now)
    return FlowEvent(event.flow, "flow.recovered", "can be asked again", at=now)


def _no_supervisor(flow: str) -> Commands:
    raise KeyError(flow)


def _fitting(route: Route, path: str) -> dict[str, str] | None:
    """The values of a route's parameters, if it serves a path of ours."""
    wanted, given = route.path.removeprefix("/heliograph/v1").split("/"), path.split("/")
    if route.method != "GET" or len(wanted) != len(given):
        return None
    values: dict[str, str] = {}
    for name, value in zip(wanted, given, strict=True):
        if name.startswith("{"):
            values[name.strip("{}")] = value
        elif name != value:
            return None
    return values


def _plain(route: Route, call: Call) -> Any:
    assert route.handler is not None  # noqa: S101 - it was looked for
    try:
        value = route.handler(call).value
    except ConnectError as error:
        raise HeliographError("rest.refused", error.message) from error
    return json.loads(value) if isinstance(value, bytes) else value
