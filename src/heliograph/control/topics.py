"""Which topics a flow mirrors, and their counterparts on the target. Runs in the driver.

New topics and added partitions of the source are found by each refresh and created on the target
with the source's partition count, the configured replication factor and the source topic's own
configs (less ``config.properties.exclude``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from heliograph.config import FlowConfig
from heliograph.model import TopicPartition
from heliograph.policy import PatternFilter, TopicSelection
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError
from heliograph.wire.metadata import Metadata, TopicInfo

#: KRaft controllers refuse to create more partitions than this in one request (10,000), with room.
_PARTITIONS_PER_REQUEST = 5000
_INVALID_REPLICATION_FACTOR = 38
_TOPICS_PER_REQUEST = 500


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """What matters of a target topic's configs and of our rights to it."""

    compacted: bool = False
    may_delete_records: bool = False
    max_bytes: int = 1 << 30

    @property
    def paddable(self) -> bool:
        """Whether it takes filler and lets it be deleted: brokers refuse that when compacted."""
        return self.may_delete_records and not self.compacted


@dataclass(slots=True)
class TopicPlan:
    """What there is to mirror: source partition -> target topic, and what stands in the way."""

    partitions: Mapping[TopicPartition, str] = field(default_factory=dict)
    targets: Mapping[str, TargetTopic] = field(default_factory=dict)
    source: Metadata | None = None
    target: Metadata | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def topics(self) -> int:
        """How many source topics are mirrored."""
        return len({p.topic for p in self.partitions})


class TopicRefresh:
    """Compares the clusters and makes the target fit."""

    def __init__(self, config: FlowConfig, source: ClusterClient, target: ClusterClient) -> None:
        self._config = config
        self._source = source
        self._target = target
        self._selection = TopicSelection(config)
        self._known: dict[uuid.UUID, TargetTopic] = {}
        self._excluded_property = PatternFilter(config.config_properties_exclude)

    def remote_topic(self, topic: str) -> str:
        """The target's name of a source topic."""
        return self._selection.policy.format_remote_topic(self._config.flow.source, topic)

    def refresh(self, *, create: bool = True) -> TopicPlan:
        """Look at both clusters, create and grow what is missing, and say what can be mirrored.

        Without ``create`` only what is there already: another mirror of the flow is at work.
        """
        source = self._source.metadata()
        wanted = {n: t for n, t in source.topics.items() if self._selection.includes(n)}
        remote = {name: self.remote_topic(name) for name in wanted}
        target = self._target.metadata(sorted(set(remote.values())))
        problems: list[str] = []
        missing = {n: t for n, t in wanted.items() if remote[n] not in target.topics}
        short = {
            n: t for n, t in wanted.items()
            if n not in missing and len(target.topics[remote[n]].partitions) < len(t.partitions)
        }  # fmt: skip
        if missing and create:
            problems += self._create(missing, remote)
        if short and create:
            problems += self._grow(short, remote, target)
        if create and (missing or short):
            target = self._target.metadata(sorted(set(remote.values())))
        partitions = {
            TopicPartition(name, index): remote[name]
            for name, topic in wanted.items()
            if remote[name] in target.topics
            for index in topic.partitions
            if index in target.topics[remote[name]].partitions
        }
        return TopicPlan(partitions, self._look_at(target), source, target, problems)

    def _look_at(self, target: Metadata) -> Mapping[str, TargetTopic]:
        """What there is to know of target topics; each is asked for once."""
        ids = {name: topic.topic_id for name, topic in target.topics.items()}
        new = [name for name, topic_id in ids.items() if topic_id not in self._known]
        for i in range(0, len(new), _TOPICS_PER_REQUEST):
            names = new[i : i + _TOPICS_PER_REQUEST]
            configs = admin.topic_configs(self._target, names)
            deletable = admin.deletable(self._target, names)
            for name in names:
                found = configs.get(name, {})
                self._known[ids[name]] = TargetTopic(
                    "compact" in found.get("cleanup.policy", ""),
                    name in deletable,
                    int(found.get("max.message.bytes", 1 << 30)),
                )
        return {name: self._known[topic_id] for name, topic_id in ids.items()}

    def _create(self, missing: Mapping[str, TopicInfo], remote: Mapping[str, str]) -> list[str]:
        overrides = admin.topic_overrides(self._source, list(missing))
        problems = []
        new = [
            admin.NewTopic(
                remote[name],
                len(topic.partitions),
                self._config.replication_factor,
                {
                    k: v
                    for k, v in overrides.get(name, {}).items()
                    if not self._excluded_property(k)
                },
            )
            for name, topic in missing.items()
        ]
        for chunk in _chunks(new):
            failed = admin.create_topics(self._target, chunk, self._config.admin_timeout_ms)
            problems += [self._explain(error) for error in failed.values()]
        return problems

    def _grow(
        self, short: Mapping[str, TopicInfo], remote: Mapping[str, str], target: Metadata
    ) -> list[str]:
        counts = {remote[name]: len(topic.partitions) for name, topic in short.items()}
        failed = admin.create_partitions(self._target, counts, self._config.admin_timeout_ms)
        return [
            f"{error}; only its first {len(target.topics[name].partitions)} of"
            f" {counts[name]} partitions are mirrored"
            for name, error in failed.items()
        ]

    def _explain(self, error: BrokerError) -> str:
        if error.code == _INVALID_REPLICATION_FACTOR:
            brokers = len(self._target.metadata(()).brokers)
            return (
                f"{error}: replication.factor={self._config.replication_factor}"
                f" ({self._config.origin('replication.factor')}), but cluster"
                f" {self._config.flow.target} has {brokers} broker(s);"
                " lower it, or -1 for the cluster's default"
            )
        return str(error)


def _chunks(topics: list[admin.NewTopic]) -> Iterator[list[admin.NewTopic]]:
    chunk: list[admin.NewTopic] = []
    size = 0
    for topic in topics:
        if chunk and size + topic.partitions > _PARTITIONS_PER_REQUEST:
            yield chunk
            chunk, size = [], 0
        chunk.append(topic)
        size += topic.partitions
    if chunk:
        yield chunk
