"""Policies: names of remote topics, filters, and which topics a flow mirrors."""

from heliograph.policy.filters import PatternFilter, TopicFilter
from heliograph.policy.replication import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
    is_own_topic,
    ledger_topic,
    policy_from,
    quarantine_topic,
)
from heliograph.policy.selection import TopicSelection, is_cycle, should_replicate

__all__ = [
    "DefaultReplicationPolicy",
    "IdentityReplicationPolicy",
    "PatternFilter",
    "ReplicationPolicy",
    "TopicFilter",
    "TopicSelection",
    "is_cycle",
    "is_own_topic",
    "ledger_topic",
    "policy_from",
    "quarantine_topic",
    "should_replicate",
]
