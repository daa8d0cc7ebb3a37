"""Switchover: clients change to the target, on purpose: nothing is lost, nothing is repeated.

    announce   the switchover is in the ledger: whoever repeats the command goes on from there
    fence      nobody may write to the source, if that was asked for
    quiet      the proof: ends of the source stand still, and no transaction is open
    drain      the mirror copies to the end
    consumers  groups read to the end, and commit
    stop       all mirrors of the flow rest
    prove      both ends are equal
    groups     consumer groups are moved to their exact offsets
    start      the reverse flow begins where the flow has ended
    unfence    the target takes writes: clients go on there
    copies     a mirror says that it copies the other way

All is taken back in the opposite order if something speaks against it before the reverse flow is
started, and the old direction runs on. From there on there is only forward. What has to be taken
back is written down before it is done. In a command or the driver.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from heliograph.config import FlowConfig
from heliograph.control.groups.start_rules import GroupStart, Moved
from heliograph.errors import HeliographError, WireError
from heliograph.failover.lock import Lock, one_at_a_time
from heliograph.failover.refusals import HandoverFailed, HandoverRefused, raise_refused
from heliograph.failover.steps import Steps, Tell
from heliograph.failover.switchover_approach import Approach
from heliograph.failover.switchover_check import SwitchoverPlan, SwitchoverWish, check
from heliograph.failover.switchover_course import PARTS, Course
from heliograph.failover.switchover_departure import Departure
from heliograph.failover.switchover_undo import take_back
from heliograph.failover.two_sides import Shared, TwoSides
from heliograph.ledger.handovers import CutAt, Handover, Kind
from heliograph.ledger.holds import Subject
from heliograph.ledger.rehearsals import Rehearsal, RehearsalKind
from heliograph.model import TopicPartition
from heliograph.units import counted

__all__ = ["STEPS", "Switchover", "SwitchoverReport"]

STEPS = (
    "announce", "fence", "quiet", "drain", "consumers", "stop", "prove", "groups", "start",
    "unfence", "copies",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SwitchoverReport:
    """What a switchover did.

    Attributes:
        positions: where each partition of the source ended, and the target's counterpart.
        moved: what became of each group; starts: where they were put.
        left_behind: groups that still have members on the source, with their state.
        fenced: whether the source takes no writes of clients now; None if no fence was asked for.
        pause_seconds: how long producers could write to neither side.
        rto_seconds: from its beginning until clients could go on.
        took: seconds of each step of this run.
        repeated: it was through already.
    """

    flow: str
    reverse: str
    handover: Handover
    positions: Mapping[TopicPartition, CutAt]
    targets: Mapping[TopicPartition, TopicPartition]
    moved: Mapping[str, Moved]
    starts: Mapping[str, GroupStart]
    left_behind: Mapping[str, str]
    fenced: bool | None
    pause_seconds: float
    rto_seconds: float
    took: Mapping[str, float]
    repeated: bool = False

    @property
    def left(self) -> dict[str, str]:
        """Groups that were not moved, with the reason."""
        return {name: moved.reason for name, moved in self.moved.items() if moved.reason}


class Switchover:
    """One switchover of one flow, with connections of its own. Use it as a context manager."""

    def __init__(
        self,
        config: FlowConfig,
        reverse: FlowConfig,
        wish: SwitchoverWish,
        tell: Tell,
        *,
        scope: str = "",
    ) -> None:
        self._config = config
        self._reverse = reverse
        self._wish = wish
        self._tell = tell
        self._scope = scope
        self._open = ExitStack()
        self._two = self._open.enter_context(TwoSides(config, reverse, scope))

    def __enter__(self) -> Switchover:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    # -- looking and doing --------------------------------------------------------------------

    def plan(self) -> SwitchoverPlan:
        """Look at everything and change nothing; raises HeliographError, WireError.

        Mirrors are asked for a sign of life, through the ledgers.
        """
        self._two.open()
        return check(self._two, self._wish, self._before(), self._scope)

    def run(self) -> SwitchoverReport:
        """Switch over, or go on with what was begun; raises HeliographError, WireError.

        If it fails before the reverse flow is started, everything is as it was before.
        """
        began_ms = int(time.time() * 1000)
        self._two.open()
        with self._alone() as lock:
            plan = self.plan()
            raise_refused(plan.refusals)
            handover = plan.before or Handover(
                secrets.token_hex(6), Kind.SWITCHOVER, self._wish.by, began_ms, plan.topics
            )
            course = self._course(handover, plan.shared, lock)
            repeated = plan.before is not None and not plan.before.open
            if not repeated:
                self._carry_out(course)
            report = self._report(course, repeated=repeated)
            if not repeated:
                self._note_rehearsal(report)
                course.steps.end()
            return report

    def abort(self) -> str:
        """Take back what was begun; returns what was done, for people.

        Raises HandoverRefused if clients may be on the target already, or there is nothing to take
        back.
        """
        side, flow = self._two.side, self._config.flow
        side.open()
        with one_at_a_time(self._config, self._scope) as lock:
            side.refresh()
            last = side.handovers.last
            if last is None or last.kind is not Kind.SWITCHOVER:
                raise HandoverRefused(
                    "switchover.none",
                    f"no switchover of {flow} was begun: there is nothing to abort",
                )
            if last.facts.get("past"):
                raise HandoverRefused(
                    "switchover.too-late",
                    f"the switchover to {flow.target} cannot be aborted any more:"
                    f" {self._reverse.flow} was started, and clients may write to {flow.target}",
                    f"'heliograph switchover --to {flow.source}' switches back; if this one is not"
                    " through, the command without --abort goes on with it",
                )
            if last.aborted and not last.facts.get("left"):
                return "It was taken back already, and nothing is left of it"
            steps = Steps(side.handovers, last, self._tell, lock)
            return take_back(self._two, steps, "aborted")

    def _course(self, handover: Handover, shared: Shared, lock: Lock) -> Course:
        steps = Steps(self._two.side.handovers, handover, self._tell, lock)
        return Course(self._two, self._wish, steps, shared, self._scope)

    @contextmanager
    def _alone(self) -> Iterator[Lock]:
        """Nobody else may hand over either direction meanwhile."""
        with (
            one_at_a_time(self._config, self._scope) as one,
            one_at_a_time(self._reverse, self._scope) as other,
        ):

            def require() -> None:
                one()
                other()

            yield require

    def _before(self) -> Handover | None:
        """The switchover that this one goes on with.

        One that was not ended; or one that is through, was not switched back, and was about all
        that is asked for now.
        """
        last, held = self._two.side.handovers.last, self._two.side.holds.held
        if last is None or last.kind is not Kind.SWITCHOVER or last.aborted:
            return None
        if last.open:
            return last
        topics = last.topics
        subjects = PARTS if topics is None else [Subject.topic(topic) for topic in topics]
        if not all(subject in held and held[subject].standby for subject in subjects):
            return None
        if topics is None or not set(self._two.look(self._wish.topics).topics) - set(topics):
            return last
        return None

    def _carry_out(self, course: Course) -> None:
        if not course.past:
            try:
                Approach(course).run()
            except BaseException as error:
                if not course.past:
                    self._undo_because(course, error)
                raise
        Departure(course).run()

    @staticmethod
    def _undo_because(course: Course, error: BaseException) -> None:
        """Take all back; an error for people tells that, too."""
        undone = take_back(
            course.two, course.steps, str(error.args[0]) if error.args else "interrupted"
        )
        if isinstance(error, HeliographError):
            raise HandoverFailed(error.code, f"{error.args[0]}. {undone}", error.hint) from error
        if isinstance(error, WireError):
            raise HandoverFailed("switchover.cluster", f"{error}. {undone}") from error

    # -- reports ------------------------------------------------------------------------------

    def _report(self, course: Course, *, repeated: bool) -> SwitchoverReport:
        self._two.side.refresh()
        handover, cuts = course.steps.handover, self._two.side.handovers.cuts
        facts, targets = handover.facts, course.shared.targets
        positions = {
            p: cuts[p.topic].partitions[p.partition]
            for p in targets
            if p.topic in cuts and p.partition in cuts[p.topic].partitions
        }
        found = course.groups.look()
        moved = {n: Moved(n, written=count) for n, count in facts.get("groups", {}).items()}
        moved |= {n: Moved(n, reason=why) for n, why in facts.get("groups_left", {}).items()}
        stopped_ms = facts.get("stopped_ms", handover.began_ms)
        open_ms = facts.get("open_ms", stopped_ms)
        return SwitchoverReport(
            str(self._config.flow), str(self._reverse.flow), handover, positions, targets, moved,
            course.starts if course.starts is not None else found, course.groups.in_use(found),
            facts.get("fence_stays"), (open_ms - stopped_ms) / 1000,
            (open_ms - handover.began_ms) / 1000, course.steps.took, repeated,
        )  # fmt: skip

    def _note_rehearsal(self, report: SwitchoverReport) -> None:
        left, handover = len(report.left), report.handover
        self._two.side.rehearsals.add(
            Rehearsal(
                handover.began_ms, RehearsalKind.SWITCHOVER, report.rto_seconds, 0, 0.0, True,
                len(report.moved) - left, handover.by,
                f"{counted(left, 'group')} not moved" if left else "",
            )
        )  # fmt: skip
