"""Which topics a flow mirrors, and their counterparts on the target. Runs in the driver.

New topics and added partitions of the source are found by each refresh and created on the target
with the source's partition count, the configured replication factor and the properties that
`control.topics.config_rules` selects.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from heliograph.config import FlowConfig
from heliograph.control.topics.config_rules import CONFIGS, ConfigRules, copied_at_creation
from heliograph.ledger.memory import SyncedMemory, topic_subject
from heliograph.model import TopicPartition
from heliograph.policy import TopicSelection
from heliograph.wire import admin, configs
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError
from heliograph.wire.metadata import Metadata
from heliograph.wire.rights import denied, missing_right

#: KRaft controllers refuse to create more partitions than this in one request (10,000), with room.
_PARTITIONS_PER_REQUEST = 5000
_INVALID_REPLICATION_FACTOR = 38
#: How old what is known of target topics may get: operators change them too.
_LOOK_AGAIN_SECONDS, _LOOK_SOON_SECONDS = 60.0, 5.0
#: Brokers hear of new topics a moment after the controller has made them.
_SHOWN_SECONDS, _SHOWN_PAUSE_SECONDS = 1.0, 0.05
_READ = ("cleanup.policy", "max.message.bytes")


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
    """What there is to mirror: source partition -> target topic, and what stands in the way.

    ``awaited`` says that topics or partitions were created which the target will show in a moment.
    """

    partitions: Mapping[TopicPartition, str] = field(default_factory=dict)
    targets: Mapping[str, TargetTopic] = field(default_factory=dict)
    source: Metadata | None = None
    target: Metadata | None = None
    problems: list[str] = field(default_factory=list)
    awaited: bool = False

    @property
    def topics(self) -> int:
        """How many source topics are mirrored."""
        return len(self.remote)

    @property
    def remote(self) -> Mapping[str, str]:
        """The remote topic of each source topic that is mirrored."""
        return {p.topic: name for p, name in self.partitions.items()}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The topics to mirror, and those that there are on the target.

    Attributes:
        remote: the remote topic of each source topic that is to be mirrored.
    """

    source: Metadata
    target: Metadata
    remote: Mapping[str, str]

    @property
    def missing(self) -> list[str]:
        """Source topics without a remote topic."""
        return [topic for topic, name in self.remote.items() if name not in self.target.topics]

    @property
    def short(self) -> dict[str, tuple[int, int]]:
        """Remote topics with fewer partitions than their source topics: how many of how many."""
        here, there = self.source.topics, self.target.topics
        return {
            name: (have, want)
            for topic, name in self.remote.items()
            if name in there
            and (have := len(there[name].partitions)) < (want := len(here[topic].partitions))
        }

    @property
    def partitions(self) -> dict[TopicPartition, str]:
        """The partitions that both sides have."""
        return {
            TopicPartition(topic, index): name
            for topic, name in self.remote.items()
            if name in self.target.topics
            for index in self.source.topics[topic].partitions
            if index in self.target.topics[name].partitions
        }


class TopicRefresh:
    """Compares the clusters and makes the target fit.

    What topics are created with goes to ``memory``, so that it is known to be a copy later on.
    """

    def __init__(
        self,
        config: FlowConfig,
        source: ClusterClient,
        target: ClusterClient,
        memory: SyncedMemory | None = None,
    ) -> None:
        self._config = config
        self._source = source
        self._target = target
        self._memory = memory
        self._selection = TopicSelection(config)
        self._rules = ConfigRules.of(config)
        self._known: dict[tuple[str, uuid.UUID], TargetTopic] = {}
        self._look_again_at = 0.0
        self._secret: set[str] = set()
        self._created: dict[str, Mapping[str, str]] = {}

    def remote_topic(self, topic: str) -> str:
        """The target's name of a source topic."""
        return self._selection.policy.format_remote_topic(self._config.flow.source, topic)

    def compare(self) -> Comparison:
        """Look at both clusters; changes nothing."""
        source = self._source.metadata()
        remote = {n: self.remote_topic(n) for n in source.topics if self._selection.includes(n)}
        return Comparison(source, self._target.metadata(sorted(set(remote.values()))), remote)

    def wanted(self) -> Iterable[TopicPartition]:
        """All that the source has to mirror now, whatever the target has; changes nothing."""
        topics = self._source.metadata().topics
        return [
            TopicPartition(name, index)
            for name, topic in topics.items()
            if self._selection.includes(name)
            for index in topic.partitions
        ]

    def refresh(self, *, create: bool = True) -> TopicPlan:
        """Look at both clusters, create and grow what is missing, and say what can be mirrored.

        Without ``create`` only what is there already: another mirror of the flow is at work.
        """
        found = self.compare()
        problems: list[str] = []
        growing: set[str] = set()
        if create and (found.missing or found.short):
            new, problems = self.new_topics(found)
            problems += self.create(new)
            refused = self.grow(found.short)
            problems += refused.values()
            growing = found.short.keys() - refused.keys()
            found = self._after(found, growing)
        if create and self._created:
            self._remember_created(found.target)
        targets = self._look_at(found.target)
        problems += self._unread() + self._unseen(found.target)
        awaited = self._awaited(found, growing)
        return TopicPlan(found.partitions, targets, found.source, found.target, problems, awaited)

    def _after(self, found: Comparison, growing: Set[str]) -> Comparison:
        """The target as it is when what was just created is there, or has not come in time."""
        deadline = time.monotonic() + _SHOWN_SECONDS
        names = sorted(set(found.remote.values()))
        while True:
            after = Comparison(found.source, self._target.metadata(names), found.remote)
            if not self._awaited(after, growing) or time.monotonic() >= deadline:
                return after
            time.sleep(_SHOWN_PAUSE_SECONDS)

    def _awaited(self, found: Comparison, growing: Set[str]) -> bool:
        unseen = self._created.keys() - found.target.topics.keys() - found.target.denied
        return bool(unseen or growing & found.short.keys())

    # -- creating -----------------------------------------------------------------------------

    def new_topics(self, found: Comparison) -> tuple[list[admin.NewTopic], list[str]]:
        """The remote topics to create, and what stands in the way of creating them as they should.

        As in MM2, a topic whose configs we may not read is created without them.
        """
        answer = configs.describe(self._source, found.missing)
        kept_back = {t: e for t, e in answer.failed.items() if not denied(e.code)}
        new = [
            admin.NewTopic(
                found.remote[topic],
                len(found.source.topics[topic].partitions),
                self._config.replication_factor,
                copied_at_creation(topic, answer.found.get(topic, {}), self._rules),
            )
            for topic in found.missing
            if topic not in kept_back
        ]
        # Not there any more, or not heard of yet by the broker that was asked: the next refresh.
        problems = [str(error) for error in kept_back.values()]
        secret = sorted(answer.failed.keys() - kept_back.keys())
        if secret:
            without = "until then remote topics are created without the configs of their source"
            problems.append(_lacking(self._source, "DescribeConfigs", secret, without))
        return new, problems

    def create(self, new: Sequence[admin.NewTopic], *, validate_only: bool = False) -> list[str]:
        """Create topics; returns what went wrong. With ``validate_only`` nothing is created."""
        problems = []
        for chunk in _chunks(new):
            failed = admin.create_topics(
                self._target, chunk, self._config.admin_timeout_ms, validate_only=validate_only
            )
            problems += [self._explain(name, error) for name, error in failed.items()]
            if not validate_only:
                self._created |= {t.name: t.configs for t in chunk if t.name not in failed}
        return problems

    def grow(
        self, short: Mapping[str, tuple[int, int]], *, validate_only: bool = False
    ) -> dict[str, str]:
        """Add partitions to remote topics; returns what went wrong, by topic."""
        failed = admin.create_partitions(
            self._target,
            {name: want for name, (_, want) in short.items()},
            self._config.admin_timeout_ms,
            validate_only=validate_only,
        )
        problems = {}
        for name, error in failed.items():
            why = str(error)
            if denied(error.code):
                why = missing_right(self._target.settings, "Alter", "topic", name)
            have, want = short[name]
            problems[name] = f"{why}; only {have} of {want} partitions of {name} are mirrored"
        return problems

    def _explain(self, name: str, error: BrokerError) -> str:
        if denied(error.code):
            why = missing_right(self._target.settings, "Create", "topic", name)
            return f"{why}; until then its source topic is not mirrored"
        if error.code == _INVALID_REPLICATION_FACTOR:
            brokers = len(self._target.metadata(()).brokers)
            return (
                f"{error}: replication.factor={self._config.replication_factor}"
                f" ({self._config.origin('replication.factor')}), but cluster"
                f" {self._config.flow.target} has {brokers} broker(s);"
                " lower it, or -1 for the cluster's default"
            )
        return str(error)

    def _remember_created(self, target: Metadata) -> None:
        """Write down what topics were created with, as soon as their ids are known."""
        visible = {name: target.topics[name] for name in self._created if name in target.topics}
        if self._memory is not None:
            facts = {
                topic_subject(name, topic.topic_id): self._created[name] or None
                for name, topic in visible.items()
            }
            self._memory.remember(CONFIGS, facts)
        for name in visible:
            del self._created[name]

    # -- what there is to know of target topics -----------------------------------------------

    def look_again(self, target: Metadata) -> Mapping[str, TargetTopic]:
        """As of now: somebody has changed configs. And soon again: brokers hear of it by and by."""
        self._look_again_at = 0.0
        found = self._look_at(target)
        self._look_again_at = time.monotonic() + _LOOK_SOON_SECONDS
        return found

    def _look_at(self, target: Metadata) -> Mapping[str, TargetTopic]:
        """New topics are asked for at once, the others now and then.

        Those of which the broker that was asked has not heard yet are absent.
        """
        ids = {name: (name, topic.topic_id) for name, topic in target.topics.items()}
        now = time.monotonic()
        if now >= self._look_again_at:
            self._known, self._look_again_at = {}, now + _LOOK_AGAIN_SECONDS
        wanted = [name for name, key in ids.items() if key not in self._known]
        if wanted:
            self._ask(wanted, ids)
        return {name: self._known[key] for name, key in ids.items() if key in self._known}

    def _ask(self, names: Sequence[str], ids: Mapping[str, tuple[str, uuid.UUID]]) -> None:
        answer = configs.describe(self._target, names, _READ)
        deletable = admin.deletable(self._target, names)
        secret = {name for name, error in answer.failed.items() if denied(error.code)}
        self._secret = self._secret - set(names) | secret
        for name in answer.found.keys() | secret:
            self._known[ids[name]] = TargetTopic(
                "compact" in answer.value(name, "cleanup.policy", ""),
                name in deletable,
                int(answer.value(name, "max.message.bytes", str(1 << 30))),
            )

    def _unseen(self, target: Metadata) -> list[str]:
        """Remote topics that are there, but are not shown to us."""
        hidden = sorted(target.denied & self._created.keys())
        if not hidden:
            return []
        consequence = "until then its source topic is not mirrored"
        return [_lacking(self._target, "Describe", hidden, consequence)]

    def _unread(self) -> list[str]:
        if not self._secret:
            return []
        taken = "until then remote topics are taken for not compacted"
        return [_lacking(self._target, "DescribeConfigs", sorted(self._secret), taken)]


def _lacking(client: ClusterClient, operation: str, topics: Sequence[str], consequence: str) -> str:
    """One problem for all topics that lack the same right."""
    right = missing_right(client.settings, operation, "topic", topics[0])
    more = f" ({len(topics) - 1} more topics like that)" if len(topics) > 1 else ""
    return f"{right}{more}; {consequence}"


def _chunks(topics: Sequence[admin.NewTopic]) -> Iterator[list[admin.NewTopic]]:
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
