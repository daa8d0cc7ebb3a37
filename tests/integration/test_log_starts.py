"""What the source has deleted is deleted on the target too, where that is asked for."""

from __future__ import annotations

import pytest
from sources import numbered, transactions

from heliograph.control.topics.log_starts import LogStartFollower
from heliograph.control.topics.refresh import TopicPlan
from heliograph.ledger.store import LedgerStore
from heliograph.model import TopicPartition
from heliograph.wire import admin


def follower(flow, topic):
    def plan():
        return TopicPlan(
            {TopicPartition(topic, 0): f"A.{topic}"}, {},
            flow.source.metadata([topic]), flow.target.metadata([f"A.{topic}"]),
        )  # fmt: skip

    ledger = LedgerStore(flow.target, flow.context.ledger_topic)
    return LogStartFollower(flow.context.flow, flow.source, flow.target, ledger, plan)


def start(flow, topic):
    remote = TopicPartition(f"A.{topic}", 0)
    return flow.offsets(flow.target, remote.topic, admin.EARLIEST)[remote]


@pytest.mark.parametrize("identical", [False, True])
def test_the_start_moves_along(mirroring, topic_name, identical):
    flow = mirroring.leasing(identical=identical, paddable=True)
    flow.create(topic_name)
    job = follower(flow, topic_name)
    job.follow()  # nothing was mirrored yet
    committed = transactions(flow, topic_name, [(numbered(4, f"t{n}"), True) for n in range(5)])
    flow.copy(topic_name)
    job.follow()
    assert start(flow, topic_name) == 0
    # Behind the second transaction's marker: 4 records and a marker each.
    flow.trim(flow.source, TopicPartition(topic_name, 0), 10)
    job.follow()
    assert start(flow, topic_name) == (10 if identical else 8)
    assert flow.values(topic_name) == committed[8:]
    # To the source's end, and not beyond what is mirrored.
    flow.trim(flow.source, TopicPartition(topic_name, 0), -1)
    job.follow()
    assert flow.values(topic_name) == []
    more = transactions(flow, topic_name, [(numbered(2, "more"), True)])
    flow.copy(topic_name)
    assert flow.values(topic_name) == more


def test_a_topic_that_keeps_its_records_is_told_once(mirroring, topic_name, caplog):
    mirroring.create(topic_name, target_configs={"cleanup.policy": "compact"})
    mirroring.write(topic_name, numbered(5))
    mirroring.copy(topic_name)
    mirroring.trim(mirroring.source, TopicPartition(topic_name, 0), 3)
    job = follower(mirroring, topic_name)
    for _ in range(2):
        job.follow()
    said = [r.getMessage() for r in caplog.records if "still holds" in r.getMessage()]
    moved = start(mirroring, topic_name) == 3
    assert moved or len(said) == 1, "brokers differ in what they let be deleted"
