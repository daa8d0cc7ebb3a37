"""SIGTERM and Ctrl-C of a command that runs until it is stopped. Driver, main thread."""

from __future__ import annotations

import os
import signal
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequested(BaseException):
    """The first signal, raised where the main thread happens to be."""


def stop_on_signals() -> None:
    """From now on the first signal raises StopRequested; a second one ends the process at once."""
    _handle(_raise)


def already_stopping() -> None:
    """From now on the first signal does nothing; a second one ends the process at once.

    A process that has received its first signal ends at the next one, as before.
    """
    if signal.getsignal(signal.SIGTERM) is _raise:
        _handle(_ignore)


def _handle(handler: signal._HANDLER) -> None:
    for number in _SIGNALS:
        signal.signal(number, handler)


def _raise(_number: int, _frame: FrameType | None) -> None:
    _handle(_end)
    raise StopRequested


def _ignore(_number: int, _frame: FrameType | None) -> None:
    _handle(_end)


def _end(number: int, _frame: FrameType | None) -> None:
    # Whoever sends a second one means it: exactly once does not depend on a clean stop.
    os._exit(128 + number)
