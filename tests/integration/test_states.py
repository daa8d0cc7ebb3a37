"""States of partitions: what fails says so at once, is tried again, and recovers by itself."""

from __future__ import annotations

import logging
import re
import time

import pytest
from access import allow, create_topic, flow_config, grant, revoke, settings_of, write_config
from confluent_kafka import Producer
from driving import Driving
from mirroring import wait_for

from heliograph.lab.proof import read_all
from heliograph.model import PartitionState, TopicPartition
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.rights import missing_right

RIGHTS = [
    allow("bob", operation, "topic", name)
    for name in ("mm2-ledger.A.internal", "mm2-offset-syncs.A.internal")
    for operation in ("READ", "WRITE")
] + [allow("bob", o) for o in ("IDEMPOTENT_WRITE", "ALTER", "DESCRIBE", "CREATE")]


class Guarded:
    """A flow of bob's with two topics; alice grants and takes away."""

    def __init__(self, lab, folder, stem, stalled_after):
        self.lab = lab
        self.good, self.bad = f"{stem}-good", f"{stem}-bad"
        self.alice_a = ClusterClient(settings_of(lab, "A"), "test")
        self.alice_b = ClusterClient(settings_of(lab, "B"), "test")
        for topic in (self.good, self.bad):
            create_topic(self.alice_a, topic)
            create_topic(self.alice_b, f"A.{topic}")
            grant(self.alice_a, *(allow("bob", o, "topic", topic) for o in ("READ", "DESCRIBE")))
            remote = ("READ", "WRITE", "DESCRIBE")
            grant(self.alice_b, *(allow("bob", o, "topic", f"A.{topic}") for o in remote))
        grant(self.alice_b, *RIGHTS)
        keys = {
            "topics": f"{stem}.*",
            "heartbeats.replication.enabled": "false",
            "emit.heartbeats.enabled": "false",
            "emit.checkpoints.enabled": "false",
            "offset-syncs.topic.location": "target",
            "heliograph.stalled.after.seconds": str(stalled_after),
        }
        self.config = flow_config(write_config(lab, folder, ("bob", "bob"), **keys))
        login = settings_of(lab, "A").properties
        self._producer = Producer({
            "bootstrap.servers": lab["A"].bootstrap, "linger.ms": 0,
            "security.protocol": login["security.protocol"], "sasl.mechanism": "PLAIN",
            "sasl.username": "alice", "sasl.password": "alice-secret",
        })  # fmt: skip
        self.written = {self.good: 0, self.bad: 0}

    def write(self, topic, count=5):
        for n in range(self.written[topic], self.written[topic] + count):
            self._producer.produce(topic, b"%d" % n)
        assert self._producer.flush(30) == 0
        self.written[topic] += count

    def mirrored(self, topic):
        return [int(r.value) for r in read_all(self.alice_b, TopicPartition(f"A.{topic}", 0))]

    def is_whole(self, topic):
        return self.mirrored(topic) == list(range(self.written[topic]))

    def close(self):
        for client in (self.alice_a, self.alice_b):
            client.close()


@pytest.fixture
def guarded(guarded_lab, tmp_path, topic_name, request):
    made = Guarded(guarded_lab, tmp_path, topic_name, getattr(request, "param", 60))
    yield made
    made.close()


@pytest.fixture
def drive():
    made = []

    def start(config, **options):
        made.append(Driving(config, **options))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.mark.full
def test_f27_a_right_that_is_taken_away_and_given_back(guarded, drive, caplog):
    g = guarded
    caplog.set_level(logging.INFO, "heliograph")
    driving = drive(g.config, topics=2)
    for topic in (g.good, g.bad):
        g.write(topic)
    wait_for(lambda: g.is_whole(g.good) and g.is_whole(g.bad))
    driving.settle(g.good, g.bad)

    lacking = allow("bob", "WRITE", "topic", f"A.{g.bad}")
    revoke(g.alice_b, lacking)
    g.write(g.bad)
    since = time.time()
    failed = driving.await_state(g.bad, PartitionState.FAILED)
    assert failed.code == "target.refused"
    right = missing_right(settings_of(g.lab, "B", "bob"), "Write", "topic", f"A.{g.bad}")
    assert failed.why.endswith(f"-> {right}")
    assert failed.since == pytest.approx(since, abs=60)
    assert failed.retry_at > failed.since

    # It goes on failing over several leases: still the same failure, tried less and less often.
    later = wait_for(lambda: (r := driving.reports()[g.bad]).retry_at - r.since > 12 and r)
    assert later.since == failed.since
    assert driving.events(g.bad) == ["partition.failed"]
    # Meanwhile its neighbour is mirrored as if nothing were.
    slowest = 0.0
    for _ in range(20):
        g.write(g.good)
        written = time.monotonic()
        wait_for(lambda: g.is_whole(g.good))
        slowest = max(slowest, time.monotonic() - written)
    # A pause of the failed one would show as 8 s and more.
    assert slowest < 5, "a neighbour waits"
    assert driving.state(g.good) in {PartitionState.IDLE, PartitionState.COPYING}
    assert set(driving.monitor.failing()) == {TopicPartition(g.bad, 0)}

    grant(g.alice_b, lacking)
    driving.await_state(g.bad, PartitionState.IDLE, PartitionState.COPYING)
    wait_for(lambda: g.is_whole(g.bad))
    assert driving.events(g.bad) == ["partition.failed", "partition.recovered"]
    recovered = driving.monitor.events.latest[-1]
    assert re.match(r"is mirrored again, after \d+ s; it had failed with target.refused",
                    recovered.text)  # fmt: skip
    told = [r.getMessage() for r in caplog.records if "target.refused" in r.getMessage()]
    assert len(told) == 2, "once when it began, once when it was over"
    assert f"A->B {g.bad}-0 [partition.failed]: failed since " in told[0]
    assert ", tried again at " in told[0]


@pytest.mark.full
def test_without_the_channel_receipts_tell_it_all(guarded, drive):
    g = guarded
    driving = drive(g.config, topics=2, reports=False, lease_seconds=3.0)
    g.write(g.bad)
    wait_for(lambda: g.is_whole(g.bad))
    driving.settle(g.good, g.bad)
    lacking = allow("bob", "READ", "topic", g.bad)
    revoke(g.alice_a, lacking)
    failed = driving.await_state(g.bad, PartitionState.FAILED)
    assert failed.code == "source.refused"
    assert f"User:bob may not Read topic {g.bad} on cluster A" in failed.why
    grant(g.alice_a, lacking)
    driving.await_state(g.bad, PartitionState.IDLE)
    # A state is shown a moment before its event is published.
    wait_for(lambda: len(driving.events(g.bad)) >= 2)
    assert driving.events(g.bad) == ["partition.failed", "partition.recovered"]


@pytest.mark.full
@pytest.mark.parametrize("guarded", [6], indirect=True)
def test_f31_a_source_that_hangs_is_told_and_so_is_its_return(guarded, drive):
    g = guarded
    driving = drive(g.config, topics=2, lease_seconds=600.0)
    g.write(g.good)
    wait_for(lambda: g.is_whole(g.good))
    driving.settle(g.good, g.bad)
    broker = g.lab["A"].brokers[0]
    broker.suspend()
    try:
        stalled = driving.await_state(g.good, PartitionState.STALLED)
        assert stalled.why.startswith("not measured since then: cluster A does not answer; check")
        assert time.time() - stalled.since >= 6
    finally:
        broker.resume()
    driving.await_state(g.good, PartitionState.IDLE)
    assert driving.events(g.good) == ["partition.stalled", "partition.recovered"]
    g.write(g.good)
    wait_for(lambda: g.is_whole(g.good))
    # In the middle of a lease of ten minutes: what happens is told at once.
    lacking = allow("bob", "READ", "topic", g.bad)
    revoke(g.alice_a, lacking)
    driving.await_state(g.bad, PartitionState.FAILED)
    grant(g.alice_a, lacking)
    driving.await_state(g.bad, PartitionState.IDLE)


def test_an_aborted_tail_is_no_lag_long_before_the_lease_ends(pair, lab, drive, topic_name):
    p = pair(**{
        "A->B.topics": topic_name,
        "heliograph.offsets": "dense",
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
    })  # fmt: skip
    p.create(p.source, topic_name)
    driving = drive(p.config, lease_seconds=600.0)
    driving.settle(topic_name)
    wait_for(lambda: driving.leases >= 2)
    producer = Producer({
        "bootstrap.servers": lab["A"].bootstrap, "transactional.id": topic_name, "log_level": 0
    })  # fmt: skip
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic_name, b"x")
        producer.flush()
        end()
    # One record, a marker, an aborted record, its marker.
    wait_for(lambda: driving.monitor._lags[TopicPartition(topic_name, 0)].source_end == 4)
    wait_for(lambda: driving.snapshot().lag_records == 0)
    driving.await_state(topic_name, PartitionState.IDLE)
