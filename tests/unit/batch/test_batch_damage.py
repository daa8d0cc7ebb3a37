"""Header fields that are damaged: pieces or CorruptBatch come out, and nothing else, in time."""

from __future__ import annotations

import struct
from contextlib import suppress
from itertools import islice, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from make_batches import TRANSACTIONAL, batch, empty, legacy, marker, sealed, view

from heliograph.batch.header import batches
from heliograph.batch.lanes import pieces
from heliograph.batch.pieces import CorruptBatch, Piece, Rules
from heliograph.batch.records import Record, decode
from heliograph.batch.rewrite import UNREADABLE
from heliograph.wire.errors import DamagedAnswer
from heliograph.wire.log import _next_offset

APART, MERGE = Rules(small_bytes=0), Rules(small_bytes=1 << 20)
#: Where each field of a header begins, and how it is packed.
FIELDS = {
    "base offset": (0, ">q"), "length": (8, ">i"), "leader epoch": (12, ">i"), "magic": (16, ">b"),
    "crc": (17, ">i"), "attributes": (21, ">h"), "last offset delta": (23, ">i"),
    "base timestamp": (27, ">q"), "max timestamp": (35, ">q"), "producer id": (43, ">q"),
    "producer epoch": (51, ">h"), "base sequence": (53, ">i"), "count": (57, ">i"),
}  # fmt: skip
IMPOSSIBLE = [-(1 << 31), -1000, -62, -61, -13, -12, -11, -1, 0, 1, 13, 14, 21, 48]


def log(kind):
    """Five batches of a kind, and where they begin."""
    row = Record(0, 5, b"k", b"v" * 100)
    made = {
        "small": lambda n: batch([row._replace(offset=n)]),
        "of many sizes": lambda n: batch([row._replace(offset=n, value=b"v" * 9 * n)]),
        "compressed": lambda n: batch([row._replace(offset=n)], codec=3),
        "large": lambda n: batch([row._replace(offset=n, value=b"v" * 9000)]),
        "markers": lambda n: marker(n, 3),
        "aborted": lambda n: batch(
            [row._replace(offset=n)], flags=TRANSACTIONAL, producer=(3, 0, 0)
        ),
        "empty": lambda n: empty(n, n),
        "magic 0": lambda n: legacy(0, [row._replace(offset=n, value=b"")]),
        "magic 1": lambda n: legacy(1, [row._replace(offset=n)]),
    }[kind]
    parts = [made(n) for n in range(20)]
    return view(*parts), [sum(map(len, parts[:n])) for n in range(20)]


KINDS = [
    "small", "of many sizes", "compressed", "large", "markers", "aborted", "empty", "magic 0",
    "magic 1",
]  # fmt: skip


def outcome(buffer, rules, start=0):
    """What comes out, and whether it ended in CorruptBatch."""
    found = []
    walk = pieces(buffer, start, [(3, 0)], rules, 7)
    try:
        for piece in islice(walk, 1000):
            found.append(piece)
            if isinstance(piece, Piece):
                piece.signed(1, 0)
    except CorruptBatch:
        return found, True
    assert next(walk, None) is None, "it does not end"
    return found, False


@given(
    kind=st.sampled_from(KINDS),
    which=st.sampled_from([0, 1, 5, 19]),
    field=st.sampled_from(sorted(FIELDS)),
    value=st.sampled_from(IMPOSSIBLE) | st.integers(-(1 << 63), (1 << 63) - 1),
    seal=st.booleans(),
    rules=st.sampled_from([APART, MERGE, Rules(suspicious=True), Rules(max_bytes=150)]),
    start=st.sampled_from([0, 1, 5]),
)
@example("small", 0, "length", -12, False, MERGE, 0)
@example("small", 5, "length", -12, False, MERGE, 0)
@example("small", 5, "length", 0, False, APART, 0)
@example("of many sizes", 19, "length", 0, False, MERGE, 0)
@example("magic 1", 5, "length", 0, False, MERGE, 0)
@example("magic 0", 0, "magic", 1, False, MERGE, 0)
@example("small", 0, "magic", 0, False, MERGE, 0)
def test_f36_any_field_of_any_batch_damaged(kind, which, field, value, seal, rules, start):
    buffer, begins = log(kind)
    at, form = FIELDS[field]
    size = struct.calcsize(form)
    raw = (value % (1 << 8 * size)).to_bytes(size, "big")
    begin = begins[which]
    end = begins[which + 1] if which < 19 else len(buffer)
    if begin + at + size <= end:
        buffer[begin + at : begin + at + size] = raw
    if seal and not kind.startswith("magic"):
        buffer[begin:end] = sealed(bytearray(buffer[begin:end]))
    outcome(view(bytes(buffer)), rules, start)
    # The same for those who read headers, and records, elsewhere.
    for reader in (lambda: list(batches(buffer)), lambda: _next_offset(buffer, 0)):
        with suppress(DamagedAnswer):
            reader()
    if seal:
        with suppress(DamagedAnswer, *UNREADABLE):
            list(decode(buffer))


@given(st.binary(max_size=300), st.sampled_from([APART, MERGE]))
def test_f36_any_bytes(data, rules):
    outcome(view(data), rules)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rules", [APART, MERGE])
def test_f36_an_impossible_length_is_named_after_what_is_sound(kind, rules):
    for which, length in product([0, 5, 19], [-12, 0, -1000, 13]):
        buffer, begins = log(kind)
        struct.pack_into(">i", buffer, begins[which] + 8, length)
        found = []
        named = f"source offset {which} says that it has {length} bytes"
        behind = f"follows source offset {which - 1} is no batch"
        with pytest.raises(CorruptBatch, match=f"{named}|{behind}"):
            found.extend(pieces(buffer, 0, [], rules, 7))
        copied = [run for piece in found if isinstance(piece, Piece) for run in piece.runs]
        assert sum(count for _, count in copied) == (0 if kind in {"markers", "empty"} else which)
        with pytest.raises(DamagedAnswer, match=f"offset {which} says"):
            list(batches(buffer))
        with pytest.raises(DamagedAnswer):
            _next_offset(buffer, 0)


@pytest.mark.parametrize("rules", [APART, MERGE])
def test_f36_a_length_beyond_the_answer(rules):
    """A later batch may be there in part, the first one may not: nothing would ever follow."""
    buffer, begins = log("small")
    struct.pack_into(">i", buffer, begins[5] + 8, 1 << 20)
    found, corrupt = outcome(buffer, rules)
    assert not corrupt
    assert found[-1].next_offset == 5
    with pytest.raises(CorruptBatch, match="source offset 5 says that it has 1048576 bytes"):
        list(pieces(buffer[begins[5] :], 5, [], rules, 7))


@pytest.mark.parametrize("rules", [APART, MERGE])
@pytest.mark.parametrize(("at", "bit"), [(22, 0x20), (23, 0x80)])
def test_f36_nothing_is_left_out_on_the_word_of_a_damaged_header(rules, at, bit):
    """A flipped bit makes a marker of data, or moves its end before the beginning."""
    buffer, begins = log("large")
    buffer[begins[5] + at] ^= bit
    found, corrupt = outcome(buffer, rules)
    assert corrupt
    assert found[-1].next_offset == 5
