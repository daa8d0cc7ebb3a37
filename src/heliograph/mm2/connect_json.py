"""JSON as Connect's workers write and read it, byte for byte. Pure.

Connect finds a stored offset by the bytes of its key. So whoever writes one has to write what
Connect's JsonConverter (Jackson) writes: no blanks, members in the order of a Java HashMap, the
same escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

__all__ = ["decode_json", "encode_json", "hash_map_order"]

#: Escapes that Python's encoder has written, and characters that it has not escaped but Jackson
#: does: those that are two units of UTF-16.
_UNLIKE = re.compile(r"\\(?:u00([01][0-9a-f])|.)|[\ud800-\udfff\U00010000-\U0010ffff]")
_HALF_PAIR = re.compile(r"[\ud800-\udfff]")


def encode_json(value: Any) -> bytes:
    """Compact JSON with Jackson's escapes; members in the order of the mappings given."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _UNLIKE.sub(_as_jackson, text).encode()


def _as_jackson(found: re.Match[str]) -> str:
    if found[1] is not None:
        return f"\\u00{found[1].upper()}"
    if found[0].startswith("\\"):
        return found[0]
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))


def decode_json(data: bytes | None) -> Any:
    """What Connect reads: None where there is nothing; what follows a whole value is ignored.

    Raises ValueError. Halves of characters, which JSON can hold but UTF-8 cannot, are replaced.
    """
    if data is None:
        return None
    text = data.decode("utf-8-sig").lstrip(" \t\r\n")
    if not text:
        return None
    try:
        value, _ = _DECODER.raw_decode(text)
        return _whole(value) if "\\u" in text else value
    except RecursionError:
        raise ValueError("too deep") from None


def _no_constant(_: str) -> None:
    raise ValueError("no JSON")


#: Python would take NaN and Infinity.
_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _whole(value: Any) -> Any:
    """The same, without halves of characters."""
    if isinstance(value, str):
        return _HALF_PAIR.sub("\ufffd", value)
    if isinstance(value, list):
        return [_whole(v) for v in value]
    if isinstance(value, dict):
        return {_whole(k): _whole(v) for k, v in value.items()}
    return value


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """In the order in which a Java HashMap, filled in the order of ``keys``, has them."""
    keys = list(keys)
    size = 16
    while len(keys) > size * 3 // 4:
        size *= 2
    return sorted(keys, key=lambda key: _spread_hash(key) & (size - 1))


def _spread_hash(text: str) -> int:
    """Java's hash of a string, as its HashMap mixes it."""
    found = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        found = (31 * found + (high << 8 | low)) & 0xFFFFFFFF
    return found ^ found >> 16
