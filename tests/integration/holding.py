"""A lease without an end to its partitions, held in a thread while a test disturbs the clusters."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from mirroring import Mirroring, wait_for

from heliograph.copy.loop import CopyLoop
from heliograph.lab.proof import compare
from heliograph.model import Lease, LeasedPartition, Receipt, TopicPartition


class Holding:
    """Copies a topic of one partition until told to stop; ``why`` is what disturbs it now."""

    def __init__(self, flow: Mirroring, topic: str) -> None:
        self._flow, self._topic = flow, topic
        now = time.time()
        leased = LeasedPartition(TopicPartition(topic, 0), f"A.{topic}", None, **flow.options)
        self._lease = Lease(flow.context, (leased,), now, now + 600)
        self._loop = CopyLoop(self._lease)
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self._receipts: list[Receipt] = []

    def _hold(self) -> None:
        self._receipts = self._loop.run()

    @property
    def why(self) -> str:
        """What keeps the partition from being copied; empty while nothing does."""
        [p] = self._loop._lease_state.parts.values()
        return "" if p.active else p.broken

    def stop(self) -> None:
        object.__setattr__(self._lease, "deadline", time.time())
        self._thread.join(120)
        assert not self._thread.is_alive()

    @property
    def receipt(self) -> Receipt:
        [receipt] = self._receipts
        return receipt

    def in_step(self) -> None:
        """Wait until everything is on the target; then it is the very same."""
        source, target = self._flow.source, self._flow.target
        ends = self._flow.ends(self._topic)
        wait_for(lambda: sum(self._ends().values()) >= sum(ends.values()))
        proof = compare(source, target, self._topic, f"A.{self._topic}")
        assert proof.identical, proof

    def _ends(self) -> dict[TopicPartition, int]:
        from heliograph.wire import admin

        return self._flow.offsets(self._flow.target, f"A.{self._topic}", admin.LATEST)


@contextmanager
def holding(flow: Mirroring, topic: str) -> Iterator[Holding]:
    held = Holding(flow, topic)
    held._thread.start()
    try:
        yield held
    finally:
        held.stop()
