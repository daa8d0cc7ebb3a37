"""Decoding and building batches record by record, with aiokafka's compiled codec.

For everything that cannot pass through, and for the few small topics that we read and write
ourselves (ledger, offset syncs, heartbeats).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from heliograph.batch.header import PRODUCER_EPOCH, SEQUENCE_MODULUS

_MAGIC = 2
_NO_PRODUCER = -1
#: The builder's own limit; batches are cut by their callers.
_UNBOUNDED = 1 << 30


class Record(NamedTuple):
    """One record with the offset it had where it was read."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def decode(batch: memoryview | bytes) -> Iterator[Record]:
    """Every record of a batch or an older message set, control records excluded.

    Raises ValueError if the batch cannot be read.
    """
    memory = MemoryRecords(bytes(batch))
    while memory.has_next():
        piece = memory.next_batch()
        if piece is None or getattr(piece, "is_control_batch", False):
            continue
        for r in piece:
            yield Record(r.offset, r.timestamp, r.key, r.value, r.headers)


def build(
    records: Iterable[Record],
    *,
    codec: int = 0,
    producer_id: int = _NO_PRODUCER,
    sequence: int = -1,
) -> memoryview:
    """One batch holding the records in order, densely numbered from 0."""
    builder = DefaultRecordBatchBuilder(
        magic=_MAGIC,
        compression_type=codec,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=PRODUCER_EPOCH if producer_id >= 0 else -1,
        base_sequence=sequence % SEQUENCE_MODULUS if sequence >= 0 else -1,
        batch_size=_UNBOUNDED,
    )
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    return memoryview(builder.build())
