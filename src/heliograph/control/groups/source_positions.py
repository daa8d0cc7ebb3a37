"""Where the groups of a flow are on its source: by its coordinators, else by the checkpoints.

Runs in commands and in the driver. Nothing of the source is needed: of groups that nobody there
answers for, the newest checkpoints on the target tell. Their offset of the target may have been cut
to the target's end of that time; only their offset of the source is used.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from heliograph.config import FlowConfig
from heliograph.config.key import compile_pattern
from heliograph.control.groups.translated import explain, unsupported
from heliograph.errors import HeliographError
from heliograph.mm2.checkpoints import CheckpointLog
from heliograph.model import TopicPartition
from heliograph.policy import TopicSelection
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import NONE, WireError, error_name
from heliograph.wire.groups import GroupClient

__all__ = [
    "FlowTopics",
    "GroupPositions",
    "Position",
    "SourcePositions",
    "find_positions",
    "mirrored_topics",
]


@dataclass(frozen=True, slots=True)
class Position:
    """What a group has committed for a partition of the source.

    Attributes:
        source_id: of the topic that it is about; None if the source was not asked.
        as_of_ms: when that was so.
        downstream: where that was on the target, by a checkpoint; None if it is not from there.
    """

    source: TopicPartition
    upstream: int
    metadata: str
    as_of_ms: int
    source_id: uuid.UUID | None = None
    downstream: int | None = None


@dataclass(slots=True)
class GroupPositions:
    """The positions of a group, by partition of the target.

    Attributes:
        unclear: partitions of the target of whose source nothing is known, with the reason.
        reason: why nothing is known of the group at all; empty if something is.
        answered: whether the source answered for it; otherwise they are those of checkpoints.
    """

    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    unclear: dict[TopicPartition, str] = field(default_factory=dict)
    reason: str = ""
    answered: bool = True


@dataclass(slots=True)
class SourcePositions:
    """All groups of a flow that have a position, or of which that could not be found out.

    Attributes:
        silent: the source did not answer for all groups, in words; empty if it did.
        checkpoints_ms: when the newest checkpoint was written, if checkpoints were needed.
    """

    groups: dict[str, GroupPositions] = field(default_factory=dict)
    silent: str = ""
    checkpoints_ms: int | None = None


class FlowTopics:
    """Names of a flow's topics on both sides, of those that it mirrors; remembers them.

    Args:
        only: no other topics of the source than these; None for all.
    """

    def __init__(self, config: FlowConfig, only: Collection[str] | None = None) -> None:
        self._flow = config.flow
        self._selection = TopicSelection(config)
        self._only = None if only is None else frozenset(only)
        self._remote: dict[str, str | None] = {}
        self._source: dict[str, str | None] = {}

    def remote(self, topic: str) -> str | None:
        """The remote topic of a source topic; None if it is left out."""
        if topic not in self._remote:
            wanted = (self._only is None or topic in self._only) and self._selection.includes(topic)
            name = self._selection.policy.format_remote_topic(self._flow.source, topic)
            self._remote[topic] = name if wanted else None
        return self._remote[topic]

    def source(self, topic: str) -> str | None:
        """The source topic of a topic of the target; None if it is none of this flow."""
        if topic not in self._source:
            upstream = self._selection.policy.upstream_topic(topic)
            ours = upstream is not None and self.remote(upstream) == topic
            self._source[topic] = upstream if ours else None
        return self._source[topic]


def mirrored_topics(config: FlowConfig, target: ClusterClient, pattern: str) -> list[str]:
    """Source topics whose whole name matches, of those that the target has; the source may be gone.

    Raises:
        ValueError: ``pattern`` is no expression.
        WireError: the target does not answer.
    """
    topics, wanted = FlowTopics(config), compile_pattern(pattern)
    names = {topics.source(name) for name in target.metadata().topics}
    return sorted(name for name in names if name is not None and wanted.fullmatch(name))


def find_positions(
    source: ClusterClient | None,
    topics: FlowTopics,
    accepts: Callable[[str], bool],
    checkpoints: CheckpointLog | None,
) -> SourcePositions:
    """Ask the source, and the checkpoints for whatever it does not answer.

    Args:
        source: None if it is not to be asked.
        topics: which partitions count.
        accepts: which groups count.
        checkpoints: None if the target has none.

    Raises:
        WireError: the target does not answer.
        HeliographError: the checkpoints cannot be read.
    """
    found = SourcePositions()
    complete = False
    if source is None:
        found.silent = "was not asked"
    else:
        try:
            complete = _ask(source, topics, accepts, found)
        except WireError as error:
            found.silent = f"does not answer ({error})"
    if not complete and checkpoints is not None:
        try:
            checkpoints.refresh()
        except ValueError as error:
            raise HeliographError("groups.checkpoints-unreadable", str(error)) from error
        _read(checkpoints, topics, accepts, found)
    found.groups = {
        g: known for g, known in found.groups.items()
        if known.positions or known.unclear or known.reason
    }  # fmt: skip
    return found


def _ask(
    source: ClusterClient,
    topics: FlowTopics,
    accepts: Callable[[str], bool],
    found: SourcePositions,
) -> bool:
    """Enter what the source's coordinators say; whether nothing is left for the checkpoints."""
    client = GroupClient(source)
    listed = client.list_groups()
    groups = {g: info for g, info in listed.groups.items() if accepts(g)}
    why = {g: unsupported(info) for g, info in groups.items()}
    now = int(time.time() * 1000)
    answers = client.committed(g for g in groups if not why[g])
    names = {p.topic for offsets in answers.found.values() for p in offsets}
    # After the offsets, as in GroupTranslation: they are about these topics, or older ones.
    here = source.metadata(sorted(n for n in names if topics.remote(n) is not None)).topics
    for group, reason in why.items():
        if reason:
            found.groups[group] = GroupPositions(reason=reason)
    for group, error in answers.errors.items():
        reason = explain(error, source.settings, "Describe", group)
        found.groups[group] = GroupPositions(reason=reason, answered=False)
    for group, offsets in answers.found.items():
        known = found.groups[group] = GroupPositions()
        for partition, committed in offsets.items():
            remote = topics.remote(partition.topic)
            if remote is None:
                continue
            target = TopicPartition(remote, partition.partition)
            if committed.error != NONE:
                known.unclear[target] = f"{source.alias} says {error_name(committed.error)} of it"
            elif committed.offset >= 0:
                topic_id = here[partition.topic].topic_id if partition.topic in here else None
                known.positions[target] = Position(
                    partition, committed.offset, committed.metadata, now, topic_id
                )
    failures = [*listed.failures, *answers.errors.values()]
    if failures:
        found.silent = f"does not answer for all groups ({failures[0]})"
    return not found.silent and listed.all_visible


def _read(
    checkpoints: CheckpointLog,
    topics: FlowTopics,
    accepts: Callable[[str], bool],
    found: SourcePositions,
) -> None:
    """Enter the checkpoints of groups that the source has not answered for."""
    wanted: dict[str, bool] = {}
    for key, checkpoint in checkpoints.known.items():
        group, topic, partition = key
        known = found.groups.get(group)
        if group not in wanted:
            wanted[group] = accepts(group) and (known is None or not known.answered)
        upstream = topics.source(topic)
        if not wanted[group] or upstream is None:
            continue
        if known is None or known.reason:
            known = found.groups[group] = GroupPositions(answered=False)
        written = checkpoints.stamps[key]
        found.checkpoints_ms = max(found.checkpoints_ms or 0, written)
        known.positions[TopicPartition(topic, partition)] = Position(
            TopicPartition(upstream, partition), checkpoint.upstream, checkpoint.metadata, written,
            downstream=checkpoint.downstream,
        )  # fmt: skip
