"""Values as Kafka's ConfigDef reads them by their type, and prints them. Pure."""

from __future__ import annotations

import re

from heliograph.config.key import split_list

__all__ = ["NUMBERS", "canonical", "parses"]

NUMBERS = {"SHORT": 2**15, "INT": 2**31, "LONG": 2**63, "DOUBLE": 0}
"""Types of numbers, and the first that is too large; DOUBLE has none."""

_CLASS_NAME = re.compile(r"[\w$]+(\.[\w$]+)*")


def parses(text: str, kind: str) -> bool:
    """Whether ``text`` can be read as a value of the type; of a class, whether it may be a name."""
    if kind == "BOOLEAN":
        return text.lower() in ("true", "false")
    if kind == "DOUBLE":
        try:
            float(text)
        except ValueError:
            return False
        return True
    if kind == "CLASS":
        return _CLASS_NAME.fullmatch(text) is not None
    limit = NUMBERS.get(kind)
    if limit is None:
        return True
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text, re.ASCII):
        return False
    return -limit <= int(text) < limit


def canonical(text: str, kind: str) -> str:
    """The value as Connect prints it after reading it by its type."""
    if kind == "BOOLEAN":
        return text.lower()
    if kind == "LIST":
        return ",".join(split_list(text))
    if kind not in NUMBERS or not parses(text, kind):
        return text
    return str(float(text)) if kind == "DOUBLE" else str(int(text))
