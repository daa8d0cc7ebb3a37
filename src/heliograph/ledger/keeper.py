"""Keeps the ledger topic small: re-packs many small entries into few large ones, and prunes.

Runs in the driver; any number of keepers, writers and readers may be at work at once. Why nobody
ever misses a run:

- A packed record is the outcome of all entries before an offset (``as_of``). Every reader takes it
  in place of what it knew, unless it has read an entry of that place from ``as_of`` on: then the
  packed record counts for nobody, and its keeper, who reads the topic too, removes nothing.
- Packed records are written, read back and found to count before the first tombstone is written,
  and tombstones are written only for what they cover. A tombstone changes nothing for a reader.
- No key is written twice, so a tombstone hits the record it was meant for and no other.
- Packed records are written with a producer id, so that a request that was sent again, or delayed
  on the way, does not put them behind entries that they know nothing of.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from heliograph.ledger.codec import Packed, Place, encode_packed, key_of, split
from heliograph.ledger.columns import Run
from heliograph.ledger.packing import pack
from heliograph.ledger.store import LedgerStore, Pair, batches_of
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.metadata import NO_ID

#: Runs of one packed record: key and headers are then some 2 % of it, and rewriting the last one
#: for a few new runs costs little.
_RUNS_PER_RECORD = 4096
#: Re-packing must remove at least one record for every so many runs that it writes.
_RUNS_PER_REMOVED = 200
#: A place is left alone until there is so much to remove.
_LEAST = 64
#: Leader changes of a partition that are remembered, at least.
_EPOCHS_KEPT = 16
#: A writer may come between; then again, and after that at the next opportunity.
_TRIES = 3


@dataclass(slots=True)
class _Records:
    """Which records of the topic are about a place: their keys, less the place."""

    entries: set[str] = field(default_factory=set)
    #: The lowest sequence that an entry is about, or lower.
    first: int = 0
    packed: dict[str, int] = field(default_factory=dict)
    epochs: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)

    def note(self, rest: str) -> None:
        kind, _, numbers = rest.partition("/")
        if kind in {"runs", "shift"}:
            sequence = int(numbers.partition("/")[0])
            self.first = min(self.first, sequence) if self.entries else sequence
            self.entries.add(rest)
        elif kind == "packed":
            self.packed[rest] = int(numbers.partition("/")[0])
        elif kind == "epoch":
            self.epochs.add(rest)
        else:
            self.others.add(rest)

    def forget(self, rest: str) -> None:
        self.entries.discard(rest)
        self.packed.pop(rest, None)
        self.epochs.discard(rest)
        self.others.discard(rest)


class _Rewrite(NamedTuple):
    """What takes the place of what: ``runs`` are all from ``start`` on that are worth keeping."""

    place: Place
    start: int
    runs: Sequence[Run]
    obsolete: list[str]

    def packed(self) -> list[tuple[Packed, bytes]]:
        """The records to write, ``as_of`` still open, with their runs as bytes."""
        step = _RUNS_PER_RECORD
        pieces = [self.runs[i : i + step] for i in range(0, len(self.runs), step)]
        starts = [self.start, *(piece[0].sequence for piece in pieces[1:])]
        return [
            (Packed(self.place, start, until, -1, piece), pack(piece))
            for piece, start, until in zip(pieces, starts, [*starts[1:], None], strict=True)
        ]


class LedgerKeeper(LedgerStore):
    """A store that also knows which records the topic is made of, and rewrites them."""

    def __init__(self, client: ClusterClient, topic: str) -> None:
        super().__init__(client, topic)
        self._records: dict[Place, _Records] = {}
        self._unconfirmed: set[bytes] = set()

    @property
    def places(self) -> Collection[Place]:
        """All that the topic has records of."""
        return self._records.keys()

    def _take(self, offset: int, key: bytes, value: bytes | None) -> bool:
        counts = super()._take(offset, key, value)
        if counts:
            self._unconfirmed.discard(key)
        place, rest = split(key)
        if place is not None and value is not None:
            self._records.setdefault(place, _Records()).note(rest)
        elif place in self._records:
            self._records[place].forget(rest)
        return counts

    def tidy(
        self,
        log_starts: Mapping[Place, int],
        gone: Collection[uuid.UUID] = (),
        least: int = _LEAST,
    ) -> None:
        """Re-pack and prune where it is worth it.

        Args:
            log_starts: every place that is mirrored now, with the target offset below which its
                runs are not needed any more (0: all are). An earlier generation of its source
                topic keeps one run, which says that it was mirrored (`other_sources`).
            gone: target topics that do not exist any more; nothing is kept of them.
            least: how many records or runs there must be to remove.
        """
        self.refresh()
        self._remove([p for p in self._records if p.target_id in gone])
        self._forget_epochs()
        successors = {_any_source(p): p for p in log_starts}
        for _ in range(_TRIES):
            rewrites = []
            for place in self._records:
                successor = successors.get(_any_source(place), place)
                log_start = None if self._follows(successor, place) else log_starts.get(place, 0)
                rewrite = self._rewrite_of(place, log_start, least)
                if rewrite is not None:
                    rewrites.append(rewrite)
            if not rewrites:
                return
            self._carry_out(rewrites)

    def _follows(self, later: Place, earlier: Place) -> bool:
        """Whether a generation of the source topic was mirrored behind another one."""
        # Brokers before 2.8 give no ids: nothing tells one generation from the next.
        if later == earlier or NO_ID in {later.source_id, earlier.source_id}:
            return False
        # Who asks may not have heard of a re-created topic yet, and take the old one for the new.
        new, old = self.at(later).runs, self.at(earlier).runs
        return bool(new and old) and new[0].target >= old[-1].target

    def _remove(self, places: Sequence[Place]) -> None:
        rests = {
            p: (r.entries, r.packed, r.epochs, r.others) for p in places if (r := self._records[p])
        }
        self._append_all(
            (key_of(place, rest), None)
            for place, kinds in rests.items()
            for kind in kinds
            for rest in kind
        )
        for place in places:
            del self._records[place]
            self._places.pop(place, None)

    def _forget_epochs(self) -> None:
        """Only the last records' epochs are asked for: how far an unclean election can reach."""
        for place, records in self._records.items():
            if len(records.epochs) < 2 * _EPOCHS_KEPT:
                continue
            counting = {(m.sequence, m.epoch) for m in self.at(place).epochs.marks}
            # What is void goes first: it must not count again when what made it void is gone.
            order = sorted((_mark_of(rest) in counting, _mark_of(rest), rest)
                           for rest in records.epochs)  # fmt: skip
            self._append_all((key_of(place, rest), None) for *_, rest in order[:-_EPOCHS_KEPT])
        self.refresh()

    def _rewrite_of(self, place: Place, log_start: int | None, least: int) -> _Rewrite | None:
        """What to do about a place; ``log_start`` None: its newest run is enough."""
        ledger, records = self.at(place), self._records[place]
        count = len(ledger.runs)
        if not count:
            return None
        useless = count - 1 if log_start is None else ledger.prunable(log_start)
        if useless and (log_start is None or (useless >= least and 2 * useless >= count)):
            everything = [*records.entries, *records.packed]
            return _Rewrite(place, 0, ledger.runs[useless:], everything)
        if len(records.entries) < least:
            return None
        # From the lowest sequence that an entry is about; with a small packed record before it.
        start = records.first if records.packed else 0
        for earlier in sorted(records.packed.values(), reverse=True):
            near = ledger.count_before(start) - ledger.count_before(earlier)
            if earlier < start and near < _RUNS_PER_RECORD // 2:
                start = earlier
        runs = ledger.runs[ledger.count_before(start) :]
        if not runs or len(runs) > _RUNS_PER_REMOVED * len(records.entries):
            return None
        covered = [rest for rest, begin in records.packed.items() if begin >= start]
        return _Rewrite(place, start, runs, [*records.entries, *covered])

    def _carry_out(self, rewrites: Sequence[_Rewrite]) -> None:
        planned_at = self._next_offset
        packed = {rewrite.place: rewrite.packed() for rewrite in rewrites}
        # Packing takes time, and the less of it passes between as_of and the append, the better.
        self.refresh()
        as_of = self._next_offset
        written: dict[Place, list[Pair]] = {
            place: [
                encode_packed(p._replace(as_of=as_of), body, secrets.token_hex(4))
                for p, body in records
            ]
            for place, records in packed.items()
            if self._touched.get(place, -1) < planned_at
        }
        self._unconfirmed = {key for pairs in written.values() for key, _ in pairs}
        self._append_once([pair for pairs in written.values() for pair in pairs])
        self.refresh()
        self._append_all(
            (key_of(place, rest), None)
            for place, _, _, obsolete in rewrites
            if place in written and self._unconfirmed.isdisjoint(key for key, _ in written[place])
            for rest in obsolete
        )
        self.refresh()

    def _append_once(self, pairs: Sequence[Pair]) -> None:
        """Append records exactly once: under a producer id, new for every call."""
        if not pairs:
            return
        producer_id, sequence = self._allocate(), 0
        for batch in batches_of(pairs):
            self._append(batch, producer_id, sequence)
            sequence += len(batch)

    def _allocate(self) -> int:
        return admin.allocate_producer_id(self._client)


def _any_source(place: Place) -> tuple[str, int, uuid.UUID]:
    return place.topic, place.partition, place.target_id


def _mark_of(rest: str) -> tuple[int, int]:
    """Sequence and epoch of an epoch's record."""
    _, sequence, epoch, _ = rest.split("/")
    return int(sequence), int(epoch)
