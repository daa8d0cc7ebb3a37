"""Failovers without Kafka, for tests of the REST API and of the dashboard.

`FailoverStage` stands for both clusters and the ledger. The steps, and what is kept of them, are
those of `heliograph.failover`.
"""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from heliograph.control.groups.start_rules import GroupStart, KeptAhead, Log, Moved, Start
from heliograph.failover.failover import STEPS, FailoverPlan, FailoverReport
from heliograph.failover.handover_log import Noted
from heliograph.failover.refusals import HandoverFailed, HandoverRefused
from heliograph.failover.risk import risk_of
from heliograph.failover.source_side import SourceSeen
from heliograph.failover.steps import Steps
from heliograph.failover.target_side import Mirrored
from heliograph.ledger.codec import Place
from heliograph.ledger.handovers import CutAt, Handover, Kind
from heliograph.ledger.rehearsals import Rehearsal, RehearsalKind
from heliograph.ledger.source_ends import LastSeen
from heliograph.model import TopicPartition
from heliograph.service.handovers import FlowHandovers

#: Step: what is told of its beginning and of its end.
SAID = {
    "announce": ("writing down that it begins", ""),
    "drain": ("letting the mirror copy what it can still reach", "1,204 records came"),
    "stop": ("stopping all mirrors of the flow", "mirror-1 (process 4711) rests"),
    "cut": ("noting where logs were cut", "84 partitions of 3 topics"),
    "groups": ("moving consumer groups", "3 groups moved, 1 not"),
    "unfence": ("letting clients write to eu-west", "eu-west was not fenced"),
}
#: Source topics, and how far the target is behind in each of their partitions.
TOPICS = {
    "orders.placed": [412, *[0] * 47], "payments.settled": [90, *[0] * 23], "audit.raw": [0] * 12,
}  # fmt: skip
IN_USE = "is in use on eu-west (Stable): a group is moved only while nobody uses it there"
GROUPS = {"billing": "", "fraud-detection": IN_USE, "search-indexer": "", "warehouse-loader": ""}


class FailoverStage:
    """Both clusters and the ledger.

    Attributes:
        healthy: whether the source answers: then only a forced failover is begun.
        unfit: whether the target cannot take writes: then none is.
        looks: how often somebody looked at the clusters.
        waits_before: the step that a failover waits in front of, until `go` is set.
        breaks_in: the step that raises.
        pace: seconds that a step takes.
        last: the newest handover of each flow, as the ledger has it.
        topics, groups: as `TOPICS` and `GROUPS`.
        diverged: what the old source has that the target has not, once it is back.
        kept: where a group is ahead on the target, by its name; ``notes`` of the plan.
    """

    def __init__(self, clock=time.time, *, pace=0.0):
        self.clock = clock
        self.pace = pace
        self.healthy = self.unfit = False
        self.looks = 0
        self.topics, self.groups = TOPICS, GROUPS
        self.kept: dict[str, dict[TopicPartition, KeptAhead]] = {}
        self.notes: tuple[str, ...] = ()
        self.diverged: int | None = None
        self.waits_before = self.breaks_in = ""
        self.go = threading.Event()
        self.last: dict[str, Handover] = {}
        self.rehearsals: dict[str, list[Rehearsal]] = {}
        self.wishes: list[Any] = []

    def handovers(self, config, events):
        """What a mirror with these flows has."""
        return FlowHandovers(config, events, make=self._make, read=self._reader)

    def rehearsed(self, flow):
        """A year of it: drills, and one failover in earnest."""
        now, week = int(self.clock() * 1000), 7 * 86_400_000
        drill, failover = RehearsalKind.DRILL, RehearsalKind.FAILOVER
        self.rehearsals[flow] = [
            Rehearsal(now - 3 * 86_400_000, drill, 7.25, 31, 0.4, True, 203, "cron@ops-1"),
            Rehearsal(now - week, drill, 8.1, 0, 0.0, True, 202, "cron@ops-1"),
            Rehearsal(now - 2 * week, failover, 9.4, 1_204, 0.6, True, 198, "ada@ops-2"),
            Rehearsal(now - 3 * week, drill, None, None, None, False, 0, "cron@ops-1",
                      "eu-west did not answer"),
        ]  # fmt: skip

    @contextmanager
    def _make(self, config, wish, tell, reverse):
        yield _Failover(self, config, wish, tell)

    def _reader(self, config):
        return _Reader(self, str(config.flow))


class _Reader:
    def __init__(self, stage, flow):
        self._stage = stage
        self._flow = flow

    def read(self):
        stage = self._stage
        return Noted(stage.last.get(self._flow), tuple(stage.rehearsals.get(self._flow, ())))

    def close(self): ...


class _Ledger:
    """What `Steps` writes to."""

    def __init__(self, stage, flow):
        self._stage = stage
        self._flow = flow

    def note(self, handover):
        self._stage.last[self._flow] = handover
        return handover

    def end(self, handover, *, aborted=False):
        ended_ms = int(self._stage.clock() * 1000)
        return self.note(replace(handover, ended_ms=ended_ms, aborted=aborted))


class _Failover:
    def __init__(self, stage, config, wish, tell):
        self._stage = stage
        self._flow = config.flow
        self._wish = wish
        self._tell = tell

    def plan(self):
        stage, name = self._stage, str(self._flow)
        stage.looks += 1
        places, positions, ends = {}, {}, {}
        for topic, lags in stage.topics.items():
            for number, behind in enumerate(lags):
                p = TopicPartition(topic, number)
                places[p] = Place(topic, number, uuid.UUID(int=1), uuid.UUID(int=2))
                positions[p] = CutAt(40_000, 40_000)
                ends[p] = 40_000 + behind
        targets = {p: TopicPartition(f"{self._flow.source}.{p.topic}", p.partition) for p in places}
        nothing: Any = None
        mirrored = Mirrored(places, targets, nothing, frozenset())
        why_not = "" if stage.healthy else "no broker answers: Connection refused"
        source = SourceSeen(stage.healthy, why_not, ends if stage.healthy else {})
        more = {p: end for p, end in ends.items() if end > 40_000}
        records = sum(map(sum, stage.topics.values()))
        noted = LastSeen(int(stage.clock() * 1000) - 21_000, more, True, records, 0.4)
        self.targets, self.positions = targets, positions
        last = stage.last.get(name)
        return FailoverPlan(
            name, source, None, mirrored, risk_of(positions, source, noted, stage.clock()),
            self._groups(), last, tuple(self._refusals()) if last is None else (),
            notes=stage.notes,
        )  # fmt: skip

    def _groups(self):
        at = TopicPartition(f"{self._flow.source}.orders.placed", 0)
        start = Start(at, 39_990, Log(0, 40_000))
        return {
            name: GroupStart(name, "Stable" if why else "Empty", why, {} if why else {at: start})
            for name, why in self._stage.groups.items()
        }

    def _refusals(self):
        source, target = self._flow.source, self._flow.target
        if self._stage.healthy and not self._wish.force:
            partitions = sum(map(len, self._stage.topics.values()))
            yield HandoverRefused(
                "failover.source-healthy",
                f"{source} answers, and all {partitions:,} partitions of it have a leader:"
                " nothing has to be lost",
                "'heliograph switchover' moves clients without loss; --force fails over all the"
                " same, and loses what is not mirrored",
            )  # fmt: skip
        if self._stage.unfit:
            yield HandoverRefused(
                "failover.target-unfit",
                f"{target} cannot take writes: {source}.orders.placed-3 has no leader",
                f"bring the brokers of {target} back first, or choose topics with --topics",
            )

    def run(self):
        stage, name = self._stage, str(self._flow)
        stage.wishes.append(self._wish)
        plan = self.plan()
        for refusal in plan.refusals:
            raise refusal
        began_ms = int(stage.clock() * 1000)
        ledger: Any = _Ledger(stage, name)
        steps = Steps(
            ledger, plan.before or Handover("5f3a", Kind.FAILOVER, self._wish.by, began_ms),
            self._tell, lambda: None,
        )  # fmt: skip
        for step in STEPS:
            if step == stage.waits_before:
                assert stage.go.wait(60)
            with steps.step(step, SAID[step][0]) as done:
                if stage.pace:
                    threading.Event().wait(stage.pace)
                if step == stage.breaks_in:
                    raise HandoverFailed(
                        "handover.mirror-lives", "a mirror still copies", "stop that process"
                    )
                done(SAID[step][1])
        steps.end()
        moved = {
            n: Moved(n, written=0 if why else 1, kept=stage.kept.get(n, {}), reason=why)
            for n, why in stage.groups.items()
        }
        return FailoverReport(
            name, steps.handover, plan.source, plan.risk, self.positions, self.targets, moved,
            plan.groups, 7.2, steps.took,
        )  # fmt: skip
