"""Whether a lease can be held by the clock of this machine. Runs in executors.

A lease names moments of the driver's clock, and its holder goes by the clock of its own machine. If
they differ by much, the holder would wait for hours, or take the lease for over before it began,
and nobody would know why nothing is copied. Nothing else compares the clocks of two machines.
"""

from __future__ import annotations

import socket

from heliograph.errors import PartitionError
from heliograph.model import Lease

__all__ = ["out_of_time", "set_back"]

#: Tasks are started a second before their lease begins; one that comes so much too early, or so
#: long after its end, goes by another clock.
_TOLERANCE_SECONDS = 5.0
#: No partition is told to wait for longer than its lease and this, see `LeaseState`.
_LONGEST_WAIT_SECONDS = 60.0
_HINT = "synchronise the clocks of the driver and of all Spark workers, e.g. with NTP"


def out_of_time(lease: Lease, now: float) -> PartitionError | None:
    """Why the lease cannot be held from ``now``, the time on this machine as its task begins."""
    early, late = lease.starts_at - now, now - lease.deadline
    host = socket.gethostname()
    if early > _TOLERANCE_SECONDS:
        text = f"the clock of {host} is {early:.0f} s or more behind the driver's"
        return PartitionError("executor.clock", f"nothing is copied there: {text}", _HINT)
    if late > _TOLERANCE_SECONDS:
        text = (
            f"nothing was copied on {host}: Spark started the task {late:.0f} s after its lease had"
            " ended, because it had no free slot or the machine is overloaded"
        )
        hint = "give Spark more cores, or mirror less with these; partitions are tried again"
        if lease.report_to is None or not lease.report_to.path:
            # Another machine: it may go by another clock.
            hint += f". If Spark has slots to spare, the clock of {host} is ahead: {_HINT}"
        return PartitionError("executor.late", text, hint)
    return None


def set_back(lease: Lease, now: float, retry_at: float) -> bool:
    """Whether the clock was set back since somebody was told to wait until ``retry_at``."""
    longest = lease.deadline - lease.starts_at + _LONGEST_WAIT_SECONDS
    return now + longest < retry_at < float("inf")
