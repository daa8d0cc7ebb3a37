"""Questions about groups, to a real broker, in new and in old versions of the protocol."""

from __future__ import annotations

import uuid

import pytest
from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from mirroring import wait_for

from heliograph.model import TopicPartition
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.connection import Connection
from heliograph.wire.groups import Committed, GroupClient, ListedGroup

#: As a broker of Kafka 2.4 has them.
OLD = {
    DeleteGroupsRequest: 1,
    ListGroupsRequest: 2,
    DescribeGroupsRequest: 4,
    FindCoordinatorRequest: 2,
    OffsetFetchRequest: 5,
    OffsetCommitRequest: 7,
}


@pytest.fixture(params=["new", "old"])
def age(request, monkeypatch):
    negotiate = Connection._negotiate

    def as_of_2_4(self, timeout):
        negotiate(self, timeout)
        for message, highest in OLD.items():
            low, high = self._versions[message.API_KEY]
            self._versions[message.API_KEY] = (low, min(high, highest))

    if request.param == "old":
        monkeypatch.setattr(Connection, "_negotiate", as_of_2_4)
    return request.param


@pytest.fixture
def client(mirroring, age):
    with ClusterClient(mirroring.context.source, "test") as made:
        groups = GroupClient(made)
        # Names that follow one another are kept by partitions that do: all 8 are loaded.
        everywhere = [f"somebody-{n}" for n in range(8)]
        wait_for(lambda: not groups.states(everywhere).errors)
        yield groups


@pytest.fixture
def parts(mirroring, topic_name):
    mirroring.create(topic_name, partitions=2)
    return [TopicPartition(topic_name, n) for n in range(2)]


def test_all_there_is_to_ask_about_groups(client, parts, age):
    names = [f"{uuid.uuid4().hex}-{n}" for n in range(3)]
    offsets = {name: {parts[n % 2]: Committed(n, f"at {n}")} for n, name in enumerate(names)}
    absent = uuid.uuid4().hex

    done = client.commit(offsets)
    assert (done.errors, done.found) == (
        {},
        {name: dict.fromkeys(wanted, 0) for name, wanted in offsets.items()},
    )
    found = client.committed([*names, absent])
    assert (found.errors, found.found) == ({}, {**offsets, absent: {}})
    assert client.committed([*names, absent], stable=True) == found

    by_name = client.committed_of({names[0]: parts, absent: [parts[1]]})
    assert by_name.found == {
        names[0]: {parts[0]: Committed(0, "at 0"), parts[1]: Committed(-1)},
        absent: {parts[1]: Committed(-1)},
    }
    assert client.states([names[0], absent]).found == {names[0]: "Empty", absent: "Dead"}
    listed = client.list_groups()
    assert (listed.failures, listed.all_visible) == ([], True)
    kind, state = ("classic", "Empty") if age == "new" else ("", "")
    assert listed.groups[names[0]] == ListedGroup(names[0], kind, "", state)
    gone = client.delete([names[0], absent])
    assert (gone.errors, gone.found) == ({}, {names[0]: None, absent: None})
    assert client.committed(names[:2]).found == {names[0]: {}, names[1]: offsets[names[1]]}


def test_a_coordinator_that_moved_is_looked_for_again(client, parts, mirroring):
    name = uuid.uuid4().hex
    assert not client.commit({name: {parts[0]: Committed(5)}}).errors
    # As if another broker had been it: this one does not exist.
    client._coordinators[name] = 42
    assert "broker 42" in str(client.committed([name]).errors[name])
    assert client.committed([name]).found == {name: {parts[0]: Committed(5)}}


def test_a_commit_that_is_refused_is_refused_for_its_group_only(client, parts):
    names = [uuid.uuid4().hex for _ in range(2)]
    missing = TopicPartition(f"no-{uuid.uuid4().hex}", 0)
    done = client.commit({names[0]: {missing: Committed(1)}, names[1]: {parts[0]: Committed(1)}})
    assert done.found == {names[0]: {missing: 3}, names[1]: {parts[0]: 0}}
