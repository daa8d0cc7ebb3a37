"""Where a partition that was never mirrored begins, and whether it may. Runs in executors."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence, Set

from heliograph.copy.knowledge import LeaderSays, Tail, credible
from heliograph.copy.partition import MustWait, Outcome, PartitionCopy, placed
from heliograph.copy.target_divergence import TargetDivergence
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Acknowledged, Entry, NewEra, Place
from heliograph.ledger.known import Era, Known
from heliograph.ledger.runs import Run
from heliograph.ledger.signatures import written_by_others
from heliograph.ledger.store import LedgerStore
from heliograph.model import FlowContext, TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError
from heliograph.wire.metadata import Metadata


class Beginning:
    """Announces the first runs of partitions of one flow.

    Of several writers that begin at once, the first entry in the ledger counts for all.
    """

    def __init__(
        self,
        context: FlowContext,
        source: ClusterClient,
        target: ClusterClient,
        ledger: LedgerStore,
        divergence: TargetDivergence,
    ) -> None:
        self._context = context
        self._source = source
        self._target = target
        self._ledger = ledger
        self._divergence = divergence
        self._log = divergence.log
        #: Target partitions that other flows write to, as of the last `begin`; None: not asked.
        self._others: Set[tuple[uuid.UUID, int]] | None = None

    def begin(
        self,
        fresh: Sequence[PartitionCopy],
        source: Metadata,
        target: Metadata,
        says: Mapping[TopicPartition, LeaderSays],
    ) -> dict[TopicPartition, Outcome]:
        """Announce the first runs of partitions; returns why some cannot begin."""
        # Records that others have written cannot be padded away.
        identical = [p.target for p in fresh if p.lease.identical]
        logs = self._log.starts(identical, target)
        empty = {partition for partition, start in logs.items() if start == says[partition].end}
        starts = self._first_offsets(fresh, source)
        outcomes: dict[TopicPartition, Outcome] = {}
        self._others = None
        entries, eras, known, begun = [], [], [], []
        for p in fresh:
            if p.source not in starts:
                outcomes[p.source] = MustWait(
                    f"the leader of {p.source} on the source did not answer"
                )
                continue
            assert p.place is not None  # noqa: S101 - set by locate
            start, told = starts[p.source], says[p.target]
            generations = self._ledger.other_sources(p.place)
            try:
                known_end = generations or p.lease.shared or p.paired
                if told.end and not (known_end or self._is_known(p)):
                    outcomes[p.source] = self._unknown(p, told.end)
                    continue
            except WireError as error:
                outcomes[p.source] = MustWait(str(error))
                continue
            if generations and self._has_more(p, generations, told, target):
                outcomes[p.source] = headless(self._context, p)
                continue
            run = Run(0, start, told.end)
            # Where an earlier generation of the source was mirrored into the same topic, the broker
            # may or may not remember its sequences: a later epoch makes that no difference.
            earlier = [e.epoch for place in generations for e in self._ledger.at(place).eras]
            earlier += [told.producer[0]] if told.producer is not None else []
            if earlier:
                eras.append(NewEra(p.place, Era(max(earlier) + 1, 0)))
            elif p.target in empty and told.end < start and p.lease.move is None:
                if p.lease.paddable:
                    run = Run(start, start, start)
                else:
                    run = Run(0, start, placed(start, 0, told.end, identical=True))
            entries.append(Entry(p.place, [run]))
            if run.sequence == 0:
                known.append(Acknowledged(p.place, Known(0, start, told.end, told.end, told.epoch)))
            begun.append(p)
        if entries:
            self._ledger.write(entries, eras=eras, known=known)
        for p in begun:
            self._divergence.begun(p, starts[p.source])
        return outcomes

    def _has_more(
        self,
        p: PartitionCopy,
        generations: Sequence[Place],
        says: LeaderSays,
        target: Metadata,
    ) -> bool:
        """Whether the log holds records of ours that are of no generation that the ledger knows."""
        ledgers = [self._ledger.at(place) for place in generations]
        latest = max(ledgers, key=lambda ledger: ledger.eras.current.epoch)
        if says.producer is not None and says.producer[0] > latest.eras.current.epoch:
            return True
        known = credible(latest)
        if known is None or known.target >= says.end:
            return False
        signature = self._context.producer_id
        tail = Tail(
            latest, signature, self._context.marker_id, known.sequence, known.target, says.end
        )
        self._log.read({p.target: tail}, target)
        return tail.alien > 0

    def _is_known(self, p: PartitionCopy) -> bool:
        """Whether another flow is known to write to the target partition."""
        assert p.place is not None  # noqa: S101 - set by locate
        if self._others is None:
            # Once for all that begin: the keys of all other ledgers are read.
            self._others = written_by_others(self._target, self._context.ledger_topic)
        return (p.place.target_id, p.place.partition) in self._others

    def _unknown(self, p: PartitionCopy, end: int) -> PartitionError:
        context, topic = self._context, p.target.topic
        return PartitionError(
            "target.unknown",
            f"{p.target} on {context.flow.target} is not empty (it ends at offset {end}), and the"
            f" ledger {context.ledger_topic} does not say where its records come from: it was never"
            " mirrored, or the ledger was deleted",
            f"if the records are copies of {p.source.topic}, delete {topic} to mirror it again from"
            " its start; if they are others', set heliograph.on.unknown.target=append to mirror"
            " behind them",
        )

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


def headless(context: FlowContext, p: PartitionCopy) -> PartitionError:
    """The ledger has lost what nobody can find out again."""
    return PartitionError(
        "ledger.cut",
        f"the ledger {context.ledger_topic} on {context.flow.target} has lost how"
        f" {p.target} was begun or numbered: it cannot say which of its records come from"
        " where",
        f"delete {p.target.topic} to mirror {p.source.topic} again from its start",
    )
