"""The flows in brief and Spark, as server-sent events: all of them whenever something has changed.

Runs in the REST server. A thread makes and encodes them once for all readers. It ends with the last
reader, so that nothing is done while nobody reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from heliograph.rest.errors import as_json
from heliograph.rest.streams import Frame, Streams
from heliograph.service.snapshot import MirrorSnapshot, summary, to_json

__all__ = ["FlowStream"]

#: At most so often: people do not read faster, and a snapshot of a large flow takes a while.
_PAUSE_SECONDS = 2.0


class FlowStream(Streams):
    """Sends the flows to each new reader, and again when they have changed.

    A slow reader gets the newest; those before it are of no use to anybody.
    """

    what = "the flows"

    def __init__(self, snapshot: Callable[[], MirrorSnapshot], most: int) -> None:
        super().__init__(most, backlog=1)
        self._snapshot = snapshot
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._running = False
        self._last: Frame = (0, b"")

    def close(self) -> None:
        """Let all readers end. From any thread."""
        super().close()
        self._ending.set()

    def _begin(self) -> None:
        with self._lock:
            if not self._running:
                # What the thread before it sent last is old.
                self._running, self._last = True, (self._last[0], b"")
                threading.Thread(target=self._pump, name="rest flows", daemon=True).start()

    def _kept(self, after: int | None) -> tuple[int, Iterable[bytes]]:
        number, frame = self._last
        return number, [frame] if frame else []

    def _pump(self) -> None:
        try:
            while self._goes_on():
                found = self._snapshot()
                frame = _event("engine", to_json(found.engine))
                frame += _event("flows", [summary(flow) for flow in found.flows])
                if frame != self._last[1]:
                    self._last = (self._last[0] + 1, frame)
                    if not self._send([self._last]):
                        return
                self._ending.wait(_PAUSE_SECONDS)
        finally:
            # Whatever ended it, the next reader begins anew.
            self._running = False

    def _goes_on(self) -> bool:
        with self._lock:
            self._running = bool(self._readers) and not self._closed
            return self._running


def _event(name: str, value: object) -> bytes:
    return f"event: {name}\ndata: ".encode() + as_json(value) + b"\n\n"
