"""The two clients of the latency scenario, each run as a process: ``python -m benchmarks.trickle``.

``produce`` writes records with their send time at a steady rate; ``consume`` prints the percentiles
of arrival minus send time as JSON. One clock, one machine. Both are confluent-kafka, so that the
measuring costs the same CPU whatever is measured.
"""

from __future__ import annotations

import json
import struct
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

_HEAD = struct.Struct(">qi")  # send time in ns since the epoch, number of the record
_VALUE_BYTES = 200
# What Kafka 4's own producer and librdkafka do by default.
_LINGER_MS = 5
# After the last record was sent; a record that is later than that is lost to this measurement.
_PATIENCE_SECONDS = 10.0


def produce(bootstrap: str, topic: str, partitions: int, rate: int, records: int) -> None:
    """Sends ``records`` at ``rate`` per second, in turn to each partition."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": _LINGER_MS, "socket.nagle.disable": True}
    )
    padding = bytes(_VALUE_BYTES - _HEAD.size)
    began = time.monotonic()
    for i in range(records):
        ahead_s = began + i / rate - time.monotonic()
        if ahead_s > 0:
            time.sleep(ahead_s)
        producer.produce(topic, _HEAD.pack(time.time_ns(), i) + padding, partition=i % partitions)
        producer.poll(0)
    took_s = time.monotonic() - began
    left = producer.flush(_PATIENCE_SECONDS)
    print(json.dumps({"rate": records / took_s, "unsent": left}))


def consume(bootstrap: str, topic: str, partitions: int, skip: int, records: int) -> None:
    """Measures records number ``skip`` up to ``records``; says "ready" when it has its positions.

    Gives up when nothing arrives for a while: whoever counts the samples sees what is missing.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "socket.nagle.disable": True,
        }
    )
    wanted = [TopicPartition(topic, i) for i in range(partitions)]
    for partition in wanted:
        partition.offset = consumer.get_watermark_offsets(partition, timeout=30.0)[1]
    consumer.assign(wanted)
    print("ready", flush=True)
    latencies_ms: dict[int, float] = {}
    arrived_at = time.monotonic()
    while len(latencies_ms) < records - skip:
        message = consumer.poll(1.0)
        value = None if message is None or message.error() else message.value()
        if value is None:
            if time.monotonic() - arrived_at > _PATIENCE_SECONDS:
                break
            continue
        now_ns = time.time_ns()
        arrived_at = time.monotonic()
        sent_ns, number = _HEAD.unpack_from(value)
        if number >= skip:
            latencies_ms.setdefault(number, (now_ns - sent_ns) / 1e6)
    consumer.close()
    ordered = sorted(latencies_ms.values())
    print(
        json.dumps(
            {
                "records": len(ordered),
                **{name: _percentile(ordered, share) for name, share in _PERCENTILES.items()},
            }
        )
    )


_PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}


def _percentile(ordered: list[float], share: float) -> float | None:
    """The smallest value that is not exceeded by ``share`` of all."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]


if __name__ == "__main__":
    role, bootstrap_servers, name, *numbers = sys.argv[1:]
    {"produce": produce, "consume": consume}[role](
        bootstrap_servers, name, *(int(number) for number in numbers)
    )
