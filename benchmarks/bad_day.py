"""How long does a failover take, and is what it says true? ``python -m benchmarks.bad_day``.

Two new clusters, a topic of 20 partitions, a producer that writes to all of them until its brokers
are gone, a real mirror, 50 groups. When checkpoints know the groups, the source is killed with kill
-9 and ``heliograph failover`` is typed. RTO is its own figure: from its beginning until the last
group was moved. The wall time counts from the kill to the end of the command, the start of Python
included. In every other run the mirror is stopped until the source has 300 more records of every
partition, and goes on when that is killed: there is something to lose for certain.

Then it is checked:

- Each group's offset on the target: the record there is the one that it would have read next.
- The source is started again. What its logs have beyond the target's is compared, partition by
  partition, with what the repeated command says that was lost; the first report, without a source,
  may know less, and must say so.

Exits with 1 if a check fails, or a failover took longer than 10 s.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click

from benchmarks.bench import MeasureError
from benchmarks.contenders import HeliographProcess
from benchmarks.footprint import tree
from benchmarks.machine import commit
from heliograph.batch.records import Record, build
from heliograph.errors import WireError
from heliograph.lab import Lab
from heliograph.lab.proof import read_all
from heliograph.mm2.checkpoints import CheckpointLog
from heliograph.model import ClientSettings, TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.groups import Committed, GroupClient
from heliograph.wire.produce import Producer

TOPIC = "orders"
#: Groups stand among the first records. The producer writes a batch to every partition, and pauses.
_FIRST, _PER_BATCH, _PAUSE_SECONDS = 1000, 100, 0.1
_CHECKPOINTS = "A.checkpoints.internal"
_PATIENCE_SECONDS = 180.0
#: More than the source has answered to fetches that waited: a mirror that goes on copies that.
_TAIL = 300
_LONGEST_SECONDS = 10.0
_RESULTS = Path(__file__).parent / "results" / "bad-day.md"

_Places = Mapping[str, Mapping[TopicPartition, int]]


class _Producer(threading.Thread):
    """Numbered records to every partition, until their broker is gone: it never comes back."""

    def __init__(self, settings: ClientSettings, partitions: int) -> None:
        super().__init__(daemon=True)
        self._client = ClusterClient(settings, "bad-day-producer", request_timeout=5.0)
        self._partitions = partitions
        self._stopping = threading.Event()
        self.written = 0

    def run(self) -> None:
        """Write."""
        metadata = self._client.metadata([TOPIC])
        connection = self._client.open(metadata.leader(TOPIC, 0))
        producer = Producer(connection, {TOPIC: metadata.topics[TOPIC].topic_id})
        with suppress(WireError):
            while not self._stopping.wait(_PAUSE_SECONDS):
                self._write(producer)
        connection.close()

    def _write(self, producer: Producer) -> None:
        now = int(time.time() * 1000)
        batch = build([Record(0, now, None, b"%d" % (self.written + n)) for n in range(_PER_BATCH)])
        left = {TopicPartition(TOPIC, index) for index in range(self._partitions)}
        # A young topic may refuse until its leader has heard of it.
        while left:
            answers = producer.call([(p, batch) for p in sorted(left)], 30.0)
            left = {a.partition for a in answers if a.error}
        self.written += _PER_BATCH

    def stop(self) -> None:
        """Returns when nothing is written any more."""
        self._stopping.set()
        self.join()
        self._client.close()


class _Pair:
    """Both clusters, as this benchmark talks to them."""

    def __init__(self, lab: Lab, groups: int, partitions: int) -> None:
        self._groups, self._partitions = groups, partitions
        self.settings = {
            alias: ClientSettings(alias, lab[alias].client_properties()) for alias in ("A", "B")
        }
        self.source, self.target = (ClusterClient(s, "bad-day") for s in self.settings.values())

    def close(self) -> None:
        """Close what was opened."""
        self.source.close()
        self.target.close()

    def commit(self) -> _Places:
        """Groups stand somewhere in the first records."""
        dice = random.Random(7)
        wanted = {
            f"group-{n:02}": {
                TopicPartition(TOPIC, i): dice.randrange(1, _FIRST) for i in range(self._partitions)
            }
            for n in range(self._groups)
        }
        left = {g: {p: Committed(o) for p, o in offsets.items()} for g, offsets in wanted.items()}
        groups = GroupClient(self.source)

        def done() -> bool:
            for group, codes in groups.commit(left).found.items():
                if not any(codes.values()):
                    left.pop(group)
            return not left

        _await(done, "groups have committed")
        return wanted

    def known(self, wanted: _Places) -> bool:
        """Whether the checkpoints on the target know all groups."""
        if _CHECKPOINTS not in self.target.metadata().topics:
            return False
        checkpoints = CheckpointLog(self.target, _CHECKPOINTS)
        checkpoints.refresh()
        return all(
            (found := checkpoints.known.get((group, f"A.{p.topic}", p.partition))) is not None
            and found.upstream == offset
            for group, offsets in wanted.items()
            for p, offset in offsets.items()
        )

    def wrong(self, wanted: _Places) -> int:
        """How many partitions of groups do not go on at the record that was next."""
        there = GroupClient(self.target).committed(list(wanted)).found
        wrong = 0
        for index in range(self._partitions):
            remote = TopicPartition(f"A.{TOPIC}", index)
            values = {r.offset: r.value for r in read_all(self.target, remote)}
            for group, offsets in wanted.items():
                at = there.get(group, {}).get(remote, Committed(-1)).offset
                wrong += values.get(at) != b"%d" % offsets[TopicPartition(TOPIC, index)]
        return wrong

    def on_disk(self) -> dict[str, int]:
        """What the source's logs have beyond the target's, by partition; offsets are the same."""
        here, there = _ends(self.source, TOPIC), _ends(self.target, f"A.{TOPIC}")
        return {f"{TOPIC}-{p}": n for p in here if (n := here[p] - there[p])}


def _ends(client: ClusterClient, topic: str) -> dict[int, int]:
    """Where partitions end; connections to brokers that were killed are made anew."""
    return client.retry(lambda: _ends_now(client, topic), _PATIENCE_SECONDS)


def _ends_now(client: ClusterClient, topic: str) -> dict[int, int]:
    metadata = client.metadata([topic])
    partitions = [TopicPartition(topic, i) for i in metadata.topics[topic].partitions]
    found = admin.list_offsets(client, metadata, partitions, admin.LATEST)
    return {p.partition: end for p, end in found.items()}


def _await(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise MeasureError(f"{what}: not within {_PATIENCE_SECONDS:.0f} s")
        time.sleep(0.2)


@dataclass(frozen=True, slots=True)
class _Run:
    """One failover. ``first`` and ``exact`` are records that were reported as lost.

    ``behind``: the mirror was stopped for a while before the source was killed.
    """

    behind: bool
    rto: float
    wall: float
    steps: Mapping[str, float]
    wrong: int
    unmoved: int
    first: int | None
    exact: int | None
    disk: int
    problems: tuple[str, ...]


def _fail_over(path: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "heliograph", "failover", str(path), "--to", "B", "--yes", "-o",
         "json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not done.stdout:
        raise MeasureError(done.stderr)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _kill(
    lab: Lab, pair: _Pair, mirror: HeliographProcess, partitions: int, *, behind: bool
) -> float:
    """Kill the source under load; returns when, by `time.monotonic`."""

    def ahead() -> bool:
        lead = pair.on_disk()
        return len(lead) == partitions and min(lead.values()) >= _TAIL

    try:
        if behind:
            _signal(mirror, signal.SIGSTOP)
            _await(ahead, "the source is ahead")
        began = time.monotonic()
        for broker in lab["A"].brokers:
            broker.kill()
    finally:
        if behind:
            _signal(mirror, signal.SIGCONT)
    return began


def _signal(mirror: HeliographProcess, number: signal.Signals) -> None:
    for pid in tree(mirror.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _once(folder: Path, groups: int, partitions: int, *, behind: bool) -> _Run:
    """One failover, measured and checked."""
    with Lab(folder / "lab") as lab:
        pair = _Pair(lab, groups, partitions)
        new = admin.NewTopic(TOPIC, partitions, 1, {})
        for error in admin.create_topics(pair.source, [new], 30_000).values():
            raise error
        _await(lambda: len(_ends(pair.source, TOPIC)) == partitions, "the topic is served")
        mirror = HeliographProcess(_configured(folder, lab), folder)
        producer = _Producer(pair.settings["A"], partitions)
        producer.start()
        mirror.start()
        try:
            _await(lambda: producer.written >= _FIRST, "the first records are written")
            wanted = pair.commit()
            _await(lambda: pair.known(wanted), "checkpoints know the groups")
            if not producer.is_alive():
                raise MeasureError("the producer has ended before the source did")
            began = _kill(lab, pair, mirror, partitions, behind=behind)
            report = _fail_over(folder / "mm2.properties")
            wall = time.monotonic() - began
            wrong = pair.wrong(wanted)
            producer.join(_PATIENCE_SECONDS)
            lab["A"].start_brokers()
            lab["A"].wait_ready()
            _await(lambda: len(_ends(pair.source, TOPIC)) == partitions, "the source is back")
            disk = pair.on_disk()
            again = _fail_over(folder / "mm2.properties")
            return _judged(report, again, disk, wrong, wall, behind=behind)
        finally:
            producer.stop()
            mirror.stop()
            pair.close()


def _configured(folder: Path, lab: Lab) -> Path:
    path = folder / "mm2.properties"
    path.write_text(
        f"clusters = A, B\nA.bootstrap.servers = {lab['A'].bootstrap}\n"
        f"B.bootstrap.servers = {lab['B'].bootstrap}\nA->B.enabled = true\n"
        f"A->B.topics = {TOPIC}\nreplication.factor = 1\n"
        "offset-syncs.topic.replication.factor = 1\nheartbeats.topic.replication.factor = 1\n"
        "checkpoints.topic.replication.factor = 1\n"
    )
    return path


def _judged(
    report: dict[str, Any], again: dict[str, Any], disk: dict[str, int], wrong: int, wall: float,
    *, behind: bool,
) -> _Run:  # fmt: skip
    def lost(told: dict[str, Any]) -> dict[str, int]:
        return {p["partition"]: p["records"] for p in told["rpo"]["partitions"]}

    unmoved = sum(not group["moved"] for group in report["groups"])
    problems = []
    if wall > _LONGEST_SECONDS:
        problems.append(f"it took {wall:.1f} s from the kill to the command's end")
    if unmoved or wrong:
        problems.append(f"{unmoved} groups not moved, {wrong} wrong starts")
    if not again["rpo"]["exact"] or lost(again) != disk:
        problems.append(f"lost by the report: {lost(again)}; on the source's disk: {disk}")
    if report["rpo"]["exact"]:
        problems.append("the first report calls itself exact, without a source")
    if any(records > disk.get(p, 0) for p, records in lost(report).items()):
        problems.append(f"the first report names {lost(report)}, the disk has {disk}")
    return _Run(
        behind, report["rto_seconds"], wall, report["steps"], wrong, unmoved,
        report["rpo"]["records"], again["rpo"]["records"], sum(disk.values()), tuple(problems),
    )  # fmt: skip


def _table(found: list[_Run], groups: int, partitions: int) -> str:
    steps = list(found[0].steps)
    lines = [
        "# Failover: how long it takes, and what is lost", "",
        f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, commit {commit()},"
        f" `python -m benchmarks.bad_day --runs {len(found)} --groups {groups} --partitions"
        f" {partitions}`. A producer writes {_PER_BATCH / _PAUSE_SECONDS:,.0f} records a second to"
        " each partition, if the machine lets it, until the source is killed with kill -9; a mirror"
        " runs. Seconds.", "",
        f"| run | RTO | {' | '.join(steps)} | from the kill to the command's end | wrong starts |",
        f"|---|{'---:|' * (len(steps) + 3)}",
    ]  # fmt: skip
    for number, run in enumerate(found, 1):
        cells = [f"{run.steps[s]:.2f}" for s in steps]
        lines.append(
            f"| {number} | {run.rto:.2f} | {' | '.join(cells)} | {run.wall:.2f} | {run.wrong} |"
        )
    lines += [
        "", "Records lost, of a mirror that ran on, or was stopped until the source was"
        f" {_TAIL} records ahead in every partition: what the first report knew without the source"
        " (and said that there may be more), what the repeated command says when the source is"
        " back, and what the source's disk has beyond the target.", "",
        "| run | mirror | first report | repeated, exact | on the disk |",
        "|---|---|---:|---:|---:|",
    ]  # fmt: skip
    for number, run in enumerate(found, 1):
        first = "not known" if run.first is None else f"{run.first:,}"
        mirror = "stopped before" if run.behind else "ran on"
        lines.append(f"| {number} | {mirror} | {first} | {run.exact:,} | {run.disk:,} |")
    problems = [f"run {n}: {text}" for n, run in enumerate(found, 1) for text in run.problems]
    lines += ["", f"Median RTO: {median(run.rto for run in found):.2f} s", ""]
    lines += [f"- Failed: {text}" for text in problems] or ["All checks passed."]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--runs", default=4, show_default=True, type=click.IntRange(1, 20))
@click.option("--groups", default=50, show_default=True, type=click.IntRange(1, 1000))
@click.option("--partitions", default=20, show_default=True, type=click.IntRange(1, 1000))
@click.option("--output", is_flag=True, help=f"Write {_RESULTS.name}, too.")
def main(runs: int, groups: int, partitions: int, output: bool) -> None:
    """Measure failovers, one after the other, each on new clusters."""
    found = []
    for number in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            run = _once(Path(folder), groups, partitions, behind=number % 2 == 1)
        found.append(run)
        click.echo(f"{run}", err=True)
    table = _table(found, groups, partitions)
    click.echo(table)
    if output:
        _RESULTS.write_text(table, "utf-8")
    sys.exit(1 if any(run.problems for run in found) else 0)


if __name__ == "__main__":
    main()
