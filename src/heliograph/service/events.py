"""What happens in a mirror, as a stream of typed events that anybody can follow. In the driver.

One `EventBus` per mirror; each flow publishes to it. An event gets a sequence number, is kept for a
while, and is handed to every subscriber. Publishing never waits for one: each has a backlog of its
own, and whoever reads too slowly misses the oldest events and can count them. Events are also
logged, by the logger of this module, for programs that only have logs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Self

from heliograph.model import PartitionEvent
from heliograph.units import duration

__all__ = [
    "RECOVERED",
    "EngineEvent",
    "Event",
    "EventBus",
    "FlowEvent",
    "FlowEvents",
    "HandoverEvent",
    "JobEvent",
    "Notice",
    "Published",
    "StartStep",
    "Subscription",
    "level_of",
    "line_of",
    "lines_of",
]

log = logging.getLogger(__name__)

#: The event of a partition that has failed or stalled, and is mirrored again: good news.
RECOVERED = "partition.recovered"
#: How many events are kept for those who ask later.
_HISTORY = 1000
#: Live reports and receipts tell the same: of so many the second is recognised.
_REMEMBERED = 20_000
_BACKLOG = 1000
#: More partitions than this at once are told of in one line.
_SINGLY = 3


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """A flow, or a part of it, has changed its state.

    ``code`` is ``flow.`` and a word: starting, running, paused, resumed, standing-by, taken-over,
    topic-paused, topic-resumed, reconfigured, restarting, restarted, failed, recovered, stopped,
    drill (a failover was rehearsed), or waiting (it starts, and takes long).
    ``part`` is empty if it is about the whole flow. ``text`` begins behind the flow's name.
    """

    flow: str
    code: str
    text: str
    part: str = ""
    level: int = logging.INFO
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A control job failed for another reason than before, or works again.

    ``code`` is ``job.failed`` or ``job.recovered``.
    """

    flow: str
    job: str
    code: str
    text: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """Spark: ``engine.starting``, ``engine.ready``, ``engine.failed``, ``engine.replaced``."""

    code: str
    text: str
    level: int = logging.INFO
    at: float = 0.0
    flow: str = ""


@dataclass(frozen=True, slots=True)
class StartStep:
    """The start waits for something: ``start.awaiting``, then ``start.done`` or ``start.failed``.

    Attributes:
        what: what is awaited, as it follows "waiting for": cluster A, topics of A->B, Spark.
        took_seconds: how long it took; None while it is awaited.
        text: what came of it, or why it failed.
        flow: empty if it concerns all of them.
    """

    what: str
    code: str
    took_seconds: float | None = None
    text: str = ""
    flow: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Notice:
    """A log record of Heliograph's that is no event (`heliograph.service.notices`).

    ``logger`` is whose, ``error`` the class of the exception that it is about, if there is one.
    """

    level: int
    text: str
    flow: str = ""
    code: str = "notice"
    at: float = 0.0
    logger: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class HandoverEvent:
    """A failover that this process carries out tells how far it is.

    Attributes:
        step: which of its steps; ``end`` when it has come to its end, or was broken off.
        phase: what became of the step: begun, note, done, failed.
        text: for people; may be empty.
    """

    flow: str
    step: str
    phase: str
    text: str
    code: str = "flow.handover"
    level: int = logging.INFO
    at: float = 0.0


Event = PartitionEvent | FlowEvent | JobEvent | EngineEvent | StartStep | Notice | HandoverEvent


class Published(NamedTuple):
    """An event and its number on the bus: 1, 2, 3, ..."""

    sequence: int
    event: Event


class EventBus:
    """Takes events and hands them on. Thread-safe; nothing here waits for a subscriber.

    ``logged``: whether they go to the log as well.
    """

    def __init__(self, history: int = _HISTORY, *, logged: bool = True) -> None:
        self._logged = logged
        self._history: deque[Published] = deque(maxlen=history)
        self._counts: dict[str, Counter[str]] = {}
        self._offsets: dict[str, Counter[str]] = {}
        self._skipped: dict[str, Counter[str]] = {}
        self._seen: dict[PartitionEvent, None] = {}
        self._subscriptions: list[Subscription] = []
        self._sequence = 0
        self._lock = threading.Lock()

    def publish(self, *events: Event) -> None:
        """Hand on events, in one piece and in this order.

        A partition event that equals an earlier one is dropped: tasks tell of it live and again in
        their receipts.
        """
        new: list[Event] = []
        with self._lock:
            for event in events:
                if isinstance(event, PartitionEvent):
                    if event in self._seen:
                        continue
                    self._seen[event] = None
                    if event.until > event.first >= 0:
                        offsets = self._offsets.setdefault(event.flow, Counter())
                        offsets[event.code] += event.until - event.first
                        if event.policy:
                            skipped = self._skipped.setdefault(event.flow, Counter())
                            skipped[event.policy] += event.until - event.first
                new.append(event)
                self._sequence += 1
                published = Published(self._sequence, event)
                self._history.append(published)
                if not isinstance(event, Notice):
                    self._counts.setdefault(event.flow, Counter())[event.code] += 1
                for subscription in self._subscriptions:
                    subscription._put(published)
            while len(self._seen) > _REMEMBERED:
                del self._seen[next(iter(self._seen))]
        for _, level, text in lines_of(new) if self._logged else ():
            log.log(level, "%s", text)

    @property
    def sequence(self) -> int:
        """The number of the last event; 0 if there was none."""
        with self._lock:
            return self._sequence

    def history(self, after: int = 0) -> list[Published]:
        """The events behind number ``after`` that are still kept, oldest first."""
        with self._lock:
            return [p for p in self._history if p.sequence > after]

    def counts(self, flow: str) -> Mapping[str, int]:
        """How many events a flow had of each code."""
        with self._lock:
            return dict(self._counts.get(flow, ()))

    def told_offsets(self, flow: str) -> Mapping[str, int]:
        """How many offsets a flow's events were about, by code, where they name any."""
        with self._lock:
            return dict(self._offsets.get(flow, ()))

    def skipped(self, flow: str) -> Mapping[str, int]:
        """How many offsets a flow went on past, by the setting that let it."""
        with self._lock:
            return dict(self._skipped.get(flow, ()))

    def knows(self, flow: str) -> bool:
        """Whether there were events of a flow of this name."""
        return bool(flow) and flow in self._counts

    def subscribe(self, *, after: int | None = None, backlog: int = _BACKLOG) -> Subscription:
        """Follow the events from now on, or those behind number ``after`` as far as they are kept.

        At most ``backlog`` events wait to be read.
        """
        made = Subscription(self._unsubscribe, backlog)
        with self._lock:
            for published in self._history:
                if after is not None and published.sequence > after:
                    made._put(published)
            self._subscriptions.append(made)
        return made

    def _unsubscribe(self, subscription: Subscription) -> None:
        with self._lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)

    def call(
        self, callback: Callable[[Published], None], *, backlog: int = _BACKLOG
    ) -> Subscription:
        """Call back for each event, in a thread of its own, until the subscription is closed.

        An error of the callback is logged, and the next event is handed on.
        """
        subscription = self.subscribe(backlog=backlog)

        def loop() -> None:
            for published in subscription:
                try:
                    callback(published)
                except Exception:
                    log.exception("a subscriber failed")

        threading.Thread(target=loop, name="events", daemon=True).start()
        return subscription

    def job_ran(self, flow: str, job: str, error: str) -> None:
        """A control job fails because of ``error``; empty: it works again."""
        code = "job.failed" if error else "job.recovered"
        self.publish(JobEvent(flow, job, code, error, time.time()))

    @contextmanager
    def step(self, what: str, flow: str = "") -> Iterator[None]:
        """A part of the start that takes time: says so, and how long it took or why it failed."""
        began = time.monotonic()
        self.publish(StartStep(what, "start.awaiting", flow=flow, at=time.time()))
        code, text = "start.done", ""
        try:
            yield
        except BaseException as error:
            code, text = "start.failed", (str(error) or type(error).__name__).splitlines()[0]
            raise
        finally:
            took = time.monotonic() - began
            self.publish(StartStep(what, code, took, text, flow, time.time()))


class Subscription:
    """A reader's place on the bus: iterate over it, or call `get`. For one reader thread."""

    def __init__(self, closed: Callable[[Subscription], None], backlog: int) -> None:
        self._closed_with = closed
        self._waiting: deque[Published] = deque(maxlen=backlog)
        self._changed = threading.Condition()
        self._closed = False
        #: Events that were dropped because the reader was too slow.
        self.missed = 0

    def _put(self, published: Published) -> None:
        with self._changed:
            self.missed += len(self._waiting) == self._waiting.maxlen
            self._waiting.append(published)
            self._changed.notify()

    def get(self, timeout: float | None = None) -> list[Published]:
        """All events that wait, oldest first; waits until there is one.

        Empty if there is none within ``timeout`` seconds, and after `close`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, timeout)
            found = list(self._waiting)
            self._waiting.clear()
            return found

    def __iter__(self) -> Iterator[Published]:
        while found := self.get():
            yield from found

    def close(self) -> None:
        """Follow no longer; what waits can still be read."""
        self._closed_with(self)
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FlowEvents:
    """The place of one flow on the bus."""

    def __init__(self, bus: EventBus, flow: str) -> None:
        self._bus = bus
        self.flow = flow

    def add(self, events: Iterable[PartitionEvent]) -> None:
        """Publish what happened to the flow's partitions."""
        self._bus.publish(*events)

    def publish(self, code: str, text: str, *, part: str = "", level: int = logging.INFO) -> None:
        """Publish what happened to the flow itself, or to a part of it."""
        self._bus.publish(FlowEvent(self.flow, code, text, part, level, time.time()))

    @property
    def latest(self) -> list[PartitionEvent]:
        """The partition events of the flow that are still kept, oldest first."""
        found = (p.event for p in self._bus.history())
        return [e for e in found if isinstance(e, PartitionEvent) and e.flow == self.flow]

    @property
    def counts(self) -> Mapping[str, int]:
        """How many events there were of each code."""
        return self._bus.counts(self.flow)

    @property
    def told_offsets(self) -> Mapping[str, int]:
        """How many offsets they were about."""
        return self._bus.told_offsets(self.flow)

    @property
    def skipped(self) -> Mapping[str, int]:
        """How many offsets the flow went on past, by the setting that let it."""
        return self._bus.skipped(self.flow)


def level_of(event: Event) -> int:
    """How much an event should worry somebody, as a level of `logging`."""
    match event:
        case PartitionEvent():
            return logging.INFO if event.code == RECOVERED else logging.WARNING
        case JobEvent():
            return logging.WARNING if event.code == "job.failed" else logging.INFO
        case StartStep():
            return logging.WARNING if event.code == "start.failed" else logging.INFO
        case _:
            return event.level


def line_of(event: Event) -> str:
    """An event for people, without time and level."""
    match event:
        case PartitionEvent():
            return f"{event.flow} {event.partition} [{event.code}]: {event.text}"
        case FlowEvent():
            return (
                f"{' '.join(filter(None, (event.flow, event.part)))} [{event.code}]: {event.text}"
            )
        case JobEvent():
            return f"{event.job} [{event.code}]: {event.text or 'works again'}"
        case HandoverEvent():
            step = "" if event.step == "end" else f"{event.step} {event.phase}"
            said = ": ".join(filter(None, (step, event.text)))
            return f"{event.flow} [{event.code}]: {said}"
        case EngineEvent():
            return f"Spark [{event.code}]: {event.text}"
        case StartStep(took_seconds=None):
            return f"waiting for {event.what} ..."
        case StartStep():
            failed = event.code == "start.failed"
            took = duration(event.took_seconds or 0.0)
            head = f"{event.what}: {'failed' if failed else 'ready'} after {took}"
            return f"{head}: {event.text}" if event.text else head
        case Notice():
            return event.text


def lines_of(events: Sequence[Event]) -> list[tuple[float, int, str]]:
    """(time, level, line) for people; the same for many partitions in a row is one line."""
    lines: list[tuple[float, int, str]] = []
    groups: list[list[Event]] = []
    for event in events:
        if groups and _alike(groups[-1][-1], event):
            groups[-1].append(event)
        else:
            groups.append([event])
    for group in groups:
        told = [group] if len(group) > _SINGLY else [[event] for event in group]
        lines += [(x[0].at or time.time(), level_of(x[0]), _joined(x)) for x in told]
    return lines


def _alike(one: Event, other: Event) -> bool:
    both = isinstance(one, PartitionEvent) and isinstance(other, PartitionEvent)
    return both and (one.flow, one.code) == (other.flow, other.code)


def _joined(events: Sequence[Event]) -> str:
    line = line_of(events[0])
    if len(events) == 1:
        return line
    partitions = [str(e.partition) for e in events if isinstance(e, PartitionEvent)]
    more = f" and {len(events) - _SINGLY} more" if len(events) > _SINGLY else ""
    return f"{line}\n  the same ({events[0].code}): {', '.join(partitions[1:_SINGLY])}{more}"
