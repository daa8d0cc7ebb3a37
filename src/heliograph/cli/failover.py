"""``heliograph failover``: clients go on at the target, although the source is gone."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import click

from heliograph.cli.documents import echo_document
from heliograph.cli.flows import asking_clusters, file_argument, output_option
from heliograph.cli.handovers import (
    Rpo,
    confirm,
    echo_fact,
    echo_list,
    flow_to,
    goes_on_if_interrupted,
    progress,
    who,
)
from heliograph.cli.patterns import PatternType
from heliograph.config import FlowConfig
from heliograph.config.key import BoundedPattern
from heliograph.control.groups.start_rules import KeptAhead
from heliograph.failover.described import plan_json, report_json
from heliograph.failover.failover import Failover, FailoverPlan, FailoverReport, FailoverWish
from heliograph.failover.refusals import raise_refused
from heliograph.model import TopicPartition
from heliograph.units import counted, duration, moment

__all__ = ["failover_command"]


@click.command("failover")
@file_argument
@click.option("--to", "target", metavar="CLUSTER", help="The cluster where clients go on.")
@click.option("--flow", help="The flow, e.g. 'A->B', if several go to that cluster.")
@click.option("--topics", type=PatternType(), help="Promote only these source topics; all without.")
@click.option("--groups", type=PatternType(), help="Move only these consumer groups; all without.")
@click.option("--max-rpo", type=Rpo(), default=None,
              help="Refuse if more would be lost: 1000 (records), 30s, or 1000,30s.")  # fmt: skip
@click.option("--drain", default=5.0, show_default=True, metavar="SECONDS",
              type=click.FloatRange(0.0, 3600.0),
              help="How long the mirror may copy on what it can still reach.")  # fmt: skip
@click.option("--rewind", is_flag=True,
              help="Also set groups back that are ahead on the target.")  # fmt: skip
@click.option("--force", is_flag=True,
              help="Although the source is healthy, both directions are enabled, or topics could"
                   " not be mirrored.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option("table", "json", "yaml")
def failover_command(
    file: Path, target: str | None, flow: str | None, topics: BoundedPattern | None,
    groups: BoundedPattern | None, max_rpo: tuple[int | None, float | None] | None,
    drain: float, rewind: bool, force: bool, dry_run: bool, yes: bool, output: str,
) -> None:  # fmt: skip
    """Let clients go on at the target of a flow, although its source is gone, or half gone.

    All mirrors of the flow are stopped, also those that come back later: the flow rests until
    'heliograph failback' or 'heliograph resume'. Consumer groups are moved to the very record that
    they would have read next. The report says what was lost, what was moved and what to tell
    clients. Needs the target and this machine only. If it is killed, the same command goes on.

    Exits with 1 if it refuses, or if a group was not moved.
    """
    config, reverse = flow_to(file, target, flow)
    records, seconds = max_rpo or (None, None)
    wish = FailoverWish(topics, groups, records, seconds, force, rewind, drain, by=who())
    tell = progress(quiet=output != "table")
    with asking_clusters(), Failover(config, wish, tell, reverse=reverse) as failover:
        show = partial(_show_plan, config) if output == "table" else None
        if dry_run or not yes:
            plan = failover.plan()
            if show is not None:
                show(plan)
            elif dry_run:
                echo_document(plan_json(plan), output)
            raise_refused(plan.refusals)
            if dry_run:
                return
            confirm(_question(config, plan), yes=yes)
        with goes_on_if_interrupted():
            # Who has seen the plan need not see it twice.
            report = failover.run(show if yes else None)
    if output == "table":
        _show_report(config, report)
    else:
        echo_document(report_json(report), output)
    sys.exit(1 if report.left else 0)


def _question(config: FlowConfig, plan: FailoverPlan) -> str:
    if plan.before is not None and not plan.before.open:
        return f"Look again at the failover to {config.flow.target}, and do what is missing"
    if plan.before is not None:
        return f"Go on with the failover to {config.flow.target}"
    return f"Fail over to {config.flow.target}"


def _show_plan(config: FlowConfig, plan: FailoverPlan) -> None:
    flow, source = config.flow, plan.source
    click.echo(f"Failover {flow}")
    if plan.before is not None:
        began = moment(plan.before.began_ms / 1000)
        state = "not through" if plan.before.open else "through"
        echo_fact("before", f"begun by {plan.before.by} at {began}, {state}")
    if not source.answers:
        echo_fact("source", f"{flow.source} does not answer: {source.why_not}")
    elif source.silent:
        silent = counted(len(source.silent), "partition")
        echo_fact("source", f"{flow.source} answers, but not for {silent}")
    else:
        echo_fact("source", f"{flow.source} answers for all partitions")
    topics = counted(len(plan.mirrored.topics), "topic")
    echo_fact("topics", f"{topics}, {counted(len(plan.mirrored.places), 'partition')}")
    echo_fact("at risk", str(plan.risk))
    earlier = plan.before.facts.get("groups", {}) if plan.before is not None else {}
    fresh = {name: start for name, start in plan.groups.items() if name not in earlier}
    left = {name: start.reason for name, start in fresh.items() if start.reason}
    said = [f"{counted(len(fresh) - len(left), 'group')} to be moved"]
    if earlier:
        said.append(f"{len(earlier):,} moved already")
    if left:
        said.append(f"{len(left):,} cannot be moved")
    echo_fact("groups", ", ".join(said))
    echo_list("Records at risk", (
        (str(p.partition), f"{counted(p.records or 0, 'record')} from offset {p.mirrored} on")
        for p in plan.risk.behind
    ))  # fmt: skip
    _echo_notes(plan)
    echo_list("Groups that cannot be moved", sorted(left.items()))
    target = config.flow.target
    echo_list(f"Groups that are ahead on {target}: kept there, unless --rewind", _ahead({
        name: {
            p: KeptAhead(s.committed, s.offset) for p, s in start.starts.items() if s.ahead
        }
        for name, start in fresh.items()
    }))  # fmt: skip
    click.echo()


def _show_report(config: FlowConfig, report: FailoverReport) -> None:
    flow = config.flow
    click.echo(
        f"\nThe failover to {flow.target} was through already." if report.repeated
        else f"\nThe failover to {flow.target} is through."
    )  # fmt: skip
    echo_fact("RTO", duration(report.rto_seconds))
    echo_fact("RPO", str(report.risk))
    echo_fact("groups", _groups(report))
    echo_fact("mirror", f"{flow} rests until 'heliograph failback' or 'heliograph resume'")
    echo_list("Records that may be lost", (
        (str(p.partition), f"{counted(p.records or 0, 'record')}; the last mirrored one is at"
                           f" {p.mirrored - 1} on {flow.source}")
        for p in report.risk.behind
    ))  # fmt: skip
    _echo_notes(report)
    echo_list("Groups that were not moved", sorted(report.left.items()))
    echo_list(f"Groups that are ahead on {flow.target}, and were kept there; --rewind sets back",
              _ahead({name: moved.kept for name, moved in report.moved.items()}))  # fmt: skip
    unset = {
        f"{name} {partition}": why
        for name, start in report.starts.items()
        for partition, why in start.unset.items()
    }
    echo_list("Partitions without an offset: auto.offset.reset of the client decides",
              sorted(unset.items()))  # fmt: skip
    click.echo("\nTell clients:")
    echo_fact("connect to", config.target_admin.bootstrap_servers)
    names = sorted({(p.topic, t.topic) for p, t in report.targets.items() if p.topic != t.topic})
    if names:
        echo_fact("topics", ", ".join(f"{old} is {new}" for old, new in names[:3])
                  + (f" and so on ({len(names)})" if names[3:] else ""))  # fmt: skip
    else:
        echo_fact("topics", "have the same names")
    echo_fact("groups", "keep their names, and go on at the next record")


def _echo_notes(found: FailoverPlan | FailoverReport) -> None:
    faulted = sorted(found.faulted.items())
    echo_list("Partitions that could not be mirrored", ((str(p), why) for p, why in faulted))
    echo_list("Worth knowing", (("note", text) for text in found.notes))


def _ahead(
    kept: Mapping[str, Mapping[TopicPartition, KeptAhead]],
) -> Iterator[tuple[str, str]]:
    """Groups with the partitions in which they are ahead, and by how much."""
    for name, places in sorted(kept.items()):
        if places:
            yield (
                name,
                ", ".join(
                    f"{p} at {at.committed}, {at.committed - at.offset} ahead"
                    for p, at in sorted(places.items())
                ),
            )


def _groups(report: FailoverReport) -> str:
    through = [m for m in report.moved.values() if not m.reason]
    offsets = sum(m.written + m.already for m in through)
    text = f"{counted(len(through), 'group')} moved, {counted(offsets, 'offset')}"
    return f"{text}; {counted(len(report.left), 'group')} not" if report.left else text
