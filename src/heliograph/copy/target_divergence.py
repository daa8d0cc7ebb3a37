"""Events for target logs that are not as they were left, and corrections of the ledger.

Runs in executors, at resume and at acknowledgements. This adds events (deleted, created again,
truncated, repeated, foreign records and whose) and makes the ledger agree with the log. It does not
decide where copying goes on: `copy.knowledge` does.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from heliograph.copy.knowledge import Batch, Conclusion, Standing, Tail, end_before
from heliograph.copy.links import Cluster
from heliograph.copy.partition import MustWait, PartitionCopy
from heliograph.copy.target_log import Foreign, TargetLog, corrections
from heliograph.ledger.codec import Entry
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.ledger.signatures import signatures
from heliograph.ledger.store import LedgerStore
from heliograph.model import FlowContext, TopicPartition
from heliograph.wire.errors import WireError

#: A producer that writes all the time causes an event this often.
_FOREIGN_SECONDS = 60.0
#: How often the signatures of other flows are read, at most: the beginning of each ledger.
_FLOWS_SECONDS = 5.0
#: How soon to look again for what replicas do not have yet.
_REPLICAS_SECONDS = 0.02
#: A broker that has just started may not know a topic yet.
_ABSENT_SECONDS = 1.0

AddEvent = Callable[[PartitionCopy, str, str, int, int], None]


class TargetDivergence:
    """Looks at the target's logs for one lease."""

    def __init__(
        self, context: FlowContext, target: Cluster, ledger: LedgerStore, add_event: AddEvent
    ) -> None:
        self._context = context
        self._client = target.client
        self.log = TargetLog(context, target.client)
        self._foreign_until = target.foreign_until
        self._ledger = ledger
        self._add_event = add_event
        #: Since when target topics are not there, and which were told of: one word for a topic.
        self._absent: dict[uuid.UUID, float] = {}
        self._told: set[uuid.UUID] = set()
        #: The flows that sign on the target, as of `_looked_at`.
        self._flows: Mapping[int, str] = {}
        self._looked_at = float("-inf")
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
        self._add_event(
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
        self._add_event(
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

    def look(self, p: PartitionCopy, standing: Standing, sequence: int) -> None:
        """Add an event if the log lost a tail that was acknowledged before."""
        assert p.place is not None  # noqa: S101 - set by locate
        ledger, end = standing.ledger, standing.says.end
        if p.reached_in != p.place.target_id:
            p.reached_in, p.reached = p.place.target_id, 0
        reached, kept = p.reached, end
        if standing.known is not None:
            reached = max(reached, standing.known.target)
            if standing.truncated and sequence < standing.known.sequence:
                kept = min(standing.kept, end)
        if kept < reached:
            if self._reported_until(p) > kept:
                self._foreign_until[p.place.target_id, p.target.partition] = kept
            lost = max(ledger.sequence_below(reached) - sequence, 0)
            self._add_event(
                p,
                "target.truncated",
                f"{p.target} on {self._context.flow.target} lost its tail: offsets"
                f" [{kept}, {reached}) were acknowledged and are gone (an unclean leader election,"
                f" or a disk that was restored?). {lost:,} mirrored record(s)"
                f" among them are copied again, from source offset {ledger.source_of(sequence)} on;"
                " consumers that have read them may read them again",
                kept,
                reached,
            )
        p.reached = end

    def unseen(self, p: PartitionCopy) -> MustWait:
        """The leader has more than anybody may read: replicas do not have it yet. Wait for it."""
        pause = _REPLICAS_SECONDS * 2 ** min(self._unseen[p.source], 6)
        self._unseen[p.source] += 1
        return MustWait(
            f"the replicas of {p.target} on {self._context.flow.target} do not have all that"
            " its leader has; copying goes on when they do (is one of its brokers down?)",
            time.time() + pause,
        )

    def seen(self, p: PartitionCopy) -> None:
        """Replicas have all that the leader has."""
        del self._unseen[p.source]

    def heal(
        self,
        p: PartitionCopy,
        ledger: PartitionLedger,
        sequence: int,
        end: int,
        out_of_place: Sequence[Batch],
        tail: Tail | None,
    ) -> None:
        """Correct the ledger where it does not agree with the log about our last records.

        ``out_of_place`` are the batches of ours that are not where the ledger says, ``tail`` is
        what was read of the log. Raises MustWait while somebody else may do the same.
        """
        assert p.place is not None  # noqa: S101 - set by locate
        was_identical = ledger.source_of(sequence) == ledger.target_of(sequence)
        runs = corrections(ledger, out_of_place)
        expected = end_before(ledger, sequence)
        if out_of_place:
            expected = max(expected, out_of_place[-1].offset + out_of_place[-1].length)
        source = ledger.source_of(sequence)
        if out_of_place or expected > end:
            # What comes next goes to the log's end; behind markers, if that makes up for a gap.
            target = end
            if p.lease.identical and was_identical:
                target = max(end, source)
            runs.append(Run(sequence, source, target))
        if runs:
            # Whoever wrote this may be about to correct it.
            p.require_predecessor_ended()
            self._ledger.write([Entry(p.place, runs, shift=True)])
        elif tail is not None and end > max(expected, self._reported_until(p)) and p.may_mark:
            # Else it is most likely what the writer before us has written since.
            self._report_tail(p, Foreign(expected, end, tail.records, tail.markers, 0))

    # -- records that are there twice ---------------------------------------------------------

    def report_repeated(
        self,
        p: PartitionCopy,
        ledger: PartitionLedger,
        standing: Standing,
        found: Conclusion,
        tail: Tail | None,
    ) -> None:
        """Add events for records that are in a log twice, or are going to be."""
        if tail is not None and tail.hole is not None:
            first, until = (ledger.source_of(sequence) for sequence in tail.hole)
            self._add_event(
                p,
                "target.hole",
                f"{p.target} on {self._context.flow.target} took what follows source offset {until}"
                f" of {p.source}, but not [{first}, {until}) before it, after it had forgotten our"
                f" sequence. Everything from {first} on is copied again, behind what is there:"
                f" {tail.behind:,} record(s) are there twice then, at offsets from"
                f" {standing.says.end} on",
                standing.says.end,
                standing.says.end + tail.hole[1] - tail.hole[0] + tail.behind,
            )
            return
        end = standing.says.end
        for first, until in tail.repeated if tail is not None else ():
            self._mark_reported(p, until)
            self._report_late(p, first, until, until - first)
        if found.repeats:
            self._mark_reported(p, end)
            source = ledger.source_of(found.sequence)
            self._add_event(
                p,
                "target.repeated",
                f"nobody knows how much of {p.source} from source offset {source} on was mirrored"
                f" before {p.target} on {self._context.flow.target} was emptied: the writer was"
                " killed before it could write that down. Up to"
                f" {found.repeats:,} record(s) are copied again, at offsets from {end} on;"
                " consumers that have read them read them a second time",
                tail.unseen_from if tail is not None and tail.unseen else end,
                end + found.repeats,
            )

    def _report_late(self, p: PartitionCopy, first: int, until: int, count: int) -> None:
        self._add_event(
            p,
            "target.repeated",
            f"{count:,} record(s) at offsets [{first}, {until}) of {p.target} on"
            f" {self._context.flow.target} are there a second time: a write of this mirror that was"
            " given up arrived late, after the broker had forgotten our sequence. Nothing is lost,"
            " and positions are translated exactly; but consumers read these records twice",
            first,
            until,
        )

    # -- foreign writes -----------------------------------------------------------------------

    def grown(self, behind: Mapping[TopicPartition, tuple[PartitionCopy, int, int]]) -> None:
        """Add events for records of other producers behind our last ones.

        ``behind``: by target, the partition, where ours ended, and where the log ends.
        """
        new = {
            target: (first, until)
            for target, (p, first, until) in behind.items()
            if until > self._reported_until(p)
        }
        for target, foreign in (self.log.foreign(new) if new else {}).items():
            self._report_tail(behind[target][0], foreign)

    def _report_tail(self, p: PartitionCopy, foreign: Foreign) -> None:
        # Ours may be among them: whoever killed a mirror left what it had not noted.
        foreign = foreign._replace(ours=0, doubled=0)
        if self._of_other_flows(foreign.records):
            self._mark_reported(p, foreign.until)
        elif foreign.records:
            count = sum(foreign.records.values()) + foreign.markers
            self._report_foreign(p, foreign.first, foreign.until, count, str(foreign))

    def _reported_until(self, p: PartitionCopy) -> int:
        assert p.place is not None  # noqa: S101 - set by locate
        return self._foreign_until.get((p.place.target_id, p.target.partition), 0)

    def pushed(self, p: PartitionCopy, first: int, until: int) -> bool:
        """An acknowledgement shows that [first, until) of the log is not ours.

        Never waits, and is the loop's to call. Returns whether it is time to `report_pushed`.
        """
        first = max(first, self._reported_until(p))
        if until <= first:
            return False
        p.foreign_first = first if p.foreign_count == 0 else p.foreign_first
        p.foreign_count += until - first
        p.foreign_last = until
        return time.time() >= p.foreign_told + _FOREIGN_SECONDS

    def report_pushed(self, p: PartitionCopy, first: int, until: int, count: int) -> None:
        """Tell of ``count`` offsets in [first, until) that were `pushed` between ours."""
        try:
            foreign = self.log.foreign({p.target: (first, until)})[p.target]
        except WireError as error:
            foreign, who = None, f"who wrote them could not be found out: {error}"
        else:
            who = str(foreign)
        if foreign is not None and foreign.ours:
            self._report_late(p, foreign.first, foreign.until, foreign.ours)
        if foreign is not None and foreign.harmless:
            self._report_doubled(p, foreign)
        elif foreign is not None and (
            self._of_other_flows(foreign.records) or (foreign.ours and not foreign.records)
        ):
            self._mark_reported(p, foreign.until)
        else:
            self._report_foreign(p, first, until, count, who)

    def _report_doubled(self, p: PartitionCopy, doubled: Foreign) -> None:
        """Add an event for markers that were written twice: a broker cannot recognise them."""
        self._mark_reported(p, doubled.until)
        self._add_event(
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

    def _mark_reported(self, p: PartitionCopy, until: int) -> None:
        assert p.place is not None  # noqa: S101 - set by locate
        p.foreign_told = time.time()
        self._foreign_until[p.place.target_id, p.target.partition] = until

    def _of_other_flows(self, producers: Collection[int]) -> bool:
        """Whether all of these producers are flows of Heliograph: then they belong there.

        A flow may have begun since the last look: whoever is not known is looked for again.
        """
        unknown = set(producers) - self._flows.keys()
        if unknown and time.monotonic() >= self._looked_at + _FLOWS_SECONDS:
            try:
                self._flows = signatures(self._client).sources
            except WireError:
                return False
            self._looked_at = time.monotonic()
        return bool(producers) and self._flows.keys() >= set(producers)

    def _report_foreign(
        self, p: PartitionCopy, first: int, until: int, count: int, who: str
    ) -> None:
        self._mark_reported(p, until)
        if p.paired:
            # What others write here is mirrored from here: nothing to take a right away for.
            return
        self._add_event(
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
