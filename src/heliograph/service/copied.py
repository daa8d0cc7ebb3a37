"""What tasks wrote: live reports count a lease, its receipts decide. Runs in the driver.

Reports and receipts come from two threads, and readers from any.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from heliograph.copy.counts import Counts
from heliograph.copy.lease_report import LeaseReport
from heliograph.model import Receipt, TopicPartition
from heliograph.service.snapshot import PartitionCopies

__all__ = ["Copied"]

#: Leases that are counted one by one: some rounds of some hundred tasks.
_LEASES = 4096
#: Of one partition: the lease that ends, the one that begins, and one whose receipt was lost.
_LEASES_OF_A_PARTITION = 3
#: A rate holds until the next report should have come; of a partition that is only counted by
#: receipts, until the next round has ended.
_LIVE_SECONDS, _ROUND_SECONDS = 6.0, 60.0


class _Lease(NamedTuple):
    """What the holder of a lease last said of all of it."""

    counts: Counts
    pending: int
    free_bytes: int


@dataclass(slots=True)
class _Partition:
    """One partition. ``running`` are leases by serial, ``last`` what the newest of them did."""

    ended: Counts = field(default_factory=Counts)
    running: dict[int, Counts] = field(default_factory=dict)
    last: Counts = field(default_factory=Counts)
    last_serial: int = 0
    sampled: tuple[float, int, int] = (0.0, 0, 0)
    rates: tuple[float, float] = (0.0, 0.0)
    rates_until: float = 0.0
    made: PartitionCopies | None = None

    def heard(self, serial: int, counts: Counts, now: float) -> None:
        self.running[serial] = counts
        while len(self.running) > _LEASES_OF_A_PARTITION:
            self.ended = self.ended.plus(self.running.pop(min(self.running)))
        self._note(serial, counts, now, _LIVE_SECONDS)

    def received(self, serial: int, counts: Counts, now: float) -> None:
        self.running.pop(serial, None)
        self.ended = self.ended.plus(counts)
        self._note(serial, counts, now, _ROUND_SECONDS)

    def _note(self, serial: int, counts: Counts, now: float, lasts: float) -> None:
        if serial >= self.last_serial and counts.records:
            self.last, self.last_serial = counts, serial
        total, self.made = self.total, None
        at, records, size = self.sampled
        if now > at:
            passed = min(now - at, lasts)
            rates = (total.records - records) / passed, (total.bytes - size) / passed
            self.rates = max(rates[0], 0.0), max(rates[1], 0.0)
            self.sampled, self.rates_until = (now, total.records, total.bytes), now + lasts

    @property
    def total(self) -> Counts:
        return self.ended.plus(Counts.sum(self.running.values()))

    def snapshot(self, now: float) -> PartitionCopies:
        if now > self.rates_until and self.rates != (0.0, 0.0):
            self.rates, self.made = (0.0, 0.0), None
        if self.made is None:
            self.made = PartitionCopies(self.total, *self.rates, self.last.age, self.last.latency)
        return self.made


class Copied:
    """What tasks of this process have done for one flow."""

    def __init__(self) -> None:
        self.live = False
        self._ended = Counts()
        self._running: dict[int, _Lease] = {}
        self._last_serials: deque[int] = deque(maxlen=_LEASES)
        self._partitions: dict[TopicPartition, _Partition] = {}
        #: What was shown last, until something changes or the first of its rates does not hold.
        self._made: Mapping[TopicPartition, PartitionCopies] | None = None
        self._made_until = 0.0
        self._lock = threading.Lock()

    def heard(self, report: LeaseReport, now: float) -> None:
        """What the holder of a lease has done so far."""
        with self._lock:
            if report.counts is None or report.serial in self._last_serials:
                return
            self.live, self._made = True, None
            self._running[report.serial] = _Lease(report.counts, report.pending, report.free_bytes)
            for p, counts in report.partitions:
                self._partitions.setdefault(p, _Partition()).heard(report.serial, counts, now)
            while len(self._running) > _LEASES:
                # Its round failed, and there are no receipts.
                lost = self._running.pop(next(iter(self._running)))
                self._ended = self._ended.plus(lost.counts)

    def received(self, receipts: Sequence[Receipt], now: float) -> None:
        """What leases have done in all."""
        with self._lock:
            for serial in {r.serial for r in receipts} - {0}:
                self._running.pop(serial, None)
                self._last_serials.append(serial)
            for r in receipts:
                if not (r.records or r.counts):
                    continue
                self._made = None
                counts = Counts.decode(r.counts)._replace(records=r.records, bytes=r.bytes)
                self._ended = self._ended.plus(counts)
                p = TopicPartition(r.topic, r.partition)
                self._partitions.setdefault(p, _Partition()).received(r.serial, counts, now)

    def forget(self, kept: Mapping[TopicPartition, object]) -> None:
        """Only these partitions are mirrored any more."""
        with self._lock:
            for p in self._partitions.keys() - kept.keys():
                del self._partitions[p]
                self._made = None

    @property
    def counts(self) -> Counts:
        """Since the mirror started."""
        with self._lock:
            return self._ended.plus(Counts.sum(lease.counts for lease in self._running.values()))

    @property
    def pending(self) -> int:
        """Records that were read and are not acknowledged, as last reported."""
        with self._lock:
            return sum(lease.pending for lease in self._running.values())

    @property
    def free_bytes(self) -> int | None:
        """The room that leases have left, as last reported; None if none has."""
        with self._lock:
            return (
                sum(lease.free_bytes for lease in self._running.values()) if self._running else None
            )

    def partitions(self, now: float) -> Mapping[TopicPartition, PartitionCopies]:
        """The same of each partition that was copied. Cheap while nothing changes."""
        with self._lock:
            if self._made is None or now > self._made_until:
                known = self._partitions
                self._made = MappingProxyType({p: one.snapshot(now) for p, one in known.items()})
                moving = (one.rates_until for one in known.values() if one.rates != (0.0, 0.0))
                self._made_until = min(moving, default=float("inf"))
            return self._made
