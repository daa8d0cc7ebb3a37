"""Java ``.properties`` text, read as ``java.util.Properties.load`` reads it, with line numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import javaproperties

from heliograph.errors import ConfigError

__all__ = ["Entry", "Properties", "dump", "parse"]

_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of the file; ``line`` is where it starts, counted from 1."""

    key: str
    value: str
    line: int


@dataclass(slots=True)
class Properties:
    """The entries of a file. Of a key written twice the later one wins, as in Java.

    Attributes:
        entries: the winners, in file order.
        duplicates: (loser, winner) pairs.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    duplicates: list[tuple[Entry, Entry]] = field(default_factory=list)

    def get(self, key: str) -> str | None:
        """The value of ``key``, or None when the file does not have it."""
        entry = self.entries.get(key)
        return None if entry is None else entry.value

    def as_dict(self) -> dict[str, str]:
        """Key to value, without line numbers."""
        return {key: entry.value for key, entry in self.entries.items()}


def parse(text: str) -> Properties:
    """Parses properties text.

    Raises:
        ConfigError: ``config.syntax`` for a malformed Unicode escape, naming the line.
    """
    result = Properties()
    line = 1
    elements = javaproperties.parse(text)
    while True:
        try:
            element = next(elements, None)
        except javaproperties.InvalidUEscapeError:
            raise ConfigError(
                "config.syntax",
                f"line {line}: \\u must be followed by four hexadecimal digits",
                "write \\\\u for a literal backslash before a u",
            ) from None
        if element is None:
            return result
        if isinstance(element, javaproperties.KeyValue):
            entry = Entry(_whole(element.key), _whole(element.value), line)
            earlier = result.entries.pop(entry.key, None)
            if earlier is not None:
                result.duplicates.append((earlier, entry))
            result.entries[entry.key] = entry
        # Only these end a line; str.splitlines would also split at \f, \x1c, \u2028...
        line += len(_LINE_END.findall(element.source))


def _whole(text: str) -> str:
    """Halves of characters, which Java's escapes can write alone, become replacement marks."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def dump(values: Mapping[str, str]) -> str:
    """Text that ``parse`` turns back into ``values``."""
    return javaproperties.dumps(values, timestamp=False, ensure_ascii=False)
