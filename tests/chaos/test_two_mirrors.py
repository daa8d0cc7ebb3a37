"""Two mirrors of one flow, by mistake or on purpose: one works, the other stands by."""

import re
import time
from contextlib import suppress

import psutil
import pytest
from mirror_process import (
    LiveProducer,
    MirrorProcess,
    client,
    configure,
    create_topic,
    ends,
    wait_for,
)

from heliograph.lab.proof import compare

PARTITIONS = 4
STANDING_BY = (
    r"WARNING A->B is being mirrored by another Heliograph: host \S+, pid {pid},"
    r" since \d\d:\d\d:\d\d; standing by, it takes over 10 s after that one falls silent"
)


@pytest.fixture
def flow(lab, topic_name, tmp_path):
    config = configure(lab, tmp_path, topic_name)
    a, b = client(lab["A"]), client(lab["B"])
    create_topic(a, topic_name, PARTITIONS)
    yield config, topic_name, a, b
    a.close()
    b.close()


def copied(b, topic):
    return sum(ends(b, f"A.{topic}").values())


def copies(lab, mirror):
    """Whether any of the mirror's workers talks to a broker; workers that are only warm do not."""
    ports = {int(lab[alias].bootstrap.rpartition(":")[2]) for alias in "AB"}
    _, _, workers = mirror.tree()
    connections = []
    for worker in workers:
        with suppress(psutil.NoSuchProcess):
            connections += worker.net_connections("tcp")
    return any(c.raddr and c.raddr.port in ports for c in connections)


@pytest.mark.full
def test_f40_the_second_stands_by_and_takes_over(lab, flow, tmp_path):
    config, topic, a, b = flow
    producer = LiveProducer(lab["A"].bootstrap, topic, PARTITIONS)
    producer.start()
    first = MirrorProcess(config, tmp_path / "first.log")
    second = None
    try:
        wait_for(lambda: copied(b, topic) > 0, 240, "the first mirror copies")
        second = MirrorProcess(config, tmp_path / "second.log")
        said = second.log_path.read_text
        told = re.compile(STANDING_BY.format(pid=first.pid))
        wait_for(lambda: told.search(said()), 240, "the second says that it stands by")
        wait_for(lambda: " A->B: standing by, " in said(), 240, "its status says so, too")
        wait_for(second.lease_holders, 240, "its Spark is warm")
        assert len(told.findall(said())) == 1
        wait_for(lambda: copies(lab, first), 240, "the first copies")
        # The first goes on beside it, for longer than a silent one would be tolerated.
        for _ in range(2):
            before = copied(b, topic)
            time.sleep(4)
            wait_for(lambda n=before: copied(b, topic) > n, 240, "the first goes on")
            assert not copies(lab, second)
        assert "standing by" not in first.log_path.read_text()
        first.kill("driver", None)
        wait_for(lambda: "taking over from host " in said(), 240, "the second takes over")
        wait_for(lambda: copies(lab, second), 240, "its workers copy")
        # Which is not waited for, as silence is.
        assert said().count("its process is gone") == 1
        producer.stop()
        wait_for(lambda: ends(a, topic) == ends(b, f"A.{topic}"), 240, "it catches up")
        proof = compare(a, b, topic, f"A.{topic}")
        assert proof.identical, proof
        assert proof.moved == 0, proof
        assert proof.compared == producer.written * PARTITIONS
        assert second.stop() == 0
    finally:
        producer.stop()
        for mirror in (first, second):
            if mirror is not None:
                mirror.destroy()


@pytest.mark.full
def test_f06_f40_a_mirror_that_stops_makes_room_at_once(lab, flow, tmp_path):
    """And one that starts after a clean stop, or after kill -9, does not wait at all.

    One that cannot stand by (``--once``) says so and ends.
    """
    config, topic, _, b = flow
    producer = LiveProducer(lab["A"].bootstrap, topic, PARTITIONS, batches_per_second=10)
    producer.start()
    first = MirrorProcess(config, tmp_path / "first.log")
    second = third = None
    try:
        wait_for(lambda: copied(b, topic) > 0, 120, "the first mirror copies")
        hasty = MirrorProcess(config, tmp_path / "hasty.log", "--once")
        assert hasty.wait(120) == 3
        assert "[flow.owned] flow A->B is being mirrored by another Heliograph: host " in (
            hasty.log_path.read_text()
        )
        second = MirrorProcess(config, tmp_path / "second.log")
        said = second.log_path.read_text
        wait_for(lambda: "standing by" in said(), 120, "the second says that it stands by")
        assert first.stop() == 0
        wait_for(lambda: "it has ended" in said(), 120, "the second takes over")
        wait_for(lambda: copies(lab, second), 120, "it copies")
        second.kill("driver", None)
        third = MirrorProcess(config, tmp_path / "third.log")
        wait_for(lambda: copies(lab, third), 120, "the third copies")
        log = third.log_path.read_text()
        assert "standing by" not in log
        assert "beginning in" not in log
    finally:
        producer.stop()
        for mirror in (first, second, third):
            if mirror is not None:
                mirror.destroy()
