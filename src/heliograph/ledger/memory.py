"""What the control jobs have written to the target, so that a later run knows what is its own.

    synced/<kind>/<subject> -> JSON object of strings; nothing: forgotten

In the flow's ledger topic, where the last record of a key counts. The subject is quoted, so that a
key has three parts whatever the subject contains, and is never taken for one of a place.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Mapping
from urllib.parse import quote, unquote

from heliograph.ledger.follower import LedgerFollower, View
from heliograph.ledger.topic_log import Pair

_SYNCED = "synced"
_PREFIX = f"{_SYNCED}/".encode()

_Facts = defaultdict[str, dict[str, dict[str, str]]]


class SyncedMemory(View):
    """What was synced, by kind and subject. Used by the driver and by commands; thread-safe."""

    def __init__(self, follower: LedgerFollower) -> None:
        self._follower = follower
        self._folded: _Facts = defaultdict(dict)
        self._facts: Mapping[str, Mapping[str, dict[str, str]]] = {}
        self._changed = False
        follower.attach(self)

    def forget(self) -> None:
        """Begin again."""
        self._folded = defaultdict(dict)
        self._changed = True

    def take(self, offset: int, key: bytes, value: bytes | None) -> None:
        """One record of the topic."""
        if not key.startswith(_PREFIX):
            return
        _, kind, quoted = key.decode().split("/")
        facts, subject = self._folded[kind], unquote(quoted)
        self._changed = True
        if value is None:
            facts.pop(subject, None)
        else:
            facts[subject] = json.loads(value)

    def publish(self) -> None:
        """Show other threads what was read."""
        if self._changed:
            self._facts = {kind: dict(facts) for kind, facts in self._folded.items()}
            self._changed = False

    def refresh(self) -> None:
        """See at least all that is in the topic now (`LedgerFollower.refresh`)."""
        self._follower.refresh()

    def recall(self, kind: str) -> dict[str, dict[str, str]]:
        """All that is remembered of a kind, by subject, as of the last `refresh`."""
        return dict(self._facts.get(kind, {}))

    def remember(self, kind: str, facts: Mapping[str, Mapping[str, str] | None]) -> None:
        """Append what differs from what is known, durably, and read it back.

        None forgets a subject.
        """
        known = self._facts.get(kind, {})
        changed = {
            subject: value for subject, value in facts.items() if value != known.get(subject)
        }
        if changed:
            self._follower.append(_encode(kind, *fact) for fact in changed.items())
            self.refresh()


def topic_subject(name: str, topic_id: uuid.UUID) -> str:
    """The subject for what is known of a topic, and not of another one of the same name."""
    return f"{name}/{topic_id}"


def _encode(kind: str, subject: str, value: Mapping[str, str] | None) -> Pair:
    key = f"{_SYNCED}/{kind}/{quote(subject, safe='')}".encode()
    return key, None if value is None else json.dumps(value).encode()
