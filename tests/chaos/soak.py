"""The soak: a random schedule of all faults under load, with a checker that reads along.

``make soak MINUTES=30``, or ``PYTHONPATH=tests/chaos:tests/integration python -m soak --help``. Two
clusters of three brokers behind proxies, numbered records without a pause, Heliograph, and beside
it the real MM2 twice, at least once and exactly once, mirroring the same topics between the same
clusters. One line a mirror at the end, and a report.

With ``--forget 3 --dated-back 36 --damage`` target brokers forget producers within seconds, so that
nothing is compared but what was known before, and the target's own logs are hit: others write to
them, they are emptied, the ledger loses its tail. Records may be there twice then, where the mirror
says so, and ``heliograph verify`` must say what became of the target.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np
import psutil
from checker import Checker, Verdict, translations
from confluent_kafka.admin import OffsetSpec
from load import Load, LoadedTopic
from mirrors import DEFAULT_LEASE_SECONDS, SOURCE, TARGET, Heliograph, Mm2
from nemesis import SmallDisk, World, log_offsets, schedule
from proxy import Proxies, before
from servant import Servant
from soak_report import write

from heliograph.client.offsets import FlowOffsets
from heliograph.config import load as load_config
from heliograph.lab import Lab
from heliograph.model import ClientSettings
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

REPORT = Path(__file__).parents[2] / "benchmarks" / "results" / "soak.md"
PARTITIONS = 3
BROKERS = 3
#: (topic, codec, transactional, share of the load)
TOPICS = (
    ("soak-plain", "none", False, 0.2),
    ("soak-bursts", "none", False, 0.05),
    ("soak-lz4", "lz4", False, 0.2),
    ("soak-zstd", "zstd", False, 0.2),
    ("soak-gzip", "gzip", False, 0.1),
    ("soak-payments", "none", True, 0.15),
    ("soak-ledger", "snappy", True, 0.1),
)
#: Long enough for brokers to forget who wrote.
RESTS = {"soak-bursts": 4.0}
#: As production clusters are set up: one broker may be away, and nothing acknowledged is lost.
BROKER_SETTINGS = {
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    # A dead or frozen broker is noticed sooner than by default, so that more faults fit in an hour.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
    "replica.lag.time.max.ms": "6000",
}
_SAMPLE_SECONDS = 1.0
_MEMORY_SECONDS = 5.0
_PROGRESS_SECONDS = 15.0
_FIRST_COPY_SECONDS = 300.0
#: Memory of a process that has just been started says nothing.
_SETTLED_SECONDS = 45.0


@dataclass(slots=True)
class Happening:
    """A fault of the run; times are seconds since the first one."""

    name: str
    text: str
    injected: float
    healed: float = 0.0


@dataclass(slots=True)
class Watch:
    """What is seen each second: records of the source, and how many of them each mirror has."""

    began: float = field(default_factory=time.monotonic)
    samples: list = field(default_factory=list)  # (seconds, source, {mirror: distinct})
    memory: dict = field(default_factory=dict)  # mirror: [(seconds, MB)]

    def now(self):
        return time.monotonic() - self.began

    def lags(self):
        if not self.samples:
            return {}
        _, source, there = self.samples[-1]
        return {name: source - count for name, count in there.items()}


class Monitor(threading.Thread):
    """Samples the checker and the mirrors' memory; prints where things stand."""

    def __init__(self, checker, mirrors, watch, say):
        super().__init__(daemon=True)
        self._checker, self._mirrors, self._watch, self._say = checker, mirrors, watch, say
        self._stopping = threading.Event()
        self.doing, self.storming = "warming up", False
        self.error = None

    def run(self):
        next_memory = next_line = time.monotonic()
        roots = {}
        while not self._stopping.wait(_SAMPLE_SECONDS):
            try:
                source, there, repeated = self._checker.progress()
            except (TimeoutError, RuntimeError, OSError, EOFError) as error:
                self.error = error
                return
            now = self._watch.now()
            self._watch.samples.append((now, source, there))
            if time.monotonic() >= next_memory:
                next_memory = time.monotonic() + _MEMORY_SECONDS
                for mirror in self._mirrors:
                    self._weigh(mirror, roots, now)
            if time.monotonic() >= next_line:
                next_line = time.monotonic() + _PROGRESS_SECONDS
                lags = " | ".join(
                    f"{name} {source - count:,} behind"
                    + (f", {repeated[name]:,} repeated" if repeated[name] else "")
                    for name, count in there.items()
                )
                self._say(f"{self.doing}: {source:,} records; {lags}")

    def _weigh(self, mirror, roots, now):
        since = roots.get(mirror.name, (0, 0.0))
        if since[0] != mirror.pid:
            roots[mirror.name] = since = (mirror.pid, now)
        if now - since[1] >= _SETTLED_SECONDS and self.storming:
            with suppress(psutil.Error, OSError):
                megabytes = mirror.memory_mb()
                if megabytes > 1:
                    self._watch.memory.setdefault(mirror.name, []).append((now, megabytes))

    def stop(self):
        self._stopping.set()
        self.join()


@dataclass(slots=True)
class Outcome:
    """What became of one mirror."""

    name: str
    verdict: Verdict
    deaths: int
    caught_up: float | None  # seconds after the load's end
    helped: bool  # restarted once more, because it did not catch up by itself
    memory: list

    @property
    def weights(self):
        """Median memory of the first, middle and last fifth, and MB per minute over all."""
        if len(self.memory) < 5:
            return None
        times, sizes = (np.array(column) for column in zip(*self.memory, strict=True))
        fifth = max(1, len(sizes) // 5)
        middle = len(sizes) // 2
        parts = sizes[:fifth], sizes[middle - fifth // 2 : middle + fifth // 2 + 1], sizes[-fifth:]
        slope = np.polyfit(times / 60, sizes, 1)[0]
        return *(float(np.median(part)) for part in parts), float(slope)

    def line(self, faults, kinds):
        v = self.verdict
        weights = self.weights
        memory = f"memory {weights[0]:.0f} -> {weights[2]:.0f} MB" if weights else "memory unknown"
        extra = f", {v.named:,} where it says so" if v.named else ""
        extra += f", {v.behind:,} still not there" if v.behind else ""
        extra += f", {v.foreign:,} that nobody wrote" if v.foreign else ""
        wrong = f", {v.mistranslated:,} wrongly translated" if v.mistranslated else ""
        return (
            f"{self.name}: {faults} faults of {kinds} kinds survived, {v.checked:,} records"
            f" checked, {v.lost:,} lost, {v.repeated:,} repeated, {v.reordered:,} out of order,"
            f" {v.aborted_visible:,} aborted visible{extra}{wrong}, {memory}"
        )


class Soak:
    """One run. Everything that was started is on the stack, and ends with it."""

    def __init__(self, folder, options, say):
        self.folder, self.options, self.say = folder, options, say
        self.topics = []
        for index, (name, codec, transactional, share) in enumerate(TOPICS):
            rate = round(options["rate"] * share)
            first = index * PARTITIONS
            rest = RESTS.get(name, 0.0)
            self.topics.append(
                LoadedTopic(name, codec, transactional, PARTITIONS, first, rate, rest)
            )
        self.streams = {
            (t.name, p): t.first_stream + p for t in self.topics for p in range(PARTITIONS)
        }
        self.happened = []
        self.watch = Watch()
        self.notes = []
        self.verified = ""
        self.dishonest = []
        self.events = []

    def run(self):
        """Returns the outcomes, Heliograph's first."""
        with ExitStack() as stack:
            world = self._build(stack)
            checker, load, monitor = self._begin(stack, world)
            self._await_copies(world, monitor)
            self._storm(world, monitor)
            monitor.doing = "the load has stopped, all faults are healed"
            acked = load.stop(patience=300)
            self._troubles = load.troubles()
            return self._judge(world, checker, monitor, acked)

    def _build(self, stack):
        proxies = stack.enter_context(Proxies(2 * BROKERS))
        fronts = {SOURCE: proxies.ports[:BROKERS], TARGET: proxies.ports[BROKERS:]}
        disk = self._disk(stack)
        lab = Lab(self.folder, brokers=BROKERS, settings=self._settings(), heap="384m",
                  advertised=fronts)  # fmt: skip
        self.say(f"two clusters of {BROKERS} brokers in {self.folder}")
        stack.callback(lab.stop, grace_s=0)
        lab.start(180)
        dice = random.Random(self.options["seed"])
        world = World(
            lab, proxies, before(proxies, lab), dice, small_disk=disk, streams=self.streams,
            dated_back=self.options["dated_back"], damage=self.options["damage"],
            forget_seconds=self.options["forget"],
        )  # fmt: skip
        settings = ClientSettings("x", {"bootstrap.servers": lab[SOURCE].back_door})
        with ClusterClient(settings, "soak") as client:
            kept = {"retention.ms": "-1"}  # whatever the records' timestamps are
            wanted = [admin.NewTopic(t.name, PARTITIONS, BROKERS, kept) for t in self.topics]
            failed = admin.create_topics(client, wanted, 60_000)
            assert not failed, failed
        mirrors: list[Heliograph | Mm2] = [
            Heliograph(self.folder, lab, "soak-.*", lease_seconds=self.options["lease"])
        ]
        if self.options["mm2"]:
            mirrors += [
                Mm2(self.folder, lab, "soak-.*", exactly_once=once) for once in (False, True)
            ]
        world.mirrors = mirrors
        return world

    def _settings(self):
        settings = {"*": BROKER_SETTINGS}
        if self.options["dated_back"]:
            # The load's own producers are not to be forgotten.
            settings[SOURCE] = {"producer.id.expiration.ms": str(20 * 24 * 3_600_000)}
        settings[TARGET] = {}
        if self.options["damage"]:
            # What was deleted is deleted for good, also if the broker is killed a moment later.
            settings[TARGET]["log.flush.start.offset.checkpoint.interval.ms"] = "500"
        if self.options["forget"]:
            settings[TARGET] |= {
                "producer.id.expiration.ms": str(round(1000 * self.options["forget"])),
                "producer.id.expiration.check.interval.ms": "1000",
            }
        return settings

    def _disk(self, stack):
        megabytes = round(400 + 60 * self.options["minutes"])
        try:
            disk = SmallDisk(self.folder / TARGET / f"data-{BROKERS}", megabytes)
        except OSError as error:
            self.notes.append(f"`disk full` was left out: {error}.")
            return None
        stack.callback(disk.unmount)
        return disk

    def _begin(self, stack, world):
        lab = world.lab
        prefixes = {m.name: m.prefix for m in world.mirrors}
        checker = Servant(
            Checker, lab[SOURCE].back_door, lab[TARGET].back_door, prefixes, self.streams
        )
        stack.callback(checker.close)
        world.checker = checker
        load = Servant(
            Load, lab[SOURCE].back_door, self.topics, self.options["seed"],
            self.options["dated_back"],
        )  # fmt: skip
        stack.callback(load.close)
        for mirror in world.mirrors:
            stack.callback(mirror.destroy)
            mirror.start()
        self.watch = Watch()
        monitor = Monitor(checker, world.mirrors, self.watch, self.say)
        monitor.start()
        stack.callback(monitor.stop)
        return checker, load, monitor

    def _await_copies(self, world, monitor):
        """Faults begin when every mirror copies: none is hit before it was ready."""
        deadline = time.monotonic() + _FIRST_COPY_SECONDS
        while time.monotonic() < deadline:
            if monitor.error:
                raise RuntimeError(f"the checker failed: {monitor.error}")
            if self.watch.samples and all(self.watch.samples[-1][2].values()):
                return
            for mirror in world.mirrors:
                mirror.supervise()
            time.sleep(0.5)
        copied = self.watch.samples[-1][2] if self.watch.samples else {}
        raise RuntimeError(f"not every mirror copies after {_FIRST_COPY_SECONDS:.0f} s: {copied}")

    def _storm(self, world, monitor):
        end = time.monotonic() + 60 * self.options["minutes"]
        self.began, monitor.storming = self.watch.now(), True
        most = self.options["count"] or sys.maxsize
        for fault in schedule(world, self.options["faults"]):
            if time.monotonic() >= end or len(self.happened) >= most:
                break
            started = time.monotonic()
            happening = Happening(fault.name, "", self.watch.now())
            self.happened.append(happening)
            monitor.doing = f"fault {len(self.happened)}, {fault.name}"
            try:
                happening.text = fault.inject()
                self.say(f"fault {len(self.happened)}, {fault.name}: {happening.text}")
                self._pause(world, fault.seconds, supervise=False)
            finally:
                fault.heal()
            happening.healed = self.watch.now()
            monitor.doing = f"after fault {len(self.happened)}, {fault.name}"
            left = started + self.options["every"] - time.monotonic()
            self._pause(world, max(2.0, left), supervise=True)
            if monitor.error:
                raise RuntimeError(f"the checker failed: {monitor.error}")
        self.ended, monitor.storming = self.watch.now(), False

    def _pause(self, world, seconds, *, supervise):
        deadline = time.monotonic() + seconds
        while True:
            if supervise:
                for mirror in world.mirrors:
                    if mirror.supervise():
                        self.say(f"{mirror.name} had ended by itself and was started again")
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(0.5, left))

    def _judge(self, world, checker, monitor, acked):
        world.proxies.heal()
        for alias in (SOURCE, TARGET):
            if not world.wait_whole(alias):
                self.notes.append(f"cluster {alias} did not become whole again.")
        stopped = time.monotonic()
        caught = self._catch_up(world, checker, stopped, {})
        behind = [m for m in world.mirrors if m.name not in caught]
        for mirror in behind:
            self.say(f"{mirror.name} does not catch up; it is restarted, as an operator would")
            mirror.end()
            mirror.start()
        if behind:
            caught = self._catch_up(world, checker, time.monotonic(), caught)
        monitor.stop()
        self.source_loss = checker.source_loss(acked)
        self.source_anomalies = checker.source_anomalies()
        outcomes = []
        for mirror in world.mirrors:
            named = {}
            if mirror.name == "heliograph":
                named, self.events = mirror.named(), mirror.events()
            verdict = checker.verdict(mirror.name, named)
            if mirror.name == "heliograph":
                self._translate(world, mirror, checker, verdict)
                if verdict.lost == verdict.behind == 0:
                    self._verify(world, mirror, checker)
            outcomes.append(
                Outcome(
                    mirror.name, verdict, mirror.deaths, caught.get(mirror.name),
                    mirror in behind, self.watch.memory.get(mirror.name, []),
                )
            )  # fmt: skip
        for mirror in world.mirrors:
            mirror.end()
        return outcomes

    def _catch_up(self, world, checker, since, caught):
        """{mirror: seconds it took}; ends when all have, or those who have not make no progress."""
        caught = dict(caught)
        reached, moved = {}, {}
        while time.monotonic() - since < self.options["catch_up"]:
            source, there, _ = checker.progress()
            quiet = checker.quiet_for()
            now = time.monotonic()
            for name, count in there.items():
                if reached.get(name) != count:
                    reached[name], moved[name] = count, now
                if count >= source and quiet["source"] > 3:
                    caught.setdefault(name, now - since)
            if len(caught) == len(there) and min(quiet.values()) > 3:
                break
            if all(now - moved[n] > self.options["patience"] for n in there if n not in caught):
                break
            for mirror in world.mirrors:
                mirror.supervise()
            time.sleep(0.5)
        return caught

    def _verify(self, world, mirror, checker):
        """Whether ``heliograph verify`` says what became of the target, and nothing else."""
        self.say("heliograph verify compares it all")
        code, report = mirror.verify("soak-.*")
        self.verified = f"exit code {code}: {report['verdict']}"
        self.say(self.verified)
        starts = self._starts(world, mirror.prefix)
        extras = checker.extras(mirror.name, starts)
        counts = checker.source_records()
        found = {
            (topic["topic"], p["partition"]): p
            for topic in report["topics"]
            for p in topic["partitions"]
        }
        self.dishonest = [f"{place} is not in the report" for place in extras.keys() - found.keys()]
        for place, figures in found.items():
            differences = dict(figures["differences"])
            extra, (least, most) = differences.pop("extra", 0), extras[place]
            if not least <= extra <= most:
                self.dishonest.append(f"{place}: {extra} extra, expected {least} to {most}")
            if any(differences.values()) or figures["problems"]:
                self.dishonest.append(f"{place}: {differences} {figures['problems']}")
            # An emptied log may have been filled again from the source's first record on.
            told = figures["records"], figures["deleted_on_target"]
            if sum(told) != counts[place] or (told[1] and not starts[place]):
                self.dishonest.append(
                    f"{place} begins at {starts[place]}: {told[0]} said to be compared and"
                    f" {told[1]} to be deleted, of {counts[place]}"
                )
        if any(most for _, most in extras.values()):
            # Whether one of the two copies of a record is gone with an emptied log is not known.
            expected = {1} if any(least for least, _ in extras.values()) else {1, 3}
        else:
            expected = {3 if any(p["deleted_on_target"] for p in found.values()) else 0}
        if code not in expected:
            self.dishonest.append(f"exit code {code}, expected {sorted(expected)}")

    def _starts(self, world, prefix):
        """{(topic, partition): where the target's log begins}."""
        places = [(prefix + topic, partition) for topic, partition in self.streams]
        found = log_offsets(world.lab[TARGET], places, OffsetSpec.earliest())
        return {(topic[len(prefix) :], p): offset for (topic, p), offset in found.items()}

    def _translate(self, world, mirror, checker, verdict):
        starts = self._starts(world, mirror.prefix)
        flow = next(f for f in load_config(mirror.config).flows if f.enabled)
        with FlowOffsets(flow) as offsets:
            for (topic, partition), samples in checker.samples(mirror.name).items():
                # A consumer of what was deleted goes on where the log begins.
                start = starts[topic, partition]
                wanted = [(n, here, max(there, start)) for n, here, there in samples]
                count, wrong, examples = translations(
                    wanted,
                    lambda o, t=topic, p=partition: offsets.to_target(t, p, o).offset,
                    most=10,
                )
                verdict.translated += count
                verdict.mistranslated += wrong
                verdict.examples += [f"{topic}-{partition} translation: {e}" for e in examples]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--minutes", default=30.0, show_default=True, help="How long faults are injected.")
@click.option("--rate", default=12_000, show_default=True, help="Records per second.")
@click.option("--seed", default=None, type=int, help="Of the schedule; random if not given.")
@click.option("--every", default=14.0, show_default=True, help="Seconds from fault to fault.")
@click.option("--count", default=None, type=int, help="Stop after so many faults.")
@click.option("--faults", default="", help="Only kinds whose names contain one of these, a,b,c.")
@click.option(
    "--forget",
    default=0.0,
    show_default=True,
    help="Seconds after which target brokers forget producers, by the dates of records; 0: a day.",
)
@click.option(
    "--dated-back", default=0.0, show_default=True, help="How many hours old records say they are."
)
@click.option(
    "--damage/--no-damage",
    default=False,
    show_default=True,
    help="Hit the target's own logs, too: foreign records, emptied logs, a ledger that is cut.",
)
@click.option(
    "--lease",
    default=DEFAULT_LEASE_SECONDS,
    show_default=True,
    help="heliograph.lease.seconds: how soon others take over.",
)
@click.option("--mm2/--no-mm2", default=True, show_default=True, help="Run MM2 beside it.")
@click.option(
    "--patience",
    default=120,
    show_default=True,
    help="Seconds without progress after which a mirror is given up.",
)
@click.option(
    "--catch-up",
    default=600,
    show_default=True,
    help="Seconds after the load's end, and again after a restart, that mirrors have to catch up.",
)
@click.option("--folder", type=click.Path(path_type=Path), help="For data and logs; kept if given.")
@click.option("--output", type=click.Path(path_type=Path), default=REPORT, help="The report.")
def main(folder, output, **options):
    """Inject faults at random while mirrors run, and check every record."""
    began = time.monotonic()

    def say(text):
        seconds = int(time.monotonic() - began)
        click.echo(f"{seconds // 60:3}:{seconds % 60:02}  {text}", err=True)

    if options["seed"] is None:
        options["seed"] = int.from_bytes(os.urandom(3), "big")
    options["faults"] = [f.strip() for f in options["faults"].split(",") if f.strip()]
    kept = folder is not None
    folder = folder or Path(tempfile.mkdtemp(prefix="heliograph-soak-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    say(f"seed {options['seed']}, {options['minutes']:g} minutes, {options['rate']:,} records/s")
    soak = Soak(folder, options, say)
    try:
        outcomes = soak.run()
    except KeyboardInterrupt:
        say("interrupted; everything is stopped")
        sys.exit(130)
    faults, kinds = len(soak.happened), len({h.name for h in soak.happened})
    write(output, soak, outcomes, faults, kinds)
    for outcome in outcomes:
        click.echo(outcome.line(faults, kinds))
    ours = outcomes[0].verdict
    if soak.source_loss or any(soak.source_anomalies):
        click.echo(
            f"the source itself lost {soak.source_loss:,} acknowledged records,"
            f" repeated and reordered {soak.source_anomalies}",
            err=True,
        )
    if soak.verified:
        click.echo(f"heliograph verify: {soak.verified}")
    for text in soak.dishonest:
        click.echo(f"heliograph verify is wrong: {text}", err=True)
    if not ours.exact or soak.dishonest:
        for example in ours.examples[:20]:
            click.echo(example, err=True)
        click.echo(f"logs are kept in {folder}", err=True)
        sys.exit(1)
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
