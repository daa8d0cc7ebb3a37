"""A flow as its target knows it: all that is left of it when the source is gone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

from heliograph.claims.registry import Registry
from heliograph.config import FlowConfig
from heliograph.errors import StartError
from heliograph.failover.own_tail import own_ends
from heliograph.failover.refusals import HandoverRefused
from heliograph.ledger.codec import Place
from heliograph.ledger.fences import Fences
from heliograph.ledger.handovers import Cut, CutAt, Handovers
from heliograph.ledger.holds import Holds
from heliograph.ledger.memory import SyncedMemory
from heliograph.ledger.moves import moves_in
from heliograph.ledger.order import logs_before_ledger
from heliograph.ledger.rehearsals import Rehearsals
from heliograph.ledger.source_ends import SourceEnds
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.translation import count
from heliograph.model import TopicPartition
from heliograph.policy import ledger_topic, policy_from
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError
from heliograph.wire.metadata import Metadata

__all__ = ["Mirrored", "TargetSide"]

#: A broker that hangs must not hold up what is measured in seconds.
_REQUEST_SECONDS = 5.0
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The partitions that a flow has mirrored and whose target topic is there.

    Attributes:
        places: by partition of the source.
        metadata: of the target.
        gone: source topics that were mirrored, and whose target topic is gone.
    """

    places: Mapping[TopicPartition, Place]
    targets: Mapping[TopicPartition, TopicPartition]
    metadata: Metadata
    gone: frozenset[str]

    @property
    def topics(self) -> list[str]:
        """The source topics."""
        return sorted({p.topic for p in self.places})

    def of(self, topics: Collection[str]) -> Mirrored:
        """Only those of some source topics."""
        places = {p: place for p, place in self.places.items() if p.topic in topics}
        targets = {p: self.targets[p] for p in places}
        return Mirrored(places, targets, self.metadata, self.gone & set(topics))


class TargetSide:
    """One reader of a flow's ledger on the target, and what it says. Close it.

    Attributes:
        client: of the target.
        store: runs and positions.
        holds: what rests, and which mirrors say so.
        handovers: what was done before.
        source_ends: what was last known of the source.
        rehearsals: what drills and failovers took.
        claims: who mirrors the flow.
        fences: which topics of the target a switchover from there has fenced.
        memory: what jobs and operators have decided, such as moves.
    """

    def __init__(self, config: FlowConfig, scope: str = "") -> None:
        self.config = config
        self.flow = config.flow
        self.policy = policy_from(config)
        self.topic = ledger_topic(config.flow.source)
        self.client = ClusterClient(
            config.target_admin, f"{config.flow}|handover-target", request_timeout=_REQUEST_SECONDS
        )
        self.store = LedgerStore(self.client, self.topic, shared=True)
        follower = self.store.follower
        self.holds = Holds(follower, scope)
        self.handovers = Handovers(follower, scope)
        self.source_ends = SourceEnds(follower, scope)
        self.rehearsals = Rehearsals(follower, scope)
        self.claims = Registry(follower, scope)
        self.fences = Fences(follower, scope)
        self.memory = SyncedMemory(follower)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def open(self) -> None:
        """Connect and read the ledger; raises StartError, HandoverRefused."""
        try:
            self.client.retry(self.client.cluster_id, _PATIENCE_SECONDS)
            if self.topic not in self.client.metadata([self.topic]).topics:
                raise HandoverRefused(
                    "handover.not-mirrored",
                    f"flow {self.flow} was never mirrored by Heliograph: {self.flow.target} has no"
                    f" {self.topic}",
                    "'heliograph run FILE' mirrors it",
                )
            self.store.refresh()
        except WireError as error:
            raise StartError(
                "cluster.unreachable",
                f"cluster {self.flow.target} cannot take over, it does not answer: {error}",
                f"check that the brokers of {self.flow.target} are up, and its bootstrap.servers",
            ) from error

    def refresh(self) -> None:
        """Read on; raises WireError."""
        self.store.refresh()

    def mirrored(self) -> Mirrored:
        """The partitions that were mirrored, as of now; raises WireError."""
        metadata = self.client.metadata()
        self.store.refresh()
        newest: dict[TopicPartition, Place] = {}
        gone = set()
        for place in self.store.begun():
            remote = metadata.topics.get(self.remote_topic(place.topic))
            if self.policy.is_heartbeats_topic(place.topic):
                continue
            if remote is None:
                gone.add(place.topic)
            elif remote.topic_id == place.target_id and place.partition in remote.partitions:
                source = TopicPartition(place.topic, place.partition)
                known = newest.get(source)
                if known is None or self._began(known) < self._began(place):
                    newest[source] = place
        targets = {p: TopicPartition(self.remote_topic(p.topic), p.partition) for p in newest}
        return Mirrored(newest, targets, metadata, frozenset(gone))

    def _began(self, place: Place) -> int:
        return self.store.at(place).runs[0].target

    def remote_topic(self, topic: str) -> str:
        """The target's name of a source topic."""
        return self.policy.format_remote_topic(self.flow.source, topic)

    def ends(self, mirrored: Mirrored) -> dict[TopicPartition, int]:
        """Where the target's logs end, by source partition; silent leaders' are absent."""
        wanted = sorted(set(mirrored.targets.values()))
        found = admin.list_offsets(self.client, mirrored.metadata, wanted, admin.LATEST)
        return {p: found[t] for p, t in mirrored.targets.items() if t in found}

    def positions(self, mirrored: Mirrored) -> dict[TopicPartition, CutAt]:
        """How far each partition was mirrored, and where the target's log ends; raises WireError.

        Only while nothing is copied this is where the logs were cut. Partitions whose leader did
        not answer are absent.
        """
        found = {}
        for p, (sequence, end, exact) in self.counts(mirrored).items():
            ledger = self.store.at(mirrored.places[p])
            source, known = ledger.source_of(sequence), ledger.known
            if known is not None and known.sequence == sequence:
                # Markers behind the last record were read, too.
                source = max(source, known.source)
            found[p] = CutAt(source, end, exact)
        return found

    def going_on(
        self, positions: Mapping[TopicPartition, CutAt], mirrored: Mirrored
    ) -> dict[TopicPartition, CutAt]:
        """The positions as they are when it is carried out where copying was decided to go on.

        What the source has before that came from the target, or was given up: it is not at risk.
        """
        decided = moves_in(self.memory)
        found = dict(positions)
        for p, at in positions.items():
            move = decided.get(p)
            if move is not None and move.id not in self.store.at(mirrored.places[p]).moves:
                found[p] = at._replace(source=max(at.source, move.source))
        return found

    def counts(self, mirrored: Mirrored) -> dict[TopicPartition, tuple[int, int, bool]]:
        """(the sequence of the next record, where the target's log ends, whether that is exact).

        As `positions`.
        """
        wanted = sorted(set(mirrored.targets.values()))
        with logs_before_ledger(self.store):
            states = admin.describe_producers(self.client, mirrored.metadata, wanted)
            ends = admin.list_offsets(self.client, mirrored.metadata, wanted, admin.LATEST)
        signature = self.store.signature
        own_id = signature.producer_id if signature is not None else -1
        found, forgotten = {}, {}
        for p, target in mirrored.targets.items():
            if target not in ends:
                continue
            ledger, end = self.store.at(mirrored.places[p]), ends[target]
            counted, known = count(ledger, states.get(target, ()), own_id, end), ledger.known
            found[p] = counted.low, end, counted.low == counted.high
            if known is not None and known.target > end:
                # The target has lost the end of its log.
                found[p] = min(counted.low, ledger.sequence_below(end)), end, False
            elif counted.low < counted.high:
                forgotten[target] = known.target if known is not None else ledger.runs[0].target
        own = own_ends(self.client, forgotten, own_id) if signature is not None else {}
        for p, (low, end, _) in found.items():
            if (end_of_ours := own.get(mirrored.targets[p])) is not None:
                # The broker has forgotten us: what was noted, and what of ours stands behind it.
                behind = self.store.at(mirrored.places[p]).sequence_below(end_of_ours)
                found[p] = max(low, behind), end, False
        return found

    def cuts(
        self,
        handover: str,
        mirrored: Mirrored,
        positions: Mapping[TopicPartition, CutAt],
        held_ms: int = 0,
    ) -> dict[str, Cut]:
        """The positions as the ledger keeps them, by source topic; ``held_ms`` as in `Cut`."""
        by_topic: dict[str, dict[int, CutAt]] = {}
        for p, at in positions.items():
            by_topic.setdefault(p.topic, {})[p.partition] = at
        ids = {p.topic: mirrored.places[p] for p in positions}
        return {
            topic: Cut(
                handover, str(ids[topic].source_id), str(ids[topic].target_id), partitions, held_ms
            )
            for topic, partitions in by_topic.items()
        }

    def first_cuts(
        self, mirrored: Mirrored, positions: Mapping[TopicPartition, CutAt]
    ) -> dict[TopicPartition, CutAt]:
        """The positions, with the target's end of the first failover that was not brought back.

        From there on the target has records of its own. What came over since, after that failover
        was resumed, bears the flow's signature.
        """
        found = dict(positions)
        for p, at in positions.items():
            earlier = self.handovers.cuts.get(p.topic)
            before = earlier.of(mirrored.places[p]) if earlier is not None else None
            if earlier is not None and before is not None and earlier.held_ms:
                found[p] = at._replace(target=min(at.target, before.target))
        return found
