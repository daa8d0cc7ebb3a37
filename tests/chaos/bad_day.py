"""A pair of clusters, a real mirror, numbered records and groups: what a bad day is tried on."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter

from mirror_process import (
    LiveProducer,
    MirrorProcess,
    client,
    configure,
    create_topic,
    ends,
    wait_for,
)

from heliograph.batch.records import Record, build
from heliograph.config import load
from heliograph.lab.proof import read_all
from heliograph.mm2.checkpoints import CheckpointLog
from heliograph.model import TopicPartition
from heliograph.wire import log
from heliograph.wire.groups import Committed, GroupClient

BOTH_WAYS = (
    "replication.policy.class = IdentityReplicationPolicy",
    "B->A.enabled = true",
    "B->A.heliograph.standby = true",
)


def heliograph(*args, check=True):
    """A command as its users type it; returns (exit code, what it printed as JSON or text)."""
    done = subprocess.run(
        [sys.executable, "-m", "heliograph", *map(str, args)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode, done.stdout + done.stderr


#: More than A has answered to the fetches that waited for its next records: a mirror that was
#: stopped finds that in its sockets, and copies it.
_TAIL = 300
#: Commands that are killed, each as soon as one more step is through. What is imported is imported
#: once: each of them is a process of its own all the same.
_KILLED = """
import os, sys
from pathlib import Path
from heliograph.cli.handovers import flow_to
from heliograph.failover.failover import Failover, FailoverWish
from heliograph.failover.steps import Phase

def fail_over(file, target, step):
    def tell(told):
        if (told.step, told.phase) == (step, Phase.DONE):
            os.kill(os.getpid(), 9)

    config, reverse = flow_to(Path(file), target, None)
    with Failover(config, FailoverWish(by="killed"), tell, reverse=reverse) as failover:
        failover.run()

file, target, *steps = sys.argv[1:]
for step in steps:
    child = os.fork()
    if not child:
        try:
            fail_over(file, target, step)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == 9, (step, status)
"""


def failovers_killed_after(config, target, steps):
    """``heliograph failover`` again and again, killed -9 when each of these steps is through."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(config), target, *steps],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def number(value):
    """The number that `LiveProducer` has written."""
    return int(value.partition(b"-")[2])


class BadDay:
    """A->B with a mirror, and a load on the first topic that can be stopped."""

    def __init__(self, lab, folder, topics, *, keys=BOTH_WAYS, rate=4):
        """``topics``: how many partitions each has."""
        self.lab, self.topics = lab, topics
        self.a, self.b = lab["A"], lab["B"]
        names = ",".join(topics)
        self.config = configure(lab, folder, names, keys=(*keys, f"B->A.topics = {names}"))
        self.flow = next(f for f in load(self.config).flows if str(f.flow) == "A->B")
        with client(self.a) as admin:
            for topic, partitions in topics.items():
                create_topic(admin, topic, partitions)
        first = next(iter(topics))
        self.load = LiveProducer(self.a.bootstrap, first, topics[first], rate, 50)
        self.log = folder / "mirror.log"
        self.mirror = MirrorProcess(self.config, self.log)

    def of(self, topic):
        return [TopicPartition(topic, i) for i in range(self.topics[topic])]

    # -- records ------------------------------------------------------------------------------

    def write(self, cluster, p, values):
        """Records with these values, by a producer of nobody's."""
        now = int(time.time() * 1000)
        with client(cluster) as admin:
            log.append(admin, p, build([Record(0, now, None, v) for v in values]))

    def records(self, cluster, p):
        """The values of all records of a partition, by offset."""
        with client(cluster) as admin:
            return {r.offset: r.value for r in read_all(admin, p)}

    def same_on_both(self, p):
        """Whether both sides have the same records, each once, whatever the order."""
        here, there = self.records(self.a, p), self.records(self.b, p)
        counts = Counter(here.values())
        assert max(counts.values(), default=1) == 1, f"{p} on A has records twice"
        return counts == Counter(there.values())

    def lead(self, topic):
        """By how many offsets each partition is longer on A, by its name; none where it is not.

        Both sides have the same offsets, and nobody uses transactions: these are records.
        """
        with client(self.a) as a, client(self.b) as b:
            here, there = ends(a, topic), ends(b, topic)
        return {f"{topic}-{p}": n for p in here if (n := here[p] - there[p])}

    def kill_source_with_a_tail(self):
        """Kill A under load, when it has records of each partition that the mirror did not get."""
        self.mirror.signal_all(signal.SIGSTOP)
        try:
            first = next(iter(self.topics))
            partitions = self.topics[first]

            def ahead():
                lead = self.lead(first)
                return len(lead) == partitions and min(lead.values()) >= _TAIL

            wait_for(ahead, 120, "A is ahead of B")
            self.kill(self.a)
        finally:
            self.mirror.signal_all(signal.SIGCONT)

    def await_mirrored(self, topic, least):
        """Until each partition has so many records on B."""

        def there():
            with client(self.b) as admin:
                found = ends(admin, topic) if topic in admin.metadata().topics else {}
            return len(found) == self.topics[topic] and min(found.values()) >= least

        wait_for(there, 300, f"{least} records of each partition of {topic} are mirrored")

    # -- groups -------------------------------------------------------------------------------

    def commit(self, cluster, wanted):
        """Commit offsets for groups without members."""
        left = {
            group: {p: Committed(offset) for p, offset in offsets.items()}
            for group, offsets in wanted.items()
        }
        with client(cluster) as admin:
            groups = GroupClient(admin)

            def all_written():
                for group, codes in groups.commit(left).found.items():
                    if not any(codes.values()):
                        left.pop(group)
                return not left

            wait_for(all_written, 120, "groups have committed")

    def some_groups(self, count, topic, most):
        """Offsets below ``most`` for groups, drawn at random."""
        dice = random.Random(7)
        return {
            f"group-{i:02}": {p: dice.randrange(1, most) for p in self.of(topic)}
            for i in range(count)
        }

    def await_checkpoints(self, cluster, source, committed):
        """Until the checkpoints on a cluster know where groups of its source are."""
        topic = f"{source}.checkpoints.internal"
        with client(cluster) as admin:
            checkpoints = CheckpointLog(admin, topic)

            def known():
                if topic not in admin.metadata().topics:
                    return False
                checkpoints.refresh()
                return all(
                    (c := checkpoints.known.get((g, *p))) is not None and c.upstream == offset
                    for g, offsets in committed.items()
                    for p, offset in offsets.items()
                )

            wait_for(known, 180, "checkpoints know the groups")

    def committed(self, cluster, groups):
        with client(cluster) as admin:
            found = GroupClient(admin).committed(groups)
        assert not found.errors, found.errors
        return {g: {p: c.offset for p, c in offsets.items()} for g, offsets in found.found.items()}

    # -- clusters -----------------------------------------------------------------------------

    @staticmethod
    def kill(cluster):
        for broker in cluster.brokers:
            broker.kill()

    def start(self, cluster):
        """Returns when every partition has a leader that answers."""
        cluster.start_brokers()
        cluster.wait_ready()
        with client(cluster) as admin:
            for topic, partitions in self.topics.items():
                wait_for(lambda t=topic, n=partitions: len(ends(admin, t)) == n, 120, topic)

    def close(self):
        if self.load.is_alive():
            self.load.stop()
        self.mirror.destroy()
