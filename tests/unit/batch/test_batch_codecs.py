"""Records of small compressed batches, decoded together."""

from __future__ import annotations

import os
import struct
import threading
from pathlib import Path

import cramjam
import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st
from make_batches import batch, sealed

from heliograph.batch.codecs import EXPANDED_BYTES, expanded, records_of, stream
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


@pytest.mark.parametrize("claimed", [b"\xff\xff\xff\xff\x08", b"\x80\x80\x80\x20"])
def test_a_snappy_block_that_claims_more_than_it_can_hold(claimed):
    """The decoder would allocate the claimed size, 2.4 GB and 64 MiB, before it reads the block.

    The first claim was found by the fuzzer.
    """
    block = claimed + bytes(60)
    with pytest.raises(ValueError, match="claims to expand to"):
        stream(2, block).read(1)
    with pytest.raises(ValueError, match="claims to expand to"):
        expanded(2, [block], EXPANDED_BYTES)


def test_a_thread_that_expands_little_takes_little_memory():
    """Every thread has room for the largest batch; only what is used may be in memory."""
    frame = bytes(cramjam.zstd.compress(b"x" * 1000))
    done, ready = threading.Event(), threading.Semaphore(0)

    def expand() -> None:
        assert len(expanded(4, [frame], EXPANDED_BYTES)) >= 1000
        ready.release()
        done.wait(60)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    before = resident()
    threads = [threading.Thread(target=expand) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert ready.acquire(timeout=60)
    grown = resident() - before
    done.set()
    for thread in threads:
        thread.join(60)
    assert grown < 4 * EXPANDED_BYTES
