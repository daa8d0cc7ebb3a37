"""Source topics with gaps: transactions, and what the cleaner leaves of a compacted topic."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress

from mirroring import PATIENCE_SECONDS, wait_for

from heliograph.batch.filler import filler
from heliograph.batch.header import batches
from heliograph.lab.proof import read_all
from heliograph.model import TopicPartition
from heliograph.wire import admin, log
from heliograph.wire.errors import ConnectionFailed


def numbered(count: int, name: str = "v") -> list[bytes]:
    return [b"%s-%d" % (name.encode(), n) for n in range(count)]


def transactions(mirroring, topic, plan, **config):
    """plan: (values, commit?); returns the committed values."""
    producer = mirroring.producer(**{"transactional.id": uuid.uuid4().hex, **config})
    producer.init_transactions(PATIENCE_SECONDS)
    committed = []
    for values, commit in plan:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, b"k", 0, timestamp=1_700_000_000_000)
        producer.flush(PATIENCE_SECONDS)
        if commit:
            producer.commit_transaction(PATIENCE_SECONDS)
            committed += values
        else:
            producer.abort_transaction(PATIENCE_SECONDS)

    # A commit is acknowledged before its marker is written.
    def decided():
        with suppress(ConnectionFailed):
            stable = mirroring.offsets(mirroring.source, topic, admin.LATEST, read_committed=True)
            return stable == mirroring.offsets(mirroring.source, topic, admin.LATEST)

    wait_for(decided)
    return committed


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
}


def compacted_source(quick, topic, rounds):
    """Keys written again and again in whole batches, until the cleaner has made its holes."""
    quick.create(topic, configs=COMPACTED, target_configs={"cleanup.policy": "delete"})
    part = TopicPartition(topic, 0)
    for n, keys in enumerate(rounds):
        producer = quick.producer(**{"linger.ms": 200})
        for key in keys:
            producer.produce(topic, b"%d/%d" % (n, key), b"key-%d" % key, 0)
        assert producer.flush(PATIENCE_SECONDS) == 0
    wanted = len({key for keys in rounds for key in keys})
    rolls = 0

    def cleaned():
        nonlocal rolls
        # A write after segment.ms, by its timestamp, rolls the segment, so that it can be cleaned.
        producer = quick.producer()
        # Each has a key of its own: what is cleaned once stays as it is.
        producer.produce(topic, b"roll", b"roll-%d" % rolls, 0)
        assert producer.flush(PATIENCE_SECONDS) == 0
        rolls += 1
        time.sleep(0.2)
        # Headers first: it takes seconds to decode a long log, and many looks.
        if sum(count for _, count in headers(quick, part)) > wanted + rolls:
            return False
        found = [r for r in read_all(quick.source, part) if r.key.startswith(b"key-")]
        return len(found) == wanted

    wait_for(cleaned)


def headers(quick, part):
    """The base offset and the number of records of every batch on the source."""
    return [
        (header.base_offset, header.record_count)
        for chunk in log.read_to_end(quick.source, part, 0)
        for header, _ in batches(chunk)
    ]


def fill(mirroring, partition, until):
    """Moves the source's end and start to ``until``, as years of retention do."""
    at = 0
    while at < until:
        count = min(100_000, until - at)
        log.append(mirroring.source, partition, filler(count, 424242, at))
        at += count
    mirroring.trim(mirroring.source, partition, -1)
