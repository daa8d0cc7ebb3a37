"""The fence of a switchover on real brokers: whom it keeps out, and whom not."""

import pytest
from access import allow, create_topic, granted, settings_of
from mirroring import wait_for

from heliograph.batch.records import Record, build
from heliograph.failover.fence import Fence, denial
from heliograph.failover.refusals import HandoverRefused
from heliograph.ledger.fences import Fences
from heliograph.ledger.follower import LedgerFollower
from heliograph.model import TopicPartition
from heliograph.wire import acls, admin, log
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError


@pytest.fixture
def people(guarded_lab):
    made = {name: ClusterClient(settings_of(guarded_lab, "A", name), "t") for name in
            ("alice", "bob")}  # fmt: skip
    yield made
    for client in made.values():
        client.close()


def write(client, topic):
    """Whether a record is taken."""
    try:
        log.append(client, TopicPartition(topic, 0), build([Record(0, 1, None, b"x")]))
    except BrokerError:
        return False
    return True


def test_everybody_but_super_users_is_kept_out_until_it_is_taken_down(people, topic_name):
    alice, bob = people["alice"], people["bob"]
    others, ledger = f"{topic_name}-others", f"{topic_name}-ledger"
    for topic in (topic_name, others, ledger):
        create_topic(alice, topic)
    record = Fences(LedgerFollower(alice, ledger))
    record.refresh()
    fence = Fence(alice, record)
    topics = [topic_name, others]
    rights = [allow("bob", "WRITE", "topic", topic) for topic in topics]
    with granted(alice, *rights, denial(others)):
        wait_for(lambda: write(bob, topic_name))
        found = fence.put_up(topics, "1f", "me")
        assert found.missing == {topic_name}
        assert found.others == {others}
        wait_for(lambda: not write(bob, topic_name))
        assert write(alice, topic_name)
        # So it is found out whether the mirror of the other direction may write there.
        assert admin.unwritable(bob, topics) == set(topics)
        assert not admin.unwritable(alice, topics)
        # As after a kill: what the ledger says is enough.
        late = Fences(LedgerFollower(alice, ledger))
        late.refresh()
        assert Fence(alice, late).take_down() == 1
        wait_for(lambda: write(bob, topic_name))
        assert not write(bob, others)
        assert denial(others) in acls.describe(alice, "TOPIC")


def test_who_may_not_fence_is_told_how_to_be_allowed(people, topic_name):
    alice, bob = people["alice"], people["bob"]
    record = Fences(LedgerFollower(alice, topic_name))
    with pytest.raises(HandoverRefused, match="User:bob may not Describe cluster A"):
        Fence(bob, record).plan([topic_name])
    with granted(alice, allow("bob", "DESCRIBE")):
        fence = Fence(bob, record)
        with pytest.raises(HandoverRefused, match="we may not fence A") as refused:
            fence.plan([topic_name])
    assert "--allow-principal User:bob --operation Alter --cluster" in refused.value.hint
