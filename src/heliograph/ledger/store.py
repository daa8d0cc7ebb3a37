"""What the ledger says of each place: its runs and all that goes with them. Read, and appended to.

Used by the driver (lag, translation), by executors (resume, new runs) and by commands.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Collection, Iterable, Iterator

from heliograph.ledger.codec import (
    Acknowledged,
    Cut,
    Entry,
    Epoch,
    Inherited,
    NewEra,
    Packed,
    Place,
    Signature,
    decode,
    encode_cut,
    encode_entry,
    encode_epoch,
    encode_era,
    encode_inherited,
    encode_known,
    encode_signature,
)
from heliograph.ledger.follower import LedgerFollower, View
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.ledger.topic_log import Pair
from heliograph.wire.cluster import ClusterClient

#: A larger announcement becomes several records.
_RUNS_PER_ENTRY = 16_384


class LedgerStore(View):
    """The runs of every place of a flow, and its signature.

    With ``shared`` any thread may use it: what `at` returned never changes, and each reading that
    found something new replaces the ledgers of the places that it was about. Otherwise one thread
    uses it, and what `at` returned changes with each `refresh`; that spares executors the copies.

    Attributes:
        follower: reads the topic; other views of it may be attached before the first `refresh`.
        signature: the flow's signature: the first one in the topic counts, for everybody.
    """

    def __init__(self, client: ClusterClient, topic: str, *, shared: bool = False) -> None:
        self.follower = LedgerFollower(client, topic)
        self.signature: Signature | None = None
        self._shared = shared
        #: As of the last reading; in a store that is not shared the same object as ``_folded``.
        self._places: dict[Place, PartitionLedger] = {}
        self._folded = {} if shared else self._places
        self._first_signature: Signature | None = None
        #: Shared: the places whose ledgers in ``_folded`` nobody else has yet.
        self._private: set[Place] = set()
        #: The places of a source partition. Never shrinks: whoever asks looks for runs.
        self._of_partition: dict[tuple[str, int], tuple[Place, ...]] = {}
        #: Offset of the last entry of each place.
        self._touched: dict[Place, int] = {}
        #: What was read before the topic lost records.
        self._lost: dict[Place, PartitionLedger] = {}
        #: Packed records that `LedgerKeeper` has appended and that were not read back yet.
        self.unconfirmed: set[bytes] = set()
        self.follower.attach(self)

    # -- asking -------------------------------------------------------------------------------

    @property
    def losses(self) -> int:
        """How often the topic turned out to have lost what was read from it."""
        return self.follower.losses

    @property
    def followed_since(self) -> float:
        """Since when nothing was missed, by the monotonic clock; infinite before a reading."""
        return self.follower.followed_since

    def refresh(self) -> None:
        """See at least all that is in the topic now (`LedgerFollower.refresh`)."""
        self.follower.refresh()

    @property
    def places(self) -> Collection[Place]:
        """All that were read; in a store that is not shared, also those that `at` was asked for."""
        return self._places.keys()

    def at(self, place: Place) -> PartitionLedger:
        """The ledger of a place, empty if nothing was ever mirrored there."""
        known = self._places.get(place)
        if known is None:
            known = PartitionLedger()
            if not self._shared:
                self._enter(place, known)
        return known

    @property
    def size(self) -> int:
        """How many runs are kept, of all places. Looks at every place."""
        return sum(len(ledger.runs) for ledger in list(self._places.values()))

    def begun(self) -> Iterator[Place]:
        """The places that were mirrored to: those with runs."""
        return (place for place, ledger in self._places.items() if ledger.runs)

    def generations_of(self, topic: str, partition: int) -> Iterator[Place]:
        """The places with runs of a source partition, of all topics that had its name."""
        places = self._of_partition.get((topic, partition), ())
        return (place for place in places if self.at(place).runs)

    def other_sources(self, place: Place) -> list[Place]:
        """Earlier generations of the source topic that were mirrored into this target topic."""
        return [
            p for p in self.generations_of(place.topic, place.partition)
            if p.target_id == place.target_id and p.source_id != place.source_id
        ]  # fmt: skip

    def other_targets(self, place: Place) -> list[Place]:
        """Other target topics, gone by now, that the same source topic was mirrored into."""
        return [
            p for p in self.generations_of(place.topic, place.partition)
            if p.source_id == place.source_id and p.target_id != place.target_id
        ]  # fmt: skip

    def generations(self, topic: str, partition: int, target_id: uuid.UUID) -> list[Place]:
        """All source topics of that name that were mirrored into a target topic, oldest first."""
        found = [p for p in self.generations_of(topic, partition) if p.target_id == target_id]
        return sorted(found, key=lambda p: self.at(p).runs[0].target)

    # -- as a view of the topic ---------------------------------------------------------------

    def forget(self) -> None:
        """Keep what was known for `restore`, and begin again."""
        self._lost, self._folded = self._folded, {}
        self._touched = {}
        self._first_signature = None
        if not self._shared:
            self._places, self.signature = self._folded, None

    def take(self, offset: int, key: bytes, value: bytes | None) -> None:
        """One record of the topic. A tombstone loses nothing: a packed record says the same."""
        fact = decode(key, value) if value is not None else None
        if isinstance(fact, Signature):
            self._first_signature = self._first_signature or fact
        elif isinstance(fact, Entry):
            self._touched[fact.place] = offset
            ledger = self._to_change(fact.place)
            for run in fact.runs:
                if fact.shift:
                    ledger.correct(run)
                else:
                    ledger.add(run)
        elif isinstance(fact, Cut):
            self._touched[fact.place] = offset
            if fact.move:
                self._to_change(fact.place).move(fact.run, fact.move)
            else:
                self._to_change(fact.place).cut(fact.run, fact.leader)
        elif isinstance(fact, Epoch):
            self._to_change(fact.place).epochs.enter(fact.mark)
        elif isinstance(fact, Packed):
            if self._touched.get(fact.place, -1) < fact.as_of:
                self._to_change(fact.place).replace(fact.start, fact.until, fact.runs)
                self.unconfirmed.discard(key)
            # Otherwise its writer did not know of an entry, will notice, and has removed nothing.
        elif isinstance(fact, Inherited):
            self._to_change(fact.place).inherited = fact.inheritance
        elif isinstance(fact, Acknowledged):
            self._to_change(fact.place).known = fact.known
        elif isinstance(fact, NewEra):
            self._to_change(fact.place).eras.enter(fact.era)

    def publish(self) -> None:
        """Show other threads what was read."""
        self.signature = self._first_signature
        if self._shared and (self._private or len(self._places) != len(self._folded)):
            self._places = dict(self._folded)
            self._private.clear()

    def _to_change(self, place: Place) -> PartitionLedger:
        ledger = self._folded.get(place)
        if ledger is None:
            ledger = PartitionLedger()
        elif self._shared and place not in self._private:
            ledger = ledger.copy()
        else:
            return ledger
        self._enter(place, ledger)
        return ledger

    def _enter(self, place: Place, ledger: PartitionLedger) -> None:
        self._folded[place] = ledger
        if self._shared:
            self._private.add(place)
        key = place.topic, place.partition
        known = self._of_partition.get(key, ())
        if place not in known:
            self._of_partition[key] = (*known, place)

    # -- for `LedgerKeeper`, which holds `follower.folding` -----------------------------------

    def touched(self, place: Place) -> int:
        """Offset of the last entry of a place, -1 if there is none."""
        return self._touched.get(place, -1)

    def drop(self, places: Iterable[Place]) -> None:
        """Forget places of which nothing is left in the topic."""
        gone = set(places)
        for place in gone:
            self._folded.pop(place, None)
        if self._shared:
            # Not `publish`: another thread may be in the middle of a reading.
            self._places = {p: known for p, known in self._places.items() if p not in gone}

    # -- writing ------------------------------------------------------------------------------

    def restore(self, places: Collection[Place]) -> None:
        """Write what the topic has lost of some places, by all that was read before it lost it."""
        entries, epochs, eras, known = [], [], [], []
        for place in places:
            old, new = self._lost.get(place), self.at(place)
            if old is None or not old.runs:
                continue
            # What was written of a sequence since is newer.
            there = {run.sequence for run in new.runs}
            runs = [run for run in old.runs if run.sequence not in there]
            if runs:
                entries.append(Entry(place, runs))
            epochs += [Epoch(place, mark) for mark in old.epochs.marks
                       if mark not in new.epochs.marks]  # fmt: skip
            eras += [NewEra(place, era) for era in old.eras if era not in list(new.eras)]
            if old.known is not None and new.known is None:
                known.append(Acknowledged(place, old.known))
        if entries or epochs or eras or known:
            self.write(entries, epochs, eras, known)

    def write(
        self,
        entries: Iterable[Entry],
        epochs: Iterable[Epoch] = (),
        eras: Iterable[NewEra] = (),
        known: Iterable[Acknowledged] = (),
    ) -> None:
        """Append runs durably, then read back what counts (another writer may have been first).

        All the rest goes with them, into the same request.
        """
        nonce = secrets.token_hex
        pairs: list[Pair] = [encode_entry(e, nonce(4)) for e in _merged(entries)]
        pairs += [encode_epoch(e, nonce(4)) for e in epochs]
        pairs += [encode_era(e, nonce(4)) for e in eras]
        self.follower.append(pairs + [encode_known(k) for k in known])
        self.refresh()

    def note(self, known: Iterable[Acknowledged]) -> None:
        """Append durably what was acknowledged, without reading it back."""
        self.follower.append(encode_known(k) for k in known)

    def cut(self, cut: Cut, epoch: Epoch | None) -> None:
        """Append durably that the source goes on anew somewhere, and of which epoch that is."""
        pairs: list[Pair] = [encode_cut(cut, secrets.token_hex(4))]
        if epoch is not None:
            pairs.append(encode_epoch(epoch, secrets.token_hex(4)))
        self.follower.append(pairs)
        self.refresh()

    def inherit(self, estates: Iterable[tuple[Inherited, Entry]]) -> None:
        """Append what others had mirrored before, of places that have no runs yet."""
        # The runs last, in one record: without them a place is not begun, and is looked at again.
        self.follower.append(
            pair
            for inherited, entry in estates
            for pair in (encode_inherited(inherited), encode_entry(entry, secrets.token_hex(4)))
        )
        self.refresh()

    def inherit_behind(self, estates: Iterable[tuple[Inherited, Cut, Epoch, Entry]]) -> None:
        """Append what others have mirrored behind our own records, of places that have runs.

        Whoever does this notes what is known after it. Without that note it is done again.
        """
        nonce = secrets.token_hex
        self.follower.append(
            pair
            for inherited, cut, epoch, entry in estates
            for pair in (
                encode_inherited(inherited),
                encode_cut(cut, nonce(4)),
                encode_epoch(epoch, nonce(4)),
                encode_entry(entry, nonce(4)),
            )
        )
        self.refresh()

    def sign(self, candidate: Signature) -> Signature:
        """Propose a signature; returns the one that counts."""
        self.follower.append([encode_signature(candidate)])
        self.refresh()
        if self.signature is None:
            raise RuntimeError(f"{self.follower.log} does not return what was written to it")
        return self.signature


def _merged(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The same facts in as few entries as possible, in the same order for each place.

    A correction is never split: who reads its first half must not miss the runs of the second.
    """
    waiting: dict[Place, tuple[list[Run], bool]] = {}
    for place, runs, shift in entries:
        collected, kind = waiting.get(place, ([], shift))
        if collected and (kind != shift or collected[-1].sequence >= runs[0].sequence):
            yield from _pieces(place, collected, kind)
            collected = []
        collected.extend(runs)
        waiting[place] = (collected, shift)
    for place, (collected, kind) in waiting.items():
        yield from _pieces(place, collected, kind)


def _pieces(place: Place, runs: list[Run], shift: bool) -> Iterator[Entry]:
    step = len(runs) if shift else _RUNS_PER_ENTRY
    for i in range(0, len(runs), step):
        yield Entry(place, runs[i : i + step], shift)
