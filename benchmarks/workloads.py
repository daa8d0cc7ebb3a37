"""The backlogs that are caught up with: those of design.md section 1, and less regular ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks import compacted, mixed, transactional
from benchmarks.performance import LARGE_BATCHES, Performance
from heliograph.lab import Lab

__all__ = ["WORKLOADS", "Workload"]


@dataclass(frozen=True, slots=True)
class Workload:
    """A backlog to catch up with.

    Attributes:
        name: of the workload and of its topic.
        records: to write; where there are ``gaps``, consumers see fewer.
        fill: writes a number of records to a topic of a cluster of the lab, given by its alias.
        throughput: how many times MM2's records/s are asked for; None: nothing is.
        cpu: how many times less CPU than MM2's is asked for; None: nothing is.
        compression: Kafka's name of the codec that a tuned MM2 writes with.
        configs: of the topic.
        gaps: whether there are offsets without a visible record.
        read_committed: whether mirrors are to leave aborted transactions out.
    """

    name: str
    about: str
    records: int
    fill: Callable[[Lab, str, str, int], None]
    throughput: float | None = None
    cpu: float | None = None
    compression: str = "none"
    configs: Mapping[str, str] = field(default_factory=dict)
    gaps: bool = False
    read_committed: bool = False

    def scaled(self, scale: float) -> int:
        """Records for a run at ``scale``."""
        return max(1_000, round(self.records * scale))


WORKLOADS = {
    w.name: w
    for w in (
        Workload(
            "json",
            "JSON events of ~339 B, zstd",
            4_000_000,
            Performance(None, {**LARGE_BATCHES, "compression.type": "zstd"}),
            throughput=8.0,
            cpu=15.0,
            compression="zstd",
        ),
        Workload(
            "none100",
            "100 B, no compression",
            5_000_000,
            Performance(100, LARGE_BATCHES),
            throughput=12.0,
            cpu=15.0,
        ),
        Workload(
            "lz1k",
            "1000 B incompressible, lz4",
            1_500_000,
            Performance(1000, {**LARGE_BATCHES, "compression.type": "lz4"}),
            throughput=5.0,
            cpu=15.0,
            compression="lz4",
        ),
        Workload(
            "tiny",
            "200 B, one record per batch",
            1_000_000,
            Performance(200, {"batch.size": "0", "linger.ms": "0"}),
            throughput=8.0,
        ),
        Workload(
            "mixed",
            "large batches and single records in turn, four codecs",
            600_000,
            mixed.fill,
            throughput=6.0,
            compression="lz4",
        ),
        Workload(
            "compacted",
            "JSON events, lz4, five of eight removed by the broker's cleaner",
            1_600_000,
            compacted.fill,
            compression="lz4",
            configs={"cleanup.policy": "compact"},
            gaps=True,
        ),
        Workload(
            "transactional",
            "JSON events, lz4, transactions of 200, three of ten aborted",
            572_000,
            transactional.fill,
            compression="lz4",
            gaps=True,
            read_committed=True,
        ),
    )
}
