"""Does the canary tell the truth? ``make canary``; starts a lab.

A real mirror between two real brokers, the target behind a proxy that can delay or cut its link.
Numbered records flow all the time. For each of them one consumer on the source and one on the
target, both beside the proxy and in this process, note when it is visible: the time between the two
is what the canary says that it measures. In several windows the median of the records' latencies is
compared with that of the canary's probes, by REST. They agree if they differ by no more than

    a tenth of both round trips of the mirror, 2 ms at least: the canary takes half of each off its
    sights, and the proxy delays both ways alike; and 1.57 interquartile ranges by the root of their
    number, for each of the two medians: by so much medians of two samples of one distribution
    differ (the notches of a box plot).

While the link is cut the canary must say what the record says that waits longest, but for the time
until the next probe, and afterwards come back to where it was.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from proxy import NO_FAULTS, Faults, Proxies, before

from benchmarks.bench import QUIET, SOURCE, TARGET, MeasureError
from benchmarks.contenders import HeliographProcess
from benchmarks.machine import commit
from heliograph.lab import Lab
from heliograph.lab.broker import HOST, free_ports
from heliograph.model import ClientSettings
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.inspection import round_trip

_TOPIC, _PARTITIONS = "canary-records", 2
#: Each is a batch of its own. Five of a partition are in flight: over a link with a round trip of
#: 200 ms no more than 25 a second fit, and what exceeds that waits, unlike a heartbeat.
_PER_SECOND = 20
_ASK_SECONDS = 0.2
_START_SECONDS = 180.0
#: After a fault: what is still on its way from before is not of the new window.
_SETTLE_SECONDS = 5.0
#: A probe a second, a heartbeat a second, and a canary that waits 3 s for one.
_NEXT_PROBE_SECONDS = 5.0
#: Requests that the cut broke off are given up by then.
_BACK_SECONDS = 30.0
#: Of round trips: by how much less than half of one the ways there and back may differ here.
_UNEVEN = 0.1
#: The canary is told in ms, and brokers and threads take their time.
_LEAST_SECONDS = 0.002
_RESULTS = Path(__file__).parent / "results" / "canary.md"


class Records:
    """Writes numbered records, and notes when each is visible on both sides."""

    def __init__(self, source: str, target: str) -> None:
        #: By number, in seconds since the epoch. Each is written by one thread.
        self.here: dict[int, float] = {}
        self.there: dict[int, float] = {}
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(source,)),
            threading.Thread(target=self._read, args=(source, _TOPIC, self.here)),
            threading.Thread(target=self._read, args=(target, f"{SOURCE}.{_TOPIC}", self.there)),
        ]

    def start(self) -> None:
        """Until `stop`."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Waits for all of it."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def latencies(self, since: float, until: float) -> list[float]:
        """Of the records that became visible on the source between two times; raises MeasureError.

        All of them must have arrived.
        """
        numbers = [n for n, at in list(self.here.items()) if since <= at < until]
        if missing := sum(n not in self.there for n in numbers):
            raise MeasureError(f"{missing} of {len(numbers)} records did not arrive")
        return [max(0.0, self.there[n] - self.here[n]) for n in numbers]

    def waits(self, now: float) -> float:
        """For how long the record waits that waits longest; 0 if none does."""
        waiting = [at for n, at in list(self.here.items()) if n not in self.there]
        return max(0.0, now - min(waiting)) if waiting else 0.0

    def _write(self, bootstrap: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **QUIET})
        number, began = 0, time.monotonic()
        while not self._ended.wait(max(0.0, began + number / _PER_SECOND - time.monotonic())):
            producer.produce(_TOPIC, f"{number}".encode(), partition=number % _PARTITIONS)
            producer.poll(0)
            number += 1
        producer.flush(10)

    def _read(self, bootstrap: str, topic: str, seen: dict[int, float]) -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "canary",
                             "fetch.wait.max.ms": 100, "enable.auto.commit": False,
                             **QUIET})  # fmt: skip
        consumer.assign([Assigned(topic, p, OFFSET_BEGINNING) for p in range(_PARTITIONS)])
        while not self._ended.is_set():
            message = consumer.poll(0.1)
            value = None if message is None or message.error() else message.value()
            if value is not None:
                # Only what comes first counts: nothing is there twice in this benchmark.
                seen.setdefault(int(value), time.time())
        consumer.close()


class Canary:
    """What the mirror says of its canary, asked several times a second."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/heliograph/v1/flows"
        #: By when a probe arrived: its latency.
        self.probes: dict[float, float] = {}
        #: What the canary said last, a probe that waits included.
        self.now: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen)

    def start(self) -> None:
        """Until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Waits for its end."""
        self._ended.set()
        self._thread.join()

    def latencies(self, since: float, until: float) -> list[float]:
        """Of the probes that arrived between two times."""
        return [took for at, took in list(self.probes.items()) if since <= at < until]

    def _listen(self) -> None:
        while not self._ended.wait(_ASK_SECONDS):
            try:
                with urllib.request.urlopen(self._url, timeout=5) as answer:
                    flows = json.load(answer)
            except OSError:  # not listening yet
                continue
            for canary in (f["canary"] for f in flows if f["flow"] == f"{SOURCE}->{TARGET}"):
                if canary is None or canary["latency_seconds"] is None:
                    continue
                self.now = canary["latency_seconds"]
                if canary["seen_at"] is not None:
                    at = datetime.fromisoformat(canary["seen_at"]).timestamp()
                    self.probes.setdefault(at, canary["latency_seconds"])


@dataclass(frozen=True)
class Compared:
    """A window: medians in seconds, how many there were, and by how much they may differ."""

    what: str
    records: float
    canary: float
    count: int
    probes: int
    error: float

    @property
    def agrees(self) -> bool:
        """Whether the canary told the truth."""
        return abs(self.records - self.canary) <= self.error


def compared(
    what: str, records: Sequence[float], probes: Sequence[float], round_trips: float
) -> Compared:
    """Compare two samples; raises MeasureError if there are too few probes. Pure."""
    if len(probes) < 5:
        raise MeasureError(f"{what}: only {len(probes)} probes were seen")
    sights = max(_LEAST_SECONDS, _UNEVEN * round_trips)
    error = sights + _notch(records) + _notch(probes)
    medians = statistics.median(records), statistics.median(probes)
    return Compared(what, *medians, len(records), len(probes), error)


def _notch(sample: Sequence[float]) -> float:
    first, _, third = statistics.quantiles(sample, n=4)
    return float(1.57 * (third - first) / len(sample) ** 0.5)


class Stage:
    """The lab, its proxy, the mirror, the records and the canary, while it is measured."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._proxies: Any = stack.enter_context(Proxies(1))  # type: ignore[no-untyped-call]
        [self._port] = self._proxies.ports
        self._lab = Lab(folder / "lab", advertised={TARGET: [self._port]}, jvm_flags=())
        stack.callback(self._lab.stop, grace_s=0)
        self._lab.start()
        before(self._proxies, self._lab)  # type: ignore[no-untyped-call]
        source, target = (self._lab[alias].back_door for alias in (SOURCE, TARGET))
        new = NewTopic(_TOPIC, _PARTITIONS, 1)
        admin = AdminClient({"bootstrap.servers": source})
        admin.create_topics([new])[_TOPIC].result(60)
        [port] = free_ports(1)
        self._mirror = _Mirror(self._properties(folder), folder, port)
        stack.callback(self._mirror.stop)
        self._mirror.start()
        self.records, self.canary = Records(source, target), Canary(f"http://{HOST}:{port}")
        for part in (self.records, self.canary):
            stack.callback(part.stop)
            part.start()
        self.until(lambda: bool(self.canary.probes and self.records.there), _START_SECONDS,
                   "the mirror did not begin")  # fmt: skip

    def _properties(self, folder: Path) -> Path:
        lines = [f"clusters = {SOURCE}, {TARGET}", f"{SOURCE}->{TARGET}.enabled = true"]
        lines += [f"{SOURCE}->{TARGET}.topics = {_TOPIC}", "heliograph.canary.interval.seconds = 1"]
        lines += [f"{a}.bootstrap.servers = {self._lab[a].bootstrap}" for a in (SOURCE, TARGET)]
        kinds = ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.",
                 "heliograph.ledger.topic.")  # fmt: skip
        lines += [f"{kind}replication.factor = 1" for kind in kinds]
        path = folder / "mm2.properties"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def until(self, condition: Callable[[], bool], seconds: float, otherwise: str) -> float:
        """Waits for a condition; returns when it held. Raises MeasureError."""
        deadline = time.time() + seconds
        while not condition():
            self._mirror.require_running()
            if time.time() > deadline:
                raise MeasureError(otherwise)
            time.sleep(0.05)
        return time.time()

    @contextmanager
    def link(self, faults: Faults) -> Iterator[None]:
        """A fault on the way to the target."""
        self._proxies.set(self._port, faults)
        if faults.refuse:
            self._proxies.cut(self._port)
        try:
            yield
        finally:
            self._proxies.set(self._port, NO_FAULTS)

    def round_trips(self) -> float:
        """Of the mirror to both clusters, together, in seconds."""
        return sum(map(self._round_trip, (SOURCE, TARGET)))

    def _round_trip(self, alias: str) -> float:
        servers = self._lab[alias].bootstrap
        host, _, port = servers.rpartition(":")
        settings = ClientSettings(alias, {"bootstrap.servers": servers})
        with ClusterClient(settings, "benchmark") as client:
            connection = client.probe(host, int(port))
            try:
                return round_trip(connection, 30.0)
            finally:
                connection.close()


class _Mirror(HeliographProcess):
    """``heliograph run FILE --listen``."""

    def __init__(self, properties: Path, folder: Path, port: int) -> None:
        super().__init__(properties, folder)
        self._command += ["--listen", f"{HOST}:{port}"]


def window(stage: Stage, what: str, seconds: float, delay: float = 0.0) -> Compared:
    """Compare both over some seconds, with so many seconds of delay each way to the target."""
    with stage.link(Faults(delay=delay)):
        time.sleep(_SETTLE_SECONDS)
        round_trips = stage.round_trips()
        since = time.time()
        time.sleep(seconds)
        until = time.time()
        wanted = {n for n, at in list(stage.records.here.items()) if since <= at < until}
        stage.until(lambda: wanted <= stage.records.there.keys(), 60.0, "records did not arrive")
    records, probes = (x.latencies(since, until) for x in (stage.records, stage.canary))
    return compared(what, records, probes, round_trips)


@dataclass(frozen=True)
class Cut:
    """The link was cut: what both said at its end, and when each had come back, in seconds."""

    seconds: float
    records: float
    canary: float
    records_back: float
    canary_back: float

    @property
    def agrees(self) -> bool:
        """Whether the canary went up with the records, and came back with them."""
        up = abs(self.records - self.canary) <= _NEXT_PROBE_SECONDS
        return up and self.canary_back - self.records_back <= _NEXT_PROBE_SECONDS


def cut(stage: Stage, seconds: float, usual: float) -> Cut:
    """Cut the link to the target for some seconds; ``usual`` is the canary's latency before."""
    with stage.link(Faults(refuse=True)):
        time.sleep(seconds)
        now = time.time()
        up = stage.records.waits(now), stage.canary.now or 0.0
    healed = time.time()
    low = max(1.0, 10 * usual)
    back = [
        stage.until(condition, _BACK_SECONDS, f"{what} did not come back") - healed
        for what, condition in (
            ("the records", lambda: stage.records.waits(time.time()) < low),
            ("the canary", partial(_is_low, stage.canary, healed, low)),
        )
    ]
    return Cut(seconds, *up, *back)


def _is_low(canary: Canary, since: float, low: float) -> bool:
    """Whether a probe that was sent later has arrived quickly."""
    return any(at > since and took < low for at, took in list(canary.probes.items()))


def report(windows: Sequence[Compared], outage: Cut, command: str, load: float) -> str:
    """The page under benchmarks/results."""
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    loads = f"load average {load:.1f} before and {os.getloadavg()[0]:.1f} at the end"
    lines = [
        "# Does the canary tell the truth?", "",
        f"{now}, commit {commit()}, `{command}`. {os.cpu_count()} cores, {loads}."
        f" {_said(agree(windows, outage))}", "",
        f"Medians of {_PER_SECOND} records/s and of the canary's probes: from visible"
        " on the source to visible on the target, in ms. *May differ*: a tenth of both round"
        f" trips, {1000 * _LEAST_SECONDS:.0f} ms at least, and what medians of so many differ by"
        " chance (`benchmarks/canary.py`).", "",
        "| link to the target | records | median | probes | canary's median | difference |"
        " may differ | agree |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
        *(
            f"| {w.what} | {w.count:,} | {1000 * w.records:.1f} | {w.probes} |"
            f" {1000 * w.canary:.1f} | {1000 * (w.canary - w.records):+.1f} |"
            f" {1000 * w.error:.1f} | {'yes' if w.agrees else 'no'} |"
            for w in windows
        ), "",
        f"The link was cut for {outage.seconds:.0f} s. At its end the record that waited longest"
        f" had waited {outage.records:.1f} s, the canary said {outage.canary:.1f} s. After the"
        f" repair records came as before within {outage.records_back:.1f} s, the canary's probes"
        f" within {outage.canary_back:.1f} s. The canary may be {_NEXT_PROBE_SECONDS:.0f} s off: a"
        f" probe has to be written and followed first. {_said(outage.agrees)}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def agree(windows: Sequence[Compared], outage: Cut) -> bool:
    """Whether the canary told the truth all the time."""
    return outage.agrees and all(one.agrees for one in windows)


def _said(agrees: bool, /) -> str:
    return "They agree." if agrees else "They do not agree."


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--windows", default=5, show_default=True, help="Windows without a fault.")
@click.option("--seconds", default=30.0, show_default=True, help="Length of a window.")
@click.option("--delays", default="20,100", show_default=True,
              help="Windows with so many ms of delay each way.")  # fmt: skip
@click.option("--cut", "cut_seconds", default=25.0, show_default=True, help="Length of the cut.")
@click.option("--output", type=click.Path(path_type=Path), is_flag=False, flag_value=_RESULTS,
              help=f"Write the report; to results/{_RESULTS.name} without a value.")  # fmt: skip
def main(
    windows: int, seconds: float, delays: str, cut_seconds: float, output: Path | None
) -> None:
    """Compare what the canary says with what records take. Exits with 1 if they differ."""
    load = os.getloadavg()[0]
    chosen = [("as it is", 0.0)] * windows
    chosen += [(f"{ms} ms of delay each way", float(ms) / 1000) for ms in delays.split(",") if ms]
    found: list[Compared] = []
    with ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="heliograph-canary-", ignore_cleanup_errors=True)
        stage = Stage(Path(stack.enter_context(made)), stack)
        for what, delay in chosen:
            found.append(window(stage, what, seconds, delay))
            click.echo(f"{found[-1]}, agrees: {found[-1].agrees}", err=True)
        outage = cut(stage, cut_seconds, statistics.median(w.canary for w in found[:windows]))
        click.echo(f"{outage}, agrees: {outage.agrees}", err=True)
    page = report(found, outage, " ".join(["make canary", *_options()]), load)
    if output is not None:
        output.write_text(page, encoding="utf-8")
    click.echo(page)
    sys.exit(not agree(found, outage))


def _options() -> list[str]:
    """The options as `make canary` takes them; where the page goes is none of them."""
    given = " ".join(a for a in sys.argv[1:] if not a.startswith("--output"))
    return [f"CANARY_OPTIONS='{given}'"] if given else []


if __name__ == "__main__":
    main()
