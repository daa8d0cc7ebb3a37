"""``heliograph switchover``: clients change to the target, and nothing is lost or repeated."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

import click

from heliograph.cli.documents import echo_document
from heliograph.cli.flows import asking_clusters, file_argument, output_option
from heliograph.cli.handovers import confirm, echo_fact, echo_list, flow_to, progress, who
from heliograph.cli.patterns import PatternType
from heliograph.config import FlowConfig
from heliograph.config.key import BoundedPattern
from heliograph.errors import ConfigError
from heliograph.failover.refusals import raise_refused
from heliograph.failover.switchover import Switchover, SwitchoverReport
from heliograph.failover.switchover_check import SwitchoverPlan, SwitchoverWish, few
from heliograph.failover.switchover_described import switchover_plan_json, switchover_report_json
from heliograph.units import counted, duration, moment

__all__ = ["switchover_command"]


@click.command("switchover")
@file_argument
@click.option("--to", "target", metavar="CLUSTER", help="The cluster where clients go on.")
@click.option("--flow", help="The flow that is used now, e.g. 'A->B', if several go to that"
              " cluster.")  # fmt: skip
@click.option("--topics", type=PatternType(), help="Only these source topics; all without.")
@click.option("--groups", type=PatternType(), help="Move only these consumer groups; all without.")
@click.option("--fence", is_flag=True,
              help="Deny everybody to write to the source. Without it, stop producers"
              " first.")  # fmt: skip
@click.option("--max-lag", default=100_000, show_default=True, metavar="RECORDS",
              type=click.IntRange(min=0),
              help="Refuse if the target is further behind.")  # fmt: skip
@click.option("--timeout", default=120.0, show_default=True, metavar="SECONDS",
              type=click.FloatRange(1.0, 86_400.0),
              help="How long each step may take before all is taken back.")  # fmt: skip
@click.option("--quiet-seconds", default=2.0, show_default=True, metavar="SECONDS",
              type=click.FloatRange(0.1, 3600.0),
              help="For how long the source must stand still.")  # fmt: skip
@click.option("--rewind", is_flag=True,
              help="Also set groups back that are ahead on the target.")  # fmt: skip
@click.option("--abort", is_flag=True, help="Take back a switchover that was begun.")
@click.option("--force", is_flag=True,
              help="Although groups are in use on the target, or consumers do not commit the"
              " end.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option("table", "json", "yaml")
def switchover_command(
    file: Path, target: str | None, flow: str | None, topics: BoundedPattern | None,
    groups: BoundedPattern | None, fence: bool, max_lag: int, timeout: float,
    quiet_seconds: float, rewind: bool, abort: bool, force: bool, dry_run: bool, yes: bool,
    output: str,
) -> None:  # fmt: skip
    """Change the direction of a pair of clusters: clients go on at the target of a flow.

    Needs both clusters and the flow of the other direction, which rests until then
    (heliograph.standby). Waits until the source stands still and the target has all of it, moves
    consumer groups to the very record that they read next, and starts the other direction. If
    something speaks against it before that, or with Ctrl-C, all is taken back and the old direction
    runs on. If it is killed, the same command goes on, and --abort takes it back.

    Exits with 1 if it refuses or was taken back, or if a group was not moved.
    """
    config, reverse = flow_to(file, target, flow)
    if reverse is None or not reverse.enabled:
        back = f"{config.flow.target}->{config.flow.source}"
        raise ConfigError(
            "switchover.no-reverse", f"{file} does not enable {back}: nothing would bring back to"
            f" {config.flow.source} what clients write to {config.flow.target}",
            f"write {back}.enabled = true and {back}.heliograph.standby = true",
        )  # fmt: skip
    wish = SwitchoverWish(
        topics, groups, fence, max_lag, quiet_seconds, timeout, force, rewind, who()
    )
    tell = progress(quiet=output != "table")
    # As Ctrl-C: all is taken back.
    signal.signal(signal.SIGTERM, _interrupt)
    with asking_clusters(), Switchover(config, reverse, wish, tell) as switchover:
        if abort:
            confirm(f"Take back the switchover to {config.flow.target}", yes=yes)
            click.echo(switchover.abort())
            return
        plan = switchover.plan()
        if output == "table":
            _show_plan(config, plan)
        elif dry_run:
            echo_document(switchover_plan_json(plan), output)
        raise_refused(plan.refusals)
        if dry_run:
            return
        confirm(_question(config, plan), yes=yes)
        report = switchover.run()
    if output == "table":
        _show_report(config, report)
    else:
        echo_document(switchover_report_json(report), output)
    sys.exit(1 if report.left else 0)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _question(config: FlowConfig, plan: SwitchoverPlan) -> str:
    if plan.before is None:
        return f"Switch over to {config.flow.target}"
    if plan.before.open:
        return f"Go on with the switchover to {config.flow.target}"
    return f"Look again at the switchover to {config.flow.target}"


def _show_plan(config: FlowConfig, plan: SwitchoverPlan) -> None:
    flow = config.flow
    click.echo(f"Switchover {flow}")
    if plan.before is not None:
        began = moment(plan.before.began_ms / 1000)
        state = "not through" if plan.before.open else "through"
        echo_fact("before", f"begun by {plan.before.by} at {began}, {state}")
    topics = counted(len(plan.shared.topics), "topic")
    echo_fact("topics", f"{topics}, {counted(len(plan.shared.targets), 'partition')}")
    for name, mirror in sorted(plan.mirrors.items()):
        echo_fact(name, f"mirrored by {mirror}" if name == plan.flow else f"ready: {mirror}")
    lag = sum(plan.lags.values())
    echo_fact("lag", counted(lag, "record"))
    if plan.fence is not None:
        echo_fact("fence", _fence(config, plan))
    may = sum(not start.reason for start in plan.groups.values())
    left = {name: start.reason for name, start in plan.groups.items() if start.reason}
    not_moved = f", {len(left)} cannot be moved" if left else ""
    echo_fact("groups", f"{counted(may, 'group')} to be moved{not_moved}")
    if plan.in_use:
        echo_fact("consumers", f"{counted(len(plan.in_use), 'group')} in use on {flow.source},"
                  " which must commit the end first")  # fmt: skip
    echo_list("Groups that cannot be moved", sorted(left.items()))
    click.echo()


def _fence(config: FlowConfig, plan: SwitchoverPlan) -> str:
    assert plan.fence is not None  # noqa: S101 - asked for
    text = f"{counted(len(plan.fence.missing), 'topic')} of {config.flow.source} to be denied"
    if not plan.fence.others:
        return text
    return f"{text}; denied by others already, and left as they are: {few(plan.fence.others)}"


def _show_report(config: FlowConfig, report: SwitchoverReport) -> None:
    flow = config.flow
    done = "was through already" if report.repeated else "is through"
    click.echo(f"\nThe switchover to {flow.target} {done}.")
    echo_fact("pause", f"{duration(report.pause_seconds)} without a cluster to write to")
    echo_fact("RTO", duration(report.rto_seconds))
    echo_fact("RPO", "no record is lost")
    through = [m for m in report.moved.values() if not m.reason]
    left = f"; {counted(len(report.left), 'group')} not" if report.left else ""
    echo_fact("groups", f"{counted(len(through), 'group')} moved{left}")
    echo_fact("mirror", f"{report.reverse} copies, {flow} stands by")
    if report.fenced is not None:
        echo_fact("fence", f"{flow.source} takes writes of the mirror only" if report.fenced else
                  f"{flow.source} is not fenced any more, because the fence would keep the mirror"
                  f" of {report.reverse} out: see that no client writes there")  # fmt: skip
    echo_list("Groups that were not moved", sorted(report.left.items()))
    echo_list(
        f"Groups that still have consumers on {flow.source}: what they read there from now on, they"
        f" read again on {flow.target}",
        sorted(report.left_behind.items()),
    )
    unset = {
        f"{name} {partition}": why
        for name, start in report.starts.items() if name in report.moved
        for partition, why in start.unset.items()
    }  # fmt: skip
    echo_list("Partitions without an offset: auto.offset.reset of the client decides",
              sorted(unset.items()))  # fmt: skip
    click.echo("\nTell clients, consumers first:")
    echo_fact("connect to", config.target_admin.bootstrap_servers)
    names = sorted({(p.topic, t.topic) for p, t in report.targets.items() if p.topic != t.topic})
    if names:
        more = f" and so on ({len(names)})" if names[3:] else ""
        echo_fact("topics", ", ".join(f"{old} is {new}" for old, new in names[:3]) + more)
    else:
        echo_fact("topics", "have the same names")
    echo_fact("groups", "keep their names, and go on at the next record")
