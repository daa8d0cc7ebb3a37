"""Which places are mirrored already, read from the ledger's keys alone."""

from __future__ import annotations

from heliograph.ledger.codec import Place, split
from heliograph.ledger.follower import View

_RUNS = ("runs/", "packed/")


class BegunPlaces(View):
    """The places that have runs; for readers of another flow's ledger, who need no more of it."""

    def __init__(self) -> None:
        self.all: set[Place] = set()

    def forget(self) -> None:
        """Begin again."""
        self.all = set()

    def take(self, offset: int, key: bytes, value: bytes | None) -> None:
        """One record of the topic."""
        place, rest = split(key)
        if place is not None and value is not None and rest.startswith(_RUNS):
            self.all.add(place)
