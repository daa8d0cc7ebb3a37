"""What executors tell the driver, at once: states of partitions, and events. Best effort.

The holder of a lease looks over its partitions once a second and tells what changed; that all the
others are fine it says once. Nothing is said of partitions that stay as they are, and an address
that does not answer is left alone for a while: telling never delays a copy, and never fails one.
Receipts repeat it all.

On the wire: the token on a line of its own, then one `Tidings` a line, as JSON.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from heliograph.copy.desk import Desk
from heliograph.copy.partition import PartitionCopy
from heliograph.model import (
    PartitionEvent,
    PartitionReport,
    PartitionState,
    Receipt,
    ReportAddress,
    TopicPartition,
)

__all__ = ["Stand", "Teller", "Tidings"]

_LOOK_SECONDS = 1.0
#: A partition that is resumed sooner than this is not worth a word.
_PATIENCE_SECONDS = 2.0
#: One that failed before has recovered when it has nothing to write for this long, a few fetches.
_PROVEN_SECONDS = 2.0
#: What brokers throttle they throttle again and again: in between it is throttled still.
_THROTTLED_SECONDS = 3.0
_QUARANTINING_SECONDS = 10.0
#: What a partition waits for may be worded differently with every attempt.
_WORDING_SECONDS = 10.0
#: A driver that takes nothing is not told more than this; the receipts have it.
_MOST_BYTES = 1 << 20
_CONNECT_AGAIN_SECONDS = 5.0


class Stand(NamedTuple):
    """The next source offset to mirror of a partition whose target ends at ``target_end``."""

    partition: TopicPartition
    position: int
    target_end: int


@dataclass(frozen=True, slots=True)
class Tidings:
    """News of the holder of lease ``serial``.

    ``positions`` are where partitions stand behind markers and holes at the source's end, which the
    target's end does not show. ``all_told`` says that those of the lease's partitions that nothing
    was said about are fine.
    """

    flow: str
    serial: int
    reports: tuple[PartitionReport, ...] = ()
    events: tuple[PartitionEvent, ...] = ()
    positions: tuple[Stand, ...] = ()
    all_told: bool = False

    def encode(self) -> str:
        """One line of JSON, without its end."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def decode(cls, line: str | bytes) -> Tidings:
        """What `encode` made; raises ValueError for anything else."""
        try:
            fields = json.loads(line)
            return cls(
                flow=str(fields["flow"]),
                serial=int(fields["serial"]),
                reports=tuple(map(_report, fields["reports"])),
                events=tuple(map(_event, fields["events"])),
                positions=tuple(map(_stand, fields["positions"])),
                all_told=bool(fields["all_told"]),
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not tidings: {error!r}") from error


def _partition(value: tuple[str, int]) -> TopicPartition:
    topic, partition = value
    return TopicPartition(str(topic), int(partition))


def _stand(value: tuple[tuple[str, int], int, int]) -> Stand:
    partition, position, target_end = value
    return Stand(_partition(partition), int(position), int(target_end))


def _report(fields: dict[str, object]) -> PartitionReport:
    made = PartitionReport(**fields)  # type: ignore[arg-type] # looked over below
    return replace(
        made,
        partition=_partition(made.partition),
        state=PartitionState(made.state),
        since=float(made.since),
        why=str(made.why),
        code=str(made.code),
        retry_at=float(made.retry_at),
    )


def _event(fields: dict[str, object]) -> PartitionEvent:
    made = PartitionEvent(**fields)  # type: ignore[arg-type] # looked over below
    return replace(
        made,
        partition=_partition(made.partition),
        code=str(made.code),
        text=str(made.text),
        first=int(made.first),
        until=int(made.until),
        at=float(made.at),
    )


class Teller:
    """Tells what becomes of the partitions of one lease. Called between two turns of its loop."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._flow = str(desk.context.flow)
        self._line = _Line(desk.lease.report_to)
        self._told: dict[TopicPartition, tuple[PartitionReport, float]] = {}
        self._told_positions: dict[TopicPartition, int] = {}
        self._told_events = self._told_failures = 0
        self._all_told = False
        self._look_at = 0.0
        self._quarantined: dict[TopicPartition, tuple[int, float]] = {}

    def pump(self) -> None:
        """Look over the partitions, if it is time, and send what the driver takes."""
        now = time.time()
        news = len(self._desk.events) > self._told_events
        if now >= self._look_at or news or self._desk.failures > self._told_failures:
            self._look_at = now + _LOOK_SECONDS
            self._look(now)
        self._line.flush()

    def receipts(self) -> list[Receipt]:
        """What became of every partition, with what was told of it; hangs up."""
        now = time.time()
        self._look(now)
        self._line.close()
        events: dict[TopicPartition, list[PartitionEvent]] = {}
        for event in self._desk.events:
            events.setdefault(event.partition, []).append(event)
        serial = self._desk.lease.serial
        made = []
        for source, p in self._desk.parts.items():
            report = self._state(p, now, ended=True)
            fine = report.state is PartitionState.COPYING and source not in events
            told = Tidings(self._flow, serial, (report,), tuple(events.get(source, ())))
            tidings = "" if fine else told.encode()
            made.append(replace(p.receipt(self._flow), serial=serial, tidings=tidings))
        return made

    def _look(self, now: float) -> None:
        """Say what has changed."""
        reports: list[PartitionReport] = []
        positions: list[Stand] = []
        begun = True
        for p in self._desk.parts.values():
            if p.undisturbed and p.source not in self._told:
                # The usual case, for thousands of partitions.
                if p.position > p.contiguous and self._told_positions.get(p.source) != p.position:
                    positions += self._stand(p)
                continue
            report = self._state(p, now)
            begun = begun and report.state is not PartitionState.STARTING
            if self._is_news(report, now):
                reports.append(report)
        events = self._desk.events[self._told_events :]
        all_told = begun and not self._all_told
        if reports or events or positions or all_told:
            self._line.say(Tidings(
                self._flow, self._desk.lease.serial, tuple(reports), tuple(events),
                tuple(positions), all_told,
            ))  # fmt: skip
        self._all_told = self._all_told or begun
        self._told_events = len(self._desk.events)
        self._told_failures = self._desk.failures

    def _stand(self, p: PartitionCopy) -> list[Stand]:
        """Where a partition stands, once all that was read is on the target."""
        if p.queue or p.in_flight:
            return []
        self._told_positions[p.source] = p.position
        return [Stand(p.source, p.position, p.ack_target)]

    def _is_news(self, report: PartitionReport, now: float) -> bool:
        """Whether the driver has to hear of it; it counts as told then."""
        told, at = self._told.get(report.partition, (None, 0.0))
        if report.state is PartitionState.STARTING:
            return False
        if report.state is PartitionState.COPYING:
            return self._told.pop(report.partition, None) is not None
        if told is not None:
            if replace(told, since=report.since) == report:
                return False
            waits = told.state is report.state is PartitionState.WAITING
            if waits and now - at < _WORDING_SECONDS:
                return False
        self._told[report.partition] = report, now
        return True

    def _fine(self, p: PartitionCopy, now: float) -> PartitionReport:
        return PartitionReport(self._flow, p.source, PartitionState.COPYING, now)

    def _state(self, p: PartitionCopy, now: float, *, ended: bool = False) -> PartitionReport:
        """What a partition is doing; whether there is anything to copy is the driver's to know."""
        quiet = p.active and not p.queue and not p.in_flight and p.ending is None
        if quiet and now - p.looked_at >= _PROVEN_SECONDS:
            p.proven()
        if p.failing is not None:
            return p.failing
        fine = self._fine(p, now)
        if p.disturbed_at:
            begun = p.resumes > 0
            if now - p.disturbed_at < _PATIENCE_SECONDS and (begun or not ended):
                return fine if begun else replace(fine, state=PartitionState.STARTING)
            state = PartitionState.WAITING
            return replace(fine, state=state, since=p.disturbed_at, why=p.disturbance)
        if not p.active:
            return replace(fine, state=PartitionState.STARTING)
        if now < p.throttled_until + _THROTTLED_SECONDS:
            return replace(fine, state=PartitionState.THROTTLED, why=p.throttled_by)
        if p.quarantined and now < self._quarantined_at(p, now) + _QUARANTINING_SECONDS:
            why = f"records are set aside in {self._desk.context.quarantine_topic}"
            return replace(fine, state=PartitionState.QUARANTINING, why=why)
        return fine

    def _quarantined_at(self, p: PartitionCopy, now: float) -> float:
        """When the last record was set aside, as far as we have looked."""
        count, at = self._quarantined.get(p.source, (0, now))
        if p.quarantined > count:
            at = now
            self._quarantined[p.source] = p.quarantined, at
        return at


class _Line:
    """A connection to the driver that never waits."""

    def __init__(self, address: ReportAddress | None) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._unsent = bytearray()
        self._again_at = 0.0

    def say(self, tidings: Tidings) -> None:
        """Queue a line; what the driver does not take in time is dropped."""
        if self._address is not None:
            line = tidings.encode().encode() + b"\n"
            if len(self._unsent) + len(line) <= _MOST_BYTES:
                self._unsent += line

    def flush(self) -> None:
        """Send what can be sent without waiting."""
        if not self._unsent or self._address is None:
            return
        try:
            if self._socket is None:
                if time.monotonic() < self._again_at:
                    return
                self._connect(self._address)
            assert self._socket is not None  # noqa: S101 - connected above
            with suppress(BlockingIOError):
                while self._unsent:
                    del self._unsent[: self._socket.send(self._unsent)]
        except OSError:
            self._lose()

    def _connect(self, address: ReportAddress) -> None:
        # An address is resolved by the driver: a name server must not keep a copy waiting.
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with suppress(BlockingIOError):
            self._socket.connect((address.host, address.port))
        self._unsent[:0] = address.token.encode() + b"\n"

    def _lose(self) -> None:
        """What was on its way may be lost, or half of a line: the receipts will tell it."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._unsent.clear()
        self._again_at = time.monotonic() + _CONNECT_AGAIN_SECONDS

    def close(self) -> None:
        """Send what can be sent, and hang up."""
        self.flush()
        if self._socket is not None:
            self._socket.close()
