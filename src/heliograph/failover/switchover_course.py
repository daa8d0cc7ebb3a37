"""What the steps of one switchover share. In a command or the driver, one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from heliograph.control.groups.start_rules import GroupStart
from heliograph.failover.fence import Fence
from heliograph.failover.group_places import GroupPlaces
from heliograph.failover.quiet import Ends, grown
from heliograph.failover.refusals import HandoverFailed
from heliograph.failover.steps import Steps
from heliograph.failover.switchover_check import SwitchoverWish, most
from heliograph.failover.two_sides import Shared, TwoSides
from heliograph.ledger.holds import Subject
from heliograph.model import TopicPartition
from heliograph.units import counted, duration

__all__ = ["PARTS", "Course"]

#: The parts that change direction: heartbeats go both ways all the time.
PARTS = (Subject.part("copying"), Subject.part("checkpoints"))
_LOOK_SECONDS, _TELL_SECONDS = 0.2, 2.0


@dataclass(slots=True)
class Course:
    """A switchover on its way.

    Attributes:
        shared: the partitions that change direction.
        still: where the source ended when it had come to rest.
        starts: where groups were put, by this run.
    """

    two: TwoSides
    wish: SwitchoverWish
    steps: Steps
    shared: Shared
    scope: str
    still: Mapping[TopicPartition, Ends] = field(default_factory=dict)
    starts: Mapping[str, GroupStart] | None = None

    @property
    def past(self) -> bool:
        """Whether the point of no return is behind us."""
        return bool(self.steps.handover.facts.get("past"))

    @property
    def fence_of_source(self) -> Fence:
        """What keeps clients from the source."""
        return Fence(self.two.back.client, self.two.back.fences)

    @property
    def groups(self) -> GroupPlaces:
        """The groups that are moved."""
        topics = self.steps.handover.topics
        chosen = None if topics is None else frozenset(topics)
        return GroupPlaces(self.two, self.wish.groups, chosen)

    def subjects(self) -> list[Subject]:
        """What of the flow rests afterwards."""
        topics = self.steps.handover.topics
        return list(PARTS) if topics is None else [Subject.topic(topic) for topic in topics]

    def require_still(self) -> None:
        """Nothing may have been written to the source since it was quiet."""
        if writers := grown(self.still, self.two.ends(self.shared)):
            raise self.written(writers)

    def written(self, writers: Mapping[TopicPartition, int]) -> HandoverFailed:
        """Somebody did not stop."""
        source = self.two.config.flow.source
        named = ", ".join(f"{p} grew by {counted(n, 'record')}" for p, n in most(writers))
        return HandoverFailed(
            "switchover.writer",
            f"somebody still writes to {source}: {named}",
            "a fence does not hold for super users; stop that producer, then repeat this command",
        )

    def wait(
        self,
        step: str,
        done: Callable[[], bool],
        why: Callable[[], str],
        hint: str = "",
    ) -> None:
        """Ask again and again; raises HandoverFailed with the reason when the time is up."""
        began = told = time.monotonic()
        while not done():
            now = time.monotonic()
            if now - began > self.wish.timeout_seconds:
                waited = duration(self.wish.timeout_seconds)
                raise HandoverFailed(f"switchover.{step}", f"{why()} (after {waited})", hint)
            if now - told > _TELL_SECONDS:
                told = now
                self.steps.say(step, why())
            time.sleep(_LOOK_SECONDS)
