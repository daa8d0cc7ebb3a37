"""CRCs of batches whose records are not read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.batch.crc import MAX_UNREAD_BYTES, crc32c, joined, restamped


@given(
    before=st.binary(min_size=40, max_size=40),
    after=st.binary(min_size=40, max_size=40),
    rest=st.binary(max_size=10_000),
)
def test_a_new_beginning_gets_the_crc_that_reading_everything_would_give(before, after, rest):
    assert restamped(crc32c(before + rest), before, after, len(rest)) == crc32c(after + rest)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 90_001, MAX_UNREAD_BYTES])
def test_every_length_up_to_the_limit(size):
    before, after, rest = b"a" * 40, b"z" * 40, bytes(range(256)) * (size // 256 + 1)
    rest = rest[:size]
    assert restamped(crc32c(before + rest), before, after, size) == crc32c(after + rest)


@given(rest=st.binary(min_size=1, max_size=9_000), at=st.integers(0), bit=st.integers(0, 7))
def test_damage_is_not_hidden(rest, at, bit):
    before, after = b"b" * 40, b"y" * 40
    damaged = bytearray(rest)
    damaged[at % len(rest)] ^= 1 << bit
    stamped = restamped(crc32c(before + rest), before, after, len(rest))
    assert stamped != crc32c(after + bytes(damaged))


@given(size=st.integers(1, 300), count=st.integers(1, 70), dice=st.randoms(use_true_random=False))
def test_messages_one_behind_the_other_have_the_crc_that_is_made_of_theirs(size, count, dice):
    messages = [dice.randbytes(size) for _ in range(count)]
    crcs = np.array([crc32c(message) for message in messages], np.uint32)
    assert joined(crcs, size) == crc32c(b"".join(messages))


@given(
    size=st.integers(1, 300),
    damaged=st.sets(st.integers(0, 69), min_size=1),
    at=st.integers(0),
    bit=st.integers(0, 7),
)
def test_the_same_damage_to_many_messages_does_not_cancel_out(size, damaged, at, bit):
    messages = [bytearray([i]) * size for i in range(70)]
    crcs = np.array([crc32c(message) for message in messages], np.uint32)
    for i in damaged:
        messages[i][at % size] ^= 1 << bit
    assert joined(crcs, size) != crc32c(b"".join(messages))
