"""How tasks reach the driver, and get the secrets that stay there. Runs in executors."""

from __future__ import annotations

import json
import select
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from heliograph.model import ClientSettings, DriverAddress
from heliograph.wire.errors import ConnectionFailed

__all__ = ["DriverLine", "unsealed"]

T = TypeVar("T")

_ANSWER_SECONDS = 10.0
_ANSWER_MOST_BYTES = 4 << 20
#: By their names, which are never used again: one process asks once.
_opened: dict[str, Mapping[str, str]] = {}


class DriverLine:
    """A connection to the driver. It never waits: what cannot be done now raises BlockingIOError.

    Everything else that goes wrong raises another OSError.
    """

    def __init__(self, address: DriverAddress) -> None:
        self._address = address
        self._tls = bool(address.certificate)
        peer: str | tuple[str, int] = address.path
        family = socket.AF_UNIX
        if not address.path:
            # The driver resolved it: a name server must not keep a copy waiting.
            peer = (address.host, address.port)
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            with suppress(BlockingIOError):
                self._socket.connect(peer)
        except OSError:
            self._socket.close()
            raise

    def send(self, data: bytes | bytearray) -> int:
        """How many bytes have left."""
        return self._ready(lambda: self._socket.send(data))

    def receive(self, most: int) -> bytes:
        """What has come; nothing if the driver has hung up."""
        return self._ready(lambda: self._socket.recv(most))

    def _ready(self, act: Callable[[], T]) -> T:
        try:
            if self._tls and not isinstance(self._socket, ssl.SSLSocket):
                self._start_tls()
            return act()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError(str(error)) from None

    def _start_tls(self) -> None:
        _, connected, _ = select.select([], [self._socket], [], 0)
        if not connected:
            raise BlockingIOError("not connected yet")
        if error := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, "cannot connect to the driver")
        context = _pinned(self._address.certificate)
        self._socket = context.wrap_socket(self._socket, do_handshake_on_connect=False)

    def wait(self, seconds: float) -> None:
        """Until something may have changed."""
        select.select([self._socket], [], [], seconds)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


@lru_cache(maxsize=4)
def _pinned(certificate: str) -> ssl.SSLContext:
    """Trusts this one certificate, whatever name it is for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context


def unsealed(settings: ClientSettings) -> ClientSettings:
    """With the secrets that the driver has kept; raises ConnectionFailed."""
    if settings.sealed is None:
        return settings
    name = settings.sealed.name
    if name not in _opened:
        try:
            _opened[name] = _ask(settings.sealed.address, name)
        except (OSError, ValueError) as error:
            raise ConnectionFailed(
                f"the driver does not give the credentials of cluster {settings.alias}: {error}"
            ) from error
    return replace(settings, properties={**settings.properties, **_opened[name]}, sealed=None)


def _ask(address: DriverAddress, name: str) -> Mapping[str, str]:
    line = DriverLine(address)
    unsent = bytearray(f"{address.token}\n{name}\n".encode())
    answer = bytearray()
    deadline = time.monotonic() + _ANSWER_SECONDS
    try:
        while not answer.endswith(b"\n"):
            try:
                while unsent:
                    del unsent[: line.send(unsent)]
                part = line.receive(64 << 10)
                if not part or len(answer) > _ANSWER_MOST_BYTES:
                    raise ConnectionError("it hung up")
                answer += part
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError("no answer") from None
                line.wait(0.05)
    finally:
        line.close()
    found = json.loads(answer)
    return {str(key): str(value) for key, value in found.items()}
