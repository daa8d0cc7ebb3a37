"""What is to be compared, and what was found. Pure values that driver and executors exchange."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from heliograph.model import ClientSettings, Flow, TopicPartition

__all__ = ["Difference", "Gone", "Kind", "Range", "RangeResult", "Side", "Stretch", "VerifyContext"]


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
        most: how many differences each range describes; all are counted.
    """

    flow: Flow
    source: ClientSettings
    target: ClientSettings
    producer_id: int
    read_committed: bool
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


@dataclass(slots=True)
class RangeResult:
    """What was found in a range.

    Attributes:
        records: source records that were compared; ``bytes`` of their batches.
        digests: source batches whose bytes are those of a target batch; the others were decoded.
        counts: records that differ, by kind; ``differences`` describes the first.
        compacted: records that one side has only, which compaction explains.
        quarantined: records that were set aside instead of mirrored.
        untimed: records whose timestamp the target replaced by the time of appending.
        error: why the range could not be compared; then nothing else counts.
    """

    number: int
    records: int = 0
    bytes: int = 0
    digests: int = 0
    decoded: int = 0
    counts: Mapping[Kind, int] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    compacted: int = 0
    quarantined: int = 0
    untimed: int = 0
    gone: list[Gone] = field(default_factory=list)
    error: str = ""
