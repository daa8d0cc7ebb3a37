"""Checks of the settings by which a cluster is reached: addresses, protocol, login."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from heliograph.config.jaas import parse_jaas
from heliograph.config.key import split_list
from heliograph.config.keys import client_key
from heliograph.config.precedence import Effective
from heliograph.config.problems import Problems
from heliograph.config.providers import has_template, resolve
from heliograph.errors import ConfigError
from heliograph.model import ClientSettings

__all__ = ["check_client", "client_settings"]

_HOST_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]/,@]+):([0-9]{1,5})")
_PROTOCOL = re.compile(r"[A-Z_]+://", re.IGNORECASE)


def client_settings(
    alias: str,
    role: str,
    values: Mapping[str, Effective],
    providers: Mapping[str, Mapping[str, str]],
) -> ClientSettings:
    """Settings with enumerated values in canonical spelling; templates stay as they are."""
    properties: dict[str, str] = {}
    for name, effective in values.items():
        value = effective.value or ""
        key = client_key(name, role)
        if key is not None and key.allowed:
            canonical = {allowed.lower(): allowed for allowed in key.allowed}
            value = canonical.get(value.strip().lower(), value)
        properties[name] = value
    return ClientSettings(alias, properties, providers)


def check_client(
    settings: ClientSettings,
    values: Mapping[str, Effective],
    problems: Problems,
    *,
    prefix: str | None = None,
) -> None:
    """Reports what would keep a client from connecting. Resolves templates once, keeps nothing.

    ``prefix`` is what stands before the cluster's keys; its alias and a dot by default.
    """
    check = _Check(settings, values, problems, f"{settings.alias}." if prefix is None else prefix)
    check.bootstrap()
    check.login()
    check.weak()


class _Check:
    def __init__(
        self,
        settings: ClientSettings,
        values: Mapping[str, Effective],
        problems: Problems,
        prefix: str,
    ) -> None:
        self._settings = settings
        self._prefix = prefix
        self._values = values
        self._problems = problems

    def bootstrap(self) -> None:
        servers = self._resolved("bootstrap.servers")
        alias = self._settings.alias
        key = self._written("bootstrap.servers")
        if servers is None:
            return
        if not split_list(servers):
            self._problems.error(
                "config.bootstrap-missing",
                key,
                f"cluster {alias!r} has no bootstrap.servers",
                line=self._line("bootstrap.servers"),
                hint=f"add a line such as: {self._prefix}bootstrap.servers=host1:9092,host2:9092",
            )
        for server in split_list(servers):
            # Kafka's clients accept PROTOCOL://host:port and ignore the protocol.
            match = _HOST_PORT.fullmatch(_PROTOCOL.sub("", server, count=1))
            if match is None or not 0 < int(match[1]) <= 65535:
                self._problems.bad_value(
                    key,
                    self._shown("bootstrap.servers", server),
                    "expected host:port with a port from 1 to 65535",
                    line=self._line("bootstrap.servers"),
                )

    def login(self) -> None:
        protocol = (self._resolved("security.protocol") or "PLAINTEXT").strip().upper()
        mechanism = (self._resolved("sasl.mechanism") or "").strip().upper()
        jaas = self._resolved("sasl.jaas.config")
        module_mechanisms: tuple[str, ...] = ()
        if jaas:
            try:
                module_mechanisms = parse_jaas(jaas).mechanisms
            except ConfigError as error:
                self._caught(error, "sasl.jaas.config")
                return
        if not protocol.startswith("SASL_"):
            return
        if not mechanism:
            self._missing("sasl.mechanism", "sasl.mechanism=SCRAM-SHA-512")
        if jaas == "":
            self._missing(
                "sasl.jaas.config",
                "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule "
                'required username="..." password="${file:/etc/secrets/kafka.properties:pw}";',
            )
        if mechanism and module_mechanisms and mechanism not in module_mechanisms:
            self._problems.error(
                "config.jaas",
                self._written("sasl.jaas.config"),
                f"its login module serves {' and '.join(module_mechanisms)}, "
                "but sasl.mechanism is another one",
                line=self._line("sasl.jaas.config"),
            )
        if mechanism == "OAUTHBEARER":
            self._token_url()

    def weak(self) -> None:
        """Warn of settings that work, and that a stranger may use."""
        protocol = (self._resolved("security.protocol") or "PLAINTEXT").strip().upper()
        mechanism = (self._resolved("sasl.mechanism") or "").strip().upper()
        alias = self._settings.alias
        if protocol == "SASL_PLAINTEXT" and mechanism in {"PLAIN", "OAUTHBEARER"}:
            what = "password" if mechanism == "PLAIN" else "token"
            self._weak(
                "security.protocol",
                f"{mechanism} without TLS shows the {what} of cluster {alias} to the network",
                "use SASL_SSL",
            )
        algorithm = self._resolved("ssl.endpoint.identification.algorithm")
        named = "ssl.endpoint.identification.algorithm" in self._settings.properties
        if protocol in {"SSL", "SASL_SSL"} and named and algorithm == "":
            self._weak(
                "ssl.endpoint.identification.algorithm",
                f"host names of cluster {alias} are not checked: anybody with a certificate of the"
                " same authority can take a broker's place",
                "remove it, and give brokers certificates with their names",
            )
        url = self._resolved("sasl.oauthbearer.token.endpoint.url") or ""
        if mechanism == "OAUTHBEARER" and url.lower().startswith("http:"):
            self._weak(
                "sasl.oauthbearer.token.endpoint.url",
                f"the client's secret of cluster {alias} and its tokens travel without TLS",
                "use https",
            )

    def _weak(self, name: str, message: str, hint: str) -> None:
        self._problems.warn(
            "config.weak", self._written(name), message, line=self._line(name), hint=hint
        )

    def _token_url(self) -> None:
        name = "sasl.oauthbearer.token.endpoint.url"
        url = self._resolved(name)
        if url is None:
            return
        if not url:
            self._missing(name, f"{name}=https://...")
            return
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            usable = False
        # CVE-2025-27817: a file: URL here read local files.
        if not usable:
            line = self._line(name)
            shown = self._shown(name, url)
            key = self._written(name)
            self._problems.bad_value(key, shown, "expected an http(s) URL", line=line)

    def _missing(self, name: str, example: str) -> None:
        self._problems.error(
            "config.missing",
            name,
            f"cluster {self._settings.alias!r} uses SASL but {name} is not set",
            hint=f"add a line such as: {self._prefix}{example}",
        )

    def _resolved(self, name: str) -> str | None:
        """Empty if unset; None if it cannot be resolved, which the entry's own check reported."""
        try:
            return resolve(self._settings.properties.get(name, ""), self._settings.providers)
        except ConfigError:
            return None

    def _shown(self, name: str, resolved: str) -> str:
        """``resolved``, or what is written instead if a provider gave it: it may be a secret."""
        written = self._settings.properties.get(name, "")
        return written if has_template(written) else resolved

    def _written(self, name: str) -> str:
        effective = self._values.get(name)
        if effective is None or effective.entry is None:
            return f"{self._prefix}{name}"
        return effective.entry.key

    def _line(self, name: str) -> int:
        effective = self._values.get(name)
        return effective.entry.line if effective is not None and effective.entry else 0

    def _caught(self, error: ConfigError, name: str) -> None:
        self._problems.caught(error, self._written(name), line=self._line(name))
