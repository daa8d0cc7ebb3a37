"""The header of a record batch (magic 2): reading it, and stamping ours over it in place.

Layout: base offset 0, length 8, leader epoch 12, magic 16, crc 17,
attributes 21, last offset delta 23, base timestamp 27, max timestamp 35, producer id 43,
producer epoch 51, base sequence 53, count 57, records 61. CRC-32C covers 21 to the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from heliograph.batch.crc import MAX_UNREAD_BYTES, crc32c, restamped
from heliograph.batch.framing import MAGIC_AT, batch_end
from heliograph.model import Guard

HEADER_BYTES = 61
_MAGIC = 2
HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qi")
_OUTSIDE_CRC = struct.Struct(">qiibI")
_IDENTITY = struct.Struct(">qhi")
_ATTRIBUTES = struct.Struct(">h")

_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
#: Part of a transaction, or the marker at its end.
IN_TRANSACTION = _TRANSACTIONAL | _CONTROL

#: What a signature is written under, until its numbering has to begin anew (ledger.known.Era).
FIRST_EPOCH = 0
SEQUENCE_MODULUS = 1 << 31


class BatchHeader(NamedTuple):
    """A batch's header, as on the wire. A tuple, because one is made for every batch copied."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """Offset of the last record that was in the batch when it was written."""
        return self.base_offset + self.last_offset_delta

    @property
    def dense(self) -> bool:
        """Whether every offset of the batch has a record (compaction removes some)."""
        return self.record_count == self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & _CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether all records have the broker's append time, which is ``max_timestamp``."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Whether the batch is a transaction marker, not data."""
        return bool(self.attributes & _CONTROL)


def header_at(records: memoryview, position: int) -> BatchHeader:
    """The header of the batch (magic 2) that begins at ``position``."""
    return BatchHeader._make(HEADER.unpack_from(records, position))


def batches(records: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches in a fetch answer; a partial one at its end is left out.

    Messages older than magic 2 come out with a header whose fields after ``magic`` are 0 and mean
    nothing: look at ``magic`` first.

    Raises:
        DamagedAnswer: after everything before a length that no batch has.
    """
    position = 0
    while (following := batch_end(records, position)) is not None:
        if records[position + MAGIC_AT] < _MAGIC:
            # It can be shorter than a header of magic 2.
            base, length = _PREFIX.unpack_from(records, position)
            magic = records[position + MAGIC_AT]
            header = BatchHeader(base, length, -1, magic, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        else:
            header = header_at(records, position)
        yield header, records[position:following]
        position = following


def is_guarded(header: BatchHeader, guard: Guard) -> bool:
    """Whether a batch came from where it would go. Of magic 2: nobody signs older ones."""
    return (
        header.magic >= _MAGIC
        and header.producer_id in guard.producer_ids
        and header.base_offset >= guard.since
        and not header.control
    )


def crc_matches(header: BatchHeader, batch: memoryview) -> bool:
    """Whether the batch is what its producer wrote."""
    return bool(crc32c(batch[21:]) == header.crc)


def stamp(
    header: BatchHeader,
    batch: memoryview,
    producer_id: int,
    sequence: int,
    epoch: int = FIRST_EPOCH,
) -> None:
    """Make the batch ours, in place: signature, epoch, base sequence, base offset 0, CRC.

    Attributes keep only the codec: the timestamp type is CreateTime by the caller's choice of lane,
    the transaction is over, and a delete horizon of the source's cleaner must not reach the target.
    The records are not read, so that a batch that did not match its CRC still does not. The caller
    has checked the CRC of one that is too large for that.
    """
    before = bytes(batch[21:HEADER_BYTES])
    _ATTRIBUTES.pack_into(batch, 21, header.attributes & _CODEC_MASK)
    _IDENTITY.pack_into(batch, 43, producer_id, epoch, sequence % SEQUENCE_MODULUS)
    unread = len(batch) - HEADER_BYTES
    if unread <= MAX_UNREAD_BYTES:
        crc = restamped(header.crc, before, batch[21:HEADER_BYTES], unread)
    else:
        crc = crc32c(batch[21:])
    _OUTSIDE_CRC.pack_into(batch, 0, 0, header.length, -1, 2, crc)
