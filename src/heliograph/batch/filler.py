"""Records that stand where the source's log has none any more, until they are deleted at once.

They have a key, because compacted topics refuse records without one, and no timestamp, so that
they neither keep a segment from its retention nor stand in the way of a search by time.
"""

from __future__ import annotations

from functools import lru_cache

from heliograph.batch.header import header_at, stamp
from heliograph.batch.records import Record, build

#: The broker keeps a list of a batch's records while it checks them.
FILLER_RECORDS = 100_000
_ZSTD = 4
_NO_TIMESTAMP = -1


def filler(count: int, producer_id: int, sequence: int) -> memoryview:
    """A signed batch of ``count`` records of nothing."""
    batch = memoryview(bytearray(_template(count)))
    stamp(header_at(batch, 0), batch, producer_id, sequence)
    return batch


@lru_cache(maxsize=4)
def _template(count: int) -> bytes:
    record = Record(0, _NO_TIMESTAMP, b"\0", None)
    return bytes(build((record for _ in range(count)), codec=_ZSTD))
