"""What the answers to produce and marker requests mean for their partitions. In executors.

Answers come in the order of the requests, per partition: ``in_flight`` holds what each is about.
An acknowledged batch is where the ledger says (`PartitionCopy.ack_target`), or the ledger is
corrected first: until then the answers behind it wait in ``shifting``. What is acknowledged becomes
known (`KnownPositions`) and is told to offset syncs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from heliograph.copy.background import Background
from heliograph.copy.known_positions import KnownPositions
from heliograph.copy.lease_state import LeaseState
from heliograph.copy.links import Cluster
from heliograph.copy.partition import Gap, Outgoing, PartitionCopy
from heliograph.copy.refused_batches import refuse_batch
from heliograph.copy.syncs import OffsetSyncWriter
from heliograph.copy.target_divergence import TargetDivergence
from heliograph.copy.target_link import TargetLink
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Entry
from heliograph.ledger.runs import Run
from heliograph.wire.errors import NONE, WireError, error_name, is_retriable
from heliograph.wire.produce import Produced
from heliograph.wire.rights import missing_right


class Acknowledgements:
    """Takes in the answers of all target brokers; calls ``drained`` when more may be read.

    ``links`` are the target's: a partition that waited for an answer is made ready there.
    """

    def __init__(
        self,
        lease_state: LeaseState,
        cluster: Cluster,
        links: Mapping[int, TargetLink],
        syncs: OffsetSyncWriter,
        notes: KnownPositions,
        divergence: TargetDivergence,
        background: Background,
        drained: Callable[[PartitionCopy], None],
    ) -> None:
        self._state = lease_state
        self._cluster = cluster
        self._links = links
        self._syncs = syncs
        self._notes = notes
        self._divergence = divergence
        self._background = background
        self._drained = drained

    def produced(self, p: PartitionCopy, answer: Produced) -> None:
        """The answer to the oldest request in flight, which was a batch."""
        if not p.in_flight:
            return
        outgoing = p.in_flight.popleft()
        if not isinstance(outgoing, Outgoing):
            self._state.disturb(p, f"{p.target}: answers out of order")
            return
        self._state.free(p, len(outgoing.data))
        if not p.active:
            if p.holed is not None and answer.error == NONE:
                self._skipped(p, outgoing)
            return
        if p.shifting:
            p.shifting.append((outgoing, answer))
        else:
            self._take_answer(p, outgoing, answer)

    def _take_answer(self, p: PartitionCopy, outgoing: Outgoing, answer: Produced) -> None:
        if answer.error != NONE:
            refuse_batch(self._state, p, outgoing, answer)
            return
        if answer.base_offset != p.ack_target:
            self._shifted(p, outgoing, answer)
            return
        p.acknowledged(outgoing, answer.base_offset)
        self._notes.acknowledged(p, len(outgoing.data))
        self._go_on(p)
        self._syncs.acknowledged(
            p.source, outgoing.first_source, outgoing.last_source, p.ack_target - 1
        )
        if not p.reading and p.queued_bytes <= self._state.context.fetch_max_bytes // 2:
            self._drained(p)

    def _go_on(self, p: PartitionCopy) -> None:
        """The broker knows the signature now: more may be in flight."""
        if p.one_in_flight:
            p.one_in_flight = False
            if p.queue:
                self._links[p.target_leader].ready[p.target] = p

    def _skipped(self, p: PartitionCopy, outgoing: Outgoing) -> None:
        """A batch was taken behind one that was refused: the signature was forgotten between."""
        assert p.holed is not None  # noqa: S101 - the caller looked
        first, until = p.holed.first_source, outgoing.first_source
        # The next resume finds the hole in the log, adds an event and copies again from there.
        self._state.disturb(
            p,
            f"{p.target} on {self._state.context.flow.target} took source offsets {until} to"
            f" {outgoing.last_source} of {p.source}, but not [{first}, {until}) before them, after"
            " it had forgotten our sequence",
        )

    def marked(self, p: PartitionCopy, error: int) -> None:
        """The answer to the oldest request in flight, which was markers."""
        if not p.in_flight:
            return
        item = p.in_flight.popleft()
        if not p.active:
            return
        if not isinstance(item, Gap):
            self._state.disturb(p, f"{p.target}: answers out of order")
        elif p.shifting:
            p.shifting.append((item, Produced(p.target, error, -1, -1, None, {})))
        else:
            self._take_marked(p, item, error)

    def _take_marked(self, p: PartitionCopy, item: Gap, error: int) -> None:
        if error == NONE:
            p.ack_target = p.reached = p.ack_target + item.markers
            if p.known is not None:
                p.known = p.known._replace(target=p.ack_target)
                self._notes.acknowledged(p, 0)
            if p.looking:
                self._drained(p)
            # Still alone, if it was: a marker is not written under the signature.
            if p.one_in_flight and p.queue:
                self._links[p.target_leader].ready[p.target] = p
        elif is_retriable(error):
            self._state.disturb(p, f"filling a gap in {p.target}: {error_name(error)}")
        else:
            context = self._state.context
            text = f"gaps in {p.target} on {context.flow.target} cannot be filled"
            right = missing_right(context.target, "Alter", "cluster")
            self._state.fail(
                p,
                PartitionError(
                    "target.markers",
                    f"{text}: {error_name(error)}",
                    "set heliograph.offsets=dense: offsets are translated exactly then; or"
                    f" {right}",
                ),
            )

    def _shifted(self, p: PartitionCopy, outgoing: Outgoing, answer: Produced) -> None:
        """The batch is not where the ledger said: somebody else wrote, or the log lost its tail."""
        shift, place = answer.base_offset - p.ack_target, p.place
        if shift < 0 or place is None:
            self._state.disturb(p, f"{p.target} is shorter than the ledger says by {-shift}")
            return
        if self._divergence.pushed(p, p.ack_target, answer.base_offset):
            self._report_pushed(p)
        self._state.shift(p, shift)
        # It and the answers behind it are taken in when the ledger has it.
        p.shifting.appendleft((outgoing, answer))
        ledger, attempt = self._state.ledger, p.resumes
        staged, contiguous = p.sequence, p.contiguous

        def write() -> None:
            runs = [Run(outgoing.sequence, outgoing.first_source, answer.base_offset)]
            # What is queued behind it moves along. What somebody else announced
            # ahead of us is announced anew when it is read: the gap before it may be smaller then.
            runs += [
                run._replace(target=run.target + shift)
                for run in ledger.at(place).after(outgoing.sequence)
                if run.sequence < staged or run[:2] == (staged, contiguous)
            ]
            ledger.write([Entry(place, runs, shift=True)])

        def written(_: None) -> None:
            if p.active and p.resumes == attempt:
                p.ack_target += shift
                self._take_answers(p)

        def failed(error: WireError) -> None:
            if p.active and p.resumes == attempt:
                self._state.disturb(p, f"the ledger cannot be written: {error}")

        self._background.run(self._cluster.lane, write, written, failed)

    def _take_answers(self, p: PartitionCopy) -> None:
        """Take in the answers that have waited for the ledger, up to the next shift among them."""
        waiting = list(p.shifting)
        p.shifting.clear()
        while waiting and p.active and not p.shifting:
            item, answer = waiting.pop(0)
            if isinstance(item, Gap):
                self._take_marked(p, item, answer.error)
            else:
                self._take_answer(p, item, answer)
        if p.active:
            p.shifting.extend(waiting)

    def report_pushed(self) -> None:
        """Add events for foreign records that have none yet, in the background."""
        for p in self._state.parts.values():
            if p.foreign_count:
                self._report_pushed(p)

    def _report_pushed(self, p: PartitionCopy) -> None:
        first, until, count = p.foreign_first, p.foreign_last, p.foreign_count
        p.foreign_count, p.foreign_told = 0, time.time()
        self._background.run(
            self._cluster.lane,
            lambda: self._divergence.report_pushed(p, first, until, count),
            lambda _: None,
            lambda _: None,
        )
