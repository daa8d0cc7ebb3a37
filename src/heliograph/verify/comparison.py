"""Two logs compared: batches by their bytes, records only where those differ. Pure; in executors.

A record is named by its source offset; the ledger says where it has to be on the target. Where a
record is not there, the records around it tell which of the two logs has more, so that one record
too many or too few is one difference, and not one for every record behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from heliograph.batch.header import HEADER_BYTES, BatchHeader, is_guarded
from heliograph.model import Guard, TopicPartition
from heliograph.verify.expected import Expected
from heliograph.verify.model import Counted, Difference, Kind, Side
from heliograph.verify.previews import changed_fields, preview, previews
from heliograph.verify.streams import Batch, Content, Stream, decoded

__all__ = ["Absent", "Comparison", "Findings", "Terms"]

#: Records that are compared in one step.
_AT_ONCE = 1024
#: Records around a difference that tell whether what follows is in its place.
_LOOKAHEAD = 256
#: Records that have to speak for another place, more than for the one by the ledger.
_MAJORITY = 2
#: Records in their places that prove the ledger right.
_PROOF = 8
#: Neighbours that a record too many is compared with.
_NEIGHBOURS = 64
#: Records without a counterpart are judged together, so many at once at most.
_MOST_OPEN = 4096
_MAGIC = 2


@dataclass(frozen=True, slots=True)
class Terms:
    """What is compared, and what may differ.

    Attributes:
        begin: only differences of source offsets [``begin``, ``end``) count, and records too many
            at target offsets [``target_begin``, ``target_end``).
        goal: the source is mirrored up to before this offset.
        quarantined: source offsets that were set aside instead of mirrored.
        compacted: sides whose cleaner may have removed records.
        others: names of flows whose records on the target are none of ours, by producer id.
        most: how many differences are described.
        guard: what came from the target; None if no flow goes in the opposite direction.
    """

    source: TopicPartition
    target: TopicPartition
    begin: int
    end: int
    target_begin: int
    target_end: int
    producer_id: int
    goal: int = 1 << 62
    quarantined: frozenset[int] = frozenset()
    compacted: frozenset[Side] = frozenset()
    others: Mapping[int, str] = field(default_factory=dict)
    most: int = 20
    guard: Guard | None = None


class Absent(NamedTuple):
    """A record that one side of a compacted topic does not have; ``key`` is to be looked for."""

    lacking: Side
    key: bytes | None
    tombstone: bool
    difference: Difference


@dataclass(slots=True)
class Findings(Counted):
    """What a comparison found. Compaction and deletion are not looked into yet.

    ``absent`` is still to be explained, and not counted among ``records``.
    """

    differences: list[Difference] = field(default_factory=list)
    absent: list[Absent] = field(default_factory=list)


class _Here(NamedTuple):
    """A source record without a counterpart."""

    offset: int
    expected: int | None
    content: Content


class _There(NamedTuple):
    """A target record without a counterpart; ``twin`` is a source record that it is equal to."""

    offset: int
    content: Content
    producer_id: int
    twin: int | None


class Comparison:
    """Compares the batches of two sides once; memory does not grow with their number."""

    def __init__(
        self, source: Iterable[Batch], target: Iterable[Batch], expected: Expected, terms: Terms,
        *, margin: int = 0,
    ) -> None:  # fmt: skip
        """``margin``: how far beyond what counts both sides are read, to find what was moved."""
        self._here = Stream(_counted(source, self), terms.begin - margin, terms.end + margin)
        self._there = Stream(
            _without_others(target, self), terms.target_begin - margin, terms.target_end + margin
        )
        self._expected = expected
        self._terms = terms
        #: The target offset by the ledger of each decoded source record.
        self._places: list[int | None] = []
        #: How far the target is from what the ledger says, at this point.
        self._drift = 0
        self._turned = False
        self._blind = 0
        self._open: list[tuple[_Here | None, _There | None]] = []
        self._recent: deque[tuple[Content, int]] = deque(maxlen=_NEIGHBOURS)
        self._last_alike: Batch | None = None
        self.found = Findings()

    def run(self) -> Findings:
        """Compare all; raises Unreadable."""
        here, there = self._here, self._there
        while len(here) or len(there) or self._digests():
            # As many as the other side has: where both end together, digests take over again.
            if not len(here):
                self._fill(max(len(there), 1))
            if not len(there):
                there.fill(max(len(here), 1))
            count = self._equal()
            if count:
                self._match(count)
            elif len(here) or len(there):
                self._differ()
        self._settle()
        self.found.decoded = here.decoded
        self.found.differences.sort(key=lambda d: d.order)
        return self.found

    # -- batches ------------------------------------------------------------------------------

    def _digests(self) -> bool:
        """Pass over batches that are alike; returns whether anything is left."""
        here, there, found = self._here, self._there, self.found
        if here.partly or there.partly:
            return True
        while (a := here.peek()) is not None and (b := there.peek()) is not None:
            if not self._alike(a, b):
                return True
            found.digests += 1
            found.records += here.owned(a)
            if b.header.log_append_time:
                found.untimed += here.owned(a)
            here.skip()
            there.skip()
            self._last_alike = a
        return here.peek() is not None or there.peek() is not None

    def _alike(self, a: Batch, b: Batch) -> bool:
        """Whether all records are equal and in their places, without looking at any."""
        mine, theirs = a.header, b.header
        if not (
            mine.magic == theirs.magic == _MAGIC
            and mine.record_count == theirs.record_count
            and len(a.data) == len(b.data)
            and mine.codec == theirs.codec
            and mine.base_timestamp == theirs.base_timestamp
            and not mine.log_append_time
            and mine.dense
            and theirs.dense
        ):
            return False
        place = self._expected.follow(mine.base_offset)
        if (
            place is None
            or place[0] != theirs.base_offset
            or place[1] < _most_of(mine, self._terms)
        ):
            return False
        return bytes(a.data[HEADER_BYTES:]) == bytes(b.data[HEADER_BYTES:])

    # -- records ------------------------------------------------------------------------------

    def _fill(self, least: int) -> None:
        here = self._here
        known = len(here)
        here.fill(least)
        if len(here) > known:
            self._places += self._expected.targets(here.offsets[known:])

    def _equal(self) -> int:
        """How many records from here on are equal and in their places, by the drift."""
        here, there = self._here, self._there
        count = min(len(here), len(there), _AT_ONCE)
        if not count:
            return 0
        places = self._places[:count]
        if self._drift:
            places = [None if p is None else p + self._drift for p in places]
        mine, theirs = here.contents[:count], there.contents[:count]
        offsets = there.offsets[:count]
        if mine == theirs and places == offsets:
            return count
        return next(i for i in range(count) if mine[i] != theirs[i] or places[i] != offsets[i])

    def _match(self, count: int) -> None:
        here = self._here
        first, last = here.offsets[0], here.offsets[count - 1]
        owned = count
        if first < self._terms.begin or last >= self._terms.end:
            owned = sum(self._is_mine(o) for o in here.offsets[:count])
        self.found.records += owned
        if self._drift:
            for index in range(count):
                self._misplaced(index)
        tail = slice(max(0, count - _NEIGHBOURS), count)
        self._recent.extend(zip(here.contents[tail], here.offsets[tail], strict=True))
        self._last_alike = None
        self._drop(count, count)

    def _misplaced(self, index: int) -> None:
        """A record that is equal, but not where the ledger says; neighbours are one difference."""
        offset, place = self._here.offsets[index], self._places[index]
        if place is None or not self._is_mine(offset):
            return
        self.found.counts[Kind.WRONG_OFFSET] += 1
        at = self._there.offsets[index]
        known = self.found.differences
        if known and known[-1].kind is Kind.WRONG_OFFSET:
            last = known[-1]
            wrong = (last.target_offset or 0) - (last.expected or 0)
            if wrong == at - place and last.target_offset == at - last.count:
                last.count += 1
                return
        content = self._here.contents[index]
        self._describe(
            Kind.WRONG_OFFSET, source_offset=offset, target_offset=at, expected=place,
            note="equal, but the ledger says another offset",
            source_record=preview(content), producer_id=self._there.producers[index],
        )  # fmt: skip

    def _drop(self, here: int, there: int) -> None:
        self._here.drop(here)
        del self._places[:here]
        self._there.drop(there)
        self._turned = False

    # -- differences --------------------------------------------------------------------------

    def _differ(self) -> None:
        """The next two records do not belong together: one or both have no counterpart."""
        self._fill(_LOOKAHEAD)
        here, there = self._here, self._there
        there.fill(_LOOKAHEAD)
        if not len(here):
            self._leave(0, 1)
            return
        place = self._places[0]
        if not len(there) or place is None:
            self._leave(1, 0)
            return
        wanted, offset = place + self._drift, there.offsets[0]
        if wanted == offset and there.appended[0] and here.contents[0][1:] == there.contents[0][1:]:
            # The target puts its own time on what it takes.
            self.found.untimed += self._is_mine(here.offsets[0])
            self._match(1)
            return
        if self._turn():
            return
        self._leave(int(wanted <= offset), int(wanted >= offset))

    def _turn(self) -> bool:
        """Whether what follows is found elsewhere than was thought; if so, compare from there."""
        if self._terms.compacted or self._turned or self._holds_further_on():
            return False
        if self._blind:
            self._blind -= 1
            return False
        votes = self._votes()
        kept = votes.pop(self._drift, 0)
        best = max(votes, key=lambda d: (votes[d], -abs(d)), default=None)
        if best is None and not kept:
            # Nothing in common: no use to look again before all of this is passed.
            self._blind = _LOOKAHEAD
        if best is None or votes[best] < kept + _MAJORITY:
            return False
        self._drift, self._turned = best, True
        return True

    def _holds_further_on(self) -> bool:
        """Whether the next records are where the ledger says, behind some that are too many.

        The ledger comes first: records that are there twice are equal to those before their place.
        There may be more of them than are looked at to find another place.
        """
        place = self._places[0]
        here, there = self._here, self._there
        if self._drift or place is None or there.offsets[0] >= place:
            return False
        # Offsets grow by one at least, so that this many records reach the place and what follows.
        ahead = place - there.offsets[0] + _PROOF
        if ahead > _MOST_OPEN:
            return False
        there.fill(ahead)
        index = bisect_left(there.offsets, place)
        count = min(_PROOF, len(here), len(there) - index)
        return (
            count > 0
            and there.offsets[index : index + count] == self._places[:count]
            and there.contents[index : index + count] == here.contents[:count]
        )

    def _votes(self) -> Counter[int]:
        """For each drift, how many of the next records are equal by it.

        Contents that occur more than once speak only for the drift that holds now.
        """
        here, there = self._here, self._there
        mine = here.contents[:_LOOKAHEAD]
        theirs = there.contents[:_LOOKAHEAD]
        by_offset = dict(zip(there.offsets, theirs, strict=False))
        times, here_times = Counter(theirs), Counter(mine)
        at = dict(zip(theirs, there.offsets, strict=False))
        votes: Counter[int] = Counter()
        for content, place in zip(mine, self._places, strict=False):
            if place is None:
                continue
            if by_offset.get(place + self._drift) == content:
                votes[self._drift] += 1
            elif times[content] == here_times[content] == 1:
                votes[at[content] - place] += 1
        return votes

    def _leave(self, here: int, there: int) -> None:
        """Put records aside that have no counterpart: the next of one side, or of both."""
        mine = theirs = None
        if here:
            mine = _Here(self._here.offsets[0], self._places[0], self._here.contents[0])
        if there:
            content = self._there.contents[0]
            twin = self._twin(content)
            theirs = _There(self._there.offsets[0], content, self._there.producers[0], twin)
        self._open.append((mine, theirs))
        self._drop(here, there)
        if mine is not None:
            self._recent.append((mine.content, mine.offset))
        if len(self._open) >= _MOST_OPEN:
            self._settle()

    def _twin(self, content: Content) -> int | None:
        """A source record nearby that a record is equal to, the nearest before it first."""
        if self._last_alike is not None:
            for offsets, contents in decoded(self._last_alike):
                known = zip(contents[-_NEIGHBOURS:], offsets[-_NEIGHBOURS:], strict=True)
                self._recent.extend(known)
            self._last_alike = None
        for recent, offset in reversed(self._recent):
            if recent == content:
                return offset
        ahead = self._here.contents[:_NEIGHBOURS]
        return self._here.offsets[ahead.index(content)] if content in ahead else None

    def _settle(self) -> None:
        """Judge what was put aside: moved, changed, missing or too many."""
        moved: dict[int, _There] = {}
        taken: set[int] = set()
        if not self._terms.compacted:
            moved, taken = self._moved()
        for index, (mine, theirs) in enumerate(self._open):
            if mine is not None and index in moved:
                self._found_elsewhere(mine, moved[index])
            here = None if index in moved else mine
            there = None if index in taken else theirs
            if here is not None and there is not None:
                self._changed(here, there)
            elif here is not None:
                self._missing(here)
            elif there is not None:
                self._extra(there)
        self._open.clear()

    def _moved(self) -> tuple[dict[int, _There], set[int]]:
        """Records of both sides that are equal, in whatever places: by index of what is open."""
        there = {t.offset: (index, t) for index, (_, t) in enumerate(self._open) if t is not None}
        waiting: dict[Content, deque[int]] = {}
        moved: dict[int, _There] = {}
        taken: set[int] = set()
        for index, (mine, _) in enumerate(self._open):
            if mine is None:
                continue
            # One that is in its place after all, while its neighbours were not, is left there.
            at = there.get(-1 if mine.expected is None else mine.expected)
            if at is not None and at[1].content == mine.content:
                moved[index] = at[1]
                taken.add(at[0])
            else:
                waiting.setdefault(mine.content, deque()).append(index)
        for index, theirs in there.values():
            if index not in taken and (equal := waiting.get(theirs.content)):
                moved[equal.popleft()] = theirs
                taken.add(index)
        return moved, taken

    def _found_elsewhere(self, mine: _Here, theirs: _There) -> None:
        if not self._is_mine(mine.offset):
            return
        self.found.records += 1
        if mine.expected == theirs.offset:
            return
        note = "equal, but it stands among other records"
        if mine.expected is None:
            note = "equal, but the ledger has no place for it"
        self.found.counts[Kind.MOVED] += 1
        self._describe(
            Kind.MOVED, source_offset=mine.offset, target_offset=theirs.offset,
            expected=mine.expected, note=note, source_record=preview(mine.content),
            producer_id=theirs.producer_id,
        )  # fmt: skip

    def _changed(self, mine: _Here, theirs: _There) -> None:
        if not self._is_mine(mine.offset):
            return
        self.found.records += 1
        self.found.counts[Kind.CHANGED] += 1
        changed = changed_fields(mine.content, theirs.content)
        source, target = previews(mine.content, theirs.content)
        self._describe(
            Kind.CHANGED, source_offset=mine.offset, target_offset=theirs.offset,
            expected=mine.expected, field=changed, note=self._writer(theirs.producer_id),
            source_record=source, target_record=target, producer_id=theirs.producer_id,
        )  # fmt: skip

    def _missing(self, mine: _Here) -> None:
        if not self._is_mine(mine.offset):
            return
        if mine.offset in self._terms.quarantined:
            self.found.quarantined += 1
            return
        note = "" if mine.expected is not None else "the ledger has no place for it"
        if mine.offset >= self._terms.goal:
            note = "not mirrored yet"
            self.found.behind += 1
        difference = self._new(
            Kind.MISSING, source_offset=mine.offset, expected=mine.expected, note=note,
            source_record=preview(mine.content),
        )  # fmt: skip
        if Side.TARGET in self._terms.compacted and mine.expected is not None:
            self._absent(Side.TARGET, mine.content, difference)
        else:
            self.found.records += 1
            self.found.counts[Kind.MISSING] += 1
            self._keep(difference)

    def _extra(self, theirs: _There) -> None:
        if not self._terms.target_begin <= theirs.offset < self._terms.target_end:
            return
        source = self._expected.source(theirs.offset)
        note = self._writer(theirs.producer_id)
        if theirs.twin is not None:
            note = f"doubled: equal to source offset {theirs.twin}; {note}"
        elif source is not None:
            note = f"by the ledger it is source offset {source}, which is not there; {note}"
        difference = self._new(
            Kind.EXTRA, target_offset=theirs.offset, note=note,
            target_record=preview(theirs.content), producer_id=theirs.producer_id,
        )  # fmt: skip
        if Side.SOURCE in self._terms.compacted and source is not None:
            difference.source_offset = source
            self._absent(Side.SOURCE, theirs.content, difference)
        else:
            self.found.counts[Kind.EXTRA] += 1
            self._keep(difference)

    def _absent(self, lacking: Side, content: Content, difference: Difference) -> None:
        _, key, value, _ = content
        self.found.absent.append(Absent(lacking, key, value is None, difference))

    def _writer(self, producer_id: int) -> str:
        if producer_id == self._terms.producer_id:
            return "written by this flow"
        if producer_id < 0:
            return "written by a producer without an id"
        return f"written by producer id {producer_id}, not by this flow"

    def skips(self, batch: Batch) -> bool:
        """Whether a batch of the target is not this flow's to answer for: counted and left out.

        It is another flow's; or it began there, and the flow in the opposite direction mirrors it.
        """
        header, terms = batch.header, self._terms
        writer = header.producer_id if header.magic == _MAGIC else -1
        name = terms.others.get(writer) if header.magic == _MAGIC else None
        paired = terms.guard is not None and terms.guard.paired
        if name is None and (not paired or writer == terms.producer_id):
            return False
        number = _count_between(batch, terms.target_begin, terms.target_end)
        if name is None:
            self.found.own += number
        elif number:
            self.found.others[name] += number
        return True

    def returned(self, batch: Batch) -> bool:
        """Whether a batch of the source came from the target, which is counted and left out."""
        terms = self._terms
        if terms.guard is None or not is_guarded(batch.header, terms.guard):
            return False
        self.found.returned += _count_between(batch, terms.begin, terms.end)
        return True

    def _is_mine(self, offset: int) -> bool:
        return self._terms.begin <= offset < self._terms.end

    def _new(self, kind: Kind, **facts: object) -> Difference:
        source, target = self._terms.source, self._terms.target
        return Difference(kind, source.topic, target.topic, source.partition, **facts)  # type: ignore[arg-type]

    def _describe(self, kind: Kind, **facts: object) -> None:
        self._keep(self._new(kind, **facts))

    def _keep(self, difference: Difference) -> None:
        if len(self.found.differences) < self._terms.most:
            self.found.differences.append(difference)


def _most_of(header: BatchHeader, terms: Terms) -> int:
    """How many records of a batch, from its first on, have to be in a row on the target."""
    return min(header.record_count, terms.end - header.base_offset)


def _count_between(batch: Batch, begin: int, end: int) -> int:
    """How many records of a batch have offsets [``begin``, ``end``)."""
    header = batch.header
    parts: Iterable[Sequence[int]] = [range(header.base_offset, header.last_offset + 1)]
    if header.magic != _MAGIC or not header.dense:
        parts = (offsets for offsets, _ in decoded(batch))
    return sum(bisect_left(part, end) - bisect_left(part, begin) for part in parts)


def _counted(batches: Iterable[Batch], comparison: Comparison) -> Iterator[Batch]:
    for batch in batches:
        if comparison.returned(batch):
            continue
        comparison.found.bytes += len(batch.data)
        yield batch


def _without_others(batches: Iterable[Batch], comparison: Comparison) -> Iterator[Batch]:
    return (batch for batch in batches if not comparison.skips(batch))
