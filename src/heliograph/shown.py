r"""Other people's text, made safe to show. Pure.

Group ids, principals, header names, broker messages and the like may hold anything: escape
sequences that move a cursor or rename a window, line ends that forge a line of a log, marks that
turn the direction of writing. Whoever puts such text into a message uses `shown`; whoever prints
messages uses `shown_lines`, in case somebody forgot.
"""

from __future__ import annotations

__all__ = ["shown", "shown_lines"]

_MOST_CHARACTERS = 1000
_SURROGATE_ESCAPE = range(0xDC80, 0xDD00)


def shown(text: object) -> str:
    r"""One line of it: what is not printable as ``\n`` or ``\x1b``; cut if very long."""
    made = str(text)
    if made.isprintable() and len(made) <= _MOST_CHARACTERS:
        return made
    more = f"... ({len(made)} characters)" if len(made) > _MOST_CHARACTERS else ""
    return "".join(map(_escaped, made[:_MOST_CHARACTERS])) + more


def shown_lines(text: str) -> str:
    """The same for a text of ours: its lines stay lines, and are not cut."""
    if text.isprintable():
        return text
    return "".join(c if c == "\n" else _escaped(c) for c in text)


def _escaped(c: str) -> str:
    if c.isprintable():
        return c
    # Bytes that were not UTF-8.
    if ord(c) in _SURROGATE_ESCAPE:
        return f"\\x{ord(c) - 0xDC00:02x}"
    return c.encode("unicode_escape").decode("ascii")
