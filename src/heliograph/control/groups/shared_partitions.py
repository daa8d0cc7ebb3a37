"""Where several flows write to one partition: how far a group may go there, skipping nothing.

With names that do not tell the source (identity), topics of several sources meet in one topic of
the target, record by record as they come. A group has read some of each history, and its offset is
the lowest of theirs: nothing is skipped, some records may be read again. How far it came in other
histories is what the checkpoints of their flows say; of a flow that says nothing of the group, no
record counts as read. Runs in the driver and in commands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from heliograph.config import FlowConfig
from heliograph.control.groups.translated import TranslatedOffset, is_denied
from heliograph.ledger.codec import Place
from heliograph.ledger.runs import PartitionLedger
from heliograph.ledger.store import LedgerStore
from heliograph.mm2.checkpoints import CheckpointLog
from heliograph.model import Flow, TopicPartition
from heliograph.policy import ledger_source, ledger_topic, policy_from
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError
from heliograph.wire.metadata import NO_ID, Metadata

__all__ = ["FlowMeeting", "Limit", "Read", "last_target", "lowest"]

#: The alias of no cluster.
_NOBODY = "="

#: The offsets of groups, by partition of the target.
Wanted = Mapping[str, Mapping[TopicPartition, TranslatedOffset]]


@dataclass(frozen=True, slots=True)
class Limit:
    """How far a group may go in a partition; None if there is no saying.

    ``why`` tells what keeps it from going where its own flow would have it; empty if nothing does.
    """

    offset: int | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """What a group has read of one history in a partition of the target.

    ``target`` is where the next record of the history is, or would be, that it has not read;
    ``last`` where the history's last record is, None if nobody knows; ``told`` is whether anybody
    says how far the group came.
    """

    target: int
    last: int | None = None
    told: bool = True

    def next(self, start: int, end: int) -> int:
        """The first offset that may not be passed, in a log from ``start`` to ``end``.

        If the log has nothing unread of the history, the end: what comes later comes behind it.
        """
        first = max(self.target, start)
        if self.last is not None and first > self.last:
            return end
        return max(min(first, end), start)


def lowest(histories: Mapping[str, Read], start: int, end: int) -> tuple[int, str]:
    """The highest offset that skips nothing of any history, and which of them decides."""
    return min((read.next(start, end), name) for name, read in histories.items())


def last_target(ledger: PartitionLedger, state: admin.ProducerState, end: int) -> int | None:
    """Where the last record that a broker remembers of a history is, in a log that ends there.

    None if its sequence does not fit the ledger, which may know better.
    """
    following = ledger.following(state.epoch, state.last_sequence, end)
    if following is None or following < ledger.runs[-1].sequence:
        return None
    return None if ledger.at_sequence(following - 1) is None else ledger.target_of(following - 1)


@dataclass(slots=True)
class _History:
    """What one flow wrote to the target. ``places`` are those in the partitions asked about."""

    source: str
    ledger: LedgerStore
    checkpoints: CheckpointLog
    checkpoints_topic: str
    places: dict[TopicPartition, list[Place]] = field(default_factory=dict)

    def locate(self, metadata: Metadata, wanted: Collection[TopicPartition]) -> None:
        """Find the flow's places in partitions of the target, the oldest first."""
        names = {metadata.topics[p.topic].topic_id: p.topic for p in wanted}
        self.places = {}
        for place in self.ledger.places:
            # Brokers before 2.8 have no ids; where flows meet, names are the source's.
            name = place.topic if place.target_id == NO_ID else names.get(place.target_id)
            if name is None or not self.ledger.at(place).runs:
                continue
            partition = TopicPartition(name, place.partition)
            if partition in wanted:
                self.places.setdefault(partition, []).append(place)
        for places in self.places.values():
            places.sort(key=lambda at: self.ledger.at(at).runs[0].target)

    def read(self, group: str, at: TopicPartition, last: int | None) -> Read:
        """What a group has read, by its checkpoint."""
        places = self.places[at]
        checkpoint = self.checkpoints.known.get((group, *at))
        if checkpoint is None:
            return Read(self.ledger.at(places[0]).runs[0].target, last, told=False)
        # By the ledger: a checkpoint may be about an earlier topic of that name.
        return Read(self.ledger.at(places[-1]).to_target(checkpoint.upstream), last)

    def last(
        self, at: TopicPartition, states: Iterable[admin.ProducerState], end: int
    ) -> int | None:
        """Where its last record in a partition is, if the partition's leader remembers."""
        signature, places = self.ledger.signature, self.places.get(at)
        if signature is None or not places:
            return None
        for state in states:
            if state.producer_id == signature.producer_id and state.last_sequence >= 0:
                return last_target(self.ledger.at(places[-1]), state, end)
        return None


class FlowMeeting:
    """All flows that write to the partitions which one flow writes to. One thread at a time.

    Costs nothing for topics whose names tell their source.
    """

    def __init__(self, config: FlowConfig, target: ClusterClient, ledger: LedgerStore) -> None:
        """``ledger`` is the flow's own; those of other flows are read here."""
        self._flow = config.flow
        self._target = target
        self._ledger = ledger
        self._policy = policy_from(config)
        self._own_name: dict[str, bool] = {}
        self._histories: dict[str, _History] = {}
        #: The last that was asked, if no other flow had a say.
        self._alone: Wanted | None = None

    def limits(self, wanted: Wanted) -> Mapping[tuple[str, TopicPartition], Limit]:
        """How far groups may go, where another flow has a say; raises WireError.

        The ends in ``wanted`` were read before: whoever has written below them has a ledger by now
        that says so.
        """
        shared = {p for offsets in wanted.values() for p in offsets if self._is_shared(p.topic)}
        # Below ends that were asked about before, nobody can have written since.
        if not shared or wanted == self._alone:
            return {}
        self._alone = None
        metadata = self._target.metadata()
        shared = {p for p in shared if p.topic in metadata.topics}
        others = self._others(metadata)
        try:
            for history in others:
                history.ledger.refresh()
                history.locate(metadata, shared)
            met = {p: [h for h in others if p in h.places] for p in shared}
            met = {p: histories for p, histories in met.items() if histories}
            if met:
                return self._limit(wanted, metadata, met)
        except (BrokerError, ValueError) as error:
            if isinstance(error, BrokerError) and not is_denied(error):
                raise
            limit = Limit(None, f"is left alone, another flow may write to it too: {error}")
            return {(g, p): limit for g, offsets in wanted.items() for p in shared & offsets.keys()}
        self._alone = wanted
        return {}

    def _is_shared(self, topic: str) -> bool:
        """Whether the name would be the same if the topic came from another source."""
        known = self._own_name.get(topic)
        if known is None:
            upstream = self._policy.upstream_topic(topic)
            other = upstream and self._policy.format_remote_topic(_NOBODY, upstream)
            known = self._own_name[topic] = other is not None and other != topic
        return not known

    def _others(self, metadata: Metadata) -> list[_History]:
        sources = {s for name in metadata.topics if (s := ledger_source(name)) is not None}
        return [self._history(source) for source in sorted(sources - {self._flow.source})]

    def _history(self, source: str) -> _History:
        if source not in self._histories:
            topic = self._policy.checkpoints_topic(source)
            self._histories[source] = _History(
                source,
                self._ledger
                if source == self._flow.source
                else LedgerStore(self._target, ledger_topic(source)),
                CheckpointLog(self._target, topic),
                topic,
            )
        return self._histories[source]

    def _limit(
        self,
        wanted: Wanted,
        metadata: Metadata,
        met: Mapping[TopicPartition, Collection[_History]],
    ) -> Mapping[tuple[str, TopicPartition], Limit]:
        starts = admin.list_offsets(self._target, metadata, met, admin.EARLIEST)
        # As in resume: sequences first, ledgers second.
        states = admin.describe_producers(self._target, metadata, met)
        own = self._history(self._flow.source)
        others = {h.source: h for histories in met.values() for h in histories}
        for history in (own, *others.values()):
            history.ledger.refresh()
            history.locate(metadata, met)
        for history in others.values():
            if history.checkpoints_topic in metadata.topics:
                history.checkpoints.refresh()
        limits = {}
        for group, offsets in wanted.items():
            for p in offsets.keys() & met.keys():
                if p not in starts:
                    limits[group, p] = Limit(None, "cannot be asked at the moment")
                    continue
                end, told = offsets[p].end, states.get(p, ())
                # Between our records and the end there may be some that others have brought back.
                last = None if offsets[p].paired else own.last(p, told, end)
                mine = Read(offsets[p].downstream, last)
                theirs = {h.source: h.read(group, p, h.last(p, told, end)) for h in met[p]}
                limits[group, p] = self._lowest(mine, theirs, starts[p], end)
        return limits

    def _lowest(self, mine: Read, theirs: Mapping[str, Read], start: int, end: int) -> Limit:
        offset, who = lowest(theirs, start, end)
        if mine.next(start, end) <= offset:
            return Limit(mine.next(start, end))
        other, topic = Flow(who, self._flow.target), self._policy.checkpoints_topic(who)
        if theirs[who].told:
            return Limit(
                offset, f"is held at {offset}: {other} goes on there with what it has not read"
            )
        why = f"{other} writes to it too, and {topic} says nothing of this group"
        return Limit(offset, f"is held at {offset}: {why}")
