"""Where to go on, and what to put right before that. Runs in executors.

1. Ask the target's leaders for the signature's last sequence and for where their logs end.
2. Read the ledger to its end: what is in a log was announced there before.
3. `copy.knowledge` concludes the next sequence, from what was acknowledged and, where the log goes
   on behind that, from its batch headers.
4. The ledger maps the sequence to the next source offset. A partition that was never mirrored gets
   its first run; of several writers that begin at once, the first entry counts for all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from heliograph.batch.header import FIRST_EPOCH
from heliograph.copy.beginning import Beginning, headless
from heliograph.copy.knowledge import (
    Conclusion,
    LeaderSays,
    Standing,
    Tail,
    agrees,
    credible,
    known_at,
)
from heliograph.copy.links import Cluster
from heliograph.copy.locating import Locator
from heliograph.copy.padding import is_padded, pad
from heliograph.copy.partition import MustWait, Outcome, PartitionCopy, Position, Started
from heliograph.copy.recount import Recount
from heliograph.copy.source_divergence import AddEvent, SourceDivergence
from heliograph.copy.target_divergence import TargetDivergence
from heliograph.copy.target_log import misplaced, rebased
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Acknowledged, Cut, Entry, Epoch, NewEra
from heliograph.ledger.epochs import UNKNOWN_EPOCH, EpochMark
from heliograph.ledger.known import Era, Known
from heliograph.ledger.order import logs_before_ledger
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.ledger.store import LedgerStore
from heliograph.model import FlowContext, TopicPartition
from heliograph.wire import admin, configs
from heliograph.wire.errors import ConnectionFailed, WireError
from heliograph.wire.metadata import Metadata
from heliograph.wire.rights import missing_right


class Resumer:
    """Finds the positions of partitions of one flow. All of it waits for brokers: not in the loop.

    Of a partition it changes only where it was located, what was found in its target's log, and
    when that was looked at. What becomes of it is the outcome, which `LeaseState` applies.
    """

    def __init__(
        self,
        context: FlowContext,
        source: Cluster,
        target: Cluster,
        ledger: LedgerStore,
        add_event: AddEvent,
        divergence: TargetDivergence,
    ) -> None:
        self._context = context
        self._source = source.client
        self._target = target.client
        self._ledger = ledger
        self._silent = target.silent
        self._divergence = divergence
        self._log = divergence.log
        self._upstream = SourceDivergence(context, source, ledger, add_event)
        self._recount = Recount(context, source.client, target.client, ledger, add_event)
        #: Tails that could not be read to their end at once, and the leader epoch they are of.
        self._tails: dict[TopicPartition, tuple[int, Tail]] = {}
        #: What was found in tails and is not in the ledger yet.
        self._learnt: list[Acknowledged] = []
        #: Where the logs begin of partitions that the source refused to read at their position.
        self._source_starts: dict[TopicPartition, int] = {}
        self._outcomes: dict[TopicPartition, Outcome] = {}
        #: When the lease ends, in seconds since the epoch: nothing is put right after that.
        self.ends_at = float("inf")
        self._begun_at = time.monotonic()
        self._locator = Locator(context, self._source, self._target, self._upstream, divergence)
        self._beginning = Beginning(context, self._source, self._target, ledger, divergence)

    def warm_up(self, partitions: Sequence[PartitionCopy]) -> None:
        """Connect, locate and read the ledger ahead of time."""
        self._locator.warm_up(partitions)
        self._ledger.refresh()

    def resume(self, partitions: Sequence[PartitionCopy]) -> dict[TopicPartition, Outcome]:
        """Find where each partition goes on, or why it does not; raises WireError if none can."""
        source, target, absent = self._locator.locate(partitions)
        self._outcomes = dict(absent)
        usable = self._open(partitions)
        if not usable:
            return self._outcomes
        now = time.time()
        for p in usable:
            p.looked_at = now
        losses = self._ledger.losses
        with logs_before_ledger(self._ledger):
            says = self._ask(usable, target)
        usable = self._open(usable)
        if self._ledger.losses != losses:
            # This process has read what is gone: it is written again first (`CopyLoop`).
            return self._outcomes | {
                p.source: MustWait("the ledger has lost entries") for p in usable
            }
        self._look_at_sources(usable, source)
        self._refuse_unreadable([p for p in usable if p.target not in says])
        self._refuse_too_large(usable)
        fresh: list[PartitionCopy] = []
        begun: list[PartitionCopy] = []
        for p in self._open(usable):
            with self._deciding(p):
                if p.target not in says:
                    raise MustWait(f"the leader of {p.target} on the target did not answer")
                ledger = self._at(p)
                if ledger.headless:
                    raise headless(self._context, p)
                if not ledger.runs:
                    self._upstream.recreated(p, source, target)
                if p.lease.withheld:
                    raise PartitionError("mm2.withheld", p.lease.withheld)
                (begun if ledger.runs else fresh).append(p)
        if fresh:
            self._outcomes |= self._beginning.begin(fresh, source, target, says)
        self._go_on(self._open(begun + fresh), target, says)
        return self._outcomes

    def _open(self, partitions: Sequence[PartitionCopy]) -> list[PartitionCopy]:
        """Those whose outcome is not known yet."""
        return [p for p in partitions if p.source not in self._outcomes]

    @contextmanager
    def _deciding(self, p: PartitionCopy) -> Iterator[None]:
        """Whatever keeps the partition from being started in here is its outcome."""
        try:
            yield
        except (MustWait, PartitionError) as outcome:
            self._outcomes[p.source] = outcome

    def _ask(
        self, partitions: Sequence[PartitionCopy], target: Metadata
    ) -> dict[TopicPartition, LeaderSays]:
        """What leaders say of target partitions; a broker that fails breaks only its own.

        One that is known to be silent is not asked: all others would wait for it.
        """
        says: dict[TopicPartition, LeaderSays] = {}
        for node in sorted({p.target_leader for p in partitions}):
            led = [p for p in partitions if p.target_leader == node]
            try:
                self._silent.refuse(node)
                with self._silent.noticed(node):
                    says |= self._log.look(led, target)
            except ConnectionFailed as error:
                self._outcomes |= {p.source: MustWait(str(error)) for p in led}
        return says

    def _look_at_sources(self, partitions: Sequence[PartitionCopy], source: Metadata) -> None:
        """What leaders of the source say: of epochs, and of logs that lack the position."""
        self._upstream.look(partitions, source)
        overrun = [p for p in partitions if p.overrun]
        self._source_starts = {}
        if not overrun:
            return
        asked = [p.source for p in overrun]
        starts = admin.list_offsets(self._source, source, asked, admin.EARLIEST)
        ends = admin.list_offsets(self._source, source, asked, admin.LATEST)
        for p in overrun:
            if p.source in starts and p.source in ends:
                self._source_starts[p.source] = starts[p.source]
                p.truncated_at = ends[p.source]
            else:
                self._outcomes[p.source] = MustWait(
                    f"the leader of {p.source} on the source did not answer"
                )

    def _refuse_too_large(self, partitions: Sequence[PartitionCopy]) -> None:
        """Take over a smaller max.message.bytes of target topics, or a larger one that may help."""
        failing = [
            p for p in partitions
            if p.too_large is not None or (p.failing and p.failing.code == "target.refused")
        ]  # fmt: skip
        if not failing:
            return
        key, limits = "max.message.bytes", None
        with suppress(WireError):
            limits = configs.describe(self._target, {p.target.topic for p in failing}, [key])
        for p in failing:
            found = limits.value(p.target.topic, key, "") if limits is not None else ""
            # As large as can be, if it is secret.
            most = int(found or 1 << 30)
            if p.too_large is not None and most >= p.rules.max_bytes:
                self._outcomes[p.source] = p.too_large
            else:
                p.rules = p.rules._replace(max_bytes=most)

    def _refuse_unreadable(self, silent: Sequence[PartitionCopy]) -> None:
        """Leaders tell sequences only to those who may read: were they silent because of that?"""
        topics = {p.target.topic for p in silent}
        unreadable = admin.unreadable(self._target, topics) if topics else set()
        for p in silent:
            if p.target.topic in unreadable:
                self._outcomes[p.source] = PartitionError(
                    "target.refused",
                    f"{p.target} on {self._context.flow.target} does not tell us where it ends",
                    missing_right(self._context.target, "Read", "topic", p.target.topic),
                )

    def _go_on(
        self,
        begun: Sequence[PartitionCopy],
        target: Metadata,
        says: dict[TopicPartition, LeaderSays],
    ) -> None:
        """Start partitions that were begun before."""
        for p in begun:
            with self._deciding(p):
                self._pad(p, target, says[p.target].end)
        waiting = self._open(begun)
        known = {p.target: k for p in waiting if (k := self._known(p)) is not None}
        kept = self._log.kept(known, says, target)
        continuous = self._ledger.followed_since < self._begun_at
        standings: dict[TopicPartition, Standing] = {}
        concluded: dict[TopicPartition, Conclusion] = {}
        for p in waiting:
            told = says[p.target]
            standing = standings[p.target] = Standing(
                self._at(p), told, known.get(p.target), kept.get(p.target, told.end), continuous
            )
            with self._deciding(p):
                if standing.cut:
                    raise headless(self._context, p)
                at_once = standing.at_once()
                if at_once is not None:
                    concluded[p.target] = at_once
                elif standing.grown and not (p.must_read_tail or p.overrun or self._moves(p)):
                    self._start_with_tail_unread(p, standing)
        self._divergence.grown({
            p.target: (p, standings[p.target].anchor[1], says[p.target].visible)
            for p in waiting if self._has_tail_unread(p) and p.may_mark
        })  # fmt: skip
        waiting = self._open(waiting)
        tails = self._read_tails(
            [p for p in waiting if p.target not in concluded], standings, target
        )
        for p in self._open(waiting):
            tail = tails.get(p.target)
            with self._deciding(p):
                if time.time() >= self.ends_at:
                    # Brokers took too long: whoever holds the next lease may be writing.
                    raise MustWait("the lease ended before it could be resumed")
                if tail is not None and tail.alien:
                    raise headless(self._context, p)
                if tail is not None:
                    concluded[p.target] = standings[p.target].after(tail)
                try:
                    self._start(p, standings[p.target], concluded[p.target], tail)
                except WireError as error:
                    raise MustWait(str(error)) from error
        if self._learnt:
            # So that nobody has to read these tails again.
            self._ledger.note(self._learnt)
            self._learnt.clear()

    def _has_tail_unread(self, p: PartitionCopy) -> bool:
        outcome = self._outcomes.get(p.source)
        return isinstance(outcome, Started) and outcome.tail_unread

    def _start_with_tail_unread(self, p: PartitionCopy, standing: Standing) -> None:
        """Start where the next record is known to be or behind it, as long as none is there.

        Others may write to the target all the time: whoever has nothing to write himself need not
        read it all. `SourceSide` resumes the partition when there is something.
        """
        sequence, _ = standing.anchor
        self._upstream.require_intact(p, standing.ledger, sequence, standing.says.end)
        self._started(p, _place(self._at(p), sequence), tail_unread=True)

    def _pad(self, p: PartitionCopy, target: Metadata, end: int) -> None:
        """Write the filler that the partition's log begins with, if it is not all there yet."""
        ledger = self._at(p)
        if not is_padded(ledger) or end > ledger.runs[0].target:
            return
        pad(self._context, self._target, target, p, ledger, end)
        first = ledger.runs[0].sequence
        self._started(p, _place(ledger, first), ledger.after(first))

    def _started(
        self,
        p: PartitionCopy,
        position: Position,
        announced_ahead: Sequence[Run] = (),
        known: Known | None = None,
        *,
        tail_unread: bool = False,
    ) -> None:
        """The partition can be copied; unless the source does not have its position any more."""
        start = self._source_starts.get(p.source, 0)
        if position.source < start:
            self._upstream.overrun(p, position.source, start)
        self._outcomes[p.source] = Started(
            position,
            announced_ahead,
            known,
            tail_unread,
            start if position.source < start else None,
        )

    def _at(self, p: PartitionCopy) -> PartitionLedger:
        assert p.place is not None  # noqa: S101 - set by locate
        return self._ledger.at(p.place)

    def _known(self, p: PartitionCopy) -> Known | None:
        """What was acknowledged: by the ledger, or later in this very lease."""
        written, own = credible(self._at(p)), p.known
        if own is None or p.known_in != p.place:
            return written
        return own if written is None or own.sequence >= written.sequence else written

    def _read_tails(
        self,
        partitions: Sequence[PartitionCopy],
        standings: dict[TopicPartition, Standing],
        target: Metadata,
    ) -> dict[TopicPartition, Tail]:
        """The logs of partitions behind what is known, as far as they could be read to their end.

        The others have to wait and are read on when they are resumed again.
        """
        tails: dict[TopicPartition, Tail] = {}
        for p in partitions:
            says = standings[p.target].says
            if says.visible < says.end:
                self._outcomes[p.source] = self._divergence.unseen(p)
                continue
            self._divergence.seen(p)
            epoch, tail = self._tails.pop(p.source, (-1, None))
            fresh = standings[p.target].tail(self._context.producer_id, self._context.marker_id)
            if tail is None or epoch != says.epoch or tail.ledger is not fresh.ledger:
                tail = fresh
            tail.end = says.end
            tails[p.target] = tail
        if not tails:
            return {}
        self._log.read(tails, target)
        for p in partitions:
            tail = tails.get(p.target)
            if tail is not None and not tail.whole:
                self._tails[p.source] = (standings[p.target].says.epoch, tail)
                self._outcomes[p.source] = MustWait(
                    f"looking for our last record in {p.target} on {self._context.flow.target}:"
                    f" {tail.end - tail.position:,} offsets are left",
                    progress=True,
                )
        return {target: tail for target, tail in tails.items() if tail.whole}

    def _start(
        self, p: PartitionCopy, standing: Standing, found: Conclusion, tail: Tail | None
    ) -> None:
        """Put right what is not as it should be, and start a partition."""
        assert p.place is not None  # noqa: S101 - set by locate
        ledger, says, sequence = standing.ledger, standing.says, found.sequence
        if found.unproven:
            batches = tail.found if tail is not None else []
            proven = self._recount.prove(p, ledger, standing.anchor[0], sequence, batches)
            ledger = self._at(p)
            if not proven:
                found = found._replace(repeats=sequence - standing.anchor[0])
        self._divergence.look(p, standing, sequence)
        out_of_place = misplaced(tail.found, ledger) if tail is not None else []
        if out_of_place or not agrees(ledger, sequence, says.end):
            self._divergence.heal(p, ledger, sequence, says.end, out_of_place, tail)
            ledger = self._at(p)
        self._upstream.require_intact(p, ledger, sequence, says.end)
        self._carry_out(p, sequence, says.end)
        ledger = self._at(p)
        known = known_at(ledger, sequence, says.end, says.epoch)
        if found.new_era:
            # Whoever wrote this may be about to go on, and what we looked at may have moved.
            p.require_seen_twice(says.producer, sequence)
            p.require_predecessor_ended(settled=True)
            self._renumber(p, standing, known)
        elif tail is not None:
            self._learnt.append(Acknowledged(p.place, known))
        self._divergence.report_repeated(p, ledger, standing, found, tail)
        position = _place(ledger, sequence)
        position.remembered = found.remembered
        run = ledger.at_sequence(sequence)
        if run is not None and run.sequence == sequence and says.end < position.target:
            # A run was announced behind a gap that is not filled yet, or not wholly.
            if not p.lease.identical:
                position.target = says.end
            else:
                p.require_predecessor_ended()
                position.missing = position.target - says.end
        ahead = ledger.after(sequence - 1)
        pushed = bool(ahead) and says.end > position.target
        if pushed:
            # Others' records are there: all that was announced goes behind them.
            position.target = says.end
        moved = rebased(ledger, position, identical=p.lease.identical)
        if pushed and ahead[0].sequence > sequence:
            moved = [Run(sequence, position.source, position.target), *(moved or ahead)]
        if moved:
            p.require_predecessor_ended()
            self._ledger.write([Entry(p.place, moved, shift=True)])
        self._started(p, position, ledger.after(sequence), known)

    def _moves(self, p: PartitionCopy) -> bool:
        """Whether an operator's decision has to be carried out."""
        return p.lease.move is not None and p.lease.move.id not in self._at(p).moves

    def _carry_out(self, p: PartitionCopy, sequence: int, end: int) -> None:
        """Go on where an operator has decided, once; ``end`` is the target's."""
        move = p.lease.move
        if move is None or not self._moves(p):
            return
        # Whoever copied before this lease may still write what it had read.
        p.require_predecessor_ended()
        assert p.place is not None  # noqa: S101 - set by locate
        # Of which epoch the record there is, nobody has said.
        mark = EpochMark(sequence, UNKNOWN_EPOCH, True, move.source, p.source_epoch)
        cut = Cut(p.place, Run(sequence, move.source, end), move.id)
        self._ledger.cut(cut, Epoch(p.place, mark))

    def _renumber(self, p: PartitionCopy, standing: Standing, known: Known) -> None:
        """Begin a new era at what is known; raises MustWait if another writer was quicker."""
        assert p.place is not None  # noqa: S101 - set by locate
        ledger = self._at(p)
        told = standing.says.producer
        epoch = max(ledger.eras.current.epoch, told[0] if told is not None else FIRST_EPOCH) + 1
        era = Era(epoch, known.sequence)
        self._ledger.write([], eras=[NewEra(p.place, era)], known=[Acknowledged(p.place, known)])
        if self._at(p).eras.current != era:
            raise MustWait(f"another writer has numbered the records of {p.target} anew")


def _place(ledger: PartitionLedger, sequence: int) -> Position:
    source, target = ledger.source_of(sequence), ledger.target_of(sequence)
    return Position(
        sequence, source, target, epoch=ledger.epochs.at(sequence), era=ledger.eras.current
    )
