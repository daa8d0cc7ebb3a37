"""Where batches begin and end in a fetch answer: the fields that all formats share. Pure."""

from __future__ import annotations

import struct

from heliograph.errors import DamagedAnswer

__all__ = ["MAGIC_AT", "batch_end", "least_bytes"]

MAGIC_AT = 16
#: Base offset and length, which length does not count.
_PREFIX = struct.Struct(">qi")
#: A header of magic 2; an empty message of magic 0, and of magic 1, which has a timestamp.
_LEAST_BYTES, _LEAST_OLD_BYTES = 61, (26, 34)


def least_bytes(magic: int) -> int:
    """How large a batch, or an older message, is at least."""
    return _LEAST_BYTES if magic >= len(_LEAST_OLD_BYTES) else _LEAST_OLD_BYTES[magic]


def batch_end(records: memoryview, position: int) -> int | None:
    """Where the batch that begins at ``position`` ends; None if it is there only in part.

    Raises:
        DamagedAnswer: its length is none that a batch can have.
    """
    if position + MAGIC_AT >= len(records):
        return None
    offset, length = _PREFIX.unpack_from(records, position)
    size = _PREFIX.size + length
    if size < least_bytes(records[position + MAGIC_AT]):
        raise DamagedAnswer(
            f"the batch at offset {offset} says that it has {length} bytes, which no batch has"
        )
    following: int = position + size
    return following if following <= len(records) else None
