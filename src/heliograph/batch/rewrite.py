"""Record by record: small batches become large ones, and what cannot pass through is built anew.

One loop serves merging, holes left by compaction, a start inside a batch, LogAppendTime, magic 0
and 1, batches above the target's limit and records to be left out. aiokafka's compiled codec reads
and builds; what runs here for every record is kept to a handful of operations. Runs in executors.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from typing import Any

import cramjam
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from isal.igzip_lib import IsalError

from heliograph.batch.codecs import NONE, compressed, records_of
from heliograph.batch.header import header_at
from heliograph.batch.pieces import AbortedTransactions, CorruptBatch, Piece, Refused, Rules
from heliograph.batch.records import Record

_MAGIC = 2
#: Base offset and length, which length does not count.
_PREFIX_BYTES = 12
_CODEC_MASK, _IN_TRANSACTION = 0x07, 0x30
_NOTHING = -1
#: What the codecs raise on records that cannot be read.
UNREADABLE = (
    ValueError, IndexError, EOFError, RuntimeError, OSError, struct.error, zlib.error,
    IsalError, cramjam.DecompressionError,
)  # fmt: skip
_attributes = attrgetter("attributes")
#: Batches built anew reach this size: large enough to fill a long-distance link, and half of the
#: default max.message.bytes.
MERGED_BYTES = 512 << 10
#: The builder's own limit; batches are cut here.
_UNBOUNDED = 1 << 30
#: Compression may add a little to what does not compress.
_SLACK = 0.98


def merge(region: memoryview, start: int, rules: Rules) -> Piece | None:
    """One batch of plain small ones that follow each other, or None if `rewrite` must look closer.

    Half of `rewrite`'s time for one-record batches, because hardly a line here runs per batch.
    """
    data = bytes(region)
    batches = _batches(data)
    if rules.refused or set(map(type, batches)) != {DefaultRecordBatch}:
        return None
    # Nothing but a codec is set: no transaction, no marker, CreateTime.
    attributes = max(map(_attributes, batches))
    if attributes > _CODEC_MASK or batches[0].base_offset < start:
        return None
    if not all(map(DefaultRecordBatch.validate_crc, batches)):
        return None
    first, following = batches[0].base_offset, batches[-1].next_offset
    draft = _Draft(batches[0].compression_type, rules, _UNBOUNDED)
    draft.begin(first, _NOTHING)
    append = draft.append
    try:
        if attributes:
            stamped = list(records_of(data, batches))
            if following - first != len(stamped):
                return None
            for index, (timestamp, record) in enumerate(stamped):
                append(index, timestamp, record.key, record.value, record.headers)
        else:
            records = list(chain.from_iterable(batches))
            if following - first != len(records):
                return None
            for index, record in enumerate(records):
                append(index, record.timestamp, record.key, record.value, record.headers)
    except UNREADABLE:
        return None
    [piece] = draft.finish(following - first, following)
    return piece if isinstance(piece, Piece) and len(piece.data) <= rules.max_bytes else None


def rewrite(
    region: memoryview, start: int, transactions: AbortedTransactions, rules: Rules
) -> Iterator[Piece | Refused | int]:
    """Build whole batches anew, from offset ``start`` on; yields as `lanes.pieces`.

    Raises:
        CorruptBatch: after everything before the damage was yielded.
    """
    memory = MemoryRecords(bytes(region))
    has_next, next_batch = memory.has_next, memory.next_batch
    limit = min(MERGED_BYTES, int(rules.max_bytes * _SLACK))
    # Where one batch may hold more than one should, every record is looked at before it goes in.
    single = _is_one_batch(region)
    careful = bool(rules.refused) or (single and len(region) > limit)
    draft: _Draft | None = None
    index = unchecked = 0
    after = start
    # Nothing follows what is not there: the first record of a draft always begins a run.
    expected = _NOTHING
    while has_next():
        batch: Any = next_batch()
        if batch is None:
            break
        if isinstance(batch, DefaultRecordBatch):
            attributes, following = batch.attributes, batch.next_offset
            if attributes & _IN_TRANSACTION and transactions.skips(
                following - 1, batch.producer_id, control=batch.is_control_batch
            ):
                after = following
                continue
            if following <= start:
                continue
            codec = attributes & _CODEC_MASK
        else:
            # Message sets before magic 2 do not say where they end.
            codec = following = 0
        each = careful or codec
        if draft is None:
            draft = _Draft(codec, rules, limit)
            append = draft.append
        try:
            if not batch.validate_crc():
                raise CorruptBatch(_mismatch(batch, following))  # noqa: TRY301 - for every batch
            for record in batch:
                offset = record.offset
                if offset != expected or each:
                    if offset < start:
                        continue
                    if offset in rules.refused:
                        if index:
                            yield from draft.finish(index, expected)
                        yield Refused(_plain(record), rules.refused[offset])
                        draft = _Draft(codec, rules, limit)
                        append, index, expected = draft.append, 0, _NOTHING
                        continue
                    if index and (
                        (rules.one_run and offset != expected)
                        or (each and not draft.has_room(record))
                    ):
                        yield from draft.finish(index, expected)
                        draft = _Draft(codec, rules, limit)
                        append, index, expected = draft.append, 0, _NOTHING
                    if offset != expected:
                        draft.begin(offset, expected)
                append(index, record.timestamp, record.key, record.value, record.headers)
                index += 1
                expected = offset + 1
        except (CorruptBatch, *UNREADABLE) as error:
            if index:
                yield from draft.finish(index, expected)
            if isinstance(error, CorruptBatch):
                raise
            raise CorruptBatch(f"a source batch cannot be decoded: {error}") from error
        after = following or max(after, expected)
        unchecked -= 1
        if unchecked < 0:
            room = limit - draft.size()
            if room <= 0 and index:
                yield from draft.finish(index, expected)
                draft, index, expected = None, 0, _NOTHING
            else:
                # That many small batches certainly fit: no need to ask after each.
                unchecked = 0 if single or codec else room // max(rules.small_bytes, 1)
    if draft is not None and index:
        yield from draft.finish(index, expected)
    if after > start:
        yield after


def _batches(region: bytes) -> list[Any]:
    return list(iter(MemoryRecords(region).next_batch, None))


class _Draft:
    """A batch in the making."""

    __slots__ = ("_begun", "_builder", "_codec", "_limit", "_rules", "_runs", "append", "size")

    def __init__(self, codec: int, rules: Rules, limit: int) -> None:
        self._builder = DefaultRecordBatchBuilder(
            magic=_MAGIC,
            compression_type=NONE,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=_UNBOUNDED,
        )
        self._codec = codec if rules.codec is None else rules.codec
        self._rules = rules
        self._limit = limit
        self._begun = _NOTHING
        self._runs: list[tuple[int, int]] = []
        self.append = self._builder.append
        self.size = self._builder.size

    def has_room(self, record: Any) -> bool:
        """Whether a record may go in, compression left aside."""
        size = self._builder.size_in_bytes(
            0, record.timestamp, record.key, record.value, record.headers
        )
        return bool(self._builder.size() + size <= self._limit)

    def begin(self, offset: int, expected: int) -> None:
        """A stretch of consecutive source offsets begins; the one before ended at ``expected``."""
        if self._begun != _NOTHING:
            self._runs.append((self._begun, expected - self._begun))
        self._begun = offset

    def finish(self, count: int, expected: int) -> Iterator[Piece | Refused]:
        """The batch; or its only record, if that is larger than the target accepts."""
        data = compressed(self._builder.build(), self._codec)
        self._runs.append((self._begun, expected - self._begun))
        if len(data) > self._rules.max_bytes and count == 1:
            batch: Any = MemoryRecords(bytes(data)).next_batch()
            [record] = list(batch)
            reason = f"{len(data)} bytes are more than max.message.bytes={self._rules.max_bytes}"
            yield Refused(_plain(record)._replace(offset=expected - 1), reason)
            return
        yield Piece(header_at(data, 0), data, self._runs, count, expected)


def _is_one_batch(region: memoryview) -> bool:
    return _PREFIX_BYTES + int.from_bytes(region[8:_PREFIX_BYTES], "big") == len(region)


def _plain(record: Any) -> Record:
    return Record(record.offset, record.timestamp, record.key, record.value, record.headers)


def _mismatch(batch: Any, following: int) -> str:
    where = "a message set"
    if following:
        where = f"the batch at source offsets {batch.base_offset} to {following - 1}"
    return f"{where} does not match its CRC"
