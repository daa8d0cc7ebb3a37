"""`heliograph run --once` leaves groups where they should be; `heliograph groups` shows them."""

from __future__ import annotations

import json
import uuid

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assignment
from driving import HeldHere
from grouping import await_groups
from mirroring import settings, wait_for

from heliograph.cli import cli
from heliograph.config import load
from heliograph.copy import links
from heliograph.mm2.checkpoints import CheckpointLog
from heliograph.model import TopicPartition
from heliograph.service import mirror as service
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.groups import GroupClient


class Mirrored:
    """Two partitions with 10 records each, of which a group has read 4 and 10, and another none."""

    def __init__(self, lab, folder):
        self.lab = lab
        unique = uuid.uuid4().hex[:8]
        self.topic, self.group = f"topic-{unique}", f"group-{unique}"
        self.path = folder / "mm2.properties"
        self.path.write_text(
            f"""clusters = A, B
A.bootstrap.servers = {lab["A"].bootstrap}
B.bootstrap.servers = {lab["B"].bootstrap}
A->B.enabled = true
A->B.topics = {self.topic}
A->B.groups = .*{unique}
A->B.groups.exclude = other-.*
B->A.emit.heartbeats.enabled = false
sync.group.offsets.enabled = true
replication.factor = 1
offset-syncs.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
"""
        )
        self.source = ClusterClient(settings(lab, "A"), "test")
        self.target = ClusterClient(settings(lab, "B"), "test")
        new = admin.NewTopic(self.topic, 2, 1, {})
        assert not admin.create_topics(self.source, [new], 30_000)
        producer = Producer({"bootstrap.servers": lab["A"].bootstrap})
        for n in range(20):
            producer.produce(self.topic, b"%d" % n, partition=n % 2)
        assert producer.flush(60) == 0
        for client in (self.source, self.target):
            await_groups(GroupClient(client), self.group)
        self.commit(self.group, {0: 4, 1: 10})
        self.commit(f"other-{unique}", {0: 1})

    def commit(self, group, offsets):
        consumer = Consumer({"bootstrap.servers": self.lab["A"].bootstrap, "group.id": group})
        wanted = [Assignment(self.topic, p, offset) for p, offset in offsets.items()]
        done = consumer.commit(offsets=wanted, asynchronous=False)
        assert all(p.error is None for p in done), done
        consumer.close()

    def show(self, *options):
        done = CliRunner().invoke(cli, ["groups", str(self.path), *options])
        return done.exit_code, done.output, done.exception


@pytest.fixture(scope="module")
def mirrored(lab, tmp_path_factory):
    """All of ``run --once`` but Spark: leases are held in this process."""
    made = Mirrored(lab, tmp_path_factory.mktemp("groups"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "Engine", HeldHere)
        mirror = service.Mirror(load(made.path), once=True)
        try:
            mirror.start()
            mirror.run_once()
        finally:
            mirror.close()
            links.close()
    yield made
    made.source.close()
    made.target.close()


def test_once_ends_with_checkpoints_and_offsets_of_all_that_was_copied(mirrored):
    log = CheckpointLog(mirrored.target, "A.checkpoints.internal")
    log.refresh()
    found = {key[1:]: c.downstream for key, c in log.known.items() if key[0] == mirrored.group}
    assert found == {(f"A.{mirrored.topic}", 0): 4, (f"A.{mirrored.topic}", 1): 10}
    there = GroupClient(mirrored.target).committed([mirrored.group]).found[mirrored.group]
    remote = [TopicPartition(f"A.{mirrored.topic}", n) for n in range(2)]
    assert {p: c.offset for p, c in there.items()} == {remote[0]: 4, remote[1]: 10}


def test_groups_as_json(mirrored):
    code, output, _ = mirrored.show("-o", "json", "--flow", "A->B")
    assert code == 0
    [flow] = json.loads(output)
    assert flow["flow"] == "A->B"
    [group] = flow["groups"]
    assert group.pop("last_checkpoint").startswith("20")
    assert group == {
        "group": mirrored.group, "type": "classic", "state": "Empty", "target_state": "Empty",
        "partitions": 2, "translated": 2, "behind": 0, "note": "",
    }  # fmt: skip
    assert any("left out by groups and groups.exclude" in note for note in flow["notes"])


def test_groups_as_a_table_with_the_reason_why_one_is_not_synced(mirrored):
    consumer = Consumer({
        "bootstrap.servers": mirrored.lab["B"].bootstrap, "group.id": mirrored.group,
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe([f"A.{mirrored.topic}"])
    wait_for(lambda: consumer.poll(0.1) or consumer.assignment())
    code, output, _ = mirrored.show()
    assert code == 0
    [row] = [line for line in output.splitlines() if mirrored.group in line]
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[:6] == [mirrored.group, "classic", "Empty", "Stable", "2 of 2", "0"]
    assert cells[6].endswith("ago")
    assert cells[7] == "is in use on B (Stable)"
    consumer.close()


def test_a_flow_that_was_never_mirrored(lab, tmp_path):
    never = Mirrored(lab, tmp_path)
    # An alias that no other test has mirrored to B.
    alias = f"C-{uuid.uuid4().hex[:8]}"
    text = never.path.read_text().replace("A->B", f"{alias}->B").replace("B->A", f"B->{alias}")
    text = text.replace("A.bootstrap", f"{alias}.bootstrap").replace("= A,", f"= {alias},")
    never.path.write_text(text)
    code, _, error = never.show()
    assert code != 0
    assert str(error) == (
        f"[groups.not-mirrored] flow {alias}->B: nothing is mirrored yet, B has no ledger of it\n"
        "  -> heliograph run mirrors it"
    )
    never.source.close()
    never.target.close()
