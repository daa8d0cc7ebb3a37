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
from heliograph.copy.padding import is_padded, pad
from heliograph.copy.partition import MOST_MARKERS, PartitionCopy, Position
from heliograph.copy.source_surprises import SourceSurprises
from heliograph.copy.target_log import agrees, rebased
from heliograph.copy.target_surprises import Happened, TargetSurprises
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Entry, Place
from heliograph.ledger.runs import PartitionLedger, Run, unwrap
from heliograph.ledger.store import LedgerStore
from heliograph.model import FlowContext, TopicPartition
from heliograph.wire import admin, log
from heliograph.wire.errors import OFFSET_OUT_OF_RANGE, BrokerError, ConnectionFailed
from heliograph.wire.metadata import Metadata
from heliograph.wire.rights import missing_right

#: A warm-up happens this long before its lease starts, at most.
_WARM_SECONDS = 3.0


class Resumer:
    """Finds the positions of partitions of one flow."""

    def __init__(
        self,
        context: FlowContext,
        source: Cluster,
        target: Cluster,
        ledger: LedgerStore,
        happened: Happened,
        surprises: TargetSurprises,
    ) -> None:
        self._context = context
        self._source = source.client
        self._target = target.client
        self._ledger = ledger
        self._silent = target.silent
        self._surprises = surprises
        self._upstream = SourceSurprises(context, source, ledger, happened)
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
            p.source_leader = source.leader(*p.source)
            p.source_epoch = source.leader_epoch(*p.source)
            p.target_leader = target.leader(p.target.topic, p.target.partition)
            if p.source.topic in source.denied or p.target.topic in target.denied:
                p.failed = self._unseen(p, on_source=p.source.topic in source.denied)
                continue
            if p.source_leader < 0 or p.target_leader < 0:
                if p.target.topic not in target.topics:
                    self._surprises.absent(p)
                p.broken = (
                    self._upstream.absent(p, source)
                    if p.source_leader < 0
                    else f"no leader for {p.target} on the target"
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
        usable = [p for p in partitions if not p.broken and not p.failed]
        if not usable:
            return
        now = time.time()
        for p in usable:
            p.looked_at = now
        # Sequences first, ledger second: a batch seen in the log has its run in the ledger.
        states, ends = self._ask(usable, target)
        usable = [p for p in usable if not p.broken]
        self._ledger.refresh()
        self._upstream.look(usable, source)
        fresh = []
        self._refuse_unreadable([p for p in usable if p.target not in states])
        for p in usable:
            if p.failed:
                continue
            if p.target not in states or p.target not in ends:
                p.broken = f"the leader of {p.target} on the target did not answer"
                continue
            assert p.place is not None  # noqa: S101 - set by locate
            try:
                if not self._ledger.at(p.place).runs:
                    self._upstream.recreated(p, source, target)
                    if p.lease.withheld:
                        p.failed = PartitionError("mm2.withheld", p.lease.withheld)
                    else:
                        fresh.append(p)
                    continue
                self._go_on(p, target, states[p.target], ends[p.target])
            except PartitionError as error:
                p.failed = error
        if fresh:
            self._begin(fresh, source, target, states, ends)

    def _ask(
        self, partitions: Sequence[PartitionCopy], target: Metadata
    ) -> tuple[dict[TopicPartition, list[admin.ProducerState]], dict[TopicPartition, int]]:
        """Producers and ends of target partitions; a broker that fails breaks only its own.

        One that is known to be silent is not asked: all others would wait for it.
        """
        states: dict[TopicPartition, list[admin.ProducerState]] = {}
        ends: dict[TopicPartition, int] = {}
        for node in sorted({p.target_leader for p in partitions}):
            led = [p for p in partitions if p.target_leader == node]
            wanted = [p.target for p in led]
            try:
                self._silent.refuse(node)
                with self._silent.noticed(node):
                    states |= admin.describe_producers(self._target, target, wanted)
                    ends |= admin.list_offsets(self._target, target, wanted, admin.LATEST)
            except ConnectionFailed as error:
                for p in led:
                    p.broken = str(error)
        return states, ends

    def _unseen(self, p: PartitionCopy, *, on_source: bool) -> PartitionError:
        settings = self._context.source if on_source else self._context.target
        name = p.source if on_source else p.target
        return PartitionError(
            "source.refused" if on_source else "target.refused",
            f"{name} is not shown to us on {settings.alias}",
            missing_right(settings, "Describe", "topic", name.topic),
        )

    def _refuse_unreadable(self, silent: Sequence[PartitionCopy]) -> None:
        """Leaders tell sequences only to those who may read: were they silent because of that?"""
        topics = {p.target.topic for p in silent}
        unreadable = admin.unreadable(self._target, topics) if topics else set()
        for p in silent:
            if p.target.topic in unreadable:
                p.failed = PartitionError(
                    "target.refused",
                    f"{p.target} on {self._context.flow.target} does not tell us where it ends",
                    missing_right(self._context.target, "Read", "topic", p.target.topic),
                )

    def _go_on(
        self,
        p: PartitionCopy,
        target: Metadata,
        states: list[admin.ProducerState],
        target_end: int,
    ) -> None:
        """Start a partition that was begun before."""
        assert p.place is not None  # noqa: S101 - set by locate
        ledger = self._ledger.at(p.place)
        if is_padded(ledger) and target_end <= ledger.runs[0].target:
            if pad(self._context, self._target, target, p, ledger, target_end):
                first = ledger.runs[0].sequence
                p.start(_place(ledger, first), ledger.after(first))
            return
        mine = [s for s in states if s.producer_id == self._context.producer_id]
        remembered = bool(mine) and mine[0].last_sequence >= 0
        if remembered:
            last = ledger.runs[-1]
            estimate = last.sequence + max(target_end - last.target, 0)
            wrapped = (mine[0].last_sequence + 1) % SEQUENCE_MODULUS
            sequence = unwrap(wrapped, estimate, SEQUENCE_MODULUS)
        else:
            sequence = self._scan(p.target, ledger, target_end)
        self._start(p, sequence, target_end, remembered=remembered)

    def _start(self, p: PartitionCopy, sequence: int, target_end: int, *, remembered: bool) -> None:
        """Start a partition at a sequence, when the target's log ends at ``target_end``."""
        assert p.place is not None  # noqa: S101 - set by locate
        ledger = self._ledger.at(p.place)
        self._surprises.look(p, ledger, sequence, target_end)
        if not agrees(ledger, sequence, target_end):
            if not self._surprises.heal(p, ledger, sequence, target_end):
                return
            ledger = self._ledger.at(p.place)
        if not self._upstream.intact(p, ledger, sequence, target_end):
            return
        position = _place(ledger, sequence)
        position.remembered = remembered
        run = ledger.at_sequence(sequence)
        if run is not None and run.sequence == sequence and target_end < position.target:
            # A run was announced behind a gap that is not filled yet, or not wholly.
            if not p.lease.identical:
                position.target = target_end
            elif not p.may_mark:
                p.retry_at, p.broken = p.markers_from, "the lease before this one is ending"
                return
            else:
                position.missing = position.target - target_end
        if moved := rebased(ledger, position, identical=p.lease.identical):
            if not p.may_mark:
                p.retry_at, p.broken = p.markers_from, "the lease before this one is ending"
                return
            self._ledger.write([Entry(p.place, moved, shift=True)])
        p.start(position, ledger.after(sequence))

    def _scan(self, partition: TopicPartition, ledger: PartitionLedger, end: int) -> int:
        """The next sequence by the log itself, walking back from its end to our last batch."""
        # What MM2 wrote before is not worth looking at.
        begun = max(ledger.runs[0].target, ledger.inherited.end)
        position, seen_all = end - 1, True
        while position >= begun:
            try:
                fetched = log.read_once(self._target, partition, position)
            except BrokerError as error:
                if error.code == OFFSET_OUT_OF_RANGE:
                    seen_all = False
                    break
                raise
            header = next((h for h, _ in batches(fetched.records)), None)
            if header is None:
                seen_all = False
                break
            mine = header.producer_id == self._context.producer_id
            if mine and header.producer_epoch == PRODUCER_EPOCH and not header.control:
                run = ledger.at_target(header.base_offset)
                estimate = run.sequence + max(header.base_offset - run.target, 0)
                first = unwrap(header.base_sequence, estimate, SEQUENCE_MODULUS)
                # Not the record count: compaction may have taken some.
                return first + header.last_offset_delta + 1
            # Where compaction took the record, the fetch answers with a later one.
            seen_all = seen_all and header.base_offset <= position
            position = min(header.base_offset, position) - 1
        # Nothing of ours is in the log. If all of it is others', ours never came; else retention,
        # DeleteRecords or compaction took it.
        end = min(end, begun) if seen_all else end
        run = ledger.at_target(end)
        return run.sequence + max(end - run.target, 0)

    def _begin(
        self,
        fresh: Sequence[PartitionCopy],
        source: Metadata,
        target: Metadata,
        states: dict[TopicPartition, list[admin.ProducerState]],
        ends: dict[TopicPartition, int],
    ) -> None:
        # Records that others have written cannot be padded away.
        identical = [p.target for p in fresh if p.lease.identical]
        begun = admin.list_offsets(self._target, target, identical, admin.EARLIEST)
        empty = {partition for partition, start in begun.items() if start == ends[partition]}
        starts = self._first_offsets(fresh, source)
        entries = []
        for p in fresh:
            if p.source not in starts:
                p.broken = f"the leader of {p.source} on the source did not answer"
                continue
            assert p.place is not None  # noqa: S101 - set by locate
            start, end = starts[p.source], ends[p.target]
            mine = [s for s in states[p.target] if s.producer_id == self._context.producer_id]
            # Not 0 where an earlier generation of the source was mirrored into the same topic.
            first = (mine[0].last_sequence + 1) % SEQUENCE_MODULUS if mine else 0
            run = Run(first, start, end)
            if p.target in empty and not mine and end < start:
                if p.lease.paddable:
                    run = Run(start, start, start)
                elif start - end <= MOST_MARKERS:
                    run = Run(first, start, start)
            entries.append(Entry(p.place, [run]))
        if entries:
            self._ledger.write(entries)
        for p in fresh:
            if not p.broken and p.place is not None:
                self._surprises.begun(p, starts[p.source])
                try:
                    self._go_on(p, target, states[p.target], ends[p.target])
                except PartitionError as error:
                    p.failed = error

    def _first_offsets(
        self, fresh: Sequence[PartitionCopy], source: Metadata
    ) -> dict[TopicPartition, int]:
        """Where partitions are begun on the source; those whose leader is silent are absent."""
        partitions = [p.source for p in fresh]
        starts = admin.list_offsets(self._source, source, partitions, admin.EARLIEST)
        if not self._context.start_at_latest:
            return starts
        begun = admin.list_offsets(self._source, source, partitions, admin.LATEST)
        for p in fresh:
            assert p.place is not None  # noqa: S101 - set by locate
            # Mirrored before into a topic that was deleted: that was its history, again.
            before = [self._ledger.at(o).runs[0] for o in self._ledger.other_targets(p.place)]
            if before and p.source in starts and p.source in begun:
                oldest = min(run.source for run in before)
                begun[p.source] = min(max(starts[p.source], oldest), begun[p.source])
        return begun

    def out_of_range(self, p: PartitionCopy) -> bool:
        """The source does not have the position. Returns whether reading goes on, at a later one.

        Otherwise the partition is to be resumed: the source ends before the position, has another
        leader, or has the position after all.

        Raises:
            PartitionError: retention took records, and the policy is not to go on.
        """
        before = p.place, p.source_epoch
        source, _ = self.locate([p])
        if (p.place, p.source_epoch) != before:
            return False
        start = admin.list_offsets(self._source, source, [p.source], admin.EARLIEST).get(p.source)
        end = admin.list_offsets(self._source, source, [p.source], admin.LATEST).get(p.source)
        if start is None or end is None:
            raise ConnectionFailed(f"the leader of {p.source} on the source did not answer")
        if p.position > end:
            p.truncated_at = end
        if not p.position < start:
            return False
        self._upstream.overrun(p, start)
        p.position = start
        return True


def _place(ledger: PartitionLedger, sequence: int) -> Position:
    source, target = ledger.source_of(sequence), ledger.target_of(sequence)
    return Position(sequence, source, target, epoch=ledger.epochs.at(sequence))
