"""Which changes of a configuration disturb what."""

from __future__ import annotations

import pytest

from heliograph.config import MirrorMakerConfig
from heliograph.service.reload import Effect, effects_of

BASE = {
    "clusters": "A, B",
    "A.bootstrap.servers": "127.0.0.1:1",
    "B.bootstrap.servers": "127.0.0.1:2",
    "A->B.enabled": "true",
}


def flow(**more: str):
    keys = {name.replace("__", "->").replace("_", "."): value for name, value in more.items()}
    [found] = [f for f in MirrorMakerConfig.from_mapping(BASE | keys).flows if f.enabled]
    return found


@pytest.mark.parametrize(
    ("changed", "effects"),
    [
        ({}, set()),
        ({"topics": "orders.*"}, {Effect.TOPICS}),
        ({"A__B.topics_exclude": "x.*"}, {Effect.TOPICS}),
        ({"groups": "app.*"}, {Effect.CHECKPOINTS}),
        ({"sync_group_offsets_enabled": "true"}, {Effect.CHECKPOINTS}),
        ({"emit_heartbeats_interval_seconds": "7"}, {Effect.HEARTBEATS}),
        ({"sync_topic_acls_enabled": "false"}, {Effect.JOBS}),
        ({"refresh_topics_interval_seconds": "9"}, {Effect.JOBS}),
        ({"heliograph_lease_seconds": "20"}, {Effect.REOPEN}),
        ({"A_bootstrap_servers": "127.0.0.1:3"}, {Effect.REOPEN}),
        ({"B_sasl_mechanism": "PLAIN"}, {Effect.REOPEN}),
        ({"topics": "orders.*", "groups": "app.*"}, {Effect.TOPICS, Effect.CHECKPOINTS}),
    ],
)
def test_only_what_a_key_concerns_begins_anew(changed, effects):
    assert effects_of(flow(), flow(**changed)) == effects


def test_where_a_value_was_written_does_not_count():
    one = MirrorMakerConfig.from_mapping(BASE | {"topics": "a"})
    other = MirrorMakerConfig.from_mapping(BASE | {"A->B.topics": "a"})
    pairs = zip(one.flows, other.flows, strict=True)
    assert [effects_of(x, y) for x, y in pairs if x.enabled] == [set()]
