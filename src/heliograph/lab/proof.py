"""The proof that a mirror is complete: two partitions compared record by record.

For the demo and the tests, on lab-sized data: both sides are read whole, through our own wire and
aiokafka's decoder, uncommitted data included, so that nothing on the target can hide.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from heliograph.batch.header import batches
from heliograph.batch.records import Record, decode
from heliograph.model import TopicPartition
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient


@dataclass(slots=True)
class Proof:
    """What a comparison found; ``examples`` names the first differences."""

    compared: int = 0
    lost: int = 0
    twice: int = 0
    foreign: int = 0
    reordered: int = 0
    moved: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Same records, same order, nothing else."""
        return not (self.lost or self.twice or self.foreign or self.reordered)

    def add(self, other: Proof) -> None:
        """Sum up."""
        for name in ("compared", "lost", "twice", "foreign", "reordered", "moved"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.examples += other.examples


def read_all(client: ClusterClient, partition: TopicPartition) -> Iterator[Record]:
    """Every data record that a read_uncommitted consumer would see, from the log start."""
    metadata = client.metadata([partition.topic])
    start = admin.list_offsets(client, metadata, [partition], admin.EARLIEST)[partition]
    for chunk in log.read_to_end(client, partition, start):
        for header, batch in batches(chunk):
            if not header.control:
                yield from (r for r in decode(batch) if r.offset >= start)


def compare(source: ClusterClient, target: ClusterClient, topic: str, remote_topic: str) -> Proof:
    """Compare all partitions of a topic with its mirror. Stop the producers first."""
    proof = Proof()
    collecting = gc.isenabled()
    # Millions of records are kept, none are garbage: looking for some would take most of the time.
    gc.disable()
    try:
        for index in sorted(source.metadata([topic]).topics[topic].partitions):
            here, there = TopicPartition(topic, index), TopicPartition(remote_topic, index)
            proof.add(_compare(list(read_all(source, here)), list(read_all(target, there)), here))
    finally:
        if collecting:
            gc.enable()
    return proof


def _compare(here: list[Record], there: list[Record], partition: TopicPartition) -> Proof:
    content_here = [_content(r) for r in here]
    content_there = [_content(r) for r in there]
    proof = Proof(compared=len(here))
    proof.moved = sum(a.offset != b.offset for a, b in zip(here, there, strict=False))
    if content_here == content_there:
        return proof
    wanted, found = Counter(content_here), Counter(content_there)
    proof.lost = (wanted - found).total()
    proof.foreign = sum(n for c, n in found.items() if c not in wanted)
    proof.twice = (found - wanted).total() - proof.foreign
    proof.reordered = int(wanted == found)
    at = next((i for i, (a, b) in enumerate(zip(content_here, content_there, strict=False))
               if a != b), min(len(here), len(there)))  # fmt: skip
    proof.examples.append(
        f"{partition}: {len(here)} records on the source, {len(there)} on the target, first"
        f" difference at record {at}"
    )
    return proof


def _content(record: Record) -> tuple[object, ...]:
    return (record.timestamp, record.key, record.value, tuple(record.headers))
