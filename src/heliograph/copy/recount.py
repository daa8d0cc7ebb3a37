"""Whether the ledger still leads to the right source offset, and what if not. In executors.

A ledger can lose its newest entries: an unclean election of its one partition, a disk restored from
a backup. The data partitions keep theirs. Nothing in them tells that a gap of the source was
passed, so the ledger would lead to a record that is mirrored already. Whoever finds more on the
target than the ledger knows to be acknowledged therefore compares the last records of both sides.
If they differ, it counts the source's records from the last known position on: the target holds
them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heliograph.batch.log_slice import LogSlice
from heliograph.copy.knowledge import Batch
from heliograph.copy.partition import PartitionCopy
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Entry
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.ledger.store import LedgerStore
from heliograph.model import FlowContext, Guard, TopicPartition
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.fetch import Fetched
from heliograph.wire.ranges import read_ranges

__all__ = ["Recount"]

#: More records than this are not counted while other partitions of the lease wait.
_MOST_RECORDS = 5_000_000
_PATIENCE_SECONDS = 5.0

AddEvent = Callable[[PartitionCopy, str, str, int, int], None]


class Recount:
    """Compares and counts for the partitions of one lease."""

    def __init__(
        self,
        context: FlowContext,
        source: ClusterClient,
        target: ClusterClient,
        ledger: LedgerStore,
        add_event: AddEvent,
    ) -> None:
        self._context = context
        self._source = source
        self._target = target
        self._ledger = ledger
        self._add_event = add_event

    def prove(
        self,
        p: PartitionCopy,
        ledger: PartitionLedger,
        anchor: int,
        sequence: int,
        found: Sequence[Batch],
    ) -> bool:
        """Make sure that the ledger knows where the records before ``sequence`` came from.

        Up to ``anchor`` it does. ``found`` are the batches behind that, oldest first; none if
        nobody has looked at them. Corrects the ledger if need be. Returns False if nothing can be
        compared, because the target has deleted the records.

        Raises:
            PartitionError: it cannot be found out.
            WireError: a cluster does not answer.
        """
        last = found[-1] if found else Batch(ledger.target_of(sequence - 1), sequence - 1, 1)
        copy = self._read(self._target, p.target, last.offset + last.length - 1, 1, committed=False)
        original = self._read(self._source, p.source, ledger.source_of(sequence - 1), 1)
        same = _same(copy, original, ledger.source_of(sequence - 1))
        if same or not copy.offsets:
            return bool(same)
        start, wanted = ledger.source_of(anchor), sequence - anchor
        counted = LogSlice(start)
        if found and wanted <= _MOST_RECORDS:
            guard = p.lease.guard
            counted = self._read(self._source, p.source, start, wanted, guard=guard)
        text = (
            f"the ledger {self._context.ledger_topic} on {self._context.flow.target} has lost its"
            f" newest entries (an unclean leader election, or a disk that was restored?): it does"
            f" not say where the last {wanted:,} record(s) of {p.target} came from"
        )
        offsets = counted.offsets
        if len(offsets) < wanted or not _same(copy, counted, offsets[-1]):
            if same is None:
                # Retention or compaction took the original, and the ledger is as good as anything.
                return True
            raise PartitionError(
                "ledger.cut",
                f"{text}, and counting the records of {p.source} from offset {start} on does not"
                " lead to the last one",
                f"delete {p.target.topic} to mirror {p.source.topic} again from its start",
            )
        assert p.place is not None  # noqa: S101 - set by locate
        runs = _runs(anchor, offsets, found)
        self._ledger.write([Entry(p.place, runs, shift=True)])
        self._add_event(
            p,
            "ledger.cut",
            f"{text}. They were counted anew on the source, from offset {start} on: copying goes on"
            f" at {offsets[-1] + 1}, nothing is lost and nothing repeated",
            start,
            offsets[-1] + 1,
        )
        return True

    def _read(
        self,
        client: ClusterClient,
        partition: TopicPartition,
        start: int,
        most: int,
        *,
        committed: bool | None = None,
        guard: Guard | None = None,
    ) -> LogSlice:
        """Up to ``most`` records from ``start`` on; by default as the flow reads its source.

        Without what ``guard`` says.
        """
        found = LogSlice(start)
        if committed is None:
            committed = self._context.read_committed

        def take(fetched: Fetched) -> int | None:
            following = found.take(
                fetched.records, fetched.aborted if committed else [], None, most, guard
            )
            return None if len(found) >= most else following

        refused = read_ranges(
            client, {partition: start}, take, read_committed=committed, patience=_PATIENCE_SECONDS
        )
        for error in refused.values():
            raise error
        return found


def _same(copy: LogSlice, originals: LogSlice, source: int) -> bool | None:
    """Whether a record is the copy of the one at a source offset; None if that is not there."""
    if not copy.offsets or source not in originals.offsets:
        return None
    timed = not (copy.untimed or originals.untimed)
    index = originals.offsets.index(source)
    return copy.contents(timed=timed)[0] == originals.contents(timed=timed)[index]


def _runs(anchor: int, offsets: Sequence[int], found: Sequence[Batch]) -> list[Run]:
    """The runs of counted records: where each came from, and where it is."""
    runs: list[Run] = []
    after: tuple[int, int] | None = None
    for batch in found:
        for i in range(batch.length):
            sequence, target = batch.sequence + i, batch.offset + i
            source = offsets[sequence - anchor]
            if (source, target) != after:
                runs.append(Run(sequence, source, target))
            after = (source + 1, target + 1)
    return runs
