"""The protocol, small enough to be explored: one partition, its broker, its ledger, its writers.

The broker, the network and the faults are modelled here. What decides is the real code: `Resumer`
with `copy.knowledge`, the ledger's store and codec, `PartitionCopy.stage`, and what
`Acknowledgements` makes of answers. A state is reached by a list of actions; `check` lets a fresh
writer finish and compares what came of it with what was promised.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from heliograph.batch.header import SEQUENCE_MODULUS, BatchHeader
from heliograph.batch.log_slice import LogSlice
from heliograph.batch.records import Record
from heliograph.copy.beginning import Beginning
from heliograph.copy.knowledge import LeaderSays
from heliograph.copy.lease_state import LeaseState
from heliograph.copy.links import Cluster
from heliograph.copy.locating import Locator
from heliograph.copy.partition import STALE_SECONDS, Gap, MustWait, Outgoing, gaps
from heliograph.copy.recount import Recount
from heliograph.copy.resume import Resumer
from heliograph.copy.target_divergence import TargetDivergence
from heliograph.copy.target_link import TargetLink
from heliograph.copy.target_log import DELETED, Foreign, TargetLog
from heliograph.copy.writing import TargetSide
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Acknowledged, Entry, Place
from heliograph.ledger.store import LedgerStore
from heliograph.model import (
    ClientSettings,
    Flow,
    FlowContext,
    Lease,
    LeasedPartition,
    TopicPartition,
)
from heliograph.wire.errors import NONE, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER_SEQUENCE_NUMBER
from heliograph.wire.metadata import Metadata, PartitionInfo, TopicInfo
from heliograph.wire.produce import Produced

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("A.t", 0)
TARGET_ID = uuid.UUID(int=2)
SIGNATURE, MARKER, STRANGER = 1, 2, 3
INVALID_PRODUCER_EPOCH = 47
#: Source offsets of the records; what is missing is a gap (a transaction marker).
RECORDS = (0, 1, 3, 4, 6)
END = 7
SETTINGS = ClientSettings("x", {})
#: What tells the records of one generation of the source topic from those of the next.
GENERATION = 100


def place(generation: int) -> Place:
    return Place("t", 0, uuid.UUID(int=10 + generation), TARGET_ID)


@dataclass
class Batch:
    base: int
    count: int
    producer: int
    epoch: int = 0
    sequence: int = 0
    sources: tuple[int, ...] = ()

    @property
    def header(self) -> BatchHeader:
        control = 0x20 if self.producer == MARKER else 0
        return BatchHeader(
            self.base, 100, 0, 2, 0, control, self.count - 1, 0, 0, self.producer, self.epoch,
            self.sequence % SEQUENCE_MODULUS, self.count,
        )  # fmt: skip


@dataclass
class Request:
    """On its way to the broker: a batch of ours, or markers."""

    epoch: int
    sequence: int
    sources: tuple[int, ...]
    markers: int = 0


class Broker:
    """The leader of the target partition."""

    def __init__(self) -> None:
        self.log: list[Batch] = []
        #: Deleted by retention: consumers may have read it.
        self.deleted: list[Batch] = []
        self.start = self.visible = self.end = 0
        self.epoch = 0
        self.epochs = [(0, 0)]
        self.state: tuple[int, list[tuple[int, int, int]]] | None = None
        self.stalled = False
        self.refusing = False
        #: What happens between the two questions of the next look: producers, and log ends.
        self.between_questions: Callable[[], None] = lambda: None

    def append(self, batch: Batch) -> int:
        batch.base = self.end
        self.log.append(batch)
        self.end += batch.count
        if not self.stalled:
            self.visible = self.end
        return batch.base

    def handle(self, request: Request) -> Produced:
        """As Kafka's ProducerStateManager does it."""
        if request.markers:
            for _ in range(request.markers):
                self.append(Batch(0, 1, MARKER))
            return Produced(TARGET, NONE, -1, 0, None, {})
        if self.refusing:
            self.refusing = False
            return Produced(TARGET, NOT_ENOUGH_REPLICAS, -1, 0, None, {})
        count = len(request.sources)
        if self.state is not None:
            epoch, last = self.state
            if request.epoch < epoch:
                return Produced(TARGET, INVALID_PRODUCER_EPOCH, -1, 0, None, {})
            if request.epoch == epoch:
                for first, until, base in last:
                    if (first, until) == (request.sequence, request.sequence + count):
                        return Produced(TARGET, NONE, base, 0, None, {})
                if request.sequence != last[-1][1]:
                    return Produced(TARGET, OUT_OF_ORDER_SEQUENCE_NUMBER, -1, 0, None, {})
            elif request.sequence != 0:
                return Produced(TARGET, OUT_OF_ORDER_SEQUENCE_NUMBER, -1, 0, None, {})
        base = self.append(
            Batch(0, count, SIGNATURE, request.epoch, request.sequence, request.sources)
        )
        self._remember(request.epoch, (request.sequence, request.sequence + count, base))
        return Produced(TARGET, NONE, base, 0, None, {})

    def _remember(self, epoch: int, batch: tuple[int, int, int]) -> None:
        known = self.state[1] if self.state is not None and self.state[0] == epoch else []
        self.state = (epoch, [*known, batch][-5:])

    def truncate(self) -> None:
        """Another replica is elected that lacks the last batch."""
        lost = self.log.pop()
        self.end = self.visible = lost.base
        self.epochs = [(e, s) for e, s in self.epochs if s <= self.end]
        self.epoch += 1
        self.epochs.append((self.epoch, self.end))
        remembered = self.state is not None
        self.state = None
        if remembered:
            for batch in self.log:
                if batch.producer == SIGNATURE:
                    self._remember(
                        batch.epoch, (batch.sequence, batch.sequence + batch.count, batch.base)
                    )

    def epoch_end(self, epoch: int) -> int:
        later = [start for e, start in self.epochs if e > epoch]
        return later[0] if later else self.end

    def empty(self) -> None:
        self.deleted += self.log
        self.log, self.start = [], self.visible


class ModelLog(TargetLog):
    """What the real one asks over the wire."""

    def __init__(self, context: FlowContext, broker: Broker) -> None:
        super().__init__(context, None)
        self.broker = broker

    def look(self, partitions, metadata):
        b = self.broker
        producer = None if b.state is None else (b.state[0], b.state[1][-1][1] - 1)
        happens, b.between_questions = b.between_questions, lambda: None
        happens()
        return {TARGET: LeaderSays(b.epoch, producer, b.visible, b.end)}

    def starts(self, partitions, metadata):
        return dict.fromkeys(partitions, self.broker.start)

    def kept(self, known, says, metadata):
        b = self.broker
        return {t: b.epoch_end(k.epoch) for t, k in known.items() if k.epoch != b.epoch}

    def read(self, tails, metadata):
        for tail in tails.values():
            tail.begins_at(self.broker.start)
            for batch in self.broker.log:
                tail.take(batch.header)
            tail.begins_at(tail.end)

    def foreign(self, ranges):
        found = {t: Foreign(lo, hi, Counter(), 0, 0) for t, (lo, hi) in ranges.items()}
        for target in ranges:
            for batch in self.broker.log:
                found[target] = self._count(found[target], batch.header)
        return found


@dataclass
class LedgerTopic:
    """Records (offset, key, value), and how many there are in each batch."""

    records: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    #: Where each leader's log began: what was behind it is lost.
    elected: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return len(self.records)


class ModelStore(LedgerStore):
    """The real store on a topic in memory, which can lose its tail."""

    def __init__(self, topic: LedgerTopic) -> None:
        super().__init__(None, "ledger")
        self.follower.log = ModelTopicLog(topic)


class ModelTopicLog:
    """What `TopicLog` does, on that topic."""

    def __init__(self, topic: LedgerTopic) -> None:
        self.topic = topic
        self._elections = len(topic.elected)

    def find_end(self, position):
        since = self.topic.elected[self._elections :]
        self._elections = len(self.topic.elected)
        return not any(begun < position for begun in since)

    def read(self, position):
        yield [Record(o, 0, key, value) for o, key, value in self.topic.records[position:]]

    def append(self, pairs):
        first = self.topic.end
        self.topic.records += [(first + i, key, value) for i, (key, value) in enumerate(pairs)]
        self.topic.batches.append(len(pairs))


class ModelRecount(Recount):
    """Reads the two logs of the model; a record's content is its source offset."""

    broker: Broker
    generation: int

    def _read(self, client, partition, start, most, *, committed=None, guard=None):
        found = LogSlice(start)
        records = [(offset, self.generation * GENERATION + offset) for offset in RECORDS]
        if partition == TARGET:
            records = [
                (b.base + i, source) for b in self.broker.log for i, source in enumerate(b.sources)
            ]
        for offset, content in records:
            if offset >= start and len(found) < most:
                found.offsets.append(offset)
                found._times.append(0)
                found._bodies.append(content)
        return found


class ModelLocator(Locator):
    """Leaders are where the model has them."""

    broker: Broker
    generation: int

    def _locate(self, partitions):
        for p in partitions:
            p.source_leader = p.target_leader = 1
            p.source_epoch, p.target_epoch = 0, self.broker.epoch
            p.place = place(self.generation)
        ids = (("t", place(self.generation).source_id), ("A.t", TARGET_ID))
        topics = {n: TopicInfo(n, i, False, {0: PartitionInfo(1, 0, 1)}) for n, i in ids}
        metadata = Metadata("x", 1, {}, topics)
        return metadata, metadata, {}


class ModelBeginning(Beginning):
    """The source begins at 0, and no other flow writes to the target."""

    def _is_known(self, p):
        return False

    def _first_offsets(self, fresh, source):
        return dict.fromkeys((p.source for p in fresh), 0)


class NoUpstream:
    """The source is what it was."""

    def look(self, partitions, source): ...

    def recreated(self, p, source, target): ...

    def require_intact(self, p, ledger, sequence, end): ...


class NoSilence:
    def refuse(self, node): ...

    def noticed(self, node):
        from contextlib import nullcontext

        return nullcontext()


class AtOnce:
    """A background whose calls are over before `run` returns."""

    def run(self, lane, call, then, failed):
        then(call())


class NoSyncs:
    def acknowledged(self, *_): ...


class NoProducer:
    connection = None


@dataclass
class Notebook:
    """Remembers what is to be written down, until the model says when."""

    waiting: bool = False

    def acknowledged(self, p, size):
        self.waiting = True


class Writer:
    """A lease holder: a process of its own, which has never read the ledger before."""

    def __init__(
        self, broker: Broker, topic: LedgerTopic, generation: int, *, identical: bool
    ) -> None:
        self.broker = broker
        self.generation = generation
        self.place = place(generation)
        context = FlowContext(
            flow=Flow("A", "B"), source=SETTINGS, target=SETTINGS, producer_id=SIGNATURE,
            ledger_topic="ledger", offset_syncs=None, offset_lag_max=100,
            read_committed=True, start_at_latest=False, fetch_max_bytes=1 << 20,
            marker_id=MARKER, buffer_max_bytes=1 << 20,
        )  # fmt: skip
        leased = LeasedPartition(SOURCE, "A.t", END, identical=identical)
        self.store = ModelStore(topic)
        self.lease_state = LeaseState(Lease(context, (leased,), 0.0, 1e12), self.store)
        silence: Any = NoSilence()
        cluster = Cluster(None, None, silence)
        divergence = TargetDivergence(context, cluster, self.store, self.lease_state.add_event)
        divergence.log = ModelLog(context, broker)
        divergence._of_other_flows = lambda producers: False
        self.resumer = Resumer(
            context, cluster, cluster, self.store, self.lease_state.add_event, divergence
        )
        self.resumer._locator = ModelLocator(context, None, None, None, divergence)
        self.resumer._locator.broker, self.resumer._locator.generation = broker, generation
        self.resumer._beginning = ModelBeginning(context, None, None, self.store, divergence)
        self.resumer._upstream = NoUpstream()
        self.resumer._recount = ModelRecount(
            context, None, None, self.store, self.lease_state.add_event
        )
        self.resumer._recount.broker = broker
        self.resumer._recount.generation = generation
        notes: Any = Notebook()
        self.notes = notes
        syncs: Any = NoSyncs()
        background: Any = AtOnce()
        producer: Any = NoProducer()
        self.target = TargetSide(
            self.lease_state, cluster, syncs, notes, divergence, background,
            lambda p: None,
        )  # fmt: skip
        self.target.links[1] = TargetLink(1, producer)
        self.p = self.lease_state.parts[SOURCE]
        self.network: deque[tuple[Request, Outgoing | Gap]] = deque()
        self.losses = 0

    @property
    def events(self):
        return self.lease_state.events

    def resume(self) -> None:
        p = self.p
        self.lease_state.begin(p)
        outcome = self.resumer.resume([p])[p.source]
        if isinstance(outcome, PartitionError):
            self.lease_state.fail(p, outcome)
        elif isinstance(outcome, MustWait):
            self.lease_state.wait(p, outcome)
            # As much time passes as it wants.
            p.retry_at = 0.0
            p.stale_at -= STALE_SECONDS
        else:
            self.lease_state.start(p, outcome)

    def revive(self) -> None:
        """What `CopyLoop._revive` does about a ledger that lost entries, and disturbances."""
        if self.store.losses != self.losses:
            self.losses = self.store.losses
            self.store.restore([self.place])
            if self.p.active:
                self.lease_state.disturb(self.p, "the ledger has lost entries", pause=False)
        if not self.p.active and not self.p.in_flight and self.p.failed is None:
            self.resume()

    @property
    def may_send(self) -> bool:
        p = self.p
        return (
            p.active and bool(p.queue or p.position < END) and not (p.one_in_flight and p.in_flight)
        )

    def send(self) -> None:
        """Read the next record of the source if nothing is queued, and send what is queued."""
        p = self.p
        if p.tail_unread:
            p.must_read_tail = True
            self.lease_state.disturb(p, "", pause=False)
            self.resume()
        if not p.active:
            return
        if not p.queue:
            self._read()
        if not p.active or not p.queue:
            return
        item = p.queue.popleft()
        p.in_flight.append(item)
        if isinstance(item, Gap):
            self.network.append((Request(0, 0, (), item.markers), item))
        else:
            wire = p.era.wire(item.sequence)
            sources = tuple(self.generation * GENERATION + o for o in item.offsets())
            self.network.append((Request(p.era.epoch, wire, sources), item))

    def _read(self) -> None:
        p = self.p
        record = next((r for r in RECORDS if r >= p.position), None)
        runs = [(END, 0)] if record is None else [(record, 1)]
        if record is None and not p.fills:
            p.position = END
            return
        sequence = p.sequence
        announced, missing = p.stage(runs)
        p.contradicts = False
        if announced:
            self.store.write([Entry(self.place, announced)])
            known = self.store.at(self.place)
            if any(known.source_of(run.sequence) != run.source for run in announced):
                late = [run for run in announced if known.source_of(run.sequence) < run.source]
                if late:
                    self.store.write([Entry(self.place, late, shift=True)])
                else:
                    self.lease_state.disturb(p, "announced differently")
                    return
        p.queue.extend(gaps(missing))
        p.position = END if record is None else record + 1
        if record is not None:
            p.queue.append(Outgoing(memoryview(b"x"), sequence, 1, [(record, 1)], record + 1))

    def deliver(self) -> None:
        request, item = self.network.popleft()
        answer = self.broker.handle(request)
        if isinstance(item, Gap):
            self.target.acknowledgements.marked(self.p, answer.error)
        else:
            self.target.acknowledgements.produced(self.p, answer)

    def lose_connection(self) -> list[Request]:
        """Returns what is on the road; it may arrive or not."""
        road = [request for request, _ in self.network]
        self.network.clear()
        p = self.p
        p.in_flight.clear()
        p.queue.clear()
        self.lease_state.disturb(p, "lost", pause=False)
        return road

    def note(self) -> None:
        if self.p.known is not None and self.p.known_in is not None:
            self.store.note([Acknowledged(self.p.known_in, self.p.known)])
        self.notes.waiting = False


@dataclass
class Model:
    """A state of everything; ``act`` changes it."""

    identical: bool = False
    broker: Broker = field(default_factory=Broker)
    ledger: LedgerTopic = field(default_factory=LedgerTopic)
    writer: Writer | None = None
    road: deque[Request] = field(default_factory=deque)
    events: list = field(default_factory=list)
    ledger_gone: bool = False
    generation: int = 0
    #: What a stopped process had not sent when its lease ended.
    held: list[Request] = field(default_factory=list)
    sent_late: int = 0
    #: Records of requests that came late and were taken.
    late_records: int = 0
    faults: Counter = field(default_factory=Counter)

    # -- actions ------------------------------------------------------------------------------

    #: Whether a process sends on when it is continued; the real one must not (Connection.send_by).
    SENDS_LATE: ClassVar[bool] = False
    FAULTS: ClassVar[tuple[str, ...]] = (
        "kill", "lose", "late", "expire", "empty", "foreign", "truncate", "cut", "delete",
        "stall", "refuse", "recreate", "stop", "continue", "overtake",
    )  # fmt: skip

    def possible(self) -> list[str]:
        b, w = self.broker, self.writer
        found = []
        if w is None:
            found.append("begin")
        else:
            if w.network and not b.stalled:
                found.append("deliver")
            if w.network and b.stalled:
                found.append("append")
            if w.may_send and len(w.network) < 2:
                found.append("send")
            if not w.p.active and not w.p.in_flight and w.p.failed is None:
                found.append("resume")
            if w.notes.waiting:
                found.append("note")
            if not w.network and not w.p.in_flight:
                found.append("end")
            found.append("kill")
            if w.network:
                found += ["lose", "refuse", "stop"]
        if self.road:
            found += ["late", "overtake"]
        if self.held:
            found.append("continue")
        if w is None and b.log and not self.generation:
            found.append("recreate")
        if b.state is not None:
            found.append("expire")
        if b.log and b.visible == b.end:
            found += ["empty", "truncate"]
        if b.log:
            found.append("foreign")
        if self.ledger.end > 1:
            found.append("delete")
            # One cut, of any depth: known limits in DESIGN.md.
            if not self.faults["cut"] or self.ledger.elected[-1] == self.ledger.end:
                found.append("cut")
        if b.stalled:
            found.append("catch-up")
        else:
            found.append("stall")
        return found

    def act(self, action: str) -> None:
        getattr(self, "_" + action.replace("-", "_"))()
        if action in self.FAULTS:
            self.faults[action] += 1

    def _begin(self) -> None:
        self.writer = Writer(self.broker, self.ledger, self.generation, identical=self.identical)
        self.writer.resume()

    def _resume(self) -> None:
        self.writer.revive()

    def _send(self) -> None:
        self.writer.send()
        self.writer.revive()

    def _deliver(self) -> None:
        self.writer.deliver()
        self.writer.revive()

    def _append(self) -> None:
        """The leader has it, its replicas do not: no answer."""
        request, _ = self.writer.network.popleft()
        self.broker.handle(request)
        self.road.extend(self.writer.lose_connection())

    def _note(self) -> None:
        self.writer.note()

    def _end(self) -> None:
        self.writer.note()
        self._retire()

    def _retire(self) -> None:
        self.writer.target.acknowledgements.report_pushed()
        self.events += self.writer.events
        self.writer = None

    def _kill(self) -> None:
        self.road.extend(request for request, _ in self.writer.network)
        self.events += self.writer.events
        self.writer = None

    def _recreate(self) -> None:
        """The source topic is deleted and created again; the policy is to continue."""
        self.generation += 1

    def _stop(self) -> None:
        """The process stands still, with requests of its own, until its lease is over."""
        self.held += [request for request, _ in self.writer.network]
        self.events += self.writer.events
        self.writer = None

    def _continue(self) -> None:
        if self.SENDS_LATE:
            self.sent_late += len(self.held)
            self.road.extend(self.held)
        self.held.clear()

    def _lose(self) -> None:
        self.road.extend(self.writer.lose_connection())

    def _late(self) -> None:
        request, before = self.road.popleft(), self.broker.end
        self.broker.handle(request)
        self.late_records += 0 if request.markers else self.broker.end - before

    def _overtake(self) -> None:
        """The next look finds a request executed that was not when it began."""
        self.broker.between_questions = lambda: self._late() if self.road else None

    def _expire(self) -> None:
        self.broker.state = None

    def _empty(self) -> None:
        self.broker.empty()

    def _foreign(self) -> None:
        self.broker.append(Batch(0, 1, STRANGER))

    def _truncate(self) -> None:
        self.broker.truncate()

    def _cut(self) -> None:
        del self.ledger.records[-self.ledger.batches.pop() :]
        self.ledger.elected.append(self.ledger.end)

    def _delete(self) -> None:
        self.ledger_gone = True
        self.ledger.batches.clear()
        self.ledger.records.clear()
        self.ledger.elected.append(0)

    def _stall(self) -> None:
        self.broker.stalled = True

    def _catch_up(self) -> None:
        self.broker.stalled = False
        self.broker.visible = self.broker.end

    def _refuse(self) -> None:
        self.broker.refusing = True

    # -- what must hold -----------------------------------------------------------------------

    def key(self) -> tuple:
        """Two states with one key have the same future."""
        b, w = self.broker, self.writer
        # Without the nonce.
        facts = tuple((key.rsplit(b"/", 1)[0], value) for _, key, value in self.ledger.records)
        writer = None
        if w is not None:
            p = w.p
            writer = (
                p.active, p.tail_unread, p.must_read_tail, p.sequence, p.position, p.target_next,
                p.ack_target, p.one_in_flight, p.known,
                p.holed is not None, p.era, w.notes.waiting, w.store.follower.reached.position,
                tuple((r.epoch, r.sequence, r.sources, r.markers) for r, _ in w.network),
                p.failed is not None, p.stale,
            )  # fmt: skip
        return (
            tuple((x.base, x.count, x.producer, x.epoch, x.sequence) for x in b.log),
            b.start, b.visible, b.end, tuple(b.epochs), b.stalled, b.refusing,
            b.between_questions.__qualname__,
            None if b.state is None else (b.state[0], tuple(b.state[1])),
            tuple((r.epoch, r.sequence, r.sources, r.markers) for r in self.road),
            tuple((r.epoch, r.sequence, r.sources, r.markers) for r in self.held),
            self.generation, self.sent_late, self.late_records, facts, writer, len(b.deleted),
        )  # fmt: skip

    def finish(self) -> str:
        """Let a fresh writer copy all; returns what stops it, if something does."""
        if self.writer is not None:
            self._kill()
        self.road.clear()
        self._catch_up()
        self.broker.refusing = False
        self.broker.between_questions = lambda: None
        for _ in range(3):
            self._begin()
            w = self.writer
            for _ in range(60):
                if w.p.failed is not None:
                    break
                if w.network:
                    w.deliver()
                elif w.may_send:
                    w.send()
                    w.revive()
                elif not w.p.active:
                    w.revive()
                else:
                    break
            failed = w.p.failed
            done = w.p.active and w.p.position >= END and not w.p.in_flight
            self._end()
            if failed is not None:
                return failed.code
            if not done:
                return "stuck: " + w.p.broken
        return ""

    def violations(self) -> list[str]:
        """What was promised and does not hold, after `finish`."""
        stopped = self.finish()
        if stopped in {"target.unknown", "ledger.cut"} and (self.ledger_gone or self.faults["cut"]):
            return []
        if stopped:
            return [f"stopped: {stopped}"]
        b = self.broker
        now = self.generation * GENERATION
        copies: dict[int, list[int]] = {now + source: [] for source in RECORDS}
        for batch in (*b.deleted, *b.log):
            for index, source in enumerate(batch.sources):
                copies.setdefault(source, []).append(batch.base + index)
        found = [f"lost: {source}" for source, at in copies.items() if not at]
        if self.sent_late:
            found.append(f"{self.sent_late} request(s) left a process after its lease")
        named = [
            (e.first, e.until) for e in self.events
            if e.code in {"target.repeated", "target.hole"} or DELETED in e.text
        ]  # fmt: skip
        # A range that is announced ahead moves on with what others write before it is written.
        named = [(first, until + self.faults["foreign"]) for first, until in named]
        extra = sum(len(at) - 1 for at in copies.values() if at)
        # Stated cases: requests that came late, logs emptied before anybody looked, and what stands
        # behind a hole. A hole needs a broker that forgets, or loses records, while it is written.
        unknown = (
            self.faults["empty"]
            or self.faults["truncate"]
            or (self.faults["expire"] and self.faults["refuse"])
        )
        # A broker that remembers refuses what comes late.
        late = self.late_records if self.faults["expire"] else 0
        if extra > late and not unknown:
            found.append(f"repeated without a reason: {extra}, late were {late}")
        for source, at in copies.items():
            unnamed = [o for o in at if not any(first <= o < until for first, until in named)]
            if len(unnamed) > 1:
                found.append(f"repeated and not told: {source} at {at}, told: {named}")
        return found + self._translation(copies)

    def _translation(self, copies: dict[int, list[int]]) -> list[str]:
        store = ModelStore(self.ledger)
        store.refresh()
        found = []
        for content, at in copies.items():
            generation, source = divmod(content, GENERATION)
            if generation < self.generation:
                # Nobody copies that one any more, and so nobody looks after its ledger.
                continue
            ledger = store.at(place(generation))
            if not ledger.runs:
                continue
            there = [offset for offset in at if offset >= self.broker.start]
            if there and ledger.to_target(source) not in there:
                found.append(f"translation: {source} to {ledger.to_target(source)}, is at {there}")
            elif there and ledger.to_source(ledger.to_target(source)) != source:
                found.append(f"translation back: {source}")
        return found


def replay(actions, *, identical: bool = False) -> Model:
    model = Model(identical=identical)
    for action in actions:
        model.act(action)
    return model


@dataclass
class Found:
    """What an exploration saw: ``states`` is how many, ``broken`` the first violations."""

    states: int
    broken: list[tuple[tuple[str, ...], list[str]]]


def explore(
    depth: int, faults: int, *, identical: bool = False, most: int = 1 << 60, stop: bool = True,
    start: tuple[str, ...] = (), allowed: frozenset[str] | None = None,
) -> Found:  # fmt: skip
    """Breadth first from ``start``: every order of actions up to a depth, with so many faults.

    ``allowed`` are the faults to try; None: all.
    """
    seen = set()
    queue = deque([start])
    broken = []
    states = 0
    while queue and states < most:
        actions = queue.popleft()
        model = replay(actions, identical=identical)
        key = model.key()
        if key in seen:
            continue
        seen.add(key)
        states += 1
        if len(actions) - len(start) < depth:
            for action in model.possible():
                fault = action in Model.FAULTS
                if fault and allowed is not None and action not in allowed:
                    continue
                if fault and sum(model.faults.values()) >= faults:
                    continue
                queue.append((*actions, action))
        bad = model.violations()
        if bad:
            broken.append((actions, bad))
            if stop:
                break
    return Found(states, broken)
