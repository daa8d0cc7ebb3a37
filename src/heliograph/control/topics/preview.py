"""What a flow's jobs would do about topics now, without doing it. Runs in commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliograph.config import FlowConfig
from heliograph.control.topics import internal
from heliograph.control.topics.config_rules import ConfigChange
from heliograph.control.topics.config_sync import ConfigPlan, ConfigSync
from heliograph.control.topics.deletion import DeletionWatch, Fate
from heliograph.control.topics.refresh import TopicPlan, TopicRefresh
from heliograph.ledger.flow_ledger import FlowLedger
from heliograph.policy import ledger_topic
from heliograph.wire.admin import NewTopic
from heliograph.wire.cluster import ClusterClient

__all__ = ["TopicPreview", "preview"]


@dataclass(frozen=True, slots=True)
class TopicPreview:
    """What would change on the target, and what would go wrong.

    Attributes:
        internal: the flow's own topics that are created, each with the alias of its cluster.
        grow: remote topics that get partitions: from how many to how many.
        delete: remote topics of deleted source topics that are deleted too.
        kept: those that are not.
        problems: what the target, or a missing right, would refuse; and what cannot be compared.
    """

    create: Sequence[NewTopic]
    grow: Mapping[str, tuple[int, int]]
    changes: Sequence[ConfigChange]
    delete: Mapping[str, Fate]
    kept: Mapping[str, Fate]
    problems: Sequence[str]
    internal: Sequence[tuple[str, NewTopic]] = ()

    @property
    def nothing(self) -> bool:
        """Whether all is as it should be."""
        return not (self.internal or self.create or self.grow or self.changes or self.delete)


def preview(config: FlowConfig, source: ClusterClient, target: ClusterClient) -> TopicPreview:
    """Plan all that the jobs of a flow plan; the target says what it would refuse."""
    topic = ledger_topic(config.flow.source)
    mirrored = topic in target.metadata([topic]).topics
    ledger = FlowLedger(target, topic)
    refresh = TopicRefresh(config, source, target)
    found = refresh.compare()
    new, problems = refresh.new_topics(found)
    own, refused_own = internal.missing(config, source, target)
    problems += refused_own
    problems += refresh.create(new, validate_only=True)
    problems += refresh.grow(found.short, validate_only=True).values()
    plan = TopicPlan(found.partitions, {}, found.source, found.target)
    configs = ConfigPlan()
    if config.sync_topic_configs_enabled:
        memory = ledger.memory if mirrored else None
        sync = ConfigSync(config, source, target, memory, lambda: plan)
        configs = sync.plan()
        problems += [f"{topic}: {note}" for topic, note in configs.notes.items()]
        refused = sync.apply(configs.changes, validate_only=True)
        problems += [f"{topic}: {why}" for topic, why in refused.items()]
    delete: dict[str, Fate] = {}
    kept: dict[str, Fate] = {}
    if mirrored:
        watch = DeletionWatch(config, source, target, ledger, lambda: plan)
        for gone in watch.look():
            fate = watch.fate(gone)
            (delete if fate.deletes else kept)[gone.remote] = fate
    return TopicPreview(new, found.short, configs.changes, delete, kept, problems, own)
