"""Whether the target can take what clients are going to write to it."""

from __future__ import annotations

from heliograph.failover.target_side import Mirrored, TargetSide
from heliograph.wire import configs

__all__ = ["unwritable"]

_LEAST = "min.insync.replicas"


def unwritable(side: TargetSide, mirrored: Mirrored) -> list[str]:
    """Partitions of the target that take no writes now, each with the reason; raises WireError."""
    topics = sorted({p.topic for p in mirrored.targets.values()})
    answer = configs.describe(side.client, topics, [_LEAST])
    found = []
    for partition in sorted(set(mirrored.targets.values())):
        info = mirrored.metadata.topics[partition.topic].partitions[partition.partition]
        least = int(answer.value(partition.topic, _LEAST, "1"))
        if info.leader < 0:
            found.append(f"{partition} has no leader")
        elif 0 <= info.in_sync < least:
            found.append(f"{partition} has {info.in_sync} replicas in sync, {_LEAST} is {least}")
    return found
