"""What failovers, switchovers and drills of a flow took and lost, in the flow's ledger topic.

    rehearsal/<scope>/<id> -> JSON: at, kind, rto_seconds, rpo_records, rpo_seconds, ok, groups, by,
                              text; nothing: forgotten

The newest `KEPT` are kept. The scope is that of claims (`heliograph.claims.registry`). Keys have
three parts: they are never taken for those of a place, and versions that do not know them skip
them.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from urllib.parse import quote, unquote

from heliograph.ledger.follower import LedgerFollower, View
from heliograph.ledger.topic_log import Pair

__all__ = ["KEPT", "Rehearsal", "RehearsalKind", "Rehearsals"]

_PREFIX = "rehearsal/"
#: A drill a week for a year, nearly; some 20 KB.
KEPT = 50


class RehearsalKind(StrEnum):
    """What was done, in earnest or not."""

    DRILL = "drill"
    FAILOVER = "failover"
    SWITCHOVER = "switchover"


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One failover, switchover or drill.

    Attributes:
        at_ms: when it began.
        rto_seconds: from its beginning until clients could go on; None if they never could.
        rpo_records, rpo_seconds: what was lost, or would have been; None if that is not known.
        ok: whether it came to its end as it should.
        groups: how many consumer groups were moved, or would have been.
        by: who ordered it.
        text: what to know of it, for people.
    """

    at_ms: int
    kind: RehearsalKind
    rto_seconds: float | None
    rpo_records: int | None
    rpo_seconds: float | None
    ok: bool
    groups: int
    by: str
    text: str = ""


class Rehearsals(View):
    """Those of one scope. Any thread may read and `add`.

    Attributes:
        all: as of the last reading, the newest first.
    """

    def __init__(self, follower: LedgerFollower, scope: str = "") -> None:
        self._follower = follower
        self._prefix = f"{_PREFIX}{quote(scope, safe='')}/".encode()
        self._folded: dict[str, Rehearsal] = {}
        self.all: Sequence[Rehearsal] = ()
        follower.attach(self)

    @property
    def newest(self) -> Rehearsal | None:
        """The last one, whatever came of it."""
        return self.all[0] if self.all else None

    @property
    def measured(self) -> Rehearsal | None:
        """The last one that came to its end: how long it took is the flow's RTO."""
        return next((r for r in self.all if r.ok and r.rto_seconds is not None), None)

    def forget(self) -> None:
        """Begin again."""
        self._folded = {}

    def take(self, offset: int, key: bytes, value: bytes | None) -> None:
        """One record of the topic. One that cannot be read is not shown."""
        if not key.startswith(self._prefix):
            return
        name = unquote(key.removeprefix(self._prefix).decode())
        read = None if value is None else _decode(value)
        if read is None:
            self._folded.pop(name, None)
        else:
            self._folded[name] = read

    def publish(self) -> None:
        """Show other threads what was read."""
        self.all = tuple(r for _, r in self._newest_first())

    def refresh(self) -> None:
        """See at least all that is in the topic now (`LedgerFollower.refresh`)."""
        self._follower.refresh()

    def add(self, rehearsal: Rehearsal) -> None:
        """Append one durably, forget those that are too old, and read it back."""
        self._follower.refresh()
        with self._follower.folding:
            old = [name for name, _ in self._newest_first()][KEPT - 1 :]
        pairs: list[Pair] = [(self._of(secrets.token_hex(8)), _encode(rehearsal))]
        pairs += [(self._of(name), None) for name in old]
        self._follower.append(pairs)
        self._follower.refresh()

    def _newest_first(self) -> list[tuple[str, Rehearsal]]:
        return sorted(self._folded.items(), key=lambda item: (-item[1].at_ms, item[0]))

    def _of(self, name: str) -> bytes:
        return self._prefix + quote(name, safe="").encode()


def _encode(rehearsal: Rehearsal) -> bytes:
    told = asdict(rehearsal)
    return json.dumps({"at": told.pop("at_ms"), **told}, separators=(",", ":")).encode()


def _decode(value: bytes) -> Rehearsal | None:
    """What a record says; None if that is not to be understood."""
    try:
        told = json.loads(value)
        return Rehearsal(
            int(told["at"]), RehearsalKind(told["kind"]), _seconds(told["rto_seconds"]),
            None if told["rpo_records"] is None else int(told["rpo_records"]),
            _seconds(told["rpo_seconds"]), bool(told["ok"]), int(told["groups"]), str(told["by"]),
            str(told.get("text", "")),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _seconds(value: object) -> float | None:
    return None if value is None else float(value)  # type: ignore[arg-type] # caught above
