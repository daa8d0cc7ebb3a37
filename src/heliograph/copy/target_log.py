"""What the leaders of target partitions say, and what stands in their logs. Runs in executors.

A target log can lose its tail (unclean election, older disk), others can write to it, and a gap may
not have been filled as was announced. The log is right then: what it holds of ours is told by its
batch headers, and the ledger is corrected before anything is written.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from heliograph.batch.header import BatchHeader, batches
from heliograph.copy.knowledge import Batch, LeaderSays, Tail
from heliograph.copy.partition import PartitionCopy, Position, placed
from heliograph.ledger.known import Known
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.model import FlowContext, TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.epochs import epoch_ends
from heliograph.wire.errors import NONE
from heliograph.wire.fetch import Fetched
from heliograph.wire.metadata import Metadata
from heliograph.wire.ranges import read_ranges

#: Headers of what others wrote are looked at in a piece of this size, which names them well enough.
_LOOK_BYTES = 256 << 10
#: A partition's share of one answer while tails are read.
_TAIL_BYTES = 1 << 20
#: Reading tails must not keep the other partitions of a lease waiting for longer than this.
_TAIL_SECONDS = 1.0


#: Of what was found and cannot be read any more.
DELETED = "deleted already, so nobody can tell whose they were"


class Foreign(NamedTuple):
    """What others wrote to [first, until) of a log, as far as its headers were read.

    ``records`` by producer id; -1 is whoever writes without one. ``markers`` are nobody's records,
    ``doubled`` those of this flow, for a gap that was filled already. ``ours`` are records of this
    flow.
    """

    first: int
    until: int
    records: Counter[int]
    markers: int
    doubled: int
    ours: int = 0

    @property
    def harmless(self) -> bool:
        """Whether all of it is this flow's own doing, and no consumer sees it."""
        return self.doubled > 0 and not self.records and not self.markers and not self.ours

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
        if self.ours:
            named.append(f"{self.ours:,} of this mirror, written twice by a request that came late")
        return ", ".join(named) or DELETED


# -- pure -----------------------------------------------------------------------------------------


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
        if run.source != source:
            target = placed(run.source, source, target, identical=identical)
        sequence, source = run.sequence, run.source
        told.append(run._replace(target=target))
    return told if told != ahead else []


# -- the log itself -------------------------------------------------------------------------------


class TargetLog:
    """Reads batch headers of target partitions."""

    def __init__(self, context: FlowContext, client: ClusterClient) -> None:
        self._context = context
        self._client = client

    def look(
        self, partitions: Sequence[PartitionCopy], metadata: Metadata
    ) -> dict[TopicPartition, LeaderSays]:
        """What the leaders say of partitions of theirs, the signature's sequences first.

        Those that did not answer are absent. Raises WireError if a broker fails.
        """
        wanted = [p.target for p in partitions]
        states = admin.describe_producers(self._client, metadata, wanted)
        visible = admin.list_offsets(self._client, metadata, wanted, admin.LATEST, fenced=True)
        epochs = {t: metadata.leader_epoch(*t) for t in wanted}
        ends = epoch_ends(self._client, metadata, epochs)
        found: dict[TopicPartition, LeaderSays] = {}
        for target in states.keys() & visible.keys():
            signature = self._context.producer_id
            mine = [
                (s.epoch, s.last_sequence) for s in states[target] if s.producer_id == signature
            ]
            # Before Kafka 2.3 leaders do not tell where their logs end.
            answer = ends.get(target)
            if answer is not None and answer.error != NONE:
                continue
            end = max(answer.offset if answer is not None else -1, visible[target])
            producer = mine[0] if mine and mine[0][1] >= 0 else None
            found[target] = LeaderSays(epochs[target], producer, visible[target], end)
        return found

    def starts(
        self, partitions: Iterable[TopicPartition], metadata: Metadata
    ) -> dict[TopicPartition, int]:
        """Where logs begin; those whose leader did not answer are absent."""
        return admin.list_offsets(self._client, metadata, partitions, admin.EARLIEST, fenced=True)

    def kept(
        self,
        known: Mapping[TopicPartition, Known],
        says: Mapping[TopicPartition, LeaderSays],
        metadata: Metadata,
    ) -> dict[TopicPartition, int]:
        """Up to where logs are those that something was known of; absent: all of it.

        As a follower asks where to truncate. A log that does not know the epoch at all says
        nothing; what it holds is told by its headers.
        """
        asked = {
            t: k.epoch for t, k in known.items() if k.epoch >= 0 and k.epoch != says[t].epoch
        }  # fmt: skip
        answers = epoch_ends(self._client, metadata, asked) if asked else {}
        return {t: a.offset for t, a in answers.items() if a.error == NONE and a.offset >= 0}

    def read(self, tails: Mapping[TopicPartition, Tail], metadata: Metadata) -> None:
        """Read tails on, all of a broker's together, until they are whole or time is up."""
        starts = self.starts(tails, metadata)
        for target, tail in tails.items():
            tail.begins_at(starts.get(target, 0))
        until = time.monotonic() + _TAIL_SECONDS

        def take(fetched: Fetched) -> int | None:
            tail, before = tails[fetched.partition], fetched.offset
            for header, _ in batches(fetched.records):
                tail.take(header)
            if tail.whole or time.monotonic() >= until:
                return None
            # Nothing whole came: read_ranges asks for more at once.
            return max(tail.position, before)

        open_ = {t: tail.position for t, tail in tails.items() if not tail.whole}
        refused = read_ranges(
            self._client, open_, take, partition_bytes=_TAIL_BYTES, patience=_TAIL_SECONDS
        )
        for error in refused.values():
            raise error
        if time.monotonic() < until:
            for target in open_:
                # Compaction took what was at the end.
                tails[target].begins_at(tails[target].end)

    def foreign(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, Foreign]:
        """What stands in some offsets of partitions, where nothing of ours is expected.

        Of each, as much as one answer holds; all of a broker's together.
        """
        found = {t: Foreign(*bounds, Counter(), 0, 0) for t, bounds in ranges.items()}

        def take(fetched: Fetched) -> int | None:
            target = fetched.partition
            seen = [h for h, _ in batches(fetched.records)]
            if not seen:
                # The first batch is larger than its share: read_ranges asks for more.
                return fetched.offset
            for header in seen:
                found[target] = self._count(found[target], header)
            return None

        read_ranges(
            self._client, {t: first for t, (first, _) in ranges.items()}, take,
            partition_bytes=_LOOK_BYTES, patience=_TAIL_SECONDS,
        )  # fmt: skip
        return found

    def _count(self, found: Foreign, header: BatchHeader) -> Foreign:
        if header.base_offset >= found.until or header.last_offset < found.first:
            return found
        if header.control and header.producer_id == self._context.marker_id:
            return found._replace(doubled=found.doubled + 1)
        if header.control:
            return found._replace(markers=found.markers + 1)
        if header.magic == 2 and header.producer_id == self._context.producer_id:
            return found._replace(ours=found.ours + header.record_count)
        writer = header.producer_id if header.magic == 2 else -1
        found.records[writer] += header.record_count if header.magic == 2 else 1
        return found


def misplaced(found: Sequence[Batch], ledger: PartitionLedger) -> Sequence[Batch]:
    """Our batches from the first one on that is not where the ledger says.

    Those behind it belong to it: where the ledger has them follows from where it has the first.
    """
    places = enumerate(found)
    first = next((i for i, batch in places if not _in_place(batch, ledger)), len(found))
    return found[first:]


def _in_place(batch: Batch, ledger: PartitionLedger) -> bool:
    last = batch.length - 1
    return (
        ledger.target_of(batch.sequence) == batch.offset
        and ledger.target_of(batch.sequence + last) == batch.offset + last
    )
