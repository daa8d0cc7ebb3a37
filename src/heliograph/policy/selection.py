"""Which topics a flow mirrors: filter, heartbeats, internal topics and cycles, put together."""

from __future__ import annotations

from heliograph.config import FlowConfig
from heliograph.policy.chosen import policy_from, topic_filter_from
from heliograph.policy.filters import TopicFilter
from heliograph.policy.replication import ReplicationPolicy

__all__ = ["TopicSelection", "is_cycle", "should_replicate"]


def is_cycle(policy: ReplicationPolicy, topic: str, source_alias: str, target_alias: str) -> bool:
    """Whether mirroring ``topic`` would bring records back to a cluster they came from.

    Walks the hops in the name: a hop from the target, or since MM2 4.4 (KAFKA-9914) from the source
    itself, is a cycle. So a local topic called ``A.x`` on A is not mirrored.

    A policy that does not change names reports the source for every topic and the same name
    upstream; that says nothing about hops, so only the target is compared, as in MM2.
    """
    current = topic
    while True:
        source = policy.topic_source(current)
        if source is None:
            return False
        if source == target_alias:
            return True
        upstream = policy.upstream_topic(current)
        if upstream is None or upstream == current:
            return False
        if source == source_alias:
            return True
        current = upstream


def should_replicate(
    topic: str,
    *,
    policy: ReplicationPolicy,
    topic_filter: TopicFilter,
    source_alias: str,
    target_alias: str,
    heartbeats_replication_enabled: bool = True,
) -> bool:
    """Whether the flow mirrors ``topic`` of its source (MM2's shouldReplicateTopic)."""
    wanted = topic_filter.should_replicate_topic(topic) or (
        heartbeats_replication_enabled and policy.is_heartbeats_topic(topic)
    )
    return (
        wanted
        and not policy.is_internal_topic(topic)
        and not is_cycle(policy, topic, source_alias, target_alias)
    )


class TopicSelection:
    """``should_replicate`` for one flow, with its policy and filter built once."""

    def __init__(self, config: FlowConfig) -> None:
        self.policy: ReplicationPolicy = policy_from(config)
        self._filter = topic_filter_from(config)
        self._flow = config.flow
        self._heartbeats = config.heartbeats_replication_enabled

    def includes(self, topic: str) -> bool:
        """Whether the flow mirrors ``topic`` of its source."""
        return should_replicate(
            topic,
            policy=self.policy,
            topic_filter=self._filter,
            source_alias=self._flow.source,
            target_alias=self._flow.target,
            heartbeats_replication_enabled=self._heartbeats,
        )
