"""Configs of topics: what holds, where each value comes from, and changes of it. Runs anywhere.

Both calls ask for any number of topics, a few hundred at a time. What fails for one topic is
returned for that topic; only a broker that does not answer raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import TypeVar

from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest

from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import NONE, BrokerError

_TOPIC_RESOURCE = 2
_TOPICS_PER_REQUEST = 500
#: IncrementalAlterConfigs: what to do with a property.
_SET, _DELETE = 0, 1

T = TypeVar("T")


class ConfigSource(IntEnum):
    """Where the value of a topic's property comes from; the first that has one counts."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5


_SOURCES = {int(source): source for source in ConfigSource}


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One property of a topic as it holds now; brokers tell no value of what is ``sensitive``."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool = False
    sensitive: bool = False

    @property
    def own(self) -> bool:
        """Whether it is set on the topic itself."""
        return self.source is ConfigSource.TOPIC


#: The properties of one topic, by name: all that its cluster knows.
Entries = Mapping[str, ConfigEntry]


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """An answer to `describe`: each topic is in one of the two."""

    found: Mapping[str, Entries] = field(default_factory=dict)
    failed: Mapping[str, BrokerError] = field(default_factory=dict)

    def value(self, topic: str, name: str, unknown: str) -> str:
        """The value of a property, or ``unknown`` where it was not told."""
        entry = self.found.get(topic, {}).get(name)
        return unknown if entry is None or entry.value is None else entry.value


def describe(
    client: ClusterClient, topics: Iterable[str], names: Sequence[str] | None = None
) -> TopicConfigs:
    """The properties of topics, defaults included; only ``names`` if given."""
    request = DescribeConfigsRequest
    found: dict[str, Entries] = {}
    failed: dict[str, BrokerError] = {}
    for chunk in _chunks(topics):
        message = request(
            resources=[
                request.DescribeConfigsResource(
                    resource_type=_TOPIC_RESOURCE,
                    resource_name=topic,
                    configuration_keys=None if names is None else list(names),
                )
                for topic in chunk
            ],
            include_synonyms=False,
            include_documentation=False,
        )
        for r in client.request(message).results:
            topic = r.resource_name
            if r.error_code != NONE:
                what = f"reading the configs of topic {topic} on cluster {client.alias}"
                failed[topic] = BrokerError(r.error_code, what, r.error_message)
                continue
            found[topic] = {
                c.name: ConfigEntry(
                    c.name, c.value, _source(c.config_source), c.read_only, c.is_sensitive
                )
                for c in r.configs
            }
    return TopicConfigs(found, failed)


def alter(
    client: ClusterClient,
    changes: Mapping[str, Mapping[str, str | None]],
    *,
    validate_only: bool = False,
) -> dict[str, BrokerError]:
    """Set properties of topics, or with None give them back to the default; returns what failed.

    A topic gets all of its changes or none. With ``validate_only`` nothing is changed.
    """
    request = IncrementalAlterConfigsRequest
    kind = request.AlterConfigsResource
    failed: dict[str, BrokerError] = {}
    for chunk in _chunks(changes):
        message = request(
            resources=[
                kind(
                    resource_type=_TOPIC_RESOURCE,
                    resource_name=topic,
                    configs=[
                        kind.AlterableConfig(
                            name=name,
                            config_operation=_DELETE if value is None else _SET,
                            value=value,
                        )
                        for name, value in changes[topic].items()
                    ],
                )
                for topic in chunk
            ],
            validate_only=validate_only,
        )
        for r in client.request(message).responses:
            if r.error_code != NONE:
                what = f"changing the configs of topic {r.resource_name} on cluster {client.alias}"
                failed[r.resource_name] = BrokerError(r.error_code, what, r.error_message)
    return failed


def _source(code: int) -> ConfigSource:
    return _SOURCES.get(code, ConfigSource.UNKNOWN)


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, _TOPICS_PER_REQUEST)):
        yield chunk
