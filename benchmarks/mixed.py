"""A log of many producers: large batches and stretches of single records, four codecs in turn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle

from benchmarks.appending import append
from benchmarks.bench import PARTITIONS
from benchmarks.payloads import json_events
from heliograph.batch.records import Record, build
from heliograph.lab import Lab

__all__ = ["fill"]

_CODECS = (1, 2, 3, 4)  # gzip, snappy, lz4, zstd
_STRETCH = 2_000  # records of large batches, and as many alone
_LARGE = 100  # records
_EVENTS_IN_LARGE = 3  # per record: ~1 KB
_ALONE_BYTES = 200


def fill(lab: Lab, alias: str, topic: str, records: int) -> None:
    """Writes ``records``, half of them alone in their batches, in stretches."""
    append(lab[alias].bootstrap, topic, _batches(records // PARTITIONS))


def _batches(records: int) -> Iterator[memoryview]:
    now_ms = int(time.time() * 1000)
    events = json_events()
    done = 0
    for codec in cycle(_CODECS):
        for size in (*[_LARGE] * (_STRETCH // _LARGE), *[1] * _STRETCH):
            if done >= records:
                return
            numbers = range(done, done + size)
            values = (_large if size > 1 else _alone)(events, numbers)
            yield build([Record(0, now_ms, None, value) for value in values], codec=codec)
            done += size


def _large(events: tuple[bytes, ...], numbers: range) -> list[bytes]:
    return [
        b"".join(
            events[(number * _EVENTS_IN_LARGE + i) % len(events)] for i in range(_EVENTS_IN_LARGE)
        )
        for number in numbers
    ]


def _alone(events: tuple[bytes, ...], numbers: range) -> list[bytes]:
    return [events[number % len(events)][:_ALONE_BYTES] for number in numbers]
