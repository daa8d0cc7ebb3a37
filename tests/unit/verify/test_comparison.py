from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import FOREIGN, HIGH, batch, compare, content, log

from heliograph.verify.expected import Expected
from heliograph.verify.model import Kind, Side, Stretch

N = 1000
CUTS = range(0, N, 100)


def plain(count=N):
    return {n: content(n) for n in range(count)}


def facts(found):
    return [(d.kind, d.source_offset, d.target_offset) for d in found.differences]


def test_equal_batches_are_compared_without_decoding():
    found = compare(log(plain(), CUTS), log(plain(), CUTS))
    assert (found.records, found.digests, found.decoded) == (N, 10, 0)
    assert not found.counts
    assert found.bytes == sum(len(b.data) for b in log(plain(), CUTS))


def test_other_batch_boundaries_are_compared_record_by_record():
    found = compare(log(plain(), CUTS), log(plain(), range(0, N, 70), codec=4))
    assert (found.records, found.digests, found.decoded) == (N, 0, 10)
    assert not found.counts


def test_digests_take_over_again_where_batches_end_together():
    found = compare(log(plain(), CUTS), log(plain(), [50, *CUTS]))
    assert (found.records, found.digests, found.decoded) == (N, 9, 1)


@pytest.mark.parametrize("cuts", [CUTS, range(0, N, 70)])
@pytest.mark.parametrize("at", [0, 1, 57, 99, 100, 500, N - 2, N - 1])
class TestASingleFault:
    def test_flipped(self, cuts, at):
        target = plain()
        value = bytearray(target[at].value)
        value[3] ^= 1
        target[at] = target[at]._replace(value=bytes(value))
        found = compare(log(plain(), CUTS), log(target, cuts))
        assert found.counts == {Kind.CHANGED: 1}
        [one] = found.differences
        assert (one.source_offset, one.target_offset, one.field) == (at, at, "value (from byte 3)")
        assert (one.topic, one.remote_topic, one.partition) == ("t", "A.t", 3)

    def test_missing_with_a_hole(self, cuts, at):
        target = plain()
        del target[at]
        found = compare(log(plain(), CUTS), log(target, cuts))
        assert found.counts == {Kind.MISSING: 1}
        assert facts(found) == [(Kind.MISSING, at, None)]
        assert found.differences[0].expected == at

    def test_missing_and_all_behind_it_further_on(self, cuts, at):
        target = {n - (n > at): content(n) for n in range(N) if n != at}
        found = compare(log(plain(), CUTS), log(target, cuts))
        behind = N - 1 - at
        assert found.counts[Kind.MISSING] == 1
        assert (Kind.MISSING, at, None) in facts(found)
        assert found.counts.total() == 1 + behind
        assert found.counts[Kind.WRONG_OFFSET] + found.counts[Kind.MOVED] == behind

    def test_missing_and_the_ledger_knows_no_place_for_it(self, cuts, at):
        target = {n - (n > at): content(n) for n in range(N) if n != at}
        stretches = [Stretch(0, 0, at), Stretch(at + 1, at, N)]
        found = compare(log(plain(), CUTS), log(target, cuts), [s for s in stretches if s.length])
        assert facts(found) == [(Kind.MISSING, at, None)]
        assert found.differences[0].note == "the ledger has no place for it"

    def test_doubled(self, cuts, at):
        target = {n + (n > at): content(n) for n in range(N)} | {at + 1: content(at)}
        stretches = [Stretch(0, 0, at + 1), Stretch(at + 1, at + 2, N)]
        found = compare(log(plain(), CUTS), log(target, cuts, {at + 1: FOREIGN}), stretches)
        assert found.counts == {Kind.EXTRA: 1}
        [one] = found.differences
        assert (one.target_offset, one.producer_id) == (at + 1, FOREIGN)
        assert f"doubled: equal to source offset {at};" in one.note

    def test_doubled_and_the_ledger_does_not_know(self, cuts, at):
        target = {n + (n > at): content(n) for n in range(N)} | {at + 1: content(at)}
        found = compare(log(plain(), CUTS), log(target, cuts))
        assert found.counts[Kind.EXTRA] == 1
        extra = next(d for d in found.differences if d.kind is Kind.EXTRA)
        assert f"doubled: equal to source offset {at};" in extra.note
        assert found.counts.total() == 1 + N - 1 - at

    def test_swapped(self, cuts, at):
        other = at + 1 if at + 1 < N else at - 1
        target = plain()
        target[at], target[other] = target[other], target[at]
        found = compare(log(plain(), CUTS), log(target, cuts))
        assert found.counts == {Kind.MOVED: 2}
        assert set(facts(found)) == {(Kind.MOVED, at, other), (Kind.MOVED, other, at)}


@pytest.mark.parametrize("count", [1, 37, 255, 256, 310, 900])
@pytest.mark.parametrize("cuts", [CUTS, range(0, 4 * N, 70)])
def test_many_that_are_there_before_their_place_are_too_many(cuts, count):
    """A write that came late: the ledger's are the second copies, the first are the same."""
    target = {n: content(n) for n in range(50 + count)}
    target |= {n + count: content(n) for n in range(50, 2 * N)}
    stretches = [Stretch(0, 0, 50), Stretch(50, 50 + count, 2 * N)]
    found = compare(log(plain(2 * N), CUTS), log(target, cuts), stretches)
    assert found.counts == {Kind.EXTRA: count}
    assert found.records == 2 * N


def test_far_swaps_are_found_too():
    target = plain()
    target[10], target[900] = target[900], target[10]
    found = compare(log(plain(), CUTS), log(target, CUTS))
    assert set(facts(found)) == {(Kind.MOVED, 10, 900), (Kind.MOVED, 900, 10)}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"key": b"other"}, "key (from byte 0, 3 -> 5 bytes)"),
        ({"value": None}, "value (bytes -> null)"),
        ({"headers": [("h", b"x")]}, "header h"),
        ({"headers": [("g", b"50")]}, "header h -> g"),
        ({"headers": []}, "headers (1 -> 0)"),
        ({"headers": [("\udcff\udcfe", b"50")]}, r"header h -> \xff\xfe"),
        ({"timestamp": 5}, "timestamp (1700000000050 -> 5)"),
    ],
)
def test_what_changed_is_named(change, field):
    target = plain()
    target[50] = target[50]._replace(**change)
    [one] = compare(log(plain(), CUTS), log(target, CUTS)).differences
    assert one.field == field


def test_a_foreign_record_is_named_by_its_producer():
    target = {n + (n >= 40): content(n) for n in range(N)}
    target[40] = content(0)._replace(value=b"foreign")
    stretches = [Stretch(0, 0, 40), Stretch(40, 41, N)]
    [one] = compare(log(plain(), CUTS), log(target, (), {40: FOREIGN}), stretches).differences
    assert one.note == "written by producer id 7, not by this flow"
    assert 'value "foreign"' in one.target_record


def test_records_of_another_flow_are_counted_apart():
    """Between ours, at the beginning and at the end; those beyond the range count elsewhere."""
    target = {n + (n >= 40) * 10: content(n) for n in range(N)}
    target |= {n: content(n + 5000) for n in range(40, 50)}
    target |= {n: content(n) for n in range(N + 10, N + 20)}
    theirs = dict.fromkeys([*range(40, 50), *range(N + 10, N + 20)], FOREIGN)
    stretches = [Stretch(0, 0, 40), Stretch(40, 50, N)]
    found = compare(log(plain(), CUTS), log(target, CUTS, theirs), stretches,
                    others={FOREIGN: "C->B"}, target_end=N + 15)  # fmt: skip
    assert (found.counts, found.records) == ({}, N)
    assert found.others == {"C->B": 15}


def test_a_record_of_another_flow_in_our_place_is_not_ours():
    target = {n: content(n) for n in range(N)}
    found = compare(log(plain(), CUTS), log(target, CUTS, {7: FOREIGN}), others={FOREIGN: "C->B"})
    assert facts(found) == [(Kind.MISSING, 7, None)]


def test_what_is_behind_the_goal_is_not_mirrored_yet():
    target = {n: content(n) for n in range(N - 3) if n != 5}
    found = compare(log(plain(), CUTS), log(target, CUTS), [Stretch(0, 0, N - 3)], goal=N - 3)
    assert (found.counts, found.behind) == ({Kind.MISSING: 4}, 3)
    assert [d.note for d in found.differences] == ["", *["not mirrored yet"] * 3]


def test_quarantined_records_are_counted_apart():
    target = {n: content(n) for n in range(N) if n != 5}
    found = compare(log(plain(), CUTS), log(target, CUTS), quarantined=frozenset({5}))
    assert (found.quarantined, found.counts, found.records) == (1, {}, N - 1)


def test_only_what_belongs_to_the_range_counts():
    source = log(plain(), CUTS)
    target = plain()
    for at in (349, 350, 649, 650):
        target[at] = target[at]._replace(value=b"x")
    found = compare(source, log(target, CUTS), begin=350, end=650, target_begin=350, target_end=650)
    assert found.records == 300
    assert facts(found) == [(Kind.CHANGED, 350, 350), (Kind.CHANGED, 649, 649)]


def test_a_clipped_batch_that_is_alike_counts_what_belongs_to_the_range():
    found = compare(log(plain(), CUTS), log(plain(), CUTS), begin=350, end=650,
                    target_begin=350, target_end=650)  # fmt: skip
    assert (found.records, found.decoded) == (300, 0)


def test_a_shift_across_the_edge_of_a_range_is_seen_with_a_margin():
    target = {n + 1: content(n) for n in range(N)}
    bounds = {"begin": 350, "end": 650, "target_begin": 350, "target_end": 650}
    found = compare(log(plain(), CUTS), log(target), margin=100, **bounds)
    assert found.counts == {Kind.WRONG_OFFSET: 300}
    [one] = found.differences
    assert (one.source_offset, one.target_offset, one.expected, one.count) == (350, 351, 350, 300)


def test_what_one_side_of_a_compacted_topic_lacks_is_left_to_be_explained():
    here = {n: content(n) for n in range(N) if n != 20}
    there = {n: content(n) for n in range(N) if n not in {30, 31}}
    both = frozenset({Side.SOURCE, Side.TARGET})
    found = compare(log(here, CUTS), log(there, CUTS), compacted=both)
    assert not found.counts
    lacking = [(a.lacking, a.key, a.difference.source_offset) for a in found.absent]
    assert lacking == [(Side.SOURCE, b"k20", 20), (Side.TARGET, b"k30", 30),
                       (Side.TARGET, b"k31", 31)]  # fmt: skip


def test_a_log_that_is_wholly_different_takes_bounded_time():
    other = {n: content(n + 10**6) for n in range(20_000)}
    found = compare(log(plain(20_000), range(0, 20_000, 500)), log(other, ()))
    assert found.counts == {Kind.CHANGED: 20_000}
    assert len(found.differences) == 20


# -- against a model --------------------------------------------------------------------------


@st.composite
def mirrored(draw):
    """A source with holes, a ledger, and the target as it should be."""
    source, target, stretches = {}, {}, []
    here = there = serial = 0
    for _ in range(draw(st.integers(1, 6))):
        here += draw(st.integers(0, 3))
        there += draw(st.integers(0, 3))
        count = draw(st.integers(1, 30))
        stretches.append(Stretch(here, there, count))
        for _ in range(count):
            # Few different ones: equal contents must not confuse anybody.
            kind = draw(st.integers(0, 3))
            source[here] = target[there] = content(serial if kind else 0)
            here, there, serial = here + 1, there + 1, serial + 1
    return source, target, stretches


def cuts():
    return st.sets(st.integers(0, 200))


@settings(max_examples=150, deadline=None)
@given(mirrored(), cuts(), cuts())
def test_identical_logs_never_differ(logs, here_cuts, there_cuts):
    source, target, stretches = logs
    found = compare(log(source, here_cuts), log(target, there_cuts), stretches)
    assert not found.counts
    assert found.records == len(source)


@settings(max_examples=400, deadline=None)
@given(mirrored(), cuts(), cuts(), st.data())
def test_differences_are_found_exactly_where_there_are_any(logs, here_cuts, there_cuts, data):
    """Whatever is done to the target: nothing is said if and only if all records are in place."""
    source, target, stretches = logs
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, max(source) + 5))
        what = data.draw(st.sampled_from(["drop", "put", "insert", "remove", "swap"]))
        if what == "drop":
            target.pop(at, None)
        elif what == "put":
            target[at] = content(data.draw(st.integers(0, 50)))
        elif what == "insert":
            target = {o + (o >= at): r for o, r in target.items()} | {at: content(at)}
        elif what == "remove":
            target = {o - (o > at): r for o, r in target.items() if o != at}
        elif at in target and at + 1 in target:
            target[at], target[at + 1] = target[at + 1], target[at]
    expected = Expected(stretches)
    places = {o: expected.targets([o])[0] for o in source}
    right = {o for o, place in places.items() if target.get(place) == source[o]}
    strangers = {t for t in target if expected.source(t) not in source}
    found = compare(log(source, here_cuts), log(target, there_cuts), stretches, most=10**6)
    assert bool(found.counts) == (len(right) < len(source) or bool(strangers))
    # Every record of both sides is accounted for, once.
    counts = found.counts
    matched = len(source) - counts[Kind.MISSING]
    assert len(target) == matched + counts[Kind.EXTRA]
    assert found.records == len(source)
    assert sum(d.count for d in found.differences) == counts.total()
    # And every claim is true.
    for one in found.differences:
        here, there = one.source_offset, one.target_offset
        if one.kind is Kind.CHANGED:
            assert source[here] != target[there]
        elif one.kind in {Kind.MOVED, Kind.WRONG_OFFSET}:
            for n in range(one.count):
                assert there + n in target
            assert source[here] == target[there]
            assert places[here] != there
            assert places[here] == one.expected
        elif one.kind is Kind.MISSING:
            assert here in source
        else:
            assert there in target


def test_target_offsets_by_the_ledger():
    expected = Expected([Stretch(10, 0, 5), Stretch(20, 5, 5)])
    assert expected.targets([9, 10, 14, 15, 20, 24, 25]) == [None, 0, 4, None, 5, 9, None]
    assert [expected.source(t) for t in (0, 4, 5, 9, 10)] == [10, 14, 20, 24, None]
    assert expected.follow(12) == (2, 3)
    assert expected.between(12, 20) == (Stretch(10, 0, 5),)
    assert expected.between(12, 21) == (Stretch(10, 0, 5), Stretch(20, 5, 5))
    assert HIGH > 0
    assert batch({0: content(0)}).header.dense
