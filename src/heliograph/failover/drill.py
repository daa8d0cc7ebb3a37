"""Drill: a failover is rehearsed, and nothing in production changes. In a command or the driver.

    look      the plan of a failover as of now: what is there, what speaks against it, what is lost
    copies    each group's start is committed for a copy of it on the target, and read back
    read      a scratch consumer reads where each copy would start
    prove     what it read is compared with what the group would read next on the source
    clean     the copies are deleted, after an error too
    record    what was measured is noted in the flow's ledger

Only the groups ``heliograph-drill.<id>.<group>`` and the record of the drill are written.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from heliograph import __version__
from heliograph.claims.ownership import LOOK_SECONDS
from heliograph.config import FlowConfig
from heliograph.config.key import BoundedPattern
from heliograph.control.groups.start_rules import GroupStart, Moved, Start
from heliograph.errors import HeliographError, StartError
from heliograph.failover.drill_copies import Copies, drill_running
from heliograph.failover.drill_reading import read_at
from heliograph.failover.drill_rules import (
    RIGHT,
    DrillReport,
    Finding,
    Found,
    GroupDrill,
    Outcome,
    Proof,
    TimePart,
    chosen,
    judge,
    where_it_starts,
)
from heliograph.failover.failover import Failover, FailoverPlan, FailoverWish
from heliograph.failover.refusals import HandoverRefused
from heliograph.failover.source_side import ANSWER_SECONDS
from heliograph.failover.steps import Tell, Telling
from heliograph.failover.target_side import TargetSide
from heliograph.ledger.handovers import Handover, Kind
from heliograph.ledger.rehearsals import Rehearsal, RehearsalKind
from heliograph.ledger.reverse import opposite, reverse_of
from heliograph.model import TopicPartition
from heliograph.shown import shown
from heliograph.units import counted, moment
from heliograph.wire import configs
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError
from heliograph.wire.groups import GroupClient
from heliograph.wire.inspection import release

__all__ = ["STEPS", "Drill", "DrillWish"]

STEPS = ("look", "copies", "read", "prove", "clean", "record")
#: What a failover is asked for before it begins, and what a drill does not wait for.
_ASKED_BEFORE = frozenset({"failover.source-healthy", "failover.both-directions"})
#: Mirrors look at holds every two seconds (`claims.ownership.LOOK_SECONDS`): one look may come
#: just before the order. Then leases are told to end, and do so within seconds.
_LOOKS_SECONDS, _LEASES_END_SECONDS = 2 * LOOK_SECONDS, 3.0
#: A mirror that runs notes what is at risk at least that often.
_FRESH_SECONDS = 30.0
_REQUEST_SECONDS = 5.0
_POLICY = "cleanup.policy"

_Read = tuple[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class DrillWish:
    """What to rehearse.

    Attributes:
        topics: source topics whose names it matches wholly; None: all of the flow.
        groups: likewise consumer groups.
        sample: from how many starts records are read and compared, at most.
        by: who asks.
    """

    topics: BoundedPattern | None = None
    groups: BoundedPattern | None = None
    sample: int = 200
    by: str = "somebody"


class Drill:
    """One drill of one flow, with connections of its own. Use it as a context manager."""

    def __init__(self, config: FlowConfig, wish: DrillWish, tell: Tell, *, scope: str = "") -> None:
        self._config = config
        self._wish = wish
        self._tell = tell
        self._open = ExitStack()
        asked = FailoverWish(wish.topics, wish.groups, by=wish.by)
        self._failover = self._open.enter_context(Failover(config, asked, tell, scope=scope))
        self._side: TargetSide = self._failover.side
        self._groups = GroupClient(self._side.client)

    def __enter__(self) -> Drill:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def history(self) -> Sequence[Rehearsal]:
        """What was rehearsed or carried out so far, the newest first; raises StartError."""
        self._side.open()
        return self._side.rehearsals.all

    def run(self) -> DrillReport:
        """Rehearse, clean up, and note it; raises StartError, HandoverRefused, WireError."""
        with drill_running() as name:
            began_ms = int(time.time() * 1000)
            run = _Run(self._config, self._wish, self._failover, self._groups, name, began_ms,
                       Telling(self._tell, began_ms))  # fmt: skip
            try:
                return run.carry_out()
            except (HandoverRefused, StartError):
                # There is nothing to rehearse, or nobody to note it.
                raise
            except (HeliographError, WireError) as error:
                self._note_failure(began_ms, error)
                raise

    def _note_failure(self, began_ms: int, error: Exception) -> None:
        """A drill that could not be carried out is one that failed, for whoever counts them."""
        failed = Rehearsal(
            began_ms, RehearsalKind.DRILL, None, None, None, False, 0, self._wish.by,
            f"not carried out: {error.args[0] if error.args else error}",
        )  # fmt: skip
        with suppress(WireError, HeliographError):
            self._side.rehearsals.add(failed)


class _Run:
    """What one run has found so far."""

    def __init__(
        self,
        config: FlowConfig,
        wish: DrillWish,
        failover: Failover,
        groups: GroupClient,
        name: str,
        began_ms: int,
        steps: Telling,
    ) -> None:
        self._config = config
        self._wish = wish
        self._failover = failover
        self._side = failover.side
        self._groups = groups
        self._name = name
        self._began_ms = began_ms
        self._steps = steps
        self._findings: list[Finding] = []
        self._notes: list[str] = []

    def carry_out(self) -> DrillReport:
        """All steps."""
        began = time.monotonic()
        plan = self._look()
        copies = Copies(self._groups, self._name)
        try:
            moved = self._copy(plan, copies)
            sample = self._sample(plan, moved)
            there = self._read(plan, sample)
            proofs = self._prove(plan, sample, there)
        finally:
            self._clean(copies)
        report = self._report(plan, moved, there, proofs, time.monotonic() - began)
        with self._steps.step("record", "noting it in the ledger"):
            self._side.rehearsals.add(report.rehearsal)
        return report

    # -- look ---------------------------------------------------------------------------------

    def _look(self) -> FailoverPlan:
        with self._steps.step("look", "looking at both clusters as a failover would") as done:
            plan = self._failover.plan()
            self._refuse_handed_over(plan.before)
            for refusal in plan.refusals:
                if refusal.code not in _ASKED_BEFORE:
                    self._find(refusal.code, str(refusal.args[0]), refusal.hint or "")
            for name, start in sorted(plan.groups.items()):
                self._judge_start(name, start)
            if not plan.source.healthy:
                self._find_silent(plan)
            self._find_unbegun(plan)
            for what, only in (("topics", self._wish.topics), ("groups", self._wish.groups)):
                if only is not None:
                    self._notes.append(f"only {what} that match {only.pattern}")
            self._notes += plan.notes
            if not plan.groups:
                self._notes.append("the flow has no consumer groups: there was no start to prove")
            partitions = counted(len(plan.mirrored.places), "partition")
            done(f"{counted(len(plan.groups), 'group')}, {partitions}; at risk: {plan.risk}")
        return plan

    def _refuse_handed_over(self, before: Handover | None) -> None:
        last, flow = self._side.handovers.last, self._config.flow
        open_one = last if last is not None and last.open else before
        if open_one is None:
            return
        by, began = shown(open_one.by), moment(open_one.began_ms / 1000)
        state = "is not through" if open_one.open else "holds"
        raise HandoverRefused(
            "drill.handed-over",
            f"the {open_one.kind} of flow {flow} that {by} began at {began} {state}:"
            " there is nothing to rehearse",
            f"after 'heliograph {Kind.FAILBACK}' a drill makes sense again",
        )

    def _judge_start(self, name: str, start: GroupStart) -> None:
        """What the plan of a failover says of a group that somebody should know."""
        target = self._config.flow.target
        if start.reason:
            self._find(
                "drill.group-not-moved", f"group {shown(name)} cannot be moved: {start.reason}"
            )
            return
        for p, s in sorted(start.starts.items()):
            if s.ahead:
                self._find(
                    "drill.group-ahead",
                    f"group {shown(name)} is ahead on {target} by {s.ahead:,} at {p}: it would stay"
                    " there and skip these",
                    "'heliograph failover --rewind' sets it back; find out who commits there",
                )
            elif s.skips:
                self._find(
                    "drill.skips", f"group {shown(name)} would skip {s.skips:,} at {p}: {s.note}"
                )

    def _find_unbegun(self, plan: FailoverPlan) -> None:
        unbegun = [p.partition for p in plan.risk.behind if p.target_end < 0]
        if unbegun:
            more = f" and of {len(unbegun) - 1} more partitions" if unbegun[1:] else ""
            self._find(
                "drill.not-mirrored", f"nothing of {unbegun[0]}{more} is on"
                f" {self._config.flow.target} yet",
                "wait for the mirror; 'heliograph status' says what it waits for",
            )  # fmt: skip

    def _find_silent(self, plan: FailoverPlan) -> None:
        source, silent = self._config.flow.source, plan.source.silent
        why = (
            f"not for {counted(len(silent), 'partition')}"
            if plan.source.answers else f"it does not: {plan.source.why_not}"
        )  # fmt: skip
        self._find(
            "drill.source-silent",
            f"{source} has to answer, so that starts can be proven; {why}",
            "if it is lost, 'heliograph failover' is what you want",
        )

    def _find(self, code: str, text: str, hint: str = "") -> None:
        self._findings.append(Finding(code, text, hint))

    # -- copies -------------------------------------------------------------------------------

    def _copy(self, plan: FailoverPlan, copies: Copies) -> dict[str, Moved]:
        with self._steps.step("copies", "committing the starts for copies of the groups") as done:
            may = {name: start for name, start in plan.groups.items() if not start.reason}
            moved = copies.write(may)
            for name, m in sorted(moved.items()):
                if m.reason:
                    text = f"the copy of group {shown(name)} could not be committed: {m.reason}"
                    self._find("drill.copy", text)
            offsets = sum(m.written for m in moved.values())
            done(f"{counted(offsets, 'offset')} of {counted(len(moved), 'group')} committed and"
                 " read back")  # fmt: skip
        return moved

    # -- reading ------------------------------------------------------------------------------

    def _sample(
        self, plan: FailoverPlan, moved: Mapping[str, Moved]
    ) -> list[tuple[str, TopicPartition]]:
        written = [plan.groups[name] for name in sorted(moved) if not moved[name].reason]
        sample = chosen(written, self._wish.sample, self._name)
        starts = sum(len(g.starts) for g in written)
        if len(sample) < starts:
            self._notes.append(
                f"{len(sample):,} of {starts:,} starts were read and compared, drawn at random"
            )
        return sample

    def _read(
        self, plan: FailoverPlan, sample: Sequence[tuple[str, TopicPartition]]
    ) -> dict[_Read, Found]:
        with self._steps.step("read", "reading from where the copies start") as done:
            found: dict[_Read, Found] = {}
            for group, p in sample:
                offset = where_it_starts(plan.groups[group].starts[p])
                if (p, offset) not in found:
                    found[p, offset] = read_at(self._side.client, p, offset, read_committed=False)
            partitions = {p for p, _ in found}
            records = sum(f.records for f in found.values())
            done(f"{counted(records, 'record')} of {counted(len(partitions), 'partition')}")
        return found

    def _prove(
        self,
        plan: FailoverPlan,
        sample: Sequence[tuple[str, TopicPartition]],
        there: Mapping[_Read, Found],
    ) -> list[Proof]:
        with self._steps.step("prove", "comparing with what the groups read next") as done:
            proofs = self._proofs(plan, sample, there)
            for proof in proofs:
                if proof.outcome is Outcome.WRONG:
                    text = f"group {shown(proof.group)} at {proof.partition}: {proof.text}"
                    self._find("drill.wrong-start", text)
            unproven = [p for p in proofs if p.outcome is Outcome.UNPROVEN]
            for proof in unproven[:1]:
                self._notes.append(
                    f"{counted(len(unproven), 'start')} could be read and not be proven, such as"
                    f" group {shown(proof.group)} at {proof.partition}: {proof.text}"
                )
            right = sum(p.outcome in RIGHT for p in proofs)
            done(f"{right:,} of {len(proofs):,} starts are right")
        return proofs

    def _proofs(
        self,
        plan: FailoverPlan,
        sample: Sequence[tuple[str, TopicPartition]],
        there: Mapping[_Read, Found],
    ) -> list[Proof]:
        back = {target: source for source, target in plan.mirrored.targets.items()}
        mirrored = {p.partition: p.mirrored for p in plan.risk.partitions}
        compacted = self._compacted({p.topic for _, p in sample})
        committed = self._config.isolation_level == "read_committed"
        known: dict[_Read, Found] = {}
        proofs = []
        with ClusterClient(
            self._config.source_client, f"{self._config.flow}|drill-source",
            request_timeout=_REQUEST_SECONDS,
        ) as client:  # fmt: skip
            both = self._written_by_both(plan, client)
            for group, p in sample:
                start, source = plan.groups[group].starts[p], back.get(p)
                upstream = start.upstream
                here = None
                if source is not None and upstream is not None and self._answers(plan, source):
                    if (source, upstream) not in known:
                        known[source, upstream] = read_at(
                            client, source, upstream, read_committed=committed
                        )
                    here = known[source, upstream]
                offset = where_it_starts(start)
                found = there[p, offset]
                outcome, text = judge(
                    found, here, offset=offset, upstream=upstream,
                    mirrored=mirrored.get(source, 0) if source is not None else 0,
                    origin=self._origin(plan, source, found), compacted=p.topic in compacted,
                    note=self._excuse(plan, source, start), both_write=source in both,
                )  # fmt: skip
                proofs.append(Proof(group, p, offset, outcome, text))
        return proofs

    def _written_by_both(self, plan: FailoverPlan, source: ClusterClient) -> set[TopicPartition]:
        """Partitions of the source that have records of the target's own."""
        if not plan.source.healthy:
            return set()
        metadata = source.metadata()
        reverse = reverse_of(
            self._config, source, self._side.client, metadata, plan.mirrored.topics
        )
        if reverse is None:
            return set()
        targets = plan.mirrored.targets
        return {
            p for p, place in plan.mirrored.places.items()
            if reverse.at(opposite(place, targets[p].topic)) is not None
        }  # fmt: skip

    @staticmethod
    def _answers(plan: FailoverPlan, p: TopicPartition) -> bool:
        return plan.source.answers and p not in plan.source.silent

    def _origin(
        self, plan: FailoverPlan, source: TopicPartition | None, found: Found
    ) -> int | None:
        """Where the source has what was found on the target, by the ledger."""
        if source is None or found.record is None:
            return None
        ledger = self._side.store.at(plan.mirrored.places[source])
        return ledger.to_source(found.record.offset) if ledger.runs else None

    def _excuse(self, plan: FailoverPlan, source: TopicPartition | None, start: Start) -> str:
        """What is known of a start that is not at the very record; empty if it has to be."""
        if start.exact != start.offset or source is None or start.upstream is None:
            return start.note
        ledger = self._side.store.at(plan.mirrored.places[source])
        # Of what MM2 had mirrored only a bound is known.
        return start.note if ledger.inherited.to_target(start.upstream) is not None else ""

    def _compacted(self, topics: set[str]) -> set[str]:
        """Topics of the target that are compacted there."""
        answer = configs.describe(self._side.client, sorted(topics), [_POLICY])
        return {t for t in topics if "compact" in answer.value(t, _POLICY, "delete")}

    # -- the end ------------------------------------------------------------------------------

    def _clean(self, copies: Copies) -> None:
        with self._steps.step("clean", "deleting the copies") as done:
            others, left = copies.remove()
            for group, why in sorted(left.items())[:1]:
                more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
                self._find(
                    "drill.copies-left", f"{shown(group)} may still be there: {why}{more}",
                    "the next drill deletes it; or kafka-consumer-groups.sh --delete",
                )  # fmt: skip
            if others:
                text = f"{counted(others, 'group')} that earlier drills left"
                self._notes.append(f"{text} was deleted" if others == 1 else f"{text} were deleted")
                done(f"also {text}")
            elif not left:
                done("none is left")

    def _report(
        self,
        plan: FailoverPlan,
        moved: Mapping[str, Moved],
        there: Mapping[_Read, Found],
        proofs: Sequence[Proof],
        took: float,
    ) -> DrillReport:
        flow = self._config.flow
        by_group: dict[str, list[Proof]] = {}
        for proof in proofs:
            by_group.setdefault(proof.group, []).append(proof)
        names = {"look": "looking", "copies": "moving the groups", "read": "reading"}
        return DrillReport(
            str(flow), flow.source, flow.target, self._name, self._wish.by, self._began_ms,
            self._versions(plan), len(plan.mirrored.topics), len(plan.mirrored.places),
            plan.source.healthy, plan.risk, self._waited(plan),
            [
                GroupDrill(
                    name, start.state, start.reason or moved[name].reason,
                    {p: where_it_starts(s) for p, s in sorted(start.starts.items())},
                    start.unset, start.skips, start.repeats, by_group.get(name, ()),
                )
                for name, start in sorted(plan.groups.items())
            ],
            sum(len(g.starts) for g in plan.groups.values() if not g.reason),
            sum(m.written for m in moved.values()),
            sum(f.records for f in there.values()),
            [TimePart(text, self._steps.took[step]) for step, text in names.items()],
            self._assumed(plan), self._findings, self._notes, took, self._side.rehearsals.all,
        )  # fmt: skip

    def _waited(self, plan: FailoverPlan) -> float | None:
        """For how long the oldest record at risk had waited; None if that is not known."""
        risk, last = plan.risk, self._side.source_ends.last
        if not risk.exact:
            return risk.seconds
        if not risk.records:
            return 0.0
        fresh = last is not None and self._began_ms - last.at_ms <= 1000 * _FRESH_SECONDS
        return last.seconds if last is not None and fresh and last.records else None

    def _assumed(self, plan: FailoverPlan) -> list[TimePart]:
        """What a drill cannot measure: as the last handover measured it, else at most."""
        last = self._side.handovers.last
        took: Mapping[str, float] = last.facts.get("took", {}) if last is not None else {}
        when = f"as at the {last.kind} of {moment(last.began_ms / 1000)}" if last else ""
        drain = FailoverWish().drain_seconds
        bounds = [
            ("drain", "letting the mirror end what it can", drain,
             "at most, unless --drain says else"),
            ("stop", "stopping the mirrors", _LOOKS_SECONDS + _LEASES_END_SECONDS,
             "at most: two looks at holds of 2 s, and 3 s for leases to end"),
        ]  # fmt: skip
        parts = [
            TimePart(text, float(took[step]), when) if step in took else
            TimePart(text, seconds, source)
            for step, text, seconds, source in bounds
        ]  # fmt: skip
        if plan.source.answers:
            text = "giving up a source that does not answer"
            parts.insert(0, TimePart(text, ANSWER_SECONDS, "at most: its patience"))
        return parts

    def _versions(self, plan: FailoverPlan) -> dict[str, str]:
        known = {"Heliograph": __version__, "Python": platform.python_version()}
        flow = self._config.flow
        with suppress(WireError), self._side.client.lent() as connection:
            known[f"Kafka of {flow.target}"] = _release(connection.versions)
        if plan.source.answers:
            with suppress(WireError), ClusterClient(
                self._config.source_admin, f"{flow}|drill-version", request_timeout=_REQUEST_SECONDS
            ) as client, client.lent() as connection:  # fmt: skip
                known[f"Kafka of {flow.source}"] = _release(connection.versions)
        return known


def _release(versions: Mapping[int, tuple[int, int]]) -> str:
    """Of the oldest brokers that speak so."""
    return ".".join(map(str, release(versions))) + " or later"
