"""What was at risk is known when the source and its mirror are dead, by the target alone.

All of the driver but Spark: leases are held by plain processes.
"""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from confluent_kafka import Producer
from driving import PlainEngine
from mirroring import settings, wait_for

from heliograph.config import MirrorMakerConfig
from heliograph.ledger.flow_ledger import FlowLedger
from heliograph.model import TopicPartition
from heliograph.service import mirror as service
from heliograph.service.snapshot import COPYING, FlowState
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

TOPIC = "orders"
PARTITIONS = 3


@pytest.fixture(scope="module")
def doomed(module_lab_factory):
    """Its source is killed."""
    return module_lab_factory()


def config(lab):
    one = dict.fromkeys(
        ("replication.factor", "offset-syncs.topic.replication.factor",
         "checkpoints.topic.replication.factor", "heartbeats.topic.replication.factor"), "1",
    )  # fmt: skip
    return MirrorMakerConfig.from_mapping({
        "clusters": "A, B", "A->B.enabled": "true", "A->B.topics": TOPIC,
        "A.bootstrap.servers": lab["A"].bootstrap, "B.bootstrap.servers": lab["B"].bootstrap,
        "emit.heartbeats.enabled": "false", "heartbeats.replication.enabled": "false",
        "emit.checkpoints.enabled": "false", "refresh.topics.interval.seconds": "1",
        "heliograph.lease.seconds": "5", **one,
    })  # fmt: skip


def ends(client, topic):
    wanted = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    found = admin.list_offsets(client, client.metadata([topic]), wanted, admin.LATEST)
    return {p.partition: end for p, end in found.items()}


def last_words(target):
    """As somebody reads them who knows the target only."""
    ledger = FlowLedger(target, "mm2-ledger.A.internal")
    ledger.source_ends.refresh()
    return ledger.source_ends.last


def write(lab, *counts):
    producer = Producer({"bootstrap.servers": lab["A"].bootstrap, "linger.ms": 0})
    for partition, count in enumerate(counts):
        for n in range(count):
            producer.produce(TOPIC, b"%d" % n, partition=partition)
    assert producer.flush(60) == 0


# `make test` has the figure compared with the disks in test_bad_day.
@pytest.mark.full
def test_the_ledger_has_what_the_source_holds_beyond_its_mirror_when_both_are_dead(
    doomed, monkeypatch
):
    monkeypatch.setattr(service, "Engine", PlainEngine)
    target = ClusterClient(settings(doomed, "B"), "test")
    with closing(target), closing(ClusterClient(settings(doomed, "A"), "test")) as source:
        new = admin.NewTopic(TOPIC, PARTITIONS, 1, {})
        assert admin.create_topics(source, [new], 30_000) == {}
        wait_for(lambda: TOPIC in source.metadata([TOPIC]).topics)
        write(doomed, 10, 10, 10)
        mirror = service.Mirror(config(doomed))
        mirror.start()
        try:
            last = _until_the_source_is_killed(doomed, mirror, source, target)
        finally:
            mirror.close()
        assert last_words(target) == last, "it outlives the mirror"


def _until_the_source_is_killed(lab, mirror, source, target):
    def at_risk():
        return mirror.snapshot().flow("A->B").at_risk

    wait_for(lambda: (last := last_words(target)) and last.records == 0 and not last.unmeasured)
    wait_for(lambda: ends(target, f"A.{TOPIC}") == dict.fromkeys(range(PARTITIONS), 10))
    supervisor = mirror.supervisor("A->B")
    supervisor.pause(COPYING)
    wait_for(lambda: mirror.snapshot().flow("A->B").life.state is FlowState.PAUSED)
    write(lab, 7, 5, 0)
    last = wait_for(lambda: (last := last_words(target)) and last.records == 12 and last)
    held, mirrored = ends(source, TOPIC), ends(target, f"A.{TOPIC}")
    beyond = {TopicPartition(TOPIC, n): e for n, e in held.items() if e > mirrored[n]}
    assert (last.ends, last.complete, last.unmeasured) == (beyond, True, 0)
    assert sum(held.values()) - sum(mirrored.values()) == last.records
    risk = wait_for(lambda: (risk := at_risk()) and risk.records and risk)
    assert (risk.records, risk.topics, risk.unmeasured) == (12, 1, 0)
    # Nothing changes any more, and it is said again that nothing does.
    assert wait_for(lambda: (again := last_words(target)).at_ms > last.at_ms and again).ends == (
        beyond
    )
    lab["A"].broker(1).kill()
    killed_ms = time.time() * 1000
    wait_for(lambda: at_risk().unmeasured)
    silent = last_words(target)
    # The mirror goes on asking for longer than it takes to note what has not changed.
    wait_for(lambda: time.time() * 1000 > silent.at_ms + 12_000)
    last = last_words(target)
    assert last == silent
    assert last.at_ms <= killed_ms
    assert (last.ends, last.records) == (beyond, 12)
    risk = at_risk()
    assert risk.records == 12
    assert last.at_ms <= risk.measured_at * 1000 + 1 <= killed_ms + 1
    return last
