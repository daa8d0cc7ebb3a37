"""Record by record: small batches become large ones, and what cannot pass through is built anew.

One loop serves merging, holes left by compaction, a start inside a batch, LogAppendTime, magic 0
and 1, batches above the target's limit and records to be left out. aiokafka's compiled codec reads
and builds, except for header names that are not UTF-8 (`plain`); what runs here for every record is
kept to a handful of operations. Every record keeps its timestamp, also if that is -1: none.
Runs in executors.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any

import cramjam
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from isal.igzip_lib import IsalError

from heliograph.batch.codecs import NONE, TooLarge, compressed, opened, records_of
from heliograph.batch.header import batches as batches_in
from heliograph.batch.header import header_at
from heliograph.batch.pieces import AbortedTransactions, CorruptBatch, Piece, Refused, Rules
from heliograph.batch.plain import (
    NO_TIMESTAMP,
    RECORD_BYTES,
    Oversized,
    PlainBatch,
    PlainBuilder,
    Record,
)
from heliograph.batch.records import decode, is_mixed, legacy, plain

_MAGIC = 2
#: Base offset and length, which length does not count.
_PREFIX_BYTES = 12
_CODEC_MASK, _IN_TRANSACTION = 0x07, 0x30
_MAGIC_AT = 16
_NOTHING = -1
#: What the codecs raise on records that cannot be read.
UNREADABLE = (
    ValueError, IndexError, EOFError, RuntimeError, OSError, SystemError, AssertionError,
    OverflowError, struct.error, zlib.error, IsalError, cramjam.DecompressionError,
)  # fmt: skip
_read_length = struct.Struct(">i").unpack_from
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

    Raises:
        TooLarge: their records expand to more than may be in memory at once.
    """
    data = bytes(region)
    try:
        batches = list(iter(MemoryRecords(data).next_batch, None))
    except UNREADABLE:
        return None
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
            if stamped[0][0] == NO_TIMESTAMP and is_mixed([time for time, _ in stamped]):
                return None
            for index, (timestamp, record) in enumerate(stamped):
                append(index, timestamp, record.key, record.value, record.headers)
        else:
            records = list(chain.from_iterable(batches))
            if following - first != len(records):
                return None
            if records[0].timestamp == NO_TIMESTAMP and is_mixed([r.timestamp for r in records]):
                return None
            for index, record in enumerate(records):
                append(index, record.timestamp, record.key, record.value, record.headers)
    except TooLarge:
        raise
    except UNREADABLE:
        return None
    [piece] = draft.finish(following - first, following)
    return piece if isinstance(piece, Piece) and len(piece.data) <= rules.max_bytes else None


def rewrite(
    region: memoryview,
    start: int,
    transactions: AbortedTransactions,
    rules: Rules,
    *,
    plainly: bool = False,
) -> Iterator[Piece | Refused | int]:
    """Build whole batches anew, from offset ``start`` on; yields as `lanes.pieces`.

    ``plainly``: without aiokafka, because the first batch is too large or not for it.

    Raises:
        CorruptBatch: after everything before the damage was yielded.
    """
    next_batch = _plain_batches(region) if plainly else MemoryRecords(bytes(region)).next_batch
    limit = min(MERGED_BYTES, int(rules.max_bytes * _SLACK))
    # Where one batch may hold more than one should, every record is looked at before it goes in.
    single = _is_one_batch(region)
    careful = bool(rules.refused) or plainly or (single and len(region) > limit)
    # Of magic 0 no record has a timestamp; elsewhere some may have none.
    undated = region[_MAGIC_AT] == 0
    draft: _Draft | None = None
    index = unchecked = 0
    after = begin = start
    # Nothing follows what is not there: the first record of a draft always begins a run.
    expected = _NOTHING
    batch: Any = None
    position = behind = 0
    while True:
        damage = ""
        try:
            batch = next_batch()
            # Nothing is left out on the word of a header that is damaged.
            if batch is not None and not batch.validate_crc():
                damage = f"{_name(batch)} does not match its CRC"
        except UNREADABLE as error:
            damage = f"what follows source offset {after - 1} is no batch: {error}"
        if damage:
            if draft is not None and index:
                yield from draft.finish(index, expected)
            raise CorruptBatch(damage)
        if batch is None:
            break
        position, behind = behind, behind + _PREFIX_BYTES + _read_length(region, behind + 8)[0]
        old = isinstance(batch, LegacyRecordBatch)
        if old:
            # Message sets before magic 2 do not say where they end.
            codec = following = 0
        else:
            attributes, following = batch.attributes, batch.next_offset
            if attributes & _IN_TRANSACTION and transactions.skips(
                following - 1, batch.producer_id, control=batch.is_control_batch
            ):
                after = following
                continue
            if following <= start:
                continue
            codec = attributes & _CODEC_MASK
        if draft is None:
            draft = _Draft(codec, rules, limit, plainly)
            append = draft.append
        each = careful or codec or draft.untimed
        try:
            records = batch
            if old:
                records = legacy(region[position:behind])
            elif codec and not plainly:
                records = opened(region[position:behind])
            for record in records:
                offset, timestamp = record.offset, record.timestamp
                if timestamp is None:
                    # aiokafka's word for -1 in messages before magic 2.
                    timestamp = NO_TIMESTAMP
                if offset != expected or each:
                    if offset < start:
                        continue
                    large = plainly and isinstance(record, Oversized)
                    if large or offset in rules.refused:
                        if index:
                            yield from draft.finish(index, expected)
                        yield _refused(record, rules)
                        draft = _Draft(codec, rules, limit, plainly)
                        append, index, expected = draft.append, 0, _NOTHING
                        begin = offset + 1
                        continue
                    if index and (
                        (rules.one_run and offset != expected)
                        or (each and not draft.has_room(record, timestamp))
                    ):
                        yield from draft.finish(index, expected)
                        draft = _Draft(codec, rules, limit, plainly)
                        append, index, expected = draft.append, 0, _NOTHING
                    if offset != expected:
                        draft.begin(offset, expected)
                        if not index and timestamp == NO_TIMESTAMP and not undated:
                            each = draft.untimed = True
                append(index, timestamp, record.key, record.value, record.headers)
                index += 1
                expected = offset + 1
        except UNREADABLE as error:
            if index:
                yield from draft.finish(index, expected)
            if isinstance(error, UnicodeDecodeError | TooLarge) and not old and not plainly:
                # A header's name, which may be any bytes; or more than may be in memory at once.
                begin = max(begin, expected)
                yield from rewrite(region[position:], begin, transactions, rules, plainly=True)
                return
            raise CorruptBatch(f"{_name(batch)} cannot be decoded: {error}") from error
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


def _plain_batches(region: memoryview) -> Callable[[], PlainBatch | None]:
    """As aiokafka's ``next_batch``."""
    found = (PlainBatch(batch) for _, batch in batches_in(region))
    return lambda: next(found, None)


def _refused(record: Any, rules: Rules) -> Refused:
    if not isinstance(record, Oversized):
        return Refused(plain(record), rules.refused[record.offset])
    reason = (
        f"the record has {record.size} bytes, and Heliograph builds none anew above {RECORD_BYTES};"
        " its content stays on the source"
    )
    return Refused(Record(record.offset, record.timestamp, None, None), reason, curable=False)


class _Draft:
    """A batch in the making.

    ``untimed``: its first record has no timestamp, and so have all of them (see `is_mixed`).
    """

    __slots__ = (
        "_begun", "_builder", "_codec", "_limit", "_rules", "_runs", "append", "size", "untimed",
    )  # fmt: skip

    def __init__(self, codec: int, rules: Rules, limit: int, plainly: bool = False) -> None:
        self._builder: Any = PlainBuilder() if plainly else DefaultRecordBatchBuilder(
            magic=_MAGIC,
            compression_type=NONE,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=_UNBOUNDED,
        )  # fmt: skip
        self._codec = codec if rules.codec is None else rules.codec
        self._rules = rules
        self._limit = limit
        self._begun = _NOTHING
        self._runs: list[tuple[int, int]] = []
        self.append = self._builder.append
        self.size = self._builder.size
        self.untimed = False

    def has_room(self, record: Any, timestamp: int) -> bool:
        """Whether a record may go in, compression left aside."""
        if self.untimed and timestamp != NO_TIMESTAMP:
            return False
        size = self._builder.size_in_bytes(0, timestamp, record.key, record.value, record.headers)
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
            [record] = decode(data)
            reason = f"{len(data)} bytes are more than max.message.bytes={self._rules.max_bytes}"
            yield Refused(record._replace(offset=expected - 1), reason)
            return
        yield Piece(header_at(data, 0), data, self._runs, count, expected)


def _is_one_batch(region: memoryview) -> bool:
    return _PREFIX_BYTES + int.from_bytes(region[8:_PREFIX_BYTES], "big") == len(region)


def _name(batch: Any) -> str:
    last = batch.next_offset - 1
    if isinstance(batch, LegacyRecordBatch):
        # It does not say where it begins.
        return f"the message set that ends at source offset {last}"
    return f"the batch at source offsets {batch.base_offset} to {last}"
