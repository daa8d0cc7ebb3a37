"""Ties a program to the life of the one that starts it: ``python _leash.py PARENT_PID PROGRAM...``.

Run as a script. It asks Linux for SIGKILL on the parent's death (PR_SET_PDEATHSIG, kept across
exec), then becomes PROGRAM under the same pid. A script, and not ``preexec_fn``, because that runs
Python between fork and exec, which is unsafe once the parent has threads (Spark's driver has).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def main(argv: list[str]) -> None:
    """Never returns: ends in the program's place, or ends because the parent is already gone."""
    parent, program = int(argv[1]), argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # died before the request above
            sys.exit(1)
    os.execv(program[0], program)  # noqa: S606  the caller's own command line


if __name__ == "__main__":
    main(sys.argv)
