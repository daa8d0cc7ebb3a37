"""CPU time and memory of a whole process tree, from Linux's /proc.

CPU is user + system of every live process of the tree plus what each has inherited from children
it waited for (``cutime``, ``cstime``): a worker that ended is counted in its parent. Java and
PySpark's daemon both wait for their children.

Memory is the sum of the proportional set sizes (PSS): PySpark forks its workers, so they share most
of their pages, and a sum of RSS would count those once per worker. A page shared by n processes
counts 1/n for each. Both mirrors are measured alike.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["TICKS_PER_SECOND", "Footprint", "cpu_ticks_of_descendants", "tree"]

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# smaps_rollup walks the page tables of the process: often enough to see a peak, rare enough not to
# be one.
_SAMPLE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class _Stat:
    parent: int
    session: int
    cpu_ticks: int


def _stats() -> dict[int, _Stat]:
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            text = Path(entry.path, "stat").read_text("latin-1")
        except OSError:  # ended meanwhile
            continue
        # "pid (name) state ppid pgrp session ...": only the name may hold blanks and brackets.
        fields = text.rpartition(")")[2].split()
        ticks = sum(int(field) for field in fields[11:15])  # utime stime cutime cstime
        found[int(entry.name)] = _Stat(int(fields[1]), int(fields[3]), ticks)
    return found


def _descendants(members: set[int], stats: dict[int, _Stat]) -> list[int]:
    """``members`` and all below them."""
    size = 0
    while len(members) > size:
        size = len(members)
        members = members | {pid for pid, stat in stats.items() if stat.parent in members}
    return sorted(members)


def _tree(root: int, stats: dict[int, _Stat]) -> list[int]:
    """``root``'s session and all descendants: an orphan of the session still belongs to it."""
    return _descendants({pid for pid, stat in stats.items() if root in {pid, stat.session}}, stats)


def tree(root: int) -> list[int]:
    """The live processes of the tree of ``root``, which leads a session of its own."""
    return _tree(root, _stats())


def cpu_ticks_of_descendants(root: int) -> int:
    """CPU time of ``root`` and all below it, in ticks, also of those that have ended."""
    stats = _stats()
    return sum(stats[pid].cpu_ticks for pid in _descendants({root}, stats))


def _pss_bytes(pid: int) -> int:
    try:
        with Path(f"/proc/{pid}/smaps_rollup").open(encoding="ascii") as lines:
            for line in lines:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:  # ended meanwhile
        pass
    return 0


class Footprint:
    """Watches the tree of ``root`` from a thread of its own until the ``with`` block ends."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._cpu_ticks = 0
        self._peak_bytes = 0
        self._last_bytes = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="footprint", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def peak_mb(self) -> float:
        """The highest sum of PSS seen so far, in 10^6 bytes."""
        return self._peak_bytes / 1e6

    @property
    def memory_mb(self) -> float:
        """The sum of PSS half a second ago at most."""
        return self._last_bytes / 1e6

    def cpu_seconds(self) -> float:
        """CPU time used since the tree began. Any thread."""
        stats = _stats()
        ticks = sum(stats[pid].cpu_ticks for pid in _tree(self._root, stats))
        with self._lock:
            # A child reaped between the reads of its own file and its parent's is missed once.
            self._cpu_ticks = max(self._cpu_ticks, ticks)
            return self._cpu_ticks / TICKS_PER_SECOND

    def _watch(self) -> None:
        while True:
            self.cpu_seconds()
            self._last_bytes = sum(_pss_bytes(pid) for pid in tree(self._root))
            self._peak_bytes = max(self._peak_bytes, self._last_bytes)
            if self._stop.wait(_SAMPLE_SECONDS):
                return
