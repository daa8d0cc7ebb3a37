"""Threads that run what is due, for all jobs of the driver.

A flow has some fifteen jobs, and nearly all of them sleep nearly always: a thread each would cost
more than the work. There are as many threads as calls run at once, and one that waits. So a call
that hangs takes a thread away from nobody. The threads are daemons: a process that ends does not
wait for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

__all__ = ["WORKERS", "Workers"]

Call = Callable[[], None]

#: Threads that wait although one would do; calls often come in pairs.
_SPARE = 2
#: From this many threads on, a further one takes its first call after a pause: most calls that come
#: at once, as when many flows start, are over by then.
_CALM, _PAUSE_SECONDS = 8, 0.1


class Workers:
    """Makes calls at their time. Thread-safe; has no thread before the first call."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, object, Call]] = []
        self._numbers = count()
        self._waiting = 0
        self._all = 0

    @property
    def threads(self) -> int:
        """How many there are."""
        return self._all

    @property
    def late_seconds(self) -> float:
        """For how long a call has been due that was not begun; 0 if there is none."""
        with self._changed:
            return max(0.0, time.monotonic() - self._due[0][0]) if self._due else 0.0

    def after(self, seconds: float, call: Call, owner: object) -> None:
        """Make a call after so many seconds, in any thread. It must not raise."""
        with self._changed:
            heappush(self._due, (time.monotonic() + seconds, next(self._numbers), owner, call))
            if not self._waiting:
                self._add()
            self._changed.notify()

    def cancel(self, owner: object) -> None:
        """Forget the owner's calls that have not begun."""
        with self._changed:
            self._due = [entry for entry in self._due if entry[2] is not owner]
            heapify(self._due)

    def _add(self) -> None:
        pause = _PAUSE_SECONDS if self._all >= _CALM else 0.0
        self._all += 1
        self._waiting += 1
        threading.Thread(
            target=self._work, args=(time.monotonic() + pause,), name="idle worker", daemon=True
        ).start()

    def _work(self, not_before: float) -> None:
        while (call := self._next(not_before)) is not None:
            call()
            # Not kept until the next one.
            del call
            with self._changed:
                self._waiting += 1
            not_before = 0.0

    def _next(self, not_before: float) -> Call | None:
        """Wait for the next call that is due; None if this thread is one too many."""
        with self._changed:
            while True:
                if self._waiting > _SPARE:
                    self._waiting -= 1
                    self._all -= 1
                    return None
                now = time.monotonic()
                due = max(self._due[0][0], not_before) if self._due else None
                if due is not None and due <= now:
                    break
                self._changed.wait(None if due is None else due - now)
            self._waiting -= 1
            if not self._waiting:
                self._add()
            # Somebody else has to watch for what is due next.
            self._changed.notify()
            return heappop(self._due)[3]


#: Those of this process.
WORKERS = Workers()
