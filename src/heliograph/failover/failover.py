"""Failover: clients go on at the target although the source is gone. In a command or the driver.

    look      what is there, what would be lost, what speaks against it; nothing is changed
    announce  the handover is in the ledger: whoever repeats the command goes on from there
    drain     the mirror copies what it can still reach
    stop      all mirrors rest, also those that come back later
    cut       where logs were cut is in the ledger: from there on, the target goes its own way
    groups    consumer groups are moved to their exact offsets
    unfence   the target takes writes, if an earlier switchover had fenced it

Works from the target and this machine alone. Each step finds what an earlier run of it did.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from heliograph.config import FlowConfig
from heliograph.config.key import BoundedPattern
from heliograph.control.groups.start_rules import GroupStart, Moved
from heliograph.control.groups.starts import GroupStarts
from heliograph.errors import HeliographError
from heliograph.failover.fence import Fence
from heliograph.failover.lock import Lock, one_at_a_time
from heliograph.failover.refusals import HandoverRefused
from heliograph.failover.risk import Risk, risk_of
from heliograph.failover.source_side import SourceSeen, see_source
from heliograph.failover.steps import Steps, Tell
from heliograph.failover.stopping import stop_mirrors
from heliograph.failover.target_health import unwritable
from heliograph.failover.target_side import Mirrored, TargetSide
from heliograph.ledger.handovers import CutAt, Handover, Kind
from heliograph.ledger.holds import Subject
from heliograph.ledger.rehearsals import Rehearsal, RehearsalKind
from heliograph.ledger.source_ends import LastSeen
from heliograph.model import TopicPartition
from heliograph.policy import TopicSelection
from heliograph.shown import shown
from heliograph.units import counted, duration, moment
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

__all__ = ["STEPS", "Failover", "FailoverPlan", "FailoverReport", "FailoverWish"]

STEPS = ("announce", "drain", "stop", "cut", "groups", "unfence")
#: All parts of a flow; mirrors answer for the first.
PARTS = ("copying", "checkpoints", "heartbeats")
#: The target is drained when it has stood still for so long.
_STILL_SECONDS, _LOOK_SECONDS = 1.0, 0.2
_GROUPS_REQUEST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class FailoverWish:
    """What an operator asks for.

    Attributes:
        topics: source topics whose names it matches wholly; None: all of the flow.
        groups: likewise consumer groups.
        max_records, max_seconds: how much may be lost; None: any.
        force: although the source is healthy, or both directions are enabled.
        rewind: groups that are further on, on the target, are set back.
        drain_seconds: how long the mirror may copy on, at most.
        patience_seconds: how long mirrors may take to rest.
        by: who asks.
        dry_run: only look.
    """

    topics: BoundedPattern | None = None
    groups: BoundedPattern | None = None
    max_records: int | None = None
    max_seconds: float | None = None
    force: bool = False
    rewind: bool = False
    drain_seconds: float = 5.0
    patience_seconds: float = 120.0
    by: str = "somebody"


@dataclass(frozen=True, slots=True)
class FailoverPlan:
    """What a failover would do now.

    Attributes:
        topics: source topics that would be promoted; None for all of the flow.
        risk: what would be lost.
        groups: where each group would start.
        before: the failover that was begun before, or is through; None if there is none.
        refusals: what speaks against it; empty if it may be begun.
    """

    flow: str
    source: SourceSeen
    topics: tuple[str, ...] | None
    mirrored: Mirrored
    risk: Risk
    groups: Mapping[str, GroupStart]
    before: Handover | None
    refusals: tuple[HandoverRefused, ...]


@dataclass(frozen=True, slots=True)
class FailoverReport:
    """What a failover did.

    Attributes:
        positions: where each partition was cut.
        moved: what became of each group.
        unset: partitions in which a group has no offset, by group, with the reason.
        rto_seconds: from its beginning, of a run that was killed too, to its end.
        took: seconds of each step of this run.
        repeated: it was through already; only what was missing was done.
    """

    flow: str
    handover: Handover
    source: SourceSeen
    risk: Risk
    positions: Mapping[TopicPartition, CutAt]
    targets: Mapping[TopicPartition, TopicPartition]
    moved: Mapping[str, Moved]
    starts: Mapping[str, GroupStart]
    rto_seconds: float
    took: Mapping[str, float]
    repeated: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def left(self) -> dict[str, str]:
        """Groups that were not moved, with the reason."""
        return {name: moved.reason for name, moved in self.moved.items() if moved.reason}


class Failover:
    """One failover of one flow, with connections of its own. Use it as a context manager.

    ``reverse`` is the flow of the other direction, if the file has it.
    """

    def __init__(
        self,
        config: FlowConfig,
        wish: FailoverWish,
        tell: Tell,
        *,
        reverse: FlowConfig | None = None,
        scope: str = "",
    ) -> None:
        self._config = config
        self._wish = wish
        self._tell = tell
        self._reverse = reverse
        self._scope = scope
        self._open = ExitStack()
        self._side = TargetSide(config, scope)
        self._selection = TopicSelection(config)
        self._open.enter_context(self._side)

    def __enter__(self) -> Failover:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def side(self) -> TargetSide:
        """What the target knows of the flow; it is read by `plan`."""
        return self._side

    # -- looking ------------------------------------------------------------------------------

    def plan(self) -> FailoverPlan:
        """Look at everything and change nothing; raises StartError, HandoverRefused, WireError."""
        self._side.open()
        mirrored = self._chosen(self._side.mirrored())
        source = self._see_source(mirrored)
        before = self._before(mirrored)
        positions = self._cut_positions(mirrored, before) or self._side.positions(mirrored)
        risk = self._risk(positions, source, mirrored)
        groups = self._starts(source, mirrored).look()
        topics = tuple(mirrored.topics) if self._wish.topics is not None else None
        refusals = () if before is not None else tuple(self._against(mirrored, source, risk))
        return FailoverPlan(
            str(self._config.flow), source, topics, mirrored, risk, groups, before, refusals
        )

    def _chosen(self, mirrored: Mirrored) -> Mirrored:
        pattern, flow = self._wish.topics, self._config.flow
        if pattern is None:
            return mirrored
        chosen = mirrored.of([t for t in mirrored.topics if pattern.fullmatch(t)])
        if not chosen.places:
            known = ", ".join(mirrored.topics[:5])
            raise HandoverRefused(
                "failover.no-topics", f"flow {flow} mirrors no topic that matches"
                f" {pattern.pattern!r}", f"it mirrors {known}" if known else "",
            )  # fmt: skip
        return chosen

    def _promotes(self, topic: str) -> bool:
        """Whether the failover is about a source topic, mirrored or not."""
        pattern = self._wish.topics
        return (
            self._selection.includes(topic)
            and not self._side.policy.is_heartbeats_topic(topic)
            and (pattern is None or bool(pattern.fullmatch(topic)))
        )

    def _see_source(self, mirrored: Mirrored) -> SourceSeen:
        """What the source says, of partitions of which nothing is on the target, too."""
        seen = see_source(self._config, mirrored.places.keys(), self._promotes)
        latest = self._config.auto_offset_reset == "latest"
        waiting = {
            p: TopicPartition(self._side.remote_topic(p.topic), p.partition)
            for p, start in seen.starts.items()
            if seen.ends.get(p, start) > start and not latest
        }
        there = admin.list_offsets(
            self._side.client, mirrored.metadata, waiting.values(), admin.LATEST
        )
        # Where the target has records, they are from there, and were brought to the source.
        starts = {p: seen.starts[p] for p, remote in waiting.items() if not there.get(remote)}
        return replace(seen, starts=starts)

    def _risk(
        self, positions: Mapping[TopicPartition, CutAt], source: SourceSeen, mirrored: Mirrored
    ) -> Risk:
        return risk_of(positions, source, self._last_seen(), time.time(), mirrored.places.keys())

    def _last_seen(self) -> LastSeen | None:
        """What was last known of the source, of the topics that are promoted."""
        last = self._side.source_ends.last
        if last is None:
            return None
        return replace(
            last,
            ends={p: n for p, n in last.ends.items() if self._promotes(p.topic)},
            silent=frozenset(p for p in last.silent if self._promotes(p.topic)),
        )

    def _before(self, mirrored: Mirrored) -> Handover | None:
        """The failover that this one goes on with: open, or through and not taken back.

        None if the last one was about other topics: those are promoted one after the other.
        """
        last, held = self._side.handovers.last, self._side.holds
        if last is None or last.kind is not Kind.FAILOVER or last.aborted:
            return None
        if last.open:
            return last if last.facts.get("pattern") == self._pattern else None
        if last.topics is not None and not self._concerned(last.topics, mirrored):
            return None
        subjects = self._subjects(last.topics)
        return last if all(subject in held.held for subject in subjects) else None

    @property
    def _pattern(self) -> str | None:
        return self._wish.topics.pattern if self._wish.topics is not None else None

    def _concerned(self, topics: tuple[str, ...], mirrored: Mirrored) -> bool:
        """Whether a failover of ``topics`` was about all that is to be promoted now."""
        return self._wish.topics is not None and set(mirrored.topics) <= set(topics)

    def _cut_positions(
        self, mirrored: Mirrored, before: Handover | None
    ) -> dict[TopicPartition, CutAt] | None:
        """Where a failover that was begun before has cut the logs; None if it has not yet."""
        if before is None or "cut" not in before.steps:
            return None
        cuts = self._side.handovers.cuts
        return {
            p: cuts[p.topic].partitions[p.partition]
            for p in mirrored.places
            if p.topic in cuts and p.partition in cuts[p.topic].partitions
        }

    def _starts(self, source: SourceSeen, mirrored: Mirrored) -> GroupStarts:
        # A source that is half gone answers for some groups only: checkpoints know all.
        client = self._source_client() if source.healthy else None
        topics = set(mirrored.topics) if self._wish.topics is not None else None
        return GroupStarts(
            self._config,
            self._side.client,
            client,
            topics=topics,
            groups=self._wish.groups.pattern if self._wish.groups is not None else None,
        )

    def _source_client(self) -> ClusterClient:
        return self._open.enter_context(
            ClusterClient(
                self._config.source_admin, f"{self._config.flow}|handover-groups",
                request_timeout=_GROUPS_REQUEST_SECONDS,
            )
        )  # fmt: skip

    def _against(
        self, mirrored: Mirrored, source: SourceSeen, risk: Risk
    ) -> Iterator[HandoverRefused]:
        """What speaks against it."""
        flow, wish = self._config.flow, self._wish
        standby = PARTS[:1] if self._config.standby else ()
        resting = self._side.holds.parts_with(standby).get(PARTS[0])
        if resting is not None and resting.standby:
            yield HandoverRefused(
                "failover.stands-by",
                f"{flow} stands by: clients are at {flow.target} already",
                f"if it is {flow.target} that is gone: heliograph failover FILE --to {flow.source}",
            )
            return
        if source.healthy and not wish.force:
            yield HandoverRefused(
                "failover.source-healthy",
                f"{flow.source} answers, and all {len(source.ends)} partitions of it have a leader:"
                " nothing has to be lost",
                "'heliograph switchover' moves clients without loss; --force fails over all the"
                " same, and loses what is not mirrored",
            )
        reverse = self._reverse
        # A handover that started this flow has put the other one into standby.
        stands_by = reverse is None or reverse.standby or self._side.holds.handed_over
        if reverse is not None and reverse.enabled and not stands_by and not wish.force:
            yield HandoverRefused(
                "failover.both-directions",
                f"{flow} and {reverse.flow} are both enabled: when {flow.source} is back,"
                f" {reverse.flow} would write to it before anybody has seen what only"
                f" {flow.source} has",
                f"set {reverse.flow}.heliograph.standby=true in the file, and have the mirror read"
                " it (SIGHUP); or --force",
            )
        unfit = unwritable(self._side, mirrored)
        if unfit:
            more = f" (and {len(unfit) - 1} more)" if unfit[1:] else ""
            yield HandoverRefused(
                "failover.target-unfit",
                f"{flow.target} cannot take writes: {unfit[0]}{more}",
                f"bring the brokers of {flow.target} back first, or choose topics with --topics",
            )
        yield from self._too_much(risk)

    def _too_much(self, risk: Risk) -> Iterator[HandoverRefused]:
        wish, flow = self._wish, self._config.flow
        limits = []
        if wish.max_records is not None and risk.records > wish.max_records:
            limits.append(counted(wish.max_records, "record"))
        if wish.max_seconds is not None and (risk.seconds or 0.0) > wish.max_seconds:
            limits.append(duration(wish.max_seconds))
        wanted = wish.max_records is not None or wish.max_seconds is not None
        if limits:
            worst = ", ".join(
                f"{p.partition} {counted(p.records or 0, 'record')}" for p in risk.behind[:5]
            )
            more = f" and {len(risk.behind) - 5} more partitions" if risk.behind[5:] else ""
            yield HandoverRefused(
                "failover.rpo",
                f"{flow.target} is behind by more than {' and '.join(limits)}: {risk}."
                f" {worst}{more}",
                "wait for the mirror, or allow more with --max-rpo",
            )
        elif wanted and self._is_unknown(risk):
            yield HandoverRefused(
                "failover.rpo-unknown",
                f"how far {flow.target} is behind is not known: {risk}",
                "without --max-rpo the failover goes on all the same",
            )

    def _is_unknown(self, risk: Risk) -> bool:
        """Whether it cannot be said that a limit is kept."""
        if self._wish.max_seconds is not None and risk.records and risk.seconds is None:
            return True
        return not risk.exact and (risk.as_of_ms is None or bool(risk.unknown))

    # -- doing it -----------------------------------------------------------------------------

    def run(self) -> FailoverReport:
        """Fail over, or go on with a failover that was begun; raises HeliographError, WireError."""
        began_ms = int(time.time() * 1000)
        self._side.open()
        with one_at_a_time(self._config, self._scope) as lock:
            plan = self.plan()
            for refusal in plan.refusals:
                raise refusal
            self._refuse_other_handover(plan.before)
            return self._carry_out(plan, began_ms, lock)

    def _refuse_other_handover(self, before: Handover | None) -> None:
        last = self._side.handovers.last
        if last is not None and last.open and before is None:
            began = moment(last.began_ms / 1000)
            what = f"the same 'heliograph {last.kind}"
            if last.kind is Kind.FAILOVER:
                pattern = last.facts.get("pattern")
                what += (
                    f" --topics {shown(pattern)}" if pattern is not None else " without --topics"
                )
            raise HandoverRefused(
                "handover.open",
                f"a {last.kind} of flow {self._config.flow}{_about(last.topics)}, begun by"
                f" {last.by} at {began}, was not ended",
                f"{what}' goes on with it"
                + ("; with --abort it is taken back" if last.kind is Kind.SWITCHOVER else ""),
            )

    def _carry_out(self, plan: FailoverPlan, began_ms: int, lock: Lock) -> FailoverReport:
        before, side = plan.before, self._side
        repeated = before is not None and not before.open
        handover = before or Handover(
            secrets.token_hex(6), Kind.FAILOVER, self._wish.by, began_ms, plan.topics,
            facts={"pattern": self._pattern},
        )  # fmt: skip
        steps = Steps(side.handovers, handover, self._tell, lock)
        mirrored = plan.mirrored
        if handover.topics is not None:
            mirrored = mirrored.of(handover.topics)
        if not repeated:
            self._announce(steps)
            self._drain(steps, mirrored)
            self._stop(steps)
            # Nothing is begun any more: what was begun since the look is to be cut, too.
            mirrored = self._chosen(self._side.mirrored())
            if handover.topics is not None:
                mirrored = mirrored.of(handover.topics)
            self._cut(steps, mirrored)
        positions = self._cut_positions(mirrored, self._reread(steps)) or {}
        source = self._see_source(mirrored) if repeated else plan.source
        risk = self._risk(positions, source, mirrored)
        starts, moved = self._groups(steps, source, mirrored)
        if not repeated:
            self._unfence(steps, mirrored)
        rto = steps.seconds if not repeated else float(handover.facts.get("rto", 0.0))
        if not repeated:
            took = {name: round(seconds, 3) for name, seconds in steps.took.items()}
            steps.remember(rto=round(rto, 3), records=risk.records, exact=risk.exact, took=took)
            self._note_rehearsal(steps.handover, risk, rto, moved)
            steps.end()
        elif risk.exact:
            steps.remember(records=risk.records, exact=True)
        return FailoverReport(
            str(self._config.flow), steps.handover, source, risk, positions, mirrored.targets,
            moved, starts, rto, steps.took, repeated,
        )  # fmt: skip

    def _reread(self, steps: Steps) -> Handover:
        self._side.refresh()
        return steps.handover

    def _announce(self, steps: Steps) -> None:
        if steps.through("announce"):
            began = moment(steps.handover.began_ms / 1000)
            steps.say("announce", f"goes on with the failover that {steps.handover.by} began at"
                                  f" {began}")  # fmt: skip
            return
        with steps.step("announce", "writing down that it begins"):
            pass

    def _drain(self, steps: Steps, mirrored: Mirrored) -> None:
        """Until the target's logs stand still: what was under way has arrived then."""
        if steps.through("drain"):
            return
        with steps.step("drain", "letting the mirror copy what it can still reach") as done:
            began = time.monotonic()
            ends = first = self._side.ends(mirrored)
            still_since = began
            while (now := time.monotonic()) - began < self._wish.drain_seconds:
                if now - still_since >= _STILL_SECONDS:
                    break
                time.sleep(_LOOK_SECONDS)
                found = self._side.ends(mirrored)
                if found != ends:
                    ends, still_since = found, time.monotonic()
            copied = sum(end - first.get(p, end) for p, end in ends.items())
            moves = time.monotonic() - still_since < _STILL_SECONDS
            text = f"{counted(copied, 'record')} came"
            done(f"{text}; more would come, but the time is up" if moves else text)

    def _stop(self, steps: Steps) -> None:
        if steps.through("stop"):
            return
        handover, flow = steps.handover, self._config.flow
        with steps.step("stop", "stopping all mirrors of the flow") as done:
            subjects = self._subjects(handover.topics)
            answers = subjects if handover.topics is not None else subjects[:1]
            why = (
                f"failed over to {flow.target}; 'heliograph failback' brings it back, 'heliograph"
                " resume' only lets it go on"
            )
            stopped = stop_mirrors(
                self._side, subjects, handover.by, why, answers=answers,
                patience_seconds=self._wish.patience_seconds, scope=self._scope,
            )  # fmt: skip
            done(f"{stopped.by} rests" if stopped.by else "no mirror was left")

    @staticmethod
    def _subjects(topics: tuple[str, ...] | None) -> list[Subject]:
        if topics is not None:
            return [Subject.topic(topic) for topic in topics]
        return [Subject.part(part) for part in PARTS]

    def _cut(self, steps: Steps, mirrored: Mirrored) -> None:
        if steps.through("cut"):
            return
        side, handover = self._side, steps.handover
        with steps.step("cut", "noting where logs were cut") as done:
            positions = side.positions(mirrored)
            silent = sorted(mirrored.places.keys() - positions.keys())
            if silent:
                raise HeliographError(
                    "failover.target-silent",
                    f"the leader of {mirrored.targets[silent[0]]} on {self._config.flow.target}"
                    " does not answer; mirrors rest already",
                    "repeat this command when it does: it goes on from here",
                )
            subject = self._subjects(handover.topics)[0]
            steps.require_lock()
            held_ms = side.holds.held[subject].since_ms
            first = side.first_cuts(mirrored, positions)
            side.handovers.cut(side.cuts(handover.id, mirrored, first, held_ms))
            done(f"{counted(len(positions), 'partition')} of"
                 f" {counted(len(mirrored.topics), 'topic')}")  # fmt: skip

    def _groups(
        self, steps: Steps, source: SourceSeen, mirrored: Mirrored
    ) -> tuple[Mapping[str, GroupStart], Mapping[str, Moved]]:
        """Move groups; those that were moved before are left where their consumers are now."""
        earlier: Mapping[str, int] = steps.handover.facts.get("groups", {})
        with steps.step("groups", "moving consumer groups") as done:
            moving = self._starts(source, mirrored)
            found = moving.look()
            fresh = {name: start for name, start in found.items() if name not in earlier}
            moved = dict(moving.write(fresh, rewind=self._wish.rewind))
            through = {n: m.written + m.already for n, m in moved.items() if not m.reason}
            steps.remember(groups={**earlier, **through})
            moved |= {n: Moved(n, already=partitions) for n, partitions in earlier.items()}
            left = sum(bool(m.reason) for m in moved.values())
            text = f"{counted(len(moved) - left, 'group')} moved"
            done(f"{text}, {left} not" if left else text)
        return found, moved

    def _unfence(self, steps: Steps, mirrored: Mirrored) -> None:
        """A standby stays fenced after a switchover, so that nobody writes to it by mistake."""
        if steps.through("unfence"):
            return
        target = self._config.flow.target
        with steps.step("unfence", f"letting clients write to {target}") as done:
            names = {p.topic for p in mirrored.targets.values()}
            lifted = Fence(self._side.client, self._side.fences).take_down(names)
            done(f"the fence of {counted(lifted, 'topic')} is gone" if lifted
                 else f"{target} was not fenced")  # fmt: skip

    def _note_rehearsal(
        self, handover: Handover, risk: Risk, rto: float, moved: Mapping[str, Moved]
    ) -> None:
        known = risk.exact or risk.as_of_ms is not None
        left = sum(bool(m.reason) for m in moved.values())
        self._side.rehearsals.add(
            Rehearsal(
                handover.began_ms, RehearsalKind.FAILOVER, rto, risk.records if known else None,
                risk.seconds, not left, len(moved) - left, handover.by,
                f"{counted(left, 'group')} not moved" if left else "",
            )
        )  # fmt: skip


def _about(topics: tuple[str, ...] | None) -> str:
    if topics is None:
        return ""
    more = f" and {len(topics) - 3} more" if topics[3:] else ""
    return f" (topics {', '.join(topics[:3])}{more})"
