"""Backlogs of one kind of record, produced by Kafka's own ProducerPerformance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.payloads import json_events
from heliograph.lab import Lab

__all__ = ["LARGE_BATCHES", "Performance"]

#: Batches of a busy producer: 128 KiB, filled for up to 20 ms.
LARGE_BATCHES = {"batch.size": "131072", "linger.ms": "20"}


@dataclass(frozen=True, slots=True)
class Performance:
    """Called to fill a topic.

    Attributes:
        record_bytes: size of each value; None: the JSON events.
        producer: producer keys.
    """

    record_bytes: int | None
    producer: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, lab: Lab, alias: str, topic: str, records: int) -> None:
        """Returns when the last record is acknowledged.

        Raises:
            LabError: the tool failed, or needed more than 10 minutes.
        """
        if self.record_bytes is None:
            payload = ["--payload-file", str(_payload_file(lab.folder))]
        else:
            payload = ["--record-size", str(self.record_bytes)]
        lab.tool(
            "ProducerPerformance",
            *("--topic", topic, "--num-records", str(records), "--throughput", "-1", *payload),
            *("--bootstrap-server", lab[alias].bootstrap, "--command-property"),
            *(f"{key}={value}" for key, value in self.producer.items()),
            timeout_s=600,
        )


def _payload_file(folder: Path) -> Path:
    """The JSON events, one per line."""
    path = folder / "events.json"
    if not path.exists():
        path.write_bytes(b"\n".join(json_events()) + b"\n")
    return path
