"""What the ledger keeps for a bad day: where the source ended, and what rehearsals took."""

from __future__ import annotations

import json

import pytest
from compacted_topic import CompactedTopic, Keeper, Store, follower_of
from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.codec import decode, split
from heliograph.ledger.rehearsals import KEPT, Rehearsal, RehearsalKind, Rehearsals
from heliograph.ledger.source_ends import LastSeen, SourceEnds
from heliograph.model import TopicPartition

T = TopicPartition


def source_ends(topic, scope=""):
    made = SourceEnds(follower_of(topic), scope)
    made.refresh()
    return made


def rehearsals(topic, scope=""):
    made = Rehearsals(follower_of(topic), scope)
    made.refresh()
    return made


def seen(at_ms=1000, ends=None, **values):
    ends = {} if ends is None else ends
    values = {"complete": True, "records": len(ends), "seconds": 0.4} | values
    return LastSeen(at_ms, ends, **values)


names = st.text("abc.-_", min_size=1, max_size=249)
offsets = st.integers(0, 2**63 - 1)
places = st.dictionaries(st.builds(T, names, st.integers(0, 10_000)), offsets)
words = st.builds(
    seen, offsets, places, begins=places,
    records=offsets, seconds=st.none() | st.floats(0, 1e6).map(lambda s: round(s, 3)),
    unmeasured=st.integers(0, 9),
    failed=st.dictionaries(st.builds(T, names, st.integers(0, 9)), st.text(max_size=9), max_size=3),
)  # fmt: skip


def test_of_many_partitions_that_failed_some_are_named_and_no_reason_is_long():
    topic = CompactedTopic()
    source_ends(topic).note(seen(failed={T("orders", n): "why " * 1000 for n in range(2000)}))
    last = source_ends(topic).last
    assert last is not None and len(last.failed) == 50
    assert {len(why) for why in last.failed.values()} == {300}


@given(st.lists(st.tuples(st.sampled_from(["", "one/two"]), words), min_size=1))
def test_the_last_word_counts_for_each_scope_whatever_compaction_removes(said):
    topic = CompactedTopic()
    following = {scope: source_ends(topic, scope) for scope in ("", "one/two")}
    last = dict.fromkeys(following)
    for scope, word in said:
        following[scope].note(word)
        last[scope] = word
    topic.compact(topic.end, tombstones=True)
    for scope, view in following.items():
        view.refresh()
        assert view.last == last[scope] == source_ends(topic, scope).last


def test_only_so_much_is_written_and_what_is_missing_is_said():
    """A record that a broker refuses as too large would be none at all."""
    topic = CompactedTopic()
    one = {T("orders", n): 10**12 + n for n in range(5000)}
    sums = {"orders": 5001}
    source_ends(topic).note(seen(ends=one, topics=sums))
    assert source_ends(topic).last == seen(ends=one), "sums are those of the ends"
    more = seen(ends={**one, T("orders", 5000): 7}, topics=sums)
    source_ends(topic).note(more)
    found = source_ends(topic).last
    assert (found.ends, found.complete, found.topics) == ({}, False, sums)
    assert (found.records, found.seconds) == (more.records, more.seconds)
    long = {T(f"{n:04}" + "x" * 245, 0): 5 for n in range(4000)}
    source_ends(topic).note(seen(ends=long, topics={p.topic: 5 for p in long}))
    found = source_ends(topic).last
    assert (found.records, found.complete, found.ends, found.topics) == (4000, False, {}, {})
    assert max(len(r.value) for r in topic.records) < 600_000


@pytest.mark.parametrize(
    "value", [b"no JSON", b"[]", b"{}", b'{"at": "now"}', b"\xff", b"7", b'{"at":1,"behind":[]}']
)
def test_what_cannot_be_read_says_nothing_new(value):
    topic = CompactedTopic()
    following = source_ends(topic)
    following.note(seen(5))
    following.refresh()
    rehearsals(topic).add(made(1))
    follower_of(topic).append([(b"source-ends/", value), (b"rehearsal//x", value)])
    following.refresh()
    assert following.last.at_ms == 5
    assert source_ends(topic).last is None
    assert [r.at_ms for r in rehearsals(topic).all] == [1]


def made(at_ms, **values):
    told = Rehearsal(at_ms, RehearsalKind.DRILL, 7.25, 1204, 0.4, True, 50, "alice@ops1", "it went")
    return Rehearsal(**{name: getattr(told, name) for name in told.__slots__} | values)


def test_the_newest_rehearsals_are_kept_and_of_older_ones_nothing():
    topic = CompactedTopic()
    mine, other = rehearsals(topic, "a/b"), rehearsals(topic, "other")
    assert (mine.newest, mine.measured, list(mine.all)) == (None, None, [])
    for n in range(KEPT + 5):
        rehearsals(topic, "a/b").add(made(n))
    failed = made(KEPT + 5, kind=RehearsalKind.FAILOVER, ok=False, rto_seconds=None,
                  rpo_records=None, rpo_seconds=None, text="no rights")  # fmt: skip
    mine.add(failed)
    topic.compact(topic.end, tombstones=True)
    assert len(topic.records) == KEPT
    for view in (mine, rehearsals(topic, "a/b")):
        assert [r.at_ms for r in view.all] == list(range(KEPT + 5, 5, -1))
        assert view.newest == failed
        assert view.measured == made(KEPT + 4), "what failed measured nothing"
    other.refresh()
    assert not other.all


def test_readers_that_do_not_know_the_records_skip_them():
    topic = CompactedTopic()
    for scope in ("", "a/b/c/d/e/f"):
        source_ends(topic, scope).note(seen(ends={T("t", 1): 5}))
        rehearsals(topic, scope).add(made(1))
    for record in topic.records:
        assert decode(record.key, record.value) is None
        assert split(record.key)[0] is None
        assert json.loads(record.value)["at"]
    store, keeper = Store(topic), Keeper(topic)
    store.refresh()
    keeper.refresh()
    assert not list(store.places)
    assert not list(keeper.places)
