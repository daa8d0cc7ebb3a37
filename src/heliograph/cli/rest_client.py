"""Asks the REST API of a mirror that runs somewhere. Used by commands.

Standard library only: a command that asks one question should not import a server's modules.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import ssl
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import click

from heliograph.cli.flows import Command
from heliograph.errors import ConfigError, HeliographError, StartError
from heliograph.shown import shown

__all__ = ["Login", "RestClient", "login_options", "url_of"]

V1 = "/heliograph/v1"
#: A server that does not answer by then is as good as none.
_SECONDS = 15.0
#: Whoever follows events gets a sign of life every 15 s.
_STREAM_SECONDS = 60.0
_LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Login:
    """What to show to a server, and which servers to trust; passwords and tokens are not printed.

    ``header`` is the value of the header Authorization.
    """

    header: str = ""
    cacert: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def __repr__(self) -> str:
        return "Login(...)"

    def context(self) -> ssl.SSLContext:
        """TLS as these options say; raises ConfigError."""
        try:
            made = ssl.create_default_context(cafile=self.cacert)
            if self.cert is not None:
                made.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            what = self.cacert if self.cert is None else f"{self.cacert or ''} {self.cert}".strip()
            raise ConfigError(
                "rest.certificate", f"{what}: {error}", "check --cacert, --cert and --key"
            ) from error
        return made


def login_options(command: Command) -> Command:
    """How commands log in; they take ``login``, a `Login`."""

    @wraps(command)
    def with_login(
        user: str | None,
        password_stdin: bool,
        token_file: Path | None,
        cacert: Path | None,
        cert: Path | None,
        key: Path | None,
        **others: Any,
    ) -> Any:
        header = _header(user, token_file, password_stdin=password_stdin)
        return command(login=Login(header, cacert, cert, key), **others)

    path = click.Path(path_type=Path)
    for option in (
        click.option("--key", type=path, help="Its private key, if that is in another file."),
        click.option("--cert", type=path, help="Certificate to show, as PEM."),
        click.option("--cacert", type=path, envvar="HELIOGRAPH_CACERT", show_envvar=True,
                     help="Whose certificates to trust, as PEM."),
        click.option("--token-file", type=path, envvar="HELIOGRAPH_TOKEN_FILE", show_envvar=True,
                     help="Log in with the token in this file."),
        click.option("--password-stdin", is_flag=True,
                     help="Read the password from the input's first line."),
        click.option("--user", metavar="NAME", envvar="HELIOGRAPH_USER", show_envvar=True,
                     help="Log in as this user; asks for the password, unless HELIOGRAPH_PASSWORD"
                     " holds it."),
    ):  # fmt: skip
        option(with_login)
    return with_login


def _header(user: str | None, token_file: Path | None, *, password_stdin: bool) -> str:
    if user is not None and token_file is not None:
        raise click.UsageError("--user and --token-file exclude each other")
    if token_file is not None:
        return f"Bearer {_token(token_file)}"
    if user is None:
        if password_stdin:
            raise click.UsageError("--password-stdin needs --user")
        return ""
    password = os.environ.get("HELIOGRAPH_PASSWORD", "")
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif not password:
        password = click.prompt(f"Password of {shown(user)}", hide_input=True, err=True)
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigError("rest.token", f"{path}: {error}") from error
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigError("rest.token", f"{path} has no token", "one line: heliograph rest token")
    return token


def url_of(text: str) -> str | None:
    """The address that an argument is, or None if it names a file.

    ``host:port`` is one, too, unless there is such a file.
    """
    if text.startswith(("http://", "https://")):
        return text
    if re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\\]+):\d{1,5}", text) and not Path(text).exists():
        return f"http://{text}"
    return None


class RestClient:
    """A server's API. One thread at a time; every call connects anew."""

    def __init__(self, url: str, login: Login, *, told: bool = True) -> None:
        """``told``: a person named this address. Others get no password without TLS."""
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        try:
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise ConfigError("rest.url", f"{shown(url)} is no address: {error}") from error
        if parts.scheme not in {"http", "https"} or not self._host or parts.username is not None:
            raise ConfigError(
                "rest.url", f"{shown(url)} is no address", "write it as http://host:port, and log"
                " in with --user or --token-file"
            )  # fmt: skip
        self._base = parts.path
        self._login = login
        self._context = login.context() if parts.scheme == "https" else None
        private = self._context is not None or self._host in _LOCAL
        self._header = login.header if told or private else ""

    def get(self, path: str, **query: object) -> Any:
        """The JSON answer of one of our routes; raises StartError or HeliographError."""
        return self._json("GET", path, query)

    def post(self, path: str, **query: object) -> Any:
        """The same for a command."""
        return self._json("POST", path, query)

    def stream(self, path: str, **query: object) -> Iterator[tuple[str, Any]]:
        """Server-sent events, as (name, data), until the server ends the answer."""
        connection = self._connected(_STREAM_SECONDS)
        try:
            answer = self._ask(connection, "GET", path, query, "text/event-stream")
            name = ""
            while line := self._line(answer):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                if text.startswith("event: "):
                    name = text.removeprefix("event: ")
                elif text.startswith("data: "):
                    yield name, json.loads(text.removeprefix("data: "))
        finally:
            connection.close()

    def _json(self, method: str, path: str, query: Mapping[str, object]) -> Any:
        connection = self._connected(_SECONDS)
        try:
            answer = self._ask(connection, method, path, query, "application/json")
            try:
                return json.loads(answer.read())
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise self._unreachable(error) from error
        finally:
            connection.close()

    def _connected(self, seconds: float) -> http.client.HTTPConnection:
        if self._context is not None:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=seconds, context=self._context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=seconds)

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        query: Mapping[str, object],
        accept: str,
    ) -> http.client.HTTPResponse:
        given = {name: value for name, value in query.items() if value not in {None, ""}}
        where = f"{self._base}{V1}{quote(path)}{'?' if given else ''}{urlencode(given, doseq=True)}"
        headers = {"Accept": accept}
        if self._header:
            headers["Authorization"] = self._header
        try:
            connection.request(method, where, headers=headers)
            answer = connection.getresponse()
            if answer.status >= 300:
                raise self._refusal(answer.status, answer.read())
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        return answer

    def _line(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            return answer.readline()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> StartError:
        what = str(error) or type(error).__name__
        hint = "check that a mirror runs there with 'heliograph run --listen HOST:PORT'"
        if isinstance(error, ssl.SSLError):
            hint = "check that the server speaks TLS, and --cacert"
        return StartError("rest.unreachable", f"{self.url} does not answer: {what}", hint)

    def _refusal(self, status: int, body: bytes) -> HeliographError:
        try:
            said = json.loads(body)["message"]
        except (ValueError, KeyError, TypeError):
            said = body.decode("utf-8", "replace").strip()
        text = f"{self.url}: {shown(said) or status}"
        if status == http.client.UNAUTHORIZED:
            return StartError("rest.login", text, "log in with --user or --token-file")
        if status == http.client.NOT_FOUND and "not found" not in str(said).lower():
            return StartError("rest.other", f"{text}: it is no Heliograph")
        if status == http.client.FORBIDDEN:
            return HeliographError("rest.forbidden", text)
        return HeliographError("rest.refused", text)
