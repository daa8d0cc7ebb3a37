"""How long it takes to resume partitions that the target has forgotten: near, and 50 ms away.

    PYTHONPATH=tests/chaos:tests/integration python -m resuming

One lease, without Spark, held by a process that has never read the ledger. Each partition holds
records dated 2023, and the target forgets producers at once. ``known``: leases ended in order.
``grown``: others have written to every partition since, and every partition has something to write,
so that every log has to be read.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from mirroring import Mirroring
from proxy import NO_FAULTS, Faults, Proxies, before

from heliograph.copy import links
from heliograph.copy.loop import CopyLoop
from heliograph.copy.partition import Started
from heliograph.errors import PartitionError
from heliograph.lab import Lab
from heliograph.model import TopicPartition
from heliograph.wire import admin

FORGETFUL = {
    "producer.id.expiration.ms": "500",
    "producer.id.expiration.check.interval.ms": "100",
}


def write(flow, alias, topic, count, partitions, value):
    producer = flow.producer(alias)
    for partition in range(partitions):
        for n in range(count):
            producer.produce(topic, value, b"k", partition, timestamp=1_700_000_000_000 + n)
    assert producer.flush(120) == 0


def forgotten(flow, topic, partitions):
    targets = [TopicPartition(f"A.{topic}", i) for i in range(partitions)]
    while True:
        metadata = flow.target.metadata([f"A.{topic}"])
        found = admin.describe_producers(flow.target, metadata, targets)
        if len(found) == partitions and not any(found.values()):
            return
        time.sleep(0.1)


def resumed(flow, topic):
    """Seconds from the start of a lease until every partition is resumed and looked at."""
    links.close()
    lease = flow.lease([topic], seconds=300)
    lease = replace(lease, partitions=tuple(replace(p, until=None) for p in lease.partitions))
    loop = CopyLoop(lease)
    parts = list(loop._lease_state.parts.values())
    for p in parts:
        p.must_read_tail = True
    began = time.monotonic()
    waiting = parts
    while waiting:
        outcomes = loop._resumer.resume(waiting)
        waiting = [p for p in waiting if not isinstance(outcomes[p.source], Started)]
        assert not any(isinstance(o, PartitionError) for o in outcomes.values()), outcomes
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=3)
    given = parser.parse_args()
    with Proxies(2) as proxies, tempfile.TemporaryDirectory() as folder:
        a, b = proxies.ports
        lab = Lab(
            Path(folder), settings={"B": FORGETFUL}, advertised={"A": [a], "B": [b]}, heap="1g"
        )
        lab.start()
        try:
            before(proxies, lab)
            flow = Mirroring.of(lab, fetch_max_bytes=16 << 20)
            topic, count = "many", given.partitions
            flow.create(topic, partitions=count)
            write(flow, "A", topic, 2, count, b"v")
            flow.copy(topic, seconds=300)
            print(f"{count} partitions, median of {given.trials}, seconds")
            for state in ("known", "grown"):
                if state == "grown":
                    write(flow, "B", f"A.{topic}", 3, count, b"foreign")
                    write(flow, "A", topic, 1, count, b"new")
                forgotten(flow, topic, count)
                for name, delay in (("near", 0.0), ("50 ms away", 0.025)):
                    times = []
                    for _ in range(given.trials):
                        proxies.heal()
                        flow.source.close()
                        flow.target.close()
                        links.close()
                        for port in (a, b):
                            proxies.set(port, Faults(delay=delay) if delay else NO_FAULTS)
                        times.append(resumed(flow, topic))
                    print(f"{state:6} {name:10} {statistics.median(times):.2f}", flush=True)
            flow.close()
            links.close()
        finally:
            lab.stop(grace_s=0)


if __name__ == "__main__":
    main()
