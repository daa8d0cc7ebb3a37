"""Records of small compressed batches, decoded together."""

from __future__ import annotations

import struct

import cramjam
import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st
from make_batches import batch, sealed

from heliograph.batch.codecs import records_of
from heliograph.batch.header import HEADER_BYTES
from heliograph.batch.records import Record

XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def repacked(made: bytearray, payload: bytes) -> bytearray:
    """A batch whose records are compressed otherwise than aiokafka does."""
    out = made[:HEADER_BYTES] + payload
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">h", out, 21, 2)
    return sealed(out)


def decoded(region: bytes) -> list[tuple[int, bytes]]:
    batches = list(iter(MemoryRecords(region).next_batch, None))
    return [(stamp, record.value) for stamp, record in records_of(region, batches)]


@given(
    values=st.lists(st.binary(max_size=60), min_size=1, max_size=9),
    codecs=st.lists(st.integers(0, 4), min_size=9, max_size=9),
)
def test_neighbours_of_all_codecs(values, codecs):
    made = [
        batch([Record(i, 1000 + i, None, value)], codec=codec)
        for i, (value, codec) in enumerate(zip(values, codecs, strict=False))
    ]
    expected = [(1000 + i, value) for i, value in enumerate(values)]
    assert decoded(b"".join(made)) == expected


@given(cuts=st.lists(st.integers(0, 200), max_size=4))
def test_snappy_with_and_without_a_header_and_in_several_blocks(cuts):
    plain = batch([Record(0, 5, None, b"v" * 150)])
    records = bytes(plain[HEADER_BYTES:])
    edges = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
    blocks = [bytes(cramjam.snappy.compress_raw(records[a:b])) for a, b in zip(edges, edges[1:])]  # noqa: B905, RUF007
    framed = XERIAL + b"".join(struct.pack(">i", len(b)) + b for b in blocks)
    whole = bytes(cramjam.snappy.compress_raw(records))
    region = bytes(repacked(plain, framed) + repacked(plain, whole))
    assert decoded(region) == [(5, b"v" * 150)] * 2


@pytest.mark.parametrize("size", [0, -5, 10_000])
def test_a_snappy_block_that_cannot_be(size):
    plain = batch([Record(0, 5, None, b"v")])
    with pytest.raises(ValueError, match="snappy block"):
        decoded(bytes(repacked(plain, XERIAL + struct.pack(">i", size) + b"xxxx")))
