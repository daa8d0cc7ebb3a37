"""Batches written as they are: producers do not let one choose what is in a batch."""

from __future__ import annotations

import select
from collections.abc import Iterable

from benchmarks.bench import PARTITIONS
from heliograph.model import ClientSettings, TopicPartition
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import check
from heliograph.wire.produce import Producer

__all__ = ["append", "client_of"]

_MOST_IN_FLIGHT = 20


def client_of(bootstrap: str) -> ClusterClient:
    """A client of the benchmark's own; to be closed."""
    return ClusterClient(ClientSettings("bench", {"bootstrap.servers": bootstrap}), "benchmark")


def append(bootstrap: str, topic: str, batches: Iterable[memoryview]) -> None:
    """Appends each batch to all partitions of ``topic``, which so have the same log.

    Returns when the last one is acknowledged.

    Raises:
        WireError: the cluster, which is one broker, did not take one.
    """
    partitions = [TopicPartition(topic, i) for i in range(PARTITIONS)]
    with client_of(bootstrap) as client:
        metadata = client.metadata([topic])
        connection = client.connection(metadata.leader(topic, 0))
        producer = Producer(connection, {topic: metadata.topics[topic].topic_id})
        for batch in batches:
            producer.send([(partition, batch) for partition in partitions])
            _take_answers(producer, _MOST_IN_FLIGHT)
        _take_answers(producer, 0)


def _take_answers(producer: Producer, most_left: int) -> None:
    """Waits until at most ``most_left`` requests are unanswered."""
    connection = producer.connection
    while connection.in_flight > most_left:
        connection.flush()
        answers = producer.receive()
        if answers is None:
            select.select([connection], [connection] if connection.wants_write else [], [], 1.0)
            continue
        for answer in answers:
            check(answer.error, f"writing {answer.partition}", answer.message)
