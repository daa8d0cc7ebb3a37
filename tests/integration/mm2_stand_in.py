"""What MM2 leaves behind, written by hand: quick, and as odd as a test wants it."""

from __future__ import annotations

import json
import time
import uuid

from sources import numbered

from heliograph.batch.records import Record, build
from heliograph.control.topics.refresh import TopicPlan
from heliograph.lab.proof import read_all
from heliograph.ledger.store import LedgerStore
from heliograph.mm2.formats import OffsetSync
from heliograph.model import TopicPartition
from heliograph.takeover.takeover import TakeOver, place_of
from heliograph.wire import admin, log

SYNCS = "mm2-offset-syncs.A.internal"


class StandIn:
    """Fills ``A.<topic>`` on B as MM2 does, in a flow that has MM2 topics of its own."""

    def __init__(self, mirroring, config_of, topic, **keys) -> None:
        unique = uuid.uuid4().hex[:8]
        self.mirroring, self.topic = mirroring, topic
        self.offsets, self.configs = f"mm2-offsets-{unique}", f"mm2-configs-{unique}"
        compacted = {"cleanup.policy": "compact"}
        wanted = [
            admin.NewTopic(self.offsets, 3, 1, compacted),
            admin.NewTopic(self.configs, 1, 1, compacted),
            admin.NewTopic(SYNCS, 1, 1, compacted),
        ]
        failed = admin.create_topics(mirroring.target, wanted, 30_000)
        assert not failed, failed
        for new in wanted:
            mirroring.await_topic(mirroring.target, new.name, new.partitions)
        self.config = config_of(**{
            "topics": topic,
            "offset.storage.topic": self.offsets,
            "config.storage.topic": self.configs,
            "B.group.id": f"mm2-{unique}",
            "offset-syncs.topic.location": "target",
            **keys,
        })  # fmt: skip

    # -- what MM2 does ------------------------------------------------------------------------

    def write(self, count, name="v", partition=0, **config):
        """Records of producers, on the source."""
        self.mirroring.write(self.topic, numbered(count, name), partition, **config)

    def records(self, partition=0):
        """What MM2 would read, from the source's start."""
        return list(read_all(self.mirroring.source, TopicPartition(self.topic, partition)))

    def copy(self, records, size=50, partition=0, **options):
        """Append records in batches; returns the offset sync of the last one."""
        remote = TopicPartition(f"A.{self.topic}", partition)
        sync = None
        for at in range(0, len(records), size):
            piece = records[at : at + size]
            base = log.append(self.mirroring.target, remote, build(piece, **options))
            sync = (piece[-1].offset, base + len(piece) - 1)
        return sync

    def store(self, offset, partition=0):
        """MM2's position; None: it was reset."""
        key = ["MirrorSourceConnector",
               {"topic": self.topic, "cluster": "A", "partition": partition}]  # fmt: skip
        value = None if offset is None else json.dumps({"offset": offset}).encode()
        self._write(TopicPartition(self.offsets, partition % 3), json.dumps(key).encode(), value)

    def sync(self, pair, partition=0):
        self._write(TopicPartition(SYNCS, 0), *OffsetSync(self.topic, partition, *pair).encode())

    def assign(self, *partitions):
        """Task configs, as MM2's leader writes them."""
        where = TopicPartition(self.configs, 0)
        listed = ",".join(map(str, partitions))
        task = {"properties": {"task.assigned.partitions": listed}}
        self._write(where, b"task-MirrorSourceConnector-0", json.dumps(task).encode())
        commit = {"tasks": 1 if partitions else 0}
        self._write(where, b"commit-MirrorSourceConnector", json.dumps(commit).encode())

    def _write(self, where, key, value):
        now = int(time.time() * 1000)
        log.append(self.mirroring.target, where, build([Record(0, now, key, value)]))

    # -- what Heliograph does -----------------------------------------------------------------

    def plan(self):
        flow = self.mirroring
        source = flow.source.metadata([self.topic])
        remote = f"A.{self.topic}"
        partitions = {
            TopicPartition(self.topic, i): remote for i in source.topics[self.topic].partitions
        }
        return TopicPlan(partitions, {}, source, flow.target.metadata([remote]))

    def take_over(self, *, may_write=True, target=None):
        """Takes over, perhaps as another user; returns why partitions are withheld."""
        flow = self.mirroring
        target = target or flow.target
        ledger = LedgerStore(target, flow.context.ledger_topic)
        self.job = job = TakeOver(self.config, flow.context, flow.source, target, ledger)
        plan = self.plan()
        job.settle(plan, may_write=may_write)
        return [job.withheld(place_of(plan, p)) for p in plan.partitions]

    def require_goes_on(self, following, partition=0):
        """Whatever is on the source from ``following`` on is mirrored, once; nothing else."""
        flow = self.mirroring
        left = flow.seen(self.topic, partition)
        flow.copy(self.topic)
        there = flow.seen(self.topic, partition)
        assert there[: len(left)] == left
        wanted = [r for r in flow.source_records(self.topic, partition) if r.offset >= following]
        ours = there[len(left) :]
        assert [(r.timestamp, r.key, r.value) for r in ours] == [
            (r.timestamp, r.key, r.value) for r in wanted
        ]
        return ours

    def require_translated(self, partition=0):
        """Every source record is translated to the last copy of it on the target, and back."""
        flow = self.mirroring
        ledger = flow.ledger(self.topic, partition)
        copies = {r.value: r.offset for r in flow.seen(self.topic, partition)}
        here = [r for r in flow.source_records(self.topic, partition) if r.value in copies]
        assert {r.offset: ledger.to_target(r.offset) for r in here} == {
            r.offset: copies[r.value] for r in here
        }
        assert {r.offset: ledger.to_source(copies[r.value]) for r in here} == {
            r.offset: r.offset for r in here
        }
