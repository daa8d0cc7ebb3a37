"""Tokens for SASL OAUTHBEARER. Runs wherever a socket is opened.

A token endpoint may be somebody else's: it gets a short time in all and a small answer, and it is
asked in a thread of its own. Only a caller without a token that counts waits for it, and only until
it has failed once: after that, callers get the error at once while it is asked again.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

from heliograph.wire.errors import AuthenticationFailed

__all__ = ["ClientCredentials"]

#: How long an endpoint has to answer, and how long after a failure it is asked again while the
#: token that there is counts.
_TOKEN_SECONDS, _TOKEN_PAUSE_SECONDS = 10.0, 30.0
#: How long a caller waits for an endpoint that has failed: long enough for one that is back.
_AFTER_FAILURE_SECONDS = 0.5
#: A token has a few kilobytes.
_MOST_BYTES = 256 << 10
_LEAST_LIFE_SECONDS, _MOST_LIFE_SECONDS = 1.0, 7 * 86400.0
_DEFAULT_LIFE_SECONDS = 300.0
#: What an endpoint that does not answer as it should may cause here.
_NO_TOKEN = (
    OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError,
    http.client.HTTPException,
)  # fmt: skip


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]
    """OAuth client-credentials grant, or Kafka's unsecured tokens if the JAAS options ask so."""

    def __init__(self, values: Mapping[str, str], options: Mapping[str, str]) -> None:
        super().__init__()
        self._url = values.get("sasl.oauthbearer.token.endpoint.url", "")
        self._options = options
        self._token = ""
        self._renew_at = self._expires_at = 0.0
        self._lock = threading.Lock()
        #: Set when the endpoint that is being asked has answered, or failed.
        self._asked: threading.Event | None = None
        self._failure: AuthenticationFailed | None = None

    def token(self) -> str:
        """A token that counts; raises AuthenticationFailed.

        Waits only if there is none.
        """
        if not self._url:
            if time.monotonic() >= self._renew_at:
                self._token = _unsecured_token(self._options)
                self._renew_at = time.monotonic() + 300
            return self._token
        failed = self._failure is not None
        asked = self._ask()
        if time.monotonic() < self._expires_at:
            return self._token
        if asked is not None:
            asked.wait(_AFTER_FAILURE_SECONDS if failed else _TOKEN_SECONDS + 1)
        if time.monotonic() < self._expires_at:
            return self._token
        raise self._failure or AuthenticationFailed(
            f"no token from {shown_url(self._url)}: it has not answered yet"
        )

    def is_ready(self) -> bool:
        """Whether `token` does not wait, and there is no newer one to wait for; never waits."""
        if not self._url or time.monotonic() < self._renew_at:
            return True
        return self._ask() is None and time.monotonic() < self._expires_at

    def _ask(self) -> threading.Event | None:
        """Ask the endpoint if it is time; returns what is set when it has answered or failed."""
        with self._lock:
            if self._asked is None and time.monotonic() >= self._renew_at:
                self._asked = threading.Event()
                threading.Thread(
                    target=self._renew, args=(self._asked,), name="token", daemon=True
                ).start()
            return self._asked

    def _renew(self, asked: threading.Event) -> None:
        failure = None
        try:
            self._fetch()
        except AuthenticationFailed as error:
            failure = error
        now = time.monotonic()
        with self._lock:
            self._failure, self._asked = failure, None
            if failure is not None and now < self._expires_at:
                # Renewed early, so that the old one outlives a short absence of the endpoint.
                self._renew_at = min(now + _TOKEN_PAUSE_SECONDS, self._expires_at)
        asked.set()

    def extensions(self) -> dict[str, str]:
        """None."""
        return {}

    def _fetch(self) -> None:
        url = urllib.parse.urlsplit(self._url)
        shown = shown_url(self._url)
        if url.scheme not in {"https", "http"} or not url.hostname:
            # CVE-2025-27817: a file: URL here would read local files.
            raise AuthenticationFailed("sasl.oauthbearer.token.endpoint.url must be http(s)")
        body = urllib.parse.urlencode({
            "grant_type": "client_credentials",
            "client_id": self._options.get("clientId", ""),
            "client_secret": self._options.get("clientSecret", ""),
            **({"scope": self._options["scope"]} if "scope" in self._options else {}),
        }).encode()  # fmt: skip
        try:
            content = json.loads(_post(url, body))
            token = content["access_token"]
            life = float(content.get("expires_in", _DEFAULT_LIFE_SECONDS))
        except _NO_TOKEN as error:
            raise AuthenticationFailed(f"no token from {shown}: {_reason(error)}") from error
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise AuthenticationFailed(f"no token from {shown}: access_token is no token")
        # Renew at 80 % of its life, as the Java client does.
        now = time.monotonic()
        life = min(max(life, _LEAST_LIFE_SECONDS), _MOST_LIFE_SECONDS)
        self._token = token
        self._renew_at, self._expires_at = now + 0.8 * life, now + life


def shown_url(text: str) -> str:
    """A URL without what may be a secret in it: user, password and query."""
    url = urllib.parse.urlsplit(text)
    host = url.hostname or ""
    host = f"[{host}]" if ":" in host else host
    with suppress(ValueError):
        host += f":{url.port}" if url.port else ""
    return urllib.parse.urlunsplit((url.scheme, host, url.path, "..." if url.query else "", ""))


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"its answer has no {error}"
    if isinstance(error, TimeoutError):
        return f"it took longer than {_TOKEN_SECONDS:.0f} s"
    return str(error) or type(error).__name__


def _post(url: urllib.parse.SplitResult, body: bytes) -> bytes:
    """The answer of a token endpoint, which has so much time in all, however it spends that."""
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=_TOKEN_SECONDS)
    found: list[bytes | Exception] = []

    def talk() -> None:
        try:
            found.append(_exchange(connection, url, body))
        except Exception as error:  # noqa: BLE001 - raised again below
            found.append(error)

    # A socket's timeout is that of one read: somebody who sends a byte now and then outlasts it.
    thread = threading.Thread(target=talk, daemon=True, name="token")
    thread.start()
    thread.join(_TOKEN_SECONDS)
    if not found:
        # It closes its socket as soon as it notices.
        with suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)
        raise TimeoutError
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _exchange(
    connection: http.client.HTTPConnection, url: urllib.parse.SplitResult, body: bytes
) -> bytes:
    path = urllib.parse.urlunsplit(("", "", url.path or "/", url.query, ""))
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    try:
        connection.request("POST", path, body, headers)
        content = bytearray()
        with connection.getresponse() as answer:
            while part := answer.read1(64 << 10):
                content += part
                if len(content) > _MOST_BYTES:
                    raise ValueError(f"its answer has more than {_MOST_BYTES} bytes")
    finally:
        connection.close()
    if 300 <= answer.status < 400:
        raise ValueError("the token endpoint redirects; name the final URL")
    if answer.status != 200:
        raise ValueError(f"HTTP {answer.status}")
    return bytes(content)


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
