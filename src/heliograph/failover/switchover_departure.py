"""The steps of a switchover behind the point of no return. In a command or the driver."""

from __future__ import annotations

import time

from heliograph.failover.fence import Fence
from heliograph.failover.refusals import HandoverFailed
from heliograph.failover.switchover_check import rests
from heliograph.failover.switchover_course import PARTS, Course
from heliograph.ledger.holds import Subject
from heliograph.units import counted
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

__all__ = ["Departure"]

_REQUEST_SECONDS = 10.0


class Departure:
    """Starts the reverse flow, and lets clients go on at the target."""

    def __init__(self, course: Course) -> None:
        self._course, self._steps, self._shared = course, course.steps, course.shared
        self._two, self._wish = course.two, course.wish
        self._flow, self._reverse = course.two.config.flow, course.two.reverse.flow

    def run(self) -> None:
        """All steps, each of which finds what an earlier run did; raises HandoverFailed."""
        self._start()
        self._unfence()
        self._await_copies()

    def _start(self) -> None:
        reverse, facts = self._reverse, self._steps.handover.facts
        if self._steps.through("start"):
            return
        with self._steps.step("start", f"starting {reverse}") as done:
            if facts.get("fence"):
                self._let_mirror_write()
            back = self._two.back
            back.refresh()
            held = back.holds.held
            chosen = self._steps.handover.topics
            if chosen is None:
                back.holds.lift([*PARTS, *(s for s, h in held.items() if h.standby)])
            else:
                self._start_topics(chosen)
            self._steps.remember(started_ms=back.holds.start(self._wish.by, handover=True))
            done(f"it begins where {self._flow} has ended")

    def _start_topics(self, chosen: tuple[str, ...]) -> None:
        """Of the reverse flow only these topics; it may run already, for others."""
        two = self._two
        names = {topic: two.returns(topic) or topic for topic in two.look(None).topics}
        if rests(two.back, two.reverse) is not None:
            others = [Subject.topic(name) for topic, name in names.items() if topic not in chosen]
            why = f"in standby: {self._flow} is the direction that is used now"
            two.back.holds.hold(others, self._wish.by, why, standby=True)
        two.back.refresh()
        two.back.holds.lift([*PARTS, *(Subject.topic(names.get(t, t)) for t in chosen)])

    def _let_mirror_write(self) -> None:
        """The fence of the source must not keep the reverse flow out."""
        client = ClusterClient(
            self._two.reverse.target_client, f"{self._reverse}|handover-writer",
            request_timeout=_REQUEST_SECONDS,
        )  # fmt: skip
        with client:
            stays = not admin.unwritable(client, self._shared.topics)
        self._steps.remember(fence_stays=stays)
        if not stays:
            self._course.fence_of_source.take_down(self._shared.topics)

    def _unfence(self) -> None:
        target = self._flow.target
        if self._steps.through("unfence"):
            return
        with self._steps.step("unfence", f"letting clients write to {target}") as done:
            side = self._two.side
            side.refresh()
            names = {target.topic for target in self._shared.targets.values()}
            topics = Fence(side.client, side.fences).take_down(names)
            self._steps.remember(open_ms=int(time.time() * 1000))
            lifted = f"; the fence of {counted(topics, 'topic')} is gone" if topics else ""
            done(f"clients can go on at {target}{lifted}")

    def _await_copies(self) -> None:
        reverse, back = self._reverse, self._two.back
        with self._steps.step("copies", f"waiting for a mirror that copies {reverse}") as done:
            started_ms = self._steps.handover.facts["started_ms"]

            def copies() -> bool:
                back.refresh()
                return any(r.started_ms >= started_ms for r in back.holds.resting.values())

            try:
                self._course.wait("copies", copies, lambda: f"no mirror copies {reverse} yet")
            except HandoverFailed as error:
                target = self._flow.target
                raise HandoverFailed(
                    "switchover.not-copied",
                    f"clients can go on at {target}, but {error.args[0]}",
                    f"see to the mirror of {reverse}; the same command then ends this switchover",
                ) from error
            done(f"{reverse} is copied")
