"""What operators hear of when a target log is not what was left there, and how it is put right.

Runs in executors, at resume and at acknowledgements. Where copying goes on is not decided here: the
signature's sequence does (`copy.resume`). This tells what happened, and corrects the ledger.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable

from heliograph.copy.links import Cluster
from heliograph.copy.partition import PartitionCopy
from heliograph.copy.target_log import Batch, Foreign, TargetLog, corrections, end_before
from heliograph.ledger.codec import Entry
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.ledger.store import LedgerStore
from heliograph.model import FlowContext, TopicPartition
from heliograph.wire.errors import WireError

#: Somebody who writes all the time is told of this often.
_FOREIGN_SECONDS = 60.0
#: How soon to look again for what replicas do not have yet.
_REPLICAS_SECONDS = 0.02
#: A broker that has just started may not have heard of a topic.
_ABSENT_SECONDS = 1.0

Happened = Callable[[PartitionCopy, str, str, int, int], None]


class TargetSurprises:
    """Looks at the target's logs for one lease."""

    def __init__(
        self, context: FlowContext, target: Cluster, ledger: LedgerStore, happened: Happened
    ) -> None:
        self._context = context
        self._log = TargetLog(context, target.client)
        self._foreign_until = target.foreign_until
        self._ledger = ledger
        self._happened = happened
        #: Since when target topics are not there, and which were told of: one word for a topic.
        self._absent: dict[uuid.UUID, float] = {}
        self._told: set[uuid.UUID] = set()
        #: How often the last record of a partition could not be seen.
        self._unseen: Counter[TopicPartition] = Counter()

    # -- topics -------------------------------------------------------------------------------

    def absent(self, p: PartitionCopy) -> None:
        """The target has no such topic at the moment, but had it before."""
        if p.place is None:
            return
        since = self._absent.setdefault(p.place.target_id, time.time())
        if time.time() - since < _ABSENT_SECONDS or p.place.target_id in self._told:
            return
        self._told.add(p.place.target_id)
        self._happened(
            p,
            "target.deleted",
            f"{p.target.topic} is no longer on {self._context.flow.target} (topic id"
            f" {p.place.target_id}): it was deleted. It is created again by the next refresh of"
            " topics, and all that the source still has is copied again",
            0,
            p.reached,
        )

    def begun(self, p: PartitionCopy, source: int) -> None:
        """A place is begun at a source offset: was the partition mirrored into another topic?"""
        assert p.place is not None  # noqa: S101 - set by locate
        before = [self._ledger.at(place) for place in self._ledger.other_targets(p.place)]
        if not before or p.place.target_id in self._told:
            return
        self._told.add(p.place.target_id)
        told = max(ledger.runs[-1].source for ledger in before)
        reached = f"at least up to {told}" if told > source else "so far"
        self._happened(
            p,
            "target.recreated",
            f"{p.target.topic} on {self._context.flow.target} is a new topic (topic id"
            f" {p.place.target_id}): the one that {p.source} was mirrored to {reached} was deleted."
            f" All records from source offset {source} on are copied again; offsets committed on"
            f" {p.target.topic} before mean nothing in it",
            0,
            -1,
        )

    # -- logs ---------------------------------------------------------------------------------

    def look(self, p: PartitionCopy, ledger: PartitionLedger, sequence: int, end: int) -> None:
        """Compare the log's end with what was acknowledged before, and tell of a lost tail."""
        assert p.place is not None  # noqa: S101 - set by locate
        if p.reached_in != p.place.target_id:
            p.reached_in, p.reached = p.place.target_id, end
        if end < p.reached:
            if self._told_until(p) > end:
                self._foreign_until[p.place.target_id, p.target.partition] = end
            last = ledger.at_target(p.reached - 1)
            known = last.sequence + p.reached - last.target
            following = ledger.after(last.sequence)
            known = min([known, *(run.sequence for run in following[:1])])
            self._happened(
                p,
                "target.truncated",
                f"{p.target} on {self._context.flow.target} lost its tail: offsets"
                f" [{end}, {p.reached}) were acknowledged and are gone (an unclean leader election,"
                f" or a disk that was restored?). {max(known - sequence, 0):,} mirrored record(s)"
                f" among them are copied again, from source offset {ledger.source_of(sequence)} on;"
                " consumers that have read them may read them again",
                end,
                p.reached,
            )
        p.reached = end

    def heal(self, p: PartitionCopy, ledger: PartitionLedger, sequence: int, end: int) -> bool:
        """Make the ledger say where our last records are, in a log that does not end as it says.

        Returns False, with the reason in ``p.broken``, if that has to wait.
        """
        assert p.place is not None  # noqa: S101 - set by locate
        found: list[Batch] | None = None
        if end >= end_before(ledger, sequence) or self._unseen[p.source]:
            found = self._log.misplaced(p.target, ledger, sequence, end)
        if found is None:
            p.broken = (
                f"the replicas of {p.target} on {self._context.flow.target} do not have all that"
                " its leader has; copying goes on when they do (is one of its brokers down?)"
            )
            p.retry_at = time.time() + _REPLICAS_SECONDS * 2 ** min(self._unseen[p.source], 6)
            self._unseen[p.source] += 1
            return False
        del self._unseen[p.source]
        was_identical = ledger.source_of(sequence) == ledger.target_of(sequence)
        runs = corrections(ledger, found)
        expected = found[-1].offset + found[-1].length if found else end_before(ledger, sequence)
        source = ledger.source_of(sequence)
        if found or expected > end:
            # What comes next goes to the log's end; behind markers, if that makes up for a gap.
            target = end
            if p.lease.identical and was_identical:
                target = max(end, source)
            runs.append(Run(sequence, source, target))
        if runs:
            if not p.may_mark:
                # Whoever wrote this may be about to correct it.
                p.retry_at, p.broken = p.markers_from, "the lease before this one is ending"
                return False
            self._ledger.write([Entry(p.place, runs, shift=True)])
        elif end > expected and p.may_mark:
            # Else it is most likely what the writer before us has written since.
            self._tail(p, expected, end)
        return True

    # -- foreign writes -----------------------------------------------------------------------

    def _tail(self, p: PartitionCopy, first: int, until: int) -> None:
        """Something is behind our last record: somebody else's?"""
        if until <= self._told_until(p):
            return
        foreign = self._log.foreign(p.target, first, until)
        if foreign is not None and foreign.records:
            self._tell_foreign(p, first, until, until - first, str(foreign))

    def _told_until(self, p: PartitionCopy) -> int:
        assert p.place is not None  # noqa: S101 - set by locate
        return self._foreign_until.get((p.place.target_id, p.target.partition), 0)

    def pushed(self, p: PartitionCopy, first: int, until: int) -> None:
        """An acknowledgement shows that [first, until) of the log is not ours."""
        first = max(first, self._told_until(p))
        if until <= first:
            return
        p.foreign_first = first if p.foreign_count == 0 else p.foreign_first
        p.foreign_count += until - first
        p.foreign_last = until
        if time.time() >= p.foreign_told + _FOREIGN_SECONDS:
            self.tell_pushed(p)

    def tell_pushed(self, p: PartitionCopy) -> None:
        """Tell what was not told yet of foreign writes between ours."""
        if not p.foreign_count or p.place is None:
            return
        try:
            # The latest stretch: what was before may be under the same name.
            foreign = self._log.foreign(p.target, p.foreign_first, p.foreign_last)
        except WireError as error:
            foreign, who = None, f"who wrote them could not be found out: {error}"
        else:
            who = str(foreign) if foreign is not None else "somebody else"
        if foreign is not None and foreign.harmless:
            self._tell_doubled(p, foreign)
        else:
            self._tell_foreign(p, p.foreign_first, p.foreign_last, p.foreign_count, who)
        p.foreign_count = 0

    def _tell_doubled(self, p: PartitionCopy, doubled: Foreign) -> None:
        """Markers cannot be told apart from those that were asked for before."""
        self._noted(p, doubled.until)
        self._happened(
            p,
            "target.doubled",
            f"{doubled.doubled:,} transaction marker(s) in [{doubled.first}, {doubled.until}) of"
            f" {p.target} on {self._context.flow.target} are there twice, most likely because"
            " this mirror had lost an answer and asked again. Consumers do not see them, nothing is"
            " lost, and positions are translated exactly; but what follows is not at the source's"
            " offsets until gaps of the source make up for it",
            doubled.first,
            doubled.until,
        )

    def _noted(self, p: PartitionCopy, until: int) -> None:
        assert p.place is not None  # noqa: S101 - set by locate
        p.foreign_told = time.time()
        self._foreign_until[p.place.target_id, p.target.partition] = until

    def _tell_foreign(self, p: PartitionCopy, first: int, until: int, count: int, who: str) -> None:
        self._noted(p, until)
        self._happened(
            p,
            "target.foreign",
            f"somebody else wrote to {p.target} on {self._context.flow.target}: {count:,} offset(s)"
            f" in [{first}, {until}) are not ours ({who}). Nothing of ours is lost, and positions"
            " are translated exactly; but consumers read these records among the mirrored ones."
            f" Find the producer (kafka-transactions.sh describe-producers --topic"
            f" {p.target.topic} --partition {p.target.partition}) and take its right to write",
            first,
            until,
        )
