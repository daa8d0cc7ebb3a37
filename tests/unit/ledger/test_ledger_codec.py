"""The ledger's records: what is written is what is read, and old readers skip what is new."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.codec import (
    Entry,
    Place,
    Signature,
    decode,
    encode_entry,
    encode_signature,
    pack,
    unpack,
)
from heliograph.ledger.runs import Run

growth = st.integers(0, 1 << 40)


@st.composite
def growing_runs(draw, min_size=0):
    steps = draw(st.lists(st.tuples(growth, growth, growth), min_size=min_size, max_size=30))
    runs, last = [], (0, 0, 0)
    for step in steps:
        last = tuple(a + b for a, b in zip(last, step, strict=True))
        runs.append(Run(*last))
    return runs


topics = st.text("abcXYZ019._-", min_size=1, max_size=249)
places = st.builds(Place, topics, st.integers(0, 1 << 20), st.uuids(), st.uuids())


@given(growing_runs())
def test_pack_and_unpack(runs):
    assert unpack(pack(runs)) == runs


def test_packed_bytes():
    # version, then per run the growth of sequence, source, target as varints
    assert pack([Run(0, 300, 0), Run(127, 428, 128)]).hex(" ") == "01 00 ac 02 00 7f 80 01 80 01"


def test_a_run_costs_three_bytes_when_gaps_are_small():
    runs = [Run(i * 100, i * 101, i * 100) for i in range(1000)]
    assert len(pack(runs)) == 1 + 3 * 1000


def test_a_version_of_the_future_is_refused():
    with pytest.raises(ValueError, match="version 2: written by a newer Heliograph"):
        unpack(b"\x02\x00\x00\x00")


@given(places, growing_runs(min_size=1), st.booleans())
def test_entries(place, runs, shift):
    assert decode(*encode_entry(Entry(place, runs, shift))) == Entry(place, runs, shift)


@given(
    st.integers(0, (1 << 63) - 1),
    st.text("abcdef-_0123456789", min_size=1),
    st.text("abcdef-_0123456789", min_size=1),
)
def test_signatures(producer_id, source, target):
    signature = Signature(producer_id, source, target)
    assert decode(*encode_signature(signature)) == signature


def test_keys_are_readable_and_one_per_fact():
    one, two = uuid.UUID(int=1), uuid.UUID(int=2)
    place = Place("orders.eu", 3, one, two)
    first, _ = encode_entry(Entry(place, [Run(5, 7, 9), Run(8, 20, 12)]))
    assert first.decode() == f"runs/orders.eu/3/{one}/{two}/5/7"
    # Another writer's other idea of the same sequence must not push the first out by compaction.
    other, _ = encode_entry(Entry(place, [Run(5, 8, 9)]))
    assert other != first
    shift, _ = encode_entry(Entry(place, [Run(5, 7, 10)], shift=True))
    assert shift.decode() == f"shift/orders.eu/3/{one}/{two}/5"
    key, value = encode_signature(Signature(12, "src", "tgt"))
    assert key == b"signature/12"
    assert json.loads(value) == {"source.cluster": "src", "target.cluster": "tgt"}


def test_kinds_of_a_later_version_are_skipped():
    assert decode(b"weather/tomorrow", b"sunny") is None
