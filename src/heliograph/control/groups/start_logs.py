"""The target's logs as groups would start in them, and what a strategy asks of them.

Runs in commands and in the driver. Needs the target only: what was mirrored is in the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from heliograph.control.groups.source_positions import FlowTopics
from heliograph.control.groups.start_rules import (
    AtTime,
    Earliest,
    Exact,
    FromFile,
    Latest,
    Log,
    SinceLastHeartbeat,
    Strategy,
    Translated,
)
from heliograph.ledger.codec import Place
from heliograph.ledger.handovers import CutAt
from heliograph.ledger.reverse import ReverseFlow
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.translation import MirroredPartition, Translator
from heliograph.model import TopicPartition
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.metadata import NO_ID, Metadata

__all__ = ["Aims", "Back", "TargetLogs", "look_at_logs"]

#: How long leaders may take to be found anew; partitions without a leader are not waited for.
_PATIENCE_SECONDS, _PAUSE_SECONDS = 5.0, 0.05


@dataclass(frozen=True, slots=True)
class Back:
    """What goes in the opposite direction; ``away`` says why nobody knows.

    ``here`` is of the source's topics.
    """

    source: ClusterClient | None = None
    here: Metadata | None = None
    reverse: ReverseFlow | None = None
    away: str = ""


@dataclass(slots=True)
class TargetLogs:
    """What a look at the target has shown.

    Attributes:
        mirrored: partitions whose leader has answered, with the ledger of the newest generation.
        generations: what was mirrored into each partition, the oldest topic of the source first.
    """

    metadata: Metadata
    mirrored: Mapping[TopicPartition, MirroredPartition] = field(default_factory=dict)
    generations: dict[TopicPartition, list[Place]] = field(default_factory=dict)

    def log(self, partition: TopicPartition) -> Log:
        """Of a partition that is ``mirrored``."""
        return Log(self.mirrored[partition].start, self.mirrored[partition].end)


def look_at_logs(
    target: ClusterClient,
    ledger: LedgerStore,
    topics: FlowTopics,
    partitions: Collection[TopicPartition],
    back: Back,
    cuts: Callable[[Place], CutAt | None],
) -> TargetLogs:
    """These partitions, and all others of the same topics of the target; raises WireError."""
    names = sorted({p.topic for p in partitions})
    deadline = time.monotonic() + _PATIENCE_SECONDS
    translator = Translator(target, ledger, back.source, lambda: back.reverse, cuts)
    ledger.refresh()
    while True:
        seen = TargetLogs(target.metadata(names))
        places = _newest(ledger, topics, seen)
        found = translator.look(seen.metadata, places, back.here, back.away)
        seen.mirrored = {places[place]: mirrored for place, mirrored in found.items()}
        missing = [p for p in places.values() if p not in seen.mirrored]
        led = any(seen.metadata.leader(*p) >= 0 for p in missing)
        if not led or time.monotonic() >= deadline:
            return seen
        time.sleep(_PAUSE_SECONDS)


def _newest(
    ledger: LedgerStore, topics: FlowTopics, seen: TargetLogs
) -> dict[Place, TopicPartition]:
    """A place for each partition: one that nobody has written about if nothing is mirrored."""
    places = {}
    for name, topic in seen.metadata.topics.items():
        source = topics.source(name)
        for index in topic.partitions:
            p = TopicPartition(name, index)
            known = ledger.generations(source, index, topic.topic_id) if source is not None else []
            seen.generations[p] = known
            nothing = Place(source or name, index, NO_ID, topic.topic_id)
            places[known[-1] if known else nothing] = p
    return places


@dataclass(frozen=True, slots=True)
class Aims:
    """What a strategy asks for, before it is cut to the log.

    Attributes:
        resolved: for strategies by time: the first offset of that time or later, -1 if there is
            none.
    """

    strategy: Strategy
    seen: TargetLogs
    resolved: Mapping[TopicPartition, int]

    def of(self, group: str, p: TopicPartition, exact: Exact | None) -> tuple[int, str] | None:
        """An offset and what to know of it; None for a partition that is not to be set."""
        log = self.seen.log(p)
        match self.strategy:
            case Translated():
                if exact is None or exact.offset is None:
                    return None
                return exact.offset, exact.note
            case Earliest():
                return log.start, ""
            case Latest():
                return log.end, ""
            case FromFile(offsets):
                wanted = offsets[group].get(p)
                return None if wanted is None else (wanted, "")
            case AtTime() | SinceLastHeartbeat():
                if p not in self.resolved:
                    return None
                found = self.resolved[p]
                return (found, "") if found >= 0 else (log.end, "no record of that time or later")
