"""How soon does a changed config of a connector take effect? ``python -m benchmarks.connect``.

A source connector mirrors one topic. Three more are there, each with a record. One after the other
is added to its config by PUT, and the time from that request to the topic's first record on the
target is measured: with the real Connect worker, and with ``heliograph connect``, on the same two
clusters, one after the other. Both have the defaults of their worker files and connectors.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from benchmarks.bench import QUIET, SOURCE, TARGET, Counter, MeasureError
from benchmarks.machine import commit
from heliograph.errors import LabError
from heliograph.lab import Lab
from heliograph.lab.connect_worker import ConnectWorker
from heliograph.model import TopicPartition

_FIRST = "first"
_PATIENCE_SECONDS = 300.0
_LOOK_SECONDS = 0.01
_ANSWER_SECONDS = 100.0
#: A rebalance of the real Connect; its clients ask again.
_BUSY = 409
_STOP_SECONDS = 60.0


@click.command()
@click.option("--trials", default=3, show_default=True, help="Topics that are added.")
def main(trials: int) -> None:
    """Measure the real Connect and ours."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(f"commit {commit()}; seconds from PUT of the config to the first record")
    with tempfile.TemporaryDirectory(prefix="heliograph-bench-") as work:
        lab = Lab(Path(work), heap="1g", jvm_flags=())
        try:
            lab.start()
            topics = [f"added-{n}" for n in range(trials)]
            _write(lab[SOURCE].bootstrap, [_FIRST, *topics])
            for label, alias, worker in (("Connect", "M", _real), ("Heliograph", "H", _ours)):
                with worker(lab, Path(work)) as url:
                    took = _measure(lab, url, alias, topics)
                shown = ", ".join(f"{seconds:.2f}" for seconds in took)
                console.print(f"{label}: {shown}; median {statistics.median(took):.2f} s")
        except (LabError, MeasureError) as error:
            raise click.ClickException(str(error)) from error
        finally:
            lab.stop(grace_s=0)


def _write(bootstrap: str, topics: Sequence[str]) -> None:
    """Topics of one partition, a record in each."""
    settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, **QUIET}
    # Kept: what it was asked for ends with it.
    admin = AdminClient(settings)
    for made in admin.create_topics([NewTopic(t, 1, 1) for t in topics]).values():
        made.result(_PATIENCE_SECONDS)
    producer = Producer(settings)
    for topic in topics:
        producer.produce(topic, b"a record")
    if producer.flush(_PATIENCE_SECONDS):
        raise MeasureError("records could not be written")


@contextmanager
def _real(lab: Lab, work: Path) -> Iterator[str]:
    worker = _described(lab, work, "real")
    worker.start()
    try:
        worker.wait_ready(_PATIENCE_SECONDS)
        yield worker.url
    finally:
        worker.stop(_STOP_SECONDS)


@contextmanager
def _ours(lab: Lab, work: Path) -> Iterator[str]:
    described = _described(lab, work, "ours")
    command = [sys.executable, "-m", "heliograph", "connect", str(described.properties_path)]
    output = work / "ours.log"
    with output.open("wb") as log:
        process = subprocess.Popen([*command, "-o", "plain"], stdout=log, stderr=log)
    try:
        _wait(lambda: described.health()[0] == 200 or process.poll() is not None, "a worker")
        if process.poll() is not None:
            raise MeasureError(output.read_text(encoding="utf-8", errors="replace"))
        yield described.url
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _described(lab: Lab, work: Path, name: str) -> ConnectWorker:
    settings = {"group.id": name} | {
        f"{kind}.storage.topic": f"{name}-{kind}" for kind in ("config", "offset", "status")
    }
    return ConnectWorker(
        lab[TARGET].client_properties(), work, settings, heap="1g", name=name, jvm_flags=()
    )


def _measure(lab: Lab, url: str, alias: str, topics: Sequence[str]) -> list[float]:
    """Seconds for each topic that is added to a connector whose source is called ``alias``."""
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": alias,
        "target.cluster.alias": TARGET,
        "source.cluster.bootstrap.servers": lab[SOURCE].bootstrap,
        "target.cluster.bootstrap.servers": lab[TARGET].bootstrap,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "heartbeats.replication.enabled": "false",
    }
    counter = Counter(lab[TARGET].bootstrap)

    def arrived(topic: str) -> bool:
        place = TopicPartition(f"{alias}.{topic}", 0)
        return counter.ends([place]).get(place, 0) > 0

    try:
        added, took = [_FIRST], []
        _put(url, config | {"topics": _FIRST})
        _wait(lambda: arrived(_FIRST), "the first topic")
        for topic in topics:
            added.append(topic)
            began = time.monotonic()
            _put(url, config | {"topics": ",".join(added)})
            _wait(lambda topic=topic: arrived(topic), topic)  # type: ignore[misc]
            took.append(time.monotonic() - began)
        return took
    finally:
        counter.close()


def _put(url: str, config: Mapping[str, str]) -> None:
    """The config of the connector; again and again while workers rebalance."""
    request = urllib.request.Request(
        f"{url}/connectors/mirror/config", json.dumps(config).encode(),
        {"Content-Type": "application/json"}, method="PUT",
    )  # fmt: skip

    def sent() -> bool:
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS):
                return True
        except urllib.error.HTTPError as error:
            if error.code == _BUSY:
                return False
            raise MeasureError(f"PUT: {error.code} {error.read().decode()}") from error

    _wait(sent, "an answer")


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise MeasureError(f"{what}: not within {_PATIENCE_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    main()
