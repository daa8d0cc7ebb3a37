"""What must be written before batches are: runs and epochs, and refused records.

Runs in executors, in the thread of the copy loop. A record's run is in the ledger before the record
is on the target (I3). So batches that begin a run or a leader epoch wait until the ledger has it,
and those behind refused records until the quarantine has them. Both are written in the background,
for all partitions that wait together; no other partition waits meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from heliograph.batch.pieces import Refused
from heliograph.copy.background import Background
from heliograph.copy.lease_state import LeaseState
from heliograph.copy.links import Cluster
from heliograph.copy.partition import Gap, Outgoing, PartitionCopy, unpin
from heliograph.copy.quarantine import set_aside
from heliograph.ledger.codec import Entry, Epoch
from heliograph.ledger.epochs import EpochMark
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.model import TopicPartition
from heliograph.wire.errors import WireError
from heliograph.wire.fetch import Fetched

#: A write to the ledger that takes this long may take much longer.
_SLOW_LEDGER_SECONDS, _LEDGER_PAUSE_SECONDS = 0.25, 1.0


@dataclass(slots=True)
class Work:
    """An answer that is being taken in.

    ``staged`` are the batches and gaps of it that are enqueued next, when ``refused`` are in the
    quarantine and ``runs`` and ``marks`` in the ledger. ``size`` is how many bytes they hold.
    """

    p: PartitionCopy
    fetched: Fetched | None = None
    items: Iterator[Outgoing | Gap] | None = None
    staged: list[Outgoing | Gap] = field(default_factory=list)
    size: int = 0
    refused: list[Refused] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    marks: list[EpochMark] = field(default_factory=list)

    @property
    def must_be_noted(self) -> bool:
        """Whether something has to be written before ``staged`` may be enqueued."""
        return bool(self.refused or self.runs or self.marks)


class Announcer:
    """Writes what works wait for; hands each to ``enqueue`` when its batches may be written.

    ``cluster`` is the target.
    """

    def __init__(
        self,
        lease_state: LeaseState,
        cluster: Cluster,
        background: Background,
        enqueue: Callable[[Work], None],
    ) -> None:
        self._state = lease_state
        self._cluster = cluster
        self._background = background
        self._enqueue = enqueue
        #: Works that are being written to the ledger or the quarantine, or wait for that.
        self._waiting: dict[TopicPartition, Work] = {}
        #: Those of them that the next write to the ledger takes along.
        self._next: list[Work] = []
        self._announced_at: float | None = None
        self._unpinned = False
        lease_state.detach.append(self._detach)
        lease_state.moved.append(self._moved)

    def _detach(self, p: PartitionCopy) -> None:
        work = self._leave(p)
        if work is not None:
            self._state.free(p, work.size)

    def _leave(self, p: PartitionCopy) -> Work | None:
        """The work of a partition waits for the ledger or the quarantine no more."""
        work = self._waiting.pop(p.source, None)
        if work is not None:
            self._state.unannounced -= work.size
            p.announcing = False
        return work

    def tick(self) -> None:
        """If the ledger is slow, copy what waits for it: it must not keep whole answers."""
        since = self._announced_at
        if since is not None and not self._unpinned:
            self._unpinned = time.monotonic() - since > _SLOW_LEDGER_SECONDS
            if self._unpinned:
                unpin(item for work in self._waiting.values() for item in work.staged)

    def add(self, work: Work) -> None:
        """Write what has to be written before the staged batches; the partition waits for it.

        Runs and epochs are written by the next `announce`.
        """
        p = work.p
        if self._state.unannounced + work.size > self._state.budget // 2 and self._waiting:
            # It is read again later: what waits must not take all the room.
            self._state.free(p, work.size)
            self._state.postpone(p, time.time() + _LEDGER_PAUSE_SECONDS, "waiting for the ledger")
            return
        p.announcing = True
        self._waiting[p.source] = work
        self._state.unannounced += work.size
        if not work.refused:
            self._next.append(work)
            return
        refused, work.refused = work.refused, []
        context, client = self._state.context, self._cluster.spare

        def written(_: None) -> None:
            if self._waiting.get(p.source) is work:
                p.quarantined += len(refused)
                self._next.append(work)
                self.announce()

        def failed(error: WireError) -> None:
            if self._waiting.get(p.source) is work:
                self._state.disturb(p, f"setting refused records aside: {error}")

        self._background.run(
            self._cluster.spare_lane,
            lambda: set_aside(context, client, p, refused),
            written,
            failed,
        )

    def announce(self) -> None:
        """Write new runs and epochs to the ledger, of all partitions that wait for that.

        One write at a time: what is staged meanwhile goes together into the next one.
        """
        works = [w for w in self._next if self._waiting.get(w.p.source) is w]
        if not works or self._announced_at is not None:
            return
        self._next = []
        self._announced_at, self._unpinned = time.monotonic(), False
        entries = {
            w.p.source: Entry(w.p.place, w.runs) for w in works if w.runs and w.p.place is not None
        }
        epochs = [
            Epoch(w.p.place, mark) for w in works for mark in w.marks if w.p.place is not None
        ]
        for work in works:
            work.runs, work.marks = [], []
        ledger = self._state.ledger

        def write() -> set[TopicPartition]:
            ledger.write(entries.values(), epochs)
            late = [
                correction
                for entry in entries.values()
                for correction in _further_on(ledger.at(entry.place), entry)
            ]
            if late:
                ledger.write(late)
            return {
                source for source, entry in entries.items()
                if any(
                    ledger.at(entry.place).source_of(run.sequence) != run.source
                    for run in entry.runs
                )
            }  # fmt: skip

        def written(contested: set[TopicPartition]) -> None:
            self._announced_at = None
            for work in works:
                p = work.p
                if self._waiting.get(p.source) is not work:
                    continue
                if p.source in contested:
                    self._state.disturb(p, "another writer announced these records differently")
                else:
                    self._leave(p)
                    self._enqueue(work)
            self.announce()

        def failed(error: WireError) -> None:
            self._announced_at = None
            for work in works:
                if self._waiting.get(work.p.source) is work:
                    self._state.disturb(work.p, f"the ledger cannot be written: {error}")
            self.announce()

        self._background.run(self._cluster.lane, write, written, failed)

    def _moved(self, p: PartitionCopy, offsets: int) -> None:
        """What is not announced yet moves along; what is, `Acknowledgements` corrects."""
        for work in self._next:
            if work.p is p:
                work.runs = [run._replace(target=run.target + offsets) for run in work.runs]


def _further_on(known: PartitionLedger, entry: Entry) -> list[Entry]:
    """Corrections for runs that were announced where we have just looked and found nothing."""
    for index, run in enumerate(entry.runs):
        if known.source_of(run.sequence) < run.source:
            # Everything behind it was counted differently, if at all.
            rest = [Entry(entry.place, [later]) for later in entry.runs[index + 1 :]]
            return [Entry(entry.place, [run], shift=True), *rest]
    return []
