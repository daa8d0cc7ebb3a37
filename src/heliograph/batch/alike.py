"""Many batches of one record each and of one size: merged as columns, not one by one.

Producers that do not wait (linger 0) and records of a fixed layout make such logs. In a stretch of
them only offsets, timestamps and CRCs differ by anything but content, so a merged batch is a table:
the same columns, with new sizes and deltas in front of keys, values and headers that are copied as
they are. Runs in executors.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliograph.batch.crc import crc32c, joined
from heliograph.batch.header import HEADER, HEADER_BYTES, header_at
from heliograph.batch.pieces import Piece, Rules

#: With fewer rows, or with more changes of a varint's length, a table is not worth its columns.
_LEAST_ROWS, _MOST_CHANGES = 16, 32
_MAGIC = 2
#: What a CRC covers begins here.
_CHECKED_FROM = 21
_TABLE = np.dtype([
    ("base_offset", ">i8"), ("length", ">i4"), ("epoch", ">i4"), ("magic", "i1"), ("crc", ">u4"),
    ("attributes", ">i2"), ("last_delta", ">i4"), ("base_timestamp", ">i8"),
    ("max_timestamp", ">i8"), ("producer_id", ">i8"), ("producer_epoch", ">i2"),
    ("sequence", ">i4"), ("count", ">i4"),
])  # fmt: skip

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]


def merge_alike(region: memoryview, start: int, rules: Rules) -> Piece | None:
    """One batch of those in ``region``, or None if they are not such batches."""
    size = 12 + int.from_bytes(region[8:12], "big")
    # 61 bytes of header, one of size, attributes, two deltas, sizes of key and value, headers.
    if size < HEADER_BYTES + 7:
        return None
    rows, rest = divmod(len(region), size)
    if rest or rows < _LEAST_ROWS or rules.refused or rules.codec:
        return None
    cells = np.frombuffer(region, np.uint8).reshape(rows, size)
    table = cells[:, :HEADER_BYTES].copy().view(_TABLE).reshape(rows)
    first = int(table["base_offset"][0])
    offsets = table["base_offset"].astype(np.int64)
    prefix = _prefix_bytes(cells[0])
    # Behind the record's size: attributes and both deltas, all 0 for a record alone.
    sizes, zeros = np.split(cells[:, HEADER_BYTES : HEADER_BYTES + prefix + 3], [prefix], axis=1)
    if (
        first < start
        or (table["length"] != size - 12).any()
        or (table["magic"] != _MAGIC).any()
        or table["attributes"].any()
        or table["last_delta"].any()
        or (table["count"] != 1).any()
        or (offsets != np.arange(first, first + rows)).any()
        or zeros.any()
        or (sizes != sizes[0]).any()
        or crc32c(cells[:, _CHECKED_FROM:].tobytes())
        != joined(table["crc"].astype(np.uint32), size - _CHECKED_FROM)
    ):
        return None
    return _merged(cells[:, HEADER_BYTES + prefix + 3 :], table, first, rules)


def _merged(content: Bytes, table: Any, first: int, rules: Rules) -> Piece | None:
    """``content``: key, value and headers of each record."""
    rows = len(content)
    stamps = table["base_timestamp"].astype(np.int64)
    deltas = stamps - stamps[0]
    times, places = (deltas << 1) ^ (deltas >> 63), np.arange(rows, dtype=np.int64) << 1
    widths = _widths(times) * 16 + _widths(places)
    changes = np.flatnonzero(np.diff(widths)) + 1
    if len(changes) > _MOST_CHANGES or (times < 0).any():
        return None
    edges = [0, *changes.tolist(), rows]
    blocks: list[tuple[int, int, int, bytes]] = []
    size = HEADER_BYTES
    for begin, end in pairwise(edges):
        body = 1 + sum(divmod(int(widths[begin]), 16)) + content.shape[1]
        head = _varint(body << 1)
        blocks.append((begin, end, len(head) + body, head))
        size += (end - begin) * (len(head) + body)
    if size > rules.max_bytes:
        return None
    made = np.empty(size, np.uint8)
    position = HEADER_BYTES
    for begin, end, row, head in blocks:
        following = position + (end - begin) * row
        block = made[position:following].reshape(end - begin, row)
        position, at = following, len(head)
        time_width, place_width = divmod(int(widths[begin]), 16)
        block[:, :at] = np.frombuffer(head, np.uint8)
        block[:, at] = 0
        at += 1
        _put(block[:, at : at + time_width], times[begin:end])
        at += time_width
        _put(block[:, at : at + place_width], places[begin:end])
        block[:, at + place_width :] = content[begin:end]
    batch = made.data
    HEADER.pack_into(
        batch, 0, 0, size - 12, -1, _MAGIC, 0, 0, rows - 1, int(stamps[0]),
        int(stamps.max()), -1, -1, -1, rows,
    )  # fmt: skip
    batch[17:_CHECKED_FROM] = crc32c(batch[_CHECKED_FROM:]).to_bytes(4, "big")
    return Piece(header_at(batch, 0), batch, [(first, rows)], rows, first + rows)


def _prefix_bytes(row: Bytes) -> int:
    """How many bytes the record's size takes."""
    for index in range(5):
        if row[HEADER_BYTES + index] < 0x80:
            return index + 1
    return 5


def _widths(values: Numbers) -> Numbers:
    """How many bytes each value takes as a varint."""
    widths = np.ones(len(values), np.int64)
    for bits in range(7, int(values.max()).bit_length(), 7):
        widths += values >> bits > 0
    return widths


def _put(cells: Bytes, values: Numbers) -> None:
    """Values as varints that fill the columns of ``cells``."""
    last = cells.shape[1] - 1
    for column in range(last + 1):
        septet = values >> 7 * column & 0x7F
        cells[:, column] = septet if column == last else septet | 0x80


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
