"""``heliograph top``: watch a running mirror, live on a terminal or once for programs."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from heliograph.cli.documents import echo_document
from heliograph.cli.flows import asking_clusters, console_for_tables, output_option
from heliograph.cli.keyboard import Keyboard
from heliograph.cli.top_pages import SORTS, Ask, Level, Page, Place, fetch
from heliograph.cli.top_screen import OTHER_LINES, grid, screen
from heliograph.cli.top_view import View
from heliograph.cli.watched import Watched, mirror_argument
from heliograph.errors import HeliographError
from heliograph.shown import shown
from heliograph.units import moment

__all__ = ["top_command"]

#: The screen is drawn anew at least this often: the terminal may have another size.
_REDRAW_SECONDS = 1.0
_MOST = 1000
_ALL_SORTS = tuple(dict.fromkeys(name for names in SORTS.values() for name in names))


@click.command("top")
@mirror_argument
@click.option("--flow", default="", help="The topics of this flow, e.g. 'A->B'.")
@click.option("--topic", default="",
              help="The partitions of this topic of --flow; '*': of all topics.")  # fmt: skip
@click.option("--sort", type=click.Choice(_ALL_SORTS), help="The worst or greatest comes first.")
@click.option("--filter", "text", default="", metavar="TEXT",
              help="Only names with this text in them, or matching it with *; of partitions also"
              " states, comma separated.")  # fmt: skip
@click.option("--interval", type=click.FloatRange(0.5, 60), default=2.0, show_default=True,
              help="Seconds between two looks.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, _MOST), default=100, show_default=True,
              help="So many rows, where it is printed once.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print once, also on a terminal.")
@output_option("table", "json", "yaml")
def top_command(
    find_mirror: Any, flow: str, topic: str, sort: str | None, text: str, interval: float,
    limit: int, once: bool, output: str,
) -> None:  # fmt: skip
    """Watch a running mirror: flows, then topics, then partitions, the worst first.

    FILE is the mm2.properties or worker file of the mirror, URL the address of its REST API;
    without either, http://127.0.0.1:8083. If a file leads to no REST API, both clusters are
    measured from here, every few seconds. Where there is no terminal, and with -o json or yaml, one
    look is printed.

    \b
    Keys: arrows or j k, PgUp PgDn Home End   choose a row
          Enter                               open it: flow, topic, partitions
          p                                   all partitions of the flow
          Esc                                 drop the filter, or go back
          /                                   filter by name; partitions by state, too
          s, r                                sort by the next column, reverse
          + -                                 look more often, less often
          q                                   quit
    """  # noqa: D301 - click keeps the lines below \b
    place = _place(flow.replace(" ", ""), topic)
    if sort is not None and sort not in SORTS[place.level]:
        names = ", ".join(SORTS[place.level])
        raise click.UsageError(f"--sort: {place.level} are sorted by {names}")
    view = View(place, text, interval)
    if sort is not None:
        view.sort_by(sort)
    console = Console()
    live = sys.stdin.isatty() and console.is_terminal and not console.is_dumb_terminal
    with find_mirror() as watched:
        watched.settle()
        if live and not once and output == "table":
            _live(watched, view, console)
            return
        with asking_clusters():
            page = fetch(watched.get, view.ask()._replace(limit=limit))
    _print_once(watched, page, output)


def _place(flow: str, topic: str) -> Place:
    if topic and not flow:
        raise click.UsageError("--topic needs --flow")
    if not flow:
        return Place()
    if not topic:
        return Place(Level.TOPICS, flow)
    return Place(Level.PARTITIONS, flow, "" if topic == "*" else topic)


def _print_once(watched: Watched, page: Page, output: str) -> None:
    if output == "table":
        console = console_for_tables()
        console.print(grid(page, console.width))
        return
    place = page.ask.place
    echo_document(
        {
            "mirror": {**watched.source(), "note": watched.note}, "at": moment(time.time()),
            "flow": place.flow or None, "topic": place.topic or None, "total": page.total,
            place.level.value: page.rows,
        },
        output,
    )  # fmt: skip


# -- on a terminal --------------------------------------------------------------------------------


def _live(watched: Watched, view: View, console: Console) -> None:
    # A first look: who cannot be asked at all is an error, not a screen.
    first = fetch(watched.get, view.ask())
    before = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        # Rich leaves the screen before the keyboard is what it was.
        with (
            Keyboard(sys.stdin.fileno()) as keyboard,
            Live(console=console, screen=True, auto_refresh=False) as drawn,
        ):
            _watch(watched, view, console, keyboard, drawn, first)
    except (KeyboardInterrupt, EOFError):
        return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _watch(
    watched: Watched, view: View, console: Console, keyboard: Keyboard, drawn: Live, first: Page
) -> None:
    looker = _Looker(watched, first, keyboard.wake)
    try:
        while not view.quit:
            width, height = console.size
            view.height = max(height - OTHER_LINES, 1)
            page = looker.page
            view.clamp(page)
            looker.want(view.ask(), view.interval)
            where = f"heliograph top   {shown(watched)}   {moment(looker.at)}"
            drawn.update(screen(view, page, where, looker.told, (width, height)), refresh=True)
            for key in keyboard.read(_REDRAW_SECONDS):
                view.press(key, page)
    finally:
        looker.close()


class _Looker:
    """Asks in a thread of its own, so that keys are answered while a mirror is slow.

    Attributes:
        page: what was answered last, ``at`` when.
        told: why the last look failed; empty if it did not.
    """

    def __init__(self, watched: Watched, first: Page, wake: Callable[[], None]) -> None:
        self.page = first
        self.at = time.time()
        self.told = ""
        self._watched = watched
        self._wake = wake
        self._wanted = first.ask
        self._interval = 0.0
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="top", daemon=True)
        self._thread.start()

    def want(self, ask: Ask, interval: float) -> None:
        """Show this page from now on, anew every so many seconds."""
        with self._changed:
            if (ask, interval) != (self._wanted, self._interval):
                self._wanted, self._interval = ask, interval
                self._changed.notify_all()

    def close(self) -> None:
        """End; a look that is under way has a moment."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(1.0)

    def _run(self) -> None:
        measured, asked = time.monotonic(), self._wanted
        while True:
            with self._changed:
                due = measured + (self._interval or _REDRAW_SECONDS)
                self._changed.wait_for(
                    lambda: self._closed or self._wanted != asked,  # noqa: B023 - called here only
                    max(due - time.monotonic(), 0.0),
                )
                if self._closed:
                    return
                asked = self._wanted
                due = measured + (self._interval or _REDRAW_SECONDS)
            try:
                with asking_clusters():
                    if time.monotonic() >= due:
                        measured = time.monotonic()
                        self._watched.refresh()
                        self.at = time.time()
                    self.page, self.told = fetch(self._watched.get, asked), ""
            except HeliographError as error:
                self.told = str(error)
            self._wake()
