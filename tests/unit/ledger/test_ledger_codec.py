"""The ledger's records: what is written is what is read, and old readers skip what is new."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.codec import (
    Entry,
    Packed,
    Place,
    Signature,
    decode,
    encode_entry,
    encode_packed,
    encode_signature,
    key_of,
    split,
)
from heliograph.ledger.packing import pack, unpack
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


@st.composite
def any_runs(draw):
    """What nobody should ever have to write down: only the sequences grow."""
    sequences = sorted(draw(st.sets(st.integers(0, 1 << 62), min_size=1, max_size=20)))
    offset = st.integers(0, 1 << 62)
    return [Run(sequence, draw(offset), draw(offset)) for sequence in sequences]


@given(growing_runs() | any_runs())
def test_pack_and_unpack(runs):
    assert unpack(pack(runs)) == runs


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 9), st.integers(0, 9)), max_size=30),
       st.sampled_from(["dense", "identical", "shifted"]))  # fmt: skip
def test_pack_and_unpack_what_mirrors_write(stretches, mode):
    runs, run = [], Run(5, 70, 70 if mode == "identical" else 3)
    for count, gap, foreign in stretches:
        runs.append(run)
        moved = {"dense": 0, "identical": gap, "shifted": foreign}[mode]
        run = Run(run.sequence + count, run.source + count + gap, run.target + count + moved)
    assert unpack(pack(runs)) == runs


def test_packed_bytes():
    # version, mode, then per run the growth of the sequence and twice the gap on the source
    dense = [Run(0, 300, 0), Run(127, 428, 127), Run(255, 556, 255)]
    assert pack(dense).hex(" ") == "02 00 00 d8 04 7f 02 80 01 00"
    identical = [Run(0, 300, 300), Run(127, 428, 428), Run(255, 556, 556)]
    assert pack(identical).hex(" ") == "02 01 00 d8 04 7f 02 80 01 00"
    # foreign records on the target: 1, then gap and shift in zigzag
    shifted = [*dense, Run(256, 559, 261)]
    assert pack(shifted).hex(" ") == "02 00 00 d8 04 7f 02 80 01 00 01 01 04 0a"


def test_entries_of_the_first_version_are_still_read():
    packed = bytes.fromhex("01 00 ac 02 00 7f 80 01 80 01")
    assert unpack(packed) == [Run(0, 300, 0), Run(127, 428, 128)]
    key = f"runs/orders/3/{uuid.UUID(int=1)}/{uuid.UUID(int=2)}/0/300".encode()
    place = Place("orders", 3, uuid.UUID(int=1), uuid.UUID(int=2))
    assert decode(key, packed) == Entry(place, unpack(packed))


@pytest.mark.parametrize("identical", [False, True])
def test_a_run_costs_two_bytes_when_gaps_are_small(identical):
    runs = [Run(i * 100, i * 101, i * (101 if identical else 100)) for i in range(1000)]
    assert len(pack(runs)) == 2 + 2 * 1000


def test_a_version_of_the_future_is_refused():
    with pytest.raises(ValueError, match="version 3: written by a newer Heliograph"):
        unpack(b"\x03\x00\x00\x00")
    key = key_of(Place("t", 0, uuid.UUID(int=1), uuid.UUID(int=2)), "packed/0/ab")
    with pytest.raises(ValueError, match="version 2: written by a newer Heliograph"):
        decode(key, b"\x02\x00\x00\x00")


def test_runs_out_of_order_cannot_be_packed():
    with pytest.raises(ValueError, match="out of order"):
        pack([Run(5, 0, 0), Run(4, 0, 0)])


@given(places, growing_runs(min_size=1), st.booleans(), st.text("0123456789abcdef"))
def test_entries(place, runs, shift, nonce):
    key, value = encode_entry(Entry(place, runs, shift), nonce)
    assert decode(key, value) == Entry(place, runs, shift)
    found, rest = split(key)
    assert found == place
    assert key_of(place, rest) == key


@given(places, growing_runs(), st.integers(0, 1 << 50), st.none() | st.integers(1, 1 << 50))
def test_packed_records(place, runs, start, length):
    packed = Packed(place, start, None if length is None else start + length, 1 << 40, runs)
    key, value = encode_packed(packed, pack(runs), "ab12")
    assert decode(key, value) == packed
    assert split(key) == (place, f"packed/{start}/ab12")


@given(
    st.integers(0, (1 << 63) - 1),
    st.text("abcdef-_0123456789", min_size=1),
    st.text("abcdef-_0123456789", min_size=1),
)
def test_signatures(producer_id, source, target):
    signature = Signature(producer_id, source, target)
    assert decode(*encode_signature(signature)) == signature


def test_keys_are_readable_and_one_per_record():
    one, two = uuid.UUID(int=1), uuid.UUID(int=2)
    place = Place("orders.eu", 3, one, two)
    first, _ = encode_entry(Entry(place, [Run(5, 7, 9), Run(8, 20, 12)]), "c0de")
    assert first.decode() == f"runs/orders.eu/3/{one}/{two}/5/7/c0de"
    shift, _ = encode_entry(Entry(place, [Run(5, 7, 10)], shift=True), "c0de")
    assert shift.decode() == f"shift/orders.eu/3/{one}/{two}/5/c0de"
    packed, _ = encode_packed(Packed(place, 0, None, 9, []), pack([]), "c0de")
    assert packed.decode() == f"packed/orders.eu/3/{one}/{two}/0/c0de"
    key, value = encode_signature(Signature(12, "src", "tgt"))
    assert key == b"signature/12"
    assert json.loads(value) == {"source.cluster": "src", "target.cluster": "tgt"}


def test_kinds_of_a_later_version_are_skipped():
    assert decode(b"weather/tomorrow", b"sunny") is None


@pytest.mark.parametrize("key", [b"signature/12", b"weather/a/b/c/d/e/f", b"runs/t/0/x/y/5/7", b""])
def test_keys_that_are_about_no_place(key):
    assert split(key) == (None, key.decode())
