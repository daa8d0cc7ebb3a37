"""Exactly once, whatever is killed or doubled: the target is the source, record by record."""

import random
import signal
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
KILLS = ["worker"] * 8 + ["jvm"] * 6 + ["driver"] * 6


@pytest.fixture
def flow(lab, topic_name, tmp_path):
    """A topic on A, a mm2.properties that mirrors only it, and clients of both clusters."""
    config = configure(lab, tmp_path, topic_name, keys=["heliograph.lease.seconds = 3"])
    a, b = client(lab["A"]), client(lab["B"])
    create_topic(a, topic_name, PARTITIONS)
    yield config, topic_name, a, b
    a.close()
    b.close()


def assert_identical(a, b, topic, at_least):
    wait_for(lambda: ends(a, topic) == ends(b, f"A.{topic}"), 240, "the mirror catches up")
    proof = compare(a, b, topic, f"A.{topic}")
    assert proof.identical, proof
    assert proof.moved == 0, proof
    assert proof.compared >= at_least


@pytest.mark.full
@pytest.mark.parametrize("kills", [sorted(set(KILLS)), KILLS], ids=len)
def test_f05_f06_kills_at_random_moments(lab, flow, tmp_path, kills):
    config, topic, a, b = flow
    dice = random.Random(20261115)
    kills = dice.sample(kills, len(kills))
    producer = LiveProducer(lab["A"].bootstrap, topic, PARTITIONS)
    producer.start()
    mirror = MirrorProcess(config, tmp_path / "mirror.log")
    try:
        for victim in kills:
            # In mid-copy: this mirror's workers are there and the target grows (after a kill of the
            # driver, its orphans may go on for a moment). The exact moment is the dice's.
            wait_for(
                lambda m=mirror: m.lease_holders() and _grows(b, topic), 240, "the mirror copies"
            )
            time.sleep(dice.uniform(0, 1.5))
            mirror.kill(victim, dice)
            if victim == "driver":
                mirror = MirrorProcess(config, tmp_path / "mirror.log")
        producer.stop()
        assert_identical(a, b, topic, producer.written * PARTITIONS)
        # A worker costs its lease a restart, of which nobody needs to hear.
        gone = "Spark's JVM is gone; starting another"
        wait_for(lambda: gone in mirror.log_path.read_text(), 240, "it is said")
        assert mirror.stop() == 0
    finally:
        producer.stop()
        mirror.destroy()


@pytest.mark.full
def test_f07_stopped_and_continued_mirror_beside_a_new_one(lab, flow, tmp_path):
    config, topic, a, b = flow
    # Its leases are to outlive its stop; they do from the second round on.
    config.write_text(config.read_text().replace("lease.seconds = 3", "lease.seconds = 90"))
    producer = LiveProducer(lab["A"].bootstrap, topic, PARTITIONS)
    producer.start()
    zombie = MirrorProcess(config, tmp_path / "zombie.log")
    successor = None
    try:
        wait_for(lambda: sum(ends(b, f"A.{topic}").values()) > 0, 120, "the first mirror copies")
        time.sleep(8)
        zombie.signal_all(signal.SIGSTOP)
        reached = sum(ends(b, f"A.{topic}").values())
        successor = MirrorProcess(config, tmp_path / "successor.log")
        wait_for(
            lambda: sum(ends(b, f"A.{topic}").values()) > reached, 120, "the second mirror copies"
        )
        assert "it has fallen silent" in successor.log_path.read_text()
        zombie.signal_all(signal.SIGCONT, but_the_driver=True)
        # Both write now, the first with what it had in hand when it was stopped.
        wait_for(lambda: producer.written > 0 and _grows(b, topic), 120, "copying goes on")
        time.sleep(5)
        zombie.signal_all(signal.SIGCONT)
        said = zombie.log_path.read_text
        wait_for(lambda: "was taken over by another Heliograph" in said(), 120, "it is told so")
        wait_for(lambda: "A->B: standing by, " in said(), 120, "it stands by")
        wait_for(lambda: _grows(b, topic), 120, "copying goes on")
        producer.stop()
        assert_identical(a, b, topic, producer.written * PARTITIONS)
    finally:
        producer.stop()
        zombie.destroy()
        if successor is not None:
            successor.destroy()


def _grows(b, topic):
    before = sum(ends(b, f"A.{topic}").values())
    time.sleep(0.5)
    return sum(ends(b, f"A.{topic}").values()) > before
