"""How long until records flow again? ``PYTHONPATH=tests/chaos python -m recovery``.

Two clusters of three brokers, one topic of six partitions, one record each 20 ms in every
partition. A fault is injected; the time is taken from then until every partition has, on the
target, a record that was written after the fault. So it contains what Kafka itself needs for a new
leader. Each mirror is measured alone, several times each fault; `benchmarks/results/recovery.md`.
"""

import random
import statistics
import struct
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import click
from benchmarks.machine import commit, describe
from confluent_kafka import Consumer, Producer, TopicPartition
from mirrors import SOURCE, TARGET, Heliograph, Mm2
from nemesis import LeadersShuffled, World
from proxy import Proxies, before

from heliograph.lab import Lab
from heliograph.model import ClientSettings
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

REPORT = Path(__file__).parents[2] / "benchmarks" / "results" / "recovery.md"
TOPIC = "recovery"
PARTITIONS = 6
_EVERY_SECONDS = 0.02
_PATIENCE_SECONDS = 240.0


class Trickle(threading.Thread):
    """Writes the time into every partition."""

    def __init__(self, bootstrap):
        super().__init__(daemon=True)
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0,
            "log_level": 0, "topic.metadata.refresh.interval.ms": 1000, "message.timeout.ms": 0,
        })  # fmt: skip
        self._stopping = threading.Event()

    def run(self):
        while not self._stopping.wait(_EVERY_SECONDS):
            for partition in range(PARTITIONS):
                value = struct.pack(">d", time.time())
                self._producer.produce(TOPIC, value, partition=partition)
            self._producer.poll(0)

    def stop(self):
        self._stopping.set()
        self.join()


class Arrivals(threading.Thread):
    """When each partition of the copy got its first record written after ``mark``."""

    def __init__(self, bootstrap, topic):
        super().__init__(daemon=True)
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": "recovery", "log_level": 0,
            "enable.auto.commit": False, "auto.offset.reset": "latest", "fetch.wait.max.ms": 20,
            "topic.metadata.refresh.interval.ms": 1000, "allow.auto.create.topics": False,
        })  # fmt: skip
        self._topic = topic
        self._stopping = threading.Event()
        self._mark, self._seen = float("inf"), {}

    def run(self):
        while not self._stopping.is_set():
            found = self._consumer.list_topics(timeout=10).topics.get(self._topic)
            if found is not None and len(found.partitions) == PARTITIONS:
                break
            time.sleep(0.5)
        self._consumer.assign([TopicPartition(self._topic, p) for p in range(PARTITIONS)])
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.05):
                if message.error() is None:
                    (written,) = struct.unpack(">d", message.value())
                    if written > self._mark:
                        self._seen.setdefault(message.partition(), time.time())
        self._consumer.close()

    def begin(self):
        """From now on; returns the moment."""
        self._seen, self._mark = {}, time.time()
        return self._mark

    def await_all(self, seconds=_PATIENCE_SECONDS):
        """Seconds from the mark to the last partition's first record; None: not in time."""
        deadline = time.monotonic() + seconds
        while len(self._seen) < PARTITIONS:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.01)
        return max(self._seen.values()) - self._mark

    def stop(self):
        self._stopping.set()
        self.join()


def worker_killed(world):
    world.mirrors[0].kill_part("worker", world.dice)


def driver_killed(world):
    world.mirrors[0].kill()
    world.mirrors[0].start()


def source_leaders_changed(world):
    LeadersShuffled(world, SOURCE).inject()


def target_leaders_changed(world):
    LeadersShuffled(world, TARGET).inject()


FAULTS = {
    "executor (Spark worker) killed": worker_killed,
    "driver killed, started again at once": driver_killed,
    "source leaders changed": source_leaders_changed,
    "target leaders changed": target_leaders_changed,
}
_ONLY_OURS = "executor (Spark worker) killed"


def measure(folder, make, trials, say):
    """{fault: [seconds or None]} of one mirror on two new clusters."""
    found = {}
    with ExitStack() as stack:
        proxies = stack.enter_context(Proxies(6))
        fronts = {SOURCE: proxies.ports[:3], TARGET: proxies.ports[3:]}
        lab = Lab(folder, brokers=3, heap="384m", advertised=fronts)
        stack.callback(lab.stop, grace_s=0)
        lab.start(180)
        world = World(lab, proxies, before(proxies, lab), random.Random(1))
        settings = ClientSettings("x", {"bootstrap.servers": lab[SOURCE].back_door})
        with ClusterClient(settings, "recovery") as client:
            new = admin.NewTopic(TOPIC, PARTITIONS, 3, {})
            failed = admin.create_topics(client, [new], 60_000)
            assert not failed, failed
        mirror = make(folder, lab, TOPIC)
        world.mirrors = [mirror]
        stack.callback(mirror.destroy)
        mirror.start()
        trickle = Trickle(lab[SOURCE].back_door)
        trickle.start()
        stack.callback(trickle.stop)
        arrivals = Arrivals(lab[TARGET].back_door, mirror.prefix + TOPIC)
        arrivals.start()
        stack.callback(arrivals.stop)
        arrivals.begin()
        if arrivals.await_all() is None:
            raise RuntimeError(f"{mirror.name} copies nothing; see {mirror.log_path}")
        for name, inject in FAULTS.items():
            if name == _ONLY_OURS and not isinstance(mirror, Heliograph):
                continue
            for _ in range(trials):
                time.sleep(3)
                arrivals.begin()
                inject(world)
                found.setdefault(name, []).append(arrivals.await_all())
                say(f"{mirror.name}, {name}: {_seconds(found[name][-1])}")
    return found


def _seconds(value):
    return "never" if value is None else f"{value:.2f} s"


def report(results, trials):
    facts = describe()
    lines = [
        "# Recovery times",
        "",
        f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, commit {commit()}, `PYTHONPATH="
        f"tests/chaos python -m recovery --trials {trials}`. {facts['cores']} cores,"
        f" {facts['model']}; load before the run {facts['load before the run']}.",
        "Seconds from the fault until every partition has, on the target, a record that was written"
        " after it; median and worst of"
        f" {trials}. Two clusters of three brokers, {PARTITIONS} partitions, each mirror alone.",
        "",
        "| fault | " + " | ".join(results) + " |",
        "|---|" + "---:|" * len(results),
    ]
    for name in FAULTS:
        cells = []
        for found in results.values():
            times = found.get(name)
            if times is None:
                cells.append("has none")
            elif None in times:
                cells.append(f"never within {_PATIENCE_SECONDS:.0f} s ({times.count(None)})")
            else:
                cells.append(f"{statistics.median(times):.2f}, {max(times):.2f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


MIRRORS = {
    "heliograph": Heliograph,
    "mm2": lambda *args: Mm2(*args, exactly_once=False),
    "mm2-eos": lambda *args: Mm2(*args, exactly_once=True),
}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--trials", default=5, show_default=True)
@click.option("--mirrors", default=",".join(MIRRORS), show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=REPORT, help="The report.")
def main(trials, mirrors, output):
    """Measure how long each mirror needs after each fault."""
    results = {}
    for name in mirrors.split(","):
        with tempfile.TemporaryDirectory(prefix="heliograph-recovery-") as folder:
            results[name] = measure(
                Path(folder), MIRRORS[name], trials, lambda text: click.echo(text, err=True)
            )
    text = report(results, trials)
    output.write_text(text, encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    sys.exit(main())
