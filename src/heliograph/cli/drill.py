"""``heliograph drill``: a failover is rehearsed, and nothing in production changes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
from rich.table import Table
from rich.text import Text

from heliograph.cli.documents import echo_document
from heliograph.cli.flows import (
    asking_clusters,
    console_for_tables,
    file_argument,
    flows_of,
    output_option,
)
from heliograph.cli.handovers import echo_fact, echo_list, flow_to, progress, who
from heliograph.cli.patterns import PatternType
from heliograph.config import FlowConfig
from heliograph.config.key import BoundedPattern
from heliograph.errors import HeliographError
from heliograph.failover.drill import Drill, DrillWish
from heliograph.failover.drill_described import drill_json, drill_page, rehearsal_json
from heliograph.failover.drill_rules import NOT_REHEARSED, DrillReport, Outcome
from heliograph.ledger.rehearsals import Rehearsal
from heliograph.pages import private_file
from heliograph.shown import shown
from heliograph.units import counted, duration, moment

__all__ = ["drill_command"]


@click.command("drill")
@file_argument
@click.option("--to", "target", metavar="CLUSTER", help="The cluster that would take over.")
@click.option("--flow", help="The flow, e.g. 'A->B', if several go to that cluster.")
@click.option("--groups", type=PatternType(), help="Only these consumer groups; all without.")
@click.option("--topics", type=PatternType(), help="Only these source topics; all without.")
@click.option("--sample", type=click.IntRange(0), default=200, show_default=True,
              help="Read and compare at so many starts of groups, at most.")  # fmt: skip
@click.option("--html", "page", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the report as a page for the auditor, too.")  # fmt: skip
@click.option("--history", is_flag=True, help="Only show what was rehearsed so far.")
@output_option("table", "json", "yaml")
def drill_command(
    file: Path, target: str | None, flow: str | None, groups: BoundedPattern | None,
    topics: BoundedPattern | None, sample: int, page: Path | None, history: bool, output: str,
) -> None:  # fmt: skip
    """Rehearse a failover of a flow, on copies of its consumer groups.

    The checks of a failover are made, and each group's start is committed on the target for a copy
    of it, heliograph-drill.<id>.<group>. A consumer that is a member of no group reads from there,
    and what it reads is compared with what the group would read next on the source. Then the
    copies are deleted. Nothing else is written, but for the drill's result in the ledger: status,
    metrics and the dashboard show it. It asks nothing, and can be run at any time.

    Exits with 1 if anything was found that would go wrong.
    """
    config = _flow(file, target, flow)
    if page is not None and not page.absolute().parent.is_dir():
        raise HeliographError("drill.report", f"there is no folder {page.parent}", "create it")
    tell = progress(quiet=output != "table")
    wish = DrillWish(topics, groups, sample, who())
    with asking_clusters(), Drill(config, wish, tell) as drill:
        if history:
            _show_history(str(config.flow), drill.history(), output)
            return
        with _cleaning_up():
            report = drill.run()
    if output == "table":
        _show_report(report)
    else:
        echo_document(drill_json(report), output)
    if page is not None:
        with private_file(page) as out:
            out.write(drill_page(report) + "\n")
        click.echo(f"written: {page}", err=True)
    sys.exit(0 if report.ok else 1)


def _flow(file: Path, target: str | None, flow: str | None) -> FlowConfig:
    if target is None and flow is None:
        enabled = flows_of(file, None)
        # A file with one flow leaves no doubt.
        flow = str(enabled[0].flow) if len(enabled) == 1 else None
    return flow_to(file, target, flow)[0]


@contextmanager
def _cleaning_up() -> Iterator[None]:
    """SIGTERM is as Ctrl-C: the copies are deleted first."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show_report(report: DrillReport) -> None:
    click.echo(f"\nDrill {report.flow}")
    color = "green" if report.ok else "red"
    click.echo(f"  {'verdict':<12}{click.style(shown(report.sentence), fg=color)}")
    measured = duration(report.measured_seconds)
    assumed = duration(report.rto_seconds - report.measured_seconds)
    rto = duration(report.rto_seconds)
    echo_fact(
        "RTO", f"{rto}: {measured} measured, at most {assumed} for what a drill cannot rehearse"
    )
    waited = report.rpo_seconds
    seconds = (
        f" ({duration(waited)})" if report.risk.exact and waited and report.rpo_records else ""
    )
    echo_fact("RPO", f"{report.risk}{seconds}")
    echo_fact("groups", f"{counted(len(report.groups), 'group')}; {report.copied:,} of"
                        f" {counted(report.starts, 'start')} committed for copies")  # fmt: skip
    outcomes = report.outcomes
    told = ", ".join(f"{outcomes[o]:,} {o}" for o in Outcome if outcomes[o]) or "none"
    echo_fact("proof", f"{counted(len(report.proofs), 'start')} looked at: {told}")
    echo_list("Findings", ((f"[{f.code}] {f.text}", f.hint) for f in report.findings))
    echo_list("What the RTO is made of", (
        (p.name, f"{duration(p.seconds)}, {p.source or 'measured'}")
        for p in (*report.measured, *report.assumed)
    ))  # fmt: skip
    echo_list("Groups", ((g.group, g.words) for g in report.groups))
    echo_list("Not rehearsed", ((text, "") for text in NOT_REHEARSED))
    echo_list("Notes", ((text, "") for text in report.notes))


def _show_history(flow: str, history: Sequence[Rehearsal], output: str) -> None:
    if output != "table":
        echo_document([rehearsal_json(r) for r in history], output)
        return
    if not history:
        click.echo(f"{flow} was never rehearsed: heliograph drill does that")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("when", "what", "result", "RTO", "RPO", "groups", "by", "in words"):
        table.add_column(name, no_wrap=name not in {"by", "in words"})
    for r in history:
        lost = "-" if r.rpo_records is None else counted(r.rpo_records, "record")
        waited = f", {duration(r.rpo_seconds)}" if r.rpo_records and r.rpo_seconds else ""
        cells = (
            moment(r.at_ms / 1000), str(r.kind), "ok" if r.ok else "not ok",
            "-" if r.rto_seconds is None else duration(r.rto_seconds), lost + waited,
            f"{r.groups:,}", r.by, r.text,
        )  # fmt: skip
        table.add_row(*(Text(shown(cell)) for cell in cells))
    console_for_tables().print(table)
