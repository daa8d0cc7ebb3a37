"""What the dashboard asks beside the figures: who am I, history, configuration, one group.

Runs in the REST server, in the threads of handlers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from heliograph import __version__
from heliograph.config import flow_values
from heliograph.connect.api import ConnectError, Herder
from heliograph.rest import schemas
from heliograph.rest.latest import Latest
from heliograph.rest.own_routes import Commands, Mirrored, own_get
from heliograph.rest.paging import MOST, integer_of
from heliograph.rest.routing import Answer, Call, Route
from heliograph.service.history import KEPT_SECONDS
from heliograph.service.snapshot import FlowSnapshot, to_json

__all__ = ["board_routes"]

_HOUR_SECONDS, _POINTS = 3600, 300


def board_routes(
    mirrored: Mirrored, latest: Latest, herder: Herder, logins: Sequence[str]
) -> list[Route]:
    """Routes of ours; ``logins`` are the kinds of credentials that are taken."""
    made = _BoardRoutes(mirrored, latest, herder, logins)
    flow = {"flow": "of this flow only"}
    return [
        own_get("/me", made.me, "Who asks, and what they may do", answers=schemas.ME),
        own_get("/history", made.history, "Lag, rates and canary of flows over time",
                {**flow, "seconds": f"how far back: {_HOUR_SECONDS}, at most {KEPT_SECONDS}",
                 "points": f"how many at most: {_POINTS}, at most {MOST}"},
                schemas.HISTORY),
        own_get("/config", made.config, "Configuration of flows, and where each value comes from",
                flow, schemas.CONFIG),
        own_get("/group", made.group, "A consumer group on both sides, partition by partition",
                {"flow": "of this flow; needed", "group": "its id; needed"}, schemas.GROUP),
    ]  # fmt: skip


class _BoardRoutes:
    def __init__(
        self, mirrored: Mirrored, latest: Latest, herder: Herder, logins: Sequence[str]
    ) -> None:
        self._mirrored = mirrored
        self._latest = latest
        self._herder = herder
        self._logins = list(logins)

    def me(self, call: Call) -> Answer:
        return Answer({
            "name": call.caller.name,
            "role": call.caller.role.name.lower(),
            "changes": self._herder.changeable,
            "version": __version__,
            "logins": self._logins,
        })  # fmt: skip

    def history(self, call: Call) -> Answer:
        seconds = min(KEPT_SECONDS, integer_of(call, "seconds", _HOUR_SECONDS))
        points = min(MOST, integer_of(call, "points", _POINTS))
        name = call.text("flow")
        if name is not None:
            self._flow(name)
        found = self._mirrored.history.read(time.time(), seconds, points, name)
        return Answer({"flows": {
            flow: {"step_seconds": kept.step_seconds, "points": kept.points}
            for flow, kept in found.items()
        }})  # fmt: skip

    def config(self, call: Call) -> Answer:
        name = call.text("flow")
        flows = self._latest.get().flows if name is None else [self._flow(name)]
        found = []
        for flow in flows:
            values = flow_values(self._supervisor(flow.flow).config, defaults=True)
            found.append({
                "flow": flow.flow,
                "keys": [
                    {"key": v.key, "value": v.value, "origin": v.origin,
                     "is_default": v.is_default}
                    for v in values
                ],
            })  # fmt: skip
        return Answer({"flows": found})

    def group(self, call: Call) -> Answer:
        name, group = call.text("flow"), call.text("group")
        if name is None or group is None:
            raise ConnectError(400, "Name a flow and a group")
        self._flow(name)
        try:
            found = self._supervisor(name).group(group)
        except KeyError:
            raise ConnectError(404, f"Flow {name} knows no group {group}") from None
        # The rest are counts of what the partitions show.
        about = {key: to_json(found.group)[key] for key in ("group", "ready", "why", "said")}
        return Answer({"flow": found.flow, **about, "partitions": to_json(found.partitions)})

    def _flow(self, name: str) -> FlowSnapshot:
        flow = self._latest.get().flow(name)
        if flow is None:
            raise ConnectError(404, f"Flow {name} not found")
        return flow

    def _supervisor(self, name: str) -> Commands:
        try:
            return self._mirrored.supervisor(name)
        except KeyError:
            raise ConnectError(404, f"Flow {name} not found") from None
