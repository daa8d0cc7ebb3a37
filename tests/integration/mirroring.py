"""A flow without Spark: what the driver prepares, and leases held in this process."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import Producer
from kafka.protocol.admin import DeleteRecordsRequest, DeleteTopicsRequest

from heliograph.batch.records import Record
from heliograph.copy.loop import CopyLoop
from heliograph.lab import Lab
from heliograph.lab.proof import Proof, compare, read_all
from heliograph.ledger.codec import Place
from heliograph.ledger.runs import PartitionLedger
from heliograph.ledger.store import LedgerStore
from heliograph.model import (
    ClientSettings,
    Flow,
    FlowContext,
    Lease,
    LeasedPartition,
    OffsetSyncsTopic,
    Receipt,
    TopicPartition,
)
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

PATIENCE_SECONDS = 60.0
_WAIT_SECONDS = 120.0


def wait_for(condition: Callable[..., Any], seconds: float = _WAIT_SECONDS) -> Any:
    """The first true answer; polls until the deadline."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)
    return answer


def settings(lab: Lab, alias: str, **properties: str) -> ClientSettings:
    return ClientSettings(alias, lab[alias].client_properties() | properties)


@dataclass(slots=True)
class Mirroring:
    """One flow A->B of a lab with a ledger of its own; ``source`` and ``target`` are clients."""

    lab: Lab
    context: FlowContext
    source: ClusterClient
    target: ClusterClient
    options: Mapping[str, Any] = field(default_factory=dict)

    def leasing(self, **options: Any) -> Mirroring:
        """The same flow with other options for its partitions (LeasedPartition)."""
        return replace(self, options=options)

    @classmethod
    def of(cls, lab: Any, **changes: Any) -> Mirroring:
        """A flow A->B of a `Lab`, or of anything that has ``lab["A"]`` and ``lab["B"]``."""
        here, there = settings(lab, "A"), settings(lab, "B")
        source, target = ClusterClient(here, "test"), ClusterClient(there, "test")
        unique = uuid.uuid4().hex[:8]
        ledger, syncs = f"ledger-{unique}", f"mm2-offset-syncs.{unique}.internal"
        compacted = {"cleanup.policy": "compact"}
        wanted = [admin.NewTopic(ledger, 1, 1, compacted), admin.NewTopic(syncs, 1, 1, compacted)]
        failed = admin.create_topics(target, wanted, 30_000)
        assert not failed, failed
        values: dict[str, Any] = {
            "flow": Flow("A", "B"),
            "source": here,
            "target": there,
            "producer_id": admin.allocate_producer_id(target),
            "marker_id": admin.allocate_producer_id(target),
            "ledger_topic": ledger,
            "offset_syncs": OffsetSyncsTopic(syncs, on_source=False),
            "offset_lag_max": 100,
            "read_committed": True,
            "start_at_latest": False,
            "fetch_max_bytes": 4 << 20,
        }
        made = cls(lab, FlowContext(**(values | changes)), source, target)
        for topic in (ledger, syncs):
            made.await_topic(target, topic, 1)
        return made

    def but(self, **changes: Any) -> Mirroring:
        """The same flow with other settings."""
        return replace(self, context=replace(self.context, **changes))

    def close(self) -> None:
        self.source.close()
        self.target.close()

    # -- topics -------------------------------------------------------------------------------

    def await_topic(self, client: ClusterClient, topic: str, partitions: int) -> None:
        def served() -> bool:
            # A leader may be known before it has heard of it itself, and refuses until then.
            return len(self.offsets(client, topic, admin.LATEST)) >= partitions

        wait_for(served)

    def create(
        self,
        topic: str,
        partitions: int = 1,
        configs: dict[str, str] | None = None,
        target_configs: dict[str, str] | None = None,
    ) -> None:
        """The topic on A and its remote topic on B."""
        for client, name, own in (
            (self.source, topic, configs),
            (self.target, f"A.{topic}", configs if target_configs is None else target_configs),
        ):
            # Records of the tests are from 2023: the brokers' retention must not take them.
            new = admin.NewTopic(name, partitions, 1, {"retention.ms": "-1", **(own or {})})
            failed = admin.create_topics(client, [new], 30_000)
            assert not failed, failed
            self.await_topic(client, name, partitions)

    def delete(self, client: ClusterClient, topic: str) -> None:
        state = DeleteTopicsRequest.DeleteTopicState(name=topic, topic_id=None)
        message = DeleteTopicsRequest(topics=[state], topic_names=[topic], timeout_ms=30_000)
        client.to_controller(message)
        wait_for(lambda: topic not in client.metadata([topic]).topics)

    def trim(self, client: ClusterClient, partition: TopicPartition, before: int) -> None:
        """DeleteRecords: the log begins at ``before`` (-1: at its end)."""
        kind = DeleteRecordsRequest.DeleteRecordsTopic
        message = DeleteRecordsRequest(
            topics=[
                kind(
                    name=partition.topic,
                    partitions=[
                        kind.DeleteRecordsPartition(
                            partition_index=partition.partition, offset=before
                        )
                    ],
                )
            ],
            timeout_ms=30_000,
        )
        leader = client.metadata([partition.topic]).leader(partition.topic, partition.partition)
        [answer] = client.request(message, leader).topics[0].partitions
        assert answer.error_code == 0

    def offsets(
        self, client: ClusterClient, topic: str, at: int, *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Of the partitions whose leaders answer; none of a topic that is not known yet."""
        metadata = client.metadata([topic])
        found = metadata.topics.get(topic)
        wanted = [TopicPartition(topic, i) for i in found.partitions] if found else []
        return admin.list_offsets(client, metadata, wanted, at, read_committed=read_committed)

    def ends(self, topic: str) -> dict[TopicPartition, int]:
        """Where all partitions of a source topic end for this flow, markers written."""

        def settled() -> dict[TopicPartition, int] | None:
            committed = self.context.read_committed
            found = self.offsets(self.source, topic, admin.LATEST, read_committed=committed)
            known = self.source.metadata([topic]).topics.get(topic)
            return found if known and len(found) == len(known.partitions) else None

        return wait_for(settled)

    # -- records ------------------------------------------------------------------------------

    def producer(self, alias: str = "A", **config: Any) -> Producer:
        return Producer({"bootstrap.servers": self.lab[alias].bootstrap, "linger.ms": 5, **config})

    def write(self, topic: str, values: Iterable[bytes], partition: int = 0, **config: Any) -> None:
        """Records with numbered keys, acknowledged."""
        producer = self.producer(**config)
        for n, value in enumerate(values):
            producer.produce(topic, value, b"k%d" % n, partition, timestamp=1_700_000_000_000 + n)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def seen(self, topic: str, partition: int = 0) -> list[Record]:
        """What a read_uncommitted consumer of the remote topic sees."""
        return list(read_all(self.target, TopicPartition(f"A.{topic}", partition)))

    def source_records(self, topic: str, partition: int = 0) -> list[Record]:
        """What a read_uncommitted consumer of the source sees."""
        return list(read_all(self.source, TopicPartition(topic, partition)))

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        return [r.value for r in self.seen(topic, partition)]

    def proof(self, topic: str) -> Proof:
        return compare(self.source, self.target, topic, f"A.{topic}")

    # -- copying ------------------------------------------------------------------------------

    def lease(self, topics: Sequence[str], seconds: float = PATIENCE_SECONDS) -> Lease:
        """A lease on all partitions of topics, up to where they end now."""
        leased = []
        for topic in topics:
            ends = self.ends(topic)
            leased += [
                LeasedPartition(p, f"A.{topic}", end, **self.options)
                for p, end in sorted(ends.items())
            ]
        now = time.time()
        return Lease(self.context, tuple(leased), now, now + seconds)

    def copy(self, *topics: str, seconds: float = PATIENCE_SECONDS) -> list[Receipt]:
        """Copy all that is there; nothing may go wrong."""
        lease = self.lease(topics, seconds)
        receipts = CopyLoop(lease).run()
        assert [r.error for r in receipts] == [""] * len(receipts)
        wanted = [p.until for p in lease.partitions]
        assert [r.source_position for r in receipts] == wanted
        return receipts

    # -- the ledger ---------------------------------------------------------------------------

    def place(self, topic: str, partition: int = 0) -> Place:
        here = self.source.metadata([topic]).topics[topic].topic_id
        there = self.target.metadata([f"A.{topic}"]).topics[f"A.{topic}"].topic_id
        return Place(topic, partition, here, there)

    def ledger(self, topic: str, partition: int = 0) -> PartitionLedger:
        """As a process reads it that has never seen it before."""
        store = LedgerStore(self.target, self.context.ledger_topic)
        store.refresh()
        return store.at(self.place(topic, partition))

    def assert_known(self, topic: str, partition: int = 0) -> None:
        """What the ledger knows to be acknowledged is all that is there."""
        known = self.ledger(topic, partition).known
        assert known is not None
        target = TopicPartition(f"A.{topic}", partition)
        [end] = [
            offset for p, offset in self.offsets(self.target, target.topic, admin.LATEST).items()
            if p == target
        ]  # fmt: skip
        assert known.target == end
        assert known.source == self.ends(topic)[TopicPartition(topic, partition)]

    def assert_ledger_is_exact(self, topic: str, partition: int = 0) -> None:
        """Every record of the source is where the ledger says; for flows that keep all records."""
        here = list(read_all(self.source, TopicPartition(topic, partition)))
        there = [r for r in self.seen(topic, partition) if r.key != b"foreign"]
        ledger = self.ledger(topic, partition)
        first = ledger.runs[0].sequence
        kept = {r.offset for r in here}
        pairs = [(a.offset, b.offset) for a, b in zip(here, there, strict=True)]
        told = [
            (ledger.source_of(first + n), ledger.target_of(first + n)) for n in range(len(pairs))
        ]
        assert told == pairs
        assert kept == {a for a, _ in told}


def hold(lease: Lease) -> list[Receipt]:
    """A lease in a process of its own, as Spark's workers hold theirs."""
    return CopyLoop(lease).run()
