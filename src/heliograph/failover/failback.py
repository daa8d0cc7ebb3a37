"""Failback: the old source is back, and becomes the standby of the cluster that took over.

    compare   both logs, by the failover's cut and by leader epochs: what only one side has
    settle    what only the old source has is kept, exported or given up, topic by topic
    turn      the old direction stands by from now on; the other one begins where logs were cut
    start     the other direction is started
    mirror    the old source gets what was written to the target since the failover

After that the two are as after a switchover: a switchover brings clients back, without loss. What
came from the old source is never mirrored back to it: the flow begins behind it, and skips what
bears the signature of the old direction. Runs in a command. A command that is repeated goes on.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from heliograph.config import FlowConfig
from heliograph.control.moves import set_positions
from heliograph.errors import ConfigError
from heliograph.failover.divergence import Parted, compare_logs
from heliograph.failover.lock import Lock, one_at_a_time
from heliograph.failover.refusals import HandoverFailed, HandoverRefused
from heliograph.failover.source_side import see_source
from heliograph.failover.steps import Steps, Tell
from heliograph.failover.target_side import Mirrored, TargetSide
from heliograph.failover.unmirrored import (
    Choice,
    bring_tails,
    delete_topics,
    export_tails,
    export_topic,
)
from heliograph.ledger.handovers import CutAt, Handover, Kind
from heliograph.ledger.holds import Subject
from heliograph.model import TopicPartition
from heliograph.units import counted, moment
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

__all__ = ["Failback", "FailbackPlan", "FailbackReport", "FailbackWish", "saved_choices"]

STEPS = ("announce", "settle", "turn", "start", "mirror")
#: Heartbeats go both ways all the time.
_PARTS = (Subject.part("copying"), Subject.part("checkpoints"))
_REQUEST_SECONDS = 10.0
_STILL_SECONDS, _LOOK_SECONDS = 2.0, 0.5


@dataclass(frozen=True, slots=True)
class FailbackWish:
    """What an operator asks for.

    Attributes:
        choices: what becomes of records that only the old source has, by topic; ``*`` for all
            others.
        expected: the plan that was saved: nothing may have changed since; None if there is none.
        wait_seconds: how long to wait until the old source has everything; 0: not at all.
        by: who asks.
    """

    choices: Mapping[str, Choice] = field(default_factory=dict)
    expected: Mapping[str, Any] | None = None
    wait_seconds: float = 600.0
    by: str = "somebody"

    def choice(self, topic: str) -> Choice | None:
        """Of a topic, if it was made."""
        return self.choices.get(topic, self.choices.get("*"))


@dataclass(frozen=True, slots=True)
class FailbackPlan:
    """What a failback would do.

    Attributes:
        failover: the one that is taken back.
        before: the failback that was begun and not ended.
        parted: each partition, and how its logs differ.
        choices: what becomes of what only the old source has, of topics that have any, or whose
            log cannot be gone on with; None: nobody has said.
        refusals: what speaks against it.
    """

    flow: str
    failover: Handover
    before: Handover | None
    parted: tuple[Parted, ...]
    choices: Mapping[str, Choice | None]
    refusals: tuple[HandoverRefused, ...]

    @property
    def only_source(self) -> int:
        """Records that only the old source has, as offsets."""
        return sum(p.only_source for p in self.parted)

    @property
    def only_target(self) -> int:
        """What was written to the target since, as offsets."""
        return sum(p.only_target for p in self.parted)

    def of(self, topic: str) -> list[Parted]:
        """The partitions of a topic."""
        return [p for p in self.parted if p.source.topic == topic]


@dataclass(frozen=True, slots=True)
class FailbackReport:
    """What a failback did.

    Attributes:
        kept, exported: how many records.
        exported_to: the topic; empty if none was exported.
        rebuilt: topics of the old source that were deleted, to be made anew.
        behind: partitions that the old source did not have wholly when waiting ended.
    """

    plan: FailbackPlan
    handover: Handover
    kept: int
    exported: int
    exported_to: str
    rebuilt: tuple[str, ...]
    behind: Mapping[TopicPartition, int]
    took: Mapping[str, float]


def saved_choices(path: Path) -> tuple[dict[str, Choice], Mapping[str, Any]]:
    """A plan that ``--save-plan`` wrote: its choices, and what it expects. Raises ConfigError."""
    try:
        told = json.loads(path.read_text("utf-8"))
        choices = {t["topic"]: Choice(t["choice"]) for t in told["topics"] if t.get("choice")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "failback.plan", f"{path} is no plan of 'heliograph failback --save-plan': {error}"
        ) from error
    return choices, told


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
        self._open = ExitStack()
        self._side = self._open.enter_context(TargetSide(config))
        self._source = self._open.enter_context(
            ClusterClient(
                config.source_admin, f"{config.flow}|failback-source",
                request_timeout=_REQUEST_SECONDS,
            )
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    # -- looking ------------------------------------------------------------------------------

    def plan(self) -> FailbackPlan:
        """Compare both clusters and change nothing; raises HeliographError, WireError."""
        self._side.open()
        failover, before = self._failover()
        if before is not None and "settle" in before.steps:
            return FailbackPlan(str(self._config.flow), failover, before, (), {}, ())
        mirrored = self._side.mirrored()
        cuts = self._cuts(mirrored, failover)
        self._require_source(mirrored)
        parted = compare_logs(self._side, mirrored.of({p.topic for p in cuts}), cuts, self._source)
        topics = {p.source.topic for p in parted if p.only_source or p.must_rebuild}
        choices = {topic: self._wish.choice(topic) for topic in sorted(topics)}
        plan = FailbackPlan(
            str(self._config.flow), failover, before, tuple(parted), choices, ()
        )  # fmt: skip
        return FailbackPlan(
            plan.flow, failover, before, plan.parted, choices, tuple(self._against(plan))
        )

    def _failover(self) -> tuple[Handover, Handover | None]:
        """The failover that is taken back, and the failback that was begun."""
        last, flow = self._side.handovers.last, self._config.flow
        if last is not None and last.kind is Kind.FAILBACK and last.open:
            facts = last.facts["failover"]
            failed = Handover(facts["id"], Kind.FAILOVER, facts["by"], facts["began"], last.topics)
            return failed, last
        if last is None or last.kind is not Kind.FAILOVER or last.aborted:
            raise HandoverRefused(
                "failback.no-failover", f"flow {flow} was not failed over to {flow.target}",
                f"clients come back from a switchover with 'heliograph switchover --to"
                f" {flow.source}'",
            )  # fmt: skip
        if last.open:
            raise HandoverRefused(
                "failback.open-failover",
                f"the failover of {flow} that {last.by} began at {moment(last.began_ms / 1000)}"
                " is not through",
                f"'heliograph failover FILE --to {flow.target}' goes on with it",
            )
        return last, None

    def _cuts(self, mirrored: Mirrored, failover: Handover) -> dict[TopicPartition, CutAt]:
        # Topics that were promoted one by one rest one by one.
        resting = self._side.holds.topics if failover.topics is not None else {}
        found = {
            p: cut.partitions[p.partition]
            for p in mirrored.places
            for cut in [self._side.handovers.cuts.get(p.topic)]
            if cut is not None
            and p.partition in cut.partitions
            and (cut.handover == failover.id or p.topic in resting)
        }
        if not found:
            raise HandoverRefused(
                "failback.no-cut", f"where the failover of {self._config.flow} has cut the logs is"
                " not known: its topics on the target are others now",
            )  # fmt: skip
        return found

    def _require_source(self, mirrored: Mirrored) -> None:
        seen, alias = see_source(self._config, ()), self._config.flow.source
        if not seen.answers:
            raise HandoverRefused(
                "failback.source-gone", f"{alias} does not answer: {seen.why_not}",
                f"bring {alias} back first; clients go on at {self._config.flow.target} meanwhile",
            )  # fmt: skip
        signature = self._side.store.signature
        if signature is not None and signature.source_cluster != seen.cluster_id:
            raise HandoverRefused(
                "failback.other-cluster",
                f"{alias} is another cluster now ({seen.cluster_id}) than the one that failed"
                f" ({signature.source_cluster})",
                "give it another alias, and mirror to it as to a new cluster",
            )

    def _against(self, plan: FailbackPlan) -> Iterator[HandoverRefused]:
        flow, reverse = self._config.flow, self._reverse
        if reverse is None or not reverse.enabled:
            yield HandoverRefused(
                "failback.no-reverse",
                f"the file does not enable {flow.target}->{flow.source}: nothing can be mirrored"
                " back",
                f"add '{flow.target}->{flow.source}.enabled = true', its topics, and"
                f" '{flow.target}->{flow.source}.heliograph.standby = true'",
            )
            return
        renamed = sorted({p.source.topic for p in plan.parted if p.source.topic != p.target.topic})
        if renamed:
            yield HandoverRefused(
                "failback.renamed",
                f"topics have other names on {flow.target} ({self._side.remote_topic(renamed[0])}"
                f" is a copy of {renamed[0]}): {reverse.flow} does not mirror copies back",
                f"'heliograph resume --flow {flow}' lets the mirror go on with what {flow.source}"
                " has; groups are set by 'heliograph translate --reverse'. Failback needs"
                " IdentityReplicationPolicy",
            )
        open_choices = [topic for topic, choice in plan.choices.items() if choice is None]
        if open_choices:
            counts = ", ".join(
                f"{topic} {counted(sum(p.only_source for p in plan.of(topic)), 'record')}"
                for topic in open_choices[:5]
            )
            yield HandoverRefused(
                "failback.unmirrored",
                f"only {flow.source} has records of {counted(len(open_choices), 'topic')}:"
                f" {counts}",
                "say what becomes of them: --unmirrored keep, export or rebuild, or topic by topic"
                " (--unmirrored 'orders=export,*=keep')",
            )
        for p in plan.parted:
            if p.must_rebuild and plan.choices.get(p.source.topic) is Choice.KEEP:
                yield HandoverRefused(
                    "failback.must-rebuild",
                    f"{p.source} on {flow.source} cannot be kept: {p.must_rebuild}",
                    f"--unmirrored '{p.source.topic}=rebuild', or export",
                )
        yield from self._changed(plan)

    def _changed(self, plan: FailbackPlan) -> Iterator[HandoverRefused]:
        """Whether a saved plan is about other logs than those that are there."""
        expected = self._wish.expected
        if expected is None:
            return
        ends = {
            (t["topic"], p["partition"]): (p["source_end"], p["cut"])
            for t in expected.get("topics", ()) for p in t.get("partitions", ())
        }  # fmt: skip
        for p in plan.parted:
            now = p.source_end, p.cut.source
            then = ends.get((p.source.topic, p.source.partition))
            if p.only_source and then != now:
                yield HandoverRefused(
                    "failback.plan-old",
                    f"{p.source} on {self._config.flow.source} ends at {p.source_end} now, the plan"
                    f" says {then[0] if then else 'nothing of it'}",
                    "somebody still writes to it: stop that, and make the plan anew",
                )
                return

    # -- doing it -----------------------------------------------------------------------------

    def run(self) -> FailbackReport:
        """Fail back, or go on with a failback that was begun; raises HeliographError, WireError."""
        self._side.open()
        with one_at_a_time(self._config) as lock:
            plan = self.plan()
            for refusal in plan.refusals:
                raise refusal
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
        self._turn(steps, reverse)
        with TargetSide(reverse) as back:
            self._start(steps, back)
            behind = self._mirror(steps, back)
        steps.end()
        facts = steps.handover.facts
        exported = int(facts.get("exported", 0))
        topic = export_topic(self._config.flow.source) if exported else ""
        return FailbackReport(
            plan, steps.handover, int(facts.get("kept", 0)), exported, topic,
            tuple(facts.get("rebuilt", ())), behind, steps.took,
        )  # fmt: skip

    def _announce(self, steps: Steps, plan: FailbackPlan) -> None:
        if steps.through("announce"):
            began = moment(steps.handover.began_ms / 1000)
            steps.say("announce", f"goes on with the failback that {steps.handover.by} began at"
                                  f" {began}")  # fmt: skip
            return
        alias = self._config.flow.source
        with steps.step("announce", f"making sure that nobody writes to {alias}") as done:
            self._require_still(plan)
            if any(c is Choice.EXPORT for c in plan.choices.values()):
                steps.remember(producer_id=admin.allocate_producer_id(self._side.client))
            choices = {t: c.value for t, c in plan.choices.items() if c is not None}
            begins = {
                f"{p.target.topic}/{p.target.partition}": p.cut.target for p in plan.parted
                if plan.choices.get(p.source.topic) in {None, Choice.KEEP}
            }  # fmt: skip
            steps.remember(choices=choices, begins=begins)
            done("its logs stand still")

    def _require_still(self, plan: FailbackPlan) -> None:
        partitions = [p.source for p in plan.parted if p.source_id]
        before = see_source(self._config, partitions)
        time.sleep(_STILL_SECONDS)
        after = see_source(self._config, partitions)
        for p in sorted(partitions):
            if before.ends.get(p) != after.ends.get(p):
                came = counted(after.ends.get(p, 0) - before.ends.get(p, 0), "record")
                raise HandoverRefused(
                    "failback.writers",
                    f"somebody writes to {p} on {self._config.flow.source}: {came} in"
                    f" {_STILL_SECONDS:.0f} s",
                    "stop it, or point it to the cluster that took over",
                )

    def _settle(self, steps: Steps, plan: FailbackPlan) -> None:
        if steps.through("settle"):
            return
        chosen = {t: Choice(c) for t, c in steps.handover.facts["choices"].items()}

        def of(*wanted: Choice) -> Sequence[Parted]:
            return [p for p in plan.parted if chosen.get(p.source.topic) in wanted]

        with steps.step("settle", "settling what only the old source has") as done:
            said = []
            kept = bring_tails(
                self._config, self._side, of(Choice.KEEP), lambda text: steps.say("settle", text)
            )
            if kept:
                said.append(f"{counted(kept, 'record')} kept")
            exported = 0
            if of(Choice.EXPORT):
                exported = export_tails(
                    self._config, self._side, self._source, of(Choice.EXPORT), steps.handover.id,
                    int(steps.handover.facts["producer_id"]),
                )  # fmt: skip
                topic = export_topic(self._config.flow.source)
                said.append(f"{counted(exported, 'record')} exported to {topic}")
            steps.remember(kept=kept, exported=exported)
            anew = sorted({(p.source.topic, p.source_id)
                           for p in of(Choice.EXPORT, Choice.REBUILD)})  # fmt: skip
            delete_topics(self._config, self._source, anew)
            if anew:
                said.append(f"{counted(len(anew), 'topic')} of {self._config.flow.source} deleted")
            steps.remember(rebuilt=[topic for topic, _ in anew])
            done("; ".join(said) or "there is nothing that only the old source has")

    def _turn(self, steps: Steps, reverse: FlowConfig) -> None:
        if steps.through("turn"):
            return
        flow = self._config.flow
        with steps.step("turn", f"{reverse.flow} begins where the logs were cut") as done:
            begins = _named(steps.handover.facts["begins"])
            set_positions(reverse, self._side.client, self._source, begins)
            topics = steps.handover.topics
            self._side.holds.hold(
                _PARTS if topics is None else [Subject.topic(t) for t in topics],
                steps.handover.by,
                f"in standby since the failback to {flow.source}: 'heliograph switchover --to"
                f" {flow.source}' brings clients back", standby=True,
            )  # fmt: skip
            self._side.refresh()
            if topics is None:
                self._side.holds.lift([Subject.part("heartbeats")])
            done(f"{counted(len(begins), 'partition')}; {flow} stands by")

    def _start(self, steps: Steps, back: TargetSide) -> None:
        if steps.through("start"):
            return
        with steps.step("start", f"starting {back.flow}") as done:
            back.open()
            topics = steps.handover.topics
            if topics is None:
                back.holds.lift([*_PARTS, *(s for s, h in back.holds.held.items() if h.standby)])
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
        back.holds.lift([*_PARTS, *map(Subject.topic, topics)])

    def _mirror(self, steps: Steps, back: TargetSide) -> dict[TopicPartition, int]:
        """Until the old source has all that was written to the target; what is left of it."""
        if not self._wish.wait_seconds:
            return {}
        back.open()
        begins = _named(steps.handover.facts["begins"])
        with steps.step("mirror", f"{back.flow.target} gets what was written since") as done:
            deadline = time.monotonic() + self._wish.wait_seconds
            told = 0.0
            while True:
                behind = self._behind(back, steps.handover, begins)
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
        self, back: TargetSide, handover: Handover, begins: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """What the old source lacks, by partition of the target; of those that were failed over."""
        client = self._side.client
        wanted = [
            TopicPartition(self._side.remote_topic(topic), partition)
            for topic, cut in self._side.handovers.cuts.items()
            if handover.concerns(topic)
            for partition in cut.partitions
        ]
        metadata = client.metadata(sorted({p.topic for p in wanted}))
        committed = back.config.isolation_level == "read_committed"
        ends = admin.list_offsets(
            client, metadata, wanted, admin.LATEST, read_committed=committed
        )  # fmt: skip
        starts = admin.list_offsets(client, metadata, wanted, admin.EARLIEST)
        at = back.positions(back.mirrored())
        reached = {p: at[p].source if p in at else begins.get(p, starts.get(p, 0)) for p in wanted}
        return {p: ends[p] - reached[p] for p in wanted if reached[p] < ends.get(p, 0)}


def _named(offsets: Mapping[str, int]) -> dict[TopicPartition, int]:
    """Offsets by partition, as the facts of a handover have them: ``topic/partition``."""
    found = {}
    for name, offset in offsets.items():
        topic, _, partition = name.rpartition("/")
        found[TopicPartition(topic, int(partition))] = int(offset)
    return found
