"""Makes the properties of remote topics follow those of their source topics. In the driver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.config import FlowConfig
from heliograph.control.topics.config_rules import (
    CONFIGS,
    ConfigChange,
    ConfigRules,
    TopicConfigPlan,
    plan_topic,
)
from heliograph.control.topics.refresh import TopicPlan
from heliograph.ledger.memory import SyncedMemory, topic_subject
from heliograph.wire import configs
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError, is_retriable
from heliograph.wire.metadata import Metadata
from heliograph.wire.rights import denied, missing_right

log = logging.getLogger(__name__)

#: A warning names so many topics, the status has all.
_MOST_NAMED = 3
#: INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION: the target does not like some property.
_REFUSED = frozenset({40, 42, 44})


@dataclass(frozen=True, slots=True)
class ConfigPlan:
    """What to do about a flow's remote topics.

    Attributes:
        copied: for `SyncedMemory`, by the subject of each remote topic; None: nothing is a copy.
        notes: topics that cannot be compared, and properties that cannot be copied, with reasons.
    """

    changes: Sequence[ConfigChange] = ()
    copied: Mapping[str, Mapping[str, str] | None] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


class ConfigSync:
    """Plans and makes the changes of one flow; `sync` is called by one job.

    ``changed`` is called after configs of the target were changed, by us.
    """

    def __init__(
        self,
        config: FlowConfig,
        source: ClusterClient,
        target: ClusterClient,
        memory: SyncedMemory | None,
        topics: Callable[[], TopicPlan],
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        self._flow = config.flow
        self._source = source
        self._target = target
        self._memory = memory
        self._topics = topics
        self._changed = changed
        self._rules = ConfigRules.of(config)
        self._details: dict[str, str] = {}
        self._told: dict[str, str] = {}

    def details(self) -> Mapping[str, str]:
        """What the last run could not do, by remote topic."""
        return self._details

    def sync(self) -> None:
        """Compare all topics once, and change what differs."""
        plan = self.plan()
        if self._memory is not None:
            self._memory.remember(CONFIGS, plan.copied)
        failed = self.apply(plan.changes)
        details = {**plan.notes, **failed}
        self._tell(details)
        self._details = details
        if plan.changes:
            self._changed()

    # -- planning -----------------------------------------------------------------------------

    def plan(self) -> ConfigPlan:
        """What `sync` would do now; changes nothing."""
        topics = self._topics()
        if topics.source is None or topics.target is None:
            return ConfigPlan()
        remote = topics.remote
        here = configs.describe(self._source, remote)
        there = configs.describe(self._target, remote.values())
        remembered: Mapping[str, Mapping[str, str]] = {}
        if self._memory is not None:
            self._memory.refresh()
            remembered = self._memory.recall(CONFIGS)
        notes = self._unread(remote, here, there)
        copied: dict[str, Mapping[str, str] | None] = _outlived(remembered, topics.target)
        changes: list[ConfigChange] = []
        for topic, name in remote.items():
            if topic not in here.found or name not in there.found:
                continue
            subject = topic_subject(name, topics.target.topics[name].topic_id)
            found = plan_topic(
                topic, name, here.found[topic], there.found[name],
                remembered.get(subject, {}), self._rules,
            )  # fmt: skip
            changes += found.changes
            if found.copied or subject in remembered:
                copied[subject] = found.copied or None
            if found.unknown:
                notes[name] = self._not_known(found)
        return ConfigPlan(changes, copied, notes)

    def _not_known(self, found: TopicConfigPlan) -> str:
        return (
            f"cluster {self._flow.target} does not know {', '.join(found.unknown)},"
            f" which the source topic sets"
        )

    def _unread(
        self, remote: Mapping[str, str], here: configs.TopicConfigs, there: configs.TopicConfigs
    ) -> dict[str, str]:
        """Why remote topics cannot be compared, but for those that are there in a moment."""
        notes = {}
        for topic, name in remote.items():
            for client, answer, asked in (
                (self._source, here, topic), (self._target, there, name),
            ):  # fmt: skip
                error = answer.failed.get(asked)
                if error is not None and not is_retriable(error):
                    notes[name] = _explain(client, "DescribeConfigs", asked, error)
        return notes

    # -- changing -----------------------------------------------------------------------------

    def apply(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> dict[str, str]:
        """Make changes; returns why topics did not get all of theirs.

        With ``validate_only`` nothing is changed. A topic of which the target refuses something
        gets its properties one by one: what is refused keeps none of the others.
        """
        by_topic: dict[str, dict[str, ConfigChange]] = {}
        for change in changes:
            by_topic.setdefault(change.topic, {})[change.name] = change
        values = {t: {n: c.new for n, c in found.items()} for t, found in by_topic.items()}
        errors = configs.alter(self._target, values, validate_only=validate_only)
        failed: dict[str, str] = {}
        for topic, found in by_topic.items():
            done = list(found)
            error = errors.get(topic)
            if error is not None and error.code in _REFUSED:
                refused = self._one_by_one(topic, values[topic], validate_only=validate_only)
                done = [name for name in found if name not in refused]
                failed |= {topic: "; ".join(refused.values())} if refused else {}
            elif error is not None:
                done = []
                failed[topic] = _explain(self._target, "AlterConfigs", topic, error)
            if done and not validate_only:
                self._log(topic, [found[name] for name in done])
        return failed

    def _one_by_one(
        self, topic: str, values: Mapping[str, str | None], *, validate_only: bool
    ) -> dict[str, str]:
        refused = {}
        for name, value in values.items():
            failed = configs.alter(
                self._target, {topic: {name: value}}, validate_only=validate_only
            )
            if topic in failed:
                wish = "its default" if value is None else value
                refused[name] = f"{name} cannot become {wish}: {failed[topic]}"
        return refused

    def _log(self, topic: str, changes: Sequence[ConfigChange]) -> None:
        told = ", ".join(
            f"{c.name} {c.old} -> {'the default' if c.new is None else c.new} ({c.reason})"
            for c in changes
        )
        log.info("%s: configs of %s on %s: %s", self._flow, topic, self._flow.target, told)

    def _tell(self, details: Mapping[str, str]) -> None:
        """Warn of what is new since the last run, in one line."""
        new = [text for topic, text in details.items() if self._told.get(topic) != text]
        if new:
            more = f"; and {len(new) - _MOST_NAMED} more topics" if new[_MOST_NAMED:] else ""
            shown = "; ".join(new[:_MOST_NAMED])
            log.warning("%s: configs are not synced: %s%s", self._flow, shown, more)
        self._told = dict(details)


def _explain(client: ClusterClient, operation: str, topic: str, error: BrokerError) -> str:
    if denied(error.code):
        return missing_right(client.settings, operation, "topic", topic)
    return str(error)


def _outlived(
    remembered: Mapping[str, Mapping[str, str]], target: Metadata
) -> dict[str, Mapping[str, str] | None]:
    """What was remembered of topics that were created again: there is nothing to it any more."""
    current = {name: topic_subject(name, t.topic_id) for name, t in target.topics.items()}
    return {
        subject: None for subject in remembered
        if current.get(subject.partition("/")[0], subject) != subject
    }  # fmt: skip
