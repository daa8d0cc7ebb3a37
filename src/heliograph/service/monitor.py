"""How far behind is each partition, and what is it doing? Runs in the driver.

Lag is measured on the two clusters, not told by the tasks; states come from both (service.states).
Lag in records: the source's end minus the next source offset to mirror, which is the target's end
seen through the ledger. Lag in seconds: how long ago the source's end first passed that offset.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.control.scheduler import JobStatus
from heliograph.copy.telling import Stand, Tidings
from heliograph.ledger.codec import Place
from heliograph.ledger.runs import Run
from heliograph.ledger.store import LedgerStore
from heliograph.model import Lease, PartitionReport, Receipt, TopicPartition
from heliograph.service.events import EventLog
from heliograph.service.flow import FlowRuntime
from heliograph.service.states import FlowStates, Measured, counts, troubled
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import ConnectionFailed, WireError
from heliograph.wire.metadata import Metadata

log = logging.getLogger(__name__)

#: The state of a flow that another mirror has.
STANDING_BY = "standing by"
#: Enough samples for a minute of growth at the usual interval; older lag is shown as "at least".
_SAMPLES = 60
#: Rates are averages over this long.
_RATE_SECONDS = 5.0
#: A broker that hangs must not keep the others from being measured for long.
_REQUEST_SECONDS = 5.0
_MEASURE_SECONDS = 2.0
_MEASURED_PER_SECOND = 200


@dataclass(slots=True)
class PartitionLag:
    """What is known of one partition."""

    source_end: int = 0
    target_end: int = 0
    position: int = 0
    ends: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    told_position: int = -1
    told_target_end: int = -1
    shift: int | None = None
    target_id: uuid.UUID | None = None

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
        age = next((now - when for when, end in self.ends if end > self.position), 0.0)
        return max(age, 0.0)  # somebody may have set the clock back


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """A flow at a glance.

    ``identical`` and ``translated`` count the partitions whose records have the source's own
    offsets, and the others. ``states`` counts partitions by state, the worst first; ``troubled``
    are those that somebody should know about, the worst first. ``events`` counts events by code.
    ``state`` is ``standing by`` while another mirror has the flow; the figures show its work then.
    ``jobs`` are the flow's control jobs. ``bytes_per_second`` is None before the first round has
    told how large records are.
    """

    flow: str
    topics: int
    partitions: int
    records_per_second: float
    bytes_per_second: float | None
    lag_records: int
    lag_seconds: float
    records_total: int
    identical: int
    translated: int
    quarantined: int
    states: dict[str, int]
    troubled: list[PartitionReport]
    events: dict[str, int]
    state: str = "mirroring"
    jobs: list[JobStatus] = field(default_factory=list)


class FlowMonitor:
    """Watches one flow. `measure` and `look` are called by one job each, the rest by anybody.

    ``events`` is what happened to the flow's partitions.
    """

    def __init__(self, runtime: FlowRuntime) -> None:
        self._runtime = runtime
        config = runtime.config
        self._source = runtime.client(config.source_client, "monitor-source")
        self._target = runtime.client(config.target_admin, "monitor-target")
        for client in (self._source, self._target):
            client.request_timeout = _REQUEST_SECONDS
        assert runtime.context is not None  # noqa: S101 - prepared
        self._ledger = LedgerStore(self._target, runtime.context.ledger_topic)
        self._lags: dict[TopicPartition, PartitionLag] = {}
        self._progress: deque[tuple[float, int]] = deque(maxlen=64)
        self._first_ends: dict[TopicPartition, int] = {}
        self._bytes = self._records = self._quarantined = 0
        self.events = EventLog(str(runtime.flow))
        self._states = FlowStates(
            str(runtime.flow), runtime.flow.source, config.stalled_after_seconds, self.interval
        )

    @property
    def interval(self) -> float:
        """Seconds between two measurements: large flows are asked less often, to stay idle."""
        return max(_MEASURE_SECONDS, len(self._runtime.plan.partitions) / _MEASURED_PER_SECOND)

    # -- measuring ----------------------------------------------------------------------------

    def measure(self) -> None:
        """Ask both clusters where every partition ends; raises WireError if one did not answer."""
        self._states.watch(self._runtime.plan.partitions.keys(), time.time())
        silent: list[str] = []
        try:
            self._measure(silent)
        except WireError as error:
            silent.append(_silence(self._target, error))
        if silent:
            self._states.unmeasured(silent[0])
            raise WireError(silent[0])

    def _measure(self, silent: list[str]) -> None:
        plan = self._runtime.plan
        context = self._runtime.context
        if plan.source is None or plan.target is None or context is None:
            return
        targets = {p: TopicPartition(name, p.partition) for p, name in plan.partitions.items()}
        target, source = _Asked(self._target, plan.target), _Asked(self._source, plan.source)
        # Target first: what arrives on the source in between counts as lag, never as negative lag.
        target_ends = target.offsets(targets.values(), admin.LATEST)
        self._ledger.refresh()
        committed = context.read_committed
        source_ends = source.offsets(targets, admin.LATEST, read_committed=committed)
        # What lies behind an open transaction may not be read yet.
        highest = source.offsets(targets, admin.LATEST) if committed else source_ends
        now = time.time()
        found: dict[TopicPartition, Measured] = {}
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
            lag.target_id = place.target_id
            ledger = self._ledger.at(place)
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
            held_back = max(highest.get(p, 0) - lag.source_end, 0)
            found[p] = Measured(lag.position, lag.source_end, held_back)
        if fresh:
            starts = source.offsets(fresh, admin.EARLIEST)
            for p in fresh:
                position = self._lags[p].position = starts.get(p, 0)
                found[p] = Measured(position, found[p].readable, found[p].held_back)
        for p in self._lags.keys() - targets.keys():
            del self._lags[p]
        self._progress.append((now, sum(lag.target_end for lag in self._lags.values())))
        self._states.measured(found, now)
        silent += [*target.silent.values(), *source.silent.values()]

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

    # -- what tasks say -----------------------------------------------------------------------

    def granted(self, lease: Lease) -> None:
        """A lease of this flow is handed out."""
        self._states.granted(lease.serial, {p.source for p in lease.partitions}, lease.deadline)

    def hear(self, tidings: Tidings) -> None:
        """Take note of a live report."""
        self.events.add(tidings.events)
        for stand in tidings.positions:
            self._stand(stand)
        self._states.told(tidings)
        if tidings.reports:
            self.look()

    def receive(self, receipts: Sequence[Receipt]) -> None:
        """Take note of what a round said: states, sizes, positions behind markers and holes."""
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
            self._stand(Stand(p, receipt.source_position, receipt.target_end))
            if receipt.tidings:
                tidings = Tidings.decode(receipt.tidings)
                self.events.add(tidings.events)
                self._states.told(tidings)
            else:
                self._states.fine(p, receipt.serial)
        self.look()

    def _stand(self, stand: Stand) -> None:
        lag = self._lags.get(stand.partition)
        if lag is not None:
            lag.told_position, lag.told_target_end = stand.position, stand.target_end

    # -- what is said -------------------------------------------------------------------------

    def look(self) -> None:
        """Judge what every partition is doing; what an operator must hear of is logged."""
        if self._runtime.stands_by:
            self._states.forget_tasks()
        now = time.time()
        self._states.watch(self._runtime.plan.partitions.keys(), now)
        self.events.add(self._states.look(now))

    def failing(self) -> Mapping[TopicPartition, PartitionReport]:
        """The partitions that cannot be copied as things are, with the reason."""
        return self._states.failing()

    def reached(self, partition: TopicPartition) -> tuple[uuid.UUID | None, int]:
        """The target topic, and where its partition ended when it was measured last."""
        lag = self._lags.get(partition)
        return (lag.target_id, lag.target_end) if lag is not None else (None, 0)

    def load_of(self, partition: TopicPartition) -> tuple[int, float]:
        """(records behind, records per second written at the source), for weighing leases."""
        lag = self._lags.get(partition)
        return (lag.records, lag.source_rate) if lag is not None else (0, 0.0)

    def status(self) -> FlowStatus:
        """The latest measurement, summed up."""
        now = time.time()
        lags = dict(self._lags)
        reports = self._states.reports().values()
        rate = self._rate()
        size = self._bytes / self._records if self._records else None
        total = sum(
            max(lag.target_end - self._first_ends.get(p, lag.target_end), 0)
            for p, lag in lags.items()
        )
        return FlowStatus(
            flow=str(self._runtime.flow),
            topics=self._runtime.plan.topics,
            partitions=len(self._runtime.plan.partitions),
            records_per_second=rate,
            bytes_per_second=None if size is None else rate * size,
            lag_records=sum(lag.records for lag in lags.values()),
            lag_seconds=max((lag.seconds(now) for lag in lags.values()), default=0.0),
            records_total=total,
            identical=sum(lag.shift == 0 for lag in lags.values()),
            translated=sum(bool(lag.shift) for lag in lags.values()),
            quarantined=self._quarantined,
            states=counts(reports),
            troubled=troubled(reports),
            events=dict(self.events.counts),
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


class _Asked:
    """One cluster during one measurement. A broker that fails is not asked again: it may hang."""

    def __init__(self, client: ClusterClient, metadata: Metadata) -> None:
        self._client = client
        self._metadata = metadata
        self.silent: dict[int, str] = {}

    def offsets(
        self, partitions: Iterable[TopicPartition], at: int, *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Where partitions begin or end; those whose leaders do not answer are absent."""
        found: dict[TopicPartition, int] = {}
        for node, topics in admin.by_leader(self._metadata, partitions).items():
            if node in self.silent:
                continue
            led = [TopicPartition(name, i) for name, indexes in topics.items() for i in indexes]
            try:
                found |= admin.list_offsets(
                    self._client, self._metadata, led, at, read_committed=read_committed
                )
            except WireError as error:
                self.silent[node] = _silence(self._client, error)
        return found


def _silence(client: ClusterClient, error: WireError) -> str:
    """Why a cluster could not be asked, and what to do about it."""
    if isinstance(error, ConnectionFailed):
        return f"cluster {client.alias} does not answer; check that its brokers are up: {error}"
    return f"cluster {client.alias}: {error}"
