"""Re-packing and pruning never change what a reader learns, whoever reads or writes meanwhile."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from compacted_topic import HERE, CompactedTopic, InMemory, Keeper, Store
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.batch.records import decode as decode_batch
from heliograph.ledger import follower as follower_module
from heliograph.ledger import keeper as keeper_module
from heliograph.ledger import store as store_module
from heliograph.ledger import topic_log as topic_log_module
from heliograph.ledger.codec import Entry, Signature, decode, split
from heliograph.ledger.runs import PartitionLedger, Run

OLD, ELSEWHERE = uuid.UUID(int=10), uuid.UUID(int=20)
NEIGHBOUR = HERE._replace(partition=1)


def kinds(topic):
    return [split(r.key)[1].partition("/")[0] for r in topic.records if r.value is not None]


def fresh(topic):
    store = Store(topic)
    store.refresh()
    return store


def told(topic, place=HERE):
    return list(fresh(topic).at(place).runs)


def live(topic, count, first=0, place=HERE):
    """A slow topic with transactions: one gap, one entry."""
    runs = [Run(100 * n, 101 * n, 100 * n) for n in range(first, first + count)]
    writer = Store(topic)
    for run in runs:
        writer.write([Entry(place, [run])])
    return runs


# -- writing ----------------------------------------------------------------------------------


def test_what_is_written_together_is_one_record():
    topic = CompactedTopic()
    runs = [Run(n, 2 * n, n) for n in range(50)]
    Store(topic).write([Entry(HERE, [run]) for run in runs] + [Entry(NEIGHBOUR, runs[:1])])
    assert kinds(topic) == ["runs", "runs"]
    assert told(topic) == runs
    assert told(topic, NEIGHBOUR) == runs[:1]


def test_a_correction_and_what_follows_it_stay_in_order():
    topic = CompactedTopic()
    store = Store(topic)
    store.write([Entry(HERE, [Run(0, 0, 0), Run(5, 8, 5), Run(7, 12, 7)])])
    later = [Entry(HERE, [Run(6, 13, 6)]), Entry(HERE, [Run(9, 20, 9)])]
    store.write([Entry(HERE, [Run(5, 10, 5)], shift=True), *later])
    assert kinds(topic) == ["runs", "shift", "runs"]
    assert told(topic) == [Run(0, 0, 0), Run(5, 10, 5), Run(6, 13, 6), Run(9, 20, 9)]


def test_runs_out_of_order_are_not_put_into_one_record():
    topic = CompactedTopic()
    Store(topic).write([Entry(HERE, [Run(5, 5, 5)]), Entry(HERE, [Run(2, 2, 2)])])
    assert told(topic) == [Run(2, 2, 2), Run(5, 5, 5)]


def test_a_large_announcement_is_cut_but_a_correction_is_not(monkeypatch):
    monkeypatch.setattr(store_module, "_RUNS_PER_ENTRY", 10)
    topic = CompactedTopic()
    runs = [Run(n, 2 * n, n) for n in range(25)]
    Store(topic).write([Entry(HERE, runs), Entry(NEIGHBOUR, runs, shift=True)])
    assert sorted(kinds(topic)) == ["runs", "runs", "runs", "shift"]
    assert told(topic) == told(topic, NEIGHBOUR) == runs


def test_batches_stay_below_their_limit(monkeypatch):
    monkeypatch.setattr(topic_log_module, "_BATCH_BYTES", 2000)
    topic = CompactedTopic()
    places = [HERE._replace(partition=n) for n in range(100)]
    Store(topic).write([Entry(place, [Run(0, 0, 0)]) for place in places])
    assert len(topic.batches) > 1
    for batch in topic.batches:
        assert sum(len(r.key) + len(r.value) for r in batch) <= 2000
    store = fresh(topic)
    assert all(list(store.at(place).runs) == [Run(0, 0, 0)] for place in places)


def test_two_writers_that_say_the_same_do_not_share_a_key():
    """Compaction keeps the later of two equal keys: the longer list would be lost."""
    topic = CompactedTopic()
    Store(topic).write([Entry(HERE, [Run(0, 0, 0), Run(5, 8, 5), Run(9, 20, 9)])])
    Store(topic).write([Entry(HERE, [Run(0, 0, 0), Run(5, 8, 5)])])
    topic.compact(topic.end)
    assert told(topic)[-1] == Run(9, 20, 9)


def test_a_slow_reader_looks_at_the_end_again(monkeypatch):
    """The cleaner removed an entry that it had not come to, for a record that it did not expect."""
    monkeypatch.setattr(follower_module, "_QUICK_SECONDS", -1.0)
    topic = CompactedTopic()
    runs = live(topic, 10)
    keeper = Keeper(topic)

    class Slow(InMemory):
        """Its first look at the end is from before the topic was tidied, its reading from after."""

        interrupted = False

        def read(self, position):
            end = topic.end
            if not self.interrupted:
                self.interrupted = True
                keeper.tidy({}, least=1)
                topic.compact(topic.end)
            return map(decode_batch, topic.read(position, end))

    slow = Store(topic)
    slow.follower.log = Slow(topic)
    Store(topic).sign(Signature(1, "a", "b"))  # something to read before the end that it knows
    slow.refresh()
    assert list(slow.at(HERE).runs) == runs


# -- re-packing -------------------------------------------------------------------------------


def test_many_small_entries_become_one_record():
    topic = CompactedTopic()
    runs = live(topic, 300)
    follower = fresh(topic)
    before = topic.bytes
    Keeper(topic).tidy({})
    assert told(topic) == runs, "readers that come before the cleaner"
    topic.compact(topic.end, tombstones=True)
    assert kinds(topic) == ["packed"]
    assert told(topic) == runs
    follower.refresh()
    assert list(follower.at(HERE).runs) == runs
    assert topic.bytes - before < before / 4, "tidying writes little"


def test_few_entries_are_left_alone():
    topic = CompactedTopic()
    live(topic, 63)
    end = topic.end
    Keeper(topic).tidy({})
    assert topic.end == end


def test_large_entries_are_left_alone():
    topic = CompactedTopic()
    runs = [Run(n, 2 * n, n) for n in range(100 * 300)]
    writer = Store(topic)
    for i in range(100):
        writer.write([Entry(HERE, runs[300 * i : 300 * i + 300])])
    end = topic.end
    Keeper(topic).tidy({})
    assert topic.end == end


def test_a_small_packed_record_is_filled_up_and_a_large_one_kept(monkeypatch):
    monkeypatch.setattr(keeper_module, "_RUNS_PER_RECORD", 200)
    topic = CompactedTopic()
    keeper = Keeper(topic)
    runs, layouts = [], []
    for n in range(6):
        runs += live(topic, 70, first=70 * n)
        keeper.tidy({})
        topic.compact(topic.end, tombstones=True)
        assert told(topic) == runs
        packed: list[Any] = [decode(r.key, r.value) for r in topic.records]
        layouts.append([len(p.runs) for p in packed])
    assert layouts == [[70], [140], [140, 70], [140, 140], [140, 140, 70], [140, 140, 140]]


def test_a_place_too_large_for_one_record(monkeypatch):
    monkeypatch.setattr(keeper_module, "_RUNS_PER_RECORD", 7)
    monkeypatch.setattr(topic_log_module, "_BATCH_BYTES", 500)
    topic = CompactedTopic()
    runs = live(topic, 100)
    Keeper(topic).tidy({})
    topic.compact(topic.end, tombstones=True)
    assert kinds(topic) == ["packed"] * 15
    assert told(topic) == runs


def test_packed_records_carry_a_producer_id_and_sequences(monkeypatch):
    """So that a request that is sent again does not append them again."""
    monkeypatch.setattr(keeper_module, "_RUNS_PER_RECORD", 7)
    monkeypatch.setattr(topic_log_module, "_BATCH_BYTES", 500)
    topic = CompactedTopic()
    live(topic, 100)
    seen = []
    append = topic.append

    def noting(batch):
        seen.append((
            int.from_bytes(batch[43:51], "big", signed=True),
            int.from_bytes(batch[53:57], "big", signed=True),
            int.from_bytes(batch[57:61], "big"),
        ))  # fmt: skip
        append(batch)

    monkeypatch.setattr(topic, "append", noting)
    Keeper(topic).tidy({})
    packs = [(sequence, count) for producer, sequence, count in seen if producer == 7]
    assert len(packs) > 1
    expected = 0
    for sequence, count in packs:
        assert sequence == expected
        expected += count
    assert expected == 15


def test_a_writer_that_comes_between_makes_the_keeper_try_again():
    topic = CompactedTopic()
    runs = live(topic, 100)
    others = [
        Entry(HERE, [Run(50_000, 60_000, 50_000)]),
        Entry(HERE, [Run(60_000, 80_000, 60_000)]),
    ]

    def interfere(records):
        if records[0].key.startswith(b"packed/") and others:
            Store(topic).write([others.pop(0)])

    topic.before_append = interfere
    Keeper(topic).tidy({})
    assert not others
    expected = [*runs, Run(50_000, 60_000, 50_000), Run(60_000, 80_000, 60_000)]
    assert told(topic) == expected
    topic.compact(topic.end, tombstones=True)
    assert kinds(topic) == ["packed"]
    assert told(topic) == expected


def test_a_writer_that_always_comes_between_loses_nothing():
    topic = CompactedTopic()
    runs = live(topic, 100)

    def interfere(records):
        if records[0].key.startswith(b"packed/"):
            last = told(topic)[-1]
            runs.append(Run(last.sequence + 1, last.source + 2, last.target + 1))
            Store(topic).write([Entry(HERE, runs[-1:])])

    topic.before_append = interfere
    Keeper(topic).tidy({})
    assert len(runs) == 103, "three tries"
    assert told(topic) == runs
    topic.compact(topic.end)
    assert told(topic) == runs
    topic.before_append = lambda _: None
    Keeper(topic).tidy({})
    topic.compact(topic.end)
    assert told(topic) == runs


def test_a_writer_of_another_place_is_no_hindrance():
    topic = CompactedTopic()
    runs = live(topic, 100)
    topic.before_append = lambda records: (
        Store(topic).write([Entry(NEIGHBOUR, [Run(0, 0, 0)])])
        if records[0].key.startswith(b"packed/")
        else None
    )
    Keeper(topic).tidy({})
    topic.compact(topic.end, tombstones=True)
    assert kinds(topic) == ["runs", "packed"]
    assert told(topic) == runs


def test_the_first_writer_still_wins_after_re_packing():
    topic = CompactedTopic()
    live(topic, 100)
    store = Store(topic)
    store.write([Entry(HERE, [Run(10_000, 10_200, 10_000)])])
    store.write([Entry(HERE, [Run(10_000, 10_300, 10_000)])])
    Keeper(topic).tidy({})
    store.write([Entry(HERE, [Run(10_000, 10_400, 10_000)])])
    topic.compact(topic.end)
    assert told(topic)[-1] == Run(10_000, 10_200, 10_000)


# -- against the model ------------------------------------------------------------------------


@st.composite
def entries(draw):
    """Anything that a writer, a zombie or a madman may say."""
    number = st.integers(0, 40)
    sequences = draw(st.lists(number, min_size=1, max_size=4, unique=True))
    runs = [Run(s, draw(number), draw(number)) for s in sorted(sequences)]
    return Entry(HERE, runs, draw(st.booleans()))


steps = st.lists(
    st.one_of(
        entries(),
        st.tuples(
            st.just("tidy"),
            st.integers(0, 1),
            st.lists(st.none() | entries() | st.floats(0, 1), max_size=8),
        ),
        st.tuples(st.just("compact"), st.floats(0, 1), st.booleans()),
        st.tuples(st.just("follow"), st.integers(0, 2)),
    ),
    max_size=25,
)


@settings(max_examples=300)
@given(steps, st.integers(1, 3), st.integers(1, 4))
def test_every_reader_learns_the_same(history, runs_per_record, least):
    """Two keepers, compaction up to anywhere, readers that come late: as if they had read each

    entry when it was written.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeper_module, "_RUNS_PER_RECORD", runs_per_record)
        patch.setattr(topic_log_module, "_BATCH_BYTES", 200)
        topic, truth = CompactedTopic(), PartitionLedger()
        writer, keepers = Store(topic), [Keeper(topic), Keeper(topic)]
        followers = [Store(topic) for _ in range(3)]
        pending = []

        def write(entry):
            writer.write([entry])
            for run in entry.runs:
                (truth.correct if entry.shift else truth.add)(run)

        def disturb(call):
            topic.before_append = topic.before_read = call

        def interfere(*_):
            disturb(lambda *_: None)
            assert told(topic) == list(truth.runs)
            thing = pending.pop() if pending else None
            if isinstance(thing, Entry):
                write(thing)
            elif thing is not None:
                topic.compact(int(thing * topic.end))
            disturb(interfere)

        for step in history:
            if isinstance(step, Entry):
                write(step)
            elif step[0] == "tidy":
                pending[:] = step[2]
                disturb(interfere)
                keepers[step[1]].tidy({HERE: 0}, least=least)
                disturb(lambda *_: None)
            elif step[0] == "compact":
                topic.compact(int(step[1] * topic.end), tombstones=step[2])
            else:
                followers[step[1]].refresh()
            assert told(topic) == list(truth.runs)
        readers: list[Any] = [*followers, *keepers, writer]
        for reader in readers:
            reader.refresh()
            assert list(reader.at(HERE).runs) == list(truth.runs)


# -- pruning ----------------------------------------------------------------------------------


def test_runs_below_the_log_start_are_removed():
    topic = CompactedTopic()
    runs = live(topic, 300)
    follower = fresh(topic)
    Keeper(topic).tidy({HERE: 20_050})
    topic.compact(topic.end, tombstones=True)
    assert told(topic) == runs[200:]
    follower.refresh()
    assert list(follower.at(HERE).runs) == runs[200:]


def test_pruning_waits_until_half_is_useless():
    topic = CompactedTopic()
    runs = live(topic, 300)
    keeper = Keeper(topic)
    keeper.tidy({HERE: 14_050})
    assert told(topic) == runs
    end = topic.end
    keeper.tidy({HERE: 14_050})
    assert topic.end == end
    keeper.tidy({HERE: 15_000})
    assert told(topic) == runs[150:]


def test_the_newest_run_is_kept():
    topic = CompactedTopic()
    runs = live(topic, 300)
    Keeper(topic).tidy({HERE: 1_000_000})
    assert told(topic) == runs[-1:]


def test_large_entries_are_pruned_too():
    topic = CompactedTopic()
    runs = [Run(n, 2 * n, n) for n in range(30_000)]
    Store(topic).write([Entry(HERE, runs)])
    Keeper(topic).tidy({HERE: 29_000})
    topic.compact(topic.end, tombstones=True)
    assert kinds(topic) == ["packed"]
    assert told(topic) == runs[29_000:]


def test_an_earlier_generation_of_the_source_keeps_one_run():
    topic = CompactedTopic()
    earlier = HERE._replace(source_id=OLD)
    runs = live(topic, 10, place=earlier)
    Keeper(topic).tidy({HERE: 0})
    assert told(topic, earlier) == runs, "nothing of the new one is mirrored yet"
    Store(topic).write([Entry(HERE, [Run(1000, 0, 1000), Run(1005, 7, 1005)])])
    Keeper(topic).tidy({earlier: 0})
    assert len(told(topic)) == 2, "it is not yet known to be the new one"
    Keeper(topic).tidy({HERE: 0})
    topic.compact(topic.end, tombstones=True)
    store = fresh(topic)
    assert list(store.at(earlier).runs) == runs[-1:]
    assert len(store.at(HERE).runs) == 2
    assert store.other_sources(HERE) == [earlier]
    end = topic.end
    Keeper(topic).tidy({HERE: 0})
    assert topic.end == end, "once"


def test_without_topic_ids_nothing_is_an_earlier_generation():
    topic = CompactedTopic()
    earlier = HERE._replace(source_id=uuid.UUID(int=0))
    runs = live(topic, 10, place=earlier)
    live(topic, 1, first=10)
    Keeper(topic).tidy({HERE: 0})
    assert told(topic, earlier) == runs


def test_nothing_is_kept_of_a_target_topic_that_is_gone():
    topic = CompactedTopic()
    gone = HERE._replace(target_id=ELSEWHERE)
    live(topic, 5, place=gone)
    runs = live(topic, 5)
    keeper = Keeper(topic)
    keeper.tidy({HERE: 0}, gone={ELSEWHERE})
    assert list(keeper.places) == [HERE]
    topic.compact(topic.end, tombstones=True)
    store = fresh(topic)
    assert not store.at(gone).runs
    assert list(store.at(HERE).runs) == runs


def test_a_place_that_is_not_mirrored_now_is_packed_but_not_pruned():
    topic = CompactedTopic()
    runs = live(topic, 100)
    Keeper(topic).tidy({NEIGHBOUR: 1_000_000})
    topic.compact(topic.end, tombstones=True)
    assert kinds(topic) == ["packed"]
    assert told(topic) == runs


def test_signatures_stay():
    topic = CompactedTopic()
    signature = Signature(12, "src", "tgt")
    Store(topic).sign(signature)
    live(topic, 100)
    Keeper(topic).tidy({HERE: 9000}, gone={ELSEWHERE})
    topic.compact(topic.end, tombstones=True)
    assert fresh(topic).signature == signature
