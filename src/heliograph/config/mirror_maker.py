"""A file or a mapping becomes flows with their effective configuration, or all errors at once."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heliograph.config.clients import check_client, client_settings
from heliograph.config.flow import CLIENTS, FlowConfig, valid_texts
from heliograph.config.flow_keys import FLOW_KEYS, FlowSettings
from heliograph.config.keys import Scope, Status, client_key, find, find_anywhere, nearest
from heliograph.config.precedence import Effective, Precedence
from heliograph.config.problems import Problem, Problems
from heliograph.config.properties import Entry, Properties, parse
from heliograph.config.providers import check_providers, read_providers, resolve
from heliograph.config.secrets import HIDDEN, redact
from heliograph.config.validation import check_aliases, check_entries, check_flow
from heliograph.errors import ConfigError
from heliograph.model import ClientSettings, Flow

__all__ = ["FlowLoader", "MirrorMakerConfig", "check_readers", "parse_file"]

_DEFAULTED = ("auto.offset.reset", "isolation.level")
_PLUGIN_SETTINGS = "heliograph.plugin."


@dataclass(frozen=True, slots=True)
class MirrorMakerConfig:
    """A whole configuration, valid.

    Attributes:
        name: the path of the file, or what the mapping was called; errors begin with it.
        flows: pairs that mirror or emit heartbeats, in the order of ``clusters``.
        warnings: what does not stop the mirror, e.g. unknown keys.
        providers: as declared by config.providers; goes into every ClientSettings.
        entries: all that is written, by key; templates and secrets as they are.
    """

    name: str
    clusters: tuple[str, ...]
    flows: tuple[FlowConfig, ...]
    warnings: tuple[Problem, ...]
    providers: Mapping[str, Mapping[str, str]]
    entries: Mapping[str, Entry] = field(repr=False)

    @classmethod
    def from_file(cls, path: Path, *, clusters: Sequence[str] = ()) -> MirrorMakerConfig:
        """Reads and validates a MirrorMaker 2 properties file.

        Args:
            path: the file.
            clusters: if given, only flows whose target is listed are kept (MM2's ``--clusters``).

        Raises:
            ConfigError: the file cannot be read.
            ConfigErrors: the file has errors; all of them are listed. Secrets are not.
        """
        return _read(parse_file(path), Problems(str(path)), clusters, path)

    @classmethod
    def from_mapping(
        cls,
        values: Mapping[str, str],
        *,
        name: str = "configuration",
        clusters: Sequence[str] = (),
    ) -> MirrorMakerConfig:
        """Validates keys and values as a file would have them: ``{"clusters": "A, B", ...}``.

        Args:
            values: from key to value, with prefixes as in mm2.properties.
            name: what errors call it.
            clusters: as in `from_file`.

        Raises:
            ConfigErrors: as `from_file`.
        """
        entries = {key: Entry(key, value, 0) for key, value in values.items()}
        return _read(Properties(entries), Problems(name), clusters, None)


def _read(
    properties: Properties, problems: Problems, clusters: Sequence[str], path: Path | None
) -> MirrorMakerConfig:
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
    loader = FlowLoader(Precedence(Path(problems.name).name, properties), providers, problems)
    pairs = _pairs(aliases, properties, loader)
    flows = tuple(loader.flow(flow) for flow in pairs if not clusters or flow.target in clusters)
    if problems.errors:
        pass  # A flow that does not exist is a consequence of them.
    elif not any(loader.settings(flow).enabled for flow in pairs):
        example = "->".join((*aliases, "B")[:2])
        problems.error(
            "config.no-flows",
            "",
            "no flow is enabled: nothing would be mirrored",
            hint=f"enable one with a line such as: {example}.enabled=true",
        )
    elif not flows:
        text = f"no flow leads into {' or '.join(clusters)}"
        problems.error("config.no-flows", "--clusters", text)
    problems.raise_if_any()
    if path is not None:
        check_readers(path, properties, problems)
    return MirrorMakerConfig(
        problems.name, aliases, flows, tuple(problems.warnings), providers, properties.entries
    )


def parse_file(
    path: Path, what: str = "the mm2.properties that MirrorMaker 2 would be given"
) -> Properties:
    """Reads a properties file as UTF-8, or as ISO 8859-1 (Java's encoding) if it is not UTF-8.

    ``what`` says which file is meant, for the error of one that is not there.

    Raises:
        ConfigError: ``config.file-missing``, ``config.file-unreadable`` or ``config.syntax``.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            "config.file-missing",
            f"there is no file {path}",
            f"check the path; it is {what}",
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


def check_readers(path: Path, properties: Properties, problems: Problems) -> None:
    """Warn if others can read secrets that are written into the file."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not mode & (stat.S_IRGRP | stat.S_IROTH):
        return
    for key, entry in properties.entries.items():
        known = find_anywhere(key)
        if known is not None and redact(key, entry.value) == HIDDEN:
            problems.warn(
                "config.weak", key, "a secret in a file that other users can read",
                line=entry.line, hint=f"chmod 600 {path}, or refer to it: ${{file:...}}",
            )  # fmt: skip
            return


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


def _pairs(aliases: Sequence[str], properties: Properties, loader: FlowLoader) -> list[Flow]:
    """MM2's clusterPairs: a pair exists if it is enabled by name or emits heartbeats."""

    def exists(flow: Flow) -> bool:
        # As in MM2, a top-level "enabled" alone makes no pair; it only counts once one exists.
        written = properties.get(f"{flow}.enabled") is not None
        settings = loader.settings(flow)
        return (written and settings.enabled) or settings.emit_heartbeats_enabled

    pairs = (Flow(source, target) for source in aliases for target in aliases)
    return [flow for flow in pairs if flow.source != flow.target and exists(flow)]


class FlowLoader:
    """Makes flows of what is written, by a precedence; a file's, or that of a connector.

    ``prefixes`` says what stands before a cluster's keys, by source and target; its alias if not
    given.
    """

    def __init__(
        self,
        precedence: Precedence,
        providers: Mapping[str, Mapping[str, str]],
        problems: Problems,
        prefixes: Mapping[str, str] | None = None,
    ) -> None:
        self._precedence = precedence
        self._providers = providers
        self._problems = problems
        self._prefixes = prefixes or {}

    def settings(self, flow: Flow) -> FlowSettings:
        """The values of the flow's own keys."""
        return FlowSettings(valid_texts(self._effective(flow), self._providers))

    def _effective(self, flow: Flow) -> dict[str, Effective]:
        effective = {
            key.name: self._precedence.flow_value(flow, key)
            for key in FLOW_KEYS
            if key.status is not Status.REMOVED and not key.name.endswith("*")
        }
        # No row of the table has their names: they are the plugins' own.
        return effective | self._precedence.flow_family(flow, _PLUGIN_SETTINGS)

    def flow(self, flow: Flow) -> FlowConfig:
        """The configuration of ``flow``; mistakes go to the problems."""
        effective = self._effective(flow)
        texts = valid_texts(effective, self._providers)
        clients: dict[tuple[str, str], ClientSettings] = {}
        client_effective: dict[str, Mapping[str, Effective]] = {}
        for side, role in CLIENTS:
            alias = flow.source if side == "source" else flow.target
            found = self._client_values(flow, side, role)
            settings = client_settings(alias, role, found, self._providers)
            # A flow that only emits heartbeats never talks to its source.
            if side == "target" or FlowSettings(texts).enabled:
                check_client(settings, found, self._problems, prefix=self._prefixes.get(side))
            clients[side, role] = settings
            client_effective[f"{side}.{role}"] = found
        consumer = clients["source", "consumer"]
        config = FlowConfig(
            texts=texts,
            flow=flow,
            replication_policy_separator_is_set=(
                effective["replication.policy.separator"].entry is not None
            ),
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
            effective=effective,
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
