"""A Java program's classes, loaded once and kept, so that its JVM starts quicker (JEP 350).

An archive depends on the Java and on the class path; one that does not fit is ignored by the JVM,
and its absence only makes the start slower. Built by ``heliograph prepare``.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from heliograph.jvm.artifacts import cache_folder
from heliograph.jvm.java import find_java

__all__ = ["archive_path", "load_flags", "writing"]


def archive_path(program: str, known_by: str) -> Path:
    """Where this machine's archive of ``program`` is, or will be.

    ``known_by`` is whatever else it depends on, such as the class path.
    """
    java = find_java().resolve()
    text = f"{java}:{java.stat().st_mtime_ns}:{known_by}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return cache_folder() / f"{program}-{digest}.jsa"


def load_flags(path: Path) -> list[str]:
    """The JVM flags that use the archive, and stay silent if it does not fit; none without it."""
    return [f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off"] if _is_ours(path) else []


def _is_ours(path: Path) -> bool:
    """Whether nobody else can have written it: what is in there is executed."""
    try:
        found = [path.stat(), path.parent.stat()]
    except OSError:
        return False
    return all(
        one.st_uid in {os.getuid(), 0} and not one.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        for one in found
    )


@contextmanager
def writing(path: Path) -> Iterator[str]:
    """The JVM flag that writes an archive when the JVM ends in order; inside, run that JVM.

    The archive is put in its place as a whole: a JVM that starts meanwhile sees none of it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The JVM that writes one must not use another.
    path.unlink(missing_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        yield f"-XX:ArchiveClassesAtExit={part}"
        with suppress(FileNotFoundError):
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
