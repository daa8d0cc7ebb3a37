"""The internal topics of a flow, each on the cluster where MM2 has it. Runs in the driver."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.config import FlowConfig
from heliograph.errors import StartError
from heliograph.policy import ledger_topic, policy_from, quarantine_topic
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError
from heliograph.wire.rights import denied, missing_right

log = logging.getLogger(__name__)

#: As MM2, and as without the right to create: if somebody else has created it, all is well.
_UNSUPPORTED_VERSION = 35
_COMPACTED = {"cleanup.policy": "compact"}
#: The cleaner never touches the segment that is being written: small ones, and new ones every day,
#: so that what was re-packed, or replaced by later checkpoints, does not have to be read for long.
_FOLLOWED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "max.compaction.lag.ms": str(24 * 3600 * 1000),
}
#: Nothing is deleted by itself, and nothing is too large that a source can hold.
_QUARANTINE = {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": "100000000"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """An internal topic of a flow, where it is, and the key that its replication factor is from."""

    client: ClusterClient
    topic: str
    replication_factor: int
    key: str
    configs: Mapping[str, str] = field(default_factory=lambda: _COMPACTED)

    @property
    def new(self) -> admin.NewTopic:
        """As it is created."""
        return admin.NewTopic(self.topic, 1, self.replication_factor, self.configs)


def ensure(config: FlowConfig, source: ClusterClient | None, target: ClusterClient) -> None:
    """Create what the flow needs; raises StartError naming every key that does not fit.

    ``source`` is None for a flow that only emits heartbeats.
    """
    wanted = all_wanted(config, source, target)
    problems = [p for w in wanted if (p := _create(w, config)) is not None]
    _tell_lacking(config, wanted)
    if problems:
        raise StartError(
            "topics.internal",
            "internal topics cannot be created:\n  " + "\n  ".join(problems),
            "set these keys to at most the number of brokers, or -1 for the cluster's default",
        )


def missing(
    config: FlowConfig, source: ClusterClient, target: ClusterClient
) -> tuple[list[tuple[str, admin.NewTopic]], list[str]]:
    """What `ensure` would create, with the cluster's alias, and what that cluster would refuse."""
    create: list[tuple[str, admin.NewTopic]] = []
    problems: list[str] = []
    for wanted in all_wanted(config, source, target):
        client = wanted.client
        found = client.metadata([wanted.topic])
        if wanted.topic in found.topics or wanted.topic in found.denied:
            continue
        create.append((client.alias, wanted.new))
        error = _refusal(wanted, config, validate_only=True)
        if error is not None and denied(error.code):
            problems.append(missing_right(client.settings, "Create", "topic", wanted.topic))
        elif error is not None:
            problems.append(_misfit(wanted, config, error))
    return create, problems


def all_wanted(
    config: FlowConfig, source: ClusterClient | None, target: ClusterClient
) -> list[Wanted]:
    """The internal topics that a flow needs; nobody is asked. ``source`` as in `ensure`."""
    policy = policy_from(config)
    wanted: list[Wanted] = []
    if config.emit_heartbeats_enabled:
        wanted.append(Wanted(target, policy.heartbeats_topic(),
                              config.heartbeats_topic_replication_factor,
                              "heartbeats.topic.replication.factor"))  # fmt: skip
    if config.enabled and source is not None:
        wanted.append(Wanted(target, ledger_topic(config.flow.source),
                              config.ledger_topic_replication_factor,
                              "heliograph.ledger.topic.replication.factor",
                              _FOLLOWED))  # fmt: skip
        if config.on_refused == "quarantine":
            wanted.append(Wanted(target, quarantine_topic(config.flow.source),
                                  config.ledger_topic_replication_factor,
                                  "heliograph.ledger.topic.replication.factor",
                                  _QUARANTINE))  # fmt: skip
        if config.emit_checkpoints_enabled:
            wanted.append(Wanted(target, policy.checkpoints_topic(config.flow.source),
                                  config.checkpoints_topic_replication_factor,
                                  "checkpoints.topic.replication.factor",
                                  _FOLLOWED))  # fmt: skip
        if config.emit_offset_syncs_enabled:
            on_source = config.offset_syncs_topic_location == "source"
            wanted.append(Wanted(source if on_source else target, offset_syncs_topic(config),
                                  config.offset_syncs_topic_replication_factor,
                                  "offset-syncs.topic.replication.factor"))  # fmt: skip
    return wanted


def _tell_lacking(config: FlowConfig, wanted: Sequence[Wanted]) -> None:
    """Say which rights are missing: some of these topics are written without looking back."""
    for client in {w.client for w in wanted}:
        names = [w.topic for w in wanted if w.client is client]
        metadata = client.metadata(names)
        unwritable = admin.unwritable(client, names)
        for name in names:
            if name in metadata.denied:
                operation = "Describe"
            elif name in unwritable:
                operation = "Write"
            else:
                continue
            log.warning(
                "%s: %s", config.flow, missing_right(client.settings, operation, "topic", name)
            )


def _tell_absent(wanted: Wanted, config: FlowConfig) -> None:
    """It is not there, and not ours to create: only without a ledger nothing works."""
    right = missing_right(wanted.client.settings, "Create", "topic", wanted.topic)
    if wanted.topic == ledger_topic(config.flow.source):
        where = f"topic {wanted.topic} is missing on cluster {wanted.client.alias}"
        raise StartError("topics.ledger", f"flow {config.flow}: {where}", right)
    log.warning("%s: %s", config.flow, right)


def offset_syncs_topic(config: FlowConfig) -> str:
    """MM2's name, by the alias of the other side."""
    on_source = config.offset_syncs_topic_location == "source"
    other = config.flow.target if on_source else config.flow.source
    return policy_from(config).offset_syncs_topic(other)


def _create(wanted: Wanted, config: FlowConfig) -> str | None:
    client = wanted.client
    if wanted.topic in client.metadata([wanted.topic]).topics:
        return None
    error = _refusal(wanted, config)
    if error is None:
        return None
    if denied(error.code):
        if wanted.topic not in client.metadata([wanted.topic]).denied:
            _tell_absent(wanted, config)
        return None
    return _misfit(wanted, config, error)


def _refusal(
    wanted: Wanted, config: FlowConfig, *, validate_only: bool = False
) -> BrokerError | None:
    """Create the topic, or only ask for it; returns the error if the cluster refuses."""
    failed = admin.create_topics(
        wanted.client, [wanted.new], config.admin_timeout_ms, validate_only=validate_only
    )
    error = failed.get(wanted.topic)
    return None if error is None or error.code == _UNSUPPORTED_VERSION else error


def _misfit(wanted: Wanted, config: FlowConfig, error: BrokerError) -> str:
    brokers = len(wanted.client.metadata(()).brokers)
    return (
        f"{error} [{wanted.key}={wanted.replication_factor} ({config.origin(wanted.key)});"
        f" cluster {wanted.client.alias} has {brokers} broker(s)]"
    )
