"""Compression of batches that are built anew, and of many small ones at once. Runs in executors.

Most of the time of a small frame goes into setting its decoder up. Frames of gzip, lz4 and zstd may
stand one behind the other, so the small batches of an answer are decompressed in one call.
"""

from __future__ import annotations

import struct
import zlib

import cramjam
from aiokafka.codec import snappy_encode

from heliograph.batch.crc import crc32c
from heliograph.batch.header import HEADER_BYTES

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
#: Not worth it, or impossible: snappy's blocks have a header that must not be repeated.
_ONE_BY_ONE = frozenset({NONE, SNAPPY})
_CODEC_MASK = 0x07
_GZIP_FORMAT = 31
#: Merged batches compress better than the small ones they are made of, even at the quickest level.
_LEVEL = 1
_LENGTH = struct.Struct(">i")
_read_length = _LENGTH.unpack_from
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


def inflated(region: bytes) -> bytes:
    """The same batches without gzip, lz4 and zstd. Their CRCs, checked before, no longer match.

    Raises whatever the codecs raise on records that cannot be read.
    """
    out: list[bytes | bytearray | memoryview] = []
    view, position, end = memoryview(region), 0, len(region)
    starts: list[int] = []
    frames: list[memoryview] = []
    codec = NONE
    while position < end:
        following = position + _PREFIX_BYTES + _read_length(region, position + 8)[0]
        now = region[position + 22] & _CODEC_MASK
        if now != codec:
            _inflate(region, starts, frames, codec, out)
            starts, frames, codec = [], [], now
        if codec in _ONE_BY_ONE:
            out.append(view[position:following])
        else:
            starts.append(position)
            frames.append(view[position + HEADER_BYTES : following])
        position = following
    _inflate(region, starts, frames, codec, out)
    return b"".join(out)


def _inflate(
    region: bytes,
    starts: list[int],
    frames: list[memoryview],
    codec: int,
    out: list[bytes | bytearray | memoryview],
) -> None:
    """Neighbours of one codec."""
    if not starts:
        return
    records = _decompress(codec, frames)
    view, at = memoryview(records), 0
    for start in starts:
        header = bytearray(region[start : start + HEADER_BYTES])
        count = _read_length(header, 57)[0]
        until = _behind_records(records, at, count)
        _LENGTH.pack_into(header, 8, HEADER_BYTES - _PREFIX_BYTES + until - at)
        header[22] &= ~_CODEC_MASK
        out.append(header)
        out.append(view[at:until])
        at = until
    if at != len(records):
        raise ValueError("more records than the batches' headers count")


def _behind_records(records: bytes, position: int, count: int) -> int:
    """Where ``count`` records that begin at ``position`` end; each begins with its size."""
    for _ in range(count):
        size = shift = 0
        while True:
            byte = records[position]
            position += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        # Zigzag: sizes are never negative.
        position += size >> 1
    return position


def _compress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_FORMAT)
        return packer.compress(data) + packer.flush()
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


def _decompress(codec: int, frames: list[memoryview]) -> bytes:
    """The contents of frames, one behind the other."""
    if codec == GZIP:
        # A decoder for many members is slower than many for one.
        return b"".join([zlib.decompress(frame, _GZIP_FORMAT) for frame in frames])
    if codec == LZ4:
        return bytes(cramjam.lz4.decompress(b"".join(frames)))
    if codec == ZSTD:
        return bytes(cramjam.zstd.decompress(b"".join(frames)))
    raise ValueError(f"unknown codec {codec}")
