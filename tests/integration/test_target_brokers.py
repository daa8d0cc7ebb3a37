"""Target brokers stop or go: others go on, memory stays bounded, the reason is told."""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from consumers import same
from damage import Holding
from kafka.protocol.metadata import MetadataRequest
from mirroring import Mirroring, wait_for
from sources import numbered, transactions

from heliograph.copy.budget import default
from heliograph.copy.loop import CopyLoop
from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.epochs import epoch_ends
from heliograph.wire.errors import WireError

MIB = 1 << 20
#: A stopped broker keeps its partitions for as long as the test takes.
PATIENT = {
    "broker.session.timeout.ms": "120000",
    "replica.lag.time.max.ms": "10000",
    # Records are dated 2023: nobody is remembered.
    "producer.id.expiration.ms": "500",
    "producer.id.expiration.check.interval.ms": "100",
}


def test_the_budget_is_a_part_of_the_memory_within_bounds():
    assert default(64 << 30, 4) == 256 * MIB
    assert default(4 << 30, 4) == 128 * MIB
    assert default(1 << 30, 8) == 32 * MIB


@pytest.fixture(scope="module")
def two_brokers(module_lab_factory):
    return module_lab_factory(brokers={"A": 1, "B": 2}, settings={"B": PATIENT}, heap="384m")


@pytest.fixture
def flow(two_brokers):
    """Its ledger is led by broker 1, which is also the controller."""
    made = []
    while not made or leader(made[-1], made[-1].context.ledger_topic) != 1:
        made.append(Mirroring.of(two_brokers, fetch_max_bytes=2 * MIB, buffer_max_bytes=32 * MIB))
    yield made[-1]
    for one in made:
        one.close()


def leader(flow, topic, partition=0):
    return flow.target.metadata([topic]).leader(topic, partition)


def hold_and_report(lease, memory):
    """In a process of its own, which says how much memory it has used at most."""
    loop = CopyLoop(lease)
    memory.value = resident()

    def note():
        memory.value = max(memory.value, resident())

    pump = loop._target.pump
    loop._target.pump = lambda: (pump(), note())
    loop.run()


def resident():
    pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_f31_a_stopped_target_broker_stops_only_its_partitions(flow, topic_name):
    lab = flow.lab
    flow.create(topic_name, partitions=4)
    remote = f"A.{topic_name}"
    leaders = {i: leader(flow, remote, i) for i in range(4)}
    assert set(leaders.values()) == {1, 2}
    kept, stopped = 1, 2
    value = os.urandom(50_000)
    lease = replace(flow.lease([topic_name]), deadline=time.time() + 600)
    lease = replace(lease, partitions=tuple(replace(p, until=None) for p in lease.partitions))
    context = multiprocessing.get_context("fork")
    memory = context.Value("q", 0)
    worker = context.Process(target=hold_and_report, args=(lease, memory))
    worker.start()
    per_partition = 1200

    def ends():
        metadata = flow.target.metadata([remote])
        wanted = [TopicPartition(remote, i) for i, node in leaders.items() if node == kept]
        return admin.list_offsets(flow.target, metadata, wanted, admin.LATEST)

    try:
        for index in range(4):
            flow.write(topic_name, [value] * 20, index)
        wait_for(lambda: sum(flow.offsets(flow.target, remote, admin.LATEST).values()) == 80)
        before = memory.value
        lab["B"].broker(stopped).suspend()
        flow.target.avoided = {stopped}
        for index in range(4):
            flow.write(topic_name, [value] * (per_partition - 20), index)
        # 236 MB, of which half cannot be written.
        wait_for(lambda: set(ends().values()) == {per_partition})
        assert memory.value - before < 64 * MIB
        lab["B"].broker(stopped).resume()
        total = 4 * per_partition
        wait_for(lambda: sum(flow.offsets(flow.target, remote, admin.LATEST).values()) == total)
        assert memory.value - before < 64 * MIB
    finally:
        lab["B"].broker(stopped).resume()
        worker.kill()
        worker.join()
    for index in range(4):
        assert len(flow.values(topic_name, index)) == per_partition
    assert flow.proof(topic_name).identical


@pytest.mark.full
def test_a_stopped_ledger_leader_holds_back_only_what_needs_the_ledger(flow, topic_name):
    """Broker 1 leads the ledger, broker 2 the copies."""
    dense, gappy = f"{topic_name}-dense", f"{topic_name}-gappy"
    for topic in (dense, gappy):
        source = admin.NewTopic(topic, 1, 1, {"retention.ms": "-1"})
        assert admin.create_topics(flow.source, [source], 30_000) == {}
        flow.await_topic(flow.source, topic, 1)
        flow.lab.tool(
            "TopicCommand", "--bootstrap-server", flow.lab["B"].broker(1).address, "--create",
            "--topic", f"A.{topic}", "--replica-assignment", "2", "--config", "retention.ms=-1",
        )  # fmt: skip
        flow.await_topic(flow.target, f"A.{topic}", 1)
        flow.write(topic, numbered(5))
    stopped = flow.lab["B"].broker(1)

    def end(topic):
        remote = TopicPartition(f"A.{topic}", 0)
        with suppress(WireError):
            return flow.offsets(flow.target, remote.topic, admin.LATEST).get(remote)

    with Holding(flow, dense, gappy, seconds=300) as held:
        wait_for(lambda: end(dense) == end(gappy) == 5)
        flow.target.avoided = {1}
        stopped.suspend()
        try:
            transactions(flow, gappy, [(numbered(2, "x"), True), (numbered(2, "y"), True)])
            wait_for(lambda: held.part(gappy).announcing)
            since = time.monotonic()
            count = 5
            while time.monotonic() - since < 12:
                flow.write(dense, numbered(5, "later"))
                began = time.monotonic()
                count += 5
                wait_for(lambda: end(dense) == count)  # noqa: B023 - at once
                assert time.monotonic() - began < 8, "it does not wait for the ledger's leader"
            assert wait_for(lambda: end(gappy)) < 9
        finally:
            stopped.resume()
        wait_for(lambda: end(gappy) == 9)
    assert flow.values(gappy) == numbered(5) + numbered(2, "x") + numbered(2, "y")
    flow.assert_ledger_is_exact(dense)
    flow.assert_ledger_is_exact(gappy)


def create_led_by_broker_1(flow, topic, *options):
    """Broker 2 follows."""
    source = admin.NewTopic(topic, 1, 1, {"retention.ms": "-1"})
    assert admin.create_topics(flow.source, [source], 30_000) == {}
    flow.await_topic(flow.source, topic, 1)
    flow.lab.tool(
        "TopicCommand", "--bootstrap-server", flow.lab["B"].broker(1).address, "--create",
        "--topic", f"A.{topic}", "--replica-assignment", "1:2", "--config", "retention.ms=-1",
        *options,
    )  # fmt: skip
    flow.await_topic(flow.target, f"A.{topic}", 1)


def test_f33_too_few_replicas_are_waited_for_and_named(flow, topic_name):
    follower = flow.lab["B"].broker(2)
    remote = f"A.{topic_name}"
    create_led_by_broker_1(flow, topic_name, "--config", "min.insync.replicas=2")
    flow.write(topic_name, numbered(5))
    flow.target.avoided = {2}

    def end():
        return flow.offsets(flow.target, remote, admin.LATEST).get(TopicPartition(remote, 0))

    def in_sync():
        asked = [MetadataRequest.MetadataRequestTopic(topic_id=None, name=remote)]
        [topic] = flow.target.request(MetadataRequest(topics=asked)).topics
        return topic.partitions[0].isr_nodes

    with Holding(flow, topic_name, seconds=300) as held:
        p = held.part(topic_name)
        wait_for(lambda: end() == 5)
        follower.suspend()
        try:
            # A follower falls behind only when there is something that it does not have.
            other = flow.producer("B", acks=1)
            other.produce(remote, b"foreign", b"foreign", 0)
            assert other.flush(30) == 0
            wait_for(lambda: in_sync() == [1])
            flow.write(topic_name, numbered(5, "later"))
            why = wait_for(lambda: p.broken if "NOT_ENOUGH_REPLICAS" in p.broken else "")
            assert p.receipt("A->B").source_position == 5
        finally:
            follower.resume()
        wait_for(lambda: end() == 11)
    assert f"{remote}-0 on B has fewer replicas in sync than its min.insync.replicas" in why
    assert "copying goes on when its brokers are back" in why
    ours = [value for value in flow.values(topic_name) if value != b"foreign"]
    assert ours == numbered(5) + numbered(5, "later")
    flow.assert_ledger_is_exact(topic_name)


@pytest.mark.full
def test_what_replicas_lack_is_waited_for_before_more_is_written(flow, topic_name):
    """The leader has it, nobody can read it, and nobody remembers who wrote it."""
    follower = flow.lab["B"].broker(2)
    remote = TopicPartition(f"A.{topic_name}", 0)
    # So that it stays unreadable when the leader gives the follower up.
    create_led_by_broker_1(flow, topic_name, "--config", "min.insync.replicas=2")
    flow.write(topic_name, numbered(10, "a"))
    flow.target.avoided = {2}

    def remembered():
        metadata = flow.target.metadata([remote.topic])
        return admin.describe_producers(flow.target, metadata, [remote]).get(remote)

    def readable():
        return wait_for(lambda: flow.offsets(flow.target, remote.topic, admin.LATEST).get(remote))

    def leader_end():
        metadata = flow.target.metadata([remote.topic])
        epoch = metadata.leader_epoch(*remote)
        found = epoch_ends(flow.target, metadata, {remote: epoch}).get(remote)
        return found and found.offset

    try:
        with Holding(flow, topic_name, seconds=600):
            wait_for(lambda: readable() == 10)
            follower.suspend()
            flow.write(topic_name, numbered(10, "b"))
            wait_for(lambda: leader_end() == 20)
        wait_for(lambda: remembered() == [])
        assert readable() == 10
        with Holding(flow, topic_name, seconds=600) as held:
            p = held.part(topic_name)
            why = wait_for(lambda: p.broken if "do not have all" in p.broken else "")
            assert f"{remote} on B do not have all that its leader has" in why
            assert readable() == 10
            follower.resume()
            wait_for(lambda: readable() >= 20)
            flow.write(topic_name, numbered(10, "c"))
            wait_for(lambda: readable() >= 30)
    finally:
        follower.resume()
    wanted = numbered(10, "a") + numbered(10, "b") + numbered(10, "c")
    assert flow.values(topic_name) == wanted
    flow.assert_ledger_is_exact(topic_name)
    flow.assert_known(topic_name)


QUICK = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "unclean.leader.election.enable": "true",
}


@pytest.mark.full
def test_f13_an_unclean_election_on_the_target_loses_nothing(lab_factory, topic_name):
    """Broker 3 takes the place of broker 2 without what was written last, markers among it."""
    lab = lab_factory(brokers={"A": 1, "B": 3}, settings={"B": QUICK}, heap="320m")
    made = [Mirroring.of(lab)]
    while leader(made[-1], made[-1].context.ledger_topic) != 1:
        made.append(Mirroring.of(lab))
    flow = made[-1].leasing(identical=True, paddable=True)
    flow = flow.but(offset_syncs=None)
    remote, cluster = f"A.{topic_name}", lab["B"]
    source = admin.NewTopic(topic_name, 1, 1, {"retention.ms": "-1"})
    assert admin.create_topics(flow.source, [source], 30_000) == {}
    flow.await_topic(flow.source, topic_name, 1)
    lab.tool(
        "TopicCommand", "--bootstrap-server", cluster.broker(1).address, "--create",
        "--topic", remote, "--replica-assignment", "2:3", "--config", "retention.ms=-1",
    )  # fmt: skip
    flow.await_topic(flow.target, remote, 1)

    def end():
        def ask():
            return flow.offsets(flow.target, remote, admin.LATEST).get(TopicPartition(remote, 0))

        with suppress(WireError):
            return flow.target.retry(ask, 30)

    transactions(flow, topic_name, [(numbered(9, "kept"), True)])
    with Holding(flow, topic_name, seconds=900) as held:
        wait_for(lambda: end() == 10)
        cluster.broker(3).kill()
        transactions(flow, topic_name, [(numbered(5, "x"), False), (numbered(13, "lost"), True)])
        wait_for(lambda: end() == 30, 120)
        cluster.broker(2).kill()
        cluster.broker(3).start()
        wait_for(lambda: held.told("target.truncated"), 240)
        wait_for(lambda: end() == 30, 120)
        [event] = held.told("target.truncated")
        assert (event.first, event.until) == (10, 30)
        assert "13 mirrored record(s) among them are copied again" in event.text
        transactions(flow, topic_name, [(numbered(4, "new"), True)])
        wait_for(lambda: end() == 35)
    values = [value for _, _, value, *_ in same(flow, topic_name)]
    assert values == numbered(9, "kept") + numbered(13, "lost") + numbered(4, "new")
    for one in made:
        one.close()
