"""What MirrorClient is configured with: MM2's MirrorClientConfig, checked before anything is asked.

Keys are those of Kafka's clients for one cluster, without an alias before them; ``admin.x`` and
``consumer.x`` are for one kind of client and win over ``x``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heliograph.config.client_keys import CLIENT_KEYS, ROLES
from heliograph.config.clients import check_client, client_settings
from heliograph.config.keys import client_key, flow_key, nearest
from heliograph.config.placement import TYPO_CUTOFF
from heliograph.config.precedence import Effective
from heliograph.config.problems import Problems
from heliograph.config.properties import Entry
from heliograph.config.providers import check_providers, read_providers, resolve
from heliograph.errors import ConfigError
from heliograph.model import ClientSettings
from heliograph.policy import ReplicationPolicy, policy_of

__all__ = ["MirrorClientConfig"]

_CLASS = "replication.policy.class"
_SEPARATOR = "replication.policy.separator"
_POLICY_KEYS = (_CLASS, _SEPARATOR, "replication.policy.internal.topic.separator.enabled")
#: What else an own policy may read.
_FOR_OWN_POLICIES = ("source.cluster.alias", "target.cluster.alias")
_PLUGIN_SETTINGS = "heliograph.plugin."


@dataclass(frozen=True, slots=True)
class MirrorClientConfig:
    """Valid settings. The cluster has no alias here: messages name it by its addresses."""

    admin: ClientSettings
    consumer: ClientSettings
    policy: ReplicationPolicy

    @classmethod
    def of(cls, properties: Mapping[str, str], origin: str = "properties") -> MirrorClientConfig:
        """Reads properties; ``origin`` says in errors where they are from.

        Raises:
            ConfigErrors: with everything that is wrong. Secrets are not repeated.
            ConfigError: an own policy cannot be made.
        """
        return _Reader(properties, Problems(origin)).read()


class _Reader:
    def __init__(self, properties: Mapping[str, str], problems: Problems) -> None:
        self._properties = properties
        self._problems = problems
        self._providers = read_providers(properties)

    def read(self) -> MirrorClientConfig:
        for key, error in check_providers(self._providers):
            self._problems.caught(error, key)
        for name, value in self._properties.items():
            self._check(name, value)
        admin, consumer = self._client("admin"), self._client("consumer")
        self._problems.raise_if_any()
        return MirrorClientConfig(admin, consumer, self._policy())

    def _check(self, name: str, value: str) -> None:
        key = flow_key(name) if name in _POLICY_KEYS else client_key(_plain(name), "common")
        if key is None:
            # As in MM2, what is unknown may be meant for somebody else.
            pool = [k.name for k in CLIENT_KEYS if k.common]
            near = nearest(_plain(name), [*pool, *_POLICY_KEYS], TYPO_CUTOFF)
            if near is not None:
                prefix = name.removesuffix(_plain(name))
                hint = f"did you mean {prefix}{near}?"
                self._problems.error("config.unknown-key", name, "unknown key", hint=hint)
            return
        try:
            resolved = resolve(value, self._providers)
        except ConfigError as error:
            self._problems.caught(error, name)
            return
        reason = key.problem(resolved)
        if name == _SEPARATOR and not resolved:
            reason = "expected at least one character"
        if reason is not None:
            self._problems.bad_value(name, value, reason, line=0, hint=key.next_step())

    def _client(self, role: str) -> ClientSettings:
        written = {n: n for n in self._properties if client_key(n, "common") is not None}
        own = {n.removeprefix(f"{role}."): n for n in self._properties if n.startswith(f"{role}.")}
        written |= {n: w for n, w in own.items() if client_key(n, "common") is not None}
        values = {
            name: Effective(self._properties[key], key, Entry(key, self._properties[key], 0))
            for name, key in written.items()
        }
        servers = written.get("bootstrap.servers")
        alias = self._properties[servers].strip() if servers is not None else ""
        settings = client_settings(alias, role, values, self._providers)
        if alias:
            check_client(settings, values, self._problems, prefix="")
        else:
            hint = "set it to host:port of brokers of the cluster that is mirrored to"
            code = "config.bootstrap-missing"
            self._problems.error(code, "bootstrap.servers", "not set", hint=hint)
        return settings

    def _policy(self) -> ReplicationPolicy:
        values = {
            name: resolve(value, self._providers)
            for name, value in self._properties.items()
            if name in (*_POLICY_KEYS, *_FOR_OWN_POLICIES) or name.startswith(_PLUGIN_SETTINGS)
        }
        return policy_of(values.get(_CLASS, flow_key(_CLASS).default or "").strip(), values)


def _plain(name: str) -> str:
    """``name`` without the kind of client before it."""
    prefix, _, rest = name.partition(".")
    return rest if prefix in ROLES else name
