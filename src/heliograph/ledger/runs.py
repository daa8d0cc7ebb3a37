"""Runs: stretches in which target offset minus source offset is constant. Pure values.

A partition's ledger is a list of runs ordered by sequence, where ``sequence`` counts the records
mirrored to the partition since its first one (not wrapped). Everything is answered from it: where
to resume, where a source offset is on the target, and back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from heliograph.ledger.columns import Run, RunColumns
from heliograph.ledger.epochs import UNKNOWN_EPOCH, EpochTrail
from heliograph.ledger.inheritance import NOTHING_INHERITED, Inheritance
from heliograph.ledger.known import Eras, Known

__all__ = ["PartitionLedger", "Run"]


class PartitionLedger:
    """The runs of one source partition in one target partition (both identified by topic id).

    Invariant: sequences strictly increase; the first entry written for a sequence decides the
    source offset, whoever wrote it, so that writers that start at the same time agree; a later
    entry may only move its target offset (`add`: further on), a correction also its source offset.
    Source offsets grow with the sequence, but for runs that `cut` entered: those lead back to where
    the source lost records that were mirrored, and goes on with others.
    """

    __slots__ = (
        "_cuts", "_first", "_lasting", "_leaders", "_runs", "epochs", "eras", "inherited", "known",
        "moves",
    )  # fmt: skip

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs = RunColumns()
        #: Records before a sequence that came from a source offset or behind it: lost there.
        self._cuts: dict[int, int] = {}
        #: The latest leader that a cut at a sequence tells of.
        self._leaders: dict[int, int] = {}
        #: The lowest sequence that anything was said of.
        self._first: int | None = None
        #: What `_across` works with; None when runs have changed since.
        self._lasting: RunColumns | None = None
        #: Of which epoch of the source's leaders the records are.
        self.epochs = EpochTrail()
        #: What others wrote to the target before; runs tell where that came from, too.
        self.inherited: Inheritance = NOTHING_INHERITED
        #: What was acknowledged, as it was last written down.
        self.known: Known | None = None
        #: How sequences are written on the wire.
        self.eras = Eras()
        #: The ids of operators' decisions that were carried out.
        self.moves: frozenset[str] = frozenset()
        for run in runs:
            self.add(run)

    def copy(self) -> PartitionLedger:
        """An equal ledger that changes on its own."""
        made = PartitionLedger()
        made._runs = self._runs.copy()
        made._cuts = dict(self._cuts)
        made._leaders = dict(self._leaders)
        made._first = self._first
        made.epochs = self.epochs.copy()
        made.inherited = self.inherited
        made.known = self.known
        made.eras = self.eras.copy()
        made.moves = self.moves
        return made

    @property
    def runs(self) -> Sequence[Run]:
        """All runs, by sequence; a view that sees later changes."""
        return self._runs

    @property
    def headless(self) -> bool:
        """Whether the ledger has lost how the partition was begun: its runs begin somewhere later.

        Not if what was before was pruned, or came from MM2, or was filler.
        """
        if self._first in {None, 0} or self.inherited.end:
            return False
        first = self._runs[0]
        return not first.sequence == first.source == first.target

    # -- entering -----------------------------------------------------------------------------

    def add(self, run: Run) -> Run:
        """Enter a run; returns the one that counts for its sequence.

        Of two targets the higher counts: foreign records push ours further on, so the lower one is
        what was thought before, repeated by a writer that does not know better.
        """
        runs, self._lasting = self._runs, None
        self._begins_at(run.sequence)
        if not runs or run.sequence > runs.sequences[-1]:
            runs.append(run)
            return run
        index = bisect_left(runs.sequences, run.sequence)
        known = runs[index]
        if known.sequence != run.sequence:
            runs.replace(index, index, [run])
            return run
        if known.source == run.source and known.target < run.target:
            runs.replace(index, index + 1, [run])
            return run
        return known

    def correct(self, run: Run) -> None:
        """Enter what was learnt later of a run: its target is another, or it begins further on.

        The latter when nothing is left where it was said to begin: holes at the start of a source,
        or compaction before the announced record was written. What was announced behind it counted
        records that are gone, so it goes too. A target may also turn out to be lower than was
        announced: a gap before the run was to be filled, and is not.
        """
        runs, self._lasting = self._runs, None
        index = bisect_left(runs.sequences, run.sequence)
        if index < len(runs):
            known = runs[index]
            if known.sequence == run.sequence and known.source <= run.source:
                end = index + 1 if known.source == run.source else len(runs)
                runs.replace(index, end, [run])
                return
        self.add(run)

    def cut(self, run: Run, leader: int = UNKNOWN_EPOCH) -> None:
        """The source lost what was mirrored from ``run.source`` on, and goes on there with others.

        The record with ``run.sequence`` is the first that is mirrored after that. What was
        announced for it and behind it is gone. Of several cuts at a sequence that tell of one
        ``leader`` the lowest source counts, whoever wrote it and however often.

        A later leader may lack what was read since an earlier cut, even if there was no record
        among it, or what was only announced. So its cut counts, too, unless it leads further on.
        """
        lowest = self._cuts.get(run.sequence, run.source + 1)
        later = leader > self._leaders.get(run.sequence, UNKNOWN_EPOCH)
        if later:
            self._leaders[run.sequence] = leader
        known = self.at_sequence(run.sequence)
        no_further = known is None or run.source <= self.source_of(run.sequence)
        if lowest > run.source or (later and no_further):
            self._go_on_at(run)
            self._cuts[run.sequence] = min(lowest, run.source)

    def move(self, run: Run, move: str) -> None:
        """The record with ``run.sequence`` is the one at ``run.source``: an operator decided so.

        Or MM2 mirrored that one in our place, whatever was announced for the sequence.
        Records from there on that were mirrored before are repeated behind the old copies; those
        that are skipped have none. Of several moves at a sequence the last counts; each is carried
        out once.
        """
        if move not in self.moves:
            self.moves |= {move}
            self._begins_at(run.sequence)
            self._go_on_at(run)

    def _go_on_at(self, run: Run) -> None:
        self._cuts[run.sequence] = run.source
        index = bisect_left(self._runs.sequences, run.sequence)
        self._runs.replace(index, len(self._runs), [run])
        self._lasting = None

    def replace(self, start: int, until: int | None, runs: Sequence[Run]) -> None:
        """All that is known of the sequences from ``start`` to before ``until`` (None: on) is this.

        What re-packing wrote: the outcome of every entry before it.
        """
        known, self._lasting = self._runs, None
        self._begins_at(start)
        begin = bisect_left(known.sequences, start)
        end = len(known) if until is None else bisect_left(known.sequences, until)
        known.replace(begin, end, runs)

    def _begins_at(self, sequence: int) -> None:
        self._first = sequence if self._first is None else min(self._first, sequence)

    # -- pruning ------------------------------------------------------------------------------

    def prunable(self, log_start: int) -> int:
        """How many runs lie wholly below ``log_start`` of the target.

        Never the run that holds ``log_start``, nor the newest: resume and translation need them.
        """
        targets = self._runs.targets
        count = bisect_right(targets, log_start) - 1
        # Targets that do not grow are about to be corrected: not the moment to judge by them.
        return count if log_start > 0 < count and max(targets[: count + 1]) <= log_start else 0

    def prune(self, log_start: int) -> int:
        """Forget the runs that lie wholly below ``log_start``; returns how many.

        Whatever is asked of offsets from ``log_start`` on, the answer stays the same.
        """
        count = self.prunable(log_start)
        self._runs.replace(0, count, ())
        self._lasting = None
        return count

    # -- by sequence --------------------------------------------------------------------------

    def at_sequence(self, sequence: int) -> Run | None:
        """The run that holds ``sequence``, or would if records follow one another without a gap."""
        index = bisect_right(self._runs.sequences, sequence)
        return self._runs[index - 1] if index else None

    def count_before(self, sequence: int) -> int:
        """How many runs begin before ``sequence``."""
        return bisect_left(self._runs.sequences, sequence)

    def after(self, sequence: int) -> list[Run]:
        """The runs that begin behind ``sequence``."""
        return self._runs[bisect_right(self._runs.sequences, sequence) :]

    def sequence_below(self, target: int) -> int:
        """The sequence of the first record of ours at or behind a target offset.

        As far as the runs tell: the last one goes on for ever. KeyError if there are none.
        """
        run = self.at_target(target)
        sequence = run.sequence + max(target - run.target, 0)
        following = bisect_right(self._runs.sequences, run.sequence)
        if following < len(self._runs):
            sequence = min(sequence, self._runs.sequences[following])
        return sequence

    def following(self, epoch: int, last_sequence: int, target_end: int) -> int | None:
        """The sequence behind the last one that a broker remembers, in a log that ends there.

        None if that is not where copying goes on: the epoch is not the current era's, or the
        sequence is lower than what was acknowledged. A request that came late leaves such a state.
        """
        sequence = self.remembered(epoch, last_sequence, target_end)
        stale = self.known is not None and sequence is not None and sequence < self.known.sequence
        return None if stale else sequence

    def remembered(
        self, epoch: int, last_sequence: int, target_end: int, at_least: int = 0
    ) -> int | None:
        """The sequence behind the last one that a broker remembers; None if of another era.

        The count that is nearest to what the runs say of a log that ends at ``target_end``, and to
        ``at_least``.
        """
        era = self.eras.current
        if last_sequence < 0 or epoch != era.epoch:
            return None
        estimate = max(self.sequence_below(target_end), era.sequence, at_least)
        return era.unwire(last_sequence, estimate) + 1

    def source_of(self, sequence: int) -> int:
        """Source offset of the record with that sequence, or where to look for it next."""
        run = self.at_sequence(sequence)
        if run is None:
            raise KeyError(sequence)
        return run.source + sequence - run.sequence

    def target_of(self, sequence: int) -> int:
        """Target offset of the record with that sequence."""
        run = self.at_sequence(sequence)
        if run is None:
            raise KeyError(sequence)
        return run.target + sequence - run.sequence

    # -- by offset ----------------------------------------------------------------------------

    def at_target(self, target: int) -> Run:
        """The last run that begins at or before a target offset, else the first; KeyError if none.

        Foreign records behind a run count as its own here; `to_source` tells them apart.
        """
        if not self._runs:
            raise KeyError(target)
        return self._runs[max(bisect_right(self._runs.targets, target) - 1, 0)]

    def position(self, target_end: int) -> int:
        """The next source offset to mirror when the target's log ends at ``target_end``."""
        index = bisect_right(self._runs.targets, target_end)
        # A run announced but not begun starts exactly at the end: what is next is its source.
        run = self._runs[max(index - 1, 0)]
        position = run.source + max(target_end - run.target, 0)
        # Foreign records between two runs are nobody's progress.
        return min(position, self._runs[index].source) if index < len(self._runs) else position

    def to_target(self, source: int, end: int | None = None) -> int:
        """Where a consumer that would read ``source`` next on the source goes on on the target.

        A mirrored record: where it is. An offset in a gap (transaction marker, aborted or compacted
        record): where the next mirrored record behind the gap is. One that the source lost and has
        written anew: where the new record is. Before the first run: where the first run begins (of
        a pruned ledger, at or before the target's log start). Beyond what is mirrored: with
        ``end``, the sequence of the next record to be mirrored, the target offset which that record
        will get; without it, as if the last run went on for ever.

        Raises KeyError if nothing was ever mirrored.
        """
        runs = self._lasting_runs()
        answer = self.inherited.to_target(source)
        if answer is None:
            answer = self._across(runs.sources, runs.targets, source)
        return answer if end is None else min(answer, self.target_of(end))

    def to_source(self, target: int, end: int | None = None) -> int:
        """Where a consumer that would read ``target`` next on the target goes on on the source.

        A mirrored record: where it came from. Anything else on the target (foreign records, markers
        and fillers that keep offsets identical, records that the source has lost): where the next
        mirrored record behind it came from. Before the first run: where the first run begins.
        Beyond what is mirrored: with ``end``, the sequence of the next record to be mirrored, the
        source offset to look for that record, which foreign records at the target's end do not
        change; without it, as if the last run went on for ever.

        Raises KeyError if nothing was ever mirrored.
        """
        runs = self._lasting_runs()
        answer = self.inherited.to_source(target)
        if answer is None:
            answer = self._across(runs.targets, runs.sources, target)
        return answer if end is None else min(answer, self.source_of(end))

    def not_ours_from(self, target: int, before: int) -> int:
        """The first target offset from ``target`` on without a record of ours.

        Of ours are the records before the sequence ``before``, lost ones included.
        """
        runs = self._runs
        index = max(bisect_right(runs.targets, target) - 1, 0)
        while index < len(runs):
            run = runs[index]
            index += 1
            until = min(runs.sequences[index], before) if index < len(runs) else before
            if target < run.target:
                break
            target = max(target, run.target + until - run.sequence)
        return target

    def is_lost(self, target: int) -> bool:
        """Whether a mirrored record is at a target offset that the source has lost since."""
        index = bisect_right(self._runs.targets, target) - 1
        if not self._cuts or index < 0:
            return False
        run = self._runs[index]
        sequence = run.sequence + target - run.target
        last = index + 1 == len(self._runs)
        mirrored = last or sequence < self._runs.sequences[index + 1]
        return mirrored and self.to_target(self.source_of(sequence)) != target

    def sequence_of(self, source: int) -> int:
        """The sequence of the first mirrored record at or behind ``source`` that still counts.

        The sequence of the first record if that is behind; KeyError if nothing was ever mirrored.
        """
        target = self.to_target(source)
        run = self.at_target(target)
        return run.sequence + max(target - run.target, 0)

    def lasting(self, source: int, sequence: int) -> list[range]:
        """The records before ``sequence``, from ``source`` on, that the source has not lost.

        Their sequences; what was lost in between is left out.
        """
        if not self._cuts:
            first = max(self.sequence_of(source), self._runs[0].sequence)
            return [range(first, sequence)] if first < sequence else []
        found = []
        for run, count in self._stretches():
            first = run.sequence + max(source - run.source, 0)
            until = min(run.sequence + count, sequence)
            if first < until:
                found.append(range(first, until))
        return found

    def last_before(self, sequence: int) -> int | None:
        """The last record before ``sequence`` that the source has not lost; None: there is none."""
        if sequence not in self._cuts:
            return sequence - 1 if sequence > self._runs[0].sequence else None
        stretches = self.lasting(0, sequence)
        return stretches[-1][-1] if stretches else None

    def _lasting_runs(self) -> RunColumns:
        """The runs without what the source has lost; their sequences count what is left."""
        if self._lasting is None:
            self._lasting = self._without_lost() if self._cuts else self._runs
        return self._lasting

    def _without_lost(self) -> RunColumns:
        kept = self._stretches()
        lasting, sequence = RunColumns(), kept[0][0].sequence
        for run, count in kept:
            lasting.append(run._replace(sequence=sequence))
            sequence += count
        return lasting

    def _stretches(self) -> list[tuple[Run, int]]:
        """The runs without what the source has lost, and how many records each has left."""
        ends = [*self._runs.sequences[1:], 1 << 62]
        kept: list[tuple[Run, int]] = []
        cuts = sorted(self._cuts.items())
        for run, end in zip(self._runs, ends, strict=True):
            while cuts and cuts[0][0] <= run.sequence:
                _, source = cuts.pop(0)
                while kept and kept[-1][0].source >= source:
                    kept.pop()
                kept = [(known, min(count, source - known.source)) for known, count in kept]
            kept.append((run, end - run.sequence))
        return kept

    def _across(self, near: Sequence[int], far: Sequence[int], offset: int) -> int:
        """``offset`` among the offsets of one side, as an offset of the other."""
        sequences = self._lasting_runs().sequences
        if not sequences:
            raise KeyError(offset)
        following = bisect_right(near, offset)
        if following == 0:
            return far[0]
        index = following - 1
        beyond = offset - near[index]
        if following < len(sequences) and beyond >= sequences[following] - sequences[index]:
            return far[following]
        return far[index] + beyond
