"""The levels of loggers, as Connect's ``/admin/loggers`` shows and changes them. In the driver.

Ours are Python's loggers below ``heliograph``; ``root`` is their root. Names of Java classes are
taken and remembered, because tools set them everywhere, and have no effect.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from heliograph.connect.api import ConnectError

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

    def set_level(self, name: str, level: str) -> Sequence[str]:
        """Change a logger and those below it; returns those that are; raises ConnectError."""
        self.check(level)
        level = level.upper()
        known = self.all()
        below = {n for n in known if name in {_ROOT, n} or n.startswith(f"{name}.")}
        # As Connect: those that have the level already are not changed.
        names = sorted(
            n for n in {name, *below} - {_AUDIT} if n not in known or known[n]["level"] != level
        )
        now = int(time.time() * 1000)
        with self._lock:
            if len(self._set) + len(names) <= _MOST:
                self._set |= dict.fromkeys(names, (level, now))
        for changed in names:
            if changed == _ROOT:
                logging.getLogger(_OURS).setLevel(_LEVELS[level])
            elif changed.startswith(f"{_OURS}."):
                logging.getLogger(changed).setLevel(_LEVELS[level])
        return names


def _level_of(logger: logging.Logger) -> str:
    return _NAMES.get(logger.getEffectiveLevel(), "INFO")
