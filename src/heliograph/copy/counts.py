"""What was done with partitions of a lease, as plain numbers: from executors to the driver. Pure.

Counted per batch, never per record. On the wire a list of integers, `Counts.encode`: who knows more
of them than were sent takes the others as 0, who knows fewer ignores the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Counts", "Span", "SpanValues"]


class SpanValues(NamedTuple):
    """Milliseconds that were seen: the last, the least, the greatest, their sum and number."""

    last: int = 0
    least: int = 0
    greatest: int = 0
    total: int = 0
    seen: int = 0

    @property
    def mean(self) -> float:
        """The average; 0 if nothing was seen."""
        return self.total / self.seen if self.seen else 0.0

    def plus(self, later: SpanValues) -> SpanValues:
        """What both have seen; ``later`` saw the last."""
        if not later.seen or not self.seen:
            return later if later.seen else self
        return SpanValues(
            later.last, min(self.least, later.least), max(self.greatest, later.greatest),
            self.total + later.total, self.seen + later.seen,
        )  # fmt: skip


@dataclass(slots=True)
class Span:
    """Collects milliseconds: ages of batches when they were read, or when they had arrived."""

    last: int = 0
    least: int = 0
    greatest: int = 0
    total: int = 0
    seen: int = 0

    def add(self, milliseconds: int) -> None:
        """One more. Clocks differ: what would come from the future is 0."""
        milliseconds = max(milliseconds, 0)
        if not self.seen or milliseconds < self.least:
            self.least = milliseconds
        self.greatest = max(self.greatest, milliseconds)
        self.last = milliseconds
        self.total += milliseconds
        self.seen += 1

    @property
    def values(self) -> SpanValues:
        """As they are now."""
        return SpanValues(self.last, self.least, self.greatest, self.total, self.seen)


class Counts(NamedTuple):
    """What was done with one partition, or with several.

    Attributes:
        passed, merged, rewritten: batches that were written, by the lane that they took;
            ``skipped`` stretches of the source without a record to mirror.
        resumes: how often copying had to go on anew, beyond the first time.
        throttled_ms: how long brokers made it wait, because of a quota.
        age: how old the newest record of each batch was when it was read.
        latency: how old it was when the target had acknowledged it.
    """

    records: int = 0
    bytes: int = 0
    passed: int = 0
    merged: int = 0
    rewritten: int = 0
    skipped: int = 0
    resumes: int = 0
    throttled_ms: int = 0
    age: SpanValues = SpanValues()
    latency: SpanValues = SpanValues()

    @property
    def flat(self) -> list[int]:
        """The numbers in a row."""
        return [*self[:-2], *self.age, *self.latency]

    def encode(self) -> str:
        """As JSON; nothing if nothing was done."""
        return "" if self == _NONE else json.dumps(self.flat, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Counts:
        """What `encode` made; raises ValueError for anything else."""
        return cls.of(json.loads(text)) if text else _NONE

    @classmethod
    def of(cls, value: Any) -> Counts:
        """From the numbers in a row, or from the same nested; raises ValueError."""
        if not isinstance(value, list):
            raise ValueError(f"no counts: {type(value).__name__}")  # noqa: TRY004 - as the rest
        flat: list[int] = []
        for item in value:
            flat += map(int, item if isinstance(item, list) else [item])
        flat = (flat + [0] * _WIDTH)[:_WIDTH]
        plain, age, latency = flat[:-10], flat[-10:-5], flat[-5:]
        return cls._make([*plain, SpanValues(*age), SpanValues(*latency)])

    @classmethod
    def sum(cls, several: Iterable[Counts]) -> Counts:
        """Of all of them."""
        made = _NONE
        for counts in several:
            made = made.plus(counts)
        return made

    def plus(self, other: Counts) -> Counts:
        """Both together; ``other`` is the later one."""
        plain = [a + b for a, b in zip(self.flat[:-10], other.flat[:-10], strict=True)]
        return Counts._make([*plain, self.age.plus(other.age), self.latency.plus(other.latency)])


_NONE = Counts()
_WIDTH = len(_NONE.flat)
