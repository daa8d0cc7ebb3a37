"""Finds a Java that is new enough: brokers, the real MirrorMaker 2 and Spark all need one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from heliograph.errors import StartError

__all__ = ["find_java", "java_version"]

_INSTALL = (
    "Install a JDK of version {minimum} or newer"
    " (Debian/Ubuntu: apt install openjdk-17-jdk-headless; macOS: brew install openjdk@17)"
    " or point JAVA_HOME at one."
)


def java_version(java: Path) -> str:
    """What a ``java`` program says of itself, e.g. ``version "17.0.9"``."""
    return _version(java)[1]


@lru_cache(maxsize=8)
def _version(java: Path) -> tuple[int | None, str]:
    """Major version of ``java`` and the first line it printed; None when it does not say."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    # JAVA_TOOL_OPTIONS makes the JVM print a line of its own before the version.
    text = done.stderr + done.stdout
    match = re.search(r'version "(?:1\.)?(\d+)[^"]*"', text)
    if match is None:
        return None, next(iter(text.splitlines()), "no output")
    return int(match[1]), match[0]


def find_java(minimum: int = 17) -> Path:
    """The ``java`` program to use: JAVA_HOME's first, then the first on PATH.

    A JAVA_HOME that is set but unusable is an error rather than a reason to look on: Spark would
    use it too, and fail later with a worse message.

    Raises:
        StartError: ``java.missing`` or ``java.too-old``; the message names what was found, where.
    """
    hint = _INSTALL.format(minimum=minimum)
    home = os.environ.get("JAVA_HOME")
    if home:
        java, origin = Path(home) / "bin" / "java", f"JAVA_HOME={home}"
        if not os.access(java, os.X_OK):
            raise StartError("java.missing", f"No Java: {origin}, but {java} is no program.", hint)
    else:
        found = shutil.which("java")
        if found is None:
            message = "No Java: JAVA_HOME is not set and there is no java on PATH."
            raise StartError("java.missing", message, hint)
        java, origin = Path(found), "first on PATH"
    major, said = _version(java)
    if major is None:
        raise StartError("java.missing", f"No Java: {java} ({origin}) answered: {said}", hint)
    if major < minimum:
        message = f"Java too old: {java} ({origin}) is {said}; {minimum} or newer is needed."
        raise StartError("java.too-old", message, hint)
    return java
