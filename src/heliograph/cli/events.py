"""``heliograph events``: what happened in a running mirror, and what happens."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any

import click

from heliograph.cli.documents import echo_document
from heliograph.cli.flows import output_option
from heliograph.cli.rest_client import RestClient
from heliograph.cli.watched import mirror_argument
from heliograph.errors import StartError
from heliograph.shown import shown_lines

__all__ = ["events_command"]

_LEVELS = ("debug", "info", "warning", "error")
_PAGE = 1000


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
    without either, http://127.0.0.1:8083. Events are in the mirror's memory: without a REST API
    they cannot be read. -o json prints one object a line, -o yaml one document for each event.
    """
    with find_mirror(flow) as watched:
        if watched.rest is None:
            raise StartError(
                "events.no-rest", f"events are kept by the mirror itself: {watched.note}",
                "run the mirror with --listen HOST:PORT, or look at its log",
            )  # fmt: skip
        least = _number(level)
        for event in _all(watched.rest, after, follow=follow):
            missed = "missed" in event
            fits = flow is None or event.get("flow") == flow.replace(" ", "")
            if missed or (fits and _number(event["level"]) >= least):
                _show(event, output)


def _number(level: str) -> int:
    return logging.getLevelNamesMapping().get(level.upper(), logging.INFO)


def _all(client: RestClient, after: int, *, follow: bool) -> Generator[dict[str, Any]]:
    while True:
        page = client.get("/events", after=after, limit=_PAGE)
        if after and page["missed"]:
            yield {"missed": page["missed"]}
        yield from page["events"]
        after = page["next"]
        if not page["events"] or after >= page["last"]:
            break
    if follow:
        for name, data in client.stream("/events/stream", after=after):
            yield {"missed": data["missed"]} if name == "missed" else data


def _show(event: dict[str, Any], output: str) -> None:
    if output in {"json", "yaml"}:
        echo_document(event, output, lines=True)
    elif "missed" in event:
        click.echo(f"{event['missed']} earlier event(s) are not kept any more", err=True)
    else:
        text = f"{event['at']} {event['level'].upper()} {event['line']}"
        click.echo(shown_lines(text).replace("\n", "\n  "))
