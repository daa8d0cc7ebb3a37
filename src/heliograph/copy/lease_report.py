"""Live reports of executors to the driver: states of partitions, and events. Best effort.

The holder of a lease looks over its partitions once a second and sends what changed; once, that all
others are fine. Nothing is sent of partitions that stay as they are. An address that does not
answer is not tried for a while: reporting never delays a copy, and never fails one. Receipts repeat
it all.

On the wire: the token on a line of its own, then one `LeaseReport` a line, as JSON.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from heliograph.copy.counts import Counts
from heliograph.copy.lease_state import LeaseState
from heliograph.copy.partition import PartitionCopy
from heliograph.model import (
    DriverAddress,
    PartitionEvent,
    PartitionReport,
    PartitionState,
    Receipt,
    TopicPartition,
)
from heliograph.wire.driver import DriverLine

__all__ = ["LeaseReport", "LeaseReporter", "PartitionPosition"]

_LOOK_SECONDS = 1.0
#: How often the driver gets to know how much was written, for the rates it shows.
_COPIED_SECONDS = 2.0
#: Of so many partitions that changed, the driver gets to know what was written of each, too.
_COUNTED_SINGLY = 128
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


class PartitionPosition(NamedTuple):
    """The next source offset to mirror of a partition whose target ends at ``target_end``."""

    partition: TopicPartition
    position: int
    target_end: int


@dataclass(frozen=True, slots=True)
class LeaseReport:
    """News of the holder of lease ``serial``.

    ``positions`` are where partitions stand behind markers and holes at the source's end, which the
    target's end does not show. ``all_told`` says that those of the lease's partitions that nothing
    was said about are fine. ``counts`` is what was done in the lease so far, None if that is not
    reported this time; ``partitions`` the same of single partitions, where that has changed and
    they are few: receipts have all. ``pending`` records were read and are not acknowledged yet;
    there is room for ``free_bytes`` more.
    """

    flow: str
    serial: int
    reports: tuple[PartitionReport, ...] = ()
    events: tuple[PartitionEvent, ...] = ()
    positions: tuple[PartitionPosition, ...] = ()
    all_told: bool = False
    counts: Counts | None = None
    partitions: tuple[tuple[TopicPartition, Counts], ...] = ()
    pending: int = 0
    free_bytes: int = 0

    @property
    def is_greeting(self) -> bool:
        """Whether it only says whose lease is held: nothing has been done yet."""
        return self == LeaseReport(self.flow, self.serial)

    def encode(self) -> str:
        """One line of JSON, without its end."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def decode(cls, line: str | bytes) -> LeaseReport:
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
                counts=Counts.of(fields["counts"]) if fields.get("counts") else None,
                partitions=tuple(
                    (_partition(p), Counts.of(counts)) for p, counts in fields.get("partitions", ())
                ),
                pending=int(fields.get("pending", 0)),
                free_bytes=int(fields.get("free_bytes", 0)),
            )
        except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise ValueError(f"not lease_report: {error!r}") from error


def _partition(value: tuple[str, int]) -> TopicPartition:
    topic, partition = value
    return TopicPartition(str(topic), int(partition))


def _stand(value: tuple[tuple[str, int], int, int]) -> PartitionPosition:
    partition, position, target_end = value
    return PartitionPosition(_partition(partition), int(position), int(target_end))


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
        policy=str(made.policy),
    )


#: What the driver says when it stops in order.
END_OF_LEASE = b"end\n"


class LeaseReporter:
    """Tells what becomes of the partitions of one lease. Called between two turns of its loop."""

    def __init__(self, lease_state: LeaseState) -> None:
        self._state = lease_state
        self._flow = lease_state.context.label
        self._line = _Line(lease_state.lease.report_to)
        self._told: dict[TopicPartition, tuple[PartitionReport, float]] = {}
        self._told_positions: dict[TopicPartition, int] = {}
        self._told_events = self._told_failures = 0
        self._all_told = False
        self._told_counts, self._counted_at = Counts(), 0.0
        self._told_singly: dict[TopicPartition, Counts] = {}
        self._told_pending = 0
        self._look_at = 0.0
        #: Whether the driver stops in order, and wants leases to end now.
        self.told_to_end = False
        self._quarantined: dict[TopicPartition, tuple[int, float]] = {}

    def greet(self) -> None:
        """Call the driver before anything is copied: it can end only leases that it hears of."""
        self._line.say(LeaseReport(self._flow, self._state.lease.serial))
        self._line.flush()

    def listen(self) -> None:
        """Hear whether the lease is to end."""
        self._line.flush()
        self.told_to_end = self.told_to_end or self._line.says_end()

    def pump(self) -> None:
        """Look over the partitions, if it is time, and send what the driver takes."""
        now = time.time()
        news = len(self._state.events) > self._told_events
        if now >= self._look_at or news or self._state.failures > self._told_failures:
            self._look_at = now + _LOOK_SECONDS
            self._look(now)
            self.told_to_end = self.told_to_end or self._line.says_end()
        self._line.flush()

    def receipts(self) -> list[Receipt]:
        """What became of every partition, with what was told of it; hangs up."""
        now = time.time()
        # A driver that stops does not wait for receipts, and counts what was written to the end.
        self._counted_at = 0.0
        self._look(now)
        self._line.close()
        events: dict[TopicPartition, list[PartitionEvent]] = {}
        for event in self._state.events:
            events.setdefault(event.partition, []).append(event)
        serial = self._state.lease.serial
        made = []
        for source, p in self._state.parts.items():
            report = self._report_of(p, now, ended=True)
            fine = report.state is PartitionState.COPYING and source not in events
            told = LeaseReport(self._flow, serial, (report,), tuple(events.get(source, ())))
            lease_report = "" if fine else told.encode()
            made.append(replace(p.receipt(self._flow), serial=serial, lease_report=lease_report))
        return made

    def _look(self, now: float) -> None:
        """Say what has changed."""
        reports: list[PartitionReport] = []
        positions: list[PartitionPosition] = []
        begun = True
        for p in self._state.parts.values():
            if p.undisturbed and p.source not in self._told:
                # The usual case, for thousands of partitions.
                if p.position > p.contiguous and self._told_positions.get(p.source) != p.position:
                    positions += self._stand(p)
                continue
            report = self._report_of(p, now)
            begun = begun and report.state is not PartitionState.STARTING
            if self._is_news(report, now):
                reports.append(report)
        events = self._state.events[self._told_events :]
        all_told = begun and not self._all_told
        counts, singly, pending = self._newly_counted(now)
        if reports or events or positions or all_told or counts is not None:
            self._line.say(LeaseReport(
                self._flow, self._state.lease.serial, tuple(reports), tuple(events),
                tuple(positions), all_told, counts, singly, pending,
                0 if counts is None else max(self._state.budget - self._state.buffered, 0),
            ))  # fmt: skip
        self._all_told = self._all_told or begun
        self._told_events = len(self._state.events)
        self._told_failures = self._state.failures

    def _newly_counted(
        self, now: float
    ) -> tuple[Counts | None, tuple[tuple[TopicPartition, Counts], ...], int]:
        """What was done so far, of the lease and of its partitions, if that is to be reported."""
        if now < self._counted_at + _COPIED_SECONDS:
            return None, (), 0
        parts = [p for p in self._state.parts.values() if p.touched]
        pending = sum(p.pending for p in parts)
        totals = Counts.sum(p.counts for p in parts)
        if (totals, pending) == (self._told_counts, self._told_pending):
            return None, (), 0
        self._counted_at, self._told_counts, self._told_pending = now, totals, pending
        if len(parts) > _COUNTED_SINGLY:
            return totals, (), pending
        singly = {p.source: p.counts for p in parts}
        changed = [pair for pair in singly.items() if self._told_singly.get(pair[0]) != pair[1]]
        self._told_singly = singly
        return totals, tuple(changed), pending

    def _stand(self, p: PartitionCopy) -> list[PartitionPosition]:
        """Where a partition stands, once all that was read is on the target."""
        if not p.settled:
            return []
        self._told_positions[p.source] = p.position
        return [PartitionPosition(p.source, p.position, p.ack_target)]

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

    def _report_of(self, p: PartitionCopy, now: float, *, ended: bool = False) -> PartitionReport:
        """What a partition is doing; whether there is anything to copy is the driver's to know."""
        if p.settled and p.ending is None and now - p.looked_at >= _PROVEN_SECONDS:
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
            why = f"records are set aside in {self._state.context.quarantine_topic}"
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

    def __init__(self, address: DriverAddress | None) -> None:
        self._address = address
        self._line: DriverLine | None = None
        self._unsent = bytearray()
        self._again_at = 0.0

    def say(self, lease_report: LeaseReport) -> None:
        """Queue a line; what the driver does not take in time is dropped."""
        if self._address is not None:
            line = lease_report.encode().encode() + b"\n"
            if len(self._unsent) + len(line) <= _MOST_BYTES:
                self._unsent += line

    def flush(self) -> None:
        """Send what can be sent without waiting."""
        if not self._unsent or self._address is None:
            return
        try:
            if self._line is None:
                if time.monotonic() < self._again_at:
                    return
                self._line = DriverLine(self._address)
                self._unsent[:0] = self._address.token.encode() + b"\n"
            with suppress(BlockingIOError):
                while self._unsent:
                    del self._unsent[: self._line.send(self._unsent)]
        except OSError:
            self._lose()

    def says_end(self) -> bool:
        """Whether the driver has said that the lease is to end: the one thing that it ever says."""
        if self._line is None:
            return False
        try:
            return self._line.receive(len(END_OF_LEASE)) == END_OF_LEASE
        except OSError:
            return False

    def _lose(self) -> None:
        """What was on its way may be lost, or half of a line: the receipts will tell it."""
        self._hang_up()
        self._unsent.clear()
        self._again_at = time.monotonic() + _CONNECT_AGAIN_SECONDS

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None

    def close(self) -> None:
        """Send what can be sent, and hang up."""
        self.flush()
        self._hang_up()
