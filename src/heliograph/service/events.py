"""What happened to partitions: told once each, counted, and the latest kept. Runs in the driver."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from heliograph.model import PartitionEvent
from heliograph.service.states import RECOVERED

__all__ = ["EventLog", "events_of"]

log = logging.getLogger(__name__)

_LATEST = 200
#: Live reports and receipts tell the same: of so many the second is recognised.
_REMEMBERED = 20_000
#: More partitions than this at once are told of in one line.
_SINGLY = 3
#: Where a log record keeps the events that it is about.
_ATTRIBUTE = "partition_events"


class EventLog:
    """The events of one flow. Thread-safe."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._seen: dict[PartitionEvent, None] = {}
        self._latest: deque[PartitionEvent] = deque(maxlen=_LATEST)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def latest(self) -> list[PartitionEvent]:
        """The last ones, oldest first."""
        with self._lock:
            return list(self._latest)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many there were of each code."""
        with self._lock:
            return dict(self._counts)

    def add(self, events: Iterable[PartitionEvent]) -> None:
        """Take note, and log those that were not told before."""
        by_code: dict[str, list[PartitionEvent]] = {}
        with self._lock:
            for event in events:
                if event in self._seen:
                    continue
                self._seen[event] = None
                self._latest.append(event)
                self._counts[event.code] += 1
                by_code.setdefault(event.code, []).append(event)
            while len(self._seen) > _REMEMBERED:
                del self._seen[next(iter(self._seen))]
        for code, new in by_code.items():
            level = logging.INFO if code == RECOVERED else logging.WARNING
            for group in [new] if len(new) > _SINGLY else [[event] for event in new]:
                log.log(level, "%s", self._line(code, group), extra={_ATTRIBUTE: group})

    def _line(self, code: str, events: Sequence[PartitionEvent]) -> str:
        first = events[0]
        line = f"{self._flow} {first.partition} [{code}]: {first.text}"
        if len(events) == 1:
            return line
        names = ", ".join(str(e.partition) for e in events[1:_SINGLY])
        more = f" and {len(events) - _SINGLY} more" if len(events) > _SINGLY else ""
        return f"{line}\n  the same ({code}): {names}{more}"


def events_of(record: logging.LogRecord) -> Sequence[PartitionEvent]:
    """The events that a log record tells of; none for most records."""
    found: Sequence[PartitionEvent] = getattr(record, _ATTRIBUTE, ())
    return found
