"""The backlogs of design.md section 1, produced by Kafka's own ProducerPerformance."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from heliograph.lab import Lab

__all__ = ["PARTITIONS", "WORKLOADS", "Workload", "produce"]

PARTITIONS = 4
# Batches of a busy producer: 128 KiB, filled for up to 20 ms.
_LARGE_BATCHES = {"batch.size": "131072", "linger.ms": "20"}
_PAYLOADS = 20_000


@dataclass(frozen=True, slots=True)
class Workload:
    """A backlog to catch up with.

    Attributes:
        name: of the workload and of its topic.
        record_bytes: size of each value; None: the JSON events.
        producer: producer keys.
        throughput: how many times MM2's records/s are asked for; None: nothing is.
    """

    name: str
    about: str
    records: int
    record_bytes: int | None
    throughput: float | None
    producer: Mapping[str, str] = field(default_factory=dict)

    @property
    def compression(self) -> str:
        """Kafka's name of the codec."""
        return self.producer.get("compression.type", "none")

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
            None,
            8.0,
            {**_LARGE_BATCHES, "compression.type": "zstd"},
        ),
        Workload("none100", "100 B, no compression", 5_000_000, 100, 12.0, _LARGE_BATCHES),
        Workload(
            "lz1k",
            "1000 B incompressible, lz4",
            1_500_000,
            1000,
            5.0,
            {**_LARGE_BATCHES, "compression.type": "lz4"},
        ),
        Workload(
            "tiny",
            "200 B, one record per batch",
            500_000,
            200,
            None,
            {"batch.size": "0", "linger.ms": "0"},
        ),
    )
}


def produce(lab: Lab, alias: str, topic: str, workload: Workload, records: int) -> None:
    """Fills ``topic`` of cluster ``alias``; returns when the last record is acknowledged.

    Raises:
        LabError: the tool failed, or needed more than 10 minutes.
    """
    if workload.record_bytes is None:
        payload = ["--payload-file", str(_json_events(lab.folder))]
    else:
        payload = ["--record-size", str(workload.record_bytes)]
    lab.tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--throughput", "-1", *payload),
        *("--bootstrap-server", lab[alias].bootstrap, "--command-property"),
        *(f"{key}={value}" for key, value in workload.producer.items()),
        timeout_s=600,
    )


def _json_events(folder: Path) -> Path:
    """A file of 20,000 shop events, one per line, the same every time."""
    path = folder / "events.json"
    if path.exists():
        return path
    chance = random.Random(7)
    events = ["page_view", "add_to_cart", "purchase", "search", "login", "logout"]
    tags = ["new", "sale", "vip", "promo", "a", "b", "c"]
    lines = [
        json.dumps(
            {
                "event": chance.choice(events),
                "user_id": chance.randint(1, 5_000_000),
                "session": f"{chance.getrandbits(128):032x}",
                "ts": 1794767853070 + i * 13,
                "url": f"/shop/{chance.choice(['shoes', 'hats', 'bags', 'books'])}"
                f"/{chance.randint(1, 99999)}",
                "agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"
                f" Chrome/{chance.randint(90, 150)}.0",
                "price": round(chance.random() * 300, 2),
                "currency": "EUR",
                "geo": {
                    "lat": round(chance.uniform(-90, 90), 5),
                    "lon": round(chance.uniform(-180, 180), 5),
                    "country": chance.choice(["DE", "FR", "US", "CN", "BR"]),
                },
                "tags": chance.sample(tags, 3),
            }
        )
        for i in range(_PAYLOADS)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
