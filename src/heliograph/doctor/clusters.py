"""Facts about a cluster: who answers where, as what, and how quickly. Runs in a command; reads."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from cryptography import x509

from heliograph.config.providers import resolve
from heliograph.doctor.facts import BrokerFacts, Certificate, ClusterFacts, Identity, Reached
from heliograph.doctor.findings import Missing
from heliograph.doctor.parallel import Progress, ask_all
from heliograph.errors import ConfigError
from heliograph.model import ClientSettings
from heliograph.shown import shown
from heliograph.wire import names
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.connection import Connection
from heliograph.wire.errors import AuthenticationFailed, WireError
from heliograph.wire.inspection import (
    broker_settings,
    controller_clock,
    features,
    release,
    round_trip,
)
from heliograph.wire.metadata import Metadata
from heliograph.wire.rights import client_certificate

__all__ = ["SETTINGS", "look_at_cluster"]

#: Settings of brokers that a check looks at.
SETTINGS = (
    "message.max.bytes",
    "min.insync.replicas",
    "producer.id.expiration.ms",
    "unclean.leader.election.enable",
    "log.retention.ms",
    "log.retention.hours",
    "log.message.timestamp.type",
    "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms",
    "default.replication.factor",
)
_ADVERTISED = "advertised.listeners"
_ROLES = ("admin", "consumer", "producer")
#: The keys that connections are made with.
_CONNECTING = ("bootstrap.servers", "security.", "ssl.", "sasl.")


def look_at_cluster(
    alias: str, clients: Mapping[str, ClientSettings], seconds: float, progress: Progress
) -> ClusterFacts:
    """All that is to be known of a cluster; ``clients`` are its client settings by role."""
    role = next(r for r in _ROLES if r in clients)
    settings = clients[role]
    with ClusterClient(settings, "doctor", request_timeout=seconds) as client:
        # First and alone: with credentials that are refused, nobody else tries.
        (metadata,) = ask_all({f"{alias}: metadata": client.metadata}, seconds, progress).values()
        servers = {f"{alias}: {s}": partial(_dial, client, s) for s in _servers(settings)}
        others = [r for r in clients if _way_in(clients[r]) != _way_in(settings)]
        logins = {f"{alias}: login as {r}": partial(_log_in, clients[r], seconds) for r in others}
        told = ask_all({**servers, **logins}, seconds, progress)
        own = ask_all(
            {f"{alias}: certificate": partial(_own_certificate, settings)}, seconds, progress
        )
        facts = ClusterFacts(
            alias=alias,
            client=settings,
            bootstrap={s.partition(": ")[2]: _why(told[s]) for s in servers},
            identity=_identity(metadata),
            logins={
                r: _why(told[f"{alias}: login as {r}"] if r in others else metadata)
                for r in clients
            },
            certificate=own[f"{alias}: certificate"],
        )
        if isinstance(metadata, Missing):
            return facts
        return _with_brokers(facts, client, metadata, seconds, progress)


def _way_in(settings: ClientSettings) -> dict[str, str]:
    return {k: v for k, v in settings.properties.items() if k.startswith(_CONNECTING)}


def _with_brokers(
    facts: ClusterFacts,
    client: ClusterClient,
    metadata: Metadata,
    seconds: float,
    progress: Progress,
) -> ClusterFacts:
    alias = facts.alias
    questions: dict[str, Callable[[], object]] = {}
    for node, (host, port) in metadata.brokers.items():
        questions[f"{alias}: name of broker {node}"] = partial(_addresses, host, seconds)
        questions[f"{alias}: broker {node}"] = partial(_reach, client, host, port, seconds)
        questions[f"{alias}: listeners of broker {node}"] = partial(
            _others, client, node, (host, port), seconds
        )
    questions[f"{alias}: settings"] = partial(_settings, client, metadata)
    questions[f"{alias}: clock"] = partial(controller_clock, client)
    told = ask_all(questions, seconds, progress)
    brokers = [
        BrokerFacts(
            node, host, port,
            told[f"{alias}: name of broker {node}"],  # type: ignore[arg-type]
            told[f"{alias}: broker {node}"],  # type: ignore[arg-type]
            _found(told[f"{alias}: listeners of broker {node}"]),
        )
        for node, (host, port) in metadata.brokers.items()
    ]  # fmt: skip
    return ClusterFacts(
        alias=alias,
        client=facts.client,
        bootstrap=facts.bootstrap,
        identity=facts.identity,
        logins=facts.logins,
        certificate=facts.certificate,
        brokers=brokers,
        settings=told[f"{alias}: settings"],  # type: ignore[arg-type]
        clock=told[f"{alias}: clock"],  # type: ignore[arg-type]
    )


def _servers(settings: ClientSettings) -> list[str]:
    try:
        text = resolve(settings.bootstrap_servers, settings.providers)
    except ConfigError:
        return []  # the client says so
    return [server.strip() for server in text.split(",") if server.strip()]


def _dial(client: ClusterClient, server: str) -> None:
    host, _, port = server.rpartition(":")
    # One that does not let us in is there: whether we are let in is another question.
    with suppress(AuthenticationFailed):
        client.probe(host.strip("[]"), int(port)).close()


def _log_in(settings: ClientSettings, seconds: float) -> None:
    with ClusterClient(settings, "doctor", request_timeout=seconds) as client:
        client.metadata(())


def _addresses(host: str, seconds: float) -> tuple[str, ...]:
    return tuple(names.addresses(host, seconds))


def _reach(client: ClusterClient, host: str, port: int, seconds: float) -> Reached:
    connection: Connection = client.probe(host, port)
    try:
        der = connection.peer_certificate
        certificate = None if der is None else _validity(x509.load_der_x509_certificate(der))
        return Reached(
            round_trip(connection, seconds), release(connection.versions), certificate,
            features(connection, seconds),
        )  # fmt: skip
    finally:
        connection.close()


def _others(
    client: ClusterClient, node: int, ours: tuple[str, int], seconds: float
) -> Mapping[str, str]:
    """The listeners that a broker advertises to other clients, and why one is not reached."""
    told = broker_settings(client, node, (_ADVERTISED,)).get(_ADVERTISED, "")
    found = {}
    for listener in filter(None, map(str.strip, told.split(","))):
        host, _, port = listener.rpartition("//")[2].rpartition(":")
        host = host.strip("[]")
        if (host, port) != (ours[0], str(ours[1])) and port.isdecimal():
            found[listener] = _knock(host, int(port), seconds)
    return found


def _knock(host: str, port: int, seconds: float) -> str:
    """Why there is no connection; others may speak TLS there, or log in otherwise."""
    try:
        socket.create_connection((host, port), seconds).close()
    except OSError as error:
        return str(error)
    return ""


def _found(told: object) -> Mapping[str, str]:
    return {} if isinstance(told, Missing) else told  # type: ignore[return-value]


def _settings(client: ClusterClient, metadata: Metadata) -> Mapping[str, str]:
    failure: WireError | None = None
    for node in sorted(metadata.brokers):
        try:
            return broker_settings(client, node, SETTINGS)
        except WireError as error:  # another broker may answer
            failure = error
    assert failure is not None  # noqa: S101 - there are brokers
    raise failure


def _identity(metadata: Metadata | Missing) -> Identity | Missing:
    if isinstance(metadata, Missing):
        return metadata
    partitions = (p for t in metadata.topics.values() for p in t.partitions.values())
    replicas = sum(p.replicas for p in partitions)
    return Identity(metadata.cluster_id, metadata.brokers, replicas)


def _own_certificate(settings: ClientSettings) -> Certificate | None:
    own = client_certificate(settings)
    return None if own is None else _validity(own)


def _validity(certificate: x509.Certificate) -> Certificate:
    left = certificate.not_valid_after_utc - datetime.fromtimestamp(time.time(), UTC)
    return Certificate(shown(certificate.subject.rfc4514_string()), left.total_seconds())


def _why(told: object) -> str:
    return told.why if isinstance(told, Missing) else ""
