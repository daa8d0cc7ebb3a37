"""How far behind is each partition? Measured on the two clusters, not told by the tasks. Driver.

Lag in records: the source's end minus the next source offset to mirror, which is the target's end
seen through the ledger. Lag in seconds: how long ago the source's end first passed that offset.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from heliograph.control.scheduler import JobStatus
from heliograph.ledger.codec import Place
from heliograph.ledger.runs import Run
from heliograph.ledger.store import LedgerStore
from heliograph.model import Receipt, TopicPartition
from heliograph.service.flow import FlowRuntime
from heliograph.wire import admin

log = logging.getLogger(__name__)

#: The state of a flow that another mirror has.
STANDING_BY = "standing by"
#: Enough samples for a minute of growth at the usual interval; older lag is shown as "at least".
_SAMPLES = 60
#: Transactions that end sooner than this are not worth a word.
_PATIENCE_SECONDS = 5.0
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
    shift: int | None = None
    held_back: int = 0
    held_back_since: float = 0.0

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
    """A flow at a glance.

    ``identical`` and ``translated`` count the partitions whose records have the source's own
    offsets, and the others; ``waiting`` says what partitions wait for that are not behind.
    ``state`` is ``standing by`` while another mirror has the flow; the figures show its work then.
    ``jobs`` are the flow's control jobs.
    """

    flow: str
    topics: int
    partitions: int
    records_per_second: float
    bytes_per_second: float
    lag_records: int
    lag_seconds: float
    records_total: int
    identical: int
    translated: int
    quarantined: int
    waiting: dict[str, str]
    failed: dict[str, str]
    state: str = "mirroring"
    jobs: list[JobStatus] = field(default_factory=list)


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
        self._bytes = self._records = self._quarantined = 0

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
        # What lies behind an open transaction may not be read yet.
        highest = (
            admin.list_offsets(self._source, plan.source, targets, admin.LATEST)
            if context.read_committed
            else source_ends
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
            self._hold_back(lag, source_ends[p], highest.get(p, source_ends[p]), now)
            if ledger.runs:
                self._compare(p, lag, ledger.runs[-1])
                lag.position = ledger.position(lag.target_end)
                begun = max(ledger.runs[0].target, ledger.inherited.end)
                self._first_ends.setdefault(p, begun)
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

    @staticmethod
    def _hold_back(lag: PartitionLag, stable: int, highest: int, now: float) -> None:
        if highest <= stable:
            lag.held_back = 0
        elif not lag.held_back or lag.ends[-1][1] != stable:
            lag.held_back, lag.held_back_since = highest - stable, now
        else:
            lag.held_back = highest - stable

    def _compare(self, p: TopicPartition, lag: PartitionLag, run: Run) -> None:
        """Say so when offsets stop being the source's."""
        shift = run.target - run.source
        if lag.shift == 0 and shift and self._runtime.leased(p).identical:
            log.warning(
                "%s: offsets of %s are no longer the source's: from source offset %d on they are"
                " %+d on the target (did somebody else write to %s?); positions are translated"
                " exactly from here on",
                self._runtime.flow, p, run.source, shift, self._runtime.plan.partitions[p],
            )  # fmt: skip
        lag.shift = shift

    def receive(self, receipts: Sequence[Receipt]) -> None:
        """Take note of what a round said: errors, sizes, positions behind markers and holes."""
        for receipt in receipts:
            p = TopicPartition(receipt.topic, receipt.partition)
            self._bytes += receipt.bytes
            self._records += receipt.records
            self._quarantined += receipt.quarantined
            if receipt.quarantined:
                log.warning(
                    "%s: %d record(s) of %s were set aside in %s: the target does not take them",
                    receipt.flow, receipt.quarantined, p,
                    self._runtime.context and self._runtime.context.quarantine_topic,
                )  # fmt: skip
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
            identical=sum(lag.shift == 0 for lag in lags.values()),
            translated=sum(bool(lag.shift) for lag in lags.values()),
            quarantined=self._quarantined,
            waiting={
                str(p): f"{lag.held_back} record(s) wait for an open transaction on the source"
                for p, lag in lags.items()
                if lag.held_back and now - lag.held_back_since >= _PATIENCE_SECONDS
            },
            failed={str(p): lag.error for p, lag in lags.items() if lag.error},
            state=STANDING_BY if self._runtime.stands_by else "mirroring",
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
