"""What a stretch of a log holds, as far as two logs are to be compared: offsets and contents.

A record's content is its key, value, headers and timestamp, as one number. Numbers of different
contents differ but for one case in 2^64, and mean something in this process only. Pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from heliograph.batch.header import batches, is_guarded
from heliograph.batch.pieces import AbortedTransactions
from heliograph.batch.records import decode
from heliograph.model import Guard

__all__ = ["LogSlice"]


class LogSlice:
    """The data records of one partition from ``start`` to before ``end``; markers are left out.

    Attributes:
        offsets: of the records, ascending.
        end: behind the last record that was read.
        batches: (index of its first record, CRC, number of records) of every batch. A batch that
            its producer sent again has the CRC that it had before.
        untimed: some timestamps are not what the producer said: the broker's own, or none.
        transactional: some batches were written in transactions.
        cut: there was too much to read; it ends before it should.
    """

    __slots__ = ("_bodies", "_times", "batches", "cut", "end", "offsets", "start", "transactional",
                 "untimed")  # fmt: skip

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.offsets = array("q")
        self.batches: list[tuple[int, int, int]] = []
        self.untimed = self.transactional = self.cut = False
        self._times = array("q")
        self._bodies = array("q")

    def __len__(self) -> int:
        return len(self.offsets)

    def take(
        self,
        records: memoryview,
        aborted: list[tuple[int, int]],
        until: int | None = None,
        most: int | None = None,
        guard: Guard | None = None,
    ) -> int:
        """Add what a fetch answered; returns where to read on.

        Not records from ``until`` on, and not more once there are ``most``. Aborted records are
        left out if the answer named them, as it does for ``read_committed``; so is what ``guard``
        names.
        """
        transactions = AbortedTransactions(aborted)
        for header, batch in batches(records):
            # Before magic 2, a header says nothing but where it begins.
            modern = header.magic >= 2
            following = header.last_offset + 1 if modern else header.base_offset
            if modern and guard is not None and is_guarded(header, guard):
                self.end = max(self.end, following)
                continue
            if modern and (header.transactional or header.control):
                self.transactional = True
                if transactions.skips(
                    header.last_offset, header.producer_id, control=header.control
                ):
                    self.end = max(self.end, following)
                    continue
            self.untimed = self.untimed or (modern and header.log_append_time)
            first = len(self.offsets)
            for record in decode(batch):
                following = max(following, record.offset + 1)
                if record.offset < self.end or (until is not None and record.offset >= until):
                    continue
                if most is not None and len(self.offsets) >= most:
                    following = record.offset
                    break
                self.untimed = self.untimed or record.timestamp < 0
                self.offsets.append(record.offset)
                self._times.append(record.timestamp)
                self._bodies.append(hash((record.key, record.value, tuple(record.headers))))
            if len(self.offsets) > first:
                self.batches.append((first, header.crc, header.record_count))
            self.end = max(self.end, following)
            if most is not None and len(self.offsets) >= most:
                break
        return self.end

    def contents(self, *, timed: bool) -> Sequence[int]:
        """One number for each record; without timestamps unless ``timed``."""
        if not timed:
            return self._bodies
        return list(map(hash, zip(self._times, self._bodies, strict=True)))

    def time_at(self, index: int) -> int:
        """The timestamp of a record."""
        return self._times[index]
