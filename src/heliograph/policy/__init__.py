"""Policies: names of remote topics, filters, and which topics a flow mirrors."""

from heliograph.policy.chosen import (
    config_property_filter_from,
    group_filter_from,
    policy_from,
    policy_of,
    topic_filter_from,
)
from heliograph.policy.filters import (
    DRILL_GROUPS,
    ConfigPropertyFilter,
    DefaultConfigPropertyFilter,
    DefaultGroupFilter,
    DefaultTopicFilter,
    GroupFilter,
    PatternFilter,
    TopicFilter,
    is_drill_group,
)
from heliograph.policy.replication import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
    is_own_topic,
    ledger_source,
    ledger_topic,
    quarantine_topic,
)
from heliograph.policy.selection import TopicSelection, is_cycle, should_replicate

__all__ = [
    "DRILL_GROUPS",
    "ConfigPropertyFilter",
    "DefaultConfigPropertyFilter",
    "DefaultGroupFilter",
    "DefaultReplicationPolicy",
    "DefaultTopicFilter",
    "GroupFilter",
    "IdentityReplicationPolicy",
    "PatternFilter",
    "ReplicationPolicy",
    "TopicFilter",
    "TopicSelection",
    "config_property_filter_from",
    "group_filter_from",
    "is_cycle",
    "is_drill_group",
    "is_own_topic",
    "ledger_source",
    "ledger_topic",
    "policy_from",
    "policy_of",
    "quarantine_topic",
    "should_replicate",
    "topic_filter_from",
]
