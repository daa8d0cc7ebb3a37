"""The consumer groups of a pair of clusters: who is in use, and how much is unread. One thread."""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.config.key import BoundedPattern
from heliograph.control.groups.start_rules import GroupStart, Moved
from heliograph.control.groups.starts import GroupStarts
from heliograph.failover.two_sides import Reached, TwoSides
from heliograph.model import TopicPartition
from heliograph.wire.groups import GroupClient

__all__ = ["GroupPlaces", "behind", "in_use_there"]

_FREE = frozenset({"empty", "dead", "absent"})


class GroupPlaces:
    """The groups of a switchover, of some topics or all of them (None)."""

    def __init__(
        self, two: TwoSides, groups: BoundedPattern | None, topics: frozenset[str] | None
    ) -> None:
        self._two = two
        self._here = GroupClient(two.source)
        self._starts = GroupStarts(
            two.config, two.side.client, two.source, topics=topics,
            groups=groups.pattern if groups is not None else None,
        )  # fmt: skip

    def look(self) -> dict[str, GroupStart]:
        """Where each group would start on the target; raises WireError, HeliographError."""
        return dict(self._starts.look())

    def write(self, found: Mapping[str, GroupStart], *, rewind: bool) -> dict[str, Moved]:
        """Put groups where they start; see `GroupStarts.write`."""
        return dict(self._starts.write(found, rewind=rewind))

    def in_use(self, groups: Mapping[str, GroupStart]) -> dict[str, str]:
        """The groups that have members on the source, with their state there; raises WireError."""
        listed = self._here.list_groups().groups
        states = {name: listed[name].state for name in groups if name in listed}
        unsaid = [name for name, state in states.items() if not state]
        if unsaid:
            states |= self._here.states(unsaid).found
        return {name: s for name, s in sorted(states.items()) if s and s.lower() not in _FREE}


def in_use_there(groups: Mapping[str, GroupStart]) -> dict[str, str]:
    """The groups that have members on the target, with their state there. Pure."""
    return {
        name: found.state for name, found in sorted(groups.items())
        if found.state and found.reason and found.state.lower() not in _FREE
    }  # fmt: skip


def behind(
    group: GroupStart,
    sources: Mapping[TopicPartition, TopicPartition],
    positions: Mapping[TopicPartition, Reached],
) -> int:
    """How many offsets of the source a group has not read yet; 0 if no record is among them. Pure.

    ``sources`` names the partition of the source, by the target's.
    """
    count = 0
    for p, start in group.starts.items():
        at = positions.get(sources.get(p, p))
        if at is not None and start.upstream is not None and start.offset < at.behind_all:
            count += max(at.cut.source - start.upstream, 1)
    return count
