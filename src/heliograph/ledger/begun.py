"""Which places are mirrored already, read from the ledger's keys alone."""

from __future__ import annotations

from heliograph.ledger.codec import Place, split
from heliograph.ledger.store import LedgerStore
from heliograph.wire.cluster import ClusterClient

_RUNS = ("runs/", "packed/")


class BegunPlaces(LedgerStore):
    """Follows the ledger topic for the places that have runs, and appends to it.

    Used by the driver, in one thread at a time. As the `Registry`, it leaves the runs out.
    """

    def __init__(self, client: ClusterClient, topic: str) -> None:
        super().__init__(client, topic)
        self.all: set[Place] = set()

    def _take(self, offset: int, key: bytes, value: bytes | None) -> bool:
        place, rest = split(key)
        begun = place is not None and value is not None and rest.startswith(_RUNS)
        if begun and place is not None:
            self.all.add(place)
        return begun
