"""Filters, order and pages of lists, as queries ask for them. Pure.

Lists are cut here, in the server: a snapshot of 10,000 partitions is quickly made, its JSON is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import translate
from re import compile as compiled
from typing import Any, TypeVar

from heliograph.connect.api import ConnectError
from heliograph.rest.routing import Call

__all__ = ["MOST", "PAGE", "fitting", "integer_of", "known_first", "limit_of", "listed", "page_of"]

PAGE, MOST = 100, 1000
#: Nobody needs more wildcards; each costs time.
_MOST_WILDCARDS = 8

Item = TypeVar("Item")


def page_of(
    call: Call, rows: Sequence[Item], keys: dict[str, Callable[[Item], Any]]
) -> Callable[[str, Callable[[Item], Any]], dict[str, Any]]:
    """Sorted, and cut; returns what makes the answer of it. Only what is returned is converted."""
    wanted = call.text("sort") or ""
    backwards, name = wanted.startswith("-"), wanted.removeprefix("-")
    if name and name not in keys:
        raise ConnectError(400, f"sort: {wanted!r} is none of {', '.join(keys)}")
    offset, limit = integer_of(call, "offset", 0), limit_of(call)
    if name:
        rows = sorted(rows, key=keys[name], reverse=backwards)
    found = rows[offset : offset + limit]
    head = {"total": len(rows), "offset": offset, "limit": limit}
    return lambda title, plain: {**head, title: [plain(row) for row in found]}


def known_first(figure: float | None) -> float:
    """Unknown counts as less than nothing, so that it comes last with the greatest first."""
    return -1.0 if figure is None else figure


def limit_of(call: Call) -> int:
    """How many are asked for."""
    return min(MOST, integer_of(call, "limit", PAGE))


def integer_of(call: Call, name: str, default: int) -> int:
    """A number of the query; raises 400."""
    text = call.text(name)
    if text is None or not text:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise ConnectError(400, f"{name}: {text!r} is no number")
    return int(text)


def listed(call: Call, name: str) -> list[str]:
    """A list of the query, comma separated or given several times."""
    texts = ",".join(call.query.get(name, ())).split(",")
    return list(dict.fromkeys(text.strip() for text in texts if text.strip()))


def fitting(call: Call, parameter: str, *, anywhere: bool = False) -> Callable[[str], bool] | None:
    """Whether a name is the one that was asked for, in which * stands for anything; None: any is.

    With ``anywhere``, a text without * may stand anywhere in the name.
    """
    text = call.text(parameter)
    if not text and (text is None or anywhere):
        return None
    if "*" not in text:
        return (lambda name: text in name) if anywhere else (lambda name: name == text)
    if text.count("*") > _MOST_WILDCARDS:
        raise ConnectError(400, f"{parameter}: at most {_MOST_WILDCARDS} wildcards")
    # ? and [ are characters like others.
    pattern = compiled(translate(text.replace("[", "[[]").replace("?", "[?]")))
    return lambda name: pattern.match(name) is not None
