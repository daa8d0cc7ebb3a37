"""Judges what our clients may do, and says the commands that grant what they lack. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from heliograph.config import FlowConfig
from heliograph.doctor.facts import FlowFacts, InternalTopic, RightsFacts, TopicsFacts
from heliograph.doctor.findings import (
    Missing,
    Said,
    Scope,
    check,
    ok,
    problem,
    some,
    unchecked,
    warning,
)
from heliograph.policy import ledger_topic
from heliograph.units import counted
from heliograph.wire.rights import missing_right

#: AclOperation, as kafka-acls.sh spells them.
_CODES = {
    "Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Alter": 7, "Describe": 8,
    "DescribeConfigs": 10, "AlterConfigs": 11, "IdempotentWrite": 12,
}  # fmt: skip


@check("rights-topics", Scope.FLOW, "rights to topics that our clients need and lack")
def _topics(facts: FlowFacts) -> Iterator[Said]:
    topics, rights = facts.topics, facts.rights
    if isinstance(topics, Missing) or isinstance(rights, Missing):
        yield unchecked(topics if isinstance(topics, Missing) else "rights are not told")
        return
    internal = [] if isinstance(facts.internal, Missing) else facts.internal
    config = facts.config
    needed = [
        *_of_source(config, topics), *_of_target(config, topics), *_of_internal(config, internal)
    ]  # fmt: skip
    found = [said for need in needed for said in _lacking(config, rights, need)]
    for remote in sorted(topics.compared.target.denied):
        right = missing_right(config.target_admin, "Describe", "topic", remote)
        text = f"{remote} is not shown to us: its source is not mirrored"
        found.append(problem(text, right, [remote]))
    yield from found or [ok(f"our clients have all that they need: {_sum_of(config, needed)}")]


class _Need(NamedTuple):
    """An operation on topics that a client (as `RightsFacts` names it) needs.

    Without it such topics have the ``consequence``; ``serious`` if they are not mirrored then.
    """

    client: str
    operation: str
    names: Sequence[str]
    consequence: str
    serious: bool = True


def _sum_of(config: FlowConfig, needed: Iterable[_Need]) -> str:
    """Who needs what of how many topics, in a line."""
    counts: dict[tuple[str, str], set[str]] = {}
    for need in needed:
        side = config.flow.source if need.client.startswith("source") else config.flow.target
        counts.setdefault((side, need.operation), set()).update(need.names)
    operations: dict[tuple[str, int], list[str]] = {}
    for (side, operation), names in counts.items():
        operations.setdefault((side, len(names)), []).append(operation)
    return "; ".join(
        f"on {side} {', '.join(wanted)} of {counted(topics, 'topic')}"
        for (side, topics), wanted in operations.items() if topics
    )  # fmt: skip


def _of_source(config: FlowConfig, topics: TopicsFacts) -> Iterator[_Need]:
    names = sorted(topics.compared.remote)
    yield _Need("source_client", "Read", names, "are not mirrored")
    if config.sync_topic_configs_enabled:
        why = "are created without their properties"
        yield _Need("source_admin", "DescribeConfigs", names, why, serious=False)


def _of_target(config: FlowConfig, topics: TopicsFacts) -> Iterator[_Need]:
    names = sorted(topics.compared.target.topics)
    for operation in ("Write", "Read"):
        yield _Need("target_client", operation, names, "are not mirrored")
    if config.sync_topic_configs_enabled:
        for operation in ("DescribeConfigs", "AlterConfigs"):
            why = "do not get their source's properties"
            yield _Need("target_admin", operation, names, why, serious=False)
    if config.follow_log_start:
        why = "keep what the source has deleted"
        yield _Need("target_admin", "Delete", names, why, serious=False)


def _of_internal(config: FlowConfig, internal: Iterable[InternalTopic]) -> Iterator[_Need]:
    for topic in internal:
        side = "target" if topic.alias == config.flow.target else "source"
        ledger = topic.name == ledger_topic(config.flow.source)
        clients = [f"{side}_client"]
        if ledger and config.target_admin.properties != config.target_client.properties:
            clients.append("target_admin")
        for client in clients:
            for operation in ("Write", "Read") if ledger else ("Write",):
                yield _Need(client, operation, [topic.name], "is not kept")


def _lacking(config: FlowConfig, rights: RightsFacts, need: _Need) -> Iterator[Said]:
    """One line for all topics that lack the same right, with the command for the first."""
    allowed = rights.topics.get(need.client, {})
    lacking = [n for n in need.names if n in allowed and _CODES[need.operation] not in allowed[n]]
    if not lacking:
        return
    right = missing_right(getattr(config, need.client), need.operation, "topic", lacking[0])
    what, _, command = right.partition("; ")
    others = f" (and to {some(lacking[1:])})" if lacking[1:] else ""
    say = problem if need.serious else warning
    yield say(f"{what}{others}: such topics {need.consequence}", command, lacking)


@check("rights-cluster", Scope.FLOW, "rights to the clusters that our clients need and lack")
def _cluster(facts: FlowFacts) -> Iterator[Said]:
    rights, config = facts.rights, facts.config
    if isinstance(rights, Missing):
        yield unchecked(rights)
        return
    found = [
        *_of_groups_list(config, rights),
        *_of_writing(config, rights),
        *_of_acls(config, rights),
    ]
    yield from found or [ok("our clients have all that they need")]


def _of_groups_list(config: FlowConfig, rights: RightsFacts) -> Iterator[Said]:
    if config.emit_checkpoints_enabled and rights.clusters.get("source_admin") == frozenset():
        what, _, command = missing_right(config.source_admin, "Describe", "cluster").partition("; ")
        yield warning(f"{what}: groups that we may not see have no checkpoints", command)


def _of_writing(config: FlowConfig, rights: RightsFacts) -> Iterator[Said]:
    may = rights.clusters.get("target_admin")
    topics = rights.topics.get("target_client", {}).values()
    writes = any(_CODES["Write"] in codes for codes in topics)
    if may and _CODES["IdempotentWrite"] not in may and not writes:
        right = missing_right(config.target_admin, "IdempotentWrite", "cluster")
        what, _, command = right.partition("; ")
        yield warning(f"{what}: it needs that, or Write to some topic", command)


def _of_acls(config: FlowConfig, rights: RightsFacts) -> Iterator[Said]:
    if not config.sync_topic_acls_enabled or rights.authorizer is False:
        return
    may = rights.clusters.get("target_admin")
    if rights.authorizer is None:
        right = missing_right(config.source_admin, "Describe", "cluster")
    elif may is not None and _CODES["Alter"] not in may:
        right = missing_right(config.target_admin, "Alter", "cluster")
    else:
        return
    what, _, command = right.partition("; ")
    yield warning(
        f"{what}: ACLs are not copied", f"set sync.topic.acls.enabled=false, or {command}"
    )


@check("rights-groups", Scope.FLOW, "rights to groups on the target that our clients need and lack")
def _groups(facts: FlowFacts) -> Iterator[Said]:
    rights, config = facts.rights, facts.config
    if isinstance(rights, Missing):
        yield unchecked(rights)
        return
    if not config.sync_group_offsets_enabled:
        yield ok("offsets of groups are not synced")
        return
    if rights.groups_known is None:
        yield unchecked("it cannot be seen whether the target has any groups")
        return
    lacking = {g: "Read" for g, may in rights.groups.items() if _CODES["Read"] not in may}
    lacking |= dict.fromkeys(rights.hidden_groups, "Describe")
    for operation in ("Describe", "Read"):
        names = sorted(g for g, lacks in lacking.items() if lacks == operation)
        if names:
            right = missing_right(config.target_admin, operation, "group", names[0])
            what, _, command = right.partition("; ")
            others = f" (and {len(names) - 1} more groups)" if names[1:] else ""
            yield problem(f"{what}{others}: its offsets are not synced", command, names)
    if not lacking:
        yield ok(f"{len(rights.groups)} groups can be synced")
