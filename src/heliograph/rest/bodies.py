"""Bodies of requests, read as Jackson reads them for Connect. Pure.

Connect answers 500 to a body that it cannot read, and so do we: clients know no better. Scalars
become strings exactly as they were written (``1.50`` stays ``1.50``); objects and arrays as values
are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from heliograph.connect.api import ConnectError, Initial, PartitionOffset

__all__ = ["NULL_VALUE", "config_of", "new_connector", "offsets_of", "parsed", "strings_of"]

_ENTITIES = "org.apache.kafka.connect.runtime.rest.entities"
_REQUEST = f"{_ENTITIES}.CreateConnectorRequest"
_STRINGS = "java.util.LinkedHashMap<java.lang.String,java.lang.String>"
_OBJECTS = "java.util.LinkedHashMap<java.lang.String,java.lang.Object>"
_SOURCE = "[Source: REDACTED (`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled)"
_NO_CONFIG = 'Cannot invoke "java.util.Map.get(Object)" because "connectorConfig" is null'

NULL_VALUE = (
    "Connector configuration is invalid and contains the following {count} error(s):{errors}\n"
    "You can also find the above list of errors at the endpoint"
    " `/connector-plugins/{{connectorType}}/config/validate`"
)
_NULL = "\nNull value can not be supplied as the configuration value."


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def parsed(body: bytes) -> Any:
    """The value of a body, numbers as they were written; None if there is none. Raises 500."""
    if not body.strip():
        return None
    try:
        text = body.decode(json.detect_encoding(body))
    except UnicodeDecodeError as error:
        raise _unread(f"Invalid UTF-8 start byte 0x{body[error.start]:02x}") from None
    try:
        value = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise _unread(_syntax(text, error), error.lineno, error.colno) from None
    except RecursionError:
        raise _unread("Document nesting depth exceeds the maximum allowed") from None
    try:
        text.encode()
        _check(value)
    except UnicodeEncodeError:
        raise _unread("Incomplete surrogate pair in a string") from None
    return value


def new_connector(body: bytes) -> tuple[str, dict[str, str | None], Initial | None]:
    """Name, config and initial state of ``POST /connectors``; raises 500."""
    value = parsed(body)
    if value is None:
        raise ConnectError(
            500, f'Cannot invoke "{_REQUEST}.name()" because "createRequest" is null'
        )
    fields = _object(value, _REQUEST)
    for name in fields:
        if name not in {"name", "config", "initial_state"}:
            raise _unread(
                f'Unrecognized field "{name}" (class {_REQUEST}), not marked as ignorable'
                ' (3 known properties: "config", "name", "initial_state")'
            )
    named = _string(fields.get("name"))
    config = fields.get("config")
    initial = _string(fields.get("initial_state"))
    target = None if initial is None else _initial(initial)
    if config is None:
        raise ConnectError(500, _NO_CONFIG)
    return (named or "").strip(), _strings(_object(config, _STRINGS)), target


def config_of(body: bytes, missing: str = _NO_CONFIG) -> dict[str, str | None]:
    """A map of strings, nulls included; raises 500, with the text ``missing`` if there is none."""
    value = parsed(body)
    if value is None:
        raise ConnectError(500, missing)
    return _strings(_object(value, _STRINGS))


def strings_of(name: str, config: Mapping[str, str | None]) -> dict[str, str]:
    """A connector's config with its name; raises 400 for another name in it, or a null."""
    included = config.get("name")
    if included is not None and included != name:
        raise ConnectError(
            400,
            f"Connector name configuration ({included}) doesn't match connector name in the URL"
            f" ({name})",
        )
    nulls = sum(value is None for key, value in config.items() if key != "name")
    if nulls:
        raise ConnectError(400, NULL_VALUE.format(count=nulls, errors=nulls * _NULL))
    strings = {key: value for key, value in config.items() if value is not None}
    return strings if "name" in strings else {**strings, "name": name}


def offsets_of(body: bytes) -> list[PartitionOffset]:
    """The offsets of ``PATCH C/offsets``; raises 400 if there are none, 500 if it is another thing.

    What a connector makes of partitions and offsets is not checked here.
    """
    value = parsed(body)
    if value is None:
        raise ConnectError(
            500, f'Cannot invoke "{_ENTITIES}.ConnectorOffsets.offsets()" because "offsets" is null'
        )
    kind = f"{_ENTITIES}.ConnectorOffsets"
    fields = _object(value, kind)
    for name in fields:
        if name != "offsets":
            raise _unread(
                f'Unrecognized field "{name}" (class {kind}), not marked as ignorable'
                ' (one known property: "offsets")'
            )
    items = fields.get("offsets")
    if items is None or items == []:
        raise ConnectError(
            400, "Partitions / offsets need to be provided for an alter offsets request"
        )
    if not isinstance(items, list):
        raise _wrong("java.util.ArrayList<java.lang.Object>", items)
    return [_offset(item) for item in items]


def _offset(item: Any) -> PartitionOffset:
    kind = f"{_ENTITIES}.ConnectorOffset"
    if item is None:
        raise ConnectError(
            500, f'Cannot invoke "{kind}.partition()" because "offset" is null'
        )  # fmt: skip
    fields = _object(item, kind)
    for name in fields:
        if name not in {"partition", "offset"}:
            raise _unread(
                f'Unrecognized field "{name}" (class {kind}), not marked as ignorable'
                ' (2 known properties: "partition", "offset")'
            )
    partition, offset = fields.get("partition"), fields.get("offset")
    if partition is None:
        raise ConnectError(500, "Source partitions may not be null")
    return PartitionOffset(
        _typed(_object(partition, _OBJECTS)),
        None if offset is None else _typed(_object(offset, _OBJECTS)),
    )


def _typed(value: Any) -> Any:
    """Numbers as numbers."""
    if isinstance(value, _Number):
        return int(value) if value.lstrip("-").isdigit() else float(value)
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(item) for item in value]
    return value


def _initial(text: str) -> Initial:
    try:
        return Initial(text.upper())
    except ValueError:
        raise _unread(
            f"Cannot construct instance of `{_REQUEST}$InitialState`, problem: No enum constant"
            f" {_REQUEST}.InitialState.{text.upper()}"
        ) from None


def _strings(values: Mapping[str, Any]) -> dict[str, str | None]:
    return {key: _string(value) for key, value in values.items()}


def _string(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str(value)
    raise _wrong("java.lang.String", value)


def _object(value: Any, kind: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        raise _wrong(kind, value)
    raise _unread(
        f"Cannot construct instance of `{kind.partition('<')[0]}` (although at least one Creator"
        " exists): no argument constructor/factory method to deserialize from this value"
    )


def _wrong(kind: str, value: Any) -> ConnectError:
    what, token = ("Array", "ARRAY") if isinstance(value, list) else ("Object", "OBJECT")
    return _unread(
        f"Cannot deserialize value of type `{kind}` from {what} value (token"
        f" `JsonToken.START_{token}`)"
    )


def _unread(text: str, line: int = 0, column: int = 0) -> ConnectError:
    where = f"; line: {line}, column: {column}" if line else ""
    return ConnectError(500, f"{text}\n at {_SOURCE}{where}]")


def _syntax(text: str, error: json.JSONDecodeError) -> str:
    if error.pos >= len(text.rstrip()):
        return "Unexpected end-of-input"
    found = text[error.pos]
    if found.isalpha():
        what = "Unrecognized token"
    else:
        what = f"Unexpected character ('{found}' (code {ord(found)}))"
    return f"{what}: was expecting JSON: {error.msg}"


def _constant(text: str) -> Any:
    raise _unread(
        f"Non-standard token '{text}': enable `JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS`"
    )


def _check(value: Any) -> None:
    """Raise UnicodeEncodeError for text that cannot be stored."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict):
        for key, item in value.items():
            key.encode()
            _check(item)
    elif isinstance(value, list):
        for item in value:
            _check(item)
