"""What a cluster says about itself: brokers, topics with their ids, leaders and epochs."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heliograph.shown import shown
from heliograph.wire.errors import NONE, TOPIC_AUTHORIZATION_FAILED, DamagedAnswer

NO_ID = uuid.UUID(int=0)
#: The names that brokers accept; anything else was not said by one.
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Where a partition lives now. ``leader`` is -1 while there is none.

    ``in_sync`` counts the replicas that have all that was acknowledged; -1: not told.
    """

    leader: int
    leader_epoch: int
    replicas: int
    in_sync: int = -1


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic: its id tells a re-created topic from the old one (NO_ID before Kafka 2.8)."""

    name: str
    topic_id: uuid.UUID
    internal: bool
    partitions: Mapping[int, PartitionInfo]


@dataclass(frozen=True, slots=True)
class Metadata:
    """One answer to a Metadata request; ``denied`` are topics asked for that we may not see."""

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, tuple[str, int]]
    topics: Mapping[str, TopicInfo]
    denied: frozenset[str] = frozenset()

    def leader(self, topic: str, partition: int) -> int:
        """Node id of the leader, -1 if unknown."""
        info = self.topics.get(topic)
        if info is None or partition not in info.partitions:
            return -1
        return info.partitions[partition].leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """How often the partition's leader has changed, -1 if unknown."""
        info = self.topics.get(topic)
        if info is None or partition not in info.partitions:
            return -1
        return info.partitions[partition].leader_epoch


def parse_metadata(response: Any) -> Metadata:
    """From kafka-python's response object; topics with an error are left out."""
    topics = {}
    for topic in response.topics:
        if topic.error_code != NONE or topic.name is None:
            continue
        if not _TOPIC_NAME.fullmatch(topic.name):
            raise DamagedAnswer(f"a broker names a topic {shown(topic.name)!r}")
        partitions = {
            p.partition_index: PartitionInfo(
                p.leader_id, p.leader_epoch, len(p.replica_nodes), len(p.isr_nodes)
            )
            for p in topic.partitions
        }
        topic_id = topic.topic_id or NO_ID
        topics[topic.name] = TopicInfo(topic.name, topic_id, bool(topic.is_internal), partitions)
    brokers = {b.node_id: (b.host, b.port) for b in response.brokers}
    denied = frozenset(
        t.name for t in response.topics if t.error_code == TOPIC_AUTHORIZATION_FAILED and t.name
    )
    cluster_id = response.cluster_id or ""
    return Metadata(cluster_id, response.controller_id, brokers, topics, denied)
