"""How many bytes partitions take on their leaders' disks. Runs in the driver."""

from __future__ import annotations

from collections.abc import Iterable

from kafka.protocol.admin import DescribeLogDirsRequest

from heliograph.model import TopicPartition
from heliograph.wire.admin import by_leader
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import NONE
from heliograph.wire.metadata import Metadata

__all__ = ["log_sizes"]


def log_sizes(
    client: ClusterClient, metadata: Metadata, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Bytes of each partition; those that a broker does not tell us are absent."""
    found: dict[TopicPartition, int] = {}
    for node, topics in by_leader(metadata, partitions).items():
        kind = DescribeLogDirsRequest.DescribableLogDirTopic
        asked = [kind(topic=name, partitions=indexes) for name, indexes in topics.items()]
        for folder in client.request(DescribeLogDirsRequest(topics=asked), node).results:
            if folder.error_code != NONE:
                continue
            for topic in folder.topics:
                for p in topic.partitions:
                    if not p.is_future_key:
                        found[TopicPartition(topic.name, p.partition_index)] = p.partition_size
    return found
