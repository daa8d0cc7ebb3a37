"""What the lanes turn a fetch answer into, and the rules they go by. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from heliograph.batch.header import FIRST_EPOCH, BatchHeader, stamp
from heliograph.batch.records import Record


class CorruptBatch(Exception):
    """A source batch with a wrong CRC or unreadable records. Never given a fresh CRC."""


class Rules(NamedTuple):
    """How a partition's batches are treated.

    Attributes:
        small_bytes: neighbours of at most this size are merged.
        max_bytes: the target's max.message.bytes, as far as it is known.
        one_run: a piece holds consecutive source offsets only, because gaps are filled.
        codec: of batches that are built anew; None: as on the source.
        suspicious: check every CRC, because the target refused one.
        refused: source offsets that the target does not take, and why.
        guard: producer ids whose batches are skipped from offset ``guard_since`` on: the target has
            them.
    """

    small_bytes: int = 4 << 10
    max_bytes: int = 1 << 30
    one_run: bool = False
    codec: int | None = None
    suspicious: bool = False
    refused: Mapping[int, str] = {}
    guard: frozenset[int] = frozenset()
    guard_since: int = 0


#: The lanes that a batch can take (`heliograph.batch.lanes`), in the order of their numbers.
LANES = ("passed", "merged", "rewritten", "skipped")
PASSED, MERGED, REWRITTEN, SKIPPED = range(len(LANES))


class Piece(NamedTuple):
    """A batch ready to be signed: ``runs`` are its (source offset, record count) stretches.

    ``next_offset`` is where reading goes on behind it, ``lane`` is the way that it took.
    """

    header: BatchHeader
    data: memoryview
    runs: list[tuple[int, int]]
    record_count: int
    next_offset: int
    lane: int = REWRITTEN

    def signed(self, producer_id: int, sequence: int, epoch: int = FIRST_EPOCH) -> memoryview:
        """The bytes to produce. Call once: the batch is stamped in place."""
        stamp(self.header, self.data, producer_id, sequence, epoch)
        return self.data


class Refused(NamedTuple):
    """A record that the target does not take; ``curable`` by another limit there."""

    record: Record
    reason: str
    curable: bool = True


class Guarded(NamedTuple):
    """A batch that came from the target; reading goes on at ``next_offset``."""

    next_offset: int


class NewEpoch(NamedTuple):
    """What follows was written by a leader of this epoch, and what came before was not."""

    epoch: int


class AbortedTransactions:
    """The aborted transactions of one fetch answer, walked in offset order (read_committed)."""

    def __init__(self, aborted: list[tuple[int, int]]) -> None:
        self._pending = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._open: set[int] = set()

    def skips(self, last_offset: int, producer_id: int, *, control: bool) -> bool:
        """Whether a batch is a marker or aborted data; call for every transactional one, in order.

        A marker ends its producer's transaction: what follows from that producer is another one.
        """
        while self._pending and self._pending[-1][1] <= last_offset:
            self._open.add(self._pending.pop()[0])
        if control:
            self._open.discard(producer_id)
            return True
        return producer_id in self._open
