"""Where copying goes on in a target partition, from what is known of it. Pure.

The one rule that decides positions, for executors that copy and for `verify` in the driver.
DESIGN.md ("What resume concludes") has its table and proof.

- What was acknowledged is in the ledger (`Known`): a lower bound that nothing may contradict.
- Behind it, batch headers are read, oldest first (`Tail`). Ours that follow one another count. A
  lower sequence is a request that came late, a higher one behind a seamless log is a hole.
- What the broker remembers only decides whether it will compare: if it remembers anything but the
  outcome, a new era begins, because it would refuse what is right and take what is late.
- Where it cannot be known, records are repeated, never skipped, and their range is told.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from heliograph.batch.header import BatchHeader
from heliograph.ledger.known import Known
from heliograph.ledger.runs import PartitionLedger

__all__ = [
    "Batch",
    "Conclusion",
    "LeaderSays",
    "Standing",
    "Tail",
    "agrees",
    "credible",
    "end_before",
    "first_of_ours",
    "known_at",
]


class LeaderSays(NamedTuple):
    """What the leader of a target partition says of it. ``producer`` was asked for first.

    Attributes:
        epoch: the leader's own.
        producer: epoch and last sequence of the signature; None if it remembers none.
        visible: the high watermark: nobody can read behind it.
        end: where its log ends.
    """

    epoch: int
    producer: tuple[int, int] | None
    visible: int
    end: int


class Batch(NamedTuple):
    """A batch of ours in the target's log; ``sequence`` is not wrapped."""

    offset: int
    sequence: int
    length: int


class Conclusion(NamedTuple):
    """Where copying goes on.

    Attributes:
        sequence: of the next record to write.
        remembered: whether the broker will compare it with what it remembers.
        new_era: whether the broker remembers something else, and must be made to forget it.
        unproven: whether the ledger may lack runs for what was written since it was last known.
        repeats: so many records, at most, may be on the target already and are written again.
    """

    sequence: int
    remembered: bool
    new_era: bool = False
    unproven: bool = False
    repeats: int = 0


def first_of_ours(ledger: PartitionLedger) -> int:
    """The first sequence that this flow wrote; what MM2 wrote before counts by target offset."""
    return max(ledger.runs[0].sequence, ledger.inherited.end)


def end_before(ledger: PartitionLedger, sequence: int) -> int:
    """Where the log ends by the ledger when the record before ``sequence`` is the last one."""
    first = first_of_ours(ledger)
    if sequence <= first:
        return ledger.target_of(first)
    return ledger.target_of(sequence - 1) + 1


def agrees(ledger: PartitionLedger, sequence: int, target_end: int) -> bool:
    """Whether a log that ends at ``target_end`` is what the ledger says, as far as that tells.

    ``sequence`` is that of the next record. A gap announced before it may be filled or not.
    """
    if sequence <= first_of_ours(ledger):
        return True
    return target_end in {end_before(ledger, sequence), ledger.target_of(sequence)}


def known_at(ledger: PartitionLedger, sequence: int, end: int, epoch: int) -> Known:
    """What is known when the record before ``sequence`` is the last in a log that ends there."""
    if sequence <= first_of_ours(ledger):
        return Known(sequence, ledger.source_of(sequence), end, end, epoch)
    last = sequence - 1
    return Known(sequence, ledger.source_of(last) + 1, ledger.target_of(last) + 1, end, epoch)


def credible(ledger: PartitionLedger) -> Known | None:
    """What was acknowledged by the ledger, as far as its runs agree with it.

    If they do not, the ledger has lost runs since, and only what its last run says is certain.
    """
    known = ledger.known
    if known is None or known.sequence <= first_of_ours(ledger):
        return known
    if known == known_at(ledger, known.sequence, known.target, known.epoch):
        return known
    # The last one may be about to be corrected.
    certain = ledger.runs[max(len(ledger.runs) - 2, 0)]
    return Known(certain.sequence, certain.source, certain.target, certain.target, -1)


@dataclass(slots=True)
class Tail:
    """The target's log from ``position`` to ``end``, batch by batch; ``sequence`` is the next.

    Attributes:
        found: batches of ours that count, oldest first.
        repeated: where records of ours are that were there already, as target offsets.
        hole: the sequences that are missing before a batch of ours, if there is such a batch.
        behind: records of ours behind that hole.
        unseen: offsets behind the last batch of ours that were deleted before they could be read;
            the first of them is ``unseen_from``, and ``retired`` if retention took them, not
            compaction.
        alien: batches of ours that are of a later era than the ledger knows: it was cut.
        records: what others wrote, by producer id; -1 is whoever writes without one.
        markers: transaction markers of others.
    """

    ledger: PartitionLedger
    signature: int
    marker_id: int
    sequence: int
    position: int
    end: int
    found: list[Batch] = field(default_factory=list)
    repeated: list[tuple[int, int]] = field(default_factory=list)
    hole: tuple[int, int] | None = None
    behind: int = 0
    unseen: int = 0
    unseen_from: int = -1
    retired: bool = False
    alien: int = 0
    records: Counter[int] = field(default_factory=Counter)
    markers: int = 0

    @property
    def whole(self) -> bool:
        """Whether it was read to its end."""
        return self.position >= self.end

    def begins_at(self, start: int) -> None:
        """The log begins at ``start``: retention, or DeleteRecords, took what was before it."""
        self.retired = self.retired or start > self.position
        self._pass(start)

    def _pass(self, until: int) -> None:
        until = min(until, self.end)
        if until > self.position:
            self.unseen_from = self.unseen_from if self.unseen else self.position
            self.unseen += until - self.position
            self.position = until

    def take(self, header: BatchHeader) -> None:
        """The next batch of the log."""
        if header.last_offset < self.position or header.base_offset >= self.end:
            return
        self._pass(header.base_offset)
        self.position = header.last_offset + 1
        if header.magic < 2:
            self.records[-1] += 1
        elif header.control:
            if header.producer_id != self.marker_id:
                self.markers += 1
        elif header.producer_id == self.signature:
            self._take_ours(header)
        else:
            self.records[header.producer_id] += header.record_count

    def _take_ours(self, header: BatchHeader) -> None:
        era = self.ledger.eras.of(header.producer_epoch)
        if era is None:
            # Of an earlier generation of the source topic, if its epoch is lower.
            if header.producer_epoch > self.ledger.eras.current.epoch:
                self.alien += 1
            return
        # Not the record count: compaction may have taken some.
        length = header.last_offset_delta + 1
        first = era.unwire(header.base_sequence, max(self.sequence, era.sequence))
        until = first + length
        if self.hole is None and not self._follows(first):
            self.hole = (self.sequence, first)
        if self.hole is not None:
            # It is going to be written again, behind what is missing.
            self.behind += length
            return
        self.unseen, self.retired = 0, False
        old = max(min(self.sequence, until) - first, 0)
        if old:
            self.repeated.append((header.base_offset, header.base_offset + old))
        if until > self.sequence:
            self.found.append(Batch(header.base_offset + old, first + old, length - old))
            self.sequence = until

    def _follows(self, first: int) -> bool:
        """Whether all between our last batch and one that begins with ``first`` was written.

        In a compacted log it was if as many offsets are missing. Of a log that was emptied that is
        not believed: nobody has seen it, and a hole could hide there, behind markers.
        """
        missing = first - self.sequence
        return missing <= 0 or (missing <= self.unseen and not self.retired)


@dataclass(slots=True)
class Standing:
    """One partition at resume: the ledger, what its leader says, and what that makes of both.

    Attributes:
        known: what was acknowledged, by the ledger or by this process, whoever knows more.
        kept: where the log parts from the one that ``known`` is about; ``end`` if it does not.
        continuous: whether this process has followed the ledger since before the lease: then no
            entry of the ledger can have been lost without its notice.
    """

    ledger: PartitionLedger
    says: LeaderSays
    known: Known | None
    kept: int
    continuous: bool

    @property
    def truncated(self) -> bool:
        """Whether the log may have lost what was acknowledged."""
        return self.known is not None and min(self.kept, self.says.end) < self.known.target

    @property
    def anchor(self) -> tuple[int, int]:
        """A sequence and a target offset: below the offset, everything of ours is counted."""
        if self.known is None:
            first = first_of_ours(self.ledger)
            return first, min(self.ledger.target_of(first), self.says.end)
        if not self.truncated:
            return self.known.sequence, self.known.target
        offset = min(self.kept, self.says.end)
        lowest = first_of_ours(self.ledger)
        sequence = min(self.ledger.sequence_below(offset), self.known.sequence)
        return max(sequence, lowest), offset

    @property
    def _remembered(self) -> int | None:
        """The next sequence by the broker, unless it is of another era."""
        if self.says.producer is None:
            return None
        return self.ledger.remembered(*self.says.producer, self.says.end, self.anchor[0])

    @property
    def grown(self) -> bool:
        """Whether the log has grown behind what is known of it, and is the same otherwise."""
        return self.known is not None and not self.truncated and self.says.end > self.known.target

    @property
    def cut(self) -> bool:
        """Whether the broker remembers an era that the ledger does not know: it was cut."""
        producer = self.says.producer
        return producer is not None and producer[0] > self.ledger.eras.current.epoch

    def at_once(self) -> Conclusion | None:
        """The conclusion, if it needs no look at the log itself."""
        sequence, offset = self.anchor
        remembered, end = self._remembered, self.says.end
        if end == offset and remembered in {None, sequence}:
            return self._conclude(sequence)
        if remembered is None or remembered < sequence or self.truncated:
            return None
        if self.says.visible != end or not agrees(self.ledger, remembered, end):
            return None
        if self.known is None or self.continuous:
            # Within one lease's time nothing else can have made the two agree.
            unproven = remembered > sequence and not self.continuous
            return self._conclude(remembered, unproven=unproven)
        return None

    def tail(self, signature: int, marker_id: int) -> Tail:
        """What has to be read of the log before `after` can conclude."""
        sequence, offset = self.anchor
        return Tail(self.ledger, signature, marker_id, sequence, offset, self.says.end)

    def after(self, tail: Tail) -> Conclusion:
        """The conclusion, when the log was read to its end."""
        if tail.hole is not None:
            return self._conclude(tail.hole[0], new_era=True, repeats=tail.behind)
        unproven = tail.sequence != self.anchor[0] and not self.continuous
        repeats, remembered = tail.unseen, self._remembered
        if repeats and remembered is not None:
            # What was deleted unread may have been ours; what the broker remembers of it may stand
            # behind a hole.
            repeats = max(repeats, remembered - tail.sequence)
        return self._conclude(tail.sequence, unproven=unproven, repeats=repeats)

    def _conclude(
        self, sequence: int, *, new_era: bool = False, unproven: bool = False, repeats: int = 0
    ) -> Conclusion:
        producer, era = self.says.producer, self.ledger.eras.current
        remembered = self._remembered == sequence and not new_era
        # A later epoch is taken if its first sequence is 0: this era may not have begun yet.
        begins = producer is not None and producer[0] < era.epoch and sequence == era.sequence
        if producer is not None and producer[1] >= 0 and not remembered and not begins:
            new_era = True
        return Conclusion(sequence, remembered, new_era, unproven, repeats)
