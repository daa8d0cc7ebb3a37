"""What is to be compared, and what was found. Pure values that driver and executors exchange."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import NamedTuple

from heliograph.model import ClientSettings, Flow, Guard, TopicPartition

__all__ = [
    "Counted",
    "Difference",
    "Gone",
    "Kind",
    "Range",
    "RangeResult",
    "Side",
    "Stretch",
    "VerifyContext",
]


class Kind(StrEnum):
    """How a record differs."""

    MISSING = "missing"
    EXTRA = "extra"
    CHANGED = "changed"
    MOVED = "moved"
    WRONG_OFFSET = "wrong offset"


class Side(StrEnum):
    """One of the two clusters of a flow."""

    SOURCE = "source"
    TARGET = "target"


class Stretch(NamedTuple):
    """``length`` consecutive source offsets that are consecutive on the target, by the ledger."""

    source: int
    target: int
    length: int


class Gone(NamedTuple):
    """Source offsets [``begin``, ``end``) that one side does not have any more."""

    side: Side
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class VerifyContext:
    """What all ranges of a flow have in common.

    Attributes:
        producer_id: the flow's signature.
        others: names of other flows into the target cluster, by their signatures.
        most: how many differences each range describes; all are counted.
    """

    flow: Flow
    source: ClientSettings
    target: ClientSettings
    producer_id: int
    read_committed: bool
    others: Mapping[int, str]
    most: int


@dataclass(frozen=True, slots=True)
class Range:
    """Source offsets [``begin``, ``end``) of a partition and the target's that belong to them.

    Attributes:
        low: the first source offset of the partition that is compared at all; ``target_low`` is
            the target's. Where a record is not in its place, it is looked for beyond the range.
        high: behind the last; ``target_high`` is the target's.
        goal: the source is mirrored up to before this offset.
        stretches: where the ledger says that records of the range, and some around it, are.
        quarantined: source offsets that were set aside instead of mirrored.
        compacted: sides whose cleaner may have removed records. Such a partition has one range.
        last: whether the mirror may be writing at its end at this moment.
        deleted: whether the target has deleted all of it. Then there is nothing to compare with,
            and the ledger's claims are held against what the source has.
        inferred: whether how far the flow is was concluded from the target's end: its broker has
            forgotten the flow, and the log has none of its batches.
        pruned_below: the ledger has forgotten where records below this source offset were.
        guard: what came from the target; None if no flow goes in the opposite direction.
    """

    number: int
    source: TopicPartition
    target: TopicPartition
    source_id: uuid.UUID
    target_id: uuid.UUID
    begin: int
    end: int
    target_begin: int
    target_end: int
    low: int
    high: int
    goal: int
    target_low: int
    target_high: int
    stretches: tuple[Stretch, ...]
    bytes: int = 0
    quarantined: frozenset[int] = frozenset()
    compacted: frozenset[Side] = frozenset()
    last: bool = False
    deleted: bool = False
    inferred: bool = False
    pruned_below: int = 0
    guard: Guard | None = None


@dataclass(slots=True)
class Difference:
    """One difference; ``count`` records in a row where more than one differ in the same way.

    Attributes:
        expected: the target offset of the record by the ledger.
        field: what is changed.
        note: what else is known, in words.
        producer_id: who wrote the record on the target.
    """

    kind: Kind
    topic: str
    remote_topic: str
    partition: int
    source_offset: int | None = None
    target_offset: int | None = None
    expected: int | None = None
    count: int = 1
    field: str = ""
    note: str = ""
    source_record: str = ""
    target_record: str = ""
    producer_id: int | None = None

    @property
    def order(self) -> tuple[str, int, int]:
        """Sorts differences as they lie in the logs."""
        places = (self.source_offset, self.expected, self.target_offset)
        return (self.topic, self.partition, next((p for p in places if p is not None), 0))


@dataclass(slots=True, kw_only=True)
class Counted:
    """What is counted in a range, and summed up over ranges.

    Attributes:
        records: source records that were compared, or looked for in vain; ``bytes`` of their
            batches.
        digests: source batches whose bytes are those of a target batch; the others were decoded.
        counts: records that differ, by kind.
        behind: how many of the missing are not mirrored yet.
        compacted: records that one side has only, which compaction explains.
        quarantined: records that were set aside instead of mirrored.
        untimed: records whose timestamp the target replaced by the time of appending.
        deleted: records that the source has, and the target has deleted: not compared.
        others: records on the target of other flows, by their names.
        returned: records on the source that came from the target, and do not go back.
        own: records on the target that began there; the flow in the opposite direction mirrors
            them.
    """

    records: int = 0
    bytes: int = 0
    digests: int = 0
    decoded: int = 0
    counts: Counter[Kind] = field(default_factory=Counter)
    behind: int = 0
    compacted: int = 0
    quarantined: int = 0
    untimed: int = 0
    deleted: int = 0
    others: Counter[str] = field(default_factory=Counter)
    returned: int = 0
    own: int = 0

    def count(self, other: Counted) -> None:
        """Sum up."""
        for name in (f.name for f in fields(Counted)):
            mine, more = getattr(self, name), getattr(other, name)
            if isinstance(mine, Counter):
                mine.update(more)
            else:
                setattr(self, name, mine + more)


@dataclass(slots=True)
class RangeResult(Counted):
    """What was found in a range.

    Attributes:
        differences: describes the first of ``counts``.
        holed: sides whose log has holes, though their policy does not say that they are compacted.
        problem: why what was found does not settle the range.
        error: why the range could not be compared; then nothing else counts.
    """

    number: int
    differences: list[Difference] = field(default_factory=list)
    holed: frozenset[Side] = frozenset()
    gone: list[Gone] = field(default_factory=list)
    problem: str = ""
    error: str = ""
