"""Judges a flow as a whole: its two clusters, its link, and who else mirrors it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from heliograph.claims.process_identity import this_process
from heliograph.doctor.cluster_checks import reached
from heliograph.doctor.facts import ClusterFacts, FlowFacts
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
from heliograph.shown import shown
from heliograph.units import amount, duration, latency, moment
from heliograph.wire.rights import missing_right

#: Kafka's default since 3.6.
_AFTER_MAX_MS = 3_600_000
#: Less from a broker that has more to give: the link is what limits it.
_LINK_BYTES_PER_SECOND = 20e6
#: Heartbeats are written every second.
_ALIVE_SECONDS = 30.0


@check("same-cluster", Scope.FLOW, "whether both aliases are one cluster")
def _same_cluster(facts: FlowFacts) -> Iterable[Said]:
    here, there, flow = facts.source.identity, facts.target.identity, facts.config.flow
    if isinstance(here, Missing) or isinstance(there, Missing):
        return [unchecked("one of its clusters does not answer")]
    if here.cluster_id == there.cluster_id:
        return [
            problem(
                f"{flow.source} and {flow.target} are the same cluster ({here.cluster_id}): it"
                " would copy its own copies",
                f"check {flow.source}.bootstrap.servers and {flow.target}.bootstrap.servers",
            )
        ]
    return [ok(f"{here.cluster_id} and {there.cluster_id}")]


@check("clocks", Scope.FLOW, "clocks so far apart that the target refuses the source's timestamps")
def _clocks(facts: FlowFacts) -> Iterable[Said]:
    here, there, settings = facts.source.clock, facts.target.clock, facts.target.settings
    for clock in (here, there):
        if clock is None or isinstance(clock, Missing):
            return [unchecked(clock or "a cluster does not tell its time")]
    assert here is not None and there is not None  # noqa: S101 - narrows the type
    assert not isinstance(here, Missing) and not isinstance(there, Missing)  # noqa: S101
    key = "log.message.timestamp.after.max.ms"
    told = {} if isinstance(settings, Missing) else settings
    limit = int(told.get(key, _AFTER_MAX_MS)) / 1000
    ahead = here.ahead - there.ahead
    text = f"{facts.source.alias} is {ahead:+.3f} s from {facts.target.alias}"
    if ahead - here.uncertainty - there.uncertainty > limit:
        return [
            problem(
                f"{text}: its records are too new for the target ({key}={limit * 1000:.0f})",
                "set the clocks by NTP, or raise that limit on the target",
            )
        ]
    return [ok(text)]


@check("link", Scope.FLOW, "round trips that limit how much can be fetched and written")
def _link(facts: FlowFacts) -> Iterator[Said]:
    trips = {c.alias: _slowest(c) for c in (facts.source, facts.target)}
    source, target = trips[facts.source.alias], trips[facts.target.alias]
    if source is None or target is None:
        yield unchecked("no broker of one of its clusters answers")
        return
    size = facts.config.fetch_max_bytes
    text = f"round trips: {latency(source)} to the source, {latency(target)} to the target"
    if size / source < _LINK_BYTES_PER_SECOND:
        better = 1 << (int(source * 5 * _LINK_BYTES_PER_SECOND) - 1).bit_length()
        yield warning(
            f"{text}; with {amount(size)}B a fetch, a broker gives a lease {amount(size / source)}B"
            " a second at most",
            f"set heliograph.fetch.max.bytes = {better}",
        )
    elif target > _target_limit():
        yield warning(
            f"{text}: what is written waits long for its answers",
            "run the mirror near the target: reading over a distance is quicker than writing",
        )
    else:
        yield ok(text)


def _target_limit() -> float:
    # Five batches of a megabyte are in flight.
    return 5 * (1 << 20) / _LINK_BYTES_PER_SECOND


def _slowest(cluster: ClusterFacts) -> float | None:
    return max((r.round_trip for _, r in reached(cluster)), default=None)


@check("owner", Scope.FLOW, "whether another mirror has the flow")
def _owner(facts: FlowFacts) -> Iterator[Said]:
    if isinstance(facts.ledger, Missing):
        yield unchecked(facts.ledger)
        return
    here = this_process()
    for claim, gone in facts.ledger.claims:
        process = claim.process
        who = (
            f"process {process.pid} on {shown(process.host)}, since {moment(claim.since_ms / 1e3)}"
        )
        if gone:
            yield ok(f"{who}, has ended without a word; the next start takes over")
        elif (process.host, process.boot) == (here.host, here.boot):
            yield ok(f"it is mirrored by {who}")
        else:
            yield warning(
                f"another mirror has it: {who}",
                "stop that one, unless this one is to stand by: each flow has one mirror at a time",
            )
    if not facts.ledger.claims:
        yield ok("nobody mirrors it now")


@check("ledger", Scope.FLOW, "a ledger that belongs to another cluster")
def _ledger(facts: FlowFacts) -> Iterable[Said]:
    if isinstance(facts.ledger, Missing):
        return [unchecked(facts.ledger)]
    here, there, signature = facts.source.identity, facts.target.identity, facts.ledger.signature
    if signature is None or isinstance(here, Missing) or isinstance(there, Missing):
        return [ok("it was never mirrored")]
    topic = ledger_topic(facts.config.flow.source)
    made_for = (signature.source_cluster, signature.target_cluster)
    if made_for != (here.cluster_id, there.cluster_id):
        return [
            problem(
                f"{topic} on {facts.target.alias} belongs to a mirror of cluster"
                f" {shown(made_for[0])} into {shown(made_for[1])}, and {facts.source.alias} is"
                f" {here.cluster_id}",
                f"give the new source another alias, or delete {topic} to begin anew",
            )
        ]
    return [ok(f"{topic}: {len(facts.ledger.begun)} partitions were mirrored")]


@check("mm2", Scope.FLOW, "a MirrorMaker 2 that mirrors the flow right now")
def _mm2(facts: FlowFacts) -> Iterable[Said]:
    if isinstance(facts.mirrors, Missing):
        return [unchecked(facts.mirrors)]
    if facts.mirrors.mm2:
        return [
            problem(
                facts.mirrors.mm2,
                "stop MM2 with SIGTERM, so that it stores its positions; or take these topics out"
                " of its configuration",
            )
        ]
    if facts.mirrors.mm2_hidden:
        right = missing_right(
            facts.config.target_admin, "Describe", "group", facts.config.mm2_group
        )
        what, _, command = right.partition("; ")
        return [warning(f"{what}: it cannot be seen whether MM2 runs", command)]
    known = len(facts.mirrors.known_to_mm2)
    return [ok(f"it does not run; it has mirrored {known} partitions" if known else "none")]


@check("other-mirror", Scope.FLOW, "heartbeats of a mirror that has no claim")
def _other_mirror(facts: FlowFacts) -> Iterable[Said]:
    mirrors, ledger = facts.mirrors, facts.ledger
    if isinstance(mirrors, Missing) or isinstance(ledger, Missing):
        return [unchecked(mirrors if isinstance(mirrors, Missing) else "its ledger cannot be read")]
    age = mirrors.heartbeat_age
    alive = any(not gone for _, gone in ledger.claims)
    if age is not None and age < _ALIVE_SECONDS and not alive:
        return [
            warning(
                f"a heartbeat of {facts.config.flow} was written {duration(age)} ago, and no"
                " Heliograph has a claim: MM2 in a Connect cluster may be at work",
                "stop it before you start this mirror",
            )
        ]
    if age is None:
        return [ok("no heartbeats")]
    return [ok(f"the last heartbeat is {duration(age)} old")]


@check(
    "unknown-target", Scope.FLOW, "remote topics with records that nobody is known to have copied"
)
def _unknown_target(facts: FlowFacts) -> Iterable[Said]:
    ledger, mirrors = facts.ledger, facts.mirrors
    if isinstance(ledger, Missing) or isinstance(mirrors, Missing):
        return [unchecked(ledger if isinstance(ledger, Missing) else "MM2's topics cannot be read")]
    unknown = sorted(map(str, ledger.filled - mirrors.known_to_mm2))
    if not unknown:
        return [ok("none")]
    flow = facts.config.flow
    text = f"{some(unknown, 'partitions')}: {flow.target} holds records, and no mirror is known"
    if facts.config.on_unknown_target == "append":
        return [ok(f"{text}; ours are appended (heliograph.on.unknown.target)", unknown)]
    return [
        problem(
            text,
            f"if they are copies of {flow.source}'s, delete the remote topic to mirror it anew; if"
            " they are others', set heliograph.on.unknown.target=append",
            unknown,
        )
    ]
