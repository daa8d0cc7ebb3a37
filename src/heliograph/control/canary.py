"""How long a record takes from the source to the target, by one clock. Runs in the driver.

Heartbeats on the source are the probes: every mirror of the other direction writes them, and they
are mirrored as any topic is. For each probe the driver waits for the same record on both clusters:

    source   ... h h | h        visible at t1, by the driver's clock
    target   ... h h | h        visible at t2, by the driver's clock      latency = t2 - t1

Clocks of clusters do not matter for it. Half a round trip is taken off each of the two times. The
error is that of these halves. The timestamp that the record bears, compared with t1, is how far the
clock that stamped it differs from the driver's: that of the mirror which wrote the heartbeat, or of
the source's broker where the topic has LogAppendTime.

Only reads. Brokers hold the request until the record is there, so waiting costs nothing.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from heliograph.batch.header import batches
from heliograph.control.topics.refresh import TopicPlan
from heliograph.ledger.codec import Place
from heliograph.ledger.store import LedgerStore
from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import ConnectionFailed, WireError, check
from heliograph.wire.fetch import Fetched, FetchSession
from heliograph.wire.metadata import Metadata

__all__ = ["LOST_SECONDS", "Canary", "CanaryReading"]

#: A probe that the target does not have after this long counts as lost.
LOST_SECONDS = 30.0
#: How long a run waits: heartbeats come every second, unless somebody has set it otherwise.
_WAIT_SECONDS = 3.0
#: How much longer than asked a broker may take.
_GRACE_SECONDS = 1.0
#: Heartbeats are some dozens of bytes.
_MAX_BYTES = 64 << 10
#: An answer within so many round trips was not waited for: the record had been there before.
_AT_ONCE = 1.5


@dataclass(frozen=True, slots=True)
class CanaryReading:
    """What the probes have shown so far.

    Attributes:
        latency_seconds: of the last probe that was seen on both sides.
        skew_seconds: the driver's clock minus the one that stamped the probe.
        seen_at: when the last probe was seen on the target, in seconds since the epoch.
        waiting_since: when the probe became visible on the source that the target does not have
            yet, or since when a cluster does not answer; 0 if nothing is awaited.
        lost: probes that the target did not have after LOST_SECONDS.
    """

    latency_seconds: float | None = None
    skew_seconds: float | None = None
    seen_at: float = 0.0
    waiting_since: float = 0.0
    lost: int = 0

    def waits(self, since: float, skew: float | None) -> CanaryReading:
        """A probe became visible on the source."""
        skew = self.skew_seconds if skew is None else skew
        return replace(self, waiting_since=since, skew_seconds=skew)

    def arrived(self, at: float) -> CanaryReading:
        """The probe became visible on the target."""
        latency = max(at - self.waiting_since, 0.0)
        return replace(self, latency_seconds=latency, seen_at=at, waiting_since=0.0)

    def latency(self, now: float) -> float | None:
        """The last probe's, or how long one has been waiting by now if that is more."""
        if not self.waiting_since:
            return self.latency_seconds
        return max(self.latency_seconds or 0.0, now - self.waiting_since)

    def overdue(self, now: float) -> bool:
        """Whether a probe is awaited that counts as lost by now."""
        return bool(self.waiting_since) and now - self.waiting_since > LOST_SECONDS


@dataclass(frozen=True, slots=True)
class _Side:
    """One cluster: where the probes are, and how long it takes to answer."""

    client: ClusterClient
    metadata: Metadata
    partition: TopicPartition
    end: int
    round_trip: float

    @classmethod
    def ask(cls, client: ClusterClient, metadata: Metadata, partition: TopicPartition) -> _Side:
        """Where the partition ends now; raises WireError."""
        began = time.monotonic()
        ends = admin.list_offsets(client, metadata, [partition], admin.LATEST)
        if partition not in ends:
            raise ConnectionFailed(f"the leader of {partition} on {client.alias} does not answer")
        return cls(client, metadata, partition, ends[partition], time.monotonic() - began)


class _Wait:
    """Waits for the records of one side behind an offset."""

    def __init__(self, side: _Side, stack: ExitStack) -> None:
        leader = side.metadata.leader(*side.partition)
        connection = stack.enter_context(side.client.lent(leader))
        ids = {side.partition.topic: side.metadata.topics[side.partition.topic].topic_id}
        self.session = FetchSession(
            connection, ids, read_committed=False, max_bytes=_MAX_BYTES,
            partition_max_bytes=_MAX_BYTES, single=True,
        )  # fmt: skip
        self._side = side
        self.next = side.end
        self._sent = 0.0
        self.arrived_at = 0.0

    def send(self, seconds: float) -> None:
        """Ask for what comes next, and have the broker wait for it."""
        self.session.want(self._side.partition, self.next)
        self._sent = time.monotonic()
        self.session.send(max(1, int(1000 * seconds)), 1)

    def receive(self) -> Fetched | None:
        """The answer, if it is here; what comes next is behind its records. Raises WireError."""
        answer = self.session.receive() if self.session.in_flight else None
        if not answer:
            return None
        fetched = answer[0]
        check(fetched.error, f"waiting for a probe in {fetched.partition}")
        self.arrived_at = time.time() - self._side.round_trip / 2
        for header, _ in batches(fetched.records):
            self.next = max(self.next, header.last_offset + 1)
        return fetched

    @property
    def waited(self) -> bool:
        """Whether the broker has waited for the record: then it is here as soon as it could be."""
        return time.monotonic() - self._sent > _AT_ONCE * self._side.round_trip + 0.002


class Canary:
    """The probes of one flow. `probe` is called by one job, ``reading`` read by anybody.

    ``topic`` is the source's heartbeats topic. If it is not mirrored, or nobody writes to it, there
    is nothing to measure.
    """

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        ledger: LedgerStore,
        plan: Callable[[], TopicPlan],
        topic: str,
    ) -> None:
        self.reading = CanaryReading()
        self._source, self._target = source, target
        self._ledger = ledger
        self._plan = plan
        self._probe = TopicPartition(topic, 0)
        #: The source offset of the probe that the target does not have yet, and its place.
        self._awaited: tuple[Place, int] | None = None
        self._counted_lost = False

    def probe(self) -> None:
        """Follow one heartbeat from the source to the target; raises WireError."""
        try:
            self._probe_once()
        except WireError:
            if self.reading.seen_at and not self.reading.waiting_since:
                # Heartbeats are written, and we cannot see them: they take at least from now on.
                self.reading = self.reading.waits(time.time(), None)
            raise

    def _probe_once(self) -> None:
        plan = self._plan()
        name = plan.partitions.get(self._probe)
        if name is None or plan.source is None or plan.target is None:
            return
        copy = TopicPartition(name, 0)
        source_id = plan.source.topics[self._probe.topic].topic_id
        target_id = plan.target.topics[name].topic_id
        place = Place(self._probe.topic, 0, source_id, target_id)
        if self._awaited is not None and self._awaited[0] != place:
            # One of the topics was created anew: that probe never arrives.
            self._awaited = None
            self.reading = replace(self.reading, waiting_since=0.0)
        there = _Side.ask(self._target, plan.target, copy)
        if self._awaited is not None and not self._has_come(there.end):
            self._judge()
            return
        if not self._ledger.at(place).runs:
            return
        here = _Side.ask(self._source, plan.source, self._probe)
        self._follow(place, here, there)

    def _has_come(self, target_end: int) -> bool:
        """Whether the target has the probe that was awaited; it came between two runs then."""
        self._ledger.refresh()
        assert self._awaited is not None  # noqa: S101 - asked only then
        place, offset = self._awaited
        if self._ledger.at(place).position(target_end) <= offset:
            return False
        self._take_arrival(time.time())
        return True

    def _take_arrival(self, at: float) -> None:
        self.reading = self.reading.arrived(at)
        self._awaited, self._counted_lost = None, False

    def _judge(self) -> None:
        waits = time.time() - self.reading.waiting_since
        if waits > LOST_SECONDS and not self._counted_lost:
            self._counted_lost = True
            self.reading = replace(self.reading, lost=self.reading.lost + 1)

    def _follow(self, place: Place, here: _Side, there: _Side) -> None:
        """Wait for the next heartbeat on both sides; what has not come by then is awaited on."""
        deadline = time.monotonic() + _WAIT_SECONDS
        with ExitStack() as stack:
            source, target = _Wait(here, stack), _Wait(there, stack)
            source.send(_WAIT_SECONDS)
            target.send(_WAIT_SECONDS)
            # Brokers answer in the end, with nothing if need be: then the connections can be kept.
            while source.session.in_flight or target.session.in_flight:
                left = deadline - time.monotonic()
                if left < -_GRACE_SECONDS:
                    return
                _wait_for(source, target, left + _GRACE_SECONDS)
                found = source.receive()
                if found is not None and not self._begun(place, source, found) and left > 0:
                    source.send(left)
                if target.receive() is not None and not self._ended(place, target) and left > 0:
                    target.send(left)

    def _ended(self, place: Place, target: _Wait) -> bool:
        """Whether the target has the probe now."""
        if self._awaited is None:
            return False
        if self._ledger.at(place).position(target.next) > self._awaited[1]:
            self._take_arrival(target.arrived_at)
            return True
        return False

    def _begun(self, place: Place, source: _Wait, found: Fetched) -> bool:
        """Whether a probe has become visible on the source just now."""
        for header, _ in batches(found.records):
            if source.waited and not header.control and self._awaited is None:
                stamp = header.max_timestamp / 1000
                skew = source.arrived_at - stamp if stamp > 0 else None
                self._awaited = place, header.base_offset
                self.reading = self.reading.waits(source.arrived_at, skew)
        return self._awaited is not None


def _wait_for(source: _Wait, target: _Wait, seconds: float) -> None:
    """Until one of the two answers may be here."""
    awaited = [w.session.connection for w in (source, target) if w.session.in_flight]
    if not any(connection.has_buffered_input for connection in awaited):
        select.select(awaited, [], [], max(seconds, 0.0))
