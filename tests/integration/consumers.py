"""What real consumers read, on either side."""

from __future__ import annotations

import uuid

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assignment
from mirroring import wait_for

from heliograph.model import TopicPartition
from heliograph.wire import admin


def same(mirroring, topic, partition=0):
    """Every visible record of the source, and nothing else, at its own offset on the target."""
    here = visible(mirroring, "A", topic, partition)
    there = visible(mirroring, "B", f"A.{topic}", partition)
    differ = [pair for pair in zip(here, there, strict=False) if pair[0] != pair[1]]
    assert not differ, f"first difference: {differ[0]}"
    assert len(there) == len(here)
    # No filler and no aborted data, whatever the consumer's isolation level.
    there = visible(mirroring, "B", f"A.{topic}", partition, isolation="read_uncommitted")
    assert there == here
    return here


def visible(mirroring, alias, topic, partition=0, isolation="read_committed"):
    """What confluent-kafka, a real consumer, reads from the beginning to the end."""
    client = mirroring.source if alias == "A" else mirroring.target
    end = mirroring.offsets(client, topic, admin.LATEST)[TopicPartition(topic, partition)]
    consumer = Consumer({
        "bootstrap.servers": mirroring.lab[alias].bootstrap, "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest", "enable.partition.eof": False,
        "isolation.level": isolation, "enable.auto.commit": False, "fetch.wait.max.ms": 20,
    })  # fmt: skip
    consumer.assign([Assignment(topic, partition, -2)])
    found = []

    def at_end():
        for message in consumer.consume(5000, 0.2):
            assert message.error() is None, message.error()
            found.append((
                message.offset(), message.key(), message.value(), message.headers(),
                message.timestamp(),
            ))  # fmt: skip
        [position] = consumer.position([Assignment(topic, partition)])
        return end == 0 or position.offset >= end

    wait_for(at_end)
    consumer.close()
    return found
