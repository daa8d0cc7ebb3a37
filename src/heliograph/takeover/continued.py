"""Partitions in which MM2 has mirrored on behind Heliograph's own records. Runs in the driver.

The ledger knows where Heliograph stopped. Behind that, batch headers separate its last records,
which may not be noted yet, from those of others. What others wrote is `inquiry`'s matter. This
module finds where it begins, and says what the ledger gets when it is known how far MM2 came.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import NamedTuple

from heliograph.batch.header import batches
from heliograph.copy.knowledge import LeaderSays, Standing, Tail, credible, first_of_ours, known_at
from heliograph.copy.target_log import corrections, misplaced
from heliograph.ledger.codec import Acknowledged, Cut, Entry, Epoch, Inherited, Place
from heliograph.ledger.epochs import UNKNOWN_EPOCH, EpochMark
from heliograph.ledger.inheritance import Inheritance
from heliograph.ledger.runs import PartitionLedger
from heliograph.ledger.store import LedgerStore
from heliograph.model import TopicPartition
from heliograph.takeover.alignment import Pair
from heliograph.takeover.history import History
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.fetch import Fetched
from heliograph.wire.ranges import read_ranges

__all__ = ["Ours", "behind", "ends_of_ours", "write_behind"]

_TAIL_BYTES = 1 << 20


class Ours(NamedTuple):
    """Where Heliograph's records end: the last one, and the sequence of the next."""

    last: Pair
    sequence: int


def ends_of_ours(
    client: ClusterClient,
    producer_id: int,
    ledgers: Mapping[TopicPartition, PartitionLedger],
    bounds: Mapping[TopicPartition, tuple[int, int]],
) -> dict[TopicPartition, tuple[Ours, Tail]]:
    """The targets that have something of others behind our last record, with what was read there.

    ``bounds`` is where the targets' logs start and end. Only logs that are longer than what is
    known of them are read. Absent are also logs that only `Resumer` can judge: truncated, with a
    hole in our records, of a ledger that was cut, or not readable for us. Raises WireError.
    """
    tails: dict[TopicPartition, Tail] = {}
    for target, ledger in ledgers.items():
        start, end = bounds[target]
        says, known = LeaderSays(-1, None, end, end), credible(ledger)
        tail = Standing(ledger, says, known, end, continuous=False).tail(producer_id, -1)
        if end > tail.position and (known is None or end >= known.target):
            tail.begins_at(start)
            tails[target] = tail

    def take(fetched: Fetched) -> int | None:
        tail = tails[fetched.partition]
        for header, _ in batches(fetched.records):
            tail.take(header)
        return None if tail.whole else max(tail.position, fetched.offset)

    starts = {target: tail.position for target, tail in tails.items() if not tail.whole}
    refused = read_ranges(client, starts, take, partition_bytes=_TAIL_BYTES)
    found = {}
    for target in tails.keys() - refused.keys():
        tail = tails[target]
        # Compaction took what was at the end.
        tail.begins_at(tail.end)
        ours_only = not tail.records and not tail.unseen
        if not (ours_only or tail.hole or tail.alien):
            found[target] = (_end_of(ledgers[target], tail), tail)
    return found


def _end_of(ledger: PartitionLedger, tail: Tail) -> Ours:
    sequence = tail.sequence
    if sequence <= first_of_ours(ledger):
        # Nothing of ours is there yet; the record before it is MM2's, or none.
        return Ours(Pair(ledger.source_of(sequence) - 1, ledger.target_of(sequence) - 1), sequence)
    target = ledger.target_of(sequence - 1)
    if tail.found:
        last = tail.found[-1]
        target = last.offset + last.length - 1
    return Ours(Pair(ledger.source_of(sequence - 1), target), sequence)


_Behind = tuple[list[Entry], tuple[Inherited, Cut, Epoch, Entry]]


def behind(
    place: Place, ledger: PartitionLedger, ours: Ours, tail: Tail, history: History
) -> _Behind:
    """What the ledger gets: corrections about our own last records, and what MM2 has mirrored.

    As after an operator's decision, what was announced for our next record is void. MM2's records
    count as if they were ours, one sequence for each target offset.
    """
    moved = corrections(ledger, misplaced(tail.found, ledger))
    corrected = [Entry(place, moved, shift=True)] if moved else []
    runs = history.runs_behind(ours.sequence)
    known = ledger.inherited
    # Others are left of a process that was killed before it had noted what is known.
    kept = [blur for blur in known.blurs if blur.first_target < ours.last.target]
    blurs = (*kept, *history.inheritance().blurs)
    mark = EpochMark(ours.sequence, UNKNOWN_EPOCH, anew=True)
    return corrected, (
        Inherited(place, Inheritance(known.end, blurs)),
        Cut(place, runs[0], f"mm2-{secrets.token_hex(4)}"),
        Epoch(place, mark),
        Entry(place, runs),
    )


def write_behind(store: LedgerStore, found: Mapping[Place, tuple[_Behind, int]]) -> None:
    """Write what `behind` made, and then what is known; with where each target ends."""
    if not found:
        return
    corrected = [entry for (entries, _), _ in found.values() for entry in entries]
    if corrected:
        store.write(corrected)
    store.inherit_behind(estate for (_, estate), _ in found.values())
    known = []
    for place, ((_, (*_, entry)), end) in found.items():
        # Of which epoch of its leader the end is, nobody has said.
        sequence = entry.runs[-1].sequence
        known.append(Acknowledged(place, known_at(store.at(place), sequence, end, -1)))
    store.note(known)
    store.refresh()
