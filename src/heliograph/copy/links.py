"""Connections that outlive a lease. Runs in executors.

Spark keeps Python workers alive and gives any lease to any of them, one at a time, so clients and
ledgers are kept per process and found by cluster. A worker that Spark forgets takes them with it.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass

from heliograph.copy.silence import SilentBrokers
from heliograph.ledger.store import LedgerStore
from heliograph.model import ClientSettings, FlowContext
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.connection import Connection

#: Requests of a lease to a broker that does not answer must not outlast the lease by much.
_REQUEST_TIMEOUT_SECONDS = 10.0


@dataclass(slots=True)
class Cluster:
    """A client for questions and a pool of idle connections for bulk data."""

    client: ClusterClient
    idle: dict[int, list[Connection]]
    silent: SilentBrokers
    #: Up to where others were told to have written, by topic id and partition.
    foreign_until: dict[tuple[uuid.UUID, int], int]

    def take(self, node: int) -> Connection:
        """A connection for bulk data to a broker."""
        pool = self.idle.setdefault(node, [])
        while pool:
            connection = pool.pop()
            if not connection.closed:
                return connection
            connection.close()
        self.silent.refuse(node)
        with self.silent.noticed(node):
            return self.client.open(node)

    def give_back(self, node: int, connection: Connection) -> None:
        """Keep a connection for the next lease, unless its state is not known."""
        if connection.closed or connection.in_flight or connection.wants_write:
            connection.close()
        else:
            connection.wake_for(1)
            self.idle.setdefault(node, []).append(connection)


_clusters: dict[tuple[object, ...], Cluster] = {}
_ledgers: dict[tuple[object, ...], LedgerStore] = {}


def _key(settings: ClientSettings, client_id: str) -> tuple[object, ...]:
    # A fork must not talk over its parent's connections.
    return (os.getpid(), settings.alias, client_id, *sorted(settings.properties.items()))


def cluster(settings: ClientSettings, client_id: str) -> Cluster:
    """The process's links to a cluster."""
    key = _key(settings, client_id)
    if key not in _clusters:
        client = ClusterClient(settings, client_id, request_timeout=_REQUEST_TIMEOUT_SECONDS)
        _clusters[key] = Cluster(client, {}, SilentBrokers(client), {})
    return _clusters[key]


def source(context: FlowContext) -> Cluster:
    """Links to the flow's source, under MM2's client id for its consumer."""
    return cluster(context.source, f"{context.flow}|MirrorSourceConnector|replication-consumer")


def target(context: FlowContext) -> Cluster:
    """Links to the flow's target."""
    return cluster(context.target, f"{context.flow}|MirrorSourceConnector|replication-producer")


def ledger(context: FlowContext) -> LedgerStore:
    """The flow's ledger as this process knows it."""
    key = (context.ledger_topic, *_key(context.target, ""))
    if key not in _ledgers:
        _ledgers[key] = LedgerStore(target(context).client, context.ledger_topic)
    return _ledgers[key]


def close() -> None:
    """Close everything, for processes that outlive their leases."""
    for known in _clusters.values():
        known.client.close()
        for pool in known.idle.values():
            for connection in pool:
                connection.close()
    _clusters.clear()
    _ledgers.clear()
