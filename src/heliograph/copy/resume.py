"""Where to go on: the target's log is the truth (design.md section 2). Runs in executors.

1. Ask the target for the signature's last sequence; where the broker has dropped that state, look
   for the signature in the batch headers at the target's tail.
2. Read the ledger to its end: what is in the log was announced there before.
3. The ledger maps the sequence to the next source offset. A partition that was never mirrored gets
   its first run; of several writers that begin at once, the first entry counts for all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from heliograph.batch.header import PRODUCER_EPOCH, SEQUENCE_MODULUS, batches
from heliograph.copy.links import Cluster
from heliograph.copy.partition import PartitionCopy, Position
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Entry, Place
from heliograph.ledger.runs import PartitionLedger, Run, unwrap
from heliograph.ledger.store import LedgerStore
from heliograph.model import FlowContext, TopicPartition
from heliograph.wire import admin, log
from heliograph.wire.errors import OFFSET_OUT_OF_RANGE, BrokerError, ConnectionFailed
from heliograph.wire.metadata import Metadata

#: A warm-up happens this long before its lease starts, at most.
_WARM_SECONDS = 3.0


class Resumer:
    """Finds the positions of partitions of one flow."""

    def __init__(
        self, context: FlowContext, source: Cluster, target: Cluster, ledger: LedgerStore
    ) -> None:
        self._context = context
        self._source = source.client
        self._target = target.client
        self._ledger = ledger
        self._warm: tuple[Metadata, Metadata] | None = None
        self._warm_until = 0.0

    def locate(self, partitions: Sequence[PartitionCopy]) -> tuple[Metadata, Metadata]:
        """Refresh leaders and topic ids of partitions, on both sides.

        What a warm-up found a moment ago is good enough for its own partitions once: if a leader
        moved since, the first request says so and they are located again.
        """
        if self._warm is not None and time.monotonic() < self._warm_until:
            source, target = self._warm
            self._warm = None
            if all(p.place is not None and not p.broken for p in partitions):
                return source, target
        return self._locate(partitions)

    def warm_up(self, partitions: Sequence[PartitionCopy]) -> None:
        """Connect, locate and read the ledger ahead of time."""
        self._warm = self._locate(partitions)
        self._warm_until = time.monotonic() + _WARM_SECONDS
        self._ledger.refresh()

    def _locate(self, partitions: Sequence[PartitionCopy]) -> tuple[Metadata, Metadata]:
        source = self._source.metadata(sorted({p.source.topic for p in partitions}))
        target = self._target.metadata(sorted({p.target.topic for p in partitions}))
        for p in partitions:
            p.source_leader = source.leader(p.source.topic, p.source.partition)
            p.target_leader = target.leader(p.target.topic, p.target.partition)
            if p.source_leader < 0 or p.target_leader < 0:
                side = "source" if p.source_leader < 0 else "target"
                p.broken = (
                    f"no leader for {p.source if p.source_leader < 0 else p.target} on the {side}"
                )
                continue
            p.broken = ""
            p.place = Place(
                p.source.topic,
                p.source.partition,
                source.topics[p.source.topic].topic_id,
                target.topics[p.target.topic].topic_id,
            )
        return source, target

    def resume(self, partitions: Sequence[PartitionCopy]) -> None:
        """Start every partition at its position, or leave in ``broken``/``failed`` why not."""
        source, target = self.locate(partitions)
        usable = [p for p in partitions if not p.broken]
        if not usable:
            return
        targets = [p.target for p in usable]
        # Sequences first, ledger second: a batch seen in the log has its run in the ledger.
        states = admin.describe_producers(self._target, target, targets)
        ends = admin.list_offsets(self._target, target, targets, admin.LATEST)
        self._ledger.refresh()
        fresh = []
        for p in usable:
            if p.target not in states or p.target not in ends:
                p.broken = f"the leader of {p.target} on the target did not answer"
                continue
            assert p.place is not None  # noqa: S101 - set by locate
            try:
                if not self._ledger.at(p.place).runs:
                    self._refuse_recreated(p)
                    fresh.append(p)
                    continue
                p.start(self._position(p, states[p.target], ends[p.target]))
            except PartitionError as error:
                p.failed = str(error)
        if fresh:
            self._begin(fresh, source, states, ends)

    def _position(
        self, p: PartitionCopy, states: list[admin.ProducerState], target_end: int
    ) -> Position:
        assert p.place is not None  # noqa: S101 - set by locate
        ledger = self._ledger.at(p.place)
        last = ledger.runs[-1]
        estimate = last.sequence + max(target_end - last.target, 0)
        mine = [s for s in states if s.producer_id == self._context.producer_id]
        if mine:
            wrapped = (mine[0].last_sequence + 1) % SEQUENCE_MODULUS
            sequence = unwrap(wrapped, estimate, SEQUENCE_MODULUS)
        else:
            sequence = self._scan(p.target, ledger, target_end)
        return _place(ledger, sequence)

    def _scan(self, partition: TopicPartition, ledger: PartitionLedger, end: int) -> int:
        """The next sequence by the log itself, walking back from its end to our last batch."""
        position = end - 1
        while position >= ledger.runs[0].target:
            try:
                fetched = log.read_once(self._target, partition, position)
            except BrokerError as error:
                if error.code == OFFSET_OUT_OF_RANGE:
                    break
                raise
            header = next((h for h, _ in batches(fetched.records)), None)
            if header is None:
                break
            mine = header.producer_id == self._context.producer_id
            if mine and header.producer_epoch == PRODUCER_EPOCH and not header.control:
                run = _run_at_target(ledger, header.base_offset)
                estimate = run.sequence + max(header.base_offset - run.target, 0)
                first = unwrap(header.base_sequence, estimate, SEQUENCE_MODULUS)
                return first + header.record_count
            # Where compaction took the record, the fetch answers with a later one.
            position = min(header.base_offset, position) - 1
        # Nothing of ours is left in the log: retention or DeleteRecords took it, or it never came.
        run = _run_at_target(ledger, end)
        return run.sequence + max(end - run.target, 0)

    def _refuse_recreated(self, p: PartitionCopy) -> None:
        assert p.place is not None  # noqa: S101 - set by locate
        earlier = self._ledger.other_sources(p.place)
        if earlier and not self._context.continue_on_data_loss:
            raise PartitionError(
                "source.recreated",
                f"source topic {p.source.topic} was deleted and created again (topic id"
                f" {p.place.source_id}, mirrored so far: {earlier[-1].source_id});"
                f" {p.target.topic} on {self._context.flow.target} holds the old topic's records",
                "delete the target topic to mirror the new one from its start, or set"
                " heliograph.on.data.loss=continue to append it to the old records",
            )

    def _begin(
        self,
        fresh: Sequence[PartitionCopy],
        source: Metadata,
        states: dict[TopicPartition, list[admin.ProducerState]],
        ends: dict[TopicPartition, int],
    ) -> None:
        at = admin.LATEST if self._context.start_at_latest else admin.EARLIEST
        starts = admin.list_offsets(self._source, source, [p.source for p in fresh], at)
        entries = []
        for p in fresh:
            if p.source not in starts:
                p.broken = f"the leader of {p.source} on the source did not answer"
                continue
            assert p.place is not None  # noqa: S101 - set by locate
            # Not 0 where an earlier generation of the source was mirrored into the same topic.
            first = next(
                (s.last_sequence + 1 for s in states[p.target]
                 if s.producer_id == self._context.producer_id), 0,
            ) % SEQUENCE_MODULUS  # fmt: skip
            entries.append(Entry(p.place, [Run(first, starts[p.source], ends[p.target])]))
        if entries:
            self._ledger.write(entries)
        for p in fresh:
            if not p.broken and p.place is not None:
                ledger = self._ledger.at(p.place)
                p.start(_place(ledger, ledger.runs[0].sequence))

    def out_of_range(self, p: PartitionCopy) -> None:
        """The source does not have the position: data loss or truncation, by policy."""
        source, _ = self.locate([p])
        start = admin.list_offsets(self._source, source, [p.source], admin.EARLIEST).get(p.source)
        end = admin.list_offsets(self._source, source, [p.source], admin.LATEST).get(p.source)
        if start is None or end is None:
            raise ConnectionFailed(f"the leader of {p.source} on the source did not answer")
        if p.position > end:
            raise PartitionError(
                "source.truncated",
                f"{p.source} on {self._context.flow.source} ends at {end}, but records up to"
                f" {p.position} were mirrored: the source lost its tail (unclean election?)",
                "compare the two logs; delete the target topic to mirror it from the start",
            )
        if p.position < start and not self._context.continue_on_data_loss:
            raise PartitionError(
                "source.data-loss",
                f"retention removed {start - p.position} offsets of {p.source} on"
                f" {self._context.flow.source} before they were mirrored: [{p.position}, {start})",
                "set heliograph.on.data.loss=continue to go on behind the gap",
            )
        p.position = max(p.position, start)


def _place(ledger: PartitionLedger, sequence: int) -> Position:
    return Position(sequence, ledger.source_of(sequence), ledger.target_of(sequence))


def _run_at_target(ledger: PartitionLedger, target: int) -> Run:
    found = ledger.runs[0]
    for run in ledger.runs:
        if run.target > target:
            break
        found = run
    return found
