"""Two mirrors of one flow, by mistake or on purpose: one works, the other stands by."""

import re
import time

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
    r"warning: A->B is being mirrored by another Heliograph: host \S+, pid {pid},"
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
    connections = [c for w in workers for c in w.net_connections("tcp")]
    return any(c.raddr and c.raddr.port in ports for c in connections)


@pytest.mark.timeout(300)
def test_f40_the_second_stands_by_and_takes_over(lab, flow, tmp_path):
    config, topic, a, b = flow
    producer = LiveProducer(lab["A"].bootstrap, topic, PARTITIONS)
    producer.start()
    first = MirrorProcess(config, tmp_path / "first.log")
    second = third = None
    try:
        wait_for(lambda: copied(b, topic) > 0, 60, "the first mirror copies")
        second = MirrorProcess(config, tmp_path / "second.log")
        said = second.log_path.read_text
        told = re.compile(STANDING_BY.format(pid=first.pid))
        wait_for(lambda: told.search(said()), 60, "the second says that it stands by")
        wait_for(lambda: " A->B: standing by, " in said(), 60, "its status says so, too")
        wait_for(second.lease_holders, 60, "its Spark is warm")
        assert len(told.findall(said())) == 1
        assert copies(lab, first)
        # One that cannot stand by says so and ends.
        third = MirrorProcess(config, tmp_path / "third.log", "--once")
        assert third.wait(60) == 3
        assert "[flow.owned] flow A->B is being mirrored by another Heliograph: host " in (
            third.log_path.read_text()
        )
        # The first goes on beside them, for longer than a silent one would be tolerated.
        for _ in range(4):
            before = copied(b, topic)
            time.sleep(4)
            assert copied(b, topic) > before
            assert not copies(lab, second)
        assert "standing by" not in first.log_path.read_text()
        first.kill("driver", None)
        killed = time.monotonic()
        wait_for(lambda: "taking over from host " in said(), 15, "the second takes over")
        wait_for(lambda: copies(lab, second), 15, "its workers copy")
        assert time.monotonic() - killed < 15
        assert said().count("its process is gone") == 1
        producer.stop()
        wait_for(lambda: ends(a, topic) == ends(b, f"A.{topic}"), 90, "it catches up")
        proof = compare(a, b, topic, f"A.{topic}")
        assert proof.identical, proof
        assert proof.moved == 0, proof
        assert proof.compared == producer.written * PARTITIONS
        code, seconds = second.stop()
        assert code == 0
        assert seconds < 5
    finally:
        producer.stop()
        for mirror in (first, second, third):
            if mirror is not None:
                mirror.destroy()


@pytest.mark.full
@pytest.mark.timeout(200)
def test_f06_f40_a_mirror_that_stops_makes_room_at_once(lab, flow, tmp_path):
    """And one that starts after a clean stop, or after kill -9, does not wait at all."""
    config, topic, _, b = flow
    producer = LiveProducer(lab["A"].bootstrap, topic, PARTITIONS, batches_per_second=10)
    producer.start()
    first = MirrorProcess(config, tmp_path / "first.log")
    second = third = None
    try:
        wait_for(lambda: copied(b, topic) > 0, 60, "the first mirror copies")
        second = MirrorProcess(config, tmp_path / "second.log")
        said = second.log_path.read_text
        wait_for(lambda: "standing by" in said(), 60, "the second says that it stands by")
        assert first.stop()[0] == 0
        wait_for(lambda: "it has ended" in said(), 5, "the second takes over")
        wait_for(lambda: copies(lab, second), 60, "it copies")
        second.kill("driver", None)
        third = MirrorProcess(config, tmp_path / "third.log")
        wait_for(lambda: copies(lab, third), 60, "the third copies")
        log = third.log_path.read_text()
        assert "standing by" not in log
        assert "beginning in" not in log
    finally:
        producer.stop()
        for mirror in (first, second, third):
            if mirror is not None:
                mirror.destroy()
