"""How errors are shown: what happened and what to do next, never a traceback."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import traceback
from pathlib import Path

from rich.console import Console
from rich.text import Text

from heliograph import __version__
from heliograph.errors import HeliographError, WireError
from heliograph.shown import shown_lines

__all__ = ["Defect", "as_shown", "show_error", "show_thread_defect"]


class Defect(HeliographError):
    """What nobody foresaw."""

    exit_code = 70


def show_error(error: HeliographError) -> None:
    """Print an error as a person wants to read it: what, and what to do next."""
    text = Text("error: ", style="bold red") + Text(shown_lines(str(error)), style="default")
    Console(stderr=True, soft_wrap=True).print(text)


def show_thread_defect(arguments: threading.ExceptHookArgs) -> None:
    """For threading.excepthook."""
    if arguments.exc_value is not None:
        show_error(_defect(arguments.exc_value))


def as_shown(error: Exception) -> HeliographError:
    """The error as users know it; details of one that nobody foresaw are written to a file."""
    if isinstance(error, HeliographError):
        return error
    if isinstance(error, WireError):
        from heliograph.cli.flows import cluster_error  # noqa: PLC0415 - heavy, and rarely needed

        return cluster_error(error)
    if isinstance(error, OSError) and error.filename is not None:
        return _file_error(error)
    return _defect(error)


def _file_error(error: OSError) -> HeliographError:
    from heliograph.jvm.artifacts import cache_folder  # noqa: PLC0415 - rarely needed

    path = os.fsdecode(error.filename)
    hint = "check that it is there, that this user may write to it, and that the disk has room"
    if Path(path).is_relative_to(cache_folder()):
        hint = "HELIOGRAPH_CACHE=<folder> names another folder for what is fetched and prepared"
    return HeliographError("system.file", f"{path}: {error.strerror}", hint)


def _defect(error: BaseException) -> Defect:
    details = "".join(traceback.format_exception(error))
    try:
        # Only this user can read it.
        descriptor, path = tempfile.mkstemp(prefix="heliograph-", suffix=".traceback")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(f"heliograph {__version__}, Python {sys.version}\n{details}")
        where = f"details: {path}"
    except OSError as failed:
        where = f"details could not be written: {failed}"
    what = next(iter(str(error).splitlines()), "")
    text = f"a defect of Heliograph: {type(error).__name__}: {what}"
    return Defect("internal", text, f"{where}; please report it")
