"""What the records of the storage topics say, folded in their order by Connect's own rules. Pure.

- Task configs wait until a commit names how many tasks there are. It applies those before it if
  they are complete. If not, the connector is inconsistent: it has no tasks until it gets new ones.
  Compaction does that. Either way the next commit needs a whole new set.
- A commit of a connector that is not there is left over from one that was deleted.
- A connector without a target state runs. The state may come before the connector.
- Requests (restarts, levels of loggers) count only if they come while somebody follows the topic.
- A task that runs is not UNASSIGNED because a worker of its own or an earlier generation says so.
- The end of a connector's status ends those of its tasks. They are in other partitions, which are
  read in any order, so here the times of the records decide.

What is not Connect's is left out, with a line in the log that has its key but never its value.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from heliograph.connect.api import Initial, PartitionOffset, State
from heliograph.connect.records import (
    BadRecord,
    Commit,
    ConnectorConfig,
    LoggerLevel,
    RestartRequest,
    StatusRecord,
    StoredStatus,
    Target,
    TaskConfig,
    TopicRecord,
    TopicUse,
    decode_config,
    decode_offset,
    decode_offset_key,
    decode_status,
    offset_key,
)
from heliograph.shown import shown

__all__ = ["ConnectorsView", "Kind", "Requests", "StorageFold", "StoredConnector", "StoredStatuses"]

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Requests that nobody has taken; whoever floods the topic gets only the last ones answered.
_MOST_REQUESTS = 1000
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Kind(StrEnum):
    """The three topics, by what they hold."""

    CONFIGS = "config"
    STATUSES = "status"
    OFFSETS = "offset"


@dataclass(frozen=True, slots=True)
class StoredConnector:
    """A connector as it is stored.

    Attributes:
        name: of it.
        config: as it was given, templates unresolved.
        target: what it is to do.
        tasks: the configs of its tasks, by number; none if it is not consistent.
        consistent: False if its tasks have to be written again.
    """

    name: str
    config: Mapping[str, str]
    target: Initial = Initial.RUNNING
    tasks: tuple[Mapping[str, str], ...] = ()
    consistent: bool = True


@dataclass(frozen=True, slots=True)
class StoredStatuses:
    """What workers say of a connector and of its tasks, by number."""

    connector: StoredStatus | None = None
    tasks: Mapping[int, StoredStatus] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True)
class ConnectorsView:
    """All that is stored, as of one reading. Never changes; views share what did not change.

    Attributes:
        connectors: those that there are, by name.
        statuses: by the connector's name; also of connectors that are not there any more.
        config_offset: behind the last record of the config topic that was read; -1: none was.
    """

    connectors: Mapping[str, StoredConnector] = field(default_factory=lambda: _NOTHING)
    statuses: Mapping[str, StoredStatuses] = field(default_factory=lambda: _NOTHING)
    config_offset: int = -1
    _topics: Mapping[str, Mapping[str, TopicUse]] = field(default_factory=lambda: _NOTHING)
    _offsets: Mapping[str, Mapping[bytes, bytes]] = field(default_factory=lambda: _NOTHING)

    def topics(self, name: str) -> Mapping[str, TopicUse]:
        """The topics that a connector has written to, by name."""
        return self._topics.get(name, _NOTHING)

    def offset_keys(self, name: str) -> Sequence[bytes]:
        """The keys under which offsets of a connector are stored: what a reset has to remove."""
        return list(self._offsets.get(name, _NOTHING))

    def offsets(self, name: str) -> Sequence[PartitionOffset]:
        """The offsets of a connector. Decoded when asked for: there may be many thousands.

        If a partition is stored under several keys, the one counts under which Connect finds it.
        """
        found: dict[object, PartitionOffset] = {}
        for key, value in self._offsets.get(name, _NOTHING).items():
            try:
                _, partition = decode_offset_key(key)
                offset = decode_offset(value)
            except BadRecord as error:
                _tell(Kind.OFFSETS, key, error)
                continue
            same = tuple(sorted(partition.items()))
            if offset is not None and (same not in found or key == offset_key(name, partition)):
                found[same] = PartitionOffset(partition, offset)
        return list(found.values())


class Requests:
    """Requests that nobody has taken yet. One thread adds, any may take.

    ``total`` is how many there ever were.
    """

    def __init__(self) -> None:
        self.total = 0
        self._waiting: deque[RestartRequest | LoggerLevel] = deque(maxlen=_MOST_REQUESTS)

    def add(self, request: RestartRequest | LoggerLevel) -> None:
        """One more."""
        self._waiting.append(request)
        self.total += 1

    def take(self) -> list[RestartRequest | LoggerLevel]:
        """Those that were not taken before, oldest first."""
        taken = []
        with suppress(IndexError):
            while True:
                taken.append(self._waiting.popleft())
        return taken


class StorageFold:
    """Takes records in, topic by topic, and makes views of them. One thread at a time.

    ``requests`` are the restarts and logger levels that came since the fold is live.
    """

    def __init__(self) -> None:
        self.requests = Requests()
        self._configs = _Configs(self.requests)
        self._statuses = _Statuses()
        self._offsets = _Offsets()
        self.view = ConnectorsView()

    def take(
        self, kind: Kind, offset: int, key: bytes | None, value: bytes | None, timestamp: int
    ) -> None:
        """The next record of a topic's partition; never raises."""
        if key is None:
            log.warning("A record of the %s topic at offset %d has no key: skipped", kind, offset)
            return
        try:
            self._folds[kind].take(offset, key, value, timestamp)
        except BadRecord as error:
            _tell(kind, key, error)

    def set_live(self) -> None:
        """The config topic was read to its end: from now on requests count."""
        self._configs.live = True

    def forget(self, kind: Kind) -> None:
        """A topic has lost records: what is left of it is going to be read from its start."""
        # The view is what it was until the topic is read again; what is not there then is removed.
        if kind is Kind.CONFIGS:
            self._configs = _Configs(self.requests, self._configs.names())
        elif kind is Kind.STATUSES:
            self._statuses = _Statuses(self._statuses.names())
        else:
            self._offsets = _Offsets(self._offsets.names())

    def publish(self, kind: Kind) -> bool:
        """Put what was taken in of a topic into ``view``; returns whether that is another one."""
        before = self.view
        self.view = self._folds[kind].publish(before)
        return self.view is not before

    @property
    def _folds(self) -> Mapping[Kind, _Fold]:
        return {
            Kind.CONFIGS: self._configs,
            Kind.STATUSES: self._statuses,
            Kind.OFFSETS: self._offsets,
        }


class _Fold(Protocol):
    def take(self, offset: int, key: bytes, value: bytes | None, timestamp: int) -> None: ...

    def publish(self, view: ConnectorsView) -> ConnectorsView: ...


class _Configs:
    """The config topic. ``changed`` are connectors whose view is to be made again."""

    def __init__(self, requests: Requests, changed: set[str] | None = None) -> None:
        self.live = False
        self._requests = requests
        self._changed = changed or set()
        self._offset = -1
        self._configs: dict[str, Mapping[str, str]] = {}
        self._targets: dict[str, Initial] = {}
        self._tasks: dict[str, tuple[Mapping[str, str], ...]] = {}
        self._inconsistent: set[str] = set()
        #: Task configs by connector and number that no commit has named yet.
        self._waiting: dict[str, dict[int, Mapping[str, str]]] = {}

    def names(self) -> set[str]:
        return self._changed | self._configs.keys()

    def take(self, offset: int, key: bytes, value: bytes | None, _timestamp: int) -> None:
        self._offset = offset + 1
        match decode_config(key, value):
            case ConnectorConfig(name, None):
                self._remove(name)
            case ConnectorConfig(name, config) if config is not None:
                self._configs[name] = config
                self._changed.add(name)
            case Target(name, target):
                if target is None:
                    self._targets.pop(name, None)
                else:
                    self._targets[name] = target
                self._changed.add(name)
            case TaskConfig(name, task, config):
                self._waiting.setdefault(name, {})[task] = config
            case Commit(name, tasks):
                self._commit(name, tasks)
            case RestartRequest() | LoggerLevel() as request:
                if self.live:
                    self._requests.add(request)

    def _commit(self, name: str, count: int) -> None:
        waiting = self._waiting.pop(name, {})
        if name not in self._configs:
            return
        # More may be waiting: compaction leaves configs of tasks that there are no more. Not
        # counted to ``count`` one by one, which anybody can make large.
        if sum(task < count for task in waiting) == count:
            self._tasks[name] = tuple(waiting[task] for task in range(count))
            self._inconsistent.discard(name)
        else:
            self._inconsistent.add(name)
        self._changed.add(name)

    def _remove(self, name: str) -> None:
        # As Connect: its target state has a record of its own.
        for known in (self._configs, self._tasks, self._waiting):
            known.pop(name, None)
        self._changed.add(name)

    def publish(self, view: ConnectorsView) -> ConnectorsView:
        connectors = _with(view.connectors, self._changed, self._connector)
        if connectors is view.connectors and self._offset == view.config_offset:
            return view
        return replace(view, connectors=connectors, config_offset=self._offset)

    def _connector(self, name: str) -> StoredConnector | None:
        config = self._configs.get(name)
        if config is None:
            return None
        consistent = name not in self._inconsistent
        return StoredConnector(
            name,
            config,
            self._targets.get(name, Initial.RUNNING),
            self._tasks.get(name, ()) if consistent else (),
            consistent,
        )


class _Statuses:
    """The status topic. Times are those of the records."""

    def __init__(self, changed: set[str] | None = None) -> None:
        self._changed = changed or set()
        self._changed_topics = set(self._changed)
        self._connectors: dict[str, StoredStatus] = {}
        self._tasks: dict[str, dict[int, tuple[StoredStatus, int]]] = {}
        self._topics: dict[str, dict[str, TopicUse]] = {}

    def names(self) -> set[str]:
        known = self._connectors.keys() | self._tasks.keys() | self._topics.keys()
        return self._changed | self._changed_topics | known

    def take(self, _offset: int, key: bytes, value: bytes | None, timestamp: int) -> None:
        match decode_status(key, value):
            case StatusRecord(name, None, status):
                self._changed.add(name)
                if status is not None:
                    self._connectors[name] = status
                    return
                self._connectors.pop(name, None)
                tasks = self._tasks.pop(name, {})
                later = {task: told for task, told in tasks.items() if told[1] > timestamp}
                if later:
                    self._tasks[name] = later
            case StatusRecord(name, task, status) if task is not None:
                self._take_task(name, task, status, timestamp)
            case TopicRecord(name, topic, use):
                self._changed_topics.add(name)
                _put(self._topics, name, topic, use)

    def _take_task(self, name: str, task: int, status: StoredStatus | None, at: int) -> None:
        known = self._tasks.get(name, {}).get(task)
        if (
            status is not None and known is not None
            and status.state is State.UNASSIGNED and known[0].state is State.RUNNING
            and known[0].generation >= status.generation
        ):  # fmt: skip
            return
        self._changed.add(name)
        _put(self._tasks, name, task, None if status is None else (status, at))

    def publish(self, view: ConnectorsView) -> ConnectorsView:
        statuses = _with(view.statuses, self._changed, self._of)
        topics = _with(view._topics, self._changed_topics, self._topics_of)
        if statuses is view.statuses and topics is view._topics:
            return view
        return replace(view, statuses=statuses, _topics=topics)

    def _of(self, name: str) -> StoredStatuses | None:
        connector, tasks = self._connectors.get(name), self._tasks.get(name, {})
        if connector is None and not tasks:
            return None
        return StoredStatuses(
            connector, MappingProxyType({task: tasks[task][0] for task in sorted(tasks)})
        )

    def _topics_of(self, name: str) -> Mapping[str, TopicUse] | None:
        return _copied(self._topics, name)


class _Offsets:
    """The offsets topic: the last value of each key, by the connector that the key names."""

    def __init__(self, changed: set[str] | None = None) -> None:
        self._changed = changed or set()
        self._values: dict[str, dict[bytes, bytes]] = {}
        #: Whose a key is: keys come again and again.
        self._owners: dict[bytes, str] = {}

    def names(self) -> set[str]:
        return self._changed | self._values.keys()

    def take(self, _offset: int, key: bytes, value: bytes | None, _timestamp: int) -> None:
        name = self._owners.get(key)
        if name is None:
            name, _ = decode_offset_key(key)
            self._owners[key] = name
        if value is None:
            del self._owners[key]
        self._changed.add(name)
        _put(self._values, name, key, value)

    def publish(self, view: ConnectorsView) -> ConnectorsView:
        offsets = _with(view._offsets, self._changed, lambda name: _copied(self._values, name))
        return view if offsets is view._offsets else replace(view, _offsets=offsets)


K = TypeVar("K")


def _put(known: dict[str, dict[K, T]], name: str, key: K, value: T | None) -> None:
    """Set what is known of a connector under a key; None removes it."""
    if value is not None:
        known.setdefault(name, {})[key] = value
    elif name in known:
        known[name].pop(key, None)
        if not known[name]:
            del known[name]


def _copied(known: Mapping[str, Mapping[K, T]], name: str) -> Mapping[K, T] | None:
    """What is known of a connector, to be kept while more is taken in; None if that is nothing."""
    found = known.get(name)
    return None if found is None else MappingProxyType(dict(found))


def _with(
    known: Mapping[str, T], changed: set[str], made: Callable[[str], T | None]
) -> Mapping[str, T]:
    """The same mapping if nothing is another, else one with the ``changed``, which is emptied."""
    if not changed:
        return known
    names, found = sorted(changed), dict(known)
    changed.clear()
    for name in names:
        value = made(name)
        if value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return known if found == known else MappingProxyType(found)


def _tell(kind: Kind, key: bytes, error: BadRecord) -> None:
    text = shown(key.decode("utf-8", "replace"))
    log.warning("A record of the %s topic with key %s is skipped: %s", kind, text, error)
