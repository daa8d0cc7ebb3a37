"""Orders to all mirrors of a flow, in its ledger topic: what is paused, and what to restart.

    hold/<scope>/part/<part>   -> JSON: by, since, why, standby; nothing: lifted
    hold/<scope>/topic/<topic> -> the same, of a source topic
    restart/<scope>            -> JSON: nonce, by, at, parts
    rests/<scope>/<process>    -> JSON: parts, topics, clear.in, started; see `Resting`
    start/<scope>              -> JSON: by, at, handover: a flow in standby was started

A hold counts for every mirror of the flow, also for one that is started later, until somebody lifts
it. So it survives what made it: no process has to run. A restart counts for mirrors that run when
it is written; its nonce tells it from the one before. A mirror answers holds: it says which of them
it obeys, when nothing is copied any more, and which start, when it copies. The last record of a key
counts, so compaction may remove all others.

A flow that is configured with ``heliograph.standby`` rests until it was started once.

The scope is that of claims (`heliograph.claims.registry`). Orders without a scope are for all
mirrors of the pair of clusters, those with one for the connector of that name only. Keys have at
most four parts: they are never taken for those of a place, and versions that do not know them skip
them.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from heliograph.ledger.follower import LedgerFollower, View
from heliograph.ledger.topic_log import Pair
from heliograph.shown import shown
from heliograph.units import moment

__all__ = ["STANDBY", "Hold", "Holds", "Restart", "Resting", "Subject"]

_HOLD, _RESTART, _RESTS, _START = b"hold/", b"restart/", b"rests/", b"start/"
_PART, _TOPIC = "part", "topic"


class Hold(NamedTuple):
    """Something rests: who wants that, since when (milliseconds), and why; for people.

    With ``standby`` it is meant to rest: it is the direction that is not needed now.
    """

    by: str
    since_ms: int
    why: str = ""
    standby: bool = False

    def __str__(self) -> str:
        if self.standby:
            return self.why
        why = f": {shown(self.why)}" if self.why else ""
        return (
            f"paused by {shown(self.by)} since {moment(self.since_ms / 1000)}, through Kafka{why}"
        )


#: Of a flow that was configured to rest until it is needed.
STANDBY = Hold("", 0, "in standby: a switchover, a failback or 'heliograph resume' starts it", True)


class Resting(NamedTuple):
    """Which holds a mirror obeys: by part and by topic, since when they are held (`Hold.since_ms`).

    ``clear_seconds``: after so many seconds no lease of it can be running any more. ``started_ms``:
    it copies, and has seen that the flow was started then (`Holds.start`); 0 if it does not copy,
    or the flow was never started.
    """

    parts: Mapping[str, int]
    topics: Mapping[str, int]
    clear_seconds: float = 0.0
    started_ms: int = 0

    def obeys(self, subject: Subject, hold: Hold) -> bool:
        """Whether it rests because of this hold, or of one that was there before."""
        held = self.parts if subject.kind == _PART else self.topics
        return held.get(subject.name, -1) == hold.since_ms


class Restart(NamedTuple):
    """Mirrors that run are to start ``parts`` anew; without any the whole flow."""

    nonce: str
    parts: tuple[str, ...]
    by: str
    at_ms: int


class Subject(NamedTuple):
    """What a hold is about: a part of the flow, or a source topic."""

    kind: str
    name: str

    @classmethod
    def part(cls, name: str) -> Subject:
        """A part: copying, checkpoints or heartbeats."""
        return cls(_PART, name)

    @classmethod
    def topic(cls, name: str) -> Subject:
        """A source topic."""
        return cls(_TOPIC, name)


class Holds(View):
    """The orders that concern one scope. Any thread may read; what is read is replaced as a whole.

    ``changed`` is called in the thread that reads the topic, when something is held, lifted or to
    be restarted. It must not wait.

    Attributes:
        held: what rests now, as of the last reading.
        restarts: the last restart of this scope and of all scopes, by scope.
        resting: what mirrors have answered, by the tag of their process.
        started: whether a flow in standby was started.
        started_ms: when that was ordered last; 0 if it never was.
        handed_over: whether a handover did that: then the other direction stands by.
    """

    def __init__(
        self, follower: LedgerFollower, scope: str = "", changed: Callable[[], None] | None = None
    ) -> None:
        self._follower = follower
        self._scope = scope
        self._changed = changed
        self._folded: dict[tuple[str, Subject], Hold] = {}
        self._restarts: dict[str, Restart] = {}
        self._resting: dict[str, Resting] = {}
        #: When the flow was started; None if it never was.
        self._started_at: int | None = None
        self._handed_over = False
        self.resting: Mapping[str, Resting] = {}
        self.started = self.handed_over = False
        self.started_ms = 0
        self.held: Mapping[Subject, Hold] = {}
        self.restarts: Mapping[str, Restart] = {}
        follower.attach(self)

    # -- reading ------------------------------------------------------------------------------

    @property
    def parts(self) -> dict[str, Hold]:
        """The parts of the flow that rest."""
        return {subject.name: h for subject, h in self.held.items() if subject.kind == _PART}

    def parts_with(self, standby: Iterable[str]) -> dict[str, Hold]:
        """The same, of a flow whose parts ``standby`` rest until it was started."""
        return ({} if self.started else dict.fromkeys(standby, STANDBY)) | self.parts

    @property
    def topics(self) -> dict[str, Hold]:
        """The source topics that rest."""
        return {subject.name: h for subject, h in self.held.items() if subject.kind == _TOPIC}

    def forget(self) -> None:
        """Begin again."""
        self._folded, self._restarts, self._resting = {}, {}, {}
        self._started_at, self._handed_over = None, False

    def take(self, offset: int, key: bytes, value: bytes | None) -> None:
        """One record of the topic."""
        if key.startswith(_HOLD):
            _, quoted, *rest = key.decode().split("/")
            scope = unquote(quoted)
            if scope not in {"", self._scope} or len(rest) != 2:
                return
            place = scope, Subject(rest[0], unquote(rest[1]))
            if value is None:
                self._folded.pop(place, None)
            else:
                told = _read(value)
                # Who cannot be read wants it to rest all the same.
                self._folded[place] = Hold(
                    str(told.get("by", "somebody")), _number(told.get("since", 0)),
                    str(told.get("why", "")), told.get("standby") is True,
                )  # fmt: skip
        elif key.startswith(_RESTART) and value is not None:
            scope, told = unquote(key.removeprefix(_RESTART).decode()), _read(value)
            if scope in {"", self._scope} and told.get("nonce"):
                parts = told.get("parts", ())
                self._restarts[scope] = Restart(
                    str(told["nonce"]), tuple(map(str, parts if isinstance(parts, list) else ())),
                    str(told.get("by", "somebody")), _number(told.get("at", 0)),
                )  # fmt: skip
        elif key.startswith(_RESTS):
            self._take_answer(key, value)
        elif key == self._start_key():
            told = {} if value is None else _read(value)
            self._started_at = None if value is None else _number(told.get("at", 0))
            self._handed_over = told.get("handover") is True

    def _take_answer(self, key: bytes, value: bytes | None) -> None:
        _, quoted, *tag = key.decode().split("/")
        if unquote(quoted) != self._scope or len(tag) != 1:
            return
        if value is None:
            self._resting.pop(unquote(tag[0]), None)
            return
        told = _read(value)
        seconds = told.get("clear.in", 0.0)
        self._resting[unquote(tag[0])] = Resting(
            _numbers(told.get("parts")), _numbers(told.get("topics")),
            float(seconds) if isinstance(seconds, int | float) else 0.0,
            _number(told.get("started", 0)),
        )  # fmt: skip

    def publish(self) -> None:
        """Show other threads what was read, and say so if it has changed."""
        # What is held for all counts more than what is held for this scope: it is lifted elsewhere.
        last_for_all = sorted(self._folded.items(), reverse=True)
        held = {subject: hold for (_, subject), hold in last_for_all}
        self.resting, self.handed_over = dict(self._resting), self._handed_over
        before = self.held, self.restarts, self.started, self.started_ms
        started, started_ms = self._started_at is not None, self._started_at or 0
        if before == (held, self._restarts, started, started_ms):
            return
        self.held, self.restarts = held, dict(self._restarts)
        self.started, self.started_ms = started, started_ms
        if self._changed is not None:
            self._changed()

    def refresh(self) -> None:
        """See at least all that is in the topic now (`LedgerFollower.refresh`)."""
        self._follower.refresh()

    # -- giving orders ------------------------------------------------------------------------

    def hold(
        self, subjects: Iterable[Subject], by: str, why: str = "", *, standby: bool = False
    ) -> None:
        """Let subjects rest, durably; those that rest already are not changed.

        Unless they are to stand by from now on: then the reason is replaced.
        """
        value = {"by": by, "since": int(time.time() * 1000), "why": why, "standby": standby}
        known = set() if standby else self._own()
        self._write(
            (self._key(subject), json.dumps(value).encode())
            for subject in subjects if subject not in known
        )  # fmt: skip

    def lift(self, subjects: Collection[Subject]) -> list[Subject]:
        """Let subjects go on; returns those that were held for this scope."""
        own = self._own()
        found = [subject for subject in subjects if subject in own]
        self._write((self._key(subject), None) for subject in found)
        if found and len(found) == len(own):
            # What mirrors answered is about holds that are gone.
            with self._follower.folding:
                tags = list(self._resting)
            self._write((self._answer_key(tag), None) for tag in tags)
        return found

    def start(self, by: str, *, handover: bool = False) -> int:
        """Let a flow that is configured to stand by begin, for good.

        Returns what a mirror that copies because of that answers (`Resting.started_ms`).
        """
        at_ms = int(time.time() * 1000)
        value = {"by": by, "at": at_ms, "handover": handover}
        self._write([(self._start_key(), json.dumps(value).encode())])
        return at_ms

    def answer(self, tag: str, resting: Resting) -> None:
        """Say which holds and which start a mirror obeys; ``tag`` names its process."""
        value = {
            "parts": dict(resting.parts), "topics": dict(resting.topics),
            "clear.in": resting.clear_seconds, "started": resting.started_ms,
        }  # fmt: skip
        self._write([(self._answer_key(tag), json.dumps(value).encode())])

    def restart(self, parts: Iterable[str], by: str) -> str:
        """Have mirrors that run start parts anew; returns the order's nonce."""
        nonce = secrets.token_hex(8)
        value = {"nonce": nonce, "by": by, "at": int(time.time() * 1000), "parts": list(parts)}
        key = _RESTART + quote(self._scope, safe="").encode()
        self._write([(key, json.dumps(value).encode())])
        return nonce

    def _own(self) -> set[Subject]:
        with self._follower.folding:
            return {subject for scope, subject in self._folded if scope == self._scope}

    def _start_key(self) -> bytes:
        return _START + quote(self._scope, safe="").encode()

    def _answer_key(self, tag: str) -> bytes:
        return _RESTS + f"{quote(self._scope, safe='')}/{quote(tag, safe='')}".encode()

    def _key(self, subject: Subject) -> bytes:
        scope, name = quote(self._scope, safe=""), quote(subject.name, safe="")
        return _HOLD + f"{scope}/{subject.kind}/{name}".encode()

    def _write(self, pairs: Iterable[Pair]) -> None:
        if made := list(pairs):
            self._follower.append(made)


def _read(value: bytes) -> Mapping[str, Any]:
    """What a record says; of what is no JSON object nothing is known."""
    try:
        told = json.loads(value)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _numbers(value: object) -> dict[str, int]:
    told = value if isinstance(value, dict) else {}
    return {str(name): _number(number) for name, number in told.items()}
