"""Source topics that are deleted, created again, or trimmed before they were mirrored."""

from __future__ import annotations

import time

import pytest
from damage import Holding
from driving import copying_jobs
from mirroring import wait_for
from sources import numbered
from surprises import assert_exact, events_of, until

from heliograph.control.topics.deletion import DeletionWatch
from heliograph.control.topics.refresh import TopicRefresh
from heliograph.control.topics.restart import Hooks, TopicRestart
from heliograph.copy.lease_report import LeaseReport
from heliograph.copy.loop import CopyLoop
from heliograph.ledger.codec import Signature
from heliograph.ledger.flow_ledger import FlowLedger
from heliograph.ledger.store import LedgerStore
from heliograph.model import TopicPartition
from heliograph.service.flow import FlowRuntime
from heliograph.wire import admin


@pytest.fixture
def flow(mirroring):
    """Identical offsets, as by default."""
    return mirroring.leasing(identical=True, paddable=True)


def recreate(flow, topic, partitions=1):
    flow.delete(flow.source, topic)
    new = admin.NewTopic(topic, partitions, 1, {"retention.ms": "-1"})
    assert not admin.create_topics(flow.source, [new], 30_000)
    flow.await_topic(flow.source, topic, partitions)


def codes(events):
    return [(event.code, event.first, event.until) for event in events]


# -- F12: retention ----------------------------------------------------------------------------


def overrun(flow, topic):
    """Of 20 records 10 are mirrored, and [10, 15) are gone."""
    flow.create(topic)
    flow.write(topic, numbered(10))
    flow.copy(topic)
    flow.write(topic, numbered(10, "late"))
    flow.trim(flow.source, TopicPartition(topic, 0), 15)


def test_f12_by_default_the_partition_stops_and_names_what_is_gone(flow, topic_name):
    overrun(flow, topic_name)
    receipt, events = until(flow, topic_name, 20)
    assert receipt.error.startswith("[source.data-loss] A deleted 5 offset(s)")
    assert "before they were mirrored: [10, 15)" in receipt.error
    assert "heliograph.on.data.loss=continue" in receipt.error
    assert codes(events) == [("source.data-loss", 10, 15)]
    assert events[0].policy == "", "it does not go on"
    assert flow.values(topic_name) == numbered(10)


@pytest.mark.parametrize("filled", [True, False])
def test_f12_continue_tells_of_the_gap_and_translates_across_it(
    flow, topic_name, tmp_path, monkeypatch, filled
):
    if not filled:
        # As with a gap of more than a million.
        monkeypatch.setattr("heliograph.copy.partition.MOST_MARKERS", 3)
    overrun(flow, topic_name)
    bold = flow.but(on_data_loss="continue")
    receipt, events = until(bold, topic_name, 20)
    assert receipt.error == ""
    assert codes(events) == [("source.data-loss", 10, 15)]
    assert "copying goes on at 15" in events[0].text
    assert events[0].policy == "heliograph.on.data.loss=continue"
    assert flow.values(topic_name) == numbered(10) + numbered(10, "late")[5:]
    shift = 0 if filled else -5
    rows = [(n, n) for n in range(10)] + [(n, n + shift) for n in range(15, 20)]
    assert receipt.target_end == 20 + shift
    flow.write(topic_name, numbered(2, "more"))
    again, nothing = until(flow, topic_name, 22)
    assert (again.error, nothing) == ("", [])
    rows += [(20, 20 + shift), (21, 21 + shift)]
    markers = range(10, 15) if filled else range(0)
    assert_exact(flow, tmp_path, topic_name, rows, markers, 15)
    for lost in range(10, 15):
        assert flow.ledger(topic_name).to_target(lost) == 15 + shift


def test_f12_the_gap_is_known_before_the_next_record_comes(flow, topic_name):
    flow.create(topic_name)
    flow.write(topic_name, numbered(10))
    flow.copy(topic_name)
    flow.write(topic_name, numbered(10, "late"))
    flow.trim(flow.source, TopicPartition(topic_name, 0), 20)
    receipt, events = until(flow.but(on_data_loss="continue"), topic_name, 20)
    assert (receipt.error, receipt.source_position) == ("", 20)
    assert codes(events) == [("source.data-loss", 10, 20)]
    assert flow.ledger(topic_name).to_target(12) == 20
    flow.write(topic_name, numbered(1, "next"))
    again, nothing = until(flow, topic_name, 21)
    assert (again.error, nothing) == ("", []), "told once"
    assert flow.seen(topic_name)[-1].offset == 20


# -- F10, F14: created again -------------------------------------------------------------------


def test_f10_by_default_a_topic_that_was_created_again_stops(flow, topic_name):
    flow.create(topic_name)
    flow.write(topic_name, numbered(5, "old"))
    flow.copy(topic_name)
    recreate(flow, topic_name)
    flow.write(topic_name, numbered(5, "new"))
    receipt, events = until(flow, topic_name, 5)
    assert receipt.error.startswith("[source.recreated]")
    assert "heliograph.on.recreation=restart-topic" in receipt.error
    assert [event.code for event in events] == ["source.recreated"]
    assert flow.values(topic_name) == numbered(5, "old")


def test_f10_continue_appends_and_tells_once(flow, topic_name, tmp_path):
    flow.create(topic_name)
    flow.write(topic_name, numbered(5, "old"))
    flow.copy(topic_name)
    recreate(flow, topic_name)
    flow.write(topic_name, numbered(5, "new"))
    bold = flow.but(on_recreation="continue")
    receipt, events = until(bold, topic_name, 5)
    assert receipt.error == ""
    assert [event.code for event in events] == ["source.recreated"]
    assert "appended to the old ones (heliograph.on.recreation=continue)" in events[0].text
    assert flow.values(topic_name) == numbered(5, "old") + numbered(5, "new")
    assert_exact(flow, tmp_path, topic_name, [(n, 5 + n) for n in range(5)], range(0), 0)
    _, nothing = until(bold, topic_name, 5)
    assert nothing == []


def test_f10_while_a_lease_runs(flow, topic_name):
    """Created again within a moment, by a producer that creates topics as it goes, say."""
    flow.create(topic_name)
    flow.write(topic_name, numbered(5, "old"))
    with Holding(flow, topic_name, identical=True, paddable=True) as holding:
        wait_for(lambda: flow.values(topic_name) == numbered(5, "old"))
        recreate(flow, topic_name)
        flow.write(topic_name, numbered(50, "new"))
        wait_for(lambda: holding.part(topic_name).failing)
    [receipt] = holding.receipts
    assert receipt.error.startswith("[source.recreated]")
    assert len(holding.told("source.recreated")) == 1
    assert flow.values(topic_name) == numbered(5, "old")


def test_f14_a_topic_that_shrank_names_the_partitions_that_are_left_behind(flow, topic_name):
    flow.create(topic_name, partitions=3)
    for index in range(3):
        flow.write(topic_name, numbered(3, f"old-{index}"), index)
    with Holding(flow, topic_name, identical=True, paddable=True) as holding:
        wait_for(lambda: all(len(flow.seen(topic_name, i)) == 3 for i in range(3)))
        recreate(flow, topic_name, partitions=1)
        wait_for(lambda: holding.part(topic_name).failing)
        wait_for(lambda: len(holding.told("source.shrunk")) == 2)
        waiting = holding.part(topic_name, 2)
        assert waiting.failing is None, "there is nothing that it could recover to"
        assert "created again with 1 partition(s)" in waiting.broken
    failed = holding.part(topic_name, 0).failing.why
    assert f"A.{topic_name}-1 to -2 on B: what was mirrored is kept" in failed
    for index in range(3):
        assert flow.values(topic_name, index) == numbered(3, f"old-{index}")


# -- F9: deleted ---------------------------------------------------------------------------------


def test_f9_a_deleted_topic_waits_and_its_neighbour_goes_on(flow, topic_name):
    other = f"{topic_name}-other"
    for name in (topic_name, other):
        flow.create(name)
        flow.write(name, numbered(5))
    with Holding(flow, topic_name, other, identical=True, paddable=True) as holding:
        wait_for(lambda: len(flow.seen(topic_name)) == len(flow.seen(other)) == 5)
        flow.delete(flow.source, topic_name)
        gone = holding.part(topic_name)
        # An idle fetch ends when the broker has something to say, or when a lease ends.
        wait_for(lambda: "is not on A: deleted" in gone.broken)
        flow.write(other, numbered(5, "more"))
        wait_for(lambda: len(flow.seen(other)) == 10)
        assert gone.failing is None
    assert flow.values(topic_name) == numbered(5), "what was mirrored is kept"


def test_f9_a_deleted_topic_is_told_of_once(flow, pair, topic_name):
    sign(flow)
    for name in (topic_name, f"{topic_name}-other"):
        flow.create(name)
        flow.write(name, numbered(5))
        flow.copy(name)
    p = pair(topics=f"{topic_name}.*")
    refresh = TopicRefresh(p.config, p.source, p.target)
    events = []
    watch = DeletionWatch(
        p.config, p.source, p.target, FlowLedger(p.target, flow.context.ledger_topic),
        lambda: refresh.refresh(create=False), events.extend,
    )  # fmt: skip
    flow.delete(flow.source, topic_name)
    wait_for(lambda: watch.watch() or events)
    for _ in range(3):
        watch.watch()
    [event] = events
    assert (event.code, event.partition.topic) == ("source.deleted", topic_name)
    assert "is kept, with 5 offset(s)" in event.text


# -- restart-topic -------------------------------------------------------------------------------


def sign(flow):
    ids = (flow.source.cluster_id(), flow.target.cluster_id())
    ledger = LedgerStore(flow.target, flow.context.ledger_topic)
    ledger.sign(Signature(flow.context.producer_id, *ids))


RESTART = {
    "heliograph.on.data.loss": "restart-topic",
    "heliograph.on.recreation": "restart-topic",
}


class Restarting:
    """The driver's job, told of failures by the receipts of leases."""

    def __init__(self, flow, pair, topic):
        sign(flow)
        self.flow = flow.but(on_data_loss="restart-topic", on_recreation="restart-topic")
        self.topic, self.events, self.failing, self.holds = topic, [], {}, True
        p = pair(topics=topic, **RESTART)
        self._refresh = TopicRefresh(p.config, p.source, p.target)
        hooks = Hooks(
            lambda: self._refresh.refresh(create=False),
            lambda: self.failing,
            lambda: self.holds,
            self.events.extend,
            self.refresh,
        )
        ledger = FlowLedger(p.target, flow.context.ledger_topic)
        self.job = TopicRestart(p.config, p.target, ledger, hooks)

    def refresh(self):
        wait_for(lambda: self._refresh.refresh().partitions)

    @property
    def remote_id(self):
        return self.flow.target.metadata([f"A.{self.topic}"]).topics[f"A.{self.topic}"].topic_id

    def fails(self, end):
        receipt, events = until(self.flow, self.topic, end)
        [report] = LeaseReport.decode(receipt.lease_report).reports
        self.failing = {report.partition: report}
        assert "is going to be deleted and mirrored from the start" in receipt.error
        return events


@pytest.fixture
def restarting(flow, pair, topic_name):
    return Restarting(flow, pair, topic_name)


def test_f12_restart_topic_mirrors_what_is_left(restarting, topic_name, tmp_path):
    flow = restarting.flow
    overrun(flow, topic_name)
    before = restarting.remote_id
    assert codes(restarting.fails(20)) == [("source.data-loss", 10, 15)]
    restarting.holds = False
    restarting.job.restart()
    assert restarting.remote_id == before, "another mirror has the flow"
    restarting.holds = True
    restarting.job.restart()
    [event] = restarting.events
    assert event.code == "source.restarted"
    assert "was deleted, with 10 offset(s) in 1 partition(s)" in event.text
    assert "heliograph.on.data.loss=restart-topic" in event.text
    after = restarting.remote_id
    assert after != before
    # The failure is still what it was; it was dealt with.
    restarting.job.restart()
    assert restarting.remote_id == after
    receipt, _ = until(flow, topic_name, 20)
    assert receipt.error == ""
    assert flow.values(topic_name) == numbered(10, "late")[5:]
    assert_exact(flow, tmp_path, topic_name, [(n, n) for n in range(15, 20)], range(0), 0)


def test_f10_restart_topic_mirrors_the_new_topic_from_its_start(restarting, topic_name):
    flow = restarting.flow
    flow.create(topic_name, partitions=3)
    flow.write(topic_name, numbered(5, "old"))
    flow.copy(topic_name)
    recreate(flow, topic_name, partitions=1)
    flow.write(topic_name, numbered(7, "new"))
    restarting.fails(7)
    restarting.job.restart()
    assert [event.code for event in restarting.events] == ["source.restarted"]
    receipt, events = until(flow, topic_name, 7)
    assert receipt.error == ""
    assert not [event for event in events if event.code.startswith("source.")]
    assert flow.values(topic_name) == numbered(7, "new")
    name = f"A.{topic_name}"
    assert len(flow.target.metadata([name]).topics[name].partitions) == 1


def test_f10_a_topic_that_others_wrote_to_is_not_restarted(restarting, topic_name):
    flow = restarting.flow
    overrun(flow, topic_name)
    before = restarting.remote_id
    restarting.fails(20)
    producer = flow.producer("B", **{"enable.idempotence": True})
    producer.produce(f"A.{topic_name}", b"foreign", b"foreign", 0)
    assert producer.flush(30) == 0
    for _ in range(3):
        restarting.job.restart()
    assert restarting.remote_id == before
    [event] = restarting.events
    assert event.code == "source.not-restarted"
    assert "has written to" in event.text
    assert "has written to" in restarting.job.details()[topic_name]
    restarting.failing = {}
    restarting.job.restart()
    assert restarting.job.details() == {}


def test_f10_leases_that_run_while_their_topic_is_restarted_go_on_by_themselves(
    restarting, topic_name
):
    flow = restarting.flow
    flow.create(topic_name)
    flow.write(topic_name, numbered(5, "old"))
    with Holding(flow, topic_name, identical=True, paddable=True) as holding:
        wait_for(lambda: flow.values(topic_name) == numbered(5, "old"))
        recreate(flow, topic_name)
        flow.write(topic_name, numbered(50, "new"))
        part = holding.part(topic_name)
        report = wait_for(lambda: part.failing)
        restarting.failing = {TopicPartition(topic_name, 0): report}
        restarting.job.restart()
        wait_for(lambda: part.records == 55)
        assert flow.values(topic_name) == numbered(50, "new")
    assert events_of(holding.receipts[0])
    assert time.time() > report.since
    assert CopyLoop(flow.lease([topic_name])).run()[0].error == ""


@pytest.mark.parametrize("policy", ["fail", "restart-topic"])
def test_the_job_is_there_if_a_policy_asks_for_it(pair, topic_name, policy):
    p = pair(topics=topic_name, **{"heliograph.on.truncation": policy})
    p.create(p.source, topic_name)
    runtime = FlowRuntime(p.config)
    try:
        runtime.open_target()
        runtime.open()
        assert runtime.prepared.on_truncation == policy
        jobs = [j for j in copying_jobs(runtime) if "restart" in j.description]
        assert len(jobs) == (policy == "restart-topic")
        for job in jobs:
            job.run()
            assert job.details is not None
            assert job.details() == {}
    finally:
        runtime.close()
