"""Which topics have series of their own: the rest of a flow share one. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from heliograph.service.snapshot import FlowSnapshot, TopicSnapshot

__all__ = ["OTHER", "bounded", "shown_topics"]

#: Stands for all topics of a flow that are not shown.
OTHER = "other"


def shown_topics(flows: Sequence[FlowSnapshot], most: int) -> dict[str, frozenset[str]]:
    """For each flow the topics to show: in all flows together ``most``, those that lag most.

    Topics without a lag come by name, so that a look like the last one shows the same topics. One
    that is called OTHER is always among the others: series must not collide.
    """
    rows = [
        (-(topic.lag_records or 0), topic.topic, flow.flow)
        for flow in flows for topic in flow.topics
        if OTHER not in (topic.topic, topic.target_topic)
    ]  # fmt: skip
    shown: dict[str, set[str]] = {flow.flow: set() for flow in flows}
    for _, topic, flow in heapq.nsmallest(most, rows):
        shown[flow].add(topic)
    return {flow: frozenset(topics) for flow, topics in shown.items()}


def bounded(flow: FlowSnapshot, shown: AbstractSet[str]) -> tuple[list[TopicSnapshot], int]:
    """The topics that are shown, with one more for the others; and how many these are."""
    kept = [topic for topic in flow.topics if topic.topic in shown]
    rest = [topic for topic in flow.topics if topic.topic not in shown]
    if rest:
        records = [t.lag_records for t in rest if t.lag_records is not None]
        seconds = [t.lag_seconds for t in rest if t.lag_seconds is not None]
        kept.append(TopicSnapshot(
            OTHER, OTHER, sum(t.partitions for t in rest), sum(records) if records else None,
            max(seconds, default=None), sum(t.troubled for t in rest),
        ))  # fmt: skip
    return kept, len(rest)
