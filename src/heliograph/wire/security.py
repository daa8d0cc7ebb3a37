"""TLS and SASL of one connection, from Kafka's own client keys. Runs wherever a socket is opened.

Secrets are resolved here, as late as possible, and never leave this module: errors name the key.
They and the files with keys and certificates may be rotated while the mirror runs: every new
connection, and every renewed login, takes them as they are then (`Security.current`).
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

from heliograph.config.jaas import parse_jaas
from heliograph.config.providers import has_template, resolve
from heliograph.errors import ConfigError
from heliograph.model import ClientSettings
from heliograph.wire.errors import AuthenticationFailed

#: Copying waits for a new token: not for long, and not often if the endpoint does not answer.
_TOKEN_SECONDS, _TOKEN_PAUSE_SECONDS = 10.0, 30.0
#: Files whose contents are part of a Security.
_FILES = ("ssl.truststore.location", "ssl.keystore.location")


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
            security.ssl_context = _ssl_context(values, security.check_hostname)
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

    def prepare(self) -> None:
        """Have the token that a login will need, if any; raises AuthenticationFailed."""
        tokens = self.sasl_config.get("sasl_oauth_token_provider")
        if tokens is not None:
            tokens.token()

    def sasl(self, host: str) -> Any:
        """A fresh SASL exchange: kafka-python's mechanisms do no I/O of their own."""
        return get_sasl_mechanism(self.mechanism)(host=host, **self.sasl_config)


def _ingredients(settings: ClientSettings) -> tuple[dict[str, str], tuple[object, ...]]:
    """The resolved values, and what changes with them and with the files that they name."""
    values = {k: resolve(v, settings.providers) for k, v in settings.properties.items()}
    files = [_state(values[key]) for key in _FILES if key in values]
    return values, (*sorted(values.items()), *files)


def _state(path: str) -> tuple[int, ...]:
    try:
        found = Path(path).stat()
    except OSError:
        return ()  # whoever opens it says so
    return found.st_ino, found.st_size, found.st_mtime_ns


def _ssl_context(values: Mapping[str, str], check_hostname: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = check_hostname
    try:
        pem = values.get("ssl.truststore.certificates")
        location = values.get("ssl.truststore.location")
        if location and not pem:
            pem = _truststore_pem(values, Path(location))
        if pem:
            context.load_verify_locations(cadata=pem)
        _load_key(context, values)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise AuthenticationFailed(f"the ssl.* settings cannot be used: {error}") from error
    return context


def _store_type(values: Mapping[str, str], key: str, location: Path) -> str:
    if key in values:
        return values[key].upper()
    suffix = location.suffix.lower()
    return "PEM" if suffix in {".pem", ".crt"} else "PKCS12" if suffix == ".p12" else "JKS"


def _truststore_pem(values: Mapping[str, str], location: Path) -> str:
    if _store_type(values, "ssl.truststore.type", location) == "PEM":
        return location.read_text()
    # keytool reads JKS and PKCS12 alike and ships with the Java that Spark needs anyway.
    password = values.get("ssl.truststore.password", "")
    return _keytool("-list", "-rfc", "-keystore", str(location), password=password)


def _load_key(context: ssl.SSLContext, values: Mapping[str, str]) -> None:
    key_password = values.get("ssl.key.password")
    with tempfile.TemporaryDirectory(prefix="heliograph-tls-") as folder:
        chain = Path(folder, "chain.pem")
        chain.touch(mode=0o600)
        if values.get("ssl.keystore.certificate.chain"):
            chain.write_text(
                values.get("ssl.keystore.key", "") + "\n" + values["ssl.keystore.certificate.chain"]
            )
        elif values.get("ssl.keystore.location"):
            location = Path(values["ssl.keystore.location"])
            if _store_type(values, "ssl.keystore.type", location) == "PEM":
                chain.write_text(location.read_text())
            else:
                store_password = values.get("ssl.keystore.password", "")
                chain.write_bytes(_keystore_pem(location, store_password, key_password))
                key_password = None
        else:
            return
        context.load_cert_chain(chain, password=key_password or None)


def _keystore_pem(location: Path, store_password: str, key_password: str | None) -> bytes:
    with tempfile.TemporaryDirectory(prefix="heliograph-tls-") as folder:
        converted = Path(folder, "key.p12")
        _keytool(
            *("-importkeystore", "-noprompt", "-srckeystore", str(location)),
            *("-destkeystore", str(converted), "-deststoretype", "PKCS12"),
            *("-deststorepass:env", "HELIOGRAPH_STOREPASS"),
            password=store_password,
            flag="-srcstorepass",
        )
        key, cert, others = pkcs12.load_key_and_certificates(
            converted.read_bytes(), (key_password or store_password).encode()
        )
    if key is None or cert is None:
        raise ValueError(f"{location} holds no private key with a certificate")
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    for certificate in (cert, *others):
        pem += certificate.public_bytes(serialization.Encoding.PEM)
    return pem


def _keytool(*args: str, password: str, flag: str = "-storepass") -> str:
    # The password goes through the environment: arguments are visible to every user of the machine.
    environment = {**os.environ, "HELIOGRAPH_STOREPASS": password}
    try:
        done = subprocess.run(  # noqa: S603
            ["keytool", *args, f"{flag}:env", "HELIOGRAPH_STOREPASS"],  # noqa: S607
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise ValueError(
            "JKS and PKCS12 stores need Java's keytool on the PATH; or use ssl.*.type=PEM"
        ) from None
    if done.returncode:
        raise ValueError((done.stdout or done.stderr).strip().splitlines()[0])
    return done.stdout


def _sasl_config(mechanism: str, protocol: str, values: Mapping[str, str]) -> dict[str, Any]:
    config: dict[str, Any] = {"sasl_mechanism": mechanism, "security_protocol": protocol}
    jaas = parse_jaas(values.get("sasl.jaas.config", ""))
    if mechanism == "OAUTHBEARER":
        config["sasl_oauth_token_provider"] = _ClientCredentials(values, jaas.options)
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


class _ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]
    """OAuth client-credentials grant, or Kafka's unsecured tokens if the JAAS options ask so."""

    def __init__(self, values: Mapping[str, str], options: Mapping[str, str]) -> None:
        super().__init__()
        self._url = values.get("sasl.oauthbearer.token.endpoint.url", "")
        self._options = options
        self._token = ""
        self._renew_at = self._expires_at = 0.0

    def token(self) -> str:
        if time.monotonic() >= self._renew_at:
            if self._url:
                try:
                    self._fetch()
                except AuthenticationFailed:
                    # Renewed early, so that the old one outlives a short absence of the endpoint.
                    if time.monotonic() >= self._expires_at:
                        raise
                    again = time.monotonic() + _TOKEN_PAUSE_SECONDS
                    self._renew_at = min(again, self._expires_at)
            else:
                self._token = _unsecured_token(self._options)
                self._renew_at = time.monotonic() + 300
        return self._token

    def extensions(self) -> dict[str, str]:
        return {}

    def _fetch(self) -> None:
        if urllib.parse.urlsplit(self._url).scheme not in {"https", "http"}:
            # CVE-2025-27817: a file: URL here would read local files.
            raise AuthenticationFailed("sasl.oauthbearer.token.endpoint.url must be http(s)")
        body = urllib.parse.urlencode({
            "grant_type": "client_credentials",
            "client_id": self._options.get("clientId", ""),
            "client_secret": self._options.get("clientSecret", ""),
            **({"scope": self._options["scope"]} if "scope" in self._options else {}),
        }).encode()  # fmt: skip
        try:
            opener = urllib.request.build_opener(_NoRedirect)
            with opener.open(self._url, body, _TOKEN_SECONDS) as answer:
                content = json.load(answer)
            self._token = content["access_token"]
        except (OSError, ValueError, KeyError) as error:
            raise AuthenticationFailed(f"no token from {self._url}: {error}") from error
        # Renew at 80 % of its life, as the Java client does.
        now, life = time.monotonic(), float(content.get("expires_in", 300))
        self._renew_at, self._expires_at = now + 0.8 * life, now + life


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        raise AuthenticationFailed("the token endpoint redirects; name the final URL")


def _unsecured_token(options: Mapping[str, str]) -> str:
    """The ``alg: none`` token of Kafka's OAuthBearerUnsecuredLoginCallbackHandler."""

    def part(value: Mapping[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    subject = options.get("unsecuredLoginStringClaim_sub")
    if not subject:
        raise AuthenticationFailed(
            "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url (with clientId and clientSecret"
            " in sasl.jaas.config) or unsecuredLoginStringClaim_sub"
        )
    now = time.time()
    return f"{part({'alg': 'none'})}.{part({'sub': subject, 'iat': now, 'exp': now + 3600})}."
