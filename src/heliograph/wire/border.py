"""Answers as kafka-python decodes them, checked once: nobody behind this meets a null. Pure.

The protocol says of every field whether it may be null. A broker keeps to that; damaged bytes and a
rogue server do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from heliograph.shown import shown
from heliograph.wire.errors import DamagedAnswer, WireError

__all__ = ["check_nulls", "reading"]

_TEXTS = {"string", "bytes", "records"}


@contextmanager
def reading(connection: Any, what: str) -> Iterator[None]:
    """Whatever goes wrong with an answer in here: the connection is closed, DamagedAnswer."""
    try:
        yield
    except WireError:
        raise
    except Exception as error:  # whatever decoders do with damaged bytes
        connection.close()
        raise DamagedAnswer(
            f"connection to {connection.address} broke: {what} cannot be read:"
            f" {shown(error) or type(error).__name__}"
        ) from error


def check_nulls(message: Any, version: int) -> None:
    """Raises ValueError if a field is null that must not be, at any depth."""
    named, nested = _fields(type(message), version)  # type: ignore[arg-type] # classes are hashable
    for name in named:
        if getattr(message, name) is None:
            raise ValueError(f"{type(message).__name__}.{name} is null")
    for name in nested:
        for part in getattr(message, name) or ():
            check_nulls(part, version)


@lru_cache(maxsize=512)
def _fields(kind: type, version: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fields of this version that are never null, and those that hold other structures."""
    named, nested = [], []
    for name, field in getattr(kind, "fields", {}).items():
        if not field.for_version_q(version):
            continue
        may_be_null = field.is_array() or field.type_str in _TEXTS
        if may_be_null and not field.nullable_for_version_q(version):
            named.append(name)
        if field.is_struct_array():
            nested.append(name)
    return tuple(named), tuple(nested)
