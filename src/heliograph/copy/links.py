"""Connections that outlive a lease. Runs in executors.

Spark keeps Python workers alive and gives any lease to any of them, one at a time, so clients and
ledgers are kept per process and found by cluster. A worker that Spark forgets takes them with it.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field

from heliograph.copy.background import Lane
from heliograph.copy.unresponsive_brokers import UnresponsiveBrokers
from heliograph.ledger.store import LedgerStore
from heliograph.model import ClientSettings, FlowContext, TopicPartition
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.connection import Connection

#: Requests of a lease to a broker that does not answer must not outlast the lease by much.
_REQUEST_TIMEOUT_SECONDS = 10.0


@dataclass(slots=True)
class Cluster:
    """Two clients, each for the calls of one lane, and a pool of idle connections for bulk data.

    Attributes:
        client: for resuming partitions and for the ledger. Only calls in ``lane`` use it; those of
            a flow's source are made in the lane of its target.
        spare: for small writes beside the loop and for the quarantine; only in ``spare_lane``. So a
            broker that does not answer one of the two holds back nobody who needs the other.
        foreign_until: up to where others were told to have written, by topic id and partition.
        located: leader and topic id of partitions that are written beside the loop.
    """

    client: ClusterClient
    spare: ClusterClient
    silent: UnresponsiveBrokers
    idle: dict[int, list[Connection]] = field(default_factory=dict)
    foreign_until: dict[tuple[uuid.UUID, int], int] = field(default_factory=dict)
    located: dict[TopicPartition, tuple[int, uuid.UUID]] = field(default_factory=dict)
    lane: Lane = field(default_factory=lambda: Lane("resume and ledger"))
    spare_lane: Lane = field(default_factory=lambda: Lane("writes beside the loop"))

    def take(self, node: int) -> Connection | None:
        """An idle connection to a broker, for bulk data. Never waits."""
        pool = self.idle.get(node, [])
        while pool:
            connection = pool.pop()
            if not connection.closed:
                return connection
        return None

    def provide(self, node: int, client: ClusterClient) -> None:
        """Have an idle connection to a broker, see `take`. Waits; raises WireError.

        ``client``: the one of the lane that this is called in.
        """
        if self.idle.get(node):
            return
        self.silent.refuse(node)
        with self.silent.noticed(node):
            opened = client.open(node)
        self.idle.setdefault(node, []).append(opened)

    def give_back(self, node: int, connection: Connection) -> None:
        """Keep a connection for the next lease, unless its state is not known."""
        if connection.closed or connection.in_flight or connection.wants_write:
            connection.close()
        else:
            connection.wake_for(1)
            connection.send_by = float("inf")
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
        client, spare = (
            ClusterClient(settings, client_id, request_timeout=_REQUEST_TIMEOUT_SECONDS)
            for _ in range(2)
        )
        _clusters[key] = Cluster(client, spare, UnresponsiveBrokers(client, spare))
    return _clusters[key]


def source(context: FlowContext) -> Cluster:
    """Links to the flow's source, under MM2's client id for its consumer."""
    return cluster(context.source, f"{context.flow}|MirrorSourceConnector|replication-consumer")


def target(context: FlowContext) -> Cluster:
    """Links to the flow's target."""
    return cluster(context.target, f"{context.flow}|MirrorSourceConnector|replication-producer")


def ledger(context: FlowContext) -> LedgerStore:
    """The flow's ledger as this process knows it. Only calls in the target's lane may use it."""
    key = (context.ledger_topic, *_key(context.target, ""))
    if key not in _ledgers:
        _ledgers[key] = LedgerStore(target(context).client, context.ledger_topic)
    return _ledgers[key]


def close() -> None:
    """Close everything, for processes that outlive their leases."""
    for known in _clusters.values():
        known.client.close()
        known.spare.close()
        for pool in known.idle.values():
            for connection in pool:
                connection.close()
    _clusters.clear()
    _ledgers.clear()
