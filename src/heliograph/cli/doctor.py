"""``heliograph doctor``: what would keep a mirror from working, before it is started."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from heliograph.cli.blocks import echo_row
from heliograph.cli.flows import file_argument, output_option
from heliograph.doctor.examination import Examination, examine
from heliograph.doctor.findings import Finding, Verdict
from heliograph.doctor.parallel import Progress
from heliograph.shown import shown

__all__ = ["doctor_command"]

_COLORS = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "red"}


@click.command()
@file_argument
@click.option("--listen", metavar="HOST:PORT",
              help="Also look whether 'run --listen HOST:PORT' could listen there.")  # fmt: skip
@click.option(
    "--timeout",
    type=click.FloatRange(1.0, 600.0),
    default=15.0,
    show_default=True,
    help="Seconds for each question; what takes longer is not checked.",
)
@output_option("table", "json", "yaml")
def doctor_command(file: Path, listen: str | None, timeout: float, output: str) -> None:
    """Look for what would keep the flows of FILE from working. Changes nothing, anywhere.

    Asks every broker, this machine and the clusters about all that docs/doctor.md lists, many
    questions at once. Each line is one finding: the verdict, the check, what it looked at, what it
    found, and what to do. Exits with 1 if there is a problem; warnings are none. In a pipe, each
    finding is one line with tabs.
    """
    with _progress() as progress:
        found = examine(file, listen, timeout, progress)
    if output == "table":
        _show(found)
    elif output == "json":
        click.echo(json.dumps(_plain(found), indent=2))
    else:
        click.echo(yaml.safe_dump(_plain(found), sort_keys=False, allow_unicode=True), nl=False)
    sys.exit(0 if found.healthy else 1)


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _name, _answered: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("asking", total=0)
        asked: Counter[str] = Counter()

        def progress(name: str, answered: bool) -> None:
            asked["answered" if answered else "asked"] += 1
            bar.update(
                task, total=asked["asked"], completed=asked["answered"], description=shown(name)
            )

        yield progress


def _show(found: Examination) -> None:
    for finding in found.findings:
        said = finding.said
        if not sys.stdout.isatty():
            echo_row(said.verdict, finding.check, finding.about, said.text, said.do)
            continue
        verdict = click.style(f"{said.verdict:<11}", fg=_COLORS.get(said.verdict), bold=True)
        head = click.style(f"{finding.about} {finding.check}", bold=True)
        click.echo(f"{verdict} {head}: {shown(said.text)}")
        if said.do:
            click.echo(f"{'':11} -> {shown(said.do)}")
    if sys.stdout.isatty():
        click.echo("\n" + ", ".join(f"{found.count(v)} {v}" for v in Verdict))


def _plain(found: Examination) -> dict[str, object]:
    return {
        "healthy": found.healthy,
        "counts": {str(v): found.count(v) for v in Verdict},
        "findings": [_finding(f) for f in found.findings],
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "check": finding.check,
        "about": finding.about,
        "verdict": str(finding.said.verdict),
        "text": finding.said.text,
        "do": finding.said.do,
        "names": list(finding.said.names),
        "commands": list(finding.said.commands),
    }
