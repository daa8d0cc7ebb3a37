"""A log that the broker's cleaner has been through: most of its offsets have no record any more."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from benchmarks.appending import append, client_of
from benchmarks.bench import PARTITIONS, QUIET, MeasureError
from benchmarks.payloads import json_events
from heliograph.batch.header import batches
from heliograph.batch.records import Record, build
from heliograph.lab import Lab
from heliograph.model import TopicPartition
from heliograph.wire import log

__all__ = ["fill"]

_LZ4 = 3
_BATCH = 100  # records
# Of all records those that have a key of their own and so survive, wherever they are; the others
# share a few keys, of which only the last survive.
_SURVIVORS = 0.374
_SHARED_KEYS = 1_000
_SEGMENT_MS = 60_000
_CLEANER_SECONDS = 120.0
_ADMIN_SECONDS = 30.0


def fill(lab: Lab, alias: str, topic: str, records: int) -> None:
    """Writes ``records`` and waits until the cleaner has removed all but the last of each key.

    Raises:
        MeasureError: it has not after 2 minutes.
        WireError: the broker does not answer.
    """
    bootstrap = lab[alias].bootstrap
    keys = _keys(records // PARTITIONS)
    now_ms = int(time.time() * 1000)
    # The cleaner leaves the segment that is written to alone. A record from after the segment's
    # time begins a new one. The setting goes again, lest the mirrors copy it to the target.
    _set_segment_ms(bootstrap, topic, str(_SEGMENT_MS))
    append(bootstrap, topic, _batches(keys, now_ms - 2 * _SEGMENT_MS))
    append(bootstrap, topic, [build([Record(0, now_ms, b"last", json_events()[0])])])
    _wait_for_cleaner(bootstrap, topic, PARTITIONS * (len(set(keys)) + 1))
    _set_segment_ms(bootstrap, topic, None)


def _keys(records: int) -> list[bytes]:
    chance = random.Random(7)
    return [
        b"own-%d" % i
        if chance.random() < _SURVIVORS
        else b"shared-%d" % chance.randrange(_SHARED_KEYS)
        for i in range(records)
    ]


def _batches(keys: list[bytes], timestamp_ms: int) -> Iterator[memoryview]:
    events = json_events()
    for start in range(0, len(keys), _BATCH):
        yield build(
            [
                Record(0, timestamp_ms, key, events[number % len(events)])
                for number, key in enumerate(keys[start : start + _BATCH], start)
            ],
            codec=_LZ4,
        )


def _set_segment_ms(bootstrap: str, topic: str, value: str | None) -> None:
    """Sets the topic's ``segment.ms``; None: back to the default."""
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry("segment.ms", value, incremental_operation=kind)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.incremental_alter_configs([resource])[resource].result(_ADMIN_SECONDS)


def _wait_for_cleaner(bootstrap: str, topic: str, survivors: int) -> None:
    deadline = time.monotonic() + _CLEANER_SECONDS
    with client_of(bootstrap) as client:
        while True:
            left = sum(
                header.record_count
                for i in range(PARTITIONS)
                for chunk in log.read_to_end(client, TopicPartition(topic, i), 0)
                for header, _ in batches(chunk)
            )
            if left == survivors:
                return
            if time.monotonic() > deadline:
                raise MeasureError(
                    f"the broker's log cleaner has left {left:,} records of {topic} after"
                    f" {_CLEANER_SECONDS:.0f} s, expected {survivors:,}"
                )
            time.sleep(1.0)
