"""What a drill measures and proves, and how it is judged. Pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from heliograph.batch.records import Record
from heliograph.control.groups.start_rules import GroupStart, Start
from heliograph.failover.risk import Risk
from heliograph.ledger.rehearsals import Rehearsal, RehearsalKind
from heliograph.model import TopicPartition
from heliograph.units import counted, duration
from heliograph.verify.previews import changed_fields

__all__ = [
    "NOT_REHEARSED", "REHEARSED", "RIGHT", "DrillReport", "Finding", "Found", "GroupDrill",
    "Outcome", "Proof", "TimePart", "chosen", "judge", "where_it_starts",
]  # fmt: skip

#: For the auditor.
REHEARSED = (
    "the checks of a failover: whether the target takes writes, which groups can be moved",
    "what would be lost at this moment",
    "the exact start of every group, committed on the target for a copy of it, and read back",
    "reading from these starts, without joining a group",
    "the first record of each that was looked at: is it what the group would read next on the"
    " source",
)
NOT_REHEARSED = (
    "stopping the mirrors: they went on, and so did producers and consumers",
    "a source that does not answer: it was asked, and what it said was used",
    "commits for the groups themselves: copies of other names stood for them",
    "clients: that they find the target, may log in, may read and write there",
    "the way back",
)


class Outcome(StrEnum):
    """What became of one start that was looked at."""

    SAME = "same record"
    AT_END = "at both ends"
    AWAITED = "not mirrored yet"
    UNPROVEN = "read, not proven"
    WRONG = "wrong"


RIGHT = frozenset({Outcome.SAME, Outcome.AT_END, Outcome.AWAITED})


class Found(NamedTuple):
    """What was read at an offset of one side.

    Attributes:
        record: the first at or behind it; None if there is none.
        records: how many were read.
        append_time: whether its timestamp is the broker's own.
        why: why nothing could be read; empty if it could.
    """

    record: Record | None
    records: int = 0
    append_time: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """One start of one group, by partition of the target, and what was read there."""

    group: str
    partition: TopicPartition
    offset: int
    outcome: Outcome
    text: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that would go wrong in a failover, or did in this drill."""

    code: str
    text: str
    hint: str = ""


class TimePart(NamedTuple):
    """A part of the RTO; ``source`` says where a figure is from that was not measured now."""

    name: str
    seconds: float
    source: str = ""


@dataclass(frozen=True, slots=True)
class GroupDrill:
    """A group, and what its copy showed.

    Attributes:
        reason: why it cannot be moved; empty if it can.
        unset: partitions without an offset, with the reason.
    """

    group: str
    state: str
    reason: str
    starts: Mapping[TopicPartition, int]
    unset: Mapping[TopicPartition, str]
    skips: int
    repeats: int
    proofs: Sequence[Proof] = ()

    @property
    def words(self) -> str:
        """What was proven of it."""
        if self.reason:
            return f"cannot be moved: {self.reason}"
        if not self.proofs:
            return "not in the sample"
        counts = Counter(p.outcome for p in self.proofs)
        return ", ".join(f"{counts[o]} {o}" for o in Outcome if counts[o])


@dataclass(frozen=True, slots=True)
class DrillReport:
    """What a drill found.

    Attributes:
        id: of this drill.
        versions: of Heliograph and of the clusters, by name.
        topics, partitions: how many a failover would promote.
        source_answers: whether starts could be compared with the source.
        risk: what would have been lost; ``rpo_seconds``: for how long the oldest of it had waited.
        starts, copied: group-partitions that a failover would set, and that were set for copies.
        records: how many the scratch consumer read.
        measured: parts of the RTO that were measured, and ``assumed`` those that a drill cannot
            rehearse.
        earlier: rehearsals before this one, the newest first.
    """

    flow: str
    source: str
    target: str
    id: str
    by: str
    began_ms: int
    versions: Mapping[str, str]
    topics: int
    partitions: int
    source_answers: bool
    risk: Risk
    rpo_seconds: float | None
    groups: Sequence[GroupDrill]
    starts: int
    copied: int
    records: int
    measured: Sequence[TimePart]
    assumed: Sequence[TimePart]
    findings: Sequence[Finding]
    notes: Sequence[str]
    took_seconds: float
    earlier: Sequence[Rehearsal] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def measured_seconds(self) -> float:
        """From the beginning until the last group could be read."""
        return sum(p.seconds for p in self.measured)

    @property
    def rto_seconds(self) -> float:
        """That, and what a drill cannot rehearse."""
        return self.measured_seconds + sum(p.seconds for p in self.assumed)

    @property
    def rpo_records(self) -> int | None:
        """Records at risk; None if that is not known."""
        known = self.risk.exact or self.risk.as_of_ms is not None
        return self.risk.records if known else None

    @property
    def proofs(self) -> list[Proof]:
        """Of all groups."""
        return [p for g in self.groups for p in g.proofs]

    @property
    def outcomes(self) -> Counter[Outcome]:
        """How many starts ended how."""
        return Counter(p.outcome for p in self.proofs)

    @property
    def right(self) -> int:
        """How many starts were proven to be right."""
        return sum(p.outcome in RIGHT for p in self.proofs)

    @property
    def sentence(self) -> str:
        """The verdict."""
        moved = counted(sum(not g.reason for g in self.groups), "group")
        if not self.ok:
            more = f" (and {len(self.findings) - 1} more)" if self.findings[1:] else ""
            return f"not ready: {self.findings[0].text}{more}"
        head = f"ready: {moved} can be moved within {duration(self.rto_seconds)}"
        return f"{head}; {self.right:,} of {len(self.proofs):,} starts looked at are right"

    @property
    def rehearsal(self) -> Rehearsal:
        """As the ledger keeps it."""
        return Rehearsal(
            self.began_ms, RehearsalKind.DRILL, round(self.rto_seconds, 3), self.rpo_records,
            self.rpo_seconds, self.ok, sum(not g.reason for g in self.groups), self.by,
            self.sentence,
        )  # fmt: skip


def where_it_starts(start: Start) -> int:
    """The offset that a failover leaves a group at: one that is ahead is kept."""
    return start.committed if start.ahead else start.offset


def chosen(groups: Iterable[GroupStart], most: int, seed: str) -> list[tuple[str, TopicPartition]]:
    """At most so many starts, drawn at random: one of each group, then a second one, and so on."""
    dice = random.Random(seed)  # noqa: S311 - a sample, no secret
    drawn = []
    for group in groups:
        # One that is ahead is a finding already.
        may = [p for p, start in sorted(group.starts.items()) if not start.ahead]
        dice.shuffle(may)
        drawn.append([(group.group, p) for p in may])
    found: list[tuple[str, TopicPartition]] = []
    for turn in range(max(map(len, drawn), default=0)):
        left = [starts[turn] for starts in drawn if turn < len(starts)]
        if len(found) + len(left) > most:
            dice.shuffle(left)
        found += left[: most - len(found)]
        if len(found) >= most:
            break
    return found


def judge(
    there: Found,
    here: Found | None,
    *,
    offset: int,
    upstream: int | None,
    mirrored: int,
    origin: int | None,
    compacted: bool,
    note: str = "",
    both_write: bool = False,
) -> tuple[Outcome, str]:
    """Whether a group that starts at ``offset`` reads what it would have read next on the source.

    Args:
        there: what the target has there. It was read first: what it has, the source has, too.
        offset: where it starts on the target.
        upstream: where it is on the source; None if that is not known.
        here: what the source has at or behind ``upstream``; None if it was not asked.
        mirrored: the next source offset to be mirrored, as of before the drill read.
        origin: the source offset of what was found on the target, by the ledger.
        compacted: whether one of the two logs is cleaned by key.
        note: what is known of the start, if it is not exact.
        both_write: whether there are records in it that came the other way. Each side has them in
            an order of its own then, so that what comes next need not be the same.
    """
    outcome, text = _judge(there, here, offset, upstream, mirrored, origin, compacted, note)
    if outcome is Outcome.WRONG and both_write and not there.why:
        return Outcome.UNPROVEN, "both clusters write there, so what comes next may differ"
    return outcome, text


def _judge(
    there: Found,
    here: Found | None,
    offset: int,
    upstream: int | None,
    mirrored: int,
    origin: int | None,
    compacted: bool,
    note: str,
) -> tuple[Outcome, str]:
    if there.why:
        return Outcome.WRONG, f"cannot be read at {offset}: {there.why}"
    if upstream is None or here is None:
        return Outcome.UNPROVEN, note or "the source was not asked"
    if here.why:
        return Outcome.UNPROVEN, here.why
    mine, theirs = here.record, there.record
    if mine is None and theirs is None:
        return Outcome.AT_END, ""
    if theirs is None:
        return _nothing_there(mine, offset, mirrored, compacted, note)
    if mine is None:
        if origin is not None and origin >= mirrored:
            text = f"{theirs.offset} on the target is no record of the source's, which ends before"
            return Outcome.WRONG, text
        return Outcome.UNPROVEN, "the source has not got that record any more"
    changed = _changed(mine, theirs, there)
    if not changed:
        return Outcome.SAME, f"{mine.offset} on the source, {theirs.offset} on the target"
    if note:
        return Outcome.UNPROVEN, note
    if origin is not None and origin < mine.offset:
        return Outcome.UNPROVEN, f"the source has not got its record {origin} any more"
    if origin is not None and origin > mine.offset:
        text = f"the source's record {mine.offset} is not there, {origin} comes first"
        return (Outcome.UNPROVEN if compacted else Outcome.WRONG), text
    return Outcome.WRONG, (
        f"the record at {theirs.offset} is not the source's record at {mine.offset}: {changed}"
    )


def _nothing_there(
    mine: Record | None, offset: int, mirrored: int, compacted: bool, note: str
) -> tuple[Outcome, str]:
    assert mine is not None  # noqa: S101 - one of the two is there
    if mine.offset >= mirrored:
        return Outcome.AWAITED, f"the source's record {mine.offset} comes next"
    text = f"the source's record {mine.offset} was mirrored, and nothing is there from {offset} on"
    return (Outcome.UNPROVEN, note or text) if compacted or note else (Outcome.WRONG, text)


def _changed(mine: Record, theirs: Record, there: Found) -> str:
    """Which fields differ; a target that dates records itself is no difference."""
    dated = mine.timestamp if there.append_time else theirs.timestamp
    return changed_fields(
        (mine.timestamp, mine.key, mine.value, tuple(mine.headers)),
        (dated, theirs.key, theirs.value, tuple(theirs.headers)),
    )
