"""CPU that programs outside the benchmark used meanwhile: with too much of it figures mean little.

The brokers, the mirrors, the clients and the tools are all descendants of the benchmark. What the
kernel does on their behalf outside of them (writing to disk) counts as foreign: a few percent.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.footprint import TICKS_PER_SECOND, cpu_ticks_of_descendants

__all__ = ["DISTURBING_PERCENT", "Neighbours"]

DISTURBING_PERCENT = 20.0


class Neighbours:
    """Begins to watch when it is made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._ticks = self._foreign_ticks()

    @staticmethod
    def _foreign_ticks() -> int:
        # cpu user nice system idle iowait irq softirq steal guest guest_nice
        fields = Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:]
        user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
        whole = user + nice + system + irq + softirq + steal
        return whole - cpu_ticks_of_descendants(os.getpid())

    def percent(self) -> float:
        """Percent of one core since the beginning, including what the hypervisor took."""
        seconds = (self._foreign_ticks() - self._ticks) / TICKS_PER_SECOND
        return max(0.0, 100 * seconds / (time.monotonic() - self._began))
