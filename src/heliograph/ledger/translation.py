"""Offsets of one cluster as offsets of the other, exactly. Runs in the driver and in commands.

An offset means the first record at or behind it: that is where a consumer goes on. Its translation
means the same record on the other side, or the place where that record is going to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heliograph.ledger.codec import Place
from heliograph.ledger.order import logs_before_ledger
from heliograph.ledger.runs import PartitionLedger
from heliograph.ledger.store import LedgerStore
from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.metadata import Metadata

__all__ = ["MirroredPartition", "Translation", "Translator"]

_LOST = "the source has lost this record; what it has written since goes on here"
_BLURRED = "mirrored by MM2; the nearest offset before it that certainly skips nothing"


@dataclass(frozen=True, slots=True)
class Translation:
    """An offset on the other side; None if there is none, with the reason in ``note``.

    Attributes:
        exact: whether it is the very record that was asked for. Otherwise the nearest offset that
            loses nothing, and ``note`` says why.
    """

    offset: int | None
    exact: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class MirroredPartition:
    """What is known of one partition: its runs, and where the target's log starts and ends.

    ``end`` was read before ``ledger``: every record below it has its run there.
    """

    ledger: PartitionLedger
    start: int
    end: int

    def to_target(self, source: int) -> Translation:
        """Where a consumer that is at ``source`` on the source goes on, on the target.

        Never past the record that it would read next, and never outside of the target's log.
        """
        if not self.ledger.runs:
            if source == 0:
                return Translation(self.start, exact=True)
            return Translation(None, exact=False, note="nothing of it is mirrored yet")
        target = self.ledger.to_target(source)
        if target > self.end:
            note = f"not mirrored yet; the target ends at {self.end}"
            return Translation(self.end, exact=False, note=note)
        if target < self.start:
            note = f"deleted on the target, which starts at {self.start}"
            return Translation(self.start, exact=False, note=note)
        if self.ledger.inherited.to_target(source) is not None:
            return Translation(target, exact=False, note=_BLURRED)
        return Translation(target, exact=True)

    def to_source(self, target: int) -> Translation:
        """Where a consumer that is at ``target`` on the target goes on, on the source."""
        if not self.ledger.runs:
            if target == 0:
                return Translation(0, exact=True)
            return Translation(None, exact=False, note="nothing of it is mirrored yet")
        source = self.ledger.to_source(min(max(target, self.start), self.end))
        if target > self.end:
            note = f"the target ends at {self.end}"
            return Translation(source, exact=False, note=note)
        if target < self.start:
            note = f"deleted on the target, which starts at {self.start}"
            return Translation(source, exact=False, note=note)
        if self.ledger.inherited.to_source(target) is not None:
            return Translation(source, exact=False, note=_BLURRED)
        if self.ledger.is_lost(target):
            return Translation(source, exact=False, note=_LOST)
        return Translation(source, exact=True)


class Translator:
    """Looks at the target's logs and the ledger of one flow. One thread at a time."""

    def __init__(self, target: ClusterClient, ledger: LedgerStore) -> None:
        self._target = target
        self._ledger = ledger

    def look(
        self, metadata: Metadata, places: Mapping[Place, TopicPartition]
    ) -> dict[Place, MirroredPartition]:
        """The partitions as they are now; ``places`` names each one's partition on the target.

        Those whose leader did not answer are absent.
        """
        wanted = sorted(set(places.values()))
        starts = admin.list_offsets(self._target, metadata, wanted, admin.EARLIEST)
        with logs_before_ledger(self._ledger):
            ends = admin.list_offsets(self._target, metadata, wanted, admin.LATEST)
        return {
            place: MirroredPartition(self._ledger.at(place), starts[t], ends[t])
            for place, t in places.items()
            if t in starts and t in ends
        }
