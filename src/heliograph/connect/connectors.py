"""The three connectors: their names, and what a connector's config means for a flow. Pure.

A connector is one part of a flow. Its config goes through the same table of keys, the same checks
and the same loader as a flow of an ``mm2.properties``; only the places where a value may be written
differ (`_ConnectorPrecedence`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from heliograph.config import FlowConfig
from heliograph.config.key import Key, split_list
from heliograph.config.keys import client_key
from heliograph.config.mirror_maker import FlowLoader
from heliograph.config.precedence import Effective, Precedence
from heliograph.config.problems import Problem, Problems
from heliograph.config.properties import Entry, Properties
from heliograph.config.providers import resolve
from heliograph.config.validation import check_connector_entries
from heliograph.connect.worker_config import WorkerConfig
from heliograph.errors import ConfigError
from heliograph.model import Flow
from heliograph.service.snapshot import CHECKPOINTS, COPYING, HEARTBEATS
from heliograph.shown import shown

__all__ = [
    "KAFKA_VERSION",
    "ConnectorClass",
    "ConnectorPlan",
    "check_urls",
    "connector_class",
    "deal_out",
    "override_refusal",
    "plan_connector",
    "plugins",
]

KAFKA_VERSION = "4.3.1"
"""The Kafka whose Connect this is compared with; clients read what to expect from it."""

_PACKAGE = "org.apache.kafka.connect.mirror"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a key
_LEDGER_FACTOR = "heliograph.ledger.topic.replication.factor"
_BYTE_CONVERTER = "ByteArrayConverter"
_ALIASES = {"source.cluster.alias": "", "target.cluster.alias": "target"}
_LOGIN = ("security.protocol", "sasl.", "ssl.")


class ConnectorClass(Enum):
    """One of MM2's connectors; the value is the middle of its name."""

    CHECKPOINT = "Checkpoint"
    HEARTBEAT = "Heartbeat"
    SOURCE = "Source"

    @property
    def simple_name(self) -> str:
        """``MirrorSourceConnector``."""
        return f"Mirror{self.value}Connector"

    @property
    def class_name(self) -> str:
        """With its package."""
        return f"{_PACKAGE}.{self.simple_name}"

    @property
    def task_class(self) -> str:
        """What Connect shows as ``task.class``."""
        return f"{_PACKAGE}.Mirror{self.value}Task"

    @property
    def part(self) -> str:
        """The part of a flow that it is: COPYING, CHECKPOINTS or HEARTBEATS."""
        return _PARTS[self]

    @property
    def letter(self) -> str:
        """As in `heliograph.config.key.Shown.connectors`."""
        return self.value[0]


_PARTS = {
    ConnectorClass.SOURCE: COPYING,
    ConnectorClass.CHECKPOINT: CHECKPOINTS,
    ConnectorClass.HEARTBEAT: HEARTBEATS,
}
_BY_NAME = {
    name: kind
    for kind in ConnectorClass
    for name in (kind.class_name, kind.simple_name, kind.simple_name.removesuffix("Connector"))
}


def connector_class(text: str | None) -> ConnectorClass | None:
    """The connector of that name, long or short; None if there is none."""
    return _BY_NAME.get(text or "")


def plugins() -> list[dict[str, str]]:
    """``class``, ``type`` and ``version`` of each connector, as Connect lists them."""
    return [
        {"class": kind.class_name, "type": "source", "version": KAFKA_VERSION}
        for kind in ConnectorClass
    ]


@dataclass(frozen=True, slots=True)
class ConnectorPlan:
    """What a connector does.

    Attributes:
        name: of the connector.
        kind: which of the three it is.
        flow: its configuration. Of a heartbeat connector it is not ``enabled``: such a flow only
            emits heartbeats.
        config: as it was given, templates unresolved.
        offsets_topic: where its positions are written for MM2, on the worker's cluster.
        worker: whose connector it is.
        warnings: what does not stop it; keys that are ignored.
    """

    name: str
    kind: ConnectorClass
    flow: FlowConfig
    config: Mapping[str, str] = field(repr=False)
    offsets_topic: str
    worker: WorkerConfig = field(repr=False, compare=False)
    warnings: tuple[Problem, ...]

    @property
    def part(self) -> str:
        """COPYING, CHECKPOINTS or HEARTBEATS."""
        return self.kind.part

    @property
    def active(self) -> bool:
        """Whether it has anything to do; if not it runs without tasks, as in MM2."""
        if self.kind is ConnectorClass.HEARTBEAT:
            return self.flow.emit_heartbeats_enabled
        if self.kind is ConnectorClass.CHECKPOINT:
            return self.flow.enabled and self.flow.emit_checkpoints_enabled
        return self.flow.enabled

    def meets(self, config: Mapping[str, str]) -> bool:
        """Whether another connector, by its config, copies between the same clusters, too.

        Clusters are the same if one address is. A config that is no source connector's never meets.
        """
        kinds = {self.kind, connector_class(config.get("connector.class"))}
        if kinds != {ConnectorClass.SOURCE}:
            return False
        own = _servers(self.worker.client.bootstrap_servers, self.worker)
        sources, targets = (
            [_servers(c.get(f"{side}.cluster.bootstrap.servers", ""), self.worker)
             for c in (self.config, config)]
            for side in ("source", "target")
        )  # fmt: skip
        mine, theirs = (servers or own for servers in targets)
        return bool(sources[0] & sources[1]) and bool(mine & theirs)

    def task_configs(self, work: Sequence[str] = ()) -> list[dict[str, str]]:
        """The configs of its tasks, as MM2 deals ``work`` out to at most ``tasks.max`` of them.

        Args:
            work: of a source connector ``topic-partition`` of each source partition, dealt out in
                turn; of a checkpoint connector its groups, in runs. A heartbeat connector has none.
        """
        return deal_out(self.kind, self.config, work, self.flow.tasks_max) if self.active else []


def deal_out(
    kind: ConnectorClass, config: Mapping[str, str], work: Sequence[str], tasks_max: int
) -> list[dict[str, str]]:
    """The configs of a connector's tasks; ``work`` as in `ConnectorPlan.task_configs`."""
    task = {**config, "task.class": kind.task_class}
    if kind is ConnectorClass.HEARTBEAT:
        return [task]
    count = min(tasks_max, len(work))
    if kind is ConnectorClass.SOURCE:
        key, shares = "task.assigned.partitions", [work[i::count] for i in range(count)]
    else:
        key, shares = "task.assigned.groups", _runs(work, count)
    return [{**task, "task.index": str(i), key: ",".join(share)} for i, share in enumerate(shares)]


def _runs(items: Sequence[str], count: int) -> list[Sequence[str]]:
    """``count`` neighbours' runs of nearly equal length, longer ones first."""
    shares, start = [], 0
    for i in range(count):
        end = start + len(items) // count + (i < len(items) % count)
        shares.append(items[start:end])
        start = end
    return shares


def plan_connector(name: str, config: Mapping[str, str], worker: WorkerConfig) -> ConnectorPlan:
    """What the connector ``name`` with ``config`` does on ``worker``.

    The target is what ``target.cluster.*`` says, else the worker's own cluster. Templates may name
    only providers that the worker's file declares.

    Raises:
        ConfigErrors: it cannot run; every reason is listed. Secrets are not.
    """
    problems = Problems(f"connector {shown(name)}")
    entries = {key: Entry(key, value, 0) for key, value in config.items()}
    kind = connector_class(config.get("connector.class"))
    if kind is None:
        problems.error(
            "connect.class",
            "connector.class",
            f"{shown(config.get('connector.class', ''))!r} is not a connector of MirrorMaker 2,"
            " and no other runs here",
            hint=f"one of {', '.join(each.class_name for each in ConnectorClass)}",
        )
        problems.raise_if_any()
    assert kind is not None  # noqa: S101 - raised above
    entries = _without_providers(entries, worker, problems)
    check_connector_entries(entries, worker.providers, problems)
    check_urls(entries, worker, problems)
    _check_overrides(entries, worker, problems)
    _check_converters(entries, problems)
    flow = _flow(config, worker, problems)
    if flow is None:
        problems.raise_if_any()
    assert flow is not None  # noqa: S101 - raised above
    # The flow has them, resolved.
    written = {key: entry for key, entry in entries.items() if key not in _ALIASES}
    precedence = _ConnectorPrecedence(problems.name, Properties(written), kind, worker)
    prefixes = {"source": "source.cluster.", "target": "target.cluster."}
    loaded = FlowLoader(precedence, worker.providers, problems, prefixes).flow(flow)
    if loaded.tasks_max < 1:
        problems.error("config.bad-value", "tasks.max", "expected a whole number of at least 1")
    problems.raise_if_any()
    return ConnectorPlan(
        name, kind, loaded, dict(config), loaded.mm2_offsets_topic, worker, tuple(problems.warnings)
    )


def _flow(config: Mapping[str, str], worker: WorkerConfig, problems: Problems) -> Flow | None:
    aliases = {}
    for key, default in _ALIASES.items():
        try:
            alias = resolve(config.get(key, default), worker.providers).strip()
        except ConfigError:
            return None  # reported with its key
        if not alias:
            message = "is not set" if key not in config else "is empty"
            hint = f'add "{key}": a short name of the cluster, as in names of remote topics'
            problems.error("config.missing", key, message, hint=hint)
            return None
        aliases[key] = alias
    source, target = aliases.values()
    if source == target:
        message = f"source and target are the same cluster, {shown(source)!r}"
        problems.error("config.bad-value", "target.cluster.alias", message)
        return None
    return Flow(source, target)


def _without_providers(
    entries: Mapping[str, Entry], worker: WorkerConfig, problems: Problems
) -> dict[str, Entry]:
    """The entries without declarations of providers: those are the worker file's to make."""
    named = entries.get("config.providers")
    for provider in split_list(named.value) if named is not None else ():
        if provider not in worker.providers:
            problems.error(
                "config.provider-unknown",
                "config.providers",
                f"provider {shown(provider)!r} is not declared in the worker's file",
                hint="connectors may use only the providers that are declared there",
            )
    ignored = [key for key in entries if key.startswith("config.providers.")]
    for key in ignored:
        problems.warn(
            "config.no-effect", key, "ignored: providers are declared in the worker's file"
        )
    return {k: e for k, e in entries.items() if k not in ignored and k != "config.providers"}


def check_urls(entries: Mapping[str, Entry], worker: WorkerConfig, problems: Problems) -> None:
    """Refuses URLs of token endpoints that the worker's file does not allow.

    CVE-2025-27817: whoever may configure a connector could have the worker fetch any URL.
    """
    for entry in entries.values():
        if not entry.key.endswith(_TOKEN_URL):
            continue
        try:
            url = resolve(entry.value, worker.providers).strip()
        except ConfigError:
            continue  # reported with its key
        if url and not worker.allows_url(url):
            problems.error(
                "connect.url",
                entry.key,
                "the worker's file does not allow this URL",
                hint="add it to heliograph.connector.allowed.urls there",
            )


def _check_overrides(
    entries: Mapping[str, Entry], worker: WorkerConfig, problems: Problems
) -> None:
    prefix = "producer.override."
    for key in entries:
        if key.startswith(prefix) and not worker.allows_override(key.removeprefix(prefix)):
            problems.error("connect.override", key, override_refusal(key, worker))
    servers = f"{prefix}bootstrap.servers"
    if servers in entries and "target.cluster.bootstrap.servers" not in entries:
        problems.error(
            "config.missing",
            "target.cluster.bootstrap.servers",
            f"is not set, but {servers} is: records would go to another cluster than their topics",
            hint="set it to the same servers",
        )


def override_refusal(key: str, worker: WorkerConfig) -> str:
    """Connect's words for a client setting that its policy does not allow."""
    name = key.partition(".override.")[2]
    return (
        f"The '{worker.override_policy}' policy does not allow '{name}' to be overridden in the"
        " connector configuration."
    )


def _check_converters(entries: Mapping[str, Entry], problems: Problems) -> None:
    for name in ("key.converter", "value.converter", "header.converter"):
        entry = entries.get(name)
        if entry is not None and entry.value.strip().rpartition(".")[2] != _BYTE_CONVERTER:
            message = "ignored: keys, values and headers are copied as they are"
            problems.warn("config.no-effect", name, message)


#: What of a flow is another connector's to do.
_LEFT_OUT = {
    ConnectorClass.SOURCE: {"emit.checkpoints.enabled", "emit.heartbeats.enabled",
                            "sync.group.offsets.enabled"},
    ConnectorClass.CHECKPOINT: {"emit.heartbeats.enabled", "emit.offset-syncs.enabled"},
    ConnectorClass.HEARTBEAT: {"enabled"},
}  # fmt: skip


class _ConnectorPrecedence(Precedence):
    """MM2's precedence in Connect mode: keys have no alias before them, defaults are Connect's."""

    def __init__(
        self, name: str, properties: Properties, kind: ConnectorClass, worker: WorkerConfig
    ) -> None:
        super().__init__(name, properties)
        self._kind = kind
        self._worker = worker

    def flow_value(self, flow: Flow, key: Key) -> Effective:
        """``x``, over Connect's default. A heartbeat connector mirrors nothing."""
        if key.name in _LEFT_OUT[self._kind]:
            return Effective("false", self._kind.simple_name)
        entry = self._entries.get(key.name)
        if entry is None and key.name == _LEDGER_FACTOR and self._kind is ConnectorClass.CHECKPOINT:
            # It may be the first to need that topic, and has no key for offset syncs.
            entry = self._entries.get("checkpoints.topic.replication.factor")
        if entry is not None:
            return self._from(entry)
        if key.shown is not None and isinstance(key.shown.default, str):
            return Effective(key.shown.default, "default")
        return self.default(key)

    def flow_family(self, flow: Flow, prefix: str) -> dict[str, Effective]:
        """Every key that begins with ``prefix``."""
        return {prefix + name: self._from(entry) for name, entry in self._all(prefix)}

    def worker_value(self, flow: Flow, key: Key) -> str | None:
        """Where MM2's connector keeps its positions: the worker's topic, or one of its own.

        The group and the configs are those of an MM2 without a Connect cluster, which may run
        beside. In the worker's group there is none while this worker is a member.
        """
        if key.name == "offset.storage.topic":
            own = self._entries.get("offsets.storage.topic")
            return own.value if own is not None else self._worker.offset_storage_topic
        return None

    def client_values(self, flow: Flow, side: str, role: str) -> dict[str, Effective]:
        """As MM2's MirrorConnectorConfig; later wins.

        ``source.cluster.x`` (common keys), ``consumer.x``, ``source.consumer.x``. On the target
        before all these what the worker has. The data producer is the worker's:
        ``target.cluster.x``, then ``producer.override.x``.
        """
        cluster = self._common(f"{side}.cluster.")
        if role == "producer":
            more = self._all("producer.override.")
        else:
            more = [
                *((n, e) for n, e in self._all(f"{role}.") if client_key(n, role) is not None),
                *self._all(f"{side}.{role}."),
            ]
        own = {name: self._from(entry) for name, entry in (*cluster, *more)}
        if side == "source":
            return own
        return {**self._inherited(role, dict(cluster), own), **own}

    def _inherited(
        self, role: str, cluster: Mapping[str, Entry], own: Mapping[str, Effective]
    ) -> dict[str, Effective]:
        """What the worker's file says of its cluster, as far as this connector may have it.

        Addresses and credentials only if it writes to that cluster: whoever posts a connector must
        not be able to have them sent elsewhere. A connector with a login has all of it from there.
        """
        values = self._worker.client_effective[role]
        common = {n: v for n, v in values.items() if client_key(n, "common") is not None}
        result = {n: v for n, v in values.items() if n not in common}
        written, theirs = own.get("bootstrap.servers"), common.get("bootstrap.servers")
        if written is not None and theirs is not None:
            servers = _servers(written.value or "", self._worker)
            if servers != _servers(theirs.value or "", self._worker):
                return result
        login = any(name.startswith(_LOGIN) for name in cluster)
        kept = {n: v for n, v in common.items() if not (login and n.startswith(_LOGIN))}
        return result | kept


def _servers(text: str, worker: WorkerConfig) -> frozenset[str]:
    """The addresses of a list; none if a template in it cannot be resolved."""
    try:
        return frozenset(split_list(resolve(text, worker.providers)))
    except ConfigError:
        return frozenset()
