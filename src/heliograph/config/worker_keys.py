"""The key table, part three: Connect's distributed worker file, for ``heliograph connect``.

A key that Heliograph reads is an attribute of `WorkerSettings`, or of `RestSettings` if it is about
the REST server and may be written into an ``mm2.properties``, too. Keys of clients
(``bootstrap.servers``, ``producer.x`` ...) are in `heliograph.config.client_keys`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from heliograph.config.key import Key, Scope, Setting, Status, Type, split_list
from heliograph.config.providers import resolve

__all__ = [
    "BASIC_AUTH_EXTENSION",
    "CONNECT_KEYS",
    "REST_KEYS",
    "ROLES_OF_USERS",
    "RestSettings",
    "WorkerSettings",
]

ROLES_OF_USERS = ("viewer", "operator", "admin")
"""What a caller of the REST API may do: see; also pause, resume and restart; everything."""

BASIC_AUTH_EXTENSION = "org.apache.kafka.connect.rest.basic.auth.extension" + (
    ".BasicAuthSecurityRestExtension"
)

_POLICIES = ("All", "None", "Principal", "Allowlist")
_POLICY_CLASSES = tuple(
    package + f"{name}ConnectorClientConfigOverridePolicy"
    for package in ("", "org.apache.kafka.connect.connector.policy.")
    for name in _POLICIES
)


def _flag_of(text: str) -> bool:
    return text.lower() == "true"


_flag = partial(Setting[bool], Scope.CONNECT, Type.BOOLEAN, _flag_of)
_int = partial(Setting[int], Scope.CONNECT, Type.INT, int)
_text = partial(Setting[str], Scope.CONNECT, Type.STRING, str.strip)
_list = partial(Setting[tuple[str, ...]], Scope.CONNECT, Type.LIST, split_list)
_factor = partial(_int, default="3", minimum=-1, nonzero=True, importance="low")


@dataclass(frozen=True, slots=True)
class RestSettings:
    """Who may use the REST API, and how much of it. ``texts`` as in `WorkerSettings`."""

    texts: Mapping[str, str] = field(repr=False)

    # fmt: off
    insecure = _flag(
        "heliograph.rest.insecure",
        "Whether the REST API may be served without TLS or without authentication on an address"
        " that other machines reach. Whoever reaches it then controls the mirror.",
        default="false", importance="high")
    changes = _flag(
        "heliograph.rest.changes",
        "Whether run --listen lets callers pause, resume and restart; a worker always does.",
        default="false")
    users_file = _text(
        "heliograph.rest.users.file",
        "File with the users of the REST API: names, roles, hashes of passwords"
        " (docs/rest.md; heliograph rest user).", default="", importance="high")
    property_login_file = _text(
        "heliograph.rest.property.login.file",
        "File with user=password lines, as Connect's PropertyFileLoginModule reads it for its"
        " BasicAuthSecurityRestExtension.", default="")
    property_login_role = _text(
        "heliograph.rest.property.login.role", "The role of its users; Connect has no roles.",
        default="admin", allowed=ROLES_OF_USERS, importance="low")
    tokens_file = _text(
        "heliograph.rest.tokens.file",
        "File with the bearer tokens of the REST API: names, roles, hashes (docs/rest.md;"
        " heliograph rest token).", default="", importance="high")
    mtls_roles = _list(
        "heliograph.rest.mtls.roles",
        "Roles of clients with a certificate (ssl.client.auth): <common name>=<role>, comma"
        " separated; * stands for any name.", default="")
    allowed_hosts = _list(
        "heliograph.rest.allowed.hosts",
        "Names that a request's Host header may have, beside those of listeners and"
        " rest.advertised.host.name; * allows all.", default="")
    body_max_bytes = _int(
        "heliograph.rest.body.max.bytes", "Longest body of a request.", default="1048576",
        minimum=1024, importance="low")
    requests_per_second = _int(
        "heliograph.rest.requests.per.second",
        "Most requests of one client in a second, on average; 0 means any number.", default="100",
        minimum=0, importance="low")
    metrics_topics = _int(
        "heliograph.metrics.topics",
        "Most topics that have series of their own in /metrics, of all flows together: those that"
        " lag most. The others of a flow share topic=\"other\".", default="200", minimum=0,
        importance="low")
    metrics_partitions = _flag(
        "heliograph.metrics.partitions",
        "Whether each partition of these topics has series of its own in /metrics.",
        default="false", importance="low")
    # fmt: on

    @classmethod
    def of(cls, values: Mapping[str, str], providers: Mapping[str, Mapping[str, str]]) -> Self:
        """Those of a configuration that was checked, by what is written in it.

        Raises:
            ConfigError: a template cannot be resolved.
        """
        rows = [row.key for row in vars(cls).values() if isinstance(row, Setting)]
        written = {key.name: values.get(key.name, key.default or "") for key in rows}
        return cls({name: resolve(text, providers).strip() for name, text in written.items()})


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The values of a worker file's keys, typed. Attributes are the keys with underscores.

    ``texts`` has the value of every key by its name: valid, templates resolved.
    """

    texts: Mapping[str, str] = field(repr=False)

    # fmt: off
    group_id = _text(
        "group.id", "Name of the Connect cluster: workers with the same one share its connectors.",
        default="", importance="high")
    config_storage_topic = _text(
        "config.storage.topic", "Where connectors and their target states are kept.", default="",
        importance="high")
    config_storage_replication_factor = _factor(
        "config.storage.replication.factor", "Of that topic; -1 means the cluster's default.")
    offset_storage_topic = _text(
        "offset.storage.topic", "Where the connectors' positions are also written, for MM2.",
        default="", importance="high")
    offset_storage_partitions = _int(
        "offset.storage.partitions", "Of that topic; -1 means the cluster's default.",
        default="25", minimum=-1, nonzero=True, importance="low")
    offset_storage_replication_factor = _factor(
        "offset.storage.replication.factor", "Of that topic; -1 means the cluster's default.")
    status_storage_topic = _text(
        "status.storage.topic", "Where states of connectors and tasks are kept.", default="",
        importance="high")
    status_storage_partitions = _int(
        "status.storage.partitions", "Of that topic; -1 means the cluster's default.",
        default="5", minimum=-1, nonzero=True, importance="low")
    status_storage_replication_factor = _factor(
        "status.storage.replication.factor", "Of that topic; -1 means the cluster's default.")
    internal_topics_automatic_creation_enable = _flag(
        "internal.topics.automatic.creation.enable",
        "Whether these three topics are created if they are not there.", default="true",
        importance="low")
    listeners = _list(
        "listeners", "Where the REST API is served: http://host:port or https://host:port.",
        default="http://127.0.0.1:8083", mm2_default="http://:8083", importance="high")
    admin_listeners = _list(
        "admin.listeners",
        "Where /admin is served: not set, on listeners; empty, nowhere; else only there.",
        default="", importance="low")
    rest_host_name = _text(
        "rest.host.name", "Host of the listener, if listeners is not set.", default="",
        importance="low")
    rest_port = _int(
        "rest.port", "Port of the listener, if listeners is not set.", default="8083", minimum=0,
        importance="low")
    rest_advertised_host_name = _text(
        "rest.advertised.host.name", "Host under which other workers and clients reach this one.",
        default="")
    rest_advertised_port = _int(
        "rest.advertised.port", "Port for that; 0: the listener's.", default="0", minimum=0)
    rest_advertised_listener = _text(
        "rest.advertised.listener", "Whether that is the http or the https listener.",
        default="", allowed=("", "http", "https"), importance="low")
    rest_extension_classes = _list(
        "rest.extension.classes",
        "Classes named in a file are never loaded. Connect's BasicAuthSecurityRestExtension stands"
        " for basic authentication; its file is heliograph.rest.property.login.file.",
        default="")
    access_control_allow_origin = _text(
        "access.control.allow.origin",
        "Web pages of this origin may use the REST API from a browser (CORS).", default="",
        importance="low")
    access_control_allow_methods = _list(
        "access.control.allow.methods", "Methods that they may use; GET, POST and HEAD if empty.",
        default="", importance="low")
    response_http_headers_config = _text(
        "response.http.headers.config",
        "Headers of all answers: set|add|setDate|addDate Name: value, comma separated.",
        default="", importance="low")
    ssl_client_auth = _text(
        "ssl.client.auth", "Whether https asks clients for a certificate.", default="none",
        allowed=("required", "requested", "none"), importance="low")
    topic_tracking_enable = _flag(
        "topic.tracking.enable", "Whether a connector's topics are kept and shown.",
        default="true", importance="low")
    topic_tracking_allow_reset = _flag(
        "topic.tracking.allow.reset", "Whether they may be forgotten on request.",
        default="true", importance="low")
    connector_client_config_override_policy = _text(
        "connector.client.config.override.policy",
        "Which producer.override.x a connector may set.", default="All",
        allowed=(*_POLICIES, *_POLICY_CLASSES))
    connector_client_config_override_allowlist = _list(
        "connector.client.config.override.allowlist", "Those that the policy Allowlist allows.",
        default="", importance="low")
    connector_allowed_urls = _list(
        "heliograph.connector.allowed.urls",
        "URLs that a connector may name in sasl.oauthbearer.token.endpoint.url. Those that this"
        " file itself names are allowed, too.", default="")
    # fmt: on


def _accepted(names: str, doc: str) -> tuple[Key, ...]:
    return tuple(
        Key(name, Type.STRING, doc, Scope.CONNECT, status=Status.ACCEPTED, importance="low")
        for name in names.split()
    )


_OTHERS: tuple[Key, ...] = (
    Key("config.providers", Type.LIST,
        "Names of the providers that templates ${name:...} may use, here and in connectors.",
        Scope.CONNECT),
    Key("config.providers.*", Type.STRING,
        "config.providers.<name>.class is Kafka's File-, Directory- or EnvVarConfigProvider;"
        " .param.allowed.paths (file, directory) or .param.allowlist.pattern (env) is mandatory.",
        Scope.CONNECT),
    Key("listeners.https.*", Type.STRING,
        "ssl.* settings of the https listeners; without any, ssl.* itself.", Scope.CONNECT),
    Key("config.storage.*", Type.STRING, "Other settings of that topic.", Scope.CONNECT,
        importance="low"),
    Key("offset.storage.*", Type.STRING, "Other settings of that topic.", Scope.CONNECT,
        importance="low"),
    Key("status.storage.*", Type.STRING, "Other settings of that topic.", Scope.CONNECT,
        importance="low"),
    *_accepted("key.converter* value.converter* header.converter* internal.key.converter*"
               " internal.value.converter*", "Records are copied as bytes."),
    *_accepted("exactly.once.source.support", "Exactly once is always on."),
    *_accepted("offset.flush.interval.ms", "Positions are written for MM2 every ten seconds."),
    *_accepted("scheduled.rebalance.max.delay.ms rebalance.timeout.ms session.timeout.ms"
               " heartbeat.interval.ms connect.protocol worker.sync.timeout.ms"
               " worker.unsync.backoff.ms inter.worker.*",
               "Workers find each other by a protocol of their own."),
    *_accepted("plugin.path plugin.discovery", "No class is loaded."),
    *_accepted("admin.listeners.https.*", "Those of listeners.https.* hold for all."),
    *_accepted("offset.flush.timeout.ms task.shutdown.graceful.timeout.ms topic.creation.enable"
               " client.id metric.reporters metrics.* offset.storage.file.filename",
               "A setting of Connect's worker; Heliograph has its own."),
)  # fmt: skip

_SETTINGS = tuple(
    row.key
    for settings in (WorkerSettings, RestSettings)
    for row in vars(settings).values()
    if isinstance(row, Setting)
)

CONNECT_KEYS: tuple[Key, ...] = (*_SETTINGS, *_OTHERS)

REST_KEYS: tuple[Key, ...] = tuple(
    replace(key, scope=Scope.TOP)
    for key in _SETTINGS
    if key.name.startswith(("heliograph.rest.", "heliograph.metrics."))
)
"""Those that may be at the top level of an ``mm2.properties``, for ``heliograph run --listen``."""
