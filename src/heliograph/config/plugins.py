"""Own filters and policies by name: which installed packages offer them. Nothing is imported here.

A package offers one by an entry point in a group of ours. A configuration only ever names an entry
point: whoever can write a configuration cannot thereby have a class of their choice loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

__all__ = [
    "CONFIG_PROPERTY_FILTERS",
    "GROUP_FILTERS",
    "REPLICATION_POLICIES",
    "TOPIC_FILTERS",
    "installed",
    "package_of",
]

TOPIC_FILTERS = "heliograph.topic_filters"
GROUP_FILTERS = "heliograph.group_filters"
CONFIG_PROPERTY_FILTERS = "heliograph.config_property_filters"
REPLICATION_POLICIES = "heliograph.replication_policies"


def installed(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of ``group`` by name; more than one under a name if packages disagree."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in sorted(entry_points(group=group), key=lambda e: (e.name, package_of(e))):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def package_of(entry: EntryPoint) -> str:
    """Name and version of the package that brings ``entry``."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
