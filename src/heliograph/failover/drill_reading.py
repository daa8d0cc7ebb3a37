"""The scratch consumer of a drill: reads from an offset on, and is a member of no group.

Runs in commands and in the driver.
"""

from __future__ import annotations

from heliograph.batch.header import batches
from heliograph.batch.pieces import AbortedTransactions
from heliograph.batch.records import Record
from heliograph.failover.drill_rules import Found
from heliograph.model import TopicPartition
from heliograph.verify.streams import Batch, Unreadable, decoded
from heliograph.wire import log
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import OFFSET_OUT_OF_RANGE, BrokerError, WireError

__all__ = ["read_at"]

#: Enough to see records of common sizes; the first batch comes whole, however large it is.
_ANSWER_BYTES = 128 << 10
#: So many answers may hold nothing but markers and aborted records.
_MOST_ANSWERS = 20
_PATIENCE_SECONDS = 5.0
_MAGIC = 2


def read_at(
    client: ClusterClient, partition: TopicPartition, offset: int, *, read_committed: bool
) -> Found:
    """The first record at or behind ``offset``, and how many came with it."""
    position = offset
    try:
        for _ in range(_MOST_ANSWERS):
            fetched = log.read_once(
                client, partition, position, _PATIENCE_SECONDS, _ANSWER_BYTES,
                read_committed=read_committed,
            )  # fmt: skip
            found, following = _first(fetched.records, fetched.aborted, position)
            if found is not None:
                return found
            if following == position:
                return Found(None)
            position = following
    except WireError as error:
        if isinstance(error, BrokerError) and error.code == OFFSET_OUT_OF_RANGE:
            return Found(None, why=f"cluster {client.alias} has deleted what was at {position}")
        return Found(None, why=str(error))
    except Unreadable as error:
        return Found(None, why=f"{partition} of cluster {client.alias}: {error}")
    return Found(None, why=f"nothing but markers and aborted records from {offset} to {position}")


def _first(
    records: memoryview, aborted: list[tuple[int, int]], position: int
) -> tuple[Found | None, int]:
    """The first record of an answer and how many it has; else where to read on."""
    transactions = AbortedTransactions(aborted)
    found: Found | None = None
    count, following = 0, position
    for header, data in batches(records):
        modern = header.magic == _MAGIC
        last = header.last_offset if modern else header.base_offset
        following = max(following, last + 1)
        if (
            modern
            and (header.control or header.transactional)
            and transactions.skips(last, header.producer_id, control=header.control)
        ):
            continue
        for offsets, contents in decoded(Batch(header, data)):
            for offset, content in zip(offsets, contents, strict=True):
                if offset >= position:
                    count += 1
                    appended = modern and header.log_append_time
                    found = found or Found(Record(offset, *content), append_time=appended)
    return (found._replace(records=count) if found is not None else None), following
