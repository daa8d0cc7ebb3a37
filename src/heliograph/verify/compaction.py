"""What compaction explains of the records that one side does not have. Pure but for its reader.

A cleaner removes a record when a later one has the same key, and a tombstone some time after. So a
record that one side lacks is explained if a later record of its key was mirrored, or is on the side
that lacks it, or if it is a tombstone itself. Whether a mirror lost such a record before
a cleaner could have removed it cannot be told any more, by anybody.

Where a cleaner was, the log has holes. Nothing else leaves any: brokers number all that they append
without a gap, and retention takes only the beginning of a log. So the log itself tells, also where
the topic's cleanup.policy is another one by now.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain

from heliograph.batch.header import BatchHeader
from heliograph.verify.comparison import Absent
from heliograph.verify.model import Side
from heliograph.verify.streams import Batch, decoded

__all__ = ["Holes", "Newest", "place_of", "unexplained"]

_DIGEST_BYTES = 16
_MAGIC = 2


class Holes:
    """Where a log lacks offsets, by the headers of all its batches from ``begin`` on, in order.

    Of a batch that lost some of its records the whole of it counts: whoever asks about an offset
    knows that no record is there.
    """

    def __init__(self, begin: int) -> None:
        self._next = begin
        self._begins: list[int] = []
        self._ends: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._begins)

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self._begins, offset) - 1
        return index >= 0 and offset < self._ends[index]

    def see(self, header: BatchHeader) -> None:
        """The next batch of the log, whatever it holds."""
        if header.magic != _MAGIC:
            # Of a compressed set of older messages only the offset of the last is known here.
            self._next = max(self._next, header.base_offset + 1)
            return
        following = header.last_offset + 1
        if header.base_offset > self._next:
            self._add(self._next, header.base_offset)
        if not header.dense:
            self._add(max(header.base_offset, self._next), following)
        self._next = max(self._next, following)

    def _add(self, begin: int, end: int) -> None:
        if self._ends and self._ends[-1] == begin:
            self._ends[-1] = end
        elif begin < end:
            self._begins.append(begin)
            self._ends.append(end)


@dataclass(slots=True)
class Newest:
    """The last offset on each side of the keys that are asked about.

    ``wanted`` are digests of keys, each with the last of its records that is not there, as an
    offset of the source and of the target.
    """

    wanted: dict[bytes, tuple[int, int]]
    source: dict[bytes, int] = field(default_factory=dict)
    target: dict[bytes, int] = field(default_factory=dict)

    @classmethod
    def of(cls, absent: Iterable[Absent]) -> Newest:
        """Asks about the keys of records that are not there."""
        wanted: dict[bytes, tuple[int, int]] = {}
        for one in absent:
            if one.key is not None:
                at, there = place_of(one)
                known = wanted.get(digest(one.key), (-1, -1))
                wanted[digest(one.key)] = max(known[0], at), max(known[1], there)
        return cls(wanted)

    def look(self, side: Side, batches: Iterable[Batch], begin: int) -> None:
        """Take note of the records of a side from ``begin`` on.

        On the target, until there is a later record for every key: that explains all of them.
        """
        on_source = side is Side.SOURCE
        found = self.source if on_source else self.target
        left = set() if on_source else {k for k in self.wanted if k not in found}
        for batch in batches:
            records = chain.from_iterable(zip(*part, strict=True) for part in decoded(batch))
            for offset, (_, key, _, _) in records:
                if key is not None and offset >= begin and (known := digest(key)) in self.wanted:
                    found[known] = max(found.get(known, -1), offset)
                    if offset > self.wanted[known][1]:
                        left.discard(known)
            if not on_source and not left:
                return

    def on_target(self, absent: Absent) -> bool:
        """Whether the target has a later record of the key."""
        key = None if absent.key is None else digest(absent.key)
        return key is not None and self.target.get(key, -1) > place_of(absent)[1]


def digest(key: bytes) -> bytes:
    """A key, short."""
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


def place_of(absent: Absent) -> tuple[int, int]:
    """The offsets of a record that is not there, on the source and on the target."""
    difference = absent.difference
    there = difference.expected if absent.lacking is Side.TARGET else difference.target_offset
    assert difference.source_offset is not None  # noqa: S101 - set where records are absent
    assert there is not None  # noqa: S101 - set where records are absent
    return difference.source_offset, there


def unexplained(absent: Sequence[Absent], newest: Newest, goal: int) -> list[Absent]:
    """Those that compaction does not explain; the source is mirrored up to before ``goal``."""
    return [a for a in absent if not _is_explained(a, newest, goal)]


def _is_explained(absent: Absent, newest: Newest, goal: int) -> bool:
    if absent.tombstone:
        return True
    if absent.key is None:
        return False
    at, _ = place_of(absent)
    later_source = newest.source.get(digest(absent.key), -1)
    # The target's cleaner knows only what was mirrored.
    mirrored = absent.lacking is Side.SOURCE or later_source < goal
    return (later_source > at and mirrored) or newest.on_target(absent)
