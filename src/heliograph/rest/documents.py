"""The OpenAPI document as a page: no script, nothing from elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment

__all__ = ["page_of"]

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ document.info.title }} REST API</title>
<style>
body { font: 15px/1.5 sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em }
table { border-collapse: collapse; width: 100% }
td, th { border-bottom: 1px solid #ccc; padding: .3em .6em; text-align: left; vertical-align: top }
code { font-family: monospace }
</style></head><body>
<h1>{{ document.info.title }} {{ document.info.version }}</h1>
<p>{{ document.info.description }} The document itself: <a href="openapi.json">openapi.json</a>.</p>
{% for tag, rows in groups.items() %}<h2>{{ tag }}</h2>
<table><tr><th>request</th><th>what it does</th><th>query</th><th>role</th><th>answers</th></tr>
{% for row in rows %}<tr><td><code>{{ row.method }} {{ row.path }}</code></td>
<td>{{ row.summary }}</td>
<td>{% for name, text in row.query %}<code>{{ name }}</code>: {{ text }}<br>{% endfor %}</td>
<td>{{ row.role }}</td><td>{{ row.answers }}</td></tr>
{% endfor %}</table>
{% endfor %}</body></html>
"""


def page_of(document: Mapping[str, Any]) -> bytes:
    """All routes in tables."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append({
                "method": method.upper(),
                "path": path,
                "summary": operation["summary"],
                "role": operation["x-role"],
                "query": [
                    (p["name"], p["description"])
                    for p in operation.get("parameters", ()) if p["in"] == "query"
                ],
                "answers": ", ".join(s for s in operation["responses"] if s != "default"),
            })  # fmt: skip
    template = Environment(autoescape=True).from_string(_PAGE)
    return template.render(document=document, groups=groups).encode()
