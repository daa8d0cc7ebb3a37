"""Finds out, record by record where it must, which source records MM2's part of a target holds.

Pure: `explore` is a generator that asks for stretches of the two logs and is sent them, so that
whoever reads can ask for many partitions at once.

Two logs of one topic go in step for long: the difference between their offsets changes only where
the source has a gap (a transaction marker, a compacted record) or where MM2 wrote records again.
Where it is the same at two ends, and at probes between them, it is taken to be the same all the
way: only a gap and a repetition of the very same length between two probes would not be noticed.
(If MM2 wrote in transactions its own markers would often make up for the source's, so then that is
not taken for granted.) Where it differs, the place is looked for by bisection, near the log's end
first, because that is where consumers are. What is left when the probes are used up is a `Blur`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import starmap, zip_longest
from typing import NamedTuple, TypeVar

from heliograph.batch.log_slice import LogSlice
from heliograph.ledger.columns import Run
from heliograph.ledger.inheritance import Blur, Inheritance
from heliograph.takeover.alignment import Pair, Steps, contradicted, located, stretches

__all__ = ["Answer", "Asking", "ByTime", "History", "Limits", "Read", "Request", "Side", "ask",
           "explore"]  # fmt: skip


#: Enough to tell records that are alike by what follows them, as a rule.
_A_FEW = 64
#: The ledger keeps them in one record, and they are searched one by one.
_MOST_BLURS = 256


class Side(Enum):
    """Which of the two logs."""

    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True)
class Read:
    """Asks for a LogSlice from ``start`` to before ``end``, or of so many ``records`` at least.

    ``committed`` leaves out what the source's transactions aborted; on the target that is always
    left out.
    """

    side: Side
    start: int
    end: int | None = None
    committed: bool = False
    records: int = 1

    @property
    def most(self) -> int | None:
        """So many records are enough, if more come in one answer; None: all are wanted."""
        return max(self.records, _A_FEW) if self.end is None else None


@dataclass(frozen=True, slots=True)
class ByTime:
    """Asks for the first offset whose record has this timestamp or a later one, or None."""

    side: Side
    timestamp: int


Request = Read | ByTime
#: A LogSlice for every Read, an offset or None for every ByTime.
Answer = LogSlice | int | None
T = TypeVar("T")
#: Asks, is sent the answers, and returns what they mean.
Asking = Generator[Request, Answer, T]


class Limits(NamedTuple):
    """How much is read of one partition.

    Attributes:
        whole: stretches of so many target offsets are read whole if they are not in step.
        in_step: others, of so many.
        probes: places to look at besides, at most.
        depth: a stretch that goes in step is halved so often, and looked at in the middles.
    """

    whole: int = 2000
    in_step: int = 200
    probes: int = 40
    depth: int = 3


@dataclass(slots=True)
class History:
    """What is known of a target that ends at ``end``, of which ``following`` is the next record.

    ``pairs`` begin stretches that go in step, ordered by target; ``start`` is the log's. ``most``
    is the highest source offset that was seen on the target.
    """

    start: int
    end: int
    following: int
    pairs: list[Pair]
    blurs: list[Blur]
    most: int = -1

    def runs(self) -> list[Run]:
        """For the ledger: the sequence of a record is its target offset."""
        first = self.pairs[0].source if self.pairs else self.following
        # The first run begins where the log does, whatever is known of its first records.
        begin = [Run(self.start, first, self.start)] if self.start < self.end else []
        known = [Run(p.target, p.source, p.target) for p in self.pairs if p.target > self.start]
        return [*begin, *known, Run(self.end, self.following, self.end)]

    def runs_behind(self, sequence: int) -> list[Run]:
        """The same where Heliograph's own records come first; ``sequence`` is the next of those."""
        first = self.pairs[0].target if self.pairs else self.end
        less = first - sequence
        known = [Run(p.target - less, p.source, p.target) for p in self.pairs]
        return [*known, Run(self.end - less, self.following, self.end)]

    def inheritance(self) -> Inheritance:
        """For the ledger: what the runs do not say."""
        blurs = sorted(self.blurs, key=lambda b: b.first_target)
        while len(blurs) > _MOST_BLURS:
            # Two and two together: less exact, and as safe.
            pairs = zip_longest(blurs[::2], blurs[1::2])
            blurs = [
                a if b is None
                else replace(a, last_source=b.last_source, last_target=b.last_target)
                for a, b in pairs
            ]  # fmt: skip
        return Inheritance(self.end, tuple(blurs))


def ask(request: Read) -> Asking[LogSlice]:
    """The slice that was asked for."""
    answer = yield request
    assert isinstance(answer, LogSlice)  # noqa: S101 - that is what was asked for
    return answer


def explore(
    start: int,
    end: int,
    source_start: int,
    following: int,
    tail: Steps | None,
    limits: Limits = Limits(),  # noqa: B008 - a value that nobody can change
    ours: Pair | None = None,
) -> Asking[History]:
    """Explores what lies before the ``tail``, of which the stretches are known up to the end.

    Args:
        start: of the target's log, with ``end``; behind ``ours``, if there is such a record.
        end: of the target's log.
        source_start: of the source's log.
        following: the next source offset to mirror.
        tail: how the logs go on from the first record that is known; None if nothing is.
        limits: how much may be read.
        ours: the last record that Heliograph mirrored itself. Only what MM2 mirrored behind it is
            told; a record before it that MM2 mirrored again is translated to Heliograph's copy.
    """
    history = History(start, end, following, [], [])
    # What stands before all records: nothing that the source still has is further on.
    edge = Pair(source_start - 1 if ours is None else ours.source, start - 1)
    least = 0 if ours is None else ours.source + 1
    last = Pair(following, end)
    if tail is None:
        if start < end:
            history.blurs.append(_blur(edge, last))
        return history
    tail = tail.ending(last)
    history.blurs += starmap(_blur, tail.holes)
    history.most = tail.most.source
    right = tail.pairs[0]
    if right.target > start:
        explorer = _Explorer(source_start, limits, history.blurs, least)
        history.pairs += yield from explorer.before(edge, right)
        explorer.doubt()
        history.most = max(history.most, explorer.most)
    history.pairs += tail.pairs
    if ours is not None:
        _behind(history, least)
    _join(history)
    return history


class _Found(NamedTuple):
    """A record of the target, at or behind a place, and where it is on the source.

    Attributes:
        pair: None if it was not found.
        otherwise: it is not where it would be if the two logs went on in step.
    """

    pair: Pair | None
    otherwise: bool


class _Explorer:
    def __init__(self, source_start: int, limits: Limits, blurs: list[Blur], least: int) -> None:
        self._source_start = source_start
        self._least = least
        self._limits = limits
        self._probes = limits.probes
        self._blurs = blurs
        #: Stretches that are taken to be in step.
        self._assumed: list[tuple[Pair, Pair]] = []
        self._gaps = self._markers = False
        self.most = -1

    def doubt(self) -> None:
        """Take back what was assumed, if markers on both sides may have made up for each other."""
        if self._gaps and self._markers:
            for left, right in self._assumed:
                self._unknown(left, right)

    def before(self, edge: Pair, right: Pair) -> Asking[list[Pair]]:
        """The stretches from the start of the target's log to ``right``."""
        # Behind Heliograph's last record MM2 goes on with the next one, as a rule.
        shifts = [edge.shift, right.shift] if self._least else [right.shift]
        left = (yield from self._look(edge.target + 1, shifts)).pair
        if left is None:
            # The target may go further back than the source.
            left = yield from self._look_for(max(self._source_start, self._least))
        if left is None or not edge.target < left.target < right.target:
            return self._unknown(edge, right)[:0]
        if left.target > edge.target + 1:
            self._unknown(edge, left)
        return (yield from self._between(left, right, self._limits.depth))

    def _between(self, left: Pair, right: Pair, depth: int) -> Asking[list[Pair]]:
        """The stretches from ``left`` to before ``right``."""
        self.most = max(self.most, left.source)
        length = right.target - left.target
        in_step = left.shift == right.shift
        if length <= 1:
            return [left]
        if length <= (self._limits.in_step if in_step else self._limits.whole):
            return (yield from self._whole(left, right))
        if in_step and not depth:
            return self._assume(left, right)
        if self._probes <= 0:
            return self._assume(left, right) if in_step else self._unknown(left, right)
        middle, otherwise = yield from self._look(
            left.target + length // 2, [right.shift, left.shift], _reach(left, right)
        )
        if middle is None or not left.target < middle.target < right.target:
            certain = in_step and not otherwise
            return self._assume(left, right) if certain else self._unknown(left, right)
        # The right half first: that is where probes are worth most.
        depth = max(depth - 1, 0)
        later = yield from self._between(middle, right, depth)
        earlier = yield from self._between(left, middle, depth)
        return earlier + later

    def _assume(self, left: Pair, right: Pair) -> list[Pair]:
        self._assumed.append((left, right))
        return [left]

    def _unknown(self, left: Pair, right: Pair) -> list[Pair]:
        self._blurs.append(_blur(left, right))
        return [left]

    def _whole(self, left: Pair, right: Pair) -> Asking[list[Pair]]:
        there = yield from self._slice(Read(Side.TARGET, left.target, right.target + 1))
        lowest, highest = _reach(left, right)
        lowest = max(lowest, self._source_start)
        for committed in (False, True):
            here = yield from self._slice(Read(Side.SOURCE, lowest, highest, committed))
            found = stretches(here, there, left, right, self._least)
            if found is not None:
                self._blurs += starmap(_blur, found.holes)
                self.most = max(self.most, found.most.source)
                return found.pairs
            if not here.transactional:
                break
        return self._unknown(left, right)

    def _look(
        self, target: int, shifts: Sequence[int], reach: tuple[int, int] | None = None
    ) -> Asking[_Found]:
        """Where a record at or right behind a target offset is on the source.

        Args:
            target: the offset.
            shifts: where it may be, if the logs go in step.
            reach: between which source offsets it is in any case.
        """
        self._probes -= 1
        there = yield from self._slice(Read(Side.TARGET, target))
        if not len(there):
            return _Found(None, otherwise=False)
        otherwise = False
        for shift in dict.fromkeys(shifts):
            start = max(there.offsets[0] + shift, self._source_start)
            here = yield from self._slice(Read(Side.SOURCE, start))
            pair = located(here, there, shift)
            if pair is not None:
                return _Found(pair, otherwise=False)
            otherwise = otherwise or contradicted(here, there, shift)
        if there.untimed:
            return _Found(None, otherwise)
        pair = None
        offset = yield ByTime(Side.SOURCE, there.time_at(0))
        if isinstance(offset, int):
            pair = located((yield from self._slice(Read(Side.SOURCE, offset))), there)
        if pair is None and reach is not None:
            pair = yield from self._search(there, *reach)
        return _Found(pair, otherwise)

    def _search(self, there: LogSlice, low: int, high: int) -> Asking[Pair | None]:
        """By bisection on the timestamps, where brokers are misled by those of markers."""
        wanted = there.time_at(0)
        low = max(low, self._source_start)
        while low <= high and self._probes > 0:
            self._probes -= 1
            middle = (low + high) // 2
            here = yield from self._slice(Read(Side.SOURCE, middle))
            pair = located(here, there)
            if pair is not None:
                return pair
            if not len(here) or here.time_at(0) >= wanted:
                high = middle - 1
            elif here.time_at(len(here) - 1) <= wanted:
                low = here.offsets[-1] + 1
            else:
                return None
        return None

    def _look_for(self, source: int) -> Asking[Pair | None]:
        """Where a record at or right behind a source offset is on the target."""
        self._probes -= 1
        here = yield from self._slice(Read(Side.SOURCE, source))
        if not len(here) or here.untimed:
            return None
        offset = yield ByTime(Side.TARGET, here.time_at(0))
        if not isinstance(offset, int):
            return None
        there = yield from self._slice(Read(Side.TARGET, offset))
        return located(here, there)

    def _slice(self, request: Read) -> Asking[LogSlice]:
        answer = yield from ask(request)
        if request.side is Side.TARGET:
            self._markers = self._markers or answer.transactional
        else:
            holes = len(answer) > 0 and answer.offsets[-1] - answer.offsets[0] >= len(answer)
            self._gaps = self._gaps or answer.transactional or holes
        return answer


def _reach(left: Pair, right: Pair) -> tuple[int, int]:
    """Source offsets below and above all that MM2 may have copied between two records."""
    # It may have gone further than both, and begun again before both.
    length = right.target - left.target
    return min(left.source, right.source) - length, max(left.source, right.source) + length


def _blur(first: Pair, last: Pair) -> Blur:
    return Blur(first.source, first.target, last.source, last.target)


def _behind(history: History, least: int) -> None:
    """Leave out the records before a source offset, where `stretches` begins a stretch."""
    kept: list[Pair] = []
    for pair, following in zip_longest(history.pairs, history.pairs[1:]):
        if pair.source >= least:
            kept.append(pair)
            continue
        until, place = history.end if following is None else following.target, least - pair.shift
        # If it is taken to be in step with the next one, nobody has looked at what is between.
        within = following is not None and following.shift == pair.shift and place < until
        if kept:
            # The stretch before must not go on here.
            end = place if within else until
            history.blurs.append(Blur(least - 1, pair.target - 1, least, end))
        if within:
            kept.append(Pair(least, place))
    history.pairs = kept
    # What Heliograph mirrored itself is found there, whatever MM2 mirrored again.
    history.blurs = [replace(b, first_source=max(b.first_source, least - 1)) for b in history.blurs]


def _join(history: History) -> None:
    """One pair for each stretch, and none that begins behind a later one on the source.

    Where MM2 wrote records again, the last copy counts: all that follows on the source follows it.
    What was read of earlier copies is then only good for not going too far, on the way back.
    """
    behind_blurs = {blur.last_target for blur in history.blurs}
    joined: list[Pair] = []
    for pair in history.pairs:
        if not joined or pair.shift != joined[-1].shift or pair.target in behind_blurs:
            joined.append(pair)
    kept: list[Pair] = []
    for index in reversed(range(len(joined))):
        pair = joined[index]
        if not kept or pair.source <= kept[-1].source:
            kept.append(pair)
            continue
        until = joined[index + 1].target
        inside = [b.first_target for b in history.blurs if pair.target <= b.first_target < until]
        until = min(inside, default=until - 1) + 1
        history.blurs.append(Blur(pair.source - 1, pair.target - 1, pair.source, until))
    history.pairs = kept[::-1]
