"""MM2's record formats, against bytes written by hand from its schemas (S58)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.mm2.formats import Heartbeat, OffsetSync

offsets = st.integers(0, (1 << 63) - 1)
names = st.text(min_size=1, max_size=60)


def test_offset_sync_bytes():
    key, value = OffsetSync("test.1", 5, 1234, 5678).encode()
    assert key == b"\x00\x06test.1" + b"\x00\x00\x00\x05"
    assert value == b"\x00\x00\x00\x00\x00\x00\x04\xd2" + b"\x00\x00\x00\x00\x00\x00\x16\x2e"


def test_heartbeat_bytes():
    key, value = Heartbeat("A", "Zürich", 1_700_000_000_123).encode()
    assert key == b"\x00\x01A" + b"\x00\x07Z\xc3\xbcrich"
    assert value == b"\x00\x00" + b"\x00\x00\x01\x8b\xcf\xe5\x68\x7b"


@given(names, st.integers(0, 1 << 30), offsets, offsets)
def test_s58_offset_sync_round_trip(topic, partition, upstream, downstream):
    sync = OffsetSync(topic, partition, upstream, downstream)
    assert OffsetSync.decode(*sync.encode()) == sync


@given(names, names, offsets)
def test_s58_heartbeat_round_trip(source, target, timestamp):
    beat = Heartbeat(source, target, timestamp)
    assert Heartbeat.decode(*beat.encode()) == beat


def test_s58_an_unknown_heartbeat_version_is_refused():
    key, value = Heartbeat("A", "B", 1).encode()
    with pytest.raises(ValueError, match="version 1"):
        Heartbeat.decode(key, b"\x00\x01" + value[2:])
