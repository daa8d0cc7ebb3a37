"""Which way a batch takes, decided by its header alone.

- pass through: dense, magic 2, CreateTime, wholly wanted: stamped in place, never decoded;
- merge: small neighbours;
- re-encode: holes left by compaction, a start inside the batch, LogAppendTime, magic 0 and 1, more
  than the target accepts, records to leave out;
- skip: control markers, aborted data, empty batches, what came from the target.

Runs in executors. Pure: no I/O; the caller turns the pieces into writes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from heliograph.batch.alike import merge_alike
from heliograph.batch.codecs import TooLarge
from heliograph.batch.crc import MAX_UNREAD_BYTES
from heliograph.batch.framing import least_bytes
from heliograph.batch.header import (
    HEADER_BYTES,
    IN_TRANSACTION,
    BatchHeader,
    crc_matches,
    header_at,
)
from heliograph.batch.pieces import (
    MERGED,
    PASSED,
    AbortedTransactions,
    CorruptBatch,
    Guarded,
    NewEpoch,
    Piece,
    Refused,
    Rules,
)
from heliograph.batch.rewrite import MERGED_BYTES, merge, rewrite

#: From here on a CRC costs more than the rest of passing a batch through.
_UNREAD_FROM_BYTES = 8 << 10
#: Base offset and length, which length does not count.
_PREFIX_BYTES = 12
_EPOCH_AT, _MAGIC_AT, _PRODUCER_AT = 12, 16, 43
_MAGIC = 2
_PREFIX = struct.Struct(">qi")
_ALIKE_AT_ONCE = 4096
#: So many of one size in a row are more than a coincidence.
_STREAK = 8
_read_length = struct.Struct(">i").unpack_from
_read_long = struct.Struct(">q").unpack_from


def pieces(
    records: memoryview,
    start: int,
    aborted: list[tuple[int, int]],
    rules: Rules,
    epoch: int = -1,
) -> Iterator[Piece | Refused | Guarded | NewEpoch | int]:
    """Cut a fetch answer into pieces to write, from offset ``start`` on.

    Yields a Piece for data, Refused for a record that the target does not take, Guarded for a batch
    that came from there, NewEpoch before what was written in another leader epoch than ``epoch`` or
    what came before, or an int: the offset to go on from. The CRC of a large batch is left to the
    target's judgement, unless that refused one lately (``rules.suspicious``).

    Raises:
        CorruptBatch: after everything before the damage was yielded.
    """
    transactions = AbortedTransactions(aborted)
    position, end = 0, len(records)
    # Up to here, neighbours are not merged: they expand to too much.
    apart = 0
    guarded = bool(rules.guard)
    while position + HEADER_BYTES <= end:
        following = position + _PREFIX_BYTES + _read_length(records, position + 8)[0]
        magic = records[position + _MAGIC_AT]
        legacy = magic < _MAGIC
        if not position + HEADER_BYTES <= following <= end and (
            following > end or following - position < least_bytes(magic)
        ):
            break
        found = epoch if legacy else _read_length(records, position + _EPOCH_AT)[0]
        if found != epoch and found >= 0:
            epoch = found
            yield NewEpoch(epoch)
        if guarded and not legacy and _is_guarded(records, position, rules):
            header = header_at(records, position)
            # Nothing is left out on the word of a header that is damaged.
            if not crc_matches(header, records[position:following]):
                raise _mismatch(header)
            position = following
            if header.last_offset >= start:
                yield Guarded(header.last_offset + 1)
            continue
        if legacy or (following - position <= rules.small_bytes and position >= apart):
            most = min(end, position + min(MERGED_BYTES, rules.max_bytes))
            behind, last = _behind_small(records, position, following, most, rules.small_bytes)
            if legacy or records[last + _MAGIC_AT] < _MAGIC:
                behind = _behind_format(records, position, behind, magic)
            elif _epoch_of(records, last, epoch) != epoch:
                behind = _behind_epoch(records, position, behind, epoch)
            if guarded:
                behind = _before_guarded(records, following, behind, rules)
            if behind > following or legacy:
                region = records[position:behind]
                try:
                    merged = merge_alike(region, start, rules) or merge(region, start, rules)
                except TooLarge:
                    apart = behind
                    continue
                if merged is not None:
                    yield merged._replace(lane=MERGED)
                else:
                    yield from rewrite(region, start, transactions, rules)
                position = behind
                continue
        header, batch = header_at(records, position), records[position:following]
        position = following
        last = header.base_offset + header.last_offset_delta
        skipped = header.attributes & IN_TRANSACTION and transactions.skips(
            last, header.producer_id, control=header.control
        )
        if skipped or last < start or header.record_count == 0:
            # Nothing is left out on the word of a header that is damaged.
            if not crc_matches(header, batch):
                raise _mismatch(header)
            if last >= start:
                yield last + 1
        elif _passes(header, batch, start, rules):
            if (rules.suspicious or _is_read(header)) and not crc_matches(header, batch):
                raise _mismatch(header)
            run = [(header.base_offset, header.record_count)]
            yield Piece(header, batch, run, header.record_count, last + 1, PASSED)
        else:
            yield from rewrite(batch, start, transactions, rules)
    if position < end:
        yield from _rest(records[position:], start, transactions, rules, alone=not position)


def _rest(
    rest: memoryview, start: int, transactions: AbortedTransactions, rules: Rules, *, alone: bool
) -> Iterator[Piece | Refused | int]:
    """What is too short for a header of magic 2, or is no whole batch; ``alone``: nothing else is.

    The first batch of an answer is always whole (KIP-74).
    """
    if len(rest) <= _MAGIC_AT:
        if alone:
            raise CorruptBatch(f"{len(rest)} bytes at source offset {start} are no batch")
        return
    offset, length = _PREFIX.unpack_from(rest)
    size, magic = _PREFIX_BYTES + length, rest[_MAGIC_AT]
    if size < least_bytes(magic) or (alone and size > len(rest)):
        raise CorruptBatch(
            f"the batch at source offset {offset} says that it has {length} bytes, which cannot be:"
            f" the source sent {len(rest) - _PREFIX_BYTES} from there on, and no batch has less"
            f" than {least_bytes(magic) - _PREFIX_BYTES}"
        )
    if magic < _MAGIC and size <= len(rest):
        yield from rewrite(rest, start, transactions, rules)


def _mismatch(header: BatchHeader) -> CorruptBatch:
    return CorruptBatch(
        f"the batch at source offsets {header.base_offset} to {header.last_offset}"
        " does not match its CRC"
    )


def _epoch_of(records: memoryview, position: int, unknown: int) -> int:
    """The leader epoch of a batch; ``unknown`` for those that have none."""
    if records[position + _MAGIC_AT] < _MAGIC:
        return unknown
    found: int = _read_length(records, position + _EPOCH_AT)[0]
    return found if found >= 0 else unknown


def _behind_epoch(records: memoryview, position: int, end: int, epoch: int) -> int:
    """Where the first batch of another epoch begins, between two positions."""
    while position < end and _epoch_of(records, position, epoch) == epoch:
        position += _PREFIX_BYTES + _read_length(records, position + 8)[0]
    return position


def _behind_format(records: memoryview, position: int, end: int, magic: int) -> int:
    """Where the first batch of another format begins: the codec reads one at a time."""
    while position < end:
        found = records[position + _MAGIC_AT]
        if found != magic and min(found, magic) < _MAGIC:
            break
        position += _PREFIX_BYTES + _read_length(records, position + 8)[0]
    return position


def _is_guarded(records: memoryview, position: int, rules: Rules) -> bool:
    """Whether the batch (magic 2) at ``position`` came from the target."""
    return (
        _read_long(records, position + _PRODUCER_AT)[0] in rules.guard
        and _read_long(records, position)[0] >= rules.guard_since
    )


def _before_guarded(records: memoryview, position: int, end: int, rules: Rules) -> int:
    """Where the first batch from ``position`` on begins that came from the target; else ``end``."""
    while position < end:
        modern = records[position + _MAGIC_AT] >= _MAGIC
        if modern and _is_guarded(records, position, rules):
            break
        position += _PREFIX_BYTES + _read_length(records, position + 8)[0]
    return min(position, end)


def _behind_small(
    records: memoryview, last: int, position: int, end: int, small: int
) -> tuple[int, int]:
    """Where the small batches that begin at ``position`` end, before ``end`` at the latest.

    And where the last of them begins; ``last`` if there are none. Epochs only grow along a log: if
    that one has the epoch of the first, all between have.

    What is only partly there, or cannot be so short, is left out. There are many, so neighbours of
    one size (records of a fixed layout) are counted at once, and the rest in a tight loop.
    """
    size = streak = 0
    while position + HEADER_BYTES <= end:
        before, size = size, _PREFIX_BYTES + _read_length(records, position + 8)[0]
        if size > small or position + size > end:
            break
        if size < HEADER_BYTES and size < least_bytes(records[position + _MAGIC_AT]):
            break
        if size != before:
            streak = 0
        elif streak < _STREAK:
            streak += 1
        else:
            position += size * _alike(records, position, end, size)
            last = position - size
            continue
        last = position
        position += size
    return position, last


def _alike(records: memoryview, position: int, end: int, size: int) -> int:
    """How many batches from ``position`` on have this size; at least one."""
    most = min((end - position) // size, _ALIKE_AT_ONCE)
    lengths = np.ndarray((most,), ">i4", records, position + 8, (size,))
    different = lengths != size - _PREFIX_BYTES
    return int(different.argmax()) if different.any() else most


def _passes(header: BatchHeader, batch: memoryview, start: int, rules: Rules) -> bool:
    whole = header.base_offset >= start and header.last_offset_delta >= 0
    fits = len(batch) <= rules.max_bytes
    return whole and fits and header.dense and not header.log_append_time and not (
        rules.refused and any(header.base_offset <= o <= header.last_offset for o in rules.refused)
    )  # fmt: skip


def _is_read(header: BatchHeader) -> bool:
    """Whether a batch is so small that checking it costs nothing, or too large for `stamp`."""
    return not _UNREAD_FROM_BYTES <= header.length <= MAX_UNREAD_BYTES
