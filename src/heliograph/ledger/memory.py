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

from heliograph.ledger.store import LedgerStore, Pair
from heliograph.wire.cluster import ClusterClient

_SYNCED = "synced"
_PREFIX = f"{_SYNCED}/".encode()


class SyncedMemory(LedgerStore):
    """Follows the ledger topic for what was synced, and appends to it.

    Used by the driver, in one thread at a time; each job has one of its own, for kinds of its own.
    As the `Registry`, it leaves runs out.
    """

    def __init__(self, client: ClusterClient, topic: str) -> None:
        super().__init__(client, topic)
        self._facts: defaultdict[str, dict[str, dict[str, str]]] = defaultdict(dict)

    def _take(self, offset: int, key: bytes, value: bytes | None) -> bool:
        if not key.startswith(_PREFIX):
            return False
        _, kind, quoted = key.decode().split("/")
        facts, subject = self._facts[kind], unquote(quoted)
        if value is None:
            facts.pop(subject, None)
        else:
            facts[subject] = json.loads(value)
        return True

    def recall(self, kind: str) -> dict[str, dict[str, str]]:
        """All that is remembered of a kind, by subject, as of the last `refresh`."""
        return dict(self._facts[kind])

    def remember(self, kind: str, facts: Mapping[str, Mapping[str, str] | None]) -> None:
        """Write down what differs from what is known, durably; None forgets a subject."""
        known = self._facts[kind]
        changed = {
            subject: value for subject, value in facts.items() if value != known.get(subject)
        }
        self._append_all(_encode(kind, subject, value) for subject, value in changed.items())
        for subject, value in changed.items():
            if value is None:
                known.pop(subject, None)
            else:
                known[subject] = dict(value)


def topic_subject(name: str, topic_id: uuid.UUID) -> str:
    """The subject for what is known of a topic, and not of another one of the same name."""
    return f"{name}/{topic_id}"


def _encode(kind: str, subject: str, value: Mapping[str, str] | None) -> Pair:
    key = f"{_SYNCED}/{kind}/{quote(subject, safe='')}".encode()
    return key, None if value is None else json.dumps(value).encode()
