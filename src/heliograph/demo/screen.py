"""How the demo shows itself: numbered steps, one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from heliograph.units import amount, growth

__all__ = ["Copied", "Screen"]

_INDENT = 3
_PLAIN_SECONDS = 2.0
_RATE_SECONDS = 1.0
_BAR_WIDTH = 24


class Screen:
    """Prints the story. ``live`` decides between moving and plain output."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.live = sys.stdout.isatty() and not self.console.is_dumb_terminal
        self._step = 0

    def say(self, text: str | Text = "", style: str = "") -> None:
        """A paragraph; wrapped on a terminal only."""
        self.console.print(text, style=style or None, markup=False, soft_wrap=not self.live)

    def step(self, text: str, style: str = "bold") -> None:
        """The headline of the next step."""
        self._step += 1
        self.say(Text.assemble((f"{self._step}  ", "bold cyan"), (text, style)))

    def result(self, text: str, style: str = "") -> None:
        """What came of the step."""
        if self.live:
            self.console.print(Padding.indent(Text(text, style=style), _INDENT))
        else:
            self.say(" " * _INDENT + text)

    def command(self, text: str) -> None:
        """Something to type: in one piece, so that it can be copied."""
        self.console.print(" " * _INDENT + text, style="cyan", markup=False, soft_wrap=True)

    def show(self, what: RenderableType) -> None:
        """A table, indented."""
        self.console.print(Padding.indent(what, _INDENT))

    @contextmanager
    def waiting(self, text: str) -> Iterator[Callable[[str], None]]:
        """A spinner with a clock while something takes its time; nothing when plain.

        Yields a function that changes its text.
        """
        shown = [text]
        if not self.live:
            yield lambda _text: None
            return
        started = time.monotonic()
        spinner = Spinner("dots")

        def render() -> RenderableType:
            spinner.update(text=f"{shown[0]} {time.monotonic() - started:.0f} s")
            return Padding.indent(spinner, _INDENT)

        with Live(
            get_renderable=render, console=self.console, transient=True, refresh_per_second=8
        ):
            yield lambda changed: shown.__setitem__(0, changed)

    @contextmanager
    def copying(self, waiting_for: str) -> Iterator[Copied]:
        """A live line about a copy under way, which stays as it was last; plain: now and then.

        ``waiting_for`` is said until the copy moves.
        """
        copied = Copied(self, waiting_for)
        if not self.live:
            self.result(waiting_for)
            yield copied
            return
        with Live(get_renderable=copied.render, console=self.console, refresh_per_second=8):
            try:
                yield copied
            finally:
                copied.note = ""


class Copied:
    """How much of a topic is across, shown as it grows."""

    def __init__(self, screen: Screen, waiting_for: str) -> None:
        self._screen = screen
        self._samples: deque[tuple[float, int]] = deque()
        self._started = self._said = time.monotonic()
        self._source = 0
        self._target = self._before = -1
        #: A line below the bar, with a clock; nothing when empty.
        self.note = waiting_for

    def update(self, source: int, target: int) -> None:
        """Take note of the two ends; says so when plain and it is time to."""
        now = time.monotonic()
        if self._before < 0:
            self._before = target
        elif self._target == self._before < target:
            self.note = ""
        self._source, self._target = source, target
        self._samples.append((now, target))
        while len(self._samples) > 2 and now - self._samples[0][0] > _RATE_SECONDS:
            self._samples.popleft()
        moved = target > self._before
        if not self._screen.live and moved and now - self._said >= _PLAIN_SECONDS:
            self._said = now
            self._screen.result(self._numbers())

    def render(self) -> RenderableType:
        """The live line: bar and numbers, and what is being waited for."""
        done = self._target >= self._source > 0
        line = Table.grid(padding=(0, 1))
        completed = max(self._target, 0)
        bar = ProgressBar(total=max(self._source, 1), completed=completed, width=_BAR_WIDTH)
        line.add_row(bar, Text(self._numbers(), style="green" if done else ""))
        if not self.note:
            return Padding.indent(line, _INDENT)
        rows = Table.grid()
        rows.add_row(line)
        seconds = time.monotonic() - self._started
        rows.add_row(Text(f"{self.note} {seconds:.0f} s", style="dim"))
        return Padding.indent(rows, _INDENT)

    @property
    def _rate(self) -> float:
        return growth(self._samples[0], self._samples[-1]) if self._samples else 0.0

    def _numbers(self) -> str:
        percent = 100 * max(self._target, 0) // self._source if self._source else 0
        return (
            f"{percent:3} %  {max(self._target, 0):,} mirrored  {amount(self._rate)}/s"
            f"  lag {max(self._source - max(self._target, 0), 0):,}"
        )
