"""What is asked of a failover, what it would do, and what it did: values, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph.config.key import BoundedPattern
from heliograph.control.groups.start_rules import GroupStart, Moved
from heliograph.failover.refusals import HandoverRefused
from heliograph.failover.risk import Risk
from heliograph.failover.source_side import SourceSeen
from heliograph.failover.target_side import Mirrored
from heliograph.ledger.handovers import CutAt, Handover
from heliograph.ledger.holds import Subject
from heliograph.model import TopicPartition

__all__ = ["PARTS", "FailoverPlan", "FailoverReport", "FailoverWish", "subjects_of"]

#: All parts of a flow; mirrors answer for the first.
PARTS = ("copying", "checkpoints", "heartbeats")


@dataclass(frozen=True, slots=True)
class FailoverWish:
    """What an operator asks for.

    Attributes:
        topics: source topics whose names it matches wholly; None: all of the flow.
        groups: likewise consumer groups.
        max_records, max_seconds: how much may be lost; None: any.
        force: although the source is healthy, both directions are enabled, or topics could not be
            mirrored.
        rewind: groups that are ahead on the target are set back.
        drain_seconds: how long the mirror may copy on, at most.
        patience_seconds: how long mirrors may take to rest.
        by: who asks.
        dry_run: only look.
    """

    topics: BoundedPattern | None = None
    groups: BoundedPattern | None = None
    max_records: int | None = None
    max_seconds: float | None = None
    force: bool = False
    rewind: bool = False
    drain_seconds: float = 5.0
    patience_seconds: float = 120.0
    by: str = "somebody"


@dataclass(frozen=True, slots=True)
class FailoverPlan:
    """What a failover would do now.

    Attributes:
        topics: source topics that would be promoted; None for all of the flow.
        risk: what would be lost.
        groups: where each group would start.
        before: the failover that was begun before, or is through; None if there is none.
        refusals: what speaks against it; empty if it may be begun.
        faulted: partitions that the mirror could not copy when it last looked, with the reason.
        notes: what to know.
    """

    flow: str
    source: SourceSeen
    topics: tuple[str, ...] | None
    mirrored: Mirrored
    risk: Risk
    groups: Mapping[str, GroupStart]
    before: Handover | None
    refusals: tuple[HandoverRefused, ...]
    faulted: Mapping[TopicPartition, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailoverReport:
    """What a failover did.

    Attributes:
        positions: where each partition was cut.
        moved: what became of each group.
        unset: partitions in which a group has no offset, by group, with the reason.
        rto_seconds: from its beginning, of a run that was killed too, to its end.
        took: seconds of each step of this run.
        repeated: it was through already; only what was missing was done.
        faulted, notes: as of the plan.
    """

    flow: str
    handover: Handover
    source: SourceSeen
    risk: Risk
    positions: Mapping[TopicPartition, CutAt]
    targets: Mapping[TopicPartition, TopicPartition]
    moved: Mapping[str, Moved]
    starts: Mapping[str, GroupStart]
    rto_seconds: float
    took: Mapping[str, float]
    repeated: bool = False
    faulted: Mapping[TopicPartition, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def left(self) -> dict[str, str]:
        """Groups that were not moved, with the reason."""
        return {name: moved.reason for name, moved in self.moved.items() if moved.reason}


def subjects_of(topics: tuple[str, ...] | None) -> list[Subject]:
    """What is held for a failover of these source topics; of all of the flow without any."""
    if topics is not None:
        return [Subject.topic(topic) for topic in topics]
    return [Subject.part(part) for part in PARTS]
