"""Judges one cluster: is it reached, by whom, what is it, does it fit. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

from heliograph.doctor.facts import BrokerFacts, Certificate, ClusterFacts, Reached
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
from heliograph.shown import shown

#: Magic 2: record batches, producer ids.
_OLDEST_RELEASE = (0, 11)
#: Topic ids, DescribeProducers, DescribeCluster.
_FULL_RELEASE = (2, 8)
#: Nobody's clock is better without care; wrong by less it is no help to look at.
_SKEW_SECONDS = 5.0
_CERTIFICATE_DAYS = 14
_DAY_SECONDS = 86_400.0
#: What Kafka's operators are told not to exceed.
REPLICAS_PER_BROKER = 4000
#: Shorter, and a target partition that rests for minutes is written one batch at a time.
_PRODUCER_MS = 600_000
_NO_HOST = {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound


def is_loopback(host: str) -> bool:
    """Whether a host's name or address means the machine that uses it."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def reached(facts: ClusterFacts) -> list[tuple[BrokerFacts, Reached]]:
    """The brokers that answered."""
    return [(b, b.reached) for b in facts.brokers if not isinstance(b.reached, Missing)]


@check("bootstrap", Scope.CLUSTER, "whether each bootstrap server answers")
def _bootstrap(facts: ClusterFacts) -> Iterator[Said]:
    failed = {server: why for server, why in facts.bootstrap.items() if why}
    key = f"{facts.alias}.bootstrap.servers"
    if facts.bootstrap and len(failed) == len(facts.bootstrap):
        for server, why in failed.items():
            yield problem(
                f"{shown(server)}: {why}",
                f"check that it is up, {key}, and the way there: names, routes, firewalls",
            )
    elif failed:
        for server, why in failed.items():
            yield warning(
                f"{shown(server)}: {why}",
                f"start it, or take it out of {key}: connecting takes longer with it",
            )
    elif not facts.bootstrap:
        yield problem(f"{key} cannot be read", "check the provider that it refers to")
    else:
        yield ok(f"answered: {some(list(facts.bootstrap), 'servers')}")


@check("login", Scope.CLUSTER, "whether each kind of client is let in, with TLS and SASL")
def _login(facts: ClusterFacts) -> Iterator[Said]:
    if isinstance(facts.identity, Missing) and all(facts.bootstrap.values()):
        yield unchecked("no bootstrap server answers")
        return
    failed = {role: why for role, why in facts.logins.items() if why}
    for role, why in failed.items():
        yield problem(
            f"as {role}: {why}",
            f"check {facts.alias}.security.protocol, {facts.alias}.sasl.* and {facts.alias}.ssl.*",
        )
    if not failed:
        yield ok(f"as {', '.join(facts.logins)}")


@check("names", Scope.CLUSTER, "whether the names of brokers have addresses here")
def _names(facts: ClusterFacts) -> Iterator[Said]:
    if not facts.brokers:
        yield unchecked("its brokers are not known")
        return
    failed = {b.host: b.addresses.why for b in facts.brokers if isinstance(b.addresses, Missing)}
    for host, why in failed.items():
        yield problem(
            f"{shown(host)}, which a broker advertises, has no address here: {why}",
            "add it to DNS or to /etc/hosts, or have the broker advertise another name",
        )
    if not failed:
        yield ok(some(sorted({shown(b.host) for b in facts.brokers}), "names"))


@check("brokers", Scope.CLUSTER, "whether each broker answers at the address that it advertises")
def _brokers(facts: ClusterFacts) -> Iterator[Said]:
    if not facts.brokers:
        yield unchecked("its brokers are not known")
        return
    for b in facts.brokers:
        if isinstance(b.reached, Missing):
            yield problem(
                f"broker {b.node} advertises {shown(b.host)}:{b.port}: {b.reached.why}",
                "start it, let this machine through, or correct its advertised.listeners; what it"
                " leads is not mirrored until then",
            )
    found = reached(facts)
    if len(found) == len(facts.brokers):
        trips = sorted(1000 * r.round_trip for _, r in found)
        yield ok(f"answered: {len(found)}, in {trips[0]:.1f} to {trips[-1]:.1f} ms")


@check("advertised", Scope.CLUSTER, "advertised addresses that only the broker itself can use")
def _advertised(facts: ClusterFacts) -> Iterator[Said]:
    if not facts.brokers:
        yield unchecked("its brokers are not known")
        return
    servers = [server.rpartition(":")[0] for server in facts.bootstrap]
    near = all(map(is_loopback, servers))
    odd = [b for b in facts.brokers if b.host in _NO_HOST or (is_loopback(b.host) and not near)]
    for b in odd:
        yield problem(
            f"broker {b.node} advertises {shown(b.host)}:{b.port}, which is this machine, but"
            f" cluster {facts.alias} is reached at {some([shown(s) for s in servers])}",
            "set advertised.listeners of the broker to an address that its clients can use",
        )
    if not odd:
        others = {o: why for b in facts.brokers for o, why in b.others.items()}
        away = [shown(listener) for listener, why in others.items() if why]
        more = f"; {len(others)} more for other clients" if others else ""
        if away:
            more += f", not reached from here: {some(away, 'listeners')}"
        yield ok(f"all can be used from here{more}", away)


@check("version", Scope.CLUSTER, "the release of Kafka, its features, and what it lacks")
def _version(facts: ClusterFacts) -> Iterator[Said]:
    releases = sorted({r.release for _, r in reached(facts)})
    if not releases:
        yield unchecked("no broker answers")
        return
    names = [".".join(map(str, release)) for release in releases]
    if releases[0] < _OLDEST_RELEASE:
        yield problem(f"Kafka {names[0]} knows no record batches", "upgrade it to 2.8 or newer")
    elif releases[0] < _FULL_RELEASE:
        yield warning(
            f"Kafka {names[0]} knows no topic ids: a topic that was created anew is taken for the"
            " old one, and rights are not told",
            "upgrade it to 2.8 or newer when you can",
        )
    if len(releases) > 1:
        yield warning(
            f"its brokers are of different releases: {', '.join(names)}",
            "complete the upgrade",
        )
    elif releases[0] >= _FULL_RELEASE:
        levels: dict[str, int] = {}
        for _, r in reached(facts):
            levels.update(r.features)
        told = ", ".join(f"{shown(name)} {level}" for name, level in sorted(levels.items()))
        yield ok(f"Kafka {names[0]} or newer" + (f": {told}" if told else ""))


@check("clock", Scope.CLUSTER, "the controller's clock, beside this machine's")
def _clock(facts: ClusterFacts) -> Iterable[Said]:
    clock = facts.clock
    if isinstance(clock, Missing):
        return [unchecked(clock)]
    if clock is None:
        return [unchecked("this release does not tell its time")]
    text = f"{abs(clock.ahead):.3f} s {'ahead of' if clock.ahead > 0 else 'behind'} this machine"
    if abs(clock.ahead) - clock.uncertainty > _SKEW_SECONDS:
        do = "set both clocks by NTP: latency, retention and timestamp limits go by them"
        return [warning(text, do)]
    return [ok(f"{text}, give or take {clock.uncertainty:.3f} s")]


@check("certificates", Scope.CLUSTER, "certificates of brokers and of our client that expire")
def _certificates(facts: ClusterFacts) -> Iterator[Said]:
    found: list[tuple[str, Certificate]] = [
        (f"broker {b.node}", r.certificate)
        for b, r in reached(facts) if r.certificate is not None
    ]  # fmt: skip
    if isinstance(facts.certificate, Missing):
        why = f"our certificate cannot be read: {facts.certificate.why}"
        yield problem(why, f"check {facts.alias}.ssl.keystore.*")
    elif facts.certificate is not None:
        found.append(("our client", facts.certificate))
    soon = [(who, c) for who, c in found if c.seconds_left < _CERTIFICATE_DAYS * _DAY_SECONDS]
    for who, certificate in soon:
        days = certificate.seconds_left / _DAY_SECONDS
        text = f"the certificate of {who} ({certificate.subject})"
        if days < 0:
            yield problem(f"{text} expired {-days:.1f} days ago", "replace it")
        else:
            yield warning(f"{text} expires in {days:.1f} days", "replace it in time")
    if not soon and not isinstance(facts.certificate, Missing):
        least = min((c.seconds_left / _DAY_SECONDS for _, c in found), default=None)
        yield ok("no TLS" if least is None else f"the first expires in {least:.0f} days")


@check("broker-settings", Scope.CLUSTER, "settings of brokers that cost speed or records")
def _settings(facts: ClusterFacts) -> Iterator[Said]:
    if isinstance(facts.settings, Missing):
        yield unchecked(facts.settings)
        return
    expiration = int(facts.settings.get("producer.id.expiration.ms", _PRODUCER_MS))
    unclean = facts.settings.get("unclean.leader.election.enable", "false") == "true"
    if expiration < _PRODUCER_MS:
        yield warning(
            f"producer.id.expiration.ms={expiration}: its brokers forget writers so soon that"
            " partitions are written one batch at a time after a rest",
            "set it to 86400000, Kafka's default, if flows lead into this cluster",
        )
    if unclean:
        yield warning(
            "unclean.leader.election.enable=true: a leader may be elected that lacks records",
            "set it to false, or decide on heliograph.on.truncation",
        )
    if expiration >= _PRODUCER_MS and not unclean:
        yield ok(f"{len(facts.settings)} settings")


@check("partitions", Scope.CLUSTER, "how many replicas of partitions each broker has")
def _partitions(facts: ClusterFacts) -> Iterable[Said]:
    if isinstance(facts.identity, Missing):
        return [unchecked(facts.identity)]
    brokers = max(1, len(facts.identity.brokers))
    each = facts.identity.replicas / brokers
    text = f"{facts.identity.replicas} replicas on {brokers} broker{'s' if brokers > 1 else ''}"
    if each > REPLICAS_PER_BROKER:
        return [warning(text, f"add brokers: beyond {REPLICAS_PER_BROKER} each they get slow")]
    return [ok(text)]
