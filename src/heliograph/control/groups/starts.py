"""Where the consumer groups of a flow start on its target, and putting them there.

Runs in commands and in the driver. Needs the target only: the source may be gone, half gone, or
come back in the middle. One thread at a time.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from heliograph.config import FlowConfig
from heliograph.config.key import compile_pattern
from heliograph.control.groups.last_heartbeat import last_heartbeat
from heliograph.control.groups.offset_sync import GroupStanding, stand
from heliograph.control.groups.shared_partitions import FlowMeeting
from heliograph.control.groups.source_positions import (
    FlowTopics,
    GroupPositions,
    SourcePositions,
    find_positions,
)
from heliograph.control.groups.start_logs import Aims, Back, TargetLogs, look_at_logs
from heliograph.control.groups.start_rules import (
    EMPTIED,
    AtTime,
    Earliest,
    Exact,
    FromFile,
    GroupStart,
    Latest,
    Log,
    Moved,
    SinceLastHeartbeat,
    Start,
    Strategy,
    Translated,
    locate,
    start_at,
)
from heliograph.control.groups.start_writes import write_starts
from heliograph.control.groups.translated import TranslatedOffset, ledger_of
from heliograph.ledger.handovers import RestingCuts
from heliograph.ledger.reverse import looping, reverse_of, without_reverse
from heliograph.ledger.store import LedgerStore
from heliograph.mm2.checkpoints import CheckpointLog
from heliograph.model import TopicPartition
from heliograph.policy import group_filter_from, is_drill_group, policy_from
from heliograph.units import duration, moment
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import NONE, WireError, error_name, is_retriable
from heliograph.wire.groups import Committed, GroupClient
from heliograph.wire.metadata import NO_ID, Metadata
from heliograph.wire.rights import missing_right

__all__ = [
    "AtTime",
    "Earliest",
    "FromFile",
    "GroupStart",
    "GroupStarts",
    "Latest",
    "Log",
    "Moved",
    "SinceLastHeartbeat",
    "Start",
    "Strategy",
    "Translated",
]

#: For how long coordinators may make themselves ready.
_PATIENCE_SECONDS, _PAUSE_SECONDS = 10.0, 0.1
#: What groups have committed on the target.
_Committed = Mapping[str, Mapping[TopicPartition, Committed]]


class GroupStarts:
    """Says where the groups of a flow start, and writes that; use it for one failover.

    Attributes:
        notes: what the last look has to say of all groups.
        silent: the source did not answer for all groups at the last look; empty if it did.
        checkpoints_ms: when the newest checkpoint was written that was used; None if none was.
    """

    def __init__(
        self,
        config: FlowConfig,
        target: ClusterClient,
        source: ClusterClient | None = None,
        *,
        groups: str | None = None,
        named: Collection[str] = (),
        topics: Collection[str] | None = None,
    ) -> None:
        """Asks nobody yet.

        Args:
            config: of the flow.
            target: for nothing else, while a method runs.
            source: None if it is gone.
            groups: an expression that has to match the whole id; None for all groups of the flow.
            named: only these groups, or those that ``groups`` matches. Also ones that nobody knows:
                with ``topics`` and a strategy that does not translate they start there.
            topics: only these topics of the source; None for all that the flow mirrors.

        Raises:
            ValueError: ``groups`` is no expression.
        """
        self._config = config
        self._target = target
        self._source = source
        self._groups = GroupClient(target)
        self._filter = group_filter_from(config)
        self._pattern = compile_pattern(groups) if groups is not None else None
        self._named = frozenset(named)
        self._only = None if topics is None else frozenset(topics)
        self._topics = FlowTopics(config, topics)
        self._ledger: LedgerStore | None = None
        self._cuts: RestingCuts | None = None
        self._checkpoints: CheckpointLog | None = None
        self.notes: Sequence[str] = ()
        self.silent = ""
        self.checkpoints_ms: int | None = None

    # -- looking ------------------------------------------------------------------------------

    def look(self, strategy: Strategy | None = None) -> Mapping[str, GroupStart]:
        """Where each group would start, by id; `Translated` without a strategy. Writes nothing.

        Raises:
            WireError: the target does not answer.
            HeliographError: there is nothing to translate by; no heartbeat; unreadable checkpoints.
        """
        strategy = strategy or Translated()
        notes: list[str] = []
        ledger, cuts = self._open()
        at_ms = self._time_of(strategy, notes)
        found = self._positions()
        if self.silent:
            notes.append(self._age_of_positions())
        wanted = self._candidates(found, strategy)
        standings = self._stand(sorted(wanted))
        # Before the logs are looked at: what was committed behind their ends is not there.
        answers = self._groups.committed(wanted, stable=True)
        seen = look_at_logs(
            self._target, ledger, self._topics, self._partitions(found, answers.found, strategy),
            self._look_back(ledger, found.silent), cuts.at,
        )  # fmt: skip
        exact = self._exact(found, seen, ledger)
        aims = Aims(strategy, seen, self._resolved(at_ms, seen))
        self.notes = notes
        return {
            group: self._group(
                group, found.groups.get(group), standings[group], answers.found.get(group, {}),
                seen, exact.get(group, {}), aims,
            )
            for group in sorted(wanted)
            if self._is_of_flow(group, found, answers.found.get(group, {}), strategy)
        }  # fmt: skip

    def _open(self) -> tuple[LedgerStore, RestingCuts]:
        if self._ledger is None or self._cuts is None:
            self._ledger = ledger_of(self._config, self._target)
            self._cuts = RestingCuts(self._ledger.follower)
        return self._ledger, self._cuts

    def write(
        self, found: Mapping[str, GroupStart], *, rewind: bool = False
    ) -> Mapping[str, Moved]:
        """Commit on the target what `look` has found, and read it back.

        Groups with a reason are not touched. An offset that is ahead by now is kept, unless
        ``rewind``. What cannot be written at the moment is tried again for some seconds. May be
        repeated: what is there already is not written again.
        """
        return write_starts(self._groups, found, rewind=rewind)

    def _stand(self, names: Sequence[str]) -> Mapping[str, GroupStanding]:
        """How groups stand on the target; waits a moment for coordinators that are not ready.

        A cluster on which no group was ever used makes itself ready when it is first asked.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            found = stand(self._groups, names)
            errors = [s.error for s in found.values() if s.error is not None]
            if not any(map(is_retriable, errors)) or time.monotonic() >= deadline:
                return found
            time.sleep(_PAUSE_SECONDS)

    # -- who ----------------------------------------------------------------------------------

    def _accepts(self, group: str) -> bool:
        if group in self._named:
            return True
        if is_drill_group(group):
            return False
        if self._pattern is not None:
            return self._pattern.fullmatch(group)
        return not self._named and self._filter.should_replicate_group(group)

    def _positions(self) -> SourcePositions:
        topic = policy_from(self._config).checkpoints_topic(self._config.flow.source)
        if self._checkpoints is None and topic in self._target.metadata([topic]).topics:
            self._checkpoints = CheckpointLog(self._target, topic)
        found = find_positions(self._source, self._topics, self._accepts, self._checkpoints)
        self.silent, self.checkpoints_ms = found.silent, found.checkpoints_ms
        return found

    def _age_of_positions(self) -> str:
        source = self._config.flow.source
        if self.checkpoints_ms is None:
            return f"{source} {self.silent}, and there are no checkpoints of these groups"
        age = duration(max(time.time() - self.checkpoints_ms / 1000, 0.0))
        return (
            f"{source} {self.silent}: positions are those of checkpoints, the newest is {age} old"
        )

    def _candidates(self, found: SourcePositions, strategy: Strategy) -> set[str]:
        if isinstance(strategy, FromFile):
            chosen = self._named or self._pattern is not None
            return {g for g in strategy.offsets if not chosen or self._accepts(g)}
        wanted = {*found.groups, *self._named}
        if found.silent:
            # Groups without a checkpoint that have been here: nobody else knows of them.
            wanted |= {g for g in self._groups.list_groups().groups if self._accepts(g)}
        return wanted

    def _is_of_flow(
        self,
        group: str,
        found: SourcePositions,
        there: Mapping[TopicPartition, Committed],
        strategy: Strategy,
    ) -> bool:
        known = group in found.groups or group in self._named or isinstance(strategy, FromFile)
        return known or any(self._topics.source(p.topic) is not None for p in there)

    # -- what the target has ------------------------------------------------------------------

    def _partitions(
        self, found: SourcePositions, there: _Committed, strategy: Strategy
    ) -> set[TopicPartition]:
        partitions = {p for known in found.groups.values() for p in known.positions}
        partitions |= {p for known in found.groups.values() for p in known.unclear}
        partitions |= {
            p for offsets in there.values() for p in offsets
            if self._topics.source(p.topic) is not None
        }  # fmt: skip
        if isinstance(strategy, FromFile):
            partitions |= {p for offsets in strategy.offsets.values() for p in offsets}
        elif self._named:
            partitions |= {TopicPartition(name, 0) for name in self._chosen_topics()}
        return partitions

    def _chosen_topics(self) -> set[str]:
        """Remote topics that the caller has named."""
        remote = map(self._topics.remote, self._only or ())
        return {name for name in remote if name is not None}

    def _look_back(self, ledger: LedgerStore, silent: str) -> Back:
        """What goes in the opposite direction, where names let records come back."""
        ledger.refresh()
        flow, topics = self._config.flow, {place.topic for place in ledger.begun()}
        if not looping(policy_from(self._config), topics, flow.source, flow.target):
            return Back()
        if self._source is None or silent:
            return Back(away=without_reverse(flow, silent or "was not asked"))
        try:
            here = self._source.metadata()
            found = reverse_of(self._config, self._source, self._target, here, topics)
        except WireError as error:
            return Back(away=without_reverse(flow, f"does not tell it ({error})"))
        return Back(self._source, here, found)

    # -- where --------------------------------------------------------------------------------

    def _time_of(self, strategy: Strategy, notes: list[str]) -> int | None:
        if isinstance(strategy, AtTime):
            return strategy.at_ms
        if isinstance(strategy, SinceLastHeartbeat):
            beat, proof = last_heartbeat(self._config, self._target)
            notes.append(f"the last heartbeat is of {moment(beat / 1000)}, {proof}")
            return beat - int(strategy.margin_seconds * 1000)
        return None

    def _resolved(self, at_ms: int | None, seen: TargetLogs) -> Mapping[TopicPartition, int]:
        if at_ms is None:
            return {}
        # Before 0 are Kafka's own words for the ends of logs.
        asked = max(at_ms, 0)
        return admin.list_offsets(self._target, seen.metadata, seen.mirrored, asked)

    def _exact(
        self, found: SourcePositions, seen: TargetLogs, ledger: LedgerStore
    ) -> Mapping[str, Mapping[TopicPartition, Exact]]:
        """The exact places of all groups, where several flows meet the lowest of all flows."""
        exact: dict[str, dict[TopicPartition, Exact]] = {}
        wanted: dict[str, dict[TopicPartition, TranslatedOffset]] = {}
        for group, known in found.groups.items():
            for p, position in known.positions.items():
                if p not in seen.mirrored:
                    continue
                mirrored = seen.mirrored[p]
                places = seen.generations[p]
                other = places and position.source_id not in {None, NO_ID, places[-1].source_id}
                at = locate(mirrored, position.upstream, position.downstream)
                if other:
                    at = Exact(None, None, "its topic was created anew, and is not mirrored yet")
                exact.setdefault(group, {})[p] = at
                if at.offset is not None:
                    offset = TranslatedOffset(
                        position.upstream, at.offset, end=mirrored.end, paired=mirrored.paired
                    )
                    wanted.setdefault(group, {})[p] = offset
        limits = FlowMeeting(self._config, self._target, ledger).limits(wanted) if wanted else {}
        for (group, p), limit in limits.items():
            note = limit.why or exact[group][p].note
            exact[group][p] = Exact(limit.offset, limit.offset, note)
        return exact

    def _group(
        self,
        group: str,
        known: GroupPositions | None,
        standing: GroupStanding,
        there: Mapping[TopicPartition, Committed],
        seen: TargetLogs,
        exact: Mapping[TopicPartition, Exact],
        aims: Aims,
    ) -> GroupStart:
        """Everything of one group put together."""
        source, target = self._config.flow.source, self._config.flow.target
        positions = known.positions if known is not None else {}
        unclear = known.unclear if known is not None else {}
        partitions = self._partitions_of(group, {*positions, *unclear}, there, seen, aims)
        # Readers of remote topics who are at home on the target are not moved unasked.
        chosen = self._named or self._pattern is not None or isinstance(aims.strategy, FromFile)
        ours = known is not None or bool(chosen)
        starts: dict[TopicPartition, Start] = {}
        unset: dict[TopicPartition, str] = {}
        for p in sorted(partitions):
            now = there.get(p, Committed(-1))
            at = exact.get(p) or self._emptied(p, now, seen, aims)
            if p not in seen.mirrored:
                unset[p] = self._unseen(p, seen.metadata)
            elif now.error != NONE:
                unset[p] = f"what it has committed on {target} is unclear: {error_name(now.error)}"
            elif (ours or at is not None) and (aim := aims.of(group, p, at)) is not None:
                offset, note = aim
                start = start_at(p, offset, seen.log(p), committed=now.offset,
                                 exact=at.place if at is not None else None, note=note)  # fmt: skip
                position = positions.get(p)
                if position is not None:
                    kept = position.metadata if isinstance(aims.strategy, Translated) else ""
                    start = replace(start, upstream=position.upstream, metadata=kept,
                                    as_of_ms=position.as_of_ms)  # fmt: skip
                starts[p] = start
            elif at is not None:
                unset[p] = at.note
            elif p in unclear:
                unset[p] = unclear[p]
            elif now.offset >= 0:
                unset[p] = f"no offset of it on {source}: stays at {now.offset}, committed there"
            else:
                unset[p] = f"no offset of it on {source}: starts by auto.offset.reset"
        reason = standing.reason
        if not starts and not reason:
            reason = self._nowhere(known, unset)
        return GroupStart(group, standing.state, reason, starts, unset)

    @staticmethod
    def _emptied(
        p: TopicPartition, committed: Committed, seen: TargetLogs, aims: Aims
    ) -> Exact | None:
        """Where a group goes on whose offset was copied as it was into an empty log (KAFKA-12635).

        Its checkpoint may be missing: it is not known where an offset is that was never mirrored.
        """
        if not isinstance(aims.strategy, Translated) or p not in seen.mirrored:
            return None
        start, end = seen.log(p)
        return Exact(None, end, EMPTIED) if start == end <= committed.offset else None

    def _partitions_of(
        self,
        group: str,
        known: Collection[TopicPartition],
        there: Mapping[TopicPartition, Committed],
        seen: TargetLogs,
        aims: Aims,
    ) -> set[TopicPartition]:
        """All partitions of the topics that a group has to do with, and what a file names."""
        if isinstance(aims.strategy, FromFile):
            wanted = set(aims.strategy.offsets[group])
            topics = {p.topic for p in wanted}
        else:
            wanted = set(known)
            topics = {p.topic for p in known}
            topics |= {p.topic for p in there if self._topics.source(p.topic) is not None}
            if not topics and group in self._named:
                topics = self._chosen_topics()
        return wanted | {
            TopicPartition(name, index)
            for name in topics
            if name in seen.metadata.topics
            for index in seen.metadata.topics[name].partitions
        }

    def _unseen(self, partition: TopicPartition, metadata: Metadata) -> str:
        alias = self._config.flow.target
        if partition.topic in metadata.denied:
            return missing_right(self._target.settings, "Describe", "topic", partition.topic)
        if partition.topic not in metadata.topics:
            return f"{alias} has no topic {partition.topic}"
        if partition.partition not in metadata.topics[partition.topic].partitions:
            return f"{alias} has no such partition"
        return f"its leader on {alias} does not answer"

    def _nowhere(self, known: GroupPositions | None, unset: Mapping[TopicPartition, str]) -> str:
        """Why a group has no start at all."""
        source = self._config.flow.source
        if known is None and self.silent:
            return f"no checkpoint says where it is on {source}"
        if known is None:
            return f"has committed nothing on mirrored topics of {source}"
        if known.reason or not unset:
            return known.reason
        partition, why = min(unset.items())
        more = f" (and {len(unset) - 1} more)" if len(unset) > 1 else ""
        return f"{partition}: {why}{more}"
