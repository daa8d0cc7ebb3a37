"""A socket that only tasks of this mirror get to talk to. Runs in the driver, in a thread.

On one machine it is a file in a folder of this user's alone. For executors elsewhere it is a port
with TLS, under a certificate that is made for it. Whoever connects says the token first. Few may
keep us waiting for it, and not for long: the oldest of them goes when there are too many.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import selectors
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from heliograph.model import DriverAddress
from heliograph.service.pulse import IDLE_SECONDS, Beat
from heliograph.spark.scratch import make_again
from heliograph.wire.tls import in_memory

__all__ = ["Caller", "Listener", "Place"]

log = logging.getLogger(__name__)

_READ_BYTES = 64 << 10
#: Who has not said the token by then is nobody of ours.
_TOKEN_SECONDS = 2.0
_MOST_STRANGERS = 32
#: Far more than a mirror has tasks.
_MOST_CALLERS = 1024
_STOP_SECONDS = 1.0
#: What the kernel takes for the path of a socket.
_PATH_BYTES = 100
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the driver can be reached.

    Attributes:
        folder: for a socket file; None: executors are on other machines.
        host: how they know this one.
        bind_to: where it can listen itself, if that is another address.
    """

    folder: Path | None
    host: str = "127.0.0.1"
    bind_to: str | None = None


@dataclass(slots=True)
class Caller:
    """Somebody who has connected; ``known`` once the token was said. ``flow``: whose task it is."""

    socket: socket.socket
    since: float
    known: bool = False
    flow: str = ""
    unread: bytearray = field(default_factory=bytearray)

    def answer(self, data: bytes) -> None:
        """Send a few bytes; one who does not read them is not waited for."""
        with suppress(OSError):
            self.socket.send(data)


class Listener:
    """Listens until `close`; `heard` is called in its thread, for each line of who is known.

    ``beat`` says whether the thread moves.
    """

    #: The longest line that anybody has to say.
    line_most_bytes = 4 << 20

    def __init__(self, name: str) -> None:
        self._name = name
        self.beat = Beat(name)
        self._token = secrets.token_urlsafe(24)
        self._selector = selectors.DefaultSelector()
        self._callers: dict[int, Caller] = {}
        self._listener: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        self._path: Path | None = None
        self._bell, self._clapper = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def heard(self, caller: Caller, line: bytes) -> bool:
        """Take in a line; returns whether the caller may stay."""
        raise NotImplementedError

    def listen(self, place: Place) -> DriverAddress:
        """Begin to listen; raises OSError if that is not possible."""
        if place.folder is not None and len(bytes(place.folder)) < _PATH_BYTES - len(self._name):
            self._path = place.folder / self._name
            self._listener = _bound(self._path)
            address = DriverAddress(self._token, path=str(self._path))
        else:
            host = socket.gethostbyname(place.host)
            self._listener = socket.create_server((place.bind_to or host, 0))
            self._tls, certificate = _certified()
            port = self._listener.getsockname()[1]
            address = DriverAddress(self._token, host=host, port=port, certificate=certificate)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._thread.start()
        return address

    @property
    def known(self) -> list[Caller]:
        """Those who have said the token and not hung up."""
        return [caller for caller in list(self._callers.values()) if caller.known]

    def close(self) -> None:
        """Hang up."""
        self._clapper.close()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        self._bell.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        stopping = False
        while not stopping:
            self.beat.touch()
            if self._path is not None and not self._path.exists():
                self._listen_again(self._path)
            # Without callers there is nothing to do but wait.
            pause = _TOKEN_SECONDS / 2 if self._callers else IDLE_SECONDS
            for key, _ in self._selector.select(pause):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._bell:
                    stopping = True
                elif (caller := self._callers.get(key.fd)) is not None and not self._read(caller):
                    self._drop(caller)
            late = time.monotonic() - _TOKEN_SECONDS
            for caller in self._strangers():
                if caller.since < late:
                    self._drop(caller)
        for caller in list(self._callers.values()):
            self._drop(caller)
        self._selector.close()
        if self._listener is not None:
            self._listener.close()

    def _listen_again(self, path: Path) -> None:
        """Somebody has removed the socket file, or its folder: nobody can call any more.

        Those who have called are heard all the same.
        """
        with suppress(OSError):  # then the next turn tries again
            make_again(path.parent)
            made = _bound(path)
            made.setblocking(False)
            if self._listener is not None:
                self._selector.unregister(self._listener)
                self._listener.close()
            self._listener = made
            self._selector.register(made, selectors.EVENT_READ)

    def _strangers(self) -> list[Caller]:
        return [caller for caller in self._callers.values() if not caller.known]

    def _accept(self) -> None:
        assert self._listener is not None  # noqa: S101 - only called when it is there
        with suppress(OSError):
            made, _ = self._listener.accept()
            made.setblocking(False)
            if self._tls is not None:
                made = self._tls.wrap_socket(made, server_side=True, do_handshake_on_connect=False)
            strangers = self._strangers()
            if len(strangers) >= _MOST_STRANGERS:
                self._drop(strangers[0])
            if len(self._callers) >= _MOST_CALLERS:
                made.close()
                return
            self._callers[made.fileno()] = Caller(made, time.monotonic())
            self._selector.register(made, selectors.EVENT_READ)

    def _drop(self, caller: Caller) -> None:
        self._callers.pop(caller.socket.fileno(), None)
        self._selector.unregister(caller.socket)
        caller.socket.close()

    def _read(self, caller: Caller) -> bool:
        """Take in what there is; returns whether there may be more."""
        try:
            data = caller.socket.recv(_READ_BYTES)
            while isinstance(caller.socket, ssl.SSLSocket) and caller.socket.pending():
                # A selector does not see what was decrypted already.
                data += caller.socket.recv(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        except OSError:
            return False
        caller.unread += data
        *lines, rest = caller.unread.split(b"\n")
        caller.unread = rest
        if not all(self._line(caller, line) for line in lines):
            return False
        # Only now: the token and the beginning of a report may have come together.
        most = self.line_most_bytes if caller.known else len(self._token)
        return bool(data) and len(rest) <= most

    def _line(self, caller: Caller, line: bytearray) -> bool:
        if not caller.known:
            caller.known = hmac.compare_digest(bytes(line), self._token.encode())
            return caller.known
        return self.heard(caller, bytes(line))


def _bound(path: Path) -> socket.socket:
    """Listens at a socket file that only this user may open."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(str(path))
        path.chmod(0o600)
        made.listen(_MOST_STRANGERS)
    except OSError:
        made.close()
        raise
    return made


def _certified() -> tuple[ssl.SSLContext, str]:
    """A context for a server, and the certificate that it shows."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "heliograph driver")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of executors may be wrong, and a mirror may run for years.
        .not_valid_before(now - 30 * _DAY)
        .not_valid_after(now + 3650 * _DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    shown = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with in_memory(private + shown) as path:
        context.load_cert_chain(path)
    return context, shown.decode()
