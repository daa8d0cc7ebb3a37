"""What the ledger's keeper is told: nothing that somebody may still need is given up."""

from __future__ import annotations

import uuid

import pytest

from heliograph.control.ledger_care import LedgerCare
from heliograph.control.topics.refresh import TopicPlan
from heliograph.ledger.codec import Place
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.admin import EARLIEST, ProducerState
from heliograph.wire.metadata import NO_ID, Metadata, TopicInfo

HERE, THERE, OTHER = (uuid.UUID(int=n) for n in (1, 2, 3))
PLACE = Place("t", 0, HERE, THERE)
REMOTE = TopicPartition("A.t", 0)
OURS = 77
MODULUS = 1 << 31


class Keeper:
    """A ledger's store and keeper; remembers what it was told."""

    def __init__(self, runs):
        self.ledgers = {PLACE: PartitionLedger(runs)}
        self.told = []

    @property
    def store(self):
        return self

    @property
    def keeper(self):
        return self

    @property
    def places(self):
        return self.ledgers.keys()

    def at(self, place):
        return self.ledgers[place]

    def refresh(self):
        pass

    def tidy(self, log_starts, gone):
        self.told.append((dict(log_starts), set(gone)))


class Cluster:
    """The target: one partition, its log and the producers it remembers."""

    def __init__(self):
        self.start, self.end, self.next_sequence = 0, 2000, 2000
        self.known = {THERE}
        self.asked = set()

    def list_offsets(self, _client, _metadata, partitions, at):
        return dict.fromkeys(partitions, self.start if at == EARLIEST else self.end)

    def describe_producers(self, _client, _metadata, partitions):
        mine = [] if self.next_sequence is None else [
            ProducerState(5, 9, 0), ProducerState(OURS, (self.next_sequence - 1) % MODULUS, 0)
        ]  # fmt: skip
        return dict.fromkeys(partitions, mine)

    def unknown_topic_ids(self, _client, ids):
        self.asked |= set(ids)
        return set(ids) - self.known


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()
    for name in ("list_offsets", "describe_producers", "unknown_topic_ids"):
        monkeypatch.setattr(admin, name, getattr(made, name))
    return made


def metadata(name, topic_id):
    return Metadata("c", 0, {}, {name: TopicInfo(name, topic_id, False, {})})


def care(keeper, planned=True):
    plan = TopicPlan()
    if planned:
        plan.partitions = {TopicPartition("t", 0): "A.t"}
        plan.source, plan.target = metadata("t", HERE), metadata("A.t", THERE)
    return LedgerCare(keeper, None, OURS, lambda: plan)


def runs(count, first=0):
    return [Run(first + 10 * n, 11 * n, 10 * n) for n in range(count)]


def bound(keeper, cluster):
    care(keeper).tend()
    return keeper.told[-1][0][PLACE]


def test_the_log_start_is_the_bound(cluster):
    cluster.start = 1500
    assert bound(Keeper(runs(200)), cluster) == 1500


def test_sequences_that_wrapped(cluster):
    cluster.start, cluster.next_sequence = 1500, MODULUS + 1000
    assert bound(Keeper(runs(200, first=MODULUS - 1000)), cluster) == 1500


def test_few_runs_are_not_worth_a_question(cluster):
    cluster.start = 900
    assert bound(Keeper(runs(100)), cluster) == 0


def test_what_is_not_written_yet_is_kept(cluster):
    """Foreign records put the log start behind where the ledger expects our next record."""
    cluster.start, cluster.next_sequence = 1500, 1234
    keeper = Keeper(runs(200))
    assert bound(keeper, cluster) == 1234
    keeper.at(PLACE).prune(1234)
    assert keeper.at(PLACE).at_sequence(1234) == Run(1230, 1353, 1230)


def test_without_producer_state_nothing_is_pruned(cluster):
    cluster.start, cluster.next_sequence = 1500, None
    assert bound(Keeper(runs(200)), cluster) == 0


def test_without_a_plan_nothing_is_done(cluster):
    keeper = Keeper(runs(200))
    care(keeper, planned=False).tend()
    assert keeper.told == []


def test_topics_that_are_gone_are_looked_for_twice(cluster):
    keeper = Keeper(runs(1))
    keeper.ledgers[PLACE._replace(target_id=OTHER)] = PartitionLedger(runs(1))
    keeper.ledgers[PLACE._replace(target_id=NO_ID)] = PartitionLedger(runs(1))
    job = care(keeper)
    job.tend()
    cluster.known.add(OTHER)
    job.tend()
    cluster.known.remove(OTHER)
    job.tend()
    job.tend()
    assert [gone for _, gone in keeper.told] == [set(), set(), set(), {OTHER}]
    assert cluster.asked == {OTHER}, "not for what is mirrored, nor for topics without ids"
