"""``heliograph acls``: what the mirror would do about ACLs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from heliograph.cli.flows import asking_clusters, file_argument, flow_option, flows_of
from heliograph.config import FlowConfig
from heliograph.control.acl_rules import AclPlan, Change
from heliograph.control.acls import AclSync
from heliograph.errors import HeliographError
from heliograph.ledger.memory import SyncedMemory
from heliograph.policy import ledger_topic
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError

__all__ = ["acls_group"]


@click.group("acls")
def acls_group() -> None:
    """Shows which ACLs of the source the target gets."""


@acls_group.command("plan")
@file_argument
@flow_option
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
def plan_command(file: Path, flow: str | None, output: str) -> None:
    """Show which ACLs the flows of FILE would add to their targets and remove from them, and why.

    Nothing is changed. ACLs of the source that are not copied are counted by reason; -o json names
    each of them.
    """
    plans = [(config, _plan(config)) for config in flows_of(file, flow)]
    if output == "json":
        click.echo(json.dumps([_as_json(config, plan) for config, plan in plans], indent=2))
        return
    # Piped output is for programs and logs: no wrapping at an assumed 80 columns.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 240)
    for config, plan in plans:
        for line in _lines(config, plan):
            console.print(line, soft_wrap=True)


def _plan(config: FlowConfig) -> AclPlan:
    name = f"{config.flow}|acls-plan"
    topic = ledger_topic(config.flow.source)
    with (
        asking_clusters(),
        ClusterClient(config.source_admin, name) as source,
        ClusterClient(config.target_admin, name) as target,
    ):
        begun = topic in target.metadata([topic]).topics
        memory = SyncedMemory(target, topic) if begun else None
        try:
            return AclSync(config, source, target, memory).plan()
        except BrokerError as error:
            raise HeliographError("acls.refused", f"flow {config.flow}: {error}") from error


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
            table.add_row(sign, escape(str(change.acl)), escape(change.reason))
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
