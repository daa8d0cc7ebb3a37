"""The key table, part one: top-level keys and the keys of a flow (``A->B.x`` or ``x``)."""

from __future__ import annotations

from functools import partial

from heliograph.config.key import Key, Scope, Status, Type
from heliograph.config.plugins import (
    CONFIG_PROPERTY_FILTERS,
    GROUP_FILTERS,
    REPLICATION_POLICIES,
    TOPIC_FILTERS,
)

__all__ = ["FLOW_KEYS", "TOP_KEYS"]

_MIRROR = "org.apache.kafka.connect.mirror"
_LATER = "Comes in a later release."
_ON_SURPRISE = ("fail", "continue", "restart-topic")
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

FLOW_KEYS: tuple[Key, ...] = (
    # Common
    _flow("enabled", Type.BOOLEAN, "Whether the flow mirrors topics.", default="false",
          importance="high"),
    _flow("replication.policy.class", Type.CLASS, f"How remote topics are named. {_OWN}",
          default=f"{_MIRROR}.DefaultReplicationPolicy",
          allowed=(*_class_names("DefaultReplicationPolicy"),
                   *_class_names("IdentityReplicationPolicy")),
          plugins=REPLICATION_POLICIES, importance="high"),
    _flow("replication.policy.separator", Type.STRING,
          "Between the alias and the topic in the name of a remote topic.", default="."),
    _flow("replication.policy.internal.topic.separator.enabled", Type.BOOLEAN,
          "Whether internal topics use the separator too; read only when a separator is set.",
          default="true", importance="low"),
    _flow("admin.timeout.ms", Type.LONG, "Longest wait for an administrative request.",
          default="60000", minimum=1, importance="low"),
    _flow("tasks.max", Type.INT,
          "Most Spark tasks that copy at once; 0 means Spark's default parallelism.",
          default="0", mm2_default="1", minimum=0, importance="high"),
    _accepted("tasks.max.enforce", Type.BOOLEAN, "Heliograph never exceeds tasks.max.",
              default="true"),
    _accepted("source.cluster.alias", Type.STRING, "The flow names it; must agree if written."),
    _accepted("target.cluster.alias", Type.STRING, "The flow names it; must agree if written."),
    _accepted("name", Type.STRING, "Name of a connector; Heliograph has no connectors."),
    _accepted("connector.class", Type.CLASS, "Heliograph has no connectors."),
    _accepted("forwarding.admin.class", Type.CLASS,
              "Classes named in a file are never loaded; only the default is accepted.",
              default="org.apache.kafka.clients.admin.ForwardingAdmin",
              allowed=("org.apache.kafka.clients.admin.ForwardingAdmin",)),
    _accepted("metric.reporters", Type.LIST, "JMX is Java's; metrics have their own endpoint."),
    _accepted("metric.names.formats", Type.LIST, _LATER, default="legacy", later=True),
    # Source connector
    _flow("topics", Type.REGEX_LIST, "Topics to mirror; each expression matches the whole name.",
          default=".*", importance="high"),
    _flow("topics.exclude", Type.REGEX_LIST, "Topics not to mirror; wins over topics.",
          default=r"mm2.*\.internal, .*\.replica, __.*", importance="high"),
    _flow("config.properties.exclude", Type.REGEX_LIST,
          "Topic properties that are not copied to remote topics.",
          default="follower.replication.throttled.replicas, leader.replication.throttled.replicas, "
          "message.timestamp.difference.max.ms, log.message.timestamp.before.max.ms, "
          "log.message.timestamp.after.max.ms, message.timestamp.type, "
          "unclean.leader.election.enable, min.insync.replicas"),
    _flow("replication.factor", Type.INT, "Of remote topics; -1 means the target's default.",
          default="2", minimum=-1, nonzero=True),
    _flow("refresh.topics.enabled", Type.BOOLEAN,
          "Whether new topics and partitions are looked for while running.", default="true"),
    _flow("refresh.topics.interval.seconds", Type.INT, "How often they are looked for.",
          default="5", mm2_default="600", minimum=1),
    _flow("emit.offset-syncs.enabled", Type.BOOLEAN,
          "Whether MM2's offset-syncs topic is written, for tools that read it.", default="true"),
    _flow("offset-syncs.topic.location", Type.STRING, "The cluster that has that topic.",
          default="source", allowed=("source", "target")),
    _flow("offset-syncs.topic.replication.factor", Type.INT, "Of that topic.",
          default="3", minimum=-1, nonzero=True, importance="low"),
    _flow("offset.lag.max", Type.LONG,
          "Most records between two offset syncs of a partition; 0 syncs every record.",
          default="100", minimum=0, importance="low"),
    _flow("heartbeats.replication.enabled", Type.BOOLEAN,
          "Whether heartbeats topics are mirrored whatever topics says.", default="true"),
    _flow("topic.filter.class", Type.CLASS,
          f"What selects topics; the default goes by topics and topics.exclude. {_OWN}",
          default=f"{_MIRROR}.DefaultTopicFilter", allowed=_class_names("DefaultTopicFilter"),
          plugins=TOPIC_FILTERS, importance="low"),
    _flow("config.property.filter.class", Type.CLASS,
          "What selects the properties that are copied; the default goes by"
          f" config.properties.exclude and use.defaults.from. {_OWN}",
          default=f"{_MIRROR}.DefaultConfigPropertyFilter",
          allowed=_class_names("DefaultConfigPropertyFilter"),
          plugins=CONFIG_PROPERTY_FILTERS, importance="low"),
    _flow("use.defaults.from", Type.STRING,
          "Whose default holds for a property that the source topic does not set: with source, the"
          " source's default is written to the remote topic.", default="target",
          allowed=("source", "target"), top_level=False),
    _flow("sync.topic.configs.enabled", Type.BOOLEAN,
          "Whether the configs of remote topics follow those of their source topics.",
          default="true"),
    _flow("sync.topic.configs.interval.seconds", Type.INT, "How often.",
          default="60", mm2_default="600", minimum=1),
    _flow("sync.topic.acls.enabled", Type.BOOLEAN,
          "Whether readers of a source topic may read its remote topic: its ACLs are copied, WRITE"
          " left out, ALL as READ.", default="true"),
    _flow("sync.topic.acls.interval.seconds", Type.INT, "How often.",
          default="60", mm2_default="600", minimum=1),
    _accepted("consumer.poll.timeout.ms", Type.LONG, "Fetches wait at the broker instead.",
              default="1000", minimum=0),
    _accepted("exactly.once.support", Type.STRING, "Exactly once is always on.",
              default="requested", allowed=("requested", "required"), ignore_case=True,
              top_level=False),
    _accepted("transaction.boundary", Type.STRING, "Heliograph writes without transactions."),
    _accepted("transaction.boundary.interval.ms", Type.LONG,
              "Heliograph writes without transactions."),
    _accepted("offsets.storage.topic", Type.STRING, "Positions live with the data.",
              top_level=False),
    _accepted("topic.creation.*", Type.STRING,
              "Not used: remote topics are created with the source's partition count.",
              top_level=False),
    # Checkpoint connector
    _flow("groups", Type.REGEX_LIST,
          "Consumer groups whose offsets are translated; each expression matches the whole id.",
          default=".*", importance="high"),
    _flow("groups.exclude", Type.REGEX_LIST, "Groups to leave out; wins over groups.",
          default="console-consumer-.*, connect-.*, __.*", importance="high"),
    _flow("group.filter.class", Type.CLASS,
          f"What selects groups; the default goes by groups and groups.exclude. {_OWN}",
          default=f"{_MIRROR}.DefaultGroupFilter", allowed=_class_names("DefaultGroupFilter"),
          plugins=GROUP_FILTERS, importance="low"),
    _flow("refresh.groups.enabled", Type.BOOLEAN,
          "Whether new groups are looked for while running.", default="true"),
    _flow("refresh.groups.interval.seconds", Type.INT, "How often they are looked for.",
          default="5", mm2_default="600", minimum=1),
    _flow("emit.checkpoints.enabled", Type.BOOLEAN,
          "Whether translated offsets of groups are written to <source>.checkpoints.internal on the"
          " target.", default="true"),
    _flow("emit.checkpoints.interval.seconds", Type.INT, "How often.",
          default="2", mm2_default="60", minimum=1),
    _flow("sync.group.offsets.enabled", Type.BOOLEAN,
          "Whether translated offsets are also committed on the target, for groups that are not in"
          " use there.", default="false", importance="high"),
    _flow("sync.group.offsets.interval.seconds", Type.INT, "How often.",
          default="2", mm2_default="60", minimum=1),
    _flow("checkpoints.topic.replication.factor", Type.INT, "Of the checkpoints topic.",
          default="3", minimum=-1, nonzero=True, importance="low"),
    # Heartbeat connector
    _flow("emit.heartbeats.enabled", Type.BOOLEAN,
          "Whether the flow writes heartbeats into its target, even when it is not enabled.",
          default="true"),
    _flow("emit.heartbeats.interval.seconds", Type.INT, "How often.", default="1", minimum=1),
    _flow("heartbeats.topic.replication.factor", Type.INT, "Of the heartbeats topic.",
          default="3", minimum=-1, nonzero=True, importance="low"),
    # Connect's connector keys
    _accepted("key.converter*", Type.CLASS, "Records are copied as bytes.", top_level=False),
    _accepted("value.converter*", Type.CLASS, "Records are copied as bytes.", top_level=False),
    _accepted("header.converter*", Type.CLASS, "Records are copied as bytes.", top_level=False),
    # Ignoring a transform could publish what it was meant to mask: refused until it is honoured.
    _accepted("transforms", Type.LIST, f"{_LATER} Until then it must be empty.", allowed=("",)),
    _accepted("predicates", Type.LIST, f"{_LATER} Until then it must be empty.", allowed=("",)),
    _accepted("transforms.*", Type.STRING, "Settings of transforms.", top_level=False),
    _accepted("predicates.*", Type.STRING, "Settings of predicates.", top_level=False),
    _accepted("config.action.reload", Type.STRING, "Secrets are read at each connection.",
              default="restart", allowed=("none", "restart"), ignore_case=True),
    _accepted("errors.*", Type.STRING, "Connect's error handling; a partition retries by itself."),
    # Heliograph's own
    _flow("heliograph.lease.seconds", Type.INT, "Length of a round: how long a task copies.",
          default="30", minimum=1),
    _flow("heliograph.stalled.after.seconds", Type.INT,
          "A partition that is behind and has not moved for this long is stalled, whatever its task"
          " says.", default="60", minimum=1),
    _flow("heliograph.ledger.topic.replication.factor", Type.INT,
          "Of the flow's ledger topic; 0: as offset-syncs.topic.replication.factor.",
          default="0", minimum=-1, importance="low"),
    _flow("heliograph.fetch.max.bytes", Type.INT,
          "Most bytes per fetch, per lease and broker; raise it for long-distance links.",
          default="4194304", minimum=1024),
    _flow("heliograph.buffer.max.bytes", Type.INT,
          "Most bytes that a lease holds in memory for a target that is slow or stopped. 0: an"
          " eighth of the memory of the machine or container, divided by its cores, within 32 and"
          " 256 MiB. A fetch is never larger than a quarter of it.",
          default="0", minimum=0),
    _flow("heliograph.on.data.loss", Type.STRING,
          "What to do when retention removed records that were not mirrored yet: fail the"
          " partition, continue behind the gap, or restart-topic: delete the remote topic and"
          " mirror what is left from the start.",
          default="fail", allowed=_ON_SURPRISE, importance="high"),
    _flow("heliograph.on.truncation", Type.STRING,
          "What to do when the source lost records that were mirrored (unclean leader election):"
          " fail the partition; continue: the target keeps them, and what the source has written"
          " since follows; or restart-topic.",
          default="fail", allowed=_ON_SURPRISE, importance="high"),
    _flow("heliograph.on.recreation", Type.STRING,
          "What to do when a source topic was deleted and created again: fail its partitions;"
          " continue: append the new topic's records to the old ones; or restart-topic.",
          default="fail", allowed=_ON_SURPRISE, importance="high"),
    _flow("heliograph.offsets", Type.STRING,
          "identical: records get the offsets that they have on the source, gaps are filled with"
          " invisible markers (needs ALTER on the target cluster, DELETE on its topics); dense:"
          " without gaps, translated exactly; auto: identical where the rights suffice and the"
          " topic is not compacted.",
          default="auto", allowed=("auto", "identical", "dense"), importance="high"),
    _flow("heliograph.on.refused", Type.STRING,
          "What to do with a record that the target does not take (too large, timestamp out of"
          " range, no key on a compacted topic): fail its partition, or set it aside in the topic"
          " mm2-quarantine.<source>.internal on the target and go on.",
          default="fail", allowed=("fail", "quarantine"), importance="high"),
    _flow("heliograph.follow.log.start", Type.BOOLEAN,
          "Whether records that the source has deleted (retention, DeleteRecords) are deleted on"
          " the target too.", default="false"),
    _flow("heliograph.target.configs", Type.STRING,
          "Properties that were set on a remote topic and that its source topic does not set: keep"
          " them, or overwrite them with the default every time, as MM2 does.",
          default="keep", allowed=("keep", "overwrite")),
    _flow("heliograph.on.topic.deleted", Type.STRING,
          "What becomes of a remote topic whose source topic was deleted.",
          default="keep", allowed=("keep", "delete"), importance="high"),
    _flow("heliograph.acls.prefixed", Type.BOOLEAN,
          "Whether ACLs of prefixed topic patterns are copied too, with the prefix renamed.",
          default="false"),
    _flow("heliograph.acls.groups", Type.BOOLEAN,
          "Whether ACLs of the consumer groups that groups selects are copied too.",
          default="false"),
    _flow("heliograph.acls.revoke", Type.BOOLEAN,
          "Whether copied ACLs are removed from the target when the source has them no more; those"
          " that others made are never touched.", default="false"),
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
