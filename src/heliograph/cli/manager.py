"""What a service manager is told: systemd's notify protocol, in a few lines. Driver.

systemd names a socket in ``NOTIFY_SOCKET``, and how soon it wants to hear from the process in
``WATCHDOG_USEC``. Both are taken out of the environment: Spark's processes must not speak for the
mirror. The sign of life is sent only while every loop of the driver comes round; so a mirror that
hangs is started again, and one that waits for a cluster is not. Without a manager all this does
nothing.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Self

from heliograph.service.pulse import Stuck
from heliograph.shown import shown

__all__ = ["Manager"]

log = logging.getLogger(__name__)

#: A manager that does not read for so long gets no message.
_SEND_SECONDS = 5.0


class Manager:
    """Sends signs of life while it is entered. ``stuck``: the parts of the driver that hang."""

    def __init__(self, stuck: Callable[[], Sequence[Stuck]]) -> None:
        """Main thread, before other processes are started."""
        self._stuck = stuck
        address = os.environ.pop("NOTIFY_SOCKET", "")
        # An @ stands for the byte that abstract names begin with.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._pause = _pause()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        if self._address and self._pause is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def ready(self, what: str) -> None:
        """It runs, and does this."""
        self._send("READY=1", f"STATUS={shown(what)}")
        self._what = what

    def stopping(self) -> None:
        """It was asked to stop."""
        self._send("STOPPING=1", "STATUS=stopping")

    def _live(self) -> None:
        hung = False
        while not self._ended.wait(self._pause):
            stuck = self._stuck()
            if not stuck:
                self._send("WATCHDOG=1", *([f"STATUS={shown(self._what)}"] if hung else []))
            elif not hung:
                parts = ", ".join(f"{s.part} for {s.seconds:.0f} s" for s in stuck)
                log.error("the service manager hears no sign of life: stuck are %s", parts)
                self._send(f"STATUS=stuck: {shown(parts)}")
            hung = bool(stuck)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
            made.settimeout(_SEND_SECONDS)
            try:
                made.sendto("\n".join(lines).encode(), self._address)
            except OSError as error:
                log.warning("the service manager cannot be told %s: %s", lines[0], error)

    _what = "starting"


def _pause() -> float | None:
    """Half of the time within which a sign of life is wanted; None if none is, from us."""
    wanted = os.environ.pop("WATCHDOG_USEC", "")
    whose = os.environ.pop("WATCHDOG_PID", "") or str(os.getpid())
    if not wanted.isdigit() or not int(wanted) or whose != str(os.getpid()):
        return None
    return int(wanted) / 2e6
