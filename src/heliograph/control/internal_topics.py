"""The internal topics of a flow, each on the cluster where MM2 has it. Runs in the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph.config import FlowConfig
from heliograph.errors import StartError
from heliograph.policy import ledger_topic, policy_from, quarantine_topic
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

#: As MM2: somebody else created it, or an administrator must; if it is there, all is well.
_ASSUME_PRESENT = frozenset({29, 31, 35})  # topic/cluster authorization, unsupported version
_COMPACTED = {"cleanup.policy": "compact"}
#: The cleaner never touches the segment that is being written: small ones, and new ones every day,
#: so that what was re-packed does not have to be read for long.
_LEDGER = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "max.compaction.lag.ms": str(24 * 3600 * 1000),
}
#: Nothing is deleted by itself, and nothing is too large that a source can hold.
_QUARANTINE = {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": "100000000"}


@dataclass(frozen=True, slots=True)
class _Wanted:
    client: ClusterClient
    topic: str
    replication_factor: int
    key: str
    configs: Mapping[str, str] = field(default_factory=lambda: _COMPACTED)


def ensure(config: FlowConfig, source: ClusterClient | None, target: ClusterClient) -> None:
    """Create what the flow needs; raises StartError naming every key that does not fit.

    ``source`` is None for a flow that only emits heartbeats.
    """
    policy = policy_from(config)
    wanted: list[_Wanted] = []
    if config.emit_heartbeats_enabled:
        wanted.append(_Wanted(target, policy.heartbeats_topic(),
                              config.heartbeats_topic_replication_factor,
                              "heartbeats.topic.replication.factor"))  # fmt: skip
    if config.enabled and source is not None:
        wanted.append(_Wanted(target, ledger_topic(config.flow.source),
                              config.ledger_topic_replication_factor,
                              "heliograph.ledger.topic.replication.factor",
                              _LEDGER))  # fmt: skip
        if config.on_refused == "quarantine":
            wanted.append(_Wanted(target, quarantine_topic(config.flow.source),
                                  config.ledger_topic_replication_factor,
                                  "heliograph.ledger.topic.replication.factor",
                                  _QUARANTINE))  # fmt: skip
        if config.emit_checkpoints_enabled:
            wanted.append(_Wanted(target, policy.checkpoints_topic(config.flow.source),
                                  config.checkpoints_topic_replication_factor,
                                  "checkpoints.topic.replication.factor"))  # fmt: skip
        if config.emit_offset_syncs_enabled:
            on_source = config.offset_syncs_topic_location == "source"
            wanted.append(_Wanted(source if on_source else target, offset_syncs_topic(config),
                                  config.offset_syncs_topic_replication_factor,
                                  "offset-syncs.topic.replication.factor"))  # fmt: skip
    problems = [p for w in wanted if (p := _create(w, config)) is not None]
    if problems:
        raise StartError(
            "topics.internal",
            "internal topics cannot be created:\n  " + "\n  ".join(problems),
            "set these keys to at most the number of brokers, or -1 for the cluster's default",
        )


def offset_syncs_topic(config: FlowConfig) -> str:
    """MM2's name, by the alias of the other side."""
    on_source = config.offset_syncs_topic_location == "source"
    other = config.flow.target if on_source else config.flow.source
    return policy_from(config).offset_syncs_topic(other)


def _create(wanted: _Wanted, config: FlowConfig) -> str | None:
    client = wanted.client
    if wanted.topic in client.metadata([wanted.topic]).topics:
        return None
    topic = admin.NewTopic(wanted.topic, 1, wanted.replication_factor, wanted.configs)
    failed = admin.create_topics(client, [topic], config.admin_timeout_ms)
    error = failed.get(wanted.topic)
    if error is None or error.code in _ASSUME_PRESENT:
        return None
    brokers = len(client.metadata(()).brokers)
    return (
        f"{error} [{wanted.key}={wanted.replication_factor} ({config.origin(wanted.key)});"
        f" cluster {client.alias} has {brokers} broker(s)]"
    )
