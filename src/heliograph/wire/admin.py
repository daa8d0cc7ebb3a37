"""Questions to a cluster and changes of it, each in the words of the caller. Runs anywhere.

Functions that go to partition leaders return what they learnt per partition and raise only when a
whole broker fails; a caller that gets an incomplete answer refreshes metadata and asks again.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeProducersRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest

from heliograph.model import TopicPartition
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import (
    NONE,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    check,
)
from heliograph.wire.metadata import Metadata
from heliograph.wire.rights import denied, missing_right

EARLIEST, LATEST = -2, -1
_PATIENCE_SECONDS = 30.0
#: The first Metadata version that takes topic ids instead of names.
_METADATA_BY_ID = 12
#: The first DeleteTopics version that takes topic ids.
_DELETE_TOPICS_BY_ID = 6
_UNSUPPORTED_VERSION = 35
#: AclOperation, as bits of what a cluster or topic lets us do.
_READ, _WRITE, _DELETE, _ALTER, _DESCRIBE, _CLUSTER_ACTION = 3, 4, 6, 7, 8, 9


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a partition leader remembers of one producer.

    ``transaction_start`` is the first offset of the transaction that it has open, else -1.
    ``epoch`` is the producer's.
    """

    producer_id: int
    last_sequence: int
    last_timestamp: int
    transaction_start: int = -1
    epoch: int = 0


def by_leader(
    metadata: Metadata, partitions: Iterable[TopicPartition]
) -> dict[int, dict[str, list[int]]]:
    """Group partitions by leader and topic; those without a leader are left out."""
    groups: dict[int, dict[str, list[int]]] = {}
    for p in partitions:
        leader = metadata.leader(p.topic, p.partition)
        if leader >= 0:
            groups.setdefault(leader, {}).setdefault(p.topic, []).append(p.partition)
    return groups


def list_offsets(
    client: ClusterClient,
    metadata: Metadata,
    partitions: Iterable[TopicPartition],
    at: int,
    *,
    read_committed: bool = False,
    fenced: bool = False,
) -> dict[TopicPartition, int]:
    """Log start (EARLIEST) or end (LATEST) of partitions; those that did not answer are absent.

    The end is the high watermark, or with ``read_committed`` the last stable offset. With
    ``fenced``, only a leader of the epoch that ``metadata`` names answers: one that was deposed,
    and does not know it yet, would tell of an old log.
    """
    request = ListOffsetsRequest
    found: dict[TopicPartition, int] = {}
    for node, topics in by_leader(metadata, partitions).items():
        asked = [
            request.ListOffsetsTopic(
                name=name,
                partitions=[
                    request.ListOffsetsTopic.ListOffsetsPartition(
                        partition_index=index,
                        current_leader_epoch=(metadata.leader_epoch(name, index) if fenced else -1),
                        timestamp=at,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in topics.items()
        ]
        message = request(replica_id=-1, isolation_level=int(read_committed), topics=asked)
        for topic in client.request(message, node).topics:
            for p in topic.partitions:
                if p.error_code == NONE:
                    found[TopicPartition(topic.name, p.partition_index)] = p.offset
    return found


def describe_producers(
    client: ClusterClient, metadata: Metadata, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ProducerState]]:
    """Active producers of partitions; those whose leader did not answer are absent.

    Brokers before 2.8 do not tell: to them, no partition has any.
    """
    found: dict[TopicPartition, list[ProducerState]] = {}
    for node, topics in by_leader(metadata, partitions).items():
        if not client.supports(node, DescribeProducersRequest.API_KEY, 0):
            found |= {TopicPartition(t, i): [] for t, indexes in topics.items() for i in indexes}
            continue
        message = DescribeProducersRequest(
            topics=[
                DescribeProducersRequest.TopicRequest(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ]
        )
        for topic in client.request(message, node).topics:
            for p in topic.partitions:
                if p.error_code == NONE:
                    found[TopicPartition(topic.name, p.partition_index)] = [
                        ProducerState(
                            a.producer_id,
                            a.last_sequence,
                            a.last_timestamp,
                            a.current_txn_start_offset,
                            a.producer_epoch,
                        )
                        for a in p.active_producers
                    ]
    return found


def allocate_producer_id(client: ClusterClient) -> int:
    """A producer id that nobody else in this cluster has or will get."""
    message = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )

    def call() -> int:
        response = client.request(message)
        right = None
        if denied(response.error_code):
            right = missing_right(client.settings, "IdempotentWrite", "cluster")
        check(response.error_code, f"allocating a producer id on cluster {client.alias}", right)
        return int(response.producer_id)

    # A young cluster answers COORDINATOR_LOAD_IN_PROGRESS until it has its first block of ids.
    return client.retry(call, _PATIENCE_SECONDS)


def create_topics(
    client: ClusterClient,
    topics: Iterable[NewTopic],
    timeout_ms: int,
    *,
    validate_only: bool = False,
) -> dict[str, BrokerError]:
    """Create topics; returns those that failed. A topic that exists already is no failure.

    With ``validate_only`` nothing is created.
    """
    request = CreateTopicsRequest
    wanted = [
        request.CreatableTopic(
            name=t.name,
            num_partitions=t.partitions,
            replication_factor=t.replication_factor,
            assignments=[],
            configs=[
                request.CreatableTopic.CreatableTopicConfig(name=k, value=v)
                for k, v in t.configs.items()
            ],
        )
        for t in topics
    ]
    if not wanted:
        return {}
    message = request(topics=wanted, timeout_ms=timeout_ms, validate_only=validate_only)
    response = client.to_controller(message, timeout_ms / 1000)
    return _failures(response.topics, "creating topic", client, {TOPIC_ALREADY_EXISTS})


def create_partitions(
    client: ClusterClient,
    counts: Mapping[str, int],
    timeout_ms: int,
    *,
    validate_only: bool = False,
) -> dict[str, BrokerError]:
    """Grow topics to the given partition counts; returns those that failed.

    With ``validate_only`` nothing is changed.
    """
    request = CreatePartitionsRequest
    if not counts:
        return {}
    message = request(
        topics=[
            request.CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in counts.items()
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )
    response = client.to_controller(message, timeout_ms / 1000)
    return _failures(response.results, "adding partitions to topic", client, set())


def delete_topics(
    client: ClusterClient, topics: Mapping[uuid.UUID, str], timeout_ms: int
) -> dict[uuid.UUID, BrokerError]:
    """Delete topics by their ids; returns those that failed. The names are for messages only.

    A topic that has one of the names but another id is never touched. Brokers before 2.8 know no
    ids: then all fail.
    """
    request = DeleteTopicsRequest
    what = {i: f"deleting topic {name} on cluster {client.alias}" for i, name in topics.items()}
    if not client.supports(-1, request.API_KEY, _DELETE_TOPICS_BY_ID):
        return {i: BrokerError(_UNSUPPORTED_VERSION, what[i]) for i in topics}
    message = request(
        topics=[request.DeleteTopicState(name=None, topic_id=i) for i in topics],
        timeout_ms=timeout_ms,
    )
    response = client.to_controller(message, timeout_ms / 1000)
    return {
        r.topic_id: BrokerError(r.error_code, what[r.topic_id], r.error_message)
        for r in response.responses
        if r.error_code != NONE
    }


def _failures(
    results: Iterable[Any], what: str, client: ClusterClient, fine: set[int]
) -> dict[str, BrokerError]:
    return {
        r.name: BrokerError(
            r.error_code, f"{what} {r.name} on cluster {client.alias}", r.error_message
        )
        for r in results
        if r.error_code != NONE and r.error_code not in fine
    }


def delete_records(
    client: ClusterClient, metadata: Metadata, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Move log starts; returns the error code of each partition that was asked and answered."""
    request = DeleteRecordsRequest
    found: dict[TopicPartition, int] = {}
    for node, topics in by_leader(metadata, before).items():
        message = request(
            topics=[
                request.DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        request.DeleteRecordsTopic.DeleteRecordsPartition(
                            partition_index=index, offset=before[TopicPartition(name, index)]
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in topics.items()
            ],
            timeout_ms=int(client.request_timeout * 1000),
        )
        for topic in client.request(message, node).topics:
            for p in topic.partitions:
                found[TopicPartition(topic.name, p.partition_index)] = p.error_code
    return found


def may_write_markers(client: ClusterClient) -> bool:
    """Whether the cluster lets us fill gaps; unknown (False) before 2.8."""
    try:
        return bool({_ALTER, _CLUSTER_ACTION} & cluster_operations(client))
    except BrokerError:
        return False


def cluster_operations(client: ClusterClient) -> frozenset[int]:
    """What we may do to the cluster, as codes of AclOperation; nothing without DESCRIBE on it.

    Raises BrokerError before 2.8, which does not tell.
    """
    message = DescribeClusterRequest(include_cluster_authorized_operations=True)
    return frozenset(client.request(message).authorized_operations or ())


def deletable(client: ClusterClient, topics: Iterable[str]) -> set[str]:
    """Topics whose records we may delete."""
    return {
        name for name, allowed in topic_operations(client, topics).items() if _DELETE in allowed
    }


def unreadable(client: ClusterClient, topics: Iterable[str]) -> set[str]:
    """Topics that we may see but not read; none before 2.3, which does not tell."""
    return _forbidden(client, topics, _READ)


def unwritable(client: ClusterClient, topics: Iterable[str]) -> set[str]:
    """Topics that we may see but not write to; none before 2.3, which does not tell."""
    return _forbidden(client, topics, _WRITE)


def _forbidden(client: ClusterClient, topics: Iterable[str], operation: int) -> set[str]:
    # Whoever sees a topic may describe it: where not even that is said, nothing is.
    return {
        name for name, allowed in topic_operations(client, topics).items()
        if _DESCRIBE in allowed and operation not in allowed
    }  # fmt: skip


def topic_operations(client: ClusterClient, topics: Iterable[str]) -> dict[str, Collection[int]]:
    """What we may do to topics, as codes of AclOperation, as far as we see them."""
    request = MetadataRequest
    message = request(
        topics=[request.MetadataRequestTopic(topic_id=None, name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    return {
        t.name: t.authorized_operations or ()
        for t in client.request(message).topics if t.error_code == NONE
    }  # fmt: skip


def unknown_topic_ids(client: ClusterClient, ids: Iterable[uuid.UUID]) -> set[uuid.UUID]:
    """Ids of which the cluster says that no topic has them; none before 3.1, which cannot tell.

    A topic that we may not see is not among them: the answer is then another.
    """
    request = MetadataRequest
    if not tells_topic_ids(client):
        return set()
    message = request(
        topics=[request.MetadataRequestTopic(topic_id=i, name=None) for i in ids],
        allow_auto_topic_creation=False,
    )
    return {t.topic_id for t in client.request(message).topics if t.error_code == UNKNOWN_TOPIC_ID}


def tells_topic_ids(client: ClusterClient) -> bool:
    """Whether the cluster can say that no topic has an id (since 3.1)."""
    return client.supports(-1, MetadataRequest.API_KEY, _METADATA_BY_ID)


def absent_topics(client: ClusterClient, names: Iterable[str]) -> set[str]:
    """Names of which the cluster says that no topic has them.

    A topic that we may not see is not among them: the answer is then another.
    """
    request = MetadataRequest
    message = request(
        topics=[request.MetadataRequestTopic(topic_id=None, name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    return {
        t.name for t in client.request(message).topics if t.error_code == UNKNOWN_TOPIC_OR_PARTITION
    }
