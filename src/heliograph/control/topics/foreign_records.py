"""Whether a remote topic holds records that no mirror of the flow wrote. Runs in the driver.

As far as that can be told cheaply: from what brokers remember of producers, from the ledger and
from the last batch of each partition. Records are not read. So a few records that somebody wrote
without idempotence between ours, in a partition where gaps are not filled, may go unnoticed.
"""

from __future__ import annotations

from itertools import pairwise

from heliograph.batch.header import batches
from heliograph.ledger.codec import Place
from heliograph.ledger.runs import PartitionLedger
from heliograph.ledger.store import LedgerStore
from heliograph.model import TopicPartition
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import ConnectionFailed
from heliograph.wire.metadata import Metadata

__all__ = ["Extent", "extent_of", "foreign_records_in"]

#: First and next offset of each partition.
Extent = dict[TopicPartition, tuple[int, int]]


def extent_of(client: ClusterClient, metadata: Metadata, topic: str) -> Extent:
    """Where the partitions of a topic start and end; raises if a leader does not answer."""
    wanted = [TopicPartition(topic, index) for index in metadata.topics[topic].partitions]
    starts = admin.list_offsets(client, metadata, wanted, admin.EARLIEST)
    ends = admin.list_offsets(client, metadata, wanted, admin.LATEST)
    silent = sorted(set(wanted) - (starts.keys() & ends.keys()))
    if silent:
        raise ConnectionFailed(f"no answer from the leader of {silent[0]} on {client.alias}")
    return {p: (starts[p], ends[p]) for p in wanted}


def foreign_records_in(
    client: ClusterClient,
    metadata: Metadata,
    extent: Extent,
    ledger: LedgerStore,
    places: dict[TopicPartition, Place],
) -> str:
    """What in a remote topic is not the flow's; empty if nothing was found.

    Args:
        client: of the target.
        metadata: with the topic.
        extent: of the topic.
        ledger: the flow's, read behind ``extent``.
        places: the place of each partition that was mirrored.
    """
    signature = ledger.signature
    producer_id = -1 if signature is None else signature.producer_id
    states = admin.describe_producers(client, metadata, extent)
    for partition, (start, end) in extent.items():
        if start == end:
            continue
        runs = ledger.at(places[partition]) if partition in places else PartitionLedger()
        if not runs.runs:
            return f"{partition} holds records, but was never mirrored"
        if partition not in states:
            raise ConnectionFailed(f"no answer from the leader of {partition} on {client.alias}")
        # Who wrote nothing but markers has no sequence: that may be us, filling gaps.
        active = {s.producer_id: s for s in states[partition] if s.last_sequence >= 0}
        mine = active.pop(producer_id, None)
        if active:
            return f"producer {min(active)} has written to {partition}"
        if _pushed_on(runs):
            return f"others have written to {partition} between mirrored records"
        following = runs.following(mine.epoch, mine.last_sequence, end) if mine else None
        if following is not None:
            stranger = end > runs.target_of(following)
        else:
            stranger = not _ends_with(client, partition, end, producer_id)
        if stranger:
            return f"others have written to the end of {partition}"
    return ""


def _pushed_on(ledger: PartitionLedger) -> bool:
    """Whether target offsets grew more than source offsets: filled gaps cannot do that.

    Where the source went back, because it lost records, no gap was filled.
    """
    return any(
        later.target - earlier.target
        > max(later.source - earlier.source, later.sequence - earlier.sequence)
        for earlier, later in pairwise(ledger.runs)
    )


def _ends_with(client: ClusterClient, partition: TopicPartition, end: int, writer: int) -> bool:
    """Whether the last batch was written by a producer, or is a marker, whose writer is unknown."""
    fetched = log.read_once(client, partition, end - 1)
    header = next((h for h, _ in batches(fetched.records)), None)
    return header is not None and (header.producer_id == writer or header.control)
