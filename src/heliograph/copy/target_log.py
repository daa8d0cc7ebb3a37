"""Whether the target's log holds what the ledger says, and what to correct where it does not.

Runs in executors, at resume. A target log can lose its tail (unclean election, older disk), others
can write to it, and a gap may not have been filled as was announced. The log is right then: what it
holds of ours is told by its batch headers, and the ledger is corrected before anything is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from heliograph.batch.header import PRODUCER_EPOCH, SEQUENCE_MODULUS, BatchHeader, batches
from heliograph.copy.partition import MOST_MARKERS, Position
from heliograph.ledger.runs import PartitionLedger, Run, unwrap
from heliograph.model import FlowContext, TopicPartition
from heliograph.wire import log
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import OFFSET_OUT_OF_RANGE, BrokerError

#: Walking back, one batch is asked for at a time; a broker sends at least one, whatever its size.
_STEP_BYTES = 4096
#: Headers of what others wrote are looked at in a piece of this size, which names them well enough.
_LOOK_BYTES = 1 << 20
#: So many batches may be out of place: the ledger is corrected before more can be written.
_MOST_BATCHES = 10_000


class Batch(NamedTuple):
    """A batch of ours in the target's log; ``sequence`` is not wrapped."""

    offset: int
    sequence: int
    length: int


class Foreign(NamedTuple):
    """What others wrote to [first, until) of a log, as far as its headers were read.

    ``records`` by producer id; -1 is whoever writes without one. ``markers`` are nobody's records,
    ``doubled`` those of this flow, for a gap that was filled already.
    """

    first: int
    until: int
    records: Counter[int]
    markers: int
    doubled: int

    @property
    def harmless(self) -> bool:
        """Whether all of it is this flow's own doing, and no consumer sees it."""
        return self.doubled > 0 and not self.records and not self.markers

    def __str__(self) -> str:
        named = [
            f"{count:,} of producer id {producer}" if producer >= 0
            else f"{count:,} of a producer without an id"
            for producer, count in self.records.most_common(3)
        ]  # fmt: skip
        if len(self.records) > len(named):
            named.append(f"those of {len(self.records) - len(named)} more producers")
        if self.markers:
            named.append(f"{self.markers:,} transaction marker(s)")
        if self.doubled:
            named.append(f"{self.doubled:,} marker(s) of this mirror, written twice")
        return ", ".join(named) or "nothing that can still be read"


# -- pure -----------------------------------------------------------------------------------------


def _first_of_ours(ledger: PartitionLedger) -> int:
    """The first sequence that this flow wrote; what MM2 wrote before counts by target offset."""
    return max(ledger.runs[0].sequence, ledger.inherited.end)


def end_before(ledger: PartitionLedger, sequence: int) -> int:
    """Where the log ends by the ledger when the record before ``sequence`` is the last one."""
    first = _first_of_ours(ledger)
    if sequence <= first:
        return ledger.target_of(first)
    return ledger.target_of(sequence - 1) + 1


def agrees(ledger: PartitionLedger, sequence: int, target_end: int) -> bool:
    """Whether a log that ends at ``target_end`` is what the ledger says, as far as that tells.

    ``sequence`` is that of the next record. A gap announced before it may be filled or not.
    """
    if sequence <= _first_of_ours(ledger):
        return True
    return target_end in {end_before(ledger, sequence), ledger.target_of(sequence)}


def corrections(ledger: PartitionLedger, found: Sequence[Batch]) -> list[Run]:
    """The runs of batches which are not where the ledger says, oldest first."""
    runs: list[Run] = []
    after = Run(-1, -1, -1)
    for batch in found:
        until = batch.sequence + batch.length
        first = Run(batch.sequence, ledger.source_of(batch.sequence), batch.offset)
        inside = [r for r in ledger.after(batch.sequence) if r.sequence < until]
        for run in [first, *inside]:
            moved = run._replace(target=batch.offset + run.sequence - batch.sequence)
            begins = (known := ledger.at_sequence(run.sequence)) and known.sequence == run.sequence
            if begins or moved != after:
                runs.append(moved)
            length = next((r.sequence for r in inside if r.sequence > run.sequence), until)
            length -= run.sequence
            after = Run(*(part + length for part in moved))
    return runs


def rebased(ledger: PartitionLedger, position: Position, *, identical: bool) -> list[Run]:
    """Runs from ``position`` on that will not be where they were announced: where they will be.

    As `PartitionCopy.stage` will write them. All of them, if there is one.
    """
    ahead = ledger.after(position.sequence - 1)
    sequence, source, target = position.sequence, position.source, position.target
    told: list[Run] = []
    for run in ahead:
        length = run.sequence - sequence
        source, target = source + length, target + length
        fills = identical and target >= source and run.source - target <= MOST_MARKERS
        if run.source != source and fills:
            target = max(target, run.source)
        sequence, source = run.sequence, run.source
        told.append(run._replace(target=target))
    return told if told != ahead else []


# -- the log itself -------------------------------------------------------------------------------


class TargetLog:
    """Reads batch headers of target partitions."""

    def __init__(self, context: FlowContext, client: ClusterClient) -> None:
        self._context = context
        self._client = client

    def misplaced(
        self, partition: TopicPartition, ledger: PartitionLedger, sequence: int, end: int
    ) -> list[Batch] | None:
        """Batches of ours at the log's end that are not where the ledger says, oldest first.

        None if the record before ``sequence`` cannot be seen yet: replicas do not have it.
        """
        expected = end_before(ledger, sequence)
        if expected <= end and self._holds(partition, ledger, sequence - 1, expected - 1):
            return []
        found: list[Batch] = []
        position, begun = end, ledger.target_of(_first_of_ours(ledger))
        for asked, header in self._back(partition, end, begun):
            if header is None or header.base_offset > asked:
                # Retention or compaction took what is here: the ledger is as good as anything.
                break
            position = header.base_offset
            if not self.is_ours(header):
                continue
            batch = _batch(header, ledger)
            if not found and batch.sequence + batch.length != sequence:
                return None
            if _in_place(batch, ledger) or len(found) >= _MOST_BATCHES:
                break
            found.insert(0, batch)
        else:
            if not found and position <= begun:
                return None
        return found

    def foreign(self, partition: TopicPartition, first: int, until: int) -> Foreign | None:
        """What others wrote to [first, until); None if ours is there."""
        records: Counter[int] = Counter()
        markers = doubled = 0
        try:
            fetched = log.read_once(self._client, partition, first, max_bytes=_LOOK_BYTES)
        except BrokerError as error:
            if error.code != OFFSET_OUT_OF_RANGE:
                raise
            return Foreign(first, until, records, markers, doubled)
        for header, _ in batches(fetched.records):
            if header.base_offset >= until:
                break
            if header.last_offset < first:
                continue
            if self.is_ours(header):
                return None
            if header.control and header.producer_id == self._context.marker_id:
                doubled += 1
            elif header.control:
                markers += 1
            elif header.magic < 2:
                records[-1] += 1
            else:
                records[header.producer_id] += header.record_count
        return Foreign(first, until, records, markers, doubled)

    def is_ours(self, header: BatchHeader) -> bool:
        """Whether the batch carries the flow's signature."""
        mine = header.magic == 2 and header.producer_id == self._context.producer_id
        return mine and header.producer_epoch == PRODUCER_EPOCH and not header.control

    def _holds(
        self, partition: TopicPartition, ledger: PartitionLedger, sequence: int, offset: int
    ) -> bool:
        """Whether the record with ``sequence`` is at ``offset``."""
        header = self._header(partition, offset)
        if header is None or not self.is_ours(header):
            return False
        batch = _batch(header, ledger)
        return batch.sequence - batch.offset == sequence - offset and batch.offset <= offset

    def _back(
        self, partition: TopicPartition, end: int, begun: int
    ) -> Iterator[tuple[int, BatchHeader | None]]:
        """The offsets asked for and the headers there, from the log's end backwards."""
        position = end - 1
        while position >= begun:
            header = self._header(partition, position)
            yield position, header
            if header is None:
                return
            position = min(header.base_offset, position) - 1

    def _header(self, partition: TopicPartition, offset: int) -> BatchHeader | None:
        """Of the batch that holds ``offset``, or the next one; None if the log begins later."""
        try:
            fetched = log.read_once(self._client, partition, offset, max_bytes=_STEP_BYTES)
        except BrokerError as error:
            if error.code != OFFSET_OUT_OF_RANGE:
                raise
            return None
        return next((header for header, _ in batches(fetched.records)), None)


def _batch(header: BatchHeader, ledger: PartitionLedger) -> Batch:
    run = ledger.at_target(header.base_offset)
    estimate = run.sequence + max(header.base_offset - run.target, 0)
    first = unwrap(header.base_sequence, estimate, SEQUENCE_MODULUS)
    # Not the record count: compaction may have taken some.
    return Batch(header.base_offset, first, header.last_offset_delta + 1)


def _in_place(batch: Batch, ledger: PartitionLedger) -> bool:
    last = batch.length - 1
    return (
        ledger.target_of(batch.sequence) == batch.offset
        and ledger.target_of(batch.sequence + last) == batch.offset + last
    )
