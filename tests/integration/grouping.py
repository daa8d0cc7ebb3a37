"""Groups of a flow without Spark: real groups, and the jobs that look after them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assignment
from mirroring import Mirroring, wait_for

from heliograph.control.groups.checkpoints import CheckpointEmitter
from heliograph.control.groups.offset_sync import GroupOffsetSync
from heliograph.control.groups.translated import GroupTranslation
from heliograph.control.topics.refresh import TopicPlan
from heliograph.copy.loop import CopyLoop
from heliograph.ledger.store import LedgerStore
from heliograph.mm2.checkpoints import CheckpointLog
from heliograph.mm2.formats import Checkpoint
from heliograph.model import ClientSettings, Flow, Lease, LeasedPartition, TopicPartition
from heliograph.policy import (
    DefaultGroupFilter,
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
)
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.groups import Committed, GroupClient


class Groups:
    """One flow, with group names and a checkpoints topic of its own.

    Every cycle looks for groups and for what is gone, and never uses an earlier look.
    """

    def __init__(self, flow: Mirroring, *topics: str, identity: bool = False) -> None:
        self.flow = flow
        self.topics = list(topics)
        self.prefix = f"g-{uuid.uuid4().hex[:8]}-"
        self.policy = IdentityReplicationPolicy() if identity else DefaultReplicationPolicy()
        self.checkpoints_topic = f"{self.prefix}.checkpoints.internal"
        failed = admin.create_topics(
            flow.target,
            [admin.NewTopic(self.checkpoints_topic, 1, 1, {"cleanup.policy": "compact"})],
            30_000,
        )
        assert not failed, failed
        flow.await_topic(flow.target, self.checkpoints_topic, 1)
        self._clients: list[ClusterClient] = []
        self.source = GroupClient(self.client(flow.context.source))
        self.target = GroupClient(self.client(flow.context.target))
        for client in (self.source, self.target):
            await_groups(client, self.prefix)
        self.translation = self.translating()
        self.emitter = self.emitting()
        self.syncing = GroupOffsetSync(
            flow.context.flow, self.translation, GroupClient(self.client(flow.context.target)), 0.0
        )

    def client(self, settings: ClientSettings) -> ClusterClient:
        self._clients.append(ClusterClient(settings, "test-groups"))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()

    # -- the jobs -----------------------------------------------------------------------------

    def remote(self, topic: str) -> str:
        return self.policy.format_remote_topic("A", topic)

    def plan(self) -> TopicPlan:
        here = self.flow.source.metadata(self.topics)
        there = self.flow.target.metadata([self.remote(t) for t in self.topics])
        partitions = {
            TopicPartition(name, index): self.remote(name)
            for name, topic in here.topics.items()
            if self.remote(name) in there.topics
            for index in topic.partitions
            if index in there.topics[self.remote(name)].partitions
        }
        return TopicPlan(partitions, {}, here, there)

    def translating(self, groups: str = ".*") -> GroupTranslation:
        context = self.flow.context
        target = self.client(context.target)
        return GroupTranslation(
            GroupClient(self.client(context.source)),
            target,
            LedgerStore(target, context.ledger_topic),
            self.plan,
            DefaultGroupFilter([self.prefix + groups], []),
            0.0,
        )

    def emitting(self, translation: GroupTranslation | None = None) -> CheckpointEmitter:
        """As a mirror that has just started."""
        return CheckpointEmitter(
            Flow("A", "B"),
            translation or self.translation,
            CheckpointLog(self.client(self.flow.context.target), self.checkpoints_topic),
            self.plan,
            self.policy,
            young_seconds=0.0,
            prune_seconds=0.0,
        )

    def emit(self) -> dict[str, dict[str, tuple[int, int]]]:
        """One cycle; then all checkpoints: group -> partition of the target -> up and down."""
        self.emitter.emit()
        return self.checkpoints()

    def checkpoints(self) -> dict[str, dict[str, tuple[int, int]]]:
        found: dict[str, dict[str, tuple[int, int]]] = {}
        for key, c in self.log().known.items():
            group = found.setdefault(key[0].removeprefix(self.prefix), {})
            group[f"{c.topic}-{c.partition}"] = (c.upstream, c.downstream)
        return found

    def log(self) -> CheckpointLog:
        """The topic as a process reads it that has never seen it before."""
        log = CheckpointLog(self.flow.target, self.checkpoints_topic)
        log.refresh()
        return log

    def write(self, *checkpoints: Checkpoint) -> None:
        """Checkpoints that somebody else wrote."""
        log = self.log()
        log.append(checkpoints)

    def said(self, job: Any) -> dict[str, str]:
        return {g.removeprefix(self.prefix): text for g, text in job.details().items()}

    # -- the groups ---------------------------------------------------------------------------

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], alias: str = "A") -> None:
        """As a consumer does that assigns partitions to itself."""
        with self.consumer(group, alias) as consumer:
            wanted = [Assignment(*p, offset, f"{group}@{offset}") for p, offset in offsets.items()]
            done = consumer.commit(offsets=wanted, asynchronous=False)
            assert all(p.error is None for p in done), done

    def commit_many(self, groups: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """The same for many groups of A, quickly."""
        offsets = {
            self.prefix + group: {p: Committed(o) for p, o in wanted.items()}
            for group, wanted in groups.items()
        }

        def done() -> bool:
            answers = self.source.commit(offsets)
            codes = [code for found in answers.found.values() for code in found.values()]
            return not answers.errors and not any(codes)

        wait_for(done)

    def committed(self, group: str, alias: str = "B") -> dict[TopicPartition, Committed]:
        client = self.target if alias == "B" else self.source
        answers = client.committed([self.prefix + group])
        assert not answers.errors, answers.errors
        return answers.found[self.prefix + group]

    def offsets(self, group: str, alias: str = "B") -> dict[str, int]:
        return {str(p): c.offset for p, c in sorted(self.committed(group, alias).items())}

    @contextmanager
    def consumer(self, group: str, alias: str = "A", **config: Any) -> Iterator[Consumer]:
        bootstrap = self.flow.lab[alias].bootstrap
        consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": self.prefix + group,
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20, **config,
        })  # fmt: skip
        try:
            yield consumer
        finally:
            consumer.close()

    @contextmanager
    def member(self, group: str, topic: str, alias: str = "A", **config: Any) -> Iterator[Consumer]:
        """A consumer that has joined its group and has its partitions."""
        with self.consumer(group, alias, **config) as consumer:
            consumer.subscribe([topic])
            wait_for(lambda: consumer.poll(0.1) or consumer.assignment())
            yield consumer

    def read(self, group: str, topic: str, count: int, alias: str = "A") -> list[bytes]:
        """A member reads so many records, commits and leaves."""
        with self.consumer(group, alias) as consumer:
            consumer.subscribe([topic])
            values: list[bytes] = []
            deadline = time.monotonic() + 120
            while len(values) < count:
                assert time.monotonic() < deadline, f"{len(values)} of {count} records"
                values += [m.value() for m in consumer.consume(count - len(values), 0.2)]
            consumer.commit(asynchronous=False)
        return values

    def create(self, client: ClusterClient, name: str, partitions: int = 1) -> None:
        """A topic on one side."""
        create(self.flow, client, [name], partitions)

    # -- the mirror ---------------------------------------------------------------------------

    def copy(self, topic: str) -> None:
        """As `Mirroring.copy`, under whatever name the policy says."""
        ends = self.flow.ends(topic)
        now = time.time()
        leased = tuple(
            LeasedPartition(p, self.remote(topic), end, **self.flow.options)
            for p, end in sorted(ends.items())
        )
        receipts = CopyLoop(Lease(self.flow.context, leased, now, now + 60)).run()
        assert [r.error for r in receipts] == [""] * len(receipts)


def await_groups(client: GroupClient, prefix: str) -> None:
    """A cluster makes itself ready for groups only when it is asked for one.

    Then it loads the partitions of its offsets one by one. Names whose last characters follow each
    other belong to partitions that follow each other, so that these are all of up to ten.
    """
    names = [f"{prefix}{n}" for n in range(10)]
    wait_for(lambda: not client.states(names).errors)


def create(flow: Mirroring, client: ClusterClient, names: Sequence[str], partitions: int) -> None:
    """Topics on one side, all at once."""
    new = [admin.NewTopic(name, partitions, 1, {"retention.ms": "-1"}) for name in names]
    failed = admin.create_topics(client, new, 30_000)
    assert not failed, failed
    for name in names:
        flow.await_topic(client, name, partitions)
