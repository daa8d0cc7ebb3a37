"""The driver's end of the live reports: lines in. Runs in the driver.

A caller that sends anything but a `LeaseReport` is disconnected. The only answer is that leases are
to end, when the driver stops. All of it is best effort: receipts repeat what matters.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from heliograph.copy.lease_report import END_OF_LEASE, LeaseReport
from heliograph.service.listening import Caller, Listener

__all__ = ["ReportServer"]

log = logging.getLogger(__name__)

#: Holders of leases that do not end in this time are killed; what they wrote is found out later.
_END_SECONDS, _ENDED_EVERY_SECONDS = 3.0, 0.02


class ReportServer(Listener):
    """Listens until `close`; ``hear`` is called in its thread, for each line."""

    def __init__(self, hear: Callable[[LeaseReport], None]) -> None:
        super().__init__("reports")
        self._hear = hear

    def end_leases(self, flow: str, patience: float = _END_SECONDS) -> bool:
        """Have the holders of a flow's leases stop in order; returns whether all have hung up.

        They take in the answers to what they sent, and write down what was acknowledged.
        """
        asked: set[int] = set()
        deadline = time.monotonic() + patience
        while True:
            holders = self._holders(flow)
            if not holders:
                return True
            if time.monotonic() >= deadline:
                return False
            for caller in holders:
                if id(caller) not in asked:
                    asked.add(id(caller))
                    caller.answer(END_OF_LEASE)
            time.sleep(_ENDED_EVERY_SECONDS)

    def are_held(self, flow: str) -> bool:
        """Whether somebody holds a lease of a flow, as far as he has called: all do at first."""
        return bool(self._holders(flow))

    def _holders(self, flow: str) -> list[Caller]:
        return [caller for caller in self.known if caller.flow == flow]

    def heard(self, caller: Caller, line: bytes) -> bool:
        """Take in a report."""
        try:
            lease_report = LeaseReport.decode(line)
        except ValueError as error:
            log.debug("a report that cannot be read: %s", error)
            return False
        caller.flow = lease_report.flow
        if lease_report.is_greeting:
            return True
        try:
            self._hear(lease_report)
        except Exception:  # the reports of other tasks must not end with this one
            log.exception("a report could not be taken in")
        return True
