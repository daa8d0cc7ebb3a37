"""The levels of loggers, as Connect's ``/admin/loggers`` shows and changes them. In the driver.

Ours are Python's loggers below ``heliograph``; ``root`` is their root. Names of Java classes are
taken and remembered, because tools set them everywhere, and have no effect.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from heliograph.connect.api import ConnectError
from heliograph.control.workers import WORKERS

__all__ = ["Loggers"]

_ROOT, _OURS = "root", "heliograph"
#: Who has changed what is said in any case.
_AUDIT = "heliograph.rest.audit"
_LEVELS = {
    "ALL": logging.DEBUG,
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
_NAMES = {logging.DEBUG: "DEBUG", logging.INFO: "INFO", logging.WARNING: "WARN",
          logging.ERROR: "ERROR", logging.CRITICAL: "FATAL"}  # fmt: skip
#: Whoever may change levels can name as many loggers; nobody needs more.
_MOST = 1000


class Loggers:
    """What is known of loggers in this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By Connect's name: the level, and when it was set.
        self._set: dict[str, tuple[str, int]] = {}

    def all(self) -> Mapping[str, Mapping[str, Any]]:
        """By name: ``level``, and ``last_modified`` in milliseconds or None."""
        known = {_ROOT: _level_of(logging.getLogger(_OURS))}
        for name, logger in list(logging.root.manager.loggerDict.items()):
            if isinstance(logger, logging.Logger) and name.startswith(f"{_OURS}."):
                known[name] = _level_of(logger)
        with self._lock:
            changed = dict(self._set)
        return {
            name: {"level": changed.get(name, (known.get(name, "INFO"), 0))[0],
                   "last_modified": changed[name][1] if name in changed else None}
            for name in sorted({**known, **changed})
        }  # fmt: skip

    def one(self, name: str) -> Mapping[str, Any]:
        """One of `all`; raises ConnectError."""
        found = self.all().get(name)
        if found is None:
            raise ConnectError(404, f"Logger {name} not found.")
        return found

    def check(self, level: str) -> None:
        """Raises ConnectError if Connect knows no such level."""
        if level.upper() not in _LEVELS:
            raise ConnectError(404, f"invalid log level '{level}'.")

    def set_level(self, name: str, level: str, *, seconds: float | None = None) -> Sequence[str]:
        """Change a logger and those below it; returns those that are; raises ConnectError.

        After ``seconds`` they are as before, unless somebody has changed them meanwhile.
        """
        self.check(level)
        level = level.upper()
        known = self.all()
        below = {n for n in known if name in {_ROOT, n} or n.startswith(f"{name}.")}
        # As Connect: those that have the level already are not changed.
        names = sorted(
            n for n in {name, *below} - {_AUDIT} if n not in known or known[n]["level"] != level
        )
        before = [(n, logger, logger.level) for n in names if (logger := _python(n)) is not None]
        now = int(time.time() * 1000)
        with self._lock:
            if len(self._set) + len(names) <= _MOST:
                self._set |= dict.fromkeys(names, (level, now))
        for _, logger, _ in before:
            logger.setLevel(_LEVELS[level])
        if seconds is not None:
            WORKERS.after(seconds, partial(self._restore, before, _LEVELS[level]), self)
        return names

    def _restore(self, before: Sequence[tuple[str, logging.Logger, int]], level: int) -> None:
        for name, logger, was in before:
            if logger.level == level:
                logger.setLevel(was)
                with self._lock:
                    self._set.pop(name, None)


def _python(name: str) -> logging.Logger | None:
    """The logger of ours that Connect's name means; None if it means none."""
    if name == _ROOT:
        return logging.getLogger(_OURS)
    return logging.getLogger(name) if name.startswith(f"{_OURS}.") else None


def _level_of(logger: logging.Logger) -> str:
    return _NAMES.get(logger.getEffectiveLevel(), "INFO")
