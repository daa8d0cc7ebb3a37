"""A look that takes seconds, shared by all who ask for it at about the same time. In the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

__all__ = ["LookTakesLong", "SharedLook"]

Seen = TypeVar("Seen")


class LookTakesLong(Exception):
    """It was not over when the caller had waited long enough. It goes on."""


class _Outcome(NamedTuple, Generic[Seen]):
    """``number``: of the look; ``at``: when it was over, by the monotonic clock."""

    number: int
    at: float
    seen: Seen | None
    error: Exception | None


class SharedLook(Generic[Seen]):
    """Looks in a thread of its own, one look at a time. Any thread may ask.

    ``look`` is called when nothing is known, or what is known is older than ``fresh_seconds``. A
    caller waits for at most ``patience_seconds``. What ``look`` raises, each caller gets.
    """

    def __init__(
        self, look: Callable[[], Seen], fresh_seconds: float, patience_seconds: float
    ) -> None:
        self._look = look
        self._fresh_seconds = fresh_seconds
        self._patience_seconds = patience_seconds
        self._changed = threading.Condition()
        self._begun = 0
        self._last: _Outcome[Seen] = _Outcome(0, float("-inf"), None, None)
        #: Looks with lower numbers began before something had changed.
        self._least = 1

    def get(self) -> Seen:
        """What is seen; raises LookTakesLong, and what the look raised."""
        give_up_at = time.monotonic() + self._patience_seconds
        with self._changed:
            wanted = self._wanted()
            while self._last.number < wanted:
                if self._begun == self._last.number:
                    self._begun += 1
                    threading.Thread(
                        target=self._run, args=(self._begun,), name="looking", daemon=True
                    ).start()
                left = give_up_at - time.monotonic()
                if left <= 0:
                    raise LookTakesLong
                self._changed.wait(left)
            if self._last.error is not None:
                raise self._last.error
            return self._last.seen  # type: ignore[return-value] # there is one without an error

    def forget(self) -> None:
        """Something has changed: who asks from now on gets a look that begins from now on."""
        with self._changed:
            self._least = self._begun + 1

    def _wanted(self) -> int:
        """The number of the look that will do for somebody who asks now."""
        fresh = time.monotonic() - self._last.at <= self._fresh_seconds
        if fresh and self._last.number >= self._least:
            return self._last.number
        # One that is under way will do, too.
        return max(self._last.number + 1, self._least)

    def _run(self, number: int) -> None:
        seen: Seen | None = None
        error: Exception | None = None
        try:
            seen = self._look()
        except Exception as raised:  # noqa: BLE001 - each caller gets it
            error = raised
        with self._changed:
            self._last = _Outcome(number, time.monotonic(), seen, error)
            self._changed.notify_all()
