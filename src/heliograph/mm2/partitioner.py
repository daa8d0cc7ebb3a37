"""Which partition a key belongs to, as Kafka's own producers choose it. Pure.

Connect looks a record up by its key and keeps the last one. In a compacted topic of several
partitions that holds only if every writer puts a key into the same partition.
"""

from __future__ import annotations

import struct

__all__ = ["murmur2", "partition_of"]

_SEED, _MULTIPLIER, _MASK = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF
#: Kafka drops the sign of the hash, instead of taking its absolute value.
_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with Kafka's seed, unsigned."""
    whole = len(data) // 4
    found = _SEED ^ len(data)
    for word in struct.unpack_from(f"<{whole}I", data):
        mixed = word * _MULTIPLIER & _MASK
        mixed = (mixed ^ mixed >> 24) * _MULTIPLIER & _MASK
        found = found * _MULTIPLIER & _MASK ^ mixed
    rest = data[4 * whole :]
    if rest:
        found = (found ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    found = (found ^ found >> 13) * _MULTIPLIER & _MASK
    return found ^ found >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key in a topic that has so many."""
    return (murmur2(key) & _POSITIVE) % partitions
