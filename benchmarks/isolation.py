"""Does one flow's bad day show on the others? ``python -m benchmarks.isolation``; starts a lab.

Three flows of one mirror: two bystanders, A1->B and A2->B, and a victim, A3->C. Each has a topic of
two partitions. Each partition gets a record every 20 ms. While something is done to the victim, a
consumer in another process notes the longest time without a new record in any remote partition. At
the end every record of all flows is compared. Gaps are those of producer, brokers, mirror and
consumer together: "nothing" is what they are when nothing is done.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import click
import psutil
from confluent_kafka import OFFSET_END, Consumer, Producer
from confluent_kafka import TopicPartition as Assigned
from rich.console import Console
from rich.table import Table

from heliograph.claims.registry import Registry
from heliograph.config import MirrorMakerConfig
from heliograph.errors import LabError
from heliograph.lab import Lab
from heliograph.lab.proof import compare
from heliograph.ledger.follower import LedgerFollower
from heliograph.model import ClientSettings
from heliograph.policy import ledger_topic
from heliograph.service.mirror import Mirror
from heliograph.service.snapshot import COPYING
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

_PARTITIONS = 2
_EVERY_SECONDS = 0.02
_TARGETS = {"A1": "B", "A2": "B", "A3": "C"}
_VICTIM = "A3"
_START_SECONDS = 300.0


def _topic(alias: str) -> str:
    return f"isolated-{alias}"


def _produce(bootstrap: str, stop: Synchronized[int]) -> None:
    """A record to each partition of each topic every 20 ms; in a process of its own."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    number, began = 0, time.monotonic()
    while not stop.value:
        for alias in _TARGETS:
            for partition in range(_PARTITIONS):
                producer.produce(_topic(alias), f"{number}".encode(), partition=partition)
        producer.poll(0)
        number += 1
        time.sleep(max(0.0, began + number * _EVERY_SECONDS - time.monotonic()))
    producer.flush()


def _watch(
    servers: dict[str, str], gaps: dict[str, Synchronized[float]], stop: Synchronized[int]
) -> None:
    """Notes the longest gap of each flow; in a process of its own, a thread for each flow."""
    threads = [
        threading.Thread(target=_watch_flow, args=(alias, servers[target], gaps[alias], stop))
        for alias, target in _TARGETS.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _watch_flow(
    alias: str, bootstrap: str, gap: Synchronized[float], stop: Synchronized[int]
) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "isolation",
                         "enable.auto.commit": False})  # fmt: skip
    topic = f"{alias}.{_topic(alias)}"
    consumer.assign([Assigned(topic, p, OFFSET_END) for p in range(_PARTITIONS)])
    last: dict[int, float] = {}
    while not stop.value:
        message = consumer.poll(0.02)
        now = time.monotonic()
        partition = None if message is None or message.error() else message.partition()
        if partition is not None:
            gap.value = max(gap.value, now - last.get(partition, now))
            last[partition] = now
        elif last:
            # Nothing comes: the gap grows while it lasts.
            gap.value = max(gap.value, now - min(last.values()))
    consumer.close()


class _Trial:
    def __init__(self, lab: Lab, seconds: float) -> None:
        self._lab, self._seconds = lab, seconds
        self._servers = {alias: lab[alias].bootstrap for alias in "ABC"}
        self._clients = {a: ClusterClient(ClientSettings(a, lab[a].client_properties()), "bench")
                         for a in "ABC"}  # fmt: skip
        self.mirror = Mirror(self._config())

    def _config(self, more: str = "") -> MirrorMakerConfig:
        values = {"clusters": "A1, A2, A3, B, C", "emit.heartbeats.enabled": "false"}
        values |= {f"{alias}.bootstrap.servers": self._servers["A"] for alias in _TARGETS}
        values |= {f"{alias}.bootstrap.servers": self._servers[alias] for alias in "BC"}
        for alias, target in _TARGETS.items():
            values[f"{alias}->{target}.enabled"] = "true"
            values[f"{alias}->{target}.topics"] = _topic(alias)
        values[f"{_VICTIM}->C.topics"] += more
        for kind in ("heliograph.ledger", "checkpoints", "heartbeats", "offset-syncs"):
            values[f"{kind}.topic.replication.factor"] = "1"
        values["replication.factor"] = "1"
        return MirrorMakerConfig.from_mapping(values)

    def run(self) -> Table:
        topics = [admin.NewTopic(_topic(alias), _PARTITIONS, 1, {}) for alias in _TARGETS]
        failed = admin.create_topics(self._clients["A"], topics, 60_000)
        if failed:
            raise LabError("bench.topics", f"topics cannot be created: {failed}")
        spawn = multiprocessing.get_context("spawn")
        gaps = {alias: spawn.Value("d", 0.0) for alias in _TARGETS}
        stop = spawn.Value("i", 0)
        load = spawn.Process(target=_produce, args=(self._servers["A"], stop), daemon=True)
        load.start()
        self.mirror.start()
        self._await(self._all_copy, "a flow copies nothing")
        watch = spawn.Process(target=_watch, args=(self._servers, gaps, stop), daemon=True)
        watch.start()
        self._await(lambda: all(gap.value for gap in gaps.values()), "the consumers get nothing")
        time.sleep(self._seconds)
        table = Table("done to A3->C", "A1->B ms", "A2->B ms", "A3->C ms",
                      title="longest gap between two records of a partition")  # fmt: skip
        for what, disturb in self._disturbances():
            for gap in gaps.values():
                gap.value = 0.0
            disturb(time.monotonic() + self._seconds)
            table.add_row(what, *(f"{1000 * gaps[alias].value:,.0f}" for alias in _TARGETS))
        stop.value = 1
        load.join()
        watch.join()
        return table

    def prove(self) -> list[str]:
        """Wait until all is copied, and compare it; a line for each flow."""
        self._await(self._caught_up, "the flows do not catch up")
        lines = []
        for alias, target in _TARGETS.items():
            there, name = self._clients[target], _topic(alias)
            proof = compare(self._clients["A"], there, name, f"{alias}.{name}")
            lines.append(f"{alias}->{target}: {proof.compared:,} records, {proof.lost} lost,"
                         f" {proof.twice} twice, {proof.reordered} out of order")  # fmt: skip
        return lines

    def close(self) -> None:
        self.mirror.close()
        for client in self._clients.values():
            client.close()

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise LabError("bench.slow", what)
            time.sleep(0.2)

    def _caught_up(self) -> bool:
        flows = self.mirror.snapshot().flows
        return all(f.lag_records == 0 for f in flows if COPYING in f.parts)

    def _all_copy(self) -> bool:
        copying = [f for f in self.mirror.snapshot().flows if f.records_total and not f.unmeasured]
        return {f"{a}->{target}" for a, target in _TARGETS.items()} <= {f.flow for f in copying}

    # -- what is done to the victim -----------------------------------------------------------

    def _disturbances(self) -> list[tuple[str, Callable[[float], None]]]:
        return [
            ("nothing", self._nothing),
            ("its claim is removed", self._lose_claim),
            ("a task is killed", self._kill_task),
            ("rounds fail: its tasks are killed again and again", self._kill_tasks),
            ("its target is stopped", self._stop_target),
            ("paused and resumed", self._pause),
            ("reconfigured each second", self._reconfigure),
        ]

    def _nothing(self, until: float) -> None:
        time.sleep(max(0.0, until - time.monotonic()))

    def _lose_claim(self, until: float) -> None:
        registry = Registry(LedgerFollower(self._clients["C"], ledger_topic(_VICTIM)))
        registry.refresh()
        registry.tell([], list(registry.claims.standing))
        self._nothing(until)

    def _holders(self) -> list[psutil.Process]:
        """Workers that copy for the victim now; workers are named after their flows."""
        found = []
        for process in psutil.Process().children(recursive=True):
            try:
                if process.name() == f"{_VICTIM}->C":
                    found.append(process)
            except psutil.Error:  # ended meanwhile
                continue
        return found

    def _kill_task(self, until: float) -> None:
        for process in self._holders()[:1]:
            process.kill()
        self._nothing(until)

    def _kill_tasks(self, until: float) -> None:
        while time.monotonic() < until:
            for process in self._holders():
                process.kill()
            time.sleep(0.1)

    def _stop_target(self, until: float) -> None:
        broker = self._lab["C"].broker(1)
        broker.suspend()
        self._nothing(until)
        broker.resume()

    def _pause(self, until: float) -> None:
        supervisor = self.mirror.supervisor(f"{_VICTIM}->C")
        while time.monotonic() < until:
            supervisor.pause()
            time.sleep(1.0)
            supervisor.resume()
            time.sleep(1.0)

    def _reconfigure(self, until: float) -> None:
        number = 0
        while time.monotonic() < until:
            number += 1
            self.mirror.reconfigure(self._config(f", other{number % 2}.*"))
            time.sleep(1.0)


@click.command()
@click.option("--seconds", default=15.0, show_default=True, help="How long each trial lasts.")
def main(seconds: float) -> None:
    """Measure what becomes of two flows while a third one has trouble."""
    console = Console(width=100)
    with (
        tempfile.TemporaryDirectory() as folder,
        Lab(Path(folder) / "lab", ("A", "B", "C"), brokers=1, jvm_flags=()) as lab,
    ):
        trial = _Trial(lab, seconds)
        try:
            console.print(trial.run())
            for line in trial.prove():
                console.print(line)
        finally:
            trial.close()


if __name__ == "__main__":
    main()
