"""Orders to all mirrors of a flow, in its ledger topic: what is paused, and what to restart.

    hold/<scope>/part/<part>   -> JSON: by, since, why; nothing: lifted
    hold/<scope>/topic/<topic> -> the same, of a source topic
    restart/<scope>            -> JSON: nonce, by, at, parts

A hold counts for every mirror of the flow, also for one that is started later, until somebody lifts
it. So it survives what made it: no process has to run. A restart counts for mirrors that run when
it is written; its nonce tells it from the one before. The last record of a key counts, so
compaction may remove all others.

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

__all__ = ["Hold", "Holds", "Restart", "Subject"]

_HOLD, _RESTART = b"hold/", b"restart/"
_PART, _TOPIC = "part", "topic"


class Hold(NamedTuple):
    """Something rests: who wants that, since when (milliseconds), and why; for people."""

    by: str
    since_ms: int
    why: str = ""

    def __str__(self) -> str:
        why = f": {shown(self.why)}" if self.why else ""
        return (
            f"paused by {shown(self.by)} since {moment(self.since_ms / 1000)}, through Kafka{why}"
        )


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
    """

    def __init__(
        self, follower: LedgerFollower, scope: str = "", changed: Callable[[], None] | None = None
    ) -> None:
        self._follower = follower
        self._scope = scope
        self._changed = changed
        self._folded: dict[tuple[str, Subject], Hold] = {}
        self._restarts: dict[str, Restart] = {}
        self.held: Mapping[Subject, Hold] = {}
        self.restarts: Mapping[str, Restart] = {}
        follower.attach(self)

    # -- reading ------------------------------------------------------------------------------

    @property
    def parts(self) -> dict[str, Hold]:
        """The parts of the flow that rest."""
        return {subject.name: h for subject, h in self.held.items() if subject.kind == _PART}

    @property
    def topics(self) -> dict[str, Hold]:
        """The source topics that rest."""
        return {subject.name: h for subject, h in self.held.items() if subject.kind == _TOPIC}

    def forget(self) -> None:
        """Begin again."""
        self._folded, self._restarts = {}, {}

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
                by, since = str(told.get("by", "somebody")), told.get("since", 0)
                self._folded[place] = Hold(by, _number(since), str(told.get("why", "")))
        elif key.startswith(_RESTART) and value is not None:
            scope, told = unquote(key.removeprefix(_RESTART).decode()), _read(value)
            if scope in {"", self._scope} and told.get("nonce"):
                parts = told.get("parts", ())
                self._restarts[scope] = Restart(
                    str(told["nonce"]), tuple(map(str, parts if isinstance(parts, list) else ())),
                    str(told.get("by", "somebody")), _number(told.get("at", 0)),
                )  # fmt: skip

    def publish(self) -> None:
        """Show other threads what was read, and say so if it has changed."""
        # What is held for all counts more than what is held for this scope: it is lifted elsewhere.
        last_for_all = sorted(self._folded.items(), reverse=True)
        held = {subject: hold for (_, subject), hold in last_for_all}
        if held == self.held and self._restarts == self.restarts:
            return
        self.held, self.restarts = held, dict(self._restarts)
        if self._changed is not None:
            self._changed()

    def refresh(self) -> None:
        """See at least all that is in the topic now (`LedgerFollower.refresh`)."""
        self._follower.refresh()

    # -- giving orders ------------------------------------------------------------------------

    def hold(self, subjects: Iterable[Subject], by: str, why: str = "") -> None:
        """Let subjects rest, durably; those that rest already are not changed."""
        value = {"by": by, "since": int(time.time() * 1000), "why": why}
        known = self._own()
        self._write(
            (self._key(subject), json.dumps(value).encode())
            for subject in subjects if subject not in known
        )  # fmt: skip

    def lift(self, subjects: Collection[Subject]) -> list[Subject]:
        """Let subjects go on; returns those that were held for this scope."""
        found = [subject for subject in subjects if subject in self._own()]
        self._write((self._key(subject), None) for subject in found)
        return found

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
