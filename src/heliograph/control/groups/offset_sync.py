"""Group offset sync: translated offsets are committed on the target. Runs in the driver.

Only where it does no harm. A group that is in use on the target is not touched: it is written to
only if the target says that the group is empty or not there, and brokers refuse the write if that
has changed by then. An offset on the target that is ahead is kept.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from heliograph.control.groups.shared_partitions import FlowMeeting
from heliograph.control.groups.translated import (
    Complaints,
    GroupTranslation,
    TranslatedGroup,
    TranslatedGroups,
    TranslatedOffset,
    explain,
    is_denied,
    partitions,
    shortened,
    unsupported,
)
from heliograph.model import Flow, TopicPartition
from heliograph.shown import shown
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import NONE, BrokerError, WireError, error_name, is_retriable
from heliograph.wire.groups import Committed, GroupClient, ListedGroup
from heliograph.wire.rights import missing_right

__all__ = [
    "ABSENT",
    "GroupOffsetSync",
    "GroupStanding",
    "Synced",
    "compare",
    "held",
    "judge",
    "not_written",
    "stand",
]

ABSENT = "absent"
_FREE = frozenset({"empty", "dead"})
#: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_ and STALE_MEMBER_EPOCH: how
#: brokers refuse a commit by nobody for a group that has members.
_IN_USE = frozenset({22, 25, 27, 110, 113})
_TOPIC_AUTHORIZATION_FAILED = 29
_NO_ANSWER = Committed(-1, error=-1)
#: Few enough that an offset is written within moments of being looked at.
_GROUPS_AT_ONCE = 100
_FINISH_SECONDS, _FINISH_PAUSE_SECONDS = 10.0, 0.1


@dataclass(slots=True)
class GroupStanding:
    """How a group stands on the target, and what there is to write.

    Attributes:
        state: on the target, in Kafka's words, or ``absent``.
        reason: why nothing may be written; empty if it may.
        writes: offsets that are missing on the target, or lower there.
        ahead: by how much offsets of the target are ahead; they are kept.
        held: why partitions are not written to, or not as far as their own flow would have it.
        unclear: partitions of which the target does not tell the offset, with its error.
        in_step: how many partitions are as they should be.
        error: the cause of ``reason``, if it is one that a broker gave.
    """

    state: str
    reason: str = ""
    error: WireError | None = None
    writes: dict[TopicPartition, Committed] = field(default_factory=dict)
    ahead: dict[TopicPartition, int] = field(default_factory=dict)
    unclear: dict[TopicPartition, int] = field(default_factory=dict)
    held: dict[TopicPartition, str] = field(default_factory=dict)
    in_step: int = 0


@dataclass(frozen=True, slots=True)
class Synced:
    """What a cycle has seen on the source, and how those groups stand on the target after it."""

    seen: TranslatedGroups
    standings: Mapping[str, GroupStanding]


def judge(name: str, alias: str, listed: ListedGroup | None, state: str) -> GroupStanding:
    """Whether a group may be written to on the target ``alias``, by positive evidence only.

    ``listed`` is how the target lists it, None if it does not; ``state`` what its coordinator says
    if it was asked, else empty.
    """
    if listed is not None:
        why = unsupported(listed)
        if why:
            kind = listed.kind if listed.kind not in {"", "classic"} else listed.protocol_type
            return GroupStanding(listed.state, f"{shown(name)} is a {shown(kind)} group on {alias}")
        state = listed.state or state
    if not state or state.lower() == "unknown":
        return GroupStanding(state, f"its state on {alias} is unknown")
    if state.lower() not in _FREE:
        return GroupStanding(state, f"is in use on {alias} ({state})")
    return GroupStanding(state if listed is not None else ABSENT)


def compare(
    standing: GroupStanding,
    wanted: Mapping[TopicPartition, TranslatedOffset],
    there: Mapping[TopicPartition, Committed],
) -> None:
    """Enter what there is to write: what is absent, negative or lower on the target.

    ``there`` has an answer for every partition; what has none is left alone.
    """
    for partition, offset in wanted.items():
        now = there.get(partition, _NO_ANSWER)
        if now.error != NONE:
            # E.g. an offset in an open transaction: a write now would win over it.
            standing.unclear[partition] = now.error
        elif now.offset < offset.downstream:
            standing.writes[partition] = Committed(offset.downstream, offset.metadata)
        elif now.offset > offset.downstream:
            standing.ahead[partition] = now.offset - offset.downstream
        else:
            standing.in_step += 1


def held(standing: GroupStanding) -> str:
    """What is held back, in a few words."""
    partition, why = min(standing.held.items())
    more = f" (and {others} more)" if (others := len(standing.held) - 1) else ""
    return f"{partition} {why}{more}"


def stand(target: GroupClient, names: Collection[str]) -> dict[str, GroupStanding]:
    """How groups stand on the target, by what it lists and by what coordinators say."""
    if not names:
        return {}
    found = target.list_groups()
    listed = found.groups
    # Not listed may also mean: not visible to us.
    described = target.states([g for g in names if g not in listed or not listed[g].state])
    standings = {}
    for name in names:
        error = described.errors.get(name)
        if name not in listed and found.failures:
            error = found.failures[0]
        if error is not None:
            standings[name] = GroupStanding("")
            refuse(standings[name], error, target.client, "Describe", name)
        else:
            state = described.found.get(name, "")
            standings[name] = judge(name, target.client.alias, listed.get(name), state)
    return standings


def refuse(
    standing: GroupStanding, error: WireError, client: ClusterClient, operation: str, group: str
) -> None:
    """Nothing may be written, because of an error that the target gave."""
    standing.reason = explain(error, client.settings, operation, group)
    standing.error = error


def not_written(client: ClusterClient, group: str, partition: TopicPartition, code: int) -> str:
    """Why the target did not take an offset; with the command that changes it, if a right lacks."""
    if code in _IN_USE:
        return f"became active on {client.alias} meanwhile: left alone"
    if code == _TOPIC_AUTHORIZATION_FAILED:
        return missing_right(client.settings, "Read", "topic", partition.topic)
    error = BrokerError(code, f"{partition} was not written")
    return explain(error, client.settings, "Read", group)


class GroupOffsetSync:
    """Keeps the groups of a flow's target at the place where those of the source are.

    Args:
        young_seconds: how old a look at the source's groups may be.
        meeting: the other flows into the same topics; None if names tell that there are none.
    """

    def __init__(
        self,
        flow: Flow,
        translation: GroupTranslation,
        target: GroupClient,
        young_seconds: float,
        meeting: FlowMeeting | None = None,
    ) -> None:
        self._flow = flow
        self._translation = translation
        self._target = target
        self._young_seconds = young_seconds
        self._meeting = meeting
        self._details: Mapping[str, str] = {}
        self._complaints = Complaints(flow)
        self._settled = True

    def details(self) -> Mapping[str, str]:
        """What the last run did for each group, or why it did nothing."""
        return self._details

    def sync(self, *, fresh: bool = False) -> Synced:
        """One cycle; raises WireError if a cluster is away.

        With ``fresh`` the source's groups are looked at anew, whatever another job has seen.
        """
        return self._sync(self._translation.latest(0.0 if fresh else self._young_seconds))

    def finish(self) -> Synced:
        """A last cycle; waits a moment for coordinators that are not ready.

        A cluster makes itself ready for groups only when it is first asked about one.
        """
        deadline = time.monotonic() + _FINISH_SECONDS
        while True:
            late = time.monotonic() >= deadline
            try:
                synced = self.sync(fresh=True)
                if self._settled or late:
                    return synced
            except WireError as error:
                if late or not is_retriable(error):
                    raise
            time.sleep(_FINISH_PAUSE_SECONDS)

    def _sync(self, seen: TranslatedGroups) -> Synced:
        standings = self._stand(seen.groups)
        wanted = self._wanted(seen.groups, standings)
        free = list(wanted)
        written: dict[str, int] = {}
        for i in range(0, len(free), _GROUPS_AT_ONCE):
            some = free[i : i + _GROUPS_AT_ONCE]
            self._fetch(wanted, standings, some)
            answers = self._target.commit(
                {g: standings[g].writes for g in some if standings[g].writes}
            )
            for group, error in answers.errors.items():
                self._refuse(standings[group], error, group, "Read")
            for group, codes in answers.found.items():
                written[group] = self._check(group, standings[group], codes)
        self._settled = not any(
            s.error is not None and is_retriable(s.error) for s in standings.values()
        )
        self._report(seen, standings, written)
        return Synced(seen, standings)

    def look(self, seen: TranslatedGroups) -> Mapping[str, GroupStanding]:
        """How the groups stand on the target; writes nothing."""
        standings = self._stand(seen.groups)
        wanted = self._wanted(seen.groups, standings)
        self._fetch(wanted, standings, wanted.keys())
        return standings

    # -- looking ------------------------------------------------------------------------------

    def _stand(self, groups: Mapping[str, TranslatedGroup]) -> dict[str, GroupStanding]:
        """The groups that have something to write, by what the target says of them."""
        return stand(self._target, [name for name, group in groups.items() if group.offsets])

    def _wanted(
        self, groups: Mapping[str, TranslatedGroup], standings: Mapping[str, GroupStanding]
    ) -> dict[str, dict[TopicPartition, TranslatedOffset]]:
        """Where groups that may be written to should be; enters what is held back."""
        wanted = {g: groups[g].offsets for g, s in standings.items() if not s.reason}
        limits = self._meeting.limits(wanted) if self._meeting is not None else {}
        if not limits:
            return wanted
        wanted = {g: dict(offsets) for g, offsets in wanted.items()}
        for (group, partition), limit in limits.items():
            offset = wanted[group].pop(partition)
            if limit.offset is not None:
                wanted[group][partition] = replace(offset, downstream=limit.offset)
            if limit.why:
                standings[group].held[partition] = limit.why
        return wanted

    def _fetch(
        self,
        wanted: Mapping[str, Mapping[TopicPartition, TranslatedOffset]],
        standings: Mapping[str, GroupStanding],
        names: Collection[str],
    ) -> None:
        """Compare what is committed on both sides, for groups that may be written to."""
        # By name: of topics that we may not see there would otherwise be no word.
        there = self._target.committed_of({g: wanted[g].keys() for g in names}, stable=True)
        for name, offsets in there.found.items():
            compare(standings[name], wanted[name], offsets)
        for name, error in there.errors.items():
            self._refuse(standings[name], error, name, "Describe")

    # -- what came of it ----------------------------------------------------------------------

    def _refuse(
        self, standing: GroupStanding, error: WireError, group: str, operation: str
    ) -> None:
        refuse(standing, error, self._target.client, operation, group)

    def _check(
        self, group: str, standing: GroupStanding, codes: Mapping[TopicPartition, int]
    ) -> int:
        """How many offsets were written; the reason, if some were not."""
        failed = {p: code for p, code in codes.items() if code != NONE}
        if failed:
            partition, code = min(failed.items())
            standing.error = BrokerError(code, f"{partition} was not written")
            standing.reason = not_written(self._target.client, group, partition, code)
        return len(codes) - len(failed)

    def _done(self, standing: GroupStanding, written: int) -> str:
        said = []
        if written:
            said.append(f"synced {partitions(written)}")
        if standing.in_step:
            said.append(f"{partitions(standing.in_step)} in step")
        if standing.ahead:
            partition, by = max(standing.ahead.items(), key=lambda item: item[1])
            others = len(standing.ahead) - 1
            more = f" (and {others} more)" if others else ""
            said.append(f"ahead of {self._flow.source} by {by} on {partition}{more}: kept")
        if standing.unclear:
            partition, code = min(standing.unclear.items())
            why = error_name(code)
            if code == _TOPIC_AUTHORIZATION_FAILED:
                settings = self._target.client.settings
                why = missing_right(settings, "Describe", "topic", partition.topic)
            said.append(f"{partition} is left alone: {why}")
        if standing.held:
            said.append(held(standing))
        return ", ".join(said)

    def _report(
        self,
        seen: TranslatedGroups,
        standings: Mapping[str, GroupStanding],
        written: Mapping[str, int],
    ) -> None:
        def lines() -> Iterable[tuple[str, str, bool]]:
            for name, group in seen.groups.items():
                standing = standings.get(name)
                if standing is None:
                    yield name, group.summary(), bool(group.error or group.untranslated)
                    continue
                text = standing.reason or self._done(standing, written.get(name, 0))
                if group.untranslated:
                    text += f"; {group.summary()}"
                yield name, text, bool(standing.reason or standing.held or group.untranslated)

        self._details = shortened(lines())
        denied = {
            g: s.reason for g, s in standings.items() if s.error is not None and is_denied(s.error)
        }
        self._complaints.tell(denied)
