"""Where and with what a result was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from heliograph.lab import DEFAULT_KAFKA_VERSION, find_java

__all__ = ["commit", "describe"]

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("heliograph", "pyspark", "pyarrow", "kafka-python", "aiokafka", "confluent-kafka")


def _git(*arguments: str) -> str | None:
    done = subprocess.run(
        ["git", "-C", str(_ROOT), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None


def commit() -> str:
    """Short commit, with ``-dirty`` when files other than results differ from it."""
    head = _git("rev-parse", "--short=10", "HEAD")
    if head is None:
        return "uncommitted"
    changed = _git("status", "--porcelain", "--", ".", ":(exclude)benchmarks/results")
    return f"{head}-dirty" if changed else head


def describe() -> dict[str, str]:
    """The machine and the versions of everything that takes part, for people."""
    java = subprocess.run(
        [str(find_java()), "-version"], capture_output=True, text=True, check=False
    )
    one_minute = os.getloadavg()[0]
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "model": _cpu_model(),
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "java": next(iter(java.stderr.splitlines()), "unknown"),
        "python": platform.python_version(),
        "kafka and connect-mirror": DEFAULT_KAFKA_VERSION,
        **{name: _version(name) for name in _PACKAGES},
        "load before the run": f"{one_minute:.2f}",
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
