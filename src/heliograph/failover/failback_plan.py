"""What a failback is asked for, would do, and did: values, and plans that were saved. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from heliograph.errors import ConfigError
from heliograph.failover.divergence import Parted
from heliograph.failover.refusals import HandoverRefused
from heliograph.failover.unmirrored import Choice, Unmirrored
from heliograph.ledger.handovers import Handover
from heliograph.model import TopicPartition

__all__ = ["FailbackPlan", "FailbackReport", "FailbackWish", "SavedPlan", "Totals"]


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan that ``--save-plan`` wrote, and whose choices were filled in.

    Attributes:
        failover: the one that it takes back.
        ends: where each partition of the old source parted and ended, of those that have records
            of their own.
    """

    choices: Mapping[str, Choice]
    failover: str
    ends: Mapping[TopicPartition, tuple[int, int]]

    @classmethod
    def of(cls, path: Path) -> Self:
        """Read it; raises ConfigError."""
        try:
            told = json.loads(path.read_text("utf-8"))
            choices = {str(t["topic"]): Choice(t["choice"])
                       for t in told["topics"] if t.get("choice")}  # fmt: skip
            ends = {
                TopicPartition(str(t["topic"]), int(p["partition"])):
                    (int(p["source_parts_at"]), int(p["source_end"]))
                for t in told["topics"] for p in t["partitions"] if p["only_source"]
            }  # fmt: skip
            return cls(choices, str(told["failover"]["id"]), ends)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ConfigError(
                "failback.plan", f"{path} is no plan of 'heliograph failback --save-plan': {why}",
                "save the plan anew, and fill in nothing but \"choice\": keep, export or rebuild",
            ) from error  # fmt: skip


@dataclass(frozen=True, slots=True)
class FailbackWish:
    """What an operator asks for.

    Attributes:
        choices: what becomes of records that only the old source has, by topic; ``*`` for all
            others.
        expected: the plan that was saved: nothing may have changed since; None if there is none.
        wait_seconds: how long to wait until the old source has everything; 0: not at all.
        by: who asks.
    """

    choices: Mapping[str, Choice] = field(default_factory=dict)
    expected: SavedPlan | None = None
    wait_seconds: float = 600.0
    by: str = "somebody"

    def choice(self, topic: str) -> Choice | None:
        """Of a topic, if it was made."""
        return self.choices.get(topic, self.choices.get("*"))


class Totals(NamedTuple):
    """Offsets in all partitions.

    Attributes:
        only_source: never mirrored.
        only_target: written to the target since the failover; to be mirrored back.
        source_deleted: never mirrored, and deleted by the source's retention since.
        target_deleted: written to the target since, and deleted there before it was mirrored back.
    """

    only_source: int = 0
    only_target: int = 0
    source_deleted: int = 0
    target_deleted: int = 0


@dataclass(frozen=True, slots=True)
class FailbackPlan:
    """What a failback would do.

    Attributes:
        failover: the one that is taken back.
        before: the failback that was begun before, or is through; None if there is none.
        parted: each partition, and how its logs differ; of one whose records were settled by an
            earlier run, nothing.
        choices: what becomes of what only the old source has, of topics that have any, or whose
            log cannot be gone on with; None: nobody has said.
        unmirrored: what is to be settled, by these choices, or was by an earlier run.
        totals: as they were found when it was begun.
        refusals: what speaks against it.
    """

    flow: str
    failover: Handover
    before: Handover | None
    parted: tuple[Parted, ...]
    choices: Mapping[str, Choice | None]
    unmirrored: tuple[Unmirrored, ...]
    totals: Totals
    refusals: tuple[HandoverRefused, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to do: it is through."""
        return self.before is not None and not self.before.open

    @property
    def is_settled(self) -> bool:
        """Whether an earlier run has settled what only the old source has."""
        return self.before is not None and "settle" in self.before.steps

    def of(self, topic: str) -> list[Parted]:
        """The partitions of a topic."""
        return [p for p in self.parted if p.source.topic == topic]


@dataclass(frozen=True, slots=True)
class FailbackReport:
    """What a failback did.

    Attributes:
        kept, exported: how many records.
        exported_to: the topic; empty if none was exported.
        rebuilt: topics of the old source that were deleted, to be made anew.
        behind: partitions that the old source did not have wholly when waiting ended.
        repeated: it was through already, and nothing was changed.
    """

    plan: FailbackPlan
    handover: Handover
    kept: int
    exported: int
    exported_to: str
    rebuilt: tuple[str, ...]
    behind: Mapping[TopicPartition, int]
    took: Mapping[str, float]
    repeated: bool = False
