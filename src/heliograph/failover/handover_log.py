"""What was done to a flow, from its ledger: for whoever looks at it again and again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from heliograph.config import FlowConfig
from heliograph.ledger.follower import LedgerFollower
from heliograph.ledger.handovers import Handover, Handovers
from heliograph.ledger.rehearsals import Rehearsal, Rehearsals
from heliograph.policy import ledger_topic
from heliograph.wire.cluster import ClusterClient

__all__ = ["HandoverLog", "Noted"]

#: Somebody waits for the answer in front of a page.
_REQUEST_SECONDS = 3.0


class Noted(NamedTuple):
    """The newest handover, if there was one, and rehearsals, the newest first."""

    last: Handover | None = None
    rehearsals: Sequence[Rehearsal] = ()


class HandoverLog:
    """Reads a flow's ledger once, and then what is new. Works while the source is gone. Close it.

    Runs in the driver, beside the flow itself: the flow may be stopped, or not even started.
    """

    def __init__(self, config: FlowConfig, scope: str = "") -> None:
        self._topic = ledger_topic(config.flow.source)
        self._client = ClusterClient(
            config.target_admin, f"{config.flow}|handover-log", request_timeout=_REQUEST_SECONDS
        )
        self._follower = LedgerFollower(self._client, self._topic)
        self._handovers = Handovers(self._follower, scope)
        self._rehearsals = Rehearsals(self._follower, scope)
        self._lock = threading.Lock()
        self._there = False

    def read(self) -> Noted:
        """All that is noted now; nothing of a flow that was never mirrored. Raises WireError."""
        with self._lock:
            if not self._there and self._topic not in self._client.metadata([self._topic]).topics:
                return Noted()
            self._there = True
            self._follower.refresh()
            return Noted(self._handovers.last, self._rehearsals.all)

    def close(self) -> None:
        """Close the connection; a reading that waits for an answer ends with an error."""
        self._client.close()
