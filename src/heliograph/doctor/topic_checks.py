"""Judges the topics of a flow: what is mirrored, how, and what the target will not take. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from heliograph.doctor.cluster_checks import REPLICAS_PER_BROKER, reached
from heliograph.doctor.facts import ClusterFacts, FlowFacts, TopicsFacts
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
from heliograph.policy import ledger_topic, policy_from
from heliograph.units import counted
from heliograph.wire.rights import missing_right

#: AclOperation.
_DELETE, _ALTER, _CLUSTER_ACTION = 6, 7, 9
#: Brokers' defaults of what is a topic's property.
_DEFAULTS = {
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.insync.replicas": "min.insync.replicas",
}
_ZSTD_RELEASE = (2, 1)


@check("topics", Scope.FLOW, "what the flow selects, and names that are not there or not shown")
def _topics(facts: FlowFacts) -> Iterator[Said]:
    topics = facts.topics
    if isinstance(topics, Missing):
        yield unchecked(topics)
        return
    for name in sorted(topics.hidden):
        right = missing_right(facts.config.source_admin, "Describe", "topic", name)
        yield problem(f"topic {name} is not shown to us", right, [name])
    # Who stands by has nothing to bring back before a failover.
    later = topics.coming | (topics.absent if facts.config.standby else frozenset())
    if absent := sorted(topics.absent - later):
        text = f"{some(absent, 'topics')} named in topics: not on {facts.source.alias}"
        yield warning(text, "correct the name, or create the topic", absent)
    chosen = topics.compared.remote
    if facts.config.standby and not chosen and not topics.hidden:
        yield ok(f"it stands by, and no topic of {facts.source.alias} is selected yet")
    elif not chosen and not topics.hidden and not topics.absent and not later:
        text = f"no topic of {facts.source.alias} is selected"
        yield warning(text, "look at topics and topics.exclude: heliograph config show FILE")
    elif not topics.hidden and not absent:
        partitions = sum(len(topics.compared.source.topics[t].partitions) for t in chosen)
        said = f"{counted(len(chosen), 'topic')}, {counted(partitions, 'partition')}"
        more = f"; not there yet: {some(sorted(later), 'topics')}" if later else ""
        yield ok(said + more, sorted(chosen))


@check("leaders", Scope.FLOW, "partitions without a leader")
def _leaders(facts: FlowFacts) -> Iterator[Said]:
    topics = facts.topics
    if isinstance(topics, Missing):
        yield unchecked(topics)
        return
    compared = topics.compared
    sides = (
        (facts.source.alias, compared.source, compared.remote),
        (facts.target.alias, compared.target, compared.target.topics),
    )
    lost = [
        f"{name}-{index} on {alias}"
        for alias, metadata, names in sides
        for name in names
        for index, p in metadata.topics[name].partitions.items()
        if p.leader < 0
    ]
    if lost:
        yield problem(
            f"{some(lost, 'partitions')}: no leader", "start the brokers that have it", lost
        )
    else:
        yield ok("every partition has one")


@check("plan", Scope.FLOW, "topics and properties that the target would refuse")
def _plan(facts: FlowFacts) -> Iterator[Said]:
    seen = facts.preview
    if isinstance(seen, Missing):
        yield unchecked(seen)
        return
    # Those have a check of their own.
    told = [text for text in seen.problems if "REPLICATION_FACTOR" not in text.upper()]
    for text in told:
        what, grant, command = text.partition("; grant it")
        do = f"grant it{command}" if grant else "heliograph topics plan FILE shows all of it"
        yield problem(what, do)
    if not told:
        yield ok(
            f"{len(seen.create)} topics to create, {len(seen.grow)} to grow,"
            f" {len(seen.changes)} properties to change"
        )


@check("replication-factor", Scope.FLOW, "replication factors larger than the cluster")
def _replication_factor(facts: FlowFacts) -> Iterator[Said]:
    config, internal = facts.config, facts.internal
    if isinstance(facts.target.identity, Missing):
        yield unchecked(facts.target.identity)
        return
    brokers = {c.alias: _broker_count(c) for c in (facts.source, facts.target)}
    wanted = {("replication.factor", config.flow.target): config.replication_factor}
    if not isinstance(internal, Missing):
        new = (t for t in internal if not t.partitions)
        wanted |= {(t.key, t.alias): t.replication_factor for t in new}
    large = {k: v for k, v in wanted.items() if v > (brokers[k[1]] or v)}
    for (key, alias), factor in large.items():
        yield problem(
            f"{key}={factor} ({config.origin(key)}), and cluster {alias} has {brokers[alias]}"
            f" broker{'' if brokers[alias] == 1 else 's'}",
            f"set {key} to at most {brokers[alias]}, or to -1 for the cluster's default",
        )
    if not large:
        yield ok("they fit")


@check(
    "planned-partitions",
    Scope.FLOW,
    "how many replicas the target's brokers get by what is created",
)
def _planned(facts: FlowFacts) -> Iterator[Said]:
    seen, target = facts.preview, facts.target.identity
    if isinstance(seen, Missing) or isinstance(target, Missing):
        yield unchecked(seen if isinstance(seen, Missing) else "the target does not answer")
        return
    settings = {} if isinstance(facts.target.settings, Missing) else facts.target.settings
    default = int(settings.get("default.replication.factor", "1"))
    new = [(t.partitions, t.replication_factor) for t in seen.create]
    new += [
        (t.partitions, t.replication_factor) for a, t in seen.internal if a == facts.target.alias
    ]
    new += [(want - have, facts.config.replication_factor) for have, want in seen.grow.values()]
    replicas = sum(count * (default if factor < 1 else factor) for count, factor in new)
    brokers = max(1, len(target.brokers))
    text = (
        f"{counted(replicas, 'replica')} to create, beside {target.replicas:,} that there are, on"
        f" {counted(brokers, 'broker')}"
    )
    if replicas and (target.replicas + replicas) / brokers > REPLICAS_PER_BROKER:
        do = f"add brokers before: beyond {REPLICAS_PER_BROKER} replicas each they get slow"
        yield warning(text, do)
    else:
        yield ok(text)


def _broker_count(cluster: ClusterFacts) -> int:
    return 0 if isinstance(cluster.identity, Missing) else len(cluster.identity.brokers)


@check("min-insync", Scope.FLOW, "topics that ask for more replicas in sync than they have")
def _min_insync(facts: FlowFacts) -> Iterator[Said]:
    topics, internal = facts.topics, facts.internal
    if isinstance(topics, Missing) or isinstance(internal, Missing):
        yield unchecked(topics if isinstance(topics, Missing) else "internal topics are not known")
        return
    target = topics.compared.target.topics
    have: dict[str, tuple[int, int]] = {}
    for name in target:
        least = min((p.replicas for p in target[name].partitions.values()), default=0)
        need = int(topics.target_configs.value(name, "min.insync.replicas", "1"))
        have[name] = (need, least)
    for t in internal:
        if t.partitions:
            have[t.name] = (int(t.configs.get("min.insync.replicas", "1")), t.replicas)
    short = {name: pair for name, pair in have.items() if pair[0] > pair[1] > 0}
    for name, (need, least) in short.items():
        yield problem(
            f"{name} has {least} replica{'' if least == 1 else 's'} and"
            f" min.insync.replicas={need}: it takes no write",
            "lower min.insync.replicas of the topic, or give it more replicas",
            [name],
        )
    default = _default(facts.target, "min.insync.replicas")
    factor = facts.config.replication_factor
    if not short and default is not None and int(default) > factor > 0:
        yield problem(
            f"replication.factor={factor}, and the brokers of {facts.target.alias} have"
            f" min.insync.replicas={default}: new remote topics take no write",
            f"set replication.factor to at least {default}",
        )
    elif not short:
        yield ok("all have enough replicas")


@check("internal-topics", Scope.FLOW, "cleanup policy and partitions of the internal topics")
def _internal(facts: FlowFacts) -> Iterator[Said]:
    if isinstance(facts.internal, Missing):
        yield unchecked(facts.internal)
        return
    there = [t for t in facts.internal if t.partitions]
    beats = policy_from(facts.config).heartbeats_topic()
    bad = False
    for t in there:
        policy, wanted = t.configs.get("cleanup.policy"), t.wanted["cleanup.policy"]
        if t.name != beats and policy is not None and policy != wanted:
            bad = True
            yield problem(
                f"{t.name} on {t.alias} has cleanup.policy={policy}: what it must remember is"
                " removed" if wanted == "compact" else
                f"{t.name} on {t.alias} has cleanup.policy={policy}: records of one key are lost",
                f"set cleanup.policy={wanted}: kafka-configs.sh --alter --entity-type topics"
                f" --entity-name {t.name} --add-config cleanup.policy={wanted}",
                [t.name],
            )  # fmt: skip
        if t.name == ledger_topic(facts.config.flow.source) and t.partitions > 1:
            bad = True
            yield problem(
                f"{t.name} on {t.alias} has {t.partitions} partitions: only the first is read",
                "delete it before the first start; it is created with one",
                [t.name],
            )
    if not bad:
        yield ok(f"{len(there)} of {len(facts.internal)} are there")


@check("message-size", Scope.FLOW, "records that the source takes and the target does not")
def _message_size(facts: FlowFacts) -> Iterable[Said]:
    return _compared(
        facts, "max.message.bytes", lambda here, there: there < here,
        "larger records than {there} bytes are refused there, and the source takes {here}",
        "raise max.message.bytes of the remote topic, or message.max.bytes of the target; or set"
        " heliograph.on.refused=quarantine",
    )  # fmt: skip


@check("retention", Scope.FLOW, "remote topics that keep records for a shorter time")
def _retention(facts: FlowFacts) -> Iterable[Said]:
    def shorter(here: int, there: int) -> bool:
        return there >= 0 and (here < 0 or there < here)

    return _compared(
        facts, "retention.ms", shorter,
        "the target keeps records for {there} ms, the source for {here}",
        "set retention.ms of the source topic, which is copied, or of the remote topic",
    )  # fmt: skip


def _compared(
    facts: FlowFacts, name: str, worse: Callable[[int, int], bool], text: str, do: str
) -> list[Said]:
    """Compares a number of each source topic with that of its remote topic after the next sync."""
    topics = facts.topics
    if isinstance(topics, Missing):
        return [unchecked(topics)]
    groups: dict[tuple[int, int], list[str]] = defaultdict(list)
    asked = 0
    for topic in topics.compared.remote:
        here = topics.source_configs.found.get(topic, {}).get(name)
        there = _after_sync(facts, topics, topic, name)
        if here is None or here.value is None or there is None:
            continue
        asked += 1
        pair = int(here.value), int(there)
        if worse(*pair):
            groups[pair].append(topic)
    if topics.compared.remote and not asked:
        return [unchecked("the properties of its topics are not shown to us")]
    return [
        warning(f"{some(names, 'topics')}: {text.format(here=here, there=there)}", do, names)
        for (here, there), names in groups.items()
    ] or [ok(f"{asked} topics compared")]


def _after_sync(facts: FlowFacts, topics: TopicsFacts, topic: str, name: str) -> str | None:
    """The value that a remote topic has when the mirror has done its work; None if unknown."""
    remote = topics.compared.remote[topic]
    seen = facts.preview
    if not isinstance(seen, Missing):
        for change in seen.changes:
            if (change.topic, change.name) == (remote, name) and change.new is not None:
                return change.new
        for new in seen.create:
            if new.name == remote and name in new.configs:
                return new.configs[name]
    if remote in topics.target_configs.found:
        entry = topics.target_configs.found[remote].get(name)
        return None if entry is None else entry.value
    return _default(facts.target, name)


def _default(cluster: ClusterFacts, name: str) -> str | None:
    settings = cluster.settings
    if isinstance(settings, Missing):
        return None
    if name == "retention.ms":
        if "log.retention.ms" in settings:
            return settings["log.retention.ms"]
        hours = settings.get("log.retention.hours")
        return None if hours is None else str(int(hours) * 3_600_000)
    return settings.get(_DEFAULTS[name])


@check("timestamps", Scope.FLOW, "remote topics that change or refuse timestamps")
def _timestamps(facts: FlowFacts) -> Iterator[Said]:
    topics = facts.topics
    if isinstance(topics, Missing):
        yield unchecked(topics)
        return
    stamped, limited = [], []
    for topic, remote in topics.compared.remote.items():
        kind = _after_sync(facts, topics, topic, "message.timestamp.type")
        here = topics.source_configs.value(topic, "message.timestamp.type", "")
        if kind == "LogAppendTime" and here != kind:
            stamped.append(remote)
        before = topics.target_configs.value(remote, "message.timestamp.before.max.ms", "")
        keeps = topics.source_configs.value(topic, "retention.ms", "-1")
        if before and int(before) < (int(keeps) if int(keeps) >= 0 else 1 << 62):
            limited.append(remote)
    if stamped:
        text = f"{some(stamped, 'topics')}: the target gives records the time of their copy"
        yield warning(text, "set message.timestamp.type=CreateTime there", stamped)
    if limited:
        text = f"{some(limited, 'topics')}: message.timestamp.before.max.ms refuses older records"
        yield warning(text, "raise it to at least the source's retention.ms", limited)
    if not stamped and not limited:
        yield ok("they stay as they are")


@check("compression", Scope.FLOW, "compression that the target does not know")
def _compression(facts: FlowFacts) -> Iterable[Said]:
    topics = facts.topics
    releases = [r.release for _, r in reached(facts.target)]
    if isinstance(topics, Missing) or not releases:
        return [unchecked("one of its clusters does not answer")]
    zstd = [
        t for t in topics.compared.remote
        if topics.source_configs.value(t, "compression.type", "") == "zstd"
    ]  # fmt: skip
    if facts.config.compression_type == "zstd":
        zstd = sorted(topics.compared.remote)
    if zstd and min(releases) < _ZSTD_RELEASE:
        text = f"{some(zstd, 'topics')}: zstd, which the target learns with Kafka 2.1"
        return [problem(text, "upgrade the target, or set target.producer.compression.type", zstd)]
    return [ok("the target knows all codecs")]


@check("more-partitions", Scope.FLOW, "remote topics with more partitions than their source")
def _more_partitions(facts: FlowFacts) -> Iterable[Said]:
    topics = facts.topics
    if isinstance(topics, Missing):
        return [unchecked(topics)]
    here, there = topics.compared.source.topics, topics.compared.target.topics
    more = [
        remote for topic, remote in topics.compared.remote.items()
        if remote in there and len(there[remote].partitions) > len(here[topic].partitions)
    ]  # fmt: skip
    if more:
        text = f"{some(more, 'topics')}: partitions that the source does not have stay empty"
        do = "consumers that go by key must not move over: create the remote topic anew"
        return [warning(text, do, more)]
    return [ok("none")]


@check("offsets", Scope.FLOW, "which offsets each topic gets on the target, and why")
def _offsets(facts: FlowFacts) -> Iterator[Said]:
    topics, rights, config = facts.topics, facts.rights, facts.config
    if isinstance(topics, Missing) or isinstance(rights, Missing):
        yield unchecked(topics if isinstance(topics, Missing) else "our rights are not told")
        return
    names = sorted(topics.compared.remote)
    may = bool(rights.clusters.get("target_admin", frozenset()) & {_ALTER, _CLUSTER_ACTION})
    if config.offsets == "dense":
        yield ok("dense, because of heliograph.offsets=dense", names)
        return
    if not may and config.offsets == "identical":
        yield problem(
            "offsets are to be identical, but gaps cannot be filled: they would be dense",
            missing_right(config.target_admin, "Alter", "cluster"),
            names,
        )
        return
    if not may:
        why = "our client may not Alter the target cluster"
        yield ok(f"dense, and translated exactly: {why}", names)
        return
    groups: dict[str, list[str]] = defaultdict(list)
    allowed = rights.topics.get("target_admin", {})
    for topic in names:
        remote = topics.compared.remote[topic]
        if config.offsets != "identical" and "compact" in _cleanup(facts, topics, topic):
            groups["dense, and translated exactly: compacted topics are mostly gaps"].append(topic)
        elif remote in allowed and _DELETE not in allowed[remote]:
            why = "identical, if its log begins at 0: our client may not Delete its records"
            groups[why].append(topic)
        else:
            groups["identical"].append(topic)
    for why, chosen in groups.items():
        yield ok(f"{some(chosen, 'topics')}: {why}", chosen)
    if not groups:
        yield ok("no topic is selected")


def _cleanup(facts: FlowFacts, topics: TopicsFacts, topic: str) -> str:
    seen, remote = facts.preview, topics.compared.remote[topic]
    if remote in topics.target_configs.found:
        return topics.target_configs.value(remote, "cleanup.policy", "")
    if not isinstance(seen, Missing):
        for new in seen.create:
            if new.name == remote:
                return new.configs.get("cleanup.policy", "")
    return ""
