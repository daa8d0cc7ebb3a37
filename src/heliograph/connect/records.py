"""The records of Connect's storage topics, as Connect's own workers write and read them. Pure.

Config topic (one partition):

    connector-C          {"properties":{...}}; nothing: C is deleted
    target-state-C       {"state":S,"state.v2":S}
    task-C-N             {"properties":{...}}
    commit-C             {"tasks":n}: the tasks 0 to n-1 before this record count from here on
    restart-connector-C  {"include-tasks":b,"only-failed":b}
    logger-cluster-L     {"level":s}

Status topic:

    status-connector-C, status-task-C-N
                         {"state":s,"trace":s,"worker_id":s,"generation":n,"version":s}
    status-topic-T:connector-C
                         {"topic":{"name":T,"connector":C,"task":N,"discoverTimestamp":ms}}

Offsets topic: ``["C",{partition}]`` -> ``{"offset":n}``. Connect finds an offset by the bytes of
its key (`heliograph.mm2.connect_json`).

Functions ``..._entry`` make what is written, ``decode_...`` read it. What is read may be anybody's:
whatever is not as above raises BadRecord, which never repeats a value, as that may be a secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from heliograph.connect.api import Initial, State
from heliograph.mm2.connect_json import decode_json, encode_json, hash_map_order

__all__ = [
    "BadRecord",
    "Commit",
    "ConfigRecord",
    "ConnectorConfig",
    "Entry",
    "LoggerLevel",
    "RestartRequest",
    "StatusRecord",
    "StoredStatus",
    "Target",
    "TaskConfig",
    "TopicRecord",
    "TopicUse",
    "connector_entry",
    "decode_config",
    "decode_offset",
    "decode_offset_key",
    "decode_status",
    "encode_key",
    "logger_entry",
    "offset_key",
    "restart_entry",
    "status_entry",
    "supersedes",
    "target_entry",
    "task_entries",
    "task_status_entry",
    "topic_entry",
]

#: A key, and what its value is as JSON; None removes what was written under the key.
Entry = tuple[str, Mapping[str, Any] | None]

_TARGET, _CONNECTOR, _TASK, _COMMIT = "target-state-", "connector-", "task-", "commit-"
_RESTART, _LOGGER = "restart-connector-", "logger-cluster-"
#: Known, and of no use to us: how many tasks of an exactly-once connector were fenced; the key that
#: workers sign requests to each other with.
_FENCING, _SESSION_KEY = "tasks-fencing-", "session-key"
_CONNECTOR_STATUS, _TASK_STATUS, _TOPIC = "status-connector-", "status-task-", "status-topic-"
_TOPIC_OF = ":connector-"

#: The words of target states, and what they are called in REST.
_STATES = {
    "STARTED": Initial.RUNNING,
    "PAUSED": Initial.PAUSED,
    "STOPPED": Initial.STOPPED,
}
_WORDS = {state: word for word, state in _STATES.items()}
_STATUS_STATES = frozenset(state.value for state in State)
#: A status that says this is none any more. Connect writes no such value, but reads it.
_DESTROYED = "DESTROYED"
#: What Connect writes for a plugin that does not tell its version.
_UNDEFINED = "undefined"
_INT_MOST, _LONG_MOST = (1 << 31) - 1, (1 << 63) - 1


class BadRecord(ValueError):
    """A record that is none of Connect's; the message says why, without values."""


# -- values -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConnectorConfig:
    """The config of a connector; None: it is deleted."""

    name: str
    config: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Target:
    """What a connector is to do; None: what a new one does."""

    name: str
    target: Initial | None


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """The config of one task; it counts when a `Commit` follows."""

    name: str
    task: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Commit:
    """The connector has so many tasks."""

    name: str
    tasks: int


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """Somebody asks whoever runs the connector to restart it."""

    name: str
    include_tasks: bool
    only_failed: bool


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    """Somebody asks every worker to change the level of a logger."""

    logger: str
    level: str


ConfigRecord = ConnectorConfig | Target | TaskConfig | Commit | RestartRequest | LoggerLevel


@dataclass(frozen=True, slots=True)
class StoredStatus:
    """What a worker says of a connector or a task that it runs.

    Attributes:
        state: of it.
        worker_id: who says so.
        generation: of the group of workers, when that was said.
        trace: why it failed; may be empty.
        version: of the plugin; empty if unknown.
    """

    state: State
    worker_id: str
    generation: int
    trace: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class TopicUse:
    """A task has written to a topic, first at that time."""

    topic: str
    connector: str
    task: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """A status of a connector, or with a number of one of its tasks; None: there is none."""

    name: str
    task: int | None
    status: StoredStatus | None


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic that a connector uses; None: it does not, or that was reset."""

    name: str
    topic: str
    use: TopicUse | None


def supersedes(status: StoredStatus, known: StoredStatus | None) -> bool:
    """Whether a worker may write a status over the one that is known.

    A worker that lost a connector, or that failed, may learn late that another one has it: then
    the word of that one stands. All other states are written by whoever runs the connector.
    """
    if known is None or status.state not in {State.UNASSIGNED, State.FAILED}:
        return True
    return known.worker_id == status.worker_id or known.generation <= status.generation


# -- config topic -----------------------------------------------------------------------------


def connector_entry(name: str, config: Mapping[str, str] | None) -> Entry:
    """A connector's config; None deletes it (its target state is deleted by another record)."""
    return _CONNECTOR + name, None if config is None else {"properties": dict(config)}


def target_entry(name: str, target: Initial | None) -> Entry:
    """A connector's target state; None deletes it."""
    if target is None:
        return _TARGET + name, None
    word = _WORDS[target]
    # Workers before 3.5 know no STOPPED; to them it is paused.
    old = _WORDS[Initial.PAUSED] if target is Initial.STOPPED else word
    return _TARGET + name, {"state": old, "state.v2": word}


def task_entries(name: str, configs: Sequence[Mapping[str, str]]) -> list[Entry]:
    """The configs of all tasks of a connector and what makes them count, in the order to write."""
    tasks: list[Entry] = [
        (f"{_TASK}{name}-{number}", {"properties": dict(config)})
        for number, config in enumerate(configs)
    ]
    return [*tasks, (_COMMIT + name, {"tasks": len(configs)})]


def restart_entry(name: str, *, include_tasks: bool, only_failed: bool) -> Entry:
    """A request to restart a connector."""
    return _RESTART + name, {"include-tasks": include_tasks, "only-failed": only_failed}


def logger_entry(logger: str, level: str) -> Entry:
    """A request to all workers to change the level of a logger."""
    return _LOGGER + logger, {"level": level}


def decode_config(key: bytes, value: bytes | None) -> ConfigRecord | None:
    """A record of the config topic; None if it is one that does not concern us."""
    text = _key(key)
    if text == _SESSION_KEY or text.startswith(_FENCING):
        return None
    if text.startswith(_TARGET):
        return Target(_named(text, _TARGET), _target(_parsed(value)))
    if text.startswith(_CONNECTOR):
        content = _parsed(value)
        config = None if content is None else _properties(content)
        return ConnectorConfig(_named(text, _CONNECTOR), config)
    if text.startswith(_TASK):
        name, task = _task_id(text, _TASK)
        return TaskConfig(name, task, _properties(_parsed(value)))
    if text.startswith(_COMMIT):
        return Commit(_named(text, _COMMIT), _integer(_object(_parsed(value)), "tasks", 0))
    if text.startswith(_RESTART):
        content = _object(_parsed(value))
        # As Connect: what is not said, or not so, is false.
        tasks, failed = content.get("include-tasks"), content.get("only-failed")
        return RestartRequest(_named(text, _RESTART), tasks is True, failed is True)
    if text.startswith(_LOGGER):
        level = _object(_parsed(value)).get("level")
        return LoggerLevel(_named(text, _LOGGER), _text(level, "level"))
    raise BadRecord("its key is none of Connect's")


def _target(content: Any) -> Initial | None:
    if content is None:
        return None
    fields = _object(content)
    word = fields.get("state.v2")
    if not isinstance(word, str):
        word = _text(fields.get("state"), "state")
    if word not in _STATES:
        raise BadRecord("its target state is unknown")
    return _STATES[word]


def _properties(content: Any) -> Mapping[str, str]:
    """The properties of a connector or task. A key without a value is as one that is not there."""
    found = _object(content).get("properties")
    if not isinstance(found, dict):
        raise BadRecord("'properties' is no object")
    return MappingProxyType({k: _scalar(v) for k, v in found.items() if v is not None})


def _scalar(value: Any) -> str:
    """As Connect's REST API makes text of it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise BadRecord("the value of a property is neither text nor a number")


# -- status topic -----------------------------------------------------------------------------


def status_entry(name: str, status: StoredStatus | None) -> Entry:
    """The status of a connector; None: it has none, and neither have its tasks.

    Their own statuses have to be removed, too: they are in other partitions, and whoever reads
    these later than the connector's finds them.
    """
    return _CONNECTOR_STATUS + name, _status_value(status)


def task_status_entry(name: str, task: int, status: StoredStatus | None) -> Entry:
    """The status of a task; None: there is no such task."""
    return f"{_TASK_STATUS}{name}-{task}", _status_value(status)


def topic_entry(name: str, topic: str, use: TopicUse | None) -> Entry:
    """That a connector uses a topic; None: it does not any more."""
    value = None if use is None else {
        "topic": {"name": use.topic, "connector": use.connector, "task": use.task,
                  "discoverTimestamp": use.since_ms},
    }  # fmt: skip
    return f"{_TOPIC}{topic}{_TOPIC_OF}{name}", value


def _status_value(status: StoredStatus | None) -> Mapping[str, Any] | None:
    return None if status is None else {
        "state": status.state.value, "trace": status.trace or None, "worker_id": status.worker_id,
        "generation": status.generation, "version": status.version or None,
    }  # fmt: skip


def decode_status(key: bytes, value: bytes | None) -> StatusRecord | TopicRecord:
    """A record of the status topic."""
    text = _key(key)
    if text.startswith(_CONNECTOR_STATUS):
        return StatusRecord(_named(text, _CONNECTOR_STATUS), None, _status(value))
    if text.startswith(_TASK_STATUS):
        return StatusRecord(*_task_id(text, _TASK_STATUS), _status(value))
    if text.startswith(_TOPIC):
        topic, _, name = text.removeprefix(_TOPIC).partition(_TOPIC_OF)
        if not topic or not name:
            raise BadRecord("its key names no topic or no connector")
        return TopicRecord(name, topic, _use(value))
    raise BadRecord("its key is none of Connect's")


def _status(value: bytes | None) -> StoredStatus | None:
    if value is None:
        return None
    fields = _object(_parsed(value))
    word = _text(fields.get("state"), "state")
    if word == _DESTROYED:
        return None
    if word not in _STATUS_STATES:
        raise BadRecord("its state is unknown")
    version = _text(fields.get("version") or "", "version")
    return StoredStatus(
        State(word),
        _text(fields.get("worker_id") or "", "worker_id"),
        _integer(fields, "generation", -1),
        _text(fields.get("trace") or "", "trace"),
        "" if version == _UNDEFINED else version,
    )


def _use(value: bytes | None) -> TopicUse | None:
    if value is None:
        return None
    fields = _object(_object(_parsed(value)).get("topic"))
    return TopicUse(
        _text(fields.get("name"), "name"),
        _text(fields.get("connector"), "connector"),
        _integer(fields, "task", 0),
        _integer(fields, "discoverTimestamp", 0, _LONG_MOST),
    )


# -- offsets topic ----------------------------------------------------------------------------


def offset_key(name: str, partition: Mapping[str, Any]) -> bytes:
    """The key of the offset of a connector's source partition, as Connect looks it up."""
    ordered = {key: partition[key] for key in hash_map_order(partition)}
    return encode_json([name, ordered])


def decode_offset_key(key: bytes) -> tuple[str, Mapping[str, Any]]:
    """(connector, source partition) of a record of the offsets topic."""
    match _parsed(key):
        case [str(name), dict(partition)]:
            return name, _flat(partition)
    raise BadRecord("its key is no connector with a partition")


def decode_offset(value: bytes) -> Mapping[str, Any] | None:
    """The value of such a record; None if it says that there is no offset."""
    content = _parsed(value)
    return None if content is None else _flat(_object(content))


def _flat(fields: dict[str, Any]) -> Mapping[str, Any]:
    """As Connect: partitions and offsets hold text, numbers and the like, nothing that nests."""
    if any(isinstance(value, dict | list) for value in fields.values()):
        raise BadRecord("a field of a partition or an offset is no plain value")
    return MappingProxyType(fields)


# -- fields ----------------------------------------------------------------------------------


def encode_key(text: str) -> bytes:
    """The key of a record, as Java's StringSerializer writes it."""
    return text.encode("utf-8", "replace")


def _key(key: bytes) -> str:
    """As Java's StringDeserializer reads it."""
    return key.decode("utf-8", "replace")


def _parsed(data: bytes | None) -> Any:
    try:
        return decode_json(data)
    except ValueError as error:
        # Not its message, which may repeat what it could not read.
        raise BadRecord(f"it is no JSON ({type(error).__name__})") from None


def _named(key: str, prefix: str) -> str:
    name = key.removeprefix(prefix)
    if not name:
        raise BadRecord("its key names nothing")
    return name


def _task_id(key: str, prefix: str) -> tuple[str, int]:
    name, _, number = key.removeprefix(prefix).rpartition("-")
    # Ten digits can be more than an int, but not so many that they take long to read.
    if not name or not (number.isascii() and number.isdigit() and len(number) <= 10):
        raise BadRecord("its key names no task")
    if int(number) > _INT_MOST:
        raise BadRecord("its key names no task")
    return name, int(number)


def _object(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise BadRecord("its value is no object")
    return content


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise BadRecord(f"{field!r} is no text")
    return value


def _integer(fields: Mapping[str, Any], field: str, least: int, most: int = _INT_MOST) -> int:
    value = fields.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadRecord(f"{field!r} is no number, or out of range")
    return value
