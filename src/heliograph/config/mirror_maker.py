"""Loads ``mm2.properties``: every flow with its effective configuration, or every error at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heliograph.config.clients import check_client, client_settings
from heliograph.config.flow import CLIENTS, FlowConfig, Values
from heliograph.config.keys import KEYS, Scope, Status, client_key, find, nearest
from heliograph.config.precedence import Effective, Precedence
from heliograph.config.problems import Problem, Problems
from heliograph.config.properties import Properties, parse
from heliograph.config.providers import check_providers, read_providers, resolve
from heliograph.config.validation import check_aliases, check_entries, check_flow
from heliograph.errors import ConfigError
from heliograph.model import ClientSettings, Flow

__all__ = ["MirrorMakerConfig", "load"]

_DEFAULTED = ("auto.offset.reset", "isolation.level")
_PLUGIN_SETTINGS = "heliograph.plugin."


@dataclass(frozen=True, slots=True)
class MirrorMakerConfig:
    """A whole file, valid.

    Attributes:
        flows: pairs that mirror or emit heartbeats, in the order of ``clusters``.
        warnings: what does not stop the mirror, e.g. unknown keys.
        providers: as declared by config.providers; goes into every ClientSettings.
    """

    path: Path
    clusters: tuple[str, ...]
    flows: tuple[FlowConfig, ...]
    warnings: tuple[Problem, ...]
    providers: Mapping[str, Mapping[str, str]]


def load(path: Path, *, clusters: Sequence[str] = ()) -> MirrorMakerConfig:
    """Reads and validates a MirrorMaker 2 properties file.

    Args:
        path: the file.
        clusters: if given, only flows whose target is listed are kept (MM2's ``--clusters``).

    Raises:
        ConfigError: the file cannot be read.
        ConfigErrors: the file has errors; all of them are listed. Secrets are not.
    """
    problems = Problems(path)
    properties = parse_file(path)
    for earlier, later in properties.duplicates:
        problems.warn(
            "config.duplicate-key",
            later.key,
            f"also on line {earlier.line}; the later one counts",
            line=later.line,
        )
    providers = read_providers(properties.as_dict())
    for key, error in check_providers(providers):
        entry = properties.entries.get(key) or properties.entries["config.providers"]
        problems.caught(error, key, line=entry.line)
    aliases = check_aliases(properties, providers, problems)
    check_entries(properties, aliases, providers, problems)
    _check_filter(clusters, aliases, problems)
    loader = _Loader(path, properties, providers, problems)
    flows = tuple(
        loader.flow(flow)
        for flow in loader.pairs(aliases)
        if not clusters or flow.target in clusters
    )
    if aliases and not flows:
        problems.error(
            "config.no-flows",
            "",
            "No source->target replication flows.",
            hint="enable one with a line such as: A->B.enabled=true",
        )
    problems.raise_if_any()
    return MirrorMakerConfig(path, aliases, flows, tuple(problems.warnings), providers)


def parse_file(path: Path) -> Properties:
    """Reads a properties file as UTF-8, or as ISO 8859-1 (Java's encoding) if it is not UTF-8.

    Raises:
        ConfigError: ``config.file-missing``, ``config.file-unreadable`` or ``config.syntax``.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            "config.file-missing",
            f"there is no file {path}",
            "check the path; it is the mm2.properties that MirrorMaker 2 would be given",
        ) from None
    except OSError as error:
        raise ConfigError(
            "config.file-unreadable",
            f"cannot read {path}: {error.strerror}",
            "give a file, not a directory, and let this user read it",
        ) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(error.code, f"{path}: {error.args[0]}", error.hint) from None


def _check_filter(clusters: Sequence[str], aliases: Sequence[str], problems: Problems) -> None:
    for alias in clusters:
        if aliases and alias not in aliases:
            near = nearest(alias, aliases)
            problems.error(
                "config.unknown-alias",
                "--clusters",
                f"{alias!r} is not one of clusters ({', '.join(aliases)})",
                hint=f"did you mean {near}?" if near else "",
            )


class _Loader:
    def __init__(
        self,
        path: Path,
        properties: Properties,
        providers: Mapping[str, Mapping[str, str]],
        problems: Problems,
    ) -> None:
        self._precedence = Precedence(path.name, properties)
        self._properties = properties
        self._providers = providers
        self._problems = problems

    def pairs(self, aliases: Sequence[str]) -> list[Flow]:
        """MM2's clusterPairs: a pair exists if it is enabled by name or emits heartbeats."""
        pairs = (Flow(source, target) for source in aliases for target in aliases)
        return [flow for flow in pairs if flow.source != flow.target and self._exists(flow)]

    def _exists(self, flow: Flow) -> bool:
        # As in MM2, a top-level "enabled" alone makes no pair; it only counts once one exists.
        written = self._properties.get(f"{flow}.enabled")
        values = self._values(flow)
        return (written is not None and values.boolean("enabled")) or values.boolean(
            "emit.heartbeats.enabled"
        )

    def _values(self, flow: Flow) -> Values:
        effective = {
            key.name: self._precedence.flow_value(flow, key)
            for key in KEYS
            if key.scope is Scope.FLOW
            and key.status is not Status.REMOVED
            and not key.name.endswith("*")
        }
        # No row of the table has their names: they are the plugins' own.
        effective |= self._precedence.flow_family(flow, _PLUGIN_SETTINGS)
        return Values(effective, self._providers)

    def flow(self, flow: Flow) -> FlowConfig:
        """The configuration of ``flow``; mistakes go to the problems."""
        values = self._values(flow)
        clients: dict[tuple[str, str], ClientSettings] = {}
        client_effective: dict[str, Mapping[str, Effective]] = {}
        for side, role in CLIENTS:
            alias = flow.source if side == "source" else flow.target
            found = self._client_values(flow, side, role)
            settings = client_settings(alias, role, found, self._providers)
            # A flow that only emits heartbeats never talks to its source.
            if side == "target" or values.boolean("enabled"):
                check_client(settings, found, self._problems)
            clients[side, role] = settings
            client_effective[f"{side}.{role}"] = found
        consumer = clients["source", "consumer"]
        config = FlowConfig(
            flow=flow,
            enabled=values.boolean("enabled"),
            topics=values.strings("topics"),
            topics_exclude=values.strings("topics.exclude"),
            config_properties_exclude=values.strings("config.properties.exclude"),
            topic_filter_class=values.text("topic.filter.class"),
            group_filter_class=values.text("group.filter.class"),
            config_property_filter_class=values.text("config.property.filter.class"),
            replication_policy_class=values.text("replication.policy.class"),
            replication_policy_separator=values.text("replication.policy.separator"),
            replication_policy_separator_is_set=(
                values.effective["replication.policy.separator"].entry is not None
            ),
            replication_policy_internal_topic_separator_enabled=values.boolean(
                "replication.policy.internal.topic.separator.enabled"
            ),
            replication_factor=values.integer("replication.factor"),
            tasks_max=values.integer("tasks.max"),
            refresh_topics_enabled=values.boolean("refresh.topics.enabled"),
            refresh_topics_interval_seconds=values.integer("refresh.topics.interval.seconds"),
            emit_offset_syncs_enabled=values.boolean("emit.offset-syncs.enabled"),
            offset_syncs_topic_location=values.text("offset-syncs.topic.location"),
            offset_syncs_topic_replication_factor=values.integer(
                "offset-syncs.topic.replication.factor"
            ),
            offset_lag_max=values.integer("offset.lag.max"),
            emit_heartbeats_enabled=values.boolean("emit.heartbeats.enabled"),
            emit_heartbeats_interval_seconds=values.integer("emit.heartbeats.interval.seconds"),
            heartbeats_topic_replication_factor=values.integer(
                "heartbeats.topic.replication.factor"
            ),
            heartbeats_replication_enabled=values.boolean("heartbeats.replication.enabled"),
            use_defaults_from=values.text("use.defaults.from"),
            sync_topic_configs_enabled=values.boolean("sync.topic.configs.enabled"),
            sync_topic_configs_interval_seconds=values.integer(
                "sync.topic.configs.interval.seconds"
            ),
            sync_topic_acls_enabled=values.boolean("sync.topic.acls.enabled"),
            sync_topic_acls_interval_seconds=values.integer("sync.topic.acls.interval.seconds"),
            groups=values.strings("groups"),
            groups_exclude=values.strings("groups.exclude"),
            refresh_groups_enabled=values.boolean("refresh.groups.enabled"),
            refresh_groups_interval_seconds=values.integer("refresh.groups.interval.seconds"),
            emit_checkpoints_enabled=values.boolean("emit.checkpoints.enabled"),
            emit_checkpoints_interval_seconds=values.integer("emit.checkpoints.interval.seconds"),
            sync_group_offsets_enabled=values.boolean("sync.group.offsets.enabled"),
            sync_group_offsets_interval_seconds=values.integer(
                "sync.group.offsets.interval.seconds"
            ),
            checkpoints_topic_replication_factor=values.integer(
                "checkpoints.topic.replication.factor"
            ),
            admin_timeout_ms=values.integer("admin.timeout.ms"),
            lease_seconds=values.integer("heliograph.lease.seconds"),
            stalled_after_seconds=values.integer("heliograph.stalled.after.seconds"),
            ledger_topic_replication_factor=values.integer(
                "heliograph.ledger.topic.replication.factor"
            )
            or values.integer("offset-syncs.topic.replication.factor"),
            fetch_max_bytes=values.integer("heliograph.fetch.max.bytes"),
            buffer_max_bytes=values.integer("heliograph.buffer.max.bytes"),
            on_data_loss=values.text("heliograph.on.data.loss"),
            on_truncation=values.text("heliograph.on.truncation"),
            on_recreation=values.text("heliograph.on.recreation"),
            offsets=values.text("heliograph.offsets"),
            on_refused=values.text("heliograph.on.refused"),
            follow_log_start=values.boolean("heliograph.follow.log.start"),
            target_configs=values.text("heliograph.target.configs"),
            on_topic_deleted=values.text("heliograph.on.topic.deleted"),
            acls_prefixed=values.boolean("heliograph.acls.prefixed"),
            acls_groups=values.boolean("heliograph.acls.groups"),
            acls_revoke=values.boolean("heliograph.acls.revoke"),
            mm2_offsets_topic=self._worker(
                flow, "offset.storage.topic", f"mm2-offsets.{flow.source}.internal"
            ),
            mm2_configs_topic=self._worker(
                flow, "config.storage.topic", f"mm2-configs.{flow.source}.internal"
            ),
            mm2_group=self._worker(flow, "group.id", f"{flow.source}-mm2"),
            compression_type=self._resolved(clients["target", "producer"], "compression.type"),
            auto_offset_reset=self._resolved(consumer, "auto.offset.reset"),
            isolation_level=self._resolved(consumer, "isolation.level"),
            source_client=consumer,
            target_client=clients["target", "producer"],
            source_admin=clients["source", "admin"],
            target_admin=clients["target", "admin"],
            effective=values.effective,
            client_effective=client_effective,
        )
        check_flow(config, self._problems)
        return config

    def _client_values(self, flow: Flow, side: str, role: str) -> dict[str, Effective]:
        found = self._precedence.client_values(flow, side, role)
        for name in _DEFAULTED if role == "consumer" else ():
            key = client_key(name, role)
            if key is not None:
                found.setdefault(name, Precedence.default(key))
        return found

    def _worker(self, flow: Flow, name: str, default: str) -> str:
        key = find(Scope.WORKER, name)
        written = None if key is None else self._precedence.worker_value(flow, key)
        try:
            return resolve(written or default, self._providers).strip()
        except ConfigError:
            return default

    def _resolved(self, settings: ClientSettings, name: str) -> str:
        try:
            return resolve(settings.properties.get(name, ""), self._providers).strip().lower()
        except ConfigError:
            return ""
