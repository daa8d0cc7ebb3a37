"""Compression of batches that are built anew, and of many small ones at once. Runs in executors.

Most of the time of a small frame goes into setting its decoder up. Frames of lz4 and zstd may stand
one behind the other, so the small batches of an answer are decompressed in one call; and all that
was compressed by one codec is decoded at once.

A few bytes may expand to gigabytes. So nothing is decompressed without a limit: at once
(`expanded`) into a buffer that does not grow, or as a stream (`stream`) that is read in parts.
"""

from __future__ import annotations

import io
import struct
import threading
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

import cramjam
import numpy as np
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
#: It expands to 1,032 times its size at most.
_GZIP_RATIO = 1040
#: A copy of 64 bytes takes three, so a snappy block expands to less than 22 times its size.
_SNAPPY_RATIO = 22
#: How frames of several snappy blocks begin; two version numbers follow.
_XERIAL, _XERIAL_BYTES = b"\x82SNAPPY\0", 16
_FIRST_BLOCK_AT = _XERIAL_BYTES + 4
_gunzip = isal_zlib.decompress
_unpack_snappy = cramjam.snappy.decompress_raw
_unpacked_size = cramjam.snappy.decompress_raw_len
#: Merged batches compress better than the small ones they are made of, even at the quickest level.
_LEVEL = 1
_LENGTH = struct.Struct(">i")
_read_length = _LENGTH.unpack_from
_codec = attrgetter("compression_type")
_ATTRIBUTES = struct.Struct(">h")
_CRC = struct.Struct(">I")
#: Base offset and length, which length does not count.
_PREFIX_BYTES = 12
#: The lower byte of a batch's attributes.
_CODEC_AT = 22
#: What one batch may expand to if it is decompressed at once; beyond that it is a stream.
EXPANDED_BYTES = 32 << 20
#: What neighbours may expand to that are merged: their records are in memory all together.
MERGED_EXPANDED_BYTES, MERGED_RECORDS = 8 << 20, 1 << 16
_AT_ONCE = {LZ4: cramjam.lz4.decompress_into, ZSTD: cramjam.zstd.decompress_into}
#: How cramjam says that the buffer is full.
_NO_ROOM = "failed to write whole buffer"
_STREAMED = {GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}


class TooLarge(ValueError):
    """Records that expand to more than the limit, which says nothing against them."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most} bytes when decompressed")


class _Scratch(threading.local):
    """Where batches are decompressed to, again and again. Memory that is not touched costs none."""

    def __init__(self) -> None:
        # Not zeroed: pages that nothing is expanded into take no memory.
        self.buffer = np.empty(HEADER_BYTES + EXPANDED_BYTES, np.uint8).data


_scratch = _Scratch()
_NO_HEADER = bytes(HEADER_BYTES)


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

    Raises TooLarge, or whatever the codecs raise on records that cannot be read.
    """
    position = records = 0
    room = MERGED_EXPANDED_BYTES
    for codec, group in groupby(batches, _codec):
        alike = list(group)
        frames = []
        for _ in alike:
            following = position + _PREFIX_BYTES + _read_length(region, position + 8)[0]
            frames.append(region[position + HEADER_BYTES : following])
            position = following
        counts = [batch.last_offset_delta + 1 for batch in alike]
        records += sum(counts)
        if records > MERGED_RECORDS:
            raise TooLarge(room)
        made = expanded(codec, frames, room)
        room -= len(made)
        yield from _records_at_once(made, alike, counts)


def _records_at_once(
    made: memoryview, batches: list[DefaultRecordBatch], counts: list[int]
) -> Iterator[Stamped]:
    """As if all were one batch, whose timestamps count from 0."""
    total = sum(counts)
    HEADER.pack_into(
        made, 0, 0, len(made) - _PREFIX_BYTES, -1, 2, 0, 0, total - 1, 0, 0, -1, -1, -1, total,
    )  # fmt: skip
    found = list(DefaultRecordBatch(made))
    bases = [batch.first_timestamp for batch in batches]
    if total > len(bases):
        bases = [base for base, count in zip(bases, counts, strict=True) for _ in range(count)]
    return ((base + r.timestamp, r) for base, r in zip(bases, found, strict=True))


def opened(batch: memoryview) -> DefaultRecordBatch:
    """A batch (magic 2) for aiokafka, which has nothing to decompress any more.

    Its CRC is the original's. Raises TooLarge, or whatever the codecs raise.
    """
    codec = batch[_CODEC_AT] & _CODEC_MASK
    if codec == NONE:
        return DefaultRecordBatch(batch)
    made = expanded(codec, [bytes(batch[HEADER_BYTES:])], EXPANDED_BYTES)
    made[:HEADER_BYTES] = batch[:HEADER_BYTES]
    _LENGTH.pack_into(made, 8, len(made) - _PREFIX_BYTES)
    made[_CODEC_AT] &= ~_CODEC_MASK & 0xFF
    return DefaultRecordBatch(bytes(made))


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


def expanded(codec: int, frames: list[bytes], most: int) -> memoryview:
    """Room for a header, and behind it the contents of frames, one behind the other.

    It may be overwritten by the next call in this thread. Raises TooLarge if the contents have more
    than ``most`` bytes (EXPANDED_BYTES at most), or whatever the codecs raise.
    """
    if codec in _AT_ONCE:
        room = _scratch.buffer[HEADER_BYTES : HEADER_BYTES + max(most, 0)]
        try:
            size = _AT_ONCE[codec](b"".join(frames), room)
        except cramjam.DecompressionError as error:
            if _NO_ROOM in str(error):
                raise TooLarge(most) from error
            raise
    else:
        return memoryview(bytearray().join([_NO_HEADER, *_contents(codec, frames, most)]))
    return _scratch.buffer[: HEADER_BYTES + size]


def _contents(codec: int, frames: list[bytes], most: int) -> list[bytes]:
    """The contents of frames, in parts; raises TooLarge when they have more than ``most``."""
    if codec == GZIP:
        return _gunzipped(frames, most)
    if codec == SNAPPY:
        blocks = list(chain.from_iterable(map(_snappy_blocks, frames)))
        # All of them are looked at before one is decompressed: see `_snappy_size`.
        if sum(map(_snappy_size, blocks)) > most:
            raise TooLarge(most)
        return [_unpack_snappy(block) for block in blocks]
    if codec == NONE:
        return frames
    raise ValueError(f"unknown codec {codec}")


def _gunzipped(frames: list[bytes], most: int) -> list[bytes]:
    """The contents of gzip members. A decoder for many members is slower than many for one."""
    parts: list[bytes] = []
    left = most
    # So many at a time cannot expand to more than EXPANDED_BYTES.
    at_once = EXPANDED_BYTES // _GZIP_RATIO // max(1, *map(len, frames))
    for first in range(0, len(frames), max(at_once, 1)):
        if at_once:
            made = [_gunzip(frame, _GZIP_FORMAT) for frame in frames[first : first + at_once]]
        else:
            decoder = isal_zlib.decompressobj(_GZIP_FORMAT)
            # One more than there may be; 0 would be no limit.
            made = [decoder.decompress(frames[first], max(left, 0) + 1)]
            if len(made[0]) <= left and not decoder.eof:
                raise EOFError("a gzip member ends too early")
        parts += made
        left -= sum(map(len, made))
        if left < 0:
            raise TooLarge(most)
    return parts


def stream(codec: int, frame: bytes | memoryview) -> Any:
    """The content of a frame as a binary stream; only a part of it is in memory at any time.

    A frame that was cut ends early, without an error. Raises whatever the codecs raise.
    """
    if codec == NONE:
        return io.BytesIO(frame)
    if codec == SNAPPY:
        return _SnappyStream(bytes(frame))
    if codec not in _STREAMED:
        raise ValueError(f"unknown codec {codec}")
    # Here, because hardly any process ever needs it.
    import pyarrow  # noqa: PLC0415

    return pyarrow.CompressedInputStream(pyarrow.BufferReader(frame), _STREAMED[codec])


class _SnappyStream:
    """Block by block, each of them whole in memory."""

    def __init__(self, frame: bytes) -> None:
        self._blocks = iter(_snappy_blocks(frame))
        self._block = b""

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; none at the end."""
        while not self._block:
            block = next(self._blocks, None)
            if block is None:
                return b""
            _snappy_size(block)
            self._block = bytes(_unpack_snappy(block))
        found, self._block = self._block[:size], self._block[size:]
        return found


def _snappy_blocks(frame: bytes) -> list[bytes]:
    """The blocks of a frame: one, or several behind a header (xerial, as Java writes)."""
    if not frame.startswith(_XERIAL):
        return [frame]
    position = _XERIAL_BYTES
    if (
        len(frame) > _FIRST_BLOCK_AT
        and _read_length(frame, position)[0] == len(frame) - _FIRST_BLOCK_AT
    ):
        # As a rule there is one.
        return [frame[_FIRST_BLOCK_AT:]]
    blocks = []
    while position < len(frame):
        (size,) = _read_length(frame, position)
        position += _LENGTH.size
        if not 0 < size <= len(frame) - position:
            raise ValueError(f"a snappy block of {size} bytes")
        blocks.append(frame[position : position + size])
        position += size
    return blocks


def _snappy_size(block: bytes) -> int:
    """The size that a block claims to expand to. Raises ValueError if it cannot be true.

    The decoder allocates what is claimed before it looks at the content, up to 4 GiB.
    """
    size: int = _unpacked_size(block)
    if size > _SNAPPY_RATIO * len(block):
        raise ValueError(f"a snappy block of {len(block)} bytes claims to expand to {size}")
    return size
