"""MM2's offset syncs, as far as its restarts can be told from them. Used by the driver."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph.mm2.connect_offsets import LatestRecords
from heliograph.mm2.formats import OffsetSync
from heliograph.model import TopicPartition
from heliograph.takeover.alignment import Pair
from heliograph.wire.cluster import ClusterClient

__all__ = ["SyncLog", "Syncs"]

_OFFSETS = struct.Struct(">qq")
#: Restarts that are remembered of one partition.
_MOST_PEAKS = 16


@dataclass(slots=True)
class Syncs:
    """The syncs of one partition: the newest, and the last one before each restart of MM2."""

    newest: Pair
    peaks: list[Pair] = field(default_factory=list)

    def add(self, sync: Pair) -> None:
        """Take the next one of the topic."""
        if sync.target <= self.newest.target:
            # The target topic was created anew, or lost its tail: what was before counts no more.
            self.peaks.clear()
        elif sync.source <= self.newest.source:
            self.peaks = [*self.peaks, self.newest][-_MOST_PEAKS:]
        self.newest = sync


class SyncLog(LatestRecords):
    """Follows an offset-syncs topic."""

    def __init__(self, client: ClusterClient, topic: str) -> None:
        super().__init__(client, topic)
        self._syncs: dict[bytes, Syncs] = {}

    def _keep(self, key: bytes, value: bytes | None, in_transaction: bool) -> None:
        if value is None or len(value) != _OFFSETS.size:
            self._syncs.pop(key, None)
            return
        sync = Pair(*_OFFSETS.unpack(value))
        known = self._syncs.get(key)
        if known is None:
            self._syncs[key] = Syncs(sync)
        elif sync != known.newest:
            known.add(sync)

    def by_partition(self) -> Mapping[TopicPartition, Syncs]:
        """All syncs, of source partitions."""
        found = {}
        for key, syncs in self._syncs.items():
            decoded = OffsetSync.decode(key, _OFFSETS.pack(*syncs.newest))
            found[TopicPartition(decoded.topic, decoded.partition)] = syncs
        return found
