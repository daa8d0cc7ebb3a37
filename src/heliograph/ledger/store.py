"""The ledger's home: a compacted topic of one partition on the target cluster.

Read whole once per process, then followed from where reading stopped. Used by the driver (lag,
translation) and by executors (resume, new runs); each has its own store. That of the driver's
`LedgerKeeper` also keeps the topic small.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Collection, Iterable, Iterator

from heliograph.batch.records import Record, build
from heliograph.batch.records import decode as decode_records
from heliograph.ledger.codec import (
    Cut,
    Entry,
    Epoch,
    Inherited,
    Packed,
    Place,
    Signature,
    decode,
    encode_cut,
    encode_entry,
    encode_epoch,
    encode_inherited,
    encode_signature,
)
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.model import TopicPartition
from heliograph.wire import log
from heliograph.wire.cluster import ClusterClient

#: A key and a value; None removes the key's record when the topic is compacted.
Pair = tuple[bytes, bytes | None]

#: One ledger batch stays well below the default max.message.bytes of 1 MiB, even uncompressed.
_BATCH_BYTES = 512 << 10
#: What a record has besides key and value, at most.
_RECORD_OVERHEAD_BYTES = 24
#: A larger announcement becomes several records.
_RUNS_PER_ENTRY = 16_384
#: Keys of one batch are much alike: zstd makes a sixth of them.
_ZSTD = 4
#: The broker's cleaner needs longer than this to remove what was there when reading began.
_QUICK_SECONDS = 1.0


class LedgerStore:
    """Follows the ledger topic and appends to it."""

    def __init__(self, client: ClusterClient, topic: str) -> None:
        self._client = client
        self._partition = TopicPartition(topic, 0)
        self._next_offset = 0
        self._places: dict[Place, PartitionLedger] = {}
        #: Offset of the last entry of each place.
        self._touched: dict[Place, int] = {}
        self._signature: Signature | None = None

    @property
    def signature(self) -> Signature | None:
        """The flow's signature: the first one in the topic counts, for everybody."""
        return self._signature

    @property
    def places(self) -> Collection[Place]:
        """All that were read or asked about."""
        return self._places.keys()

    def at(self, place: Place) -> PartitionLedger:
        """The ledger of a place, empty if nothing was ever mirrored there."""
        return self._places.setdefault(place, PartitionLedger())

    def other_sources(self, place: Place) -> list[Place]:
        """Earlier generations of the source topic that were mirrored into this target topic."""
        return [
            p for p, ledger in self._places.items()
            if ledger.runs and p.source_id != place.source_id
            and p._replace(source_id=place.source_id) == place
        ]  # fmt: skip

    def other_targets(self, place: Place) -> list[Place]:
        """Other target topics, gone by now, that the same source topic was mirrored into."""
        return [
            p for p, ledger in self._places.items()
            if ledger.runs and p.target_id != place.target_id
            and p._replace(target_id=place.target_id) == place
        ]  # fmt: skip

    def generations(self, topic: str, partition: int, target_id: uuid.UUID) -> list[Place]:
        """All source topics of that name that were mirrored into a target topic, oldest first."""
        found = [
            p for p, ledger in self._places.items()
            if ledger.runs and (p.topic, p.partition, p.target_id) == (topic, partition, target_id)
        ]  # fmt: skip
        return sorted(found, key=lambda p: self._places[p].runs[0].target)

    # -- reading ------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read on to the topic's end as it is now.

        If that took long, to the end as it is then: the broker's cleaner may have removed records
        that we had not come to, in favour of packed ones behind the end that we knew.
        """
        while True:
            began, start = time.monotonic(), self._next_offset
            for chunk in self._read():
                for record in decode_records(chunk):
                    if record.offset >= self._next_offset:
                        self._next_offset = record.offset + 1
                        if record.key is not None:
                            self._take(record.offset, record.key, record.value)
            if self._next_offset == start or time.monotonic() - began < _QUICK_SECONDS:
                return

    def _read(self) -> Iterator[memoryview]:
        return log.read_to_end(self._client, self._partition, self._next_offset)

    def _take(self, offset: int, key: bytes, value: bytes | None) -> bool:
        """One record of the topic; returns whether it counts."""
        if value is None:
            # Nothing is lost with the record: a packed one says the same.
            return False
        fact = decode(key, value)
        if isinstance(fact, Signature):
            self._signature = self._signature or fact
        elif isinstance(fact, Entry):
            self._touched[fact.place] = offset
            ledger = self.at(fact.place)
            for run in fact.runs:
                if fact.shift:
                    ledger.correct(run)
                else:
                    ledger.add(run)
        elif isinstance(fact, Cut):
            self._touched[fact.place] = offset
            self.at(fact.place).cut(fact.run)
        elif isinstance(fact, Epoch):
            self.at(fact.place).epochs.enter(fact.mark)
        elif isinstance(fact, Packed):
            if self._touched.get(fact.place, -1) >= fact.as_of:
                # Its writer did not know of that entry, will notice, and has removed nothing.
                return False
            self.at(fact.place).replace(fact.start, fact.until, fact.runs)
        elif isinstance(fact, Inherited):
            self.at(fact.place).inherited = fact.inheritance
        return True

    # -- writing ------------------------------------------------------------------------------

    def write(self, entries: Iterable[Entry], epochs: Iterable[Epoch] = ()) -> None:
        """Append runs durably, then read back what counts (another writer may have been first).

        Epochs go with them, into the same request.
        """
        nonce = secrets.token_hex
        pairs: list[Pair] = [encode_entry(e, nonce(4)) for e in _merged(entries)]
        self._append_all(pairs + [encode_epoch(e, nonce(4)) for e in epochs])
        self.refresh()

    def cut(self, cut: Cut, epoch: Epoch | None) -> None:
        """Append durably that the source goes on anew somewhere, and of which epoch that is."""
        pairs: list[Pair] = [encode_cut(cut, secrets.token_hex(4))]
        if epoch is not None:
            pairs.append(encode_epoch(epoch, secrets.token_hex(4)))
        self._append_all(pairs)
        self.refresh()

    def inherit(self, estates: Iterable[tuple[Inherited, Entry]]) -> None:
        """Append what others had mirrored before, of places that have no runs yet."""
        # The runs last, in one record: without them a place is not begun, and is looked at again.
        self._append_all(
            pair
            for inherited, entry in estates
            for pair in (encode_inherited(inherited), encode_entry(entry, secrets.token_hex(4)))
        )
        self.refresh()

    def sign(self, candidate: Signature) -> Signature:
        """Propose a signature; returns the one that counts."""
        self._append_all([encode_signature(candidate)])
        self.refresh()
        if self._signature is None:
            raise RuntimeError(f"{self._partition} does not return what was written to it")
        return self._signature

    def _append_all(self, pairs: Iterable[Pair]) -> None:
        for batch in batches_of(pairs):
            self._append(batch)

    def _append(self, pairs: list[Pair], producer_id: int = -1, sequence: int = -1) -> None:
        """Append one batch; without a producer id perhaps more than once."""
        now = int(time.time() * 1000)
        records = (Record(0, now, key, value) for key, value in pairs)
        self._send(build(records, codec=_ZSTD, producer_id=producer_id, sequence=sequence))

    def _send(self, batch: memoryview) -> None:
        log.append(self._client, self._partition, batch)


def batches_of(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """As many records to a batch as fit."""
    batch: list[Pair] = []
    size = 0
    for key, value in pairs:
        weight = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
        if batch and size + weight > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((key, value))
        size += weight
    if batch:
        yield batch


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
