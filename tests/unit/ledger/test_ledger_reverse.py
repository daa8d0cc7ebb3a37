"""What a flow in the opposite direction has brought, and in which partitions that matters."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest

from heliograph.ledger import reverse as module
from heliograph.ledger.codec import Place, Signature
from heliograph.ledger.reverse import ReverseFlow, looping, opposite
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.model import Guard, TopicPartition
from heliograph.policy import DefaultReplicationPolicy, IdentityReplicationPolicy, ledger_topic
from heliograph.wire import admin
from heliograph.wire.metadata import Metadata, PartitionInfo, TopicInfo

NOBODY: Any = None
T0 = TopicPartition("t", 0)
HERE, THERE, BEFORE = (uuid.UUID(int=n) for n in (1, 2, 3))


@dataclass
class Store:
    """The ledger of flow A->B; ``runs`` by the id of A's topic."""

    signature: Signature | None = None
    runs: dict = field(default_factory=dict)

    def refresh(self):
        pass

    def at(self, place):
        runs = self.runs.get(place.source_id, ()) if place.target_id == HERE else ()
        return PartitionLedger(runs)

    def other_sources(self, place):
        return [p for p in self.runs if p != place.source_id]


def metadata(**ids):
    info = {0: PartitionInfo(0, 0, 1)}
    return Metadata("b", 0, {}, {n: TopicInfo(n, i, False, info) for n, i in ids.items()})


@pytest.fixture
def reverse(monkeypatch):
    """Flow B->A, whose source B has ledgers of A->B and C->B; ``stores`` are theirs."""
    stores = {
        ledger_topic("A"): Store(Signature(7, "a", "b")),
        ledger_topic("C"): Store(Signature(8, "c", "b")),
    }
    monkeypatch.setattr(module, "LedgerStore", lambda _, name, shared: stores[name])
    monkeypatch.setattr(module, "first_signature", lambda _, name: stores[name].signature)
    monkeypatch.setattr(admin, "list_offsets", lambda *_: {T0: 50})
    made: Any = ReverseFlow(NOBODY, "a")
    made.stores = stores
    return made


def guard_of(reverse):
    here = metadata(t=HERE, **{ledger_topic(a): uuid.UUID(int=9) for a in "AC"})
    reverse.look(here)
    return reverse.guards({T0: "t"}, here, metadata(t=THERE)).get(T0)


def test_a_flow_from_another_cluster_is_none_in_the_opposite_direction(reverse):
    assert guard_of(reverse) == Guard(frozenset({7}), target_id=THERE)
    assert reverse.topics == [ledger_topic("A")]
    # One that has not signed yet has written nothing, and is looked at again.
    reverse.stores[ledger_topic("A")].signature = None
    other = ReverseFlow(NOBODY, "a")
    assert guard_of(other) is None
    reverse.stores[ledger_topic("A")].signature = Signature(7, "a", "b")
    assert guard_of(other) == Guard(frozenset({7}), target_id=THERE)


def test_what_it_has_mirrored_from_is_known(reverse):
    reverse.stores[ledger_topic("A")].runs = {THERE: [Run(0, 0, 0)]}
    assert guard_of(reverse) == Guard(frozenset({7}), 0, paired=True, target_id=THERE)
    place = Place("t", 0, HERE, THERE)
    assert opposite(place, "t") == Place("t", 0, THERE, HERE)
    assert reverse.at(opposite(place, "t")).runs[0] == Run(0, 0, 0)


def test_what_came_from_a_topic_that_is_gone_may_be_brought_to_the_new_one(reverse):
    store = reverse.stores[ledger_topic("A")]
    store.runs = {BEFORE: [Run(0, 0, 0)]}
    assert guard_of(reverse) == Guard(frozenset({7}), 50, target_id=THERE)
    # What came from the new topic may not.
    store.runs[THERE] = [Run(0, 0, 30)]
    assert guard_of(reverse) == Guard(frozenset({7}), 30, paired=True, target_id=THERE)


def test_only_where_names_lead_back():
    identity, default = IdentityReplicationPolicy(), DefaultReplicationPolicy()
    assert looping(identity, {"t", "heartbeats"}, "B", "A") == {"t"}
    assert looping(default, {"t", "x.t", "heartbeats"}, "B", "A") == set()

    class Stars(DefaultReplicationPolicy):
        """A's names have no star on A, and one on B."""

        def format_remote_topic(self, source_alias, topic):
            return topic + "*" if source_alias == "A" else topic.removesuffix("*")

    assert looping(Stars(), {"t", "t*"}, "B", "A") == {"t", "t*"}
