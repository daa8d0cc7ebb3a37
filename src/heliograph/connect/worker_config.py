"""Connect's distributed worker file, as typed values, or all of its errors at once.

The same file starts a real Connect worker. What means nothing here is named once, as a warning.
Errors are kept for what would fail later, and for what would be less safe than it looks. Who may
reach the REST API is judged by `heliograph.rest`.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from heliograph.config.client_keys import ROLES
from heliograph.config.clients import check_client, client_settings
from heliograph.config.key import Key
from heliograph.config.keys import Scope, Status, client_key, find, nearest
from heliograph.config.mirror_maker import check_readers, parse_file
from heliograph.config.precedence import Effective
from heliograph.config.problems import Problem, Problems
from heliograph.config.properties import Entry, Properties
from heliograph.config.providers import check_providers, has_template, read_providers, resolve
from heliograph.config.worker_keys import (
    BASIC_AUTH_EXTENSION,
    CONNECT_KEYS,
    RestSettings,
    WorkerSettings,
)
from heliograph.connect.storage_setup import StorageNames, StorageTopic
from heliograph.errors import ConfigError
from heliograph.model import ClientSettings

__all__ = ["ALIAS", "WorkerConfig"]

ALIAS = "connect"
"""What the worker's own cluster is called in messages."""

_LISTENER = re.compile(
    r"(?P<scheme>https?)://(?:\[(?P<six>[^\]]*)\]|(?P<host>[^/:\[\]]*)):(?P<port>[0-9]{1,5})/?",
    re.IGNORECASE,
)
_ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - named, not bound
_HTTPS = "listeners.https."
_POLICY_TAIL = "ConnectorClientConfigOverridePolicy"
_PRINCIPAL = ("sasl.jaas.config", "sasl.mechanism", "security.protocol")
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a key
_REQUIRED = {
    "group.id": "connect-cluster",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
}
"""Keys that must be set, with an example of each."""

_Providers = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class WorkerConfig(WorkerSettings):
    """A worker file, valid.

    Attributes:
        name: the path of the file; errors begin with it.
        rest: who may use the REST API.
        client: how the worker reaches its own cluster, which is that of the three topics.
        client_effective: what is written for clients of that cluster, by consumer, producer and
            admin, common keys included: what connectors inherit.
        providers: those that the file declares; connectors may use no others.
        storage: the three topics.
        https: ``ssl.*`` of https listeners, templates unresolved.
        written: names of all keys that the file has.
        warnings: what does not stop the worker.
        bound_port: what the REST API is served on, if the file leaves that open (port 0).
    """

    name: str
    rest: RestSettings
    client: ClientSettings
    client_effective: Mapping[str, Mapping[str, Effective]] = field(repr=False)
    providers: _Providers
    storage: StorageNames
    https: ClientSettings = field(repr=False)
    written: frozenset[str] = field(repr=False)
    warnings: tuple[Problem, ...]
    bound_port: int = 0

    @classmethod
    def from_file(cls, path: Path) -> WorkerConfig:
        """Reads and validates a ``connect-distributed.properties``.

        Raises:
            ConfigError: the file cannot be read.
            ConfigErrors: the file has errors; all of them are listed. Secrets are not.
        """
        properties = parse_file(path, "the file that connect-distributed.sh would be given")
        return _Reader(properties, Problems(str(path))).read(path)

    @classmethod
    def from_mapping(
        cls, values: Mapping[str, str], *, name: str = "worker configuration"
    ) -> WorkerConfig:
        """Validates keys and values as a file would have them.

        Raises:
            ConfigErrors: as `from_file`.
        """
        entries = {key: Entry(key, value, 0) for key, value in values.items()}
        return _Reader(Properties(entries), Problems(name)).read(None)

    def served_on(self, port: int) -> WorkerConfig:
        """The same with the port that the REST API got."""
        return replace(self, bound_port=port)

    @property
    def admin_addresses(self) -> tuple[str, ...] | None:
        """Where ``/admin`` is served; None: on ``listeners``; empty: nowhere."""
        return self.admin_listeners if "admin.listeners" in self.written else None

    @property
    def worker_id(self) -> str:
        """Advertised host and port: what statuses call this worker.

        As Connect: rest.advertised.* over the first listener of that kind over this host's name.
        """
        listener = self._advertised()
        host = self.rest_advertised_host_name or listener["six"] or listener["host"]
        # The default listener is on loopback, on every machine; names of workers must differ.
        default = not self.rest_advertised_host_name and "listeners" not in self.written
        if host in _ANY_ADDRESS or default:
            host = socket.getfqdn()
        port = self.rest_advertised_port or int(listener["port"]) or self.bound_port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _advertised(self) -> re.Match[str]:
        found = [match for text in self.listeners if (match := _LISTENER.fullmatch(text))]
        wanted = self.rest_advertised_listener or "http"
        return next((m for m in found if m["scheme"].lower() == wanted), found[0])

    def tls(self) -> dict[str, str]:
        """``ssl.*`` of https listeners, templates resolved; for the process that serves them.

        Raises:
            ConfigError: a secret cannot be read any more.
        """
        properties = {"ssl.client.auth": self.ssl_client_auth, **self.https.properties}
        return {name: resolve(value, self.providers) for name, value in properties.items()}

    @property
    def override_policy(self) -> str:
        """All, None, Principal or Allowlist."""
        named = self.connector_client_config_override_policy
        return named.rpartition(".")[2].removesuffix(_POLICY_TAIL)

    def allows_override(self, name: str) -> bool:
        """Whether a connector may set ``producer.override.<name>``."""
        match self.override_policy:
            case "All":
                return True
            case "Principal":
                return name in _PRINCIPAL
            case "Allowlist":
                return name in self.connector_client_config_override_allowlist
        return False

    def allows_url(self, url: str) -> bool:
        """Whether a connector may have tokens fetched from ``url`` (CVE-2025-27817)."""
        own = (values.get(_TOKEN_URL) for values in self.client_effective.values())
        return url in self.connector_allowed_urls or url in {v.value for v in own if v}


class _Reader:
    """Reads one file; mistakes go to the problems."""

    def __init__(self, properties: Properties, problems: Problems) -> None:
        self._properties = properties
        self._entries = properties.entries
        self._problems = problems
        self._providers = read_providers(properties.as_dict())

    def read(self, path: Path | None) -> WorkerConfig:
        for earlier, later in self._properties.duplicates:
            message = f"also on line {earlier.line}; the later one counts"
            self._problems.warn("config.duplicate-key", later.key, message, line=later.line)
        self._check_providers()
        self._check_entries()
        texts = {key.name: self._text(key) for key in CONNECT_KEYS if key.default is not None}
        texts["listeners"] = self._listeners(texts)
        settings, rest = WorkerSettings(texts), RestSettings(texts)
        self._check_required(texts)
        self._check_listeners(settings)
        self._check_extensions(settings, rest)
        common = self._client_values("")
        client = client_settings(ALIAS, "admin", common, self._providers)
        check_client(client, common, self._problems, prefix="")
        self._problems.raise_if_any()
        if path is not None:
            check_readers(path, self._properties, self._problems)
        return WorkerConfig(
            texts=texts,
            name=self._problems.name,
            rest=rest,
            client=client,
            client_effective={role: self._client_values(role) for role in ROLES},
            providers=self._providers,
            storage=self._storage(settings),
            https=self._https(),
            written=frozenset(self._entries) | self._old_listener(),
            warnings=tuple(self._problems.warnings),
        )

    def _check_providers(self) -> None:
        for key, error in check_providers(self._providers):
            line = self._line(key) or self._line("config.providers")
            if error.code == "config.provider-class":
                # Connectors that use it fail and say so; the others need not.
                text = str(error.args[0])
                self._problems.warn(error.code, key, text, line=line, hint=error.hint)
            else:
                self._problems.caught(error, key, line=line)

    def _check_entries(self) -> None:
        ignored = []
        for entry in self._entries.values():
            key = _row(entry.key)
            if key is None:
                self._unknown(entry)
                continue
            if key.status is Status.ACCEPTED:
                ignored.append(entry.key)
            if key.name != "config.providers.*":
                self._check_value(entry, key)
        if ignored:
            message = f"mean nothing to Heliograph and are ignored: {', '.join(ignored)}"
            self._problems.warn("config.no-effect", "", message)

    def _unknown(self, entry: Entry) -> None:
        near = nearest(entry.key, [key.name for key in CONNECT_KEYS], 0.8)
        hint = f"did you mean {near}?" if near else ""
        # Nobody else has such keys, and one that guards the API may be meant.
        own = entry.key.startswith("heliograph.")
        report = self._problems.error if own else self._problems.warn
        report("config.unknown-key", entry.key, "unknown key", line=entry.line, hint=hint)

    def _check_value(self, entry: Entry, key: Key) -> None:
        try:
            value = resolve(entry.value, self._providers)
        except ConfigError as error:
            self._problems.caught(error, entry.key, line=entry.line)
            return
        reason = key.problem(value)
        if reason is None:
            return
        if has_template(entry.value):
            reason = f"what it resolves to is wrong: expected {key.expected()}"
        hint = key.next_step()
        self._problems.bad_value(entry.key, entry.value, reason, line=entry.line, hint=hint)

    def _text(self, key: Key) -> str:
        default = key.default or ""
        entry = self._entries.get(key.name)
        if entry is None:
            return default
        try:
            value = resolve(entry.value, self._providers).strip()
        except ConfigError:
            return default
        return default if key.problem(value) is not None else value

    def _check_required(self, texts: Mapping[str, str]) -> None:
        for key, example in _REQUIRED.items():
            if not texts[key]:
                hint = f"add a line such as: {key}={example}"
                line = self._line(key)
                self._problems.error("config.missing", key, "is not set", line=line, hint=hint)
        topics = [texts[key] for key in _REQUIRED if key != "group.id" and texts[key]]
        if len(set(topics)) < len(topics):
            message = "the three storage topics must be different topics"
            self._problems.error("config.bad-value", "config.storage.topic", message)

    def _old_listener(self) -> frozenset[str]:
        """``listeners``, if it is written as before Kafka 3.0: rest.host.name and rest.port."""
        old = {"rest.port", "rest.host.name"} & set(self._entries)
        return frozenset({"listeners"}) if old else frozenset()

    def _listeners(self, texts: Mapping[str, str]) -> str:
        if "listeners" in self._entries or not self._old_listener():
            return texts["listeners"]
        # Without a host Connect served all addresses: so it is read, and judged.
        host = texts["rest.host.name"]
        return f"http://{f'[{host}]' if ':' in host else host}:{texts['rest.port']}"

    def _check_listeners(self, settings: WorkerSettings) -> None:
        for key, given in (
            ("listeners", settings.listeners),
            ("admin.listeners", settings.admin_listeners),
        ):
            for text in given:
                match = _LISTENER.fullmatch(text)
                if match is None or int(match["port"]) > 65535:
                    reason = "expected http://host:port or https://host:port"
                    self._problems.bad_value(key, text, reason, line=self._line(key))
        if not settings.listeners:
            hint = "add a line such as: listeners=http://127.0.0.1:8083"
            line = self._line("listeners")
            self._problems.error("config.missing", "listeners", "is empty", line=line, hint=hint)

    def _check_extensions(self, settings: WorkerSettings, rest: RestSettings) -> None:
        key = "rest.extension.classes"
        for name in settings.rest_extension_classes:
            if name == BASIC_AUTH_EXTENSION:
                if not (rest.property_login_file or rest.users_file or rest.insecure):
                    self._problems.error(
                        "config.missing",
                        "heliograph.rest.property.login.file",
                        "the BasicAuthSecurityRestExtension is asked for, but not who may log in",
                        line=self._line(key),
                        hint="name the file of PropertyFileLoginModule, which is in the file that"
                        " java.security.auth.login.config names; or heliograph.rest.users.file",
                    )
                continue
            # To leave out what may have guarded the API would open it.
            report = self._problems.warn if rest.insecure else self._problems.error
            report(
                "config.rest-extension",
                key,
                f"{name} cannot be loaded, and it may be what guards the REST API",
                line=self._line(key),
                hint="remove it, and see docs/rest.md for what Heliograph has itself",
            )

    def _client_values(self, role: str) -> dict[str, Effective]:
        """What is written for a client of the worker's cluster: ``x``, then ``<role>.x``."""
        found = {n: e for n, e in self._entries.items() if client_key(n, "common") is not None}
        if role:
            start = f"{role}."
            own = ((n[len(start) :], e) for n, e in self._entries.items() if n.startswith(start))
            found |= {n: e for n, e in own if client_key(n, role) is not None}
        return {name: Effective(e.value, self._origin(e), e) for name, e in found.items()}

    def _origin(self, entry: Entry) -> str:
        line = f":{entry.line}" if entry.line else ""
        return f"{Path(self._problems.name).name}{line} {entry.key}"

    def _https(self) -> ClientSettings:
        """All or nothing, as in Connect: ``listeners.https.*``, or ``ssl.*`` of the file."""
        written = {n: e.value for n, e in self._entries.items()}
        own = {n.removeprefix(_HTTPS): v for n, v in written.items() if n.startswith(_HTTPS)}
        shared = {n: v for n, v in written.items() if n.startswith("ssl.")}
        return ClientSettings("listeners.https", own or shared, self._providers)

    def _storage(self, settings: WorkerSettings) -> StorageNames:
        return StorageNames(
            configs=StorageTopic(
                settings.config_storage_topic,
                1,
                settings.config_storage_replication_factor,
                self._topic_settings("config"),
            ),
            statuses=StorageTopic(
                settings.status_storage_topic,
                settings.status_storage_partitions,
                settings.status_storage_replication_factor,
                self._topic_settings("status"),
            ),
            offsets=StorageTopic(
                settings.offset_storage_topic,
                settings.offset_storage_partitions,
                settings.offset_storage_replication_factor,
                self._topic_settings("offset"),
            ),
            create=settings.internal_topics_automatic_creation_enable,
        )

    def _topic_settings(self, kind: str) -> dict[str, str]:
        """Every other ``<kind>.storage.x`` is a property of the topic."""
        prefix = f"{kind}.storage."
        known = ("topic", "partitions", "replication.factor", "cleanup.policy", "file.filename")
        return {
            name.removeprefix(prefix): resolve(entry.value, self._providers).strip()
            for name, entry in self._entries.items()
            if name.startswith(prefix) and name.removeprefix(prefix) not in known
        }

    def _line(self, key: str) -> int:
        entry = self._entries.get(key)
        return entry.line if entry is not None else 0


def _row(name: str) -> Key | None:
    """The row of a worker file's key: the worker's own, or that of a client."""
    plain = name.removeprefix(_HTTPS)
    found = find(Scope.CONNECT, plain) or client_key(plain, "common")
    if found is not None or plain != name:
        return found
    role, _, rest = name.partition(".")
    if role in ROLES:
        return client_key(rest, role)
    # What Kafka's clients have, for the worker's own: known, not read.
    return client_key(name, "admin") or client_key(name, "consumer")
