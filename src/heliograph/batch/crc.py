"""CRC-32C, and how it changes when only a batch's header changes. Runs in executors.

A CRC is linear: for two messages of one length, the xor of their CRCs depends on the xor of the
messages alone. A batch whose header is stamped therefore gets its new CRC from its old one, the two
headers and the number of bytes behind them, which are not even looked at. Bytes that were damaged
on their way keep a CRC that does not match, so that the target refuses them.

The same linearity makes the CRC of messages one behind the other out of the CRC of each, so that
many small ones are checked by reading them once, as if they were one.
"""

from __future__ import annotations

from array import array
from functools import lru_cache

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

__all__ = ["MAX_UNREAD_BYTES", "crc32c", "joined", "restamped"]

Registers = NDArray[np.uint32]

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
    """As `_shift`, by whole blocks; an array, because single places are looked up."""
    return array("I", _shift(blocks * _BLOCK_BYTES).tobytes())


def joined(crcs: Registers, size: int) -> int:
    """The CRC of messages one behind the other, from theirs; each has ``size`` bytes."""
    level = 0
    while len(crcs) > 1:
        if len(crcs) % 2:
            # What has no bytes changes nothing before the others.
            crcs = np.concatenate([np.zeros(1, np.uint32), crcs])
        crcs = _shifted(_shift_doubled(size, level), crcs[::2]) ^ crcs[1::2]
        level += 1
    return int(crcs[0])


@lru_cache(maxsize=256)
def _shift_doubled(size: int, times: int) -> Registers:
    """What ``size`` bytes doubled so many times do, as a table for `_shifted`."""
    if not times:
        return _shift(size)
    half = _shift_doubled(size, times - 1)
    return _shifted(half, half)


def _shifted(table: Registers, registers: Registers) -> Registers:
    found: Registers = (
        table[registers & 255]
        ^ table[256 + (registers >> 8 & 255)]
        ^ table[512 + (registers >> 16 & 255)]
        ^ table[768 + (registers >> 24)]
    )
    return found


def _shift(size: int) -> Registers:
    """For each byte of a register, at each of its four places: what ``size`` zeros make of it."""
    zeros = memoryview(bytes(size))
    table = np.zeros(4 * 256, np.uint32)
    for bit in range(32):
        place, value = 256 * (bit // 8), 1 << bit % 8
        below = table[place : place + value]
        table[place + value : place + 2 * value] = below ^ _over_zeros(1 << bit, zeros)
    return table
