"""The steps of a switchover that can be taken back: until the reverse flow is started.

In a command or the driver, one thread.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from heliograph.control.moves import set_positions
from heliograph.failover.group_places import behind
from heliograph.failover.quiet import QuietWatch
from heliograph.failover.refusals import HandoverFailed
from heliograph.failover.stopping import stop_mirrors
from heliograph.failover.switchover_check import few, most
from heliograph.failover.switchover_course import Course
from heliograph.model import TopicPartition
from heliograph.units import counted, duration, moment

__all__ = ["Approach"]

#: What was on its way when producers were stopped may arrive for so long.
_GRACE_SECONDS = 3.0


class Approach:
    """Takes a switchover to the point of no return."""

    def __init__(self, course: Course) -> None:
        self._course, self._steps, self._shared = course, course.steps, course.shared
        self._two, self._wish = course.two, course.wish
        self._flow, self._reverse = course.two.config.flow, course.two.reverse.flow

    def run(self) -> None:
        """All steps, each of which finds what an earlier run did; raises HandoverFailed."""
        self._announce()
        self._fence()
        self._quiet()
        self._drain()
        self._consumers()
        self._stop()
        self._prove()
        self._groups()
        self._decide_start()

    def _announce(self) -> None:
        if self._steps.through("announce"):
            handover = self._steps.handover
            text = f"goes on with the switchover that {handover.by} began"
            self._steps.say("announce", f"{text} at {moment(handover.began_ms / 1000)}")
            return
        with self._steps.step("announce", "writing down that it begins"):
            pass

    def _fence(self) -> None:
        facts = self._steps.handover.facts
        if not (self._wish.fence or facts.get("fence")):
            return
        source = self._flow.source
        with self._steps.step("fence", f"denying everybody to write to {source}") as done:
            # Before it is done: `_take_back` goes by it.
            now_ms = int(time.time() * 1000)
            self._steps.remember(fence=True, stopped_ms=facts.get("stopped_ms", now_ms))
            found = self._course.fence_of_source.put_up(
                self._shared.topics, self._steps.handover.id, self._wish.by
            )
            text = f"{counted(len(self._shared.topics), 'topic')} of {source} take no writes"
            others = f"; {len(found.others)} took none before" if found.others else ""
            done(text + others)

    def _quiet(self) -> None:
        wish, source = self._wish, self._flow.source
        with self._steps.step("quiet", f"waiting until nothing is written to {source}") as done:
            if "stopped_ms" not in self._steps.handover.facts:
                self._steps.remember(stopped_ms=int(time.time() * 1000))
            watch = QuietWatch(wish.quiet_seconds, _GRACE_SECONDS)

            def is_quiet() -> bool:
                self._course.still = self._two.ends(self._shared)
                quiet = watch.look(self._course.still, time.monotonic())
                if watch.writers:
                    raise self._course.written(watch.writers)
                return quiet

            def why() -> str:
                if not watch.waits_for:
                    return f"the ends of {source} do not stand still"
                return (
                    f"a transaction is open in {few(watch.waits_for)} of {source}: its producer"
                    " has to end it, or to time out"
                )

            self._course.wait("quiet", is_quiet, why)
            done(f"{source} stood still for {duration(wish.quiet_seconds)}")

    def _drain(self) -> None:
        flow = self._flow
        with self._steps.step("drain", f"waiting until {flow.target} has all of it") as done:
            lags: dict[TopicPartition, int] = {}

            def is_drained() -> bool:
                nonlocal lags
                self._course.require_still()
                mirrored = self._two.mirrored(self._shared)
                lags = self._two.lags(
                    self._shared, self._course.still, self._two.positions(mirrored)
                )
                return not lags

            self._course.wait("drain", is_drained, lambda: (
                f"{counted(sum(lags.values()), 'record')} of {flow.source} are not on"
                f" {flow.target}: {few(lags)}"
            ))  # fmt: skip
            done(f"{counted(len(self._shared.targets), 'partition')} are at the end")

    def _consumers(self) -> None:
        """Groups in use read to the end: what a consumer has not committed, it would read twice."""
        with self._steps.step("consumers", "waiting for consumers to commit the end") as done:
            groups = self._course.groups
            waiting: dict[str, int] = {}
            used: Mapping[str, str] = {}

            def are_through() -> bool:
                nonlocal waiting, used
                self._course.require_still()
                mirrored = self._two.mirrored(self._shared)
                found = groups.look()
                used = groups.in_use(found)
                positions = self._two.positions(mirrored)
                sources = {target: p for p, target in mirrored.targets.items()}
                counts = {name: behind(found[name], sources, positions) for name in used}
                waiting = {name: count for name, count in counts.items() if count}
                return not waiting

            def why() -> str:
                named = ", ".join(f"{g} is {counted(n, 'record')} behind" for g, n in most(waiting))
                return f"{counted(len(waiting), 'group')} did not commit the end: {named}"

            if not self._wish.force:
                self._course.wait("consumers", are_through, why, (
                    "have these consumers commit, or stop them; --force moves them to what they"
                    " have committed, and they read the rest again"
                ))  # fmt: skip
            elif not are_through():
                done(f"{why()}; they will read that again on {self._flow.target}")
                return
            done(f"{counted(len(used), 'group')} in use, all at the end")

    def _stop(self) -> None:
        side, reverse = self._two.side, self._reverse
        with self._steps.step("stop", f"stopping all mirrors of {self._flow}") as done:
            subjects = self._course.subjects()
            if "held" not in self._steps.handover.facts:
                fresh = [list(s) for s in subjects if s not in side.holds.held]
                self._steps.remember(held=fresh)
            answers = subjects if self._steps.handover.topics is not None else subjects[:1]
            why = f"in standby: {reverse} is the direction that is used now"
            stopped = stop_mirrors(
                side, subjects, self._steps.handover.by, why, standby=True, answers=answers,
                patience_seconds=self._wish.timeout_seconds, scope=self._course.scope,
            )  # fmt: skip
            mirrored = self._two.mirrored(self._shared)
            cuts = {p: at.cut for p, at in self._two.positions(mirrored).items()}
            side.handovers.cut(side.cuts(self._steps.handover.id, mirrored, cuts))
            done(f"{stopped.by} rests" if stopped.by else "no mirror was left")

    def _prove(self) -> None:
        flow = self._flow
        with self._steps.step("prove", "comparing the ends of both sides") as done:
            self._require_equal()
            done(f"{counted(len(self._shared.targets), 'partition')} end alike on {flow.source} and"
                 f" {flow.target}")  # fmt: skip

    def _require_equal(self) -> None:
        """Nothing may be on the source that is not on the target; raises HandoverFailed."""
        flow, pattern = self._flow, self._wish.topics
        self._course.require_still()
        now = self._two.look(pattern)
        new = sorted({*(p.topic for p in now.targets.keys() - self._shared.targets.keys()),
                      *now.unmirrored})  # fmt: skip
        if new and self._steps.handover.topics is None:
            raise HandoverFailed(
                "switchover.new-topics",
                f"topics or partitions were created on {flow.source} meanwhile: {few(new)}",
                "repeat this command",
            )
        mirrored = self._two.mirrored(self._shared)
        positions = self._two.positions(mirrored)
        lags = self._two.lags(self._shared, self._course.still, positions)
        silent = mirrored.places.keys() - positions.keys()
        if lags or silent:
            raise HandoverFailed(
                "switchover.unequal",
                f"{flow.target} does not have all of {flow.source}: {few(lags or silent)}",
                "repeat this command when its partitions have leaders",
            )

    def _groups(self) -> None:
        """Move groups; those that were moved by an earlier run are left where they are."""
        earlier: Mapping[str, int] = self._steps.handover.facts.get("groups", {})
        with self._steps.step("groups", "moving consumer groups") as done:
            places = self._course.groups
            found = places.look()
            fresh = {name: start for name, start in found.items() if name not in earlier}
            moved = places.write(fresh, rewind=self._wish.rewind)
            self._course.starts = found
            through = {n: m.written + m.already for n, m in moved.items() if not m.reason}
            # Those that could not be moved from the beginning were accepted with the plan.
            failed = {n: m.reason for n, m in moved.items() if m.reason and not fresh[n].reason}
            if failed and not self._wish.force:
                name, reason = min(failed.items())
                raise HandoverFailed(
                    "switchover.groups",
                    f"{counted(len(failed), 'group')} cannot be moved: {name} {reason}",
                    "--force leaves them where they are",
                )
            left = {n: m.reason for n, m in moved.items() if m.reason}
            self._steps.remember(groups={**earlier, **through}, groups_left=left)
            text = f"{counted(len(through) + len(earlier), 'group')} moved"
            done(f"{text}, {len(left)} not" if left else text)

    def _decide_start(self) -> None:
        """The last thing that can be taken back: where the reverse flow begins."""
        two = self._two
        self._steps.say("start", f"writing down where {self._reverse} begins")
        self._steps.remember(moves=True)
        set_positions(two.reverse, two.side.client, two.back.client, self._beginnings())
        self._require_equal()
        self._steps.remember(past=True)

    def _beginnings(self) -> dict[TopicPartition, int]:
        """Where the reverse flow begins: behind what came from the source.

        It need not read that to find out that it is not to be copied.
        """
        found = {}
        for p, at in self._two.positions(self._two.mirrored(self._shared)).items():
            name = self._two.returns(p.topic)
            if name is not None and not at.goes_on:
                found[TopicPartition(name, p.partition)] = at.behind_all
        return found
