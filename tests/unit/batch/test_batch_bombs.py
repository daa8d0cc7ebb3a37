"""A few bytes that expand to gigabytes: memory stays bounded, and nothing is lost."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from functools import partial
from typing import Any

import cramjam
import pytest
from bombs import CODECS, LOG_APPEND_TIME, MEGABYTE, bomb, small_records
from make_batches import view

from heliograph.batch import codecs, plain
from heliograph.batch.codecs import TooLarge, expanded, stream
from heliograph.batch.header import HEADER_BYTES
from heliograph.batch.lanes import pieces
from heliograph.batch.pieces import CorruptBatch, Piece, Refused, Rules
from heliograph.batch.records import decode, decode_batches
from heliograph.batch.rewrite import UNREADABLE


def test_f_small_bombs_pass_untouched_and_cost_no_memory():
    """In a process of its own, because memory that was used once is not given back."""
    code = f"""
import sys
sys.path += {sys.path!r}
from resource import RUSAGE_SELF, getrusage
from bombs import bomb
from make_batches import view
from heliograph.batch.lanes import pieces
from heliograph.batch.pieces import Rules
made = [bomb(4, [100 << 20], base=n) for n in range(12)]
assert all(len(one) < 8 << 10 for one in made), max(map(len, made))
region = b"".join(made)
before = getrusage(RUSAGE_SELF).ru_maxrss
found = list(pieces(view(region), 0, [], Rules(small_bytes=64 << 10), 0))
assert [bytes(piece.data) for piece in found] == [bytes(one) for one in made]
spent = getrusage(RUSAGE_SELF).ru_maxrss - before
assert spent < 64 << 10, spent
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_what_must_be_built_anew_is_built_record_by_record(codec, monkeypatch):
    monkeypatch.setattr(codecs, "EXPANDED_BYTES", MEGABYTE)
    made = small_records(codec, 300, 10_000, attributes=LOG_APPEND_TIME)
    found = list(pieces(view(made), 5, [], Rules(), 0))
    assert found.pop() == 300
    whole = [piece for piece in found if isinstance(piece, Piece)]
    assert whole == found
    assert whole[0].runs[0][0] == 5
    records = [r for piece in whole for r in decode(piece.data)]
    assert len(records) == sum(piece.record_count for piece in whole) == 295
    assert {(r.timestamp, r.value) for r in records} == {(2000, bytes(10_000))}


def test_neighbours_that_expand_to_too_much_stay_apart(monkeypatch):
    monkeypatch.setattr(codecs, "MERGED_EXPANDED_BYTES", 5000)
    made = [small_records(4, 1, 2000, base=n) for n in range(4)]
    found: list[Any] = list(pieces(view(b"".join(made)), 0, [], Rules(), 0))
    assert [bytes(piece.data) for piece in found] == [bytes(one) for one in made]


def test_neighbours_with_very_many_records_stay_apart(monkeypatch):
    monkeypatch.setattr(codecs, "MERGED_RECORDS", 30)
    made = [small_records(4, 11, 10, base=11 * n) for n in range(4)]
    found: list[Any] = list(pieces(view(b"".join(made)), 0, [], Rules(), 0))
    assert [bytes(piece.data) for piece in found] == [bytes(one) for one in made]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_record_that_nobody_can_hold_is_refused_by_name(codec, monkeypatch):
    monkeypatch.setattr(codecs, "EXPANDED_BYTES", 10_000)
    monkeypatch.setattr(plain, "RECORD_BYTES", 50_000)
    made = small_records(codec, 1, 60_000, attributes=LOG_APPEND_TIME)
    [refused, end] = pieces(view(made), 0, [], Rules(), 0)
    assert end == 1
    assert isinstance(refused, Refused)
    assert refused.record.offset == 0
    assert refused.reason.startswith("the record has 60008 bytes, and Heliograph builds none anew")
    with pytest.raises(ValueError, match="the record at offset 0 has 60008 bytes"):
        list(decode(made))


def test_what_surrounds_a_refused_record_is_mirrored():
    made = bomb(4, [10, 70 * MEGABYTE, 20, 30], attributes=LOG_APPEND_TIME)
    found: list[Any] = list(pieces(view(made), 0, [], Rules(), 0))
    kinds = [type(piece) for piece in found]
    assert kinds == [Piece, Refused, Piece, int]
    assert found[1].record.offset == 1
    assert [found[0].runs, found[2].runs] == [[(0, 1)], [(2, 2)]]


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_that_expands_to_too_much(magic):
    content = b"".join([bytes(cramjam.gzip.compress(bytes(MEGABYTE)))] * 40)
    stamp = struct.pack(">q", 5) if magic else b""
    body = bytes([magic, 1]) + stamp + struct.pack(">ii", -1, len(content)) + content
    message = struct.pack(">qiI", 7, 4 + len(body), zlib.crc32(body)) + body
    with pytest.raises(CorruptBatch, match="ends at source offset 7 cannot be decoded: more than"):
        list(pieces(view(message), 0, [], Rules(), 0))


def test_records_are_decoded_in_parts():
    parts = decode_batches(bomb(4, [10] * 3000))
    assert [len(part) for part in parts] == [1024, 1024, 952]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_the_limit_holds_while_it_is_decompressed(codec):
    packed = bytes(CODECS[codec](bytes(1000)))
    assert bytes(expanded(codec, [packed, packed], 2000)[HEADER_BYTES:]) == bytes(2000)
    for most in (1999, 1000, 999, 1, 0, -5):
        with pytest.raises(TooLarge):
            expanded(codec, [packed, packed], most)
    with pytest.raises(UNREADABLE) as raised:
        expanded(codec, [packed[:-3]], 2000)
    assert not isinstance(raised.value, TooLarge)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_stream_is_what_was_compressed(codec):
    data = bytes(range(256)) * 400
    packed = data if not codec else bytes(CODECS[codec](data))
    found = stream(codec, packed)
    assert b"".join(iter(partial(found.read, 1000), b"")) == data
