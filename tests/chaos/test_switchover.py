"""Clients change sides under load: nothing is lost, nothing is read twice, order is kept."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict

import pytest
from access import MECHANISM, acl, grant
from changing_clients import ChangingConsumer, ChangingProducer, JavaClients, java_compiles
from mirror_process import MirrorProcess, configure, create_topic, ends, wait_for

from bad_day import BOTH_WAYS, heliograph
from heliograph.batch.records import Record, build
from heliograph.failover.switchover import STEPS
from heliograph.lab.proof import read_all
from heliograph.model import ClientSettings, TopicPartition
from heliograph.wire import acls, log
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.groups import GroupClient

TOPIC, PARTITIONS, GROUP = "orders", 3, "billing"
OTHER = "payments"
JAVA_TOPIC, JAVA_GROUP = "invoices", "books"
TOPICS = f"{TOPIC},{OTHER},{JAVA_TOPIC}"
STRAY = b"past the fence"
#: A child that ends itself as soon as a step is through.
_KILLED = """
import os, re, signal, sys
from pathlib import Path
from heliograph.cli.handovers import flow_to
from heliograph.failover.steps import Phase
from heliograph.failover.switchover import Switchover
from heliograph.failover.switchover_check import SwitchoverWish

config, reverse = flow_to(Path(sys.argv[1]), sys.argv[2], None)

def tell(told):
    if told.step == sys.argv[3] and told.phase is Phase.DONE:
        os.kill(os.getpid(), signal.SIGKILL)

wish = SwitchoverWish(fence=True, quiet_seconds=0.5)
with Switchover(config, reverse, wish, tell) as switchover:
    switchover.run()
"""


class ActiveStandby:
    """A pair of clusters with authorizers, a mirror that may do everything, clients that may not.

    ``side`` is where clients are.
    """

    def __init__(self, lab, folder):
        self.lab, self.folder, self.side = lab, folder, "A"
        self.admins = {
            alias: ClusterClient(
                ClientSettings(alias, lab[alias].client_properties(MECHANISM)), "test"
            )
            for alias in "AB"
        }
        for admin in self.admins.values():
            grant(
                admin, acl("ALLOW WRITE topic * bob"), acl("ALLOW READ topic * bob"),
                acl("ALLOW READ group * bob"),
            )  # fmt: skip
        create_topic(self.admins["A"], TOPIC, PARTITIONS)
        create_topic(self.admins["A"], OTHER, 1)
        create_topic(self.admins["A"], JAVA_TOPIC, PARTITIONS)
        own = ("bootstrap.servers",)
        keys = [
            f"{alias}.{key} = {value}"
            for alias in "AB"
            for key, value in lab[alias].client_properties(MECHANISM).items() if key not in own
        ]  # fmt: skip
        keys += [*BOTH_WAYS, f"B->A.topics = {TOPICS}", "heliograph.lease.seconds = 10"]
        self.config = configure(lab, folder, TOPICS, keys=keys)
        self.mirror = MirrorProcess(self.config, folder / "mirror.log")
        wait_for(lambda: len(ends(self.admins["B"], TOPIC)) == PARTITIONS, 240, "it is on B")
        self.counts, self.numbers = [0] * PARTITIONS, defaultdict(list)
        self.producer = self.consumer = self.java = None

    def bob(self, alias):
        return self.lab[alias].client_properties(MECHANISM, "bob")

    @property
    def other(self):
        return "B" if self.side == "A" else "A"

    def start(self, *, java=False):
        """Clients go on where they were; clients of Java write and read a topic of their own."""
        here = self.bob(self.side)
        if java:
            self.java = JavaClients(
                JAVA_GROUP, JAVA_TOPIC, [0] * PARTITIONS, defaultdict(list), self.folder
            )
            self.java.consume(here)
            self.java.produce(here)
        self.producer = ChangingProducer(TOPIC, self.counts, here)
        self.consumer = ChangingConsumer(GROUP, TOPIC, self.numbers, here)
        self.producer.start()
        self.consumer.start()
        self.await_flow(20)

    @property
    def clients(self):
        return [c for c in (self.producer, self.consumer, self.java) if c is not None]

    def await_flow(self, least):
        """Until so many more records of each partition have come to the other side."""
        topics = [TOPIC, JAVA_TOPIC] if self.java else [TOPIC]

        def there():
            # Log ends, because to read all records every time costs more than the rest of the test.
            return [
                end for t in topics for _, end in sorted(ends(self.admins[self.other], t).items())
            ]

        before = there()

        def come():
            assert all(client.is_alive() for client in self.clients)
            return all(n >= b + least for n, b in zip(there(), before, strict=True))

        wait_for(come, 120, f"records come from {self.side} to {self.other}")

    def records(self, alias, partition, topic=TOPIC):
        return [r.value for r in read_all(self.admins[alias], TopicPartition(topic, partition))]

    def switchover(self, *args, check=True):
        return heliograph("switchover", self.config, "--to", self.other, "--yes", "-o", "json",
                          *args, check=check)  # fmt: skip

    def killed(self, step):
        """The switchover, by a process that is killed when a step is through."""
        done = subprocess.run(
            [sys.executable, "-c", _KILLED, str(self.config), self.other, step],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr

    def move_clients(self):
        """Consumers first: what producers write comes back to the side that they leave."""
        self.side = self.other
        self.consumer.go_to(self.bob(self.side))
        self.producer.go_to(self.bob(self.side))
        if self.java:
            self.java.consume(self.bob(self.side))
            self.java.produce(self.bob(self.side))

    def abort(self):
        """What was begun is taken back."""
        _, said = self.switchover("--abort")
        assert f"{self.side}->{self.other} runs on" in said
        assert not self.fences(self.side)

    def finish(self):
        """The same command again goes on, and clients follow."""
        here = self.side
        _, report = self.switchover("--fence")
        assert not report["repeated"]
        assert self.fences(here)
        self.move_clients()
        assert not self.fences(self.side)
        self.await_flow(20)

    def fences(self, alias):
        return [
            a for a in acls.describe(self.admins[alias], "TOPIC")
            if (a.permission, a.operation, a.name) == ("DENY", "WRITE", TOPIC)
        ]  # fmt: skip

    def stop(self):
        """Every record is on both sides once, in one order, and was read once, in that order."""
        self.producer.stop()
        self._all_is_there(TOPIC, self.counts, self.numbers)
        self.consumer.stop()
        if self.java:
            self.java.rest()
            counts, numbers = self.java.counts, self.java.numbers
            self._all_is_there(JAVA_TOPIC, counts, numbers)
            self.java.stop()

    def _all_is_there(self, topic, counts, numbers):
        written = [values(p, count) for p, count in enumerate(counts)]

        def read():
            return [len(numbers[p]) for p in range(PARTITIONS)] == counts

        def alike():
            return all(
                (there := self.records("A", p, topic)) == self.records("B", p, topic)
                and [value for value in there if value != STRAY] == written[p]
                for p in range(PARTITIONS)
            )

        wait_for(read, 120, "the group has read everything")
        wait_for(alike, 120, "both sides have everything, in order")
        for p, count in enumerate(counts):
            assert numbers[p] == list(range(count))

    def end_clients(self):
        for client in self.clients:
            if client.is_alive():
                client.stop()
        self.producer = self.consumer = self.java = None

    def close(self):
        self.mirror.destroy()
        for admin in self.admins.values():
            admin.close()


def values(partition, count):
    return [b"%d-%d" % (partition, n) for n in range(count)]


@pytest.fixture(scope="module")
def made(module_lab_factory, tmp_path_factory):
    lab = module_lab_factory(security="SASL_PLAINTEXT", authorizer=True)
    made = ActiveStandby(lab, tmp_path_factory.mktemp("switchover"))
    yield made
    made.close()


@pytest.fixture
def pair(made):
    yield made
    made.end_clients()


def test_all_that_speaks_against_it_is_said_at_once(pair):
    """Before anything was changed."""
    pair.start()
    early = ChangingConsumer(GROUP, TOPIC, defaultdict(list), pair.bob(pair.other))
    early.start()
    groups = GroupClient(pair.admins[pair.other])
    wait_for(lambda: groups.states([GROUP]).found.get(GROUP) == "Stable", 120, "it is in use")
    try:
        code, plan = pair.switchover("--dry-run", check=False)
        assert code == 1
        assert [r["code"] for r in plan["refusals"]] == ["switchover.group-in-use"]
        back = "switchover", pair.config, "--to", pair.side, "--dry-run"
        code, said = heliograph(*back, check=False)
        assert code == 1
        assert f"[switchover.rests] {pair.other}->{pair.side} does not copy" in said
        assert f"[switchover.both-directions] {pair.side}->{pair.other} is copied, too" in said
    finally:
        early.stop()
    pair.stop()


def test_clients_change_sides_and_back(pair, capsys):
    """Clients of librdkafka, and those of Java where there is a JDK."""
    pair.start(java=java_compiles())
    reports = []
    for _ in range(2):
        here, there = pair.side, pair.other
        _, report = pair.switchover("--fence", "--quiet-seconds", "1")
        reports.append(report)
        assert report["source_fenced"] is True
        groups = {JAVA_GROUP, GROUP} if pair.java else {GROUP}
        assert {g["group"] for g in report["groups"] if g["moved"]} == groups
        assert pair.fences(here)
        assert not pair.fences(there)
        pair.move_clients()
        pair.await_flow(20)
    # What is through is not done again.
    _, again = heliograph("switchover", pair.config, "--to", pair.side, "--yes", "-o", "json")
    assert again["repeated"]
    assert again["pause_seconds"] == report["pause_seconds"]
    writers = {"librdkafka": pair.producer} | ({"Java": pair.java} if pair.java else {})
    pair.stop()
    with capsys.disabled():
        for name, writer in writers.items():
            for one, pause in zip(reports, writer.pauses, strict=True):
                print(f"\n  {one['flow']}: a producer of {name} could not write for {pause:.1f} s,"
                      f" by the command {one['pause_seconds']:.1f} s: {one['steps']}")  # fmt: skip


def test_who_writes_past_the_fence_is_named_and_all_is_taken_back(pair):
    pair.start()
    stopping = threading.Event()

    def write():
        p = TopicPartition(TOPIC, 0)
        while not stopping.wait(0.2):
            batch = build([Record(0, int(time.time() * 1000), None, STRAY)])
            log.append(pair.admins[pair.side], p, batch)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        code, said = pair.switchover("--fence", check=False)
    finally:
        stopping.set()
        writer.join()
    assert code == 1
    assert "[switchover.writer]" in said
    assert re.search(rf"somebody still writes to {pair.side}: {TOPIC}-0 grew by \d+ record", said)
    assert f"the fence of 3 topics on {pair.side} is gone, {pair.side}->{pair.other} runs" in said
    assert not pair.fences(pair.side)
    pair.await_flow(20)
    pair.stop()


def test_a_command_that_is_killed_is_taken_back_or_goes_on(pair):
    pair.start()
    for step in ("fence", "stop"):
        pair.killed(step)
        pair.abort()
        pair.await_flow(20)
    pair.killed("groups")
    pair.killed("start")
    code, said = pair.switchover("--abort", check=False)
    assert code == 1
    assert "[switchover.too-late]" in said
    pair.finish()
    pair.stop()


@pytest.mark.full
def test_topics_change_sides_one_by_one(pair):
    pair.start()
    p = TopicPartition(OTHER, 0)
    here, there = pair.side, pair.other
    expected = []

    def write(alias, value):
        log.append(pair.admins[alias], p, build([Record(0, 1, None, value)]))
        expected.append(value)
        both = [pair.admins[alias] for alias in "AB"]
        wait_for(
            lambda: all([r.value for r in read_all(a, p)] == expected for a in both), 120, value
        )

    write(here, b"0")
    pair.switchover("--topics", OTHER)
    write(there, b"1")
    pair.await_flow(20)
    code, plan = pair.switchover("--dry-run", check=False)
    assert code == 1
    assert [r["code"] for r in plan["refusals"]] == [
        "switchover.topic-rests", "switchover.both-directions",
    ]  # fmt: skip
    heliograph("switchover", pair.config, "--to", here, "--topics", OTHER, "--yes")
    write(here, b"2")
    pair.await_flow(20)
    _, report = pair.switchover("--fence")
    assert sorted({p["source"].rpartition("-")[0] for p in report["partitions"]}) == [
        JAVA_TOPIC, TOPIC, OTHER,
    ]  # fmt: skip
    pair.move_clients()
    write(there, b"3")
    pair.await_flow(20)
    pair.stop()


@pytest.mark.full
@pytest.mark.parametrize("step", STEPS)
def test_killed_behind_each_step(pair, step):
    pair.start()
    if STEPS.index(step) < STEPS.index("start"):
        pair.killed(step)
        pair.abort()
        pair.await_flow(20)
    pair.killed(step)
    pair.finish()
    pair.stop()
