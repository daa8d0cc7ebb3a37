"""A target log loses its tail: what it lost is copied again, once, and the ledger says where."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest
from consumers import same, visible
from damage import Holding, cut_tails
from mirroring import Mirroring, settings, wait_for
from sources import numbered, transactions

from heliograph.model import TopicPartition
from heliograph.wire import admin, log, markers

#: Where the logs with markers are cut: before, among and behind them, and behind the records.
MARKER_CUTS = (4, 6, 9, 12)


def target(topic):
    return TopicPartition(f"A.{topic}", 0)


def end_of(flow, topic):
    def ask():
        return flow.offsets(flow.target, f"A.{topic}", admin.LATEST).get(target(topic))

    # The broker may be about to start.
    return flow.target.retry(ask, 30)


def foreign_write(flow, topic, count):
    producer = flow.producer("B")
    for _ in range(count):
        producer.produce(f"A.{topic}", b"foreign", b"foreign", 0)
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def flow(module_lab_factory):
    made = Mirroring.of(module_lab_factory())
    yield made
    made.close()


@pytest.fixture(scope="module")
def other(flow):
    """Another flow, with connections and a ledger of its own, which is cut."""
    own = {"retry.backoff.ms": "101"}
    made = Mirroring.of(
        flow.lab, source=settings(flow.lab, "A", **own), target=settings(flow.lab, "B", **own)
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def struck(flow, other):
    """All logs are cut at once, because it takes a broker a while to come back.

    Returns leases that were running meanwhile: ``held``, and ``other`` of the other flow.
    """
    cuts = {}
    for topic, identical in (("dense", False), ("identical", True)):
        one = flow.leasing(identical=identical, paddable=True)
        one.create(topic)
        for name in "ab":
            one.write(topic, numbered(5, name))
            one.copy(topic)
        foreign_write(one, topic, 2)
        for name in "cd":
            one.write(topic, numbered(5, name))
            one.copy(topic)
        assert end_of(flow, topic) == 22
        cuts[target(topic)] = 5
    one = flow.leasing(identical=True, paddable=True)
    for until in MARKER_CUTS:
        topic = f"markers-{until}"
        one.create(topic)
        plan = [(numbered(4, "a"), True), (numbered(3, "x"), False), (numbered(3, "b"), True)]
        transactions(one, topic, plan)
        one.copy(topic)
        transactions(one, topic, [(numbered(2, "y"), False), (numbered(3, "c"), True)])
        one.copy(topic)
        assert end_of(flow, topic) == 20
        cuts[target(topic)] = until
    one.create("live")
    one.write("live", numbered(10, "a"))
    ledger = TopicPartition(other.context.ledger_topic, 0)
    other.create("cut")
    transactions(other, "cut", [(numbered(10, "a"), True)])
    with (
        Holding(one, "live", seconds=600) as held,
        Holding(other, "cut", seconds=600) as others,
    ):
        wait_for(lambda: end_of(flow, "cut") == 10)
        cuts[ledger] = log.end_offset(flow.target, ledger)
        transactions(other, "cut", [(numbered(4, "x"), False), (numbered(12, "b"), True)])
        wait_for(lambda: end_of(flow, "cut") == 22)
        assert log.end_offset(flow.target, ledger) > cuts[ledger]
        wait_for(lambda: end_of(flow, "live") == 10)
        one.write("live", numbered(20, "b"))
        # Acknowledged, which is later than visible.
        wait_for(lambda: held.part("live").reached == 30)
        cuts[target("live")] = 10
        cut_tails(flow, cuts)
        other.target.close()
        # It has nothing to write, and notices all the same.
        wait_for(lambda: end_of(flow, "live") == 30)
        transactions(other, "cut", [(numbered(5, "c"), True)])
        wait_for(lambda: end_of(flow, "cut") == 27)
    return SimpleNamespace(held=held, other=others)


@pytest.mark.parametrize("topic", ["dense", "identical"])
def test_f13_a_tail_with_foreign_records_is_lost_and_copied_again(flow, struck, topic):
    one = flow.leasing(identical=topic == "identical", paddable=True)
    for n in range(3):
        [receipt] = one.copy(topic)
        # The first one may find its connections dead.
        assert receipt.resumes == 0 or n == 0
        flow.assert_ledger_is_exact(topic)
        flow.write(topic, numbered(5, f"e{n}"))
    [receipt] = one.copy(topic)
    assert receipt.source_position == receipt.target_end == 35
    flow.assert_ledger_is_exact(topic)
    assert len(same(flow, topic)) == 35


@pytest.mark.parametrize("until", MARKER_CUTS)
def test_f13_a_tail_with_markers_is_lost_and_written_again(flow, struck, until):
    topic = f"markers-{until}"
    one = flow.leasing(identical=True, paddable=True)
    for n in range(2):
        [receipt] = one.copy(topic)
        assert receipt.resumes == 0 or n == 0
        assert receipt.source_position == receipt.target_end
    assert end_of(flow, topic) == 20
    assert len(same(flow, topic)) == 10


def test_f13_a_tail_lost_under_a_lease_is_told_with_its_range(flow, struck):
    [event] = struck.held.told("target.truncated")
    assert (event.first, event.until) == (10, 30)
    assert "A.live-0 on B lost its tail: offsets [10, 30)" in event.text
    assert "20 mirrored record(s) among them are copied again, from source offset 10" in event.text
    values = [value for _, _, value, *_ in same(flow, "live")]
    assert values == numbered(10, "a") + numbered(20, "b")


def test_f45_a_ledger_that_lost_its_tail_under_a_lease_gets_it_back(flow, other, struck):
    assert struck.other.loop._lease_state.ledger.losses == 1
    wanted = numbered(10, "a") + numbered(12, "b") + numbered(5, "c")
    assert other.values("cut") == wanted
    here = {r.value: r.offset for r in other.source_records("cut")}
    there = {r.value: r.offset for r in other.seen("cut")}
    ledger = other.ledger("cut")
    assert all(ledger.to_target(here[v]) == there[v] for v in wanted)
    assert all(ledger.to_source(there[v]) == here[v] for v in wanted)
    assert (ledger.known.sequence, ledger.known.target) == (27, 27)


def test_f13_a_tail_that_a_lease_was_told_of_is_told(flow, topic_name):
    """What the driver has measured before counts as reached."""
    one = flow.leasing(identical=True, paddable=True)
    one.create(topic_name)
    one.write(topic_name, numbered(5))
    one.copy(topic_name)
    here = flow.place(topic_name).target_id
    with Holding(one, topic_name, reached=8, reached_in=here) as held:
        [event] = wait_for(lambda: held.told("target.truncated"))
        assert (event.first, event.until) == (5, 8)
    with Holding(one, topic_name, reached=8, reached_in=uuid.uuid4()) as held:
        wait_for(lambda: held.part(topic_name).active)
    assert not held.told("target.truncated"), "of another topic"


def test_a_gap_that_was_not_filled_before_the_batch_behind_it(flow, topic_name, monkeypatch):
    """The request for markers fails, the batch behind it does not: offsets are made up for."""
    flow = flow.leasing(identical=True, paddable=True)
    flow.create(topic_name)
    transactions(flow, topic_name, [(numbered(4, "a"), True)])
    flow.copy(topic_name)
    plan = [(numbered(3, "x"), False), (numbered(5, "b"), True)]
    transactions(flow, topic_name, plan)
    send, failures = markers.send, []

    def lose_one(connection, marker_id, counts):
        if failures:
            return send(connection, marker_id, counts)
        failures.append(counts)
        # Of a partition that is not there: the broker refuses it, and goes on.
        nowhere = [(TopicPartition(p.topic, p.partition + 1), n) for p, n in counts]
        return send(connection, marker_id, nowhere)

    monkeypatch.setattr(markers, "send", lose_one)
    parse = markers.parse
    monkeypatch.setattr(
        markers,
        "parse",
        lambda *args: [
            m._replace(partition=m.partition._replace(partition=0)) for m in parse(*args)
        ],
    )
    [receipt] = flow.copy(topic_name)
    assert failures
    assert receipt.resumes <= 2
    assert receipt.source_position == receipt.target_end, "made up for"
    transactions(flow, topic_name, [(numbered(2, "y"), False), (numbered(3, "c"), True)])
    [receipt] = flow.copy(topic_name)
    assert receipt.resumes == 0
    here = {value: offset for offset, _, value, *_ in visible(flow, "A", topic_name)}
    there = {value: offset for offset, _, value, *_ in visible(flow, "B", f"A.{topic_name}")}
    assert [v for _, _, v, *_ in visible(flow, "B", f"A.{topic_name}")] == list(here)
    assert all(here[v] == there[v] for v in numbered(4, "a") + numbered(3, "c"))
    ledger = flow.ledger(topic_name)
    assert all(ledger.to_target(here[v]) == there[v] for v in here)
    assert all(ledger.to_source(there[v]) == here[v] for v in here)
