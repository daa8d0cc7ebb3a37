"""Many runs in little memory: three arrays of 64-bit numbers, 24 bytes a run. Pure values.

A million runs as tuples in a list take about 200 MB, in every executor.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import NamedTuple, overload


class Run(NamedTuple):
    """From here on, until the next run: consecutive sequences, source and target offsets."""

    sequence: int
    source: int
    target: int


class RunColumns(Sequence[Run]):
    """Runs ordered by sequence. Its owner changes it; to everybody else it is a sequence of runs.

    The columns are there to be searched (``bisect``), not to be changed.
    """

    __slots__ = ("sequences", "sources", "targets")

    def __init__(self) -> None:
        self.sequences = array("q")
        self.sources = array("q")
        self.targets = array("q")

    def __len__(self) -> int:
        return len(self.sequences)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> list[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | list[Run]:
        if isinstance(index, slice):
            columns = (self.sequences[index], self.sources[index], self.targets[index])
            return list(starmap(Run, zip(*columns, strict=True)))
        return Run(self.sequences[index], self.sources[index], self.targets[index])

    def __iter__(self) -> Iterator[Run]:
        return starmap(Run, zip(self.sequences, self.sources, self.targets, strict=True))

    def __repr__(self) -> str:
        return f"RunColumns({list(self)})"

    def copy(self) -> RunColumns:
        """Equal runs that change on their own."""
        made = RunColumns()
        made.sequences, made.sources = self.sequences[:], self.sources[:]
        made.targets = self.targets[:]
        return made

    def append(self, run: Run) -> None:
        """Add a run at the end: the usual case, and the quick one."""
        self.sequences.append(run.sequence)
        self.sources.append(run.source)
        self.targets.append(run.target)

    def replace(self, begin: int, end: int, runs: Sequence[Run]) -> None:
        """Put ``runs`` in the place of those from index ``begin`` to before ``end``."""
        self.sequences[begin:end] = array("q", [run.sequence for run in runs])
        self.sources[begin:end] = array("q", [run.source for run in runs])
        self.targets[begin:end] = array("q", [run.target for run in runs])
