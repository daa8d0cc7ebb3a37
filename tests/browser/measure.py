"""How quickly the dashboard shows, and what an open one costs: ``make measure``.

With 10,000 partitions and a real browser, of ``heliograph run --listen`` between two real brokers,
or with ``--synthetic`` of the real REST server alone, whose mirror is made up. The driver is a
process of its own:

- first paint, and when the picture of the flows and the table of partitions are shown; of pages
  that were never loaded before;
- CPU time of the driver while nobody looks, and while one page is open that nobody touches: three
  windows of each, because other programs disturb a single one. A window is as long as the time from
  one look of the mirror at its partitions to the next, so that each has one. The difference to the
  windows before and after, in which nobody looks, is what the page costs, and the median counts.
  And while the page is hidden;
- how long ``/metrics`` takes, its first answer left out.

It ends with 1 if a figure misses its `TARGETS`.

A made-up mirror changes all the time, and making it up costs more than the page does: its CPU
time is no figure of Heliograph's. ``--url`` and ``--pid`` measure a mirror that runs already.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote
from urllib.request import urlopen

import psutil
from benchmarks.machine import commit
from browsing import browser
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from synthetic import MAIN

from heliograph.lab import Lab
from heliograph.lab.broker import HOST, free_ports

#: Notes when the flows' picture and the first row of a table were there, and painted.
WATCH = """
  window.shown = {};
  const look = () => {
    for (const [name, css] of [["picture", ".arrow .rate"], ["table", "#tab tbody th"]])
      if (!window.shown[name] && document.querySelector(css))
        requestAnimationFrame(() => { window.shown[name] ??= performance.now(); });
  };
  new MutationObserver(look).observe(document, { subtree: true, childList: true });
"""
PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
#: What is waited for, in the words of the report.
SAID = {"first paint": "first paint", "picture": "the topology is shown",
        "table": "a flow's partitions are shown"}  # fmt: skip
VIEWS = {"picture": "", "table": ""}
#: What a figure must stay below: ms, and percent of a core.
TARGETS = {"first paint": 2000.0, "page": 2.0, "metrics": 200.0}
#: What opening a page costs is over by then.
SETTLE_SECONDS = 4.0
FLOW = "A->B"
#: Partitions of a topic.
SIZE = 50


@contextmanager
def server(asked):
    """The process that serves, and the address of its dashboard."""
    if asked.url:
        yield psutil.Process(asked.pid), f"{asked.url.rstrip('/')}/dashboard/"
        return
    with synthetic(asked) if asked.synthetic else mirror(asked.partitions, asked.records) as served:
        yield served


@contextmanager
def synthetic(asked):
    """A mirror that is made up."""
    seconds = 4 * asked.windows * (asked.seconds + SETTLE_SECONDS) + 600
    command = [sys.executable, str(Path(__file__).with_name("synthetic.py")), "--port", "0",
               "--partitions", str(asked.partitions), "--seconds", str(seconds)]  # fmt: skip
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, text=True, stdout=pipe, stderr=quiet) as process:
        try:
            line = next(line for line in process.stdout if "/dashboard/" in line)
            yield psutil.Process(process.pid), line.split()[0]
        finally:
            process.terminate()


@contextmanager
def mirror(partitions, records):
    """`heliograph run` of ``partitions``; so many ``records`` a second are written meanwhile."""
    with tempfile.TemporaryDirectory(prefix="heliograph-measure-") as made:
        folder = Path(made)
        with Lab(folder / "lab", heap="2g") as lab:
            topics = fill(lab, partitions)
            (port,) = free_ports(1)
            command = [sys.executable, "-m", "heliograph", "run", str(properties(folder, lab)),
                       "-o", "plain", "--listen", f"{HOST}:{port}"]  # fmt: skip
            with (folder / "run.log").open("wb") as log, \
                    subprocess.Popen(command, stdout=log, stderr=log) as process:  # fmt: skip
                try:
                    url = f"http://{HOST}:{port}"
                    await_copies(process, url, partitions)
                    with trickle(lab, topics, records):
                        yield psutil.Process(process.pid), f"{url}/dashboard/"
                finally:
                    process.terminate()


def fill(lab, partitions):
    """Topics of 50 partitions on the source, with a record in each partition."""
    topics = {f"stream-{at // SIZE:04}": min(SIZE, partitions - at)
              for at in range(0, partitions, SIZE)}  # fmt: skip
    bootstrap = {"bootstrap.servers": lab["A"].bootstrap}
    admin = AdminClient(bootstrap)
    for name, count in topics.items():
        admin.create_topics([NewTopic(name, count, 1)])[name].result(60)
    producer = Producer(bootstrap)
    for name, count in topics.items():
        for partition in range(count):
            producer.produce(name, b"x" * 100, partition=partition)
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the topics could not be filled")
    return topics


def properties(folder, lab):
    """An mm2.properties with one flow; all that is no default is for brokers that are alone."""
    lines = ["clusters = A, B", f"{FLOW}.enabled = true", f"{FLOW}.topics = stream-.*"]
    lines += [f"{alias}.bootstrap.servers = {lab[alias].bootstrap}" for alias in "AB"]
    lines += [f"{kind}replication.factor = 1" for kind in
              ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.",
               "heliograph.ledger.topic.")]  # fmt: skip
    path = folder / "mm2.properties"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def await_copies(process, url, partitions):
    """Wait until all partitions are in step."""
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"the mirror has ended with {process.returncode}")
        time.sleep(2)
        try:
            with urlopen(f"{url}/heliograph/v1/flows/{quote(FLOW)}", timeout=60) as answer:
                flow = json.load(answer)
        except OSError:  # not listening yet
            continue
        if flow["lag_records"] == 0 and flow["identical"] >= partitions:
            return


@contextmanager
def trickle(lab, topics, each_second):
    """Write records to one partition after the other."""
    ended = threading.Event()

    def write():
        producer = Producer({"bootstrap.servers": lab["A"].bootstrap, "linger.ms": 100})
        places = itertools.cycle((name, n) for name, count in topics.items() for n in range(count))
        while not ended.wait(1 / each_second):
            name, partition = next(places)
            producer.produce(name, b"x" * 100, partition=partition)
            producer.poll(0)
        producer.flush(10)

    writer = threading.Thread(target=write, daemon=True)
    if each_second:
        writer.start()
    yield
    ended.set()
    if each_second:
        writer.join()


def cpu(process, seconds):
    """Percent of a core over some time."""
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, took = process.cpu_times(), time.monotonic() - began
    return 100 * (after.user + after.system - before.user - before.system) / took


def scrapes(url, repeat):
    """Milliseconds that ``/metrics`` takes, and the size of its answer."""
    times, size = [], 0
    for _ in range(repeat + 1):
        began = time.monotonic()
        with urlopen(url.removesuffix("dashboard/") + "metrics", timeout=60) as answer:
            size = len(answer.read())
        times.append(1000 * (time.monotonic() - began))
        # Answers of the same second may be made once.
        time.sleep(1.5)
    return times[1:], size


def paints(page, url, repeat):
    """Milliseconds: {what: [...]}."""
    found = {"first paint": []}
    for name, address in VIEWS.items():
        found[name] = []
        for _ in range(repeat):
            page.cdp("Network.clearBrowserCache")
            page.open(url + address)
            at = page.until(
                lambda name=name: page.run("return window.shown[arguments[0]]", name), name
            )
            found[name].append(at)
            found["first paint"].append(page.run(PAINT))
    return found


def measured(asked, process, url, page):
    """Figures: what was measured, how much it is, and the target that it must meet, if any."""
    page.before_pages(WATCH)
    for name, times in paints(page, url, asked.repeat).items():
        yield Figure(SAID[name], _times(times), TARGETS.get(name))
    nobody, more = rounds(asked, process, url, page)
    yield Figure("CPU of the driver, nobody looks", _percent(nobody, ""))
    for name, what in (("picture", "the overview"), ("table", "a flow")):
        # What is made up costs more than the page, and is no figure of Heliograph's.
        target = None if asked.synthetic else TARGETS["page"]
        yield Figure(f"more with {what} open, untouched", _percent(more[name], "+"), target)
    page.driver.switch_to.new_window("tab")
    time.sleep(SETTLE_SECONDS)
    yield Figure("CPU of the driver, page hidden", _percent([cpu(process, asked.seconds)], ""))
    times, size = scrapes(url, 3 * asked.repeat)
    yield Figure(f"`/metrics`, {size / 1000:,.0f} kB", _times(times), TARGETS["metrics"])


class Figure(NamedTuple):
    """A row of the report: what was measured, its median and how it is said.

    ``target`` is what the median must stay below, None if nobody says.
    """

    name: str
    figure: tuple[float, str]
    target: float | None = None

    @property
    def met(self):
        return self.target is None or self.figure[0] < self.target


def rounds(asked, process, url, page):
    """Percent of a core while nobody looks; and how much more it is, by view and window.

    A mirror gets quieter after its start: the windows before and after count as much.
    """
    nobody, seen = [_window(asked, process, page, "about:blank")], []
    for _ in range(asked.windows):
        seen.append({name: _window(asked, process, page, url + VIEWS[name]) for name in VIEWS})
        nobody.append(_window(asked, process, page, "about:blank"))
    usual = [statistics.mean(pair) for pair in itertools.pairwise(nobody)]
    return nobody, {n: [s[n] - at for s, at in zip(seen, usual, strict=True)] for n in VIEWS}


def _window(asked, process, page, address):
    page.open(address)
    if address != "about:blank":
        page.find("#connection.ok")
    time.sleep(SETTLE_SECONDS)
    return cpu(process, asked.seconds)


def _times(times):
    median = statistics.median(times)
    return median, f"{median:.0f} ms ({max(times):.0f})"


def _percent(shares, sign):
    median = statistics.median(shares)
    said = f"{median:{sign}.1f} % of a core"
    if len(shares) > 1:
        said += f" ({min(shares):{sign}.1f} to {max(shares):{sign}.1f})"
    return median, said


def report(asked, rows, load):
    """The page under benchmarks/results."""
    given = " ".join(sys.argv[1:]).replace(f"--output {asked.output}", "").strip()
    command = "make measure" + (f" MEASURE_OPTIONS='{given}'" if given else "")
    lines = [
        "# What the dashboard costs", "",
        f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, commit {commit()}, `{command}`."
        f" {os.cpu_count()} cores, load average {load:.1f} before and"
        f" {os.getloadavg()[0]:.1f} at the end.", "",
        f"{_of_what(asked)} Times are medians of {asked.repeat} (first paint: {2 * asked.repeat},"
        f" `/metrics`: {3 * asked.repeat}), nothing cached, with the longest in brackets. CPU time"
        f" is the median of {asked.windows} windows of {asked.seconds:g} s, with the least and the"
        " most. What a page costs is the difference to the windows before and after it in which"
        " nobody looks.",
        "", "| | | target |", "|---|---|---|",
        *(f"| {row.name} | {row.figure[1]} | {_target(row)} |" for row in rows),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _target(row):
    if row.target is None:
        return ""
    unit = "ms" if row.target > 10 else "%"
    return f"< {row.target:g} {unit}: {'met' if row.met else 'missed'}"


def _of_what(asked):
    if asked.url:
        return "Of a mirror that ran already."
    if asked.synthetic:
        return f"Of a mirror that is made up, with {asked.partitions:,} partitions."
    written = f"{asked.records} records/s are written" if asked.records else "nothing is written"
    return (
        f"`heliograph run --listen` mirrors {asked.partitions:,} partitions from one real broker to"
        " another; the browser runs on the same cores. All partitions are in step;"
        f" {written} but heartbeats."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--windows", type=int, default=3, help="of CPU time, by view")
    parser.add_argument("--seconds", type=float, default=50.0, help="of a window; a mirror"
                        " looks at 10,000 partitions every 50 s")  # fmt: skip
    parser.add_argument("--records", type=int, default=0, help="a second, written meanwhile")
    parser.add_argument("--synthetic", action="store_true", help="of a mirror that is made up")
    parser.add_argument("--url", help="of the REST API of a mirror that runs, for its --pid")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--flow", help="of such a mirror, whose partitions are looked at")
    parser.add_argument("--output", type=Path, help="where the report goes")
    asked = parser.parse_args()
    flow = asked.flow or (MAIN if asked.synthetic else FLOW)
    VIEWS["table"] = f"#/flow/{quote(flow)}/partitions"
    load, rows = os.getloadavg()[0], []
    with server(asked) as (process, url), browser() as page:
        for row in measured(asked, process, url, page):
            print(f"{row.name}: {row.figure[1]} {_target(row)}", flush=True)
            rows.append(row)
    if asked.output:
        asked.output.write_text(report(asked, rows, load), encoding="utf-8")
    sys.exit(not all(row.met for row in rows))


if __name__ == "__main__":
    main()
