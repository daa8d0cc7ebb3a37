"""Which way a batch takes, decided by its header alone.

- pass through: dense, magic 2, CreateTime, wholly wanted: stamped in place, never decoded;
- re-encode: holes left by compaction, a start inside the batch, LogAppendTime, magic 0 and 1;
- skip: control markers, aborted data, empty batches.

Runs in executors. Pure: no I/O; the caller turns the pieces into writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from heliograph.batch.crc import MAX_UNREAD_BYTES
from heliograph.batch.header import BatchHeader, batches, crc_matches, stamp
from heliograph.batch.records import Record, build, decode

#: From here on a CRC costs more than the rest of passing a batch through.
_UNREAD_FROM_BYTES = 8 << 10


class CorruptBatch(Exception):
    """A source batch with a wrong CRC or unreadable records. Never given a fresh CRC."""


class Piece(NamedTuple):
    """A batch ready to be signed: ``runs`` are its (source offset, record count) stretches."""

    header: BatchHeader | None
    data: memoryview
    records: list[Record] | None
    runs: list[tuple[int, int]]
    record_count: int
    next_offset: int

    def signed(self, producer_id: int, sequence: int) -> memoryview:
        """The bytes to produce. Call once: a passed-through batch is stamped in place."""
        if self.records is None:
            assert self.header is not None  # noqa: S101 - narrows the type
            stamp(self.header, self.data, producer_id, sequence)
            return self.data
        codec = self.header.codec if self.header is not None else 0
        return build(self.records, codec=codec, producer_id=producer_id, sequence=sequence)


class AbortedTransactions:
    """The aborted transactions of one fetch answer, walked in offset order (read_committed)."""

    def __init__(self, aborted: list[tuple[int, int]]) -> None:
        self._pending = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._open: set[int] = set()

    def covers(self, header: BatchHeader) -> bool:
        """Whether this batch is aborted data; call for every batch, in order."""
        while self._pending and self._pending[-1][1] <= header.last_offset:
            self._open.add(self._pending.pop()[0])
        if header.control:
            # The end of this producer's transaction: what follows from it is another one.
            self._open.discard(header.producer_id)
            return False
        return header.transactional and header.producer_id in self._open


def pieces(
    records: memoryview, start: int, aborted: list[tuple[int, int]], *, suspicious: bool = False
) -> Iterator[Piece | int]:
    """Cut a fetch answer into pieces to write, from offset ``start`` on.

    Yields a Piece for data, or an int: the offset to go on from after something was skipped.
    The CRC of a large batch is left to the target's judgement, unless that refused one lately
    (``suspicious``).
    """
    transactions = AbortedTransactions(aborted)
    for header, batch in batches(records):
        if header.magic < 2:
            yield from _reencode(None, batch, start)
            continue
        is_aborted = transactions.covers(header)
        if header.last_offset < start:
            continue
        if is_aborted or header.control or header.record_count == 0:
            yield header.last_offset + 1
            continue
        if (suspicious or _is_read(header)) and not crc_matches(header, batch):
            raise CorruptBatch(
                f"the batch at source offsets {header.base_offset} to {header.last_offset}"
                " does not match its CRC"
            )
        whole = header.base_offset >= start
        if whole and header.dense and not header.log_append_time:
            run = [(header.base_offset, header.record_count)]
            yield Piece(header, batch, None, run, header.record_count, header.last_offset + 1)
        else:
            yield from _reencode(header, batch, start)


def _is_read(header: BatchHeader) -> bool:
    """Whether a batch is so small that checking it costs nothing, or too large for `stamp`."""
    return not _UNREAD_FROM_BYTES <= header.length <= MAX_UNREAD_BYTES


def _reencode(header: BatchHeader | None, batch: memoryview, start: int) -> Iterator[Piece | int]:
    try:
        kept = [r for r in decode(batch) if r.offset >= start]
    except Exception as error:
        raise CorruptBatch(f"a source batch cannot be decoded: {error}") from error
    following = header.last_offset + 1 if header is not None else -1
    if not kept:
        if following >= 0:
            yield following
        return
    if header is not None and header.log_append_time:
        # As MM2: its consumer sees the append time and its producer writes it as CreateTime.
        kept = [r._replace(timestamp=header.max_timestamp) for r in kept]
    runs: list[tuple[int, int]] = []
    for record in kept:
        if runs and runs[-1][0] + runs[-1][1] == record.offset:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((record.offset, 1))
    after = max(following, kept[-1].offset + 1)
    yield Piece(header, batch, kept, runs, len(kept), after)
