"""A file that changes all the time, under load: nothing is lost or repeated, whatever it says."""

from __future__ import annotations

import random
import time

import pytest
from mirror_process import LiveProducer, MirrorProcess, client, create_topic, ends, wait_for

from heliograph.lab.proof import compare

EDITS = 20
PARTITIONS = 2
SOURCES = ("A1", "A2")


class File:
    """An mm2.properties that is edited at random; what it says is what is to be mirrored."""

    def __init__(self, path, lab, topics, dice):
        self.path, self._lab, self._topics, self._dice = path, lab, topics, dice
        self.mirrored = {alias: set(topics) for alias in SOURCES}
        self.write()

    def write(self, more=""):
        lines = [
            "clusters = A1, A2, B",
            f"B.bootstrap.servers = {self._lab['B'].bootstrap}",
            "replication.factor = 1",
            *(f"{x}.topic.replication.factor = 1"
              for x in ("heartbeats", "offset-syncs", "checkpoints")),
            f"emit.checkpoints.interval.seconds = {self._dice.randint(1, 5)}",
            f"heliograph.lease.seconds = {self._dice.choice([5, 6])}",
        ]  # fmt: skip
        for alias in SOURCES:
            lines.append(f"{alias}.bootstrap.servers = {self._lab['A'].bootstrap}")
            topics = ", ".join(sorted(self.mirrored[alias]))
            lines.append(f"{alias}->B.enabled = {'true' if topics else 'false'}")
            if topics:
                lines.append(f"{alias}->B.topics = {topics}")
        self.path.write_text("\n".join([*lines, more]))

    def edit(self):
        """Topics in and out, a flow on and off, other intervals; or a file that is broken."""
        alias, other = self._dice.sample(SOURCES, 2)
        wanted = {t for t in self._topics if self._dice.random() < 0.7}
        self.mirrored[alias] = wanted or ({self._topics[0]} if not self.mirrored[other] else set())
        self.write()

    def spoil(self):
        self.write("A1->B.topcis = nothing")


@pytest.mark.full
def test_random_edits_under_load(lab, topic_name, tmp_path):
    dice = random.Random(14)
    topics = [f"{topic_name}-{n}" for n in range(4)]
    a, b = client(lab["A"]), client(lab["B"])
    for topic in topics:
        create_topic(a, topic, PARTITIONS)
    producers = [LiveProducer(lab["A"].bootstrap, t, PARTITIONS, 10, 50) for t in topics]
    file = File(tmp_path / "mm2.properties", lab, topics, dice)
    mirror = MirrorProcess(file.path, tmp_path / "mirror.log", "--watch")
    try:
        for producer in producers:
            producer.start()
        first = f"A1.{topics[0]}"
        wait_for(lambda: sum(ends(b, first).values()) > 0, 120, "the mirror copies")
        for number in range(EDITS):
            if number % 5 == 4:
                file.spoil()
                refused = mirror.log_path.read_text().count("is refused") + 1
                wait_for(
                    lambda n=refused: mirror.log_path.read_text().count("is refused") >= n, 60,
                    "the broken file is refused",
                )  # fmt: skip
            file.edit()
            time.sleep(dice.uniform(0.5, 4.0))
        # In the end everything is mirrored again.
        file.mirrored = {alias: set(topics) for alias in SOURCES}
        file.write()
        for producer in producers:
            producer.stop()
        for alias in SOURCES:
            for topic in topics:
                remote = f"{alias}.{topic}"
                wait_for(
                    lambda t=topic, r=remote: ends(a, t) == ends(b, r), 180, f"{remote} catches up"
                )
                proof = compare(a, b, topic, remote)
                assert proof.identical, (remote, proof)
                assert proof.moved == 0, (remote, proof)
        assert mirror.stop() == 0
    finally:
        for producer in producers:
            producer.stop()
        mirror.destroy()
        a.close()
        b.close()
