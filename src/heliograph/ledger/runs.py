"""Runs: stretches in which target offset minus source offset is constant. Pure values.

A partition's ledger is a list of runs ordered by sequence, where ``sequence`` counts the records
mirrored to the partition since its first one (not wrapped). Everything is answered from it: where
to resume, where a source offset is on the target, and back.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple


class Run(NamedTuple):
    """From here on, until the next run: consecutive sequences, source and target offsets."""

    sequence: int
    source: int
    target: int


class PartitionLedger:
    """The runs of one source partition in one target partition (both identified by topic id).

    Invariant: sequences strictly increase; the first entry written for a sequence decides the
    source offset, whoever wrote it, so that writers that start at the same time agree; a later
    entry may only correct its target offset (a foreign write shifted it).
    """

    def __init__(self, runs: Sequence[Run] = ()) -> None:
        self._runs: list[Run] = []
        for run in runs:
            self.add(run)

    @property
    def runs(self) -> Sequence[Run]:
        """All runs, by sequence."""
        return self._runs

    def add(self, run: Run) -> Run:
        """Enter a run; returns the one that counts for its sequence."""
        index = bisect_right(self._runs, run.sequence, key=_by_sequence)
        if index and self._runs[index - 1].sequence == run.sequence:
            known = self._runs[index - 1]
            if known.source == run.source:
                self._runs[index - 1] = run
                return run
            return known
        insort(self._runs, run, key=_by_sequence)
        return run

    def correct(self, run: Run) -> None:
        """Enter what was learnt later of a run: its target moved, or it begins further on.

        The latter when nothing is left where it was said to begin: holes at the start of a source,
        or compaction before the announced record was written. What was announced behind it counted
        records that are gone, so it goes too.
        """
        index = bisect_right(self._runs, run.sequence, key=_by_sequence)
        known = self._runs[index - 1] if index else None
        if known is not None and known.sequence == run.sequence and known.source < run.source:
            self._runs[index - 1 :] = [run]
        else:
            self.add(run)

    def at_sequence(self, sequence: int) -> Run | None:
        """The run that holds ``sequence``, or would if records follow one another without a gap."""
        index = bisect_right(self._runs, sequence, key=_by_sequence)
        return self._runs[index - 1] if index else None

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

    def position(self, target_end: int) -> int:
        """The next source offset to mirror when the target's log ends at ``target_end``."""
        index = bisect_right(self._runs, target_end, key=_by_target)
        # A run announced but not begun starts exactly at the end: what is next is its source.
        run = self._runs[max(index - 1, 0)]
        position = run.source + max(target_end - run.target, 0)
        # Foreign records between two runs are nobody's progress.
        return min(position, self._runs[index].source) if index < len(self._runs) else position


def _by_sequence(run: Run) -> int:
    return run.sequence


def _by_target(run: Run) -> int:
    return run.target


def unwrap(wrapped: int, estimate: int, modulus: int) -> int:
    """The count congruent to ``wrapped`` that is nearest to ``estimate``, never negative."""
    half = modulus // 2
    count = estimate + (wrapped - estimate + half) % modulus - half
    return count if count >= 0 else count + modulus
