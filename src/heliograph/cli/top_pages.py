"""What ``heliograph top`` asks for: flows, then their topics, then partitions; a page at a time.

Topics and partitions are sorted, filtered and cut by whoever answers (`Watched.get`): there may be
10,000 of them. Pure, but for asking.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from heliograph.cli.read_back import flow_of
from heliograph.cli.reporting import worst_first
from heliograph.errors import ConfigError
from heliograph.model import PartitionState
from heliograph.shown import shown

__all__ = ["SORTS", "Ask", "Level", "Page", "Place", "fetch"]


class Level(StrEnum):
    """What the rows are; also the name under which the REST API answers them."""

    FLOWS = "flows"
    TOPICS = "topics"
    PARTITIONS = "partitions"


def _most_first(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda plain: -1 * (-1 if plain[name] is None else plain[name])


_FLOW_KEYS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "state": lambda plain: worst_first(flow_of(plain)),
    "lag": _most_first("lag_records"),
    "age": _most_first("lag_seconds"),
    "rate": _most_first("records_per_second"),
    "name": lambda plain: plain["flow"],
}
_TOPIC_KEYS = {"lag": "-lag", "age": "-seconds", "trouble": "-troubled", "name": "name"}
_PARTITION_KEYS = {
    "state": "-state", "lag": "-lag", "age": "-seconds", "since": "since", "name": "name",
}  # fmt: skip
#: What rows can be sorted by, the default first. The worst, the greatest, the oldest come first.
SORTS = {
    Level.FLOWS: tuple(_FLOW_KEYS),
    Level.TOPICS: tuple(_TOPIC_KEYS),
    Level.PARTITIONS: tuple(_PARTITION_KEYS),
}


class Place(NamedTuple):
    """Where one looks: all flows; topics of a flow; partitions of a flow, or of one topic."""

    level: Level = Level.FLOWS
    flow: str = ""
    topic: str = ""


class Ask(NamedTuple):
    """A page: ``limit`` rows from ``offset`` on, of those that fit ``text``."""

    place: Place
    sort: str
    backwards: bool = False
    text: str = ""
    offset: int = 0
    limit: int = 100


class Page(NamedTuple):
    """The rows that were asked for, as the REST API tells them; ``total`` fit."""

    ask: Ask
    total: int
    rows: list[dict[str, Any]]


def fetch(get: Callable[..., Any], ask: Ask) -> Page:
    """Ask for a page; ``get`` is that of `Watched`. Raises HeliographError."""
    place = ask.place
    if place.level is Level.FLOWS:
        wanted = ask.text.lower()
        rows = [plain for plain in get("/flows") if wanted in plain["flow"].lower()]
        rows.sort(key=_FLOW_KEYS[ask.sort], reverse=ask.backwards)
        return Page(ask, len(rows), rows[ask.offset : ask.offset + ask.limit])
    cut = {"offset": ask.offset, "limit": ask.limit}
    if place.level is Level.TOPICS:
        sort = _order(_TOPIC_KEYS[ask.sort], ask)
        answer = get("/topics", flow=place.flow, topic=_pattern(ask.text), sort=sort, **cut)
    else:
        sort = _order(_PARTITION_KEYS[ask.sort], ask)
        answer = get(f"/flows/{place.flow}/partitions", sort=sort, **_chosen(ask), **cut)
    return Page(ask, answer["total"], answer[place.level])


def _order(key: str, ask: Ask) -> str:
    if not ask.backwards:
        return key
    return key.removeprefix("-") if key.startswith("-") else f"-{key}"


def _pattern(text: str) -> str:
    return text if not text or "*" in text else f"*{text}*"


def _chosen(ask: Ask) -> dict[str, str]:
    """Partitions are found by state, or by topic unless that is chosen already."""
    topic, text = ask.place.topic, ask.text
    if not text:
        return {"topic": topic}
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    states = {s.value for s in PartitionState for word in words if s.value.startswith(word)}
    if words and all(any(s.startswith(word) for s in states) for word in words):
        return {"topic": topic, "state": ",".join(sorted(states))}
    if not topic:
        return {"topic": _pattern(text)}
    known = ", ".join(PartitionState)
    raise ConfigError("top.filter", f"no state begins with {shown(text)}", f"states are {known}")
