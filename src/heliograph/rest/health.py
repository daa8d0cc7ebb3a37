"""``/health/live`` and ``/health/ready``: for probes, without credentials. In the REST server.

*Live* says whether the driver moves. It never depends on a Kafka cluster: a mirror that is started
again because a cluster is away only loses time. *Ready* says whether all flows do their work, and
if not, which and why. Neither takes a snapshot: they are asked every few seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from heliograph.rest import schemas
from heliograph.rest.routing import Answer, Call, Route
from heliograph.rest.settings import RestSettings
from heliograph.service.mirror import Unready
from heliograph.service.pulse import Stuck
from heliograph.shown import shown

__all__ = ["Health", "health_routes"]


@dataclass(frozen=True, slots=True)
class Health:
    """What probes are told: the parts that are stuck, and what is not ready."""

    stuck: Callable[[], Sequence[Stuck]]
    unready: Callable[[], Sequence[Unready]]


def health_routes(health: Health, settings: RestSettings) -> list[Route]:
    """Both routes. Reasons may name hosts: where callers have to log in, they are left out here."""
    tells_reasons = not settings.authenticates

    def live(_: Call) -> Answer:
        stuck = [{"part": shown(s.part), "seconds": round(s.seconds, 1)} for s in health.stuck()]
        answer = {"status": "stuck" if stuck else "live", "stuck": stuck}
        return Answer(answer, 503 if stuck else 200)

    def ready(_: Call) -> Answer:
        found = [Unready(s.part, "stuck") for s in health.stuck()] + list(health.unready())
        reasons = [
            {"what": shown(u.what), "state": u.state, "code": u.code,
             "reason": shown(u.reason) if tells_reasons else ""}
            for u in found
        ]  # fmt: skip
        answer = {"status": "unready" if reasons else "ready", "reasons": reasons}
        return Answer(answer, 503 if reasons else 200)

    seconds = settings.limits.health_seconds
    return [
        Route(method="GET", path="/health/live", role=None, consumes=False, handler=live,
              summary="Whether the mirror moves", answers=schemas.LIVE, seconds=seconds,
              shared=False, tag="heliograph", ok={200: "It moves", 503: "A part of it is stuck"}),
        Route(method="GET", path="/health/ready", role=None, consumes=False, handler=ready,
              summary="Whether all flows do their work", answers=schemas.READY, seconds=seconds,
              shared=False, tag="heliograph", ok={200: "They do", 503: "Some do not"}),
    ]  # fmt: skip
