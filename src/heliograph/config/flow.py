"""The effective configuration of one flow, as typed values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from heliograph.config.flow_keys import FlowSettings
from heliograph.config.keys import Key, Scope, Type, client_key, find
from heliograph.config.precedence import Effective, Precedence
from heliograph.config.providers import resolve
from heliograph.errors import ConfigError
from heliograph.model import ClientSettings, Flow

__all__ = ["CLIENTS", "FlowConfig", "valid_texts"]

CLIENTS: tuple[tuple[str, str], ...] = (
    ("source", "consumer"),
    ("target", "producer"),
    ("source", "admin"),
    ("target", "admin"),
)
"""The clients of a flow, as (side, role); FlowConfig has one ClientSettings for each."""


@dataclass(frozen=True, slots=True)
class FlowConfig(FlowSettings):
    """What one flow does. A flow that is not ``enabled`` only emits heartbeats into its target.

    ``mm2_*`` is where MM2 keeps its own state on the target, by its rules. Templates are resolved
    in the typed fields, but stay templates in the client settings, ``effective`` and
    ``client_effective`` (whose keys are ``source.consumer``, ``target.producer`` ...).

    Two are equal if the flow does the same by both: where a value was written does not count, nor
    what a client's template stands for, which is looked up at each connection.
    """

    flow: Flow
    replication_policy_separator_is_set: bool
    mm2_offsets_topic: str
    mm2_configs_topic: str
    mm2_group: str
    compression_type: str
    auto_offset_reset: str
    isolation_level: str
    source_client: ClientSettings
    target_client: ClientSettings
    source_admin: ClientSettings
    target_admin: ClientSettings
    effective: Mapping[str, Effective] = field(repr=False, compare=False)
    client_effective: Mapping[str, Mapping[str, Effective]] = field(repr=False, compare=False)

    @property
    def ledger_topic_replication_factor(self) -> int:
        """Of the ledger topic; as that of the offset-syncs topic, unless it is set."""
        return (
            self.own_ledger_topic_replication_factor or self.offset_syncs_topic_replication_factor
        )

    def changes(self, other: FlowConfig) -> tuple[str, ...]:
        """The names of the keys whose values differ; empty if and only if the two are equal.

        Keys of clients begin with side and role: ``source.consumer.sasl.jaas.config``. Values are
        not part of the answer, so it holds no secret.
        """
        mine, others = dict(self._compared()), dict(other._compared())
        return tuple(name for name in {**mine, **others} if mine.get(name) != others.get(name))

    def _compared(self) -> Iterator[tuple[str, object]]:
        yield "flow", self.flow
        yield from self.texts.items()
        separator = self.replication_policy_separator, self.replication_policy_separator_is_set
        yield "replication.policy.separator", separator
        yield "offset.storage.topic", self.mm2_offsets_topic
        yield "config.storage.topic", self.mm2_configs_topic
        yield "group.id", self.mm2_group
        clients = (self.source_client, self.target_client, self.source_admin, self.target_admin)
        for (side, role), client in zip(CLIENTS, clients, strict=True):
            yield f"{side}.{role}", client.alias
            for name, value in client.properties.items():
                yield f"{side}.{role}.{name}", value
            for name, provider in client.providers.items():
                yield f"config.providers.{name}", provider

    def origin(self, key: str) -> str:
        """Where the value of ``key`` came from, e.g. ``mm2.properties:12 A->B.topics``.

        Args:
            key: a flow key, or a client key such as ``source.consumer.security.protocol``.

        Raises:
            KeyError: no such key.
        """
        if key in self.effective:
            return self.effective[key].origin
        for side, role in CLIENTS:
            name = key.removeprefix(f"{side}.{role}.")
            if name != key:
                found = self.client_effective[f"{side}.{role}"].get(name)
                if found is not None:
                    return found.origin
                known = client_key(name, role)
                if known is not None:
                    return Precedence.default(known).origin
        raise KeyError(key)


def valid_texts(
    effective: Mapping[str, Effective], providers: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """The texts of FlowSettings. Invalid values, reported before, read as the default."""
    return {
        name: _text(find(Scope.FLOW, name), e.value, providers) for name, e in effective.items()
    }


def _text(key: Key | None, value: str | None, providers: Mapping[str, Mapping[str, str]]) -> str:
    assert key is not None  # noqa: S101 - effective values have a row
    default = key.default or ""
    if value is None:
        return default
    try:
        resolved = resolve(value, providers)
    except ConfigError:
        return default
    if key.problem(resolved) is not None:
        return default
    if key.type is Type.STRING and not key.allowed:
        # The separator is the one value where Java would keep surrounding blanks, and refuse them.
        return resolved
    text = resolved.strip()
    if key.allowed and key.ignore_case:
        return {v.lower(): v for v in key.allowed}.get(text.lower(), text)
    return text
