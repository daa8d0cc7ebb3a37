"""Batches of a few bytes that expand to very many, made without having those in memory."""

from __future__ import annotations

import struct

import cramjam
from crc32c import crc32c

from heliograph.batch.header import HEADER, HEADER_BYTES

CODECS = {1: cramjam.gzip.compress, 3: cramjam.lz4.compress, 4: cramjam.zstd.compress}
LOG_APPEND_TIME = 0x08
MEGABYTE = 1 << 20


def snappy(data):
    """Blocks of 32 KiB behind a header, as Java writes them."""
    cut = [bytes(data[i : i + (32 << 10)]) for i in range(0, len(data), 32 << 10)]
    blocks = [bytes(cramjam.snappy.compress_raw(block)) for block in cut]
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + framed


CODECS[2] = snappy


def varint(value):
    rest, out = value << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes(out) + bytes([rest])


def record(delta, value_size):
    """What stands before and behind the value of a record of that size."""
    before = b"\0" + varint(0) + varint(delta) + b"\x01" + varint(value_size)
    return varint(len(before) + value_size + 1) + before, b"\0"


def bomb(codec, sizes, **facts):
    """A batch of records that are zeros, made without ever having them in memory."""
    pack = CODECS[codec]
    megabyte = bytes(pack(bytes(MEGABYTE)))
    frames = []
    for delta, size in enumerate(sizes):
        before, behind = record(delta, size)
        whole, rest = divmod(size, MEGABYTE)
        frames += [bytes(pack(before)), *[megabyte] * whole, bytes(pack(bytes(rest) + behind))]
    return wrapped(codec, b"".join(frames), len(sizes), **facts)


def small_records(codec, count, size, **facts):
    data = b"".join(bytes(size).join(record(delta, size)) for delta in range(count))
    return wrapped(codec, bytes(CODECS[codec](data)), count, **facts)


def wrapped(codec, payload, count, *, base=0, attributes=0, stamp=1000):
    header = HEADER.pack(
        base, HEADER_BYTES - 12 + len(payload), 0, 2, 0, codec | attributes, count - 1, stamp,
        stamp + 1000, -1, -1, -1, count,
    )  # fmt: skip
    made = bytearray(header) + payload
    struct.pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    return made
