"""A folder for all that a mirror and its Spark put on disk. Runs in the driver.

Nobody else can look into it. It is removed at the end; what a killed mirror left is removed by the
next one that starts. If somebody removes it earlier, it is made again in the same place.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

_PREFIX = "heliograph-"


class Scratch:
    """One folder, made when it is first asked for."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._removed = False

    @property
    def path(self) -> Path:
        """Where it is; raises OSError if it was removed and cannot be made again."""
        if self._path is None:
            _remove_orphans()
            self._path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        elif not self._removed:
            make_again(self._path)
        return self._path

    def remove(self) -> None:
        """With all that is in it, for good."""
        self._removed = True
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)


def make_again(folder: Path) -> None:
    """Make a folder that was removed, by a cleaner of temporary folders for example.

    Raises:
        OSError: it is not there, and cannot be made; or somebody else has made it meanwhile.
    """
    try:
        folder.mkdir(0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(f"{folder} is not ours any more") from None


def _remove_orphans() -> None:
    """Remove the folders of mirrors that were killed and could not do it themselves."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}[0-9]*-*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            mine = folder.lstat().st_uid == os.getuid()
            if mine and owner.isdigit() and not psutil.pid_exists(int(owner)):
                shutil.rmtree(folder, ignore_errors=True)
