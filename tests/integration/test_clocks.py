"""Clocks that are wrong, or are set while a lease is held: nothing is lost, and it is told."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from holding import holding
from mirroring import wait_for
from sources import numbered

from heliograph.copy.loop import CopyLoop
from heliograph.wire import admin

HOUR = 3600.0


@pytest.mark.parametrize("skew", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_f30_an_executor_with_another_clock_says_so_and_copies_nothing(mirroring, topic_name, skew):
    mirroring.create(topic_name)
    mirroring.write(topic_name, numbered(10))
    lease = mirroring.lease([topic_name], 10)
    # An hour ahead on the executor is an hour ago for the lease.
    moved = replace(lease, starts_at=lease.starts_at - skew, deadline=lease.deadline - skew)
    began = time.monotonic()
    [receipt] = CopyLoop(moved).run()
    assert time.monotonic() - began < 60, "it does not wait for an hour"
    assert f"[executor.{'late' if skew > 0 else 'clock'}] nothing " in receipt.error
    assert "synchronise the clocks" in receipt.error
    assert mirroring.values(topic_name) == []
    # Whoever has the right time goes on.
    mirroring.copy(topic_name)
    assert mirroring.values(topic_name) == numbered(10)


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
def test_f30_the_clock_is_set_while_a_lease_is_held(mirroring, topic_name, monkeypatch, step):
    real, offset = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + offset[0])
    flow = mirroring.leasing(identical=True, paddable=True)
    flow.create(topic_name)
    flow.write(topic_name, numbered(100))

    def copied():
        return sum(flow.offsets(flow.target, f"A.{topic_name}", admin.LATEST).values())

    with holding(flow, topic_name) as held:
        wait_for(lambda: copied() == 100)
        offset[0] = step
        flow.write(topic_name, numbered(100, "later"))
        if step < 0:
            wait_for(lambda: copied() == 200)
    assert held.receipt.error == ""
    # The lease of 600 s is over; the next one is given out by the new clock.
    with holding(flow, topic_name) as held:
        wait_for(lambda: copied() == 200)
        held.in_step()
    assert held.receipt.error == ""
