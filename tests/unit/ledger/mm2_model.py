"""MM2 in miniature: two logs as it leaves them, with restarts and repeated batches."""

from __future__ import annotations

import struct
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import groupby

from hypothesis import strategies as st

from heliograph.batch.log_slice import LogSlice
from heliograph.batch.records import Record, build
from heliograph.ledger.runs import PartitionLedger
from heliograph.takeover.alignment import Pair
from heliograph.takeover.history import Asking, History, Read, Request, Side

#: Records of one millisecond share a timestamp.
PER_MILLISECOND = 3


@dataclass(slots=True)
class Log:
    """One partition: batches of records with offsets, and where it starts and ends."""

    batches: list[list[Record]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    transactional: bool = False

    @classmethod
    def of(cls, *batches: bytes) -> Log:
        """Each byte is a record's value; one second for each batch."""
        log = cls()
        for second, values in enumerate(batches):
            log.batches.append([
                Record(log.end + i, 1000 * second if len(batches) > 9 else 1000, None, bytes([v]))
                for i, v in enumerate(values)
            ])  # fmt: skip
            log.end += len(values)
        return log

    def slice(self, start: int, end: int | None = None, most: int | None = None) -> LogSlice:
        """As read from a broker: whole batches, from the one that holds ``start`` on."""
        found = LogSlice(max(start, self.start))
        data = bytearray()
        for batch in self.batches:
            records = [r for r in batch if r.offset >= self.start]
            if not records or records[-1].offset < found.start:
                continue
            if end is not None and records[0].offset >= end:
                break
            data += _encoded(records, self.transactional)
            if most is not None and (most := most - len(records)) <= 0:
                break
        found.take(memoryview(data), [], end)
        if end is not None:
            found.end = end
        return found

    def records(self) -> list[Record]:
        return [r for batch in self.batches for r in batch if r.offset >= self.start]


def _encoded(records: list[Record], transactional: bool) -> bytes:
    out = bytearray()
    for _, group in groupby(enumerate(records), key=lambda pair: pair[1].offset - pair[0]):
        piece = [record for _, record in group]
        batch = bytearray(build(piece))
        struct.pack_into(">q", batch, 0, piece[0].offset)
        batch[22] |= transactional << 4
        out += batch
    return bytes(out)


@dataclass(slots=True)
class Mirrored:
    """What MM2 left: ``origins`` are the source offsets of the target's records, by offset."""

    source: Log
    target: Log
    origins: dict[int, int]
    stored: int | None
    syncs: list[Pair]

    @property
    def last(self) -> int:
        """The last source offset that is on the target."""
        return max(self.origins.values())


SHORT, SOME = st.integers(0, 3), st.integers(0, 8)


@st.composite
def mirrored(draw, *, values=None, gaps=SHORT, repeats=SOME, resends=True, behind=False):
    """Logs after some sessions of MM2, the last of which was killed.

    Args:
        draw: hypothesis's.
        values: how many different records there are; None: all differ.
        gaps: lengths of the source's gaps, one before each batch.
        repeats: how many acknowledged records a restart copies again.
        resends: whether its producer sent some batches again.
        behind: whether sessions may end before they have caught up with the one before.
    """
    source = Log()
    for gap in draw(st.lists(gaps, min_size=2, max_size=12)):
        source.end += gap
        source.transactional |= gap > 0
        count = draw(st.integers(1, 9))
        source.batches.append([
            Record(offset, 1000 + (offset // PER_MILLISECOND if values is None else 0), None,
                   b"%d" % (offset if values is None else draw(st.integers(1, values))))
            for offset in range(source.end, source.end + count)
        ])  # fmt: skip
        source.end += count
    records = source.records()
    target, origins, syncs = Log(), {}, []
    # Then its batches end with markers.
    in_transactions = target.transactional = draw(st.booleans())
    stored, reached = -1, 0
    for _ in range(draw(st.integers(1, 4))):
        # A stored position is one that was acknowledged, and never goes back.
        at = max(stored + 1, reached - draw(repeats))
        stored = at - 1
        least = at + 1 if behind else max(reached, at + 1)
        goal = draw(st.integers(min(least, len(records)), len(records)))
        while at < goal:
            piece = records[at : min(at + draw(st.integers(1, 6)), goal)]
            for _ in range(draw(st.sampled_from([1, 1, 1, 1, 2])) if resends else 1):
                batch = [r._replace(offset=target.end + i) for i, r in enumerate(piece)]
                target.batches.append(batch)
                origins |= {b.offset: r.offset for b, r in zip(batch, piece, strict=True)}
                target.end += len(batch) + in_transactions
                # Emitted on the acknowledgement; of a batch that was sent again, the second.
            syncs.append(Pair(piece[-1].offset, batch[-1].offset))
            at += len(piece)
        reached = max(reached, at)
    known = records[stored].offset if stored >= 0 else None
    return Mirrored(source, target, origins, known, syncs)


def ask_model(model: Mirrored, asking: Asking[History], asked: list[Request] | None = None):
    """Answers what a generator asks, from the model."""
    answer = None
    while True:
        try:
            request = asking.send(answer)
        except StopIteration as stop:
            return stop.value
        if asked is not None:
            asked.append(request)
        log = model.source if request.side is Side.SOURCE else model.target
        if isinstance(request, Read):
            most = request.records if request.end is None else None
            answer = log.slice(request.start, request.end, most)
        else:
            later = [r.offset for r in log.records() if r.timestamp >= request.timestamp]
            answer = min(later, default=None)


def require_safe(model: Mirrored, ledger: PartitionLedger, *, exact: bool) -> None:
    """Nothing is skipped, whichever way one goes; with ``exact`` every record is found."""
    target, source = model.target, model.source
    origins = {t: s for t, s in model.origins.items() if t >= target.start}
    here = [r.offset for r in source.records()]
    last_copy = {s: t for t, s in sorted(origins.items())}
    for offset in sorted({s + n for s in (0, source.start, *here) for n in (-1, 0, 1)} - {-1}):
        answer = ledger.to_target(offset)
        wanted = [s for s in here if offset <= s <= model.last]
        skipped = [s for s in wanted if s in last_copy and last_copy[s] < answer]
        assert not skipped, (offset, answer)
        if exact and offset in last_copy:
            # What comes behind the last record is only repeated.
            copies = [t for t, s in origins.items() if s == offset and t <= last_copy[model.last]]
            assert answer == max(copies)
    assert ledger.to_target(model.last + 1) == target.end
    assert ledger.to_target(model.last + 8) == target.end + 7
    copies = sorted(origins)
    reached = -1
    for offset in range(target.start, target.end + 1):
        read = copies[bisect_left(copies, offset) - 1] if copies[0] < offset else None
        if read is not None:
            reached = max(reached, origins[read])
        answer = ledger.to_source(offset)
        # What was read on the target need not be read on the source; all else must be.
        skipped = [s for s in here if max(reached, first_of(model) - 1) < s < answer]
        assert not skipped, (offset, answer, reached)
    assert ledger.to_source(target.end + 3) == model.last + 4


def first_of(model: Mirrored) -> int:
    """The source offset of the first record that the target still has."""
    return next(s for t, s in sorted(model.origins.items()) if t >= model.target.start)
