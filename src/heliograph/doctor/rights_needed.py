"""The rights that a flow needs, and the commands that grant them. Pure.

The same list as in docs/security.md, for the topics and groups that there are now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from heliograph.config import FlowConfig
from heliograph.doctor.facts import FlowFacts, InternalTopic, RightsFacts, TopicsFacts
from heliograph.doctor.findings import Missing
from heliograph.model import ClientSettings
from heliograph.policy import ledger_topic
from heliograph.units import counted
from heliograph.wire.rights import grant_command, principal

__all__ = ["Need", "commands", "groups_of", "summary", "topics_of", "whole"]

#: A command line has a limit, and a terminal a width: so many names are granted by one.
_NAMES = 50


class Need(NamedTuple):
    """An operation, as kafka-acls.sh spells it, that a client (as `RightsFacts` names it) needs.

    Of topics, groups, or the cluster. Without it such topics have the ``consequence``; ``serious``
    if they are not mirrored then.
    """

    client: str
    operation: str
    kind: str
    names: Sequence[str] = ()
    consequence: str = ""
    serious: bool = True


def whole(facts: FlowFacts, topics: TopicsFacts, rights: RightsFacts) -> list[Need]:
    """All that a flow needs, what is granted already too."""
    config = facts.config
    internal = [] if isinstance(facts.internal, Missing) else facts.internal
    found = [*_beside_copying(config, topics, internal), *topics_of(config, topics, internal)]
    found += [*groups_of(config, rights), *_of_clusters(config, rights)]
    return [need for need in found if need.names or need.kind == "cluster"]


def topics_of(
    config: FlowConfig, topics: TopicsFacts, internal: Iterable[InternalTopic]
) -> Iterator[Need]:
    """What copying needs of topics that there are."""
    yield from _of_source(config, topics)
    yield from _of_target(config, topics)
    yield from _of_internal(config, internal)


def _beside_copying(
    config: FlowConfig, topics: TopicsFacts, internal: Iterable[InternalTopic]
) -> Iterator[Need]:
    remote = topics.compared.remote
    yield Need("target_admin", "Create", "topic", [remote[t] for t in topics.compared.missing])
    yield Need("target_admin", "Alter", "topic", sorted(topics.compared.short))
    for topic in internal:
        side = _side(config, topic)
        if not topic.partitions:
            yield Need(f"{side}_admin", "Create", "topic", [topic.name])
        # Commands and other mirrors read what the flow has written there.
        if side == "target":
            yield Need("target_admin", "Read", "topic", [topic.name])


def _of_source(config: FlowConfig, topics: TopicsFacts) -> Iterator[Need]:
    names = sorted(topics.compared.remote)
    yield Need("source_client", "Read", "topic", names, "are not mirrored")
    if config.sync_topic_configs_enabled:
        why = "are created without their properties"
        yield Need("source_admin", "DescribeConfigs", "topic", names, why, serious=False)


def _of_target(config: FlowConfig, topics: TopicsFacts) -> Iterator[Need]:
    names = sorted(topics.compared.remote.values())
    for operation in ("Write", "Read"):
        yield Need("target_client", operation, "topic", names, "are not mirrored")
    if config.sync_topic_configs_enabled:
        for operation in ("DescribeConfigs", "AlterConfigs"):
            why = "do not get their source's properties"
            yield Need("target_admin", operation, "topic", names, why, serious=False)
    if config.follow_log_start:
        why = "keep what the source has deleted"
        yield Need("target_admin", "Delete", "topic", names, why, serious=False)


def _of_internal(config: FlowConfig, internal: Iterable[InternalTopic]) -> Iterator[Need]:
    for topic in internal:
        side = _side(config, topic)
        ledger = topic.name == ledger_topic(config.flow.source)
        clients = [f"{side}_client"]
        if ledger and config.target_admin.properties != config.target_client.properties:
            clients.append("target_admin")
        for client in clients:
            for operation in ("Write", "Read") if ledger else ("Write",):
                yield Need(client, operation, "topic", [topic.name], "is not kept")


def _side(config: FlowConfig, topic: InternalTopic) -> str:
    return "target" if topic.alias == config.flow.target else "source"


def groups_of(config: FlowConfig, rights: RightsFacts) -> Iterator[Need]:
    """What is needed of groups."""
    if config.emit_checkpoints_enabled:
        yield Need("source_admin", "Describe", "group", rights.selected_groups)
    if config.sync_group_offsets_enabled:
        yield Need("target_admin", "Read", "group", rights.selected_groups)


def _of_clusters(config: FlowConfig, rights: RightsFacts) -> Iterator[Need]:
    if config.emit_checkpoints_enabled or config.sync_topic_acls_enabled:
        yield Need("source_admin", "Describe", "cluster")
    yield Need("target_admin", "Describe", "cluster")
    acls = config.sync_topic_acls_enabled and rights.authorizer is not False
    if acls or config.offsets == "identical":
        yield Need("target_admin", "Alter", "cluster")


class _Grantee(NamedTuple):
    """Whom a cluster takes some of our clients for, and what these need.

    ``settings`` are those of the first of them.
    """

    who: str
    settings: ClientSettings
    needs: list[Need]


def _grantees(config: FlowConfig, needs: Iterable[Need]) -> Iterable[_Grantee]:
    found: dict[tuple[str, str], _Grantee] = {}
    for need in needs:
        settings: ClientSettings = getattr(config, need.client)
        who = principal(settings)
        grantee = found.setdefault((settings.alias, who), _Grantee(who, settings, []))
        grantee.needs.append(need)
    return found.values()


def summary(config: FlowConfig, needs: Iterable[Need]) -> str:
    """Who needs what of how many topics and groups, in a line."""
    parts = []
    for grantee in _grantees(config, needs):
        said = ", ".join(
            f"{_listed(which)} of {counted(len(names), kind) if names[0] else 'the cluster'}"
            for (kind, which), names in _alike(grantee).items()
        )
        parts.append(f"{grantee.who} on {grantee.settings.alias}: {said}")
    return "; ".join(parts)


def _listed(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def commands(config: FlowConfig, needs: Iterable[Need]) -> tuple[str, ...]:
    """Commands of kafka-acls.sh that grant it all: names that need the same are granted at once."""
    found = []
    for grantee in _grantees(config, needs):
        for (kind, which), names in _alike(grantee).items():
            for at in range(0, len(names), _NAMES):
                few = names[at : at + _NAMES]
                found.append(grant_command(grantee.settings, which, kind, few))
    return tuple(found)


def _alike(grantee: _Grantee) -> Mapping[tuple[str, tuple[str, ...]], list[str]]:
    """Names of one kind by the operations that are needed on them; that of a cluster is empty."""
    operations: dict[tuple[str, str], set[str]] = defaultdict(set)
    for need in grantee.needs:
        for name in need.names or ("",):
            operations[need.kind, name].add(need.operation)
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (kind, name), wants in operations.items():
        alike[kind, tuple(sorted(wants))].append(name)
    return alike
