"""Brokers forget, logs are emptied, ledgers are cut, requests come late: positions stay known.

Records of these tests are dated 2023 and the target forgets producers after half a second, so that
nothing is ever compared but what is tested to be.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from damage import Holding
from mirroring import Mirroring, wait_for
from sources import numbered, transactions

from heliograph.batch.records import Record, build, decode
from heliograph.copy.loop import CopyLoop
from heliograph.ledger.codec import Entry
from heliograph.ledger.codec import decode as decode_fact
from heliograph.ledger.known import Known
from heliograph.ledger.runs import Run
from heliograph.ledger.store import LedgerStore
from heliograph.model import CONTINUE, TopicPartition
from heliograph.service.listening import Place
from heliograph.service.reports import ReportServer
from heliograph.wire import admin, log
from heliograph.wire.produce import Producer
from heliograph.wire.ranges import read_ranges

OLD = 1_700_000_000_000


@pytest.fixture(params=["dense", "identical"])
def flow(quick, request):
    identical = request.param == "identical"
    return quick.leasing(identical=identical, paddable=identical)


@pytest.fixture
def dense(quick):
    return quick


def remote(topic):
    return TopicPartition(f"A.{topic}", 0)


def end_of(flow, target):
    return flow.offsets(flow.target, target.topic, admin.LATEST)[target]


def forgotten(flow, target):
    """Wait until the target's leader remembers nobody."""

    def nobody():
        metadata = flow.target.metadata([target.topic])
        return admin.describe_producers(flow.target, metadata, [target]).get(target) == []

    wait_for(nobody)


def foreign_write(flow, target, count):
    producer = flow.producer("B")
    for _ in range(count):
        producer.produce(target.topic, b"foreign", b"foreign", 0, timestamp=OLD)
    assert producer.flush(60) == 0


def empty(flow, target):
    flow.trim(flow.target, target, -1)
    forgotten(flow, target)


def late(flow, target, sequence, values):
    """A request of this flow's, as it arrives when it was given up long ago."""
    records = [Record(0, OLD + n, b"k%d" % n, value) for n, value in enumerate(values)]
    batch = build(records, producer_id=flow.context.producer_id, sequence=sequence)
    metadata = flow.target.metadata([target.topic])
    ids = {target.topic: metadata.topics[target.topic].topic_id}
    connection = flow.target.connection(metadata.leader(*target))
    [answer] = Producer(connection, ids).call([(target, batch)], 30)
    assert answer.error == 0
    return answer.base_offset


def copy(flow, *topics, **changes):
    """As ``flow.copy``, by a process that knows nothing; returns the events, too."""
    from heliograph.copy import links

    links._ledgers.clear()
    loop = CopyLoop(replace(flow.lease(topics), **changes))
    receipts = loop.run()
    assert [r.error for r in receipts] == [""] * len(receipts)
    return loop._lease_state.events


def told(events, code):
    return [event for event in events if event.code == code]


def values(flow, topic):
    return [r.value for r in flow.seen(topic) if r.value != b"foreign"]


# -- emptied logs ---------------------------------------------------------------------------------


def test_f25_an_emptied_log_does_not_count_foreign_records_as_ours(flow, topic_name):
    """Nothing of ours is left in the log, and nobody remembers how much it was."""
    flow.create(topic_name)
    flow.write(topic_name, numbered(100, "a"))
    copy(flow, topic_name)
    foreign_write(flow, remote(topic_name), 10)
    empty(flow, remote(topic_name))
    flow.write(topic_name, numbered(50, "b"))
    copy(flow, topic_name)
    assert values(flow, topic_name) == numbered(50, "b")
    ledger = flow.ledger(topic_name)
    assert [ledger.to_target(offset) for offset in (100, 149)] == [110, 159]


def test_two_flows_into_one_topic_do_not_count_each_others_records(quick_lab, quick, topic_name):
    """The log is emptied between two leases of both."""
    second = Mirroring.of(quick_lab)
    other = f"{topic_name}-other"
    quick.create(topic_name)
    quick.create(other)

    def mirror(flow, topic):
        lease = flow.lease([topic])
        [leased] = lease.partitions
        leased = replace(leased, target_topic=f"A.{topic_name}", shared=True)
        lease = replace(lease, partitions=(leased,))
        [receipt] = CopyLoop(lease).run()
        assert receipt.error == ""

    for n in range(3):
        for flow, topic in ((quick, topic_name), (second, other)):
            flow.write(topic, numbered(50, f"{topic}-{n}"))
            mirror(flow, topic)
        if n < 2:
            empty(quick, remote(topic_name))
    expected = numbered(50, f"{topic_name}-2") + numbered(50, f"{other}-2")
    assert quick.values(topic_name) == expected
    second.close()


def test_a_gap_filled_in_part_before_the_log_was_emptied(quick, topic_name):
    flow = quick.leasing(identical=True, paddable=True)
    flow.create(topic_name)
    transactions(flow, topic_name, [(numbered(10, "a"), True)])
    copy(flow, topic_name)
    transactions(flow, topic_name, [(numbered(20, "x"), False), (numbered(30, "b"), True)])
    # A writer that announced the run behind the gap was killed after five of the markers.
    end = end_of(flow, remote(topic_name))
    store = LedgerStore(flow.target, flow.context.ledger_topic)
    behind = end + 20 + 1
    store.write([Entry(flow.place(topic_name), [Run(10, behind, behind)], shift=True)])
    late_markers(flow, remote(topic_name), 5)
    assert end_of(flow, remote(topic_name)) == end + 5
    empty(flow, remote(topic_name))
    copy(flow, topic_name)
    assert values(flow, topic_name) == numbered(30, "b")
    here = {r.value: r.offset for r in flow.source_records(topic_name)}
    assert all(here[r.value] == r.offset for r in flow.seen(topic_name)), "identical offsets"


def late_markers(flow, target, count):
    from heliograph.wire import markers

    leader = flow.target.metadata([target.topic]).leader(*target)
    connection = flow.target.connection(leader)
    markers.send(connection, flow.context.marker_id, [(target, count)])
    assert [m.error for m in markers.parse(connection, connection.wait(30))] == [0]


def test_f43_what_cannot_be_known_is_repeated_and_told(dense, topic_name, monkeypatch):
    """Killed before it could write down what was acknowledged, then emptied and forgotten."""
    from heliograph.copy.known_positions import KnownPositions

    flow = dense
    flow.create(topic_name)
    flow.write(topic_name, numbered(20, "a"))
    copy(flow, topic_name)
    flow.write(topic_name, numbered(10, "b"))
    with monkeypatch.context() as killed:
        killed.setattr(KnownPositions, "finish", lambda *_: None)
        copy(flow, topic_name)
    empty(flow, remote(topic_name))
    events = copy(flow, topic_name)
    assert values(flow, topic_name) == numbered(10, "b")
    [event] = told(events, "target.repeated")
    assert (event.first, event.until) == (20, 40)
    assert "from source offset 20 on" in event.text
    assert told(copy(flow, topic_name), "target.repeated") == [], "once"


# -- requests that come late ----------------------------------------------------------------------


def test_f35_a_late_request_that_a_forgetful_broker_takes_is_told_and_not_trusted(flow, topic_name):
    flow.create(topic_name)
    flow.write(topic_name, numbered(60, "a"))
    copy(flow, topic_name)
    forgotten(flow, remote(topic_name))
    assert late(flow, remote(topic_name), 10, numbered(30, "a")[10:]) == 60
    flow.write(topic_name, numbered(20, "b"))
    events = copy(flow, topic_name)
    [event] = told(events, "target.repeated")
    assert (event.first, event.until) == (60, 80)
    assert "20 record(s) at offsets [60, 80)" in event.text
    assert not told(events, "target.foreign")
    assert values(flow, topic_name) == numbered(60, "a") + numbered(30, "a")[10:] + numbered(
        20, "b"
    )
    ledger = flow.ledger(topic_name)
    assert [ledger.to_target(offset) for offset in (59, 60, 79)] == [59, 80, 99]
    # Of the era before: refused while the new one is remembered, told of when it is not.
    flow.write(topic_name, numbered(5, "c"))
    copy(flow, topic_name)
    forgotten(flow, remote(topic_name))
    late(flow, remote(topic_name), 5, numbered(8, "a")[5:])
    flow.write(topic_name, numbered(5, "d"))
    events = copy(flow, topic_name)
    assert [e.until - e.first for e in told(events, "target.repeated")] == [3]
    assert values(flow, topic_name)[-5:] == numbered(5, "d")
    assert len(values(flow, topic_name)) == 60 + 20 + 20 + 5 + 3 + 5


def test_a_late_request_in_the_middle_of_a_lease(dense, topic_name):
    """The one that writes is refused, and finds out why."""
    flow = dense
    flow.create(topic_name)
    flow.write(topic_name, numbered(60, "a"))
    with Holding(flow, topic_name) as held:
        wait_for(lambda: end_of(flow, remote(topic_name)) == 60)
        forgotten(flow, remote(topic_name))
        late(flow, remote(topic_name), 10, numbered(30, "a")[10:])
        flow.write(topic_name, numbered(20, "b"))
        wait_for(lambda: end_of(flow, remote(topic_name)) == 100)
        [event] = wait_for(lambda: held.told("target.repeated"))
        assert (event.first, event.until) == (60, 80)
    assert values(flow, topic_name)[80:] == numbered(20, "b")
    flow.assert_known(topic_name)


# -- holes ----------------------------------------------------------------------------------------


def test_f44_a_hole_is_found_by_whoever_comes_next_and_healed(flow, topic_name, monkeypatch):
    """A batch was refused, the next one taken by a broker that had forgotten; then a kill."""
    flow.create(topic_name)
    flow.write(topic_name, numbered(10, "a"))
    copy(flow, topic_name)
    flow.write(topic_name, numbered(15, "b"))
    forgotten(flow, remote(topic_name))
    assert late(flow, remote(topic_name), 15, numbered(15, "b")[5:10]) == 10
    events = copy(flow, topic_name)
    [event] = told(events, "target.hole")
    assert "[10, 15)" in event.text
    assert (event.first, event.until) == (15, 25)
    assert values(flow, topic_name) == (
        numbered(10, "a") + numbered(15, "b")[5:10] + numbered(15, "b")
    )
    assert told(copy(flow, topic_name), "target.hole") == []
    flow.assert_known(topic_name)


# -- ledgers that are cut -------------------------------------------------------------------------


def cut_ledger(flow, keep):
    """The flow with a ledger that has lost all from the first fact on that is not to be kept."""
    partition = TopicPartition(flow.context.ledger_topic, 0)
    chunks = list(log.read_to_end(flow.target, partition, 0))
    records = [r for chunk in chunks for r in decode(chunk)]
    kept = []
    for record in records:
        if not keep(decode_fact(record.key, record.value)):
            break
        kept.append(record)
    assert 0 < len(kept) < len(records)
    name = f"{partition.topic}-cut"
    admin.create_topics(
        flow.target, [admin.NewTopic(name, 1, 1, {"cleanup.policy": "compact"})], 30_000
    )
    flow.await_topic(flow.target, name, 1)
    log.append(flow.target, TopicPartition(name, 0), build(kept))
    return flow.but(ledger_topic=name)


def test_f45_a_ledger_that_lost_its_tail_is_counted_anew(flow, topic_name):
    """The run behind a gap of the source is gone from the ledger, its records are not."""
    flow.create(topic_name)
    plan = [(numbered(10, "a"), True), (numbered(4, "x"), False), (numbered(12, "b"), True)]
    transactions(flow, topic_name, plan[:1])
    copy(flow, topic_name)
    transactions(flow, topic_name, plan[1:])
    copy(flow, topic_name)

    def early(fact):
        runs = getattr(fact, "runs", ())
        known = getattr(fact, "known", None)
        return all(run.sequence < 10 for run in runs) and (known is None or known.sequence <= 10)

    cut = cut_ledger(flow, early)
    transactions(flow, topic_name, [(numbered(5, "c"), True)])
    events = copy(cut, topic_name)
    wanted = numbered(10, "a") + numbered(12, "b") + numbered(5, "c")
    assert values(flow, topic_name) == wanted
    [event] = told(events, "ledger.cut")
    assert "nothing is lost and nothing repeated" in event.text
    here = {r.value: r.offset for r in flow.source_records(topic_name)}
    there = {r.value: r.offset for r in flow.seen(topic_name)}
    ledger = cut.ledger(topic_name)
    assert all(ledger.to_target(here[v]) == there[v] for v in wanted)
    assert all(ledger.to_source(there[v]) == here[v] for v in wanted)


def test_f45_a_target_that_nobody_knows_is_not_begun(flow, topic_name):
    """As after the ledger topic was deleted by mistake: nothing is copied a second time."""
    flow.create(topic_name)
    flow.write(topic_name, numbered(10))
    copy(flow, topic_name)
    other = Mirroring.of(flow.lab).leasing(**flow.options)
    loop = CopyLoop(other.lease([topic_name]))
    [receipt] = loop.run()
    assert "[target.unknown]" in receipt.error
    assert f"A.{topic_name}-0 on B is not empty (it ends at offset 10)" in receipt.error
    assert "heliograph.on.unknown.target=append" in receipt.error
    assert len(flow.values(topic_name)) == 10
    copy(other.leasing(**flow.options, shared=True), topic_name)
    assert flow.values(topic_name) == numbered(10) * 2, "told to"
    other.close()


def test_a_ledger_topic_that_was_cut_is_read_anew(flow, topic_name, quick_lab):
    """By a process that has read more than it holds now."""
    flow.create(topic_name)
    flow.write(topic_name, numbered(10))
    copy(flow, topic_name)
    store = LedgerStore(flow.target, flow.context.ledger_topic)
    store.refresh()
    assert store.at(flow.place(topic_name)).runs
    flow.delete(flow.target, flow.context.ledger_topic)

    def created():
        new = admin.NewTopic(flow.context.ledger_topic, 1, 1, {"cleanup.policy": "compact"})
        return not admin.create_topics(flow.target, [new], 30_000)

    wait_for(created)
    flow.await_topic(flow.target, flow.context.ledger_topic, 1)
    store.refresh()
    assert store.losses == 1
    assert not store.at(flow.place(topic_name)).runs


# -- generations ----------------------------------------------------------------------------------


def test_a_topic_created_again_is_numbered_apart(dense, topic_name):
    """With ``continue``: whether the old sequences are remembered makes no difference."""
    flow = dense.but(on_recreation=CONTINUE)
    flow.create(topic_name)
    flow.write(topic_name, numbered(30, "old"))
    copy(flow, topic_name)
    flow.delete(flow.source, topic_name)
    admin.create_topics(
        flow.source, [admin.NewTopic(topic_name, 1, 1, {"retention.ms": "-1"})], 30_000
    )
    flow.await_topic(flow.source, topic_name, 1)
    flow.write(topic_name, numbered(10, "new"))
    copy(flow, topic_name)
    ledger = flow.ledger(topic_name)
    assert ledger.eras.current.epoch == 1
    assert ledger.runs[0][:2] == (0, 0)
    forgotten(flow, remote(topic_name))
    flow.write(topic_name, numbered(10, "more"))
    copy(flow, topic_name)
    assert values(flow, topic_name) == (
        numbered(30, "old") + numbered(10, "new") + numbered(10, "more")
    )


# -- clean stops ----------------------------------------------------------------------------------


def test_a_driver_that_stops_in_order_has_leases_write_down_what_was_acknowledged(
    dense, topic_name
):
    flow, heard = dense, []
    flow.create(topic_name)
    flow.write(topic_name, numbered(10))
    server = ReportServer(heard.append)
    lease = replace(flow.lease([topic_name], 600), report_to=server.listen(Place(None)))
    lease = replace(lease, partitions=tuple(replace(p, until=None) for p in lease.partitions))
    loop = CopyLoop(lease)
    thread = threading.Thread(target=loop.run)
    thread.start()
    wait_for(lambda: heard and end_of(flow, remote(topic_name)) == 10)
    server.end_leases("A->B", 60.0)
    thread.join(60)
    assert not thread.is_alive()
    server.close()
    flow.assert_known(topic_name)


# -- what it costs --------------------------------------------------------------------------------


def test_forgotten_partitions_that_are_known_are_not_read(dense, topic_name, monkeypatch):
    """Many partitions are resumed with a few questions, whatever brokers have forgotten."""
    from heliograph.copy import target_log

    flow = dense
    flow.create(topic_name, partitions=20)
    for index in range(20):
        flow.write(topic_name, numbered(3), index)
    copy(flow, topic_name)
    for index in range(20):
        forgotten(flow, TopicPartition(f"A.{topic_name}", index))
    flow.write(topic_name, numbered(2, "b"), 7)
    reads = []

    def counted(client, starts, *args, **options):
        reads.append(starts)
        return read_ranges(client, starts, *args, **options)

    monkeypatch.setattr(target_log, "read_ranges", counted)
    copy(flow, topic_name)
    assert flow.values(topic_name, 7) == numbered(3) + numbered(2, "b")
    assert all(not starts for starts in reads)
    assert flow.ledger(topic_name, 7).known == Known(5, 5, 5, 5, 0)


@pytest.mark.full
def test_tails_of_many_partitions_are_read_together(dense, topic_name, monkeypatch):
    """Foreign tails, and more markers than a walk could pass one by one."""
    flow = dense
    flow.create(topic_name, partitions=10)
    for index in range(10):
        flow.write(topic_name, numbered(3), index)
    copy(flow, topic_name)
    for index in range(10):
        target = TopicPartition(f"A.{topic_name}", index)
        for _ in range(2):
            late_markers(flow, target, 500)
        forgotten(flow, target)
        flow.write(topic_name, numbered(2, "b"), index)
    from heliograph.copy import target_log

    calls = []
    read = target_log.TargetLog.read
    monkeypatch.setattr(
        target_log.TargetLog, "read", lambda *args: (calls.append(args), read(*args))[1]
    )
    copy(flow, topic_name)
    assert len(calls) <= 2
    for index in range(10):
        assert flow.values(topic_name, index) == numbered(3) + numbered(2, "b")
