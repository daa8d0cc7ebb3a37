"""Java ``.properties`` text, read as ``java.util.Properties.load`` reads it, with line numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from heliograph.errors import ConfigError

__all__ = ["Entry", "Properties", "dump", "parse"]

_WHITESPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_DUMP_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


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
    for number, line in _logical_lines(text):
        raw_key, raw_value = _split(line)
        entry = Entry(_unescape(raw_key, number), _unescape(raw_value, number), number)
        earlier = result.entries.pop(entry.key, None)
        if earlier is not None:
            result.duplicates.append((earlier, entry))
        result.entries[entry.key] = entry
    return result


def dump(values: Mapping[str, str]) -> str:
    """Text that ``parse`` turns back into ``values``."""
    lines = (f"{_escape(k, is_key=True)}={_escape(v, is_key=False)}\n" for k, v in values.items())
    return "".join(lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    # Only \n, \r and \r\n end a line; str.splitlines would also split at \f, \x1c, \u2028...
    natural = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    index = 0
    while index < len(natural):
        start = index
        line = natural[index].lstrip(_WHITESPACE)
        index += 1
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            line = line[:-1]
            if index == len(natural):
                break
            line += natural[index].lstrip(_WHITESPACE)
            index += 1
        # A lone backslash followed by nothing is a blank line to Java too.
        if line:
            yield start + 1, line


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _WHITESPACE:
        end += 2 if line[end] == "\\" else 1
    key, rest = line[:end], line[end:].lstrip(_WHITESPACE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_WHITESPACE)
    return key, rest


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    index = 0
    while index < len(text):
        char = text[index]
        index += 1
        if char != "\\":
            out.append(char)
            continue
        if index == len(text):
            break
        char = text[index]
        index += 1
        if char == "u":
            digits = text[index : index + 4]
            if len(digits) != 4 or any(c not in "0123456789abcdefABCDEF" for c in digits):
                raise ConfigError(
                    "config.syntax",
                    f"line {line}: \\u must be followed by four hexadecimal digits",
                    "write \\\\u for a literal backslash before a u",
                )
            out.append(chr(int(digits, 16)))
            index += 4
        else:
            out.append(_ESCAPES.get(char, char))
    # \uD83D\uDE00 is how Java writes one character outside the basic plane.
    joined = "".join(out)
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, is_key: bool) -> str:
    out: list[str] = []
    for position, char in enumerate(text):
        if char in _DUMP_ESCAPES:
            out.append(_DUMP_ESCAPES[char])
        elif char in "\\=:#!" or (char == " " and (is_key or position == 0)):
            out.append("\\" + char)
        else:
            out.append(char)
    return "".join(out)
