"""How far behind is each partition? Measured on the two clusters, not told by the tasks. Driver.

Lag in records: the source's end minus the next source offset to mirror, which is the target's end
seen through the ledger. Lag in seconds: how long ago the source's end first passed that offset.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from heliograph.ledger.codec import Place
from heliograph.ledger.store import LedgerStore
from heliograph.model import Receipt, TopicPartition
from heliograph.service.flow import FlowRuntime
from heliograph.wire import admin

#: Enough samples for a minute of growth at the usual interval; older lag is shown as "at least".
_SAMPLES = 60
#: Rates are averages over this long.
_RATE_SECONDS = 5.0


@dataclass(slots=True)
class PartitionLag:
    """What is known of one partition."""

    source_end: int = 0
    target_end: int = 0
    position: int = 0
    ends: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    told_position: int = -1
    told_target_end: int = -1
    error: str = ""

    @property
    def source_rate(self) -> float:
        """Records per second that the source grew by lately."""
        if len(self.ends) < 2:
            return 0.0
        (first, start), (last, end) = self.ends[0], self.ends[-1]
        return max(end - start, 0) / max(last - first, 0.001)

    @property
    def records(self) -> int:
        """Source offsets that are not on the target yet."""
        return max(self.source_end - self.position, 0)

    def seconds(self, now: float) -> float:
        """Age of the oldest record that is not on the target yet, as far as we have watched."""
        if self.records == 0:
            return 0.0
        return next((now - when for when, end in self.ends if end > self.position), 0.0)


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """A flow at a glance."""

    flow: str
    topics: int
    partitions: int
    records_per_second: float
    bytes_per_second: float
    lag_records: int
    lag_seconds: float
    records_total: int
    failed: dict[str, str]


class FlowMonitor:
    """Watches one flow; `measure` is called by one job, `status` by anybody."""

    def __init__(self, runtime: FlowRuntime) -> None:
        self._runtime = runtime
        config = runtime.config
        self._source = runtime.client(config.source_client, "monitor-source")
        self._target = runtime.client(config.target_admin, "monitor-target")
        assert runtime.context is not None  # noqa: S101 - prepared
        self._ledger = LedgerStore(self._target, runtime.context.ledger_topic)
        self._lags: dict[TopicPartition, PartitionLag] = {}
        self._progress: deque[tuple[float, int]] = deque(maxlen=64)
        self._first_ends: dict[TopicPartition, int] = {}
        self._bytes = self._records = 0

    def measure(self) -> None:
        """Ask both clusters where every partition ends."""
        plan = self._runtime.plan
        context = self._runtime.context
        if plan.source is None or plan.target is None or context is None:
            return
        targets = {p: TopicPartition(name, p.partition) for p, name in plan.partitions.items()}
        # Target first: what arrives on the source in between counts as lag, never as negative lag.
        target_ends = admin.list_offsets(self._target, plan.target, targets.values(), admin.LATEST)
        self._ledger.refresh()
        source_ends = admin.list_offsets(
            self._source, plan.source, targets, admin.LATEST, read_committed=context.read_committed
        )
        now = time.time()
        fresh: list[TopicPartition] = []
        for p, t in targets.items():
            if p not in source_ends or t not in target_ends:
                continue
            lag = self._lags.setdefault(p, PartitionLag())
            lag.source_end, lag.target_end = source_ends[p], target_ends[t]
            place = Place(
                p.topic, p.partition,
                plan.source.topics[p.topic].topic_id, plan.target.topics[t.topic].topic_id,
            )  # fmt: skip
            ledger = self._ledger.at(place)
            if ledger.runs:
                lag.position = ledger.position(lag.target_end)
                self._first_ends.setdefault(p, ledger.runs[0].target)
            else:
                fresh.append(p)
            if lag.told_target_end == lag.target_end:
                lag.position = max(lag.position, lag.told_position)
            if not lag.ends or lag.ends[-1][1] != lag.source_end:
                lag.ends.append((now, lag.source_end))
        if fresh:
            starts = admin.list_offsets(self._source, plan.source, fresh, admin.EARLIEST)
            for p in fresh:
                self._lags[p].position = starts.get(p, 0)
        for p in self._lags.keys() - targets.keys():
            del self._lags[p]
        self._progress.append((now, sum(lag.target_end for lag in self._lags.values())))

    def receive(self, receipts: Sequence[Receipt]) -> None:
        """Take note of what a round said: errors, sizes, positions behind markers and holes."""
        for receipt in receipts:
            p = TopicPartition(receipt.topic, receipt.partition)
            self._bytes += receipt.bytes
            self._records += receipt.records
            lag = self._lags.get(p)
            if lag is not None:
                lag.error = receipt.error
                lag.told_position = receipt.source_position
                lag.told_target_end = receipt.target_end

    def load_of(self, partition: TopicPartition) -> tuple[int, float]:
        """(records behind, records per second written at the source), for weighing leases."""
        lag = self._lags.get(partition)
        return (lag.records, lag.source_rate) if lag is not None else (0, 0.0)

    def status(self) -> FlowStatus:
        """The latest measurement, summed up."""
        now = time.time()
        lags = dict(self._lags)
        rate = self._rate()
        size = self._bytes / self._records if self._records else 0.0
        total = sum(
            max(lag.target_end - self._first_ends.get(p, lag.target_end), 0)
            for p, lag in lags.items()
        )
        return FlowStatus(
            flow=str(self._runtime.flow),
            topics=self._runtime.plan.topics,
            partitions=len(self._runtime.plan.partitions),
            records_per_second=rate,
            bytes_per_second=rate * size,
            lag_records=sum(lag.records for lag in lags.values()),
            lag_seconds=max((lag.seconds(now) for lag in lags.values()), default=0.0),
            records_total=total,
            failed={str(p): lag.error for p, lag in lags.items() if lag.error},
        )

    def _rate(self) -> float:
        samples = list(self._progress)
        if len(samples) < 2:
            return 0.0
        last = samples[-1]
        first = next((s for s in samples if last[0] - s[0] <= _RATE_SECONDS), samples[-2])
        if first == last:
            first = samples[-2]
        return max(last[1] - first[1], 0) / max(last[0] - first[0], 0.001)
