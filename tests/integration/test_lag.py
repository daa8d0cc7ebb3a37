"""Lag of a backlog, by real brokers: records and seconds, before anything was copied."""

from __future__ import annotations

import time

from confluent_kafka import Producer
from driving import opened
from mirroring import wait_for

from heliograph.service.events import EventBus
from heliograph.service.monitor import FlowMonitor
from heliograph.service.snapshot import FlowState, Life


def test_a_backlog_is_as_old_as_its_next_record(pair, lab, topic_name):
    p = pair(**{
        "A->B.topics": topic_name,
        "emit.heartbeats.enabled": "false",
        "heartbeats.replication.enabled": "false",
        "emit.checkpoints.enabled": "false",
    })  # fmt: skip
    p.create(p.source, topic_name)
    producer = Producer({"bootstrap.servers": lab["A"].bootstrap, "linger.ms": 100})
    written = time.time() - 26
    for n in range(11_000):
        producer.produce(topic_name, b"%d" % n, timestamp=int((written + n / 11_000) * 1000))
    assert producer.flush(60) == 0
    runtime = opened(p.config)
    try:
        wait_for(lambda: runtime.refresh_topics() or runtime.plan.topics)
        monitor = FlowMonitor(runtime, EventBus())
        running = Life(FlowState.RUNNING)
        assert monitor.snapshot(running, {}).lag_records is None
        least = time.time() - written
        monitor.measure()
        monitor.look()
        flow = monitor.snapshot(running, {})
        assert flow.lag_records == 11_000
        assert least - 2 < flow.lag_seconds < time.time() - written + 2
        assert flow.states == {"starting": 1}
    finally:
        runtime.close()
