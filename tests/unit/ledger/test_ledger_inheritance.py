"""What MM2 left, in the ledger: kept through re-packing and pruning, and used in translations."""

from __future__ import annotations

from compacted_topic import HERE, CompactedTopic, Keeper, Store
from hypothesis import given
from hypothesis import strategies as st

from heliograph.batch.records import Record, build
from heliograph.ledger.begun import BegunPlaces
from heliograph.ledger.codec import Entry, Inherited, decode, encode_inherited
from heliograph.ledger.inheritance import Blur, Inheritance
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.ledger.translation import MirroredPartition

offsets = st.integers(-1, 1 << 50)
INHERITANCE = Inheritance(900, (Blur(99, 99, 300, 250), Blur(400, 350, 380, 500)))
RUNS = [Run(0, 0, 0), Run(250, 300, 250), Run(500, 380, 500), Run(900, 780, 900)]


@given(st.builds(Inheritance, offsets, st.lists(st.builds(Blur, *[offsets] * 4)).map(tuple)))
def test_it_goes_there_and_back(inheritance):
    inherited = Inherited(HERE, inheritance)
    assert decode(*encode_inherited(inherited)) == inherited


def estate(topic):
    Store(topic).inherit([(Inherited(HERE, INHERITANCE), Entry(HERE, RUNS))])
    return topic


def reader(topic):
    store = Store(topic)
    store.refresh()
    return store.at(HERE)


def test_the_runs_come_last_so_that_half_of_it_is_as_good_as_nothing():
    topic = estate(CompactedTopic())
    assert [r.key.decode().partition("/")[0] for r in topic.records] == ["inherited", "runs"]
    found = reader(topic)
    assert (found.inherited, list(found.runs)) == (INHERITANCE, RUNS)


def test_it_survives_re_packing_and_pruning():
    topic = estate(CompactedTopic())
    writer = Store(topic)
    for n in range(1, 200):
        writer.write([Entry(HERE, [Run(900 + n, 780 + 2 * n, 900 + n)])])
    for log_start in (0, 1050):
        Keeper(topic).tidy({HERE: log_start})
        topic.compact(topic.end, tombstones=True)
        assert reader(topic).inherited == INHERITANCE
    assert reader(topic).runs[0].target == 1050


def test_begun_places_are_those_with_runs():
    topic = CompactedTopic()
    store, begun = Store(topic), BegunPlaces()
    store.follower.attach(begun)
    topic.append(_batch(*encode_inherited(Inherited(HERE, INHERITANCE))))
    store.refresh()
    assert begun.all == set(store.begun()) == set()
    store.inherit([(Inherited(HERE, INHERITANCE), Entry(HERE, RUNS))])
    assert begun.all == set(store.begun()) == {HERE}


def _batch(key, value):
    return build([Record(0, 0, key, value)])


def inheriting():
    ledger = PartitionLedger(RUNS)
    ledger.inherited = INHERITANCE
    return MirroredPartition(ledger, 0, 2000)


def test_where_it_is_blurred_answers_are_safe_and_say_so():
    partition = inheriting()
    # Exact up to the blur, and from its end on.
    assert [partition.to_target(n).offset for n in (99, 300, 379)] == [99, 250, 329]
    blurred = partition.to_target(200)
    assert (blurred.offset, blurred.exact) == (100, False)
    assert "mirrored by MM2" in blurred.note
    back = partition.to_source(200)
    assert (back.offset, back.exact) == (100, False)
    assert partition.to_source(250).exact
    # MM2 began again: the last copy counts on the way there, and on the way back what was reached.
    assert partition.to_target(390).offset == 510
    assert partition.to_target(390).exact
    assert partition.to_source(420).offset == 401


def test_what_we_mirror_is_exact():
    partition = inheriting()
    assert [partition.to_target(n).offset for n in (780, 800)] == [900, 920]
    assert [partition.to_source(n).offset for n in (900, 920)] == [780, 800]
