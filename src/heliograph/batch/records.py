"""Decoding and building batches record by record, with aiokafka's compiled codec.

For everything that cannot pass through, and for the few small topics that we read and write
ourselves (ledger, offset syncs, heartbeats).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatch

from heliograph.batch.codecs import EXPANDED_BYTES, TooLarge, compressed, opened, stream
from heliograph.batch.framing import MAGIC_AT
from heliograph.batch.header import FIRST_EPOCH, SEQUENCE_MODULUS, batches, header_at, stamp
from heliograph.batch.plain import (
    NO_TIMESTAMP,
    RECORD_BYTES,
    Oversized,
    PlainBatch,
    PlainBuilder,
    Record,
)

__all__ = ["Record", "build", "decode", "decode_batches", "is_mixed", "legacy", "plain"]

_MAGIC = 2
_CODEC_MASK = 0x07
_LENGTH = struct.Struct(">i")
#: Records that are decoded in one step.
AT_ONCE = 1024
_READ_BYTES = 64 << 10
_NO_PRODUCER = -1
#: The builder's own limit; batches are cut by their callers.
_UNBOUNDED = 1 << 30


def decode(batch: memoryview | bytes) -> Iterator[Record]:
    """Every record of a batch or an older message set, control records excluded.

    Raises what the codecs raise on records that cannot be read.
    """
    for records in decode_batches(batch):
        for r in records:
            yield Record(r.offset, r.timestamp, r.key, r.value, r.headers)


def decode_batches(data: memoryview | bytes) -> Iterator[Sequence[Any]]:
    """The records of each batch, or each older message, with the fields of `Record`.

    They come in parts of AT_ONCE records at most, each decoded when it is asked for. They are
    aiokafka's own, which saves time, or `Record` where the codec does not know them. Raises what
    the codecs raise on records that cannot be read.
    """
    for header, batch in batches(memoryview(data)):
        if header.magic < _MAGIC:
            yield [plain(r) for r in legacy(batch)]
        elif not header.control:
            yield from _records(batch)


def legacy(message: memoryview) -> LegacyRecordBatch:
    """A message older than magic 2, or several in a compressed one, which is not too large."""
    magic = message[MAGIC_AT]
    codec = message[MAGIC_AT + 1] & _CODEC_MASK
    if codec:
        content = stream(codec, _legacy_value(message, magic))
        size = 0
        while part := content.read(_READ_BYTES):
            size += len(part)
            if size > EXPANDED_BYTES:
                raise TooLarge(EXPANDED_BYTES)
    return LegacyRecordBatch(message, magic)


def _legacy_value(message: memoryview, magic: int) -> memoryview:
    """Behind CRC, magic, attributes and, of magic 1, a timestamp: a key and a value."""
    position = MAGIC_AT + (10 if magic else 2)
    for _ in range(2):
        (size,) = _LENGTH.unpack_from(message, position)
        position += _LENGTH.size
        value = message[position : position + max(size, 0)]
        position += max(size, 0)
    return value


def _records(batch: memoryview) -> Iterator[Sequence[Any]]:
    try:
        # A chain, because aiokafka's batch begins anew whenever it is asked for an iterator.
        found: Iterator[Any] = chain(opened(batch))
    except TooLarge:
        found = _read_plainly(batch, 0)
    done = 0
    while True:
        try:
            part = list(islice(found, AT_ONCE))
        except UnicodeDecodeError:
            # A header's name, which may be any bytes.
            found = _read_plainly(batch, done)
            continue
        if not part:
            return
        done += len(part)
        yield part


def _read_plainly(batch: memoryview, skip: int) -> Iterator[Record]:
    for record in islice(PlainBatch(batch), skip, None):
        if isinstance(record, Oversized):
            raise ValueError(  # noqa: TRY004 - the type is ours, the value is not
                f"the record at offset {record.offset} has {record.size} bytes, which are more than"
                f" {RECORD_BYTES}"
            )
        yield record


def plain(record: Any) -> Record:
    """A record of aiokafka's; one without a timestamp has -1, as a consumer sees it."""
    timestamp = NO_TIMESTAMP if record.timestamp is None else record.timestamp
    return Record(record.offset, timestamp, record.key, record.value, record.headers)


def build(
    records: Iterable[Record],
    *,
    codec: int = 0,
    producer_id: int = _NO_PRODUCER,
    sequence: int = -1,
) -> memoryview:
    """One batch holding the records in order, densely numbered from 0."""
    rows = list(records)
    if is_mixed([r.timestamp for r in rows]):
        return _built_plainly(rows, codec, producer_id, sequence)
    builder = DefaultRecordBatchBuilder(
        magic=_MAGIC,
        compression_type=codec,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=FIRST_EPOCH if producer_id >= 0 else -1,
        base_sequence=sequence % SEQUENCE_MODULUS if sequence >= 0 else -1,
        batch_size=_UNBOUNDED,
    )
    try:
        for index, record in enumerate(rows):
            builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    except UnicodeEncodeError:
        return _built_plainly(rows, codec, producer_id, sequence)
    return memoryview(builder.build())


def is_mixed(timestamps: list[int]) -> bool:
    """Whether the first record has no timestamp, but others have.

    The compiled builder cannot write that: to it, the base timestamp -1 is one that is not set yet.
    """
    return timestamps[:1] == [NO_TIMESTAMP] and timestamps.count(NO_TIMESTAMP) < len(timestamps)


def _built_plainly(
    rows: Sequence[Record], codec: int, producer_id: int, sequence: int
) -> memoryview:
    """As `build`, for what the compiled builder does not take."""
    builder = PlainBuilder()
    for index, record in enumerate(rows):
        builder.append(index, record.timestamp, record.key, record.value, record.headers)
    data = compressed(builder.build(), codec)
    if producer_id >= 0:
        stamp(header_at(data, 0), data, producer_id, sequence)
    return data
