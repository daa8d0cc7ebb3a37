"""What a person who watches ``heliograph top`` has chosen, and what keys change of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from heliograph.cli.top_pages import SORTS, Ask, Level, Page, Place

__all__ = ["View"]

_FASTEST, _SLOWEST = 0.5, 60.0
_BACK = {"esc", "left", "backspace", "h"}
_IN = {"enter", "right", "l"}


@dataclass(slots=True)
class _Look:
    """One level of the way down: where, which row is chosen, the first row to be seen, a filter."""

    place: Place
    cursor: int = 0
    top: int = 0
    text: str = ""


@dataclass(slots=True)
class View:
    """The state of the screen. `press` takes a key, `ask` says which page is to be shown.

    Attributes:
        height: how many rows there is room for.
        typing: the filter that is being typed; None if none is.
        interval: seconds between two looks.
        quit: nothing more is to be shown.
    """

    place: Place = field(default_factory=Place)
    text: str = ""
    interval: float = 2.0
    height: int = 10
    typing: str | None = None
    quit: bool = False
    _way: list[_Look] = field(default_factory=list)
    _sorts: dict[Level, str] = field(default_factory=lambda: {k: v[0] for k, v in SORTS.items()})
    _backwards: set[Level] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._way.append(_Look(self.place, text=self.text))

    # -- what to show -------------------------------------------------------------------------

    def ask(self) -> Ask:
        """The page that is to be seen."""
        look, level = self._way[-1], self.place.level
        return Ask(
            look.place, self._sorts[level], level in self._backwards, look.text, look.top,
            self.height,
        )  # fmt: skip

    def sort_by(self, name: str) -> None:
        """Sort the rows of this level."""
        self._sorts[self.place.level] = name

    def selected(self, page: Page | None) -> int | None:
        """The index of the chosen row in a page; None if it is not there."""
        if page is None or page.ask.place != self.place:
            return None
        number = self._way[-1].cursor - page.ask.offset
        return number if 0 <= number < len(page.rows) else None

    def clamp(self, page: Page | None) -> None:
        """Keep the chosen row among those that there are, and in sight."""
        look = self._way[-1]
        if page is not None and page.ask.place == look.place and page.ask.text == look.text:
            look.cursor = min(look.cursor, max(page.total - 1, 0))
            look.top = min(look.top, max(page.total - self.height, 0))
        look.top = min(look.top, look.cursor)
        look.top = max(look.top, look.cursor - self.height + 1)

    # -- keys ---------------------------------------------------------------------------------

    def press(self, key: str, page: Page | None) -> None:
        """Take a key: a character, or the name of another key; ``page`` is what is shown."""
        if self.typing is not None:
            self._type(key)
        elif key == "q":
            self.quit = True
        elif key == "/":
            self.typing = self._way[-1].text
        elif key in {"+", "-"}:
            factor = 0.5 if key == "+" else 2.0
            self.interval = min(max(self.interval * factor, _FASTEST), _SLOWEST)
        elif key == "s":
            names = SORTS[self.place.level]
            at = names.index(self._sorts[self.place.level])
            self.sort_by(names[(at + 1) % len(names)])
        elif key == "r":
            self._backwards ^= {self.place.level}
        elif key in _BACK:
            self._back()
        elif key in _IN or key == "p":
            self._enter(page, partitions=key == "p")
        else:
            self._move(key, page.total if page is not None else 0)
        self.clamp(page)

    def _type(self, key: str) -> None:
        assert self.typing is not None  # noqa: S101 - see `press`
        if key == "enter":
            look = self._way[-1]
            look.text, look.cursor, look.top, self.typing = self.typing.strip(), 0, 0, None
        elif key == "esc":
            self.typing = None
        elif key == "backspace":
            self.typing = self.typing[:-1]
        elif len(key) == 1:
            self.typing += key

    def _back(self) -> None:
        """Up one level; first the filter goes."""
        look = self._way[-1]
        if look.text:
            look.text = ""
        elif len(self._way) > 1:
            self._way.pop()
        elif look.place.level is not Level.FLOWS:
            self._way = [_Look(_above(look.place))]
        self.place = self._way[-1].place

    def _enter(self, page: Page | None, *, partitions: bool) -> None:
        at = self.selected(page)
        if at is None or page is None:
            return
        inner = _inside(self.place, page.rows[at], partitions=partitions)
        if inner != self.place:
            self._way.append(_Look(inner))
            self.place = inner

    def _move(self, key: str, total: int) -> None:
        look = self._way[-1]
        steps = {
            "up": -1, "k": -1, "down": 1, "j": 1, "pgup": -self.height, "pgdn": self.height,
            "home": -look.cursor, "g": -look.cursor, "end": total, "G": total,
        }  # fmt: skip
        step = steps.get(key, 0)
        look.cursor = max(0, min(look.cursor + step, total - 1))
        if key in {"pgup", "pgdn"}:
            look.top = max(0, look.top + step)


def _inside(place: Place, row: dict[str, Any], *, partitions: bool) -> Place:
    if place.level is Level.FLOWS:
        return Place(Level.PARTITIONS if partitions else Level.TOPICS, row["flow"])
    if place.level is Level.TOPICS:
        return Place(Level.PARTITIONS, place.flow, "" if partitions else row["topic"])
    return place


def _above(place: Place) -> Place:
    return Place(Level.TOPICS, place.flow) if place.topic else Place()
