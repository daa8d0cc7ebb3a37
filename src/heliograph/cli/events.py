"""``heliograph events``: what happened in a running mirror, and what happens."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import click

from heliograph.cli.documents import echo_document
from heliograph.cli.flows import asking_clusters, output_option
from heliograph.cli.watched import Watched, mirror_argument
from heliograph.errors import HeliographError
from heliograph.shown import shown_lines

__all__ = ["events_command"]

_LEVELS = ("debug", "info", "warning", "error")
_PAGE = 1000
#: Between two looks at clusters.
_EVERY_SECONDS = 2.0


@click.command("events")
@mirror_argument
@click.option("--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="NUMBER",
              help="Only events behind this number.")  # fmt: skip
@click.option("--level", type=click.Choice(_LEVELS), default="info", show_default=True,
              help="Only events of this level, and worse ones.")  # fmt: skip
@click.option("--flow", help="Only events of this flow, e.g. 'A->B'.")
@output_option("table", "json", "yaml", "text", text="text: the same as table, a line an event.")
def events_command(
    find_mirror: Any, follow: bool, after: int, level: str, flow: str | None, output: str
) -> None:
    """Print the events of a running mirror, oldest first; it keeps the last 1,000.

    FILE is the mm2.properties or worker file of the mirror, URL the address of its REST API;
    without either, http://127.0.0.1:8083. If a file leads to no REST API, events are what the
    flows' ledgers in Kafka tell (who had a flow, holds, restarts, handovers, drills) and what both
    clusters show from here, every few seconds with --follow. -o json prints one object a line,
    -o yaml one document for each event.
    """
    with find_mirror(flow) as watched:
        watched.settle()
        if watched.rest is None and output in {"table", "text"}:
            click.echo(f"what the ledgers in Kafka tell: {watched.note}", err=True)
        least = _number(level)
        for event in _all(watched, after, follow=follow):
            missed = "missed" in event
            fits = flow is None or event.get("flow") == flow.replace(" ", "")
            if missed or (fits and _number(event["level"]) >= least):
                _show(event, output)


def _number(level: str) -> int:
    return logging.getLevelNamesMapping().get(level.upper(), logging.INFO)


def _all(watched: Watched, after: int, *, follow: bool) -> Generator[dict[str, Any]]:
    with asking_clusters():
        watched.tell()
    after = yield from _pages(watched, after)
    if follow and watched.rest is not None:
        for name, data in watched.rest.stream("/events/stream", after=after):
            yield {"missed": data["missed"]} if name == "missed" else data
        return
    while follow:
        time.sleep(_EVERY_SECONDS)
        # Clusters that do not answer are an event.
        with suppress(HeliographError), asking_clusters():
            watched.refresh()
        with asking_clusters():
            watched.tell()
        after = yield from _pages(watched, after)


def _pages(watched: Watched, after: int) -> Generator[dict[str, Any], None, int]:
    """The events behind a number; returns that of the last one."""
    while True:
        page = watched.get("/events", after=after, limit=_PAGE)
        if after and page["missed"]:
            yield {"missed": page["missed"]}
        yield from page["events"]
        after = page["next"]
        if not page["events"] or after >= page["last"]:
            return after


def _show(event: dict[str, Any], output: str) -> None:
    if output in {"json", "yaml"}:
        echo_document(event, output, lines=True)
    elif "missed" in event:
        click.echo(f"{event['missed']} earlier event(s) are not kept any more", err=True)
    else:
        text = f"{event['at']} {event['level'].upper()} {event['line']}"
        click.echo(shown_lines(text).replace("\n", "\n  "))
