"""Faults of brokers, one by one (docs/faults.md); the flow runs in this process."""

import os
import random
from dataclasses import replace

import pytest
from copying import Copying, endless
from mirroring import Mirroring, wait_for
from nemesis import LeadersShuffled, RollingRestart, SmallDisk, World
from test_leader_changes import QUICK, Writer

from heliograph.copy import links
from heliograph.lab import Lab
from heliograph.wire import admin


def mirroring(lab):
    links.close()  # of labs that are gone
    return Mirroring.of(lab)


def create(flow, topic, replicas, partitions=1, **configs):
    """The topic on A and its remote topic on B, which has other replicas and configs."""
    for client, name, count, own in (
        (flow.source, topic, replicas["A"], {}),
        (flow.target, f"A.{topic}", replicas["B"], configs),
    ):
        # Records of `Mirroring.write` are from 2023: the brokers' retention must not take them.
        new = admin.NewTopic(name, partitions, count, {"retention.ms": "-1", **own})
        failed = admin.create_topics(client, [new], 30_000)
        assert not failed, failed
        flow.await_topic(client, name, partitions)


def assert_exact(flow, topic):
    for client in (flow.source, flow.target):
        client.close()
    proof = flow.proof(topic)
    assert proof.identical, proof
    assert proof.moved == 0, proof


@pytest.mark.full
def test_f15_rolling_restarts_and_new_leaders_have_no_effect(lab_factory):
    lab = lab_factory(brokers=3, settings={"*": QUICK}, heap="384m")
    flow = mirroring(lab)
    create(flow, "orders", {"A": 3, "B": 3}, partitions=6)
    world = World(lab, None, {}, random.Random(15))
    writer = Writer(lab["A"].bootstrap, "orders")
    writer.start()
    copying = Copying(endless(flow.lease(["orders"], seconds=800)))
    try:
        for fault in (LeadersShuffled, RollingRestart, LeadersShuffled):
            for alias in "AB":
                assert fault(world, alias).inject()
        writer.stop()
        assert not writer.failed, writer.failed[:3]
        # Connections of these clients are older than the restarts: every broker has closed its own.
        for client in (flow.source, flow.target):
            client.close()
        ends = flow.ends("orders")
        remote = {p.partition: end for p, end in ends.items()}
        wait_for(lambda: reached(flow, "A.orders") == remote)
        assert_exact(flow, "orders")
    finally:
        writer.stop()
        flow.close()
    assert copying.is_alive()  # one lease went through all of it


def alive(client):
    return client.retry(lambda: client.metadata([]), 60).brokers


def reached(flow, topic):
    found = flow.offsets(flow.target, topic, admin.LATEST)
    return {p.partition: end for p, end in found.items()}


@pytest.fixture
def small_disk_lab(tmp_path):
    """B's only broker keeps its data on a tmpfs of 64 MB."""
    try:
        disk = SmallDisk(tmp_path / "lab" / "B" / "data-1", 64)
    except OSError as error:
        pytest.skip(str(error))
    lab = Lab(tmp_path / "lab")
    try:
        lab.start(200)
        yield lab, disk
    finally:
        lab.stop(grace_s=0)
        disk.unmount()


@pytest.mark.full
def test_f32_a_full_disk_at_the_target_is_waited_for(small_disk_lab, told):
    lab, disk = small_disk_lab
    address, reports = told
    flow = mirroring(lab)
    flow.create("orders")
    flow.write("orders", [os.urandom(10_000) for _ in range(3000)])
    copying = Copying(replace(flow.lease(["orders"], seconds=150), report_to=address))
    broker = lab["B"].broker(1)
    try:
        disk.fill()
        assert broker.join(60), "Kafka halts a broker whose only disk fails"
        wait_for(lambda: any("cannot connect to 127.0.0.1" in r.why for r in reports))
        disk.empty()
        broker.start()
        lab["B"].wait_ready()
        assert [r.error for r in copying.result(120)] == [""]
        assert_exact(flow, "orders")
    finally:
        flow.close()
