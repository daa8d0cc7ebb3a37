"""One flow while the mirror runs: its clients, topics, signature and partitions. In the driver."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from heliograph.config import FlowConfig
from heliograph.control import internal_topics
from heliograph.control.heartbeats import HeartbeatEmitter
from heliograph.control.topics import TopicPlan, TopicRefresh
from heliograph.errors import ConfigError, StartError
from heliograph.ledger.codec import Signature
from heliograph.ledger.store import LedgerStore
from heliograph.model import ClientSettings, FlowContext, OffsetSyncsTopic, TopicPartition
from heliograph.policy import ledger_topic, policy_from
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import (
    AuthenticationFailed,
    BrokerError,
    ConnectionFailed,
    NotKafka,
    WireError,
    is_retriable,
)

log = logging.getLogger(__name__)

#: How long a cluster may take to answer when the mirror starts.
_START_PATIENCE_SECONDS = 10.0


class FlowRuntime:
    """A flow that was configured; `prepare` makes it ready to be leased out.

    ``plan`` is replaced as a whole by each refresh, so readers in other threads see one or the
    other, never a mixture.
    """

    def __init__(self, config: FlowConfig) -> None:
        self.config = config
        self.flow = config.flow
        self.plan = TopicPlan()
        self.context: FlowContext | None = None
        self._clients: list[ClusterClient] = []
        self._refresh: TopicRefresh | None = None

    def client(self, settings: ClientSettings, role: str) -> ClusterClient:
        """A client of the flow's own for one job, closed with the flow."""
        client = ClusterClient(settings, f"{self.flow}|{role}")
        self._clients.append(client)
        return client

    def prepare(self) -> None:
        """Connect, create internal topics, sign, and plan; raises StartError."""
        config = self.config
        target = self.client(config.target_admin, "replication-target-admin")
        source: ClusterClient | None = None
        try:
            if config.enabled:
                source = self.client(config.source_admin, "replication-source-admin")
                self._refuse_loop(source, target)
            else:
                _reach(target, config, "target")
            internal_topics.ensure(config, source, target)
            if source is not None:
                self._sign(source, target)
                self._refresh = TopicRefresh(config, source, target)
                self.refresh_topics()
                self._refuse_unusable()
        except (WireError, ConfigError) as error:
            raise StartError("flow.start", f"flow {self.flow}: {error}") from error

    def _refuse_loop(self, source: ClusterClient, target: ClusterClient) -> None:
        ids = [_reach(source, self.config, "source"), _reach(target, self.config, "target")]
        if ids[0] == ids[1]:
            raise StartError(
                "flow.same-cluster",
                f"flow {self.flow}: {self.flow.source} and {self.flow.target} are the same cluster"
                f" (cluster id {ids[0]}); it would copy its own copies for ever",
                f"check {self.flow.source}.bootstrap.servers and"
                f" {self.flow.target}.bootstrap.servers",
            )

    def _sign(self, source: ClusterClient, target: ClusterClient) -> None:
        config = self.config
        topic = ledger_topic(self.flow.source)
        ledger = LedgerStore(target, topic)
        target.retry(ledger.refresh, _START_PATIENCE_SECONDS)
        cluster_ids = (source.cluster_id(), target.cluster_id())
        signature = ledger.signature
        if signature is None:
            signature = ledger.sign(Signature(admin.allocate_producer_id(target), *cluster_ids))
        if (signature.source_cluster, signature.target_cluster) != cluster_ids:
            raise StartError(
                "flow.other-cluster",
                f"flow {self.flow}: {topic} on {self.flow.target} belongs to a mirror of cluster"
                f" {signature.source_cluster}, but {self.flow.source} is now {cluster_ids[0]}",
                f"give the new source another alias, or delete {topic} to begin anew",
            )
        syncs = None
        if config.emit_offset_syncs_enabled:
            on_source = config.offset_syncs_topic_location == "source"
            syncs = OffsetSyncsTopic(internal_topics.offset_syncs_topic(config), on_source)
        self.context = FlowContext(
            flow=self.flow,
            source=config.source_client,
            target=config.target_client,
            producer_id=signature.producer_id,
            ledger_topic=topic,
            offset_syncs=syncs,
            offset_lag_max=config.offset_lag_max,
            read_committed=config.isolation_level == "read_committed",
            start_at_latest=config.auto_offset_reset == "latest",
            continue_on_data_loss=config.on_data_loss == "continue",
            fetch_max_bytes=config.fetch_max_bytes,
        )

    def refresh_topics(self) -> bool:
        """Look for new topics and partitions; returns whether there are any."""
        if self._refresh is None:
            return False
        before = self.plan
        plan = self._refresh.refresh()
        for problem in plan.problems:
            if problem not in before.problems:
                log.warning("%s: %s", self.flow, problem)
        new = plan.partitions.keys() - before.partitions.keys()
        gone = {p.topic for p in before.partitions} - {p.topic for p in plan.partitions}
        for topic in sorted(gone):
            log.warning("%s: source topic %s is gone; its copy is kept", self.flow, topic)
        self.plan = plan
        if new and before.source is not None:
            topics = sorted({p.topic for p in new})
            shown = ", ".join(topics[:5]) + (f" and {len(topics) - 5} more" if topics[5:] else "")
            log.info("%s: %d new partition(s) to mirror: %s", self.flow, len(new), shown)
        return bool(new)

    def _refuse_unusable(self) -> None:
        if self.plan.problems and not self.plan.partitions:
            raise StartError(
                "topics.create",
                f"flow {self.flow}: no topic can be mirrored:\n  "
                + "\n  ".join(self.plan.problems),
            )

    def heartbeats(self) -> HeartbeatEmitter:
        """The flow's heartbeat, with a client of its own."""
        target = self.client(self.config.target_admin, "heartbeats-target-producer")
        return HeartbeatEmitter(self.flow, target, policy_from(self.config).heartbeats_topic())

    def source_ends(self) -> Mapping[TopicPartition, int]:
        """Where each partition ends now: the goal of ``run --once``."""
        assert self.context is not None  # noqa: S101 - only enabled flows are asked
        client = self.client(self.config.source_client, "once-source")
        read_committed = self.context.read_committed
        wanted = self.plan.partitions.keys()

        def ask() -> Mapping[TopicPartition, int]:
            metadata = client.metadata(sorted({p.topic for p in wanted}))
            ends = admin.list_offsets(
                client, metadata, wanted, admin.LATEST, read_committed=read_committed
            )
            silent = sorted(wanted - ends.keys())
            if silent:
                # Left out, they would count as copied.
                raise ConnectionFailed(f"no answer from the leader of {silent[0]}")
            return ends

        try:
            return client.retry(ask, _START_PATIENCE_SECONDS)
        except WireError as error:
            raise StartError("flow.start", f"flow {self.flow}: {error}") from error

    def close(self) -> None:
        """Close every client."""
        for client in self._clients:
            with suppress(OSError):
                client.close()


def _reach(client: ClusterClient, config: FlowConfig, side: str) -> str:
    """The cluster's id, or a StartError that says why there is no talking to it."""
    alias = client.alias
    where = config.origin(f"{side}.admin.bootstrap.servers")
    servers = (config.source_admin if side == "source" else config.target_admin).bootstrap_servers
    try:
        return client.retry(client.cluster_id, _START_PATIENCE_SECONDS)
    except AuthenticationFailed as error:
        raise StartError(
            "cluster.authentication",
            f"cluster {alias} does not let us in: {error}",
            f"check {alias}.security.protocol, {alias}.sasl.* and {alias}.ssl.*",
        ) from error
    except NotKafka as error:
        raise StartError(
            "cluster.not-kafka",
            f"cluster {alias}: {error}",
            f"check {alias}.bootstrap.servers={servers} ({where}) and {alias}.security.protocol",
        ) from error
    except (ConnectionFailed, BrokerError) as error:
        if not is_retriable(error):
            raise
        raise StartError(
            "cluster.unreachable",
            str(error),
            f"check that the brokers are up and {alias}.bootstrap.servers={servers} ({where})",
        ) from error
