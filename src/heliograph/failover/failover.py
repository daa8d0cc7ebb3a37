"""Failover: clients go on at the target although the source is gone. In a command or the driver.

    look      what is there, what would be lost, what speaks against it; nothing is changed
    announce  the handover is in the ledger: whoever repeats the command goes on from there
    drain     the mirror copies what it can still reach
    stop      all mirrors rest, also those that come back later
    cut       where logs were cut is in the ledger: from there on, the target goes its own way
    groups    consumer groups are moved to their exact offsets
    unfence   the target takes writes, if an earlier switchover had fenced it

What was lost is asked for once more when the logs are cut: the source may have taken more since the
look, or be back.

Works from the target and this machine alone. Each step finds what an earlier run of it did.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from itertools import islice

from heliograph.config import FlowConfig
from heliograph.control.groups.start_rules import GroupStart, KeptAhead, Moved
from heliograph.control.groups.starts import GroupStarts
from heliograph.errors import HeliographError, WireError
from heliograph.failover.failover_check import FailoverCheck
from heliograph.failover.failover_values import (
    PARTS,
    FailoverPlan,
    FailoverReport,
    FailoverWish,
    subjects_of,
)
from heliograph.failover.fence import Fence
from heliograph.failover.lock import Lock, one_at_a_time
from heliograph.failover.pair import nobody_the_other_way
from heliograph.failover.refusals import HandoverFailed, HandoverRefused, raise_refused
from heliograph.failover.risk import Risk, risk_of
from heliograph.failover.source_side import SourceQuestion, SourceSeen
from heliograph.failover.steps import Steps, Tell
from heliograph.failover.stopping import stop_mirrors
from heliograph.failover.target_side import Mirrored, TargetSide
from heliograph.failover.worth_knowing import differences, streams_applications
from heliograph.ledger.handovers import CutAt, Handover, Kind
from heliograph.ledger.holds import Subject
from heliograph.ledger.rehearsals import Rehearsal, RehearsalKind
from heliograph.ledger.source_ends import LastSeen
from heliograph.model import TopicPartition
from heliograph.policy import TopicSelection
from heliograph.units import counted, moment
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

__all__ = ["PARTS", "STEPS", "Failover", "FailoverPlan", "FailoverReport", "FailoverWish"]

STEPS = ("announce", "drain", "stop", "cut", "groups", "unfence")
#: The target is drained when it has stood still for so long.
_STILL_SECONDS, _LOOK_SECONDS = 1.0, 0.2
_GROUPS_REQUEST_SECONDS = 10.0
#: The ledger names so many partitions in which groups were ahead: a record has to stay small.
_MOST_KEPT = 2000
_Kept = Mapping[str, Mapping[TopicPartition, KeptAhead]]


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
        check = FailoverCheck(self._config, self._wish, self._side, self._reverse)
        last = self._last_seen()
        faulted = dict(last.failed) if last is not None else {}
        refusals = () if before is not None else tuple(
            check.refusals(mirrored, source, risk, faulted)
        )  # fmt: skip
        notes = [*streams_applications(groups, mirrored.topics)]
        if source.healthy:
            # It may go in the middle of it; then it is not known.
            with suppress(WireError):
                notes += differences(self._source_client(), source, self._side, mirrored)
        return FailoverPlan(
            str(self._config.flow), source, topics, mirrored, risk, groups, before, refusals,
            faulted, tuple(notes),
        )  # fmt: skip

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
        return self._seen(self._ask_source(mirrored), mirrored)

    def _ask_source(self, mirrored: Mirrored) -> SourceQuestion:
        return SourceQuestion(self._config, mirrored.places.keys(), self._promotes)

    def _seen(self, question: SourceQuestion, mirrored: Mirrored) -> SourceSeen:
        seen = question.answer()
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
        going_on = self._side.going_on(positions, mirrored)
        return risk_of(going_on, source, self._last_seen(), time.time(), mirrored.places.keys())

    def _last_seen(self) -> LastSeen | None:
        """What was last known of the source, of the topics that are promoted."""
        last = self._side.source_ends.last
        if last is None:
            return None
        return replace(
            last,
            ends={p: n for p, n in last.ends.items() if self._promotes(p.topic)},
            silent=frozenset(p for p in last.silent if self._promotes(p.topic)),
            failed={p: why for p, why in last.failed.items() if self._promotes(p.topic)},
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
        subjects = subjects_of(last.topics)
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

    # -- doing it -----------------------------------------------------------------------------

    def run(self, show: Callable[[FailoverPlan], None] | None = None) -> FailoverReport:
        """Fail over, or go on with a failover that was begun; raises HeliographError, WireError.

        ``show`` is called with the plan before anything is changed, also if it is refused. The time
        that is reported counts from here on, or from where an earlier run has begun.
        """
        began_ms = int(time.time() * 1000)
        self._side.open()
        with one_at_a_time(self._config, self._scope) as lock:
            plan = self.plan()
            if show is not None:
                show(plan)
            raise_refused(plan.refusals)
            with self._alone(plan):
                return self._carry_out(plan, began_ms, lock)

    def _alone(self, plan: FailoverPlan) -> AbstractContextManager[None]:
        """A source that is gone, or half gone, is not asked who hands over the other direction."""
        last = self._side.handovers.last
        since_ms = last.began_ms if last is not None else 0
        reverse = self._reverse if plan.source.healthy else None
        return nobody_the_other_way(reverse, since_ms, self._scope)

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
        # It may take seconds to hear that nobody answers: groups do not wait for that.
        question = self._ask_source(mirrored)
        starts, moved = self._groups(steps, plan.source, mirrored)
        if not repeated:
            self._unfence(steps, mirrored)
        rto = steps.seconds if not repeated else float(handover.facts.get("rto", 0.0))
        source = self._seen(question, mirrored)
        positions = self._cut_positions(mirrored, self._reread(steps)) or {}
        risk = self._risk(positions, source, mirrored)
        if not repeated:
            took = {name: round(seconds, 3) for name, seconds in steps.took.items()}
            steps.remember(
                rto=round(rto, 3), records=risk.records, exact=risk.exact, as_of=risk.as_of_ms,
                took=took,
            )  # fmt: skip
            self._note_rehearsal(steps.handover, risk, rto, moved)
            steps.end()
        elif risk.exact:
            steps.remember(records=risk.records, exact=True, as_of=risk.as_of_ms)
        return FailoverReport(
            str(self._config.flow), steps.handover, source, risk, positions, mirrored.targets,
            moved, starts, rto, steps.took, repeated, plan.faulted, plan.notes,
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
            subjects = subjects_of(handover.topics)
            answers = subjects if handover.topics is not None else subjects[:1]
            why = (
                f"failed over to {flow.target}; 'heliograph failback' brings it back, 'heliograph"
                " resume' only lets it go on"
            )
            stopped = stop_mirrors(
                self._side, subjects, handover.by, why, answers=answers,
                patience_seconds=self._wish.patience_seconds, scope=self._scope,
            )  # fmt: skip
            steps.remember(held=[
                [*subject, self._side.holds.held[subject].since_ms] for subject in answers
            ])  # fmt: skip
            done(f"{stopped.by} rests" if stopped.by else "no mirror was left")

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
            steps.require_lock()
            self._require_rest(steps)
            held_ms = side.holds.held[subjects_of(handover.topics)[0]].since_ms
            first = side.first_cuts(mirrored, positions)
            side.handovers.cut(side.cuts(handover.id, mirrored, first, held_ms))
            done(f"{counted(len(positions), 'partition')} of"
                 f" {counted(len(mirrored.topics), 'topic')}")  # fmt: skip

    def _require_rest(self, steps: Steps) -> None:
        """Mirrors still rest because of what stopped them; raises HandoverFailed if not.

        Somebody may have resumed the flow, or this command was killed and comes back much later.
        What was copied since is behind the positions that were just read.
        """
        self._side.refresh()
        held = self._side.holds.held
        for kind, name, since_ms in steps.handover.facts.get("held", ()):
            hold = held.get(Subject(kind, name))
            if hold is None or hold.since_ms != since_ms:
                # The same command stops them again.
                steps.note(steps=tuple(s for s in steps.handover.steps if s != "stop"))
                what = name if kind == "part" else f"topic {name}"
                raise HandoverFailed(
                    "failover.resumed",
                    f"somebody has resumed {what} of flow {self._config.flow} since its mirrors"
                    " came to rest: they copy again, and nothing was cut",
                    "repeat this command: it stops them once more",
                )

    def _groups(
        self, steps: Steps, source: SourceSeen, mirrored: Mirrored
    ) -> tuple[Mapping[str, GroupStart], Mapping[str, Moved]]:
        """Move groups; those that were moved before are left where their consumers are now."""
        earlier: Mapping[str, int] = steps.handover.facts.get("groups", {})
        kept = _kept_of(steps.handover)
        with steps.step("groups", "moving consumer groups") as done:
            moving = self._starts(source, mirrored)
            found = moving.look()
            fresh = {name: start for name, start in found.items() if name not in earlier}
            moved = dict(moving.write(fresh, rewind=self._wish.rewind))
            through = {n: m.written + m.already for n, m in moved.items() if not m.reason}
            kept |= {n: moved[n].kept for n in through if moved[n].kept}
            steps.remember(groups={**earlier, **through}, kept=_kept_facts(kept))
            moved |= {
                n: Moved(n, already=partitions, kept=kept.get(n, {}))
                for n, partitions in earlier.items()
            }
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


def _kept_facts(kept: _Kept) -> list[list[object]]:
    """Where groups were ahead on the target, for whoever repeats the command."""
    named = ([name, *p, *at] for name, places in sorted(kept.items()) for p, at in places.items())
    return list(islice(named, _MOST_KEPT))


def _kept_of(handover: Handover) -> dict[str, Mapping[TopicPartition, KeptAhead]]:
    found: dict[str, dict[TopicPartition, KeptAhead]] = {}
    for name, topic, partition, committed, offset in handover.facts.get("kept", ()):
        places = found.setdefault(name, {})
        places[TopicPartition(topic, partition)] = KeptAhead(committed, offset)
    return dict(found)
