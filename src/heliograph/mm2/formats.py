"""MM2's record formats, to the byte. Pure."""

from __future__ import annotations

import struct
from typing import NamedTuple

_HEARTBEAT_VERSION = 0
_CHECKPOINT_VERSION = 0


class OffsetSync(NamedTuple):
    """A record of ``mm2-offset-syncs.*``: this source offset is at that target offset."""

    topic: str
    partition: int
    upstream: int
    downstream: int

    def encode(self) -> tuple[bytes, bytes]:
        """(key, value)."""
        key = _string(self.topic) + struct.pack(">i", self.partition)
        return key, struct.pack(">qq", self.upstream, self.downstream)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> OffsetSync:
        """Inverse of `encode`."""
        topic, position = _read_string(key, 0)
        (partition,) = struct.unpack_from(">i", key, position)
        upstream, downstream = struct.unpack(">qq", value)
        return cls(topic, partition, upstream, downstream)


class Heartbeat(NamedTuple):
    """A record of ``heartbeats``: the mirror of this pair was alive at that time."""

    source: str
    target: str
    timestamp: int

    def encode(self) -> tuple[bytes, bytes]:
        """(key, value)."""
        value = struct.pack(">hq", _HEARTBEAT_VERSION, self.timestamp)
        return _string(self.source) + _string(self.target), value

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Heartbeat:
        """Inverse of `encode`; raises ValueError on an unknown version."""
        source, position = _read_string(key, 0)
        target, _ = _read_string(key, position)
        version, timestamp = struct.unpack(">hq", value)
        if version != _HEARTBEAT_VERSION:
            raise ValueError(f"heartbeat of unknown version {version}")
        return cls(source, target, timestamp)


class Checkpoint(NamedTuple):
    """A record of ``*.checkpoints.internal``: where a group goes on, on the target.

    Attributes:
        topic: the target's name of it.
        upstream: what the group has committed on the source.
        downstream: the same place on the target.
    """

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str

    def encode(self) -> tuple[bytes, bytes]:
        """(key, value)."""
        offsets = struct.pack(">hqq", _CHECKPOINT_VERSION, self.upstream, self.downstream)
        return checkpoint_key(*self[:3]), offsets + _string(self.metadata)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Checkpoint:
        """Inverse of `encode`; raises ValueError on an unknown version and on what is none."""
        version, upstream, downstream = _read(">hqq", value, 0, "a checkpoint")
        if version != _CHECKPOINT_VERSION:
            raise ValueError(f"checkpoint of unknown version {version}")
        metadata, _ = _read_string(value, 18)
        return cls(*decode_checkpoint_key(key), upstream, downstream, metadata)


def checkpoint_key(group: str, topic: str, partition: int) -> bytes:
    """The key of the checkpoint of a group and a partition of the target."""
    return _string(group) + _string(topic) + struct.pack(">i", partition)


def decode_checkpoint_key(key: bytes) -> tuple[str, str, int]:
    """Inverse of `checkpoint_key`; raises ValueError."""
    group, position = _read_string(key, 0)
    topic, position = _read_string(key, position)
    (partition,) = _read(">i", key, position, "the key of a checkpoint")
    return group, topic, partition


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    (size,) = _read(">h", data, position, "a string")
    end = position + 2 + size
    if not position + 2 <= end <= len(data):
        raise ValueError(f"a string of {size} bytes in a record of {len(data)}")
    return data[position + 2 : end].decode(), end


def _read(layout: str, data: bytes, position: int, what: str) -> tuple[int, ...]:
    try:
        return struct.unpack_from(layout, data, position)
    except struct.error as error:
        raise ValueError(f"too short for {what}: {len(data)} bytes") from error
