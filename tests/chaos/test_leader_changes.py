"""Brokers die on both sides while the mirror runs: it follows the leaders and loses nothing."""

import threading
import time

import pytest
from confluent_kafka import Producer
from mirror_process import MirrorProcess, client, configure, ends, wait_for

from heliograph.lab.proof import compare
from heliograph.wire import admin

PARTITIONS = 6
# A dead broker is noticed after 2 s instead of 9, so that the test waits less for Kafka itself.
QUICK = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}


class Writer(threading.Thread):
    """An idempotent producer that goes on through leader changes, a few thousand records/s."""

    def __init__(self, bootstrap, topic):
        super().__init__(daemon=True)
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 10,
            "topic.metadata.refresh.interval.ms": 1000, "message.timeout.ms": 120_000,
        })  # fmt: skip
        self._topic = topic
        self._stopping = threading.Event()
        self.failed = []

    def run(self):
        number = 0
        while not self._stopping.wait(0.02):
            # While a partition has no leader its records wait here; then this waits, too.
            if len(self._producer) < 50_000:
                for _ in range(60):
                    self._producer.produce(
                        self._topic, b"%d" % number, b"key", number % PARTITIONS, self._delivered
                    )
                    number += 1
            self._producer.poll(0)

    def _delivered(self, error, _message):
        if error is not None:
            self.failed.append(error)

    def stop(self):
        self._stopping.set()
        self.join()
        assert self._producer.flush(120) == 0


@pytest.mark.full
def test_f01_f02_leaders_die_on_both_sides(lab_factory, tmp_path):
    lab = lab_factory(brokers=3, settings={"*": QUICK}, heap="384m")
    config = configure(lab, tmp_path, "orders", replicas=3)
    a, b = client(lab["A"]), client(lab["B"])
    failed = admin.create_topics(a, [admin.NewTopic("orders", PARTITIONS, 3, {})], 60_000)
    assert not failed, failed
    writer = Writer(lab["A"].bootstrap, "orders")
    writer.start()
    mirror = MirrorProcess(config, tmp_path / "mirror.log")
    try:
        wait_for(lambda: _all_grow(b), 120, "the mirror copies every partition")
        for cluster, node in ((lab["B"], 2), (lab["A"], 3)):
            cluster.broker(node).kill()
            wait_for(lambda: _all_grow(b), 120, f"copying goes on without broker {node}")
            cluster.broker(node).start()
            cluster.wait_ready()
        writer.stop()
        assert not writer.failed, writer.failed[:3]
        wait_for(lambda: ends(a, "orders") == ends(b, "A.orders"), 120, "the mirror catches up")
        proof = compare(a, b, "orders", "A.orders")
        assert proof.identical, (proof, mirror.log_path.read_text())
        assert proof.compared > 1000
        assert mirror.stop() == 0
    finally:
        writer.stop()
        mirror.destroy()
        a.close()
        b.close()


def _all_grow(b):
    before = ends(b, "A.orders")
    time.sleep(1)
    after = ends(b, "A.orders")
    return len(after) == PARTITIONS and all(after[p] > before.get(p, 0) for p in after)
