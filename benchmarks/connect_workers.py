"""What do connectors notice when workers come and go? ``python -m benchmarks.connect_workers``.

Three workers share twelve source connectors, each with a topic of two partitions. Each partition
gets a numbered record every 50 ms. Then a connector's config is changed every second, a worker is
added, stopped, frozen, killed. A consumer in another process notes, for each connector, the longest
time without a new record in one of its remote partitions; another thread of it does the same on the
source: what is missing there already is not the mirror's. At the end every record is checked. Three
workers of ours and three of the real Connect are measured one after the other, with the same worker
files and brokers that have just been started.

Told apart by where their tasks ran, as the REST API says before and during an event:
concerned: what was done was done to them, or to the worker that ran them;
moved: were moved to another worker, so that all have as many;
stayed: all others. Nothing was done to them.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import click
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.arrivals import EVERY_SECONDS, PARTITIONS, Seen, produce, watch
from benchmarks.bench import SOURCE, TARGET, MeasureError
from benchmarks.connect_cluster import (
    PATIENCE_SECONDS,
    STOP_SECONDS,
    Cluster,
    Worker,
    id_of,
    wait_for,
)
from benchmarks.machine import commit, describe
from heliograph.errors import HeliographError, LabError
from heliograph.lab import Lab
from heliograph.lab.proof import read_all
from heliograph.model import ClientSettings, TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

_RESULTS = Path(__file__).resolve().parent / "results" / "connect-workers.md"
_LABELS = {"heliograph": "Heliograph", "connect": "Connect"}
_WORKERS = 3
_FROZEN_SECONDS = 20.0
#: Connect's own default.
_DELAY_MS = 300_000
#: Nothing moves, and all is copied, for so long: an event is over.
_QUIET_SECONDS = 10.0
_WARM_UP_SECONDS = 20.0
_LOOK_SECONDS = 0.5


# -- what happens ---------------------------------------------------------------------------------


@dataclass
class _Row:
    """What one event did to one contender; gaps in seconds by connector."""

    event: str
    concerned: dict[str, float]
    moved: dict[str, float]
    stayed: dict[str, float]
    source: float
    lasted: float
    busy: float
    others: float
    load: float
    note: str = ""


@dataclass
class _Outcome:
    """What a contender did; records over all partitions."""

    rows: list[_Row] = field(default_factory=list)
    records: int = 0
    lost: int = 0
    repeated: int = 0
    reordered: int = 0
    foreign: int = 0


class _Follower(threading.Thread):
    """Asks all the time where connectors run, and what CPU the benchmark uses.

    Attributes:
        owners: as `Cluster.owners` said last.
        moved: connectors that ran elsewhere than before, at any time.
    """

    def __init__(self, cluster: Cluster, before: Mapping[str, str]) -> None:
        super().__init__(name="follower", daemon=True)
        self._cluster, self._before = cluster, before
        self._ended = threading.Event()
        self.owners = dict(before)
        self.moved: set[str] = set()
        self._used = self._looked = _cpu_of_family()
        self._busy = _busy_seconds()
        self._began = time.monotonic()
        self.start()

    def run(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            # Of a process that is killed, what it had used at the last look.
            self._looked = self._looked | _cpu_of_family()
            with suppress(MeasureError):  # too late, then
                self.owners = self._cluster.owners()
                self.moved |= {
                    c for c, worker in self.owners.items() if self._before.get(c, worker) != worker
                }

    def stop(self) -> None:
        self._ended.set()
        self.join(STOP_SECONDS)

    def cpu(self) -> tuple[float, float]:
        """Percent of the machine so far: of all programs, and of those that are not ours."""
        whole = (time.monotonic() - self._began) * (psutil.cpu_count() or 1)
        busy = _busy_seconds() - self._busy
        ours = sum(used - self._used.get(p, 0.0) for p, used in self._looked.items())
        return 100 * busy / whole, max(0.0, 100 * (busy - ours) / whole)


def _busy_seconds() -> float:
    """Of all cores, since the machine's start; including what the hypervisor took."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def _cpu_of_family() -> dict[psutil.Process, float]:
    """CPU seconds of this process and of all that it has started, of those that live."""
    found = {}
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.Error):  # ended meanwhile
            found[process] = sum(process.cpu_times()[:2])
    return found


class _Trial:
    """Twelve connectors under load on one contender's workers."""

    def __init__(
        self,
        lab: Lab,
        cluster: Cluster,
        connectors: int,
        seconds: float,
        say: Callable[[str], None],
    ) -> None:
        self._lab, self._cluster, self._seconds, self._say = lab, cluster, seconds, say
        self._names = [f"c{n:02}" for n in range(connectors)]
        self._remote = [f"{SOURCE}.{name}" for name in self._names]
        self._here, self._there = Seen.of(connectors), Seen.of(connectors)
        self._outcome = _Outcome()

    def run(self) -> _Outcome:
        """All events, one after the other, and the check."""
        self._begin()
        with self._load() as written:
            for event in (self._nothing, self._reconfigure, self._add, self._remove,
                          self._freeze, self._kill):  # fmt: skip
                event()
        self._say(f"{written.value:,} records in each partition are mirrored; stopping workers")
        self._cluster.close()
        with self._client(SOURCE) as here, self._client(TARGET) as there:
            self._check(here, there, written.value)
        return self._outcome

    def _client(self, alias: str) -> ClusterClient:
        """Not kept: brokers close connections that are idle for ten minutes."""
        return ClusterClient(ClientSettings(alias, self._lab[alias].client_properties()), "bench")

    def _begin(self) -> None:
        """Workers, topics, connectors."""
        topics = [admin.NewTopic(name, PARTITIONS, 1, {}) for name in self._names]
        with self._client(SOURCE) as client:
            failed = admin.create_topics(client, topics, 60_000)
        if failed:
            raise LabError("bench.topics", f"topics cannot be created: {failed}")
        for worker in [self._cluster.add() for _ in range(_WORKERS)]:
            self._cluster.await_ready(worker)
        self._say(f"{_WORKERS} workers are ready")
        for name in self._names:
            wait_for(lambda name=name: self._cluster.put(name, self._config(name)), name)  # type: ignore[misc]
        wait_for(self._all_exist, "the remote topics")
        wait_for(lambda: len(self._cluster.owners()) == len(self._names), "all connectors run")
        self._say(f"{len(self._names)} connectors run")

    def _all_exist(self) -> bool:
        with self._client(TARGET) as client:
            topics = client.metadata(self._remote).topics
        return all(len(topics[t].partitions) == PARTITIONS if t in topics else False
                   for t in self._remote)  # fmt: skip

    def _config(self, name: str, more: str = "") -> dict[str, str]:
        return {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "source.cluster.alias": SOURCE,
            "target.cluster.alias": TARGET,
            "source.cluster.bootstrap.servers": self._lab[SOURCE].bootstrap,
            "target.cluster.bootstrap.servers": self._lab[TARGET].bootstrap,
            "topics": name + more,
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "heartbeats.replication.enabled": "false",
        }

    @contextmanager
    def _load(self) -> Iterator[Synchronized[int]]:
        """Producer and consumers; yields how many records each partition has got, at its end.

        Left in order, it waits until the consumers on the target have seen all.
        """
        spawn = multiprocessing.get_context("spawn")
        written, ended, stop = spawn.Value("q", 0), spawn.Value("i", 0), spawn.Value("i", 0)
        servers = {alias: self._lab[alias].bootstrap for alias in (SOURCE, TARGET)}
        sides = [(servers[SOURCE], self._names, self._here),
                 (servers[TARGET], self._remote, self._there)]  # fmt: skip
        load = spawn.Process(target=produce, daemon=True,
                             args=(servers[SOURCE], self._names, written, ended))  # fmt: skip
        watcher = spawn.Process(target=watch, args=(sides, stop), daemon=True)
        load.start()
        watcher.start()
        try:
            wait_for(lambda: min(self._there.newest[:]) >= 0, "records on the target")
            yield written
            ended.value = 1
            load.join()
            wait_for(lambda: min(self._there.newest[:]) == written.value - 1, "all is mirrored")
        finally:
            ended.value = stop.value = 1
            for process in (load, watcher):
                process.join(STOP_SECONDS)

    # -- events -------------------------------------------------------------------------------

    def _nothing(self) -> None:
        time.sleep(_WARM_UP_SECONDS)
        self._window("nothing", (), lambda: time.sleep(_WARM_UP_SECONDS), lambda _: True)

    def _reconfigure(self) -> None:
        name, done, refused = self._names[0], 0, 0

        def change() -> None:
            nonlocal done, refused
            due = time.monotonic()
            until = due + self._seconds
            while due < until:
                # A filter more, which matches nothing, or one less: its topic stays.
                taken = self._cluster.put(name, self._config(name, f",none{done % 2}.*"), done)
                done, refused = done + 1, refused + (not taken)
                due = max(due + 1.0, time.monotonic())
                time.sleep(max(0.0, due - time.monotonic()))

        event = f"a config changed every second for {self._seconds:.0f} s"
        row = self._window(event, (name,), change, lambda _: True)
        row.note += f"{done} changes" + (f", {refused} of them refused" if refused else "")

    def _add(self) -> None:
        new: list[Worker] = []

        def add() -> None:
            new.append(self._cluster.add())
            self._cluster.await_ready(new[0])

        self._window("a worker added", (), add, lambda owners: id_of(new[0]) in owners.values())

    def _remove(self) -> None:
        victim = self._cluster.live[1]

        def remove() -> None:
            self._cluster.live.remove(victim)
            victim.terminate()

        self._window("a worker stopped (SIGTERM)", (victim,), remove, _without(victim))

    def _freeze(self) -> None:
        victim = self._cluster.live[1]

        def freeze() -> None:
            self._cluster.live.remove(victim)
            victim.suspend()
            time.sleep(_FROZEN_SECONDS)
            victim.resume()
            self._cluster.live.insert(0, victim)
            # It does not know yet what it has missed. That it runs something again is no sign:
            # Connect's statuses may say for good that others run what it has got back.
            time.sleep(_QUIET_SECONDS)

        self._window(
            f"a worker frozen for {_FROZEN_SECONDS:.0f} s", (victim,), freeze, lambda _: True
        )

    def _kill(self) -> None:
        # The first one, which leads the group as a rule, unless it was frozen.
        victim = next(w for w in self._cluster.all if w in self._cluster.live)

        def kill() -> None:
            self._cluster.live.remove(victim)
            victim.kill()

        self._window("a worker killed (kill -9)", (victim,), kill, _without(victim))

    def _window(
        self,
        event: str,
        at: Collection[str | Worker],
        act: Callable[[], None],
        done: Callable[[Mapping[str, str]], bool],
    ) -> _Row:
        """Do something, wait until it is over, and note what connectors saw of it.

        Args:
            event: for people.
            at: connectors to which it is done, or workers.
            act: what is done; may take its time.
            done: of the owners, whether it is over; all connectors must run besides.
        """
        before = self._cluster.owners()
        workers = {id_of(w) for w in at if not isinstance(w, str)}
        concerned = {c for c in self._names if c in at or before.get(c) in workers}
        for seen in (self._here, self._there):
            seen.forget()
        began = time.monotonic()
        follower = _Follower(self._cluster, before)
        try:
            act()
            settled = self._settled(follower, done)
        finally:
            follower.stop()
        gaps = dict(zip(self._names, self._there.gaps[:], strict=True))
        ended = dict(zip(self._names, self._there.ended[:], strict=True))
        moved = follower.moved - concerned
        busy, others = follower.cpu()
        row = _Row(
            event,
            {c: gaps[c] for c in self._names if c in concerned},
            {c: gaps[c] for c in self._names if c in moved},
            {c: gaps[c] for c in self._names if c not in concerned | moved},
            max(self._here.gaps[:]), time.monotonic() - began, busy,
            others, os.getloadavg()[0], "" if settled else "not over; ",
        )  # fmt: skip
        self._outcome.rows.append(row)
        self._say(f"{event}: {row.lasted:.0f} s, {row.busy:.0f} % CPU, {row.others:.0f} % others,"
                  f" load {row.load:.1f}, source {row.source:.2f} s {row.note}")  # fmt: skip
        for label, of in (("concerned", row.concerned), ("moved", row.moved),
                          ("stayed", row.stayed)):  # fmt: skip
            told = (f"{c} {gap:.2f} s until {_clock(ended[c])}" for c, gap in of.items())
            if of:
                self._say(f"  {label}: {', '.join(told)}")
        return row

    def _settled(self, follower: _Follower, done: Callable[[Mapping[str, str]], bool]) -> bool:
        """Wait until all is quiet again; False if that takes too long."""
        deadline = time.monotonic() + PATIENCE_SECONDS + self._cluster.delay_seconds
        quiet_since, last = time.monotonic(), follower.owners
        while time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            owners = follower.owners
            over = len(owners) == len(self._names) and done(owners)
            if not over or owners != last or not self._there.fresh():
                quiet_since, last = time.monotonic(), owners
            elif time.monotonic() - quiet_since > _QUIET_SECONDS:
                return True
        return False

    # -- the check ----------------------------------------------------------------------------

    def _check(self, source: ClusterClient, target: ClusterClient, written: int) -> None:
        """Look at every record. No worker runs: what should not be there comes last."""
        outcome = self._outcome
        for here, there in zip(self._names, self._remote, strict=True):
            for index in range(PARTITIONS):
                wanted = _numbers(source, TopicPartition(here, index))
                found = _numbers(target, TopicPartition(there, index))
                if wanted != list(range(written)):
                    raise MeasureError(f"{here}-{index}: the source itself is not as written")
                first = dict.fromkeys(found)
                outcome.records += len(wanted)
                outcome.lost += len(set(wanted) - first.keys())
                outcome.foreign += len(first.keys() - set(wanted))
                outcome.repeated += len(found) - len(first)
                outcome.reordered += sum(b < a for a, b in pairwise(first))
        self._say(_verdict(outcome))


def _numbers(client: ClusterClient, partition: TopicPartition) -> list[int]:
    return [int(record.value or b"-1") for record in read_all(client, partition)]


def _without(worker: Worker) -> Callable[[Mapping[str, str]], bool]:
    return lambda owners: id_of(worker) not in owners.values()


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(moment)) + f".{int(moment * 10) % 10}"


# -- the report -----------------------------------------------------------------------------------


def _verdict(outcome: _Outcome) -> str:
    foreign = f", {outcome.foreign:,} foreign" if outcome.foreign else ""
    return (
        f"{outcome.records:,} records: {outcome.lost:,} lost, {outcome.repeated:,} repeated,"
        f" {outcome.reordered:,} out of order{foreign}"
    )


def _cell(gaps: Mapping[str, float]) -> str:
    return f"{max(gaps.values()):.2f} ({len(gaps)})" if gaps else "-"


_HEADS = ("event", "concerned", "moved", "stayed", "source itself", "lasted s", "CPU %",
          "of others %", "load")  # fmt: skip


def _cells(row: _Row) -> list[str]:
    note = f"; {row.note.removesuffix('; ')}" if row.note else ""
    return [
        row.event + note, _cell(row.concerned), _cell(row.moved), _cell(row.stayed),
        f"{row.source:.2f}", f"{row.lasted:.0f}", f"{row.busy:.0f}", f"{row.others:.0f}",
        f"{row.load:.1f}",
    ]  # fmt: skip


def _label(key: str, delay_ms: int) -> str:
    delay = f", scheduled.rebalance.max.delay.ms = {delay_ms}"
    return _LABELS[key] + (delay if key == "connect" else "")


def _table(outcome: _Outcome, label: str) -> Table:
    table = Table(title=f"{label}: longest gap in seconds (connectors)", caption=_verdict(outcome))
    for head in _HEADS:
        table.add_column(head, justify="left" if head == "event" else "right")
    for row in outcome.rows:
        table.add_row(*_cells(row))
    return table


def _beside(results: Mapping[str, _Outcome]) -> list[str]:
    """The contenders side by side, as Markdown."""
    heads, rows = ["event"], [[row.event] for row in next(iter(results.values())).rows]
    for key, outcome in results.items():
        heads += [f"{_LABELS[key]}: {kind}" for kind in ("concerned", "moved", "stayed")]
        for cells, row in zip(rows, outcome.rows, strict=True):
            cells += [_cell(row.concerned), _cell(row.moved), _cell(row.stayed)]
    return _markdown(heads, rows)


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _report(
    results: Mapping[str, _Outcome], delay_ms: int, machine: Mapping[str, str], command: str
) -> str:
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    default = "its default" if delay_ms == _DELAY_MS else f"its default is {_DELAY_MS}"
    lines = [
        "# Workers that come and go, and the connectors of the others",
        "",
        f"{now}, commit {commit()}, `{command}`.",
        "; ".join(f"{key}: {value}" for key, value in machine.items()) + ".",
        "",
        f"{_WORKERS} workers; source connectors with a topic of {PARTITIONS} partitions each; a",
        f"record every {1000 * EVERY_SECONDS:.0f} ms in each partition. Cells: longest time in",
        "seconds without a new record in a remote partition (number of connectors).",
        "Concerned: it was done to them, or to the worker that ran them. Moved: taken to another",
        "worker so that all have as many. Stayed: nothing was done to them. Source itself: the",
        "longest gap that a consumer saw on the source, where no mirror is. CPU: of the machine,",
        "and what of it programs used that have nothing to do with the benchmark.",
        f"Connect has scheduled.rebalance.max.delay.ms = {delay_ms} ({default}) and otherwise",
        "its defaults.",
        "",
        *_beside(results),
    ]
    for key, outcome in results.items():
        lines += ["", f"## {_label(key, delay_ms)}", "", _verdict(outcome) + ".", ""]
        lines += _markdown(_HEADS, [_cells(row) for row in outcome.rows])
    return "\n".join(lines) + "\n"


@contextmanager
def _workplace(folder: Path | None) -> Iterator[Path]:
    """``folder``, which stays; or one that does not."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    made = Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--contenders", default="heliograph,connect", show_default=True)
@click.option("--seconds", default=60.0, show_default=True, help="Of a config that changes.")
@click.option("--connectors", default=12, show_default=True)
@click.option("--delay-ms", default=_DELAY_MS, show_default=True,
              help="Connect's scheduled.rebalance.max.delay.ms: how long it waits for one that"
              " left.")  # fmt: skip
@click.option("--folder", type=click.Path(path_type=Path),
              help="Empty or new; brokers' data and workers' logs stay there.")  # fmt: skip
@click.option("--output", type=click.Path(path_type=Path), is_flag=False, flag_value=_RESULTS,
              help=f"Write the report; to results/{_RESULTS.name} without a value.")  # fmt: skip
def main(
    contenders: str, seconds: float, connectors: int, delay_ms: int, folder: Path | None,
    output: Path | None,
) -> None:  # fmt: skip
    """Do things to workers, and measure what connectors see of it."""
    unknown = set(contenders.split(",")) - _LABELS.keys()
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: one of {', '.join(_LABELS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is stopped
    command = (
        f"python -m benchmarks.connect_workers --contenders {contenders} --seconds {seconds:g}"
        f" --connectors {connectors} --delay-ms {delay_ms} --output"
    )
    machine: dict[str, str] = describe()
    results: dict[str, _Outcome] = {}
    console = Console(width=None if sys.stdout.isatty() else 140)
    progress = Console(stderr=True, width=None if sys.stderr.isatty() else 240, highlight=False)
    with _workplace(folder) as work:
        for contender in contenders.split(","):

            def say(text: str, contender: str = contender) -> None:
                progress.print(f"{_clock(time.time())} {_LABELS[contender]}: {text}")

            place = work / contender
            lab = Lab(place / "lab", (SOURCE, TARGET), heap="1g", jvm_flags=())
            cluster = Cluster(contender, lab, place, delay_ms)
            try:
                lab.start()
                results[contender] = _Trial(lab, cluster, connectors, seconds, say).run()
            except (HeliographError, MeasureError) as error:
                raise click.ClickException(str(error)) from error
            finally:
                cluster.close()
                lab.stop(grace_s=0)
            console.print(_table(results[contender], _label(contender, delay_ms)))
            if output is not None:
                output.write_text(_report(results, delay_ms, machine, command), encoding="utf-8")
    click.echo("\n".join(_beside(results)))


if __name__ == "__main__":
    main()
