"""Finds out which runs of a flow's ledger nobody needs, for `LedgerKeeper`. Runs in the driver."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from heliograph.control.topics.refresh import TopicPlan
from heliograph.ledger.codec import Place
from heliograph.ledger.flow_ledger import FlowLedger
from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.metadata import NO_ID, Metadata

#: Fewer runs than this are not worth a question to the cluster.
_LEAST_RUNS = 128


class LedgerCare:
    """Looks after the ledger of one flow; `tend` is called by one job."""

    def __init__(
        self,
        ledger: FlowLedger,
        target: ClusterClient,
        producer_id: int,
        plan: Callable[[], TopicPlan],
    ) -> None:
        self._ledger = ledger.store
        self._keeper = ledger.keeper
        self._target = target
        self._producer_id = producer_id
        self._plan = plan
        self._missing: set[uuid.UUID] = set()

    def tend(self) -> None:
        """Re-pack and prune where it is worth it."""
        plan = self._plan()
        if plan.source is None or plan.target is None:
            return
        places = {
            Place(
                p.topic, p.partition,
                plan.source.topics[p.topic].topic_id, plan.target.topics[name].topic_id,
            ): TopicPartition(name, p.partition)
            for p, name in plan.partitions.items()
        }  # fmt: skip
        self._ledger.refresh()
        log_starts = dict.fromkeys(places, 0) | self._log_starts(plan.target, places)
        self._keeper.tidy(log_starts, self._gone(places))

    def _log_starts(
        self, metadata: Metadata, places: Mapping[Place, TopicPartition]
    ) -> dict[Place, int]:
        """Below which target offsets runs are not needed, where that makes a difference.

        Not below the record that comes next either: until it is acknowledged, the ledger may have
        its offset too low, and a log start behind foreign records would seem to be behind it.
        """
        known = self._ledger
        many = {
            place: places[place]
            for place in places.keys() & self._keeper.places
            if len(known.at(place).runs) >= _LEAST_RUNS
        }
        starts = admin.list_offsets(self._target, metadata, many.values(), admin.EARLIEST)
        wanted = {
            place: t for place, t in many.items() if known.at(place).prunable(starts.get(t, 0))
        }
        # As in resume: sequences first, ledger second.
        states = admin.describe_producers(self._target, metadata, wanted.values())
        ends = admin.list_offsets(self._target, metadata, wanted.values(), admin.LATEST)
        known.refresh()
        bounds = {}
        for place, t in wanted.items():
            mine = [s for s in states.get(t, ()) if s.producer_id == self._producer_id]
            ledger = known.at(place)
            if not mine or t not in ends:
                # The broker has dropped the signature's state. The ledger can wait for it.
                continue
            sequence = ledger.following(mine[0].epoch, mine[0].last_sequence, ends[t])
            if sequence is not None and ledger.at_sequence(sequence) is not None:
                bounds[place] = min(starts[t], ledger.target_of(sequence))
        return bounds

    def _gone(self, places: Mapping[Place, TopicPartition]) -> set[uuid.UUID]:
        """Target topics that do not exist: twice in a row, because nothing brings a ledger back."""
        current = {place.target_id for place in places}
        others = {place.target_id for place in self._keeper.places} - current - {NO_ID}
        missing = admin.unknown_topic_ids(self._target, others) if others else set()
        gone, self._missing = missing & self._missing, missing
        return gone
