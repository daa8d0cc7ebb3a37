"""What Heliograph logs, as notices on the bus of events. Runs in the driver.

So there is one stream of lines, in one order, whatever shows it. A warning or an error that repeats
itself is told once, and then how often, once a minute.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from heliograph.service import events
from heliograph.service.events import EventBus, Notice
from heliograph.units import moment

__all__ = ["Notices", "take_logs"]

_OURS = "heliograph"
#: Who changed what is said whatever the level.
_AUDIT = "heliograph.rest.audit"
_REPEATED_SECONDS = 60.0
#: Texts with numbers in them never repeat: of so many, the oldest are forgotten.
_MOST = 1000


@dataclass(slots=True)
class _Repeated:
    since: float
    count: int = 0


class Notices(logging.Handler):
    """Publishes log records. `tick` tells of those that repeated themselves, if it is time."""

    def __init__(self, bus: EventBus) -> None:
        super().__init__()
        self._bus = bus
        self._repeated: dict[Notice, _Repeated] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Publish it, unless it is an event, which is on the bus, or one of many."""
        if record.name == events.__name__ and not record.exc_info:
            return
        notice = self._notice(record)
        if record.levelno >= logging.WARNING:
            self._tell(record.created)
            known = self._repeated.get(notice)
            if known is not None:
                known.count += 1
                return
            self._repeated[notice] = _Repeated(record.created)
            if len(self._repeated) > _MOST:
                del self._repeated[next(iter(self._repeated))]
        self._publish(notice, record.created)

    def tick(self, *, end: bool = False) -> None:
        """Tell of what repeated itself; at the end, whether it is time or not."""
        self.acquire()
        try:
            self._tell(float("inf") if end else time.time())
        finally:
            self.release()

    def _tell(self, now: float) -> None:
        for notice, known in list(self._repeated.items()):
            if now - known.since < _REPEATED_SECONDS:
                continue
            if known.count:
                times = "once more" if known.count == 1 else f"{known.count} more times"
                text = f"{notice.text} ({times} since {moment(known.since)})"
                at = min(now, time.time())
                self._repeated[notice] = _Repeated(at)
                self._publish(notice, at, text)
            else:
                del self._repeated[notice]

    def _publish(self, notice: Notice, at: float, text: str = "") -> None:
        self._bus.publish(
            Notice(notice.level, text or notice.text, notice.flow, at=at, logger=notice.logger,
                   error=notice.error)
        )  # fmt: skip

    def _notice(self, record: logging.LogRecord) -> Notice:
        """Without a time, so that two that say the same are equal."""
        text, kind = record.getMessage(), ""
        if record.exc_info and (error := record.exc_info[1]) is not None:
            # Where it was raised helps nobody who reads this.
            kind = type(error).__name__
            text += f": {kind}: {error}"
        # Records that are about a flow name it first.
        arguments = record.args if isinstance(record.args, tuple) else ()
        named = str(arguments[0]) if arguments else ""
        flow = named if self._bus.knows(named) else ""
        return Notice(record.levelno, text, flow, logger=record.name, error=kind)


@contextmanager
def take_logs(bus: EventBus, level: int = logging.INFO) -> Iterator[Notices]:
    """Meanwhile, what Heliograph logs is published as `Notice`s, and printed by nobody else."""
    logger, audit = logging.getLogger(_OURS), logging.getLogger(_AUDIT)
    before = logger.level, logger.propagate, audit.level
    made = Notices(bus)
    logger.setLevel(level)
    audit.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(made)
    try:
        yield made
    finally:
        made.tick(end=True)
        logger.removeHandler(made)
        logger.setLevel(before[0])
        audit.setLevel(before[2])
        logger.propagate = before[1]
