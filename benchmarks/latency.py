"""How late a record arrives at 2,000 records per second."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Producer

from benchmarks.bench import PARTITIONS, QUIET, SOURCE, TARGET, Bench, MeasureError
from benchmarks.contenders import Contender, Situation

__all__ = ["RATE", "Duration", "measure", "measure_direct"]

RATE = 2_000
_TOPIC = "latency"
_POLL_SECONDS = 0.05
_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds of warm-up and of measuring."""

    warm_up_s: int = 10
    measure_s: int = 30

    @property
    def whole_s(self) -> int:
        """Both."""
        return self.warm_up_s + self.measure_s


def measure(bench: Bench, contender: Contender, duration: Duration) -> dict[str, float]:
    """Percentiles in ms from the producer on the source to a consumer on the target."""
    bench.create_topics(SOURCE, {_TOPIC: PARTITIONS})
    # One record per partition ahead, so that the mirror is known to be at work on all of them.
    producer = Producer({"bootstrap.servers": bench.lab[SOURCE].bootstrap, **QUIET})
    for partition in range(PARTITIONS):
        producer.produce(_TOPIC, b"first", partition=partition)
    producer.flush(30)
    with bench.run(contender, _TOPIC, Situation(trickle=True), keep=()) as run:
        remote = run.remote_partitions(_TOPIC, PARTITIONS)

        def count() -> int:
            return sum(bench.counters[TARGET].ends(remote).values())

        bench.wait_for_first(run, count, _START_SECONDS, _POLL_SECONDS)
        deadline = time.monotonic() + _START_SECONDS
        while count() < PARTITIONS:
            if time.monotonic() > deadline:
                raise MeasureError("not all partitions are mirrored")
            time.sleep(_POLL_SECONDS)
        figures = _measure(bench, run.remote(_TOPIC), TARGET, duration, run.footprint.cpu_seconds)
        run.mirror.require_running()
    _say(bench, figures)
    return figures


def measure_direct(bench: Bench, duration: Duration) -> dict[str, float]:
    """The same with the consumer on the source: what the measuring itself costs."""
    bench.create_topics(SOURCE, {_TOPIC: PARTITIONS})
    figures = _measure(bench, _TOPIC, SOURCE, duration, lambda: 0.0)
    bench.delete_topics(SOURCE)
    _say(bench, figures)
    return figures


def _say(bench: Bench, figures: dict[str, float]) -> None:
    p50, p99, p999 = (figures[name] for name in ("p50", "p99", "p999"))
    bench.say(f"  p50 {p50:.1f} ms, p99 {p99:.1f} ms, p99.9 {p999:.1f} ms")


def _measure(
    bench: Bench, topic: str, alias: str, duration: Duration, cpu_seconds: Callable[[], float]
) -> dict[str, float]:
    records, skip = RATE * duration.whole_s, RATE * duration.warm_up_s
    sides = {
        "consume": [bench.lab[alias].bootstrap, topic, PARTITIONS, skip, records],
        "produce": [bench.lab[SOURCE].bootstrap, _TOPIC, PARTITIONS, RATE, records],
    }
    clients: list[subprocess.Popen[str]] = []
    try:
        for role, arguments in sides.items():
            command = [sys.executable, "-m", "benchmarks.trickle", role, *map(str, arguments)]
            client = subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
            clients.append(client)
            if role == "consume":
                _wait_until_ready(client)
        began, cpu_s = time.monotonic(), cpu_seconds()
        out = [client.communicate(timeout=duration.whole_s + 60)[0] for client in clients[::-1]]
        cpu_s, took_s = cpu_seconds() - cpu_s, time.monotonic() - began
    finally:
        for client in clients:
            client.kill()
            client.wait()
    sent, seen = (json.loads(text.splitlines()[-1]) for text in out)
    if sent["unsent"] or sent["rate"] < 0.95 * RATE:
        raise MeasureError(f"the producer reached only {sent['rate']:.0f} records/s")
    if seen["records"] < records - skip:
        missing = records - skip - seen["records"]
        raise MeasureError(f"{missing:,} of {records - skip:,} records did not arrive")
    figures = {name: float(seen[name]) for name in ("p50", "p99", "p999", "max")}
    figures["busy"] = 100 * cpu_s / took_s
    return figures


def _wait_until_ready(client: subprocess.Popen[str]) -> None:
    assert client.stdout is not None
    if select.select([client.stdout], [], [], 60.0)[0]:
        # One byte at a time: the rest of the pipe belongs to communicate().
        said = b""
        while not said.endswith(b"\n") and (byte := os.read(client.stdout.fileno(), 1)):
            said += byte
        if said == b"ready\n":
            return
    raise MeasureError("the measuring consumer did not start")
