"""A switchover that is taken back leaves nothing, as far as clusters answer."""

from types import SimpleNamespace

import pytest
from compacted_topic import CompactedTopic, follower_of

from heliograph.errors import StartError
from heliograph.failover import switchover_undo
from heliograph.failover.refusals import HandoverFailed
from heliograph.failover.steps import Steps
from heliograph.failover.switchover_undo import take_back
from heliograph.ledger.fences import Fences
from heliograph.ledger.handovers import Handover, Handovers, Kind
from heliograph.ledger.holds import Holds, Subject
from heliograph.ledger.memory import SyncedMemory
from heliograph.ledger.moves import decide_moves, moves_in
from heliograph.ledger.rehearsals import Rehearsals
from heliograph.model import Flow, TopicPartition

COPYING, CHECKPOINTS = Subject.part("copying"), Subject.part("checkpoints")
ORDERS = TopicPartition("orders", 0)


class Side:
    """A flow's ledger on its target, which answers unless it is ``away``."""

    def __init__(self):
        follower = follower_of(CompactedTopic())
        self.client, self.away = None, False
        self.holds, self.handovers = Holds(follower), Handovers(follower)
        self.fences, self.memory = Fences(follower), SyncedMemory(follower)
        self.rehearsals = Rehearsals(follower)
        self.refresh = self.holds.refresh
        self.refresh()

    def open(self):
        if self.away:
            raise StartError("cluster.unreachable", "A does not answer")
        self.refresh()

    def mirrored(self):
        return SimpleNamespace(places={ORDERS: None})


@pytest.fixture
def begun(monkeypatch):
    """A switchover that has put up its fence, stopped mirrors and decided where to begin."""
    two = SimpleNamespace(
        side=Side(), back=Side(), config=SimpleNamespace(flow=Flow("A", "B")), returns=str
    )
    down = []

    class Fence:
        def __init__(self, _client, record):
            self.record = record

        def of(self, handover):
            return {t for t, f in self.record.topics.items() if f.handover == handover}

        def take_down(self, topics):
            down.extend(topics)
            self.record.clear(list(topics))
            return len(topics)

    monkeypatch.setattr(switchover_undo, "Fence", Fence)
    two.back.fences.note(["orders"], "1f", "me")
    two.back.fences.note(["clicks"], "earlier", "me")
    decide_moves(two.back.memory, {ORDERS: 7, TopicPartition("others", 0): 8})
    two.side.holds.hold([CHECKPOINTS], "alice", "tests")
    two.side.holds.hold([COPYING], "me", "in standby", standby=True)
    facts = {"fence": True, "held": [list(COPYING)], "moves": True}
    handover = Handover("1f", Kind.SWITCHOVER, "me", 1, steps=("announce",), facts=facts)
    told = []
    return two, Steps(two.side.handovers, handover, told.append, lambda: None), down


def test_all_that_was_noted_is_undone_and_nothing_else(begun):
    two, steps, down = begun
    said = take_back(two, steps, "a writer")
    assert said == "All was taken back: the fence of 1 topic on A is gone, A->B runs on"
    assert down == ["orders"]
    assert two.back.fences.topics.keys() == {"clicks"}
    two.side.refresh()
    assert two.side.holds.held.keys() == {CHECKPOINTS}
    assert moves_in(two.back.memory).keys() == {TopicPartition("others", 0)}
    assert two.side.handovers.last.aborted
    assert not two.side.handovers.last.facts["left"]
    [rehearsal] = two.side.rehearsals.all
    assert (rehearsal.ok, rehearsal.text) == (False, "taken back: a writer")


def test_if_the_source_is_gone_the_flow_goes_on_and_the_rest_is_left_for_abort(begun):
    two, steps, down = begun
    two.back.away = True
    with pytest.raises(HandoverFailed, match="A->B runs on, but not all") as left:
        take_back(two, steps, "aborted")
    assert "--abort' does it when A answers" in left.value.hint
    two.side.refresh()
    assert two.side.holds.held.keys() == {CHECKPOINTS}
    last = two.side.handovers.last
    assert last.aborted
    assert last.facts["left"]
    # When the source is back, the rest is done; what others hold by then stays.
    two.back.away = False
    two.side.holds.hold([COPYING], "alice", "tests")
    take_back(two, Steps(two.side.handovers, last, lambda _: None, lambda: None), "aborted")
    assert down == ["orders"]
    two.side.refresh()
    assert two.side.holds.held.keys() == {COPYING, CHECKPOINTS}
    assert not two.side.handovers.last.facts["left"]
