"""A folder for all that a mirror and its Spark put on disk. Runs in the driver.

Nobody else can look into it. It is removed at the end; what a killed mirror left is removed by the
next one that starts.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

_PREFIX = "heliograph-"


class Scratch:
    """One folder, made when it is first asked for."""

    def __init__(self) -> None:
        self._path: Path | None = None

    @property
    def path(self) -> Path:
        """Where it is."""
        if self._path is None:
            _remove_orphans()
            self._path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        return self._path

    def remove(self) -> None:
        """With all that is in it."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)


def _remove_orphans() -> None:
    """Remove the folders of mirrors that were killed and could not do it themselves."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}[0-9]*-*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            mine = folder.lstat().st_uid == os.getuid()
            if mine and owner.isdigit() and not psutil.pid_exists(int(owner)):
                shutil.rmtree(folder, ignore_errors=True)
