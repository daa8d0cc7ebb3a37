"""Spark's classes, loaded once and kept, so that the JVM starts quicker (JEP 350).

The archive depends on the Java, on the pyspark and on the flags; one that does not fit is ignored
by the JVM, and its absence only makes the start slower. Built by ``heliograph prepare``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from pyspark import __version__ as spark_version

from heliograph.lab.artifacts import cache_folder
from heliograph.lab.java import find_java

__all__ = ["archive_path", "load_flag", "write_flag"]


def archive_path() -> Path:
    """Where this machine's archive is, or will be."""
    java = find_java().resolve()
    known_by = f"{java}:{java.stat().st_mtime_ns}:{Path(__file__).parents[1]}"
    digest = hashlib.sha256(known_by.encode()).hexdigest()[:12]
    return cache_folder() / f"spark-{spark_version}-{digest}.jsa"


def load_flag() -> str:
    """The JVM flag that uses the archive; nothing if there is none."""
    path = archive_path()
    return f"-XX:SharedArchiveFile={path}" if path.is_file() else ""


def write_flag(path: Path) -> str:
    """The JVM flag that writes an archive to ``path`` when the JVM ends."""
    return f"-XX:ArchiveClassesAtExit={path}"
