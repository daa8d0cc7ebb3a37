"""The levels of loggers, as Connect's ``/admin/loggers`` shows and changes them. In the driver.

Ours are Python's loggers below ``heliograph``; ``root`` is their root. ``org.apache.spark`` is
Spark's log, which ``root`` leaves alone. Other names of Java classes are taken and remembered,
because tools set them everywhere, and have no effect.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from heliograph.connect.api import ConnectError
from heliograph.control.workers import WORKERS

if TYPE_CHECKING:
    # Every command imports this module, and few of them mirror.
    from heliograph.service.mirror import Mirror

__all__ = ["Loggers"]

_ROOT, _OURS, _SPARK = "root", "heliograph", "org.apache.spark"
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
#: Python's levels are numbers, Spark's are names.
_Level = int | str
#: Whoever may change levels can name as many loggers; nobody needs more.
_MOST = 1000


class Loggers:
    """What is known of loggers in this process. Thread-safe."""

    def __init__(self, mirror: Mirror | None = None) -> None:
        """``mirror`` has the Spark whose level is changed."""
        self._mirror = mirror
        self._lock = threading.Lock()
        #: By Connect's name: the level, and when it was set.
        self._set: dict[str, tuple[str, int]] = {}

    def all(self) -> Mapping[str, Mapping[str, Any]]:
        """By name: ``level``, and ``last_modified`` in milliseconds or None."""
        known = {_ROOT: _level_of(logging.getLogger(_OURS))}
        if self._mirror is not None:
            known[_SPARK] = self._mirror.spark_level
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
        below = {
            n for n in known
            if (name == _ROOT and n != _SPARK) or n == name or n.startswith(f"{name}.")
        }  # fmt: skip
        # As Connect: those that have the level already are not changed.
        names = sorted(
            n for n in {name, *below} - {_AUDIT} if n not in known or known[n]["level"] != level
        )
        before = {n: self._now(n) for n in names}
        now = int(time.time() * 1000)
        with self._lock:
            if len(self._set) + len(names) <= _MOST:
                self._set |= dict.fromkeys(names, (level, now))
        for changed in names:
            self._put(changed, level if changed == _SPARK else _LEVELS[level])
        if seconds is not None:
            after = {n: self._now(n) for n in names}
            WORKERS.after(seconds, partial(self._restore, before, after), self)
        return names

    def _now(self, name: str) -> _Level | None:
        if name == _SPARK:
            return self._mirror.spark_level if self._mirror is not None else None
        logger = _python(name)
        return logger.level if logger is not None else None

    def _put(self, name: str, level: _Level) -> None:
        if isinstance(level, str):
            if self._mirror is not None:
                self._mirror.set_spark_level(level)
        elif (logger := _python(name)) is not None:
            logger.setLevel(level)

    def _restore(
        self, before: Mapping[str, _Level | None], after: Mapping[str, _Level | None]
    ) -> None:
        for name, was in before.items():
            if was is not None and self._now(name) == after[name]:
                self._put(name, was)
                with self._lock:
                    self._set.pop(name, None)


def _python(name: str) -> logging.Logger | None:
    """The logger of ours that Connect's name means; None if it means none."""
    if name == _ROOT:
        return logging.getLogger(_OURS)
    return logging.getLogger(name) if name.startswith(f"{_OURS}.") else None


def _level_of(logger: logging.Logger) -> str:
    return _NAMES.get(logger.getEffectiveLevel(), "INFO")
