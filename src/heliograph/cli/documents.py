"""JSON and YAML of the same structure, for ``-o``. Used by commands."""

from __future__ import annotations

import json
from typing import Any

import click
import yaml

__all__ = ["echo_document"]


def echo_document(value: Any, form: str, *, lines: bool = False) -> None:
    """Print a document; with ``lines`` as one of many: a line of JSON, or a YAML document."""
    if form == "json":
        click.echo(json.dumps(value, indent=None if lines else 2))
        return
    head = "---\n" if lines else ""
    # ASCII only, so that nothing in it can move a terminal's cursor; JSON is ASCII anyway.
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=False, width=100)
    click.echo(head + text, nl=False)
