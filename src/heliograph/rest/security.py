"""What stands before every route: who asks, from where, and how often. Runs in the REST server.

In this order: the path is one that means one thing; the Host header has a name that nobody else can
own (DNS rebinding); the address has not asked too often; a web page of elsewhere may not change
anything (CSRF), nor read it unless its origin is allowed (CORS); the caller is known. Roles are
checked by the routes (`heliograph.rest.routing`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import socket
import time
from collections.abc import Sequence
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heliograph.connect.api import ConnectError
from heliograph.rest.credentials import Caller, Credentials
from heliograph.rest.errors import error_of, failure, plain_error
from heliograph.rest.routing import Calls
from heliograph.rest.settings import Listener, RestSettings, Role
from heliograph.shown import shown

__all__ = ["Guard", "Rates", "one_path"]

log = logging.getLogger(__name__)

#: For anybody, known or not: probes have no credentials.
_OPEN = frozenset({"/health", "/health/live", "/health/ready"})
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
#: Domains that nobody can register, so that no foreign web page comes from there.
_PRIVATE = (".localhost", ".local", ".internal", ".svc", ".cluster.local", ".home.arpa", ".test")
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?\.?")
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_ILLEGAL = re.compile(rb"[\x00-\x20\"<>\\^`{|}\x7f-\xff]")
_ASKED_HEADERS = "X-Requested-With,Content-Type,Accept,Origin,Authorization,Last-Event-ID"
_PREFLIGHT_SECONDS = "1800"
#: A body must come within this time.
_BODY_SECONDS = 60.0
_MOST_ADDRESSES = 10_000
#: Who asks too often waits for the refusal: clients that ask again at once would take a core.
_REFUSED_SECONDS = 1.0


class Rates:
    """How often each address may do something: so many at once, and so many more per second."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = max(1, burst)
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, address: str) -> bool:
        """Whether it may once more."""
        if self._per_second <= 0:
            return True
        now = time.monotonic()
        left, since = self._left.pop(address, (float(self._burst), now))
        left = min(float(self._burst), left + (now - since) * self._per_second)
        allowed = left >= 1.0
        # Behind all others: the first ones have not asked for longest, and are forgotten first.
        self._left[address] = (left - 1.0 if allowed else left, now)
        if len(self._left) > _MOST_ADDRESSES:
            del self._left[next(iter(self._left))]
        return allowed


def one_path(raw: bytes) -> str:
    """The path that a request means, matrix parameters and a trailing slash left out; raises 400.

    What servers and proxies read in several ways is refused, as Jetty does it for Connect.
    """
    if raw == b"*":
        raise plain_error(404)
    own = raw.startswith(b"/heliograph/")
    # Flows are called A->B, and people type that; Jetty wants it escaped.
    if _ILLEGAL.search(raw.replace(b">", b"") if own else raw):
        raise ConnectError(400, "Illegal Path Character")
    upper = raw.upper()
    for mark, text in (
        (b"%2F", "Ambiguous URI path separator"), (b"%25", "Ambiguous URI path encoding"),
        (b"//", "Ambiguous URI empty segment"), (b"%5C", "Suspicious Path Character"),
    ):  # fmt: skip
        if mark in upper:
            raise ConnectError(400, text)
    if not raw.startswith(b"/") or _BAD_ESCAPE.search(raw):
        raise ConnectError(400, "Bad Request")
    segments = [segment.partition(b";")[0] for segment in raw.split(b"/")]
    try:
        path = unquote_to_bytes(b"/".join(segments)).decode()
    except UnicodeDecodeError:
        raise ConnectError(400, "Bad UTF-8 encoding") from None
    if any(ord(c) < 0x20 or ord(c) == 0x7F for c in path):
        raise ConnectError(400, "Bad Request")
    return path[:-1] if path.endswith("/") and path != "/" else path


class Guard:
    """The application, for those who may use it. One event loop."""

    def __init__(
        self, app: ASGIApp, settings: RestSettings, credentials: Credentials, calls: Calls
    ) -> None:
        self._app = app
        self._settings = settings
        self._credentials = credentials
        self._calls = calls
        limits = settings.limits
        self._requests = Rates(limits.requests_per_second, limits.burst)
        self._failures = Rates(1.0, limits.failures)
        names = [listener.host for listener in settings.all_listeners if listener.host]
        self._hosts = tuple(n.lower() for n in (*names, *settings.hosts, socket.gethostname()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        scope, started = dict(scope), False

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._complete(MutableHeaders(scope=message), scope, headers)
            await send(message)

        try:
            early = await self._admit(scope, headers)
            if early is not None:
                await early(scope, receive, answer)
            else:
                await self._app(scope, self._limited(headers, receive), answer)
        except Exception as error:
            if started:
                raise
            refused = error_of(error, f"{scope['method']} {scope['path']}")
            made = failure(refused.status, refused.message)
            if refused.status == 429:
                made.headers["Retry-After"] = "1"
            await made(scope, receive, answer)

    async def _admit(self, scope: Scope, headers: Headers) -> Response | None:
        """Raise or return the answer of a request that goes no further."""
        address = scope["client"][0] if scope.get("client") else "?"
        if not self._requests.take(address):
            await asyncio.sleep(_REFUSED_SECONDS)
            raise ConnectError(429, "Too many requests from this address")
        scope["path"] = one_path(scope["raw_path"])
        # What comes behind goes by the path alone.
        scope["raw_path"] = scope["path"].encode()
        self._check_host(scope, headers)
        origin = headers.get("origin")
        if origin is not None and self._is_preflight(scope, headers):
            return self._preflight(origin)
        if scope["method"] not in _READING:
            self._check_origin(scope, headers, origin)
        self._check_place(scope)
        if scope["path"] in _OPEN:
            scope["heliograph.caller"] = Caller("", Role.VIEWER)
        else:
            caller = await self._known(scope, headers, address)
            if caller is None:
                return self._unknown(scope, address)
            scope["heliograph.caller"] = caller
        if scope["method"] == "HEAD":
            # The server leaves the body out: it has a scope of its own.
            scope["method"], scope["heliograph.head"] = "GET", True
        return None

    # -- where it comes from ------------------------------------------------------------------

    def _check_host(self, scope: Scope, headers: Headers) -> None:
        given = headers.getlist("host")
        if not given and scope.get("http_version") == "1.0":
            return
        host = _host_of(given[0]) if len(given) == 1 else None
        if host is None:
            raise plain_error(400)
        if not _is_ours(host, self._hosts):
            raise ConnectError(
                403,
                f"Host {shown(host)} is not known here: add it to heliograph.rest.allowed.hosts",
            )

    def _check_origin(self, scope: Scope, headers: Headers, origin: str | None) -> None:
        """Browsers say which page a change comes from; other clients say nothing."""
        if origin is None:
            if headers.get("sec-fetch-site", "none") in {"cross-site", "same-site"}:
                raise ConnectError(403, "Web pages of elsewhere may change nothing here")
            return
        same = f"{scope['scheme']}://{headers.get('host', '')}"
        if origin.lower() == same.lower():
            return
        if not (self._allows(origin) and scope["method"] in self._settings.methods):
            raise ConnectError(
                403,
                f"Web pages of {shown(origin)} may not do this: see access.control.allow.origin",
            )

    def _allows(self, origin: str) -> bool:
        return any(_fits(origin.lower(), known.lower()) for known in self._settings.origins)

    def _is_preflight(self, scope: Scope, headers: Headers) -> bool:
        return (
            bool(self._settings.origins)
            and scope["method"] == "OPTIONS"
            and "access-control-request-method" in headers
        )

    def _preflight(self, origin: str) -> Response:
        """Browsers ask without credentials whether they may ask. `_complete` says who may."""
        if not self._allows(origin):
            return Response()
        return Response(headers={
            "Access-Control-Allow-Methods": ",".join(self._settings.methods),
            "Access-Control-Allow-Headers": _ASKED_HEADERS,
            "Access-Control-Max-Age": _PREFLIGHT_SECONDS,
        })  # fmt: skip

    def _check_place(self, scope: Scope) -> None:
        """``/admin`` may have listeners of its own."""
        special = self._settings.admin_listeners
        listener: Listener | None = scope.get("heliograph.listener")
        if special is None or listener is None:
            return
        if scope["path"] == "/admin" or scope["path"].startswith("/admin/"):
            allowed = listener in special
        else:
            allowed = listener in self._settings.listeners
        if not allowed:
            raise plain_error(404)

    # -- who it is ----------------------------------------------------------------------------

    async def _known(self, scope: Scope, headers: Headers, address: str) -> Caller | None:
        given = headers.getlist("authorization")
        authorization = given[0] if len(given) == 1 else ""
        certificate = scope.get("state", {}).get("certificate")
        caller = self._credentials.at_once(authorization, certificate)
        if caller is not None or not authorization:
            return caller
        # A wrong one costs a slow hash, and is a guess.
        if not self._failures.take(address):
            await asyncio.sleep(_REFUSED_SECONDS)
            raise ConnectError(429, "Too many wrong credentials from this address")
        return await self._calls.run(lambda: self._credentials.slowly(authorization))

    def _unknown(self, scope: Scope, address: str) -> Response:
        if scope["method"] not in _READING:
            log.warning(
                "somebody at %s, without valid credentials, was refused: %s %s", address,
                scope["method"], shown(scope["path"]),
            )  # fmt: skip
        # The text of Connect's own extension.
        made = Response("User cannot access the resource.", 401, media_type="text/plain")
        for challenge in self._credentials.challenges:
            made.headers.append("WWW-Authenticate", challenge)
        return made

    # -- bodies and headers -------------------------------------------------------------------

    def _limited(self, headers: Headers, receive: Receive) -> Receive:
        most = self._settings.limits.body_bytes
        told = headers.get("content-length", "0")
        too_long = ConnectError(413, f"The body is longer than {most} bytes")
        if told.isdigit() and int(told) > most:
            raise too_long
        read = 0

        async def limited() -> Message:
            nonlocal read
            try:
                async with asyncio.timeout(_BODY_SECONDS if read >= 0 else None):
                    message = await receive()
            except TimeoutError:
                raise ConnectError(408, "The body did not come in time") from None
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                if read > most:
                    raise too_long
                if not message.get("more_body"):
                    # What is awaited now is the end of the connection.
                    read = -1
            return message

        return limited

    def _complete(self, made: MutableHeaders, scope: Scope, asked: Headers) -> None:
        made.setdefault("X-Content-Type-Options", "nosniff")
        made.setdefault("Cache-Control", "no-store")
        origin = asked.get("origin")
        if self._settings.origins:
            made.add_vary_header("Origin")
            if origin is not None and self._allows(origin):
                made["Access-Control-Allow-Origin"] = origin
        for header in self._settings.headers:
            value = formatdate(usegmt=True) if header.value is None else header.value
            if header.replace:
                made[header.name] = value
            else:
                made.append(header.name, value)


def _host_of(text: str) -> str | None:
    """The name or address in a Host header; None if it is neither."""
    try:
        parts: Any = urlsplit(f"//{text}")
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or parts.path or parts.query or parts.fragment or "@" in text:
        return None
    return str(host) if _NAME.fullmatch(host) or _is_address(host) else None


def _is_ours(host: str, known: Sequence[str]) -> bool:
    """Whether no page of somebody else can have this name: then it is no rebinding."""
    if _is_address(host) or any(_fits(host, name) for name in known):
        return True
    name = host.rstrip(".")
    return "." not in name or name.endswith(_PRIVATE)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _fits(text: str, known: str) -> bool:
    """Equal, or ``*``, or ``*`` in the place of what stands before a dot."""
    if known in ("*", text):
        return True
    before, star, after = known.partition("*")
    return bool(star) and after.startswith(".") and (
        text.startswith(before) and text.endswith(after) and len(text) > len(before + after)
    )  # fmt: skip
