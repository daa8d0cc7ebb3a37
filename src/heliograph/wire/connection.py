"""One connection to one broker: framing, negotiation, authentication, pipelining without copies.

After `open` the socket is non-blocking. The copy loop drives it with `flush` and `receive`;
everything else calls `request`, which waits. A connection is not shared between threads.

Where a broker limits how long a login counts (KIP-368), the connection renews it in good time, with
the secret of that moment, between two requests: nobody who uses the connection notices.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from heliograph.shown import shown
from heliograph.wire import names
from heliograph.wire.border import check_nulls, reading
from heliograph.wire.errors import (
    AuthenticationFailed,
    BrokerError,
    ConnectionFailed,
    CredentialsRefused,
    NoAnswer,
    NotKafka,
    check,
    error_name,
)
from heliograph.wire.security import Security

#: Larger frames than any sane fetch answer: a peer that announces more does not speak Kafka.
#: Read as a size, the first bytes of a TLS record (0x1503, 0x1603) are 336 MiB and more.
_MAX_FRAME_BYTES = 320 << 20
#: Before we know who it is, nobody has more to say.
_FIRST_FRAMES_BYTES = 1 << 20
#: Kernel buffers: one fetch answer of several MB moves in few system calls.
_SOCKET_BUFFER_BYTES = 4 << 20
#: Waking up for less than this costs more than it brings, while a large answer is coming in.
_PIECE_BYTES = 256 << 10
#: Answers to writes are this small: one read takes in all that are here.
_INBOX_BYTES = 2048
#: The part of a login's lifetime after which it is renewed: a request that is sent shortly before
#: is still taken in time.
RENEWED_AFTER = 0.8
#: How soon to look again whether there is a token to renew a login with.
_RENEWAL_PAUSE_SECONDS = 0.1
#: X509_V_ERR_* of OpenSSL.
_NOT_YET_VALID, _EXPIRED, _OTHER_HOST, _OTHER_ADDRESS = 9, 10, 62, 64
#: sendmsg refuses more than IOV_MAX (1024 on Linux) buffers at once.
_MAX_BUFFERS = 512

Buffer = bytes | bytearray | memoryview
_INT = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">ihhih")
#: Where a request beyond the first handshake was answered: these listeners do not turn us away.
_known_addresses: set[str] = set()
Login = Generator[Any, Any, None]
"""Yields SASL messages, is sent the answers to them, and ends when the broker is content."""


class Answer(NamedTuple):
    """A response as it came, and what it is the answer to."""

    request: bytes
    version: int
    frame: bytes


class Connection:
    """A negotiated, authenticated connection. Responses come back in request order."""

    def __init__(self, host: str, port: int, security: Security, client_id: str) -> None:
        self.host = host
        self.port = port
        self._client_id = client_id.encode()
        self._security = security
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self._expected: deque[int] = deque()
        self._outgoing: deque[Buffer] = deque()
        self._unsent = 0
        self._inbox = memoryview(bytearray(_INBOX_BYTES))
        self._inbox_start = self._inbox_end = 0
        self._emptied = False
        self._frame: memoryview | None = None
        self._frame_filled = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._renew_at = float("inf")
        self._renewal: Login | None = None
        self._renewal_step: tuple[int, Any, int] | None = None
        self._held: list[tuple[int, int, bool, Sequence[Buffer]]] = []
        self._low_water = 1
        #: From this time on (seconds since the epoch) nothing leaves, not even the rest of a
        #: request: the connection is closed instead, and the broker forgets what is not whole.
        self.send_by = float("inf")
        self._throttled_until = 0.0
        self._most_bytes = _FIRST_FRAMES_BYTES

    # -- life ---------------------------------------------------------------------------------

    @classmethod
    def open(
        cls, host: str, port: int, security: Security, client_id: str, timeout: float
    ) -> Connection:
        """Connect, negotiate versions, authenticate; raises a WireError that says which failed."""
        connection = cls(host, port, security, client_id)
        try:
            connection._connect(timeout)
            connection._negotiate(timeout)
            if security.mechanism:
                connection._authenticate(timeout)
            connection._most_bytes = _MAX_FRAME_BYTES
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close at once; requests in flight have an unknown outcome."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def closed(self) -> bool:
        """Whether `close` was called or the peer went away."""
        return self._socket is None

    def throttle(self, milliseconds: int) -> None:
        """The broker said that it will not read on for so long, because of a quota."""
        if milliseconds > 0:
            self._throttled_until = time.monotonic() + milliseconds / 1000

    @property
    def throttled(self) -> float:
        """For how many seconds from now on the broker does not read what we send."""
        until = self._throttled_until
        return max(0.0, until - time.monotonic()) if until else 0.0

    @property
    def in_flight(self) -> int:
        """Requests sent whose response was not received yet."""
        return len(self._expected) + len(self._held)

    @property
    def address(self) -> str:
        """host:port, for messages."""
        return f"{shown(self.host)}:{self.port}"

    def fileno(self) -> int:
        """For selectors."""
        if self._socket is None:
            raise ConnectionFailed(f"connection to {self.address} is closed")
        return self._socket.fileno()

    def version(self, api_key: int, highest: int) -> int:
        """The highest version of an API that both sides know."""
        low, high = self._versions.get(api_key, (0, -1))
        if high < low or highest < low:
            raise BrokerError(35, f"{self.address} does not offer API {api_key} up to v{highest}")
        return min(high, highest)

    def supports(self, api_key: int, version: int) -> bool:
        """Whether the broker accepts that version of the API."""
        low, high = self._versions.get(api_key, (0, -1))
        return low <= version <= high

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The lowest and highest version of each API, by its key, as the broker told them."""
        return self._versions

    @property
    def peer_certificate(self) -> bytes | None:
        """The broker's certificate, in DER; None without TLS."""
        sock = self._require()
        return sock.getpeercert(binary_form=True) if isinstance(sock, ssl.SSLSocket) else None

    # -- requests -----------------------------------------------------------------------------

    def send(
        self,
        api_key: int,
        version: int,
        flexible: bool,
        parts: Sequence[Buffer],
        *,
        flush: bool = True,
    ) -> None:
        """Queue one request made of ``parts`` and write as much as the kernel takes now.

        Whoever sends several at once calls `flush` after the last one instead.
        """
        if self._renewal is None and time.monotonic() >= self._renew_at:
            self._begin_renewal()
        if self._renewal is not None:
            # The broker takes nothing but SASL messages until it is content.
            self._held.append((api_key, version, flexible, parts))
        else:
            self._queue(api_key, version, flexible, parts)
            if flush:
                self.flush()

    def _queue(self, api_key: int, version: int, flexible: bool, parts: Sequence[Buffer]) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        client_id = self._client_id + b"\0" if flexible else self._client_id
        size = _REQUEST_HEADER.size - _INT.size + len(client_id) + sum(map(len, parts))
        header = _REQUEST_HEADER.pack(
            size, api_key, version, self._correlation_id, len(self._client_id)
        )
        self._expected.append(self._correlation_id)
        self._outgoing.append(header + client_id)
        # An empty buffer would never be seen to leave.
        self._outgoing.extend([part for part in parts if part])
        self._unsent += _INT.size + size

    @property
    def wants_write(self) -> bool:
        """Whether `flush` has work left."""
        return bool(self._outgoing)

    def flush(self) -> None:
        """Write queued bytes until done or the kernel's buffer is full."""
        while self._outgoing:
            if time.time() >= self.send_by:
                raise self._broken("the time to write is over")
            try:
                sent = self._write()
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            except OSError as error:
                raise self._broken(error) from error
            self._unsent -= sent
            if not self._unsent:
                self._outgoing.clear()
                return
            while sent:
                first = self._outgoing[0]
                if sent < len(first):
                    self._outgoing[0] = memoryview(first)[sent:]
                    break
                sent -= len(first)
                self._outgoing.popleft()

    def _write(self) -> int:
        sock = self._require()
        if isinstance(sock, ssl.SSLSocket):
            return sock.send(self._outgoing[0])
        if len(self._outgoing) <= _MAX_BUFFERS:
            return sock.sendmsg(self._outgoing)
        return sock.sendmsg(islice(self._outgoing, _MAX_BUFFERS))

    def receive(self) -> memoryview | None:
        """The next whole response, after its correlation id; None if it is not here yet.

        The returned memory is fresh and writable: batches are stamped in place in it.
        """
        while True:
            frame = self._frame
            if frame is None:
                frame = self._begin_frame()
            if frame is None or not self._fill_frame(frame):
                return None
            self._frame = None
            (correlation_id,) = _INT.unpack_from(frame)
            expected = self._expected.popleft() if self._expected else None
            if correlation_id != expected:
                raise self._broken(f"answered request {correlation_id} instead of {expected}")
            if self._renewal_step is None or self._renewal_step[0] != correlation_id:
                return frame[4:]
            self._go_on_renewing(frame[4:])

    def wait(self, timeout: float) -> memoryview:
        """Block until the next response is here."""
        deadline = time.monotonic() + timeout
        while True:
            self.flush()
            frame = self.receive()
            if frame is not None:
                return frame
            left = deadline - time.monotonic()
            if left <= 0:
                self.close()
                raise NoAnswer(
                    f"connection to {self.address} broke: no answer within {timeout:.0f} s"
                )
            if not self.has_buffered_input:
                writers = [self] if self._outgoing else []
                select.select([self], writers, [], left)

    @property
    def has_buffered_input(self) -> bool:
        """TLS may hold decrypted bytes that a selector cannot see."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def request(self, message: Any, timeout: float, version: int | None = None) -> Any:
        """Send one kafka-python message, wait for and decode its response."""
        return self.requests([message], timeout, version)[0]

    def ask(self, message: Any, timeout: float) -> Answer:
        """Send one kafka-python message and wait for its response, which is not decoded yet."""
        self._require_idle()
        version = self.version(message.API_KEY, message.max_version)
        encoded = bytes(message.encode(version=version))
        self.send(message.API_KEY, version, message.flexible_version_q(version), [encoded])
        return Answer(encoded, version, bytes(self.wait(timeout)))

    def decode(self, message: Any, answer: Answer) -> Any:
        """The response to ``message`` that `ask` has returned."""
        flexible = message.flexible_version_q(answer.version)
        return self._response(message, answer.version, flexible, memoryview(answer.frame))

    def requests(
        self, messages: Sequence[Any], timeout: float, version: int | None = None
    ) -> list[Any]:
        """Messages of one kind, sent without waiting for each other; all responses, in order."""
        self._require_idle()
        if version is None:
            version = self.version(messages[0].API_KEY, messages[0].max_version)
        flexible = messages[0].flexible_version_q(version)
        for message in messages:
            self.send(message.API_KEY, version, flexible, [message.encode(version=version)])
        return [self._response(m, version, flexible, self.wait(timeout)) for m in messages]

    def _response(self, message: Any, version: int, flexible: bool, frame: memoryview) -> Any:
        message.with_header()
        response_class = message.header.get_response_class()
        # ApiVersions responses never have a flexible header, so that any client can read them.
        with reading(self, f"the answer to {type(message).__name__}"):
            skip = _tags_end(frame, 0) if flexible and message.API_KEY != 18 else 0
            response = response_class.decode(frame[skip:], version=version)
            check_nulls(response, version)
            return response

    # -- internals ----------------------------------------------------------------------------

    def _require_idle(self) -> None:
        if self.in_flight:
            raise ConnectionFailed(f"connection to {self.address} is busy")

    def _require(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionFailed(f"connection to {self.address} is closed")
        return self._socket

    def _broken(self, why: object) -> ConnectionFailed:
        self.close()
        return ConnectionFailed(f"connection to {self.address} broke: {why}")

    def _begin_frame(self) -> memoryview | None:
        """The memory for the next frame, with what has come of it; None before its size is here."""
        while self._inbox_end - self._inbox_start < _INT.size:
            if self._emptied:
                # The last read has shown that there is no more: no need to ask the kernel again.
                self._emptied = False
                return None
            left = self._inbox[self._inbox_start : self._inbox_end]
            self._inbox[: len(left)] = left
            self._inbox_start, self._inbox_end = 0, len(left)
            count = self._read(self._inbox[self._inbox_end :])
            if not count:
                return None
            self._inbox_end += count
            self._emptied = self._inbox_end < _INBOX_BYTES and self._security.ssl_context is None
        start = self._inbox_start + _INT.size
        (size,) = _INT.unpack_from(self._inbox, self._inbox_start)
        if not _INT.size <= size <= self._most_bytes:
            shown = bytes(self._inbox[self._inbox_start : start])
            self.close()
            raise NotKafka(_not_kafka(self.address, shown))
        here = self._inbox[start : min(start + size, self._inbox_end)]
        if len(here) == size:
            frame = memoryview(bytearray(here))
        else:
            # Not zeroed: for large answers that would cost as much as taking them from the kernel.
            frame = np.empty(size, np.uint8).data
            frame[: len(here)] = here
        self._frame = frame
        self._frame_filled = len(here)
        self._inbox_start = start + len(here)
        return frame

    def _fill_frame(self, frame: memoryview) -> bool:
        missing = len(frame) - self._frame_filled
        if not missing:
            return True
        self._emptied = False
        rest = frame[self._frame_filled :]
        while missing:
            count = self._read(rest)
            if not count:
                break
            rest = rest[count:]
            missing -= count
        self._frame_filled = len(frame) - missing
        self._gather(missing)
        return not missing

    def _read(self, into: memoryview) -> int:
        """How many bytes came, 0 for none at the moment."""
        sock = self._require()
        try:
            count = sock.recv_into(into)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            raise self._broken(error) from error
        if count == 0:
            # A SASL listener tells anybody its versions, then hangs up on strangers.
            stranger = (
                self._correlation_id == 2
                and not self._security.mechanism
                and self.address not in _known_addresses
            )
            hint = " at the first request (does this listener want SASL?)"
            raise self._broken("closed by the broker" + (hint if stranger else ""))
        return count

    def _gather(self, missing: int) -> None:
        """In the middle of a large answer, be woken for large pieces only.

        Never for more than is missing: the kernel would wait for bytes that nobody sends.
        """
        self._set_low_water(_PIECE_BYTES if missing >= _PIECE_BYTES else 1)

    def wake_for(self, count: int) -> None:
        """Have pollers see no input before answers of so many bytes are here, or the end.

        Only a hint: TLS does not know it, and what is here may be received at any time.
        """
        read = self._inbox_end - self._inbox_start
        if self._frame is not None:
            read += _INT.size + self._frame_filled
        self._set_low_water(max(1, count - read))

    def _set_low_water(self, count: int) -> None:
        if count != self._low_water and self._security.ssl_context is None and self._socket:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            self._low_water = count

    def _connect(self, timeout: float) -> None:
        try:
            raw = _connected(self.host, self.port, timeout)
        except TimeoutError as error:
            raise NoAnswer(f"cannot connect to {self.address}: {error}") from error
        except OSError as error:
            raise ConnectionFailed(f"cannot connect to {self.address}: {error}") from error
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER_BYTES)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        self._socket = raw
        if self._security.ssl_context is not None:
            self._start_tls(raw)
        self._socket.setblocking(False)

    def _start_tls(self, raw: socket.socket) -> None:
        context = self._security.ssl_context
        assert context is not None  # noqa: S101 - narrows the type
        try:
            self._socket = context.wrap_socket(raw, server_hostname=self.host)
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationFailed(
                f"the certificate of {self.address} is not accepted: {error.verify_message};"
                f" {self._certificate_advice(error.verify_code)}"
            ) from error
        except (ssl.SSLError, OSError) as error:
            raise AuthenticationFailed(
                f"no TLS handshake with {self.address}: {error}"
                " (is this listener PLAINTEXT, or does it want a client certificate?)"
            ) from error

    def _certificate_advice(self, code: int) -> str:
        if code in {_NOT_YET_VALID, _EXPIRED}:
            return "the broker needs a new one, unless the clock of this machine is wrong"
        if code in {_OTHER_HOST, _OTHER_ADDRESS}:
            return "address the broker by a name in its certificate, or give it one with this name"
        advice = self._security.advice("ssl.truststore.location")
        return f"if its issuer is to be trusted, add it to the truststore; {advice}"

    def _negotiate(self, timeout: float) -> None:
        self._versions[18] = (0, 0)
        try:
            response = self.request(ApiVersionsRequest(), timeout, version=0)
        except ConnectionFailed as error:
            if isinstance(error.__cause__, ssl.SSLError):
                # TLS 1.3: a broker judges our certificate after the handshake.
                raise AuthenticationFailed(
                    f"{self.address} ended TLS: {error.__cause__.reason};"
                    f" {self._security.advice('ssl.keystore.location')}"
                ) from error
            if "closed by the broker" not in str(error) and "reset" not in str(error):
                raise
            stranger = ", or one that does not accept our certificate (ssl.keystore.*)"
            raise NotKafka(
                f"{self.address} accepted the connection and closed it again without an answer:"
                f" not a Kafka listener, or one that does not speak {self._security.protocol}"
                + (stranger if self._security.ssl_context else "")
            ) from error
        check(response.error_code, f"ApiVersions at {self.address}")
        for api in response.api_keys:
            self._versions[api.api_key] = (api.min_version, api.max_version)

    def _authenticate(self, timeout: float) -> None:
        login = self._login()
        handshake = self.request(next(login), timeout)
        try:
            message = login.send(handshake)
            while True:
                message = login.send(self.request(message, timeout))
        except StopIteration:
            return
        except ConnectionFailed as error:
            raise AuthenticationFailed(
                f"{self.address} closed the connection during SASL {self._security.mechanism}"
            ) from error

    def _login(self) -> Login:
        security = self._security
        handshake = yield SaslHandshakeRequest(mechanism=security.mechanism)
        if handshake.error_code:
            raise AuthenticationFailed(
                f"{self.address} does not offer SASL {security.mechanism};"
                f" it offers {shown(', '.join(handshake.mechanisms)) or 'none'}"
            )
        exchange = security.sasl(self.host)
        while not exchange.is_done():
            answer = yield SaslAuthenticateRequest(auth_bytes=exchange.auth_bytes())
            if answer.error_code:
                raise CredentialsRefused(
                    f"{self.address} refused SASL {security.mechanism}:"
                    f" {shown(answer.error_message or error_name(answer.error_code))};"
                    f" {security.advice('sasl.jaas.config')}"
                )
            if answer.session_lifetime_ms:
                lifetime = answer.session_lifetime_ms / 1000
                self._renew_at = time.monotonic() + RENEWED_AFTER * lifetime
            try:
                security.check_answer(answer.auth_bytes)
                exchange.receive(answer.auth_bytes)
            except AuthenticationFailed:
                raise
            except Exception as error:
                why = shown(error) or type(error).__name__
                raise AuthenticationFailed(f"SASL with {self.address} failed: {why}") from error

    def _begin_renewal(self) -> None:
        """Log in again behind what is in flight; what is sent from now on waits for the end."""
        self._security = self._security.current()
        if not self._security.is_ready():
            # The login that there is still counts for a while, and whoever sends must not wait.
            self._renew_at = time.monotonic() + _RENEWAL_PAUSE_SECONDS
            return
        self._renew_at = float("inf")
        self._renewal = self._login()
        self._ask(next(self._renewal))

    def _go_on_renewing(self, frame: memoryview) -> None:
        assert self._renewal is not None and self._renewal_step is not None  # noqa: S101
        _, message, version = self._renewal_step
        answer = self._response(message, version, message.flexible_version_q(version), frame)
        try:
            self._ask(self._renewal.send(answer))
        except StopIteration:
            self._renewal = self._renewal_step = None
            held, self._held = self._held, []
            for request in held:
                self._queue(*request)
            self.flush()
        except AuthenticationFailed:
            self.close()
            raise

    def _ask(self, message: Any) -> None:
        version = self.version(message.API_KEY, message.max_version)
        flexible = message.flexible_version_q(version)
        self._queue(message.API_KEY, version, flexible, [message.encode(version=version)])
        self.flush()
        self._renewal_step = (self._correlation_id, message, version)


def _connected(host: str, port: int, timeout: float) -> socket.socket:
    """A socket to the first address of a host that takes it; raises OSError."""
    deadline = time.monotonic() + timeout
    failure: OSError = OSError(f"{shown(host)} has no address")
    for address in names.addresses(host, timeout):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:
            return socket.create_connection((address, port), left)
        except OSError as error:
            failure = error
    raise failure


def _tags_end(frame: memoryview, position: int) -> int:
    """Skip a tagged-field section; brokers send none in response headers today."""
    count = frame[position]
    if count:
        raise NotKafka("tagged fields in a response header")
    return position + 1


def _not_kafka(address: str, start: bytes) -> str:
    if start[:2] in {b"\x15\x03", b"\x16\x03"}:
        return f"{address} speaks TLS, but the config says a plaintext security.protocol"
    shown = "".join(chr(c) if 32 <= c < 127 else "." for c in start)
    return f"{address} answered, but not with the Kafka protocol (its answer starts with {shown!r})"
