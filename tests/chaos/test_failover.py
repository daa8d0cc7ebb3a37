"""The source dies; its consumer groups go on at the target, at the very next record."""

import random
import threading
import time
from collections import defaultdict

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from mirror_process import MirrorProcess, client, configure, create_topic, wait_for

from heliograph.client.offsets import FlowOffsets
from heliograph.config import load

TOPICS = [f"orders-{i:02}" for i in range(20)]
PARTITIONS = 6
KEYS = [(topic, i) for topic in TOPICS for i in range(PARTITIONS)]
GROUP = "billing"


class NumberedProducer(threading.Thread):
    """Writes numbered records in transactions, some of which are aborted, until stopped."""

    def __init__(self, bootstrap):
        super().__init__(daemon=True)
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "transactional.id": "orders", "linger.ms": 10,
            "log_level": 0,
        })  # fmt: skip
        self._dice = random.Random(5)
        self._stopping = threading.Event()
        self.counts = defaultdict(int)

    def run(self):
        self._producer.init_transactions()
        while not self._stopping.is_set():
            aborted, counts = self._dice.random() < 0.2, dict(self.counts)
            self._producer.begin_transaction()
            for _ in range(200):
                key = self._dice.choice(KEYS)
                number = counts.get(key, 0)
                counts[key] = number + 1
                value = b"aborted" if aborted else b"%d" % number
                self._producer.produce(key[0], value, partition=key[1])
            self._producer.flush()
            if aborted:
                self._producer.abort_transaction()
            else:
                self._producer.commit_transaction()
                self.counts.update(counts)
            self._stopping.wait(0.05)

    def stop(self):
        self._stopping.set()
        self.join()


def consumer(bootstrap):
    return Consumer({
        "bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "isolation.level": "read_committed", "log_level": 0,
    })  # fmt: skip


def consume(consumer, processed, until, prefix=""):
    """Take what comes until ``until()``; each record's number is kept in order of arrival."""
    while not until():
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            key = (message.topic().removeprefix(prefix), message.partition())
            processed[key].append((int(message.value()), message.offset()))


# `make test` has the same with leases in its own process: test_s76_s77_many_groups_fail_over.
@pytest.mark.full
@pytest.mark.parametrize("offsets", ["auto", "dense"])
def test_a_group_of_120_partitions_goes_on_at_the_next_record(lab_factory, tmp_path, offsets):
    lab = lab_factory()
    a, b = lab["A"], lab["B"]
    config = configure(
        lab,
        tmp_path,
        "orders-.*",
        keys=["A->B.sync.group.offsets.enabled = true", f"heliograph.offsets = {offsets}"],
    )
    with client(a) as admin:
        for topic in TOPICS:
            create_topic(admin, topic, PARTITIONS)
        # Brokers show young topics a moment later, and a consumer takes that for an error.
        wait_for(lambda: set(TOPICS) <= admin.metadata(TOPICS).topics.keys(), 120, "they are known")
    producer = NumberedProducer(a.bootstrap)
    mirror = MirrorProcess(config, tmp_path / "mirror.log")
    before: dict[tuple[str, int], list] = defaultdict(list)
    after: dict[tuple[str, int], list] = defaultdict(list)
    try:
        producer.start()
        here = consumer(a.bootstrap)
        here.subscribe(TOPICS)
        # It is behind the producer when A dies: both its backlog and what comes next matter.
        consume(here, before, lambda: sum(map(len, before.values())) > 8000)
        committed = {key: seen[-1][1] + 1 for key, seen in before.items()}
        here.commit(offsets=[TopicPartition(*k, o) for k, o in committed.items()],
                    asynchronous=False)  # fmt: skip
        here.close()
        time.sleep(1)  # the producer goes on without the group
        producer.stop()
        flow = next(f for f in load(config).flows if f.enabled)
        with FlowOffsets(flow) as across:
            wait_for(lambda: synced(b, across, committed), 120, "the group's offsets are synced")
            wait_for(lambda: mirrored(b, producer.counts), 120, "all records are mirrored")
        for broker in a.brokers:
            broker.kill()
        there = consumer(b.bootstrap)
        there.subscribe([f"A.{topic}" for topic in TOPICS])
        total = sum(producer.counts.values()) - sum(map(len, before.values()))
        consume(there, after, lambda: sum(map(len, after.values())) >= total, "A.")
        # One more look: what came twice would come now.
        assert not there.consume(1, 2)
        there.close()
    finally:
        producer.stop()
        mirror.destroy()
    for key in KEYS:
        numbers = [n for n, _ in before[key] + after[key]]
        assert numbers == list(range(producer.counts[key])), key


def synced(b, across, committed):
    """Whether the group has, on B, what it committed on A last."""
    watcher = consumer(b.bootstrap)
    try:
        wanted = [TopicPartition(f"A.{topic}", partition) for topic, partition in committed]
        found = {(c.topic, c.partition): c.offset for c in watcher.committed(wanted, 10)}
    except KafkaException:
        return False  # a coordinator that was never asked before is not ready at once
    finally:
        watcher.close()
    return all(
        found[f"A.{topic}", partition] == across.to_target(topic, partition, offset).offset
        for (topic, partition), offset in committed.items()
    )


def mirrored(b, counts):
    """Whether the last record of every partition is on B."""
    watcher = Consumer({
        "bootstrap.servers": b.bootstrap, "group.id": "watching", "log_level": 0,
        "enable.auto.commit": False, "isolation.level": "read_committed",
    })  # fmt: skip
    last = {}
    try:
        watcher.assign([TopicPartition(f"A.{t}", p, 0) for t, p in counts])
        while messages := watcher.consume(5000, 1.0):
            last |= {(m.topic().removeprefix("A."), m.partition()): int(m.value())
                     for m in messages}  # fmt: skip
    finally:
        watcher.close()
    return all(last.get(key, -1) == n - 1 for key, n in counts.items())
