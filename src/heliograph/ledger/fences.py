"""Which topics of a cluster a switchover has fenced, in a ledger topic on that very cluster.

    fence/<scope>/<topic> -> JSON: handover, by, since; nothing: it is fenced no more

The fence of a source cluster is an access right on it (`heliograph.failover.fence`), so what is to
be undone is written down there, too: in the ledger of the opposite flow, before it is done. Whoever
can take the fence down can read this. The last record of a key counts. The scope is that of claims
(`heliograph.claims.registry`). Keys have three parts: they are never taken for those of a place,
and versions that do not know them skip them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

from heliograph.ledger.follower import LedgerFollower, View

__all__ = ["Fenced", "Fences"]

_FENCE = "fence/"


class Fenced(NamedTuple):
    """A topic is fenced: by which handover, by whom, since when (milliseconds)."""

    handover: str
    by: str
    since_ms: int


class Fences(View):
    """The fences of one scope. Any thread may read; what is read is replaced as a whole.

    Attributes:
        topics: those that are fenced, as of the last reading; some may not be yet, or no more.
    """

    def __init__(self, follower: LedgerFollower, scope: str = "") -> None:
        self._follower = follower
        self._prefix = f"{_FENCE}{quote(scope, safe='')}/".encode()
        self._folded: dict[str, Fenced] = {}
        self.topics: Mapping[str, Fenced] = {}
        follower.attach(self)

    def forget(self) -> None:
        """Begin again."""
        self._folded = {}

    def take(self, offset: int, key: bytes, value: bytes | None) -> None:
        """One record of the topic."""
        if not key.startswith(self._prefix):
            return
        topic = unquote(key.removeprefix(self._prefix).decode())
        if value is None:
            self._folded.pop(topic, None)
        else:
            told = json.loads(value)
            self._folded[topic] = Fenced(
                str(told["handover"]), str(told["by"]), int(told["since"])
            )  # fmt: skip

    def publish(self) -> None:
        """Show other threads what was read."""
        self.topics = dict(self._folded)

    def refresh(self) -> None:
        """See at least all that is in the topic now (`LedgerFollower.refresh`)."""
        self._follower.refresh()

    def note(self, topics: Iterable[str], handover: str, by: str) -> None:
        """Write down that topics are about to be fenced, and read it back."""
        value = {"handover": handover, "by": by, "since": int(time.time() * 1000)}
        self._append((topic, json.dumps(value).encode()) for topic in topics)

    def clear(self, topics: Iterable[str]) -> None:
        """Write down that topics are fenced no more, and read it back."""
        self._append((topic, None) for topic in topics)

    def _append(self, pairs: Iterable[tuple[str, bytes | None]]) -> None:
        made = [(self._prefix + quote(topic, safe="").encode(), value) for topic, value in pairs]
        if made:
            self._follower.append(made)
            self._follower.refresh()
