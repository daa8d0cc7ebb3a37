"""Whether a source has come to rest: the proof that nobody writes to it any more. Pure.

Ends of logs that stand still prove it only if no transaction is open, too: a commit would add to
them. What grows after producers were stopped, was written by somebody who does not obey.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from heliograph.model import TopicPartition

__all__ = ["Ends", "QuietWatch", "grown"]


class Ends(NamedTuple):
    """Where a partition ends: its last stable offset, and its high watermark."""

    stable: int
    end: int


class QuietWatch:
    """Takes one look after the other at the ends of a source. Times are of one clock, in seconds.

    Attributes:
        writers: records that somebody wrote although producers were stopped, by partition.
        waits_for: partitions in which a transaction was open at the last look.
    """

    def __init__(self, quiet_seconds: float, grace_seconds: float) -> None:
        """Expect rest.

        Args:
            quiet_seconds: for so long nothing may change.
            grace_seconds: what was on its way when producers were stopped may come for so long.
        """
        self._quiet = quiet_seconds
        self._grace = grace_seconds
        self._began: float | None = None
        self._since = 0.0
        self._ends: Mapping[TopicPartition, Ends] = {}
        self.writers: dict[TopicPartition, int] = {}
        self.waits_for: frozenset[TopicPartition] = frozenset()

    def look(self, ends: Mapping[TopicPartition, Ends], now: float) -> bool:
        """Take in where all partitions ended ``now``; returns whether the source has been quiet."""
        before, self._ends = self._ends, ends
        first = self._began is None
        self._began = now if self._began is None else self._began
        self.waits_for = frozenset(p for p, at in ends.items() if at.stable < at.end)
        if first or ends != before or self.waits_for:
            self._since = now
        if not first and now - self._began > self._grace:
            for p, records in grown(before, ends).items():
                # The marker of a transaction that was open is nobody's disobedience.
                if before[p].stable == before[p].end:
                    self.writers[p] = self.writers.get(p, 0) + records
        return not self.writers and now - self._since >= self._quiet


def grown(
    before: Mapping[TopicPartition, Ends], after: Mapping[TopicPartition, Ends]
) -> dict[TopicPartition, int]:
    """How many offsets partitions have grown by; those that were not known before have not."""
    return {
        p: at.end - before[p].end
        for p, at in sorted(after.items())
        if p in before and at.end != before[p].end
    }  # fmt: skip
