"""How far a flow's own records reach in target logs whose brokers have forgotten the flow.

Runs in commands and in the driver. Reads batch headers only.
"""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.batch.header import batches
from heliograph.model import TopicPartition
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.fetch import Fetched
from heliograph.wire.ranges import read_ranges

__all__ = ["own_ends"]

_PATIENCE_SECONDS = 10.0


def own_ends(
    client: ClusterClient, begins: Mapping[TopicPartition, int], producer_id: int
) -> dict[TopicPartition, int]:
    """The offset behind the last record of the flow, from its begin up to others' first record.

    Markers of transactions are nobody's records. What others wrote may be much, and what the flow
    has written stands before it. Raises WireError.
    """
    found = dict(begins)

    def take(fetched: Fetched) -> int | None:
        following = fetched.offset
        for header, _ in batches(fetched.records):
            if header.last_offset < fetched.offset:
                continue
            if header.magic < 2 or (header.producer_id != producer_id and not header.control):
                return None
            following = header.last_offset + 1
            if header.producer_id == producer_id:
                found[fetched.partition] = following
        return following

    if begins:
        read_ranges(client, begins, take, patience=_PATIENCE_SECONDS)
    return found
