"""Compression of batches that are built anew, and of many small ones at once. Runs in executors.

Most of the time of a small frame goes into setting its decoder up. Frames of lz4 and zstd may stand
one behind the other, so the small batches of an answer are decompressed in one call; and all that
was compressed by one codec is decoded at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import cramjam
from aiokafka.codec import snappy_encode
from aiokafka.record.default_records import DefaultRecordBatch
from isal import isal_zlib

from heliograph.batch.crc import crc32c
from heliograph.batch.header import HEADER, HEADER_BYTES

#: A record's timestamp and the record itself, as aiokafka has it.
Stamped = tuple[int, Any]

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
_CODEC_MASK = 0x07
_GZIP_FORMAT = 31
#: How frames of several snappy blocks begin; two version numbers follow.
_XERIAL, _XERIAL_BYTES = b"\x82SNAPPY\0", 16
_unpack_snappy = cramjam.snappy.decompress_raw
#: Merged batches compress better than the small ones they are made of, even at the quickest level.
_LEVEL = 1
_LENGTH = struct.Struct(">i")
_read_length = _LENGTH.unpack_from
_codec = attrgetter("compression_type")
_ATTRIBUTES = struct.Struct(">h")
_CRC = struct.Struct(">I")
#: Base offset and length, which length does not count.
_PREFIX_BYTES = 12


def compressed(batch: bytearray, codec: int) -> memoryview:
    """An uncompressed batch, compressed: header adapted, CRC fresh."""
    if codec == NONE:
        return memoryview(batch)
    packed = _compress(codec, bytes(memoryview(batch)[HEADER_BYTES:]))
    made = bytearray(batch[:HEADER_BYTES]) + packed
    _LENGTH.pack_into(made, 8, len(made) - _PREFIX_BYTES)
    (attributes,) = _ATTRIBUTES.unpack_from(made, 21)
    _ATTRIBUTES.pack_into(made, 21, attributes & ~_CODEC_MASK | codec)
    _CRC.pack_into(made, 17, crc32c(memoryview(made)[21:]))
    return memoryview(made)


def records_of(region: bytes, batches: Sequence[DefaultRecordBatch]) -> Iterator[Stamped]:
    """The records of the dense batches in ``region``, in order, each with its timestamp.

    Raises whatever the codecs raise on records that cannot be read.
    """
    position = 0
    for codec, group in groupby(batches, _codec):
        alike = list(group)
        frames = []
        for _ in alike:
            following = position + _PREFIX_BYTES + _read_length(region, position + 8)[0]
            frames.append(region[position + HEADER_BYTES : following])
            position = following
        yield from _records_at_once(codec, frames, alike)


def _records_at_once(
    codec: int, frames: list[bytes], batches: list[DefaultRecordBatch]
) -> Iterator[Stamped]:
    """As if all were one batch, whose timestamps count from 0."""
    counts = [batch.last_offset_delta + 1 for batch in batches]
    total = sum(counts)
    records = _decompress(codec, frames)
    header = HEADER.pack(
        0, HEADER_BYTES - _PREFIX_BYTES + len(records), -1, 2, 0, 0, total - 1, 0, 0, -1, -1, -1,
        total,
    )  # fmt: skip
    found = list(DefaultRecordBatch(header + records))
    bases = [batch.first_timestamp for batch in batches]
    if total > len(bases):
        bases = [base for base, count in zip(bases, counts, strict=True) for _ in range(count)]
    return ((base + r.timestamp, r) for base, r in zip(bases, found, strict=True))


def _compress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return bytes(isal_zlib.compress(data, _LEVEL, _GZIP_FORMAT))
    if codec == SNAPPY:
        return bytes(snappy_encode(data))
    if codec == LZ4:
        # Brokers do not read linked blocks (KIP-57).
        lz4 = cramjam.lz4.Compressor(level=_LEVEL, content_checksum=False, block_linked=False)
        lz4.compress(data)
        return bytes(lz4.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_LEVEL))
    raise ValueError(f"unknown codec {codec}")


def _decompress(codec: int, frames: list[bytes]) -> bytes:
    """The contents of frames, one behind the other."""
    if codec == NONE:
        return b"".join(frames)
    if codec == SNAPPY:
        return b"".join([block for frame in frames for block in _snappy_blocks(frame)])
    if codec == GZIP:
        # A decoder for many members is slower than many for one.
        return b"".join([isal_zlib.decompress(frame, _GZIP_FORMAT) for frame in frames])
    if codec == LZ4:
        return bytes(cramjam.lz4.decompress(b"".join(frames)))
    if codec == ZSTD:
        return bytes(cramjam.zstd.decompress(b"".join(frames)))
    raise ValueError(f"unknown codec {codec}")


def _snappy_blocks(frame: bytes) -> list[Any]:
    """The contents of a frame: one block, or several behind a header (xerial, as Java writes)."""
    if not frame.startswith(_XERIAL):
        return [_unpack_snappy(frame)]
    position = _XERIAL_BYTES
    blocks = []
    while position < len(frame):
        (size,) = _read_length(frame, position)
        position += _LENGTH.size
        if not 0 < size <= len(frame) - position:
            raise ValueError(f"a snappy block of {size} bytes")
        blocks.append(_unpack_snappy(frame[position : position + size]))
        position += size
    return blocks
