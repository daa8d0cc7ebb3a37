"""A client of one cluster: bootstrap, metadata, one waiting connection per broker, retries.

Used by the driver and by executors for everything but the bulk of the data, for which
`ClusterClient.open` hands out connections of their own. Thread-safe by one lock: requests wait for
each other, so jobs that must not delay one another use clients of their own.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence, Set
from typing import Any, TypeVar

from kafka.protocol.metadata import MetadataRequest

from heliograph.config.providers import resolve
from heliograph.model import ClientSettings
from heliograph.wire.connection import Connection
from heliograph.wire.errors import (
    ConnectionFailed,
    WireError,
    is_retriable,
)
from heliograph.wire.metadata import Metadata, parse_metadata
from heliograph.wire.security import Security

T = TypeVar("T")

CONNECT_TIMEOUT_SECONDS = 10.0
REQUEST_TIMEOUT_SECONDS = 30.0
_BACKOFF_FIRST_SECONDS = 0.05
_BACKOFF_MOST_SECONDS = 2.0


class ClusterClient:
    """Requests to one cluster, each to the right broker."""

    def __init__(
        self,
        settings: ClientSettings,
        client_id: str,
        *,
        request_timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> None:
        self.alias = settings.alias
        self.client_id = client_id
        self.request_timeout = request_timeout
        self.settings = settings
        self._security: Security | None = None
        self._connections: dict[int, Connection] = {}
        self._bootstrap: Connection | None = None
        self._metadata: Metadata | None = None
        self._lock = threading.RLock()
        #: Brokers that are asked only for what nobody else knows: they do not answer.
        self.avoided: Set[int] = frozenset()

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the client may be used again afterwards."""
        with self._lock:
            for connection in (*self._connections.values(), self._bootstrap):
                if connection is not None:
                    connection.close()
            self._connections.clear()
            self._bootstrap = None

    # -- connections --------------------------------------------------------------------------

    def open(self, node: int) -> Connection:
        """A new connection to a broker, for the caller to keep and close."""
        host, port = self._address(node)
        return self._dial(host, port)

    def connection(self, node: int) -> Connection:
        """The waiting connection to a broker; node -1 means any."""
        with self._lock:
            if node < 0:
                return self._any()
            known = self._connections.get(node)
            # One that a quota has muted is given up: a new one is heard at once, and what is asked
            # over it is next to nothing.
            if known is None or known.closed or known.in_flight or known.throttled:
                if known is not None:
                    known.close()
                known = self._connections[node] = self.open(node)
            return known

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
        self._security = known.current() if known else Security.from_settings(self.settings)
        return Connection.open(host, port, self._security, self.client_id, CONNECT_TIMEOUT_SECONDS)

    def _any(self) -> Connection:
        for node, known in self._connections.items():
            if node in self.avoided or known.throttled:
                continue
            if not known.closed and not known.in_flight:
                return known
        known_bootstrap = self._bootstrap
        if known_bootstrap is not None and not known_bootstrap.closed:
            quiet = known_bootstrap.address in self._avoided_addresses()
            if not quiet and not known_bootstrap.in_flight:
                return known_bootstrap
            known_bootstrap.close()
        self._bootstrap = self._dial_bootstrap()
        return self._bootstrap

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

    def request(self, message: Any, node: int = -1, timeout: float | None = None) -> Any:
        """One request to one broker (any broker by default), no retry."""
        with self._lock:
            return self.connection(node).request(message, timeout or self.request_timeout)

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
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
            pause = min(pause * 2, _BACKOFF_MOST_SECONDS)

    def metadata(self, topics: Sequence[str] | None = None) -> Metadata:
        """Ask for brokers and the named topics (None: all). Topics that do not exist are absent."""
        named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=t)
                                             for t in topics]  # fmt: skip
        message = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        with self._lock:
            found = parse_metadata(self.request(message))
            if not found.brokers:
                raise ConnectionFailed(f"cluster {self.alias} knows no broker yet")
            self._metadata = found
            return found

    def cluster_id(self) -> str:
        """The id that tells this cluster from every other."""
        return self.metadata(()).cluster_id

    def to_controller(self, message: Any, timeout: float | None = None) -> Any:
        """Cluster-changing requests; KRaft brokers forward them, older ones need the controller."""
        with self._lock:
            metadata = self._metadata or self.metadata(())
            node = metadata.controller_id
            return self.request(message, node if node in metadata.brokers else -1, timeout)
