"""The primitive encodings of KIP-482."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.wire.compact import (
    count,
    read_count,
    read_string,
    read_uvarint,
    skip_tags,
    string,
    uvarint,
)


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (127, "7f"), (128, "80 01"), (300, "ac 02"), (2**31 - 1, "ff ff ff ff 07")],
)
def test_known_varints(value, data):
    assert uvarint(value).hex(" ") == data


@given(st.integers(0, 1 << 40), st.binary(max_size=3))
def test_varint_round_trip(value, rest):
    data = uvarint(value)
    assert read_uvarint(memoryview(b"\xee" + data + rest), 1) == (value, 1 + len(data))


@given(st.text(max_size=400))
def test_strings(text):
    classic = string(text)
    assert read_string(memoryview(classic), 0, False) == (text, len(classic))
    encoded = text.encode()
    compact = uvarint(len(encoded) + 1) + encoded
    assert read_string(memoryview(compact), 0, True) == (text, len(compact))


def test_null_strings_and_arrays():
    assert read_string(memoryview(b"\xff\xff"), 0, False) == (None, 2)
    assert read_string(memoryview(b"\x00"), 0, True) == (None, 1)
    assert read_count(memoryview(b"\xff\xff\xff\xff"), 0, False) == (0, 4)
    assert read_count(memoryview(b"\x00"), 0, True) == (0, 1)


@given(st.integers(0, 1 << 20), st.booleans())
def test_counts(size, flexible):
    data = count(size, flexible)
    assert read_count(memoryview(data), 0, flexible) == (size, len(data))


@given(st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=200)), max_size=4))
def test_tagged_fields_are_skipped(fields):
    data = uvarint(len(fields))
    for tag, content in fields:
        data += uvarint(tag) + uvarint(len(content)) + content
    assert skip_tags(memoryview(data + b"rest"), 0) == len(data)
