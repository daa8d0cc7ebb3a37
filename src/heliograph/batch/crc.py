"""CRC-32C, and how it changes when only a batch's header changes. Runs in executors.

A CRC is linear: for two messages of one length, the xor of their CRCs depends on the xor of the
messages alone. A batch whose header is stamped therefore gets its new CRC from its old one, the two
headers and the number of bytes behind them, which are not even looked at. Bytes that were damaged
on their way keep a CRC that does not match, so that the target refuses them.
"""

from __future__ import annotations

from array import array
from functools import lru_cache

from crc32c import crc32c

__all__ = ["MAX_UNREAD_BYTES", "crc32c", "restamped"]

_ONES = 0xFFFFFFFF
#: A shift is made of whole blocks, by table, and of what is left, by running over zeros.
_BLOCK_BYTES = 4096
_ZEROS = memoryview(bytes(_BLOCK_BYTES))
#: Every number of blocks has a table of 4 KiB: this bounds what they may take.
MAX_UNREAD_BYTES = 1 << 20


def restamped(crc: int, before: bytes | memoryview, after: bytes | memoryview, unread: int) -> int:
    """The CRC of a message that had ``crc`` and began with ``before``, now that it begins so.

    ``before`` and ``after`` have one length; ``unread`` bytes (up to MAX_UNREAD_BYTES) follow them.
    """
    change = crc32c(before) ^ crc32c(after)
    blocks, rest = divmod(unread, _BLOCK_BYTES)
    if blocks:
        table = _shift_by_blocks(blocks)
        change = (
            table[change & 255]
            ^ table[256 + (change >> 8 & 255)]
            ^ table[512 + (change >> 16 & 255)]
            ^ table[768 + (change >> 24)]
        )
    return crc ^ _over_zeros(change, _ZEROS[:rest])


def _over_zeros(register: int, zeros: memoryview) -> int:
    """What the linear part of the CRC makes of a register when zeros follow."""
    return int(crc32c(zeros, register ^ _ONES)) ^ _ONES


@lru_cache(maxsize=MAX_UNREAD_BYTES // _BLOCK_BYTES + 1)
def _shift_by_blocks(blocks: int) -> array[int]:
    """For each byte of a register, at each of its four places: what it becomes."""
    zeros = memoryview(bytes(blocks * _BLOCK_BYTES))
    table = array("I", bytes(4 * 1024))
    for bit in range(32):
        place, value = 256 * (bit // 8), 1 << bit % 8
        shifted = _over_zeros(1 << bit, zeros)
        for lower in range(value):
            table[place + value + lower] = table[place + lower] ^ shifted
    return table
