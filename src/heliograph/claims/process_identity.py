"""Which process is this, and is that one gone? Runs in the driver. Linux knows; others only guess.

A killed mirror that is started again on its host must not wait for its own claim to fall silent, so
this is the one question about another mirror that is answered without its help. It is answered with
"gone" only where that is certain.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from heliograph.claims.log import Process

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")
#: After the command's name in parentheses, which may itself hold spaces and parentheses: the
#: process's state is the first field of /proc/<pid>/stat, its start time the twentieth.
_STATE, _STARTED = 0, 19
#: Dead, but its parent has not asked for its exit code.
_DEAD_STATES = frozenset("ZXx")


def this_process() -> Process:
    """The driver that asks."""
    try:
        boot, namespace = _BOOT_ID.read_text().strip(), str(_NAMESPACE.readlink())
        started = int(_stat(os.getpid())[_STARTED])
    except (OSError, ValueError, IndexError):
        boot, namespace, started = "", "", 0
    return Process(socket.gethostname(), os.getpid(), boot, namespace, started)


def tag_of(process: Process) -> str:
    """A short text that names a process and no other one of its host's current boot."""
    return f"{process.host}:{process.pid}:{process.started}"


def is_gone(process: Process, here: Process) -> bool:
    """Whether a process that ran beside ``here`` has certainly ended.

    Containers may share a host's name and boot, but not its process numbers: where those are not
    the same, nothing is known.
    """
    if not here.boot or not here.namespace:
        return False
    if (process.host, process.boot, process.namespace) != (here.host, here.boot, here.namespace):
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # somebody else's: it may still be another one than we look for
    try:
        fields = _stat(process.pid)
        return fields[_STATE] in _DEAD_STATES or int(fields[_STARTED]) != process.started
    except (OSError, ValueError, IndexError):
        return False


def _stat(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text()
    return text.rpartition(")")[2].split()
