"""How the groups of a flow stand on both sides, without changing anything. Runs in commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heliograph.config import FlowConfig
from heliograph.control.groups.offset_sync import ABSENT, GroupOffsetSync, GroupStanding, held
from heliograph.control.groups.shared_partitions import FlowMeeting
from heliograph.control.groups.translated import (
    GroupTranslation,
    TranslatedGroup,
    ledger_of,
    partitions,
)
from heliograph.control.topics.refresh import TopicPlan, TopicRefresh
from heliograph.ledger.handovers import RestingCuts
from heliograph.ledger.reverse import reverse_of
from heliograph.mm2.checkpoints import CheckpointLog
from heliograph.policy import policy_from
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.groups import GroupClient

__all__ = ["GroupPreview", "GroupRow", "preview"]


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of the source.

    Attributes:
        kind: classic, consumer, share or streams; empty where brokers do not tell.
        state: on the source; ``target_state``: on the target, ``absent`` if it is not there.
        translated: of how many of its ``partitions`` the offset has a place on the target.
        behind: offsets that the group has read and that are not mirrored yet.
        checkpoint_ms: when its newest checkpoint was written; None if there is none.
        note: what to know, such as why its offsets are not synced.
    """

    group: str
    kind: str
    state: str
    target_state: str
    partitions: int
    translated: int
    behind: int
    checkpoint_ms: int | None
    note: str


@dataclass(frozen=True, slots=True)
class GroupPreview:
    """The groups of a flow, and what concerns all of them."""

    rows: Sequence[GroupRow]
    notes: Sequence[str]


def preview(config: FlowConfig, source: ClusterClient, target: ClusterClient) -> GroupPreview:
    """Look at the groups as the jobs of a running mirror do; raises WireError, HeliographError."""
    flow = config.flow
    ledger = ledger_of(config, target)
    cuts = RestingCuts(ledger.follower)
    found = TopicRefresh(config, source, target).compare()
    plan = TopicPlan(found.partitions, {}, found.source, found.target)
    reverse = reverse_of(config, source, target, found.source, found.remote)
    translation = GroupTranslation.of(
        config, source, target, ledger, lambda: plan, lambda: reverse, cuts.at
    )
    seen = translation.latest(0.0)
    there = GroupClient(target)
    meeting = FlowMeeting(config, target, ledger)
    standings = GroupOffsetSync(flow, translation, there, 0.0, meeting).look(seen)
    states = {name: group.state for name, group in there.list_groups().groups.items()}
    notes = [seen.blind_spot] if seen.blind_spot else []
    written: dict[str, int] = {}
    checkpoints = policy_from(config).checkpoints_topic(flow.source)
    if checkpoints in target.metadata([checkpoints]).topics:
        log = CheckpointLog(target, checkpoints)
        try:
            log.refresh()
        except ValueError as error:
            notes.append(str(error))
        written = log.written_ms
    others = len(GroupClient(source).list_groups().groups) - len(seen.groups)
    if others > 0:
        count = "1 more group is" if others == 1 else f"{others} more groups are"
        notes.append(f"{count} left out by groups and groups.exclude")
    if not config.emit_checkpoints_enabled:
        notes.append("no checkpoints are written: emit.checkpoints.enabled=false")
    if not config.sync_group_offsets_enabled:
        text = f"offsets are not committed on {flow.target}: sync.group.offsets.enabled=false"
        notes.append(text)
    rows = [
        GroupRow(
            name,
            group.listed.kind,
            group.listed.state,
            states.get(name, ABSENT),
            len(group.offsets) + len(group.untranslated),
            len(group.offsets),
            group.behind,
            written.get(name),
            _note(group, standings.get(name), config),
        )
        for name, group in sorted(seen.groups.items())
    ]
    return GroupPreview(rows, notes)


def _note(group: TranslatedGroup, standing: GroupStanding | None, config: FlowConfig) -> str:
    said = []
    if group.error or group.untranslated or not group.offsets:
        said.append(group.summary())
    if standing is not None and config.sync_group_offsets_enabled:
        said.append(_sync_note(standing, config.flow.source))
    return "; ".join(filter(None, said))


def _sync_note(standing: GroupStanding, source: str) -> str:
    said = [standing.reason] if standing.reason else []
    if standing.writes:
        said.append(f"{partitions(len(standing.writes))} to sync")
    if standing.ahead:
        partition, by = max(standing.ahead.items(), key=lambda item: item[1])
        said.append(f"ahead of {source} by {by} on {partition}: kept")
    if standing.held:
        said.append(held(standing))
    return ", ".join(said)
