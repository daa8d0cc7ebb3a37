"""Where a group may start in a partition of the target, and what that skips or repeats. Pure.

An offset means the first record at or behind it: a group that starts at 10 reads 10 next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from heliograph.ledger.translation import MirroredPartition
from heliograph.model import TopicPartition

__all__ = [
    "EMPTIED",
    "AtTime",
    "Earliest",
    "Exact",
    "FromFile",
    "GroupStart",
    "KeptAhead",
    "Latest",
    "Log",
    "Moved",
    "SinceLastHeartbeat",
    "Start",
    "Strategy",
    "Translated",
    "clamp",
    "counted",
    "locate",
    "start_at",
]


@dataclass(frozen=True, slots=True)
class Translated:
    """At the very record that the group would have read next on the source."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """At the first record that the target has."""


@dataclass(frozen=True, slots=True)
class Latest:
    """At the target's end."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """At the first record with this timestamp or a later one; at the end if there is none."""

    at_ms: int

    @classmethod
    def ago(cls, seconds: float, now: float) -> Self:
        """So many seconds before ``now``, a time as of `time.time`."""
        return cls(int((now - seconds) * 1000))


@dataclass(frozen=True, slots=True)
class SinceLastHeartbeat:
    """As `AtTime`, with the last sign of life of the source that the target has, less a margin."""

    margin_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FromFile:
    """At offsets of the target that somebody names; groups that are not named are left out."""

    offsets: Mapping[str, Mapping[TopicPartition, int]]


#: Where nothing can be skipped, whatever the offset meant.
EMPTIED = "starts at the end of an empty log"

Strategy = Translated | Earliest | Latest | AtTime | SinceLastHeartbeat | FromFile


class Log(NamedTuple):
    """Where a partition starts and ends; equal if it is empty."""

    start: int
    end: int


class Exact(NamedTuple):
    """Where the record is, on the target, that a group would read next on the source.

    Attributes:
        place: of that record, or where it is going to be: may be outside of the log. None if there
            is no saying.
        offset: where to start in the log as it is, so that nothing is skipped; None if no offset
            is known to be safe.
        note: what to know; why there is no offset.
    """

    place: int | None
    offset: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a group starts in a partition of the target.

    Attributes:
        partition: of the target.
        offset: where it would start; always in the log.
        log: the target's log as it was looked at.
        committed: what the group has committed on the target, -1 if nothing.
        upstream: its offset on the source; None if that is not known.
        exact: the place of the record that it would read next; see `Exact`.
        skips: offsets that it has not read, as far as is known, and would never read.
        repeats: offsets that it has read, and would read again.
        note: what to know; empty if the start is exact.
        as_of_ms: when ``upstream`` was true; None without it.
        metadata: what consumers of the group left with the offset.
    """

    partition: TopicPartition
    offset: int
    log: Log
    committed: int = -1
    upstream: int | None = None
    exact: int | None = None
    skips: int = 0
    repeats: int = 0
    note: str = ""
    as_of_ms: int | None = None
    metadata: str = ""

    @property
    def ahead(self) -> int:
        """By how much the target's committed offset is ahead: it is kept, unless told otherwise.

        One behind the log's end is not ahead: no consumer can start there.
        """
        return max(self.committed - self.offset, 0) if self.committed <= self.log.end else 0


@dataclass(frozen=True, slots=True)
class GroupStart:
    """Where a group starts on the target.

    Attributes:
        group: its id, which may hold anything.
        state: on the target, in Kafka's words, or ``absent``.
        reason: why it is not moved; empty if it may be. It may have starts all the same.
        starts: by partition of the target.
        unset: partitions without a start, with the reason. A group begins there with what it has
            committed on the target, or else by ``auto.offset.reset``.
    """

    group: str
    state: str
    reason: str = ""
    starts: Mapping[TopicPartition, Start] = field(default_factory=dict)
    unset: Mapping[TopicPartition, str] = field(default_factory=dict)

    @property
    def skips(self) -> int:
        """Of all partitions."""
        return sum(s.skips for s in self.starts.values())

    @property
    def repeats(self) -> int:
        """Of all partitions."""
        return sum(s.repeats for s in self.starts.values())

    @property
    def as_of_ms(self) -> int | None:
        """When the youngest of its offsets was true; None if none is known."""
        return max((s.as_of_ms for s in self.starts.values() if s.as_of_ms is not None),
                   default=None)  # fmt: skip


class KeptAhead(NamedTuple):
    """What a group has committed on the target, ahead of ``offset``, where it was to be moved."""

    committed: int
    offset: int


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of a group.

    Attributes:
        written: partitions whose offset was written, and read back.
        already: partitions where it was already.
        kept: partitions where an offset that is ahead was kept.
        reason: why the group, or some of it, was not moved; empty if all is as it should be.
    """

    group: str
    written: int = 0
    already: int = 0
    kept: Mapping[TopicPartition, KeptAhead] = field(default_factory=dict)
    reason: str = ""

    @property
    def kept_ahead(self) -> int:
        """In how many partitions."""
        return len(self.kept)


def locate(mirrored: MirroredPartition, upstream: int, earlier: int | None = None) -> Exact:
    """Where a group that is at ``upstream`` on the source goes on on the target.

    ``earlier`` is what its checkpoint says of that, if that is where ``upstream`` is from.
    """
    start, end = mirrored.start, mirrored.end
    cut = mirrored.parted_at(upstream)
    if cut is not None:
        ahead = upstream - cut.source
        note = f"ahead of the mirror by {counted(ahead)}" if ahead else ""
        if cut.target < start:
            note = f"a gap of {counted(start - cut.target)} from its place on: deleted"
        return Exact(cut.target, max(cut.target, start), note)
    if mirrored.paired:
        found = mirrored.to_target(upstream, earlier)
        return Exact(found.offset, found.offset, found.note)
    if not mirrored.ledger.runs:
        if upstream == 0:
            return Exact(start, start)
        if start == end:
            # Retention has emptied the source, or nothing came over: what comes later comes behind.
            return Exact(None, end, EMPTIED)
        return Exact(None, None, "nothing of it is mirrored yet")
    place = mirrored.ledger.to_target(upstream)
    if place > end:
        mirrored_to = mirrored.to_source(end).offset
        ahead = max(upstream - mirrored_to, 0) if mirrored_to is not None else 0
        return Exact(place, end, f"ahead of the mirror by {counted(ahead)}" if ahead else "")
    if place < start:
        return Exact(place, start, f"a gap of {counted(start - place)} from its place on: deleted")
    return Exact(place, place, mirrored.to_target(upstream).note)


def clamp(wanted: int, log: Log) -> tuple[int, str]:
    """The nearest offset of the log, and what to know of it."""
    if wanted > log.end:
        return log.end, f"{wanted} is {counted(wanted - log.end)} behind the end"
    if wanted < log.start:
        return log.start, f"{wanted} is deleted, {counted(log.start - wanted)} before the start"
    return wanted, ""


def start_at(
    partition: TopicPartition,
    wanted: int,
    log: Log,
    *,
    committed: int = -1,
    exact: int | None = None,
    note: str = "",
) -> Start:
    """A start in the log as near to ``wanted`` as can be, compared with the ``exact`` place.

    If that is not known, the group counts as having read what it has committed on the target,
    otherwise nothing.
    """
    offset, clamped = clamp(wanted, log)
    known = exact
    if known is None:
        known = committed if log.start <= committed <= log.end else log.start
    if committed > log.end:
        beyond = f"{committed}, committed there, is behind the end"
        clamped = f"{clamped}; {beyond}" if clamped else beyond
    return Start(
        partition,
        offset,
        log,
        committed,
        exact=exact,
        skips=max(offset - known, 0),
        repeats=max(min(known, log.end) - offset, 0),
        note="; ".join(filter(None, (note, clamped))),
    )


def counted(offsets: int) -> str:
    """A count of offsets in words."""
    return "1 offset" if offsets == 1 else f"{offsets:,} offsets"
