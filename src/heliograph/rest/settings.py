"""Where the REST API is served, who may use it, and how much of it. Pure.

`RestSettings` is what `heliograph.rest` goes by. The command makes it from the keys of a worker
file, or of an ``mm2.properties`` (`RestSettings.of`).
"""

from __future__ import annotations

import csv
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, Self

from heliograph.config.worker_keys import RestSettings as RestKeys
from heliograph.errors import ConfigError
from heliograph.shown import shown

__all__ = ["Limits", "Listener", "MetricsSettings", "ResponseHeader", "RestSettings", "Role"]

_LISTENER = re.compile(r"(?P<scheme>[A-Za-z]+)://(?:\[(?P<six>[^\]]*)\]|(?P<host>[^/:\[\]]*)):"
                       r"(?P<port>\d{1,5})/?")  # fmt: skip
_HEADER = re.compile(r"\s*(set|add|setDate|addDate)\s+([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*:\s*(.*)")
_MOST_PORT = 65535


class Role(IntEnum):
    """What a caller may do. Each may do what those below may."""

    #: See everything that is stored and shown; configs included, as they were written.
    VIEWER = 1
    #: Pause, resume, stop and restart.
    OPERATOR = 2
    #: Create, change and delete connectors, move positions, set log levels.
    ADMIN = 3

    @classmethod
    def named(cls, text: str) -> Role:
        """The role of that name; raises ConfigError."""
        try:
            return cls[text.strip().upper()]
        except KeyError:
            names = ", ".join(role.name.lower() for role in cls)
            raise ConfigError(
                "rest.role", f"{shown(text)!r} is no role", f"use one of {names}"
            ) from None


class Listener(NamedTuple):
    """An address to serve; ``host`` is empty for all of this machine, ``port`` 0 for any free."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Listener:
        """``http://host:port`` or ``https://host:port``; raises ConfigError."""
        found = _LISTENER.fullmatch(text.strip())
        if found is None or found["scheme"].lower() not in {"http", "https"}:
            raise ConfigError(
                "rest.listener", f"{shown(text)!r} is no address to listen on",
                "write it as http://host:port or https://host:port",
            )  # fmt: skip
        port = int(found["port"])
        if port > _MOST_PORT:
            raise ConfigError("rest.listener", f"{shown(text)!r}: there is no port {port}")
        return cls(found["scheme"].lower(), found["six"] or found["host"] or "", port)

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it. Names other than localhost count as reachable."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def reached_at(self, name: str) -> Listener:
        """Where others reach it: one of all addresses of this machine by the machine's name."""
        try:
            every = not self.host or ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            every = False
        return self._replace(host=name) if every else self

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class ResponseHeader(NamedTuple):
    """A header of every answer. ``replace``: in place of one of that name. No value: the date."""

    name: str
    value: str | None
    replace: bool

    @classmethod
    def parse_all(cls, text: str) -> tuple[ResponseHeader, ...]:
        """``response.http.headers.config``: ``set|add|setDate|addDate Name: value``, as CSV.

        Of a date the value is an offset in milliseconds, which is 0 wherever it is of any use.
        """
        made = []
        try:
            items = next(csv.reader([text], skipinitialspace=True), []) if text.strip() else []
        except csv.Error:
            items = [text]
        for item in items:
            found = _HEADER.fullmatch(item)
            if found is None or not found[3].isprintable() or not found[3].isascii():
                raise ConfigError(
                    "rest.header", f"response.http.headers.config: {shown(item)!r} is no header",
                    "write it as: set Name: value, or add, setDate or addDate",
                )  # fmt: skip
            value = None if found[1].endswith("Date") else found[3].strip()
            made.append(cls(found[2], value, found[1].startswith("set")))
        return tuple(made)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much callers may take.

    Attributes:
        body_bytes: the longest body of a request.
        requests_per_second: of one address, on average; 0 for any number.
        burst: requests of one address at once. User interfaces ask for each connector when a page
            is opened.
        failures: refused credentials of one address at once; one more per second. Every one costs
            a slow hash.
        streams: how many may follow the events at once.
        connections: open at once, over all listeners.
        calls: requests that are worked on at once; others wait.
        call_seconds: after so long a request is answered with 500, as Connect does it.
        health_seconds: the same for the probe.
    """

    body_bytes: int = 1 << 20
    requests_per_second: float = 100.0
    burst: int = 500
    failures: int = 10
    streams: int = 50
    connections: int = 500
    calls: int = 32
    call_seconds: float = 90.0
    health_seconds: float = 10.0


class MetricsSettings(NamedTuple):
    """How many series ``/metrics`` has.

    ``topics`` have series of their own at most, of all flows together; if ``partitions``, so has
    each of their partitions.
    """

    topics: int = 200
    partitions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestSettings:
    """How the REST API is served. `problems` says what is wrong with it.

    Attributes:
        listeners: where it is served.
        admin_listeners: where ``/admin`` is served: None: on ``listeners``; empty: nowhere; else
            there, and nowhere else.
        tls: ``ssl.*`` keys of the https listeners, secrets resolved; ``ssl.client.auth`` included.
        insecure: whether anybody who reaches a listener may use it, from other machines, too.
        users_file: names, roles, hashes of passwords; ``tokens_file`` the same of tokens
            (`heliograph.rest.credentials`).
        passwords_file: ``user=password`` lines of Connect's PropertyFileLoginModule; all its users
            have the role ``passwords_role``.
        certificate_roles: roles of clients with a certificate by its common name; ``*`` for any.
        hosts: names that a request's Host header may have, beside those that nobody else can own
            (`heliograph.rest.security`); ``*`` for any, ``*.example.org`` for those below.
        origins: whose web pages may use it from a browser; ``methods`` that they may use.
        headers: what every answer has.
        metrics: how many series ``/metrics`` has.
    """

    listeners: tuple[Listener, ...] = (Listener("http", "127.0.0.1", 8083),)
    admin_listeners: tuple[Listener, ...] | None = None
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    insecure: bool = False
    users_file: Path | None = None
    tokens_file: Path | None = None
    passwords_file: Path | None = None
    passwords_role: Role = Role.ADMIN
    certificate_roles: Mapping[str, Role] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("GET", "POST", "HEAD")
    headers: tuple[ResponseHeader, ...] = ()
    limits: Limits = field(default_factory=Limits)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)

    @classmethod
    def of(
        cls, keys: RestKeys, *, listeners: Sequence[str],
        admin_listeners: Sequence[str] | None = None, tls: Mapping[str, str] | None = None,
        advertised_host: str = "", allow_origin: str = "", allow_methods: Sequence[str] = (),
        response_headers: str = "",
    ) -> Self:  # fmt: skip
        """From the ``heliograph.rest.*`` keys and those of Connect; raises ConfigError."""
        hosts = (*keys.allowed_hosts, *([advertised_host] if advertised_host else []))
        admin = None if admin_listeners is None else tuple(map(Listener.parse, admin_listeners))
        return cls(
            listeners=tuple(map(Listener.parse, listeners)), admin_listeners=admin, tls=tls or {},
            insecure=keys.insecure, users_file=_path(keys.users_file),
            tokens_file=_path(keys.tokens_file), passwords_file=_path(keys.property_login_file),
            passwords_role=Role.named(keys.property_login_role),
            certificate_roles=_roles(keys.mtls_roles), hosts=hosts,
            origins=tuple(part.strip() for part in allow_origin.split(",") if part.strip()),
            methods=tuple(m.strip().upper() for m in allow_methods) or ("GET", "POST", "HEAD"),
            headers=ResponseHeader.parse_all(response_headers),
            limits=Limits(
                body_bytes=keys.body_max_bytes, requests_per_second=keys.requests_per_second,
                burst=5 * keys.requests_per_second,
            ),
            metrics=MetricsSettings(keys.metrics_topics, keys.metrics_partitions),
        )  # fmt: skip

    @property
    def authenticates(self) -> bool:
        """Whether callers have to show who they are."""
        files = self.users_file or self.tokens_file or self.passwords_file
        return bool(files) or (bool(self.certificate_roles) and self.asks_for_certificates)

    @property
    def asks_for_certificates(self) -> bool:
        """Whether https asks its clients for one."""
        return self.tls.get("ssl.client.auth", "none").lower() in {"required", "requested"}

    @property
    def all_listeners(self) -> tuple[Listener, ...]:
        """Those of ``/admin``, too."""
        return tuple(dict.fromkeys((*self.listeners, *(self.admin_listeners or ()))))

    def problems(self) -> list[ConfigError]:
        """What keeps it from being served; in particular what would expose it."""
        found = []
        if not self.listeners:
            found.append(ConfigError("rest.listener", "listeners names no address"))
        for listener in self.all_listeners:
            if listener.scheme == "https" and not _has_key(self.tls):
                found.append(ConfigError(
                    "rest.tls", f"{listener}: there is no key for TLS",
                    "set listeners.https.ssl.keystore.location, and its type and password",
                ))  # fmt: skip
            if not (listener.is_local or self.insecure):
                found += self._exposed(listener)
        if self.certificate_roles and not self.asks_for_certificates:
            found.append(ConfigError(
                "rest.mtls", "heliograph.rest.mtls.roles is set, but nobody is asked for a"
                " certificate", "set ssl.client.auth=required, or requested",
            ))  # fmt: skip
        return found

    def _exposed(self, listener: Listener) -> list[ConfigError]:
        lacks = [
            what for what, lacking in (
                ("TLS", listener.scheme != "https"),
                ("authentication", not self.authenticates),
            ) if lacking
        ]  # fmt: skip
        if not lacks:
            return []
        safe = listener._replace(scheme="https")
        local = listener._replace(host="127.0.0.1")
        return [ConfigError(
            "rest.exposed",
            f"{listener} is reached by other machines, and has no {' and no '.join(lacks)}:"
            " whoever reaches it would control the mirror",
            f"use {safe} with listeners.https.ssl.keystore.location and one of"
            " heliograph.rest.users.file, heliograph.rest.tokens.file,"
            " heliograph.rest.property.login.file or heliograph.rest.mtls.roles;"
            " or set heliograph.rest.insecure=true, if the network keeps everybody else out;"
            f" or use {local}",
        )]  # fmt: skip


def _has_key(tls: Mapping[str, str]) -> bool:
    return bool(tls.get("ssl.keystore.location") or tls.get("ssl.keystore.certificate.chain"))


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _roles(items: Sequence[str]) -> dict[str, Role]:
    roles = {}
    for item in items:
        name, equals, role = item.rpartition("=")
        if not equals or not name.strip():
            raise ConfigError(
                "rest.mtls", f"heliograph.rest.mtls.roles: {shown(item)!r} names no role",
                "write it as <common name>=<role>",
            )  # fmt: skip
        roles[name.strip()] = Role.named(role)
    return roles
