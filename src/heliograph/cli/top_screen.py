"""Draws ``heliograph top``: a table of flows, topics or partitions, and what is chosen.

Pure, but for the clock.

All names and reasons are other people's text: they are shown, never obeyed (`heliograph.shown`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from heliograph.cli.read_back import flow_of, partition_of, topic_of
from heliograph.cli.reporting import BAD_STATES, age, colour, details, lag_of, risks, roll_up
from heliograph.cli.top_pages import Level, Page, Place
from heliograph.cli.top_view import View
from heliograph.service.at_risk import recovery_words, risk_words
from heliograph.shown import shown
from heliograph.units import amount, latency

__all__ = ["OTHER_LINES", "grid", "screen"]

#: Lines that are no rows: two above the table, its head, what is chosen, keys.
_CHOSEN_LINES = 5
OTHER_LINES = 2 + 2 + _CHOSEN_LINES + 1
#: From this width on there is room for more columns.
_WIDE = 110
_KEYS = "q quit  enter open  p partitions  esc back  / filter  s sort  r reverse  + - speed"
_MORE_KEYS = "enter: take this filter   esc: leave it as it was"


class _Column(NamedTuple):
    name: str
    right: bool = False
    wide: bool = False


_COLUMNS = {
    Level.FLOWS: (
        _Column("flow"), _Column("state"), _Column("lag", right=True), _Column("age", right=True),
        _Column("records/s", right=True), _Column("bytes/s", right=True),
        _Column("latency", right=True, wide=True), _Column("topics", right=True, wide=True),
        _Column("partitions", right=True, wide=True),
    ),
    Level.TOPICS: (
        _Column("topic"), _Column("on the target", wide=True), _Column("partitions", right=True),
        _Column("lag", right=True), _Column("age", right=True), _Column("trouble", right=True),
    ),
    Level.PARTITIONS: (
        _Column("partition"), _Column("state"), _Column("lag", right=True),
        _Column("age", right=True), _Column("since", wide=True), _Column("reason", wide=True),
    ),
}  # fmt: skip


def screen(
    view: View, page: Page | None, where: str, told: str, size: tuple[int, int]
) -> RenderableType:
    """The whole terminal: ``told`` is what went wrong with the last look, if anything did."""
    width, _ = size
    shown_page = page if page is not None and page.ask.place == view.place else None
    lines: list[RenderableType] = [_line(where, "bold"), _line(_path(view, shown_page))]
    at = view.selected(shown_page)
    if shown_page is None:
        lines.append(_line("..."))
    else:
        lines.append(grid(shown_page, width, at))
    rows = len(shown_page.rows) if shown_page is not None else 0
    lines += [Text("")] * (view.height - rows + (0 if shown_page is not None else 1))
    lines += _below(shown_page, at, told, width)
    if view.typing is not None:
        lines.append(_line(f"filter: {view.typing}_   {_MORE_KEYS}", "bold"))
    else:
        lines.append(_line(_KEYS, "dim"))
    return Group(*lines)


def _line(text: str, style: str = "") -> Text:
    return Text(shown(text), style, no_wrap=True, overflow="ellipsis")


def _path(view: View, page: Page | None) -> str:
    """Where one is, how many there are, in which order."""
    ask, place = view.ask(), view.place
    way = " > ".join(filter(None, ("all flows", place.flow, place.topic or _all_of(place))))
    seen = str(place.level)
    if page is not None:
        seen = f"{page.total:,} {seen if page.total != 1 else seen.removesuffix('s')}"
    if page is not None and page.total > len(page.rows):
        seen += f" ({page.ask.offset + 1:,} to {page.ask.offset + len(page.rows):,})"
    order = f"by {ask.sort}{', reversed' if ask.backwards else ''}"
    text = f"   filter: {ask.text}" if ask.text else ""
    return f"{way}   {seen}, {order}, every {view.interval:g} s{text}"


def _all_of(place: Place) -> str:
    return "all partitions" if place.level is Level.PARTITIONS else ""


def _below(page: Page | None, at: int | None, told: str, width: int) -> list[RenderableType]:
    """What is to be known of the chosen row, or what is wrong with looking; in whole sentences."""
    texts = told.split("\n") if told else []
    if not texts and page is not None and at is not None:
        texts = _more_of(page.ask.place.level, page.rows[at])
    lines = [line for text in texts for line in wrap(shown(text), width, break_on_hyphens=False)]
    made: list[RenderableType] = [
        _line(line, "red" if told else "") for line in lines[:_CHOSEN_LINES]
    ]
    return made + [Text("")] * (_CHOSEN_LINES - len(made))


# -- rows -----------------------------------------------------------------------------------------


def grid(page: Page, width: int, at: int | None = None) -> Table:
    """One row a line; the chosen one is marked."""
    level = page.ask.place.level
    columns = _COLUMNS[level]
    wide, live = width >= _WIDE, at is not None
    # The last column if it is a text, else the first one.
    stretched = columns[-1] if wide and not columns[-1].right else columns[0]
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, expand=live)
    for column in columns:
        if wide or not column.wide:
            made.add_column(
                column.name, justify="right" if column.right else "left", no_wrap=True,
                overflow="ellipsis", ratio=1 if live and column is stretched else None,
            )  # fmt: skip
    for number, plain in enumerate(page.rows):
        cells, tint = _CELLS[level](plain)
        told = [
            Text(shown(cell), tint if name == "state" else "")
            for (name, _, needs), cell in zip(columns, cells, strict=True)
            if wide or not needs
        ]
        made.add_row(*told, style="reverse" if number == at else "")
    return made


def _flow_cells(plain: Mapping[str, Any]) -> tuple[Sequence[str], str]:
    flow = flow_of(plain)
    canary = (plain.get("canary") or {}).get("latency_seconds")
    return (
        flow.flow, roll_up(flow), lag_of(flow), age(flow.lag_seconds),
        amount(flow.records_per_second), amount(flow.bytes_per_second),
        "-" if canary is None else latency(canary), str(plain["topics"]), str(plain["partitions"]),
    ), colour(flow)  # fmt: skip


def _topic_cells(plain: Mapping[str, Any]) -> tuple[Sequence[str], str]:
    topic = topic_of(plain)
    return (
        topic.topic, topic.target_topic, str(topic.partitions), _count(topic.lag_records),
        age(topic.lag_seconds), str(topic.troubled) if topic.troubled else "",
    ), ""  # fmt: skip


def _partition_cells(plain: Mapping[str, Any]) -> tuple[Sequence[str], str]:
    p = partition_of(plain)
    tint = "red" if p.state in BAD_STATES else "yellow" if p.troubled else "green"
    cells = (p.name, p.state, _count(p.lag_records), age(p.lag_seconds), plain["since"] or "",
             p.reason)  # fmt: skip
    return cells, tint


_CELLS: dict[Level, Callable[[Mapping[str, Any]], tuple[Sequence[str], str]]] = {
    Level.FLOWS: _flow_cells,
    Level.TOPICS: _topic_cells,
    Level.PARTITIONS: _partition_cells,
}


def _count(figure: int | None) -> str:
    return "-" if figure is None else f"{figure:,}"


def _more_of(level: Level, plain: Mapping[str, Any]) -> list[str]:
    """What the columns have no room for."""
    if level is Level.FLOWS:
        flow = flow_of(plain)
        if not risks(flow):
            return details(flow)
        return [f"{risk_words(flow, time.time())}; {recovery_words(flow)}", *details(flow)]
    if level is Level.TOPICS:
        return [f"{plain['topic']} is {plain['target_topic']} on the target"]
    p = partition_of(plain)
    again = f", tried again at {plain['next_try']}" if plain.get("next_try") else ""
    since = f" since {plain['since']}" if plain["since"] else ""
    ends = (
        f"source end {_count(p.source_end)}, next to mirror {_count(p.position)},"
        f" target end {_count(p.target_end)} of {p.target_topic}"
    )
    code = f"[{p.code}] " if p.code and f"[{p.code}]" not in p.reason else ""
    return [f"{p.name} {p.state}{since}{again}", *filter(None, [code + p.reason]), ends]
