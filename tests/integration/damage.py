"""What disks and clusters do to a target's log, and leases that run meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from heliograph.batch.header import batches
from heliograph.copy.loop import CopyLoop
from heliograph.model import TopicPartition


def cut_tails(flow, ends: Mapping[TopicPartition, int]) -> None:
    """The target's broker dies, its disk loses the tails of some logs, and it comes back."""
    cluster = flow.lab["B"]
    broker = cluster.broker(1)
    broker.kill()
    try:
        for partition, until in ends.items():
            cut(cluster.folder / f"data-1/{partition.topic}-{partition.partition}", until)
    finally:
        broker.start()
    cluster.wait_ready()
    # Its connections are dead.
    flow.target.close()


def cut(folder: Path, until: int) -> None:
    """Leave a log only what is before ``until``; its broker does not run."""
    end = 0
    for segment in sorted(folder.glob("*.log")):
        data = memoryview(segment.read_bytes())
        kept = [(h, b) for h, b in batches(data) if h.base_offset < until]
        end = max([end, *(header.last_offset + 1 for header, _ in kept)])
        with segment.open("r+b") as file:
            file.truncate(sum(len(batch) for _, batch in kept))
        if not kept and int(segment.stem):
            segment.unlink()
    assert end == until, "batches are cut as a whole"
    for pattern in ("*.index", "*.timeindex", "*.snapshot"):
        for path in folder.glob(pattern):
            path.unlink()


class Holding:
    """A lease without an end, held in a thread; a context manager that ends it."""

    def __init__(self, mirroring, *topics: str, seconds: float = 120.0, **options) -> None:
        lease = mirroring.lease(topics, seconds)
        leased = tuple(replace(p, until=None, **options) for p in lease.partitions)
        self.lease = replace(lease, partitions=leased)
        self.loop = CopyLoop(self.lease)
        self.receipts = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.receipts = self.loop.run()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """End it now; returns the receipts."""
        self.loop._lease_state.lease = self.loop._lease = replace(self.lease, deadline=0.0)
        self._thread.join(120)
        assert not self._thread.is_alive()
        return self.receipts

    @property
    def events(self):
        return list(self.loop._lease_state.events)

    def told(self, code: str):
        """The events with a code so far."""
        return [event for event in self.events if event.code == code]

    def part(self, topic: str, partition: int = 0):
        """The copy of a partition."""
        return self.loop._lease_state.parts[TopicPartition(topic, partition)]
