"""Workers of one Connect cluster are killed, frozen, added and stopped: nothing lost or repeated.

Prints, for each thing that happens, how long connectors stood still that were not concerned, beside
the longest pause of the load itself, and how soon a worker that was killed is replaced.
"""

import signal
import threading
import time
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace

import pytest
from checker import Checker
from connect_process import ConnectProcess, connector
from load import Load, LoadedTopic
from mirror_process import client, create_topic, may_rename, wait_for

from heliograph.lab.connect_worker import ConnectWorker
from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.errors import WireError

CONNECTORS = [f"c{n}" for n in range(6)]
#: Is added to, and taken from, the topics of the last connector.
EXTRA = "extra"
PARTITIONS = 2
PER_SECOND = 60  # records, of each topic
SECONDS = 300
FROZEN_SECONDS = 15
CHANGES = 20
#: A worker that is killed is replaced by then, wherever it was.
REPLACED_SECONDS = 10
#: Who looks ten times a second and does not for so long was not let by the machine.
STOOD_STILL_SECONDS = 1.0
_LOOK_SECONDS = 0.1


class Arrivals(threading.Thread):
    """When topics grew: looks at their ends, ten times a second if the machine lets it."""

    def __init__(self, cluster, prefix):
        super().__init__(daemon=True, name=f"arrivals {prefix}")
        self._client = client(cluster)
        self._names = {prefix + topic: topic for topic in (*CONNECTORS, EXTRA)}
        self._stopping = threading.Event()
        self.times = {topic: [] for topic in self._names.values()}
        self.looks = []

    def run(self):
        before = dict.fromkeys(self._names, 0)
        while not self._stopping.wait(_LOOK_SECONDS):
            try:
                now = self._ends()
            except WireError:
                continue
            at = time.monotonic()
            self.looks.append(at)
            for name, end in now.items():
                if end > before[name]:
                    before[name] = end
                    self.times[self._names[name]].append(at)

    def _ends(self):
        metadata = self._client.metadata(sorted(self._names))
        wanted = [
            TopicPartition(name, i)
            for name in self._names if name in metadata.topics
            for i in metadata.topics[name].partitions
        ]  # fmt: skip
        found = admin.list_offsets(self._client, metadata, wanted, admin.LATEST)
        sums = {}
        for p, end in found.items():
            sums[p.topic] = sums.get(p.topic, 0) + end
        return sums

    def longest_gap(self, topic, since, until):
        """Seconds between two arrivals, of those that end after ``since``."""
        return self.longest_pause(topic, since, until)[0]

    def longest_pause(self, topic, since, until):
        """(seconds, when it ended) of the longest gap."""
        times = [t for t in self.times[topic] if t <= until]
        first = max(0, bisect_right(times, since) - 1)
        never = float("inf")
        return max(((b - a, b) for a, b in pairwise(times[first:])), default=(never, never))

    def stood_still(self, since, until):
        """Seconds in which the machine let nobody look: they say nothing of the mirror."""
        looks = [t for t in self.looks if since <= t <= until]
        gaps = (b - a for a, b in pairwise([since, *looks]))
        return sum(gap for gap in gaps if gap > STOOD_STILL_SECONDS)

    def slowest(self, since):
        """Seconds between two looks: shorter gaps cannot be seen."""
        return max(b - a for a, b in pairwise(t for t in self.looks if t >= since))

    def next_after(self, topic, moment):
        """When the topic grew next; None: not yet."""
        times = self.times[topic]
        index = bisect_right(times, moment)
        return times[index] if index < len(times) else None

    def stop(self):
        self._stopping.set()
        self.join()
        self._client.close()


class Cluster:
    """Several workers of one group, the connectors, and what is seen of them."""

    def __init__(self, lab, folder):
        self._lab, self._folder = lab, folder
        self.workers = []
        self.source, self.target = Arrivals(lab["A"], ""), Arrivals(lab["B"], "A.")
        self.source.start()
        self.target.start()

    def start_worker(self, host=None):
        name = f"worker-{len(self.workers)}"
        described = ConnectWorker(
            self._lab["B"].client_properties(), self._folder, {"group.id": "chaos"}, name=name
        )
        self.workers.append(ConnectProcess(described, self._folder / f"{name}.log", host=host))
        return self.workers[-1]

    def config(self, name, *more):
        return connector(self._lab, "MirrorSource", topics=",".join([name, *more]))

    def owners(self, asked):
        """{connector: worker}, of those that run."""
        found = asked.rest.must("GET", "/connectors?expand=status")
        return {
            name: one["status"]["connector"]["worker_id"] for name, one in found.items()
            if "status" in one and one["status"]["connector"]["state"] == "RUNNING"
        }  # fmt: skip

    def settled(self, workers):
        """Wait until these workers share all connectors evenly and all copy; returns the owners."""
        known = {worker.worker_id for worker in workers}
        seen = {}

        def shared():
            seen.clear()
            seen.update(self.owners(workers[0]))
            counts = [list(seen.values()).count(each) for each in known]
            even = max(counts) - min(counts) <= 1
            return len(seen) == len(CONNECTORS) and set(seen.values()) <= known and even

        try:
            wait_for(shared, SECONDS, "connectors are shared evenly")
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen}, workers {sorted(known)}") from error
        now = time.monotonic()
        for name in CONNECTORS:
            wait_for(lambda n=name: self.target.next_after(n, now), SECONDS, f"{name} is copied")
        return dict(seen)

    def report(self, what, began, names):
        """Print how long connectors stood still since then that were not concerned."""
        until = time.monotonic()
        names = [name for name in names if not self._restarted(name, began)]
        if not names:
            print(f"{what}: all connectors were concerned")
            return
        gaps = {name: self.target.longest_gap(name, began, until) for name in names}
        load = max(self.source.longest_gap(name, began, until) for name in names)
        shown = ", ".join(f"{name} {gap:.1f} s" for name, gap in gaps.items())
        print(
            f"{what}: not concerned, longest gaps {shown}; of the load itself {load:.1f} s;"
            f" {self.target.slowest(began):.1f} s from look to look; {until - began:.0f} s watched"
        )

    def _restarted(self, name, began):
        """Whether any worker has begun with a connector since then."""
        since = datetime.now(UTC) - timedelta(seconds=time.monotonic() - began)
        stamp = since.strftime("%Y-%m-%dT%H:%M:%S")
        return any(
            line > stamp and f" the topics of {name}:" in line
            for worker in self.workers
            for line in worker.log_path.read_text().splitlines()
        )

    def replaced(self, what, began, names):
        """Print how long connectors stood still since then that were concerned.

        It is called when others copy them: leases copy on for a moment. Returns how many seconds
        after ``began`` the last of them went on, without those in which the machine stood still.
        """
        until = time.monotonic()
        pauses = [self.target.longest_pause(name, began, until) for name in names]
        gaps = ", ".join(f"{gap:.1f} s" for gap, _ in pauses)
        last = max((ended for _, ended in pauses), default=began)
        idle = self.target.stood_still(began, last)
        print(
            f"{what}: what was concerned stood still for {gaps}; all of it went on after"
            f" {last - began:.1f} s, of which the machine stood still for {idle:.1f} s"
        )
        return last - began - idle

    def close(self):
        self.source.stop()
        self.target.stop()
        for worker in self.workers:
            worker.destroy()


@pytest.fixture
def cluster(lab_factory, tmp_path):
    lab = lab_factory()
    topics = [
        LoadedTopic(name, "lz4", False, PARTITIONS, n * PARTITIONS, PER_SECOND)
        for n, name in enumerate([*CONNECTORS, EXTRA])
    ]
    with client(lab["A"]) as source:
        for topic in topics:
            create_topic(source, topic.name, PARTITIONS)
    load = Load(lab["A"].bootstrap, topics, 1)
    made = Cluster(lab, tmp_path)
    yield SimpleNamespace(lab=lab, load=load, topics=topics, cluster=made)
    load.close()
    made.close()


def kept(before, after, *, but=()):
    """Connectors that stayed where they were."""
    return [n for n in before if before[n] == after.get(n) and before[n] not in but]


def owned(owners, worker):
    return [name for name, owner in owners.items() if owner == worker.worker_id]


def change_config(cluster, workers):
    """A topic is added to the last connector and taken away, by any worker, once a second."""
    changed = CONNECTORS[-1]
    due = time.monotonic()
    for n in range(CHANGES + 1):
        more = [EXTRA] if n % 2 == 0 else []
        asked = workers[n % len(workers)].rest
        asked.must("PUT", f"/connectors/{changed}/config", cluster.config(changed, *more))
        due += 1
        time.sleep(max(0.0, due - time.monotonic()))


def require_exact(lab, load, topics):
    """All that was written is on the target once, in order."""
    acked = load.stop()
    streams = {(t.name, p): t.first_stream + p for t in topics for p in range(t.partitions)}
    checker = Checker(lab["A"].bootstrap, lab["B"].bootstrap, {"ours": "A."}, streams)
    try:
        deadline = time.monotonic() + SECONDS

        def read():
            here, there, _ = checker.progress()
            behind = here == 0 or there["ours"] < here
            return not checker.work() and not behind

        while not read() and time.monotonic() < deadline:
            pass
        for _ in range(20):  # what should not be there comes last
            checker.work()
        verdict = checker.verdict("ours", {})
        assert checker.source_loss(acked) == 0
        assert checker.source_anomalies() == (0, 0)
    finally:
        checker.close()
    print(
        f"{verdict.checked} records checked: {verdict.lost} lost, {verdict.behind} not there,"
        f" {verdict.repeated} repeated, {verdict.reordered} out of order"
    )
    assert verdict.exact, verdict
    assert verdict.checked > 0


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_workers_are_killed_frozen_added_and_stopped(cluster):
    lab, cluster, load, topics = cluster.lab, cluster.cluster, cluster.load, cluster.topics
    for _ in range(3):
        cluster.start_worker().wait_ready()
    first, second, third = cluster.workers
    for name in CONNECTORS:
        first.rest.must("PUT", f"/connectors/{name}/config", cluster.config(name))
    before = cluster.settled([first, second, third])

    began = time.monotonic()
    first.kill("driver", None)
    after = cluster.settled([second, third])
    assert cluster.replaced("kill -9", began, owned(before, first)) <= REPLACED_SECONDS
    cluster.report("kill -9", began, kept(before, after))

    if may_rename():
        # Whether a process is gone can be seen on its own host only. Spark's must have an address.
        far = cluster.start_worker("localhost")
        far.wait_ready()
        before, began = cluster.settled([second, third, far]), time.monotonic()
        far.kill("driver", None)
        after = cluster.settled([second, third])
        seconds = cluster.replaced("kill -9 elsewhere", began, owned(before, far))
        assert seconds <= REPLACED_SECONDS
        cluster.report("kill -9 elsewhere", began, kept(before, after))

    before, began = after, time.monotonic()
    second.signal_all(signal.SIGSTOP)
    # Not a wait for anything: that it is frozen for so long is what happens.
    time.sleep(FROZEN_SECONDS)
    cluster.replaced(f"frozen for {FROZEN_SECONDS} s", began, owned(before, second))
    cluster.report("frozen", began, kept(before, before, but=[second.worker_id]))
    # The one that was not frozen is asked: the other one has still to read what has happened.
    meanwhile, began = cluster.owners(third), time.monotonic()
    second.signal_all(signal.SIGCONT)
    after = cluster.settled([third, second])
    moved = [name for name in after if after[name] != meanwhile.get(name)]
    # They are handed over by a worker that lives: nobody's silence is waited for.
    assert cluster.replaced("woken up", began, moved) <= REPLACED_SECONDS
    cluster.report("woken up", began, kept(meanwhile, after))

    before, began = after, time.monotonic()
    fourth = cluster.start_worker()
    fourth.wait_ready()
    after = cluster.settled([second, third, fourth])
    cluster.report("one more", began, kept(before, after))

    before, began = after, time.monotonic()
    assert second.stop() == 0, second.log_path.read_text()
    after = cluster.settled([third, fourth])
    cluster.replaced("stopped in order", began, owned(before, second))
    cluster.report("stopped in order", began, kept(before, after))

    began = time.monotonic()
    change_config(cluster, [third, fourth])
    cluster.settled([third, fourth])
    cluster.report("config changed every second", began, CONNECTORS[:-1])
    cluster.replaced("config changed every second", began, CONNECTORS[-1:])
    wait_for(lambda: cluster.target.next_after(EXTRA, began), SECONDS, "what was added is copied")

    require_exact(lab, load, topics)
    for worker in (third, fourth):
        assert worker.stop() == 0, worker.log_path.read_text()
        assert "Traceback" not in worker.log_path.read_text()
