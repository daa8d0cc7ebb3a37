"""Orders to all mirrors of a flow: the last one counts, whoever tidies or compacts the topic."""

from __future__ import annotations

import json

import pytest
from compacted_topic import CompactedTopic, Keeper, Store, follower_of
from hypothesis import given
from hypothesis import strategies as st

from heliograph.claims.log import Claim, Process, encode_claim
from heliograph.claims.registry import Registry
from heliograph.ledger.begun import BegunPlaces
from heliograph.ledger.codec import decode, split
from heliograph.ledger.holds import Hold, Holds, Subject
from heliograph.ledger.memory import SyncedMemory

COPYING, ORDERS = Subject.part("copying"), Subject.topic("orders")


class Mirror:
    """A mirror's view of the orders, with what it was told."""

    def __init__(self, topic, scope=""):
        self.calls = 0
        self.follower = follower_of(topic)
        self.holds = Holds(self.follower, scope, self._called)
        self.holds.refresh()

    def _called(self):
        self.calls += 1

    def sees(self):
        self.holds.refresh()
        return set(self.holds.held)


def test_a_hold_counts_for_mirrors_that_run_and_for_those_that_start_later_until_it_is_lifted():
    topic = CompactedTopic()
    running = Mirror(topic)
    operator = Mirror(topic).holds
    operator.hold([COPYING, ORDERS], "alice@ops1", "the target is being moved")
    assert running.sees() == {COPYING, ORDERS} == Mirror(topic).sees()
    assert running.calls == 1
    hold = running.holds.parts["copying"]
    assert (hold.by, hold.why) == ("alice@ops1", "the target is being moved")
    assert running.holds.topics == {"orders": hold}
    operator.refresh()
    assert operator.lift([COPYING, Subject.part("heartbeats")]) == [COPYING]
    assert running.sees() == {ORDERS} == Mirror(topic).sees()
    assert running.calls == 2
    running.sees()
    assert running.calls == 2


def test_who_held_first_stays_named():
    topic = CompactedTopic()
    Mirror(topic).holds.hold([COPYING], "alice@ops1")
    end = topic.end
    Mirror(topic).holds.hold([COPYING], "bob@ops2")
    assert topic.end == end


def test_orders_without_a_scope_are_for_all_and_others_for_one_connector():
    topic = CompactedTopic()
    mine, other, whole = Mirror(topic, "a/b"), Mirror(topic, "other"), Mirror(topic)
    mine.holds.hold([COPYING], "alice@ops1")
    assert (mine.sees(), other.sees(), whole.sees()) == ({COPYING}, set(), set())
    whole.holds.hold([COPYING], "bob@ops2", "failover")
    assert mine.sees() == other.sees() == whole.sees() == {COPYING}
    # One's own is lifted; what is held for all is not one connector's to lift.
    assert mine.holds.parts["copying"].by == "bob@ops2"
    assert mine.holds.lift([COPYING]) == [COPYING]
    assert other.holds.lift([COPYING]) == []
    assert mine.sees() == {COPYING}
    whole.holds.restart([], "bob@ops2")
    mine.holds.restart(["copying"], "alice@ops1")
    for mirror in (mine, other, whole):
        mirror.sees()
    assert set(mine.holds.restarts) == {"", "a/b"}
    assert set(other.holds.restarts) == set(whole.holds.restarts) == {""}
    assert mine.holds.restarts["a/b"].parts == ("copying",)


def test_every_restart_is_another_one():
    topic = CompactedTopic()
    mirror = Mirror(topic)
    first = mirror.holds.restart(["copying"], "alice@ops1")
    mirror.sees()
    assert mirror.holds.restarts[""].nonce == first
    second = mirror.holds.restart(["copying"], "alice@ops1")
    assert second != first
    mirror.sees()
    assert mirror.holds.restarts[""].nonce == second
    assert mirror.calls == 2


@pytest.mark.parametrize("value", [b"no JSON", b"[]", b"{}", b'{"since": "yesterday"}', b"\xff"])
def test_what_cannot_be_read_is_held_all_the_same_and_restarts_nothing(value):
    topic = CompactedTopic()
    follower_of(topic).append([(b"hold//part/copying", value), (b"restart/", value)])
    mirror = Mirror(topic)
    assert mirror.sees() == {COPYING}
    assert mirror.holds.parts["copying"].by == "somebody"
    assert mirror.holds.restarts == {}


def test_names_of_others_cannot_forge_lines():
    text = str(Hold("eve\x1b[2J@x", 0, "a\nb"))
    assert text.isprintable()
    assert text == (r"paused by eve\x1b[2J@x since 1970-01-01T00:00:00.000Z, through Kafka: a\nb")


def keys():
    topic = CompactedTopic()
    for scope in ("", "a/b/c/d/e/f", "connector"):
        holds = Mirror(topic, scope).holds
        holds.hold([COPYING, ORDERS], "x")
        holds.restart([], "x")
    return [record.key for record in topic.records]


def test_readers_that_do_not_know_the_records_skip_them():
    for key in keys():
        assert decode(key, b"{}") is None
        assert split(key)[0] is None
    topic = CompactedTopic()
    store, begun = Store(topic), BegunPlaces()
    follower, memory = store.follower, SyncedMemory(store.follower)
    follower.attach(begun)
    registry = Registry(follower)
    keeper = Keeper(topic)
    Mirror(topic).holds.hold([COPYING, ORDERS], "x")
    Mirror(topic).holds.restart([], "x")
    store.refresh()
    assert not list(store.places)
    assert not begun.all
    assert not registry.claims.standing
    assert memory.recall("hold") == {}
    keeper.refresh()
    assert not list(keeper.store.places)


def test_an_older_reader_skips_the_addresses_in_a_claim_and_a_newer_one_their_absence():
    claim = Claim("id", Process("db7", 1), 0, 30.0, rest=("http://127.0.0.1:8083",))
    _, value = encode_claim(claim)
    told = json.loads(value)
    assert told.pop("rest") == ["http://127.0.0.1:8083"]
    topic = CompactedTopic()
    registry = Registry(follower_of(topic))
    follower_of(topic).append([(b"claim/id", json.dumps(told).encode())])
    registry.refresh()
    assert registry.claims.standing["id"].claim.rest == ()


subjects = st.sampled_from([COPYING, Subject.part("heartbeats"), ORDERS, Subject.topic("x.y-z_1")])
orders = st.lists(
    st.tuples(st.sampled_from(["", "one", "two"]), st.sampled_from(["hold", "lift", "compact"]),
              subjects)
)  # fmt: skip


@given(orders)
def test_what_rests_is_what_was_held_and_not_lifted(given_orders):
    topic = CompactedTopic()
    mirrors = {scope: Mirror(topic, scope) for scope in ("", "one", "two")}
    wanted = {scope: set() for scope in mirrors}
    for scope, word, subject in given_orders:
        holds = mirrors[scope].holds
        holds.refresh()
        if word == "hold":
            holds.hold([subject], "x")
            wanted[scope].add(subject)
        elif word == "lift":
            holds.lift([subject])
            wanted[scope].discard(subject)
        else:
            topic.compact(topic.end)
    followed = {scope: mirror.sees() for scope, mirror in mirrors.items()}
    topic.compact(topic.end, tombstones=True)
    for scope in mirrors:
        # One that has followed, and one that reads what compaction has left.
        assert followed[scope] == Mirror(topic, scope).sees() == wanted[scope] | wanted[""]
