"""``heliograph health``: the probe of a container, and of scripts. Imports next to nothing."""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import closing
from urllib.parse import urlsplit

import click

from heliograph.errors import HeliographError
from heliograph.shown import shown

#: A probe that waits longer is no answer.
_SECONDS = 10.0
_MOST_BYTES = 1 << 20


@click.command()
@click.argument("url", default="http://127.0.0.1:8083")
@click.option(
    "--ready",
    is_flag=True,
    help="Ask whether all flows do their work, not only whether the mirror moves.",
)
def health_command(url: str, ready: bool) -> None:
    """Ask the mirror at URL whether it is alive; exit with 0 if it is, else with 1.

    Needs no credentials and sends none, so the certificate of an https URL is not checked.
    """
    path = "/health/ready" if ready else "/health/live"
    status, answer = _asked(url, path)
    click.echo(answer)
    if status != http.HTTPStatus.OK:
        raise SystemExit(1)


def _asked(url: str, path: str) -> tuple[int, str]:
    """The status, and the answer in a line."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        # ValueError: a port that is none.
        host, port = parts.hostname or "", parts.port
        connection = (
            http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=_unchecked())
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=_SECONDS)
        )
        with closing(connection):
            connection.request("GET", path, headers={"Accept": "application/json"})
            response = connection.getresponse()
            body = response.read(_MOST_BYTES).decode(errors="replace")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Unreachable(
            "health.unreachable", f"no mirror answers at {shown(url)}: {shown(error)}",
            "run --listen HOST:PORT serves it; see docs/running-as-a-service.md",
        ) from None  # fmt: skip
    return response.status, _line(body)


def _line(body: str) -> str:
    try:
        return shown(json.dumps(json.loads(body), ensure_ascii=False))
    except ValueError:
        return shown(body)


def _unchecked() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Unreachable(HeliographError):
    """Nobody answers."""

    exit_code = 1
