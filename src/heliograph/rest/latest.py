"""One snapshot and one encoding of each page, for all who ask at once. Runs in the REST server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from heliograph.rest.errors import as_json
from heliograph.rest.routing import Answer, Call, Handler, Target
from heliograph.service.snapshot import MirrorSnapshot

__all__ = ["Latest"]

#: Callers that come within this time see the same snapshot.
_FRESH_SECONDS = 0.5
#: And those who ask the same, the same bytes: of so many pages.
_MOST_PAGES = 64


class Latest:
    """The snapshot, made anew when it is asked for and the last one is older than a moment.

    Called in the threads of handlers, but for `at_once`. Pages are for every viewer alike.
    """

    def __init__(self, make: Callable[[], MirrorSnapshot]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._known: tuple[float, MirrorSnapshot] | None = None
        self._pages: dict[Target, bytes] = {}

    def get(self) -> MirrorSnapshot:
        """What is known now, or was a moment ago."""
        # Those who wait get what the first of them made.
        with self._lock:
            if self._known is None or time.monotonic() - self._known[0] > _FRESH_SECONDS:
                self._known = (time.monotonic(), self._make())
                self._pages = {}
            return self._known[1]

    def page(self, handler: Handler) -> Handler:
        """The same handler; who asks the same of the same snapshot gets the same bytes."""

        def answer(call: Call) -> Answer:
            self.get()
            pages = self._pages
            made = pages.get(call.target)
            if made is None:
                made = as_json(handler(call).value)
                if len(pages) >= _MOST_PAGES:
                    pages.clear()
                pages[call.target] = made
            return Answer(made)

        return answer

    def at_once(self, target: Target) -> bytes | None:
        """The page that somebody else has just been given, if there is one. In the event loop."""
        known, pages = self._known, self._pages
        if known is None or time.monotonic() - known[0] > _FRESH_SECONDS:
            return None
        return pages.get(target)

    def forget(self) -> None:
        """Something was changed: the next one must show it."""
        with self._lock:
            self._known = None
