"""What the ledger of a flow tells of its past, as events. Used by commands; reads.

A mirror's own events are in its memory. What must outlive it is in the ledger: who had the flow,
what was held and why, restarts, handovers, rehearsals, and where a source lost mirrored records.
Compaction removes what later records replace, so the older the fewer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from heliograph.batch.records import Record
from heliograph.claims.log import Claim
from heliograph.claims.registry import Registry
from heliograph.ledger.codec import Cut, decode
from heliograph.ledger.follower import LedgerFollower
from heliograph.ledger.handovers import Handover, Handovers
from heliograph.ledger.holds import Hold, Holds, Subject
from heliograph.ledger.rehearsals import Rehearsals
from heliograph.model import PartitionEvent, TopicPartition
from heliograph.service.events import Event, FlowEvent, HandoverEvent
from heliograph.service.snapshot import COPYING
from heliograph.shown import shown
from heliograph.units import duration
from heliograph.wire.cluster import ClusterClient

__all__ = ["LedgerHistory"]

_TOLD = (b"claim/", b"hold/", b"restart/", b"start/", b"handover/", b"rehearsal/", b"cut/")


class LedgerHistory:
    """Reads a ledger topic record by record; for one thread.

    Views that otherwise fold the whole topic take one record at a time here. What a view says
    before and after a record is what has happened then.
    """

    def __init__(self, client: ClusterClient, topic: str, flow: str, scope: str = "") -> None:
        self._flow = flow
        # Views come with a follower. Its reading is not used: it hands on no times.
        follower = LedgerFollower(client, topic)
        self._log = follower.log
        self._registry = Registry(follower, scope)
        self._holds = Holds(follower, scope)
        self._handovers = Handovers(follower, scope)
        self._rehearsals = Rehearsals(follower, scope)
        self._views = (self._registry, self._holds, self._handovers, self._rehearsals)
        self._position = 0

    def read(self) -> list[Event]:
        """What the ledger tells since the last time, oldest first; at first all of it.

        Raises WireError.
        """
        if not self._log.find_end(self._position):
            # It lost records, or is another topic: what is left was told already, but for its end.
            for view in self._views:
                view.forget()
                view.publish()
            self._position = 0
        found: list[Event] = []
        for records in self._log.read(self._position):
            for record in records:
                if record.offset >= self._position:
                    self._position = record.offset + 1
                    found += self._take(record)
        return found

    def _take(self, record: Record) -> Iterator[Event]:
        key, value = record.key, record.value
        if key is None or not key.startswith(_TOLD):
            return
        at = record.timestamp / 1000
        if key.startswith(b"cut/"):
            yield from self._of_cut(key, value, at)
            return
        claims = dict(self._registry.claims.standing)
        removed = set(self._registry.claims.removed)
        held, restarts = self._holds.held, self._holds.restarts
        started, last = self._holds.started_ms, self._handovers.last
        drills = self._rehearsals.all
        for view in self._views:
            view.take(record.offset, key, value)
            view.publish()
        now = self._registry.claims
        for claim_id, standing in claims.items():
            if claim_id not in now.standing:
                yield self._gone(
                    standing.claim, at, removed=claim_id in now.removed.keys() - removed
                )
        for claim_id, told in now.standing.items():
            before = claims[claim_id].claim if claim_id in claims else None
            yield from self._of_claim(before, told.claim, at)
        yield from self._of_holds(held, at)
        for scope, restart in self._holds.restarts.items():
            if restarts.get(scope) != restart:
                parts = " and ".join(restart.parts) or "all of it"
                text = f"{parts} is restarted by {shown(restart.by)}, through Kafka"
                yield self._event("restarting", text, at)
        if self._holds.started_ms > started:
            yield self._event("resumed", "stands by no longer: it was started, through Kafka", at)
        yield from self._of_handover(last, at)
        for rehearsal in self._rehearsals.all:
            if rehearsal not in drills:
                took = (
                    ""
                    if rehearsal.rto_seconds is None
                    else f" in {duration(rehearsal.rto_seconds)}"
                )
                came = f"came to its end{took}" if rehearsal.ok else "did not come to its end"
                text = f"{rehearsal.kind} by {shown(rehearsal.by)} {came}"
                said = f"{text}: {shown(rehearsal.text)}" if rehearsal.text else text
                level = logging.INFO if rehearsal.ok else logging.WARNING
                yield self._event("drill", said, at, level=level)

    def _of_claim(self, before: Claim | None, claim: Claim, at: float) -> Iterator[Event]:
        who = _process(claim)
        if before is None:
            since = claim.since_ms / 1000 or at
            yield self._event("starting", f"{who} asks for it", since, level=logging.DEBUG)
        if claim.established and not (before is not None and before.established):
            yield self._event("running", f"{who} has it", at)

    def _gone(self, claim: Claim, at: float, *, removed: bool) -> Event:
        if removed:
            text = f"{_process(claim)} has it no longer: another mirror removed its claim"
            return self._event("taken-over", text, at, level=logging.WARNING)
        return self._event("stopped", f"{_process(claim)} has stopped", at)

    def _of_holds(self, before: Mapping[Subject, Hold], at: float) -> Iterator[Event]:
        for subject, hold in self._holds.held.items():
            if before.get(subject) != hold:
                word = "standing-by" if hold.standby else "paused"
                said = f"stands by: {shown(hold.why)}" if hold.standby else f"is {hold}"
                yield self._of_subject(subject, word, said, at)
        for subject in before.keys() - self._holds.held.keys():
            yield self._of_subject(subject, "resumed", "goes on", at)

    def _of_subject(self, subject: Subject, word: str, said: str, at: float) -> Event:
        if subject.kind == "topic":
            return self._event(f"topic-{word}", f"topic {subject.name} {said}", at, part=COPYING)
        return self._event(word, f"{subject.name} {said}", at, part=subject.name)

    def _of_handover(self, before: Handover | None, at: float) -> Iterator[Event]:
        last = self._handovers.last
        if last is None or last == before:
            return
        if before is None or before.id != last.id:
            before = None
            text = f"{last.kind} begun by {shown(last.by)}"
            yield HandoverEvent(self._flow, "begin", "done", text, at=at)
        for step in last.steps[len(before.steps) if before is not None else 0 :]:
            yield HandoverEvent(self._flow, step, "done", "", at=at)
        if last.ended_ms and not (before is not None and before.ended_ms):
            came = "was given up" if last.aborted else "is through"
            yield HandoverEvent(
                self._flow, "end", "failed" if last.aborted else "done", f"{last.kind} {came}",
                level=logging.WARNING if last.aborted else logging.INFO, at=at,
            )  # fmt: skip

    def _of_cut(self, key: bytes, value: bytes | None, at: float) -> Iterator[Event]:
        fact = decode(key, value) if value is not None else None
        if isinstance(fact, Cut) and not fact.move:
            text = (
                "the source lost mirrored records; what it has written since follows from offset"
                f" {fact.run.source} on"
            )
            p = TopicPartition(fact.place.topic, fact.place.partition)
            yield PartitionEvent(self._flow, p, "source.truncated", text, at=at)

    def _event(
        self, word: str, text: str, at: float, *, part: str = "", level: int = logging.INFO
    ) -> Event:
        return FlowEvent(self._flow, f"flow.{word}", text, part, level, at)


def _process(claim: Claim) -> str:
    return f"process {claim.process.pid} on {shown(claim.process.host)}"
