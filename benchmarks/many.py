"""A thousand partitions: how long until all are mirrored, and what they cost when idle."""

from __future__ import annotations

import math
import time

from confluent_kafka import Producer

from benchmarks.bench import QUIET, SOURCE, TARGET, Bench, MeasureError, Run
from benchmarks.contenders import Contender, Situation
from heliograph.model import TopicPartition

__all__ = ["TOPICS", "measure", "prepare"]

TOPICS = 200
PARTITIONS = 5
_RECORDS = 100  # per partition
_VALUE = b"x" * 100
_START_SECONDS = 300.0
_POLL_SECONDS = 0.3  # a look at a thousand partitions costs the benchmark some 50 ms of CPU
_SETTLE_SECONDS = 5.0
_IDLE_SECONDS = 30.0
_NEW_TOPIC_SECONDS = 30.0


def _names(topics: int) -> list[str]:
    return [f"many-{i:04}" for i in range(topics)]


def prepare(bench: Bench, topics: int) -> None:
    """Creates the topics on the source, 100 records in each partition."""
    bench.create_topics(SOURCE, dict.fromkeys(_names(topics), PARTITIONS))
    producer = Producer(
        {"bootstrap.servers": bench.lab[SOURCE].bootstrap, **QUIET, "linger.ms": 50}
    )
    for topic in _names(topics):
        for partition in range(PARTITIONS):
            for _ in range(_RECORDS):
                producer.produce(topic, _VALUE, partition=partition)
        producer.poll(0)
    if producer.flush(60):
        raise MeasureError("could not fill the topics in 60 s")
    bench.say(f"many: {topics} topics of {PARTITIONS} partitions produced")


def measure(bench: Bench, contender: Contender, topics: int) -> dict[str, float]:
    """One run of a mirror over all topics; a new one is added at the end."""
    names = _names(topics)
    with bench.run(contender, "many-.*", Situation(), keep=names) as run:
        all_s = _wait_for_all(bench, run, names)
        bench.say(f"  all {topics * PARTITIONS} partitions mirrored after {all_s:.1f} s")
        time.sleep(_SETTLE_SECONDS)
        began, cpu_s = time.monotonic(), run.footprint.cpu_seconds()
        time.sleep(_IDLE_SECONDS)
        idle = 100 * (run.footprint.cpu_seconds() - cpu_s) / (time.monotonic() - began)
        figures = {
            "all": all_s,
            "idle_cpu": idle,
            "idle_memory": run.footprint.memory_mb,
            "memory": run.footprint.peak_mb,
        }
        bench.say(f"  idle: {idle:.1f} % of a core, {figures['idle_memory']:,.0f} MB")
        figures["new_topic"] = _new_topic(bench, run)
    return figures


def _wait_for_all(bench: Bench, run: Run, names: list[str]) -> float:
    """Seconds since the start at which every partition has all its records."""
    missing = {TopicPartition(run.remote(t), i) for t in names for i in range(PARTITIONS)}
    whole = len(missing)
    while missing:
        ends = bench.counters[TARGET].ends(sorted(missing))
        now = time.monotonic()
        missing -= {partition for partition, end in ends.items() if end >= _RECORDS}
        if missing and now - run.started > _START_SECONDS:
            raise MeasureError(
                f"{len(missing)} of {whole} partitions not mirrored after {_START_SECONDS:.0f} s"
            )
        run.mirror.require_running()
        if missing:
            time.sleep(_POLL_SECONDS)
    return now - run.started


def _new_topic(bench: Bench, run: Run) -> float:
    """Seconds from the creation of a topic to its first mirrored record; infinite: not in 30 s."""
    name = "many-new"
    began = time.monotonic()
    bench.create_topics(SOURCE, {name: 1})
    producer = Producer({"bootstrap.servers": bench.lab[SOURCE].bootstrap, **QUIET})
    producer.produce(name, _VALUE, partition=0)
    producer.flush(30)
    remote = run.remote_partitions(name, 1)
    while time.monotonic() - began < _NEW_TOPIC_SECONDS:
        if sum(bench.counters[TARGET].ends(remote).values()):
            took_s = time.monotonic() - began
            bench.say(f"  new topic mirrored after {took_s:.1f} s")
            return took_s
        run.mirror.require_running()
        time.sleep(_POLL_SECONDS)
    bench.say(f"  new topic not mirrored after {_NEW_TOPIC_SECONDS:.0f} s")
    return math.inf
