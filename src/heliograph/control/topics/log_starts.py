"""Deletes on the target what the source has deleted, if ``heliograph.follow.log.start`` says so.

Retention and DeleteRecords move a log's start; the target's topic has its own retention, but
nobody repeats a DeleteRecords there. Runs in the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from heliograph.control.topics.refresh import TopicPlan
from heliograph.ledger.codec import Place
from heliograph.ledger.store import LedgerStore
from heliograph.model import Flow, TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import NONE, error_name
from heliograph.wire.rights import reason

log = logging.getLogger(__name__)


class LogStartFollower:
    """Moves the log starts of a flow's target partitions along."""

    def __init__(
        self,
        flow: Flow,
        source: ClusterClient,
        target: ClusterClient,
        ledger: LedgerStore,
        plan: Callable[[], TopicPlan],
    ) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._ledger = ledger
        self._plan = plan
        self._refused: dict[TopicPartition, int] = {}

    def follow(self) -> None:
        """Compare the starts of both sides once, and move what is behind."""
        plan = self._plan()
        if plan.source is None or plan.target is None:
            return
        targets = {p: TopicPartition(name, p.partition) for p, name in plan.partitions.items()}
        wanted = admin.list_offsets(self._source, plan.source, targets, admin.EARLIEST)
        starts = admin.list_offsets(self._target, plan.target, targets.values(), admin.EARLIEST)
        ends = admin.list_offsets(self._target, plan.target, targets.values(), admin.LATEST)
        self._ledger.refresh()
        moves = {}
        for p, t in targets.items():
            if p not in wanted or t not in starts or t not in ends:
                continue
            place = Place(
                p.topic, p.partition,
                plan.source.topics[p.topic].topic_id, plan.target.topics[t.topic].topic_id,
            )  # fmt: skip
            ledger = self._ledger.at(place)
            if not ledger.runs:
                continue
            # What was deleted before it was mirrored is the data path's business.
            before = min(ledger.to_target(wanted[p]), ends[t])
            if before > starts[t]:
                moves[t] = before
        for t, error in admin.delete_records(self._target, plan.target, moves).items():
            if error != NONE and self._refused.get(t) != error:
                why = reason(self._target.settings, error, "Delete", t.topic, error_name(error))
                log.warning(
                    "%s: %s on %s still holds what the source has deleted: %s",
                    self._flow, t, self._flow.target, why,
                )  # fmt: skip
            self._refused[t] = error
