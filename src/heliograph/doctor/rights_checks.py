"""Judges what our clients may do, and says the commands that grant what they lack. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from heliograph.config import FlowConfig
from heliograph.doctor import rights_needed
from heliograph.doctor.facts import FlowFacts, RightsFacts
from heliograph.doctor.findings import (
    Missing,
    Said,
    Scope,
    Verdict,
    check,
    ok,
    some,
    unchecked,
    warning,
)
from heliograph.doctor.rights_needed import Need
from heliograph.units import counted
from heliograph.wire.rights import missing_right

#: AclOperation, as kafka-acls.sh spells them.
_CODES = {
    "Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Alter": 7, "Describe": 8,
    "DescribeConfigs": 10, "AlterConfigs": 11, "IdempotentWrite": 12,
}  # fmt: skip


@check("rights", Scope.FLOW, "the rights that our clients need, and what grants them (-o json)")
def _rights(facts: FlowFacts) -> Iterable[Said]:
    topics, rights, config = facts.topics, facts.rights, facts.config
    if isinstance(topics, Missing) or isinstance(rights, Missing):
        return [unchecked(topics if isinstance(topics, Missing) else "rights are not told")]
    needs = rights_needed.whole(facts, topics, rights)
    said = rights_needed.summary(config, needs)
    return [ok(said, commands=rights_needed.commands(config, needs))]


@check("rights-topics", Scope.FLOW, "rights to topics that our clients need and lack")
def _topics(facts: FlowFacts) -> Iterator[Said]:
    topics, rights = facts.topics, facts.rights
    if isinstance(topics, Missing) or isinstance(rights, Missing):
        yield unchecked(topics if isinstance(topics, Missing) else "rights are not told")
        return
    internal = [] if isinstance(facts.internal, Missing) else facts.internal
    config = facts.config
    needed = rights_needed.topics_of(config, topics, internal)
    found = [said for need in needed for said in _lacking(config, rights, need)]
    if hidden := sorted(topics.compared.target.denied):
        lacks = Need("target_admin", "Describe", "topic", hidden, "are not mirrored")
        found.append(_refused(config, lacks, hidden))
    yield from found or [ok("our clients have all that they need")]


def _lacking(config: FlowConfig, rights: RightsFacts, need: Need) -> Iterator[Said]:
    """One line for all topics that lack the same right."""
    allowed = rights.topics.get(need.client, {})
    lacking = [n for n in need.names if n in allowed and _CODES[need.operation] not in allowed[n]]
    if lacking:
        yield _refused(config, need, lacking)


def _refused(config: FlowConfig, need: Need, lacking: Sequence[str]) -> Said:
    """What is said of a right that is missing, with the commands that grant it."""
    right = missing_right(getattr(config, need.client), need.operation, need.kind, lacking[0])
    others = f" (and to {some(lacking[1:], need.kind + 's')})" if lacking[1:] else ""
    grants = rights_needed.commands(config, [need._replace(names=lacking)])
    more = f"; {counted(len(grants) - 1, 'more command')}: -o json" if grants[1:] else ""
    return Said(
        Verdict.PROBLEM if need.serious else Verdict.WARNING,
        f"{right.partition('; ')[0]}{others}: such {need.kind}s {need.consequence}",
        f"grant it with: {grants[0]}{more}",
        tuple(lacking),
        grants,
    )


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
            why = "are not synced"
            yield _refused(config, Need("target_admin", operation, "group", names, why), names)
    if not lacking:
        yield ok(f"{len(rights.groups)} groups can be synced")
