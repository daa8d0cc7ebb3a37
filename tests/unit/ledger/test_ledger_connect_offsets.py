"""MM2's bookkeeping: positions, tasks and offset syncs, in Connect's records."""

from __future__ import annotations

import json

import pytest

from heliograph.mm2.connect_offsets import (
    StoredPosition,
    assigned_partitions,
    decode_position,
)
from heliograph.model import TopicPartition
from heliograph.takeover.alignment import Pair
from heliograph.takeover.offset_sync_log import Syncs


@pytest.mark.parametrize(
    "key",
    [
        b'["MirrorSourceConnector",{"cluster":"A","partition":3,"topic":"t-1"}]',
        b'["my-mirror", {"topic": "t-1", "partition": 3, "cluster": "A"}]',
    ],
)
def test_a_position_is_read_whatever_the_order_of_its_keys(key):
    found = decode_position(key, b'{"offset":42}', atomic=True)
    assert found == ("A", TopicPartition("t-1", 3), StoredPosition(42, atomic=True))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]',
         b'{"offset":0}'),
        (b'["MirrorCheckpointConnector",{"group":"g","partition":0,"topic":"t"}]',
         b'{"offset":0}'),
        (b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t"}]', b"null"),
        (b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t"}]', b'{"offset":-1}'),
        (b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t"}]', b'{"offset":"1"}'),
        (b"not json", b'{"offset":1}'),
        (b'{"a": 1}', b'{"offset":1}'),
    ],
)  # fmt: skip
def test_other_records_are_no_positions(key, value):
    assert decode_position(key, value) is None


def task(number, partitions, connector="MirrorSourceConnector"):
    value = {"properties": {"task.assigned.partitions": partitions, "x": "y"}}
    return f"task-{connector}-{number}".encode(), json.dumps(value).encode()


def commit(tasks, connector="MirrorSourceConnector"):
    return f"commit-{connector}".encode(), json.dumps({"tasks": tasks}).encode()


def test_the_partitions_of_all_tasks_that_count():
    records = [
        (b"session-key", b"{}"),
        (b"connector-MirrorSourceConnector", b'{"properties":{}}'),
        task(0, "a-0,b-with-dashes-11"),
        task(1, "a-1"),
        task(2, "of-an-earlier-assignment-0"),
        commit(2),
        task(0, "c-0", "other-connector-7"),
        commit(1, "other-connector-7"),
    ]
    assert assigned_partitions(records) == {
        TopicPartition("a", 0),
        TopicPartition("a", 1),
        TopicPartition("b-with-dashes", 11),
        TopicPartition("c", 0),
    }


def test_a_connector_that_was_disabled_has_no_tasks():
    assert assigned_partitions([task(0, "a-0"), commit(0)]) == set()
    assert assigned_partitions([task(0, "a-0")]) == set()
    assert assigned_partitions([task(0, ""), commit(1)]) == set()


def test_restarts_show_in_the_syncs():
    syncs = Syncs(Pair(0, 0))
    for pair in (Pair(100, 100), Pair(200, 200), Pair(150, 240), Pair(190, 280), Pair(300, 390)):
        syncs.add(pair)
    assert syncs.newest == Pair(300, 390)
    assert syncs.peaks == [Pair(200, 200)]


def test_syncs_of_an_earlier_target_count_no_more():
    syncs = Syncs(Pair(200, 200))
    syncs.add(Pair(100, 300))
    assert syncs.peaks == [Pair(200, 200)]
    syncs.add(Pair(400, 5))
    assert (syncs.newest, syncs.peaks) == (Pair(400, 5), [])
