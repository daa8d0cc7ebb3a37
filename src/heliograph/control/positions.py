"""Positions as MM2 stores them, so that MM2 can go on where Heliograph stops. Runs in the driver.

MM2 begins behind the offset that it finds under its key in Connect's offsets topic. If that is too
high, it leaves records out; if it is too low, it mirrors some twice. So what is written is a bound
that is proven from below (`Bounds`): what the target has acknowledged by the ledger, as far as the
target's log is still long enough to hold it. What was read from the source plays no part.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from heliograph.control.topics.refresh import TopicPlan
from heliograph.ledger.codec import Place
from heliograph.ledger.runs import PartitionLedger
from heliograph.ledger.store import LedgerStore
from heliograph.mm2.connect_offsets import (
    LatestRecords,
    append_by_key,
    decode_position,
    encode_position,
    position_key,
)
from heliograph.model import Move, TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError, is_retriable
from heliograph.wire.rights import denied, missing_right

__all__ = ["Bounds", "FlowView", "OffsetsTopic", "PositionWriter", "bounds_of", "correction"]

log = logging.getLogger(__name__)

#: As Connect creates its offsets topic.
_PARTITIONS = 25
_COMPACTED = {"cleanup.policy": "compact"}
#: What only an operator can change is tried again after this time.
_REFUSED_SECONDS = 300.0
#: The id of a target topic, and where its partition ended.
End = tuple[uuid.UUID | None, int]


class Bounds(NamedTuple):
    """Between which source offsets copying goes on in a partition.

    Attributes:
        least: every record before it that is to be mirrored is on the target.
        most: the target's log is too short to hold the record at this offset, or one behind it.
        copied: whether anything was mirrored so far.
    """

    least: int
    most: int
    copied: bool


_Found = dict[TopicPartition, Bounds]


def bounds_of(ledger: PartitionLedger, target_end: int) -> Bounds | None:
    """The bounds of a place whose target log ends at ``target_end``; None if nothing is known.

    Three things can make an acknowledged position too high, and each has its bound. The target has
    lost its end: where its log ends by the ledger. The source has lost records, or an operator has
    moved the position: where the ledger says that the next record comes from. Foreign records at
    the target's end make the log look longer than it is, but what was acknowledged does not grow
    with them.
    """
    if not ledger.runs:
        return None
    known, first, most = ledger.known, ledger.runs[0], ledger.position(target_end)
    if known is None or known.sequence <= first.sequence:
        # Of what MM2 mirrored before, MM2's own position stands until we have copied something.
        return None if ledger.inherited.end else Bounds(min(first.source, most), most, False)
    return Bounds(min(known.source, ledger.source_of(known.sequence), most), most, True)


def correction(
    bounds: Bounds, stored: int | None, before: Bounds | None = None
) -> tuple[int | None] | None:
    """What to store in place of ``stored``, in a tuple; None if that may stay.

    Offsets are of the last mirrored record; no offset: MM2 begins as if for the first time. Nothing
    is stored where nothing was copied. A position that is further on than what we know stays as
    long as the log can hold it: somebody else has mirrored that, MM2 in between or an operator who
    skips records. Unless what we know has gone back since ``before``, which we stored.
    """
    last = bounds.least - 1
    if stored is None:
        return (last,) if bounds.copied and last >= 0 else None
    went_back = before is not None and bounds.least < before.least
    if stored >= bounds.most or (went_back and stored > last):
        # Of a topic that was mirrored anew, or of a log that has lost its end.
        return (last if last >= 0 else None,)
    return (last,) if bounds.copied and last > stored else None


@dataclass(frozen=True, slots=True)
class OffsetsTopic:
    """Where positions are stored.

    Attributes:
        client: of the cluster that has the topic.
        name: of the topic.
        replication_factor: if it has to be created.
        connector: the name of the connector that they belong to.
        cluster: the alias of the source.
    """

    client: ClusterClient
    name: str
    replication_factor: int
    connector: str
    cluster: str


@dataclass(frozen=True, slots=True)
class FlowView:
    """What is known of a flow.

    Attributes:
        plan: which partitions it mirrors, and ``mine`` those of them that are not left to others.
        ledger: what was acknowledged.
        reached: the id of a partition's target topic, and where it ended when last measured.
        moves: positions that operators have decided on; copying may not have gone there yet.
        holds: whether this mirror has the flow at this moment.
    """

    plan: Callable[[], TopicPlan]
    mine: Callable[[], AbstractSet[TopicPartition]]
    ledger: LedgerStore
    reached: Callable[[TopicPartition], End]
    moves: Callable[[], Mapping[TopicPartition, Move]]
    holds: Callable[[], bool]


class PositionWriter:
    """Writes the positions of one flow. `write` is called by one job.

    Costs nothing while nothing is copied: neither cluster is asked. What is in the topic is read
    once, and read on before each write, because others may have written, too.
    """

    def __init__(self, topic: OffsetsTopic, flow: FlowView, admin_timeout_ms: int) -> None:
        self._topic = topic
        self._flow = flow
        self._admin_timeout_ms = admin_timeout_ms
        self._stored = LatestRecords(topic.client, topic.name)
        self._keys: dict[TopicPartition, bytes] = {}
        #: The record of a partition that was decoded last, and the position in it.
        self._decoded: dict[TopicPartition, tuple[object, int | None]] = {}
        #: Where targets ended at the last run, and whether they had moved since the one before.
        self._ends: Mapping[TopicPartition, End] | None = None
        self._moved = True
        #: What was compared with the topic last, of each partition.
        self._settled: dict[TopicPartition, Bounds] = {}
        self._right, self._refusal = "", ""
        self._again_at = 0.0

    def details(self) -> Mapping[str, str]:
        """Why positions are not written, if they are not."""
        return {self._topic.name: self._refusal} if self._refusal else {}

    def write(self, *, fresh: bool = False) -> None:
        """Write what has changed; with ``fresh`` also look if nothing seems to have.

        Raises WireError if a cluster fails. What it refuses, such as a right, is in `details`.
        """
        plan = self._flow.plan()
        if plan.source is None or plan.target is None:
            return
        if self._refusal and not fresh and time.monotonic() < self._again_at:
            return
        ends = {p: self._flow.reached(p) for p in plan.partitions}
        moved = ends != self._ends
        # Executors note what was acknowledged a moment later: once more when all has come to rest.
        if not (moved or self._moved or fresh):
            return
        self._flow.ledger.refresh()
        found = self._bounds(plan, ends)
        if any(fresh or _differ(b, self._settled.get(p)) for p, b in found.items()):
            try:
                if not self._settle(found):
                    return
            except BrokerError as error:
                if is_retriable(error):
                    raise
                self._refuse(error)
                return
            self._settled |= found
            self._refusal = ""
        self._ends, self._moved = ends, moved

    def _bounds(self, plan: TopicPlan, ends: Mapping[TopicPartition, End]) -> _Found:
        """What is known of partitions; the ledger was read after the ends were measured."""
        assert plan.source is not None  # noqa: S101 - made
        assert plan.target is not None  # noqa: S101 - made
        found, moves = {}, self._flow.moves()
        for p in self._flow.mine() & plan.partitions.keys():
            name = plan.partitions[p]
            target_id = plan.target.topics[name].topic_id
            place = Place(p.topic, p.partition, plan.source.topics[p.topic].topic_id, target_id)
            measured, end = ends[p]
            ledger = self._flow.ledger.at(place)
            if measured != target_id or (p in moves and moves[p].id not in ledger.moves):
                continue
            bounds = bounds_of(ledger, end)
            if bounds is not None:
                found[p] = bounds
        return found

    def _settle(self, found: _Found) -> bool:
        """Make the topic agree with what was found; returns whether it does now."""
        self._right = "Read"
        exists = self._stored.refresh()
        wrong = {
            p: change for p, bounds in found.items()
            if (change := correction(bounds, self._position(p), self._settled.get(p))) is not None
        }  # fmt: skip
        if not wrong:
            return True
        topic = self._topic
        if not self._flow.holds():
            return False
        if not exists:
            self._right = "Create"
            self._create()
        self._right = "Write"
        append_by_key(topic.client, topic.name, [
            encode_position(topic.connector, topic.cluster, p, offset)
            for p, (offset,) in wrong.items()
        ], marked=True)  # fmt: skip
        return True

    def _position(self, p: TopicPartition) -> int | None:
        """What the topic has of a partition, by the very bytes of Connect's key."""
        key = self._keys.get(p)
        if key is None:
            key = self._keys[p] = position_key(self._topic.connector, self._topic.cluster, p)
        record = self._stored.all.get(key)
        if record is None:
            return None
        known, offset = self._decoded.get(p, (None, None))
        if known is not record:
            decoded = decode_position(key, record[0])
            offset = None if decoded is None else decoded[2].offset
            self._decoded[p] = record, offset
        return offset

    def _create(self) -> None:
        topic = self._topic
        new = admin.NewTopic(topic.name, _PARTITIONS, topic.replication_factor, _COMPACTED)
        for error in admin.create_topics(topic.client, [new], self._admin_timeout_ms).values():
            raise error
        log.info("created %s on cluster %s, where MM2 looks for its positions",
                 topic.name, topic.client.alias)  # fmt: skip

    def _refuse(self, error: BrokerError) -> None:
        self._again_at = time.monotonic() + _REFUSED_SECONDS
        topic, why = self._topic, str(error)
        if denied(error.code):
            why = missing_right(topic.client.settings, self._right, "topic", topic.name)
        text = f"positions for MM2 are not written: {why}"
        if text != self._refusal:
            log.warning("%s", text)
        self._refusal = text


def _differ(new: Bounds, old: Bounds | None) -> bool:
    """Whether other positions may follow from what is known now."""
    return old is None or (new.least, new.copied) != (old.least, old.copied)
