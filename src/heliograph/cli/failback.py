"""``heliograph failback``: the old source is back, and becomes the standby of the new one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from heliograph.cli.documents import echo_document
from heliograph.cli.flows import asking_clusters, file_argument, output_option
from heliograph.cli.handovers import (
    confirm,
    echo_fact,
    echo_list,
    flow_from,
    goes_on_if_interrupted,
    progress,
    who,
)
from heliograph.config import FlowConfig
from heliograph.errors import ConfigError
from heliograph.failover.described import failback_plan_json, failback_report_json
from heliograph.failover.divergence import Parted
from heliograph.failover.failback import Failback
from heliograph.failover.failback_plan import (
    FailbackPlan,
    FailbackReport,
    FailbackWish,
    SavedPlan,
    Totals,
)
from heliograph.failover.refusals import raise_refused
from heliograph.failover.unmirrored import Choice
from heliograph.shown import shown
from heliograph.units import counted, moment

__all__ = ["failback_command"]


class _Choices(click.ParamType[dict[str, Choice]]):
    """``keep``, or ``orders=export,payments=keep,*=rebuild``."""

    name = "CHOICE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Choice]:
        """By topic; ``*`` for all others."""
        found = {}
        for part in str(value).split(","):
            topic, equals, word = part.strip().rpartition("=")
            try:
                found[topic if equals else "*"] = Choice(word)
            except ValueError:
                self.fail(f"{shown(word)!r} is none of keep, export, rebuild", param, ctx)
        return found


@click.command("failback")
@file_argument
@click.option("--to", "source", metavar="CLUSTER", help="The cluster that failed and is back.")
@click.option("--flow", help="The flow that was failed over, e.g. 'A->B'.")
@click.option("--unmirrored", type=_Choices(), default=None,
              help="What becomes of records that only the old source has: keep, export or rebuild;"
              " or topic by topic: 'orders=export,*=keep'.")  # fmt: skip
@click.option("--save-plan", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the plan to this file, and change nothing.")  # fmt: skip
@click.option("--plan", "plan_file", type=click.Path(path_type=Path, dir_okay=False),
              help="Carry out this plan; refused if the logs are others now.")  # fmt: skip
@click.option("--wait", default=600.0, show_default=True, metavar="SECONDS",
              type=click.FloatRange(0.0),
              help="How long to wait until the old source has everything; 0: not at"
              " all.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option("table", "json", "yaml")
def failback_command(
    file: Path, source: str | None, flow: str | None, unmirrored: dict[str, Choice] | None,
    save_plan: Path | None, plan_file: Path | None, wait: float, dry_run: bool, yes: bool,
    output: str,
) -> None:  # fmt: skip
    """Take a failover back: the old source gets what was written since, and becomes the standby.

    Says first what exists only on the old source, because it was never mirrored. 'keep' mirrors it
    now. 'export' writes it to the topic mm2-unmirrored.<source>.internal on the new side, with its
    origin in headers, and makes the topic on the old source anew from the new one. 'rebuild' only
    makes it anew: those records are given up. Nothing that came from the old source is mirrored
    back to it. Clients stay where they are: 'heliograph switchover --to CLUSTER' brings them back
    after that. If it is killed, the same command goes on.
    """
    config, reverse = flow_from(file, source, flow)
    saved = None
    if plan_file is not None:
        if unmirrored:
            raise click.UsageError("--plan has the choices: leave --unmirrored out")
        saved = SavedPlan.of(plan_file)
    choices = saved.choices if saved is not None else unmirrored or {}
    wish = FailbackWish(choices, saved, wait, who())
    tell = progress(quiet=output != "table")
    with asking_clusters(), Failback(config, reverse, wish, tell) as failback:
        plan = failback.plan()
        if save_plan is not None:
            _save(save_plan, plan)
        if output == "table":
            _show_plan(config, plan)
        elif dry_run or save_plan is not None:
            echo_document(failback_plan_json(plan), output)
        if save_plan is not None and output == "table":
            click.echo(f"the plan is in {save_plan}")
        # The saved plan is where choices are filled in.
        raise_refused([r for r in plan.refusals
                       if save_plan is None or r.code != "failback.unmirrored"])  # fmt: skip
        if dry_run or save_plan is not None:
            return
        if plan.is_done:
            if output == "table":
                click.echo(f"Nothing to do: {config.flow.source} is the standby of"
                           f" {config.flow.target}.")  # fmt: skip
            else:
                echo_document(failback_report_json(failback.run()), output)
            return
        confirm(f"Fail back: {config.flow.source} becomes the standby", yes=yes)
        with goes_on_if_interrupted():
            report = failback.run()
    if output == "table":
        _show_report(config, report)
    else:
        echo_document(failback_report_json(report), output)
    sys.exit(1 if report.behind else 0)


def _save(path: Path, plan: FailbackPlan) -> None:
    try:
        path.write_text(json.dumps(failback_plan_json(plan), indent=2) + "\n", "utf-8")
    except OSError as error:
        raise ConfigError("failback.plan", f"the plan cannot be written: {error}") from error


def _show_plan(config: FlowConfig, plan: FailbackPlan) -> None:
    source, target = config.flow.source, config.flow.target
    click.echo(f"Failback {config.flow}")
    failed = moment(plan.failover.began_ms / 1000)
    echo_fact("failover", f"by {plan.failover.by} at {failed}")
    if plan.before is not None:
        began = moment(plan.before.began_ms / 1000)
        through = "not through" if plan.before.open else "through"
        echo_fact("before", f"begun by {plan.before.by} at {began}, {through}")
        if plan.is_settled:
            return
    totals = plan.totals
    echo_fact(f"only on {source}", counted(totals.only_source, "record"))
    echo_fact(f"only on {target}", f"{counted(totals.only_target, 'record')}, to be mirrored back")
    _show_deleted(source, target, totals)
    own = [p for p in plan.parted if p.here.records or p.here.deleted or p.must_rebuild]
    others = [p for p in plan.parted if p.there.records and p not in own]
    echo_list("What only one side has", [
        *((str(p.source), _difference(plan, p, source, target)) for p in own),
        *((str(p.source), _parting(p, source, target)) for p in others),
    ])  # fmt: skip
    echo_list(f"What {target} has deleted before it was mirrored back", [
        (str(p.target), f"{counted(p.there.deleted, 'record')} from offset {p.there.begin} on")
        for p in plan.parted if p.there.deleted
    ])  # fmt: skip
    click.echo()


def _show_deleted(source: str, target: str, totals: Totals) -> None:
    if totals.source_deleted:
        gone = counted(totals.source_deleted, "record")
        echo_fact("gone", f"{gone} that only {source} had: its retention has deleted them")
    if totals.target_deleted:
        gone = counted(totals.target_deleted, "record")
        echo_fact("gone", f"{gone} that only {target} had: its retention has deleted them")


def _difference(plan: FailbackPlan, p: Parted, source: str, target: str) -> str:
    own = p.here
    text = f"{counted(own.records, 'record')} only on {source}; {_parting(p, source, target)}"
    if own.deleted:
        text += f"; {counted(own.deleted, 'record')} before {own.start} are deleted"
    if p.must_rebuild:
        text += f"; {p.must_rebuild}"
    if own.records or p.must_rebuild:
        text += f": {plan.choices.get(p.source.topic) or 'to be decided'}"
    return text


def _parting(p: Parted, source: str, target: str) -> str:
    only = f"{counted(p.there.records, 'record')} only on {target}"
    if not p.begun:
        return only if p.there.records else f"{target} has nothing of it"
    return (
        f"{only}; the logs part at offset {p.here.begin} on {source}, {p.there.begin} on {target}"
    )


def _show_report(config: FlowConfig, report: FailbackReport) -> None:
    source, target = config.flow.source, config.flow.target
    click.echo(f"\nThe failback is through: {source} is the standby of {target}.")
    if report.kept:
        echo_fact("kept", f"{counted(report.kept, 'record')}, now on both sides")
    if report.exported:
        text = f"{counted(report.exported, 'record')}, in {report.exported_to} on {target}"
        echo_fact("exported", text)
    if report.rebuilt:
        echo_fact("made anew", ", ".join(report.rebuilt))
    if report.behind:
        echo_fact("behind", f"{counted(sum(report.behind.values()), 'record')} are on their way")
    echo_fact("next", f"'heliograph switchover FILE --to {source}' brings clients back, without"
                      " loss")  # fmt: skip
