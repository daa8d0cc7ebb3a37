"""MM2's checkpoint format, against bytes written by hand from its schema (S58)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.mm2.formats import Checkpoint, checkpoint_key, decode_checkpoint_key

offsets = st.integers(0, (1 << 63) - 1)
names = st.text(min_size=1, max_size=60)
partitions = st.integers(0, (1 << 31) - 1)
metadata = st.text(max_size=60)
checkpoints = st.builds(Checkpoint, names, names, partitions, offsets, offsets, metadata)


def test_s58_checkpoint_bytes():
    key, value = Checkpoint("grüpe", "A.test", 5, 1234, 5678, "note").encode()
    assert key == b"\x00\x06gr\xc3\xbcpe" + b"\x00\x06A.test" + b"\x00\x00\x00\x05"
    assert value == (
        b"\x00\x00" + b"\x00\x00\x00\x00\x00\x00\x04\xd2" + b"\x00\x00\x00\x00\x00\x00\x16\x2e"
        b"\x00\x04note"
    )  # fmt: skip


@given(checkpoints)
def test_s58_checkpoint_round_trip(checkpoint):
    key, value = checkpoint.encode()
    assert Checkpoint.decode(key, value) == checkpoint
    assert key == checkpoint_key(*checkpoint[:3])
    assert decode_checkpoint_key(key) == checkpoint[:3]


@given(checkpoints, st.integers(1, (1 << 15) - 1))
def test_s58_an_unknown_checkpoint_version_is_refused(checkpoint, version):
    key, value = checkpoint.encode()
    with pytest.raises(ValueError, match=f"version {version}"):
        Checkpoint.decode(key, version.to_bytes(2, "big") + value[2:])


@given(checkpoints, st.data())
def test_a_checkpoint_that_is_cut_short_is_refused(checkpoint, data):
    key, value = checkpoint.encode()
    with pytest.raises(ValueError, match=r"a string|too short"):
        Checkpoint.decode(key, value[: data.draw(st.integers(0, len(value) - 1))])
    with pytest.raises(ValueError, match=r"a string|too short"):
        Checkpoint.decode(key[: data.draw(st.integers(0, len(key) - 1))], value)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_garbage_is_refused_with_a_value_error_only(key, value):
    with suppress(ValueError):
        Checkpoint.decode(key, value)
