"""The mirror as its users run it: a process tree that can be killed piece by piece."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

from heliograph.batch.records import Record, build
from heliograph.model import ClientSettings, TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import is_retriable
from heliograph.wire.produce import Producer


def renamed(host):
    """Before a command: it runs under another name of the host, as if it were elsewhere."""
    return ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host]


def may_rename():
    """Whether `renamed` works here."""
    try:
        done = subprocess.run([*renamed("elsewhere"), "true"], check=False)
    except OSError:
        return False
    return done.returncode == 0


class MirrorProcess:
    """``heliograph run``, or another command that mirrors, in a session of its own."""

    def __init__(self, config, log_path, *args, folder=None, command="run", host=None):
        """``folder``: where it is started; ``host``: as what it knows its host, if `may_rename`."""
        self.log_path = log_path
        elsewhere = renamed(host) if host else []
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*elsewhere, sys.executable, "-m", "heliograph", command, str(config), "-o",
                 "plain", *args],
                stdout=log, stderr=log, start_new_session=True, cwd=folder,
            )  # fmt: skip
        self.pid = self._process.pid

    def tree(self):
        """(driver or None, JVM or None, daemon and workers), without what ends meanwhile."""
        try:
            driver = psutil.Process(self.pid)
            children = driver.children(recursive=True)
        except psutil.NoSuchProcess:
            return None, None, []
        jvm, workers = None, []
        for child in children:
            with suppress(psutil.NoSuchProcess):
                if child.name() == "java":
                    jvm = jvm or child
                    continue
                program, *arguments = child.cmdline() or [""]
                # Not the scripts that start Spark, which are told the name, too. Workers that copy
                # have the names of their flows.
                is_python = Path(program).name.startswith("python")
                if is_python and "heliograph.spark.daemon" in " ".join(arguments):
                    workers.append(child)
        return driver, jvm, workers

    def kill(self, victim, dice):
        """kill -9 of the ``driver``, the ``jvm`` or one ``worker`` of a mirror that is copying."""
        if victim == "worker":
            wait_for(lambda: self._kill_worker(dice), 120, "a worker that holds a lease is killed")
            return
        if victim == "jvm":
            wait_for(self._kill_jvm, 120, "Spark's JVM is killed")
            return
        self._process.kill()
        self._process.wait()

    def lease_holders(self):
        """The workers that Spark has forked from their daemon."""
        _, jvm, workers = self.tree()
        if jvm is None:
            return []
        found = []
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                if worker.ppid() != jvm.pid:
                    found.append(worker)
        return found

    def _kill_worker(self, dice):
        """Whether there was one to kill; workers come and go by themselves."""
        try:
            dice.choice(self.lease_holders()).kill()
        except (IndexError, psutil.NoSuchProcess):
            return False
        return True

    def _kill_jvm(self):
        """Whether there was one to kill."""
        try:
            self.tree()[1].kill()
        except (AttributeError, psutil.NoSuchProcess):
            return False
        return True

    def signal_all(self, number, *, but_the_driver=False):
        """The same signal to the whole tree, as it stands."""
        driver, jvm, workers = self.tree()
        for process in (None if but_the_driver else driver, jvm, *workers):
            if process is not None:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    @property
    def running(self):
        return self._process.poll() is None

    def wait(self, timeout):
        """The exit code of a mirror that ends by itself."""
        return self._process.wait(timeout)

    def stop(self):
        """SIGTERM; returns the exit code.

        Python itself must have started: until then nobody can handle a signal.
        """
        wait_for(lambda: not self.running or self._handles(signal.SIGTERM), 120, "it has begun")
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(240)

    def _handles(self, number):
        """Whether the process has a handler for this signal, by the kernel's word."""
        with suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
        return False

    def destroy(self):
        """Leave nothing behind."""
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        if self.running:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


class LiveProducer(threading.Thread):
    """Writes unique numbered records to every partition until stopped."""

    def __init__(self, bootstrap, topic, partitions, batches_per_second=20, records_per_batch=100):
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
                answers = producer.call(batches, 120)
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
    """Returns when its leaders serve it."""
    failed = admin.create_topics(client, [admin.NewTopic(topic, partitions, 1, {})], 30_000)
    assert not failed, failed
    wait_for(lambda: len(ends(client, topic)) == partitions, 120, f"{topic} is served")


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
