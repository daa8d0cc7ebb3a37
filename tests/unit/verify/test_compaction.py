from __future__ import annotations

import pytest
from logs import batch, content

from heliograph.verify.compaction import Newest, unexplained
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
