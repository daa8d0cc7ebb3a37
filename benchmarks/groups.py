"""What does a cycle of checkpoints cost? ``python -m benchmarks.groups``; starts a lab of its own.

Groups of 10 partitions each, of 50 topics. Topics and ledger are as a mirror leaves them; the
cycles are those of the jobs of a running mirror, one process, the brokers beside it. For 125, 250
and 500 groups, seconds by the clock and of this process's CPU:

- idle: all groups are looked at, nothing has changed;
- checkpoints: every offset of every group has changed: all are translated and written;
- sync: every offset is committed on the target too, for groups that are not in use there;
- starts: the same by `heliograph offsets --execute`, without the source: the target is looked at,
  every offset is translated from its checkpoint, committed and read back.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from heliograph.batch.records import Record, build
from heliograph.config import FlowConfig, load
from heliograph.control.groups.checkpoints import CheckpointEmitter
from heliograph.control.groups.offset_sync import GroupOffsetSync
from heliograph.control.groups.starts import GroupStarts
from heliograph.control.groups.translated import GroupTranslation
from heliograph.control.topics.refresh import TopicPlan
from heliograph.lab import Lab
from heliograph.ledger.codec import Entry, Place
from heliograph.ledger.runs import Run
from heliograph.ledger.store import LedgerStore
from heliograph.mm2.checkpoints import CheckpointLog
from heliograph.model import ClientSettings, Flow, TopicPartition
from heliograph.policy import DefaultGroupFilter, DefaultReplicationPolicy
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.groups import Committed, GroupClient

_TOPICS, _PARTITIONS, _RECORDS = 50, 10, 100
_FLOW = Flow("A", "B")
_LEDGER, _CHECKPOINTS = "mm2-ledger.A.internal", "A.checkpoints.internal"
_COMPACTED = {"cleanup.policy": "compact"}
_ROUNDS = 3
_PATIENCE_SECONDS = 60.0


class _Bench:
    """A flow that has mirrored all there is, and its groups."""

    def __init__(self, lab: Lab, most: int) -> None:
        self._settings = {
            alias: ClientSettings(alias, lab[alias].client_properties()) for alias in "AB"
        }
        self._clients: list[ClusterClient] = []
        self.source, self.target = self.client("A"), self.client("B")
        self.topics = [f"topic-{n:02}" for n in range(_TOPICS)]
        self.groups = [f"group-{n:04}" for n in range(most)]
        self._committing = GroupClient(self.source)
        self._mirror()

    def client(self, alias: str) -> ClusterClient:
        """One for each job, as in the driver."""
        self._clients.append(ClusterClient(self._settings[alias], "bench"))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def _mirror(self) -> None:
        """Topics with the same records on both sides, and the ledger that says so."""
        here = [admin.NewTopic(t, _PARTITIONS, 1, {}) for t in self.topics]
        there = [admin.NewTopic(f"A.{t}", _PARTITIONS, 1, {}) for t in self.topics]
        there += [admin.NewTopic(t, 1, 1, _COMPACTED) for t in (_LEDGER, _CHECKPOINTS)]
        _require(not admin.create_topics(self.source, here, 60_000), "topics of A")
        _require(not admin.create_topics(self.target, there, 60_000), "topics of B")
        now = int(time.time() * 1000)
        batch = build([Record(n, now, b"%d" % n, b"%d" % n) for n in range(_RECORDS)])
        for topic in self.topics:
            for index in range(_PARTITIONS):
                log.append(self.target, TopicPartition(f"A.{topic}", index), batch)
        plan = self.plan()
        ledger = LedgerStore(self.target, _LEDGER)
        ledger.write(Entry(place, [Run(0, 0, 0)]) for place in _places(plan))

    def plan(self) -> TopicPlan:
        source = self.source.metadata(self.topics)
        target = self.target.metadata([f"A.{t}" for t in self.topics])
        wanted = [TopicPartition(t, i) for t in self.topics for i in range(_PARTITIONS)]
        return TopicPlan({p: f"A.{p.topic}" for p in wanted}, {}, source, target)

    def commit(self, groups: Sequence[str], offset: int) -> None:
        """Every group commits this offset for all partitions of one topic."""
        offsets = {
            group: {
                TopicPartition(self.topics[n % _TOPICS], i): Committed(offset)
                for i in range(_PARTITIONS)
            }
            for n, group in enumerate(groups)
        }
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            answers = self._committing.commit(offsets)
            codes = {code for found in answers.found.values() for code in found.values()}
            if not answers.errors and codes == {0}:
                return
            _require(time.monotonic() < deadline, "commits")
            time.sleep(0.2)

    def jobs(self, count: int) -> tuple[CheckpointEmitter, GroupOffsetSync]:
        """As of a mirror whose filter selects the first ``count`` groups."""
        plan = self.plan()
        target = self.client("B")
        translation = GroupTranslation(
            GroupClient(self.client("A")), target, LedgerStore(target, _LEDGER), lambda: plan,
            DefaultGroupFilter(["|".join(self.groups[:count])], []), 5.0,
        )  # fmt: skip
        emitter = CheckpointEmitter(
            _FLOW, translation, CheckpointLog(self.client("B"), _CHECKPOINTS), lambda: plan,
            DefaultReplicationPolicy(), young_seconds=0.0, prune_seconds=5.0,
        )  # fmt: skip
        return emitter, GroupOffsetSync(_FLOW, translation, GroupClient(self.client("B")), 0.0)

    def starting(self, count: int) -> Callable[[], object]:
        """What moves the first ``count`` groups to their checkpoints."""
        text = (
            "clusters = A, B\nA.bootstrap.servers = gone:1\nA->B.enabled = true\n"
            f"B.bootstrap.servers = {self.target.settings.bootstrap_servers}\n"
        )
        config = _flow_of(text)
        starts = GroupStarts(config, self.client("B"), named=self.groups[:count])

        def start() -> None:
            moved = starts.write(starts.look())
            written = {(m.written, m.reason) for m in moved.values()}
            _require(len(moved) == count and written == {(_PARTITIONS, "")}, f"starts: {written}")

        return start


def _flow_of(text: str) -> FlowConfig:
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.write(text)
        file.flush()
        return next(f for f in load(Path(file.name)).flows if f.flow == _FLOW)


def _places(plan: TopicPlan) -> list[Place]:
    if plan.source is None or plan.target is None:
        return []
    here, there = plan.source.topics, plan.target.topics
    return [
        Place(p.topic, p.partition, here[p.topic].topic_id, there[name].topic_id)
        for p, name in plan.partitions.items()
    ]


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise click.ClickException(f"{what}: did not work")


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def _median(before: Callable[[int], object], call: Callable[[], object]) -> tuple[float, float]:
    """Of some cycles, by the clock; ``before`` each one something happens."""
    times = []
    for n in range(_ROUNDS):
        before(n)
        times.append(_timed(call))
    return sorted(times)[_ROUNDS // 2]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--groups", "counts", default="125,250,500", show_default=True)
def main(counts: str) -> None:
    """Print what cycles cost, by the number of groups."""
    numbers = [int(n) for n in counts.split(",")]
    with tempfile.TemporaryDirectory() as folder, Lab(folder, jvm_flags=()) as lab:
        bench = _Bench(lab, max(numbers))
        bench.commit(bench.groups, 0)
        click.echo(f"{'groups':>8}{'offsets':>9}{'idle':>18}{'checkpoints':>18}{'sync':>18}"
                   f"{'starts':>18}")  # fmt: skip
        for step, count in enumerate(numbers):
            emitter, sync = bench.jobs(count)
            emitter.emit()
            sync.finish()
            start = 1 + step * 12

            def move(n: int, count: int = count, start: int = start) -> None:
                bench.commit(bench.groups[:count], start + n)

            def move_on(n: int, count: int = count, start: int = start) -> None:
                bench.commit(bench.groups[:count], start + 5 + n)

            idle = _median(lambda _: None, emitter.emit)
            emitted = _median(move, emitter.emit)
            synced = _median(move_on, sync.sync)
            said = set(emitter.details().values()) | set(sync.details().values())

            def move_further(
                n: int,
                count: int = count,
                start: int = start,
                emitter: CheckpointEmitter = emitter,
            ) -> None:
                bench.commit(bench.groups[:count], start + 8 + n)
                emitter.emit()

            started = _median(move_further, bench.starting(count))
            cells = [f"{w:.2f} s ({c:.2f} CPU)" for w, c in (idle, emitted, synced, started)]
            row = "".join(f"{cell:>18}" for cell in cells)
            click.echo(f"{count:>8}{count * _PARTITIONS:>9}{row}")
            _require(said == {f"{_PARTITIONS} partitions, up to date",
                              f"synced {_PARTITIONS} partitions"}, f"{said}")  # fmt: skip
        bench.close()


if __name__ == "__main__":
    main()
