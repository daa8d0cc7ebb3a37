"""The bus of events as server-sent events, for many readers at once. Runs in the REST server.

One thread reads the bus for all of them and hands each event, encoded once, to the event loop. Each
reader has a backlog of its own; one that is too slow misses the oldest events and is told how many.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from heliograph.connect.api import ConnectError
from heliograph.rest.errors import as_json
from heliograph.rest.routing import Call
from heliograph.service.events import EventBus, Published, Subscription

__all__ = ["EventStreams"]

_BACKLOG = 1000
#: Proxies close what is silent for a minute; a reader that is gone is noticed by it.
_SILENCE_SECONDS = 15.0
_RETRY_MS = 2000

Frame = tuple[int, bytes]


class _Reader:
    def __init__(self) -> None:
        self.frames: deque[Frame] = deque(maxlen=_BACKLOG)
        self.missed = 0
        self.changed = asyncio.Event()


class EventStreams:
    """Follows the bus from the first reader on, until `close`. Readers belong to one event loop.

    ``plain`` makes JSON of an event; ``most`` is how many may read at once.
    """

    def __init__(
        self, bus: EventBus, plain: Callable[[Published], dict[str, Any]], most: int
    ) -> None:
        self._bus = bus
        self._plain = plain
        self._most = most
        self._readers: set[_Reader] = set()
        self._subscription: Subscription | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def respond(self, request: Request, call: Call) -> Response:
        """The answer to a reader; in the event loop. Raises 400 or 503."""
        if self._closed or len(self._readers) >= self._most:
            raise ConnectError(503, "Too many follow the events already")
        text = request.headers.get("last-event-id") or call.text("after")
        if text and not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise ConnectError(400, f"{text!r} is no number of an event")
        headers = {"X-Accel-Buffering": "no"}
        if request.scope.get("heliograph.head"):
            return Response(headers=headers, media_type="text/event-stream")
        after = int(text) if text else None
        return StreamingResponse(
            self._follow(after), headers=headers, media_type="text/event-stream"
        )

    def close(self) -> None:
        """Let all readers end. From any thread."""
        self._closed = True
        if self._subscription is not None:
            self._subscription.close()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    async def _follow(self, after: int | None) -> AsyncIterator[bytes]:
        reader = _Reader()
        # First the place, then what is kept: what comes meanwhile is in both, and sent once.
        self._readers.add(reader)
        try:
            self._begin()
            yield f"retry: {_RETRY_MS}\n\n".encode()
            last = self._bus.sequence
            # A number from a mirror that ran before: all of ours are new.
            after = 0 if after is not None and after > last else after
            if after is not None:
                kept = self._bus.history(after)
                last = kept[-1].sequence if kept else after
                if kept and kept[0].sequence > after + 1:
                    yield _missed(kept[0].sequence - after - 1)
                for published in kept:
                    yield self._frame(published)[1]
            while not self._closed:
                try:
                    async with asyncio.timeout(_SILENCE_SECONDS):
                        await reader.changed.wait()
                except TimeoutError:
                    yield b":\n\n"
                    continue
                reader.changed.clear()
                if reader.missed:
                    yield _missed(reader.missed)
                    reader.missed = 0
                while reader.frames:
                    sequence, frame = reader.frames.popleft()
                    if sequence > last:
                        last = sequence
                        yield frame
        finally:
            self._readers.discard(reader)

    def _begin(self) -> None:
        if self._subscription is None:
            self._loop = asyncio.get_running_loop()
            self._subscription = self._bus.subscribe()
            threading.Thread(
                target=self._pump, args=(self._subscription, self._loop), name="rest events",
                daemon=True,
            ).start()  # fmt: skip

    def _pump(self, subscription: Subscription, loop: asyncio.AbstractEventLoop) -> None:
        seen = 0
        while found := subscription.get():
            missed, seen = subscription.missed - seen, subscription.missed
            if not self._readers:
                continue
            frames = [self._frame(published) for published in found]
            try:
                loop.call_soon_threadsafe(self._hand_out, frames, missed)
            except RuntimeError:
                return

    def _hand_out(self, frames: Sequence[Frame], missed: int) -> None:
        for reader in self._readers:
            lost = len(reader.frames) + len(frames) - _BACKLOG
            reader.missed += missed + max(0, lost)
            reader.frames.extend(frames)
            reader.changed.set()

    def _wake(self) -> None:
        for reader in self._readers:
            reader.changed.set()

    def _frame(self, published: Published) -> Frame:
        plain = self._plain(published)
        # JSON has no line ends of its own, so the data is one line.
        head = f"id: {published.sequence}\nevent: {plain['kind']}\ndata: ".encode()
        return published.sequence, head + as_json(plain) + b"\n\n"


def _missed(count: int) -> bytes:
    return b"event: missed\ndata: " + as_json({"missed": count}) + b"\n\n"
