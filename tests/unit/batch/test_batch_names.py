"""Header names are bytes: those that are not UTF-8 pass as they are, in every lane."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from make_batches import COMMIT, TRANSACTIONAL, batch, marker, sealed, view

from heliograph.batch.codecs import compressed
from heliograph.batch.lanes import pieces
from heliograph.batch.pieces import CorruptBatch, Piece, Refused, Rules
from heliograph.batch.plain import PlainBatch
from heliograph.batch.records import Record, build, decode
from heliograph.shown import shown

APART, MERGE = Rules(small_bytes=0), Rules(small_bytes=1 << 20)
names = st.binary(max_size=6) | st.sampled_from(
    [b"\xff", b"a\xfe", b"\xed\xa0\x80", b"", "ü".encode()]
)


def record(offset, name, timestamp=5):
    """The name as bytes; `odd` puts them where they belong."""
    headers: Any = ((name, b"x"), (b"plain", None))
    return Record(offset, timestamp, b"k%d" % offset, b"v", headers)


def odd(made, codec=0, **options):
    """A batch whose names are these bytes, made without our own builder."""
    place = {}
    rows = []
    for n, r in enumerate(made):
        # A name of the same length, that occurs nowhere else, and is then written over.
        stand_in = (f"{n:03d}" * 3 + "-" * len(r.headers[0][0]))[: 9 + len(r.headers[0][0])]
        place[stand_in.encode()] = b"=" * 9 + r.headers[0][0]
        rows.append(r._replace(headers=[(stand_in, b"x"), ("plain", None)]))
    data = bytes(batch(rows, **options))
    for written, name in place.items():
        assert data.count(written) == 1
        data = data.replace(written, name)
    return bytearray(compressed(sealed(bytearray(data)), codec))


def seen(piece):
    parsed = PlainBatch(piece.signed(5, 0))
    assert parsed.validate_crc()
    return contents(parsed)


def contents(rows):
    return [
        (
            r.timestamp,
            r.key,
            r.value,
            [(n.encode("utf-8", "surrogateescape"), v) for n, v in r.headers],
        )
        for r in rows
    ]


def wanted(made):
    return [
        (r.timestamp, r.key, r.value, [(b"=" * 9 + r.headers[0][0], b"x"), (b"plain", None)])
        for r in made
    ]


def written(data, rules, start=0):
    found = list(pieces(data, start, [], rules, 7))
    return [one for piece in found if isinstance(piece, Piece) for one in seen(piece)]


@given(
    made=st.lists(st.tuples(names, st.sampled_from([-1, 5, 9])), min_size=1, max_size=6),
    codec=st.integers(0, 4),
    limit=st.sampled_from([200, 1 << 20]),
)
@example(made=[(b"fine", 5), (b"\xff", 5), (b"\xfe", -1)], codec=0, limit=1 << 20)
def test_in_all_lanes(made, codec, limit):
    dense = [record(n, name, time) for n, (name, time) in enumerate(made)]
    alone = [odd([r], codec) for r in dense]
    assert written(view(*alone), MERGE) == wanted(dense), "merged"
    rules = APART._replace(max_bytes=limit)
    assert written(view(odd(dense, codec)), rules) == wanted(dense), "passed through or split"
    assert written(view(odd(dense, codec)), rules, 1) == wanted(dense[1:]), "re-encoded"
    holed = [record(3 * n, name, time) for n, (name, time) in enumerate(made)]
    behind = batch([Record(99, 1, b"k", b"v", [("=" * 9, b"x"), ("plain", None)])])
    found = written(view(odd(holed, codec), behind), MERGE)
    assert found[:-1] == wanted(holed), "re-encoded"
    assert found[-1][1] == b"k"


@given(made=st.lists(names, min_size=1, max_size=6), refused=st.sets(st.integers(0, 5)))
def test_records_that_the_target_refuses_are_handed_out_once(made, refused):
    rows = [record(n, name) for n, name in enumerate(made)]
    rules = APART._replace(refused=dict.fromkeys(refused, "because"))
    found = list(pieces(view(odd(rows)), 0, [], rules, 7))
    given_back = [item.record for item in found if isinstance(item, Refused)]
    assert [r.offset for r in given_back] == sorted(r.offset for r in rows if r.offset in refused)
    assert contents(given_back) == wanted(r for r in rows if r.offset in refused)
    kept = [one for item in found if isinstance(item, Piece) for one in seen(item)]
    assert kept == wanted(r for r in rows if r.offset not in refused)
    assert [item for item in found if isinstance(item, int)] in ([], [len(rows)])


def test_one_that_is_too_large_is_refused_with_its_name():
    data = odd([record(0, b"\xff" * 300)])
    [found, after] = pieces(view(data), 0, [], APART._replace(max_bytes=250), 7)
    assert isinstance(found, Refused)
    assert contents([found.record]) == wanted([record(0, b"\xff" * 300)])
    assert after == 1


def test_transactions_around_it_stay_what_they_are():
    """The second reading begins at the batch that needs it: markers are not seen twice."""
    flags = {"flags": TRANSACTIONAL, "producer": (1, 0, 0)}
    data = view(
        odd([record(0, b"a")], **flags),
        marker(1, 1),
        odd([record(2, b"b")], **flags),
        odd([record(3, b"\xff")]),
        odd([record(4, b"c")], **flags),
        marker(5, 1),
        odd([record(6, b"d")], **flags),
        marker(7, 1, COMMIT),
    )
    found = list(pieces(data, 0, [(1, 0), (1, 2)], MERGE, 7))
    kept = [one for item in found if isinstance(item, Piece) for one in seen(item)]
    assert kept == wanted([record(3, b"\xff"), record(6, b"d")])
    assert found[-1] == 8


def test_damage_is_still_found():
    data = odd([record(0, b"fine"), record(1, b"\xff")])
    data[-1] ^= 0x55
    for rules, start in ((MERGE, 0), (APART, 1)):
        buffer = view(sealed(data), batch([Record(2, 1, None, b"v")]))
        with pytest.raises(CorruptBatch, match="source offsets 0 to 1 cannot be decoded"):
            list(pieces(buffer, start, [], rules, 7))


@given(st.lists(names, min_size=1, max_size=5), st.integers(0, 4))
def test_what_we_build_and_read_ourselves(made, codec):
    """As for records that are set aside, the proof and verify."""
    rows = [
        Record(n, n, None, b"v", [(name.decode("utf-8", "surrogateescape"), b"x")])
        for n, name in enumerate(made)
    ]
    assert [r._replace(headers=list(r.headers)) for r in decode(build(rows, codec=codec))] == rows


def test_names_for_people():
    assert shown("trace") == "trace"
    assert shown(b"a\xff\xc3\xbc".decode("utf-8", "surrogateescape")) == r"a\xffü"
