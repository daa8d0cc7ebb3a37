"""F11: the source forgets records that are on the target already.

Once for all tests, because it takes brokers a while. A broker dies and its disk has lost the end of
its logs; or (in `make chaos`) an unclean election makes a replica leader that never had it. Every
topic has 100 records that are kept, then 50 that are mirrored and lost; then the source takes new
ones, fewer ("short") or more ("long") than were lost.
"""

from __future__ import annotations

import multiprocessing
import struct
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

import pytest
from damage import cut
from kafka.protocol.admin import CreateTopicsRequest
from mirroring import Mirroring, hold, wait_for
from sources import numbered, transactions
from surprises import assert_exact, events_of, lease_until, told, until

from heliograph.copy.lease_report import LeaseReport
from heliograph.copy.loop import CopyLoop
from heliograph.lab.proof import read_all
from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.errors import WireError

QUICK = {
    # On a busy machine, a broker that is well must not be taken for dead.
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "unclean.leader.election.enable": "true",
}
#: Kept by both replicas, known to the lost leader only, written to the new one.
KEPT, LOST = numbered(100, "kept"), numbered(50, "lost")
SHORT, LONG = numbered(20, "new"), numbered(80, "new")
NEW = {
    "fail-short": SHORT,
    "fail-long": LONG,
    "continue-short": SHORT,
    "continue-long": LONG,
    "restart-long": LONG,
    "unknown-short": SHORT,
    "twice-long": LONG,
    "live-fail": LONG,
    "live-continue": LONG,
}
LIVE = {"live-fail": "fail", "live-continue": "continue"}
TRANSACTIONAL, CLEAN, BEHIND = "transactions", "clean", "behind"


def create(flow, topic, replicas):
    request = CreateTopicsRequest
    kind = request.CreatableTopic
    made = kind(
        name=topic, num_partitions=-1, replication_factor=-1,
        assignments=[kind.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
        configs=[kind.CreatableTopicConfig(name="retention.ms", value="-1")],
    )  # fmt: skip
    message = request(topics=[made], timeout_ms=30_000, validate_only=False)
    [answer] = flow.source.to_controller(message).topics
    assert answer.error_code == 0, answer
    flow.await_topic(flow.source, topic, 1)
    assert not admin.create_topics(
        flow.target, [admin.NewTopic(f"A.{topic}", 1, 1, {"retention.ms": "-1"})], 30_000
    )
    flow.await_topic(flow.target, f"A.{topic}", 1)


def leader(flow, topic):
    with suppress(WireError):
        return flow.source.metadata([topic]).leader(topic, 0)


class Disk:
    """The only broker of A loses the end of its logs while it is down."""

    arguments: ClassVar = {}
    replicas = after = clean = (1,)
    #: A coordinator that has just lost its leader takes a producer's patience.
    new_transactions: ClassVar = [(LONG, True)]

    @staticmethod
    def before(cluster):
        pass

    @staticmethod
    def strike(cluster, topics):
        broker = cluster.broker(1)
        broker.kill()
        for topic in topics:
            cut(cluster.folder / f"data-1/{topic}-0", 100)
        broker.start()
        cluster.wait_ready()


class Election:
    """Broker 3 hears nothing of what is written last to broker 2, and takes its place."""

    arguments: ClassVar = {
        "brokers": {"A": 3, "B": 1},
        "settings": {"A": QUICK},
        "heap": "320m",
    }
    replicas, after, clean = (2, 3), (3,), (2, 1)
    new_transactions: ClassVar = []

    @staticmethod
    def before(cluster):
        # It owes no answer by the time it counts as dead: what is written then never reaches it.
        cluster.broker(3).suspend()
        wait_for(lambda: cluster.broker(1).live_brokers() == 2)

    @staticmethod
    def strike(cluster, _topics):
        cluster.broker(2).kill()
        cluster.broker(3).resume()


@pytest.fixture(scope="module", params=[Disk, pytest.param(Election, marks=pytest.mark.full)])
def truncated(request, module_lab_factory):
    fault = request.param
    lab = module_lab_factory(**fault.arguments)
    flow = Mirroring.of(lab).leasing(identical=True, paddable=True)
    lossy = (*NEW, TRANSACTIONAL, BEHIND)
    for topic in lossy:
        create(flow, topic, list(fault.replicas))
        flow.write(topic, KEPT)
    create(flow, CLEAN, list(fault.clean))
    flow.write(CLEAN, KEPT)
    flow.copy(BEHIND)
    # The topic of transactions needs all brokers to be created.
    transactions(flow, CLEAN, [(KEPT, True)])
    fault.before(lab["A"])
    for topic in (*NEW, CLEAN, BEHIND):
        flow.write(topic, LOST)
    transactions(flow, TRANSACTIONAL, [(LOST, True)])
    # Leases of their own processes, held while brokers die.
    pool = multiprocessing.get_context("fork").Pool(len(LIVE))
    live = {
        t: pool.apply_async(hold, [lease_until(flow.but(on_truncation=policy), t, 180, 200)])
        for t, policy in LIVE.items()
    }
    flow.copy(*(t for t in (*NEW, TRANSACTIONAL, CLEAN) if t not in {*live, "unknown-short"}))
    # As a version that knew nothing of epochs would have mirrored it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("heliograph.batch.lanes._read_length", _without_epochs())
        flow.copy("unknown-short")
    wait_for(lambda: all(len(flow.seen(t)) == 150 for t in live))
    fault.strike(lab["A"], lossy)
    wait_for(lambda: {leader(flow, t) for t in lossy} == set(fault.after))
    wait_for(lambda: leader(flow, CLEAN) == 1)
    for topic, values in {**NEW, BEHIND: LONG, CLEAN: SHORT}.items():
        flow.write(topic, values)
    if fault.new_transactions:
        transactions(flow, TRANSACTIONAL, fault.new_transactions)
    yield flow, live
    pool.terminate()
    flow.close()


def _without_epochs():
    plain = struct.Struct(">i").unpack_from
    return lambda records, at: (-1,) if records[at + 4] == 2 else plain(records, at)


def ledger_rows(values, lost_at, lost):
    """Where records of a topic are that goes on at ``lost_at`` of the source."""
    kept = [(n, n) for n in range(lost_at)]
    return kept + [(lost_at + i, lost_at + lost + i) for i in range(len(values))]


@pytest.mark.parametrize("topic", ["fail-short", "fail-long"])
def test_f11_by_default_the_partition_stops_and_names_what_was_lost(truncated, topic):
    flow, _ = truncated
    end = 100 + len(NEW[topic])
    receipt, events = until(flow, topic, max(end, 200))
    assert receipt.error.startswith("[source.truncated]")
    assert "lost 50 record(s) that were mirrored, at offsets [100, 150)" in receipt.error
    assert f"A.{topic}-0 on B still has them, at offsets [100, 150)" in receipt.error
    assert "heliograph.on.truncation=restart-topic" in receipt.error
    assert [(e.code, e.first, e.until) for e in events] == [("source.truncated", 100, 150)]
    assert flow.values(topic) == KEPT + LOST
    again, repeated = until(flow, topic, max(end, 200))
    assert again.error == receipt.error, "it does not go away by itself"
    assert repeated, "a new mirror tells of it again"


def test_f11_one_that_goes_on_failing_is_told_of_once(truncated):
    flow, _ = truncated
    topic = "fail-long"
    receipt, _ = until(flow, topic, 200)
    lease = lease_until(flow, topic, None, 3)
    [first] = CopyLoop(lease).run()
    assert len(events_of(first)) == 1, "however often it was tried again"
    [report] = LeaseReport.decode(first.lease_report).reports
    assert report.why == receipt.error
    again = lease_until(flow, topic, None, 3)
    [leased] = again.partitions
    _, events = told(CopyLoop(replace(again, partitions=(replace(leased, failing=report),))).run())
    assert events == []


@pytest.mark.parametrize(
    "topic",
    [
        "twice-long",
        *(pytest.param(t, marks=pytest.mark.full) for t in ("continue-short", "continue-long")),
    ],
)
def test_f11_continue_keeps_what_the_source_lost(truncated, topic, tmp_path):
    flow, _ = truncated
    new = NEW[topic]
    bold = flow.but(on_truncation="continue")
    receipt, events = until(bold, topic, 100 + len(new))
    assert receipt.error == ""
    [event] = events
    assert (event.code, event.first, event.until) == ("source.truncated", 100, 150)
    assert "translated exactly (heliograph.on.truncation=continue)" in event.text
    assert flow.values(topic) == KEPT + LOST + new
    assert_exact(flow, tmp_path, topic, ledger_rows(new, 100, 50), range(100, 150), 100)
    # Later leases have nothing to say about it, and go on as ever.
    flow.write(topic, numbered(5, "more"))
    for _ in range(2):
        receipt, events = until(flow, topic, 105 + len(new))
        assert (receipt.error, events) == ("", [])
    assert flow.values(topic) == KEPT + LOST + new + numbered(5, "more")
    rows = ledger_rows(new + numbered(5, "more"), 100, 50)
    assert_exact(flow, tmp_path, topic, rows, range(100, 150), 100)


def test_f11_transactions_and_their_markers_are_lost_too(truncated, tmp_path):
    flow, _ = truncated
    stopped, _ = until(flow, TRANSACTIONAL, 300, 20)
    assert "lost 50 record(s) that were mirrored, at offsets [100, 150)" in stopped.error
    bold = flow.but(on_truncation="continue")
    [end] = flow.ends(TRANSACTIONAL).values()
    new = LONG if end > 100 else []
    receipt, _ = until(bold, TRANSACTIONAL, end)
    assert receipt.error == ""
    assert flow.values(TRANSACTIONAL) == KEPT + LOST + new
    # The lost marker's copy is on the target, at 150.
    assert_exact(flow, tmp_path, TRANSACTIONAL, ledger_rows(new, 100, 51), range(100, 151), 100)


def test_f11_restart_topic_fails_until_the_driver_has_restarted_it(truncated):
    flow, _ = truncated
    receipt, events = until(flow.but(on_truncation="restart-topic"), "restart-long", 180)
    assert receipt.error.startswith("[source.truncated]")
    assert "is going to be deleted and mirrored from the start" in receipt.error
    assert [(e.first, e.until) for e in events] == [(100, 150)]
    assert flow.values("restart-long") == KEPT + LOST


def test_f11_without_epochs_a_shorter_source_is_still_noticed_and_dated(truncated):
    flow, _ = truncated
    receipt, _ = until(flow, "unknown-short", 200)
    assert "lost 50 record(s) that were mirrored, at offsets [100, 150)" in receipt.error
    # It stays known when the source has overtaken the target.
    flow.write("unknown-short", LONG)
    receipt, _ = until(flow, "unknown-short", 200)
    assert "lost 50 record(s) that were mirrored, at offsets [100, 150)" in receipt.error


def test_f11_while_a_lease_runs_it_fails_at_once(truncated):
    flow, live = truncated
    receipt, events = told(live["live-fail"].get(120))
    assert receipt.error.startswith("[source.truncated]")
    assert [(e.code, e.first, e.until) for e in events] == [("source.truncated", 100, 150)]
    assert flow.values("live-fail") == KEPT + LOST


def test_f11_while_a_lease_runs_it_goes_on_if_told_to(truncated, tmp_path):
    flow, live = truncated
    topic = "live-continue"
    receipt, events = told(live[topic].get(120))
    assert (receipt.error, receipt.source_position) == ("", 180)
    assert [(e.code, e.first, e.until) for e in events] == [("source.truncated", 100, 150)]
    assert flow.values(topic) == KEPT + LOST + LONG
    assert_exact(flow, tmp_path, topic, ledger_rows(LONG, 100, 50), range(100, 150), 100)


@pytest.mark.parametrize("topic", [CLEAN, BEHIND])
def test_f11_no_alarm_where_nothing_that_was_mirrored_is_lost(truncated, topic):
    """A clean election; and an unclean one that lost what was not mirrored yet."""
    flow, _ = truncated
    [end] = flow.ends(topic).values()
    receipt, events = until(flow, topic, end)
    assert (receipt.error, events) == ("", [])
    assert flow.values(topic) == [r.value for r in read_all(flow.source, TopicPartition(topic, 0))]
    assert len(flow.ledger(topic).epochs.marks) == 2, "the epoch before, and the one after"
