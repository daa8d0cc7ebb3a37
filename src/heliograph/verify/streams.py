"""One side of a comparison: batches, decoded only when somebody asks for their records. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from heliograph.batch.header import BatchHeader
from heliograph.batch.records import decode_batches
from heliograph.batch.rewrite import UNREADABLE

__all__ = ["Batch", "Content", "Stream", "Unreadable"]

#: What a record is, besides its place: timestamp, key, value, headers.
Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
#: Offsets and contents of some records of a batch.
_Part = tuple[list[int], list[Content]]


_MAGIC = 2


class Unreadable(Exception):
    """A batch that cannot be decoded."""


class Batch(NamedTuple):
    """A batch of data that consumers of the flow see."""

    header: BatchHeader
    data: memoryview


class Stream:
    """The batches of a side in order, and the records of those that were decoded.

    ``offsets``, ``contents``, ``producers`` and ``appended`` (whether the timestamp is the
    broker's) are columns of the records that were decoded and not consumed; ``low`` and ``high``
    bound the offsets that count.
    """

    def __init__(self, batches: Iterable[Batch], low: int, high: int) -> None:
        self._batches: Iterator[Batch] = iter(batches)
        self._next: Batch | None = None
        self._header: BatchHeader
        self._parts: Iterator[_Part] = iter(())
        self._part: _Part | None = None
        self._low = low
        self._high = high
        self.offsets: list[int] = []
        self.contents: list[Content] = []
        self.producers: list[int] = []
        self.appended: list[bool] = []
        self.decoded = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def peek(self) -> Batch | None:
        """The next batch that was not decoded; None: there are no more."""
        if self._next is None:
            self._next = next(self._batches, None)
        return self._next

    def skip(self) -> None:
        """Leave the next batch undecoded."""
        self._next = None

    def owned(self, batch: Batch) -> int:
        """How many records of a dense batch count."""
        header = batch.header
        return max(min(header.last_offset + 1, self._high) - max(header.base_offset, self._low), 0)

    @property
    def partly(self) -> bool:
        """Whether a batch was decoded only in part: it may expand to more than memory holds."""
        return self._part is not None

    def fill(self, least: int) -> None:
        """Decode until there are ``least`` records, or no more batches; raises Unreadable."""
        while len(self.offsets) < least:
            if self._part is not None:
                self._take(*self._part)
            else:
                batch = self.peek()
                if batch is None:
                    return
                self.skip()
                self._header, self._parts = batch.header, decoded(batch)
                self.decoded += 1
            self._part = next(self._parts, None)

    def _take(self, offsets: list[int], contents: list[Content]) -> None:
        header = self._header
        begin, end = bisect_left(offsets, self._low), bisect_left(offsets, self._high)
        count = end - begin
        self.offsets += offsets[begin:end]
        self.contents += contents[begin:end]
        modern = header.magic == _MAGIC
        self.producers += [header.producer_id if modern else -1] * count
        self.appended += [modern and header.log_append_time] * count

    def drop(self, count: int) -> None:
        """The first records are done with."""
        del self.offsets[:count]
        del self.contents[:count]
        del self.producers[:count]
        del self.appended[:count]


def decoded(batch: Batch) -> Iterator[_Part]:
    """Offsets and contents of a batch, part by part; raises Unreadable."""
    try:
        for records in decode_batches(batch.data):
            offsets = [r.offset for r in records]
            yield offsets, [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]
    except UNREADABLE as error:
        raise Unreadable(
            f"the batch at {batch.header.base_offset} cannot be read: {error}"
        ) from error
