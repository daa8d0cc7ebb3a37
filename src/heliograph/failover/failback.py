"""Failback: the old source is back, and becomes the standby of the cluster that took over.

    compare   both logs, by the failover's cut and by leader epochs: what only one side has
    announce  nobody writes to the old source; what is to be settled, and how, is in the ledger
    settle    what only the old source has is kept, exported or given up, topic by topic
    turn      the old direction stands by from now on; the other one begins where logs were cut
    start     the other direction is started
    mirror    the old source gets what was written to the target since the failover

After that the two are as after a switchover: a switchover brings clients back, without loss. What
came from the old source is never mirrored back to it: the flow begins behind it, and skips what
bears the signature of the old direction. Runs in a command. A command that is repeated goes on.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Self

from heliograph.config import FlowConfig
from heliograph.control.moves import set_positions
from heliograph.control.topics import internal as internal_topics
from heliograph.failover.exporting import export_tails, export_topic
from heliograph.failover.failback_look import FailbackLook, failback_parts
from heliograph.failover.failback_plan import FailbackPlan, FailbackReport, FailbackWish
from heliograph.failover.lock import Lock
from heliograph.failover.pair import both_at_a_time
from heliograph.failover.refusals import HandoverFailed, HandoverRefused, raise_refused
from heliograph.failover.source_side import see_source
from heliograph.failover.steps import Steps, Tell
from heliograph.failover.target_side import TargetSide
from heliograph.failover.unmirrored import (
    Choice,
    Unmirrored,
    bring_tails,
    delete_topics,
    make_targets,
    not_to_bring,
    noted,
)
from heliograph.ledger.handovers import Handover, Kind
from heliograph.ledger.holds import Subject
from heliograph.model import TopicPartition
from heliograph.units import counted, moment
from heliograph.wire import admin

__all__ = ["STEPS", "Failback"]

STEPS = ("announce", "settle", "turn", "start", "mirror")
_STILL_SECONDS, _LOOK_SECONDS = 2.0, 0.5


class Failback:
    """Takes a failover of one flow back. Use it as a context manager.

    ``reverse`` is the flow of the other direction; it needs to be in the file, and enabled.
    """

    def __init__(
        self, config: FlowConfig, reverse: FlowConfig | None, wish: FailbackWish, tell: Tell
    ) -> None:
        self._config = config
        self._reverse = reverse
        self._wish = wish
        self._tell = tell
        self._look = FailbackLook(config, reverse, wish)
        self._shown: FailbackPlan | None = None
        self._side, self._source = self._look.side, self._look.source

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._look.close()

    def plan(self) -> FailbackPlan:
        """Compare both clusters and change nothing; raises HeliographError, WireError.

        Nothing else than what was shown last is carried out by `run`.
        """
        self._shown = self._look.plan()
        return self._shown

    def run(self) -> FailbackReport:
        """Fail back, or go on with a failback that was begun; raises HeliographError, WireError.

        One that is through is not done again.
        """
        self._side.open()
        with both_at_a_time(self._config, self._reverse) as lock:
            plan = self._look.plan()
            raise_refused(plan.refusals)
            if self._shown is not None:
                self._require_still(self._shown, {p.source: p.here.end for p in plan.parted})
            if plan.before is not None and plan.is_done:
                return self._report(plan, plan.before, {}, {}, repeated=True)
            if self._reverse is None:
                raise AssertionError("refused above")
            return self._carry_out(plan, self._reverse, lock)

    def _carry_out(self, plan: FailbackPlan, reverse: FlowConfig, lock: Lock) -> FailbackReport:
        some = plan.failover.topics is not None
        topics = tuple(sorted({p.source.topic for p in plan.parted})) if some else None
        handover = plan.before or Handover(
            secrets.token_hex(6), Kind.FAILBACK, self._wish.by, int(time.time() * 1000), topics,
            facts={"failover": {"id": plan.failover.id, "by": plan.failover.by,
                                "began": plan.failover.began_ms}},
        )  # fmt: skip
        steps = Steps(self._side.handovers, handover, self._tell, lock)
        self._announce(steps, plan)
        self._settle(steps, plan)
        self._turn(steps, plan, reverse)
        with TargetSide(reverse) as back:
            self._start(steps, back)
            behind = self._mirror(steps, plan, back)
        steps.end()
        return self._report(plan, steps.handover, behind, steps.took)

    def _report(
        self,
        plan: FailbackPlan,
        handover: Handover,
        behind: Mapping[TopicPartition, int],
        took: Mapping[str, float],
        *,
        repeated: bool = False,
    ) -> FailbackReport:
        facts = handover.facts
        exported = int(facts.get("exported", 0))
        topic = export_topic(self._config.flow.source) if exported else ""
        return FailbackReport(
            plan, handover, int(facts.get("kept", 0)), exported, topic,
            tuple(facts.get("rebuilt", ())), behind, took, repeated,
        )  # fmt: skip

    # -- announce -----------------------------------------------------------------------------

    def _announce(self, steps: Steps, plan: FailbackPlan) -> None:
        if steps.through("announce"):
            began = moment(steps.handover.began_ms / 1000)
            steps.say("announce", f"goes on with the failback that {steps.handover.by} began at"
                                  f" {began}")  # fmt: skip
            if plan.is_settled:
                return
        alias = self._config.flow.source
        with steps.step("announce", f"making sure that nobody writes to {alias}") as done:
            time.sleep(_STILL_SECONDS)
            self._require_still(plan, self._ends(plan))
            exports = any(u.choice is Choice.EXPORT for u in plan.unmirrored)
            if exports and "producer_id" not in steps.handover.facts:
                steps.remember(producer_id=admin.allocate_producer_id(self._side.client))
            # What a run that is killed has settled is not there any more for the next one to find.
            steps.remember(
                choices={u.source.topic: u.choice.value for u in plan.unmirrored},
                unmirrored=noted(plan.unmirrored), totals=list(plan.totals),
            )  # fmt: skip
            done("its logs stand still")

    def _ends(
        self, plan: FailbackPlan, topics: Collection[str] | None = None
    ) -> Mapping[TopicPartition, int]:
        """Where partitions of the plan end on the old source now."""
        partitions = [
            p.source for p in plan.parted
            if p.source_id and (topics is None or p.source.topic in topics)
        ]  # fmt: skip
        seen = see_source(self._config, partitions)
        for p in sorted(partitions):
            if p not in seen.ends:
                alias = self._config.flow.source
                raise HandoverRefused(
                    "failback.silent", f"the leader of {p} on {alias} does not answer",
                    f"bring the brokers of {alias} back first",
                )  # fmt: skip
        return seen.ends

    def _require_still(self, plan: FailbackPlan, ends: Mapping[TopicPartition, int]) -> None:
        """Nothing was written to the old source since the plan was made.

        Raises HandoverRefused that names who was written to, and by how much it grew.
        """
        alias = self._config.flow.source
        for p in plan.parted:
            now = ends.get(p.source, p.here.end)
            if p.source_id and now != p.here.end:
                raise HandoverRefused(
                    "failback.writers",
                    f"somebody writes to {p.source} on {alias}:"
                    f" {counted(now - p.here.end, 'record')} since this command has looked at it",
                    "stop it, or point it to the cluster that took over; then repeat this command",
                )

    # -- settle -------------------------------------------------------------------------------

    def _settle(self, steps: Steps, plan: FailbackPlan) -> None:
        if steps.through("settle"):
            return

        def of(*wanted: Choice) -> Sequence[Unmirrored]:
            return [u for u in plan.unmirrored if u.choice in wanted]

        with steps.step("settle", "settling what only the old source has") as done:
            # Once more, behind all that took time: whoever comes later writes to a standby.
            self._require_still(plan, self._ends(plan))
            steps.remember(settling=True)
            said = []
            if kept := self._keep(steps, plan, of(Choice.KEEP)):
                said.append(f"{counted(kept, 'record')} kept")
            exported = 0
            if exporting := of(Choice.EXPORT):
                exported = self._export(steps, plan, exporting)
                topic = export_topic(self._config.flow.source)
                said.append(f"{counted(exported, 'record')} exported to {topic}")
            steps.remember(kept=kept, exported=exported)
            if anew := of(Choice.EXPORT, Choice.REBUILD):
                deleted = self._delete(steps, plan, anew)
                said.append(f"{counted(len(deleted), 'topic')} of {self._config.flow.source}"
                            " deleted")  # fmt: skip
            done("; ".join(said) or "there is nothing that only the old source has")

    def _keep(self, steps: Steps, plan: FailbackPlan, wanted: Sequence[Unmirrored]) -> int:
        self._make_targets(plan, wanted)
        guards = not_to_bring(self._config, self._source, self._side, wanted)
        steps.require_lock()
        return bring_tails(
            self._config, self._side, wanted, guards, lambda text: steps.say("settle", text)
        )

    def _export(self, steps: Steps, plan: FailbackPlan, wanted: Sequence[Unmirrored]) -> int:
        there = [u for u in wanted if self._is_there(plan, u)]
        guards = not_to_bring(self._config, self._source, self._side, there)
        steps.require_lock()
        return export_tails(
            self._config, self._side, self._source, wanted, guards, steps.handover.id,
            int(steps.handover.facts["producer_id"]),
        )  # fmt: skip

    def _delete(
        self, steps: Steps, plan: FailbackPlan, anew: Sequence[Unmirrored]
    ) -> Collection[str]:
        """Topics of the old source, which the other direction makes anew; returns their names."""
        # What nobody has mirrored would be nowhere.
        self._make_targets(plan, anew)
        topics = sorted({u.source.topic for u in anew})
        self._require_still(plan, self._ends(plan, topics))
        steps.require_lock()
        delete_topics(self._config, self._source, sorted({(u.source.topic, u.topic_id)
                                                          for u in anew}))  # fmt: skip
        steps.remember(rebuilt=topics)
        return topics

    def _make_targets(self, plan: FailbackPlan, wanted: Iterable[Unmirrored]) -> None:
        fresh = {p.source for p in plan.parted if not p.begun}
        topics = {u.source.topic for u in wanted if u.source in fresh}
        if topics:
            make_targets(self._config, self._source, self._side.client, topics)

    @staticmethod
    def _is_there(plan: FailbackPlan, u: Unmirrored) -> bool:
        return any(p.source == u.source and p.source_id for p in plan.of(u.source.topic))

    # -- turn, start --------------------------------------------------------------------------

    def _turn(self, steps: Steps, plan: FailbackPlan, reverse: FlowConfig) -> None:
        if steps.through("turn"):
            return
        flow = self._config.flow
        with steps.step("turn", f"{reverse.flow} begins where the logs were cut") as done:
            steps.require_lock()
            begins = self._begins(plan)
            # There may be nothing to set, and no mirror that has ever looked after that flow.
            internal_topics.ensure(reverse, self._side.client, self._source)
            set_positions(reverse, self._side.client, self._source, begins)
            topics = steps.handover.topics
            self._side.holds.hold(
                failback_parts() if topics is None else [Subject.topic(t) for t in topics],
                steps.handover.by,
                f"in standby since the failback to {flow.source}: 'heliograph switchover --to"
                f" {flow.source}' brings clients back", standby=True,
            )  # fmt: skip
            self._side.refresh()
            self._settle_cuts(plan)
            if topics is None:
                self._side.holds.lift([Subject.part("heartbeats")])
            done(f"{counted(len(begins), 'partition')}; {flow} stands by")

    def _settle_cuts(self, plan: FailbackPlan) -> None:
        """The other direction goes on from these cuts: a later failover cuts anew."""
        cuts = self._side.handovers.cuts
        topics = {p.topic for p in self._look.cuts(self._side.mirrored(), plan.failover)}
        self._side.handovers.cut({topic: replace(cuts[topic], held_ms=0) for topic in topics})

    def _begins(self, plan: FailbackPlan) -> dict[TopicPartition, int]:
        """Where the reverse flow begins: behind the cut, or where retention has left the log.

        Topics that are made anew are brought as a whole.
        """
        mirrored, client = self._side.mirrored(), self._side.client
        anew = {u.source.topic for u in plan.unmirrored if u.choice is not Choice.KEEP}
        cuts = {
            mirrored.targets[p]: cut.target
            for p, cut in self._look.cuts(mirrored, plan.failover).items() if p.topic not in anew
        }  # fmt: skip
        starts = admin.list_offsets(client, mirrored.metadata, cuts.keys(), admin.EARLIEST)
        return {p: max(offset, starts.get(p, 0)) for p, offset in cuts.items()}

    def _start(self, steps: Steps, back: TargetSide) -> None:
        if steps.through("start"):
            return
        with steps.step("start", f"starting {back.flow}") as done:
            back.open()
            steps.require_lock()
            overtaken = back.handovers.last
            if overtaken is not None and overtaken.open:
                # Of the time before the failover: nobody is going to end it.
                back.handovers.end(overtaken, aborted=True)
            topics = steps.handover.topics
            if topics is None:
                standing = [s for s, hold in back.holds.held.items() if hold.standby]
                back.holds.lift([*failback_parts(), *standing])
            else:
                self._start_topics(back, topics, steps.handover.by)
            if back.config.standby:
                back.holds.start(steps.handover.by, handover=True)
            back.refresh()
            owner = back.claims.claims.owner
            done("a mirror has it" if owner is not None else
                 "no mirror has it: start 'heliograph run'")  # fmt: skip

    def _start_topics(self, back: TargetSide, topics: tuple[str, ...], by: str) -> None:
        """Only these of the reverse flow; the others go the old way on."""
        if back.config.standby and not back.holds.started:
            others = [t for t in self._side.mirrored().topics if t not in topics]
            why = f"in standby: {self._config.flow} is the direction that is used now"
            back.holds.hold([Subject.topic(t) for t in others], by, why, standby=True)
            back.refresh()
        back.holds.lift([*failback_parts(), *map(Subject.topic, topics)])

    # -- mirror -------------------------------------------------------------------------------

    def _mirror(
        self, steps: Steps, plan: FailbackPlan, back: TargetSide
    ) -> dict[TopicPartition, int]:
        """Until the old source has all that was written to the target; what is left of it."""
        if not self._wish.wait_seconds:
            return {}
        back.open()
        with steps.step("mirror", f"{back.flow.target} gets what was written since") as done:
            begins = self._begins(plan)
            mirrored = self._side.mirrored()
            cuts = self._look.cuts(mirrored, plan.failover)
            wanted = {*(mirrored.targets[p] for p in cuts), *(u.target for u in plan.unmirrored)}
            deadline = time.monotonic() + self._wish.wait_seconds
            told = 0.0
            while True:
                behind = self._behind(back, wanted, begins)
                if not behind or time.monotonic() >= deadline:
                    break
                if time.monotonic() - told >= 2.0:
                    steps.say("mirror", f"{counted(sum(behind.values()), 'record')} to go")
                    told = time.monotonic()
                time.sleep(_LOOK_SECONDS)
            if behind and back.claims.claims.owner is None:
                raise HandoverFailed(
                    "failback.no-mirror", f"no mirror runs {back.flow}:"
                    f" {counted(sum(behind.values()), 'record')} wait",
                    "start 'heliograph run', then repeat this command: it goes on from here",
                )  # fmt: skip
            left = counted(sum(behind.values()), "record")
            done(f"{left} to go" if behind else f"{back.flow.target} has everything")
        return behind

    def _behind(
        self,
        back: TargetSide,
        wanted: Collection[TopicPartition],
        begins: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """What the old source lacks, by partition of the target; of those that were failed over."""
        client = self._side.client
        metadata = client.metadata(sorted({p.topic for p in wanted}))
        committed = back.config.isolation_level == "read_committed"
        ends = admin.list_offsets(
            client, metadata, wanted, admin.LATEST, read_committed=committed
        )  # fmt: skip
        starts = admin.list_offsets(client, metadata, wanted, admin.EARLIEST)
        at = back.positions(back.mirrored())
        reached = {p: at[p].source if p in at else begins.get(p, starts.get(p, 0)) for p in wanted}
        return {p: end - reached[p] for p, end in ends.items() if reached[p] < end}
