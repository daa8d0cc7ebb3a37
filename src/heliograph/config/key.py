"""What the key table says about one configuration key, and how a value is read by its type."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from re import compile as re_compile
from re import error as RegexError
from types import EllipsisType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, overload

import regex

from heliograph.config.backtracking import first_slow
from heliograph.config.plugins import installed, package_of
from heliograph.errors import ConfigError
from heliograph.shown import shown

__all__ = [
    "BoundedPattern",
    "Key",
    "Scope",
    "Setting",
    "Shown",
    "Status",
    "Type",
    "compile_pattern",
    "split_list",
]

T = TypeVar("T")

PATTERN_LIMIT = 10_000
"""Longest regular expression accepted; nobody writes a longer one by hand."""

_MATCH_SECONDS = 1.0
_NO_NESTING = "write it without nested repetitions, such as (a+)+"
_INT_MAX = 2**31 - 1


class Type(StrEnum):
    """Kafka's ConfigDef types, plus the two kinds of list that need their own check."""

    STRING = "string"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"
    REGEX_LIST = "list of regex"
    PASSWORD = "password"  # noqa: S105 - the name of a type
    CLASS = "class"


class Scope(StrEnum):
    """Where a key is written: ``x``, ``A->B.x``, ``A.x`` / ``A.consumer.x``, or ``B.x``.

    CONNECT keys are those of Connect's own worker file, for ``heliograph connect``.
    """

    TOP = "top-level"
    FLOW = "flow"
    CLIENT = "client"
    WORKER = "worker"
    CONNECT = "connect"


class Status(StrEnum):
    """What Heliograph does with a key that MM2 knows."""

    HONOURED = "honoured"
    ACCEPTED = "accepted"
    REMOVED = "removed"


class Shown(NamedTuple):
    """How Connect shows a key of MM2's connectors; where it says nothing, the row itself counts.

    Attributes:
        connectors: those that have the key: S (source), C (checkpoint), H (heartbeat).
        rank: its place among their keys; equal ones are in the order of the table.
        checkpoint_rank: its place in the checkpoint connector, where that is another one.
        type: Kafka's name of the type.
        default: as Connect shows it, and as it counts in a connector; None if there is none.
        required: a connector without it is refused.
        low, high: bounds of a number; a connector's may be narrower than a file's.
        display: what forms call it; its name if empty.
    """

    connectors: str
    rank: int
    importance: str = "LOW"
    type: str = ""
    default: str | EllipsisType | None = ...
    required: bool = False
    low: float | None = None
    high: float | None = None
    group: str | None = None
    order: int = -1
    width: str = "NONE"
    display: str = ""
    checkpoint_rank: int = 0


@dataclass(frozen=True, slots=True)
class Key:
    """One row of the key table. Parsing, validation and the documentation all come from it.

    Attributes:
        name: dotted name without prefix; one that ends in ``*`` stands for every such name.
        default: as written in a file; None when there is none.
        mm2_default: MM2's default where ours differs, else None.
        allowed: accepted values; empty means any. Compared without case if ``ignore_case``.
        plugins: group of entry points whose names are accepted beside ``allowed``.
        minimum: smallest accepted number; ``nonzero`` refuses 0 (a replication factor).
        roles: for client keys, the clients that have it: consumer, producer, admin.
        common: client key that may also be written ``A.x`` or ``x`` (MM2's CLIENT_CONFIG_DEF).
        top_level: for flow keys, whether ``x`` alone is read (MM2 drops some of them there).
        later: accepted, but does nothing before a later release: setting it gives a warning.
        replacement: for removed keys, what to write instead.
        selects: decides what is copied. Its default copies more than most files ask for, so a line
            that was meant to set it and does not is an error.
        shown: for keys of MM2's connectors, how Connect shows them; None if it does not.
    """

    name: str
    type: Type
    doc: str
    scope: Scope
    default: str | None = None
    mm2_default: str | None = None
    allowed: tuple[str, ...] = ()
    plugins: str = ""
    ignore_case: bool = False
    minimum: int | None = None
    nonzero: bool = False
    importance: str = "medium"
    status: Status = Status.HONOURED
    roles: tuple[str, ...] = ()
    common: bool = False
    top_level: bool = True
    later: bool = False
    replacement: str = ""
    selects: bool = False
    shown: Shown | None = None

    def matches(self, name: str) -> bool:
        """Whether ``name`` (without prefix) is this key."""
        if self.name.endswith("*"):
            return name.startswith(self.name[:-1])
        return name == self.name

    def expected(self) -> str:
        """What a value must look like, for error messages and the documentation."""
        if self.plugins:
            names = ", ".join(self.allowed)
            return f"one of {names}, or the name of an entry point in the group {self.plugins}"
        if self.allowed:
            shown = [value or "nothing" for value in self.allowed]
            return shown[0] if len(shown) == 1 else "one of " + ", ".join(shown)
        if self.type is Type.BOOLEAN:
            return "true or false"
        if self.type in (Type.INT, Type.LONG):
            bound = "" if self.minimum is None else f" of at least {self.minimum}"
            return "a whole number" + bound + (" except 0" if self.nonzero else "")
        if self.type is Type.DOUBLE:
            return "a number"
        if self.type is Type.REGEX_LIST:
            return "a comma separated list of regular expressions"
        return "a value"

    def problem(self, value: str) -> str | None:
        """Says what is wrong with ``value``, or None.

        The text does not repeat the value, except for a pattern of a regex list: no secret.
        """
        value = value.strip()
        wanted = f"expected {self.expected()}"
        if self.plugins:
            return self._plugin_problem(value, wanted)
        if self.allowed:
            given = value.lower() if self.ignore_case else value
            known = {v.lower() if self.ignore_case else v for v in self.allowed}
            return None if given in known else wanted
        if self.type is Type.BOOLEAN:
            return None if value.lower() in ("true", "false") else wanted
        if self.type in (Type.INT, Type.LONG):
            return None if self._is_whole_number(value) else wanted
        if self.type is Type.DOUBLE:
            return None if _is_number(value) else wanted
        if self.type is Type.REGEX_LIST:
            return _first_bad_pattern(value)
        return None

    def _plugin_problem(self, value: str, wanted: str) -> str | None:
        if value in self.allowed:
            return None
        found = installed(self.plugins)
        offers = found.get(value, ())
        if len(offers) > 1:
            return f"offered by {' and '.join(map(package_of, offers))}: uninstall one of them"
        return None if offers else f"{wanted} (installed: {', '.join(found) or 'none'})"

    def next_step(self) -> str:
        """What to do about a value that is not accepted; empty if that is plain."""
        if self.plugins:
            return (
                "classes named in a file are never loaded: install a package with such an entry"
                " point, see docs/extending.md"
            )
        return self.doc if self.status is Status.ACCEPTED else ""

    def _is_whole_number(self, value: str) -> bool:
        digits = value[1:] if value[:1] in ("-", "+") else value
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
            return False
        number = int(value)
        if (self.minimum is not None and number < self.minimum) or (self.nonzero and not number):
            return False
        return number <= (_INT_MAX if self.type is Type.INT else 2**63 - 1)


class _Texts(Protocol):
    @property
    def texts(self) -> Mapping[str, str]: ...


class Setting(Generic[T]):
    """A row of the table that is read: an attribute, whose value is the text of its key, typed."""

    def __init__(
        self,
        scope: Scope,
        type_: Type,
        read: Callable[[str], T],
        name: str,
        doc: str,
        **more: Any,
    ) -> None:
        self.key = Key(name, type_, doc, scope, **more)
        self._read = read

    @overload
    def __get__(self, instance: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, instance: _Texts, owner: type) -> T: ...
    def __get__(self, instance: _Texts | None, owner: type) -> Setting[T] | T:
        return self if instance is None else self._read(instance.texts[self.key.name])


def split_list(value: str) -> tuple[str, ...]:
    """Splits as MM2 does: at commas, trimmed. Empty items are dropped."""
    return tuple(item for item in (part.strip() for part in value.split(",")) if item)


class BoundedPattern:
    """A regular expression that gives up on a text that it takes too long for."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._compiled: Any = regex.compile(pattern)

    def fullmatch(self, text: str) -> bool:
        """Whether it matches all of the text; raises ConfigError if that takes too long."""
        try:
            return self._compiled.fullmatch(text, timeout=_MATCH_SECONDS) is not None
        except TimeoutError:
            raise ConfigError(
                "config.pattern-slow",
                f"pattern {self.pattern[:80]!r} takes more than {_MATCH_SECONDS:.0f} s for the name"
                f" {shown(text)!r}",
                _NO_NESTING,
            ) from None


def compile_pattern(pattern: str) -> BoundedPattern:
    """Compiles one regular expression of a list.

    Raises:
        ValueError: not a regular expression, or too long; the text says why and where.
    """
    if len(pattern) > PATTERN_LIMIT:
        raise ValueError(f"pattern of {len(pattern)} characters is longer than {PATTERN_LIMIT}")
    try:
        # "[[" and "&&" inside a set mean something else in Java: Python only warns of them.
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            re_compile(pattern)
        return BoundedPattern(pattern)
    except regex.error as error:
        raise ValueError(f"pattern {pattern!r} does not compile: {error}") from None
    except RegexError as error:
        at = "" if error.pos is None else f" at position {error.pos}"
        raise ValueError(f"pattern {pattern!r} does not compile: {error.msg}{at}") from None
    except FutureWarning as error:
        raise ValueError(f"pattern {pattern!r} is ambiguous: {error}") from None
    except (RecursionError, OverflowError):
        raise ValueError(f"pattern {pattern[:40]!r}... is nested too deeply") from None


def _first_bad_pattern(value: str) -> str | None:
    patterns = split_list(value)
    for pattern in patterns:
        try:
            compile_pattern(pattern)
        except ValueError as error:
            return str(error)
    if (slow := first_slow(patterns)) is not None:
        return (
            f"pattern {slow[0][:80]!r} takes exponential time, for example for {slow[1][:80]!r};"
            f" {_NO_NESTING}"
        )
    return None


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
