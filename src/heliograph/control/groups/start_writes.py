"""Committing on the target where groups start. Runs in commands and in the driver.

Without being a member, so brokers refuse it for a group that is in use. What is there is looked at
right before it is written to, and read back afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.control.groups.offset_sync import not_written
from heliograph.control.groups.start_rules import GroupStart, KeptAhead, Moved, Start
from heliograph.control.groups.translated import explain
from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.errors import NONE, WireError, error_name, is_retriable
from heliograph.wire.groups import Committed, GroupClient

__all__ = ["write_starts"]

#: Few enough that an offset is written within moments of being looked at.
_GROUPS_AT_ONCE = 100
#: For coordinators that are away or not ready; of all groups together.
_PATIENCE_SECONDS, _PAUSE_SECONDS = 10.0, 0.1


@dataclass(slots=True)
class _Group:
    """How far a group has come."""

    starts: Mapping[TopicPartition, Start]
    written: set[TopicPartition] = field(default_factory=set)
    already: set[TopicPartition] = field(default_factory=set)
    kept: dict[TopicPartition, KeptAhead] = field(default_factory=dict)
    reason: str = ""
    #: Whether another try may help.
    again: bool = False

    def begin(self) -> None:
        self.already, self.kept = set(), {}
        self.reason, self.again = "", False

    def fail(self, reason: str, *, again: bool = False) -> None:
        self.reason, self.again = self.reason or reason, self.again or again

    def result(self, group: str) -> Moved:
        already = self.already - self.written
        return Moved(group, len(self.written), len(already), dict(self.kept), self.reason)


def write_starts(
    target: GroupClient, found: Mapping[str, GroupStart], *, rewind: bool
) -> Mapping[str, Moved]:
    """See `GroupStarts.write`."""
    groups = {g: _Group(start.starts) for g, start in found.items() if not start.reason}
    moved = {g: Moved(g, reason=start.reason) for g, start in found.items() if start.reason}
    writing = _Writing(target, rewind=rewind)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    left = list(groups)
    while left:
        for i in range(0, len(left), _GROUPS_AT_ONCE):
            writing.write({g: groups[g] for g in left[i : i + _GROUPS_AT_ONCE]})
        left = [g for g in left if groups[g].again]
        if time.monotonic() >= deadline:
            break
        if left:
            time.sleep(_PAUSE_SECONDS)
    moved |= {g: group.result(g) for g, group in groups.items()}
    return {g: moved[g] for g in found}


class _Writing:
    """One try for some groups."""

    def __init__(self, target: GroupClient, *, rewind: bool) -> None:
        self._target = target
        self._rewind = rewind

    def write(self, groups: Mapping[str, _Group]) -> None:
        for group in groups.values():
            group.begin()
        try:
            self._write(groups)
        except WireError as error:
            # No broker answers: for all of them.
            for name, group in groups.items():
                self._fail(group, error, "Read", name)

    def _write(self, groups: Mapping[str, _Group]) -> None:
        # By name: of topics that we may not see there would otherwise be no word.
        asked = {name: group.starts.keys() for name, group in groups.items()}
        there = self._target.committed_of(asked, stable=True)
        for name, error in there.errors.items():
            self._fail(groups[name], error, "Describe", name)
        ends = self._ends([(groups[name].starts, now) for name, now in there.found.items()])
        writes = {name: self._compare(groups[name], now, ends) for name, now in there.found.items()}
        answers = self._target.commit(
            {name: offsets for name, offsets in writes.items() if offsets}
        )
        for name, error in answers.errors.items():
            self._fail(groups[name], error, "Read", name)
        taken = {}
        for name, codes in answers.found.items():
            taken[name] = [p for p, code in codes.items() if code == NONE]
            for p, code in sorted(codes.items()):
                if code != NONE:
                    reason = not_written(self._target.client, name, p, code)
                    groups[name].fail(reason, again=is_retriable(code))
        self._read_back(groups, {name: some for name, some in taken.items() if some})

    def _compare(
        self,
        group: _Group,
        there: Mapping[TopicPartition, Committed],
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, Committed]:
        """What there is to write."""
        writes = {}
        for p, start in group.starts.items():
            now = there.get(p, Committed(-1))
            if now.error != NONE:
                # E.g. an offset in an open transaction: a write now would win over it.
                why = f"what is committed for {p} is unclear: {error_name(now.error)}"
                group.fail(why, again=is_retriable(now.error))
            elif now.offset == start.offset:
                group.already.add(p)
            elif start.offset < now.offset <= ends.get(p, now.offset) and not self._rewind:
                group.kept[p] = KeptAhead(now.offset, start.offset)
            else:
                writes[p] = Committed(start.offset, start.metadata)
        return writes

    def _ends(
        self,
        looked_at: Sequence[
            tuple[Mapping[TopicPartition, Start], Mapping[TopicPartition, Committed]]
        ],
    ) -> Mapping[TopicPartition, int]:
        """Where logs end by now, of partitions that seem to be committed behind their ends.

        A mirror that runs on, and moves groups on, would otherwise be set back.
        """
        doubtful = {
            p
            for starts, there in looked_at
            for p, now in there.items()
            if p in starts and now.offset > starts[p].log.end
        }
        if not doubtful:
            return {}
        client = self._target.client
        metadata = client.metadata(sorted({p.topic for p in doubtful}))
        return admin.list_offsets(client, metadata, doubtful, admin.LATEST)

    def _read_back(
        self, groups: Mapping[str, _Group], taken: Mapping[str, Sequence[TopicPartition]]
    ) -> None:
        there = self._target.committed_of(taken, stable=True)
        for name, error in there.errors.items():
            self._fail(groups[name], error, "Describe", name)
        for name, offsets in there.found.items():
            group = groups[name]
            for p in taken[name]:
                now, wanted = offsets.get(p, Committed(-1)), group.starts[p].offset
                if now.error == NONE and now.offset == wanted:
                    group.written.add(p)
                else:
                    said = error_name(now.error) if now.error != NONE else str(now.offset)
                    group.fail(f"{p} was set to {wanted} and reads back as {said}", again=True)

    def _fail(self, group: _Group, error: WireError, operation: str, name: str) -> None:
        reason = explain(error, self._target.client.settings, operation, name)
        group.fail(reason, again=is_retriable(error))
