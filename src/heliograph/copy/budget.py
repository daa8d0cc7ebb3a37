"""How much memory a lease may use for what it has read and not yet written. Runs in executors."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from heliograph.model import FlowContext

#: By default all leases that a machine holds at once, one a core, share this part of its memory ...
_PART = 8
#: ... within these bounds: less slows a copy down, more does not make it quicker.
_LEAST_BYTES, _MOST_BYTES = 32 << 20, 256 << 20
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def budget(context: FlowContext) -> int:
    """Most bytes of batches that a lease of this flow holds: as configured, or by the machine."""
    return context.buffer_max_bytes or default(memory_bytes(), os.cpu_count() or 1)


def default(memory: int, cores: int) -> int:
    """The budget of one lease of as many as there are cores."""
    return min(max(memory // _PART // cores, _LEAST_BYTES), _MOST_BYTES)


def memory_bytes() -> int:
    """The memory of this machine, or of the container that it is for us."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        # No such file, or "max".
        with suppress(OSError, ValueError):
            found = min(found, int(Path(path).read_text("ascii")))
    return found
