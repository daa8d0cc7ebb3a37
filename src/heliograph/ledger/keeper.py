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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from heliograph.ledger.codec import Packed, Place, encode_packed, key_of, split
from heliograph.ledger.columns import Run
from heliograph.ledger.follower import Reached, View
from heliograph.ledger.packing import pack
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.topic_log import Pair
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


class _RecordIndex(View):
    """Which records the topic is made of."""

    def __init__(self) -> None:
        self.of: dict[Place, _Records] = {}

    def forget(self) -> None:
        self.of = {}

    def take(self, offset: int, key: bytes, value: bytes | None) -> None:
        place, rest = split(key)
        if place is None:
            return
        if value is not None:
            self.of.setdefault(place, _Records()).note(rest)
        elif place in self.of:
            self.of[place].forget(rest)


class LedgerKeeper:
    """Knows which records a ledger's topic is made of, and rewrites them. One thread at a time.

    Others may read and write the same store meanwhile. What is decided from several facts is
    decided while ``follower.folding`` is held.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._follower = store.follower
        self._index = _RecordIndex()
        self._follower.attach(self._index)

    @property
    def places(self) -> Collection[Place]:
        """All that the topic has records of."""
        with self._follower.folding:
            return set(self._index.of)

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
        self._follower.refresh()
        self._remove(gone)
        self._forget_epochs()
        successors = {_any_source(p): p for p in log_starts}
        for _ in range(_TRIES):
            with self._follower.folding:
                planned = self._follower.reached
                rewrites = list(self._rewrites(log_starts, successors, least))
            if not rewrites:
                return
            self._carry_out(rewrites, planned)

    def _rewrites(
        self,
        log_starts: Mapping[Place, int],
        successors: Mapping[tuple[str, int, uuid.UUID], Place],
        least: int,
    ) -> Iterator[_Rewrite]:
        for place in self._index.of:
            successor = successors.get(_any_source(place), place)
            log_start = None if self._follows(successor, place) else log_starts.get(place, 0)
            rewrite = self._rewrite_of(place, log_start, least)
            if rewrite is not None:
                yield rewrite

    def _follows(self, later: Place, earlier: Place) -> bool:
        """Whether a generation of the source topic was mirrored behind another one."""
        # Brokers before 2.8 give no ids: nothing tells one generation from the next.
        if later == earlier or NO_ID in {later.source_id, earlier.source_id}:
            return False
        # Who asks may not have heard of a re-created topic yet, and take the old one for the new.
        new, old = self._store.at(later).runs, self._store.at(earlier).runs
        return bool(new and old) and new[0].target >= old[-1].target

    def _remove(self, gone: Collection[uuid.UUID]) -> None:
        with self._follower.folding:
            places = [p for p in self._index.of if p.target_id in gone]
            keys = [
                key_of(place, rest)
                for place in places
                for r in (self._index.of[place],)
                for kind in (r.entries, r.packed, r.epochs, r.others)
                for rest in kind
            ]
        self._follower.append((key, None) for key in keys)
        with self._follower.folding:
            for place in places:
                self._index.of.pop(place, None)
            self._store.drop(places)

    def _forget_epochs(self) -> None:
        """Only the last records' epochs are asked for: how far an unclean election can reach."""
        with self._follower.folding:
            void = [
                key_of(place, rest)
                for place, records in self._index.of.items()
                if len(records.epochs) >= 2 * _EPOCHS_KEPT
                for rest in self._void_epochs(place, records)
            ]
        self._follower.append((key, None) for key in void)
        self._follower.refresh()

    def _void_epochs(self, place: Place, records: _Records) -> list[str]:
        """The records of epochs to remove, in the order to remove them in."""
        counting = {(m.sequence, m.epoch) for m in self._store.at(place).epochs.marks}
        # What is void goes first: it must not count again when what made it void is gone.
        order = sorted((_mark_of(rest) in counting, _mark_of(rest), rest)
                       for rest in records.epochs)  # fmt: skip
        return [rest for *_, rest in order[:-_EPOCHS_KEPT]]

    def _rewrite_of(self, place: Place, log_start: int | None, least: int) -> _Rewrite | None:
        """What to do about a place; ``log_start`` None: its newest run is enough."""
        ledger, records = self._store.at(place), self._index.of[place]
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

    def _carry_out(self, rewrites: Sequence[_Rewrite], planned: Reached) -> None:
        """Write packed records, see that they count, and remove what they replace.

        The runs of ``rewrites`` are the outcome of all entries before ``planned``.
        """
        packed = {rewrite.place: rewrite.packed() for rewrite in rewrites}
        # Packing takes time, and the less of it passes between as_of and the append, the better.
        self._follower.refresh()
        with self._follower.folding:
            now = self._follower.reached
            if now.losses != planned.losses:
                # The runs may be of entries that are gone.
                return
            # No entry of the place between ``planned`` and as_of.
            still = [p for p in packed if self._store.touched(p) < planned.position]
        written: dict[Place, list[Pair]] = {
            place: [
                encode_packed(p._replace(as_of=now.position), body, secrets.token_hex(4))
                for p, body in packed[place]
            ]
            for place in still
        }
        unconfirmed = {key for pairs in written.values() for key, _ in pairs}
        self._store.unconfirmed = unconfirmed
        self._follower.append_once(pair for pairs in written.values() for pair in pairs)
        self._follower.refresh()
        self._follower.append(
            (key_of(place, rest), None)
            for place, _, _, obsolete in rewrites
            if place in written and unconfirmed.isdisjoint(key for key, _ in written[place])
            for rest in obsolete
        )
        self._follower.refresh()


def _any_source(place: Place) -> tuple[str, int, uuid.UUID]:
    return place.topic, place.partition, place.target_id


def _mark_of(rest: str) -> tuple[int, int]:
    """Sequence and epoch of an epoch's record."""
    _, sequence, epoch, _ = rest.split("/")
    return int(sequence), int(epoch)
