"""The flow in the opposite direction between the same clusters, as its ledger tells of it.

Flow A->B has its ledger on B. Flow B->A reads it there, on its source: what A->B signs on B came
from A, and must not go back (`Guard`). And where B->A finds records in a topic of A that A->B has
mirrored from, it knows whose they are. Used by the driver and by commands, in any threads.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from heliograph.config import FlowConfig
from heliograph.ledger.codec import Place
from heliograph.ledger.runs import PartitionLedger
from heliograph.ledger.signatures import first_signature
from heliograph.ledger.store import LedgerStore
from heliograph.model import Flow, Guard, TopicPartition
from heliograph.policy import ReplicationPolicy, ledger_source, policy_from
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.metadata import Metadata

__all__ = ["ReverseFlow", "looping", "loops", "opposite", "reverse_of", "without_reverse"]


def loops(policy: ReplicationPolicy, topic: str, source_alias: str, target_alias: str) -> bool:
    """Whether records of ``topic`` could come back to where they are from.

    That is so if its remote topic has the same name, or would be mirrored to that name.
    """
    remote = policy.format_remote_topic(source_alias, topic)
    return topic in {remote, policy.format_remote_topic(target_alias, remote)}


def looping(
    policy: ReplicationPolicy, topics: Iterable[str], source_alias: str, target_alias: str
) -> set[str]:
    """The topics whose records could come back."""
    return {t for t in topics if loops(policy, t, source_alias, target_alias)}


def opposite(place: Place, remote_topic: str) -> Place:
    """The same two partitions, mirrored the other way."""
    return Place(remote_topic, place.partition, place.target_id, place.source_id)


def without_reverse(flow: Flow, why: str) -> str:
    """What to know of positions that were translated without the ledger of a reverse flow.

    ``why`` says of the source what kept it from being read, such as "does not answer".
    """
    return (
        f"the ledger of {flow.target}->{flow.source} is on {flow.source}, which {why}: records of"
        f" {flow.target}'s own are taken to stand in the same order on both"
    )


def reverse_of(
    config: FlowConfig,
    source: ClusterClient,
    target: ClusterClient,
    here: Metadata,
    topics: Iterable[str],
) -> ReverseFlow | None:
    """What goes in the opposite direction of a flow that mirrors ``topics``, as of now.

    None if their names do not lead back. ``here`` is of all topics of the source, which is asked.
    For commands; raises WireError.
    """
    flow = config.flow
    if not looping(policy_from(config), topics, flow.source, flow.target):
        return None
    found = ReverseFlow(source, target.cluster_id())
    found.look(here)
    return found


@dataclass(frozen=True, slots=True)
class _Found:
    """A ledger on the flow's source; ``store`` is None if it is of yet another flow."""

    topic_id: uuid.UUID
    store: LedgerStore | None


class ReverseFlow:
    """All ledgers on a flow's source that are of flows from its target.

    As a rule there is none, or one; more if clusters have several aliases.
    """

    def __init__(self, source: ClusterClient, target_cluster: str) -> None:
        """``target_cluster`` is the id of the flow's target."""
        self._source = source
        self._target_cluster = target_cluster
        self._found: dict[str, _Found] = {}
        self._looking = threading.Lock()

    def look(self, metadata: Metadata) -> None:
        """See all that these ledgers say now; raises WireError.

        ``metadata`` is of all topics of the source.
        """
        with self._looking:
            names = {n for n in metadata.topics if ledger_source(n) is not None}
            found = {n: self._found[n] for n in names & self._found.keys()}
            for name in names:
                topic_id = metadata.topics[name].topic_id
                known = found.get(name)
                if known is None or known.topic_id != topic_id:
                    found.pop(name, None)
                    signature = first_signature(self._source, name)
                    if signature is not None:
                        ours = signature.source_cluster == self._target_cluster
                        store = LedgerStore(self._source, name, shared=True) if ours else None
                        found[name] = _Found(topic_id, store)
            self._found = found
        self.refresh()

    def refresh(self) -> None:
        """Read on in the ledgers that are known; raises WireError."""
        for store in self._stores:
            store.refresh()

    @property
    def _stores(self) -> Sequence[LedgerStore]:
        return [found.store for found in self._found.values() if found.store is not None]

    @property
    def topics(self) -> Collection[str]:
        """The names of these ledgers."""
        return [name for name, found in self._found.items() if found.store is not None]

    @property
    def signatures(self) -> frozenset[int]:
        """The producer ids of all that came from the target."""
        signatures = (store.signature for store in self._stores)
        return frozenset(s.producer_id for s in signatures if s is not None)

    def at(self, place: Place) -> PartitionLedger | None:
        """What was mirrored from the target, of a place of the reverse flow; None: nothing."""
        ledgers = (store.at(place) for store in self._stores)
        return next((ledger for ledger in ledgers if ledger.runs), None)

    def signature_at(self, place: Place) -> int:
        """Who signs the records of a place of the reverse flow."""
        for store in self._stores:
            if store.at(place).runs and store.signature is not None:
                return store.signature.producer_id
        return -1

    def guards(
        self, partitions: Mapping[TopicPartition, str], source: Metadata, target: Metadata
    ) -> dict[TopicPartition, Guard]:
        """What is not to be brought back, for partitions whose records could loop.

        ``partitions`` names the remote topic of each. Asks the source where a partition ends only
        if the target's topic was created anew since it was mirrored from. Raises WireError.
        """
        signatures = self.signatures
        if not signatures:
            return {}
        places = {
            p: Place(remote, p.partition, target.topics[remote].topic_id,
                     source.topics[p.topic].topic_id)
            for p, remote in partitions.items()
            if remote in target.topics and p.topic in source.topics
        }  # fmt: skip
        renewed = [p for p, place in places.items() if not self.at(place) and self._before(place)]
        ends: Mapping[TopicPartition, int] = {}
        if renewed:
            ends = admin.list_offsets(self._source, source, renewed, admin.LATEST)
            # Logs first, ledger second.
            self.refresh()
        return {p: self._guard(signatures, place, ends.get(p, 0)) for p, place in places.items()}

    def _guard(self, signatures: frozenset[int], place: Place, end: int) -> Guard:
        ledger = self.at(place)
        if ledger is None:
            # All that came from earlier topics of that name is not in the one that is there now.
            since = end if self._before(place) else 0
            return Guard(signatures, since, target_id=place.source_id)
        begun = ledger.runs[0].target if self._before(place) else 0
        return Guard(signatures, begun, paired=True, target_id=place.source_id)

    def _before(self, place: Place) -> bool:
        """Whether an earlier topic of that name on the target was mirrored from."""
        return any(store.other_sources(place) for store in self._stores)
