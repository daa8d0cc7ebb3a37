"""Topics with the state of their worst partition. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from heliograph.model import PartitionState
from heliograph.service.snapshot import FlowSnapshot, PartitionSnapshot, TopicSnapshot, to_json

__all__ = ["WORST", "TopicRow", "topic_rows"]

#: How much a state should worry somebody.
WORST = {state: number for number, state in enumerate(PartitionState)}


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic of a flow, and its worst partition if it has any.

    ``paused``: by whom and why the topic was paused, if it was.
    """

    flow: str
    topic: TopicSnapshot
    worst: PartitionSnapshot | None
    paused: str | None

    @property
    def worry(self) -> int:
        """How much it should worry somebody."""
        return WORST[self.worst.state] if self.worst is not None else -1

    def to_json(self) -> dict[str, Any]:
        """The topic, what it does, since when, why, and when it is tried again.

        ``state`` is "paused" unless something worse is known. ``partition`` is the one that is
        spoken of, null if it is all of them.
        """
        plain = {"flow": self.flow, **to_json(self.topic), "paused": self.paused}
        worst = to_json(self.worst) if self.worst is not None else {}
        said = {name: worst.get(name) for name in ("state", "since", "next_try", "reason", "code")}
        one = self.worst is not None and self.worst.troubled
        if self.paused is not None and self.worry <= WORST[PartitionState.WAITING]:
            # A partition with nothing to copy does not wait.
            since = said["since"] if one else None
            said |= {"state": "paused", "since": since, "reason": self.paused, "code": ""}
            one = False
        return {**plain, **said, "partition": worst["partition"] if one else None}


def topic_rows(flow: FlowSnapshot) -> list[TopicRow]:
    """All topics of a flow, in its order."""
    worst = _worst_of(flow.partitions)
    return [
        TopicRow(flow.flow, t, worst.get(t.topic), flow.paused_topics.get(t.topic))
        for t in flow.topics
    ]


def _worst_of(partitions: Iterable[PartitionSnapshot]) -> dict[str, PartitionSnapshot]:
    """Of each topic; of several the one that was so first, for that is since when the topic is.

    But a topic is idle since the last of them is.
    """
    found: dict[str, PartitionSnapshot] = {}
    for p in partitions:
        known = found.get(p.topic)
        if known is None or _worry(p) > _worry(known):
            found[p.topic] = p
    return found


def _worry(p: PartitionSnapshot) -> tuple[int, float]:
    return WORST[p.state], p.since if p.state is PartitionState.IDLE else -p.since
