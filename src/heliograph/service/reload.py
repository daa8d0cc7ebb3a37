"""What a changed configuration disturbs in a flow that runs. Pure.

A key that is not named here concerns the whole flow, which is then connected anew: that is always
right, and takes a second or two.
"""

from __future__ import annotations

from enum import StrEnum

from heliograph.config import FlowConfig
from heliograph.service.snapshot import CHECKPOINTS, HEARTBEATS

__all__ = ["Effect", "effects_of"]


class Effect(StrEnum):
    """What has to begin anew.

    HEARTBEATS, CHECKPOINTS: that part of the flow. JOBS: the control jobs of copying, but not
    copying itself. TOPICS: which topics are mirrored. REOPEN: everything, with new connections.
    """

    HEARTBEATS = HEARTBEATS
    CHECKPOINTS = CHECKPOINTS
    JOBS = "jobs"
    TOPICS = "topics"
    REOPEN = "reopen"


_EXACTLY = {
    "topics": Effect.TOPICS,
    "topics.exclude": Effect.TOPICS,
    "topic.filter.class": Effect.TOPICS,
    "heartbeats.replication.enabled": Effect.TOPICS,
    "groups": Effect.CHECKPOINTS,
    "groups.exclude": Effect.CHECKPOINTS,
    "group.filter.class": Effect.CHECKPOINTS,
    "config.properties.exclude": Effect.JOBS,
    "config.property.filter.class": Effect.JOBS,
    "use.defaults.from": Effect.JOBS,
    "heliograph.follow.log.start": Effect.JOBS,
    "heliograph.on.topic.deleted": Effect.JOBS,
    "heliograph.target.configs": Effect.JOBS,
    "heliograph.canary.interval.seconds": Effect.JOBS,
}
_BEGINNING = {
    "emit.heartbeats.": Effect.HEARTBEATS,
    "emit.checkpoints.": Effect.CHECKPOINTS,
    "sync.group.offsets.": Effect.CHECKPOINTS,
    "refresh.groups.": Effect.CHECKPOINTS,
    "refresh.topics.": Effect.JOBS,
    "sync.topic.": Effect.JOBS,
    "heliograph.acls.": Effect.JOBS,
    "heliograph.drill.": Effect.CHECKPOINTS,
}


def effects_of(old: FlowConfig, new: FlowConfig) -> frozenset[Effect]:
    """What has to begin anew when ``new`` takes the place of ``old``; nothing if they are equal."""
    return frozenset(_effect(key) for key in old.changes(new))


def _effect(key: str) -> Effect:
    found = (effect for start, effect in _BEGINNING.items() if key.startswith(start))
    return _EXACTLY.get(key) or next(found, Effect.REOPEN)
