"""The driver's end of the live reports: a socket, one thread, lines in. Runs in the driver.

Whoever connects says the token first. One that does not, or says what is not `Tidings`, is cut off;
nothing is ever answered. All of it is best effort: receipts repeat what matters.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from heliograph.copy.telling import Tidings
from heliograph.model import ReportAddress

log = logging.getLogger(__name__)

#: More than a thousand partitions have to say at once.
_LINE_MOST_BYTES = 4 << 20
_READ_BYTES = 64 << 10
#: Who has not said the token by then is nobody of ours.
_TOKEN_SECONDS = 5.0
#: Far more than a mirror has tasks.
_MOST_CALLERS = 1024
_STOP_SECONDS = 1.0


@dataclass(slots=True)
class _Caller:
    socket: socket.socket
    since: float
    known: bool = False
    unread: bytearray = field(default_factory=bytearray)


class ReportServer:
    """Listens until `close`; ``hear`` is called in its thread, for each line."""

    def __init__(self, hear: Callable[[Tidings], None]) -> None:
        self._hear = hear
        self._token = secrets.token_urlsafe(24)
        self._selector = selectors.DefaultSelector()
        self._callers: dict[int, _Caller] = {}
        self._listener: socket.socket | None = None
        self._bell, self._clapper = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="reports", daemon=True)

    def listen(self, host: str, bind_to: str | None = None) -> ReportAddress | None:
        """Listen at a free port; None if that is not possible: the receipts must do then.

        Args:
            host: where executors reach the driver.
            bind_to: where it can listen itself, if that is another address.
        """
        try:
            address = socket.gethostbyname(host)
            self._listener = socket.create_server((bind_to or address, 0))
        except OSError as error:
            log.warning(
                "no live reports: cannot listen on %s: %s; states and events are told at the end of"
                " each round instead", bind_to or host, error,
            )  # fmt: skip
            return None
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._thread.start()
        return ReportAddress(address, self._listener.getsockname()[1], self._token)

    def close(self) -> None:
        """Hang up."""
        self._clapper.close()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        self._bell.close()

    def _serve(self) -> None:
        stopping = False
        while not stopping:
            # Without callers there is nothing to do but wait.
            for key, _ in self._selector.select(_TOKEN_SECONDS if self._callers else None):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._bell:
                    stopping = True
                elif not self._read(caller := self._callers[key.fd]):
                    self._drop(caller)
            late = time.monotonic() - _TOKEN_SECONDS
            for caller in [c for c in self._callers.values() if not c.known and c.since < late]:
                self._drop(caller)
        for caller in list(self._callers.values()):
            self._drop(caller)
        self._selector.close()
        if self._listener is not None:
            self._listener.close()

    def _accept(self) -> None:
        assert self._listener is not None  # noqa: S101 - only called when it is there
        with suppress(OSError):
            made, _ = self._listener.accept()
            if len(self._callers) >= _MOST_CALLERS:
                made.close()
                return
            made.setblocking(False)
            self._callers[made.fileno()] = _Caller(made, time.monotonic())
            self._selector.register(made, selectors.EVENT_READ)

    def _drop(self, caller: _Caller) -> None:
        self._callers.pop(caller.socket.fileno(), None)
        self._selector.unregister(caller.socket)
        caller.socket.close()

    def _read(self, caller: _Caller) -> bool:
        """Take in what there is; returns whether there may be more."""
        try:
            data = caller.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        caller.unread += data
        *lines, rest = caller.unread.split(b"\n")
        caller.unread = rest
        most = _LINE_MOST_BYTES if caller.known else len(self._token)
        return all(self._line(caller, line) for line in lines) and bool(data) and len(rest) <= most

    def _line(self, caller: _Caller, line: bytearray) -> bool:
        if not caller.known:
            caller.known = hmac.compare_digest(bytes(line), self._token.encode())
            return caller.known
        try:
            tidings = Tidings.decode(bytes(line))
        except ValueError as error:
            log.debug("a report that cannot be read: %s", error)
            return False
        try:
            self._hear(tidings)
        except Exception:  # the reports of other tasks must not end with this one
            log.exception("a report could not be taken in")
        return True
