"""Where a flow's source ended when it last answered, in the flow's ledger topic.

    source-ends/<scope> -> JSON: at, records, seconds, unmeasured, behind {topic: {partition: end}},
                           begins {topic: {partition: start}}, silent {topic: {partition: -1}},
                           failed {topic: {partition: reason}}

So the target alone tells what was at risk when the source, and perhaps the mirror, died. Only
partitions that were not wholly on the target at that time are named: of all others the target's own
log says where they ended. Those of which nothing was mirrored are also in ``begins``; those of
which the source did not say where they end are in ``silent``, and those that could not be copied in
``failed``. If they are too many, ``topics`` has
the records of each topic in place of ``behind``, and if even these are too many, there are only
sums.

The last record of the key counts. The scope is that of claims (`heliograph.claims.registry`). The
key has two parts: it is never taken for one of a place, and versions that do not know it skip it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from heliograph.ledger.follower import LedgerFollower, View
from heliograph.model import TopicPartition

__all__ = ["LastSeen", "SourceEnds"]

_KEY = b"source-ends/"
#: So many partitions are named one by one: some 70 KB.
_MOST_ENDS = 5000
#: Names of topics may be long: a record stays well below the default max.message.bytes of 1 MiB.
_MOST_BYTES = 512 << 10
_NOTHING: Mapping[str, int] = MappingProxyType({})
_NOWHERE: Mapping[TopicPartition, int] = MappingProxyType({})
_NO_REASONS: Mapping[TopicPartition, str] = MappingProxyType({})
#: So many that failed are named, and so much of each reason.
_MOST_FAILED, _MOST_REASON = 50, 300


@dataclass(frozen=True, slots=True)
class LastSeen:
    """What the source had and the target had not, at one moment.

    Attributes:
        at_ms: when the source was asked; what was written to it later is not known.
        ends: where partitions ended that were behind.
        complete: whether ``ends`` names all of them.
        records: how many source offsets were behind, of all partitions whose lag was known.
        seconds: how long the oldest of them had waited; None if that was not known.
        topics: where ``ends`` is not complete, records by topic; empty if these were too many, too.
        unmeasured: partitions that were not answered for; their ends are as of an earlier time.
        begins: where partitions of ``ends`` began of which nothing was mirrored yet.
        silent: the partitions of which the source did not say where they end.
        failed: partitions that could not be copied, with the reason; some, if they are many.
    """

    at_ms: int
    ends: Mapping[TopicPartition, int]
    complete: bool
    records: int
    seconds: float | None
    topics: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    unmeasured: int = 0
    begins: Mapping[TopicPartition, int] = field(default_factory=lambda: _NOWHERE)
    silent: Set[TopicPartition] = frozenset()
    failed: Mapping[TopicPartition, str] = field(default_factory=lambda: _NO_REASONS)


class SourceEnds(View):
    """The last word on the source of one scope. Any thread may read.

    Attributes:
        last: as of the last reading; None if nobody has noted anything that can be read.
    """

    def __init__(self, follower: LedgerFollower, scope: str = "") -> None:
        self._follower = follower
        self._key = _KEY + quote(scope, safe="").encode()
        #: The last value, and the one that ``last`` was made of: thousands are never looked at.
        self._folded: bytes | None = None
        self._decoded: bytes | None = None
        self.last: LastSeen | None = None
        follower.attach(self)

    def forget(self) -> None:
        """Begin again."""
        self._folded = None

    def take(self, offset: int, key: bytes, value: bytes | None) -> None:
        """One record of the topic."""
        if key == self._key:
            self._folded = value

    def publish(self) -> None:
        """Show other threads what was read. What cannot be understood says nothing new."""
        value = self._folded
        if value is None:
            self.last = None
        elif value is not self._decoded:
            self.last = _decode(value) or self.last
        self._decoded = value

    def refresh(self) -> None:
        """See at least all that is in the topic now (`LedgerFollower.refresh`)."""
        self._follower.refresh()

    def note(self, seen: LastSeen) -> None:
        """Append what is known now, durably. Only for the mirror that has the flow."""
        self._follower.append([(self._key, _encode(seen))])


def _encode(seen: LastSeen) -> bytes:
    head: dict[str, Any] = {
        "at": seen.at_ms, "records": seen.records,
        "seconds": None if seen.seconds is None else round(seen.seconds, 3),
        "unmeasured": seen.unmeasured, "complete": seen.complete,
    }  # fmt: skip
    if seen.failed:
        failed: dict[str, dict[str, str]] = {}
        for p, why in sorted(seen.failed.items())[:_MOST_FAILED]:
            failed.setdefault(p.topic, {})[str(p.partition)] = why[:_MOST_REASON]
        head["failed"] = failed
    if seen.complete:
        if len(seen.ends) + len(seen.silent) <= _MOST_ENDS:
            named = {
                "behind": _by_topic(seen.ends), "begins": _by_topic(seen.begins),
                "silent": _by_topic(dict.fromkeys(seen.silent, -1)),
            }  # fmt: skip
            made = _json({**head, **{key: value for key, value in named.items() if value}})
            if len(made) <= _MOST_BYTES:
                return made
        head["complete"] = False
    made = _json({**head, "topics": dict(seen.topics)})
    return made if len(made) <= _MOST_BYTES else _json(head)


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for p, offset in offsets.items():
        found.setdefault(p.topic, {})[str(p.partition)] = offset
    return found


def _offsets(by_topic: Mapping[str, Mapping[str, int]]) -> Mapping[TopicPartition, int]:
    return MappingProxyType({
        TopicPartition(str(topic), int(partition)): int(offset)
        for topic, partitions in by_topic.items()
        for partition, offset in partitions.items()
    })  # fmt: skip


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _decode(value: bytes) -> LastSeen | None:
    """What a record says; None if that is not to be understood."""
    try:
        told = json.loads(value)
        topics = {str(topic): int(n) for topic, n in told.get("topics", {}).items()}
        seconds = told["seconds"]
        return LastSeen(
            int(told["at"]), _offsets(told.get("behind", {})), bool(told["complete"]),
            int(told["records"]), None if seconds is None else float(seconds),
            MappingProxyType(topics), int(told.get("unmeasured", 0)),
            _offsets(told.get("begins", {})), frozenset(_offsets(told.get("silent", {}))),
            MappingProxyType({
                TopicPartition(str(topic), int(partition)): str(why)
                for topic, partitions in told.get("failed", {}).items()
                for partition, why in partitions.items()
            }),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
