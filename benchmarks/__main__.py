"""``python -m benchmarks``: measures the contenders one after the other and reports."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NoReturn

import click
from confluent_kafka import KafkaException
from rich.console import Console

from benchmarks import catch_up, chart, latency, machine, many
from benchmarks.bench import SOURCE, Bench, MeasureError
from benchmarks.contenders import CONTENDERS, Contender
from benchmarks.figures import SCENARIOS, Results
from benchmarks.neighbours import DISTURBING_PERCENT, Neighbours
from benchmarks.report import Report
from benchmarks.watched import WATCHED
from benchmarks.workloads import WORKLOADS
from heliograph.errors import HeliographError, LabError
from heliograph.lab import Lab
from heliograph.wire.errors import WireError

_RESULTS = Path(__file__).parent / "results"
_BYTES_NEEDED = 8 * 2**30  # the largest backlog twice, and the copies of the last run not yet gone
_WARM_UP_RECORDS = 1_000_000
# Files of deleted topics go after a second instead of a minute: three copies need the space of one.
_BROKER = {"log.segment.delete.delay.ms": "1000"}
# The log cleaner looks for work every second instead of every 15: a scenario waits for it.
_SOURCE_BROKER = {"log.cleaner.backoff.ms": "1000"}
# Ends one measurement, not the others.
_FAILURES = (MeasureError, LabError, WireError, KafkaException, subprocess.SubprocessError)
_MIRRORS = {**CONTENDERS, WATCHED.key: WATCHED}

Measure = Callable[[Contender], dict[str, float]]


def _words(known: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def parse(_: click.Context, __: click.Parameter, text: str) -> list[str]:
        chosen = [word.strip() for word in text.split(",") if word.strip()]
        for word in chosen:
            if word not in known:
                raise click.BadParameter(f"{word!r} is none of {', '.join(known)}")
        return chosen

    return parse


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--scale", default=1.0, show_default=True, help="Size of the backlogs; 0.1: a tenth.")
@click.option(
    "--only",
    default=",".join(SCENARIOS),
    show_default=True,
    callback=_words(SCENARIOS),
    help="Scenarios to run.",
)
@click.option(
    "--mirrors",
    default=",".join(CONTENDERS),
    show_default=True,
    callback=_words(tuple(_MIRRORS)),
    help=f"What to measure; also: {WATCHED.key}.",
)
@click.option("--repeat", default=1, show_default=True, help="Runs of each; the median counts.")
@click.option("--folder", type=click.Path(path_type=Path), help="For brokers and logs; kept.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=_RESULTS,
    help="Where results go; benchmarks/results by default.",
)
def main(
    scale: float,
    only: list[str],
    mirrors: list[str],
    repeat: int,
    folder: Path | None,
    output: Path,
) -> None:
    """Measure Heliograph and the real MirrorMaker 2 side by side on this machine."""
    # Into a file or a pipe: wide enough for the table.
    console = Console(width=None if sys.stdout.isatty() else 120)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    whole = scale == 1 and set(only) >= set(SCENARIOS) and set(mirrors) == set(CONTENDERS)
    work = folder or Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    facts, results = machine.describe(), Results()
    began = datetime.now(UTC)
    try:
        work.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(work).free < _BYTES_NEEDED * scale:
            need = _BYTES_NEEDED * scale / 2**30
            raise click.ClickException(f"{work} needs {need:.1f} GiB free; try --folder or --scale")
        _measure(console, work, results, only, [_MIRRORS[m] for m in mirrors], scale, repeat)
    except KeyboardInterrupt:
        console.print("[yellow]interrupted: everything is stopped, nothing was written")
        sys.exit(130)
    except HeliographError as error:
        console.print(f"[bold red]{error}", markup=True, highlight=False)
        sys.exit(1)
    finally:
        if folder is None:
            shutil.rmtree(work, ignore_errors=True)
    commit = machine.commit()
    report = Report(
        results,
        facts,
        commit,
        " ".join(["python -m benchmarks", *sys.argv[1:]]),
        f"{began:%Y-%m-%d %H:%M} UTC",
        scale,
    )
    report.print(console)
    stem = f"{began:%Y-%m-%d}-{commit}" + ("" if whole else "-partial")
    page = report.write(output, stem)
    title = f"Heliograph compared with MirrorMaker 2 (commit {commit})"
    chart.draw(results, page.with_suffix(".png"), title)
    if whole:
        shutil.copyfile(page, output / "latest.md")
    console.print(f"written: {page} (and .json, .png)", highlight=False)
    sys.exit(1 if results.failures else 0)


def _interrupt(_: int, __: object) -> NoReturn:
    raise KeyboardInterrupt


def _measure(
    console: Console,
    work: Path,
    results: Results,
    scenarios: list[str],
    contenders: list[Contender],
    scale: float,
    repeat: int,
) -> None:
    console.print(f"brokers and logs in {work}", highlight=False)
    lab = Lab(work, settings={"*": _BROKER, SOURCE: _SOURCE_BROKER}, heap="1g", jvm_flags=())
    try:
        lab.start()
        bench = Bench(lab, console)
        try:
            bench.say("two clusters of one broker each; warming up")
            catch_up.warm_up(
                bench, WORKLOADS["none100"], max(100_000, int(_WARM_UP_RECORDS * scale))
            )
            for scenario in scenarios:
                try:
                    measure = _prepare(bench, scenario, scale, results)
                except _FAILURES as error:
                    _failed(bench, results, f"{scenario}: {error}")
                    continue
                for turn in range(repeat):
                    for contender in _of(scenario, contenders):
                        again = f", run {turn + 1} of {repeat}" if repeat > 1 else ""
                        bench.say(f"{scenario}: {contender.label}{again}")
                        neighbours = Neighbours()
                        try:
                            figures = measure(contender)
                        except _FAILURES as error:
                            _failed(bench, results, f"{scenario}: {contender.label}: {error}")
                            continue
                        figures["foreign"] = neighbours.percent()
                        results.add(scenario, contender.key, figures)
                        if figures["foreign"] > DISTURBING_PERCENT:
                            bench.say(
                                f"  [yellow]disturbed: other programs used {figures['foreign']:.0f}"
                                " % of a core meanwhile"
                            )
                for alias in lab.aliases:
                    bench.delete_topics(alias)
        finally:
            bench.close()
    finally:
        lab.stop(grace_s=0)


def _of(scenario: str, contenders: list[Contender]) -> list[Contender]:
    """Those to measure: where offsets have no gaps, nobody has to do anything to keep them."""
    gaps = scenario in WORKLOADS and WORKLOADS[scenario].gaps
    return [c for c in contenders if gaps or not c.identical]


def _failed(bench: Bench, results: Results, text: str) -> None:
    bench.say(f"[bold red]failed:[/] {text}")
    results.failures.append(text)


def _prepare(bench: Bench, scenario: str, scale: float, results: Results) -> Measure:
    """Does what all contenders share and returns the measurement of one."""
    if scenario == "latency":
        duration = latency.Duration() if scale >= 1 else latency.Duration(5, 10)
        bench.say("latency: without a mirror")
        results.add(scenario, "direct", latency.measure_direct(bench, duration))
        return partial(latency.measure, bench, duration=duration)
    if scenario == "many":
        topics = min(many.TOPICS, max(10, round(many.TOPICS * scale)))
        many.prepare(bench, topics)
        return partial(many.measure, bench, topics=topics)
    workload = WORKLOADS[scenario]
    backlog = catch_up.prepare(bench, workload, workload.scaled(scale))
    return partial(catch_up.measure, bench, workload=workload, backlog=backlog)


if __name__ == "__main__":
    main()
