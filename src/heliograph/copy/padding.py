"""A source log that begins at L > 0: the target gets L offsets of filler, deleted at once.

Runs in executors, before anything of the partition is mirrored. Filler is written as data is, under
the flow's signature and with the offset as sequence, so that two writers do no harm and whoever is
killed is continued.
"""

from __future__ import annotations

import time
from collections import deque

from heliograph.batch.filler import FILLER_RECORDS, filler
from heliograph.copy.partition import MustWait, PartitionCopy
from heliograph.errors import PartitionError
from heliograph.ledger.runs import PartitionLedger
from heliograph.model import FlowContext
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import (
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    check,
    error_name,
    is_retriable,
)
from heliograph.wire.metadata import Metadata
from heliograph.wire.produce import Producer
from heliograph.wire.rights import denied, missing_right, reason

#: Other partitions of the lease wait meanwhile, so it is done piece by piece.
_SECONDS_AT_ONCE = 1.0
_IN_FLIGHT = 4


def is_padded(ledger: PartitionLedger) -> bool:
    """Whether the partition begins behind filler: there, sequence and both offsets are one."""
    first = ledger.runs[0]
    return 0 < first.sequence == first.source == first.target


def pad(
    context: FlowContext,
    target: ClusterClient,
    metadata: Metadata,
    p: PartitionCopy,
    ledger: PartitionLedger,
    end: int,
) -> None:
    """Go on padding a log that ends at ``end``, and delete the filler.

    Raises:
        MustWait: it is not done yet.
        WireError: the target does not answer, or not well.
        PartitionError: the filler cannot be deleted.
    """
    goal = ledger.runs[0].target
    if end < goal:
        end = _write(context, target, metadata, p, end, goal)
    if end < goal:
        raise MustWait(f"padding {p.target}: {end:,} of {goal:,} offsets", progress=True)
    starts = admin.list_offsets(target, metadata, [p.target], admin.EARLIEST)
    if starts.get(p.target, 0) >= goal:
        return
    error = admin.delete_records(target, metadata, {p.target: goal}).get(p.target, NONE)
    if error == NONE:
        return
    if is_retriable(error):
        raise MustWait(f"deleting the filler of {p.target}: {error_name(error)}")
    right = reason(context.target, error, "Delete", p.target.topic, "allow it")
    raise PartitionError(
        "target.padding",
        f"the filler before offset {goal} of {p.target} on {context.flow.target} cannot be"
        f" deleted: {error_name(error)}",
        f"{right}; or delete the topic and set heliograph.offsets=dense",
    )


def _write(
    context: FlowContext,
    target: ClusterClient,
    metadata: Metadata,
    p: PartitionCopy,
    end: int,
    goal: int,
) -> int:
    """Write filler for a while; returns how far it is acknowledged."""
    connection = target.connection(p.target_leader)
    ids = {p.target.topic: metadata.topics[p.target.topic].topic_id}
    producer = Producer(connection, ids)
    until = time.monotonic() + _SECONDS_AT_ONCE
    sent, counts = end, deque[int]()
    # The first goes alone: a broker that knows no sequence yet would take the second without it.
    most = 1
    while counts or (sent < goal and time.monotonic() < until):
        while sent < goal and len(counts) < most and time.monotonic() < until:
            count = min(FILLER_RECORDS, goal - sent)
            producer.send([(p.target, filler(count, context.producer_id, sent))])
            counts.append(count)
            sent += count
        [answer] = producer.parse(connection.wait(target.request_timeout))
        count = counts.popleft()
        if answer.error == OUT_OF_ORDER_SEQUENCE_NUMBER:
            # Another writer pads as well: look again how far it is.
            until = 0.0
        elif denied(answer.error):
            raise PartitionError(
                "target.refused",
                f"{p.target} cannot be written on {target.alias}: {error_name(answer.error)}",
                missing_right(context.target, "Write", "topic", p.target.topic),
            )
        else:
            check(answer.error, f"padding {p.target} of cluster {target.alias}", answer.message)
            end, most = max(end, answer.base_offset + count), _IN_FLIGHT
    return end
