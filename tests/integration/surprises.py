"""Leases of one topic, and what they tell of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mirroring import Mirroring

from heliograph.client.offsets import FlowOffsets
from heliograph.config import load
from heliograph.copy.lease_report import LeaseReport
from heliograph.copy.loop import CopyLoop
from heliograph.model import Lease, LeasedPartition, PartitionEvent, Receipt, TopicPartition

Told = tuple[Receipt, list[PartitionEvent]]


def until(flow: Mirroring, topic: str, end: int, seconds: float = 40.0) -> Told:
    """A lease on partition 0 up to a source offset: its receipt and its events."""
    return told(CopyLoop(lease_until(flow, topic, end, seconds)).run())


def lease_until(flow: Mirroring, topic: str, end: int | None, seconds: float) -> Lease:
    leased = LeasedPartition(TopicPartition(topic, 0), f"A.{topic}", end, **flow.options)
    now = time.time()
    return Lease(flow.context, (leased,), now, now + seconds)


def told(receipts: list[Receipt]) -> Told:
    [receipt] = receipts
    return receipt, events_of(receipt)


def events_of(receipt: Receipt) -> list[PartitionEvent]:
    return list(LeaseReport.decode(receipt.lease_report).events) if receipt.lease_report else []


@contextmanager
def offsets(flow: Mirroring, folder: Path) -> Iterator[FlowOffsets]:
    """As another program translates, which has never seen the flow."""
    path = folder / "mm2.properties"
    path.write_text(f"""
        clusters = A, B
        A.bootstrap.servers = localhost:1
        B.bootstrap.servers = {flow.lab["B"].bootstrap}
        A->B.enabled = true
        """)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("heliograph.client.offsets.ledger_topic", lambda _: flow.context.ledger_topic)
        with FlowOffsets(next(f for f in load(path).flows if f.enabled)) as found:
            yield found


def assert_exact(
    flow: Mirroring, folder: Path, topic: str, rows: list[tuple[int, int]], lost: range, to: int
) -> None:
    """Every record is translated both ways, and those that the source lost go to ``to``."""
    with offsets(flow, folder) as found:
        for source, target in rows:
            assert found.to_target(topic, 0, source).offset == target
            assert found.to_source(topic, 0, target).offset == source
        for target in lost:
            assert found.to_source(topic, 0, target).offset == to
