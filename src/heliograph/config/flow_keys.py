"""The key table, part one: top-level keys and the keys of a flow (``A->B.x`` or ``x``).

A key that Heliograph reads is an attribute of `FlowSettings`: to add one, add a row there and read
the attribute where it is needed. Parsing, validation, comparing, ``config show`` and the
documentation go by the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from heliograph.config.key import Key, Scope, Shown, Status, Type, split_list
from heliograph.config.key import Setting as _Setting
from heliograph.config.plugins import (
    CONFIG_PROPERTY_FILTERS,
    GROUP_FILTERS,
    REPLICATION_POLICIES,
    TOPIC_FILTERS,
)

__all__ = ["FLOW_KEYS", "TOP_KEYS", "FlowSettings"]

_MIRROR = "org.apache.kafka.connect.mirror"
_LATER = "Comes in a later release."
_ON_SURPRISE = ("fail", "continue", "restart-topic")
#: Keys that MM2 does not have are shown behind its own.
_OWN_KEY = Shown("S", 900)
_OWN = "An own one is installed as a package and named by its entry point (docs/extending.md)."

_top = partial(Key, scope=Scope.TOP)
_flow = partial(Key, scope=Scope.FLOW)
_accepted = partial(Key, scope=Scope.FLOW, status=Status.ACCEPTED, importance="low")


def _removed(name: str, replacement: str, doc: str) -> Key:
    return Key(name, Type.STRING, doc, Scope.FLOW, status=Status.REMOVED, replacement=replacement)


def _class_names(simple: str) -> tuple[str, str]:
    return f"{_MIRROR}.{simple}", simple


TOP_KEYS: tuple[Key, ...] = (
    _top("clusters", Type.LIST, "Aliases of the clusters, comma separated.", importance="high"),
    _top("config.providers", Type.LIST,
         "Names of the providers that templates ${name:...} may use."),
    _top("config.providers.*", Type.STRING,
         "config.providers.<name>.class is Kafka's File-, Directory- or EnvVarConfigProvider;"
         " .param.allowed.paths (file, directory) or .param.allowlist.pattern (env) is mandatory."),
    _top("dedicated.mode.enable.internal.rest", Type.BOOLEAN,
         "Not needed: Heliograph's processes coordinate through Kafka.", default="false",
         status=Status.ACCEPTED, importance="low"),
)  # fmt: skip

_flag = partial(_Setting[bool], Scope.FLOW, Type.BOOLEAN, lambda text: text.lower() == "true")
_int = partial(_Setting[int], Scope.FLOW, Type.INT, int)
_long = partial(_Setting[int], Scope.FLOW, Type.LONG, int)
_text = partial(_Setting[str], Scope.FLOW, Type.STRING, str)
_class = partial(_Setting[str], Scope.FLOW, Type.CLASS, str)
_patterns = partial(_Setting[tuple[str, ...]], Scope.FLOW, Type.REGEX_LIST, split_list)


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """The values of a flow's keys, typed. Attributes are the keys with underscores.

    ``texts`` has the value of every key by its name: valid, templates resolved, in canonical
    spelling. Two of these are equal if all values are.
    """

    texts: Mapping[str, str] = field(repr=False)

    # fmt: off
    # Common
    enabled = _flag(
        "enabled", "Whether the flow mirrors topics.", default="false", importance="high",
        selects=True,
        shown=Shown("SCH", 101, default="true"))
    replication_policy_class = _class(
        "replication.policy.class", f"How remote topics are named. {_OWN}",
        default=f"{_MIRROR}.DefaultReplicationPolicy", allowed=(
        *_class_names("DefaultReplicationPolicy"), *_class_names("IdentityReplicationPolicy")),
        plugins=REPLICATION_POLICIES, importance="high",
        shown=Shown("SCH", 105))
    replication_policy_separator = _text(
        "replication.policy.separator",
        "Between the alias and the topic in the name of a remote topic.", default=".",
        shown=Shown("SCH", 106))
    replication_policy_internal_topic_separator_enabled = _flag(
        "replication.policy.internal.topic.separator.enabled",
        "Whether internal topics use the separator too; read only when a separator is set.",
        default="true", importance="low",
        shown=Shown("SCH", 107))
    admin_timeout_ms = _long(
        "admin.timeout.ms", "Longest wait for an administrative request.", default="60000",
        minimum=1, importance="low",
        shown=Shown("SCH", 104))
    tasks_max = _int(
        "tasks.max", "Most Spark tasks that copy at once; 0 means Spark's default parallelism.",
        default="0", mm2_default="1", minimum=0, importance="high",
        shown=Shown("SCH", 4, "HIGH", default="1", low=1, group="Common", order=4, width="SHORT",
                    display="Tasks max"))
    # Source connector
    topics = _patterns(
        "topics", "Topics to mirror; each expression matches the whole name.", default=".*",
        importance="high", selects=True,
        shown=Shown("S", 301, "HIGH"))
    topics_exclude = _patterns(
        "topics.exclude", "Topics not to mirror; wins over topics.",
        default=r"mm2.*\.internal, .*\.replica, __.*", importance="high", selects=True,
        shown=Shown("S", 302, "HIGH"))
    config_properties_exclude = _patterns(
        "config.properties.exclude", "Topic properties that are not copied to remote topics.",
        default="follower.replication.throttled.replicas, leader.replication.throttled.replicas, "
        "message.timestamp.difference.max.ms, log.message.timestamp.before.max.ms, "
        "log.message.timestamp.after.max.ms, message.timestamp.type, "
        "unclean.leader.election.enable, min.insync.replicas", selects=True,
        shown=Shown("S", 303, "HIGH"))
    replication_factor = _int(
        "replication.factor", "Of remote topics; -1 means the target's default.", default="2",
        minimum=-1, nonzero=True,
        shown=Shown("S", 313))
    refresh_topics_enabled = _flag(
        "refresh.topics.enabled", "Whether new topics and partitions are looked for while running.",
        default="true",
        shown=Shown("S", 307))
    refresh_topics_interval_seconds = _int(
        "refresh.topics.interval.seconds", "How often they are looked for.", default="5",
        mm2_default="600", minimum=1,
        shown=Shown("S", 308, type="LONG"))
    emit_offset_syncs_enabled = _flag(
        "emit.offset-syncs.enabled",
        "Whether MM2's offset-syncs topic is written, for tools that read it.", default="true",
        shown=Shown("S", 317))
    offset_syncs_topic_location = _text(
        "offset-syncs.topic.location", "The cluster that has that topic.", default="source",
        allowed=("source", "target"),
        shown=Shown("SC", 316, checkpoint_rank=411))
    offset_syncs_topic_replication_factor = _int(
        "offset-syncs.topic.replication.factor", "Of that topic.", default="3", minimum=-1,
        nonzero=True, importance="low",
        shown=Shown("S", 314, type="SHORT"))
    offset_lag_max = _long(
        "offset.lag.max",
        "Most records between two offset syncs of a partition; 0 syncs every record.",
        default="100", minimum=0, importance="low",
        shown=Shown("S", 315))
    heartbeats_replication_enabled = _flag(
        "heartbeats.replication.enabled",
        "Whether heartbeats topics are mirrored whatever topics says.", default="true",
        shown=Shown("S", 318))
    topic_filter_class = _class(
        "topic.filter.class",
        f"What selects topics; the default goes by topics and topics.exclude. {_OWN}",
        default=f"{_MIRROR}.DefaultTopicFilter", allowed=_class_names("DefaultTopicFilter"),
        plugins=TOPIC_FILTERS, importance="low", selects=True,
        shown=Shown("SC", 304, checkpoint_rank=412))
    config_property_filter_class = _class(
        "config.property.filter.class",
        "What selects the properties that are copied; the default goes by"
        f" config.properties.exclude and use.defaults.from. {_OWN}",
        default=f"{_MIRROR}.DefaultConfigPropertyFilter",
        allowed=_class_names("DefaultConfigPropertyFilter"), plugins=CONFIG_PROPERTY_FILTERS,
        importance="low", selects=True,
        shown=Shown("S", 305))
    use_defaults_from = _text(
        "use.defaults.from",
        "Whose default holds for a property that the source topic does not set: with source, the"
        " source's default is written to the remote topic.", default="target",
        allowed=("source", "target"), top_level=False)
    sync_topic_configs_enabled = _flag(
        "sync.topic.configs.enabled",
        "Whether the configs of remote topics follow those of their source topics.", default="true",
        shown=Shown("S", 309))
    sync_topic_configs_interval_seconds = _int(
        "sync.topic.configs.interval.seconds", "How often.", default="60", mm2_default="600",
        minimum=1,
        shown=Shown("S", 310, type="LONG"))
    sync_topic_acls_enabled = _flag(
        "sync.topic.acls.enabled",
        "Whether readers of a source topic may read its remote topic: its ACLs are copied, WRITE"
        " left out, ALL as READ.", default="true",
        shown=Shown("S", 311))
    sync_topic_acls_interval_seconds = _int(
        "sync.topic.acls.interval.seconds", "How often.", default="60", mm2_default="600",
        minimum=1,
        shown=Shown("S", 312, type="LONG"))
    # Checkpoint connector
    groups = _patterns(
        "groups",
        "Consumer groups whose offsets are translated; each expression matches the whole id.",
        default=".*", importance="high", selects=True,
        shown=Shown("C", 401, "HIGH"))
    groups_exclude = _patterns(
        "groups.exclude", "Groups to leave out; wins over groups.",
        default="console-consumer-.*, connect-.*, __.*", importance="high", selects=True,
        shown=Shown("C", 402, "HIGH"))
    group_filter_class = _class(
        "group.filter.class",
        f"What selects groups; the default goes by groups and groups.exclude. {_OWN}",
        default=f"{_MIRROR}.DefaultGroupFilter", allowed=_class_names("DefaultGroupFilter"),
        plugins=GROUP_FILTERS, importance="low", selects=True,
        shown=Shown("C", 403))
    refresh_groups_enabled = _flag(
        "refresh.groups.enabled", "Whether new groups are looked for while running.",
        default="true",
        shown=Shown("C", 404))
    refresh_groups_interval_seconds = _int(
        "refresh.groups.interval.seconds", "How often they are looked for.", default="5",
        mm2_default="600", minimum=1,
        shown=Shown("C", 405, type="LONG"))
    emit_checkpoints_enabled = _flag(
        "emit.checkpoints.enabled",
        "Whether translated offsets of groups are written to <source>.checkpoints.internal on the"
        " target.", default="true",
        shown=Shown("C", 406))
    emit_checkpoints_interval_seconds = _int(
        "emit.checkpoints.interval.seconds", "How often.", default="2", mm2_default="60", minimum=1,
        shown=Shown("C", 407, type="LONG"))
    sync_group_offsets_enabled = _flag(
        "sync.group.offsets.enabled",
        "Whether translated offsets are also committed on the target, for groups that are not in"
        " use there.", default="false", importance="high",
        shown=Shown("C", 408))
    sync_group_offsets_interval_seconds = _int(
        "sync.group.offsets.interval.seconds", "How often.", default="2", mm2_default="60",
        minimum=1,
        shown=Shown("C", 409, type="LONG"))
    checkpoints_topic_replication_factor = _int(
        "checkpoints.topic.replication.factor", "Of the checkpoints topic.", default="3",
        minimum=-1, nonzero=True, importance="low",
        shown=Shown("C", 410, type="SHORT"))
    # Heartbeat connector
    emit_heartbeats_enabled = _flag(
        "emit.heartbeats.enabled",
        "Whether the flow writes heartbeats into its target, even when it is not enabled.",
        default="true",
        shown=Shown("H", 501))
    emit_heartbeats_interval_seconds = _int(
        "emit.heartbeats.interval.seconds", "How often.", default="1", minimum=1,
        shown=Shown("H", 502, type="LONG"))
    heartbeats_topic_replication_factor = _int(
        "heartbeats.topic.replication.factor", "Of the heartbeats topic.", default="3", minimum=-1,
        nonzero=True, importance="low",
        shown=Shown("H", 503, type="SHORT"))
    # Heliograph's own
    lease_seconds = _int(
        "heliograph.lease.seconds", "Length of a round: how long a task copies.", default="30",
        minimum=1,
        shown=_OWN_KEY)
    stalled_after_seconds = _int(
        "heliograph.stalled.after.seconds",
        "A partition that is behind and has not moved for this long is stalled, whatever its task"
        " says.", default="60", minimum=1,
        shown=_OWN_KEY)
    standby = _flag(
        "heliograph.standby",
        "The flow is connected and ready, but copies nothing until a switchover or a failback"
        " starts it, or 'heliograph resume'. For the way back of a standby cluster.",
        default="false",
        shown=_OWN_KEY)
    canary_interval_seconds = _int(
        "heliograph.canary.interval.seconds",
        "How often a heartbeat is followed from the source to the target, to measure the latency"
        " of the flow; 0: never. It only reads, and needs heartbeats on the source.", default="5",
        minimum=0,
        shown=_OWN_KEY)
    drill_interval_seconds = _int(
        "heliograph.drill.interval.seconds",
        "How often the mirror that has the flow rehearses a failover, as 'heliograph drill' does;"
        " 0: never. By the drills in the ledger, so a restart neither repeats nor delays one.",
        default="0", minimum=0,
        shown=_OWN_KEY)
    drill_report = _text(
        "heliograph.drill.report",
        "A folder where each of these drills leaves its report, a page for the auditor; empty:"
        " none.", default="", importance="low",
        shown=_OWN_KEY)
    own_ledger_topic_replication_factor = _int(
        "heliograph.ledger.topic.replication.factor",
        "Of the flow's ledger topic; 0: as offset-syncs.topic.replication.factor.", default="0",
        minimum=-1, importance="low",
        shown=_OWN_KEY)
    fetch_max_bytes = _int(
        "heliograph.fetch.max.bytes",
        "Most bytes per fetch, per lease and broker; raise it for long-distance links.",
        default="4194304", minimum=1024,
        shown=_OWN_KEY)
    buffer_max_bytes = _int(
        "heliograph.buffer.max.bytes",
        "Most bytes that a lease holds in memory for a target that is slow or stopped. 0: an"
        " eighth of the memory of the machine or container, divided by its cores, within 32 and"
        " 256 MiB. A fetch is never larger than a quarter of it.", default="0", minimum=0,
        shown=_OWN_KEY)
    on_data_loss = _text(
        "heliograph.on.data.loss",
        "What to do when retention removed records that were not mirrored yet: fail the"
        " partition, continue behind the gap, or restart-topic: delete the remote topic and"
        " mirror what is left from the start.", default="fail", allowed=_ON_SURPRISE,
        importance="high",
        shown=_OWN_KEY)
    on_truncation = _text(
        "heliograph.on.truncation",
        "What to do when the source lost records that were mirrored (unclean leader election):"
        " fail the partition; continue: the target keeps them, and what the source has written"
        " since follows; or restart-topic.", default="fail", allowed=_ON_SURPRISE,
        importance="high",
        shown=_OWN_KEY)
    on_recreation = _text(
        "heliograph.on.recreation",
        "What to do when a source topic was deleted and created again: fail its partitions;"
        " continue: append the new topic's records to the old ones; or restart-topic.",
        default="fail", allowed=_ON_SURPRISE, importance="high",
        shown=_OWN_KEY)
    on_unknown_target = _text(
        "heliograph.on.unknown.target",
        "What to do when a partition was never mirrored, its remote topic is not empty, and"
        " neither MM2 nor another flow is known to have filled it: fail, because its records may"
        " be copies already (a ledger that was deleted); or append behind them.", default="fail",
        allowed=("fail", "append"), importance="high",
        shown=_OWN_KEY)
    offsets = _text(
        "heliograph.offsets",
        "identical: records get the offsets that they have on the source, gaps are filled with"
        " invisible markers (needs ALTER on the target cluster, DELETE on its topics); dense:"
        " without gaps, translated exactly; auto: identical where the rights suffice and the"
        " topic is not compacted.", default="auto", allowed=("auto", "identical", "dense"),
        importance="high",
        shown=_OWN_KEY)
    on_refused = _text(
        "heliograph.on.refused",
        "What to do with a record that the target does not take (too large, timestamp out of"
        " range, no key on a compacted topic): fail its partition, or set it aside in the topic"
        " mm2-quarantine.<source>.internal on the target and go on.", default="fail",
        allowed=("fail", "quarantine"), importance="high",
        shown=_OWN_KEY)
    follow_log_start = _flag(
        "heliograph.follow.log.start",
        "Whether records that the source has deleted (retention, DeleteRecords) are deleted on"
        " the target too.", default="false",
        shown=_OWN_KEY)
    target_configs = _text(
        "heliograph.target.configs",
        "Properties that were set on a remote topic and that its source topic does not set: keep"
        " them, or overwrite them with the default every time, as MM2 does.", default="keep",
        allowed=("keep", "overwrite"),
        shown=_OWN_KEY)
    on_topic_deleted = _text(
        "heliograph.on.topic.deleted",
        "What becomes of a remote topic whose source topic was deleted.", default="keep",
        allowed=("keep", "delete"), importance="high",
        shown=_OWN_KEY)
    acls_prefixed = _flag(
        "heliograph.acls.prefixed",
        "Whether ACLs of prefixed topic patterns are copied too, with the prefix renamed.",
        default="false",
        shown=_OWN_KEY)
    acls_groups = _flag(
        "heliograph.acls.groups",
        "Whether ACLs of the consumer groups that groups selects are copied too.", default="false",
        shown=_OWN_KEY)
    acls_revoke = _flag(
        "heliograph.acls.revoke",
        "Whether copied ACLs are removed from the target when the source has them no more; those"
        " that others made are never touched.", default="false",
        shown=_OWN_KEY)
    # fmt: on


_BYTES = "Records are copied as bytes, whatever converter is named."
_NO_VERSIONS = "There is one version of each class."
_ERRORS = "Connect's error handling; a partition retries by itself."
_TRANSACTIONS = "Heliograph writes without transactions."
_CONVERTERS = (("key", "Key"), ("value", "Value"), ("header", "Header"))


def _common(rank: int, importance: str, width: str, display: str, **more: Any) -> Shown:
    """Of a key of Connect itself that every connector has."""
    more.setdefault("group", "Common")
    more.setdefault("order", rank)
    return Shown("SCH", rank, importance, width=width, display=display, **more)


_error = partial(_common, importance="MEDIUM", group="Error Handling")
_eos = partial(_common, width="SHORT", group="Exactly Once Support")

# Keys of Connect's own, which every connector has.
_CONNECTOR_KEYS: tuple[Key, ...] = (
    _accepted("name", Type.STRING, "Name of the connector; a file's flows have none.",
              shown=_common(1, "HIGH", "MEDIUM", "Connector name", required=True)),
    _accepted("connector.class", Type.CLASS,
              "MirrorSourceConnector, MirrorCheckpointConnector or MirrorHeartbeatConnector, with"
              " or without package; a file's flows have none.",
              shown=_common(2, "HIGH", "LONG", "Connector class", type="STRING", required=True)),
    _accepted("connector.plugin.version", Type.STRING, _NO_VERSIONS, top_level=False,
              shown=_common(3, "MEDIUM", "MEDIUM", "Connector version")),
    _accepted("tasks.max.enforce", Type.BOOLEAN, "Heliograph never exceeds tasks.max.",
              default="true", shown=_common(5, "LOW", "SHORT", "Enforce tasks max")),
    *(
        key
        for place, (name, title) in enumerate(_CONVERTERS)
        for key in (
            _accepted(f"{name}.converter", Type.CLASS, _BYTES, top_level=False,
                      shown=_common(6 + 2 * place, "LOW", "SHORT", f"{title} converter class")),
            _accepted(f"{name}.converter.plugin.version", Type.STRING, _NO_VERSIONS,
                      top_level=False,
                      shown=_common(7 + 2 * place, "LOW", "SHORT", f"{title} converter version")),
            _accepted(f"{name}.converter*", Type.STRING, _BYTES, top_level=False),
        )
    ),
    # Ignoring a transform could publish what it was meant to mask: refused until it is honoured.
    _accepted("transforms", Type.LIST, f"{_LATER} Until then it must be empty.", allowed=("",),
              shown=_common(12, "LOW", "LONG", "Transforms", group="Transforms", default="")),
    _accepted("predicates", Type.LIST, f"{_LATER} Until then it must be empty.", allowed=("",),
              shown=_common(13, "LOW", "LONG", "Predicates", group="Predicates", default="")),
    _accepted("transforms.*", Type.STRING, "Settings of transforms.", top_level=False),
    _accepted("predicates.*", Type.STRING, "Settings of predicates.", top_level=False),
    _accepted("config.action.reload", Type.STRING, "Secrets are read at each connection.",
              default="restart", allowed=("none", "restart"),
              shown=_common(14, "LOW", "MEDIUM", "Reload Action")),
    _accepted("errors.retry.timeout", Type.LONG, _ERRORS, default="0",
              shown=_error(15, width="MEDIUM", display="Retry Timeout for Errors", order=1)),
    _accepted("errors.retry.delay.max.ms", Type.LONG, _ERRORS, default="60000",
              shown=_error(16, width="MEDIUM", display="Maximum Delay Between Retries for Errors",
                           order=2)),
    _accepted("errors.tolerance", Type.STRING, _ERRORS, default="none", allowed=("none", "all"),
              shown=_error(17, width="SHORT", display="Error Tolerance", order=3)),
    _accepted("errors.log.enable", Type.BOOLEAN, _ERRORS, default="false",
              shown=_error(18, width="SHORT", display="Log Errors", order=4)),
    _accepted("errors.log.include.messages", Type.BOOLEAN, _ERRORS, default="false",
              shown=_error(19, width="SHORT", display="Log Error Details", order=5)),
    _accepted("errors.*", Type.STRING, _ERRORS),
    _accepted("topic.creation.groups", Type.LIST,
              "Not used: remote topics are created with the source's partition count.",
              top_level=False, shown=_common(20, "LOW", "LONG", "Topic Creation Groups",
                                             group="Topic Creation", order=1, default="")),
    _accepted("topic.creation.*", Type.STRING,
              "Not used: remote topics are created with the source's partition count.",
              top_level=False),
    _accepted("exactly.once.support", Type.STRING, "Exactly once is always on.",
              default="requested", allowed=("required", "requested"), ignore_case=True,
              top_level=False,
              shown=_eos(21, importance="MEDIUM", display="Exactly once support", order=2)),
    _accepted("transaction.boundary", Type.STRING, _TRANSACTIONS, default="poll",
              allowed=("interval", "poll", "connector"), ignore_case=True,
              shown=_eos(22, importance="MEDIUM", display="Transaction Boundary", order=3)),
    _accepted("transaction.boundary.interval.ms", Type.LONG, _TRANSACTIONS, minimum=0,
              shown=_eos(23, importance="LOW", display="Transaction boundary interval", order=4)),
    _accepted("offsets.storage.topic", Type.STRING,
              "Where a connector's positions are also written, for MM2; the worker's"
              " offset.storage.topic if not set. Not used by a file's flows.", top_level=False,
              shown=_common(24, "LOW", "LONG", "Offsets topic", group="offsets.topic", order=1)),
)  # fmt: skip

_OTHERS: tuple[Key, ...] = (
    _accepted("source.cluster.alias", Type.STRING, "The flow names it; must agree if written.",
              shown=Shown("SCH", 102, "HIGH", required=True)),
    _accepted("target.cluster.alias", Type.STRING, "The flow names it; must agree if written.",
              shown=Shown("SCH", 103, "HIGH", default="target")),
    _accepted("forwarding.admin.class", Type.CLASS,
              "Classes named in a file are never loaded; only the default is accepted.",
              default="org.apache.kafka.clients.admin.ForwardingAdmin",
              allowed=("org.apache.kafka.clients.admin.ForwardingAdmin",),
              shown=Shown("SCH", 108)),
    _accepted("metric.reporters", Type.LIST, "JMX is Java's; Heliograph has no reporters.",
              shown=Shown("SCH", 109, default="org.apache.kafka.common.metrics.JmxReporter")),
    _accepted("metric.names.formats", Type.LIST, _LATER, default="legacy", later=True,
              shown=Shown("SC", 319, checkpoint_rank=413)),
    _accepted("consumer.poll.timeout.ms", Type.LONG, "Fetches wait at the broker instead.",
              default="1000", minimum=0, shown=Shown("SC", 306)),
    _flow("heliograph.plugin.*", Type.STRING,
          "Settings of own filters and policies, which get them with all other values of the flow.",
          importance="low"),
    # Removed from MM2 in 4.0
    _removed("topics.blacklist", "topics.exclude", "Renamed."),
    _removed("groups.blacklist", "groups.exclude", "Renamed."),
    _removed("config.properties.blacklist", "config.properties.exclude", "Renamed."),
    _removed("use.incremental.alter.configs", "", "Configs are always altered incrementally."),
    _removed("add.source.alias.to.metrics", "", "Metrics always carry the source alias."),
)  # fmt: skip

FLOW_KEYS: tuple[Key, ...] = (
    *(row.key for row in vars(FlowSettings).values() if isinstance(row, _Setting)),
    *_CONNECTOR_KEYS,
    *_OTHERS,
)
