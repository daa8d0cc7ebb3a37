"""Batches of one record and one size, merged as a table: the same as merged one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_batches import batch, read, view

from heliograph.batch.alike import merge_alike
from heliograph.batch.pieces import AbortedTransactions, Piece, Rules
from heliograph.batch.records import Record
from heliograph.batch.rewrite import MERGED_BYTES, rewrite

RULES = Rules()


def one(offset, timestamp, size=100, key=b"k", headers=(("h", b"1"),)):
    value = (b"%d " % offset).ljust(size, b".")
    return Record(offset, timestamp, key, value, headers)


def by_records(data, start):
    [piece] = [
        p for p in rewrite(data, start, AbortedTransactions([]), RULES) if isinstance(p, Piece)
    ]
    return piece


@given(
    first=st.sampled_from([0, 63, 8191, 1 << 40]),
    steps=st.lists(st.sampled_from([0, 1, 60, 7000]), min_size=16, max_size=200),
    size=st.sampled_from([20, 55, 100, 200, 20_000]),
    key=st.sampled_from([None, b"", b"key"]),
)
def test_the_same_bytes_as_record_by_record(first, steps, size, key):
    made, stamp = [], 1_700_000_000_000
    for n, step in enumerate(steps):
        stamp += step
        made.append(one(first + n, stamp, size, key))
    data = view(*(batch([r]) for r in made))
    piece = merge_alike(data, first, RULES)
    parsed, seen = read(piece.signed(7, 40))
    assert [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in seen] == [
        (r.timestamp, r.key, r.value, tuple(r.headers)) for r in made
    ]
    assert [r.offset for r in seen] == list(range(len(made)))
    assert (parsed.base_sequence, parsed.max_timestamp) == (40, stamp)
    assert (piece.runs, piece.next_offset) == ([(first, len(made))], first + len(made))
    if len(data) < MERGED_BYTES:
        assert bytes(by_records(data, first).signed(7, 40)) == bytes(piece.data)


def alike(count=20):
    return [batch([one(n, 1_700_000_000_000 + n)]) for n in range(count)]


def test_timestamps_may_go_back():
    stamps = [1_700_000_000_000 - n for n in range(20)]
    data = view(*(batch([one(n, stamp)]) for n, stamp in enumerate(stamps)))
    piece = merge_alike(data, 0, RULES)
    parsed, seen = read(piece.signed(7, 0))
    assert [r.timestamp for r in seen] == stamps
    assert parsed.max_timestamp == stamps[0]


def damaged(n):
    made = alike()
    made[n][-1] ^= 1
    return made


def with_gap():
    return [batch([one(n if n < 10 else n + 1, 1_700_000_000_000)]) for n in range(20)]


@pytest.mark.parametrize(
    ("made", "start", "rules"),
    [
        (alike(5), 0, RULES),
        (alike(), 1, RULES),
        (damaged(0), 0, RULES),
        (damaged(19), 0, RULES),
        (with_gap(), 0, RULES),
        ([batch([one(n, 5)], codec=3) for n in range(20)], 0, RULES),
        ([batch([one(2 * n, 5), one(2 * n + 1, 5)]) for n in range(20)], 0, RULES),
        ([batch([one(n, 5)], flags=0x10, producer=(3, 0, n)) for n in range(20)], 0, RULES),
        ([batch([one(n, 5)], flags=0x08) for n in range(20)], 0, RULES),
        ([*alike(), batch([one(20, 5, 101)])], 0, RULES),
        (alike(), 0, Rules(refused={3: "no"})),
        (alike(), 0, Rules(codec=4)),
        (alike(), 0, Rules(max_bytes=1000)),
    ],
)  # fmt: skip
def test_what_is_not_alike_is_left_to_others(made, start, rules):
    assert merge_alike(view(*made), start, rules) is None
