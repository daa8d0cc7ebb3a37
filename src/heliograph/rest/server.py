"""Serves an application on its listeners, in a thread of its own: uvicorn, in the driver.

Sockets are bound by `start`, in the caller's thread, so that a port that is taken is an error there
and then. All listeners share one event loop.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from heliograph.errors import StartError
from heliograph.rest.settings import Limits, Listener, RestSettings
from heliograph.rest.tls import server_context

__all__ = ["RestServer"]

log = logging.getLogger(__name__)

_BACKLOG = 128
#: The head of a request: credentials and cookies included.
_HEAD_BYTES = 64 << 10
#: Who connects has to ask by then.
_HEAD_SECONDS = 20.0
_KEEP_ALIVE_SECONDS = 30
#: How long a stop waits for answers that are under way.
_GRACE_SECONDS = 3
_START_SECONDS = 30.0


class Closable(Protocol):
    """An ASGI application that can be told to end its endless answers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def close(self) -> None: ...


class RestServer:
    """Serves from `start` until `close`."""

    def __init__(self, app: Closable, settings: RestSettings) -> None:
        """``settings`` say where, and with which certificate."""
        self._app = app
        self._settings = settings
        self._servers: list[uvicorn.Server] = []
        self._sockets: list[tuple[Listener, socket.socket]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="rest", daemon=True)

    def start(self) -> None:
        """Listen; returns when requests are answered.

        Raises:
            ConfigError: it would be exposed, or is not complete (`RestSettings.problems`).
            StartError: an address cannot be listened on, or there is no TLS.
        """
        problems = self._settings.problems()
        if problems:
            raise problems[0]
        listeners = self._settings.all_listeners
        secure = any(listener.scheme == "https" for listener in listeners)
        context = server_context(self._settings.tls) if secure else None
        try:
            for listener in listeners:
                self._sockets.append((listener, _bound(listener)))
        except StartError:
            self._close_sockets()
            raise
        self._servers = [
            _server(self._app, listener, context, self._settings.limits)
            for listener, _ in self._sockets
        ]
        self._thread.start()
        if not self._begun.wait(_START_SECONDS) or self._failed is not None:
            raise StartError("rest.start", f"the REST server cannot be started: {self._failed}")
        if self._settings.insecure and not all(x.is_local for x in listeners):
            log.warning(
                "heliograph.rest.insecure=true: whoever reaches %s controls the mirror",
                ", ".join(str(x) for x in self.addresses if not x.is_local),
            )

    @property
    def addresses(self) -> Sequence[Listener]:
        """Where it listens, with the ports that were chosen."""
        return [listener._replace(port=bound.getsockname()[1]) for listener, bound in self._sockets]

    def reached_at(self, name: str = "") -> list[str]:
        """Where others reach it; this machine by ``name``, or else by the name that it has."""
        name = name or socket.gethostname()
        return [str(listener.reached_at(name)) for listener in self.addresses]

    def close(self) -> None:
        """Stop; answers that are under way have a moment."""
        self._app.close()
        loop = self._loop
        if loop is not None and self._thread.is_alive():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._stop)
            self._thread.join(_GRACE_SECONDS + 2)
        self._close_sockets()

    def _stop(self) -> None:
        for server in self._servers:
            server.should_exit = True

    def _close_sockets(self) -> None:
        for _, bound in self._sockets:
            bound.close()

    def _serve(self) -> None:
        try:
            asyncio.run(self._serve_all())
        except BaseException as error:
            self._failed = error
            if self._begun.is_set():
                log.exception("the REST server has ended")
        finally:
            self._begun.set()

    async def _serve_all(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            for server, (_, bound) in zip(self._servers, self._sockets, strict=True):
                group.create_task(server.serve(sockets=[bound]))
            while not all(server.started for server in self._servers):
                await asyncio.sleep(0.01)
            self._begun.set()


class _Connection(H11Protocol):
    """Tells the application who has shown a certificate, and closes what never asks."""

    limits = Limits()
    _silent: asyncio.TimerHandle | None = None
    _open = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Head and body of an answer are two writes: the second must not wait for the client's
        # acknowledgement of the first. asyncio sees to that for sockets that it made itself.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _Connection._open += 1
        if _Connection._open > self.limits.connections:
            transport.close()
            return
        secured = transport.get_extra_info("ssl_object")
        if secured is not None:
            certificate = secured.getpeercert(binary_form=True)
            self.app_state = {**self.app_state, "certificate": certificate}
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        _Connection._open -= 1
        if self._silent is not None:
            self._silent.cancel()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        """A request whose head was begun, or never comes, does not keep a connection open."""
        if self._answers:
            if self._silent is not None:
                self._silent.cancel()
                self._silent = None
        elif self._silent is None:
            self._silent = self.loop.call_later(_HEAD_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._silent = None
        if not self._answers:
            self.transport.close()

    @property
    def _answers(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete


class _Bound:
    """The application on one listener."""

    def __init__(self, app: Closable, listener: Listener) -> None:
        self._app = app
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["heliograph.listener"] = self._listener
        await self._app(scope, receive, send)


def _server(
    app: Closable, listener: Listener, context: ssl.SSLContext | None, limits: Limits
) -> uvicorn.Server:
    class Connection(_Connection):
        pass

    Connection.limits = limits
    secure: dict[str, Any] = {}
    if listener.scheme == "https" and context is not None:
        secure["ssl_context_factory"] = lambda *_: context
    config = uvicorn.Config(
        _Bound(app, listener), http=Connection, loop="asyncio", ws="none", lifespan="off",
        interface="asgi3", log_config=None, log_level="error", access_log=False,
        # A caller's address is the one it has, whatever headers say.
        proxy_headers=False, server_header=False, backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=_HEAD_BYTES, **secure,
    )  # fmt: skip
    return uvicorn.Server(config)


def _bound(listener: Listener) -> socket.socket:
    host, port = listener.host, listener.port
    try:
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG
            )
        family = socket.AF_INET
        if host:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except socket.gaierror as error:
        raise StartError(
            "rest.listen", f"cannot listen on {listener}: {error.strerror}",
            "listeners needs an address of this machine",
        ) from None  # fmt: skip
    except OSError as error:
        hints = {
            errno.EADDRINUSE: "another program listens there: stop it, or choose another port",
            errno.EADDRNOTAVAIL: "listeners needs an address of this machine",
            errno.EACCES: "this user may not listen there: choose a port from 1024 on",
        }
        raise StartError(
            "rest.listen", f"cannot listen on {listener}: {error.strerror}",
            hints.get(error.errno or 0, ""),
        ) from None  # fmt: skip
