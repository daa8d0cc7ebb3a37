"""The mirror as its users run it: a process tree that can be killed piece by piece."""

import os
import signal
import subprocess
import sys
import threading
import time

import psutil

from heliograph.batch.records import Record, build
from heliograph.model import ClientSettings, TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import is_retriable
from heliograph.wire.produce import Producer


class MirrorProcess:
    """``heliograph run`` in a session of its own."""

    def __init__(self, config, log_path, *args):
        self.log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "heliograph", "run", str(config), "-o", "plain", *args],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.pid = self._process.pid

    def tree(self):
        """(driver, JVM or None, daemon and workers)."""
        driver = psutil.Process(self.pid)
        children = driver.children(recursive=True)
        jvm = next((c for c in children if c.name() == "java"), None)
        workers = [c for c in children if "heliograph.spark.daemon" in " ".join(_cmdline(c))]
        return driver, jvm, workers

    def kill(self, victim, dice):
        """kill -9 of the ``driver``, the ``jvm`` or one ``worker`` of a mirror that is copying."""
        if victim == "worker":
            wait_for(self.lease_holders, 60, "a worker holds a lease")
            dice.choice(self.lease_holders()).kill()
            return
        driver, jvm, _ = self.tree()
        {"driver": driver, "jvm": jvm}[victim].kill()
        if victim == "driver":
            self._process.wait()

    def lease_holders(self):
        """The workers that Spark has forked from their daemon."""
        _, jvm, workers = self.tree()
        return [w for w in workers if jvm is not None and w.ppid() != jvm.pid]

    def signal_all(self, number, *, but_the_driver=False):
        """The same signal to the whole tree, as it stands."""
        driver, jvm, workers = self.tree()
        for process in (None if but_the_driver else driver, jvm, *workers):
            if process is not None:
                process.send_signal(number)

    @property
    def running(self):
        return self._process.poll() is None

    def wait(self, timeout):
        """The exit code of a mirror that ends by itself."""
        return self._process.wait(timeout)

    def stop(self, timeout=15):
        """SIGTERM; returns (exit code, seconds it took)."""
        started = time.monotonic()
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout), time.monotonic() - started

    def destroy(self):
        """Leave nothing behind."""
        try:
            for process in psutil.Process(self.pid).children(recursive=True):
                process.kill()
        except psutil.NoSuchProcess:
            pass
        if self.running:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


class LiveProducer(threading.Thread):
    """Writes unique numbered records to every partition until stopped."""

    def __init__(self, bootstrap, topic, partitions, batches_per_second=40, records_per_batch=200):
        super().__init__(daemon=True)
        self._client = ClusterClient(
            ClientSettings("A", {"bootstrap.servers": bootstrap}), "live-producer"
        )
        self._topic = topic
        self._partitions = partitions
        self._pause = 1 / batches_per_second
        self._size = records_per_batch
        self._stopping = threading.Event()
        self.written = 0

    def run(self):
        metadata = self._client.metadata([self._topic])
        producer = Producer(
            self._client.connection(metadata.leader(self._topic, 0)),
            {self._topic: metadata.topics[self._topic].topic_id},
        )
        while not self._stopping.wait(self._pause):
            now = int(time.time() * 1000)
            batches = []
            for index in range(self._partitions):
                records = [
                    Record(0, now, b"%d" % index, b"%d-%d" % (index, self.written + i))
                    for i in range(self._size)
                ]
                batches.append((TopicPartition(self._topic, index), build(records, codec=3)))
            # A young topic may refuse (NOT_LEADER) until its leader has heard of it.
            while batches:
                answers = producer.call(batches, 30)
                assert all(a.error == 0 or is_retriable(a.error) for a in answers), answers
                refused = {a.partition for a in answers if a.error}
                batches = [b for b in batches if b[0] in refused]
            self.written += self._size

    def stop(self):
        self._stopping.set()
        self.join()
        self._client.close()


def configure(lab, folder, topics, replicas=1, keys=()):
    """A mm2.properties that mirrors ``topics`` from A to B; ``keys`` are further lines."""
    path = folder / "mm2.properties"
    factors = ("", "offset-syncs.topic.", "heartbeats.topic.", "checkpoints.topic.")
    lines = [
        "clusters = A, B",
        f"A.bootstrap.servers = {lab['A'].bootstrap}",
        f"B.bootstrap.servers = {lab['B'].bootstrap}",
        "A->B.enabled = true",
        f"A->B.topics = {topics}",
        *(f"{factor}replication.factor = {replicas}" for factor in factors),
        *keys,
    ]
    path.write_text("\n".join(lines))
    return path


def client(cluster):
    return ClusterClient(ClientSettings("x", cluster.client_properties()), "test")


def create_topic(client, topic, partitions):
    failed = admin.create_topics(client, [admin.NewTopic(topic, partitions, 1, {})], 30_000)
    assert not failed, failed


def ends(client, topic):
    """Where the partitions end; waits for new leaders while a broker is down."""
    return client.retry(lambda: _ends(client, topic), 60)


def _ends(client, topic):
    metadata = client.metadata([topic])
    if topic not in metadata.topics:
        return {}
    partitions = [TopicPartition(topic, i) for i in metadata.topics[topic].partitions]
    found = admin.list_offsets(client, metadata, partitions, admin.LATEST)
    return {p.partition: offset for p, offset in found.items()}


def wait_for(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {seconds} s")


def _cmdline(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []
