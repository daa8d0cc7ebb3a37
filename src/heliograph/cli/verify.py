"""``heliograph verify``: the proof that the target holds what the source holds."""

from __future__ import annotations

import os
import re
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import click

from heliograph.cli.flows import (
    asking_clusters,
    file_argument,
    flow_option,
    flows_of,
    output_option,
)
from heliograph.cli.patterns import PatternType
from heliograph.cli.verify_html import as_html
from heliograph.cli.verify_progress import watching
from heliograph.cli.verify_text import as_json, print_text
from heliograph.config import FlowConfig
from heliograph.config.key import BoundedPattern
from heliograph.errors import HeliographError, StartError
from heliograph.jvm.java import find_java
from heliograph.pages import private_file
from heliograph.service.engine import Engine
from heliograph.service.verification import Verification
from heliograph.verify.report import DIFFERENT, UNPROVEN, UNVERIFIED, Report
from heliograph.verify.views import Choice

__all__ = ["verify_command"]

_INTERRUPTED = 130


class _StopRequested(BaseException):
    """SIGTERM or Ctrl-C before anything was compared."""


class _Span(click.ParamType[tuple[int | None, int | None]]):
    """FROM:TO, either may be left out."""

    name = "FROM:TO"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, int | None]:
        match = re.fullmatch(r"(\d*):(\d*)", str(value))
        if match is None or value == ":":
            self.fail(f"{value!r} is not two source offsets such as 1000:2000, 1000: or :2000",
                      param, ctx)  # fmt: skip
        begin, end = (int(text) if text else None for text in match.groups())
        if begin is not None and end is not None and begin >= end:
            self.fail(f"{value!r} is empty: it ends before it begins", param, ctx)
        return begin, end


@click.command()
@file_argument
@flow_option
@click.option("--topic", "topics", type=PatternType(), multiple=True,
              help="Only source topics that this matches wholly; may be repeated.")  # fmt: skip
@click.option("--range", "span", type=_Span(),
              help="Only these source offsets of one topic, TO not included.")  # fmt: skip
@click.option("--sample", type=click.FloatRange(0, 100, min_open=True), metavar="PERCENT",
              help="Compare only so many of the ranges, chosen at random.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), help="Choose the same sample again.")
@click.option("--complete", is_flag=True,
              help="All that is on the source now has to be on the target: what is not mirrored"
              " yet is missing, exit code 1. Waits for a mirror that is at work.")  # fmt: skip
@click.option("--differences", "most", type=click.IntRange(1), default=20, show_default=True,
              help="How many differences to describe; all are counted.")  # fmt: skip
@click.option("--master", help="Spark master; this machine's cores by default.")
@output_option("text", "json", "html")
@click.option("--report", "path", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the report to this file instead of standard output.")  # fmt: skip
def verify_command(
    file: Path,
    flow: str | None,
    topics: tuple[BoundedPattern, ...],
    span: tuple[int | None, int | None] | None,
    sample: float | None,
    seed: int | None,
    complete: bool,
    most: int,
    master: str | None,
    output: str,
    path: Path | None,
) -> None:
    """Prove that the target holds what the source holds, for the flows of FILE.

    Reads both clusters on Spark, compares batch with batch byte for byte, and record with record
    where batches differ: key, value, headers, timestamp, order, and the offset that the ledger
    gives. Works while mirroring runs: what is not mirrored yet is counted, and is no difference.

    Exits with 0 only if all was compared and is identical, with 1 if anything differs, with 2 if
    something could not be verified, and with 3 if the source has records that the target has
    deleted, so that nobody can compare them.
    """
    configs = flows_of(file, flow)
    begin, end = span or (None, None)
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    choice = Choice(topics, begin, end, sample, seed, complete, most)
    if path is not None and not path.absolute().parent.is_dir():
        raise HeliographError("verify.report", f"there is no folder {path.parent}", "create it")
    try:
        reports = _verified(configs, choice, master)
    except StartError as error:
        # For a verification, 3 would say nothing that 2 does not.
        raise HeliographError(error.code, str(error.args[0]), error.hint) from error
    _show(reports, output, path)
    sys.exit(_exit_code(reports))


def _verified(configs: Sequence[FlowConfig], choice: Choice, master: str | None) -> list[Report]:
    find_java()
    engine = Engine(master)
    engine.begin()
    reports: list[Report] = []
    errors: list[HeliographError] = []
    try:
        for config in configs:
            verification = Verification(config, choice, engine)
            try:
                with _stoppable(verification), asking_clusters(), watching(config.flow) as watch:
                    reports.append(verification.run(watch.planned, watch.progress))
            except StartError as error:
                # Without Spark or Java no flow can be verified; without a cluster, others can.
                if not error.code.startswith("cluster."):
                    raise
                errors.append(error)
                reports.append(_not_verified(config, choice, error))
            if reports[-1].interrupted:
                break
    except _StopRequested:
        click.echo("interrupted: nothing was compared", err=True)
        sys.exit(_INTERRUPTED)
    finally:
        engine.stop()
    if len(errors) == len(reports):
        raise errors[0]
    return reports


def _not_verified(config: FlowConfig, choice: Choice, error: HeliographError) -> Report:
    """The report of a flow whose clusters could not be asked."""
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return Report(str(config.flow), now, [], choice.most, problems=[str(error.args[0])])


@contextmanager
def _stoppable(verification: Verification) -> Iterator[None]:
    """Ctrl-C and SIGTERM end a verification with the report of what was compared."""

    def on_signal(number: int, _frame: FrameType | None) -> None:
        # A second one means it; nothing is written anywhere that could be left half done.
        signal.signal(number, lambda *_: os._exit(128 + number))
        if verification.report is None:
            raise _StopRequested
        verification.stop()

    before = {n: signal.signal(n, on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(reports: Sequence[Report], output: str, path: Path | None) -> None:
    if output == "text":
        print_text(reports, path)
    else:
        text = as_json(reports) if output == "json" else as_html(reports)
        if path is None:
            click.echo(text)
        else:
            with private_file(path) as file:
                file.write(text + "\n")
    if path is not None:
        for report in reports:
            click.echo(f"{report.flow}: {report.verdict}")
        click.echo(f"written: {path}")


def _exit_code(reports: Sequence[Report]) -> int:
    codes = {report.exit_code for report in reports}
    if DIFFERENT in codes:
        return DIFFERENT
    if any(report.interrupted for report in reports):
        return _INTERRUPTED
    return next((code for code in (UNVERIFIED, UNPROVEN) if code in codes), 0)
