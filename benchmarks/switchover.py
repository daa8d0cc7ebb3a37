"""What does a planned change of direction cost? ``python -m benchmarks.switchover``.

For each way, on two new clusters: a producer numbers its records in every partition, a consumer
group reads them and commits what it has read. Both move from A to B and home again by the steps
that the way documents; nobody hesitates between two steps. At the end every number is looked for:
was it read, was it read once, and was it read in order?

MirrorMaker 2 has no command for this. Its vendors describe two ways by hand. *Cutoff*: producers
stop, consumers read the source to its end, and the group is put at the end of the mirrored topic.
*Continuous*: the consumers leave, their offsets are waited for on the target, and producers follow.
Both are tried with ``DefaultReplicationPolicy`` and both flows enabled: MM2 has no way back under
the same topic names.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console

from benchmarks.bench import QUIET, SOURCE, TARGET, Bench, MeasureError
from benchmarks.contenders import CONTENDERS, Mirror, Situation
from benchmarks.machine import commit
from heliograph import model
from heliograph.lab import Lab

TOPIC, PARTITIONS, GROUP = "orders", 6, "billing"
_RECORDS_PER_SECOND = 600
_BETWEEN_SECONDS = 20.0
_PATIENCE_SECONDS = 180.0
#: A group that is given nothing for this long is at the end.
_QUIET_SECONDS = 15.0
_INTERVALS = (
    "emit.checkpoints.interval.seconds",
    "sync.group.offsets.interval.seconds",
    "refresh.groups.interval.seconds",
    "refresh.topics.interval.seconds",
)
_RESULTS = Path(__file__).parent / "results" / "switchover.md"


class _Writer(threading.Thread):
    """Numbers the records of each partition and writes each until it is acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._servers: str | None = bootstrap
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._acknowledged = time.monotonic()
        self.written: Counter[int] = Counter()
        #: The longest time without an acknowledged record, since it was reset.
        self.pause = 0.0
        self.error: BaseException | None = None

    def hold(self) -> None:
        """Returns when all that was written is acknowledged."""
        with self._lock:
            self._servers = None

    def go(self, bootstrap: str) -> None:
        """Goes on at a cluster."""
        with self._lock:
            self._servers = bootstrap

    def stop(self) -> None:
        """Returns when the last record is acknowledged."""
        self._stopping.set()
        self.join(_PATIENCE_SECONDS)

    def run(self) -> None:
        """Until ``stop``."""
        at, producer = None, None
        try:
            while not self._stopping.wait(PARTITIONS / _RECORDS_PER_SECOND):
                with self._lock:
                    if self._servers is None:
                        continue
                    if self._servers != at:
                        at = self._servers
                        producer = Producer({"bootstrap.servers": at, **QUIET, "acks": "all"})
                    assert producer is not None
                    self._write(producer)
        except BaseException as error:  # noqa: BLE001 - told by whoever waits
            self.error = error

    def _write(self, producer: Producer) -> None:
        for index in range(PARTITIONS):
            producer.produce(TOPIC, b"%d" % self.written[index], partition=index)
        if producer.flush(_PATIENCE_SECONDS):
            raise MeasureError("records were not acknowledged")
        self.written.update(range(PARTITIONS))
        now = time.monotonic()
        self.pause = max(self.pause, now - self._acknowledged)
        self._acknowledged = now


class _Reader(threading.Thread):
    """The only member of the group: keeps the numbers it is given, commits before it asks again."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self._wanted: tuple[str, Sequence[str]] | None = (bootstrap, topics)
        self._left = threading.Event()
        self._stopping = threading.Event()
        self.given = time.monotonic()
        self.numbers: dict[int, list[int]] = defaultdict(list)
        #: The longest time without a record, since it was reset.
        self.pause = 0.0
        self.error: BaseException | None = None

    def leave(self) -> None:
        """Returns when it has left the group."""
        self._left.clear()
        self._wanted = None
        if not self._left.wait(_PATIENCE_SECONDS):
            raise MeasureError("the consumer did not leave")

    def go(self, bootstrap: str, topics: Sequence[str]) -> None:
        """Joins the group at a cluster; it has left before."""
        self._wanted = (bootstrap, topics)

    def stop(self) -> None:
        """Leaves, and ends."""
        self._stopping.set()
        self.join(_PATIENCE_SECONDS)

    def run(self) -> None:
        """Until ``stop``."""
        try:
            while not self._stopping.is_set():
                if (here := self._wanted) is None:
                    self._stopping.wait(0.01)
                    continue
                consumer = Consumer({
                    "bootstrap.servers": here[0], **QUIET, "group.id": GROUP,
                    "enable.auto.commit": False, "auto.offset.reset": "earliest",
                    "topic.metadata.refresh.interval.ms": 1000,
                })  # fmt: skip
                consumer.subscribe(list(here[1]))
                while self._wanted is here and not self._stopping.is_set():
                    self._take(consumer)
                consumer.close()
                self._left.set()
        except BaseException as error:  # noqa: BLE001 - told by whoever waits
            self.error = error

    def _take(self, consumer: Consumer) -> None:
        messages = [m for m in consumer.consume(500, 0.1) if not m.error()]
        for message in messages:
            partition, value = message.partition(), message.value()
            assert partition is not None
            assert value is not None
            self.numbers[partition].append(int(value))
        if messages:
            consumer.commit(asynchronous=False)
            now = time.monotonic()
            self.pause = max(self.pause, now - self.given)
            self.given = now


@dataclass(slots=True)
class _Day:
    """Both clusters, the mirror and the clients of one way."""

    bench: Bench
    path: Path
    mirror: Mirror
    writer: _Writer
    reader: _Reader

    def servers(self, alias: str) -> str:
        return self.bench.lab[alias].bootstrap

    def ends(self, alias: str, topic: str) -> dict[int, int]:
        wanted = [model.TopicPartition(topic, i) for i in range(PARTITIONS)]
        return {p.partition: n for p, n in self.bench.counters[alias].ends(wanted).items()}

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Raises MeasureError if it never comes true, or if somebody ends."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not done():
            self.mirror.require_running()
            if error := self.writer.error or self.reader.error:
                raise MeasureError(f"a client failed: {error}")
            if time.monotonic() > deadline:
                raise MeasureError(f"{what}: not within {_PATIENCE_SECONDS:.0f} s")
            time.sleep(0.05)

    def in_step(self, copy: str) -> bool:
        """Whether the target has all but the records of the last second, which is not all."""
        there = self.ends(TARGET, copy)
        lag = sum(self.ends(SOURCE, TOPIC).values()) - sum(there.values())
        return min(there.values(), default=0) > 0 and lag < _RECORDS_PER_SECOND

    def copied(self, here: str, there: str) -> bool:
        """Whether the prefixed copy ends where the topic itself ends."""
        return len(ends := self.ends(here, TOPIC)) == PARTITIONS and ends == self.ends(
            there, f"{here}.{TOPIC}"
        )

    def read_to_the_end(self) -> bool:
        return all(
            max(self.reader.numbers[i], default=-1) + 1 == n for i, n in self.writer.written.items()
        )


_Switch = Callable[[_Day, str, str], None]


def _by_command(day: _Day, here: str, there: str) -> None:
    """One command; producers and clients do what its lines ask for."""
    moved, said = False, []
    with subprocess.Popen(
        [sys.executable, "-m", "heliograph", "switchover", str(day.path), "--to", there, "--yes"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as command:  # fmt: skip
        assert command.stderr is not None
        for line in command.stderr:
            said.append(line)
            if f"waiting until nothing is written to {here}" in line:
                day.writer.hold()
            elif f"clients can go on at {there}" in line:
                day.reader.leave()
                day.reader.go(day.servers(there), [TOPIC])
                day.writer.go(day.servers(there))
                moved = True
    if command.returncode or not moved:
        raise MeasureError("".join(said))


def _with_cutoff(day: _Day, here: str, there: str) -> None:
    """MM2 by hand: nothing is on the way any more when the group is put at the end."""
    remote = f"{here}.{TOPIC}"
    day.writer.hold()
    day.wait(lambda: day.copied(here, there), "the copy is complete")
    day.wait(day.read_to_the_end, "the group has read the source to its end")
    day.reader.leave()
    # As kafka-consumer-groups.sh --reset-offsets --to-latest does.
    consumer = Consumer({"bootstrap.servers": day.servers(there), **QUIET, "group.id": GROUP})
    ends = [TopicPartition(remote, i, n) for i, n in day.ends(there, remote).items()]
    consumer.commit(offsets=ends, asynchronous=False)
    consumer.close()
    day.reader.go(day.servers(there), [TOPIC, remote])
    day.writer.go(day.servers(there))


def _continuously(interval: float) -> _Switch:
    def switch(day: _Day, here: str, there: str) -> None:
        """MM2 by hand: the consumers' offsets are synced, nothing else is waited for."""
        day.reader.leave()
        # A checkpoint, then its sync: two intervals at most, and no signal that they are through.
        time.sleep(2 * interval + 2)
        day.reader.go(day.servers(there), [TOPIC, f"{here}.{TOPIC}"])
        day.writer.go(day.servers(there))

    return switch


@dataclass(frozen=True, slots=True)
class _Way:
    label: str
    contender: str
    by_hand: tuple[str, ...]
    extra: dict[str, str]
    switch: _Switch


def _mm2(label: str, by_hand: tuple[str, ...], interval: int, switch: _Switch) -> _Way:
    keys = {key: str(interval) for key in _INTERVALS} if interval != 60 else {}
    return _Way(label, "mm2", by_hand, {"sync.group.offsets.enabled": "true", **keys}, switch)


#: What the operator does. What a way does by itself is no step by hand.
_STEPS = ("run the command", "hold the producers when it waits for that",
          "restart the consumers at the other cluster when it says so",
          "let the producers go on there")  # fmt: skip
_CUTOFF = ("hold the producers", "watch until the copy ends where the topic ends",
           "watch until the group has read the source to its end", "stop the consumers",
           "put the group at the end of the mirrored topic",
           "start the consumers at the other cluster, with both topics",
           "let the producers go on there")  # fmt: skip
_CONTINUOUS = ("stop the consumers", "wait two intervals of checkpoints and syncs",
               "start the consumers at the other cluster, with both topics",
               "move the producers there")  # fmt: skip

_WAYS = {
    "heliograph": _Way(
        "`heliograph switchover`", "heliograph", _STEPS, {
            "replication.policy.class": "IdentityReplicationPolicy",
            f"{TARGET}->{SOURCE}.heliograph.standby": "true",
        }, _by_command,
    ),
    "mm2-cutoff": _mm2("MM2, cutoff, intervals of 1 s", _CUTOFF, 1, _with_cutoff),
    "mm2-continuous": _mm2("MM2, continuous, intervals of 1 s", _CONTINUOUS, 1, _continuously(1.0)),
    "mm2-continuous-defaults": _mm2(
        "MM2, continuous, its defaults", _CONTINUOUS, 60, _continuously(60.0)
    ),
}  # fmt: skip


@dataclass(slots=True)
class _Outcome:
    """What became of all records, and how long clients had to wait at each change."""

    written: int = 0
    lost: int = 0
    repeated: int = 0
    disordered: int = 0
    producers: list[float] = field(default_factory=list)
    consumers: list[float] = field(default_factory=list)

    def count(self, written: Counter[int], numbers: dict[int, list[int]]) -> None:
        for index, total in written.items():
            read = numbers[index]
            self.written += total
            self.lost += total - len(set(read))
            self.repeated += len(read) - len(set(read))
            furthest, seen = -1, set()
            for number in read:
                self.disordered += number < furthest and number not in seen
                furthest = max(furthest, number)
                seen.add(number)


def _measure(way: _Way, folder: Path, console: Console) -> _Outcome:
    lab = Lab(folder, jvm_flags=())
    lab.start()
    try:
        return _on_lab(way, lab, Bench(lab, console))
    finally:
        lab.stop(grace_s=0)


def _on_lab(way: _Way, lab: Lab, bench: Bench) -> _Outcome:
    a, b = lab[SOURCE], lab[TARGET]
    for alias in (SOURCE, TARGET) if way.contender == "mm2" else (SOURCE,):
        bench.create_topics(alias, {TOPIC: PARTITIONS})
    contender = CONTENDERS[way.contender]
    pair = (SOURCE, a.bootstrap), (TARGET, b.bootstrap)
    properties = contender.properties(*pair, TOPIC, Situation())
    properties |= {
        f"{TARGET}->{SOURCE}.enabled": "true", f"{TARGET}->{SOURCE}.topics": TOPIC, **way.extra
    }  # fmt: skip
    path = lab.folder / "switchover.properties"
    path.write_text("".join(f"{k} = {v}\n" for k, v in properties.items()), encoding="utf-8")
    mirror = contender.make(path, lab.folder)
    day = _Day(bench, path, mirror, _Writer(a.bootstrap), _Reader(a.bootstrap, [TOPIC]))
    outcome = _Outcome()
    mirror.start()
    try:
        day.writer.start()
        day.reader.start()
        copy = TOPIC if way.contender == "heliograph" else f"{SOURCE}.{TOPIC}"
        day.wait(lambda: day.in_step(copy), "the mirror is in step")
        time.sleep(_BETWEEN_SECONDS)
        for here, there in ((SOURCE, TARGET), (TARGET, SOURCE)):
            day.writer.pause = day.reader.pause = 0.0
            bench.say(f"  from {here} to {there}")
            way.switch(day, here, there)
            time.sleep(_BETWEEN_SECONDS)
            outcome.producers.append(day.writer.pause)
            outcome.consumers.append(day.reader.pause)
        day.writer.stop()
        day.wait(
            lambda: (
                (day.read_to_the_end() and time.monotonic() - day.reader.given > 3)
                or time.monotonic() - day.reader.given > _QUIET_SECONDS
            ),
            "the group is at the end",
        )
        day.reader.stop()
        outcome.count(day.writer.written, day.reader.numbers)
    finally:
        mirror.stop(grace_s=10.0)
        bench.close()
    return outcome


def _report(results: dict[str, _Outcome], ways: Sequence[_Way]) -> str:
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    lines = [
        "# Switchover there and back",
        "",
        f"{now}, commit {commit()}, `python -m benchmarks.switchover --output`."
        f" {PARTITIONS} partitions, {_RECORDS_PER_SECOND} records/s, one group;"
        " from A to B and home again. The longest",
        "time in which producers could not write and the group was given nothing, there / back.",
        "Nobody hesitated between two steps.",
        "",
        "| way | steps by hand | records | lost | repeated | out of order | producers wait, s |"
        " consumers wait, s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for way in ways:
        o = results[way.label]
        producers, consumers = (
            " / ".join(f"{s:.1f}" for s in found) for found in (o.producers, o.consumers)
        )
        lines.append(
            f"| {way.label} | {len(way.by_hand)} | {o.written:,} | {o.lost:,} | {o.repeated:,} |"
            f" {o.disordered:,} | {producers} | {consumers} |"
        )
    lines += ["", "Steps by hand:", ""]
    for steps in dict.fromkeys(way.by_hand for way in ways):
        labels = ", ".join(way.label for way in ways if way.by_hand is steps)
        lines.append(f"- {labels}: {'; '.join(steps)}.")
    return "\n".join(lines) + "\n"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--ways", default=",".join(_WAYS), show_default=True)
@click.option("--output", type=click.Path(path_type=Path), is_flag=False, flag_value=_RESULTS,
              help=f"Write the report; to results/{_RESULTS.name} without a value.")  # fmt: skip
def main(ways: str, output: Path | None) -> None:
    """Move clients to the other cluster and home again, each way on new clusters.

    Exits with 1 if Heliograph lost or repeated a record, or changed the order of two.
    """
    console = Console(stderr=True)
    chosen = [_WAYS[key] for key in ways.split(",")]
    results = {}
    for way in chosen:
        console.print(f"{way.label}:")
        with tempfile.TemporaryDirectory(prefix="heliograph-switchover-") as folder:
            results[way.label] = _measure(way, Path(folder), console)
        console.print(json.dumps({"written": results[way.label].written,
                                  "lost": results[way.label].lost,
                                  "repeated": results[way.label].repeated}))  # fmt: skip
    report = _report(results, chosen)
    if output is not None:
        output.write_text(report, encoding="utf-8")
    click.echo(report)
    ours = results.get(_WAYS["heliograph"].label, _Outcome())
    sys.exit(bool(ours.lost or ours.repeated or ours.disordered))


if __name__ == "__main__":
    main()
