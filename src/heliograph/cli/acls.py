"""``heliograph acls``: what the mirror would do about ACLs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from heliograph.cli.flows import (
    ask_flows,
    console_for_tables,
    file_argument,
    flow_option,
    output_option,
)
from heliograph.config import FlowConfig
from heliograph.control.acls.rules import AclPlan, Change
from heliograph.control.acls.sync import AclSync
from heliograph.errors import StartError
from heliograph.ledger.follower import LedgerFollower
from heliograph.ledger.memory import SyncedMemory
from heliograph.policy import ledger_topic
from heliograph.shown import shown
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError

__all__ = ["acls_group"]


@click.group("acls")
def acls_group() -> None:
    """Shows which ACLs of the source the target gets."""


@acls_group.command("plan")
@file_argument
@flow_option
@output_option("table", "json")
def plan_command(file: Path, flow: str | None, output: str) -> None:
    """Show which ACLs the flows of FILE would add to their targets and remove from them, and why.

    Nothing is changed. ACLs of the source that are not copied are counted by reason; -o json names
    each of them.
    """
    plans = ask_flows(file, flow, _plan)
    if output == "json":
        click.echo(plans.as_json(_as_json))
    else:
        console = console_for_tables()
        for config, plan in plans.found:
            for line in _lines(config, plan):
                console.print(line, soft_wrap=True, highlight=False)
    plans.raise_errors()


def _plan(config: FlowConfig) -> AclPlan:
    name = f"{config.flow}|acls-plan"
    topic = ledger_topic(config.flow.source)
    with (
        ClusterClient(config.source_admin, name) as source,
        ClusterClient(config.target_admin, name) as target,
    ):
        begun = topic in target.metadata([topic]).topics
        memory = SyncedMemory(LedgerFollower(target, topic)) if begun else None
        try:
            return AclSync(config, source, target, memory).plan()
        except BrokerError as error:
            raise StartError("acls.refused", str(error)) from error


def _lines(config: FlowConfig, plan: AclPlan) -> Iterator[str | Table]:
    flow = escape(str(config.flow))
    if not config.sync_topic_acls_enabled:
        yield f"{flow}: sync.topic.acls.enabled is false: nothing of this is done"
    if plan.without:
        names = " and ".join(plan.without)
        yield f"{flow}: no authorizer on {escape(names)}, hence no ACLs: nothing to do"
        return
    if plan.additions or plan.removals:
        yield _table(config, plan)
    else:
        yield f"{flow}: nothing to do"
    by_reason: dict[str, list[Change]] = {}
    for change in plan.left_out:
        by_reason.setdefault(change.reason, []).append(change)
    for reason, changes in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        count = f"{len(changes)} ACL{'' if len(changes) == 1 else 's'} of {config.flow.source}"
        example = f"{', e.g.' if changes[1:] else ':'} {changes[0].acl}"
        yield escape(f"{config.flow}: {count} not copied, because {reason}{example}")


def _table(config: FlowConfig, plan: AclPlan) -> Table:
    title = (
        f"{config.flow}: {len(plan.additions)} to add to {config.flow.target},"
        f" {len(plan.removals)} to remove"
    )
    table = Table(title=escape(title), title_justify="left")
    for name in ("", "ACL", "why"):
        table.add_column(name, overflow="fold")
    for sign, changes in (("add", plan.additions), ("remove", plan.removals)):
        for change in changes:
            table.add_row(sign, escape(str(change.acl)), escape(shown(change.reason)))
    return table


def _as_json(config: FlowConfig, plan: AclPlan) -> dict[str, object]:
    return {
        "flow": str(config.flow),
        "enabled": config.sync_topic_acls_enabled,
        "without_authorizer": list(plan.without),
        "additions": _changes(plan.additions),
        "removals": _changes(plan.removals),
        "left_out": _changes(plan.left_out),
    }


def _changes(changes: Sequence[Change]) -> list[dict[str, str]]:
    return [{**asdict(change.acl), "reason": change.reason} for change in changes]
