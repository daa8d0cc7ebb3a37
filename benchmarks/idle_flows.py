"""What do idle flows cost? ``python -m benchmarks.idle_flows --flows 1,5,20``; starts a lab.

N flows into one cluster, each with a topic of its own. Their sources are aliases of one cluster.
When all have copied their topic, and a while later, for the whole tree of processes (driver, JVM,
workers):

- threads: of the driver, which runs the jobs, and of all processes;
- connections: to both clusters, of the driver and of all processes;
- memory: the sum of PSS;
- CPU: percent of one core over the time of idling.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import click
import psutil

from benchmarks.contenders import HeliographProcess
from benchmarks.footprint import Footprint, tree
from heliograph.batch.records import Record, build
from heliograph.errors import LabError
from heliograph.lab import Lab
from heliograph.model import ClientSettings, TopicPartition
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient

_PARTITIONS = 3
_START_SECONDS = 600.0
_SETTLE_SECONDS = 70.0
_POLL_SECONDS = 0.5


class _Figures(NamedTuple):
    """One row."""

    flows: int
    driver_threads: int
    threads: int
    driver_connections: int
    connections: int
    processes: int
    memory_mb: float
    driver_mb: float
    cpu_percent: float
    driver_cpu_percent: float


def _properties(lab: Lab, flows: int) -> str:
    aliases = [f"A{n}" for n in range(flows)]
    lines = [f"clusters = {', '.join([*aliases, 'B'])}"]
    source, target = (
        "\n".join(f"{{alias}}.{key} = {value}" for key, value in lab[x].client_properties().items())
        for x in "AB"
    )
    lines += [source.format(alias=alias) for alias in aliases]
    lines.append(target.format(alias="B"))
    # As in MM2, every pair of clusters emits heartbeats: of the flows that are measured only.
    lines.append("emit.heartbeats.enabled = false")
    for n, alias in enumerate(aliases):
        lines += [f"{alias}->B.enabled = true", f"{alias}->B.topics = idle-{flows}-{n}"]
        lines.append(f"{alias}->B.emit.heartbeats.enabled = true")
    lines += ["replication.factor = 1", "heliograph.ledger.topic.replication.factor = 1"]
    lines += [f"{kind}.topic.replication.factor = 1"
              for kind in ("checkpoints", "heartbeats", "offset-syncs")]  # fmt: skip
    return "\n".join(lines) + "\n"


def _fill(source: ClusterClient, flows: int) -> None:
    """One record to each partition of each flow's topic."""
    topics = [admin.NewTopic(f"idle-{flows}-{n}", _PARTITIONS, 1, {}) for n in range(flows)]
    failed = admin.create_topics(source, topics, 60_000)
    if failed:
        raise LabError("bench.topics", f"topics cannot be created: {failed}")
    batch = build([Record(0, int(time.time() * 1000), b"k", b"v")])
    for topic in topics:
        for index in range(_PARTITIONS):
            log.append(source, TopicPartition(topic.name, index), batch)


def _await_copies(target: ClusterClient, mirror: HeliographProcess, flows: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    missing = {
        TopicPartition(f"A{n}.idle-{flows}-{n}", i)
        for n in range(flows) for i in range(_PARTITIONS)
    }  # fmt: skip
    while missing:
        mirror.require_running()
        if time.monotonic() > deadline:
            raise LabError("bench.slow", f"{len(missing)} partition(s) were not copied")
        time.sleep(_POLL_SECONDS)
        metadata = target.metadata(sorted({p.topic for p in missing}))
        ends = admin.list_offsets(target, metadata, missing, admin.LATEST)
        missing -= {p for p, end in ends.items() if end}


def _count(root: int, ports: set[int]) -> tuple[dict[int, int], dict[int, int]]:
    """Threads and connections to the clusters, by process."""
    threads, connections = {}, {}
    for pid in tree(root):
        try:
            process = psutil.Process(pid)
            threads[pid] = process.num_threads()
            connections[pid] = sum(
                c.status == psutil.CONN_ESTABLISHED and c.raddr.port in ports
                for c in process.net_connections("tcp") if c.raddr
            )  # fmt: skip
        except psutil.Error:  # ended meanwhile
            continue
    return threads, connections


def _measure(lab: Lab, folder: Path, flows: int, idle_s: float, checkout: Path | None) -> _Figures:
    settings = {a: ClientSettings(a, lab[a].client_properties()) for a in "AB"}
    with (
        ClusterClient(settings["A"], "bench") as source,
        ClusterClient(settings["B"], "bench") as target,
    ):
        _fill(source, flows)
        ports = {int(lab[a].bootstrap.rpartition(":")[2]) for a in "AB"}
        path = folder / f"idle-{flows}.properties"
        path.write_text(_properties(lab, flows))
        mirror = HeliographProcess(path, folder, checkout)
        mirror.start()
        try:
            _await_copies(target, mirror, flows)
            with Footprint(mirror.pid) as footprint:
                time.sleep(_SETTLE_SECONDS)
                driver = psutil.Process(mirror.pid)
                began, cpu_s = time.monotonic(), footprint.cpu_seconds()
                own_s = sum(driver.cpu_times()[:2])
                time.sleep(idle_s)
                took_s = time.monotonic() - began
                cpu_s, own_s = footprint.cpu_seconds() - cpu_s, sum(driver.cpu_times()[:2]) - own_s
                memory = footprint.memory_mb
            mirror.require_running()
            threads, connections = _count(mirror.pid, ports)
            return _Figures(
                flows, threads[mirror.pid], sum(threads.values()), connections[mirror.pid],
                sum(connections.values()), len(threads), memory,
                driver.memory_full_info().pss / 1e6, 100 * cpu_s / took_s, 100 * own_s / took_s,
            )  # fmt: skip
        finally:
            mirror.stop(30.0)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--flows", default="1,5,20", show_default=True, help="How many, one run for each.")
@click.option("--seconds", default=60.0, show_default=True, help="How long to idle.")
@click.option("--checkout", type=click.Path(exists=True, path_type=Path),
              help="Another working tree to measure instead.")  # fmt: skip
def main(flows: str, seconds: float, checkout: Path | None) -> None:
    """Print threads, connections, memory and CPU of idle flows."""
    click.echo("flows  threads: driver  all  connections: driver  all  processes"
               "  MB: driver   all  % of a core: driver   all")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder) / "lab", ["A", "B"]) as lab:
        for count in map(int, flows.split(",")):
            f = _measure(lab, Path(folder), count, seconds, checkout)
            click.echo(
                f"{f.flows:5}  {f.driver_threads:15}  {f.threads:3}  {f.driver_connections:19}"
                f"  {f.connections:3}  {f.processes:9}  {f.driver_mb:10.0f}  {f.memory_mb:4.0f}"
                f"  {f.driver_cpu_percent:19.1f}  {f.cpu_percent:4.1f}"
            )


if __name__ == "__main__":
    main()
