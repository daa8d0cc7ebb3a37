"""A fence takes down what it has put up, and touches nothing else."""

import pytest

from heliograph.failover.fence import Fence, FencePlan, denial
from heliograph.failover.refusals import HandoverRefused
from heliograph.ledger.fences import Fenced
from heliograph.model import ClientSettings
from heliograph.wire import acls, admin
from heliograph.wire.acls import NoAuthorizer
from heliograph.wire.errors import BrokerError

EVERYTHING = frozenset(range(3, 13))


class Cluster:
    """Access rights of a cluster, and what a ledger on it says of its fence."""

    alias = "A"
    settings = ClientSettings("A", {"bootstrap.servers": "a:1"})

    def __init__(self, *there):
        self.there = set(there)
        self.topics = {}
        self.happened = []
        self.operations = EVERYTHING
        self.error = None

    # -- as acls and admin, with a client first

    def describe(self, _client, _kind):
        if self.error is not None:
            raise self.error
        return set(self.there)

    def create(self, _client, wanted):
        self.happened.append("create")
        self.there |= set(wanted)
        return {}

    def delete(self, _client, unwanted):
        self.happened.append("delete")
        self.there -= set(unwanted)
        return {}

    def cluster_operations(self, _client):
        return self.operations

    # -- as Fences

    def note(self, topics, handover, by):
        self.happened.append("note")
        self.topics |= dict.fromkeys(topics, Fenced(handover, by, 1))

    def clear(self, topics):
        self.happened.append("clear")
        for topic in list(topics):
            del self.topics[topic]


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster(denial("payments"))
    for name in ("describe", "create", "delete"):
        monkeypatch.setattr(acls, name, getattr(made, name))
    monkeypatch.setattr(admin, "cluster_operations", made.cluster_operations)
    return made


def test_what_is_put_up_is_written_down_first_and_taken_down_again(cluster):
    fence = Fence(cluster, cluster)
    found = fence.put_up(["orders", "payments"], "1f", "me")
    assert found == FencePlan(frozenset({"orders"}), frozenset({"payments"}))
    assert cluster.there == {denial("orders"), denial("payments")}
    assert fence.take_down() == 1
    assert cluster.there == {denial("payments")}
    assert cluster.happened == ["note", "create", "delete", "clear"]
    assert fence.take_down() == 0


def test_whoever_comes_after_a_kill_finds_its_own_fence(cluster):
    Fence(cluster, cluster).put_up(["orders"], "1f", "me")
    again = Fence(cluster, cluster)
    found = again.put_up(["orders", "payments"], "1f", "me")
    assert found == FencePlan(frozenset(), frozenset({"payments"}))
    again.take_down()
    assert cluster.there == {denial("payments")}


def test_it_is_put_up_again_if_somebody_took_it_away(cluster):
    fence = Fence(cluster, cluster)
    fence.put_up(["orders"], "1f", "me")
    cluster.there.clear()
    assert fence.put_up(["orders"], "1f", "me").missing == {"orders"}
    assert cluster.there == {denial("orders")}


def test_it_may_be_taken_down_from_some_topics(cluster):
    fence = Fence(cluster, cluster)
    fence.put_up(["orders"], "1f", "me")
    fence.put_up(["clicks", "orders"], "2e", "you")
    assert fence.of("1f") == {"orders"}
    assert fence.of("2e") == {"clicks"}
    assert fence.take_down(fence.of("2e")) == 1
    assert cluster.there == {denial("payments"), denial("orders")}
    assert fence.take_down(["payments", "orders"]) == 1
    assert cluster.there == {denial("payments")}


def test_without_the_right_it_is_refused_with_the_command_that_grants_it(cluster):
    cluster.operations = frozenset({8})
    with pytest.raises(HandoverRefused, match="we may not fence A") as refused:
        Fence(cluster, cluster).plan(["orders"])
    assert (
        "--add --allow-principal User:ANONYMOUS --operation Alter --cluster" in refused.value.hint
    )
    cluster.error = BrokerError(31, "reading the ACLs of cluster A", "User:bob may not Describe")
    with pytest.raises(HandoverRefused, match="User:bob may not Describe"):
        Fence(cluster, cluster).plan(["orders"])


def test_a_cluster_without_an_authorizer_has_no_fence(cluster):
    cluster.error = NoAuthorizer(54, "reading the ACLs of cluster A")
    with pytest.raises(HandoverRefused, match="A has no authorizer") as refused:
        Fence(cluster, cluster).plan(["orders"])
    assert "stop the producers" in refused.value.hint
