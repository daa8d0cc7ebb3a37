"""What is said of groups."""

from __future__ import annotations

import logging

import pytest

from heliograph.control.groups.translated import (
    Complaints,
    TranslatedGroup,
    TranslatedOffset,
    explain,
    shortened,
    unsupported,
)
from heliograph.model import ClientSettings, Flow, TopicPartition
from heliograph.wire.errors import BrokerError
from heliograph.wire.groups import ListedGroup


def group(**values):
    return TranslatedGroup(ListedGroup("g", "classic", "consumer", "Stable"), **values)


def translated(count, behind=0):
    return {TopicPartition("A.t", n): TranslatedOffset(1, 1, "", behind) for n in range(count)}


@pytest.mark.parametrize(
    ("kind", "protocol_type", "said"),
    [
        ("classic", "consumer", ""),
        ("classic", "", ""),
        ("consumer", "consumer", ""),
        ("", "consumer", ""),
        ("classic", "connect", "connect groups cannot be synced"),
        ("share", "share", "share groups cannot be synced"),
        ("streams", "streams", "streams groups cannot be synced"),
    ],
)
def test_which_groups_can_be_synced(kind, protocol_type, said):
    reason = unsupported(ListedGroup("g", kind, protocol_type, "Stable"))
    assert reason.startswith(said)
    assert bool(reason) == bool(said)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "has committed nothing on mirrored topics"),
        ({"error": "why"}, "why"),
        ({"offsets": translated(1)}, "1 partition, up to date"),
        ({"offsets": translated(12)}, "12 partitions, up to date"),
        ({"offsets": translated(2, 3)}, "2 partitions, 6 offsets ahead of the mirror"),
        (
            {
                "offsets": translated(1),
                "untranslated": {TopicPartition("t", 2): "no", TopicPartition("t", 1): "none"},
            },
            "1 of 3 partitions; t-1: none (and 1 more)",
        ),
    ],
)
def test_a_group_in_a_few_words(values, said):
    assert group(**values).summary() == said


def test_a_missing_right_is_named():
    settings = ClientSettings("A", {"bootstrap.servers": "host:9092"})
    error = BrokerError(30, "committed offsets of group g on cluster A")
    assert explain(error, settings, "Describe", "g") == (
        "User:ANONYMOUS may not Describe group g on cluster A; grant it with: kafka-acls.sh"
        " --bootstrap-server host:9092 --add --allow-principal User:ANONYMOUS"
        " --operation Describe --group g"
    )
    moved = BrokerError(16, "committed offsets of group g on cluster A")
    assert explain(moved, settings, "Describe", "g") == str(moved)


def test_a_report_is_not_endless_and_begins_with_what_needs_attention():
    report = shortened((f"g{n:04}", "text", n % 500 == 0) for n in range(2000))
    assert len(report) == 1000
    assert list(report)[:5] == ["g0000", "g0500", "g1000", "g1500", "g0001"]
    assert report["..."] == "and 1001 more groups"


def test_what_is_wrong_is_said_once(caplog):
    complaints = Complaints(Flow("A", "B"))
    with caplog.at_level(logging.WARNING):
        complaints.tell({"a": "denied", "b": "denied"})
        complaints.tell({"a": "denied", "b": "denied"})
        assert caplog.messages == ["A->B: group a: denied (and 1 more)"]
        complaints.tell({"b": "denied"})
        complaints.tell({"a": "denied", "b": "denied"})
        complaints.tell({"a": "denied", "b": "denied", "*": "some are not seen"})
    assert caplog.messages[1:] == ["A->B: group a: denied", "A->B: groups: some are not seen"]
