"""One reader of the topic for many: what each of them is promised, and what others do meanwhile."""

from __future__ import annotations

import threading
import time
import uuid

import pytest
from compacted_topic import HERE, CompactedTopic, InMemory, Keeper, Store, follower_of

from heliograph.ledger.codec import Entry, Place, Signature
from heliograph.ledger.flow_ledger import FlowLedger
from heliograph.ledger.follower import View
from heliograph.ledger.memory import SyncedMemory
from heliograph.ledger.runs import Run

ELSEWHERE = uuid.UUID(int=20)


class Gate(InMemory):
    """Each reading waits at its end until it is let through; counts them."""

    def __init__(self, topic):
        super().__init__(topic)
        self.readings = 0
        self.inside, self.open = threading.Semaphore(0), threading.Semaphore(0)
        self.error = None

    def read(self, position):
        self.readings += 1
        yield from list(super().read(position))
        self.inside.release()
        assert self.open.acquire(timeout=60)
        if self.error is not None:
            raise self.error


class Readers:
    """Threads that call `refresh`; each says what it saw, or which error it got."""

    def __init__(self, store):
        self.store = store
        self.saw = {}
        self._threads = []

    def call(self, name):
        thread = threading.Thread(target=self._refresh, args=(name,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _refresh(self, name):
        try:
            self.store.refresh()
            self.saw[name] = len(self.store.at(HERE).runs)
        except OSError as error:
            self.saw[name] = error

    def join(self):
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def wait(self, *names):
        deadline = time.monotonic() + 60
        while not set(names) <= self.saw.keys():
            assert time.monotonic() < deadline
            time.sleep(0.001)


def waiting(follower, count):
    """Waits until so many threads wait for the next reading."""
    deadline = time.monotonic() + 60
    while len(follower._turn._waiters) < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def gated():
    topic = CompactedTopic()
    store = Store(topic, shared=True)
    gate = store.follower.log = Gate(topic)
    return topic, store, gate


def write(topic, n):
    Store(topic).write([Entry(HERE, [Run(10 * n, 11 * n, 10 * n)])])


def test_a_reading_that_began_before_the_call_is_not_shared(gated):
    topic, store, gate = gated
    readers = Readers(store)
    write(topic, 0)
    readers.call("first")
    assert gate.inside.acquire(timeout=60)
    # The first reading is past the end that it knew; this is written after it and before the call.
    write(topic, 1)
    readers.call("second")
    readers.call("third")
    waiting(store.follower, 2)
    gate.open.release()
    readers.wait("first")
    assert readers.saw["first"] == 1
    assert gate.inside.acquire(timeout=60)
    gate.open.release()
    readers.join()
    assert readers.saw == {"first": 1, "second": 2, "third": 2}
    assert gate.readings == 2, "the second and the third shared one"


def test_a_failed_reading_fails_for_all_who_waited_for_it_and_for_nobody_else(gated):
    topic, store, gate = gated
    readers = Readers(store)
    write(topic, 0)
    readers.call("first")
    assert gate.inside.acquire(timeout=60)
    readers.call("second")
    readers.call("third")
    waiting(store.follower, 2)
    gate.open.release()
    assert gate.inside.acquire(timeout=60)
    gate.error = OSError("no answer")
    gate.open.release()
    readers.join()
    assert readers.saw == {"first": 1, "second": gate.error, "third": gate.error}
    gate.error = None
    gate.open.release()
    store.refresh()
    assert gate.readings == 3


def test_what_was_read_before_a_failure_is_not_read_twice(gated):
    topic, store, gate = gated
    write(topic, 0)
    gate.error = OSError("no answer")
    gate.open.release()
    with pytest.raises(OSError, match="no answer"):
        store.refresh()
    assert store.places == set(), "a reading that did not come to the end shows nothing"
    write(topic, 1)
    gate.error = None
    gate.open.release()
    store.refresh()
    assert len(store.at(HERE).runs) == 2


def test_what_a_shared_store_returned_never_changes():
    topic = CompactedTopic()
    shared, own = Store(topic, shared=True), Store(topic)
    write(topic, 0)
    shared.refresh()
    own.refresh()
    before, live = shared.at(HERE), own.at(HERE)
    neighbour = HERE._replace(partition=1)
    Store(topic).write([Entry(neighbour, [Run(0, 0, 0)])])
    shared.refresh()
    assert shared.at(HERE) is before, "a reading replaces only what it was about"
    places = shared.places
    write(topic, 1)
    shared.refresh()
    own.refresh()
    assert (len(before.runs), len(shared.at(HERE).runs), len(live.runs)) == (1, 2, 2)
    assert set(places) == {HERE, neighbour}


def test_asking_a_shared_store_adds_nothing():
    store = Store(CompactedTopic(), shared=True)
    assert not store.at(HERE).runs
    assert list(store.places) == []


def test_views_of_one_reading():
    topic = CompactedTopic()
    follower = follower_of(topic)
    SyncedMemory(follower).remember("config", {"t": {"a": "b"}})
    Store(topic).sign(Signature(7, "a", "b"))
    write(topic, 0)
    ledger = FlowLedger(None, "ledger")
    ledger.store.follower.log = counted = InMemory(topic)
    reads = []
    counted.find_end = lambda position: reads.append(position) or True
    ledger.store.refresh()
    assert reads == [0]
    assert ledger.memory.recall("config") == {"t": {"a": "b"}}
    assert ledger.store.signature == Signature(7, "a", "b")
    assert ledger.keeper.places == {HERE} == set(ledger.store.begun())
    with pytest.raises(RuntimeError, match="being read already"):
        ledger.store.follower.attach(View())


class Losing(InMemory):
    """A topic that was created anew when `lost` is set."""

    lost = False

    def find_end(self, position):
        holds, self.lost = not self.lost, False
        return holds


def test_after_a_loss_every_view_begins_again_and_shows_nothing_half_read():
    topic = CompactedTopic()
    ledger = FlowLedger(None, "ledger")
    log = ledger.store.follower.log = Losing(topic)
    ledger.memory.remember("config", {"t": {"a": "b"}})
    for n in range(3):
        write(topic, n)
    ledger.store.refresh()
    seen = []

    class Witness(Losing):
        def read(self, position):
            seen.append((len(ledger.store.at(HERE).runs), ledger.memory.recall("config")))
            return super().read(position)

    anew = CompactedTopic()
    write(anew, 0)
    log = ledger.store.follower.log = Witness(anew)
    log.lost = True
    ledger.store.refresh()
    assert seen == [(3, {"t": {"a": "b"}})], "nothing half read"
    assert (ledger.store.losses, ledger.store.follower.reached) == (1, (1, 1))
    assert len(ledger.store.at(HERE).runs) == 1
    assert ledger.memory.recall("config") == {}
    assert ledger.keeper.places == {HERE}
    ledger.store.restore([HERE])
    assert len(ledger.store.at(HERE).runs) == 3


def test_a_keeper_packs_nothing_of_a_topic_that_was_lost_meanwhile():
    topic = CompactedTopic()
    for n in range(100):
        write(topic, n)
    keeper = Keeper(topic)
    log = keeper.store.follower.log = Losing(topic)
    anew = CompactedTopic()
    for n in range(200):
        write(anew, 1000 + n)
    carry_out = keeper._carry_out

    def lose_first(rewrites, planned):
        log.topic, log.lost = anew, planned.losses == 0
        carry_out(rewrites, planned)

    keeper._carry_out = lose_first
    keeper.tidy({}, least=1)
    store = Store(anew)
    store.refresh()
    assert [run.sequence for run in store.at(HERE).runs] == [10000 + 10 * n for n in range(200)]


def test_a_keeper_and_readers_of_one_store_at_once():
    """A reader that reads on while the keeper plans must not make it lose what it read."""
    topic = CompactedTopic()
    lock = threading.RLock()

    class Locked(InMemory):
        def find_end(self, position):
            return True

        def read(self, position):
            with lock:
                return iter([list(records) for records in super().read(position)])

        def append(self, pairs, producer_id=-1, sequence=-1):
            with lock:
                super().append(pairs, producer_id, sequence)

    keeper = Keeper(topic)
    keeper.store.follower.log = Locked(topic)
    writer = Store(topic)
    writer.follower.log = Locked(topic)
    done, failures = threading.Event(), []

    def tend():
        try:
            while not done.is_set():
                keeper.tidy({}, least=2)
        except BaseException as error:
            failures.append(error)

    def read():
        try:
            last = 0
            while not done.is_set():
                keeper.store.refresh()
                ledger = keeper.store.at(HERE)
                runs = list(ledger.runs)
                assert [run.sequence for run in runs] == [10 * n for n in range(len(runs))]
                assert len(runs) >= last
                last = len(runs)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=t) for t in (tend, read, read)]
    for thread in threads:
        thread.start()
    for n in range(300):
        writer.write([Entry(HERE, [Run(10 * n, 11 * n, 10 * n)])])
    done.set()
    for thread in threads:
        thread.join(60)
    assert not failures
    topic.compact(topic.end, tombstones=True)
    fresh = Store(topic)
    fresh.refresh()
    assert len(fresh.at(HERE).runs) == 300


# -- generations of a partition ---------------------------------------------------------------


def place(partition, source, target):
    return Place("orders", partition, uuid.UUID(int=source), uuid.UUID(int=target))


@pytest.mark.parametrize("shared", [False, True])
def test_other_generations_are_found_by_partition(shared):
    topic = CompactedTopic()
    store = Store(topic, shared=shared)
    run = [Run(0, 0, 5)]
    store.write([Entry(place(0, 1, 2), [Run(0, 0, 0)]), Entry(place(0, 3, 2), run),
                 Entry(place(0, 3, 4), run), Entry(place(1, 9, 2), run)])  # fmt: skip
    store.at(place(0, 8, 2))
    assert store.other_sources(place(0, 3, 2)) == [place(0, 1, 2)]
    assert store.other_targets(place(0, 3, 2)) == [place(0, 3, 4)]
    assert store.generations("orders", 0, uuid.UUID(int=2)) == [place(0, 1, 2), place(0, 3, 2)]
    assert store.other_sources(place(2, 1, 2)) == []


def test_nothing_that_is_asked_per_partition_looks_at_all_partitions():
    topic = CompactedTopic()
    store = Store(topic)
    count = 20_000
    Store(topic).write(Entry(place(n, 1, 2), [Run(0, 0, 0)]) for n in range(count))
    store.refresh()

    class Counting(dict):
        scanned = 0

        def items(self):
            Counting.scanned += 1
            return super().items()

        def __iter__(self):
            Counting.scanned += 1
            return super().__iter__()

    store._places = store._folded = Counting(store._places)
    store._of_partition = Counting(store._of_partition)
    for n in range(count):
        assert len(store.other_sources(place(n, 7, 2))) == 1
        assert len(store.other_targets(place(n, 1, 7))) == 1
        assert len(store.generations("orders", n, uuid.UUID(int=2))) == 1
    assert Counting.scanned == 0
