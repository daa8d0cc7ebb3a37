"""Every record's timestamp comes out as it went in, whatever way its batch takes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from make_batches import batch, legacy, read, view

from heliograph.batch.alike import merge_alike
from heliograph.batch.lanes import pieces
from heliograph.batch.pieces import Piece, Rules
from heliograph.batch.records import Record, build, decode

LARGEST, SMALLEST = (1 << 63) - 2, -(1 << 63)
#: None, the epoch, what brokers do not take but logs may hold, far apart, and what is usual.
stamps = st.sampled_from([-1, -1, 0, 1, -2, 5, SMALLEST, LARGEST, 1_700_000_000_000]) | st.integers(
    1_699_999_999_000, 1_700_000_001_000
)
APART, MERGE = Rules(small_bytes=0), Rules(small_bytes=1 << 20)


def rows(timestamps, step=1):
    return [Record(n * step, time, b"k%d" % n, b"v") for n, time in enumerate(timestamps)]


def written(data, rules, start=0):
    """(timestamp, value) of all records, as a consumer of the target reads them."""
    found = []
    for piece in pieces(data, start, [], rules, 7):
        if isinstance(piece, Piece):
            parsed, seen = read(piece.signed(5, 0))
            assert parsed.max_timestamp == max(r.timestamp for r in seen)
            found += [(r.timestamp, r.key) for r in seen]
    return found


def expected(made):
    return [(r.timestamp, r.key) for r in made]


@given(timestamps=st.lists(stamps, min_size=1, max_size=12), codec=st.integers(0, 4))
@example(timestamps=[-1, 5], codec=0)
@example(timestamps=[-1, -1, 5, -1], codec=0)
@example(timestamps=[-1, LARGEST], codec=3)
def test_in_all_lanes_of_magic_2(timestamps, codec):
    made = rows(timestamps)
    alone = view(*(batch([r], codec=codec) for r in made))
    assert written(alone, MERGE) == expected(made), "merged"
    together = batch(made, codec=codec)
    assert written(view(together), APART) == expected(made), "passed through"
    assert written(view(together), APART, start=1) == expected(made)[1:], "re-encoded"
    holed = rows(timestamps, step=3)
    assert written(view(batch(holed, codec=codec)), APART) == expected(holed), "re-encoded"
    two = view(batch(holed, codec=codec), batch([Record(200, 7, b"x", b"v")]))
    assert written(two, MERGE) == [*expected(holed), (7, b"x")], "re-encoded as neighbours"


@given(timestamps=st.lists(stamps, min_size=16, max_size=24))
def test_as_columns(timestamps):
    made = rows(timestamps)
    region = view(*(batch([r._replace(key=b"k")]) for r in made))
    piece = merge_alike(region, 0, Rules())
    if piece is not None:
        parsed, seen = read(piece.data)
        assert [r.timestamp for r in seen] == timestamps
        assert parsed.max_timestamp == max(timestamps)


def test_a_first_record_without_a_timestamp_is_merged_as_columns():
    region = view(
        *(batch([Record(n, time, b"k", b"v")]) for n, time in enumerate([-1, *range(30)]))
    )
    piece = merge_alike(region, 0, Rules())
    assert [r.timestamp for r in read(piece.data)[1]] == [-1, *range(30)]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("rules", [APART, MERGE])
def test_messages_of_magic_0_have_none(codec, rules):
    made = rows([1, 2, 3])
    data = view(legacy(0, made, codec), batch([Record(3, 9, b"new", b"v")]))
    found = written(data, rules)
    assert found == [*((-1, r.key) for r in made), (9, b"new")]


@given(timestamps=st.lists(stamps, min_size=1, max_size=10))
def test_messages_of_magic_1_may_have_none(timestamps):
    made = rows(timestamps)
    data = view(*(legacy(1, [r]) for r in made))
    for rules in (APART, MERGE):
        assert written(view(data), rules) == expected(made)


def test_old_formats_in_turn_keep_their_offsets():
    """The codec goes by the first message's format, and sets of magic 1 count from their end."""
    old = legacy(0, rows([1]))
    sets = legacy(1, rows([5, 6, 7]), 1)
    struct.pack_into(">q", sets, 0, 3)
    for rules in (APART, MERGE):
        found = list(pieces(view(old, sets), 0, [], rules, 7))
        runs = [run for piece in found if isinstance(piece, Piece) for run in piece.runs]
        assert [o for first, count in runs for o in range(first, first + count)] == [0, 1, 2, 3]
    assert [r.offset for r in decode(bytes(old + sets))] == [0, 1, 2, 3]
    assert [r.timestamp for r in decode(bytes(old + sets))] == [-1, 5, 6, 7]


@given(
    timestamps=st.lists(stamps | st.just((1 << 63) - 1), min_size=1, max_size=10),
    codec=st.integers(0, 4),
)
def test_of_what_we_build_ourselves(timestamps, codec):
    made = rows(timestamps)
    data = build(made, codec=codec, producer_id=7, sequence=40)
    parsed, seen = read(data)
    assert expected(seen) == expected(made)
    assert (parsed.producer_id, parsed.base_sequence) == (7, 40)
    assert expected(decode(data)) == expected(made)
