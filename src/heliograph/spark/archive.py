"""Where Spark's class archive is (see ``heliograph.jvm.archive``)."""

from __future__ import annotations

from pathlib import Path

from pyspark import __version__ as spark_version

from heliograph.jvm import archive

__all__ = ["archive_path"]


def archive_path() -> Path:
    """Where this machine's archive is, or will be; an update of Heliograph needs a new one."""
    return archive.archive_path(f"spark-{spark_version}", str(Path(__file__).parents[1]))
