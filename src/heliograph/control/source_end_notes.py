"""Notes in the ledger what would be lost if the source died now. Runs in the driver.

What was noted last is all that is known of the source when it and its mirror are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from heliograph.ledger.source_ends import LastSeen, SourceEnds

__all__ = ["SourceEndNotes"]

#: What has changed is noted with every measurement, which are 2 s apart or a little less.
_CHANGED_MS = 1500
#: An idle mirror stays idle; yet it is known since when nothing is known.
_SAME_MS = 10_000


class SourceEndNotes:
    """Writes what ``seen`` says: what was measured last, the same object until the next time.

    While the source does not answer, nothing is noted: the last note says since when.
    """

    def __init__(self, ends: SourceEnds, seen: Callable[[], LastSeen | None]) -> None:
        self._ends = ends
        self._seen = seen
        self._noted: LastSeen | None = None

    def note(self) -> None:
        """Append it if it is news, or old enough; called by one job, by the mirror that owns."""
        seen, noted = self._seen(), self._noted
        if seen is None or seen is noted:
            return
        if noted is not None:
            # How long records have waited grows while nothing changes.
            same = replace(seen, at_ms=noted.at_ms, seconds=noted.seconds) == noted
            # Either way: somebody may have set the clock.
            if abs(seen.at_ms - noted.at_ms) < (_SAME_MS if same else _CHANGED_MS):
                return
        self._ends.note(seen)
        self._noted = seen
