"""The effective configuration of one flow, as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph.config.key import Key, Type, split_list
from heliograph.config.keys import client_key, flow_key
from heliograph.config.precedence import Effective, Precedence
from heliograph.config.providers import resolve
from heliograph.errors import ConfigError
from heliograph.model import ClientSettings, Flow

__all__ = ["CLIENTS", "FlowConfig", "Values"]

CLIENTS: tuple[tuple[str, str], ...] = (
    ("source", "consumer"),
    ("target", "producer"),
    ("source", "admin"),
    ("target", "admin"),
)
"""The clients of a flow, as (side, role); FlowConfig has one ClientSettings for each."""


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """What one flow does. A flow that is not ``enabled`` only emits heartbeats into its target.

    Field names are the keys with underscores; the key table has their meaning. ``mm2_*`` is where
    MM2 keeps its own state on the target, by its rules. Templates are
    resolved in the typed fields, but stay templates in the client settings, ``effective`` and
    ``client_effective`` (whose keys are ``source.consumer``, ``target.producer`` ...).
    """

    flow: Flow
    enabled: bool
    topics: tuple[str, ...]
    topics_exclude: tuple[str, ...]
    config_properties_exclude: tuple[str, ...]
    topic_filter_class: str
    group_filter_class: str
    config_property_filter_class: str
    replication_policy_class: str
    replication_policy_separator: str
    replication_policy_separator_is_set: bool
    replication_policy_internal_topic_separator_enabled: bool
    replication_factor: int
    tasks_max: int
    refresh_topics_enabled: bool
    refresh_topics_interval_seconds: int
    emit_offset_syncs_enabled: bool
    offset_syncs_topic_location: str
    offset_syncs_topic_replication_factor: int
    offset_lag_max: int
    emit_heartbeats_enabled: bool
    emit_heartbeats_interval_seconds: int
    heartbeats_topic_replication_factor: int
    heartbeats_replication_enabled: bool
    use_defaults_from: str
    sync_topic_configs_enabled: bool
    sync_topic_configs_interval_seconds: int
    sync_topic_acls_enabled: bool
    sync_topic_acls_interval_seconds: int
    groups: tuple[str, ...]
    groups_exclude: tuple[str, ...]
    refresh_groups_enabled: bool
    refresh_groups_interval_seconds: int
    emit_checkpoints_enabled: bool
    emit_checkpoints_interval_seconds: int
    sync_group_offsets_enabled: bool
    sync_group_offsets_interval_seconds: int
    checkpoints_topic_replication_factor: int
    admin_timeout_ms: int
    lease_seconds: int
    stalled_after_seconds: int
    ledger_topic_replication_factor: int
    fetch_max_bytes: int
    buffer_max_bytes: int
    on_data_loss: str
    on_truncation: str
    on_recreation: str
    offsets: str
    on_refused: str
    follow_log_start: bool
    target_configs: str
    on_topic_deleted: str
    acls_prefixed: bool
    acls_groups: bool
    acls_revoke: bool
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
    effective: Mapping[str, Effective] = field(repr=False)
    client_effective: Mapping[str, Mapping[str, Effective]] = field(repr=False)

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


@dataclass(frozen=True, slots=True)
class Values:
    """Typed reading of effective values. Invalid ones, reported before, read as the default."""

    effective: Mapping[str, Effective]
    providers: Mapping[str, Mapping[str, str]]

    def text(self, name: str) -> str:
        """The value, templates resolved; enumerated ones in canonical spelling."""
        key = flow_key(name)
        value = self._valid(key, self.effective[name].value)
        if key.allowed and key.ignore_case:
            return {v.lower(): v for v in key.allowed}.get(value.lower(), value)
        return value

    def boolean(self, name: str) -> bool:
        """A boolean value."""
        return self.text(name).lower() == "true"

    def integer(self, name: str) -> int:
        """A whole number."""
        return int(self.text(name))

    def strings(self, name: str) -> tuple[str, ...]:
        """A list; empty if the value is empty."""
        return split_list(self.text(name))

    def _valid(self, key: Key, value: str | None) -> str:
        default = key.default or ""
        if value is None:
            return default
        try:
            resolved = resolve(value, self.providers)
        except ConfigError:
            return default
        if key.problem(resolved) is not None:
            return default
        # The separator is the one value where Java would keep surrounding blanks, and refuse them.
        return resolved if key.type is Type.STRING and not key.allowed else resolved.strip()
