"""The application: all routes behind one guard. Runs in the REST server's event loop.

FastAPI routes requests and writes the OpenAPI document. It reads no body and checks nothing: what
it would answer is not what Connect answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from heliograph import __version__
from heliograph.connect.api import Herder
from heliograph.rest.board_routes import board_routes
from heliograph.rest.connect_routes import connect_routes
from heliograph.rest.credentials import Credentials
from heliograph.rest.dashboard_routes import HOME, dashboard_routes
from heliograph.rest.documents import page_of
from heliograph.rest.errors import as_json, failure, plain_error
from heliograph.rest.flow_stream import FlowStream
from heliograph.rest.handover_routes import handover_routes
from heliograph.rest.health import Health, health_routes
from heliograph.rest.latest import Latest
from heliograph.rest.metrics.route import metrics_route
from heliograph.rest.own_routes import Mirrored, event_json, own_routes
from heliograph.rest.routing import Answer, Calls, Route, register
from heliograph.rest.security import Guard, Kept, nothing_kept
from heliograph.rest.settings import RestSettings, Role
from heliograph.rest.streams import EventStreams, Streams

__all__ = ["RestApp"]

#: Its own measuring sends paths and errors to whoever the environment names.
_SILENT: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "auto_configure": False,
}
_NO_SCRIPTS = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


class RestApp:
    """An ASGI application. `close` ends answers that would not end by themselves.

    ``mirrored`` is for our own routes, ``health`` for the probes; without them there are only
    Connect's. ``routes`` is all that is served. Raises ConfigError if a file of users or tokens is
    not right.
    """

    def __init__(
        self,
        herder: Herder,
        settings: RestSettings,
        mirrored: Mirrored | None = None,
        health: Health | None = None,
    ) -> None:
        self._streams: list[Streams] = []
        self._handovers = mirrored.handovers if mirrored is not None else None
        limits = settings.limits
        credentials = Credentials(settings)
        routes = connect_routes(herder, limits)
        home: list[Route] = []
        kept: Kept = nothing_kept
        if mirrored is not None:
            latest = Latest(mirrored.snapshot)
            kept = latest.at_once
            events = EventStreams(mirrored.events, event_json, limits.streams)
            flows = FlowStream(latest.get, limits.streams)
            self._streams = [events, flows]
            home = dashboard_routes()
            routes += own_routes(mirrored, latest, events, flows)
            routes += handover_routes(mirrored.handovers, latest.forget)
            routes.append(metrics_route(latest, settings))
            routes += board_routes(mirrored, latest, herder, credentials.logins) + home
        if health is not None:
            routes += health_routes(health, settings)
        api = FastAPI(
            title="Heliograph", version=__version__, docs_url=None, redoc_url=None,
            openapi_url=None, redirect_slashes=False, telemetry=_SILENT,
            description="Kafka Connect's REST API for MirrorMaker 2's connectors, and more.",
            exception_handlers={HTTPException: _unrouted, Exception: _broken},
        )  # fmt: skip
        routes += _documents(api)
        self.routes: Sequence[Route] = tuple(routes)
        calls = Calls(limits)
        register(api, self.routes, calls, lambda: herder.changeable)
        open_paths = [route.path for route in routes if route.role is None]
        self._guard = Guard(
            api, settings, credentials, calls, open_paths, HOME if home else "", kept
        )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._guard(scope, receive, send)

    def close(self) -> None:
        """Let those who follow a stream end, and close clients. From any thread."""
        for streams in self._streams:
            streams.close()
        if self._handovers is not None:
            self._handovers.close()


def _documents(api: FastAPI) -> list[Route]:
    def openapi(_: object) -> Answer:
        return Answer(as_json(api.openapi()))

    def page(_: object) -> Answer:
        headers = {"Content-Security-Policy": _NO_SCRIPTS}
        return Answer(page_of(api.openapi()), headers=headers)

    return [
        Route(method="GET", path="/openapi.json", role=Role.VIEWER, handler=openapi,
              summary="This document", tag="heliograph"),
        Route(method="GET", path="/docs", role=Role.VIEWER, handler=page, tag="heliograph",
              summary="The same for people", produces=HTMLResponse.media_type or "text/html"),
    ]  # fmt: skip


async def _unrouted(request: Request, error: Exception) -> Response:
    """What no route answers: 404, 405 and OPTIONS."""
    status = getattr(error, "status_code", 500)
    allowed = _allowed(request) if status == 405 else []
    headers = {"Allow": ",".join(allowed)} if allowed else None
    if status == 405 and request.method == "OPTIONS":
        return Response(", ".join(allowed), headers=headers, media_type="text/plain")
    return failure(status, plain_error(status).message, headers)


async def _broken(request: Request, error: Exception) -> Response:
    return failure(500, "An error inside Heliograph; its log says more")


def _allowed(request: Request) -> list[str]:
    """The methods of a path; Starlette only tells those of the first route that fits."""
    methods: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= getattr(route, "methods", None) or set()
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()) | {"OPTIONS"})
