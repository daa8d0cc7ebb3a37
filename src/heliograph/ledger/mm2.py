"""MM2's record formats, to the byte (mm2-contract.md 1.4). Pure."""

from __future__ import annotations

import struct
from typing import NamedTuple

_HEARTBEAT_VERSION = 0


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


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, position)
    return data[position + 2 : position + 2 + size].decode(), position + 2 + size
