"""The dashboard's own files, for anybody: they hold nothing of the mirror. In the REST server.

All files of the package's folder ``dashboard`` are read once. Each is a route, so no path of a
request ever names a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from heliograph.rest.routing import Answer, Call, Handler, Route

__all__ = ["HOME", "dashboard_routes"]

#: The page, as seen from ``/``.
HOME = "dashboard/"
_INDEX = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
}
#: Nothing inline, nothing from elsewhere, no text that becomes markup.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Kept by browsers, and asked about each time: an update shows at once.
    "Cache-Control": "no-cache",
}


class _File(NamedTuple):
    path: str
    kind: str
    content: bytes


def dashboard_routes(folder: Traversable | None = None) -> list[Route]:
    """A route for each file of ``folder``, by default the package's; none if it has no index."""
    found = list(_files(folder or files("heliograph.rest") / "dashboard"))
    if all(file.path != _INDEX for file in found):
        return []
    routes = [_route(f"/{HOME}{file.path}", file, _serving(file)) for file in found]
    index = next(file for file in found if file.path == _INDEX)
    return [_route(f"/{HOME}".rstrip("/"), index, _serving_index(index)), *routes]


def _files(folder: Traversable, prefix: str = "") -> Iterator[_File]:
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif (kind := _TYPES.get("." + entry.name.rpartition(".")[2])) is not None:
            yield _File(prefix + entry.name, kind, entry.read_bytes())


def _route(path: str, file: _File, handler: Handler) -> Route:
    return Route(
        method="GET", path=path, role=None, consumes=False, handler=handler, produces=file.kind,
        summary="The dashboard", tag="heliograph", shared=False, listed=False,
    )  # fmt: skip


def _serving(file: _File) -> Handler:
    tag = f'"{hashlib.sha256(file.content).hexdigest()[:32]}"'
    headers = {**_HEADERS, "ETag": tag}

    def serve(call: Call) -> Answer:
        known = call.headers.get("if-none-match", "")
        if tag in (item.strip().removeprefix("W/") for item in known.split(",")):
            return Answer.empty(304, headers)
        return Answer(file.content, headers=headers)

    return serve


def _serving_index(file: _File) -> Handler:
    serve = _serving(file)

    def serve_index(call: Call) -> Answer:
        # Without the slash, what the page asks for by relative names would be looked for in /.
        return serve(call) if call.slash else Answer.empty(307, {"Location": HOME})

    return serve_index
