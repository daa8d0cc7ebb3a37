"""The few primitive encodings that the hand-written hot requests need (KIP-482)."""

from __future__ import annotations

import struct


def uvarint(value: int) -> bytes:
    """Unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    """(value, position after it)."""
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def skip_tags(frame: memoryview, position: int) -> int:
    """Position after a tagged-field section."""
    count = frame[position]
    if not count:
        return position + 1
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
    return position


def string(text: str) -> bytes:
    """Classic STRING: int16 length and UTF-8."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def read_string(frame: memoryview, position: int, flexible: bool) -> tuple[str | None, int]:
    """Nullable STRING or COMPACT_STRING."""
    if flexible:
        size, position = read_uvarint(frame, position)
        size -= 1
    else:
        (size,) = struct.unpack_from(">h", frame, position)
        position += 2
    if size < 0:
        return None, position
    return str(frame[position : position + size], "utf-8"), position + size


def read_count(frame: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    """Length of an ARRAY or COMPACT_ARRAY; a null array counts 0."""
    if flexible:
        size, position = read_uvarint(frame, position)
        return max(size - 1, 0), position
    (size,) = struct.unpack_from(">i", frame, position)
    return max(size, 0), position + 4


def count(size: int, flexible: bool) -> bytes:
    """Length of a non-null ARRAY or COMPACT_ARRAY."""
    return uvarint(size + 1) if flexible else struct.pack(">i", size)
