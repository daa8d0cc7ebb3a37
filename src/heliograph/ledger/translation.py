"""Offsets of one cluster as offsets of the other, exactly. Runs in the driver and in commands.

An offset means the first record at or behind it: that is where a consumer goes on. Its translation
means the same record on the other side, or the place where that record is going to be.

Where a second flow goes in the opposite direction between the same two partitions, each log holds
records that began there and records that came from the other. A consumer of one log has read some
of both kinds, and goes on at the first record of the other log that it has not read:

    on A   a0 a1 a2 b0 b1 b2 a3    whoever is at 4 has not read b1, b2 and a3
    on B   a0 a1 a2 b0 b1 b2 a3    by the ledger of A->B a3 is at 6, by that of B->A b1 is at 4
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from heliograph.batch.header import batches
from heliograph.batch.pieces import AbortedTransactions
from heliograph.ledger.codec import Place
from heliograph.ledger.handovers import CutAt
from heliograph.ledger.order import logs_before_ledger
from heliograph.ledger.reverse import ReverseFlow, opposite
from heliograph.ledger.runs import PartitionLedger
from heliograph.ledger.store import LedgerStore
from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.fetch import Fetched
from heliograph.wire.metadata import Metadata
from heliograph.wire.ranges import read_ranges

__all__ = ["Count", "MirroredPartition", "Translation", "Translator", "count"]

_LOST = "the source has lost this record; what it has written since goes on here"
_BLURRED = "mirrored by MM2; the nearest offset before it that certainly skips nothing"
_UNCOUNTED = (
    "the broker has forgotten how much was mirrored; the nearest offset before it that certainly"
    " skips nothing"
)
_PARTED = "not mirrored before the failover; what the target has taken since goes on here"
#: How long, and in pieces of which size, logs are looked at for what ledgers do not tell.
_SCAN_SECONDS, _SCAN_BYTES = 1.0, 64 << 10


@dataclass(frozen=True, slots=True)
class Translation:
    """An offset on the other side; None if there is none, with the reason in ``note``.

    Attributes:
        exact: whether it is the very record that was asked for. Otherwise the nearest offset that
            loses nothing, and ``note`` says why.
    """

    offset: int | None
    exact: bool
    note: str = ""


class Count(NamedTuple):
    """How many records are on a target: all before sequence ``low``, none from ``high`` on."""

    low: int
    high: int


_NOTHING = Count(0, 0)


def count(
    ledger: PartitionLedger, states: Iterable[admin.ProducerState], producer_id: int, end: int
) -> Count:
    """What was on a target whose log ended at ``end`` before its leader was asked for ``states``.

    Both bounds are the same if the leader remembers the signature, or if all of it is known.
    """
    if not ledger.runs:
        return _NOTHING
    for state in states:
        if state.producer_id == producer_id:
            found = ledger.following(state.epoch, state.last_sequence, end)
            if found is not None:
                return Count(found, found)
    known = ledger.known
    low = known.sequence if known is not None else ledger.runs[0].sequence
    if known is not None and known.target >= end:
        return Count(low, low)
    return Count(low, max(ledger.sequence_below(end), low))


@dataclass(frozen=True, slots=True)
class MirroredPartition:
    """What is known of one partition: its runs, and where the target's log starts and ends.

    ``end`` was read before ``ledger``: every record below it has its run there.

    Attributes:
        count: how many records are on the target; used if ``back`` or ``back_away`` is set.
        back: the same two partitions, mirrored the other way; None if they are not.
        back_away: why there is no telling whether they are; empty if there is.
        upcoming: before this source offset there is nothing more to mirror; used with ``back``.
        cut: where a failover has parted the logs: what the target has from there on is its own, and
            nobody who comes from the source has read it. None if they are not parted.
    """

    ledger: PartitionLedger
    start: int
    end: int
    count: Count = _NOTHING
    back: MirroredPartition | None = None
    back_away: str = ""
    upcoming: int = 0
    cut: CutAt | None = None

    @property
    def paired(self) -> bool:
        """Whether the target may hold records that began there, and count as unread, too."""
        return self.back is not None or (bool(self.back_away) and self._has_others)

    def to_target(self, source: int, earlier: int | None = None) -> Translation:
        """Where a consumer that is at ``source`` on the source goes on, on the target.

        Never past the record that it would read next, and never outside of the target's log.
        ``earlier`` is what was answered before; it helps where ``back_away``.
        """
        if self.back is not None:
            return _across(self, self.back, source)
        if (cut := self.parted_at(source)) is not None:
            exact = source == cut.source and cut.target >= self.start
            note = "" if exact else _PARTED
            return Translation(max(cut.target, self.start), exact=exact, note=note)
        if self.paired:
            return self._alone(source, earlier)
        if not self.ledger.runs:
            if source == 0:
                return Translation(self.start, exact=True)
            return Translation(None, exact=False, note="nothing of it is mirrored yet")
        target = self.ledger.to_target(source)
        if target > self.end:
            note = f"not mirrored yet; the target ends at {self.end}"
            return Translation(self.end, exact=False, note=note)
        if target < self.start:
            note = f"deleted on the target, which starts at {self.start}"
            return Translation(self.start, exact=False, note=note)
        if self.ledger.inherited.to_target(source) is not None:
            return Translation(target, exact=False, note=_BLURRED)
        return Translation(target, exact=True)

    def parted_at(self, source: int) -> CutAt | None:
        """The cut of a failover that has left behind what is at ``source`` on the source."""
        cut = self.cut if self.back is None else None
        return cut if cut is not None and source >= cut.source else None

    def to_source(self, target: int) -> Translation:
        """Where a consumer that is at ``target`` on the target goes on, on the source."""
        if self.back is not None:
            return _across(self.back, self, target)
        if not self.ledger.runs:
            if target == 0:
                return Translation(0, exact=True)
            return Translation(None, exact=False, note="nothing of it is mirrored yet")
        within = min(max(target, self.start), self.end)
        if self.paired:
            source = self.ledger.to_source(within, self.count.low)
            return Translation(source, exact=False, note=self.back_away)
        source = self.ledger.to_source(within)
        if target > self.end:
            note = f"the target ends at {self.end}"
            return Translation(source, exact=False, note=note)
        if target < self.start:
            note = f"deleted on the target, which starts at {self.start}"
            return Translation(source, exact=False, note=note)
        if self.ledger.inherited.to_source(target) is not None:
            return Translation(source, exact=False, note=_BLURRED)
        if self.ledger.is_lost(target):
            return Translation(source, exact=False, note=_LOST)
        return Translation(source, exact=True)

    @property
    def position(self) -> int | None:
        """The next source offset to mirror, as far as is known; None if nothing was mirrored."""
        if self.back is not None:
            return _position(self, self.back)
        return self.to_source(self.end).offset

    @property
    def _has_others(self) -> bool:
        """Whether others may have written to the target."""
        if not self.ledger.runs:
            return self.end > self.start
        return self.ledger.not_ours_from(self.start, self.count.low) < self.end

    def following(self, source: int) -> int:
        """Where the next record from ``source`` on is that was mirrored; the end if none is."""
        if not self.ledger.runs or self.ledger.sequence_of(source) >= self.count.high:
            return self.end
        return min(self.ledger.to_target(source), self.end)

    def _alone(self, source: int, earlier: int | None) -> Translation:
        """Without the ledger of the opposite direction: what that has brought may be unread.

        What was answered before stands: there, or behind that if it was the target's end, is the
        first record that was not read. Else the answer is exact where the order of records is the
        same on both sides: what stands before a record of ours there stands before it here.
        """
        ledger, target = self.ledger, self.following(source)
        if earlier is not None:
            if ledger.runs:
                earlier = ledger.not_ours_from(earlier, self.count.low)
            target = min(target, earlier)
        elif ledger.runs:
            sequence = ledger.sequence_of(source)
            first = ledger.runs[0].sequence
            if ledger.source_of(sequence) != source or sequence >= self.count.high:
                # In a gap, which may hold what came from here.
                behind = self.start
                if sequence > first:
                    behind = ledger.target_of(min(sequence, self.count.low) - 1) + 1
                target = min(target, behind)
        return Translation(min(max(target, self.start), self.end), False, self.back_away)


def _across(there: MirroredPartition, back: MirroredPartition, offset: int) -> Translation:
    """Where a consumer goes on that is at ``offset`` of the log that ``back`` is mirrored to.

    The lowest offset of a record that it has not read: of those that ``there`` has brought, and of
    those that began on the other side. If it could have read these, it was by ``back``.
    """
    target = there.following(offset)
    if back.ledger.runs:
        own = back.ledger.to_source(offset, back.count.low)
        if own >= back.ledger.source_of(back.count.low):
            # Of what did not come here yet, nothing was read here.
            own = max(_position(back, there) or 0, own)
        target = min(target, own)
    if target < there.start:
        note = f"deleted on the target, which starts at {there.start}"
        return Translation(there.start, exact=False, note=note)
    position = _position(there, back)
    if target >= there.end and position is not None and offset > position:
        note = f"not mirrored yet; the target ends at {there.end}"
        return Translation(there.end, exact=False, note=note)
    certain = there.count.low == there.count.high
    return Translation(min(target, there.end), certain, "" if certain else _UNCOUNTED)


def _position(there: MirroredPartition, back: MirroredPartition) -> int | None:
    """The next offset to mirror to ``there``, where ``back`` goes the other way."""
    if not there.ledger.runs:
        return None
    following = max(there.ledger.source_of(there.count.low), there.upcoming)
    # What came from there does not go back.
    return back.ledger.not_ours_from(following, back.count.low)


@dataclass(slots=True)
class _Scan:
    """Where a log has something that is not ``ledger``'s: from ``position`` on, before ``end``."""

    place: Place
    ledger: PartitionLedger
    counted: int
    producer_id: int
    position: int
    end: int

    def __post_init__(self) -> None:
        self.go_to(self.position)

    def go_to(self, offset: int) -> None:
        """Pass what the ledger knows."""
        if offset >= self.position:
            self.position = self.ledger.not_ours_from(offset, self.counted)

    def take(self, fetched: Fetched) -> int | None:
        """What was answered; returns where to read on, None if there is no need to."""
        transactions = AbortedTransactions(fetched.aborted)
        for header, _ in batches(fetched.records):
            last = header.last_offset if header.magic >= 2 else header.base_offset
            if last < self.position:
                continue
            passed = header.producer_id == self.producer_id and header.magic >= 2
            if header.magic >= 2 and (header.control or header.transactional):
                passed = transactions.skips(last, header.producer_id, control=header.control)
            if not passed:
                return None
            self.go_to(last + 1)
        return None if self.position >= self.end else max(self.position, fetched.offset)


def _scan_all(client: ClusterClient, scans: Mapping[TopicPartition, _Scan]) -> None:
    """Look, for a moment: where that is too short, the next look goes on."""
    until = time.monotonic() + _SCAN_SECONDS

    def take(fetched: Fetched) -> int | None:
        following = scans[fetched.partition].take(fetched)
        return following if time.monotonic() < until else None

    open_ = {p: scan.position for p, scan in scans.items() if scan.position < scan.end}
    if open_:
        read_ranges(
            client, open_, take, read_committed=True, partition_bytes=_SCAN_BYTES,
            patience=_SCAN_SECONDS,
        )  # fmt: skip


class Translator:
    """Looks at logs and ledgers of one flow. One thread at a time.

    Where ``reverse`` mirrors the other way it looks at the source's logs, too, through ``source``.
    ``cuts`` tells where a failover has parted logs (`RestingCuts`).
    """

    def __init__(
        self,
        target: ClusterClient,
        ledger: LedgerStore,
        source: ClusterClient | None = None,
        reverse: Callable[[], ReverseFlow | None] = lambda: None,
        cuts: Callable[[Place], CutAt | None] = lambda _: None,
    ) -> None:
        self._target = target
        self._ledger = ledger
        self._cuts = cuts
        self._source = source
        self._reverse = reverse
        #: Of each place, where its next record may be by the ledger, and as far as was looked.
        self._scanned: dict[Place, tuple[int, int]] = {}

    def look(
        self,
        metadata: Metadata,
        places: Mapping[Place, TopicPartition],
        here: Metadata | None = None,
        away: str = "",
    ) -> dict[Place, MirroredPartition]:
        """The partitions as they are now; ``places`` names each one's partition on the target.

        ``here`` is the source's metadata; ``away`` says why nobody knows whether another flow goes
        in the opposite direction. Partitions whose leader did not answer are absent.
        """
        reverse, wanted = self._reverse(), sorted(set(places.values()))
        starts = admin.list_offsets(self._target, metadata, wanted, admin.EARLIEST)
        both = {} if reverse is None else {
            place: opposite(place, t.topic) for place, t in places.items()
            if reverse.at(opposite(place, t.topic)) is not None
        }  # fmt: skip
        states: Mapping[TopicPartition, Iterable[admin.ProducerState]] = {}
        backs: Mapping[Place, MirroredPartition] = {}
        with logs_before_ledger(self._ledger):
            ends = admin.list_offsets(self._target, metadata, wanted, admin.LATEST)
            counted = wanted if away else sorted({places[place] for place in both})
            if counted:
                # Ends first: what was counted behind them does no harm.
                states = admin.describe_producers(self._target, metadata, counted)
        if both and reverse is not None and here is not None:
            backs = self._backs(both, here, reverse)
        signature = self._ledger.signature
        producer_id = signature.producer_id if signature is not None else -1
        found = {}
        for place, t in places.items():
            if t in starts and t in ends and (place not in both or place in backs):
                ledger = self._ledger.at(place)
                mirrored = count(ledger, states.get(t, ()), producer_id, ends[t])
                found[place] = MirroredPartition(
                    ledger, starts[t], ends[t], mirrored, backs.get(place), away,
                    cut=self._cuts(place),
                )  # fmt: skip
        if backs and reverse is not None:
            self._look_ahead(found, places, producer_id, both, reverse)
        return found

    def _look_ahead(
        self,
        found: dict[Place, MirroredPartition],
        places: Mapping[Place, TopicPartition],
        producer_id: int,
        both: Mapping[Place, Place],
        reverse: ReverseFlow,
    ) -> None:
        """Enter where the next records are that the flows of a pair have to mirror.

        A ledger tells of records, not of the markers between them: batch headers do.
        """
        assert self._source is not None  # noqa: S101 - there is no reverse flow without it
        here, there = {}, {}
        for place, mirrored in found.items():
            back = mirrored.back
            if back is None:
                continue
            back_id = reverse.signature_at(both[place])
            t = places[place]
            there[t] = self._scan(both[place], back, mirrored, mirrored.end, producer_id)
            if mirrored.ledger.runs:
                p = TopicPartition(place.topic, place.partition)
                here[p] = self._scan(place, mirrored, back, back.end, back_id)
        _scan_all(self._target, there)
        _scan_all(self._source, here)
        for scan in (*here.values(), *there.values()):
            first, _ = self._scanned[scan.place]
            self._scanned[scan.place] = first, scan.position
        for place, mirrored in found.items():
            if mirrored.back is not None:
                back = replace(mirrored.back, upcoming=self._scanned[both[place]][1])
                upcoming = self._scanned.get(place, (0, 0))[1]
                found[place] = replace(mirrored, back=back, upcoming=upcoming)

    def _scan(
        self,
        place: Place,
        flow: MirroredPartition,
        other: MirroredPartition,
        end: int,
        other_id: int,
    ) -> _Scan:
        """Looks for the next record of ``flow`` in a log that ``other`` writes to as ``other_id``.

        What was looked at before is passed, unless copying has gone back.
        """
        first = flow.ledger.source_of(flow.count.low)
        before, position = self._scanned.get(place, (first, first))
        if before > first:
            position = first
        self._scanned[place] = first, max(position, first)
        return _Scan(place, other.ledger, other.count.low, other_id, max(position, first), end)

    def _backs(
        self, both: Mapping[Place, Place], here: Metadata, reverse: ReverseFlow
    ) -> dict[Place, MirroredPartition]:
        """What goes the other way, after the offsets that are to be translated were read."""
        assert self._source is not None  # noqa: S101 - there is no reverse flow without it
        near = {place: TopicPartition(place.topic, place.partition) for place in both}
        wanted = sorted(set(near.values()))
        starts = admin.list_offsets(self._source, here, wanted, admin.EARLIEST)
        ends = admin.list_offsets(self._source, here, wanted, admin.LATEST)
        states = admin.describe_producers(self._source, here, wanted)
        reverse.refresh()
        found = {}
        for place, back in both.items():
            ledger, p = reverse.at(back), near[place]
            if ledger is not None and p in starts and p in ends:
                counted = count(ledger, states.get(p, ()), reverse.signature_at(back), ends[p])
                found[place] = MirroredPartition(ledger, starts[p], ends[p], counted)
        return found
