"""Failover over HTTP: the plan, its execution, and what was done. Runs in the REST server.

    GET  /heliograph/v1/flows/{flow}/failover   operator: what it would do and lose
    POST /heliograph/v1/flows/{flow}/failover   admin: do it; the body names the flow once more
    GET  /heliograph/v1/flows/{flow}/handover   viewer: the last one, wherever it was ordered

Only for the flows of a file: workers of ``heliograph connect`` have none, and say so.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NoReturn, Protocol, TypeVar

from heliograph.connect.api import ConnectError
from heliograph.errors import HeliographError, WireError
from heliograph.failover.described import handover_json, plan_json, report_json
from heliograph.failover.failover import STEPS, FailoverPlan, FailoverWish
from heliograph.failover.refusals import HandoverRefused
from heliograph.ledger.rehearsals import Rehearsal
from heliograph.rest import schemas
from heliograph.rest.routing import Answer, Call, Route
from heliograph.rest.settings import Role
from heliograph.service.handovers import Run, Seen
from heliograph.service.shared_look import LookTakesLong
from heliograph.units import moment

__all__ = ["Handovers", "handover_routes"]

_PATH = "/heliograph/v1/flows/{flow}"
#: Of the rehearsals that the ledger keeps, so many are shown.
_REHEARSALS = 20
_NOT_OFFERED = (
    "A worker of 'heliograph connect' fails nothing over: it has no file with both directions."
    " 'heliograph failover FILE' does, with a file for this pair of clusters"
)
_KEYS = {"confirm", "max_rpo", "force"}
_LIMITS = {"records", "seconds"}
Result = TypeVar("Result")


class Handovers(Protocol):
    """What can be asked of a flow; `heliograph.service.handovers.FlowHandovers` has it.

    All raise KeyError for an unknown flow.
    """

    def plan(self, flow: str) -> FailoverPlan:
        """What a failover would do now."""

    def begin(self, flow: str, wish: FailoverWish) -> Run | None:
        """Begin one; None if one runs already."""

    def seen(self, flow: str) -> Seen:
        """What was done and is being done."""

    def close(self) -> None:
        """Nobody asks any more."""


def handover_routes(handovers: Handovers | None, changed: Callable[[], None]) -> list[Route]:
    """The routes; without ``handovers`` they say that this is not offered.

    ``changed`` is called when a failover was begun.
    """
    made = _HandoverRoutes(handovers, changed)
    return [
        Route(method="GET", path=f"{_PATH}/failover", role=Role.OPERATOR, handler=made.plan,
              summary="What a failover would do and lose, and what speaks against it",
              answers=schemas.FAILOVER_PLAN, tag="heliograph"),
        Route(method="POST", path=f"{_PATH}/failover", role=Role.ADMIN, changes=True,
              handler=made.begin, body=schemas.FAILOVER, answers=schemas.FAILOVER_BEGUN,
              summary="Fail over to the flow's target", ok={202: "It was begun"},
              tag="heliograph"),
        Route(method="GET", path=f"{_PATH}/handover", role=Role.VIEWER, handler=made.seen,
              summary="The last change of direction, how far it is, and rehearsals",
              answers=schemas.HANDOVER, tag="heliograph"),
    ]  # fmt: skip


class _HandoverRoutes:
    def __init__(self, handovers: Handovers | None, changed: Callable[[], None]) -> None:
        self._handovers = handovers
        self._changed = changed

    def plan(self, call: Call) -> Answer:
        flow = call.path["flow"]
        plan = _asked(flow, lambda: self._offered().plan(flow))
        return Answer(plan_json(plan))

    def seen(self, call: Call) -> Answer:
        flow = call.path["flow"]
        seen = _asked(flow, lambda: self._offered().seen(flow))
        last, run = seen.noted.last, seen.run
        return Answer({
            "flow": flow,
            "steps": list(STEPS),
            "handover": handover_json(last) if last is not None else None,
            "unread": seen.unread,
            "run": _run_json(run) if run is not None else None,
            "rehearsals": [_rehearsal_json(r) for r in seen.noted.rehearsals[:_REHEARSALS]],
        })  # fmt: skip

    def begin(self, call: Call) -> Answer:
        flow, handovers = call.path["flow"], self._offered()
        wish = _wish(flow, call)
        call.notes.append(f"failover of {flow}{', forced' if wish.force else ''}")
        run = _asked(flow, lambda: handovers.begin(flow, wish))
        if run is None:
            raise ConnectError(409, f"A failover of {flow} is being carried out already")
        self._changed()
        if run.error is not None and not run.progress:
            raise ConnectError(409 if run.refused else 503, _text(run.error))
        return Answer({"flow": flow, "run": _run_json(run)}, 202)

    def _offered(self) -> Handovers:
        if self._handovers is None:
            raise ConnectError(501, _NOT_OFFERED)
        return self._handovers


def _asked(flow: str, ask: Callable[[], Result]) -> Result:
    """What was asked for; what cannot be had becomes an answer with its reason."""
    try:
        return ask()
    except KeyError:
        raise ConnectError(404, f"Flow {flow} not found") from None
    except LookTakesLong:
        raise ConnectError(
            503, "Looking at both clusters takes long; it goes on. Ask again in some seconds"
        ) from None
    except HandoverRefused as refused:
        raise ConnectError(409, _text(refused)) from None
    except (HeliographError, WireError) as error:
        raise ConnectError(503, _text(error)) from None


def _text(error: Exception) -> str:
    """An error in one line, with all else that speaks against a handover."""
    if isinstance(error, HandoverRefused) and error.others:
        return ". ".join(_text(one).rstrip(".") for one in _each(error))
    hint = error.hint if isinstance(error, HeliographError) else ""
    text = str(error.args[0]) if error.args else type(error).__name__
    return f"{text}. {hint[0].upper()}{hint[1:]}" if hint else text


def _each(refused: HandoverRefused) -> list[HandoverRefused]:
    first = HandoverRefused(refused.code, str(refused.args[0]), refused.hint)
    return [first, *refused.others]


# -- what an admin sends --------------------------------------------------------------------------


def _wish(flow: str, call: Call) -> FailoverWish:
    try:
        told = json.loads(call.body, parse_constant=_refuse_constant) if call.body.strip() else {}
    except (ValueError, RecursionError):
        raise ConnectError(400, "The body is no JSON") from None
    if not isinstance(told, dict):
        raise ConnectError(400, 'The body must be like {"confirm": "A->B"}')
    for key in told:
        if key not in _KEYS:
            raise ConnectError(400, f"There is no {key!r}; known are {', '.join(sorted(_KEYS))}")
    if told.get("confirm") != flow:
        raise ConnectError(400, f'Confirm it with the name of the flow: {{"confirm": "{flow}"}}')
    force = told.get("force", False)
    if not isinstance(force, bool):
        raise ConnectError(400, "force must be true or false")
    records, seconds = _limits(told.get("max_rpo"))
    who = call.caller.name or "somebody"
    return FailoverWish(
        max_records=records, max_seconds=seconds, force=force,
        by=f"{who} by REST of {socket.gethostname()}",
    )  # fmt: skip


def _limits(told: object) -> tuple[int | None, float | None]:
    if told is None:
        return None, None
    if not isinstance(told, Mapping) or not told.keys() <= _LIMITS:
        raise ConnectError(400, 'max_rpo must be like {"records": 1000, "seconds": 30}')
    records, seconds = told.get("records"), told.get("seconds")
    if records is not None and (type(records) is not int or records < 0):
        raise ConnectError(400, "max_rpo.records must be a whole number, 0 or more")
    if seconds is not None and (
        type(seconds) not in {int, float} or not 0 <= seconds < math.inf
    ):  # fmt: skip
        raise ConnectError(400, "max_rpo.seconds must be a number, 0 or more")
    return records, seconds


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(text)


# -- what is answered -----------------------------------------------------------------------------


def _run_json(run: Run) -> dict[str, Any]:
    error = run.error
    return {
        "kind": "failover",
        "by": run.by,
        "began": moment(run.began),
        "ended": moment(run.ended) if run.ended else None,
        "progress": [
            {"at": moment(p.at), "step": p.told.step, "phase": str(p.told.phase),
             "text": p.told.text, "seconds": round(p.told.seconds, 3)}
            for p in run.progress
        ],
        "error": None if error is None else {
            "code": error.code, "message": str(error.args[0]), "hint": error.hint,
            "refused": run.refused,
        },
        "report": report_json(run.report) if run.report is not None else None,
    }  # fmt: skip


def _rehearsal_json(rehearsal: Rehearsal) -> dict[str, Any]:
    told = asdict(rehearsal)
    return {"at": moment(told.pop("at_ms") / 1000), **told}
