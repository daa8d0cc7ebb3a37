"""What the target has deleted, by the source's records and the ledger's places for them."""

from __future__ import annotations

import uuid

from hypothesis import given, settings
from hypothesis import strategies as st
from logs import content, log

from heliograph.model import TopicPartition
from heliograph.verify.claims import check_claims
from heliograph.verify.compaction import Holes
from heliograph.verify.model import Gone, Kind, Range, Side, Stretch

ID = uuid.UUID(int=1)


def part(begin, end, stretches, **changes):
    return Range(
        0, TopicPartition("t", 3), TopicPartition("A.t", 3), ID, ID, begin, end, 0, 0, begin, end,
        end, 0, 0, tuple(stretches), deleted=True, **changes,
    )  # fmt: skip


def check(offsets, *args, cuts=(), most=20, **changes):
    return check_claims(part(*args, **changes), log({o: content(o) for o in offsets}, cuts), most)


def test_records_with_a_place_are_counted_and_not_proven():
    found = check(range(100), 10, 90, [Stretch(0, 0, 100)], cuts={20, 85})
    assert (found.deleted, found.counts, found.records) == (80, {}, 0)
    assert found.gone == [Gone(Side.TARGET, 10, 90)]


def test_a_record_that_the_ledger_has_no_place_for_was_never_mirrored():
    stretches = [Stretch(0, 0, 50), Stretch(52, 50, 48)]
    found = check(range(100), 0, 100, stretches, most=1)
    assert (found.deleted, found.counts, found.records) == (98, {Kind.MISSING: 2}, 2)
    [one] = found.differences
    assert (one.source_offset, one.topic, one.remote_topic, one.partition) == (50, "t", "A.t", 3)
    assert "k50" in one.source_record


def test_quarantined_records_are_not_missing():
    stretches = [Stretch(0, 0, 50), Stretch(51, 50, 48)]
    found = check(range(99), 0, 99, stretches, quarantined=frozenset({50}))
    assert (found.deleted, found.quarantined, found.counts) == (98, 1, {})


def test_what_a_pruned_ledger_has_forgotten_is_not_missing():
    found = check(range(100), 0, 100, [Stretch(60, 60, 40)], pruned_below=60, cuts={30, 55, 65})
    assert (found.deleted, found.counts) == (100, {})


def test_offsets_without_records_are_nothing():
    found = check([5], 0, 5, [])
    assert (found.deleted, found.gone, found.problem) == (0, [], "")


def test_places_for_more_records_than_the_source_has():
    """Offset 50 is a marker, say: nobody can have mirrored a record from there."""
    source = [o for o in range(100) if o != 50]
    found = check(source, 0, 100, [Stretch(0, 0, 100)], cuts={51})
    assert found.deleted == 99
    assert found.problem.startswith(
        "the ledger has places for 100 records of source offsets [0, 100), where the source has 99"
    )
    assert not check(source, 0, 100, [Stretch(0, 0, 100)], cuts={51}, inferred=True).problem
    cleaned = Holes(0)
    cleaned.see(log({51: content(51)})[0].header)
    batches = log({o: content(o) for o in source}, {51})
    assert not check_claims(part(0, 100, [Stretch(0, 0, 100)]), batches, 20, cleaned).problem


def test_places_that_a_later_stretch_takes_over_count_once():
    stretches = [Stretch(0, 0, 100), Stretch(80, 100, 40)]
    assert not check(range(120), 0, 120, stretches).problem
    pruned = [Stretch(60, 60, 40)]
    assert not check(range(100), 0, 100, pruned, pruned_below=60, cuts={30, 70}).problem


@settings(max_examples=150, deadline=None)
@given(st.sets(st.integers(0, 60), min_size=1), st.sets(st.integers(0, 60)),
       st.sets(st.integers(0, 60)), st.integers(0, 30), st.integers(0, 30))  # fmt: skip
def test_every_record_is_deleted_or_missing(offsets, placed, cuts, begin, length):
    """Stretches of one offset each, in whatever places."""
    stretches = [Stretch(o, 1000 + n, 1) for n, o in enumerate(sorted(placed))]
    found = check(offsets, begin, begin + length, stretches, cuts=cuts, most=100)
    mine = {o for o in offsets if begin <= o < begin + length}
    assert found.deleted == len(mine & placed)
    assert {d.source_offset for d in found.differences} == mine - placed
    assert sum(found.counts.values()) == len(mine - placed)
    claimed = {o for o in placed if begin <= o < begin + length}
    assert bool(found.problem) == bool(claimed - offsets)
