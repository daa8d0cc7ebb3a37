"""A client of one cluster: bootstrap, metadata, a few waiting connections per broker, retries.

Used by the driver and by executors for everything but the bulk of the data, for which
`ClusterClient.open` hands out connections of their own. Thread-safe: each request has a connection
to itself, so that none waits for another one's answer. There are as many connections to a broker as
requests to it were open at once; two of them are kept.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from kafka.protocol.metadata import MetadataRequest

from heliograph.config.providers import resolve
from heliograph.model import ClientSettings
from heliograph.wire import refusals
from heliograph.wire.connection import Answer, Connection
from heliograph.wire.errors import (
    ConnectionFailed,
    CredentialsRefused,
    WireError,
    is_retriable,
)
from heliograph.wire.metadata import Metadata, parse_metadata
from heliograph.wire.security import Security

T = TypeVar("T")

CONNECT_TIMEOUT_SECONDS = 10.0
REQUEST_TIMEOUT_SECONDS = 30.0
#: Idle connections to one broker. Requests of two jobs overlap now and then, of three hardly ever.
_KEPT = 2
#: Where connections to a bootstrap server are kept; also: any broker.
_ANY = -1
#: Of a client, for as many different requests for metadata.
_REMEMBERED_ANSWERS = 16
_BACKOFF_FIRST_SECONDS = 0.05
_BACKOFF_MOST_SECONDS = 2.0
#: Spreads load and retries; no secret. Its own, so that nobody else's dice depend on it.
_DICE = random.Random()  # noqa: S311


class ClusterClient:
    """Requests to one cluster, each to the right broker. Any thread may use it."""

    def __init__(
        self,
        settings: ClientSettings,
        client_id: str,
        *,
        request_timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> None:
        self.alias = settings.alias
        # As MM2: what the user says, then what we are.
        own = settings.properties.get("client.id", "").strip()
        self.client_id = f"{own}|{client_id}" if own else client_id
        self.request_timeout = request_timeout
        self.settings = settings
        self._security: Security | None = None
        self._metadata: Metadata | None = None
        #: The last answers to requests for metadata. Most often nothing has changed, and decoding
        #: an answer of thousands of partitions anew is what an idle mirror would do most.
        self._answered: dict[bytes, tuple[Answer, Metadata]] = {}
        #: Guards the connections that nobody uses, by broker; those that are lent are not in here.
        self._lock = threading.Lock()
        self._idle: dict[int, list[Connection]] = {}
        #: How often the client was closed: what was lent before is not kept.
        self._closings = 0
        #: Brokers that are asked only for what nobody else knows: they do not answer.
        self.avoided: Set[int] = frozenset()

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the client may be used again afterwards.

        One that is lent is closed when it comes back.
        """
        with self._lock:
            self._closings += 1
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()

    # -- connections --------------------------------------------------------------------------

    def open(self, node: int) -> Connection:
        """A new connection to a broker, for the caller to keep and close."""
        host, port = self._address(node)
        return self._dial(host, port)

    @contextmanager
    def lent(self, node: int = _ANY) -> Iterator[Connection]:
        """A connection to a broker for the caller alone until the block ends; -1: to any."""
        closings = self._closings
        key, connection = self._take(node)
        try:
            yield connection
        finally:
            with self._lock:
                surplus = self._put_back(key, connection, closings)
            for each in surplus:
                each.close()

    def _put_back(self, key: int, connection: Connection, closings: int) -> list[Connection]:
        """Keep a connection that was lent; returns those that are of no use any more."""
        if connection.closed:
            # Whatever broke it has broken the others to that broker as well.
            return self._idle.pop(key, [])
        idle = self._idle.setdefault(key, [])
        if closings != self._closings or len(idle) >= _KEPT or not _usable(connection):
            return [connection]
        idle.append(connection)
        # A broker that is known by its id answers all that a bootstrap server does.
        return self._idle.pop(_ANY, []) if key != _ANY else []

    def connection(self, node: int) -> Connection:
        """An idle connection to a broker; -1: to any. Only where one thread uses the client."""
        with self.lent(node) as connection:
            return connection

    def _take(self, node: int) -> tuple[int, Connection]:
        """A connection out of the idle ones, or a new one, and where to put it back."""
        with self._lock:
            keys = [node] if node >= 0 else [k for k in self._idle if k not in self.avoided]
            for key in keys:
                idle = self._idle.get(key, [])
                while idle:
                    connection = idle.pop()
                    # One that a quota has muted is given up: a new one is heard at once, and what
                    # is asked over it is next to nothing.
                    avoided = key < 0 and connection.address in self._avoided_addresses()
                    if _usable(connection) and not connection.throttled and not avoided:
                        return key, connection
                    connection.close()
        return (node, self.open(node)) if node >= 0 else self._dial_any()

    def _dial_any(self) -> tuple[int, Connection]:
        """A new connection to a broker that is known, or else to a bootstrap server."""
        known = sorted(self.known_brokers - self.avoided)
        if known:
            node = _DICE.choice(known)
            with suppress(ConnectionFailed):
                return node, self.open(node)
        return _ANY, self._dial_bootstrap()

    def _address(self, node: int) -> tuple[str, int]:
        metadata = self._metadata or self.metadata(())
        if node not in metadata.brokers:
            metadata = self.metadata(())
        try:
            return metadata.brokers[node]
        except KeyError:
            raise ConnectionFailed(
                f"broker {node} of cluster {self.alias} is not in its metadata (is it down?)"
            ) from None

    def _dial(self, host: str, port: int) -> Connection:
        known = self._security
        security = known.current() if known else Security.from_settings(self.settings)
        self._security = security
        if not security.mechanism:
            return Connection.open(host, port, security, self.client_id, CONNECT_TIMEOUT_SECONDS)
        cluster = f"{self.alias} {self.settings.bootstrap_servers}"
        refusals.refuse_early(cluster, security.made_of)
        try:
            opened = Connection.open(host, port, security, self.client_id, CONNECT_TIMEOUT_SECONDS)
        except CredentialsRefused as error:
            refusals.refused(cluster, security.made_of, str(error))
            raise
        refusals.forget(cluster)
        return opened

    def _dial_bootstrap(self) -> Connection:
        servers = resolve(self.settings.bootstrap_servers, self.settings.providers)
        candidates = [s.strip() for s in servers.split(",") if s.strip()]
        if self._metadata is not None:
            # Brokers learnt later outlive a bootstrap server that was taken away.
            candidates += [f"{h}:{p}" for h, p in self._metadata.brokers.values()]
        quiet = self._avoided_addresses()
        candidates = [c for c in candidates if c not in quiet] or candidates
        failures: list[WireError] = []
        for candidate in candidates:
            host, _, port = candidate.rpartition(":")
            try:
                return self._dial(host.strip("[]"), int(port))
            except WireError as error:
                failures.append(error)
        worst = next((f for f in failures if not is_retriable(f)), None)
        if worst is not None:
            raise worst
        reasons = "; ".join(dict.fromkeys(map(str, failures)))
        raise ConnectionFailed(f"no broker of cluster {self.alias} answers: {reasons}")

    def _avoided_addresses(self) -> set[str]:
        return {f"{h}:{p}" for h, p in filter(None, map(self.known_address, self.avoided))}

    def known_address(self, node: int) -> tuple[str, int] | None:
        """Where a broker is, by the last metadata; nobody is asked."""
        return None if self._metadata is None else self._metadata.brokers.get(node)

    @property
    def known_brokers(self) -> Set[int]:
        """Node ids by the last metadata; nobody is asked."""
        return frozenset() if self._metadata is None else self._metadata.brokers.keys()

    def probe(self, host: str, port: int) -> Connection:
        """A connection to an address; for another thread than those that use the client."""
        return self._dial(host, port)

    # -- requests -----------------------------------------------------------------------------

    def request(self, message: Any, node: int = _ANY, timeout: float | None = None) -> Any:
        """One request to one broker (any broker by default), no retry."""
        with self.lent(node) as connection:
            return connection.request(message, timeout or self.request_timeout)

    def supports(self, node: int, api_key: int, version: int) -> bool:
        """Whether a broker knows a version of a request."""
        with self.lent(node) as connection:
            return connection.supports(api_key, version)

    def retry(self, call: Callable[[], T], seconds: float) -> T:
        """Repeat ``call`` with growing, jittered pauses while its error is retriable."""
        deadline = time.monotonic() + seconds
        pause = _BACKOFF_FIRST_SECONDS
        while True:
            try:
                return call()
            except WireError as error:
                if not is_retriable(error) or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause * _DICE.uniform(0.5, 1.0))
            pause = min(pause * 2, _BACKOFF_MOST_SECONDS)

    def metadata(self, topics: Sequence[str] | None = None) -> Metadata:
        """Ask for brokers and the named topics (None: all). Topics that do not exist are absent."""
        named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=t)
                                             for t in topics]  # fmt: skip
        message = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        with self.lent() as connection:
            answer = connection.ask(message, self.request_timeout)
            known, found = self._answered.get(answer.request, (None, None))
            if found is None or known != answer:
                found = parse_metadata(connection.decode(message, answer))
        if not found.brokers:
            raise ConnectionFailed(f"cluster {self.alias} knows no broker yet")
        with self._lock:
            self._answered[answer.request] = answer, found
            if len(self._answered) > _REMEMBERED_ANSWERS:
                del self._answered[next(iter(self._answered))]
        self._metadata = found
        return found

    def cluster_id(self) -> str:
        """The id that tells this cluster from every other."""
        return self.metadata(()).cluster_id

    def to_controller(self, message: Any, timeout: float | None = None) -> Any:
        """Cluster-changing requests; KRaft brokers forward them, older ones need the controller."""
        metadata = self._metadata or self.metadata(())
        node = metadata.controller_id
        return self.request(message, node if node in metadata.brokers else _ANY, timeout)


def _usable(connection: Connection) -> bool:
    """Whether another request may be sent over it: no answer is outstanding."""
    return not connection.closed and not connection.in_flight
