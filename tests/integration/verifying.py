"""`heliograph verify` without Spark: its plan and what its executors do, in this process."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from heliograph.batch.records import Record, build
from heliograph.config import load
from heliograph.config.key import compile_pattern
from heliograph.ledger.codec import Signature
from heliograph.ledger.store import LedgerStore
from heliograph.model import TopicPartition
from heliograph.service.verification import Verification
from heliograph.verify.checking import check
from heliograph.verify.views import Choice
from heliograph.wire import admin, log


class InProcess:
    """Runs tasks here, one after the other."""

    def leases_per_flow(self, _flows):
        return 2

    def check_secrets(self, clusters): ...

    def run_checks(self, context, tasks):
        return [result for task in tasks for result in check(context, task)]

    def cancel_checks(self):
        """There are none."""


class Verifying:
    """Verifies the flow of a ``Mirroring``."""

    def __init__(self, mirroring, folder: Path, monkeypatch, **keys: str) -> None:
        self.mirroring = mirroring
        monkeypatch.setattr(
            "heliograph.verify.plan.ledger_topic", lambda _: mirroring.context.ledger_topic
        )
        ids = mirroring.source.cluster_id(), mirroring.target.cluster_id()
        store = LedgerStore(mirroring.target, mirroring.context.ledger_topic)
        store.sign(Signature(mirroring.context.producer_id, *ids))
        self.path = folder / "mm2.properties"
        self.path.write_text(
            "\n".join(
                [
                    "clusters = A, B",
                    f"A.bootstrap.servers = {mirroring.lab['A'].bootstrap}",
                    f"B.bootstrap.servers = {mirroring.lab['B'].bootstrap}",
                    "A->B.enabled = true",
                    "heartbeats.replication.enabled = false",
                    *(f"{key} = {value}" for key, value in keys.items()),
                ]
            )
        )

    def __call__(self, *topics: str, **choice):
        config = next(f for f in load(self.path).flows if f.enabled)
        patterns = tuple(compile_pattern(re.escape(t)) for t in topics)
        self.choice = Choice(topics=patterns, **choice)
        engine: Any = InProcess()
        self.verification = Verification(config, self.choice, engine)
        return self.verification.run(lambda _: None, lambda *_: None)


def append_foreign(client, partition: TopicPartition, *values: bytes) -> int:
    """Somebody who is not the mirror writes to its topic."""
    pid = admin.allocate_producer_id(client)
    now = int(time.time() * 1000)
    records = [Record(0, now, b"foreign", value) for value in values]
    log.append(client, partition, build(records, producer_id=pid, sequence=0))
    return pid
