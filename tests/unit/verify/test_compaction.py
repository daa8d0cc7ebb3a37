from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import batch, content, log

from heliograph.verify.compaction import Holes, Newest, unexplained
from heliograph.verify.comparison import Absent
from heliograph.verify.model import Difference, Kind, Side


def lost(lacking, at, *, tombstone=False):
    """Record ``at`` with key k<at>, which one side does not have."""
    if lacking is Side.TARGET:
        difference = Difference(Kind.MISSING, "t", "A.t", 0, source_offset=at, expected=at)
    else:
        difference = Difference(Kind.EXTRA, "t", "A.t", 0, source_offset=at, target_offset=at)
    return Absent(lacking, b"k%d" % at, tombstone, difference)


def left(absent, *, source=(), target=(), goal=100):
    """What stays unexplained when these offsets hold later records of key k5."""
    newest = Newest.of([absent])
    for side, offsets in ((Side.SOURCE, source), (Side.TARGET, target)):
        newest.look(side, [batch({o: content(5)}) for o in offsets], 0)
    return unexplained([absent], newest, goal)


@pytest.mark.parametrize("lacking", list(Side))
class TestARecordOfWhichOneSideHasALaterVersion:
    def test_on_the_side_that_lacks_it(self, lacking):
        later = {"source" if lacking is Side.SOURCE else "target": [9]}
        assert not left(lost(lacking, 5), **later)

    def test_mirrored(self, lacking):
        assert not left(lost(lacking, 5), source=[9], target=[9])

    def test_only_an_earlier_one(self, lacking):
        assert left(lost(lacking, 5), source=[4], target=[4])

    def test_none(self, lacking):
        assert left(lost(lacking, 5))

    def test_tombstones_go_by_themselves(self, lacking):
        assert not left(lost(lacking, 5, tombstone=True))


def test_the_target_cannot_know_of_what_is_not_mirrored_yet():
    assert left(lost(Side.TARGET, 5), source=[100], goal=100)
    assert not left(lost(Side.SOURCE, 5), source=[100], goal=100)


def test_other_keys_explain_nothing():
    newest = Newest.of([lost(Side.TARGET, 5)])
    newest.look(Side.TARGET, [batch({9: content(6)})], 0)
    assert not newest.target


def test_the_target_is_read_only_until_all_is_explained():
    newest = Newest.of([lost(Side.TARGET, 5)])
    batches = iter([batch({4: content(5)}), batch({9: content(5)}), batch({12: content(6)})])
    newest.look(Side.TARGET, batches, 0)
    assert newest.on_target(lost(Side.TARGET, 5))
    assert next(batches).header.base_offset == 12


@settings(max_examples=200, deadline=None)
@given(st.sets(st.integers(0, 40), min_size=1), st.sets(st.integers(0, 40)), st.integers(0, 10))
def test_holes_are_the_offsets_that_a_log_does_not_have(offsets, cuts, begin):
    """Between what was there and what is: every lacking offset is in a hole."""
    holes = Holes(begin)
    last = max(offsets)
    for one in log({o: content(o) for o in offsets}, cuts):
        if one.header.last_offset >= begin:
            holes.see(one.header)
    assert bool(holes) == any(o not in offsets for o in range(begin, last))
    for offset in range(begin, last):
        if offset not in offsets:
            assert offset in holes
    assert last + 1 not in holes


def test_a_log_that_no_cleaner_has_seen_has_no_holes():
    holes = Holes(3)
    for one in log({n: content(n) for n in range(50)}, cuts={7, 20, 33}):
        holes.see(one.header)
    assert not holes
