"""How a request becomes a call: roles, media types, bodies, threads. Runs in the REST server.

A `Route` says what is served and which role it needs. Its handler is a plain function that may wait
for Kafka: it runs in a thread of a pool, never in the event loop. The order of checks is Jersey's,
behind the caller's role: media type of the body, media type of the answer, then the call.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from heliograph.connect.api import ConnectError
from heliograph.control.workers import Workers
from heliograph.rest.credentials import Caller
from heliograph.rest.errors import JSON, as_json, error_of, failure, plain_error
from heliograph.rest.schemas import ERROR
from heliograph.rest.settings import Limits, Role
from heliograph.shown import shown

__all__ = [
    "Answer", "Call", "Calls", "Handler", "Route", "Target", "accepts", "register", "target_of",
]  # fmt: skip

log = logging.getLogger(__name__)
#: A line for every change: who, what, and what became of it.
audit = logging.getLogger("heliograph.rest.audit")

_MEDIA_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PARAMETER = re.compile(r"\{(\w+)\}")
Result = TypeVar("Result")


#: What is asked for: path and query.
Target = tuple[str, bytes]


def target_of(scope: Scope) -> Target:
    """That of a request which the guard has let pass."""
    return scope["path"], scope["query_string"]


@dataclass(frozen=True, slots=True)
class Call:
    """A request, as handlers see it.

    Attributes:
        path: the values of the path's parameters; ``query`` those behind the question mark.
        base: the address that the caller used: ``http://host:port``.
        slash: whether the path had one at its end, which ``path`` has not.
        target: the whole path and the query as it was sent: who asks the same has the same.
        notes: what the audit line should say beyond method, path and status.
    """

    path: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]
    body: bytes
    base: str
    caller: Caller
    slash: bool = False
    target: Target = ("", b"")
    notes: list[str] = field(default_factory=list)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A flag of the query as Java reads it: anything but true is false."""
        values = self.query.get(name)
        return default if not values else values[0].lower() == "true"

    def text(self, name: str) -> str | None:
        """The first value of a parameter of the query, if there is one."""
        values = self.query.get(name)
        return values[0] if values else None


#: The value of an answer without a body.
NOTHING: Any = object()


@dataclass(frozen=True, slots=True)
class Answer:
    """A success. ``value`` becomes JSON; NOTHING means that there is no body."""

    value: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def empty(cls, status: int, headers: Mapping[str, str] | None = None) -> Answer:
        """One without a body."""
        return cls(NOTHING, status, headers or {})


Handler = Callable[[Call], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path.

    Attributes:
        role: who may use it; None: anybody, known or not.
        handler: does it. ``stream`` instead, for an answer that does not end.
        changes: whether it changes something: it is refused where nothing may be changed, and
            leaves an audit line.
        consumes: whether a body, or a Content-Type alone, must be JSON.
        body: the JSON schema of its body, if it takes one.
        answers: the JSON schema of its success; None if that has no body.
        query: name of each parameter of the query, and what it is for.
        ok: status and description of success, for the OpenAPI document.
        seconds: how long the call may take; None for the usual.
        shared: whether it takes one of the places for calls; a probe must not wait for others.
        listed: whether the OpenAPI document names it.
    """

    method: str
    path: str
    role: Role | None
    summary: str
    handler: Handler | None = None
    stream: Callable[[Request, Call], Any] | None = None
    changes: bool = False
    consumes: bool = True
    body: Mapping[str, Any] | None = None
    answers: Mapping[str, Any] | None = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    ok: Mapping[int, str] = field(default_factory=lambda: {200: "Success"})
    produces: str = JSON
    seconds: float | None = None
    shared: bool = True
    listed: bool = True
    tag: str = "connect"


class Calls:
    """Runs handlers in threads. For one event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._places = asyncio.Semaphore(limits.calls)
        # Daemons, as many as calls run at once: one that hangs keeps no process from ending.
        self._workers = Workers()

    async def run(
        self, call: Callable[[], Result], *, seconds: float | None = None, shared: bool = True
    ) -> Result:
        """Make a call in a thread; raises 500 if that takes too long, and what the call raises.

        A call that takes too long goes on. It keeps its place until it ends, so that calls which
        hang are never more than there are places.
        """
        try:
            async with asyncio.timeout(seconds or self._limits.call_seconds):
                if shared:
                    await self._places.acquire()
                return await asyncio.shield(self._started(call, shared=shared))
        except TimeoutError:
            raise ConnectError(500, "Request timed out") from None

    def _started(self, call: Callable[[], Result], *, shared: bool) -> asyncio.Future[Result]:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Result] = loop.create_future()
        # Nobody may be left to ask for it.
        outcome.add_done_callback(lambda done: done.cancelled() or done.exception())

        def conclude(result: Any, error: BaseException | None) -> None:
            if shared:
                self._places.release()
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)

        def work() -> None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = call()
            except BaseException as raised:  # noqa: BLE001 - it is raised where it is awaited
                error = raised
            try:
                loop.call_soon_threadsafe(conclude, result, error)
            except RuntimeError:
                log.debug("the server was closed meanwhile")

        self._workers.after(0.0, work, self)
        return outcome


@dataclass(slots=True)
class _Endpoint:
    """Serves one route."""

    route: Route
    calls: Calls
    changeable: Callable[[], bool]

    async def __call__(self, request: Request) -> Response:
        route, caller = self.route, request.scope["heliograph.caller"]
        call: Call | None = None
        what = f"{request.method} {request.url.path}"
        try:
            self._admit(caller)
            _check_types(request, route)
            body = await request.body() if route.body is not None else b""
            call = _call_of(request, body, caller)
            made = await self._answer(request, call)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # noqa: BLE001 - everything becomes Connect's error body
            refused = error_of(error, what)
            made = failure(refused.status, refused.message)
        if route.changes:
            self._audit(request, caller, call, made.status_code)
        return made

    def _admit(self, caller: Caller) -> None:
        needed = self.route.role
        if needed is not None and caller.role < needed:
            raise ConnectError(
                403,
                f"This needs the role {needed.name.lower()};"
                f" {caller.name} has the role {caller.role.name.lower()}",
            )
        if self.route.changes and not self.changeable():
            raise ConnectError(
                403,
                "This mirror is not to be changed over HTTP: heliograph.rest.changes=true in its"
                " file allows it",
            )

    async def _answer(self, request: Request, call: Call) -> Response:
        route = self.route
        if route.stream is not None:
            made: Response = route.stream(request, call)
            return made
        handler = route.handler
        assert handler is not None  # noqa: S101 - a route has one of the two

        def work() -> tuple[Answer, bytes]:
            answer = handler(call)
            # Here, because large answers take a while.
            return answer, b"" if answer.value is NOTHING else _encoded(answer.value)

        answer, body = await self.calls.run(work, seconds=route.seconds, shared=route.shared)
        kind = None if answer.value is NOTHING else route.produces
        return Response(body, answer.status, dict(answer.headers), kind)

    def _audit(self, request: Request, caller: Caller, call: Call | None, status: int) -> None:
        query = f"?{request.url.query}" if request.url.query else ""
        notes = f" ({'; '.join(call.notes)})" if call is not None and call.notes else ""
        audit.info(
            "%s (%s, %s) %s %s: %d%s", shown(caller.name or "anybody"), caller.role.name.lower(),
            request.client.host if request.client else "?", request.method,
            shown(request.url.path + query), status, shown(notes),
        )  # fmt: skip


def _encoded(value: Any) -> bytes:
    return value if isinstance(value, bytes) else as_json(value)


def _check_types(request: Request, route: Route) -> None:
    given = request.headers.get("content-type")
    kind = (given or "").partition(";")[0].strip().lower()
    if given is not None and not (_MEDIA_TYPE.fullmatch(kind) or kind == "*/*"):
        raise plain_error(400)
    if route.consumes and given is not None and kind not in {JSON, "application/*", "*/*"}:
        raise plain_error(415)
    sent = request.headers.get("content-length", "0") != "0"
    if route.body is not None and given is None and (
        sent or "transfer-encoding" in request.headers
    ):  # fmt: skip
        raise plain_error(415)
    accept = request.headers.get("accept")
    if accept and not accepts(accept, route.produces):
        raise plain_error(406)


def accepts(accept: str, produced: str) -> bool:
    """Whether a header Accept allows an answer of this type."""
    kind = produced.partition(";")[0]
    fitting = {kind, kind.partition("/")[0] + "/*", "*/*", "*"}
    for item in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        refused = any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
        if kind in fitting and not refused:
            return True
    return False


def _call_of(request: Request, body: bytes, caller: Caller) -> Call:
    query: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        query.setdefault(name, []).append(value)
    server = request.scope.get("server") or ("localhost", None)
    host = request.headers.get("host") or ":".join(str(part) for part in server if part is not None)
    return Call(
        request.path_params, query, request.headers, body, f"{request.url.scheme}://{host}", caller,
        request.scope["heliograph.slash"], target_of(request.scope),
    )  # fmt: skip


def register(
    app: FastAPI, routes: Sequence[Route], calls: Calls, changeable: Callable[[], bool]
) -> None:
    """Serve the routes, and describe them in the OpenAPI document."""
    for route in routes:
        first, *others = route.ok
        content: dict[str, Any] = {}
        if route.answers is not None:
            content["content"] = {route.produces: {"schema": route.answers}}
        app.add_api_route(
            route.path, _serving(_Endpoint(route, calls, changeable)), methods=[route.method],
            status_code=first, response_description=route.ok[first], response_class=Response,
            response_model=None, summary=route.summary, tags=[route.tag],
            include_in_schema=route.listed,
            operation_id=re.sub(r"\W+", "_", f"{route.method.lower()} {route.path}").strip("_"),
            responses={
                **({first: content} if first != 204 else {}),
                **{status: {"description": route.ok[status]} | (content if status != 204 else {})
                   for status in others},
                "default": {"description": "Refused", "content": {JSON: {"schema": ERROR}}},
            },
            openapi_extra=_described(route),
        )  # fmt: skip


def _serving(endpoint: _Endpoint) -> Callable[[Request], Any]:
    # FastAPI looks at the signature: a request, and nothing that it should read or check itself.
    async def serve(request: Request) -> Response:
        return await endpoint(request)

    return serve


def _described(route: Route) -> dict[str, Any]:
    """What FastAPI cannot know of a function that takes a whole request."""
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ] + [
        {"name": name, "in": "query", "required": False, "description": text,
         "schema": {"type": "string"}}
        for name, text in route.query.items()
    ]  # fmt: skip
    role = route.role.name.lower() if route.role is not None else "none"
    made: dict[str, Any] = {"x-role": role, "description": f"Needs the role: {role}."}
    if parameters:
        made["parameters"] = parameters
    if route.body is not None:
        made["requestBody"] = {"required": True, "content": {JSON: {"schema": route.body}}}
    return made
