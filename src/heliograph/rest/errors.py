"""Answers that are no success: Connect's shape, whatever went wrong. Runs in the REST server.

    {"error_code": 404, "message": "Connector C not found"}

FastAPI's and Starlette's own bodies are never sent. Texts are those of a real worker, which are
Jersey's, Jackson's and Java's; tests/compat compares them.
"""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from heliograph.connect.api import ConnectError
from heliograph.errors import HeliographError, WireError
from heliograph.shown import shown

__all__ = ["JSON", "as_json", "error_of", "failure", "plain_error"]

log = logging.getLogger(__name__)

JSON = "application/json"


def as_json(value: Any) -> bytes:
    """Compact JSON in UTF-8, as Jackson writes it."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # Half of a pair of surrogates, from a topic that somebody else wrote.
        return json.dumps(value, separators=(",", ":")).encode()


def failure(status: int, message: str | None, headers: dict[str, str] | None = None) -> Response:
    """An answer with Connect's error body."""
    body = as_json({"error_code": status, "message": message})
    return Response(body, status, headers, JSON)


def plain_error(status: int) -> ConnectError:
    """What Jersey says if nobody says more: ``HTTP 404 Not Found``."""
    return ConnectError(status, f"HTTP {status} {HTTPStatus(status).phrase}")


def error_of(error: Exception, what: str) -> ConnectError:
    """The answer to whatever a handler raised; ``what`` was asked, for the log.

    Errors of ours are written for people and hold no secret. Of others nothing is shown.
    """
    if isinstance(error, ConnectError):
        return error
    if isinstance(error, (HeliographError, WireError)):
        return ConnectError(500, str(error))
    log.error("%s: %s", shown(what), type(error).__name__, exc_info=error)
    return ConnectError(500, "An error inside Heliograph; its log says more")
