"""Keeps a flow's ledger small: tells its keeper what is not needed any more. Runs in the driver."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from heliograph.batch.header import SEQUENCE_MODULUS
from heliograph.control.topics import TopicPlan
from heliograph.ledger.codec import Place
from heliograph.ledger.keeper import LedgerKeeper
from heliograph.ledger.runs import unwrap
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
        keeper: LedgerKeeper,
        target: ClusterClient,
        producer_id: int,
        plan: Callable[[], TopicPlan],
    ) -> None:
        self._keeper = keeper
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
        self._keeper.refresh()
        log_starts = dict.fromkeys(places, 0) | self._log_starts(plan.target, places)
        self._keeper.tidy(log_starts, self._gone(places))

    def _log_starts(
        self, metadata: Metadata, places: Mapping[Place, TopicPartition]
    ) -> dict[Place, int]:
        """Below which target offsets runs are not needed, where that makes a difference.

        Not below the record that comes next either: until it is acknowledged, the ledger may have
        its offset too low, and a log start behind foreign records would seem to be behind it.
        """
        keeper = self._keeper
        many = {
            place: places[place]
            for place in keeper.places & places.keys()
            if len(keeper.at(place).runs) >= _LEAST_RUNS
        }
        starts = admin.list_offsets(self._target, metadata, many.values(), admin.EARLIEST)
        wanted = {
            place: t for place, t in many.items() if keeper.at(place).prunable(starts.get(t, 0))
        }
        # As in resume: sequences first, ledger second.
        states = admin.describe_producers(self._target, metadata, wanted.values())
        ends = admin.list_offsets(self._target, metadata, wanted.values(), admin.LATEST)
        keeper.refresh()
        bounds = {}
        for place, t in wanted.items():
            mine = [s for s in states.get(t, ()) if s.producer_id == self._producer_id]
            if not mine or mine[0].last_sequence < 0 or t not in ends:
                # The broker has dropped the signature's state. The ledger can wait for it.
                continue
            ledger = keeper.at(place)
            last = ledger.runs[-1]
            following = (mine[0].last_sequence + 1) % SEQUENCE_MODULUS
            estimate = last.sequence + max(ends[t] - last.target, 0)
            sequence = unwrap(following, estimate, SEQUENCE_MODULUS)
            if ledger.at_sequence(sequence) is not None:
                bounds[place] = min(starts[t], ledger.target_of(sequence))
        return bounds

    def _gone(self, places: Mapping[Place, TopicPartition]) -> set[uuid.UUID]:
        """Target topics that do not exist: twice in a row, because nothing brings a ledger back."""
        current = {place.target_id for place in places}
        others = {place.target_id for place in self._keeper.places} - current - {NO_ID}
        missing = admin.unknown_topic_ids(self._target, others) if others else set()
        gone, self._missing = missing & self._missing, missing
        return gone
