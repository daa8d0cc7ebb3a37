"""Creates the storage topics as Connect creates them, and checks those that are there.

In the driver, once, before anything is read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph.connect.fold import Kind
from heliograph.errors import StartError
from heliograph.wire import admin, configs
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError, ConnectionFailed, is_retriable
from heliograph.wire.metadata import Metadata
from heliograph.wire.rights import denied, missing_right

__all__ = ["StorageNames", "StorageTopic", "ensure_topics"]

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 30.0
_TIMEOUT_MS = 30_000
_POLICY, _COMPACT = "cleanup.policy", "compact"
#: Connect's defaults.
_FACTOR, _STATUS_PARTITIONS, _OFFSET_PARTITIONS = 3, 5, 25


@dataclass(frozen=True, slots=True)
class StorageTopic:
    """A storage topic, and what it is created with; -1: what the cluster has as its default.

    ``settings`` are the topic's properties; its cleanup.policy is always compact.
    """

    name: str
    partitions: int = 1
    replication_factor: int = _FACTOR
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def new(self) -> admin.NewTopic:
        """What is asked for."""
        settings = {**self.settings, _POLICY: _COMPACT}
        return admin.NewTopic(self.name, self.partitions, self.replication_factor, settings)


@dataclass(frozen=True, slots=True)
class StorageNames:
    """The storage topics of a group of workers.

    ``create`` is False if somebody else creates them (internal.topics.automatic.creation.enable).
    """

    configs: StorageTopic
    statuses: StorageTopic
    offsets: StorageTopic
    create: bool = True

    @classmethod
    def of(cls, configs: str, statuses: str, offsets: str, factor: int = _FACTOR) -> StorageNames:
        """With Connect's defaults."""
        return cls(
            StorageTopic(configs, 1, factor),
            StorageTopic(statuses, _STATUS_PARTITIONS, factor),
            StorageTopic(offsets, _OFFSET_PARTITIONS, factor),
        )

    def by_kind(self) -> Mapping[Kind, StorageTopic]:
        """The topics, by what they hold."""
        return {
            Kind.CONFIGS: self.configs,
            Kind.STATUSES: self.statuses,
            Kind.OFFSETS: self.offsets,
        }


def ensure_topics(client: ClusterClient, names: StorageNames) -> None:
    """Create what is missing, check the rest.

    Raises StartError with everything that does not fit, WireError if the cluster does not answer.
    """
    topics = {_key(kind): topic for kind, topic in names.by_kind().items()}
    if len({topic.name for topic in topics.values()}) < len(topics):
        raise StartError(
            "connect.storage",
            f"{', '.join(topics)} name the same topic",
            "give each of them a topic of its own",
        )
    found = client.retry(lambda: client.metadata([t.name for t in topics.values()]), 30.0)
    missing = {k: t for k, t in topics.items() if t.name not in found.topics}
    problems = [
        missing_right(client.settings, "Describe", "topic", t.name)
        for t in missing.values() if t.name in found.denied
    ]  # fmt: skip
    absent = {k: t for k, t in missing.items() if t.name not in found.denied}
    if absent and not names.create:
        problems += [f"{k}={t.name}: there is no such topic on the cluster, and"
                     " internal.topics.automatic.creation.enable is false"
                     for k, t in absent.items()]  # fmt: skip
    elif absent:
        problems += _create(client, absent)
    if not problems:
        problems = _misfits(client, topics, _served(client, topics))
    if problems:
        raise StartError(
            "connect.storage",
            "the storage topics of the worker file do not fit:\n  " + "\n  ".join(problems),
            "change the worker file, or the topics",
        )


def _key(kind: Kind) -> str:
    return f"{kind}.storage.topic"


def _create(client: ClusterClient, topics: Mapping[str, StorageTopic]) -> list[str]:
    """Returns what the cluster refuses. That another worker was quicker is no problem."""

    def call() -> dict[str, BrokerError]:
        failed = admin.create_topics(client, [t.new for t in topics.values()], _TIMEOUT_MS)
        for error in failed.values():
            if is_retriable(error):
                raise error
        return failed

    failed = client.retry(call, _PATIENCE_SECONDS)
    problems = []
    for key, topic in topics.items():
        error = failed.get(topic.name)
        if error is None:
            log.info("Created topic %s (%s)", topic.name, key)
        elif denied(error.code):
            problems.append(missing_right(client.settings, "Create", "topic", topic.name))
        else:
            factor = f"{key.removesuffix('.topic')}.replication.factor={topic.replication_factor}"
            brokers = len(client.metadata(()).brokers)
            problems.append(f"{error} [{factor}; the cluster has {brokers} broker(s)]")
    return problems


def _served(client: ClusterClient, topics: Mapping[str, StorageTopic]) -> Metadata:
    """What the cluster says of the topics, once every partition has a leader."""

    def call() -> Metadata:
        metadata = client.metadata([t.name for t in topics.values()])
        for topic in topics.values():
            info = metadata.topics.get(topic.name)
            if info is None or any(p.leader < 0 for p in info.partitions.values()):
                raise ConnectionFailed(
                    f"topic {topic.name} of cluster {client.alias} is not there yet, or some of"
                    " its partitions have no leader"
                )
        return metadata

    return client.retry(call, _PATIENCE_SECONDS)


def _misfits(
    client: ClusterClient, topics: Mapping[str, StorageTopic], metadata: Metadata
) -> list[str]:
    """As Connect: a topic that deletes what is old would lose connectors; configs need an order."""
    problems = []
    answer = configs.describe(client, [t.name for t in topics.values()], [_POLICY])
    for key, topic in topics.items():
        if topic.name in answer.failed:
            log.info("The %s of topic %s is not checked: %s", _POLICY, topic.name,
                     answer.failed[topic.name])  # fmt: skip
        policy = answer.value(topic.name, _POLICY, _COMPACT)
        if {part.strip() for part in policy.split(",")} != {_COMPACT}:
            problems.append(f"{key}={topic.name}: its {_POLICY} is {policy}, not {_COMPACT}")
        count = len(metadata.topics[topic.name].partitions)
        if key == _key(Kind.CONFIGS) and count != 1:
            problems.append(f"{key}={topic.name}: it has {count} partitions, not one")
    return problems
