"""The copy loop against scripted brokers: what holds back whom, and what is told of it."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace

import pytest
from scripted_brokers import FakeCluster

from heliograph.copy import links
from heliograph.copy.loop import CopyLoop
from heliograph.copy.partition import STALE_SECONDS, MustWait, Started
from heliograph.ledger.codec import Place, Signature, encode_signature
from heliograph.ledger.store import LedgerStore
from heliograph.model import (
    Flow,
    FlowContext,
    Lease,
    LeasedPartition,
    OffsetSyncsTopic,
    TopicPartition,
)
from heliograph.service import listening
from heliograph.service.reports import ReportServer
from heliograph.wire.cluster import ClusterClient

SIGNATURE, MARKER = 4000, 4001
#: Who waits for a broker that does not answer waits until a request to it is given up.
GIVEN_UP, AT_ONCE = 60.0, 45.0


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.005)
    return answer


class Mirror:
    """A flow from A, one broker, to B, two; its ledger is led by broker 1, data by broker 2."""

    def __init__(self, a: FakeCluster, b: FakeCluster) -> None:
        self.a, self.b = a, b
        b.create("ledger", 1)
        b.create("syncs", 2)
        b.create("aside", 1)
        self.context = FlowContext(
            flow=Flow("A", "B"), source=a.settings, target=b.settings, producer_id=SIGNATURE,
            ledger_topic="ledger", offset_syncs=OffsetSyncsTopic("syncs", on_source=False),
            offset_lag_max=100, read_committed=False,
            start_at_latest=False, fetch_max_bytes=1 << 20, marker_id=MARKER,
        )  # fmt: skip
        self.topics: list[str] = []

    def create(self, topic: str, leader: int = 2) -> None:
        self.a.create(topic, 1)
        self.b.create(f"A.{topic}", leader)
        self.topics.append(topic)

    def lease(self, seconds=600.0, *, until=None, **options) -> Lease:
        now = time.time()
        leased = tuple(
            LeasedPartition(TopicPartition(t, 0), f"A.{t}", until, **options) for t in self.topics
        )
        return Lease(self.context, leased, now, now + seconds)

    def mirrored(self, topic: str) -> list[bytes | None]:
        return self.b.values(f"A.{topic}")

    def ledger(self, topic: str):
        with ClusterClient(self.b.settings, "test") as client:
            store = LedgerStore(client, "ledger")
            store.refresh()
            return store.at(Place(topic, 0, self.a.ids[topic], self.b.ids[f"A.{topic}"]))


class Held:
    """A lease that is held in a thread until the block ends."""

    def __init__(self, lease: Lease) -> None:
        self.loop = CopyLoop(lease)
        self.lease = lease
        self.receipts = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.receipts = self.loop.run()

    def __enter__(self) -> Held:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        object.__setattr__(self.lease, "deadline", time.time())
        self._thread.join(120)
        assert not self._thread.is_alive()

    def part(self, topic: str):
        return self.loop._lease_state.parts[TopicPartition(topic, 0)]

    def events(self, code: str):
        return [e for e in self.loop._lease_state.events if e.code == code]


@pytest.fixture
def mirror(monkeypatch):
    monkeypatch.setattr(links, "_REQUEST_TIMEOUT_SECONDS", GIVEN_UP)
    with FakeCluster("A") as a, FakeCluster("B", 2) as b:
        yield Mirror(a, b)
        links.close()


def test_all_is_copied_and_the_ledger_says_where_it_is(mirror):
    mirror.create("t")
    mirror.a.write("t", [b"1", b"2"])
    mirror.a.write("t", [b"3"], skip=5)
    receipts = CopyLoop(mirror.lease(until=8)).run()
    assert [(r.source_position, r.target_end, r.records, r.error) for r in receipts] == [
        (8, 3, 3, "")
    ]
    assert mirror.mirrored("t") == [b"1", b"2", b"3"]
    ledger = mirror.ledger("t")
    assert [ledger.source_of(n) for n in range(3)] == [0, 1, 7]
    assert ledger.known.sequence == 3


def test_the_next_lease_goes_on_where_the_last_one_ended(mirror):
    mirror.create("t")
    mirror.a.write("t", [b"1"])
    CopyLoop(mirror.lease(until=1)).run()
    mirror.a.write("t", [b"2"])
    mirror.b.logs[TopicPartition("A.t", 0)].producers.clear()
    CopyLoop(mirror.lease(until=2)).run()
    assert mirror.mirrored("t") == [b"1", b"2"]


def test_a_stopped_ledger_leader_holds_back_only_what_needs_the_ledger(mirror):
    for topic in ("dense", "gappy"):
        mirror.create(topic)
        mirror.a.write(topic, [b"0"])
    with Held(mirror.lease()) as held:
        wait_for(lambda: mirror.mirrored("dense") == mirror.mirrored("gappy") == [b"0"])
        mirror.b.brokers[1].stopped.set()
        mirror.a.write("gappy", [b"1"], skip=3)
        wait_for(lambda: held.part("gappy").announcing)
        for n in range(1, 50):
            began = time.monotonic()
            mirror.a.write("dense", [b"%d" % n])
            wait_for(lambda n=n: len(mirror.mirrored("dense")) == n + 1)
            assert time.monotonic() - began < AT_ONCE, "nobody waits for the ledger's broker"
        assert mirror.mirrored("gappy") == [b"0"], "its run is not announced"
        assert not held.part("gappy").settled
        mirror.b.brokers[1].stopped.clear()
        wait_for(lambda: mirror.mirrored("gappy") == [b"0", b"1"])
    ledger = mirror.ledger("gappy")
    assert [ledger.source_of(n) for n in range(2)] == [0, 4]


def test_a_partition_that_is_resumed_holds_back_nobody(mirror):
    mirror.create("near")
    mirror.create("far")
    for topic in ("near", "far"):
        mirror.a.write(topic, [b"0"])
    with Held(mirror.lease()) as held:
        wait_for(lambda: mirror.mirrored("near") == mirror.mirrored("far") == [b"0"])
        # Its ledger cannot be read, so that it cannot be resumed.
        mirror.b.brokers[1].stopped.set()
        mirror.b.fails[0] = 0
        mirror.b.logs[TopicPartition("A.far", 0)].producers[SIGNATURE] = (0, 99)
        mirror.a.write("far", [b"1"])
        wait_for(lambda: not held.part("far").active)
        mirror.a.write("near", [b"1"])
        wait_for(lambda: mirror.mirrored("near") == [b"0", b"1"], AT_ONCE)
        assert not held.part("far").active
        mirror.b.brokers[1].stopped.clear()


def test_a_stopped_quarantine_holds_back_only_what_needs_it(mirror):
    mirror.context = replace(mirror.context, quarantine_topic="aside")
    for topic in ("small", "large", "gappy"):
        mirror.create(topic)
        mirror.a.write(topic, [b"0"])
    # The ledger is on the broker that is well; the quarantine is not.
    mirror.b.logs[TopicPartition("ledger", 0)].leader = 2
    with Held(mirror.lease(max_bytes=2000)) as held:
        wait_for(lambda: all(mirror.mirrored(t) == [b"0"] for t in mirror.topics))
        mirror.b.brokers[1].stopped.set()
        mirror.a.write("large", [b"x" * 5000])
        wait_for(lambda: held.part("large").announcing)
        mirror.a.write("small", [b"1"])
        mirror.a.write("gappy", [b"1"], skip=2)
        wait_for(lambda: mirror.mirrored("small") == [b"0", b"1"], AT_ONCE)
        wait_for(lambda: mirror.mirrored("gappy") == [b"0", b"1"], AT_ONCE)
        assert held.part("large").quarantined == 0
        mirror.b.brokers[1].stopped.clear()
        wait_for(lambda: held.part("large").quarantined == 1)
        mirror.a.write("large", [b"2"])
        wait_for(lambda: mirror.mirrored("large") == [b"0", b"2"])
    assert mirror.b.values("aside") == [b"x" * 5000]


def test_a_lease_ends_in_time_although_its_ledger_does_not_answer(mirror):
    mirror.create("t")
    mirror.a.write("t", [b"0"])
    with Held(mirror.lease()) as held:
        wait_for(lambda: mirror.mirrored("t") == [b"0"])
        mirror.b.brokers[1].stopped.set()
        mirror.a.write("t", [b"1"], skip=3)
        wait_for(lambda: held.part("t").announcing)
        began = time.monotonic()
    assert time.monotonic() - began < AT_ONCE
    [receipt] = held.receipts
    assert receipt.source_position == 1


def test_records_of_others_between_ours_are_translated(mirror):
    mirror.create("t")
    mirror.a.write("t", [b"0"])
    with Held(mirror.lease()) as held:
        wait_for(lambda: mirror.mirrored("t") == [b"0"])
        mirror.b.write("A.t", [b"theirs"])
        for n in range(1, 20):
            mirror.a.write("t", [b"%d" % n], skip=n % 2)
        wait_for(lambda: len(mirror.mirrored("t")) == 21)
        wait_for(lambda: held.part("t").settled)
    [event] = held.events("target.foreign")
    assert (event.first, event.until) == (1, 2)
    there = [r.offset for r in mirror.b.logs[TopicPartition("A.t", 0)].records()
             if r.value != b"theirs"]  # fmt: skip
    here = [r.offset for r in mirror.a.logs[TopicPartition("t", 0)].records()]
    ledger = mirror.ledger("t")
    assert [ledger.target_of(n) for n in range(20)] == there
    assert [ledger.source_of(n) for n in range(20)] == here


def test_a_flow_that_begins_later_is_nobody_to_be_blamed(mirror):
    """It signs after this lease has looked once who else signs on the target."""
    mirror.create("t")
    mirror.a.write("t", [b"0"])
    with Held(mirror.lease()) as held:
        wait_for(lambda: mirror.mirrored("t") == [b"0"])
        divergence = held.loop._target.acknowledgements._divergence
        assert not divergence._of_other_flows([77])
        divergence._looked_at = float("-inf")
        mirror.b.create("mm2-ledger.C.internal", 1)
        key, value = encode_signature(Signature(77, "C", "B"))
        mirror.b.write("mm2-ledger.C.internal", [value], key=key)
        mirror.b.write("A.t", [b"C's"], producer_id=77)
        mirror.a.write("t", [b"1"])
        wait_for(lambda: mirror.mirrored("t") == [b"0", b"C's", b"1"])
    assert held.events("target.foreign") == []


@pytest.mark.parametrize("policy", ["continue", "fail"])
def test_what_the_source_deleted_unread_is_passed_or_refused(mirror, policy):
    mirror.context = replace(mirror.context, on_data_loss=policy)
    mirror.create("t")
    mirror.a.write("t", [b"0"])
    with Held(mirror.lease()) as held:
        wait_for(lambda: mirror.mirrored("t") == [b"0"])
        with mirror.a.lock:
            mirror.a.write("t", [b"1"])
            mirror.a.write("t", [b"2"])
            mirror.a.logs[TopicPartition("t", 0)].start = 2
        [event] = wait_for(lambda: held.events("source.data-loss"))
        assert (event.first, event.until) == (1, 2)
        assert "A deleted 1 offset(s) of t-0 before they were mirrored" in event.text
        assert "DeleteRecords" in event.text
        if policy == "continue":
            wait_for(lambda: mirror.mirrored("t") == [b"0", b"2"])
        else:
            wait_for(lambda: held.part("t").failing is not None)
            assert mirror.mirrored("t") == [b"0"]
    assert len(held.events("source.data-loss")) == 1


def test_a_loss_is_told_once_however_many_leases_meet_it(mirror):
    mirror.create("t")
    mirror.a.write("t", [b"0"])
    CopyLoop(mirror.lease(until=1)).run()
    mirror.a.write("t", [b"1"])
    mirror.a.write("t", [b"2"])
    mirror.a.logs[TopicPartition("t", 0)].start = 2
    told, failing = 0, None
    for _ in range(3):
        loop = CopyLoop(mirror.lease(until=3, failing=failing))
        [receipt] = loop.run()
        assert receipt.error.startswith("[source.data-loss]")
        told += len(loop._lease_state.events)
        [p] = loop._lease_state.parts.values()
        failing = p.failing
    assert told == 1


@pytest.mark.parametrize(
    ("policy", "fate"),
    [("fail", "what was mirrored is kept"), ("restart-topic", "deleted with its topic")],
)
def test_partitions_that_are_left_behind_are_named_with_what_becomes_of_them(mirror, policy, fate):
    mirror.context = replace(mirror.context, on_recreation=policy)
    mirror.a.create("t", 1, 1)
    mirror.b.create("A.t", 2, 2)
    mirror.topics.append("t")
    mirror.a.write("t", [b"0"])
    CopyLoop(mirror.lease(until=1)).run()
    del mirror.a.logs[TopicPartition("t", 1)]
    mirror.a.create("t", 1)
    [receipt] = CopyLoop(mirror.lease(until=1)).run()
    assert f"It has 1 partition(s) now; A.t-1 on B: {fate}" in receipt.error


def test_a_batch_that_is_too_large_is_split_to_what_the_topic_takes(mirror):
    mirror.create("t")
    mirror.b.configs["max.message.bytes"] = "400"
    original = mirror.b._produce

    def picky(broker, request):
        sizes = [len(p.records) for t in request.topic_data for p in t.partition_data]
        if mirror.b._name(request.topic_data[0]) == "A.t" and max(sizes) > 400:
            mirror.b.fails[0] = 10
        try:
            return original(broker, request)
        finally:
            mirror.b.fails.clear()

    mirror.b._produce = picky
    mirror.a.write("t", [bytes([n]) * 100 for n in range(20)])
    CopyLoop(mirror.lease(until=20)).run()
    assert mirror.mirrored("t") == [bytes([n]) * 100 for n in range(20)]


def test_a_lost_connection_is_resumed_without_loss_or_repeat(mirror):
    mirror.create("t")
    with Held(mirror.lease()):
        for n in range(30):
            mirror.a.write("t", [b"%d" % n])
            if n % 7 == 3:
                mirror.b.brokers[2].disconnect()
            if n % 11 == 5:
                mirror.a.brokers[1].disconnect()
        wait_for(lambda: len(mirror.mirrored("t")) >= 30)
    assert mirror.mirrored("t") == [b"%d" % n for n in range(30)]


@pytest.fixture
def resolver(monkeypatch):
    """A resolver that knows ``broker.example``, and hangs for as long as the event is set."""
    hanging, ended = threading.Event(), threading.Event()
    real = socket.getaddrinfo

    def lookup(host, *rest, **options):
        if not str(host).endswith(".example"):
            return real(host, *rest, **options)
        while hanging.is_set() and not ended.is_set():
            time.sleep(0.01)
        return real("127.0.0.1", *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    yield hanging
    ended.set()


def test_a_resolver_that_hangs_holds_back_only_those_whose_address_it_keeps(mirror, resolver):
    mirror.create("near", leader=1)
    mirror.create("far", leader=2)
    resolver.set()
    mirror.b.brokers[2].host = "unheard-of.example"
    mirror.a.write("near", [b"0"])
    mirror.a.write("far", [b"0"])
    with Held(mirror.lease()) as held:
        wait_for(lambda: "unheard-of.example" in held.part("far").broken)
        # Should it be resumed once more, then together with the one that waits for the resolver.
        wait_for(lambda: mirror.mirrored("near") == [b"0"], 3 * GIVEN_UP)
        for n in range(1, 20):
            began = time.monotonic()
            mirror.a.write("near", [b"%d" % n])
            wait_for(lambda n=n: len(mirror.mirrored("near")) == n + 1)
            assert time.monotonic() - began < AT_ONCE
        assert mirror.mirrored("far") == []
        resolver.clear()
        wait_for(lambda: mirror.mirrored("far") == [b"0"])


def test_a_resolver_that_hangs_later_holds_back_nobody(mirror, resolver):
    mirror.create("t")
    mirror.b.brokers[2].host = "broker.example"
    mirror.a.write("t", [b"0"])
    with Held(mirror.lease()):
        wait_for(lambda: mirror.mirrored("t") == [b"0"])
        resolver.set()
        mirror.b.brokers[2].disconnect()
        mirror.a.write("t", [b"1"])
        wait_for(lambda: mirror.mirrored("t") == [b"0", b"1"], 20)


def test_what_is_found_out_after_the_lease_has_ended_changes_nothing(mirror):
    """A stopped process, or a slow broker: somebody else may hold the partition by then."""
    mirror.create("t")
    mirror.a.write("t", [b"0"])
    CopyLoop(mirror.lease(until=1)).run()
    log = mirror.b.logs[TopicPartition("A.t", 0)]
    # Nothing but a new era goes on from here, and that is written to the ledger.
    log.producers[SIGNATURE] = (0, 99)
    loop = CopyLoop(mirror.lease())
    parts = list(loop._lease_state.parts.values())
    before = mirror.b.logs[TopicPartition("ledger", 0)].end
    loop._resumer.ends_at = time.time()
    [outcome] = loop._resumer.resume(parts).values()
    assert isinstance(outcome, MustWait)
    assert mirror.b.logs[TopicPartition("ledger", 0)].end == before
    loop._resumer.ends_at = time.time() + 60
    [outcome] = loop._resumer.resume(parts).values()
    assert isinstance(outcome, MustWait), "a new era takes a second look"
    parts[0].stale_at -= STALE_SECONDS
    [outcome] = loop._resumer.resume(parts).values()
    assert isinstance(outcome, Started)
    assert outcome.position.era.epoch == 1
    loop._background.close()


def test_a_lease_that_has_not_started_is_known_and_can_be_ended(mirror, monkeypatch):
    """The driver says that a flow is paused when nobody holds a lease of it any more."""
    monkeypatch.setattr("heliograph.copy.clocks._TOLERANCE_SECONDS", 3600.0)
    mirror.create("t")
    mirror.a.write("t", [b"1"])
    server = ReportServer(print)
    lease = replace(mirror.lease(), report_to=server.listen(listening.Place(None)))
    now = time.time()
    lease = replace(lease, starts_at=now + 600, deadline=now + 1200)
    held = []
    holder = threading.Thread(target=lambda: held.extend(CopyLoop(lease).run()), daemon=True)
    holder.start()
    wait_for(lambda: server.are_held("A->B"))
    assert server.end_leases("A->B", 60.0)
    holder.join(60)
    assert [r.records for r in held] == [0]
    assert mirror.mirrored("t") == []
    server.close()
