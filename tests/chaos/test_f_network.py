"""Faults of the network between the mirror and real brokers, one by one (docs/faults.md).

The flow runs in this process, without Spark: what is tested is what an executor does.
"""

import os
import re
import time

import psutil
import pytest
from copying import Copying
from kafka.protocol.metadata import MetadataRequest
from mirroring import wait_for
from proxy import FETCH, NO_FAULTS, PRODUCE, Faults

from heliograph.model import ClientSettings
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import ConnectionFailed


def write(flow, topic, records=2000, partitions=1, size=100):
    for partition in range(partitions):
        flow.write(topic, (b"%d-%s" % (n, os.urandom(size)) for n in range(records)), partition,
                   **{"batch.size": 20_000})  # fmt: skip


def begin(flow, topic, **options):
    """The topic is being mirrored: what comes next is data only, and nothing for the ledger."""
    flow.create(topic, options.get("partitions", 1))
    write(flow, topic, records=10, partitions=options.get("partitions", 1))
    flow.copy(topic)
    write(flow, topic, **options)


def assert_exact(flow, topic):
    for client in (flow.source, flow.target):
        client.close()  # its connections may be among those that were cut
    proof = flow.proof(topic)
    assert proof.identical, proof
    assert proof.moved == 0, proof


def test_f02_lost_answers_to_produce_leave_no_duplicate(flow, net, disturbances, topic_name):
    begin(flow, topic_name)
    net.proxies.set(net.b, Faults(answers="drop", api=PRODUCE, times=8))
    hits = net.proxies.stats(net.b).hits
    flow.copy(topic_name, seconds=600)
    assert net.proxies.stats(net.b).hits > hits
    assert_exact(flow, topic_name)
    broke = f"connection to 127.0.0.1:{net.b} broke: "
    assert any(broke in text for text in disturbances), disturbances


def test_f02_connections_cut_within_answers_lose_and_repeat_nothing(
    flow, net, disturbances, topic_name
):
    begin(flow, topic_name, partitions=2)
    net.proxies.set(net.a, Faults(drop_after=70_000))
    net.proxies.set(net.b, Faults(drop_after=2500))
    copying = Copying(flow.lease([topic_name], seconds=600))
    wait_for(lambda: len(disturbances) > 4)
    net.proxies.heal()
    assert [r.error for r in copying.result()] == ["", ""]
    assert_exact(flow, topic_name)


def test_f35_a_produce_request_that_arrives_late_changes_nothing(flow, net, topic_name):
    """We write without transactions; what can be late is a batch of a lease that is over."""
    begin(flow, topic_name)
    door = ClientSettings("B", {"bootstrap.servers": net.lab["B"].back_door})
    past = flow.but(target=door)
    lease = flow.lease([topic_name], seconds=8)
    # Narrow, so that something is on the road at any time.
    net.proxies.set(net.b, Faults(bandwidth=40_000))
    copying = Copying(lease)
    with ClusterClient(door, "test") as behind:
        wait_for(lambda: sum(flow.offsets(behind, f"A.{topic_name}", admin.LATEST).values()))
    net.proxies.set(net.b, Faults(hold=True))
    copying.result()
    # The next lease goes another way, while what the first one sent is still on the road.
    past.copy(topic_name)
    net.proxies.set(net.b, NO_FAULTS)
    flow.write(topic_name, [b"more"] * 10)
    flow.copy(topic_name)
    assert_exact(flow, topic_name)


def test_f31_answers_that_never_come_cost_one_lease(flow, net, topic_name):
    begin(flow, topic_name)
    net.proxies.set(net.b, Faults(answers="mute", api=PRODUCE))
    began = time.monotonic()
    Copying(flow.lease([topic_name], seconds=3)).result()
    assert time.monotonic() - began < 60
    net.proxies.set(net.b, NO_FAULTS)
    flow.copy(topic_name)
    assert_exact(flow, topic_name)


@pytest.mark.full
def test_f31_a_stopped_target_broker_does_not_grow_memory(flow, net, topic_name):
    flow = flow.but(fetch_max_bytes=1 << 20)
    begin(flow, topic_name, records=200, partitions=4, size=50_000)  # 40 MB
    broker = net.lab["B"].broker(1)
    me = psutil.Process()
    copying = Copying(flow.lease([topic_name], seconds=600))
    wait_for(lambda: flow.offsets(flow.target, f"A.{topic_name}", admin.LATEST))
    broker.suspend()
    try:
        at_first = me.memory_info().rss
        for _ in range(20):
            time.sleep(0.2)
            # Some fetches of 1 MB, what the allocator keeps, and what pytest needs.
            assert me.memory_info().rss - at_first < 20 << 20
    finally:
        broker.resume()
    assert [r.error for r in copying.result()] == [""] * 4
    assert_exact(flow, topic_name)


def test_f36_a_bit_flipped_on_the_way_is_read_again(flow, net, disturbances, topic_name):
    begin(flow, topic_name)
    net.proxies.set(net.a, Faults(answers="flip", api=FETCH, times=1))
    hits = net.proxies.stats(net.a).hits
    copying = Copying(flow.lease([topic_name], seconds=600))
    receipts = copying.result()
    assert net.proxies.stats(net.a).hits - hits == 1
    if receipts[0].error:
        # Who checks CRCs at once cannot know whether it is the disk or the link: next lease.
        assert "[source.corrupt]" in receipts[0].error or "source.corrupt" in receipts[0].error
        flow.copy(topic_name)
    assert_exact(flow, topic_name)
    assert any("CORRUPT_MESSAGE" in text for text in disturbances) or receipts[0].error


def test_f36_damage_that_stays_fails_the_partition_and_names_the_offset(flow, net, topic_name):
    begin(flow, topic_name)
    net.proxies.set(net.a, Faults(answers="flip", api=FETCH))
    [receipt] = Copying(flow.lease([topic_name], seconds=600)).result()
    assert re.search(rf"{topic_name}-0 on A: .*offset", receipt.error), receipt.error
    net.proxies.set(net.a, NO_FAULTS)
    flow.copy(topic_name)
    assert_exact(flow, topic_name)


@pytest.mark.full
def test_f41_a_link_that_flaps_100_times_leaks_nothing(flow, net, topic_name):
    begin(flow, topic_name, partitions=2)
    flow.copy(topic_name)
    me = psutil.Process()
    descriptors, threads = me.num_fds(), me.num_threads()
    open_before = {port: net.proxies.stats(port).open for port in (net.a, net.b)}
    write(flow, topic_name, records=10_000, partitions=2, size=500)
    copying = Copying(flow.lease([topic_name], seconds=600))
    for n in range(100):
        net.proxies.cut((net.a, net.b)[n % 2])
        time.sleep(0.03)
    assert [r.error for r in copying.result()] == ["", ""]
    copying.join()
    assert_exact(flow, topic_name)
    # Threads that have nothing to do end by and by.
    wait_for(lambda: me.num_fds() <= descriptors + 2)
    wait_for(lambda: me.num_threads() <= threads + 1)
    for port, count in open_before.items():
        wait_for(lambda p=port, c=count: net.proxies.stats(p).open <= c + 2)
    # One producer id has written it all.
    metadata = flow.target.metadata([f"A.{topic_name}"])
    remote = list(flow.offsets(flow.target, f"A.{topic_name}", admin.LATEST))
    states = admin.describe_producers(flow.target, metadata, remote)
    ids = {producer.producer_id for found in states.values() for producer in found}
    assert ids == {flow.context.producer_id}


@pytest.mark.parametrize("answers", ["duplicate", "swap"])
def test_f42_answers_twice_or_out_of_order_drop_the_connection(
    flow, net, disturbances, topic_name, answers
):
    begin(flow, topic_name, records=20_000)
    wrong = re.compile(rf"connection to 127.0.0.1:{net.b} broke: answered request \d+ instead of ")
    net.proxies.set(net.b, Faults(answers=answers, api=PRODUCE))
    copying = Copying(flow.lease([topic_name], seconds=600))
    wait_for(lambda: any(map(wrong.search, disturbances)))
    net.proxies.set(net.b, NO_FAULTS)
    assert [r.error for r in copying.result()] == [""]
    assert_exact(flow, topic_name)


def test_f42_a_client_drops_a_connection_with_answers_of_others(flow, net):
    net.proxies.set(net.b, Faults(answers="duplicate", times=1))
    connection = flow.target.open(1)
    try:
        with pytest.raises(ConnectionFailed, match=r"answered request \d+ instead of"):
            for _ in range(3):
                connection.request(MetadataRequest(topics=[]), 60)
        assert connection.closed
    finally:
        connection.close()
