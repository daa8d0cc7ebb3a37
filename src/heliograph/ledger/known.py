"""What is known of a target partition: how far it was acknowledged, and how records are numbered.

Pure values. The driver and executors read them from the ledger; executors write them.

A broker compares sequences only while it remembers the signature, and it forgets the signature
about a day after the timestamps of the *records*. What was acknowledged is therefore written down
(`Known`). Nothing that contradicts it is trusted: no remembered sequence, no log end, no scan.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from heliograph.batch.header import SEQUENCE_MODULUS

__all__ = ["FIRST_ERA", "Era", "Eras", "Known", "unwrap"]


class Known(NamedTuple):
    """All records before ``sequence`` are on the target, and its log is known up to ``target``.

    Attributes:
        sequence: of the next record to mirror.
        source: behind the source offset of the record before it.
        behind: behind the target offset of the record before it.
        target: everything of ours below this offset is counted in ``sequence``.
        epoch: of the target's leader that acknowledged it, or of an earlier one (-1: unknown).
    """

    sequence: int
    source: int
    behind: int
    target: int
    epoch: int


class Era(NamedTuple):
    """From ``sequence`` on, records carry producer epoch ``epoch`` and are counted from 0 again.

    A new era begins where the broker remembers a sequence that is not ours to go on from. Brokers
    take a higher epoch if its first sequence is 0, and refuse lower epochs from then on.
    """

    epoch: int
    sequence: int

    def wire(self, sequence: int) -> int:
        """The base sequence of a batch that begins with the record ``sequence``."""
        return (sequence - self.sequence) % SEQUENCE_MODULUS

    def unwire(self, wire: int, estimate: int) -> int:
        """The sequence that `wire` was made of: of all that are possible, next to ``estimate``."""
        return self.sequence + unwrap(wire, estimate - self.sequence, SEQUENCE_MODULUS)


FIRST_ERA = Era(0, 0)


class Eras:
    """The eras of one partition's ledger, by epoch. Of two with one epoch the first counts."""

    __slots__ = ("_eras",)

    def __init__(self) -> None:
        self._eras: list[Era] = []

    def __iter__(self) -> Iterator[Era]:
        return iter(self._eras or [FIRST_ERA])

    def copy(self) -> Eras:
        """Equal eras that change on their own."""
        made = Eras()
        made._eras = list(self._eras)
        return made

    def enter(self, era: Era) -> None:
        """Take in an era, in the order of the ledger."""
        index = bisect_right(self._eras, era.epoch, key=_epoch)
        if not index or self._eras[index - 1].epoch != era.epoch:
            self._eras.insert(index, era)

    @property
    def current(self) -> Era:
        """What the next batch is written under."""
        return self._eras[-1] if self._eras else FIRST_ERA

    def of(self, epoch: int) -> Era | None:
        """The era with that producer epoch, None if this partition never had it."""
        return next((era for era in self if era.epoch == epoch), None)


def _epoch(era: Era) -> int:
    return era.epoch


def unwrap(wrapped: int, estimate: int, modulus: int) -> int:
    """The count congruent to ``wrapped`` that is nearest to ``estimate``, never negative."""
    half = modulus // 2
    count = estimate + (wrapped - estimate + half) % modulus - half
    return count if count >= 0 else count + modulus
