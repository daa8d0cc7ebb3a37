"""What a check says, and the list of all checks. Pure.

A check is a function from facts to what it has to say about them. It is registered with its name,
the kind of thing that it looks at, and a sentence that says what it looks for: docs/doctor.md has
the same list, compared by a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

__all__ = [
    "CHECKS",
    "Check",
    "Finding",
    "Missing",
    "Said",
    "Scope",
    "Verdict",
    "check",
    "ok",
    "problem",
    "some",
    "unchecked",
    "warning",
]

#: Names that a line shows; all of them are in the JSON.
_SHOWN_NAMES = 4


class Verdict(StrEnum):
    """What a check concludes."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    NOT_CHECKED = "not checked"


class Scope(StrEnum):
    """What a check looks at: once, or once for each cluster or flow of the file."""

    FILE = "the file"
    MACHINE = "this machine"
    CLUSTER = "each cluster"
    FLOW = "each flow"


@dataclass(frozen=True, slots=True)
class Missing:
    """In place of a fact that could not be found out: why."""

    why: str


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that a check says.

    Attributes:
        names: the topics or the like that it is about.
        commands: that do what is to be done, or that would, each for a shell.
    """

    verdict: Verdict
    text: str
    do: str = ""
    names: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: the check, what it looked at, and what it said."""

    check: str
    about: str
    said: Said


#: Facts of one scope -> what is said about them; never nothing.
Judge = Callable[[Any], Iterable[Said]]
J = TypeVar("J", bound=Callable[..., Iterable[Said]])


@dataclass(frozen=True, slots=True)
class Check:
    """A check, as it is registered."""

    name: str
    scope: Scope
    what: str
    judge: Judge

    def findings(self, about: str, facts: object) -> list[Finding]:
        """What it says about some facts."""
        return [Finding(self.name, about, said) for said in self.judge(facts)]


#: Every check, in the order of the report.
CHECKS: dict[str, Check] = {}


def check(name: str, scope: Scope, what: str) -> Callable[[J], J]:
    """Registers a function as a check."""

    def register(judge: J) -> J:
        CHECKS[name] = Check(name, scope, what, judge)
        return judge

    return register


def ok(text: str, names: Iterable[str] = (), commands: Iterable[str] = ()) -> Said:
    """Nothing to do."""
    return Said(Verdict.OK, text, names=tuple(names), commands=tuple(commands))


def warning(text: str, do: str, names: Iterable[str] = ()) -> Said:
    """It works, but not as well as it could, or not for long."""
    return Said(Verdict.WARNING, text, do, tuple(names))


def problem(text: str, do: str, names: Iterable[str] = ()) -> Said:
    """Something does not work, or will not."""
    return Said(Verdict.PROBLEM, text, do, tuple(names))


def unchecked(why: Missing | str) -> Said:
    """It could not be found out."""
    return Said(Verdict.NOT_CHECKED, why.why if isinstance(why, Missing) else why)


def some(names: Sequence[str], what: str = "") -> str:
    """The first few of many names, and how many more: ``a, b, c, d and 7 more topics``."""
    shown = ", ".join(names[:_SHOWN_NAMES])
    more = len(names) - _SHOWN_NAMES
    return f"{shown} and {more} more{' ' + what if what else ''}" if more > 0 else shown
