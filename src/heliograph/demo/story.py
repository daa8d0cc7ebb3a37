"""``heliograph demo``: a mirror survives a kill -9 in mid-copy, and a comparison proves it."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.table import Table
from rich.text import Text

from heliograph.demo.mirror import DemoError, MirrorProcess
from heliograph.demo.orders import (
    LIVE_PER_SECOND,
    PARTITIONS,
    TOPIC,
    LiveProducer,
    create_topic,
    write_backlog,
)
from heliograph.demo.screen import Copied, Screen
from heliograph.errors import HeliographError
from heliograph.lab import DEFAULT_KAFKA_VERSION, Artifact, Lab, classpath, find_java
from heliograph.lab.proof import Proof, compare
from heliograph.model import ClientSettings, TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError
from heliograph.wire.metadata import Metadata

__all__ = ["DEFAULT_RECORDS", "LEAST_RECORDS", "show_demo"]

_REMOTE_TOPIC = f"A.{TOPIC}"
_REMOTE_PARTITIONS = tuple(TopicPartition(_REMOTE_TOPIC, p.partition) for p in PARTITIONS)
#: Takes about a second to copy and a few seconds to compare.
DEFAULT_RECORDS = 1_000_000
#: Fewer are across before anybody could kill anything.
LEAST_RECORDS = 50_000
#: The mirror is killed when this part of the backlog is across.
_KILL_AT = 1 / 3
#: The copy passes a third of the backlog within a blink; before it moves there is no hurry.
_POLL_SECONDS = 0.015
_IDLE_POLL_SECONDS = 0.1
#: Long enough to watch the mirror follow the producer.
_LIVE_SECONDS = 3.0
#: A mirror needs about 10 s to start; a busy machine several times that.
_PATIENCE_SECONDS = 150.0
#: The mirror's own reports are at most this old.
_BELIEF_SECONDS = 6.0
_RETRY_SECONDS = 10.0
#: What the killed mirror had sent already is written by then.
_SETTLE_SECONDS = 0.3


def show_demo(folder: Path | None, records: int, *, keep: bool) -> None:
    """Run the demo to its end; raises DemoError if the copy is not identical."""
    screen = Screen()
    find_java()
    with _working_folder(folder, keep, screen) as work:
        try:
            proof = _Demo(screen, work, records, keep).run()
        except WireError as error:
            raise DemoError("demo.kafka", f"A cluster of the demo failed: {error}") from error
        if not proof.identical:
            message = f"{_REMOTE_TOPIC} on B is not identical to {TOPIC} on A."
            raise DemoError("demo.not-identical", message, "Please report it, with the folder.")


@contextmanager
def _working_folder(folder: Path | None, keep: bool, screen: Screen) -> Iterator[Path]:
    """Makes the folder and takes it away again, unless it is wanted or explains an error."""
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise DemoError(
            "demo.folder", f"{folder} is not empty.", "Name a new folder, or leave --folder out."
        )
    made = folder is None or not folder.exists()
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="heliograph-demo-"))
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    except HeliographError:
        screen.say(f"Data and logs are kept in {folder}")
        raise
    except KeyboardInterrupt:
        if not keep:
            _delete(folder, made)
        screen.say("interrupted; nothing is left running", "yellow")
        raise
    if not keep:
        _delete(folder, made)


def _delete(folder: Path, made: bool) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if not made:
        folder.mkdir(exist_ok=True)


class _Demo:
    """The story, a method a chapter. Runs in the main thread, which owns every process."""

    def __init__(self, screen: Screen, folder: Path, records: int, keep: bool) -> None:
        self._screen = screen
        self._folder = folder
        self._records = records
        self._keep = keep
        self._lab = Lab(folder)
        self._mirror = MirrorProcess(self._lab.config_path, folder)
        self._metadata: dict[str, Metadata] = {}
        self._stack = ExitStack()

    def run(self) -> Proof:
        """Tells the story; returns what the comparison found."""
        started = time.monotonic()
        self._introduce()
        try:
            self._start_clusters()
            self._write_backlog()
            self._producer = LiveProducer(self._client("A", "producer"), self._records)
            self._stack.callback(self._producer.halt)
            self._producer.start()
            self._mirror_until_killed()
            self._restart()
            self._finish()
            proof = self._prove()
        finally:
            self._clean_up()
        self._conclude(proof, time.monotonic() - started)
        return proof

    def _clean_up(self) -> None:
        # From here on nothing may interrupt: a second Ctrl-C would leave processes behind.
        before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._mirror.kill()
            self._stack.close()
            self._lab.stop(grace_s=0)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _client(self, alias: str, role: str) -> ClusterClient:
        settings = ClientSettings(alias, self._lab[alias].client_properties())
        return self._stack.enter_context(ClusterClient(settings, f"heliograph-demo-{role}"))

    # -- chapters -----------------------------------------------------------------------------

    def _introduce(self) -> None:
        self._screen.say("Heliograph mirrors Kafka clusters. This is what you will see:", "bold")
        self._screen.say(
            "A topic is mirrored from cluster A to cluster B while a producer writes to it. In"
            " mid-copy the mirror is killed with kill -9, and started again. Then both topics are"
            " compared record by record. It takes about a minute (the first time Kafka is fetched,"
            " 45 MB); Ctrl-C ends it, and nothing is left behind."
        )
        self._screen.say()

    def _start_clusters(self) -> None:
        screen = self._screen
        screen.step(f"Two real Kafka {DEFAULT_KAFKA_VERSION} clusters on this machine")
        # Shows a progress of its own if Kafka has to be fetched; quick if not.
        classpath(DEFAULT_KAFKA_VERSION, Artifact.KAFKA)
        started = time.monotonic()
        with screen.waiting("starting A and B ..."):
            self._lab.start()
        screen.result(
            f"A at {self._lab['A'].bootstrap}, B at {self._lab['B'].bootstrap},"
            f" started in {time.monotonic() - started:.1f} s"
        )
        self._source, self._target = self._client("A", "watch"), self._client("B", "watch")

    def _write_backlog(self) -> None:
        screen = self._screen
        screen.step(f"{self._records:,} orders wait on A, in topic {TOPIC}")
        started = time.monotonic()
        with screen.waiting("writing ...") as change:
            create_topic(self._source)
            write_backlog(self._source, self._records, lambda n: change(f"writing, {n:,} ..."))
        screen.result(
            f"written in {time.monotonic() - started:.1f} s;"
            f" a producer now adds {LIVE_PER_SECOND:,} orders/s"
        )

    def _mirror_until_killed(self) -> None:
        screen = self._screen
        screen.step(f"The mirror copies {TOPIC} on A to {_REMOTE_TOPIC} on B")
        screen.command(f"heliograph run {self._lab.config_path}")
        self._mirror.start()
        goal = self._records * _KILL_AT
        with screen.copying("it starts Spark first, about 10 s ...") as copied:
            self._watch(copied, lambda _source, target: target >= goal)
            killed = self._mirror.kill()
        screen.step("kill -9, in mid-copy", "bold white on red")
        time.sleep(_SETTLE_SECONDS)
        source, target = self._ends()
        screen.result(f"killed {killed}")
        screen.result(f"{target:,} of {source:,} orders had reached B ({100 * target // source} %)")

    def _restart(self) -> None:
        screen = self._screen
        screen.step("The mirror starts again; the producer has never stopped")
        started = time.monotonic()
        _, before = self._ends()
        first: list[float] = []

        def caught_up(source: int, target: int) -> bool:
            if not first and target > before:
                first.append(time.monotonic())
            return bool(first) and source - target < LIVE_PER_SECOND / 2

        self._mirror.start()
        with screen.copying("it starts, and looks up how far it was ...") as copied:
            _, target = self._watch(copied, caught_up)
            now = time.monotonic()
            screen.result(
                f"up after {first[0] - started:.1f} s, then caught up with {target - before:,}"
                f" orders in {now - first[0]:.1f} s"
            )
            copied.note = "in step, following the producer ..."
            end = time.monotonic() + _LIVE_SECONDS
            self._watch(copied, lambda *_: time.monotonic() >= end)

    def _finish(self) -> None:
        screen = self._screen
        screen.step("The producer stops, the mirror copies the rest and is stopped with SIGTERM")
        self._producer.stop()
        stopped = time.time()

        def done(source: int, target: int) -> bool:
            # If the mirror believes that it is done, the proof shall say what is missing.
            return target >= source or self._mirror.in_step_after(stopped + _BELIEF_SECONDS)

        with screen.copying("it copies the rest ...") as copied:
            self._watch(copied, done)
        screen.result(f"stopped in {self._mirror.stop():.1f} s")

    def _prove(self) -> Proof:
        screen = self._screen
        screen.step(f"The proof: {TOPIC} on A and {_REMOTE_TOPIC} on B, record by record")
        with screen.waiting("reading and comparing every record ..."):
            proof = compare(self._source, self._target, TOPIC, _REMOTE_TOPIC)
        on_target = proof.compared - proof.lost + proof.twice + proof.foreign
        rows = [
            (f"records in {TOPIC} on A", proof.compared, ""),
            (f"records in {_REMOTE_TOPIC} on B", on_target, ""),
            ("lost", proof.lost, "bad"),
            ("twice", proof.twice, "bad"),
            ("never written to A", proof.foreign, "bad"),
            ("partitions out of order", proof.reordered, "bad"),
        ]
        table = Table(show_header=False)
        table.add_column()
        table.add_column(justify="right")
        for name, count, kind in rows:
            style = "" if not kind else "bold red" if count else "bold green"
            table.add_row(name, Text(f"{count:,}", style=style))
        screen.show(table)
        return proof

    def _conclude(self, proof: Proof, seconds: float) -> None:
        screen = self._screen
        if not proof.identical:
            for example in proof.examples:
                screen.result(example, "red")
            screen.say("NOT IDENTICAL: this must never happen.", "bold red")
            return
        offsets = "at the same offsets" if proof.moved == 0 else "in the same order"
        screen.say(
            f"Nothing lost, nothing twice: {proof.compared:,} records identical on A and B,"
            f" {offsets}, through a kill -9.",
            "bold green",
        )
        screen.say()
        screen.say(f"That took {seconds:.0f} s. What to try next:", "bold")
        for what, command in _next_steps(self._folder if self._keep else None):
            screen.result(what)
            screen.command(f"  {command}")

    # -- watching -----------------------------------------------------------------------------

    def _watch(self, copied: Copied, done: Callable[[int, int], bool]) -> tuple[int, int]:
        """Shows the copy until ``done(source end, target end)``; returns the two.

        Asks the clusters themselves: the mirror's own reports come every 2 s, which is longer than
        the copy takes.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        before = -1
        while True:
            source, target = self._ends()
            copied.update(source, target)
            if done(source, target):
                return source, target
            self._mirror.require_running()
            if time.monotonic() > deadline:
                failing = self._mirror.failing or "it reports no failing partition"
                raise DemoError(
                    "demo.stuck",
                    f"The mirror has not come far enough in {_PATIENCE_SECONDS:.0f} s:"
                    f" {target:,} of {source:,} records; {failing}.",
                    f"Its log: {self._mirror.log_path}",
                )
            time.sleep(_POLL_SECONDS if -1 < before < target else _IDLE_POLL_SECONDS)
            before = target if before < 0 else before

    def _ends(self) -> tuple[int, int]:
        """Records on A and on B; 0 while the remote topic does not exist."""
        return self._count(self._source, PARTITIONS), self._count(self._target, _REMOTE_PARTITIONS)

    def _count(self, client: ClusterClient, partitions: tuple[TopicPartition, ...]) -> int:
        def call() -> int:
            metadata = self._metadata.get(client.alias)
            if metadata is None:
                metadata = client.metadata([partitions[0].topic])
            ends = admin.list_offsets(client, metadata, partitions, admin.LATEST)
            if len(ends) == len(partitions):
                self._metadata[client.alias] = metadata
            else:
                self._metadata.pop(client.alias, None)
            return sum(ends.values())

        return client.retry(call, _RETRY_SECONDS)


def _next_steps(kept: Path | None) -> list[tuple[str, str]]:
    """What, and the command for it, as it can be typed here."""
    program = "heliograph" if shutil.which("heliograph") else sys.argv[0]
    if not program.endswith("heliograph"):
        program = f"{sys.executable} -m heliograph"
    folder = kept or Path("heliograph-lab")
    steps = [
        ("two clusters to play with, until Ctrl-C:",
         f"{program} lab up" + (f" --folder {folder}" if kept else "")),
        ("mirror them, in a second terminal:", f"{program} run {folder}/mm2.properties"),
        ("see what a file means (yours of MirrorMaker 2 works as it is):",
         f"{program} config show {folder}/mm2.properties"),
    ]  # fmt: skip
    if Path("benchmarks").is_dir() and Path("Makefile").is_file():
        steps.append(("measure it beside the real MirrorMaker 2:", "make bench"))
    return steps
