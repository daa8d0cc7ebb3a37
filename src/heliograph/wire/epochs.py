"""OffsetForLeaderEpoch: where a leader's log ends for an epoch. Who knows that sees truncation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.metadata import Metadata

__all__ = ["EpochEnd", "epoch_ends"]

#: Since this version (Kafka 2.3) it is for consumers, too, and Describe is enough.
_FOR_CONSUMERS = 3


class EpochEnd(NamedTuple):
    """The last epoch of a log that is not above the one asked for, and where it ends.

    Both are -1 where the log knows no epochs, or none that is as high.
    """

    error: int
    epoch: int
    offset: int


def epoch_ends(
    client: ClusterClient, metadata: Metadata, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, EpochEnd]:
    """Ask the leaders that ``metadata`` names; one that is not leader any more answers an error.

    Partitions whose leader cannot tell (before Kafka 2.3) are absent.
    """
    request = OffsetForLeaderEpochRequest
    kind = request.OffsetForLeaderTopic
    found: dict[TopicPartition, EpochEnd] = {}
    for node, topics in admin.by_leader(metadata, epochs).items():
        if not client.supports(node, request.API_KEY, _FOR_CONSUMERS):
            continue
        message = request(
            replica_id=-1,
            topics=[
                kind(
                    topic=name,
                    partitions=[
                        kind.OffsetForLeaderPartition(
                            partition=index,
                            current_leader_epoch=metadata.leader_epoch(name, index),
                            leader_epoch=epochs[TopicPartition(name, index)],
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in topics.items()
            ],
        )
        for topic in client.request(message, node).topics:
            for p in topic.partitions:
                key = TopicPartition(topic.topic, p.partition)
                found[key] = EpochEnd(p.error_code, p.leader_epoch, p.end_offset)
    return found
