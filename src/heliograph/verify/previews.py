"""Records in a few words, for people who look at a difference. Pure."""

from __future__ import annotations

from heliograph.shown import shown
from heliograph.verify.streams import Content

__all__ = ["changed_fields", "preview", "previews"]

_KEY_BYTES, _VALUE_BYTES = 24, 48
#: Bytes before the first that differs.
_CONTEXT_BYTES = 12


def preview(content: Content) -> str:
    """Key, value, headers and timestamp of a record, each cut short."""
    return _text(content, 0, 0)


def previews(here: Content, there: Content) -> tuple[str, str]:
    """Two records that differ, each from shortly before the first byte that does."""
    key, value = _first(here[1], there[1]), _first(here[2], there[2])
    return _text(here, key, value), _text(there, key, value)


def changed_fields(here: Content, there: Content) -> str:
    """Which fields of two records differ, e.g. ``value (byte 17), header trace``."""
    changed = []
    for name, mine, theirs in (("key", here[1], there[1]), ("value", here[2], there[2])):
        if mine != theirs:
            changed.append(f"{name} ({_how(mine, theirs)})")
    if here[3] != there[3]:
        changed.append(_headers(here[3], there[3]))
    if here[0] != there[0]:
        changed.append(f"timestamp ({here[0]} -> {there[0]})")
    return ", ".join(changed)


def _how(mine: bytes | None, theirs: bytes | None) -> str:
    if mine is None or theirs is None:
        return f"{'null' if mine is None else 'bytes'} -> {'null' if theirs is None else 'bytes'}"
    at = f"from byte {_position(mine, theirs)}"
    return at if len(mine) == len(theirs) else f"{at}, {len(mine)} -> {len(theirs)} bytes"


Headers = tuple[tuple[str, bytes | None], ...]


def _headers(mine: Headers, theirs: Headers) -> str:
    for a, b in zip(mine, theirs, strict=False):
        if a != b:
            name, other = shown(a[0]), shown(b[0])
            return f"header {name}" if name == other else f"header {name} -> {other}"
    return f"headers ({len(mine)} -> {len(theirs)})"


def _position(mine: bytes, theirs: bytes) -> int:
    pairs = enumerate(zip(mine, theirs, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(mine), len(theirs)))


def _first(mine: bytes | None, theirs: bytes | None) -> int:
    """Where to begin showing two values so that their difference is seen."""
    if mine is None or theirs is None or mine == theirs:
        return 0
    at = _position(mine, theirs)
    return 0 if at < _KEY_BYTES else at - _CONTEXT_BYTES


def _text(content: Content, key: int, value: int) -> str:
    parts = [
        f"key {_bytes(content[1], key, _KEY_BYTES)}",
        f"value {_bytes(content[2], value, _VALUE_BYTES)}",
    ]
    if headers := content[3]:
        parts.append(f"{len(headers)} header{'s' if len(headers) > 1 else ''}")
    return ", ".join([*parts, f"timestamp {content[0]}"])


def _bytes(value: bytes | None, begin: int, most: int) -> str:
    if value is None:
        return "null"
    piece = value[begin : begin + most]
    try:
        text = piece.decode()
    except UnicodeDecodeError:
        text = ""
    made = f'"{text}"' if text.isprintable() and (text or not piece) else f"0x{piece.hex()}"
    before = f"...[{begin}]" if begin else ""
    behind = f"... ({len(value)} bytes)" if begin + most < len(value) else ""
    return before + made + behind
