"""What there is to compare of each partition of a flow. Runs in the driver.

No partition that the flow mirrors is left out silently: what cannot be compared has its reason in
the report.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from heliograph.batch.header import batches, is_guarded
from heliograph.config import FlowConfig
from heliograph.config.key import BoundedPattern
from heliograph.control.topics.refresh import Comparison
from heliograph.copy.knowledge import LeaderSays, Standing, credible
from heliograph.copy.padding import is_padded
from heliograph.ledger.codec import Place
from heliograph.ledger.order import logs_before_ledger
from heliograph.ledger.runs import PartitionLedger
from heliograph.ledger.store import LedgerStore
from heliograph.model import Guard, TopicPartition
from heliograph.verify.expected import Expected, stretches_of
from heliograph.verify.model import Gone, Side
from heliograph.verify.report import PartitionReport
from heliograph.wire import admin
from heliograph.wire.admin import ProducerState
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import ConnectionFailed
from heliograph.wire.fetch import Fetched
from heliograph.wire.metadata import Metadata
from heliograph.wire.ranges import read_ranges

PATIENCE_SECONDS = 10.0
#: A mirror that does not get on for so long is not waited for any longer.
_IDLE_SECONDS, _POLL_SECONDS = 3.0, 0.5
#: A partition's share of an answer while the end of a log is read.
_TAIL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user wants to be compared.

    Attributes:
        topics: regular expressions for names on the source; none: all that the flow mirrors.
        begin: only source offsets from here on, of one topic; ``end``: to before there.
        sample: percent of the ranges, chosen by ``seed``.
        complete: whether all that is on the source now has to be on the target.
    """

    topics: tuple[BoundedPattern, ...] = ()
    begin: int | None = None
    end: int | None = None
    sample: float | None = None
    seed: int = 0
    complete: bool = False
    most: int = 20


@dataclass(frozen=True, slots=True)
class _Sight:
    """Both logs of a partition and its ledger, as they were a moment ago."""

    ledger: PartitionLedger
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    states: Sequence[ProducerState]
    earlier: int | None
    """Where records of an earlier source topic end on the target, if it holds any."""


@dataclass(slots=True)
class View:
    """What is to be compared of a partition.

    Attributes:
        inferred: see `Range`.
        claims: all that the ledger says, that of what the target has deleted as well.
        deleted: the source offsets that the target has deleted, and the source has.
        never: the source offsets that were never to be mirrored.
        guard: what came from the target; None if no flow goes in the opposite direction.
    """

    place: Place
    target: TopicPartition
    expected: Expected
    inferred: bool
    claims: Expected
    pruned_below: int
    deleted: range
    never: range
    low: int
    high: int
    goal: int
    target_low: int
    target_end: int
    pending: int
    gone: list[Gone]
    problems: list[str]
    notes: list[str]
    guard: Guard | None = None


class Viewer:
    """Looks at both logs of partitions and at the flow's ledger; one thread at a time."""

    def __init__(
        self,
        config: FlowConfig,
        choice: Choice,
        source: ClusterClient,
        target: ClusterClient,
        ledger: LedgerStore,
        producer_id: int,
        guards: Mapping[TopicPartition, Guard] | None = None,
    ) -> None:
        """``producer_id``: the flow's signature; ``guards``: what came from the target."""
        self._config = config
        self._choice = choice
        self._source = source
        self._target = target
        self._ledger = ledger
        self._read_committed = config.isolation_level == "read_committed"
        self._producer_id = producer_id
        self._guards = guards or {}

    def views(
        self,
        found: Comparison,
        reports: Mapping[TopicPartition, PartitionReport],
        *,
        wait: bool = True,
    ) -> dict[TopicPartition, View]:
        """What is to be compared of each partition; waits for the mirror if all has to be there."""
        goals: dict[TopicPartition, int] = {}
        ends = self._ends(found)
        idle_at = time.monotonic() + _IDLE_SECONDS
        while True:
            sights = self._look(found, ends)
            views = {p: self._view(found, p, sight) for p, sight in sights.items()}
            behind = any(v.goal < ends[p] for p, v in views.items())
            if not (wait and self._choice.complete and behind):
                break
            now = {p: v.goal for p, v in views.items()}
            if now != goals:
                goals, idle_at = now, time.monotonic() + _IDLE_SECONDS
            elif time.monotonic() > idle_at:
                break
            time.sleep(_POLL_SECONDS)
        for partition in found.partitions:
            if partition not in views:
                reports[partition].problems.append("a leader does not answer")
        return views

    def _ends(self, found: Comparison) -> dict[TopicPartition, int]:
        return self._complete(
            self._source, found.source, found.partitions, admin.LATEST, self._read_committed
        )

    def _complete(
        self,
        client: ClusterClient,
        metadata: Metadata,
        partitions: Collection[TopicPartition],
        at: int,
        read_committed: bool = False,
    ) -> dict[TopicPartition, int]:
        """Offsets of partitions; those whose leader does not answer for long are absent."""
        answer: dict[TopicPartition, int] = {}
        known: list[Metadata] = [metadata]

        def ask() -> None:
            # Leaders may have moved since the last try.
            fresh = known.pop() if known else client.metadata(sorted({p.topic for p in partitions}))
            answer.update(
                admin.list_offsets(client, fresh, partitions, at, read_committed=read_committed)
            )
            if len(answer) < len(partitions):
                raise ConnectionFailed(f"some leaders of {client.alias} do not answer")

        try:
            client.retry(ask, PATIENCE_SECONDS)
        except ConnectionFailed:
            if not answer:
                raise
        return answer

    def _look(
        self, found: Comparison, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, _Sight]:
        target_of = {p: TopicPartition(name, p.partition) for p, name in found.partitions.items()}
        targets = list(target_of.values())
        with logs_before_ledger(self._ledger):
            # The ends first: how far the flow is by its sequence is not less.
            target_ends = self._complete(self._target, found.target, targets, admin.LATEST)
            states = admin.describe_producers(self._target, found.target, targets)
        target_starts = self._complete(self._target, found.target, targets, admin.EARLIEST)
        starts = self._complete(self._source, found.source, found.partitions, admin.EARLIEST)
        sights = {}
        for partition, target in target_of.items():
            known = (partition in ends and partition in starts and target in target_ends
                     and target in target_starts)  # fmt: skip
            if not known:
                continue
            place = self._place(found, partition)
            earlier = self._ledger.other_sources(place)
            ledger = self._ledger.at(place)
            begun = ledger.runs[0].target if ledger.runs else target_ends[target]
            sights[partition] = _Sight(
                ledger, starts[partition], ends[partition], target_starts[target],
                target_ends[target], states.get(target, []),
                begun if earlier else None,
            )  # fmt: skip
        return sights

    @staticmethod
    def _place(found: Comparison, partition: TopicPartition) -> Place:
        here = found.source.topics[partition.topic]
        there = found.target.topics[found.remote[partition.topic]]
        return Place(partition.topic, partition.partition, here.topic_id, there.topic_id)

    def _view(self, found: Comparison, partition: TopicPartition, sight: _Sight) -> View:
        ledger, choice = sight.ledger, self._choice
        target = TopicPartition(found.remote[partition.topic], partition.partition)
        inherited = ledger.inherited.end
        target_low = max(sight.target_start, inherited)
        low, goal = sight.source_start, sight.source_start
        deleted, never, pruned_below, inferred = range(0), range(0), 0, False
        gone: list[Gone] = []
        problems: list[str] = []
        notes: list[str] = []
        expected = claims = Expected([])
        if sight.earlier is not None and sight.earlier > target_low:
            notes.append(
                f"target offsets [{target_low}, {sight.earlier}) are of an earlier topic"
                f" {partition.topic}, which was deleted on {self._config.flow.source}"
            )
            target_low = sight.earlier
        if ledger.runs:
            end, inferred = self._end(ledger, sight, target)
            goal = self._pass_returned(partition, ledger.source_of(end), sight.source_end)
            expected = Expected(stretches_of(ledger, end, target_low))
            claims = Expected(stretches_of(ledger, end, 0))
            first = ledger.runs[0]
            begun = first.source
            if first.sequence > 0 and not inherited and not is_padded(ledger):
                pruned_below = begun
            if inherited:
                # Not compared: MM2 may have repeated or left out what it liked.
                behind = expected.source_from(target_low)
                begun = goal if behind is None else behind
                if begun > low:
                    text = (f"source offsets [{low}, {begun}) were mirrored by MM2 before the"
                            " take-over, and are not compared")  # fmt: skip
                    problems.append(text)
                    low = begun
            elif self._config.auto_offset_reset == "latest" and begun > low and not pruned_below:
                notes.append(
                    f"source offsets [{low}, {begun}) were never to be mirrored"
                    " (auto.offset.reset=latest)"
                )
                never, low = range(low, begun), begun
            # What the target does not have any more.
            if sight.target_start > first.target or pruned_below:
                kept = expected.source_from(sight.target_start)
                kept = goal if kept is None else kept
                if kept > low:
                    deleted, low = range(low, kept), kept
            # What the source does not have any more.
            there = expected.source_from(target_low)
            if there is not None and there < sight.source_start:
                gone.append(Gone(Side.SOURCE, there, min(sight.source_start, goal)))
                kept_at = expected.target_from(sight.source_start)
                target_low = sight.target_end if kept_at is None else kept_at
        elif sight.earlier is not None:
            problems.append(
                f"source topic {partition.topic} was deleted and created again; nothing of the new"
                " one is mirrored"
            )
        high = max(goal, sight.source_end) if choice.complete else max(goal, low)
        pending = 0 if choice.complete else max(sight.source_end - max(goal, low), 0)
        target_end = sight.target_end
        view = View(
            self._place(found, partition), target, expected, inferred, claims, pruned_below,
            deleted, never, low, max(high, low), goal, min(target_low, target_end), target_end,
            pending, gone, problems, notes, self._guards.get(partition),
        )  # fmt: skip
        return self._limited(view)

    def _pass_returned(self, partition: TopicPartition, position: int, end: int) -> int:
        """Where the next record is that may be mirrored: behind what came from the target."""
        guard = self._guards.get(partition)
        if guard is None or position >= end:
            return position
        passed = [position]

        def take(fetched: Fetched) -> int | None:
            for header, _ in batches(fetched.records):
                if header.last_offset < passed[-1]:
                    continue
                if not (header.control or is_guarded(header, guard)):
                    return None
                passed.append(header.last_offset + 1)
            return None if passed[-1] >= end else max(passed[-1], fetched.offset)

        read_ranges(
            self._source, {partition: position}, take, read_committed=self._read_committed,
            partition_bytes=_TAIL_BYTES,
        )  # fmt: skip
        return min(passed[-1], end)

    def _limited(self, view: View) -> View:
        """Only the offsets that were asked for."""
        begin, end = self._choice.begin, self._choice.end
        if begin is None and end is None:
            return view
        if begin is not None and begin > view.low:
            at = view.expected.target_from(begin)
            view.target_low = view.target_end if at is None else max(at, view.target_low)
            view.low = begin
        if end is not None:
            if end < view.high:
                at = view.expected.target_from(end)
                view.target_end = view.target_end if at is None else min(at, view.target_end)
                view.high = max(end, view.low)
            view.pending = min(view.pending, max(end - max(view.goal, view.low), 0))
        view.high = max(view.high, view.low)
        lowest, highest = begin or 0, view.high if end is None else end
        view.deleted, view.never = (
            range(max(part.start, lowest), max(min(part.stop, highest), lowest))
            for part in (view.deleted, view.never)
        )
        view.gone = [
            Gone(g.side, max(g.begin, lowest), min(g.end, highest)) for g in view.gone
            if max(g.begin, lowest) < min(g.end, highest)
        ]  # fmt: skip
        return view

    def _end(
        self, ledger: PartitionLedger, sight: _Sight, target: TopicPartition
    ) -> tuple[int, bool]:
        """The sequence behind the last record that is mirrored, below the target's end.

        And whether that is only inferred: nothing of the flow is left there.
        """
        by_end = ledger.sequence_below(sight.target_end)
        mine = [s for s in sight.states if s.producer_id == self._producer_id]
        known = credible(ledger)
        if known is None and mine:
            # Nothing was noted yet, so that there is nothing to read from but the whole log.
            found = ledger.following(mine[0].epoch, mine[0].last_sequence, sight.target_end)
            if found is not None:
                return min(by_end, found), False
        # Else what the broker remembers does not count: it remembers a sequence behind a hole, too.
        end = sight.target_end
        standing = Standing(ledger, LeaderSays(-1, None, end, end), known, end, continuous=False)
        tail = standing.tail(self._producer_id, -1)
        tail.begins_at(sight.target_start)

        def take(fetched: Fetched) -> int | None:
            for header, _ in batches(fetched.records):
                tail.take(header)
            return None if tail.whole else max(tail.position, fetched.offset)

        if not tail.whole:
            read_ranges(self._target, {target: tail.position}, take, partition_bytes=_TAIL_BYTES)
        return min(by_end, tail.sequence), tail.unseen > 0
