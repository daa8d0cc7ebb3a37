"""How much may be read: a slow target broker must not stop the others. In executors.

As much is read as the target takes. When as much waits as may, the partitions of slow brokers are
set aside: they are not read any further, and what they hold no longer counts. `LeaseState.budget`
limits all of it together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from heliograph.copy.lease_state import LeaseState
from heliograph.copy.partition import PartitionCopy, unpin
from heliograph.copy.target_link import TargetLink


class Backpressure:
    """Decides what is read. ``links`` are the target's; ``drained`` has a partition read on."""

    def __init__(
        self,
        lease_state: LeaseState,
        links: Mapping[int, TargetLink],
        drained: Callable[[PartitionCopy], None],
    ) -> None:
        self._state = lease_state
        self._links = links
        self._drained = drained

    def has_room(self) -> bool:
        """Whether more may be read, slow brokers set aside if need be."""
        lease_state = self._state
        if lease_state.buffered >= lease_state.budget:
            return False
        most = lease_state.context.fetch_max_bytes
        # What waits for the ledger waits for itself alone.
        held = lease_state.buffered - lease_state.unannounced
        if held < most:
            return True
        if len(self._links) < 2:
            return False
        now = time.monotonic()
        for link in self._links.values():
            if not link.aside and link.is_slow(now):
                self._set_aside(link)
        return held - self._aside_bytes() < most

    def is_aside(self, p: PartitionCopy) -> bool:
        """Whether the partition must not be read, because its leader is slow."""
        link = self._links.get(p.held_by)
        return link is not None and link.aside

    def _aside_bytes(self) -> int:
        return sum(self._state.held[link.node] for link in self._links.values() if link.aside)

    def _set_aside(self, link: TargetLink) -> None:
        link.aside = True
        for p in self._state.written_to(link.node):
            self._drained(p)
            unpin((*p.in_flight, *p.queue))

    def take_back(self, link: TargetLink) -> None:
        """Read the partitions of a broker that is aside again, if little enough waits for it."""
        fair = self._state.context.fetch_max_bytes // (2 * len(self._links))
        if self._state.held[link.node] <= fair:
            link.aside = False
            for p in self._state.written_to(link.node):
                self._drained(p)
