"""The consumer groups of a flow as its jobs see them, for the snapshot. Runs in the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from heliograph.control.groups.offset_sync import GroupStanding
from heliograph.control.groups.readiness import readiness
from heliograph.control.groups.translated import TranslatedGroup, TranslatedGroups
from heliograph.model import Flow, TopicPartition
from heliograph.service.snapshot import FlowState, GroupPartition, GroupSnapshot, Life
from heliograph.units import moment
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.groups import Committed, GroupClient

__all__ = ["Ends", "GroupWatch"]

#: Where a source partition ended, and its copy, when both were last measured; None if never.
Ends = Callable[[TopicPartition], tuple[int, int] | None]
#: States of the jobs in which nobody looks at the groups, and these go on meanwhile.
_BLIND = (FlowState.PAUSED, FlowState.STANDING_BY, FlowState.STOPPED)


@dataclass(frozen=True, slots=True)
class _Look:
    """What a job has seen; ``standings`` are None if nothing is committed on the target."""

    seen: TranslatedGroups
    standings: Mapping[str, GroupStanding] | None
    at: float
    lasts_seconds: float


class GroupWatch:
    """Remembers what the jobs have seen. They call `say` and `look`, anybody the rest.

    Nothing here asks a cluster but `committed`.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._said: Mapping[str, Mapping[str, str]] = {}
        self._look: _Look | None = None
        self._rows: tuple[object, tuple[GroupSnapshot, ...]] = None, ()

    def say(self, job: str, details: Mapping[str, str]) -> None:
        """What a job has to say of each group."""
        self._said = {**self._said, job: details}

    def look(
        self,
        seen: TranslatedGroups,
        standings: Mapping[str, GroupStanding] | None,
        lasts_seconds: float,
    ) -> None:
        """How the groups are now; it is said to be old after ``lasts_seconds``."""
        self._look = _Look(seen, standings, time.time(), lasts_seconds)

    def rows(self, life: Life | None, ends: Ends, version: object) -> tuple[GroupSnapshot, ...]:
        """The groups by name; the same objects as long as nothing has changed.

        Args:
            life: that of the jobs; None if there are none.
            ends: what was measured.
            version: changes when ``ends`` do.
        """
        look, said = self._look, self._said
        if look is None or life is None:
            return ()
        old = time.time() - look.at > look.lasts_seconds
        key = (look, said, life.state, old, version)
        known = self._rows
        if not (isinstance(known[0], tuple) and all(map(_same, known[0], key))):
            made = tuple(
                self._row(name, group, look, said, life, old, ends)
                for name, group in sorted(look.seen.groups.items())
            )  # fmt: skip
            known = self._rows = key, made
        return known[1]

    def _row(
        self, name: str, group: TranslatedGroup, look: _Look, said: Mapping[str, Mapping[str, str]],
        life: Life, old: bool, ends: Ends,
    ) -> GroupSnapshot:  # fmt: skip
        standing = look.standings.get(name) if look.standings is not None else None
        ready, why = readiness(self._flow, group, standing, synced=look.standings is not None)
        if life.state in _BLIND:
            ready, why = None, f"checkpoints are {life.state}"
        elif old:
            # The source may be gone: then this is what counts.
            why = f"as of {moment(look.at)}, the last look" + (f": {why}" if why else "")
        texts = {job: details[name] for job, details in said.items() if name in details}
        return GroupSnapshot(
            name, MappingProxyType(texts), ready, why, len(group.committed), _lag(group, ends)
        )

    def partitions(
        self,
        group: str,
        targets: Mapping[TopicPartition, str],
        ends: Ends,
        target: ClusterClient | None,
    ) -> tuple[GroupPartition, ...]:
        """A group's partitions by name. Asks the target what is committed there, if it is open.

        ``targets`` are the topics that source partitions are mirrored to. Raises KeyError for a
        group that the jobs have not seen.
        """
        if self._look is None:
            raise KeyError(group)
        found = self._look.seen.groups[group]
        places = {
            p: TopicPartition(targets[p], p.partition)
            for p in sorted(found.committed) if p in targets
        }  # fmt: skip
        there: Mapping[TopicPartition, Committed] = {}
        if target is not None and places:
            wanted = {group: places.values()}
            there = GroupClient(target).committed_of(wanted).found.get(group, {})
        rows = []
        for p, place in places.items():
            source_end, target_end = ends(p) or (None, None)
            offset, committed = found.offsets.get(place), there.get(place)
            known = committed is not None and not committed.error and committed.offset >= 0
            rows.append(
                GroupPartition(
                    p.topic, p.partition, place.topic, found.committed[p], source_end,
                    offset.downstream if offset is not None else None,
                    committed.offset if committed is not None and known else None, target_end,
                )
            )  # fmt: skip
        return tuple(rows)


def _lag(group: TranslatedGroup, ends: Ends) -> int | None:
    """Records on the source that it has not read; None if that is not known of all partitions."""
    total = 0
    for partition, committed in group.committed.items():
        measured = ends(partition)
        if measured is None:
            return None
        total += max(measured[0] - committed, 0)
    return total if group.committed else None


def _same(one: object, other: object) -> bool:
    return one is other or (isinstance(one, (int, str)) and one == other)
