"""Which properties of remote topics follow their source topics: rules and plan. Pure.

MM2's rules: what a source topic sets holds on its remote topic too, except for what the filter
excludes and what is read-only or sensitive. Where we differ, and better:

- Only differences are changed, each with its reason.
- With ``heliograph.target.configs=keep`` a property that the source topic does not set is left to
  the operators of the target. It is given back to the default only if its value is the one that
  was copied earlier: so removing it on the source still resets the remote topic. MM2, and
  ``overwrite``, reset whatever is set there, and copy dynamic defaults of the source's brokers.
- Properties that the target does not know (another version of Kafka) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.config import FlowConfig
from heliograph.policy import ConfigPropertyFilter, config_property_filter_from
from heliograph.wire.configs import ConfigEntry, ConfigSource, Entries

__all__ = [
    "CONFIGS",
    "ConfigChange",
    "ConfigRules",
    "TopicConfigPlan",
    "copied_at_creation",
    "plan_topic",
]

#: What `SyncedMemory` calls the properties that were copied to a remote topic.
CONFIGS = "config"

_BROKERS = frozenset({ConfigSource.BROKER, ConfigSource.ALL_BROKERS})


@dataclass(frozen=True, slots=True)
class ConfigRules:
    """What the flow's configuration says of properties.

    Attributes:
        selection: which properties are copied, and of which also the source's default
            (``use.defaults.from=source``).
        overwrite: whether the target's own settings count for nothing
            (``heliograph.target.configs=overwrite``).
    """

    source_alias: str
    selection: ConfigPropertyFilter
    overwrite: bool = False

    @classmethod
    def of(cls, config: FlowConfig) -> ConfigRules:
        """The rules of a flow."""
        selection = config_property_filter_from(config)
        return cls(config.flow.source, selection, config.target_configs == "overwrite")

    def wish(self, topic: str, entry: ConfigEntry) -> tuple[str, str] | None:
        """The value that a remote topic is to have because its source topic has it, and why."""
        if entry.value is None or self._left_out(entry):
            return None
        if entry.own:
            return entry.value, f"set on source topic {topic}"
        if entry.source is ConfigSource.DEFAULT and self._with_default(entry.name):
            return entry.value, f"default of cluster {self.source_alias} (use.defaults.from=source)"
        if entry.source in _BROKERS and self.overwrite:
            return entry.value, (
                f"set on the brokers of cluster {self.source_alias}"
                " (heliograph.target.configs=overwrite)"
            )
        return None

    def _left_out(self, entry: ConfigEntry) -> bool:
        return entry.read_only or entry.sensitive or not self._selected(entry.name)

    def _selected(self, name: str) -> bool:
        return self.selection.should_replicate_config_property(name)

    def _with_default(self, name: str) -> bool:
        return self.selection.should_replicate_source_default(name)

    def reset(self, topic: str, name: str, source: ConfigEntry | None, *, ours: bool) -> str | None:
        """Why a property of a remote topic, for which there is no wish, loses its value; or None.

        ``ours`` says that its value was copied from the source earlier.
        """
        if not self._selected(name) or (source is not None and self._left_out(source)):
            return None
        if ours:
            return f"not set on source topic {topic} any more"
        if self.overwrite and source is not None and source.source is ConfigSource.DEFAULT:
            return f"not set on source topic {topic} (heliograph.target.configs=overwrite)"
        return None


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A property of a remote topic that changes; ``new`` None: it gets the target's default."""

    topic: str
    name: str
    old: str | None
    new: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class TopicConfigPlan:
    """What to do about one remote topic.

    Attributes:
        copied: the properties whose value is, or is about to be, one that was copied from the
            source. To be remembered before the changes are made: a value that is not the
            topic's own in the end is nobody's.
        unknown: properties that the target does not know.
    """

    changes: Sequence[ConfigChange] = ()
    copied: Mapping[str, str] = field(default_factory=dict)
    unknown: Sequence[str] = ()


def plan_topic(
    topic: str,
    remote: str,
    source: Entries,
    target: Entries,
    remembered: Mapping[str, str],
    rules: ConfigRules,
) -> TopicConfigPlan:
    """Compare a source topic with its remote topic.

    Args:
        topic: the source topic.
        remote: its remote topic.
        source: the properties of the source topic.
        target: the properties of the remote topic.
        remembered: properties that were copied to the remote topic earlier (`copied`).
        rules: what to copy.
    """
    changes: list[ConfigChange] = []
    copied: dict[str, str] = {}
    unknown: list[str] = []
    for name in sorted(source.keys() | target.keys()):
        here, there = source.get(name), target.get(name)
        wish = rules.wish(topic, here) if here is not None else None
        if there is None:
            if wish is not None and here is not None and here.own:
                unknown.append(name)
            continue
        if here is not None and wish is not None:
            value, reason = wish
            if there.value != value or (here.own and not there.own):
                changes.append(ConfigChange(remote, name, there.value, value, reason))
                copied[name] = value
            elif there.own:
                # Also if somebody else has set it, MM2 for instance.
                copied[name] = value
            continue
        if not there.own:
            continue
        ours = name in remembered and remembered[name] == there.value
        if (why := rules.reset(topic, name, here, ours=ours)) is not None:
            changes.append(ConfigChange(remote, name, there.value, None, why))
            if ours:
                # Until it is seen to be gone, or it would not be known as ours if this fails.
                copied[name] = remembered[name]
    return TopicConfigPlan(changes, copied, unknown)


def copied_at_creation(topic: str, source: Entries, rules: ConfigRules) -> dict[str, str]:
    """The properties that a remote topic is created with."""
    wishes = {name: rules.wish(topic, entry) for name, entry in source.items()}
    return {name: wish[0] for name, wish in wishes.items() if wish is not None}
