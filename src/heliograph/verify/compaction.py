"""What compaction explains of the records that one side does not have. Pure but for its reader.

A cleaner removes a record when a later one has the same key, and a tombstone some time after. So a
record that one side lacks is explained if a later record of its key was mirrored, or is on the side
that lacks it, or if it is a tombstone itself. Whether a mirror lost such a record before
a cleaner could have removed it cannot be told any more, by anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from heliograph.verify.comparison import Absent
from heliograph.verify.model import Side
from heliograph.verify.streams import Batch, decoded

__all__ = ["Newest", "unexplained"]

_DIGEST_BYTES = 16


@dataclass(slots=True)
class Newest:
    """The last offset on each side of the keys that are asked about."""

    wanted: frozenset[bytes]
    source: dict[bytes, int] = field(default_factory=dict)
    target: dict[bytes, int] = field(default_factory=dict)

    @classmethod
    def of(cls, absent: Iterable[Absent]) -> Newest:
        """Asks about the keys of records that are not there."""
        return cls(frozenset(digest(a.key) for a in absent if a.key is not None))

    def look(self, side: Side, batches: Iterable[Batch], begin: int) -> None:
        """Take note of the records of a side from ``begin`` on."""
        found = self.source if side is Side.SOURCE else self.target
        for batch in batches:
            for offset, (_, key, _, _) in zip(*decoded(batch), strict=True):
                if key is not None and offset >= begin and (known := digest(key)) in self.wanted:
                    found[known] = max(found.get(known, -1), offset)


def digest(key: bytes) -> bytes:
    """A key, short."""
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


def unexplained(absent: Sequence[Absent], newest: Newest, goal: int) -> list[Absent]:
    """Those that compaction does not explain; the source is mirrored up to before ``goal``."""
    return [a for a in absent if not _is_explained(a, newest, goal)]


def _is_explained(absent: Absent, newest: Newest, goal: int) -> bool:
    if absent.tombstone:
        return True
    if absent.key is None:
        return False
    key, difference = digest(absent.key), absent.difference
    at = difference.source_offset
    there = difference.expected if absent.lacking is Side.TARGET else difference.target_offset
    assert at is not None  # noqa: S101 - set where records are absent
    assert there is not None  # noqa: S101 - set where records are absent
    later_source = newest.source.get(key, -1)
    # The target's cleaner knows only what was mirrored.
    mirrored = absent.lacking is Side.SOURCE or later_source < goal
    return (later_source > at and mirrored) or newest.target.get(key, -1) > there
