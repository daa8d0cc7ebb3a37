"""Source batches as brokers hold them, made with aiokafka's builders and patched by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from crc32c import crc32c

from heliograph.batch.records import Record

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
ABORT, COMMIT = 0, 1


def batch(
    records: Sequence[Record],
    *,
    base: int | None = None,
    last: int | None = None,
    codec: int = 0,
    flags: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    leader_epoch: int = 7,
    max_timestamp: int | None = None,
) -> bytearray:
    """One magic 2 batch with the records at their offsets; ``base``/``last`` widen its range."""
    base = records[0].offset if base is None else base
    producer_id, epoch, sequence = producer
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=1 << 30,
    )
    # aiokafka's builder counts from 0, and takes a base timestamp of -1 for one that is not set.
    shift = 1 if records[0].timestamp == -1 else 0
    for r in records:
        stamp = r.timestamp + shift
        builder.append(r.offset - base, stamp, r.key, r.value, list(r.headers))
    data = bytearray(builder.build())
    if shift:
        stamps = records[0].timestamp, max(r.timestamp for r in records)
        struct.pack_into(">qq", data, 27, *stamps)
    struct.pack_into(">q", data, 0, base)
    struct.pack_into(">i", data, 12, leader_epoch)
    (attributes,) = struct.unpack_from(">h", data, 21)
    struct.pack_into(">h", data, 21, attributes | flags)
    end = records[-1].offset if last is None else last
    struct.pack_into(">i", data, 23, end - base)
    if max_timestamp is not None:
        struct.pack_into(">q", data, 35, max_timestamp)
    return sealed(data)


def sealed(data: bytearray) -> bytearray:
    """With the CRC that its bytes deserve."""
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return data


def empty(base: int, last: int, producer_id: int = -1) -> bytearray:
    """What the cleaner leaves of a batch whose records are all gone."""
    data = bytearray(61)
    struct.pack_into(
        ">qiibIhiqqqhii", data, 0,
        base, 49, 7, 2, 0, 0, last - base, 1, 1, producer_id, 0, 0, 0,
    )  # fmt: skip
    return sealed(data)


def marker(offset: int, producer_id: int, kind: int = ABORT) -> bytearray:
    """A transaction marker."""
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    return batch(
        [Record(offset, 1000, key, value)],
        flags=TRANSACTIONAL | CONTROL,
        producer=(producer_id, 0, -1),
    )


def legacy(magic: int, records: Sequence[Record], codec: int = 0) -> bytearray:
    """Messages of the formats before Kafka 0.11."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 30)
    for r in records:
        builder.append(r.offset, r.timestamp, r.key, r.value)
    return bytearray(builder.build())


def read(data: bytes | memoryview) -> tuple[DefaultRecordBatch, list[Record]]:
    """Read a batch with aiokafka's own reader, CRC checked."""
    parsed = DefaultRecordBatch(bytearray(data))
    assert parsed.validate_crc()
    records = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in parsed]
    return DefaultRecordBatch(bytearray(data)), records


def view(*batches: bytes | bytearray | memoryview) -> memoryview:
    """A fetch answer: writable, as a received frame is."""
    return memoryview(bytearray(b"".join(batches)))
