"""Where partitions of a lease are: leaders and topic ids of both sides. Runs in executors."""

from __future__ import annotations

import time
from collections.abc import Sequence

from heliograph.copy.partition import MustWait, PartitionCopy
from heliograph.copy.source_divergence import SourceDivergence
from heliograph.copy.target_divergence import TargetDivergence
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Place
from heliograph.model import FlowContext, TopicPartition
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.metadata import Metadata
from heliograph.wire.rights import missing_right

#: Metadata of both clusters, and why some partitions cannot be resumed.
Located = tuple[Metadata, Metadata, dict[TopicPartition, MustWait | PartitionError]]

#: A warm-up happens this long before its lease starts, at most.
_WARM_SECONDS = 3.0


class Locator:
    """Asks both clusters where the partitions of one flow are."""

    def __init__(
        self,
        context: FlowContext,
        source: ClusterClient,
        target: ClusterClient,
        upstream: SourceDivergence,
        divergence: TargetDivergence,
    ) -> None:
        self._context = context
        self._source = source
        self._target = target
        self._upstream = upstream
        self._divergence = divergence
        self._warm: Located | None = None
        self._warm_until = 0.0

    def locate(self, partitions: Sequence[PartitionCopy]) -> Located:
        """Refresh leaders and topic ids of partitions, on both sides.

        What a warm-up found a moment ago is good enough for its own partitions once: if a leader
        moved since, the first request says so and they are located again.
        """
        if self._warm is not None and time.monotonic() < self._warm_until:
            found, self._warm = self._warm, None
            if not found[2] and all(p.place is not None and not p.broken for p in partitions):
                return found
        return self._locate(partitions)

    def warm_up(self, partitions: Sequence[PartitionCopy]) -> None:
        """Connect and locate ahead of time."""
        self._warm = self._locate(partitions)
        self._warm_until = time.monotonic() + _WARM_SECONDS

    def _locate(self, partitions: Sequence[PartitionCopy]) -> Located:
        absent: dict[TopicPartition, MustWait | PartitionError] = {}
        source = self._source.metadata(sorted({p.source.topic for p in partitions}))
        target = self._target.metadata(sorted({p.target.topic for p in partitions}))
        for p in partitions:
            p.source_leader = source.leader(*p.source)
            p.source_epoch = source.leader_epoch(*p.source)
            p.target_leader = target.leader(*p.target)
            p.target_epoch = target.leader_epoch(*p.target)
            if p.source.topic in source.denied or p.target.topic in target.denied:
                absent[p.source] = self._unseen(p, on_source=p.source.topic in source.denied)
                continue
            if p.source_leader < 0 or p.target_leader < 0:
                if p.target.topic not in target.topics:
                    self._divergence.absent(p)
                absent[p.source] = MustWait(
                    self._upstream.absent(p, source)
                    if p.source_leader < 0
                    else f"no leader for {p.target} on the target"
                )
                continue
            p.place = Place(
                p.source.topic,
                p.source.partition,
                source.topics[p.source.topic].topic_id,
                target.topics[p.target.topic].topic_id,
            )
            guard = p.lease.guard
            if guard is not None and not guard.is_about(p.place.target_id):
                absent[p.source] = MustWait(
                    f"{p.target.topic} was created anew on the target: the next lease knows what it"
                    " lacks"
                )
        return source, target, absent

    def _unseen(self, p: PartitionCopy, *, on_source: bool) -> PartitionError:
        settings = self._context.source if on_source else self._context.target
        name = p.source if on_source else p.target
        return PartitionError(
            "source.refused" if on_source else "target.refused",
            f"{name} is not shown to us on {settings.alias}",
            missing_right(settings, "Describe", "topic", name.topic),
        )
