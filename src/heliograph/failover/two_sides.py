"""Both clusters of an active/standby pair, and the flow of each direction. One thread at a time.

flow      source ----> target     its ledger is on the target: ``side``
reverse   source <---- target     its ledger is on the source: ``back``
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple, Self

from heliograph.config import FlowConfig
from heliograph.config.key import BoundedPattern
from heliograph.control.topics.refresh import TopicRefresh
from heliograph.errors import StartError
from heliograph.failover.brought import Copies, brought
from heliograph.failover.quiet import Ends
from heliograph.failover.refusals import HandoverRefused
from heliograph.failover.target_side import Mirrored, TargetSide
from heliograph.ledger.handovers import CutAt
from heliograph.ledger.reverse import loops
from heliograph.model import TopicPartition
from heliograph.policy import TopicSelection
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import ConnectionFailed, WireError
from heliograph.wire.metadata import Metadata

__all__ = ["Reached", "Shared", "TwoSides"]

_REQUEST_SECONDS, _PATIENCE_SECONDS = 5.0, 10.0


@dataclass(frozen=True, slots=True)
class Shared:
    """What a flow has to mirror, as both clusters have it.

    Attributes:
        targets: the partition of the target, by the source's.
        source: metadata of the source.
        unmirrored: what the target lacks: topics, or partitions of them.
    """

    targets: Mapping[TopicPartition, TopicPartition]
    source: Metadata
    unmirrored: tuple[str, ...]

    @property
    def topics(self) -> list[str]:
        """The source topics."""
        return sorted({p.topic for p in self.targets})

    def of(self, topics: Collection[str] | None) -> Shared:
        """Only some source topics; None: all."""
        if topics is None:
            return self
        targets = {p: t for p, t in self.targets.items() if p.topic in topics}
        return Shared(targets, self.source, tuple(t for t in self.unmirrored if t in topics))


class Reached(NamedTuple):
    """How far a partition is mirrored.

    Attributes:
        cut: where it goes on; what the reverse flow has brought counts as mirrored.
        behind_all: behind the last record on the target that the source has, too.
        goes_on: whether the reverse flow goes on there by itself.
    """

    cut: CutAt
    behind_all: int
    goes_on: bool


class TwoSides:
    """Connections to both clusters, and the ledgers of both flows. Close it.

    Attributes:
        side: the flow as its target knows it.
        back: the reverse flow as its target knows it, which is the source.
        source: a client of the source.
    """

    def __init__(self, config: FlowConfig, reverse: FlowConfig, scope: str = "") -> None:
        self.config = config
        self.reverse = reverse
        self._open = ExitStack()
        self.side = self._open.enter_context(TargetSide(config, scope))
        self.back = self._open.enter_context(TargetSide(reverse, scope))
        self.source = self._open.enter_context(
            ClusterClient(
                config.source_admin, f"{config.flow}|handover-source",
                request_timeout=_REQUEST_SECONDS,
            )
        )  # fmt: skip
        self._refresh = TopicRefresh(config, self.source, self.side.client)
        self._reverse_topics = TopicSelection(reverse)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def open(self) -> None:
        """Connect and read both ledgers; raises StartError, HandoverRefused."""
        source, target = self.config.flow.source, self.config.flow.target
        try:
            self.source.retry(self.source.cluster_id, _PATIENCE_SECONDS)
        except WireError as error:
            raise StartError(
                "cluster.unreachable",
                f"{source} does not answer, and a switchover needs both clusters: {error}",
                f"'heliograph failover --to {target}' works without {source}",
            ) from error
        self.side.open()
        try:
            self.back.open()
        except HandoverRefused as error:
            raise HandoverRefused(
                "switchover.reverse-unknown",
                f"no mirror has run {self.reverse.flow} so far: {source} has no {self.back.topic}",
                "'heliograph run FILE' with that flow enabled makes it",
            ) from error

    # -- topics -------------------------------------------------------------------------------

    def look(self, pattern: BoundedPattern | None) -> Shared:
        """What there is to mirror now, of topics that match; raises WireError."""
        found, policy = self._refresh.compare(), self.side.policy
        here, there = found.source.topics, found.target.topics
        wanted = {
            topic: name for topic, name in found.remote.items()
            if not policy.is_heartbeats_topic(topic)
            and (pattern is None or pattern.fullmatch(topic))
        }  # fmt: skip
        unmirrored = [
            topic for topic, name in wanted.items()
            if name not in there or len(there[name].partitions) < len(here[topic].partitions)
        ]  # fmt: skip
        targets = {
            p: TopicPartition(name, p.partition)
            for p, name in found.partitions.items() if p.topic in wanted
        }  # fmt: skip
        return Shared(targets, found.source, tuple(sorted(unmirrored)))

    def returns(self, topic: str) -> str | None:
        """The remote topic of a source topic, if the reverse flow mirrors it into that very topic.

        So it is where topics keep their names, and not where they are renamed.
        """
        source, target = self.config.flow.source, self.config.flow.target
        policy = self.side.policy
        return self.side.remote_topic(topic) if loops(policy, topic, source, target) else None

    def not_returned(self, topics: Collection[str]) -> list[str]:
        """Topics whose records the reverse flow would not bring from the target to the source."""
        return [t for t in topics if not self._reverse_topics.includes(self.returns(t) or t)]

    # -- where logs end -----------------------------------------------------------------------

    def ends(self, shared: Shared) -> dict[TopicPartition, Ends]:
        """Where all partitions of the source end; raises WireError."""

        def ask() -> dict[TopicPartition, Ends]:
            metadata = self.source.metadata(shared.topics)
            # Stable ends first: what comes in between looks like an open transaction for a moment.
            stable = admin.list_offsets(
                self.source, metadata, shared.targets, admin.LATEST, read_committed=True
            )
            ends = admin.list_offsets(self.source, metadata, shared.targets, admin.LATEST)
            silent = sorted(shared.targets.keys() - (stable.keys() & ends.keys()))
            if silent:
                source = self.config.flow.source
                raise ConnectionFailed(f"no answer from the leader of {silent[0]} on {source}")
            return {p: Ends(stable[p], ends[p]) for p in shared.targets}

        return self.source.retry(ask, _PATIENCE_SECONDS)

    def mirrored(self, shared: Shared) -> Mirrored:
        """The partitions that were begun; raises WireError."""
        found = self.side.mirrored()
        places = {p: place for p, place in found.places.items() if p in shared.targets}
        targets = {p: found.targets[p] for p in places}
        return Mirrored(places, targets, found.metadata, frozenset())

    def positions(self, mirrored: Mirrored) -> dict[TopicPartition, Reached]:
        """How far partitions are mirrored; silent leaders' are absent. Raises WireError."""
        back = self._brought(mirrored)
        at, counts = self.side.positions(mirrored), self.side.counts(mirrored)
        found = {}
        for p in at.keys() & counts.keys():
            cut, place = at[p], self.side.store.at(mirrored.places[p]).target_of(counts[p][0])
            back_at = -1
            if p in back:
                # What came from the target does not go back to it.
                copies = back[p]
                ledger, sequence = copies.ledger, copies.sequence
                cut = cut._replace(source=ledger.not_ours_from(cut.source, sequence))
                back_at = ledger.source_of(sequence)
            found[p] = Reached(cut, max(place, back_at), back_at >= place)
        return found

    def lags(
        self,
        shared: Shared,
        ends: Mapping[TopicPartition, Ends],
        positions: Mapping[TopicPartition, Reached],
    ) -> dict[TopicPartition, int]:
        """Offsets that are not mirrored yet, of partitions that are behind; raises WireError."""
        fresh = [p for p in shared.targets if p not in positions and ends[p].end]
        starts = admin.list_offsets(self.source, shared.source, fresh, admin.EARLIEST)
        found = {}
        for p, at in ends.items():
            position = positions[p].cut.source if p in positions else starts.get(p, 0)
            if at.end > position:
                found[p] = at.end - position
        return found

    # -- the other direction ------------------------------------------------------------------

    def _brought(self, mirrored: Mirrored) -> dict[TopicPartition, Copies]:
        """What the reverse flow has brought to partitions of the source.

        Only where topics keep their names.
        """
        pairs = {
            TopicPartition(name, p.partition): p
            for p in mirrored.places if (name := self.returns(p.topic)) is not None
        }  # fmt: skip
        return brought(self.back, pairs)
