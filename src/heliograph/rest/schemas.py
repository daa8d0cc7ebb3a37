"""JSON schemas of bodies and answers, for the OpenAPI document. Pure.

Nothing is checked by them at run time: bodies are read as Jackson reads them
(`heliograph.rest.bodies`). The tests hold every answer against them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.connect.api import Initial, State
from heliograph.failover.steps import Phase
from heliograph.ledger.handovers import Kind
from heliograph.ledger.rehearsals import RehearsalKind

__all__ = [
    "CONFIG", "CONNECTOR", "CONNECTORS", "DEFINITIONS", "ERROR", "FAILOVER", "FAILOVER_BEGUN",
    "FAILOVER_PLAN", "GROUP", "GROUPS", "HANDOVER", "HEALTH", "HISTORY", "LEVEL", "LIVE",
    "LOGGER", "LOGGERS", "ME", "MESSAGE", "NAMES", "NEW", "OFFSETS", "PLUGINS", "READY", "SERVER",
    "STATUS", "STORED_OFFSETS", "STRINGS", "TASKS", "TASK_STATUS", "TOPICS", "VALIDATED",
    "VALIDATION",
]  # fmt: skip

Schema = Mapping[str, Any]

_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_INTEGER = {"type": "integer"}
_BOOLEAN = {"type": "boolean"}


def _object(**properties: Schema) -> dict[str, Any]:
    """An object with exactly these properties; a trailing ``_`` marks one that may be missing."""
    return {
        "type": "object",
        "required": [name for name in properties if not name.endswith("_")],
        "additionalProperties": False,
        "properties": {name.removesuffix("_"): schema for name, schema in properties.items()},
    }


def _list(items: Schema) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _map(values: Schema) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


# -- bodies -----------------------------------------------------------------------------------

STRINGS = _map(_TEXT_OR_NULL)
NEW = _object(name=_TEXT, config=STRINGS, initial_state_={"enum": [*Initial, None]})
VALIDATED = {**STRINGS, "required": ["connector.class"], "properties": {"connector.class": _TEXT}}
LEVEL = {**STRINGS, "required": ["level"], "properties": {"level": _TEXT}}
_CHANGE = _object(partition={"type": "object"}, offset_={"type": ["object", "null"]})
OFFSETS = _object(offsets={**_list(_CHANGE), "minItems": 1})

# -- answers ----------------------------------------------------------------------------------

ERROR = _object(error_code=_INTEGER, message=_TEXT_OR_NULL)
SERVER = _object(version=_TEXT, commit=_TEXT, kafka_cluster_id=_TEXT)
LIVE = _object(
    status={"enum": ["live", "stuck"]},
    stuck=_list(_object(part=_TEXT, seconds={"type": "number"})),
)
READY = _object(
    status={"enum": ["ready", "unready"]},
    reasons=_list(_object(what=_TEXT, state=_TEXT, code=_TEXT, reason=_TEXT)),
)
HEALTH = _object(status={"enum": ["healthy", "starting", "unhealthy"]}, message=_TEXT)
NAMES = _list(_TEXT)
MESSAGE = _object(message=_TEXT)

_TYPE = {"enum": ["source", "sink", "unknown"]}
_TASK = _object(connector=_TEXT, task=_INTEGER)
CONNECTOR = _object(name=_TEXT, config=_map(_TEXT), tasks=_list(_TASK), type=_TYPE)
TASKS = _list(_object(id=_TASK, config=_map(_TEXT)))

_STATE = {"worker_id": _TEXT, "trace_": _TEXT, "version_": _TEXT}
# Clients know no STOPPED task.
_TASK_STATES = [state for state in State if state is not State.STOPPED]
TASK_STATUS = _object(id=_INTEGER, state={"enum": _TASK_STATES}, **_STATE)
_OWN_STATUS = _object(state={"enum": [*State]}, **_STATE)
STATUS = _object(name=_TEXT, connector=_OWN_STATUS, tasks=_list(TASK_STATUS), type=_TYPE)
CONNECTORS = {"anyOf": [NAMES, _map(_object(info_=CONNECTOR, status_=STATUS))]}

TOPICS = _map(_object(topics=NAMES))
STORED_OFFSETS = _object(
    offsets=_list(_object(partition={"type": "object"}, offset={"type": ["object", "null"]}))
)

PLUGINS = _list(_object(**{"class": _TEXT, "type": _TEXT, "version": _TEXT}))
_DEFINITION = _object(
    name=_TEXT,
    type={"enum": ["BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS",
                   "PASSWORD"]},
    required=_BOOLEAN, default_value=_TEXT_OR_NULL,
    importance={"enum": ["LOW", "MEDIUM", "HIGH"]}, documentation=_TEXT, group=_TEXT_OR_NULL,
    order_in_group=_INTEGER, width={"enum": ["NONE", "SHORT", "MEDIUM", "LONG"]},
    display_name=_TEXT, dependents=NAMES,
)  # fmt: skip
DEFINITIONS = _list(_DEFINITION)
_VALUE = _object(
    name=_TEXT, value=_TEXT_OR_NULL, recommended_values=NAMES, errors=NAMES, visible=_BOOLEAN
)
VALIDATION = _object(
    name=_TEXT, error_count=_INTEGER, groups=NAMES,
    configs=_list(_object(definition={"anyOf": [_DEFINITION, {"type": "null"}]}, value=_VALUE)),
)  # fmt: skip

LOGGER = _object(level=_TEXT, last_modified={"type": ["integer", "null"]})
LOGGERS = _map(LOGGER)

# -- answers of our own -----------------------------------------------------------------------

_INTEGER_OR_NULL = {"type": ["integer", "null"]}
_NUMBER_OR_NULL = {"type": ["number", "null"]}
_BOOLEAN_OR_NULL = {"type": ["boolean", "null"]}
ME = _object(
    name=_TEXT, role={"enum": ["viewer", "operator", "admin"]}, changes=_BOOLEAN, version=_TEXT,
    logins=_list({"enum": ["basic", "bearer", "certificate"]}),
)  # fmt: skip
_POINT = {**_list(_NUMBER_OR_NULL), "minItems": 6, "maxItems": 6}
HISTORY = _object(flows=_map(_object(step_seconds=_INTEGER, points=_list(_POINT))))
CONFIG = _object(flows=_list(_object(
    flow=_TEXT, keys=_list(_object(key=_TEXT, value=_TEXT, origin=_TEXT, is_default=_BOOLEAN)),
)))  # fmt: skip
_GROUP = {
    "flow": _TEXT, "group": _TEXT, "said": _map(_TEXT), "ready": _BOOLEAN_OR_NULL, "why": _TEXT,
}  # fmt: skip
GROUPS = _object(
    total=_INTEGER, offset=_INTEGER, limit=_INTEGER,
    groups=_list(_object(**_GROUP, partitions=_INTEGER, lag=_INTEGER_OR_NULL)),
)  # fmt: skip
GROUP = _object(**_GROUP, partitions=_list(_object(
    topic=_TEXT, partition=_INTEGER, target_topic=_TEXT, source_committed=_INTEGER,
    source_end=_INTEGER_OR_NULL, translated=_INTEGER_OR_NULL, target_committed=_INTEGER_OR_NULL,
    target_end=_INTEGER_OR_NULL,
)))  # fmt: skip

# -- failover ---------------------------------------------------------------------------------

_NUMBER = {"type": "number"}
_LIMIT = {"type": ["object", "null"], "additionalProperties": False, "properties": {
    "records": {"type": ["integer", "null"], "minimum": 0},
    "seconds": {"type": ["number", "null"], "minimum": 0},
}}  # fmt: skip
#: ``confirm`` is the name of the flow once more.
FAILOVER = _object(confirm=_TEXT, max_rpo_=_LIMIT, force_=_BOOLEAN)
_NOTED = _object(
    id=_TEXT, kind={"enum": [*Kind]}, by=_TEXT, began=_TEXT, ended=_TEXT_OR_NULL,
    aborted=_BOOLEAN, steps=_list(_TEXT), topics={"anyOf": [_list(_TEXT), {"type": "null"}]},
)  # fmt: skip
_NOTED_OR_NULL = {"anyOf": [_NOTED, {"type": "null"}]}
_RISK = _object(
    records=_INTEGER_OR_NULL, exact=_BOOLEAN, seconds=_NUMBER_OR_NULL, as_of=_TEXT_OR_NULL,
    unknown_partitions=_INTEGER, text=_TEXT,
    partitions=_list(_object(
        partition=_TEXT, mirrored_before=_INTEGER, source_end=_INTEGER_OR_NULL,
        records=_INTEGER_OR_NULL,
    )),
)  # fmt: skip
_SEEN = _object(answers=_BOOLEAN, healthy=_BOOLEAN, why_not=_TEXT, silent_partitions=_INTEGER)
FAILOVER_PLAN = _object(
    flow=_TEXT, source=_SEEN, topics=_list(_TEXT), partitions=_INTEGER, at_risk=_RISK,
    groups=_list(_object(
        group=_TEXT, state=_TEXT, reason=_TEXT, partitions=_INTEGER, skips=_INTEGER,
        repeats=_INTEGER, unset=_map(_TEXT),
    )),
    faulted=_map(_TEXT), notes=_list(_TEXT), before=_NOTED_OR_NULL,
    refusals=_list(_object(code=_TEXT, message=_TEXT, hint=_TEXT)),
)  # fmt: skip
_REPORT = _object(
    flow=_TEXT, handover=_NOTED, repeated=_BOOLEAN, source=_SEEN, rto_seconds=_NUMBER, rpo=_RISK,
    partitions=_list(_object(
        source=_TEXT, target=_TEXT, mirrored_before=_INTEGER, target_end=_INTEGER, exact=_BOOLEAN,
    )),
    groups=_list(_object(
        group=_TEXT, moved=_BOOLEAN, reason=_TEXT, written=_INTEGER, already=_INTEGER,
        kept_ahead=_INTEGER, kept=_map(_object(committed=_INTEGER, translated=_INTEGER)),
        offsets=_map(_INTEGER), unset=_map(_TEXT),
    )),
    faulted=_map(_TEXT), notes=_list(_TEXT),
    steps=_map(_NUMBER),
)  # fmt: skip
_RUN = _object(
    kind=_TEXT, by=_TEXT, began=_TEXT, ended=_TEXT_OR_NULL,
    progress=_list(_object(
        at=_TEXT, step=_TEXT, phase={"enum": [*Phase]}, text=_TEXT, seconds=_NUMBER,
    )),
    error={"anyOf": [
        _object(code=_TEXT, message=_TEXT, hint=_TEXT, refused=_BOOLEAN), {"type": "null"},
    ]},
    report={"anyOf": [_REPORT, {"type": "null"}]},
)  # fmt: skip
FAILOVER_BEGUN = _object(flow=_TEXT, run=_RUN)
HANDOVER = _object(
    flow=_TEXT, steps=_list(_TEXT), handover=_NOTED_OR_NULL, unread=_TEXT,
    run={"anyOf": [_RUN, {"type": "null"}]},
    rehearsals=_list(_object(
        at=_TEXT, kind={"enum": [*RehearsalKind]}, rto_seconds=_NUMBER_OR_NULL,
        rpo_records=_INTEGER_OR_NULL, rpo_seconds=_NUMBER_OR_NULL, ok=_BOOLEAN, groups=_INTEGER,
        by=_TEXT, text=_TEXT,
    )),
)  # fmt: skip
