"""When an offset sync is due: MM2's rule, applied to acknowledged batches. Pure.

MM2 looks at every record; a batch's records share one run, so looking at its last record says the
same with fewer words.
"""

from __future__ import annotations

from heliograph.mm2.formats import OffsetSync
from heliograph.model import TopicPartition


class OffsetSyncs:
    """Decides for all partitions of a lease; keeps only the latest sync of each.

    A sync is due at once when it is the first of the lease, when ``offset_lag_max`` records passed
    since the last one, when the source offsets jumped, or when the target went backwards. Anything
    else is delayed until `take` is called with ``delayed=True``.
    """

    def __init__(self, offset_lag_max: int) -> None:
        self._lag_max = offset_lag_max
        self._last: dict[TopicPartition, tuple[int, int]] = {}
        self._synced: dict[TopicPartition, int] = {}
        self._due: dict[TopicPartition, tuple[int, int]] = {}
        self._delayed: dict[TopicPartition, tuple[int, int]] = {}

    def acknowledged(self, partition: TopicPartition, first: int, last: int, target: int) -> None:
        """Source offsets ``first`` to ``last`` were written; the last is at ``target``."""
        previous = self._last.get(partition)
        self._last[partition] = (last, target)
        due = (
            previous is None
            or first != previous[0] + 1
            or target < previous[1]
            or target - (self._synced[partition] + 1) >= self._lag_max
        )
        if due:
            self._synced[partition] = target
            self._due[partition] = (last, target)
            self._delayed.pop(partition, None)
        elif partition in self._due:
            self._due[partition] = (last, target)
            self._synced[partition] = target
        else:
            self._delayed[partition] = (last, target)

    @property
    def due(self) -> bool:
        """Whether a sync should go out now."""
        return bool(self._due)

    def take(self, *, delayed: bool) -> list[OffsetSync]:
        """The syncs to write now; with ``delayed`` also those that only waited."""
        taken = dict(self._due)
        self._due.clear()
        if delayed:
            taken |= self._delayed
            for partition, (_, target) in self._delayed.items():
                self._synced[partition] = target
            self._delayed.clear()
        return [OffsetSync(p.topic, p.partition, up, down) for p, (up, down) in taken.items()]
