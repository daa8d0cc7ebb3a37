"""Reports as HTML pages that need nothing else: no script, no other file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from jinja2 import Environment, PackageLoader

from heliograph.shown import shown_lines

__all__ = ["page", "private_file"]


def page(template: str, **values: Any) -> str:
    """A template of ``templates/`` filled in. Whatever others named is escaped."""
    pages = Environment(
        loader=PackageLoader("heliograph", "templates"),
        autoescape=True,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters["count"] = "{:,}".format
    mega: Callable[[int], str] = lambda size: f"{size / 1e6:,.1f}"  # noqa: E731 - a filter
    pages.filters["mb"] = mega
    return pages.get_template(template).render(**values)


def _shown(value: object) -> object:
    """Text of others without what turns or hides text; markup of ours as it is."""
    foreign = isinstance(value, str) and not hasattr(value, "__html__")
    return shown_lines(str(value)) if foreign else value


def private_file(path: Path) -> TextIO:
    """A file for records of others: only this user reads it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "w", encoding="utf-8")
