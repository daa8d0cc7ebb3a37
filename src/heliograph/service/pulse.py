"""Whether the driver moves: heartbeats of its own loops. Runs in the driver.

Each loop that must never stand still has a `Beat`, and touches it whenever it comes round. A loop
that did not come round within its bound is stuck. What a loop waits for does not count: while a
Kafka cluster is away, loops fail, wait and try again, and so they move. Nothing here waits, and
looking costs a few microseconds: probes ask often.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["IDLE_SECONDS", "Beat", "Pulse", "Stuck"]

#: A loop with nothing to do comes round this often.
IDLE_SECONDS = 10.0
#: Far more than a loop needs on a machine that does ten times what it can.
_BOUND_SECONDS = 120.0


class Stuck(NamedTuple):
    """A part of the driver that has not moved for so many seconds."""

    part: str
    seconds: float


class Beat:
    """The heartbeat of one loop; from any thread."""

    def __init__(self, part: str) -> None:
        self.part = part
        self._state = time.monotonic(), _BOUND_SECONDS

    def touch(self, bound_seconds: float | None = None) -> None:
        """It moves, and will again within so many seconds; two minutes if nothing is said."""
        self._state = time.monotonic(), bound_seconds or _BOUND_SECONDS

    def still_for(self) -> float:
        """Seconds since it moved, if that is too long; else 0."""
        moved, bound = self._state
        since = time.monotonic() - moved
        return since if since > bound else 0.0


class Pulse:
    """All heartbeats of a mirror. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: dict[object, tuple[str, Callable[[], float]]] = {}

    def beat(self, part: str) -> Beat:
        """A heartbeat for a loop that begins now; `end` it with the loop."""
        made = Beat(part)
        self.watch(part, made.still_for, made)
        return made

    def watch(self, part: str, still_for: Callable[[], float], key: object = None) -> None:
        """Ask ``still_for`` how long a part has been stuck; 0: it moves. It must not wait."""
        with self._lock:
            self._parts[part if key is None else key] = part, still_for

    def end(self, key: object) -> None:
        """A loop has ended, in order."""
        with self._lock:
            self._parts.pop(key, None)

    def stuck(self) -> list[Stuck]:
        """The parts that should move and do not, the longest first."""
        with self._lock:
            parts = list(self._parts.values())
        found = [Stuck(part, seconds) for part, still in parts if (seconds := still())]
        return sorted(found, key=lambda stuck: -stuck.seconds)
