"""A lease held in this process, without Spark, while a test does something to its clusters."""

import threading
from dataclasses import replace

from heliograph.copy.loop import CopyLoop


class Copying(threading.Thread):
    """A lease that is held while the test does something to the links."""

    def __init__(self, lease):
        super().__init__(daemon=True)
        self._lease, self.receipts = lease, None
        self.start()

    def run(self):
        self.receipts = CopyLoop(self._lease).run()

    def result(self, seconds=700.0):
        """The receipts; waits for longer than any lease of these tests."""
        self.join(seconds)
        assert self.receipts is not None, "the lease did not end"
        return self.receipts


def endless(lease):
    """The lease without an end but its deadline."""
    return replace(lease, partitions=tuple(replace(p, until=None) for p in lease.partitions))
