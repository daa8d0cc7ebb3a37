"""Filters: which topics, groups and topic properties a flow takes along.

As in MM2, small interfaces, each with a default that goes by lists of regular expressions.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from heliograph.config.key import compile_pattern

__all__ = [
    "DRILL_GROUPS",
    "ConfigPropertyFilter",
    "DefaultConfigPropertyFilter",
    "DefaultGroupFilter",
    "DefaultTopicFilter",
    "GroupFilter",
    "PatternFilter",
    "TopicFilter",
    "WithoutDrills",
    "is_drill_group",
]

_REMEMBERED_NAMES = 100_000
#: What the copies of groups begin with that `heliograph drill` makes.
DRILL_GROUPS = "heliograph-drill."


@runtime_checkable
class TopicFilter(Protocol):
    """Which topics of the source are mirrored; internal ones and cycles are judged elsewhere."""

    @abstractmethod
    def should_replicate_topic(self, topic: str) -> bool:
        """Whether ``topic`` of the source is wanted."""


@runtime_checkable
class GroupFilter(Protocol):
    """Whose offsets are translated."""

    @abstractmethod
    def should_replicate_group(self, group: str) -> bool:
        """Whether the offsets of consumer group ``group`` are wanted."""


@runtime_checkable
class ConfigPropertyFilter(Protocol):
    """Which properties of a source topic its remote topic gets."""

    @abstractmethod
    def should_replicate_config_property(self, name: str) -> bool:
        """Whether property ``name`` is copied."""

    def should_replicate_source_default(self, name: str) -> bool:
        """Whether the source's value is copied also where it is only the source's default.

        Asked only for properties that are copied.
        """
        return False


def is_drill_group(group: str) -> bool:
    """Whether a group is a copy that a drill has made: no flow takes it along."""
    return group.startswith(DRILL_GROUPS)


class PatternFilter:
    """Matches whole names against any of some expressions; no expression matches nothing.

    Each expression is compiled by itself, where MM2 joins them with ``|``: the same for lists that
    compile, but flags and groups of one do not leak into the next.

    Raises:
        ValueError: an expression does not compile; config.load has reported that before.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(map(compile_pattern, patterns))
        # The same names are asked for every few seconds.
        self._matches = functools.lru_cache(_REMEMBERED_NAMES)(self._match)

    def __call__(self, name: str) -> bool:
        """Whether one of the expressions matches all of ``name``."""
        return self._matches(name)

    def _match(self, name: str) -> bool:
        return any(pattern.fullmatch(name) for pattern in self._patterns)


class _ListFilter:
    """Names that ``include`` matches and ``exclude`` does not."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        self._include = PatternFilter(include)
        self._exclude = PatternFilter(exclude)

    def _accepts(self, name: str) -> bool:
        return self._include(name) and not self._exclude(name)


class DefaultTopicFilter(_ListFilter, TopicFilter):
    """Goes by ``topics`` and ``topics.exclude``."""

    def should_replicate_topic(self, topic: str) -> bool:
        """See TopicFilter."""
        return self._accepts(topic)


class DefaultGroupFilter(_ListFilter, GroupFilter):
    """Goes by ``groups`` and ``groups.exclude``."""

    def should_replicate_group(self, group: str) -> bool:
        """See GroupFilter."""
        return self._accepts(group) and not is_drill_group(group)


class WithoutDrills(GroupFilter):
    """A filter of somebody else's, which does not know the copies that drills make."""

    def __init__(self, chosen: GroupFilter) -> None:
        self._chosen = chosen

    def should_replicate_group(self, group: str) -> bool:
        """See GroupFilter."""
        return not is_drill_group(group) and self._chosen.should_replicate_group(group)


class DefaultConfigPropertyFilter(ConfigPropertyFilter):
    """Goes by ``config.properties.exclude`` and ``use.defaults.from``."""

    def __init__(self, exclude: Iterable[str], use_defaults_from: str = "target") -> None:
        self._exclude = PatternFilter(exclude)
        self._source_defaults = use_defaults_from == "source"

    def should_replicate_config_property(self, name: str) -> bool:
        """See ConfigPropertyFilter."""
        return not self._exclude(name)

    def should_replicate_source_default(self, name: str) -> bool:
        """See ConfigPropertyFilter."""
        return self._source_defaults
