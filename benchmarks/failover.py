"""Where do consumer groups go on when the source dies? ``python -m benchmarks.failover``.

For each mirror, on two new clusters: 20 topics of 6 partitions are written to all the time and
mirrored with ``sync.group.offsets.enabled = true``. Four groups consume on the source: one is in
step, one stops in the middle, one stopped early, and one never came far. When all records are
mirrored and the mirror has had its time, the source's brokers are killed. Each group's consumer is
then started on the target, with auto.offset.reset=earliest, and the first record that it is given
in every partition is compared with the first one that it had not committed on the source.

The producer works in transactions, some of which are aborted, so that source offsets have gaps, as
they have in practice. MM2 waits twice its interval of 60 s; MM2 with short intervals, and
Heliograph with its defaults, wait 10 s.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from rich.console import Console

from benchmarks.bench import QUIET, SOURCE, TARGET, Bench, MeasureError
from benchmarks.contenders import CONTENDERS, Contender, Mirror, Situation
from benchmarks.machine import commit
from heliograph import model
from heliograph.lab import Lab

TOPICS = [f"orders-{i:02}" for i in range(20)]
PARTITIONS = 6
_LOAD_SECONDS = 40.0
_RECORDS_PER_SECOND = 3000
_PER_TRANSACTION = 240
_ABORTED = 0.15
_PATIENCE_SECONDS = 180.0
#: A group that is given nothing for this long is at the end everywhere.
_QUIET_SECONDS = 15.0
_VALUE = 200  # bytes
#: How much of a partition each group consumes before it stops: in step to the end, or a share.
GROUPS = {"in-step": 1.0, "half-way": 0.5, "early": 0.1, "barely": 0.01}
_SHORT = {
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "refresh.topics.interval.seconds": "1",
}
_RESULTS = Path(__file__).parent / "results" / "failover.md"

_Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Entrant:
    label: str
    contender: Contender
    extra: Mapping[str, str]
    wait_seconds: float


_ENTRANTS = {
    "mm2": _Entrant("MM2 defaults", CONTENDERS["mm2"], {}, 130.0),
    "mm2-short": _Entrant("MM2, intervals of 1 s", CONTENDERS["mm2"], _SHORT, 10.0),
    "heliograph": _Entrant("Heliograph", CONTENDERS["heliograph"], {}, 10.0),
    "heliograph-dense": _Entrant("Heliograph, dense offsets", CONTENDERS["heliograph"],
                                 {"heliograph.offsets": "dense"}, 10.0),
}  # fmt: skip


@dataclass(slots=True)
class Outcome:
    """What became of one group on the target."""

    partitions: int = 0
    without_offset: int = 0
    skipped: int = 0
    repeated: int = 0
    worst: int = 0

    def add(self, difference: int, *, known: bool) -> None:
        """``difference``: how far behind what it had not committed it goes on; negative: before."""
        self.partitions += 1
        self.without_offset += not known
        self.skipped += max(difference, 0)
        self.repeated += max(-difference, 0)
        self.worst = max(self.worst, abs(difference))


class Load:
    """Writes numbered records to every partition until stopped; knows what was committed."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({
            "bootstrap.servers": bootstrap, **QUIET, "linger.ms": 20,
            "transactional.id": "failover-load",
        })  # fmt: skip
        self._dice = random.Random(7)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.counts: dict[_Key, int] = defaultdict(int)
        self.error: BaseException | None = None

    def __enter__(self) -> Load:
        self._producer.init_transactions()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def ended(self) -> bool:
        """Whether the last record is written."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Ends with a whole transaction."""
        self._stopping.set()
        self._thread.join(_PATIENCE_SECONDS)

    def _work(self) -> None:
        try:
            began, sent = time.monotonic(), 0
            while not self._stopping.is_set():
                aborted = self._dice.random() < _ABORTED
                self._transaction(aborted=aborted)
                sent += _PER_TRANSACTION
                self._stopping.wait(began + sent / _RECORDS_PER_SECOND - time.monotonic())
        except BaseException as error:  # noqa: BLE001 - told by whoever waits for the load
            self.error = error

    def _transaction(self, *, aborted: bool) -> None:
        counts = dict(self.counts)
        self._producer.begin_transaction()
        for _ in range(_PER_TRANSACTION):
            key = (self._dice.choice(TOPICS), self._dice.randrange(PARTITIONS))
            number = counts[key] = counts.get(key, 0) + 1
            value = (b"aborted" if aborted else b"%d" % (number - 1)).ljust(_VALUE)
            self._producer.produce(key[0], value, partition=key[1])
        if aborted:
            # What was not sent yet would not be in the log, and would leave no gap.
            self._producer.flush()
            self._producer.abort_transaction()
        else:
            self._producer.commit_transaction()
            self.counts.update(counts)


class Group(threading.Thread):
    """A consumer group on the source: reads its share of every partition, commits every second.

    Attributes:
        next: the number of the first record of each partition that it has not committed.
    """

    def __init__(self, name: str, share: float, bootstrap: str, load: Load) -> None:
        super().__init__(name=name, daemon=True)
        whole = _LOAD_SECONDS * _RECORDS_PER_SECOND * (1 - _ABORTED) / (len(TOPICS) * PARTITIONS)
        self._most = whole * share if share < 1 else float("inf")
        self._servers = bootstrap
        self._load = load
        self._read: dict[_Key, tuple[int, int]] = {}
        self.next: dict[_Key, int] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        """Until the load has ended and nothing is left."""
        try:
            with _consuming(self._servers, self.name) as consumer:
                consumer.subscribe(TOPICS)
                committed = time.monotonic()
                while True:
                    ended = self._load.ended
                    messages = consumer.consume(1000, 0.5)
                    for message in messages:
                        self._take(consumer, message)
                    if ended and not messages:
                        break
                    if time.monotonic() - committed > 1:
                        self._commit(consumer)
                        committed = time.monotonic()
                self._commit(consumer)
        except BaseException as error:  # noqa: BLE001 - told by whoever joins
            self.error = error

    def _take(self, consumer: Consumer, message: Message) -> None:
        if message.error():
            raise MeasureError(f"{self.name}: {message.error()}")
        key, number, offset = _found(message)
        if number >= self._most:
            # It has had its share: this one it was given, but does not process.
            consumer.pause([TopicPartition(*key)])
            return
        self._read[key] = (number + 1, offset + 1)

    def _commit(self, consumer: Consumer) -> None:
        if not self._read:
            return
        offsets = [TopicPartition(t, p, after) for (t, p), (_, after) in self._read.items()]
        consumer.commit(offsets=offsets, asynchronous=False)
        self.next |= {key: number for key, (number, _) in self._read.items()}
        self._read.clear()


@contextmanager
def _consuming(bootstrap: str, group: str) -> Iterator[Consumer]:
    consumer = Consumer({
        "bootstrap.servers": bootstrap, **QUIET, "group.id": group, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "isolation.level": "read_committed",
        "enable.partition.eof": False,
    })  # fmt: skip
    try:
        yield consumer
    finally:
        consumer.close()


def _go_on(bootstrap: str, group: Group, alias: str, counts: Mapping[_Key, int]) -> Outcome:
    """The group on the target: what it is given first in every partition."""
    keys = {(f"{alias}.{topic}", i): (topic, i) for topic in TOPICS for i in range(PARTITIONS)}
    with _consuming(bootstrap, group.name) as consumer:
        committed = consumer.committed([TopicPartition(*k) for k in keys], 30)
        known = {(c.topic, c.partition): c.offset >= 0 for c in committed}
        consumer.subscribe(sorted({topic for topic, _ in keys}))
        first: dict[_Key, int] = {}
        deadline = time.monotonic() + _QUIET_SECONDS
        while len(first) < len(keys) and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.5):
                if message.error():
                    raise MeasureError(f"{group.name}: {message.error()}")
                key, number, _ = _found(message)
                deadline = time.monotonic() + _QUIET_SECONDS
                if key not in first:
                    first[key] = number
                    consumer.pause([TopicPartition(*key)])
    outcome = Outcome()
    for remote, key in keys.items():
        # Nothing given: it is at the end.
        given = first.get(remote, counts.get(key, 0))
        outcome.add(given - group.next.get(key, 0), known=known[remote])
    return outcome


def _measure(entrant: _Entrant, folder: Path, console: Console) -> dict[str, Outcome]:
    lab = Lab(folder, settings={"*": {"transaction.state.log.num.partitions": "5"}}, jvm_flags=())
    lab.start()
    try:
        return _on_lab(entrant, lab, Bench(lab, console))
    finally:
        lab.stop(grace_s=0)


def _on_lab(entrant: _Entrant, lab: Lab, bench: Bench) -> dict[str, Outcome]:
    source, target = lab[SOURCE], lab[TARGET]
    bench.create_topics(SOURCE, dict.fromkeys(TOPICS, PARTITIONS))
    properties = entrant.contender.properties(
        (SOURCE, source.bootstrap), (TARGET, target.bootstrap), "orders-.*",
        Situation(read_committed=True),
    )  # fmt: skip
    properties |= {"sync.group.offsets.enabled": "true", **entrant.extra}
    path = lab.folder / "failover.properties"
    path.write_text("".join(f"{k} = {v}\n" for k, v in properties.items()), encoding="utf-8")
    mirror = entrant.contender.make(path, lab.folder)
    mirror.start()
    try:
        with Load(source.bootstrap) as load:
            groups = [Group(n, share, source.bootstrap, load) for n, share in GROUPS.items()]
            for group in groups:
                group.start()
            time.sleep(_LOAD_SECONDS)
        if load.error:
            raise MeasureError(f"the load failed: {load.error}")
        for group in groups:
            group.join(_PATIENCE_SECONDS)
            if group.error or group.is_alive():
                raise MeasureError(f"group {group.name}: {group.error or 'did not end'}")
        total = sum(load.counts.values())
        bench.say(f"  {total:,} records written and consumed; waiting for the mirror")
        _wait_until_mirrored(bench, mirror, load.counts)
        bench.say(f"  all are mirrored; {entrant.wait_seconds:.0f} s for the groups")
        time.sleep(entrant.wait_seconds)
        for broker in source.brokers:
            broker.kill()
        bench.say(f"  {SOURCE} is dead; the groups go on at {TARGET}")
        outcomes = {g.name: _go_on(target.bootstrap, g, SOURCE, load.counts) for g in groups}
    finally:
        mirror.stop(grace_s=10.0)
    return outcomes


def _wait_until_mirrored(bench: Bench, mirror: Mirror, counts: Mapping[_Key, int]) -> None:
    """Reads the last record of every partition on the target until it is the last one written."""
    waiting = {(f"{SOURCE}.{t}", p): n for (t, p), n in counts.items() if n}
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with _consuming(bench.lab[TARGET].bootstrap, "failover-watch") as consumer:
        while len(bench.counters[TARGET].ends(map(_partition, waiting))) < len(waiting):
            _be_patient(mirror, deadline)
        consumer.assign([TopicPartition(*k, 0) for k in waiting])
        while waiting:
            for message in consumer.consume(5000, 0.5):
                if message.error():
                    continue
                key, number, _ = _found(message)
                if number + 1 == waiting.get(key):
                    del waiting[key]
            _be_patient(mirror, deadline)


def _be_patient(mirror: Mirror, deadline: float) -> None:
    mirror.require_running()
    if time.monotonic() > deadline:
        raise MeasureError(f"not mirrored after {_PATIENCE_SECONDS:.0f} s")
    time.sleep(0.1)


def _found(message: Message) -> tuple[_Key, int, int]:
    """Where a record is, its number, and its offset. Messages of errors have none of these."""
    topic, partition, value, offset = (
        message.topic(), message.partition(), message.value(), message.offset(),
    )  # fmt: skip
    assert topic is not None
    assert partition is not None
    assert value is not None
    assert offset is not None
    return (topic, partition), int(value), offset


def _partition(key: _Key) -> model.TopicPartition:
    return model.TopicPartition(*key)


def _report(results: Mapping[str, Mapping[str, Outcome]]) -> str:
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    lines = [
        "# Consumer groups after the source's death",
        "",
        f"{now}, commit {commit()}, `python -m benchmarks.failover`. {len(TOPICS)} topics of"
        f" {PARTITIONS} partitions, transactions of which {_ABORTED:.0%} abort; offsets synced by"
        " each mirror.",
        "Skipped and repeated: records between the first one that a group had not committed on the",
        "source and the first one that it was given on the target, over all partitions.",
        "",
        "| mirror | group | partitions | without offset | skipped | repeated | worst partition |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for label, outcomes in results.items():
        lines += [
            f"| {label} | {name} | {o.partitions} | {o.without_offset} | {o.skipped:,} |"
            f" {o.repeated:,} | {o.worst:,} |"
            for name, o in outcomes.items()
        ]
    return "\n".join(lines) + "\n"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--mirrors", default=",".join(_ENTRANTS), show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=_RESULTS, help="The report.")
def main(mirrors: str, output: Path) -> None:
    """Kill the source of each mirror and see where its consumer groups go on."""
    console = Console(stderr=True)
    results = {}
    for key in mirrors.split(","):
        entrant = _ENTRANTS[key]
        console.print(f"{entrant.label}:")
        with tempfile.TemporaryDirectory(prefix="heliograph-failover-") as folder:
            results[entrant.label] = _measure(entrant, Path(folder), console)
    report = _report(results)
    output.write_text(report, encoding="utf-8")
    click.echo(report)


if __name__ == "__main__":
    main()
