"""How long does a failover take? ``python -m benchmarks.bad_day``.

Two new clusters, a topic of 20 partitions under load, a real mirror, 50 groups. When checkpoints
know the groups, the source is killed with kill -9 and ``heliograph failover`` is typed. RTO is its
own figure: from its beginning until the last group was moved. The wall time counts from the kill
to the end of the command, the start of Python included. Each group's offset on the target is
checked: the record there is the one that the group would have read next.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import click

from benchmarks.bench import MeasureError
from benchmarks.contenders import HeliographProcess
from benchmarks.machine import commit
from heliograph.batch.records import Record, build
from heliograph.lab import Lab
from heliograph.lab.proof import read_all
from heliograph.mm2.checkpoints import CheckpointLog
from heliograph.model import ClientSettings, TopicPartition
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.groups import Committed, GroupClient

TOPIC, PARTITIONS, GROUPS = "orders", 20, 50
_FIRST, _PER_BATCH = 1000, 100
_CHECKPOINTS = "A.checkpoints.internal"
_PATIENCE_SECONDS = 180.0
_RESULTS = Path(__file__).parent / "results" / "bad-day.md"


class _Pair:
    """Both clusters, as this benchmark talks to them."""

    def __init__(self, lab: Lab) -> None:
        self.source, self.target = (
            ClusterClient(ClientSettings(alias, lab[alias].client_properties()), "bad-day")
            for alias in ("A", "B")
        )
        self.written = 0

    def load(self, records: int) -> None:
        """Numbered records to every partition."""
        for _ in range(0, records, _PER_BATCH):
            now = int(time.time() * 1000)
            batch = [Record(0, now, None, b"%d" % (self.written + n)) for n in range(_PER_BATCH)]
            for index in range(PARTITIONS):
                log.append(self.source, TopicPartition(TOPIC, index), build(batch))
            self.written += _PER_BATCH

    def commit(self) -> dict[str, dict[TopicPartition, int]]:
        """Groups stand somewhere in the first records."""
        dice = random.Random(7)
        wanted = {
            f"group-{n:02}": {
                TopicPartition(TOPIC, i): dice.randrange(1, _FIRST) for i in range(PARTITIONS)
            }
            for n in range(GROUPS)
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

    def known(self, wanted: dict[str, dict[TopicPartition, int]]) -> bool:
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

    def wrong(self, wanted: dict[str, dict[TopicPartition, int]]) -> int:
        """How many groups are not at the record that they would have read next."""
        there = GroupClient(self.target).committed(list(wanted)).found
        wrong = 0
        for index in range(PARTITIONS):
            remote = TopicPartition(f"A.{TOPIC}", index)
            values = {r.offset: r.value for r in read_all(self.target, remote)}
            for group, offsets in wanted.items():
                at = there[group][remote].offset
                wrong += values.get(at) != b"%d" % offsets[TopicPartition(TOPIC, index)]
        return wrong


def _await(condition: Any, what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise MeasureError(f"{what}: not within {_PATIENCE_SECONDS:.0f} s")
        time.sleep(0.2)


def _once(folder: Path) -> dict[str, Any]:
    """One failover, measured."""
    with Lab(folder / "lab") as lab:
        pair = _Pair(lab)
        new = admin.NewTopic(TOPIC, PARTITIONS, 1, {})
        for error in admin.create_topics(pair.source, [new], 30_000).values():
            raise error
        path = folder / "mm2.properties"
        path.write_text(
            f"clusters = A, B\nA.bootstrap.servers = {lab['A'].bootstrap}\n"
            f"B.bootstrap.servers = {lab['B'].bootstrap}\nA->B.enabled = true\n"
            f"A->B.topics = {TOPIC}\nreplication.factor = 1\n"
            "offset-syncs.topic.replication.factor = 1\nheartbeats.topic.replication.factor = 1\n"
            "checkpoints.topic.replication.factor = 1\n"
        )
        mirror = HeliographProcess(path, folder)
        mirror.start()
        try:
            pair.load(_FIRST)
            wanted = pair.commit()
            _await(lambda: pair.known(wanted), "checkpoints know the groups")
            pair.load(5 * _FIRST)
            began = time.monotonic()
            for broker in lab["A"].brokers:
                broker.kill()
            done = subprocess.run(
                [sys.executable, "-m", "heliograph", "failover", str(path), "--to", "B", "--yes",
                 "-o", "json"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            wall = time.monotonic() - began
            if done.returncode:
                raise MeasureError(done.stderr)
            report = json.loads(done.stdout)
            return {
                "rto": report["rto_seconds"], "wall": wall, "steps": report["steps"],
                "wrong": pair.wrong(wanted), "groups": len(report["groups"]),
            }  # fmt: skip
        finally:
            mirror.stop()
            pair.source.close()
            pair.target.close()


def _table(found: list[dict[str, Any]]) -> str:
    steps = list(found[0]["steps"])
    lines = [
        "# Failover: how long it takes", "",
        f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, commit {commit()},"
        f" `python -m benchmarks.bad_day --runs {len(found)}`. {GROUPS} groups of {PARTITIONS}"
        " partitions, the source killed with kill -9, a mirror that runs. Seconds.", "",
        f"| run | RTO | {' | '.join(steps)} | from the kill to the command's end | wrong starts |",
        f"|---|{'---:|' * (len(steps) + 3)}",
    ]  # fmt: skip
    for number, run in enumerate(found, 1):
        cells = [f"{run['steps'][s]:.2f}" for s in steps]
        lines.append(
            f"| {number} | {run['rto']:.2f} | {' | '.join(cells)} | {run['wall']:.2f}"
            f" | {run['wrong']} |"
        )
    lines += ["", f"Median RTO: {median(run['rto'] for run in found):.2f} s"]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1, 20))
@click.option("--output", is_flag=True, help=f"Write {_RESULTS.name}, too.")
def main(runs: int, output: bool) -> None:
    """Measure failovers, one after the other, each on new clusters."""
    found = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            found.append(_once(Path(folder)))
        click.echo(json.dumps(found[-1]), err=True)
    table = _table(found)
    click.echo(table)
    if output:
        _RESULTS.write_text(table, "utf-8")


if __name__ == "__main__":
    main()
