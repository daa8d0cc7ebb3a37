"""Changes of direction of a flow, in its ledger topic: how far each came, where it cut the logs.

    handover/<scope>             -> JSON: `Handover`
    handover-cut/<scope>/<topic> -> JSON: `Cut` of a source topic

A handover is a failover, a switchover or a failback. It is carried out by a command, which may be
killed at any moment. So each step that is through is noted, and so is whatever has to be undone,
before it is done. Whoever repeats the command goes on from there. One of a flow at a time is open;
the newest is kept, because later ones need to know where logs were cut. The last record of a key
counts.

Read and written by commands and by the driver. The scope is that of claims and holds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from heliograph.ledger.codec import Place
from heliograph.ledger.follower import LedgerFollower, View
from heliograph.ledger.holds import Holds, Subject

__all__ = ["Cut", "CutAt", "Handover", "Handovers", "Kind", "RestingCuts"]

_HANDOVER, _CUT = b"handover/", b"handover-cut/"


class Kind(StrEnum):
    """What is done to a flow."""

    FAILOVER = "failover"
    SWITCHOVER = "switchover"
    FAILBACK = "failback"


@dataclass(frozen=True, slots=True)
class Handover:
    """A change of direction.

    Attributes:
        id: of this one.
        kind: which change.
        by: who began it, for people.
        began_ms: when, by the clock of whoever began it.
        topics: the source topics that it is about; None for all of the flow.
        steps: those that are through, in their order.
        ended_ms: when its last step was through, or it was given up; 0 before that.
        aborted: it was given up, and what it had done was undone.
        facts: what its steps left for later ones, as JSON.
    """

    id: str
    kind: Kind
    by: str
    began_ms: int
    topics: tuple[str, ...] | None = None
    steps: tuple[str, ...] = ()
    ended_ms: int = 0
    aborted: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether it is neither through nor given up."""
        return not self.ended_ms

    def concerns(self, topic: str) -> bool:
        """Whether it is about a source topic."""
        return self.topics is None or topic in self.topics


class CutAt(NamedTuple):
    """Where a partition was cut: the next offset to mirror, and where the target's log ended.

    What the target has from ``target`` on was not mirrored; what the source has from ``source`` on,
    neither. ``exact`` is False if the broker did not remember our last record.
    """

    source: int
    target: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the partitions of a source topic were cut by a handover.

    The topics' ids say which topics these offsets are about. ``held_ms`` says which hold has made
    the topic rest (`Hold.since_ms`): as long as it stands, the target goes its own way.
    """

    handover: str
    source_id: str
    target_id: str
    partitions: Mapping[int, CutAt]
    held_ms: int = 0

    def of(self, place: Place) -> CutAt | None:
        """Of a place, if it is about its topics."""
        if (self.source_id, self.target_id) != (str(place.source_id), str(place.target_id)):
            return None
        return self.partitions.get(place.partition)


class Handovers(View):
    """The handovers of one scope. Any thread may read; what is read is replaced as a whole.

    Attributes:
        last: the newest handover, as of the last reading; None if there was none.
        cuts: by source topic, of this and of earlier handovers.
    """

    def __init__(self, follower: LedgerFollower, scope: str = "") -> None:
        self._follower = follower
        self._scope = scope
        self._last: Handover | None = None
        self._cuts: dict[str, Cut] = {}
        self.last: Handover | None = None
        self.cuts: Mapping[str, Cut] = {}
        follower.attach(self)

    # -- reading ------------------------------------------------------------------------------

    def forget(self) -> None:
        """Begin again."""
        self._last, self._cuts = None, {}

    def take(self, offset: int, key: bytes, value: bytes | None) -> None:
        """One record of the topic."""
        if key == self._key():
            self._last = _handover(value) if value is not None else None
        elif key.startswith(_CUT):
            _, quoted, *topic = key.decode().split("/")
            if unquote(quoted) != self._scope or len(topic) != 1:
                return
            if value is None:
                self._cuts.pop(unquote(topic[0]), None)
            else:
                self._cuts[unquote(topic[0])] = _cut(value)

    def publish(self) -> None:
        """Show other threads what was read."""
        self.last, self.cuts = self._last, dict(self._cuts)

    def refresh(self) -> None:
        """See at least all that is in the topic now (`LedgerFollower.refresh`)."""
        self._follower.refresh()

    # -- writing ------------------------------------------------------------------------------

    def note(self, handover: Handover) -> Handover:
        """Write down how far a handover came; returns it."""
        value = {
            "id": handover.id, "kind": handover.kind, "by": handover.by,
            "began": handover.began_ms, "steps": list(handover.steps),
            "topics": None if handover.topics is None else list(handover.topics),
            "ended": handover.ended_ms, "aborted": handover.aborted,
            "facts": dict(handover.facts),
        }  # fmt: skip
        self._follower.append([(self._key(), json.dumps(value).encode())])
        return handover

    def end(self, handover: Handover, *, aborted: bool = False) -> Handover:
        """Write down that a handover is through, or given up; returns it."""
        ended_ms = int(time.time() * 1000)
        return self.note(replace(handover, ended_ms=ended_ms, aborted=aborted))

    def cut(self, cuts: Mapping[str, Cut]) -> None:
        """Write down where partitions were cut, by source topic."""
        self._follower.append(
            (self._cut_key(topic), json.dumps({
                "handover": cut.handover, "source.id": cut.source_id, "target.id": cut.target_id,
                "partitions": {str(p): list(at) for p, at in cut.partitions.items()},
                "held": cut.held_ms,
            }).encode())
            for topic, cut in cuts.items()
        )  # fmt: skip

    def forget_cuts(self, topics: Collection[str]) -> None:
        """Both sides have everything again: a later failover cuts anew."""
        self._follower.append((self._cut_key(topic), None) for topic in topics)

    def _key(self) -> bytes:
        return _HANDOVER + quote(self._scope, safe="").encode()

    def _cut_key(self, topic: str) -> bytes:
        return _CUT + f"{quote(self._scope, safe='')}/{quote(topic, safe='')}".encode()


def _handover(value: bytes) -> Handover:
    told = json.loads(value)
    topics = told.get("topics")
    return Handover(
        str(told["id"]), Kind(told["kind"]), str(told.get("by", "somebody")),
        int(told.get("began", 0)), None if topics is None else tuple(topics),
        tuple(told.get("steps", ())), int(told.get("ended", 0)), told.get("aborted") is True,
        told.get("facts") or {},
    )  # fmt: skip


def _cut(value: bytes) -> Cut:
    told = json.loads(value)
    partitions = {
        int(p): CutAt(int(at[0]), int(at[1]), bool(at[2]))
        for p, at in told["partitions"].items()
    }  # fmt: skip
    return Cut(
        told["handover"], told["source.id"], told["target.id"], partitions, int(told.get("held", 0))
    )


class RestingCuts:
    """Where places were cut that rest since: what the target has from there on is its own.

    By handovers of one scope, or of the whole pair of clusters.
    """

    def __init__(self, follower: LedgerFollower, scope: str = "") -> None:
        self._handovers = [Handovers(follower, one) for one in sorted({"", scope})]
        self._holds = Holds(follower, scope)

    def at(self, place: Place) -> CutAt | None:
        """As of the last reading of the ledger; None if it goes on, or was never cut."""
        return self._at(place, standby=True)

    def failed_over_at(self, place: Place) -> CutAt | None:
        """The same, of failovers that were not taken back.

        Elsewhere the flow stands by, and the source gets what the target takes.
        """
        return self._at(place, standby=False)

    @property
    def failed_over(self) -> bool:
        """Whether there may be any such place: most flows need not ask for each of theirs."""
        held = self._holds.held.values()
        return any(h.cuts for h in self._handovers) and not all(hold.standby for hold in held)

    def _at(self, place: Place, *, standby: bool) -> CutAt | None:
        held = self._holds.held
        holds = (held.get(Subject.topic(place.topic)), held.get(Subject.part("copying")))
        resting = {h.since_ms for h in holds if h is not None and (standby or not h.standby)}
        for handovers in self._handovers:
            cut = handovers.cuts.get(place.topic)
            if cut is not None and cut.held_ms and cut.held_ms in resting:
                return cut.of(place)
        return None
