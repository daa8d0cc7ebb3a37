"""What only the old source has of a flow that was failed over. Runs in the driver.

When it is back, its log goes on where the failover has cut it, if somebody writes to it still. A
mirror that rests looks on: `heliograph failback` asks what is to become of these records.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

from heliograph.model import Flow, TopicPartition
from heliograph.units import counted

__all__ = ["DivergenceWatch"]

#: Whoever writes on and on is told of once in so long.
_TOLD_SECONDS = 60.0
_NAMED = 3


class DivergenceWatch:
    """Takes what was measured and tells of it. For one thread; ``records`` may be read by any.

    Attributes:
        records: source offsets behind the cut of a failover, which the target does not have; None
            if the flow was not failed over, or the source has not answered since.
    """

    def __init__(self, flow: Flow, tell: Callable[[str], None]) -> None:
        self._flow = flow
        self._tell = tell
        self._told = 0
        self._told_at = 0.0
        self.records: int | None = None

    def over(self) -> None:
        """The flow is not failed over, or not any more."""
        self.records, self._told = None, 0

    def measured(self, beyond: Mapping[TopicPartition, int]) -> None:
        """The source has so many offsets of these partitions behind their cuts."""
        before, now = self.records, time.time()
        self.records = total = sum(beyond.values())
        if total < self._told:
            # Retention, or a topic that was made anew.
            self._told = total
        elif total > self._told and (not self._told or now - self._told_at >= _TOLD_SECONDS):
            self._tell(self._words(beyond, total, returned=before is None))
            self._told, self._told_at = total, now

    def _words(self, beyond: Mapping[TopicPartition, int], total: int, *, returned: bool) -> str:
        source, target = self._flow.source, self._flow.target
        topics: Counter[str] = Counter()
        for p, records in beyond.items():
            topics[p.topic] += records
        worst = ", ".join(f"{t} {n:,}" for t, n in topics.most_common(_NAMED) if n)
        topics = +topics
        more = f" and {len(topics) - _NAMED} more topics" if len(topics) > _NAMED else ""
        news = f"{source} answers again" if returned else (
            f"{source} takes writes although it was failed over,"
            f" {counted(total - self._told, 'record')} more"
        )  # fmt: skip
        return (
            f"{news}: {target} has not {counted(total, 'record')} of it ({worst}{more}). Stop what"
            f" writes to {source}; 'heliograph failback' asks what is to become of them"
        )
