"""Calls that wait for a broker, made beside the copy loop. Runs in executors.

The copy loop never waits for anything but its poller. Whatever has to wait (resuming a partition,
appending to the ledger, opening a connection) is a call in a `Lane`: a thread that makes one call
after the other. A lane belongs to the process and outlives leases, as the clients do that only its
calls may use. `Background` connects one lease with lanes: outcomes come back to the thread of the
loop, in `collect`.
"""

from __future__ import annotations

import queue
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from heliograph.wire.errors import WireError

__all__ = ["Background", "Lane"]

T = TypeVar("T")

#: A thread that has had nothing to do for so long ends; the next call starts another.
_IDLE_SECONDS = 10.0


class Lane:
    """Makes calls one after the other, in a daemon thread: a process never waits for it to end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running = False

    def submit(self, call: Callable[[], None]) -> None:
        """Make a call when all that were submitted before have ended. It must not raise."""
        with self._lock:
            self._calls.put(call)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._calls.empty():
                        self._running = False
                        return
                continue
            call()
            # Not kept until the next one: it may hold the buffers of a lease.
            del call


class Background:
    """The calls of one lease. All methods are for the thread of its copy loop."""

    def __init__(self) -> None:
        self._ended: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._closed = False
        self._open = 0

    def fileno(self) -> int:
        """Readable when there is something to `collect`."""
        return self._reader.fileno()

    @property
    def busy(self) -> bool:
        """Whether a call has not ended, or its outcome was not collected."""
        return self._open > 0

    def run(
        self,
        lane: Lane,
        call: Callable[[], T],
        then: Callable[[T], None],
        failed: Callable[[WireError], None],
    ) -> None:
        """Make ``call`` in a lane; `collect` passes its value to ``then``, or its WireError.

        Anything else that it raises is raised by `collect`. A call that has not begun when the
        lease ends is not made.
        """
        self._open += 1

        def make() -> None:
            if self._closed:
                return
            try:
                value = call()
            except WireError as error:
                self._end(_bound(failed, error))
            except BaseException as error:  # noqa: BLE001 - raised again in the loop's thread
                self._end(_raising(error))
            else:
                self._end(_bound(then, value))

        lane.submit(make)

    def _end(self, act: Callable[[], None]) -> None:
        self._ended.put(act)
        # The lease may have ended, or enough wake-ups be waiting.
        with suppress(OSError):
            self._writer.send(b"\0")

    def collect(self) -> None:
        """Take in the outcomes of calls that have ended."""
        with suppress(BlockingIOError):
            self._reader.recv(4096)
        while True:
            try:
                act = self._ended.get_nowait()
            except queue.Empty:
                return
            self._open -= 1
            act()

    def wait(self, seconds: float, *, until: Callable[[], bool] | None = None) -> None:
        """Collect until no call is open, or ``until`` holds, for so many seconds at most."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        while self.busy and not (until is not None and until()):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            poll.poll(left * 1000)
            self.collect()

    def close(self) -> None:
        """The lease has ended: nothing is begun any more, and outcomes count for nobody."""
        self._closed = True
        self._reader.close()
        self._writer.close()


def _bound(act: Callable[[T], None], value: T) -> Callable[[], None]:
    return lambda: act(value)


def _raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act
