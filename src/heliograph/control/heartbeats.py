"""Writes MM2's heartbeats, which show that a flow's mirror is running. Runs in the driver."""

from __future__ import annotations

import time

from heliograph.batch.records import Record, build
from heliograph.mm2.formats import Heartbeat
from heliograph.model import Flow, TopicPartition
from heliograph.wire import log
from heliograph.wire.cluster import ClusterClient


class HeartbeatEmitter:
    """Writes one record per call into the target's heartbeats topic."""

    def __init__(self, flow: Flow, target: ClusterClient, topic: str) -> None:
        self._flow = flow
        self._target = target
        self._partition = TopicPartition(topic, 0)

    def emit(self) -> None:
        """Append one heartbeat with the current time."""
        now = int(time.time() * 1000)
        beat = Heartbeat(self._flow.source, self._flow.target, now)
        log.append(self._target, self._partition, build([Record(0, now, *beat.encode())]))
