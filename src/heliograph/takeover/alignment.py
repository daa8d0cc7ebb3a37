"""Which records of a source a stretch of a target holds, when MM2 wrote it. Pure.

MM2 copies record after record. It begins again further back when it is restarted: behind a position
that it had stored, so never behind one that it stored later. Its producer may send a batch again
that was written already; both have the same CRC. Records may be gone from the source since
(compaction, retention). Nothing else makes two logs of one topic differ.

So a reading of the target is a walk over the source's records: each record of the target is the
next one of the source, or, at the first record of a batch, one further back. There may be several
readings, where records are equal to the last bit; what they do not agree on is not known.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from heliograph.batch.log_slice import LogSlice

__all__ = ["Ambiguous", "OtherRecords", "Pair", "Steps", "Unproven", "contradicted", "found_on",
           "last_mirrored", "located", "stretches"]  # fmt: skip

#: Of the readings of one target. More are not worth following: the records are all alike.
_MOST_READINGS = 64
#: Whoever asks where the records at an offset came from does not want to know of ones far behind.
_NEAR = 100
#: A producer that sends a batch again has at most so many in flight.
_BATCHES_IN_FLIGHT = 5


class Pair(NamedTuple):
    """The record at source offset ``source`` is at target offset ``target``."""

    source: int
    target: int

    @property
    def shift(self) -> int:
        """By how much the source's offset is larger."""
        return self.source - self.target


class Unproven(Exception):
    """The two logs do not say how far the target goes; the text says why, in plain English."""


class Ambiguous(Unproven):
    """Nothing contradicts what is known, but records that are alike leave more than one answer."""


class OtherRecords(Unproven):
    """What MM2 has written down is about other records than the two logs hold now."""


class _Reading(NamedTuple):
    """One way to read the target so far.

    Attributes:
        at: index of the source record that was read last; -1 before the first.
        gone: how many records were read behind it that the source does not have any more.
        most: the highest ``at`` so far.
    """

    at: int
    gone: int
    most: int


@dataclass(slots=True)
class _Logs:
    """Both sides as numbers.

    Attributes:
        index: the source records of each content.
        floor: the source offset that index -1 stands for.
        restart: MM2 never began again behind this source record.
    """

    source: LogSlice
    target: LogSlice
    here: Sequence[int]
    there: Sequence[int]
    index: dict[int, list[int]]
    floor: int
    restart: int

    @classmethod
    def of(cls, source: LogSlice, target: LogSlice) -> _Logs:
        timed = not (source.untimed or target.untimed)
        here, there = source.contents(timed=timed), target.contents(timed=timed)
        index: dict[int, list[int]] = {}
        for at, content in enumerate(here):
            index.setdefault(content, []).append(at)
        return cls(source, target, here, there, index, source.start - 1, len(here))

    def offset(self, at: int) -> int:
        return self.source.offsets[at] if at >= 0 else self.floor

    def earliest(self, targets: Sequence[int]) -> int:
        return min(self.target.time_at(t) for t in targets)

    def room(self, at: int) -> int:
        """How many offsets between a source record and the next one have no record (any more)."""
        offsets = self.source.offsets
        following = offsets[at + 1] if at + 1 < len(offsets) else self.source.end
        return following - self.offset(at) - 1


def last_mirrored(
    source: LogSlice,
    target: LogSlice,
    anchor: Pair | None,
    stored: int | None,
    *,
    whole: bool,
) -> int:
    """The source offset up to which the target holds everything: that of the last record on it.

    Args:
        source: from before the anchor on, with as many records behind it as the target has.
        target: from the anchor on, to the end of the log.
        anchor: a pair that is known; without one, the first records are looked for.
        stored: MM2's stored position, the last offset that it knew to be mirrored, if any.
        whole: whether ``source`` begins where its log does. Otherwise MM2 may have begun again
            before it.

    Raises:
        Unproven: there is no such reading, or several that end differently.
    """
    logs = _Logs.of(source, target)
    if stored is not None:
        logs.restart = bisect_right(source.offsets, stored)
    if anchor is None:
        first, readings = _found(logs)
    else:
        _require_alike(logs, anchor)
        logs.floor = anchor.source
        at = bisect_right(source.offsets, anchor.source) - 1
        first = bisect_right(target.offsets, anchor.target)
        readings = {_Reading(at, 0, at)}
    readings = _read(logs, target, first, readings)
    if not whole:
        _require_unlike(logs, first)
    # The record of the anchor itself may be gone from the source.
    least = -1 if anchor is None else anchor.source
    ends = {max(logs.offset(reading.most), least) for reading in readings}
    if stored is not None:
        ends = _up_to_stored(source, ends, stored)
    if len(ends) > 1:
        raise Ambiguous(
            f"its last records are alike: it may hold the source up to offset {min(ends)}, or up to"
            f" {max(ends)}"
        )
    return ends.pop()


def _require_alike(logs: _Logs, pair: Pair) -> None:
    """Raise Unproven if the two records of a pair are there and differ."""
    s = bisect_left(logs.source.offsets, pair.source)
    t = bisect_left(logs.target.offsets, pair.target)
    if s == len(logs.here) or t == len(logs.there):
        return
    if (logs.source.offsets[s], logs.target.offsets[t]) == pair and logs.here[s] != logs.there[t]:
        raise OtherRecords(
            f"MM2's newest offset sync says that source offset {pair.source} is at target offset"
            f" {pair.target}, but these are different records"
        )


def _require_unlike(logs: _Logs, first: int) -> None:
    """Raise Unproven if the target's records may be copies of ones before the slice, all alike."""
    alike = [t for t in range(first, len(logs.there)) if len(logs.index.get(logs.there[t], ())) > 1]
    later = len(logs.source) and not logs.source.untimed and not logs.target.untimed
    if alike and not (later and logs.earliest(alike) > logs.source.time_at(0)):
        raise Ambiguous("its last records are alike")


def _found(logs: _Logs) -> tuple[int, set[_Reading]]:
    """Where the first record is that the source still has, and what it may be."""
    for first, content in enumerate(logs.there):
        places = [at for at in logs.index.get(content, ()) if at <= logs.restart]
        if places:
            return first + 1, {_Reading(at, 0, at) for at in places}
    raise Unproven("none of its last records is on the source near MM2's stored position")


def _up_to_stored(source: LogSlice, ends: set[int], stored: int) -> set[int]:
    """The ends that agree with MM2's stored position, at least up to there."""
    offsets = source.offsets
    known = bisect_right(offsets, stored)
    # Records before it may be gone from the source, so that nobody can say where they were.
    possible = {end for end in ends if end >= stored or bisect_right(offsets, end) == known}
    if not possible:
        raise Unproven(
            f"MM2 has stored that it mirrored up to source offset {stored}, but the last record on"
            f" the target is that of source offset {max(ends)}"
        )
    return {max(end, stored) for end in possible}


def _read(logs: _Logs, target: LogSlice, first: int, readings: set[_Reading]) -> set[_Reading]:
    """All readings of the target's records from index ``first`` on."""
    batch_at = [at for at, _, _ in target.batches]
    number = bisect_left(batch_at, first)
    for at in range(first, len(logs.there)):
        back: list[int] = []
        begins = number < len(batch_at) and batch_at[number] == at
        if begins:
            back = _sent_again(target.batches, number)
            number += 1
        content = logs.there[at]
        following: set[_Reading] = set()
        for reading in readings:
            following |= _steps(logs, reading, content, begins=begins, back=back)
        if not following:
            raise Unproven(
                f"the record at target offset {target.offsets[at]} is not the source's next one,"
                " nor one before it (did somebody else write it?)"
            )
        if len(following) > _MOST_READINGS:
            raise Ambiguous("too many of its last records are alike")
        readings = following
    return readings


def _sent_again(batches: Sequence[tuple[int, int, int]], number: int) -> list[int]:
    """How many records back a batch may have been written before."""
    first, crc, count = batches[number]
    before = batches[max(number - _BATCHES_IN_FLIGHT, 0) : number]
    return [first - at for at, c, n in before if (c, n) == (crc, count)]


def _steps(
    logs: _Logs, reading: _Reading, content: int, *, begins: bool, back: list[int]
) -> set[_Reading]:
    """How a reading may go on with a record."""
    at, gone, most = reading
    found: set[_Reading] = set()
    here = logs.here
    following = at + 1
    if following < len(here) and here[following] == content:
        found.add(_Reading(following, 0, max(most, following)))
    elif content not in logs.index and gone < logs.room(at):
        found.add(_Reading(at, gone + 1, most))
    if begins:
        places = [p for p in logs.index.get(content, ()) if p <= logs.restart]
        places += [following - records for records in back]
        found |= {
            _Reading(p, 0, most)
            for p in places
            if 0 <= p <= most and p != following and here[p] == content
        }
    return found


class Steps(NamedTuple):
    """How source and target go on together.

    Attributes:
        pairs: each begins a stretch in which the two go in step, up to the next one.
        holes: records that follow each other, not in step, with more between them on the target
            than a marker: nothing is known of that.
        last: the last record that both have.
        most: the last copy of the highest source offset among those that both have.
    """

    pairs: list[Pair]
    holes: list[tuple[Pair, Pair]]
    last: Pair
    most: Pair

    def ending(self, end: Pair) -> Steps:
        """The same, knowing where both logs end, or are to go on.

        What comes behind the highest record is only repeated: it tells nobody where to go on.
        """
        most = self.most
        pairs = [p for p in self.pairs if p.target <= most.target]
        holes = [hole for hole in self.holes if hole[0].target < most.target]
        if leaves_hole(most, end):
            holes.append((most, end))
        return Steps(pairs, holes, most, most)


def leaves_hole(before: Pair, after: Pair) -> bool:
    """Whether going on in step from one record would go too far before the next one."""
    return before.shift != after.shift and after.target - before.target > 2


def stretches(
    source: LogSlice, target: LogSlice, first: Pair, last: Pair | None = None, least: int = 0
) -> Steps | None:
    """Where source and target go in step, from a pair that is known on, that one included.

    A stretch also begins with each record at or behind source offset ``least`` that follows one
    before it. None if the logs cannot be read so, or not up to ``last``, where that is known.
    """
    logs = _Logs.of(source, target)
    offsets, here = source.offsets, logs.here
    at = bisect_left(offsets, first.source)
    if at == len(here) or offsets[at] != first.source:
        return None
    begin = bisect_right(target.offsets, first.target)
    end = len(target) if last is None else bisect_right(target.offsets, last.target)
    found = Steps([first], [], first, first)
    for t in range(begin, end):
        places = logs.index.get(logs.there[t])
        if places is None:
            continue  # gone from the source
        if at + 1 < len(here) and here[at + 1] == logs.there[t]:
            at += 1
        elif places[0] <= at:
            at = places[bisect_right(places, at) - 1]
        else:
            return None
        pair = Pair(offsets[at], target.offsets[t])
        if pair.shift != found.last.shift or found.last.source < least <= pair.source:
            found.pairs.append(pair)
            if leaves_hole(found.last, pair):
                found.holes.append((found.last, pair))
        most = pair if pair.source >= found.most.source else found.most
        found = found._replace(last=pair, most=most)
    return found if last is None or found.last == last else None


def located(source: LogSlice, target: LogSlice, shift: int | None = None) -> Pair | None:
    """The first record of the target whose place on the source is certain; None if none is near.

    With ``shift``, only if it is so much further on there. Records that are alike are told apart by
    what follows them.
    """
    logs = _Logs.of(source, target)
    for t, content in enumerate(logs.there[:_NEAR]):
        for s in logs.index.get(content, ()):
            pair = Pair(source.offsets[s], target.offsets[t])
            if shift in {None, pair.shift} and _is_certain(logs, s, t):
                return pair
    return None


def found_on(source: LogSlice, target: LogSlice) -> Pair | None:
    """Where the first record of the source is on the target, if it certainly is there."""
    logs = _Logs.of(source, target)
    for t, content in enumerate(logs.there):
        if content == logs.here[0] and _is_certain(logs, 0, t):
            return Pair(source.offsets[0], target.offsets[t])
    return None


def contradicted(source: LogSlice, target: LogSlice, shift: int) -> bool:
    """Whether the first record that both have at a shift is not the same one."""
    logs = _Logs.of(source, target)
    places = {offset - shift: s for s, offset in enumerate(source.offsets)}
    both = ((places[o], t) for t, o in enumerate(target.offsets) if o in places)
    return any(logs.here[s] != logs.there[t] for s, t in islice(both, 1))


def _is_certain(logs: _Logs, s: int, t: int) -> bool:
    """Whether a record of the target is that record of the source, and no other one like it."""
    content = logs.there[t]
    if len(logs.index[content]) == 1:
        return True
    # Equally many like it follow on both sides before the first other one.
    for here, there in zip(logs.here[s:], logs.there[t:], strict=False):
        if here != there:
            return False
        if there != content:
            return True
    return False
