"""Dealing partitions to leases: by weight, and sticky. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heliograph.model import TopicPartition

#: A lease may carry this much more than its share before partitions are moved away from it.
_TOLERANCE = 1.25


def assign(
    weights: Mapping[TopicPartition, float],
    leases: int,
    previous: Sequence[Sequence[TopicPartition]] = (),
) -> list[list[TopicPartition]]:
    """Deal partitions to at most ``leases`` lists of similar weight.

    Every partition is dealt exactly once. One that was in list i before stays there unless that
    list would outgrow its share; the heaviest are placed first, so that the lightest do the moving.
    """
    count = min(leases, len(weights))
    if count == 0:
        return []
    home = {p: i for i, group in enumerate(previous) for p in group if i < count}
    fair = sum(weights.values()) / count
    dealt: list[list[TopicPartition]] = [[] for _ in range(count)]
    load = [0.0] * count
    order = sorted(weights, key=lambda p: (-weights[p], p))
    for partition in order:
        weight = weights[partition]
        index = home.get(partition)
        if index is None or (dealt[index] and load[index] + weight > fair * _TOLERANCE):
            index = min(range(count), key=lambda i: (load[i], len(dealt[i])))
        dealt[index].append(partition)
        load[index] += weight
    return [group for group in dealt if group]
