"""Stamping: the records stay as they are, byte for byte; only whose batch it is changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_batches import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    batch,
    legacy,
    read,
    view,
)

from heliograph.batch.header import FIRST_EPOCH, batches, crc_matches, stamp
from heliograph.batch.records import Record, build, decode

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

optional_bytes = st.none() | st.binary(max_size=80)
contents = st.lists(
    st.tuples(
        st.integers(0, 1 << 45),
        optional_bytes,
        optional_bytes,
        st.lists(st.tuples(st.text(max_size=8), optional_bytes), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


def numbered(rows, base=0):
    return [
        Record(base + i, ts, key, value, tuple(headers))
        for i, (ts, key, value, headers) in enumerate(rows)
    ]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@given(
    rows=contents,
    base=st.integers(0, 1 << 50),
    flags=st.sampled_from([0, TRANSACTIONAL, DELETE_HORIZON, TRANSACTIONAL | DELETE_HORIZON]),
    producer_id=st.integers(0, (1 << 63) - 1),
    sequence=st.integers(0, 1 << 40),
)
def test_stamp_changes_the_owner_and_nothing_else(codec, rows, base, flags, producer_id, sequence):
    records = numbered(rows, base)
    data = view(batch(records, codec=codec, flags=flags, producer=(99, 3, 17)))
    payload = bytes(data[61:])
    [(header, whole)] = batches(data)
    assert crc_matches(header, whole)

    stamp(header, whole, producer_id, sequence)

    parsed, seen = read(whole)
    assert [r._replace(offset=r.offset + base) for r in seen] == records
    assert bytes(whole[61:]) == payload
    assert parsed.producer_id == producer_id
    assert parsed.producer_epoch == FIRST_EPOCH
    assert parsed.base_sequence == sequence % (1 << 31)
    assert parsed.base_offset == 0
    assert parsed.attributes == codec
    assert parsed.max_timestamp == header.max_timestamp
    [(after, _)] = batches(whole)
    assert after.leader_epoch == -1
    assert (after.record_count, after.last_offset_delta) == (len(records), len(records) - 1)


@given(rows=contents, codec=st.sampled_from(list(CODECS.values())))
def test_build_and_decode_are_inverse(rows, codec):
    records = numbered(rows)
    built = build(records, codec=codec, producer_id=5, sequence=(1 << 31) + 4)
    parsed, _ = read(built)
    assert [r._replace(headers=tuple(r.headers)) for r in decode(built)] == records
    assert (parsed.producer_id, parsed.base_sequence) == (5, 4)


def test_unsigned_batches_have_no_producer():
    parsed, _ = read(build([Record(0, 1, b"k", b"v")]))
    assert (parsed.producer_id, parsed.producer_epoch, parsed.base_sequence) == (-1, -1, -1)


@pytest.mark.parametrize(
    ("sequence", "stored"),
    [(0, 0), ((1 << 31) - 1, (1 << 31) - 1), (1 << 31, 0), ((1 << 31) + 7, 7), (5 << 31, 0)],
)
def test_sequences_wrap_at_two_to_the_31(sequence, stored):
    data = view(batch(numbered([(1, None, b"v", [])])))
    [(header, whole)] = batches(data)
    stamp(header, whole, 1, sequence)
    assert read(whole)[0].base_sequence == stored


def test_header_tells_every_attribute():
    made = batch(
        numbered([(5, None, b"v", [])], base=40),
        codec=4,
        flags=LOG_APPEND_TIME | TRANSACTIONAL | CONTROL,
        last=49,
    )
    [(header, _)] = batches(view(made))
    assert (header.base_offset, header.last_offset, header.record_count) == (40, 49, 1)
    assert header.codec == 4
    assert header.log_append_time
    assert header.transactional
    assert header.control
    assert not header.dense


@given(st.data())
def test_a_partial_batch_at_the_end_is_left_out(data):
    first = batch(numbered([(1, b"k", b"v" * 50, [])], base=0))
    second = batch(numbered([(2, b"k", b"w" * 50, [])], base=1))
    cut = data.draw(st.integers(0, len(second) - 1))
    found = [h.base_offset for h, _ in batches(view(first, second[:cut]))]
    assert found == [0]
    assert [h.base_offset for h, _ in batches(view(first, second))] == [0, 1]


def test_nothing_is_found_in_nothing():
    assert list(batches(view(b""))) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_short_old_messages_are_found(magic):
    data = view(legacy(magic, [Record(3, 9, None, b"x")]))
    assert len(data) < 61
    assert [(h.magic, h.base_offset, len(b)) for h, b in batches(data)] == [(magic, 3, len(data))]
    assert list(batches(data[:-1])) == []


@given(flip=st.integers(21, 140), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed(flip, bit):
    data = view(batch(numbered([(1, b"key", b"v" * 80, [])])))
    data[min(flip, len(data) - 1)] ^= 1 << bit
    [(header, whole)] = batches(data)
    assert not crc_matches(header, whole)
