"""Server-sent events, for many readers at once. Runs in the REST server.

One thread makes what is sent and hands it, encoded once, to the event loop. Each reader has a
backlog of its own; one that is too slow misses the oldest, and never holds up the others. What a
stream sends is up to its subclass: `EventStreams` here, `heliograph.rest.flow_stream`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from heliograph.connect.api import ConnectError
from heliograph.rest.errors import as_json
from heliograph.rest.routing import Call
from heliograph.service.events import EventBus, Published, Subscription

__all__ = ["EventStreams", "Frame", "Streams"]

#: Proxies close what is silent for a minute; a reader that is gone is noticed by it.
_SILENCE_SECONDS = 15.0
_RETRY_MS = 2000

#: A number that grows, and the bytes.
Frame = tuple[int, bytes]


class _Reader:
    def __init__(self, backlog: int) -> None:
        self.frames: deque[Frame] = deque(maxlen=backlog)
        self.missed = 0
        self.changed = asyncio.Event()


class Streams:
    """The readers of one stream. They belong to one event loop.

    ``most`` is how many may read at once, ``backlog`` how many frames may wait for one of them.
    """

    #: What readers follow, for the one who is too many.
    what = "this"

    def __init__(self, most: int, backlog: int) -> None:
        self._most = most
        self._backlog = backlog
        self._readers: set[_Reader] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    # -- for subclasses -----------------------------------------------------------------------

    def _after(self, request: Request, call: Call) -> int | None:
        """The number behind which a reader wants to begin; None: now. Raises 400."""
        return None

    def _begin(self) -> None:
        """There is one more reader: see to it that frames are handed out."""
        raise NotImplementedError

    def _kept(self, after: int | None) -> tuple[int, Iterable[bytes]]:
        """What a new reader gets at once, and the number of the last of it."""
        raise NotImplementedError

    @staticmethod
    def _missed(count: int) -> bytes:
        """What is sent instead of so many frames."""
        return b""

    # -- readers ------------------------------------------------------------------------------

    def respond(self, request: Request, call: Call) -> Response:
        """The answer to a reader; in the event loop. Raises 400 or 503."""
        if self._closed or len(self._readers) >= self._most:
            raise ConnectError(503, f"Too many follow {self.what} already")
        after = self._after(request, call)
        headers = {"X-Accel-Buffering": "no"}
        if request.scope.get("heliograph.head"):
            return Response(headers=headers, media_type="text/event-stream")
        return StreamingResponse(
            self._follow(after), headers=headers, media_type="text/event-stream"
        )

    def close(self) -> None:
        """Let all readers end. From any thread."""
        self._closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    async def _follow(self, after: int | None) -> AsyncIterator[bytes]:
        reader = _Reader(self._backlog)
        self._loop = asyncio.get_running_loop()
        # First the place, then what is kept: what comes meanwhile is in both, and sent once.
        self._readers.add(reader)
        try:
            self._begin()
            yield f"retry: {_RETRY_MS}\n\n".encode()
            last, kept = self._kept(after)
            for frame in kept:
                yield frame
            while not self._closed:
                try:
                    async with asyncio.timeout(_SILENCE_SECONDS):
                        await reader.changed.wait()
                except TimeoutError:
                    yield b":\n\n"
                    continue
                reader.changed.clear()
                lost, reader.missed = reader.missed, 0
                if lost and (told := self._missed(lost)):
                    yield told
                while reader.frames:
                    number, frame = reader.frames.popleft()
                    if number > last:
                        last = number
                        yield frame
        finally:
            self._readers.discard(reader)

    def _send(self, frames: Sequence[Frame], missed: int = 0) -> bool:
        """Hand frames to all readers; returns whether the event loop is still there."""
        assert self._loop is not None  # noqa: S101 - there was a reader
        try:
            self._loop.call_soon_threadsafe(self._hand_out, frames, missed)
        except RuntimeError:
            return False
        return True

    def _hand_out(self, frames: Sequence[Frame], missed: int) -> None:
        for reader in self._readers:
            lost = len(reader.frames) + len(frames) - self._backlog
            reader.missed += missed + max(0, lost)
            reader.frames.extend(frames)
            reader.changed.set()

    def _wake(self) -> None:
        for reader in self._readers:
            reader.changed.set()


class EventStreams(Streams):
    """Follows the bus of events from the first reader on, until `close`.

    ``plain`` makes JSON of an event. Who misses events is told how many.
    """

    what = "the events"

    def __init__(
        self, bus: EventBus, plain: Callable[[Published], dict[str, Any]], most: int
    ) -> None:
        super().__init__(most, backlog=1000)
        self._bus = bus
        self._plain = plain
        self._subscription: Subscription | None = None

    def close(self) -> None:
        """Let all readers end. From any thread."""
        super().close()
        if self._subscription is not None:
            self._subscription.close()

    def _after(self, request: Request, call: Call) -> int | None:
        text = request.headers.get("last-event-id") or call.text("after")
        if text and not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise ConnectError(400, f"{text!r} is no number of an event")
        return int(text) if text else None

    def _begin(self) -> None:
        if self._subscription is None:
            self._subscription = self._bus.subscribe()
            threading.Thread(
                target=self._pump, args=(self._subscription,), name="rest events", daemon=True
            ).start()

    def _kept(self, after: int | None) -> tuple[int, Iterable[bytes]]:
        last = self._bus.sequence
        if after is None:
            return last, ()
        # A number from a mirror that ran before: all of ours are new.
        after = 0 if after > last else after
        kept = self._bus.history(after)
        frames = [self._frame(published)[1] for published in kept]
        if kept and kept[0].sequence > after + 1:
            frames.insert(0, self._missed(kept[0].sequence - after - 1))
        return kept[-1].sequence if kept else after, frames

    def _pump(self, subscription: Subscription) -> None:
        seen = 0
        while found := subscription.get():
            missed, seen = subscription.missed - seen, subscription.missed
            if not self._readers:
                continue
            if not self._send([self._frame(published) for published in found], missed):
                return

    def _frame(self, published: Published) -> Frame:
        plain = self._plain(published)
        # JSON has no line ends of its own, so the data is one line.
        head = f"id: {published.sequence}\nevent: {plain['kind']}\ndata: ".encode()
        return published.sequence, head + as_json(plain) + b"\n\n"

    @staticmethod
    def _missed(count: int) -> bytes:
        return b"event: missed\ndata: " + as_json({"missed": count}) + b"\n\n"
