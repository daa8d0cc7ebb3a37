"""TLS and SASL of one connection, from Kafka's own client keys. Runs wherever a socket is opened.

Secrets are resolved here, as late as possible, and never leave this module: errors name the key.
They and the files with keys and certificates may be rotated while the mirror runs: every new
connection, and every renewed login, takes them as they are then (`Security.current`).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka.net.sasl import get_sasl_mechanism

from heliograph.config.jaas import parse_jaas
from heliograph.config.providers import has_template, resolve
from heliograph.errors import ConfigError
from heliograph.model import ClientSettings
from heliograph.wire.errors import AuthenticationFailed
from heliograph.wire.oauth import ClientCredentials
from heliograph.wire.tls import FILES, tls_context

#: Kafka's own minimum (KIP-84).
_LEAST_ITERATIONS = 4096


@dataclass(slots=True)
class Security:
    """What a connection needs to know to be accepted: protocol, TLS context, SASL mechanism.

    ``made_of`` is what it was made of: resolved values and the state of files. ``outdated`` says
    why it could not be made anew although that has changed.
    """

    protocol: str
    ssl_context: ssl.SSLContext | None = None
    check_hostname: bool = True
    mechanism: str | None = None
    sasl_config: dict[str, Any] = field(default_factory=dict, repr=False)
    settings: ClientSettings | None = None
    made_of: tuple[object, ...] = field(default=(), repr=False)
    outdated: str = ""

    @classmethod
    def from_settings(cls, settings: ClientSettings) -> Security:
        """Resolve the settings of one cluster; raises AuthenticationFailed naming the bad key."""
        return cls._of(settings, *_ingredients(settings))

    @classmethod
    def _of(
        cls, settings: ClientSettings, values: Mapping[str, str], made_of: tuple[object, ...]
    ) -> Security:
        protocol = values.get("security.protocol", "PLAINTEXT").upper()
        security = cls(protocol, settings=settings, made_of=made_of)
        if protocol in {"SSL", "SASL_SSL"}:
            algorithm = values.get("ssl.endpoint.identification.algorithm", "https")
            security.check_hostname = algorithm.strip() != ""
            security.ssl_context = tls_context(values, check_hostname=security.check_hostname)
        if protocol.startswith("SASL_"):
            security.mechanism = values.get("sasl.mechanism", "GSSAPI")
            security.sasl_config = _sasl_config(security.mechanism, protocol, values)
        return security

    def current(self) -> Security:
        """This one, or one made anew if a secret or a file has changed; never raises.

        What cannot be read now, perhaps because it is being replaced, is tried again next time.
        Until then the old one may still do, and if not, the refusal tells why (`advice`).
        """
        if self.settings is None:
            return self
        try:
            values, made_of = _ingredients(self.settings)
            if made_of == self.made_of:
                self.outdated = ""
                return self
            return self._of(self.settings, values, made_of)
        except (AuthenticationFailed, ConfigError) as error:
            self.outdated = str(error)
            return self

    def advice(self, key: str) -> str:
        """What to do about credentials under ``key`` that were refused."""
        if self.outdated:
            return f"the newest credentials cannot be used: {self.outdated}"
        text = self.settings.properties.get(key, "") if self.settings else ""
        if not text:
            return f"{key} is not set"
        if key.endswith(".location") or has_template(text):
            return f"what {key} names is read again for every connection: no restart is needed"
        return f"{key} holds them as text: change it and restart, or refer to a file: ${{file:...}}"

    def is_ready(self) -> bool:
        """Whether a login would not have to wait for a token; if so, one is asked for."""
        tokens = self.sasl_config.get("sasl_oauth_token_provider")
        return tokens is None or bool(tokens.is_ready())

    def check_answer(self, answer: bytes) -> None:
        """Raises ValueError if a server would have us give the password away cheaply.

        Somebody who sees the exchange, or takes the server's part in it, can try passwords offline;
        every iteration makes each try dearer.
        """
        if self.mechanism is None or not self.mechanism.startswith("SCRAM-"):
            return
        for name, _, value in (part.partition(b"=") for part in answer.split(b",")):
            if name == b"i" and not (value.isdigit() and int(value[:9]) >= _LEAST_ITERATIONS):
                raise ValueError(
                    f"the server asks for {value[:20]!r} iterations, and less than"
                    f" {_LEAST_ITERATIONS} do not protect the password"
                )

    def sasl(self, host: str) -> Any:
        """A fresh SASL exchange: kafka-python's mechanisms do no I/O of their own."""
        return get_sasl_mechanism(self.mechanism)(host=host, **self.sasl_config)


def _ingredients(settings: ClientSettings) -> tuple[dict[str, str], tuple[object, ...]]:
    """The resolved values, and what changes with them and with the files that they name."""
    values = {k: resolve(v, settings.providers) for k, v in settings.properties.items()}
    files = [_state(values[key]) for key in FILES if key in values]
    return values, (*sorted(values.items()), *files)


def _state(path: str) -> tuple[int, ...]:
    try:
        found = Path(path).stat()
    except OSError:
        return ()  # whoever opens it says so
    return found.st_ino, found.st_size, found.st_mtime_ns


def _sasl_config(mechanism: str, protocol: str, values: Mapping[str, str]) -> dict[str, Any]:
    config: dict[str, Any] = {"sasl_mechanism": mechanism, "security_protocol": protocol}
    jaas = parse_jaas(values.get("sasl.jaas.config", ""))
    if mechanism == "OAUTHBEARER":
        config["sasl_oauth_token_provider"] = ClientCredentials(values, jaas.options)
        return config
    if jaas.options.get("tokenauth", "").lower() == "true":
        raise AuthenticationFailed(
            "sasl.jaas.config asks for a delegation token (tokenauth), which expires and which only"
            " its owner can renew; give the mirror a SCRAM user of its own"
        )
    try:
        config["sasl_plain_username"] = jaas.options["username"]
        config["sasl_plain_password"] = jaas.options["password"]
    except KeyError as missing:
        raise AuthenticationFailed(f"sasl.jaas.config lacks {missing} for {mechanism}") from None
    return config
