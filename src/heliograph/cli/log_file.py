"""The file of ``--log-file``: written line by line, rotated by itself or by logrotate. Driver.

It is kept under its name: a file that somebody moved away or removed (logrotate) is opened anew at
the next line, without a signal. What cannot be written is dropped and counted, and never holds back
or ends the mirror.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["LogFile"]

#: Names of topics, groups and hosts are in it: for this user and its group.
_MODE = 0o640


class LogFile:
    """Appends lines; used by one thread at a time."""

    def __init__(
        self, path: Path, most_bytes: int, keep: int, lost_line: Callable[[int], str]
    ) -> None:
        """Open it; raises OSError.

        Args:
            path: where; its folder must be there.
            most_bytes: rotated before it grows beyond that; 0: never.
            keep: how many older files, ``path.1`` being the youngest.
            lost_line: the line that says that so many could not be written.
        """
        self._path = path.absolute()
        self._most_bytes = most_bytes
        self._keep = keep
        self._lost_line = lost_line
        self._lost = 0
        self._descriptor = self._opened()

    def write(self, text: str) -> None:
        """Append a line; drops it if that is not possible."""
        data = f"{text}\n".encode(errors="replace")
        try:
            self._follow()
            if self._most_bytes and self._size() and self._size() + len(data) > self._most_bytes:
                self._rotate()
            if self._lost:
                self._append(f"{self._lost_line(self._lost)}\n".encode())
                self._lost = 0
            self._append(data)
        except OSError:
            self._lost += 1

    def close(self) -> None:
        """Write no more."""
        with suppress(OSError):
            os.close(self._descriptor)

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _MODE)

    def _size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def _append(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]

    def _follow(self) -> None:
        """Open the file anew if another one, or none, has its name."""
        with suppress(FileNotFoundError):
            if os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                return
        self._reopen()

    def _reopen(self) -> None:
        made = self._opened()
        os.close(self._descriptor)
        self._descriptor = made

    def _rotate(self) -> None:
        for number in range(self._keep - 1, 0, -1):
            with suppress(FileNotFoundError):
                self._numbered(number).replace(self._numbered(number + 1))
        if self._keep:
            self._path.replace(self._numbered(1))
        else:
            self._path.unlink()
        self._reopen()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
