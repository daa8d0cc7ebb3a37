"""Filters and a policy of one's own: an example of a plugin package for Heliograph."""

from collections.abc import Mapping

from heliograph.policy import ConfigPropertyFilter, GroupFilter, ReplicationPolicy, TopicFilter


class TeamTopics(TopicFilter):
    """Mirrors ``<team>.<anything>`` for the teams in ``heliograph.plugin.teams``."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Called once for each flow, with all values of that flow."""
        teams = properties["heliograph.plugin.teams"].split(",")
        self._prefixes = tuple(f"{team.strip()}." for team in teams)

    def should_replicate_topic(self, topic: str) -> bool:
        """Whether a team of ours owns the topic."""
        return topic.startswith(self._prefixes)


class TeamGroups(GroupFilter):
    """Translates the offsets of groups that are named ``<team>-<anything>``."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """See TeamTopics."""
        teams = properties["heliograph.plugin.teams"].split(",")
        self._prefixes = tuple(f"{team.strip()}-" for team in teams)

    def should_replicate_group(self, group: str) -> bool:
        """Whether a team of ours owns the group."""
        return group.startswith(self._prefixes)


class OwnRetention(ConfigPropertyFilter):
    """Copies every property except retention, which the target sets for itself."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Needs no setting."""

    def should_replicate_config_property(self, name: str) -> bool:
        """Whether the property is none of retention's."""
        return not name.startswith("retention.")


class SuffixPolicy(ReplicationPolicy):
    """Names the mirror of ``orders`` of cluster A ``orders-from-A``."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """The text between topic and alias can be set."""
        self._between = properties.get("heliograph.plugin.suffix", "-from-")

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """The name on the target."""
        return topic + self._between + source_alias

    def topic_source(self, topic: str) -> str | None:
        """The alias at the end, if there is one."""
        before, found, alias = topic.rpartition(self._between)
        return alias if found and before else None

    def upstream_topic(self, topic: str) -> str | None:
        """The name without the last alias; None if there is none."""
        before, found, _ = topic.rpartition(self._between)
        return before if found and before else None
